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
    PromptJoined,
    QuestionsAnswered,
    QuestionsAsked,
    Redone,
    Replied,
    ReplyDiscarded,
    RetryScheduled,
    Rewound,
    RolledBack,
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
from odin.ui.telling import Telling
from odin.ui.tui.story.beside import Beside
from odin.ui.tui.story.block import AgentBlock, Block, CallBlock, CommandBlock, EndBlock, PromptBlock
from odin.ui.tui.story.calls import Calls
from odin.ui.tui.story.page import Page
from odin.ui.tui.story.reply import Reply

_TOLD_ON_CARDS = (ToolEnded, Warned, RetryScheduled)
"""Of these the story has something better than a line."""


class Story:
    """`blocks` in the order of the screen. `take` tells what changed since it was last asked.

    A story that has seen a session live and one that has seen only its log are the same, but for what the log does not
    keep: warnings and how long was thought.
    """

    def __init__(self) -> None:
        self._page = Page()
        self._calls = Calls(self._page)
        self._reply = Reply(self._page, self._calls)
        self._beside = Beside(self._page, self._calls)
        self._telling = Telling()
        self._messages: list[list[Block]] = []
        self._steps: dict[type[AnyEvent], Callable[[Any], object]] = {
            TurnStarted: self._turn_started,
            PromptJoined: self._prompt_joined,
            TurnEnded: self._turn_ended,
            Replied: self._replied,
            MessageRemoved: self._message_removed,
            ThinkingStarted: self._reply.thinking_started,
            ThinkingStreamed: self._reply.thinking_streamed,
            ThinkingEnded: self._reply.thinking_ended,
            TextStreamed: self._reply.text_streamed,
            CallStreamed: self._reply.call_streamed,
            RolledBack: self._reply.taken_back,
            ReplyDiscarded: self._reply.taken_back,
            CallQueued: self._calls.queued,
            CallSpeculated: self._calls.begun_early,
            CallDiscarded: self._calls.discarded,
            ToolStarted: self._calls.started,
            ToolProgressed: self._calls.progressed,
            ToolEnded: self._calls.ended,
            PermissionAsked: self._calls.asked,
            QuestionsAsked: self._calls.asked,
            PermissionAnswered: self._calls.answered,
            QuestionsAnswered: self._calls.answered,
            HookRan: self._calls.hooked,
            ContextAdded: self._beside.context_added,
            Compacted: self._beside.compacted,
            Warned: self._beside.warned,
            RetryScheduled: self._beside.retry,
            SpawnStarted: self._beside.spawn_started,
            SpawnFinished: self._beside.spawn_finished,
            AgentStarted: self._beside.agent_started,
            AgentEnded: self._beside.agent_ended,
            Rewound: self._beside.rewound,
            Redone: self._beside.redone,
        }

    def see(self, envelope: Envelope) -> None:
        event = envelope.event
        self._page.now = envelope.ts
        step = self._steps.get(type(event))
        if step is not None:
            step(event)
        line = self._telling.line(envelope)
        if line and not isinstance(event, _TOLD_ON_CARDS):
            self._beside.notice(line.removeprefix(f"[{envelope.agent}] "))

    @property
    def blocks(self) -> list[Block]:
        return self._page.blocks

    def take(self) -> tuple[set[Block], bool]:
        """The blocks that changed or came, and whether blocks went or moved; it is forgotten with this."""
        return self._page.take()

    def touch(self, block: Block) -> None:
        """It is to be painted again."""
        self._page.touch(block)

    def call(self, call_id: str) -> CallBlock | None:
        """The card of a call that is still in the conversation."""
        known = self._calls.known(call_id)
        if known is not None:
            return known
        calls = (block for block in reversed(self.blocks) if isinstance(block, CallBlock))
        return next((block for block in calls if block.key == call_id), None)

    def command(self, id: str, command: str) -> None:
        """A command that this front end was asked to run; what it prints comes as events."""
        self._calls.command(id, CommandBlock(key=f"command-{id}", command=command))

    def agent_did(self, agent: str, what: str, calls: int = 0) -> None:
        """A sub-agent that this story started did something."""
        self._beside.agent_did(agent, what, calls)

    @property
    def agents(self) -> list[AgentBlock]:
        """The sub-agents that this story started."""
        return list(self._beside.agents.values())

    # --- prompts and turns ---

    def _turn_started(self, event: TurnStarted) -> None:
        self._reply.over()
        self._beside.no_way_back()
        prompt = PromptBlock(
            key=event.id,
            text=event.shown or event.text,
            mode=event.mode,
            continues=event.continues,
            images=event.images,
        )
        self._page.add(prompt)
        if not event.continues:
            self._messages.append([prompt])

    def _prompt_joined(self, event: PromptJoined) -> None:
        text = event.shown or event.text
        prompt = PromptBlock(key=event.id, text=text, mode=event.mode, joined=True, images=event.images)
        self._messages.append([self._page.add(prompt)])

    def _replied(self, event: Replied) -> None:
        self._beside.tried("the model answered")
        parts = self._reply.finished(event)
        if event.message.text.strip() or event.message.calls:
            self._messages.append(parts)

    def _turn_ended(self, event: TurnEnded) -> None:
        self._beside.tried("it was stopped" if event.reason in ("interrupted", "aborted") else "Odin gave up")
        self._reply.over()
        self._calls.end_all()
        self._page.add(
            EndBlock(
                key=self._page.key("end"),
                reason=event.reason,
                error=event.error,
                hint=event.hint,
                steps=event.steps,
                tokens=event.usage.total,
                cost_usd=event.cost_usd,
                duration_ms=event.duration_ms,
            )
        )

    def _message_removed(self, event: MessageRemoved) -> None:
        """The newest message that is still there goes, with what became of its calls."""
        there = set(self._page.blocks)
        while self._messages:
            gone = there.intersection(self._messages.pop())
            if gone:
                self._page.drop(gone)
                return
