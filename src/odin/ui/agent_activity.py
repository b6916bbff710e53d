"""The current activity of each agent, folded from its events, and its description for the panels."""

import math
from typing import Any

from msgspec import Struct, field

from odin.core.call_events import (
    ActivityChanged,
    CallDiscarded,
    CallQueued,
    PermissionAnswered,
    PermissionAsked,
    PlanAnswered,
    PlanAsked,
    QuestionsAnswered,
    QuestionsAsked,
    ReplyRolledBack,
    RequestProgressed,
    RequestStarted,
    RetryScheduled,
    StatusUpdated,
    ThinkingEnded,
    ThinkingStarted,
    ToolEnded,
    ToolStarted,
    UsageRecorded,
)
from odin.core.event import (
    AgentEnded,
    AgentStarted,
    AnyEvent,
    CompactionChanged,
    Envelope,
    NoteAdded,
    TurnEnded,
    TurnStarted,
)
from odin.core.format import format_count, format_seconds, pluralize
from odin.core.team import (
    ACTIVE_STATES,
    ENDED_STATES,
    STATE_WORDS,
    MailSent,
    TaskChanged,
    TaskState,
    get_state_after,
)
from odin.core.text import join_some
from odin.core.tool import get_display_name
from odin.ui.progress import ACTIVITY_WORDS, TIMED_ACTIVITIES, describe_activity
from odin.ui.terminal import escape_hidden

CHARS_PER_TOKEN = 4
_END_WORDS = {
    "end_turn": "done",
    "interrupted": "stopped",
    "aborted": "stopped",
    "error": "failed",
    "max_turns": "stopped: step limit reached",
    "max_tokens": "stopped: the reply was cut off",
    "error_max_budget_usd": "stopped: budget used up",
    "loop_detected": "stopped: it repeated itself",
}


class ActivityText(Struct, frozen=True):
    """The description of an activity; `detail` is shown where there is room.

    `is_busy` animates the mark; `is_asking`: the agent waits for the user.
    """

    text: str = ""
    detail: str = ""
    is_busy: bool = False
    is_asking: bool = False
    is_failure: bool = False


class AgentActivity(Struct):
    """The state of one agent. All times are event timestamps."""

    is_in_turn: bool = False
    turn_started: float = 0.0
    what: str = ""
    since: float = 0.0
    chars: int = 0
    retry_at: float = 0.0
    attempt: str = ""
    retry_reason: str = ""
    compacting_since: float | None = None
    outcome: str = ""
    tools: dict[str, tuple[str, float]] = field(default_factory=dict[str, tuple[str, float]])
    queued: set[str] = field(default_factory=set[str])
    asks: dict[str, tuple[str, float]] = field(default_factory=dict[str, tuple[str, float]])

    @property
    def busy(self) -> bool:
        return self.is_in_turn or self.compacting_since is not None

    def apply(self, envelope: Envelope) -> None:
        event, ts = envelope.event, envelope.ts
        match event:
            # --- the turn ---
            case TurnStarted():
                self._reset()
                self.is_in_turn, self.turn_started, self.outcome = True, ts, ""
                self._begin("starting", ts)
            case TurnEnded():
                self._reset()
                self.outcome = _END_WORDS.get(event.reason, event.reason)
            case StatusUpdated():
                self._begin(escape_hidden(event.text), ts)
            case CompactionChanged():
                self.compacting_since = ts if event.status == "started" or not event.final else None
            case PermissionAsked():
                self.asks[event.ask_id] = (
                    f"allow {escape_hidden(get_display_name(event.name))}?" if event.name else "a question",
                    ts,
                )
            case QuestionsAsked():
                self.asks[event.ask_id] = ("a question", ts)
            case PlanAsked():
                self.asks[event.ask_id] = ("a plan", ts)
            case PermissionAnswered() | QuestionsAnswered() | PlanAnswered():
                self.asks.pop(event.ask_id, None)
            # --- the model ---
            case RequestProgressed():
                self.chars = event.chars
            case ActivityChanged():
                if event.activity not in TIMED_ACTIVITIES:
                    self._clear_retry()
                if what := describe_activity(event):
                    self._begin(what, ts)
                elif event.activity == "executing":
                    self._begin("running tools", ts)
            case RequestStarted():
                self.chars = 0
                self._begin("asking the model", ts)
            case ReplyRolledBack():
                self.chars = 0
            case ThinkingStarted():
                self._begin("thinking", ts)
            case ThinkingEnded():
                self._begin(ACTIVITY_WORDS["streaming"], ts)
            case RetryScheduled():
                self.retry_at = ts + event.delay_s
                self.attempt = f"retry {event.number.replace(' of ', '/')}"
                self.retry_reason = escape_hidden(event.error.strip().split("\n")[0])
                self._begin(self.attempt, ts)
            # --- the tools ---
            case CallQueued():
                self.queued.add(event.call_id)
            case ToolStarted():
                self.queued.discard(event.call_id)
                subject = event.description or _get_main_argument(event.args)
                self.tools[event.call_id] = (escape_hidden(f"{get_display_name(event.name)} {subject}".strip()), ts)
            case ToolEnded() | CallDiscarded():
                self.queued.discard(event.call_id)
                self.tools.pop(event.call_id, None)
                if not self.tools and self.is_in_turn:
                    self.what, self.since = "continuing", ts
            case _:
                pass

    def _begin(self, what: str, ts: float) -> None:
        if what != self.what:
            self.what, self.since = what, ts

    def _reset(self) -> None:
        self.is_in_turn, self.what, self.chars = False, "", 0
        self._clear_retry()
        self.tools.clear()
        self.queued.clear()
        self.asks.clear()

    def _clear_retry(self) -> None:
        self.retry_at, self.attempt, self.retry_reason = 0.0, "", ""

    def describe(self, now: float) -> ActivityText:
        """Return the text to show at time `now`."""
        if self.asks:
            about, since = next(iter(self.asks.values()))
            more = f" (+{len(self.asks) - 1})" if len(self.asks) > 1 else ""
            return ActivityText(f"waiting for your answer: {about}{more}", format_seconds(now - since), is_asking=True)
        if self.tools:
            return self._describe_tools(now)
        if self.retry_at:
            left = max(math.ceil(self.retry_at - now), 0)
            reason = "rate limited: " if self.what == ACTIVITY_WORDS["cooling"] else ""
            return ActivityText(f"{reason}{self.attempt} in {left} s", self.retry_reason, is_busy=True)
        if self.is_in_turn:
            return ActivityText(
                f"{self.what} {format_seconds(now - self.since)}",
                f"about {format_count(max(self.chars // CHARS_PER_TOKEN, 1))} tokens" if self.chars else "",
                is_busy=True,
            )
        if self.compacting_since is not None:
            return ActivityText(
                f"{ACTIVITY_WORDS['compacting']} {format_seconds(now - self.compacting_since)}", is_busy=True
            )
        if self.outcome:
            return ActivityText(self.outcome, is_failure=self.outcome == "failed")
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


def _get_main_argument(args: dict[str, Any]) -> str:
    """Return the first line of the argument that identifies a call, such as its command or path."""
    for name in ("command", "file_path", "path", "pattern", "url", "query"):
        value = args.get(name)
        if isinstance(value, str) and value.strip():
            return value.strip().splitlines()[0]
    return ""


MAX_ENDED = 5
"""Finished agents that stay listed."""


class AgentStatus(Struct):
    """A sub-agent. `color` is that of its type, if it has one. `task_id` is its delegated task, if it has one."""

    id: str
    task: str
    activity: AgentActivity
    end_reason: str = ""
    type: str = ""
    task_id: str = ""
    model: str = ""
    color: str = ""
    state: TaskState = "running"

    @property
    def is_asking(self) -> bool:
        return bool(self.activity.asks)

    @property
    def is_working(self) -> bool:
        """True while it works or will go on by itself."""
        return not self.end_reason and (self.activity.is_in_turn or self.state in ACTIVE_STATES)

    @property
    def outcome(self) -> str:
        """How it ended, in one word; "" while it lives."""
        if not self.end_reason:
            return ""
        return STATE_WORDS[self.state] if self.task_id else _END_WORDS.get(self.end_reason, self.end_reason)


class Mailboxes:
    """The mail that no agent has read yet."""

    def __init__(self) -> None:
        self._mail: dict[str, MailSent] = {}

    def apply(self, event: AnyEvent) -> None:
        match event:
            case MailSent():
                self._add(event)
            case TaskChanged(mail=MailSent() as mail):
                self._add(mail)
            case TurnStarted(mail=ids) | NoteAdded(mail=ids):
                for mail in ids:
                    self._mail.pop(mail, None)
            case _:
                pass

    def _add(self, mail: MailSent) -> None:
        """Of the progress reports of an agent only the newest counts."""
        if mail.kind == "progress":
            for old in [old for old in self._mail.values() if old.kind == "progress" and old.sender == mail.sender]:
                del self._mail[old.id]
        self._mail[mail.id] = mail

    def describe_unread(self, agent: str) -> str:
        """Return the unread mail for an agent, such as `2 unread, 1 urgent`; "" if there is none."""
        mail = [mail for mail in self._mail.values() if mail.recipient == agent]
        urgent = sum(item.priority != "notify" for item in mail)
        return "" if not mail else f"{len(mail)} unread" + (f", {urgent} urgent" if urgent else "")


class AgentList:
    """The activity of the main agent (`main`) and of its sub-agents (`all`, by id)."""

    def __init__(self) -> None:
        self.all: dict[str, AgentStatus] = {}
        self.main = AgentActivity()
        self.mailboxes = Mailboxes()
        self._asks: set[str] = set()
        self._asked_at = 0.0
        self._waited_s = 0.0

    def apply(self, envelope: Envelope) -> None:
        match envelope.event:
            case TurnStarted() | TurnEnded() if not envelope.agent:
                self._asks.clear()
                self._waited_s = 0.0
            case PermissionAsked() | QuestionsAsked() | PlanAsked():
                self._asked_at = self._asked_at if self._asks else envelope.ts
                self._asks.add(envelope.event.ask_id)
            case PermissionAnswered() | QuestionsAnswered() | PlanAnswered() if envelope.event.ask_id in self._asks:
                self._asks.remove(envelope.event.ask_id)
                self._waited_s += 0.0 if self._asks else envelope.ts - self._asked_at
            case _:
                pass
        self.mailboxes.apply(envelope.event)
        match envelope.event:
            case AgentStarted(id=id) as event:
                self.all.pop(event.continues, None)
                about = event.description or event.task
                self.all[id] = AgentStatus(
                    id, about, AgentActivity(), "", event.agent_type, event.task_id, event.model, event.color
                )
            case TaskChanged(id=id, state=state):
                if (status := self.find_by_task(id)) is not None:
                    status.state = state
            case AgentEnded(id=id, reason=reason) if id in self.all:
                ended = self.all[id]
                ended.end_reason, ended.activity = reason, AgentActivity()
                ended.state = get_state_after(ended.state)
            case event:
                agent = self.all.get(envelope.agent)
                if agent is not None:
                    if isinstance(event, RequestStarted) or (
                        isinstance(event, UsageRecorded) and event.purpose == "main"
                    ):
                        agent.model = event.model or agent.model
                    agent.activity.apply(envelope)
                elif not envelope.agent:
                    self.main.apply(envelope)
                    if isinstance(event, TurnEnded):
                        ended = [agent for agent in self.all if not self.is_open(agent)]
                        for name in ended[:-MAX_ENDED]:
                            del self.all[name]

    def count_turn_seconds(self, now: float) -> float:
        """Return how long the main agent's turn has worked, without the time that the user took to answer."""
        open_s = now - self._asked_at if self._asks else 0.0
        return now - self.main.turn_started - self._waited_s - open_s if self.main.is_in_turn else 0.0

    def find_by_task(self, task: str) -> AgentStatus | None:
        """Return the newest agent that works or worked on this task."""
        return next((agent for agent in reversed(self.all.values()) if task and agent.task_id == task), None)

    def is_live(self, agent: str) -> bool:
        """True for a sub-agent that has not ended."""
        return agent in self.all and not self.all[agent].end_reason

    def is_open(self, agent: str) -> bool:
        """True for a sub-agent that is live, or whose task a prompt to it continues."""
        status = self.all.get(agent)
        return status is not None and (
            not status.end_reason or (status.state not in ENDED_STATES and self.find_by_task(status.task_id) is status)
        )

    @property
    def working(self) -> list[AgentStatus]:
        return [agent for agent in self.all.values() if agent.is_working]

    def describe_working(self) -> str:
        """Return how many sub-agents work and which, such as `2 agents are at work: scout-1, scout-2`; "" if none."""
        working = self.working
        names = join_some((escape_hidden(agent.id) for agent in working), MAX_ENDED)
        verb = "is" if len(working) == 1 else "are"
        return f"{pluralize(len(working), 'agent')} {verb} at work: {names}" if working else ""

    def get_activity(self, agent: str) -> AgentActivity:
        """Return the activity of this agent; "" is the main agent."""
        return self.all[agent].activity if agent in self.all else self.main

    @property
    def running(self) -> list[AgentStatus]:
        return [agent for agent in self.all.values() if not agent.end_reason]

    @property
    def asking(self) -> list[AgentStatus]:
        return [agent for agent in self.running if agent.is_asking]

    @property
    def busy(self) -> bool:
        """True if an elapsed time on the screen has to be updated."""
        return self.main.busy or any(agent.activity.busy for agent in self.running)
