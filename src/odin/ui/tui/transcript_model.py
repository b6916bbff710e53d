"""What becomes of the calls of tools.

How a reply of the model becomes blocks: piece by piece while it streams, and as a whole when it is finished.

What stands beside the replies: notices, retries, summaries, processes, sub-agents, rewinds.

Folds the events of one agent into blocks.

The stories of all agents of a session: each has its own, and the main one shows how the others get on.
"""

from collections.abc import Callable, Iterable
from typing import Any, Literal

from odin.core.event import (
    AgentEnded,
    AgentStarted,
    AnyEvent,
    CallDiscarded,
    CallQueued,
    CallSpeculated,
    CallStreamed,
    Compacted,
    ContextAdded,
    Envelope,
    HookRan,
    MessageRemoved,
    PermissionAnswered,
    PermissionAsked,
    PromptInjected,
    QuestionsAnswered,
    QuestionsAsked,
    Redone,
    Replied,
    ReplyDiscarded,
    ReplyRolledBack,
    RetryScheduled,
    Rewound,
    SpawnFinished,
    SpawnStarted,
    TextStreamed,
    ThinkingEnded,
    ThinkingStarted,
    ThinkingStreamed,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    Warned,
)
from odin.core.message import Thinking, ToolCall
from odin.ui.event_lines import EventLines, format_retry
from odin.ui.tui.blocks import (
    AgentBlock,
    AnswerBlock,
    BlockList,
    CallBlock,
    CommandBlock,
    EndBlock,
    NoticeBlock,
    ProcessBlock,
    PromptBlock,
    ReasoningBlock,
    SummaryBlock,
    TranscriptBlock,
    shorten_output,
)

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


class ReplyBlocks:
    """The reply that is being written. A call that has begun early is more than words and outlives a rollback."""

    def __init__(self, blocks: BlockList, calls: CallBlocks) -> None:
        self._blocks = blocks
        self._calls = calls

    def start_thinking(self, event: ThinkingStarted) -> None:
        self._blocks.write(ReasoningBlock(key=self._blocks.make_key("thinking"), live=True))

    def append_thinking(self, event: ThinkingStreamed) -> None:
        block = self._blocks.open_blocks[-1] if self._blocks.open_blocks else None
        if not isinstance(block, ReasoningBlock) or not block.live:
            block = self._blocks.write(ReasoningBlock(key=self._blocks.make_key("thinking"), live=True))
        block.append(event.text)
        self._blocks.touch(block)

    def end_thinking(self, event: ThinkingEnded) -> None:
        for block in reversed(self._blocks.open_blocks):
            if isinstance(block, ReasoningBlock) and block.live:
                block.text, block.seconds, block.live = event.text, event.seconds, False
                self._blocks.touch(block)
                return

    def append_text(self, event: TextStreamed) -> None:
        block = self._blocks.open_blocks[-1] if self._blocks.open_blocks else None
        if not isinstance(block, AnswerBlock):
            block = self._blocks.write(AnswerBlock(key=self._blocks.make_key("answer"), live=True))
        block.append(event.text)
        self._blocks.touch(block)

    def update_call(self, event: CallStreamed) -> None:
        block = self._calls.find(event.call_id)
        if block is None:
            block = self._calls.register(self._blocks.write(CallBlock(key=event.call_id, name=event.name)))
        block.name = event.name or block.name
        block.chars = event.chars
        if event.done and block.state == "writing":
            block.args, block.chars = event.args, 0
        self._blocks.touch(block)

    def rollback(self, event: ReplyRolledBack | ReplyDiscarded) -> None:
        self.drop_open()

    def drop_open(self) -> None:
        """What was only written goes; what was begun stays until it is known what becomes of it."""
        gone = [block for block in self._blocks.open_blocks if not _is_speculative(block)]
        self._calls.forget(gone)
        self._blocks.drop(gone)

    def end(self) -> None:
        """The turn is over: what was never finished was never said."""
        self.drop_open()
        self._blocks.open_blocks.clear()

    def finish(self, event: Replied) -> list[TranscriptBlock]:
        """Provisional blocks become the parts of the reply, in its order."""
        message = event.message
        before = self._blocks.open_blocks
        thoughts = [block for block in before if isinstance(block, ReasoningBlock)]
        answers = [block for block in before if isinstance(block, AnswerBlock)]
        parts: list[TranscriptBlock] = []
        for part in message.parts:
            if isinstance(part, ToolCall):
                parts.append(self._declare_call(part))
            elif isinstance(part, Thinking):
                thought = thoughts.pop(0) if thoughts else ReasoningBlock(key=self._blocks.make_key("thinking"))
                thought.text, thought.live = part.text, False
                parts += [thought] if part.text.strip() else []
            else:
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
        """A call that the finished reply makes; it may have begun before."""
        block = self._calls.find(part.id) or self._calls.register(CallBlock(key=part.id, name=part.name))
        block.chars, block.args = 0, part.args
        if block.state == "writing":
            block.state = "queued"
        return block


def _is_speculative(block: TranscriptBlock) -> bool:
    return isinstance(block, CallBlock) and block.is_speculative


class NoticeBlocks:
    def __init__(self, blocks: BlockList, calls: CallBlocks) -> None:
        self._blocks = blocks
        self._calls = calls
        self._retry: tuple[NoticeBlock, RetryScheduled] | None = None
        self._processes: dict[str, ProcessBlock] = {}
        self.agents: dict[str, AgentBlock] = {}
        self._rewound: list[tuple[str, list[TranscriptBlock], NoticeBlock]] = []

    def add_notice(self, text: str, level: Literal["info", "warn", "error"] = "info") -> NoticeBlock:
        return self._blocks.add(NoticeBlock(key=self._blocks.make_key("notice"), text=text, level=level))

    def add_warning(self, event: Warned) -> None:
        self.add_notice(event.text, event.level)

    def add_context(self, event: ContextAdded) -> None:
        if not event.command:
            return
        block = self._calls.pop_command(event.id)
        if block is None:
            block = self._blocks.add(CommandBlock(key=self._blocks.make_key("command"), command=event.command))
        block.output, block.live, block.tail = shorten_output(event.content), False, []
        self._blocks.touch(block)

    def add_summary(self, event: Compacted) -> None:
        self._blocks.add(
            SummaryBlock(
                key=self._blocks.make_key("summary"),
                text=event.text,
                tokens_before=event.tokens_before,
                tokens_after=event.tokens_after,
            )
        )

    # --- retries: one notice, however many ---

    def show_retry(self, event: RetryScheduled) -> None:
        if self._retry is None:
            self._retry = self.add_notice(format_retry(event), "warn"), event
            return
        notice = self._retry[0]
        self._retry = notice, event
        notice.text = format_retry(event)
        self._blocks.touch(notice)

    def close_retry(self, then: str) -> None:
        """The model has answered, or it never will: what is said about the tries is in the past from here on."""
        if self._retry is None:
            return
        notice, event = self._retry
        self._retry = None
        times = f"{event.attempt} {'time' if event.attempt == 1 else 'times'}"
        notice.text, notice.level = f"It failed {times} ({event.error.rstrip('.')}), then {then}.", "info"
        self._blocks.touch(notice)

    # --- work elsewhere ---

    def start_process(self, event: SpawnStarted) -> None:
        block = ProcessBlock(key=event.id, command=event.command, description=event.description)
        self._processes[event.id] = self._blocks.add(block)

    def end_process(self, event: SpawnFinished) -> None:
        block = self._processes.pop(event.id, None)
        if block is not None:
            block.status, block.code, block.output = event.status, event.code, shorten_output(event.output)
            block.ended = self._blocks.now
            self._blocks.touch(block)

    def start_agent(self, event: AgentStarted) -> None:
        self.agents[event.id] = self._blocks.add(AgentBlock(key=event.id, task=event.task, mode=event.mode))

    def end_agent(self, event: AgentEnded) -> None:
        block = self.agents.get(event.id)
        if block is not None:
            block.reason, block.answer, block.ended, block.doing = event.reason, event.text, self._blocks.now, ""
            self._blocks.touch(block)

    def record_agent(self, agent: str, what: str, calls: int) -> None:
        block = self.agents.get(agent)
        if block is not None:
            block.doing = what or block.doing
            block.calls += calls
            self._blocks.touch(block)

    # --- going back ---

    def rewind(self, event: Rewound) -> list[TranscriptBlock]:
        """The conversation from that prompt on goes, and is kept for as long as it may come back."""
        files = len(event.changes)
        put_back = f"{files} {'file' if files == 1 else 'files'} put back" if files else "no file had changed"
        back = put_back if event.files else "files left as they are"
        gone = self._blocks.cut(event.turn) if event.chat else []
        left = (
            f"; {len(event.skipped_files)} left alone because somebody else changed them" if event.skipped_files else ""
        )
        notice = self.add_notice(f"Went back to before that prompt; {back}{left}. /redo takes this back.")
        self._rewound.append((event.id, gone, notice))
        return gone

    def redo(self, event: Redone) -> None:
        found = next((item for item in reversed(self._rewound) if item[0] == event.id), None)
        if found is not None:
            self._rewound.remove(found)
            self._blocks.put_back(found[1], found[2])
        self.add_notice("The rewind was taken back.")

    def forget_rewinds(self) -> None:
        """Something new was said: what was taken back can no longer return."""
        self._rewound.clear()


_SHOWN_ON_CARDS = (ToolEnded, Warned, RetryScheduled)
"""Of these the story has something better than a line."""


class TranscriptModel:
    """`blocks` in the order of the screen. `take` tells what changed since it was last asked.

    A story that has seen a session live and one that has seen only its log are the same, but for what the log does not
    keep: warnings and how long was thought.
    """

    def __init__(self) -> None:
        self._block_list = BlockList()
        self._calls = CallBlocks(self._block_list)
        self._reply = ReplyBlocks(self._block_list, self._calls)
        self._notices = NoticeBlocks(self._block_list, self._calls)
        self._event_lines = EventLines()
        self._messages: list[list[TranscriptBlock]] = []
        self._handlers: dict[type[AnyEvent], Callable[[Any], object]] = {
            TurnStarted: self._start_turn,
            PromptInjected: self._inject_prompt,
            TurnEnded: self._end_turn,
            Replied: self._finish_reply,
            MessageRemoved: self._remove_message,
            ThinkingStarted: self._reply.start_thinking,
            ThinkingStreamed: self._reply.append_thinking,
            ThinkingEnded: self._reply.end_thinking,
            TextStreamed: self._reply.append_text,
            CallStreamed: self._reply.update_call,
            ReplyRolledBack: self._reply.rollback,
            ReplyDiscarded: self._reply.rollback,
            CallQueued: self._calls.queue,
            CallSpeculated: self._calls.speculate,
            CallDiscarded: self._calls.discard,
            ToolStarted: self._calls.start,
            ToolProgressed: self._calls.record_progress,
            ToolEnded: self._calls.end,
            PermissionAsked: self._calls.mark_asking,
            QuestionsAsked: self._calls.mark_asking,
            PermissionAnswered: self._calls.mark_answered,
            QuestionsAnswered: self._calls.mark_answered,
            HookRan: self._calls.record_hook,
            ContextAdded: self._notices.add_context,
            Compacted: self._notices.add_summary,
            Warned: self._notices.add_warning,
            RetryScheduled: self._notices.show_retry,
            SpawnStarted: self._notices.start_process,
            SpawnFinished: self._notices.end_process,
            AgentStarted: self._notices.start_agent,
            AgentEnded: self._notices.end_agent,
            Rewound: self._notices.rewind,
            Redone: self._notices.redo,
        }

    def apply(self, envelope: Envelope) -> None:
        event = envelope.event
        self._block_list.now = envelope.ts
        step = self._handlers.get(type(event))
        if step is not None:
            step(event)
        line = self._event_lines.format_line(envelope)
        if line and not isinstance(event, _SHOWN_ON_CARDS):
            self._notices.add_notice(line.removeprefix(f"[{envelope.agent}] "))

    @property
    def blocks(self) -> list[TranscriptBlock]:
        return self._block_list.blocks

    def take_changes(self) -> tuple[set[TranscriptBlock], bool]:
        """The blocks that changed or came, and whether blocks went or moved; it is forgotten with this."""
        return self._block_list.take_changes()

    def touch(self, block: TranscriptBlock) -> None:
        """It is to be painted again."""
        self._block_list.touch(block)

    def find_call(self, call_id: str) -> CallBlock | None:
        """The card of a call that is still in the conversation."""
        known = self._calls.find(call_id)
        if known is not None:
            return known
        calls = (block for block in reversed(self.blocks) if isinstance(block, CallBlock))
        return next((block for block in calls if block.key == call_id), None)

    def add_command(self, id: str, command: str) -> None:
        """A command that this front end was asked to run; what it prints comes as events."""
        self._calls.add_command(id, CommandBlock(key=f"command-{id}", command=command))

    def record_agent(self, agent: str, what: str, calls: int = 0) -> None:
        """A sub-agent that this story started did something."""
        self._notices.record_agent(agent, what, calls)

    @property
    def agents(self) -> list[AgentBlock]:
        """The sub-agents that this story started."""
        return list(self._notices.agents.values())

    # --- prompts and turns ---

    def _start_turn(self, event: TurnStarted) -> None:
        self._reply.end()
        self._notices.forget_rewinds()
        prompt = PromptBlock(
            key=event.id,
            text=event.display_text or event.text,
            mode=event.mode,
            is_continuation=event.continues,
            images=event.images,
        )
        self._block_list.add(prompt)
        if not event.continues:
            self._messages.append([prompt])

    def _inject_prompt(self, event: PromptInjected) -> None:
        text = event.display_text or event.text
        prompt = PromptBlock(key=event.id, text=text, mode=event.mode, is_injected=True, images=event.images)
        self._messages.append([self._block_list.add(prompt)])

    def _finish_reply(self, event: Replied) -> None:
        self._notices.close_retry("the model answered")
        parts = self._reply.finish(event)
        if event.message.text.strip() or event.message.calls:
            self._messages.append(parts)

    def _end_turn(self, event: TurnEnded) -> None:
        self._notices.close_retry("it was stopped" if event.reason in ("interrupted", "aborted") else "Odin gave up")
        self._reply.end()
        self._calls.end_all()
        self._block_list.add(
            EndBlock(
                key=self._block_list.make_key("end"),
                reason=event.reason,
                error=event.error,
                hint=event.hint,
                steps=event.steps,
                tokens=event.usage.total,
                cost_usd=event.cost_usd,
                duration_ms=event.duration_ms,
            )
        )

    def _remove_message(self, event: MessageRemoved) -> None:
        """The newest message that is still there goes, with what became of its calls."""
        there = set(self._block_list.blocks)
        while self._messages:
            gone = there.intersection(self._messages.pop())
            if gone:
                self._block_list.drop(gone)
                return


_MAX_SUMMARY = 120


class TranscriptModels(dict[str, TranscriptModel]):
    """By the name of the agent; "" is the main one. The order is that in which they began."""

    def __init__(self) -> None:
        super().__init__({"": TranscriptModel()})

    def apply(self, envelope: Envelope) -> None:
        agent = envelope.agent
        if agent not in self:
            self[agent] = TranscriptModel()
        self[agent].apply(envelope)
        if agent:
            self._record_agent(agent, envelope)

    def _record_agent(self, agent: str, envelope: Envelope) -> None:
        event = envelope.event
        if isinstance(event, ToolStarted):
            self[""].record_agent(agent, f"{event.name} {event.description}".strip()[:_MAX_SUMMARY], calls=1)
        elif isinstance(event, Replied) and event.message.text.strip():
            self[""].record_agent(agent, event.message.text.strip().split("\n")[0][:_MAX_SUMMARY])

    def find_next(self, agent: str) -> str:
        """The next agent to look at, round and round."""
        names = list(self)
        return names[(names.index(agent) + 1) % len(names)] if agent in names else ""
