"""What one agent is doing right now, folded from its events, and the words for it. Nothing here knows a screen.

The agents that work for the main one: what each does, and which of them waits for a person.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from odin.core.event import (
    ActivityChanged,
    AgentEnded,
    AgentStarted,
    CallDiscarded,
    CallQueued,
    CompactionChanged,
    Envelope,
    PermissionAnswered,
    PermissionAsked,
    QuestionsAnswered,
    QuestionsAsked,
    Replied,
    ReplyRolledBack,
    RequestProgressed,
    RequestStarted,
    RetryScheduled,
    StatusUpdated,
    ThinkingEnded,
    ThinkingStarted,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from odin.ui.progress import ACTIVITY_WORDS, TIMED_ACTIVITIES
from odin.ui.terminal import escape_hidden
from odin.ui.tui.format import format_count, format_duration, format_seconds

CHARS_PER_TOKEN = 4
_END_WORDS = {
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
class ActivityText:
    """What is said about it. `busy` asks for motion; `asking` says that a person is waited for; `bad` that it failed.

    `beside` is what is told where there is room.
    """

    text: str = ""
    detail: str = ""
    is_busy: bool = False
    is_asking: bool = False
    is_failure: bool = False


@dataclass(slots=True)
class AgentActivity:
    """The state of one agent. Times are those of the events."""

    is_in_turn: bool = False
    turn_started: float = 0.0
    what: str = ""
    since: float = 0.0
    thinking: bool = False
    chars: int = 0
    retry_at: float = 0.0
    attempt: str = ""
    retry_reason: str = ""
    compacting_since: float | None = None
    outcome: str = ""
    took_s: float = 0.0
    tools: dict[str, tuple[str, float]] = field(default_factory=dict[str, tuple[str, float]])
    queued: set[str] = field(default_factory=set[str])
    names: dict[str, str] = field(default_factory=dict[str, str])
    questions: dict[str, tuple[str, float]] = field(default_factory=dict[str, tuple[str, float]])

    @property
    def busy(self) -> bool:
        return self.is_in_turn or self.compacting_since is not None

    def apply(self, envelope: Envelope) -> None:
        step = _ACTIVITY_HANDLERS.get(type(envelope.event))
        if step is not None:
            step(self, envelope.event, envelope.ts)

    def _begin(self, what: str, ts: float) -> None:
        if what != self.what:
            self.what, self.since = what, ts

    # --- turns ---

    def _start_turn(self, event: TurnStarted, ts: float) -> None:
        self._reset()
        self.is_in_turn, self.turn_started, self.outcome = True, ts, ""
        self._begin("starting", ts)

    def _end_turn(self, event: TurnEnded, ts: float) -> None:
        self._reset()
        self.outcome = _END_WORDS.get(event.reason, event.reason)
        self.took_s = event.duration_ms / 1000

    def _reset(self) -> None:
        self.is_in_turn, self.what, self.thinking, self.chars = False, "", False, 0
        self._clear_wait()
        self.tools.clear()
        self.queued.clear()
        self.names.clear()
        self.questions.clear()

    def _clear_wait(self) -> None:
        self.retry_at, self.attempt, self.retry_reason = 0.0, "", ""

    # --- the model ---

    def _change_activity(self, event: ActivityChanged, ts: float) -> None:
        if event.activity not in TIMED_ACTIVITIES:
            self._clear_wait()
        if event.activity in ACTIVITY_WORDS:
            if event.activity != "streaming":
                self.thinking = False
            self._begin(ACTIVITY_WORDS[event.activity], ts)
        elif event.activity == "executing":
            self._begin("running tools", ts)

    def _start_request(self, event: RequestStarted, ts: float) -> None:
        self.chars, self.thinking = 0, False
        self._begin("asking the model", ts)

    def _record_progress(self, event: RequestProgressed, ts: float) -> None:
        self.chars = event.chars

    def _rollback_reply(self, event: ReplyRolledBack, ts: float) -> None:
        self.chars, self.thinking = 0, False

    def _start_thinking(self, event: ThinkingStarted, ts: float) -> None:
        self.thinking = True
        self._begin("thinking", ts)

    def _end_thinking(self, event: ThinkingEnded, ts: float) -> None:
        self.thinking = False
        self._begin(ACTIVITY_WORDS["streaming"], ts)

    def _schedule_retry(self, event: RetryScheduled, ts: float) -> None:
        self.retry_at = ts + event.delay_s
        self.attempt = f"retry {event.attempt}/{event.attempts}"
        self.retry_reason = _first_line_of(event.error)
        self._begin(self.attempt, ts)

    def _show_update(self, event: StatusUpdated, ts: float) -> None:
        self._begin(escape_hidden(event.text), ts)

    def _change_compaction(self, event: CompactionChanged, ts: float) -> None:
        self.compacting_since = ts if event.status == "started" or not event.final else None

    # --- tools ---

    def _record_reply(self, event: Replied, ts: float) -> None:
        """Tools are called what the model called them, as their cards do."""
        self.names = {call.id: call.name for call in event.message.calls}

    def _queue_call(self, event: CallQueued, ts: float) -> None:
        self.queued.add(event.call_id)

    def _start_tool(self, event: ToolStarted, ts: float) -> None:
        self.queued.discard(event.call_id)
        said = event.description or _subject_of(event.args)
        name = self.names.get(event.call_id, event.name)
        self.tools[event.call_id] = (escape_hidden(f"{name} {said}".strip()), ts)

    def _end_tool(self, event: ToolEnded | CallDiscarded, ts: float) -> None:
        self.queued.discard(event.call_id)
        self.tools.pop(event.call_id, None)
        if not self.tools and self.is_in_turn:
            self._begin("", ts)
            self._begin("going on", ts)

    def _add_question(self, event: PermissionAsked | QuestionsAsked, ts: float) -> None:
        about = event.name if isinstance(event, PermissionAsked) else ""
        self.questions[event.ask_id] = (f"may it use {escape_hidden(about)}?" if about else "it has a question", ts)

    def _remove_question(self, event: PermissionAnswered | QuestionsAnswered, ts: float) -> None:
        self.questions.pop(event.ask_id, None)

    # --- words ---

    def describe(self, now: float) -> ActivityText:
        """What to say at this moment."""
        if self.questions:
            about, since = next(iter(self.questions.values()))
            more = f" (+{len(self.questions) - 1})" if len(self.questions) > 1 else ""
            return ActivityText(f"waiting for your answer: {about}{more}", format_seconds(now - since), is_asking=True)
        if self.tools:
            return self._describe_tools(now)
        if self.retry_at:
            left = max(math.ceil(self.retry_at - now), 0)
            asked = "the server asks to wait: " if self.what == ACTIVITY_WORDS["cooling"] else ""
            return ActivityText(f"{asked}{self.attempt} in {left} s", self.retry_reason, is_busy=True)
        if self.is_in_turn:
            return ActivityText(
                f"{self.what} {format_seconds(now - self.since)}", self._format_received(), is_busy=True
            )
        if self.compacting_since is not None:
            return ActivityText(
                f"{ACTIVITY_WORDS['compacting']} {format_seconds(now - self.compacting_since)}", is_busy=True
            )
        if self.outcome:
            took = f" in {format_duration(self.took_s)}" if self.took_s >= 1 and self.outcome == "done" else ""
            return ActivityText(f"{self.outcome}{took}", is_failure=self.outcome == "failed")
        return ActivityText()

    def _describe_tools(self, now: float) -> ActivityText:
        count = len(self.tools)
        waiting = f"{len(self.queued)} waiting" if self.queued else ""
        oldest = min(since for _, since in self.tools.values())
        if count == 1:
            ((name, _),) = self.tools.values()
            return ActivityText(f"running {name} {format_seconds(now - oldest)}", waiting, is_busy=True)
        names = ", ".join(name for name, _ in self.tools.values())
        return ActivityText(
            f"running {count} tools {format_seconds(now - oldest)}", f"{waiting} · {names}".strip(" ·"), is_busy=True
        )

    def _format_received(self) -> str:
        return f"about {format_count(max(self.chars // CHARS_PER_TOKEN, 1))} tokens" if self.chars else ""


def _subject_of(args: dict[str, Any]) -> str:
    """What a call is about, in its own words."""
    for name in ("command", "file_path", "path", "pattern", "url", "query"):
        value = args.get(name)
        if isinstance(value, str) and value.strip():
            return value.strip().splitlines()[0]
    return ""


def _first_line_of(error: str) -> str:
    return escape_hidden(error.strip().split("\n")[0])


_ACTIVITY_HANDLERS: dict[type[Any], Callable[[AgentActivity, Any, float], None]] = {
    TurnStarted: AgentActivity._start_turn,
    TurnEnded: AgentActivity._end_turn,
    ActivityChanged: AgentActivity._change_activity,
    RequestStarted: AgentActivity._start_request,
    RequestProgressed: AgentActivity._record_progress,
    ReplyRolledBack: AgentActivity._rollback_reply,
    ThinkingStarted: AgentActivity._start_thinking,
    ThinkingEnded: AgentActivity._end_thinking,
    RetryScheduled: AgentActivity._schedule_retry,
    StatusUpdated: AgentActivity._show_update,
    CompactionChanged: AgentActivity._change_compaction,
    Replied: AgentActivity._record_reply,
    CallQueued: AgentActivity._queue_call,
    ToolStarted: AgentActivity._start_tool,
    ToolEnded: AgentActivity._end_tool,
    CallDiscarded: AgentActivity._end_tool,
    PermissionAsked: AgentActivity._add_question,
    QuestionsAsked: AgentActivity._add_question,
    PermissionAnswered: AgentActivity._remove_question,
    QuestionsAnswered: AgentActivity._remove_question,
}


MAX_ENDED = 5
"""Agents that are over and still listed."""


@dataclass(slots=True)
class AgentStatus:
    """`number` chooses its colour and stays the same; `over` is how it ended."""

    id: str
    task: str
    number: int
    activity: AgentActivity
    end_reason: str = ""

    @property
    def is_asking(self) -> bool:
        return bool(self.activity.questions)


class AgentList:
    """`all` by id. The activity of the main agent is `main`."""

    def __init__(self) -> None:
        self.all: dict[str, AgentStatus] = {}
        self.main = AgentActivity()
        self._count = 0

    def apply(self, envelope: Envelope) -> None:
        event = envelope.event
        if isinstance(event, AgentStarted):
            self.all[event.id] = AgentStatus(event.id, event.task, self._count, AgentActivity())
            self._count += 1
        elif isinstance(event, AgentEnded) and event.id in self.all:
            line = self.all[event.id]
            line.end_reason, line.activity = event.reason, AgentActivity()
        elif not envelope.agent:
            self.main.apply(envelope)
            if isinstance(event, TurnEnded):
                self._prune_ended()
        elif envelope.agent in self.all:
            self.all[envelope.agent].activity.apply(envelope)

    def _prune_ended(self) -> None:
        over = [line.id for line in self.all.values() if line.end_reason]
        for name in over[:-MAX_ENDED]:
            del self.all[name]

    def activity_of(self, agent: str) -> AgentActivity:
        """What this agent does; "" is the main one."""
        return self.all[agent].activity if agent in self.all else self.main

    @property
    def running(self) -> list[AgentStatus]:
        return [line for line in self.all.values() if not line.end_reason]

    @property
    def asking(self) -> list[AgentStatus]:
        return [line for line in self.running if line.is_asking]

    @property
    def busy(self) -> bool:
        """Whether anything goes on of which the time is shown."""
        return self.main.busy or any(line.activity.busy for line in self.running)
