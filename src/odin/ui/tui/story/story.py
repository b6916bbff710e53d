"""Folds the events of one agent into blocks."""

from collections.abc import Callable
from typing import Any

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
from odin.ui.telling import EventLines
from odin.ui.tui.story.beside import NoticeBlocks
from odin.ui.tui.story.block import AgentBlock, CallBlock, CommandBlock, EndBlock, PromptBlock, TranscriptBlock
from odin.ui.tui.story.calls import CallBlocks
from odin.ui.tui.story.page import BlockList
from odin.ui.tui.story.reply import ReplyBlocks

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
