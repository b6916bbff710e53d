"""What becomes of the calls of tools."""

from collections.abc import Iterable

from odin.core.event import (
    CallDiscarded,
    CallQueued,
    CallSpeculated,
    HookRan,
    PermissionAnswered,
    PermissionAsked,
    QuestionsAnswered,
    QuestionsAsked,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
)
from odin.ui.tui.story.block import CallBlock, CommandBlock, TranscriptBlock, shorten_output
from odin.ui.tui.story.page import BlockList

TAIL_LINES = 200
"""Lines of a running call's output that are kept to be shown."""

_DISCARD_REASONS = {
    "filtered": "the reply was filtered",
    "args_invalid": "its arguments were wrong after all",
    "args_drift": "its arguments changed after it had begun",
    "length_recovery": "the reply was cut off",
    "hook_block": "a hook said no",
    "repetition": "the reply repeated itself",
    "rollback": "the reply began again",
    "interrupted": "it was interrupted",
    "not_run": "the reply does not make this call",
    "crashed": "Odin was ended in the middle of it",
}


class CallBlocks:
    """The calls of the turn that runs, by id, and the commands of the person's own."""

    def __init__(self, blocks: BlockList) -> None:
        self._blocks = blocks
        self._calls: dict[str, CallBlock] = {}
        self._commands: dict[str, CommandBlock] = {}

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
        """The turn is over: whatever has not ended never will."""
        for block in self._calls.values():
            if not block.is_over:
                block.state, block.tail = "cancelled", []
                self._blocks.touch(block)
        self._calls.clear()

    def add_command(self, id: str, block: CommandBlock) -> None:
        self._commands[id] = self._blocks.add(block)

    def pop_command(self, id: str) -> CommandBlock | None:
        return self._commands.pop(id, None)

    def _find_or_add(self, call_id: str, name: str) -> CallBlock:
        block = self._calls.get(call_id)
        if block is None:
            return self.register(self._blocks.add(CallBlock(key=call_id, name=name)))
        self._blocks.touch(block)
        return block

    def queue(self, event: CallQueued) -> None:
        block = self._find_or_add(event.call_id, event.name)
        if not block.is_over and block.state != "running":
            block.state, block.chars = "queued", 0

    def speculate(self, event: CallSpeculated) -> None:
        block = self._calls.get(event.call_id)
        if block is None:
            block = self.register(self._blocks.write(CallBlock(key=event.call_id, name=event.name)))
        block.state, block.args, block.started, block.is_speculative, block.chars = (
            "running",
            event.args,
            self._blocks.now,
            True,
            0,
        )
        self._blocks.touch(block)

    def discard(self, event: CallDiscarded) -> None:
        """It keeps its card: it ran, or was about to. From here on it belongs to no reply."""
        block = self._calls.pop(event.call_id, None)
        if block is None or block.is_over:
            return
        block.state, block.tail, block.explanation = "discarded", [], _DISCARD_REASONS.get(event.reason, event.reason)
        if event.skipped_files:
            block.explanation += f"; {len(event.skipped_files)} files could not be put back"
        self._blocks.open_blocks = [one for one in self._blocks.open_blocks if one is not block]
        self._blocks.touch(block)

    def start(self, event: ToolStarted) -> None:
        block = self._find_or_add(event.call_id, event.name)
        if not (block.is_speculative and block.state == "running"):
            block.started = self._blocks.now
        block.state, block.args, block.description, block.chars = "running", event.args, event.description, 0

    def record_progress(self, event: ToolProgressed) -> None:
        block = self._calls.get(event.call_id) or self._commands.get(event.call_id)
        if block is None or not event.text or (isinstance(block, CallBlock) and block.is_over):
            return
        lines = event.text.split("\n")
        if isinstance(block, CallBlock):
            block.printed += len(lines)
        block.tail += lines
        del block.tail[:-TAIL_LINES]
        self._blocks.touch(block)

    def end(self, event: ToolEnded) -> None:
        block = self._find_or_add(event.call_id, event.name)
        block.state = event.status
        block.duration_ms = event.duration_ms
        block.view, block.note, block.for_user = shorten_output(event.display), event.note, event.for_user
        block.result = "" if event.display else shorten_output(event.text)
        block.images, block.redacted, block.background = event.images, event.redacted, event.asynchronous
        block.tail, block.chars, block.printed = [], 0, 0
        if event.audit is not None:
            block.args, block.original_args, block.changed_by = (
                event.audit.effective,
                event.audit.original,
                event.audit.by,
            )

    def mark_asking(self, event: PermissionAsked | QuestionsAsked) -> None:
        block = self._calls.get(event.call_id)
        if block is not None and not block.is_over:
            block.state = "asking"
            self._blocks.touch(block)

    def mark_answered(self, event: PermissionAnswered | QuestionsAnswered) -> None:
        block = self._calls.get(event.call_id)
        if block is None or block.is_over:
            return
        block.state = "running" if isinstance(event, QuestionsAnswered) or block.started else "queued"
        if isinstance(event, PermissionAnswered) and not event.allowed:
            who = "you said no" if event.by == "user" else f"{event.by} said no"
            block.explanation = f"{who}: {event.reason}" if event.reason else who
        self._blocks.touch(block)

    def record_hook(self, event: HookRan) -> None:
        block = self._calls.get(event.call_id)
        if block is not None and event.outcome == "denied" and not block.is_over:
            block.explanation = f"the hook {event.hook} said no" + (f": {event.detail}" if event.detail else "")
