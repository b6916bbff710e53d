"""What a whole session comes to, told in one pass: its title, its prompts, its usage, and what was taken back."""

from collections.abc import Iterable

from msgspec import Struct, field

from odin.core.errors import PromptBlocked
from odin.core.event import (
    Envelope,
    ExitReason,
    Mode,
    ModelChanged,
    Redone,
    Rewound,
    SessionOpened,
    TitleSet,
    TurnEnded,
    TurnStarted,
    UsageRecorded,
)
from odin.core.message import Usage

_FIRST_CHARS = 200


class TurnLine(Struct):
    """One prompt in a line. `seq` is the number of the event that began it; `first` how its text begins."""

    seq: int
    id: str
    mode: Mode
    first: str
    started: float
    reason: ExitReason | None = None
    steps: int = 0
    usage: Usage = Usage()
    cost_usd: float = 0.0
    duration_ms: int = 0
    taken_back: bool = False


class SessionOverview(Struct):
    session: str = ""
    title: str = ""
    cwd: str = ""
    model: str = ""
    version: str = ""
    created: float = 0.0
    modified: float = 0.0
    usage: Usage = Usage()
    cost_usd: float = 0.0
    usage_by_model: dict[str, Usage] = field(default_factory=dict[str, Usage])
    turns: list[TurnLine] = field(default_factory=list[TurnLine])

    @property
    def name(self) -> str:
        """The title, or what was said first."""
        return self.title or (self.turns[0].first if self.turns else "") or f"Session {self.session}"


def build_overview(envelopes: Iterable[Envelope]) -> SessionOverview:
    found = SessionOverview()
    told = _RewindTracker(found.turns)
    for envelope in envelopes:
        event = envelope.event
        found.session = envelope.session or found.session
        found.created = found.created or envelope.ts
        found.modified = envelope.ts
        if isinstance(event, SessionOpened):
            found.cwd, found.model, found.version = event.cwd, event.model, event.version
        elif isinstance(event, TitleSet):
            found.title = event.title
        elif isinstance(event, ModelChanged):
            found.model = event.model
        elif isinstance(event, UsageRecorded):
            _add_usage(found, event)
        elif not envelope.agent:
            told.apply(envelope)
    return found


def _add_usage(found: SessionOverview, event: UsageRecorded) -> None:
    found.usage += event.usage
    found.cost_usd += event.cost_usd
    found.usage_by_model[event.model] = found.usage_by_model.get(event.model, Usage()) + event.usage


class _RewindTracker:
    """Which prompts are part of the conversation, and which were taken back."""

    def __init__(self, turns: list[TurnLine]) -> None:
        self._turns = turns
        self._undone: list[list[TurnLine]] = []

    def apply(self, envelope: Envelope) -> None:
        event = envelope.event
        if isinstance(event, TurnStarted):
            first = " ".join((event.display_text or event.text).split())[:_FIRST_CHARS]
            self._turns.append(TurnLine(envelope.seq, event.id, event.mode, first, envelope.ts))
            self._undone.clear()
        elif isinstance(event, TurnEnded):
            self._on_turn_ended(event)
        elif isinstance(event, Rewound):
            self._undone.append(self._mark_rewound(event) if event.chat else [])
        elif isinstance(event, Redone) and self._undone:
            for turn in self._undone.pop():
                turn.taken_back = False

    def _on_turn_ended(self, event: TurnEnded) -> None:
        turn = next((turn for turn in reversed(self._turns) if turn.id == event.id), None)
        if turn is not None:
            turn.reason, turn.steps, turn.usage = event.reason, event.steps, event.usage
            turn.cost_usd, turn.duration_ms = event.cost_usd, event.duration_ms
            turn.taken_back = event.error_kind == PromptBlocked.__name__

    def _mark_rewound(self, event: Rewound) -> list[TurnLine]:
        there = [turn for turn in self._turns if not turn.taken_back]
        at = [number for number, turn in enumerate(there) if turn.id == event.turn]
        gone = there[at[-1] :] if at else []
        for turn in gone:
            turn.taken_back = True
        return gone
