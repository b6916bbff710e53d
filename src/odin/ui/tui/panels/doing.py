"""What one agent is doing right now, folded from its events, and the words for it. Nothing here knows a screen."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from odin.core.event import (
    ActivityChanged,
    CallDiscarded,
    CallQueued,
    CompactionChanged,
    Envelope,
    PermissionAnswered,
    PermissionAsked,
    QuestionsAnswered,
    QuestionsAsked,
    Replied,
    RequestProgressed,
    RequestStarted,
    RetryScheduled,
    RolledBack,
    ThinkingEnded,
    ThinkingStarted,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    Updated,
)
from odin.ui.activity import ACTIVITIES, WAITS
from odin.ui.terminal import visible
from odin.ui.tui.paint.words import duration
from odin.ui.tui.panels.amounts import counted, lasted

CHARS_A_TOKEN = 4
_ENDINGS = {
    "end_turn": "done",
    "interrupted": "stopped",
    "aborted": "stopped",
    "error": "failed",
    "max_turns": "stopped: too many steps",
    "max_tokens": "stopped: the reply was cut off",
    "error_max_budget_usd": "stopped: the budget is spent",
    "loop_detected": "stopped: it went in circles",
}


@dataclass(frozen=True, slots=True)
class Words:
    """What is said about it. `busy` asks for motion; `asking` says that a person is waited for; `bad` that it failed.

    `beside` is what is told where there is room.
    """

    what: str = ""
    beside: str = ""
    busy: bool = False
    asking: bool = False
    bad: bool = False


@dataclass(slots=True)
class Doing:
    """The state of one agent. Times are those of the events."""

    turn: bool = False
    turn_since: float = 0.0
    what: str = ""
    since: float = 0.0
    thinking: bool = False
    chars: int = 0
    until: float = 0.0
    attempt: str = ""
    because: str = ""
    compacting: float | None = None
    ended: str = ""
    took_s: float = 0.0
    tools: dict[str, tuple[str, float]] = field(default_factory=dict[str, tuple[str, float]])
    queued: set[str] = field(default_factory=set[str])
    names: dict[str, str] = field(default_factory=dict[str, str])
    asks: dict[str, tuple[str, float]] = field(default_factory=dict[str, tuple[str, float]])

    @property
    def busy(self) -> bool:
        return self.turn or self.compacting is not None

    def see(self, envelope: Envelope) -> None:
        step = _STEPS.get(type(envelope.event))
        if step is not None:
            step(self, envelope.event, envelope.ts)

    def _begin(self, what: str, ts: float) -> None:
        if what != self.what:
            self.what, self.since = what, ts

    # --- turns ---

    def _turn_started(self, event: TurnStarted, ts: float) -> None:
        self._over()
        self.turn, self.turn_since, self.ended = True, ts, ""
        self._begin("starting", ts)

    def _turn_ended(self, event: TurnEnded, ts: float) -> None:
        self._over()
        self.ended = _ENDINGS.get(event.reason, event.reason)
        self.took_s = event.duration_ms / 1000

    def _over(self) -> None:
        self.turn, self.what, self.thinking, self.chars = False, "", False, 0
        self._no_wait()
        self.tools.clear()
        self.queued.clear()
        self.names.clear()
        self.asks.clear()

    def _no_wait(self) -> None:
        self.until, self.attempt, self.because = 0.0, "", ""

    # --- the model ---

    def _activity(self, event: ActivityChanged, ts: float) -> None:
        if event.activity not in WAITS:
            self._no_wait()
        if event.activity in ACTIVITIES:
            if event.activity != "streaming":
                self.thinking = False
            self._begin(ACTIVITIES[event.activity], ts)
        elif event.activity == "executing":
            self._begin("running tools", ts)

    def _request(self, event: RequestStarted, ts: float) -> None:
        self.chars, self.thinking = 0, False
        self._begin("asking the model", ts)

    def _progress(self, event: RequestProgressed, ts: float) -> None:
        self.chars = event.chars

    def _rolled_back(self, event: RolledBack, ts: float) -> None:
        self.chars, self.thinking = 0, False

    def _thinks(self, event: ThinkingStarted, ts: float) -> None:
        self.thinking = True
        self._begin("thinking", ts)

    def _thought(self, event: ThinkingEnded, ts: float) -> None:
        self.thinking = False
        self._begin(ACTIVITIES["streaming"], ts)

    def _retry(self, event: RetryScheduled, ts: float) -> None:
        self.until = ts + event.delay_s
        self.attempt = f"retry {event.attempt}/{event.attempts}"
        self.because = _sentence(event.error)
        self._begin(self.attempt, ts)

    def _updated(self, event: Updated, ts: float) -> None:
        self._begin(visible(event.text), ts)

    def _compaction(self, event: CompactionChanged, ts: float) -> None:
        self.compacting = ts if event.status == "started" or not event.final else None

    # --- tools ---

    def _replied(self, event: Replied, ts: float) -> None:
        """Tools are called what the model called them, as their cards do."""
        self.names = {call.id: call.name for call in event.message.calls}

    def _queue(self, event: CallQueued, ts: float) -> None:
        self.queued.add(event.call_id)

    def _tool(self, event: ToolStarted, ts: float) -> None:
        self.queued.discard(event.call_id)
        said = event.description or _subject(event.args)
        name = self.names.get(event.call_id, event.name)
        self.tools[event.call_id] = (visible(f"{name} {said}".strip()), ts)

    def _tool_over(self, event: ToolEnded | CallDiscarded, ts: float) -> None:
        self.queued.discard(event.call_id)
        self.tools.pop(event.call_id, None)
        if not self.tools and self.turn:
            self._begin("", ts)
            self._begin("going on", ts)

    def _asked(self, event: PermissionAsked | QuestionsAsked, ts: float) -> None:
        about = event.name if isinstance(event, PermissionAsked) else ""
        self.asks[event.ask_id] = (f"may it use {visible(about)}?" if about else "it has a question", ts)

    def _answered(self, event: PermissionAnswered | QuestionsAnswered, ts: float) -> None:
        self.asks.pop(event.ask_id, None)

    # --- words ---

    def words(self, now: float) -> Words:
        """What to say at this moment."""
        if self.asks:
            about, since = next(iter(self.asks.values()))
            more = f" (+{len(self.asks) - 1})" if len(self.asks) > 1 else ""
            return Words(f"waiting for your answer: {about}{more}", lasted(now - since), asking=True)
        if self.tools:
            return self._tool_words(now)
        if self.until:
            left = max(math.ceil(self.until - now), 0)
            asked = "the server asks to wait: " if self.what == ACTIVITIES["cooling"] else ""
            return Words(f"{asked}{self.attempt} in {left} s", self.because, busy=True)
        if self.turn:
            return Words(f"{self.what} {lasted(now - self.since)}", self._arrived(), busy=True)
        if self.compacting is not None:
            return Words(f"{ACTIVITIES['compacting']} {lasted(now - self.compacting)}", busy=True)
        if self.ended:
            took = f" in {duration(self.took_s)}" if self.took_s >= 1 and self.ended == "done" else ""
            return Words(f"{self.ended}{took}", bad=self.ended == "failed")
        return Words()

    def _tool_words(self, now: float) -> Words:
        count = len(self.tools)
        waiting = f"{len(self.queued)} waiting" if self.queued else ""
        oldest = min(since for _, since in self.tools.values())
        if count == 1:
            ((name, _),) = self.tools.values()
            return Words(f"running {name} {lasted(now - oldest)}", waiting, busy=True)
        names = ", ".join(name for name, _ in self.tools.values())
        return Words(f"running {count} tools {lasted(now - oldest)}", f"{waiting} · {names}".strip(" ·"), busy=True)

    def _arrived(self) -> str:
        return f"about {counted(max(self.chars // CHARS_A_TOKEN, 1))} tokens" if self.chars else ""


def _subject(args: dict[str, Any]) -> str:
    """What a call is about, in its own words."""
    for name in ("command", "file_path", "path", "pattern", "url", "query"):
        value = args.get(name)
        if isinstance(value, str) and value.strip():
            return value.strip().splitlines()[0]
    return ""


def _sentence(error: str) -> str:
    return visible(error.strip().split("\n")[0])


_STEPS: dict[type[Any], Callable[[Doing, Any, float], None]] = {
    TurnStarted: Doing._turn_started,
    TurnEnded: Doing._turn_ended,
    ActivityChanged: Doing._activity,
    RequestStarted: Doing._request,
    RequestProgressed: Doing._progress,
    RolledBack: Doing._rolled_back,
    ThinkingStarted: Doing._thinks,
    ThinkingEnded: Doing._thought,
    RetryScheduled: Doing._retry,
    Updated: Doing._updated,
    CompactionChanged: Doing._compaction,
    Replied: Doing._replied,
    CallQueued: Doing._queue,
    ToolStarted: Doing._tool,
    ToolEnded: Doing._tool_over,
    CallDiscarded: Doing._tool_over,
    PermissionAsked: Doing._asked,
    QuestionsAsked: Doing._asked,
    PermissionAnswered: Doing._answered,
    QuestionsAnswered: Doing._answered,
}
