"""Blocks of the reply being streamed and of its tool calls: how events change them."""

from collections.abc import Iterable

from odin.core.call_events import (
    CallDiscarded,
    CallQueued,
    CallSpeculated,
    CallStreamed,
    HookRan,
    PermissionAnswered,
    PermissionAsked,
    PlanAnswered,
    PlanAsked,
    QuestionsAnswered,
    QuestionsAsked,
    Replied,
    ReplyDiscarded,
    ReplyRolledBack,
    TextStreamed,
    ThinkingEnded,
    ThinkingStarted,
    ThinkingStreamed,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
)
from odin.core.event import AnyEvent
from odin.core.format import pluralize
from odin.core.message import Thinking, ToolCall
from odin.ui.progress import get_denial_reason
from odin.ui.transcript.blocks import (
    AnswerBlock,
    BlockList,
    CallBlock,
    CommandBlock,
    ReasoningBlock,
    TranscriptBlock,
    shorten_output,
)

TAIL_LINES = 200
"""Lines of output kept for a running tool call."""

_DISCARD_REASONS = {
    "filtered": "the final reply does not contain this call, or its files could not be saved",
    "args_invalid": "the reply could not be parsed",
    "args_drift": "its arguments changed after it had started",
    "length_recovery": "the reply was cut off",
    "hook_block": "a hook denied it",
    "repetition": "the model repeated itself",
    "rollback": "the reply was restarted",
    "interrupted": "it was interrupted",
    "not_run": "it may no longer run",
    "crashed": "Odin was killed while it was running",
}


class CallBlocks:
    """Tool calls of the running turn, by id, and the user's own `!` commands."""

    def __init__(self, blocks: BlockList) -> None:
        self._blocks = blocks
        self._calls: dict[str, CallBlock] = {}
        self._discarded: dict[str, CallBlock] = {}
        self._commands: dict[str, CommandBlock] = {}

    def apply(self, event: AnyEvent) -> None:
        match event:
            case CallQueued():
                block = self._find_or_add(event.call_id, event.name)
                if not block.is_over and block.state != "running":
                    block.state, block.chars = "queued", 0
            case CallSpeculated():
                block = self._calls.get(event.call_id)
                if block is None:
                    block = self.register(self._blocks.write(CallBlock(key=event.call_id, name=event.name)))
                block.state, block.args, block.chars = "running", event.args, 0
                block.started, block.is_speculative = self._blocks.now, True
                self._blocks.touch(block)
            case CallDiscarded():
                # Keep the card, because the call ran or was about to, but detach it from the reply being written.
                block = self._calls.pop(event.call_id, None)
                if block is None or block.is_over:
                    return
                self._discarded[event.call_id] = block
                block.state, block.tail, block.explanation = (
                    "discarded",
                    [],
                    _DISCARD_REASONS.get(event.reason, event.reason),
                )
                if event.skipped_files:
                    block.explanation += f"; {pluralize(len(event.skipped_files), 'file')} could not be restored"
                self._blocks.open_blocks = [other for other in self._blocks.open_blocks if other is not block]
                self._blocks.touch(block)
            case ToolStarted():
                block = self._find_or_add(event.call_id, event.name)
                if not (block.is_speculative and block.state == "running"):
                    block.started = self._blocks.now
                block.state, block.args, block.description, block.chars = "running", event.args, event.description, 0
            case ToolProgressed():
                block = self._calls.get(event.call_id) or self._commands.get(event.call_id)
                if block is None or not event.text or (isinstance(block, CallBlock) and block.is_over):
                    return
                lines = event.text.split("\n")
                if isinstance(block, CallBlock):
                    block.printed += len(lines)
                block.tail += lines
                del block.tail[:-TAIL_LINES]
                self._blocks.touch(block)
            case ToolEnded():
                block = self._find_or_add(event.call_id, event.name)
                block.state = event.status
                block.duration_ms = event.duration_ms
                block.view, block.note = shorten_output(event.display), event.note
                block.for_user, block.aside = event.for_user, event.aside
                if event.status == "error" and event.error_kind == "Rejected":
                    block.state, block.explanation = "discarded", "What it changed was discarded."
                block.result = "" if event.display else shorten_output(event.text)
                block.images, block.redacted, block.background = event.images, event.redacted, event.asynchronous
                block.tail, block.chars, block.printed = [], 0, 0
                if event.status == "denied" and not block.explanation:
                    block.explanation = get_denial_reason(event)
                if event.audit is not None:
                    block.args, block.original_args = event.audit.effective, event.audit.original
                    block.changed_by = event.audit.by
            case PermissionAsked() | QuestionsAsked() | PlanAsked():
                block = self._calls.get(event.call_id)
                if block is not None and not block.is_over:
                    block.state = "asking"
                    self._blocks.touch(block)
            case PermissionAnswered() | QuestionsAnswered() | PlanAnswered():
                block = self._calls.get(event.call_id)
                if block is None or block.is_over:
                    return
                block.state = (
                    "running" if isinstance(event, QuestionsAnswered | PlanAnswered) or block.started else "queued"
                )
                if isinstance(event, PermissionAnswered) and not event.allowed:
                    denied = "denied by you" if event.by == "user" else f"denied by {event.by}"
                    denied += f" from {event.client}" if event.client else ""
                    block.explanation = f"{denied}: {event.reason}" if event.reason else denied
                self._blocks.touch(block)
            case HookRan():
                block = self._calls.get(event.call_id)
                if block is not None and event.outcome == "denied" and not block.is_over:
                    detail = f": {event.detail}" if event.detail else ""
                    block.explanation = f"denied by hook {event.hook}{detail}"
            case _:
                pass

    def find(self, call_id: str) -> CallBlock | None:
        return self._calls.get(call_id)

    def register(self, block: CallBlock) -> CallBlock:
        self._calls[block.key] = block
        return block

    def forget(self, blocks: Iterable[TranscriptBlock]) -> None:
        for block in blocks:
            if isinstance(block, CallBlock):
                self._calls.pop(block.key, None)

    def end_all(self) -> None:
        """The turn is over: mark all unfinished calls as cancelled."""
        for block in self._calls.values():
            if not block.is_over:
                block.state, block.tail = "cancelled", []
                self._blocks.touch(block)
        self._calls.clear()
        self._discarded.clear()

    def add_command(self, id: str, block: CommandBlock) -> None:
        self._commands[id] = self._blocks.add(block)

    def pop_command(self, id: str) -> CommandBlock | None:
        return self._commands.pop(id, None)

    def _find_or_add(self, call_id: str, name: str) -> CallBlock:
        block = self._calls.get(call_id) or self._discarded.get(call_id)  # a call of a finished reply tells its end
        if block is None:
            return self.register(self._blocks.add(CallBlock(key=call_id, name=name)))
        self._blocks.touch(block)
        return block


class ReplyBlocks:
    """The reply being streamed. A speculative call in it survives a rollback, because it already runs."""

    def __init__(self, blocks: BlockList, calls: CallBlocks) -> None:
        self._blocks = blocks
        self._calls = calls

    def apply(self, event: AnyEvent) -> None:
        match event:
            case TextStreamed():
                block = self._blocks.open_blocks[-1] if self._blocks.open_blocks else None
                if not isinstance(block, AnswerBlock):
                    block = self._blocks.write(AnswerBlock(key=self._blocks.make_key("answer"), live=True))
                block.append(event.text)
                self._blocks.touch(block)
            case ThinkingStarted():
                self._start_thinking()
            case ThinkingStreamed():
                block = self._blocks.open_blocks[-1] if self._blocks.open_blocks else None
                if not isinstance(block, ReasoningBlock) or not block.live:
                    block = self._start_thinking()
                block.append(event.text)
                self._blocks.touch(block)
            case ThinkingEnded():
                for block in reversed(self._blocks.open_blocks):
                    if isinstance(block, ReasoningBlock) and block.live:
                        block.text, block.seconds, block.live = event.text, event.seconds, False
                        self._blocks.touch(block)
                        return
            case CallStreamed():
                block = self._calls.find(event.call_id)
                if block is None:
                    block = self._calls.register(self._blocks.write(CallBlock(key=event.call_id, name=event.name)))
                block.name = event.name or block.name
                block.chars = event.chars
                if event.done and block.state == "writing":
                    block.args, block.chars = event.args, 0
                self._blocks.touch(block)
            case ReplyRolledBack() | ReplyDiscarded():
                self._drop_open()
            case _:
                pass

    def _start_thinking(self) -> ReasoningBlock:
        return self._blocks.write(ReasoningBlock(key=self._blocks.make_key("thinking"), live=True))

    def _drop_open(self) -> None:
        """Drop the blocks of the unfinished reply, except speculative calls, whose outcome follows."""
        gone = [block for block in self._blocks.open_blocks if not _is_speculative(block)]
        self._calls.forget(gone)
        self._blocks.drop(gone)

    def end(self) -> None:
        """The turn is over: drop the unfinished reply."""
        self._drop_open()
        self._blocks.open_blocks.clear()

    def finish(self, event: Replied) -> list[TranscriptBlock]:
        """Replace the streamed blocks by the parts of the finished reply, in its order, and return them."""
        message = event.message
        before = self._blocks.open_blocks
        thoughts = [block for block in before if isinstance(block, ReasoningBlock)]
        answers = [block for block in before if isinstance(block, AnswerBlock)]
        parts: list[TranscriptBlock] = []
        for part in message.parts:
            match part:
                case ToolCall():
                    parts.append(self._declare_call(part))
                case Thinking():
                    thought = thoughts.pop(0) if thoughts else ReasoningBlock(key=self._blocks.make_key("thinking"))
                    thought.text, thought.live = part.text, False
                    parts += [thought] if part.text.strip() else []
                case _:
                    answer = answers.pop(0) if answers else AnswerBlock(key=self._blocks.make_key("answer"))
                    answer.text, answer.live, answer.interrupted = part.text, False, message.interrupted
                    parts += [answer] if part.text.strip() else []
        for block in parts:
            block.ts = block.ts or self._blocks.now
        rest = [block for block in before if block not in parts]
        stay = [block for block in rest if _is_speculative(block)]
        self._calls.forget(block for block in rest if block not in stay)
        self._blocks.finish(parts, stay)
        return parts

    def _declare_call(self, part: ToolCall) -> CallBlock:
        """Return the block of a call in the finished reply; a speculative one may already be running."""
        block = self._calls.find(part.id) or self._calls.register(CallBlock(key=part.id, name=part.name))
        block.chars, block.args = 0, part.args
        if block.state == "writing":
            block.state = "queued"
        return block


def _is_speculative(block: TranscriptBlock) -> bool:
    return isinstance(block, CallBlock) and block.is_speculative
