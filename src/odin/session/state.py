"""The state of a session: a fold over its events and nothing else.

Any prefix of any log folds, and at every point the history it gives is one that every provider accepts: each tool call
is followed by exactly one result, in the order of the calls.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from odin.core.client import QueuedPrompt, Snapshot, SubAgentRecord, TurnRecord
from odin.core.event import (
    AnyEvent,
    CachedFile,
    ContextAdded,
    Envelope,
    ExitReason,
    InstructionsChanged,
    Mode,
    ModelChanged,
    Rewound,
    SessionOpened,
    TitleSet,
    Todo,
    TurnStarted,
    UsageRecorded,
)
from odin.core.message import Message, Usage
from odin.core.rule import Action
from odin.core.tool import Collected
from odin.session.conversation import Conversation, Past
from odin.session.files.changes import Change, FileHistory
from odin.session.grants import Grants
from odin.session.looping import Looping
from odin.session.permitted import Permitted
from odin.session.roster import Roster
from odin.session.summary import results_of
from odin.session.thread import Thread
from odin.session.totals import Totals
from odin.session.unfinished import Unfinished
from odin.session.waiting import Waiting


class State:
    """Everything a front end or the engine may know of a session. Only `apply` changes it.

    What belongs together is kept together, in a part of its own that knows what each event means to it.
    """

    def __init__(self, session: str = "", past: Past | None = None) -> None:
        self.session = session
        self.seq = -1
        self.cwd = ""
        self.model = ""
        self.title = ""
        self.mode: Mode = "edit_mode"
        self.instructions = ""
        self.config: dict[str, Any] = {}
        self.changes = FileHistory()
        self.unfinished = Unfinished()
        self.loop = Looping()
        self._conversation = Conversation(past, self.changes.mark)
        self._roster = Roster()
        self._waiting = Waiting()
        self._permitted = Permitted()
        self._totals = Totals()

    @classmethod
    def fold(cls, envelopes: Iterable[Envelope], session: str = "", past: Past | None = None) -> "State":
        """`past` reads the same log again; events that are all in memory are their own past."""
        kept = envelopes if isinstance(envelopes, list | tuple) else None
        state = cls(session, past or (None if kept is None else lambda: kept))
        for envelope in envelopes:
            state.apply(envelope)
        return state

    def apply(self, envelope: Envelope) -> None:
        event = envelope.event
        if event.durable:
            self.seq = max(self.seq, envelope.seq)
        self.session = self.session or envelope.session
        self.unfinished.apply(event, envelope.agent)
        self._conversation.apply(envelope)
        self._conversation.wrote(self.changes.apply(envelope))
        self._roster.apply(envelope)
        self._waiting.apply(envelope)
        self._permitted.apply(event)
        self.loop.apply(envelope)
        step = _STEPS.get(type(event))
        if step is not None:
            step(self, event, envelope)

    # The conversation, and the threads of all agents.

    def thread(self, agent: str = "") -> Thread:
        return self._roster.thread(agent) if agent else self._conversation.thread

    @property
    def open_threads(self) -> tuple[str, ...]:
        """The agents that have called something and have no result yet."""
        threads = {"": self._conversation.thread, **self._roster.threads}
        return tuple(name for name, thread in threads.items() if thread.open_calls)

    def history(self, agent: str = "") -> tuple[Message, ...]:
        """The messages to send to the model: a copy, valid for every provider."""
        return self.thread(agent).history()

    def collected(self, agent: str = "") -> tuple[Collected, ...]:
        """What an agent has gathered: the pieces of context, which are the main agent's, and its results so far."""
        added = () if agent else self._conversation.added
        context = (Collected(item.source, item.content) for item in added)
        return (*context, *results_of(self.thread(agent).finished()))

    @property
    def turns(self) -> tuple[TurnRecord, ...]:
        return tuple(turn.record() for turn in self._conversation.turns)

    @property
    def turn_count(self) -> int:
        return len(self._conversation.turns)

    @property
    def executing(self) -> bool:
        return self._conversation.executing

    @property
    def last_reason(self) -> ExitReason | None:
        """How the newest turn ended; None when there is none or it did not end."""
        turns = self._conversation.turns
        return turns[-1].reason if turns else None

    @property
    def undone(self) -> Rewound | None:
        """The rewind that a redo would take back."""
        return self._conversation.undone

    @property
    def untold(self) -> tuple[ContextAdded, ...]:
        """Context that came after the last prompt, so that no message holds it yet."""
        return self._conversation.untold

    @property
    def todos(self) -> tuple[Todo, ...]:
        return self._conversation.todos

    @property
    def files(self) -> tuple[CachedFile, ...]:
        return tuple(self._conversation.files.values())

    @property
    def context_tokens(self) -> int:
        return self._conversation.tokens

    @property
    def context_measured(self) -> bool:
        """Whether the model itself told the size of the conversation as it is now."""
        return self._conversation.measured

    def changes_since(self, turn: str) -> tuple[Change, ...] | None:
        """What was done to files since that prompt began; None when there is no such prompt."""
        found = self._conversation.turn(turn)
        return None if found is None else self.changes.since(found.changes)

    # What waits, who works, what is allowed and what was spent.

    @property
    def queue(self) -> tuple[QueuedPrompt, ...]:
        return self._waiting.prompts

    @property
    def agents(self) -> tuple[SubAgentRecord, ...]:
        return self._roster.records

    @property
    def agent_count(self) -> int:
        return self._roster.count

    @property
    def spawn_count(self) -> int:
        return self._roster.spawn_count

    def grants(self, root: str) -> Grants:
        """What a person allowed in this session, as far as it holds for work in that project."""
        return self._permitted.grants(root)

    @property
    def rules(self) -> tuple[tuple[str, Action], ...]:
        return self._permitted.rules

    @property
    def permission_mode(self) -> str:
        return self._permitted.mode

    @property
    def permission_chosen(self) -> str:
        """What a person chose in this session; "" when it is what the configuration says."""
        return self._permitted.chosen

    @property
    def budget_usd(self) -> float | None:
        return self._permitted.budget_usd

    @property
    def usage(self) -> Usage:
        return self._totals.usage

    @property
    def cost_usd(self) -> float:
        return self._totals.cost_usd

    def snapshot(self) -> Snapshot:
        told, totals = self._conversation, self._totals
        return Snapshot(
            session=self.session,
            seq=self.seq,
            cwd=self.cwd,
            model=self.model,
            title=self.title or _first_line(told.turns[0].body if told.turns else ""),
            agent_mode=self.mode,
            permission_mode=self.permission_mode,
            executing=told.executing,
            messages=self.turns,
            queue=self.queue,
            sub_agents=self.agents,
            context=tuple(told.context),
            custom_instructions=self.instructions,
            config=msgspec.to_builtins(self.config),
            files=self.files,
            todos=told.todos,
            usage=totals.usage,
            cost_usd=totals.cost_usd,
            usage_by_model={model: spent.usage for model, spent in totals.by_model.items()},
            usage_by_agent={agent: spent.usage for agent, spent in totals.by_agent.items()},
            spent_by_model=dict(totals.by_model),
            spent_by_agent=dict(totals.by_agent),
            context_tokens=told.tokens,
            context_limit=told.limit,
            message_count=len(self.history()) if told.turns else -1,
        )

    # One small step per kind of event that concerns the session as a whole.

    def _session_opened(self, event: SessionOpened, envelope: Envelope) -> None:
        self.cwd = event.cwd
        self.model = event.model
        self.instructions = event.instructions
        self.config = dict(event.config)

    def _turn_started(self, event: TurnStarted, envelope: Envelope) -> None:
        if not envelope.agent:
            self.mode = event.mode

    def _usage_recorded(self, event: UsageRecorded, envelope: Envelope) -> None:
        self._totals.add(event, envelope.agent)

    def _title_set(self, event: TitleSet, envelope: Envelope) -> None:
        self.title = event.title

    def _instructions_changed(self, event: InstructionsChanged, envelope: Envelope) -> None:
        self.instructions = event.instructions

    def _model_changed(self, event: ModelChanged, envelope: Envelope) -> None:
        self.model = event.model


_STEPS: dict[type[AnyEvent], Callable[[State, Any, Envelope], None]] = {
    SessionOpened: State._session_opened,
    TurnStarted: State._turn_started,
    UsageRecorded: State._usage_recorded,
    TitleSet: State._title_set,
    InstructionsChanged: State._instructions_changed,
    ModelChanged: State._model_changed,
}


def _first_line(text: str, limit: int = 60) -> str:
    line = text.strip().split("\n", 1)[0]
    return line if len(line) <= limit else line[: limit - 1] + "…"
