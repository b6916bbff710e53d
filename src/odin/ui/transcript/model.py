"""Folds the events of a session into the blocks of its transcripts, one `TranscriptModel` per agent.

A model fed live and a model fed from the log end up with the same blocks, except for what the log does not store:
warnings and how long the model was thinking.
"""

from typing import Literal

from odin.core.call_events import (
    Replied,
    RetryScheduled,
    SpawnFinished,
    SpawnListening,
    SpawnStarted,
    ToolEnded,
    ToolStarted,
    UsageRecorded,
)
from odin.core.event import (
    AgentEnded,
    AgentStarted,
    Compacted,
    CompactionChanged,
    ContextAdded,
    Envelope,
    MessageRemoved,
    PromptInjected,
    Redone,
    Rewound,
    TurnEnded,
    TurnStarted,
    Warned,
)
from odin.core.format import pluralize
from odin.core.team import TaskChanged, get_state_after
from odin.core.timeline import follow_turns, get_source
from odin.ui.exit import describe_verification, suggest_next_step
from odin.ui.progress import EventLines, format_retry
from odin.ui.transcript.blocks import (
    AgentBlock,
    BlockList,
    CommandBlock,
    EndBlock,
    NoticeBlock,
    ProcessBlock,
    PromptBlock,
    SummaryBlock,
    TranscriptBlock,
    shorten_output,
)
from odin.ui.transcript.reply_blocks import CallBlocks, ReplyBlocks


class NoticeBlocks:
    """Blocks that are not part of a reply: notices, retries, summaries, background processes, sub-agents, rewinds."""

    def __init__(self, blocks: BlockList, calls: CallBlocks) -> None:
        self._blocks = blocks
        self._calls = calls
        self._retry: tuple[NoticeBlock, RetryScheduled] | None = None
        self._processes: dict[str, ProcessBlock] = {}
        self.agents: dict[str, AgentBlock] = {}
        self.replaced_calls: dict[TranscriptBlock, TranscriptBlock] = {}
        """Calls that are not shown, and the block that is shown in their place."""
        self._timeline = follow_turns()
        self._rewinds: dict[str, tuple[list[TranscriptBlock], NoticeBlock]] = {}
        """The blocks that a rewind removed, and its notice."""

    def apply(self, envelope: Envelope) -> None:
        event, turns = envelope.event, self._timeline.apply(envelope)
        match event:
            case Warned():
                self.add_notice(event.text, event.level)
            case ContextAdded():
                if not event.command:
                    return
                block = self._calls.pop_command(event.id)
                if block is None:
                    block = self._blocks.add(CommandBlock(key=self._blocks.make_key("command"), command=event.command))
                block.output, block.live, block.tail = shorten_output(event.content), False, []
                self._blocks.touch(block)
            case Compacted():
                self._blocks.add(
                    SummaryBlock(
                        key=self._blocks.make_key("summary"),
                        text=event.text,
                        tokens_before=event.tokens_before,
                        tokens_after=event.tokens_after,
                    )
                )
            case CompactionChanged(status="failed", trigger="manual"):
                then = "" if event.final else " Odin writes a summary without the model."
                self.add_notice(f"{event.detail}{then}", "warn")
            case RetryScheduled():
                # Show all retries of a request in one notice.
                if self._retry is None:
                    self._retry = self.add_notice(format_retry(event), "warn"), event
                    return
                notice = self._retry[0]
                self._retry = notice, event
                notice.text = format_retry(event)
                self._blocks.touch(notice)
            case SpawnStarted():
                block = ProcessBlock(key=event.id, command=event.command, description=event.description)
                self._processes[event.id] = self._blocks.add(block)
            case SpawnListening():
                block = self._processes.get(event.id)
                if block is not None:
                    block.urls[event.port] = event.url
                    self._blocks.touch(block)
            case SpawnFinished():
                block = self._processes.pop(event.id, None)
                if block is not None:
                    block.status, block.code, block.output = event.status, event.code, shorten_output(event.output)
                    block.ended = self._blocks.now
                    self._blocks.touch(block)
            case AgentStarted():
                # Show the sub-agent in place of its call, which would say the same.
                # An agent that continues a task has its own card: that of the call shows the agent before it.
                block = AgentBlock(
                    key=event.id,
                    task=event.task,
                    mode=event.mode,
                    description=event.description,
                    type=event.agent_type,
                    color=event.color,
                    model=event.model,
                    task_id=event.task_id,
                )
                if (before := self.agents.get(event.continues)) is not None and not before.note:
                    before.note = f"Continued by {event.id}."
                    self._blocks.touch(before)
                call = None if event.continues else self._calls.find(event.call_id)
                self.agents[event.id] = self._blocks.add(block) if call is None else self._blocks.replace(call, block)
                if call is not None:
                    self.replaced_calls[call] = block
            case AgentEnded():
                block = self.agents.get(event.id)
                if block is not None:
                    block.reason, block.answer, block.ended = event.reason, event.text, self._blocks.now
                    block.doing, block.state = "", get_state_after(block.state)
                    self._blocks.touch(block)
            case TurnStarted():
                self._rewinds.clear()
            case Rewound():
                # Remove the blocks from that prompt on, and keep them for a redo.
                if not event.files:
                    files = "files left as they are"
                elif event.changes:
                    files = f"{pluralize(len(event.changes), 'file')} restored"
                else:
                    files = "no file had changed"
                if event.skipped_files:
                    files += f"; {len(event.skipped_files)} skipped because something else changed them"
                if event.stopped:
                    files += f"; stopped {', '.join(event.stopped)}"
                removed = self._blocks.cut(turns[0].id) if turns else []
                notice = self.add_notice(f"Rewound to before that prompt; {files}. /redo undoes this.")
                self._rewinds[event.id] = removed, notice
            case Redone():
                if rewind := self._rewinds.pop(event.id, None):
                    self._blocks.put_back(*rewind)
                self.add_notice("The rewind was undone.")
            case _:
                pass

    def add_notice(self, text: str, level: Literal["info", "warn", "error"] = "info") -> NoticeBlock:
        return self._blocks.add(NoticeBlock(key=self._blocks.make_key("notice"), text=text, level=level))

    def close_retry(self, then: str) -> None:
        """The request succeeded or was given up: put the retry notice into the past tense."""
        if self._retry is None:
            return
        notice, event = self._retry
        self._retry = None
        times = pluralize(event.attempt, "time")
        notice.text, notice.level = f"The request failed {times} ({event.error.rstrip('.')}), then {then}.", "info"
        self._blocks.touch(notice)

    def record_task(self, agent: str, event: TaskChanged) -> None:
        """Show the new state of the agent's task: its summary, or why it waits or ended."""
        block = self.agents.get(agent)
        if block is not None and block.task_id == event.id:
            block.state = event.state
            block.note = "" if event.state == "running" else event.summary or event.reason
            self._blocks.touch(block)

    def record_model(self, agent: str, model: str) -> None:
        block = self.agents.get(agent)
        if block is not None and block.model != model:
            block.model = model
            self._blocks.touch(block)

    def record_agent(self, agent: str, what: str, *, calls: int = 0, denied: int = 0) -> None:
        """Update the card of a sub-agent: its latest activity and the number of its tool calls."""
        block = self.agents.get(agent)
        if block is not None:
            block.doing = what or block.doing
            block.calls += calls
            block.denied += denied
            self._blocks.touch(block)


_SHOWN_ON_CARDS = (ToolEnded, Warned, RetryScheduled)
"""Events that have a card or notice of their own, so their event line is not shown."""


class TranscriptModel(BlockList):
    """The transcript of one agent, as `blocks` in screen order."""

    def __init__(self) -> None:
        super().__init__()
        self._calls = CallBlocks(self)
        self._reply = ReplyBlocks(self, self._calls)
        self.notices = NoticeBlocks(self, self._calls)
        self._event_lines = EventLines()
        self._messages: list[list[TranscriptBlock]] = []

    def apply(self, envelope: Envelope) -> None:
        event = envelope.event
        self.now = envelope.ts
        self._reply.apply(event)
        self._calls.apply(event)
        self.notices.apply(envelope)
        match event:
            case TurnStarted():
                self._reply.end()
                prompt = PromptBlock(
                    key=event.id,
                    text=event.body,
                    mode=event.mode,
                    is_continuation=event.continues,
                    is_mail=get_source(event) == "mail",
                    images=event.images,
                )
                self.add(prompt)
                if not event.continues:
                    self._messages.append([prompt])
            case PromptInjected():
                text = event.body
                prompt = PromptBlock(key=event.id, text=text, mode=event.mode, is_injected=True, images=event.images)
                self._messages.append([self.add(prompt)])
            case Replied():
                self.notices.close_retry("the model answered")
                parts = self._reply.finish(event)
                if event.message.text.strip() or event.message.calls:
                    self._messages.append(parts)
            case MessageRemoved():
                self._remove_message()
            case TurnEnded():
                self.notices.close_retry(
                    "it was stopped" if event.reason in ("interrupted", "aborted") else "Odin gave up"
                )
                self._reply.end()
                self._calls.end_all()
                if checks := describe_verification(event.verification):
                    is_bad = event.verification is not None and event.verification.outcome in ("failed", "timed_out")
                    self.notices.add_notice(checks, "warn" if is_bad else "info")
                self.add(
                    EndBlock(
                        key=self.make_key("end"),
                        reason=event.reason,
                        error=event.error,
                        hint=event.hint,
                        next_step=suggest_next_step(event),
                        steps=event.steps,
                        cost_usd=event.cost_usd,
                        duration_ms=event.duration_ms,
                    )
                )
            case _:
                pass
        line = self._event_lines.format_line(envelope)
        if line and not isinstance(event, _SHOWN_ON_CARDS):
            self.notices.add_notice(line.removeprefix(f"[{envelope.agent}] "))

    def add_command(self, id: str, command: str) -> None:
        """Add a `!` command sent by this front end; its output arrives as events."""
        self._calls.add_command(id, CommandBlock(key=f"command-{id}", command=command))

    @property
    def agents(self) -> list[AgentBlock]:
        """The sub-agents started by this agent."""
        return list(self.notices.agents.values())

    def _remove_message(self) -> None:
        """Drop the newest message that is still shown, with its tool calls."""
        shown = set(self.blocks)
        while self._messages:
            parts = self._messages.pop()
            removed = shown.intersection(self.notices.replaced_calls.get(block, block) for block in parts)
            if removed:
                self.drop(removed)
                return


_MAX_SUMMARY = 120


class TranscriptModels(dict[str, TranscriptModel]):
    """Transcript models by agent name, in start order; "" is the main agent.

    The main transcript also shows what each sub-agent is doing.
    """

    def __init__(self) -> None:
        super().__init__({"": TranscriptModel()})

    def apply(self, envelope: Envelope) -> None:
        agent = envelope.agent
        if agent not in self:
            self[agent] = TranscriptModel()
        self[agent].apply(envelope)
        if agent:
            main = self[""].notices
            match envelope.event:
                case ToolStarted(name=name, description=description):
                    main.record_agent(agent, f"{name} {description}".strip()[:_MAX_SUMMARY], calls=1)
                case ToolEnded(status="denied"):
                    main.record_agent(agent, "", denied=1)
                case TaskChanged() as event:
                    main.record_task(agent, event)
                case UsageRecorded(purpose="main", model=model):
                    main.record_model(agent, model)
                case Warned(text=text) if agent in main.agents and main.agents[agent].reason:
                    main.agents[agent].note = f"{main.agents[agent].note}\n{text}".strip()
                    self[""].touch(main.agents[agent])
                case Replied(message=message) if message.text.strip():
                    main.record_agent(agent, message.text.strip().split("\n")[0][:_MAX_SUMMARY])
                case _:
                    pass
