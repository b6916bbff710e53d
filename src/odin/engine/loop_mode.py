"""Loop mode: when the model has answered and the goal is not reached, ask it to continue, up to a limit.

Each iteration is a prompt and a turn like any other, so permissions, budgets and limits apply. Decisions are pure
functions (`decide_next`) and are recorded; a resumed session does not continue by itself. Every agent can have a loop
of its own.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from odin.core.call_events import ActivityChanged
from odin.core.client import LoopStatus
from odin.core.errors import OdinError
from odin.core.event import AnyEvent, LoopChanged, LoopPrompted, TurnEnded
from odin.core.event_values import ExitReason, LoopState, Mode, Verification
from odin.core.op import Prompt
from odin.core.team import ACTIVE_STATES
from odin.core.text import join_some
from odin.core.timeline import LOOP_PREFIX
from odin.core.tool import Args, Kind, Tool, ToolContext, ToolOutput, fail
from odin.engine.recorder import Recorder
from odin.session.state import LoopModeState

LoopAction = Literal["none", "continue_from_context", "verify", "completed", "blocked", "budget_exhausted"]

MAX_ITERATIONS = 10
"""Iterations each time loop mode is switched on, unless configured otherwise."""

STALLED_ROUNDS = 2
"""Rounds without progress after which the model gets a note."""

MAX_STALLED_ROUNDS = 3
"""Rounds without progress after which the loop ends."""

DEFAULT_GOAL = "Finish the remaining tasks of this session."

CATEGORIES = (
    "credential_or_permission_missing",
    "dependency_unavailable",
    "required_input_missing",
    "workspace_conflict",
    "user_decision_required",
)
"""Reasons for which the model may say that it is blocked."""

_DEFAULT_CATEGORY = "user_decision_required"
_TAG_CHARS = 300
_MAX_NAMED_TODOS = 8
_QUOTED_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)


class LoopSignals(Struct, frozen=True):
    """The tags of a reply. `blocked` is `category: reason`; `unverified` is why nothing was verified."""

    done: str = ""
    blocked: str = ""
    unverified: str | None = None


class LoopFacts(Struct, frozen=True):
    """The facts after a turn that decide whether the loop continues.

    `todos` are the open ones, `agents` the number of running sub-agents. `is_unverified`: files were changed and no
    command has succeeded since. `verification` tells more, if the turn changed files of a project with known checks.
    `stalled` counts the rounds without progress, including this one.
    """

    ended: ExitReason
    signals: LoopSignals = LoopSignals()
    iteration: int = 0
    limit: int = MAX_ITERATIONS
    todos: tuple[str, ...] = ()
    agents: int = 0
    is_unverified: bool = False
    verification: Verification | None = None
    stalled: int = 0


class LoopDecision(Struct, frozen=True):
    """`reasons` are why the loop continues; `why` is why it ends."""

    action: LoopAction
    reasons: tuple[str, ...] = ()
    why: str = ""


_FINAL_DECISIONS: dict[ExitReason, LoopDecision] = {
    "interrupted": LoopDecision("none", why="The turn was interrupted."),
    "aborted": LoopDecision("none", why="The session was closed."),
    "error": LoopDecision("none", why="The turn ended with an error."),
    "error_max_budget_usd": LoopDecision("budget_exhausted", why="The budget is used up."),
    "max_turns": LoopDecision("budget_exhausted", why="The limit of model requests per prompt was reached."),
    "loop_detected": LoopDecision("budget_exhausted", why="The model kept repeating the same calls."),
}
"""The decision after a turn that did not end with an answer."""


def parse_signals(reply: str) -> LoopSignals:
    """Return the last tag of each kind in a reply. Tags in code are quotes and do not count."""
    prose = _QUOTED_CODE.sub(" ", reply) if "`" in reply else reply
    blocked = _extract_tag(prose, "blocked")
    return LoopSignals(
        _extract_tag(prose, "done") or "",
        _normalize_blocked(blocked) if blocked else "",
        _extract_tag(prose, "verify-not-run"),
    )


def decide_next(facts: LoopFacts) -> LoopDecision:
    """Decide after a turn whether the loop ends or continues, and why."""
    if (over := _FINAL_DECISIONS.get(facts.ended)) is not None:
        return over
    if facts.signals.blocked:
        return LoopDecision("blocked", why=facts.signals.blocked)
    unverified = _list_unverified(facts)
    reasons = (*_list_unfinished(facts), *unverified)
    if not reasons:
        return LoopDecision("completed", why=facts.signals.done)
    if facts.stalled >= MAX_STALLED_ROUNDS:
        return LoopDecision("budget_exhausted", why=f"{facts.stalled} rounds in a row made no progress.")
    if facts.iteration >= facts.limit:
        return LoopDecision("budget_exhausted", why=f"All {facts.limit} iterations are used.")
    return LoopDecision("verify" if reasons == unverified else "continue_from_context", reasons)


def _list_unfinished(facts: LoopFacts) -> tuple[str, ...]:
    reasons: list[str] = []
    if facts.todos:
        count = "1 to-do is" if len(facts.todos) == 1 else f"{len(facts.todos)} to-dos are"
        reasons.append(f"{count} open: {join_some(facts.todos, _MAX_NAMED_TODOS)}")
    if facts.agents:
        reasons.append("A sub-agent is at work." if facts.agents == 1 else f"{facts.agents} sub-agents are at work.")
    if facts.ended == "max_tokens":
        reasons.append("The last reply was cut off by its length limit.")
    elif not facts.signals.done:
        reasons.append("The last reply did not say that everything is done.")
    return tuple(reasons)


def _list_unverified(facts: LoopFacts) -> tuple[str, ...]:
    if facts.signals.unverified is not None:
        why = f": {facts.signals.unverified}" if facts.signals.unverified else "."
        return (f"The work was not verified{why}",)
    if facts.verification is not None:
        bad = [check for check in facts.verification.checks if check.outcome == facts.verification.outcome]
        names = join_some([f"`{check.command}`" for check in bad], _MAX_NAMED_TODOS)
        if facts.verification.outcome == "not_run":
            return (f"Files were changed and the project's checks were not run since: {names}.",)
        if facts.verification.outcome in ("failed", "timed_out"):
            return (f"The project's checks did not pass: {names}.",)
        return ()
    return ("Files were changed and nothing was run since to verify them.",) if facts.is_unverified else ()


def build_first_prompt(goal: str, iteration: int, limit: int) -> str:
    """Return the first prompt of the loop, for an idle session."""
    return f"{_build_header(iteration, limit)}\nGoal: {goal}\n\nWork until it is reached.\n\n{_TAGS_NOTE}"


def build_next_prompt(goal: str, iteration: int, limit: int, decision: LoopDecision, stalled: int) -> str:
    """Return the prompt that asks the model to continue."""
    lines = [_build_header(iteration, limit), f"Goal: {goal}", "", "Not finished:"]
    lines += [f"- {reason}" for reason in decision.reasons]
    lines += ["", _VERIFY_NOTE if decision.action == "verify" else _CONTINUE_NOTE]
    if stalled >= STALLED_ROUNDS:
        lines.append(_STALLED_NOTE.format(rounds=stalled))
    return "\n".join([*lines, "", _TAGS_NOTE])


def summarize_decision(iteration: int, limit: int, decision: LoopDecision) -> str:
    """Return the decision in one line, for the user."""
    return f"Loop mode, iteration {iteration} of {limit}: {' '.join(decision.reasons)}"


def _build_header(iteration: int, limit: int) -> str:
    return f"Loop mode, iteration {iteration} of {limit}. No user is present to answer: decide for yourself and go on."


_CONTINUE_NOTE = "Go on from where you are. Keep the to-do list true: mark what is done, cancel what is not needed."
_VERIFY_NOTE = "Verify it now: run the tests or whatever shows that it works, and put right what does not."
_STALLED_NOTE = "{rounds} rounds in a row made no progress. Try another way, or say what keeps you from going on."
_TAGS_NOTE = (
    "When everything is done, call the Done tool. Or end your reply with one of these, when it is true:\n"
    "<done>what was done and how it was verified</done>\n"
    "<verify-not-run>why it could not be verified</verify-not-run>\n"
    f"<blocked>category: reason</blocked>, the category being one of {', '.join(CATEGORIES)}"
)


def _extract_tag(text: str, name: str) -> str | None:
    """Return the content of the last such tag in one line, or None. An unclosed tag reaches to the end."""
    at = text.rfind(f"<{name}>")
    if at < 0:
        return "" if f"<{name}/>" in text or f"<{name} />" in text else None
    inside = text[at + len(name) + 2 :].partition(f"</{name}>")[0]
    line = " ".join(inside.split())
    return line if len(line) <= _TAG_CHARS else line[: _TAG_CHARS - 1] + "…"


def _normalize_blocked(text: str) -> str:
    """Return `category: reason`; an unknown category becomes `user_decision_required`."""
    category, colon, reason = text.partition(":")
    name = category.strip().casefold().replace(" ", "_").replace("-", "_")
    return f"{name}: {reason.strip()}" if colon and name in CATEGORIES else f"{_DEFAULT_CATEGORY}: {text}"


_OPEN_STATUSES = ("pending", "in_progress")
_WAITING = "It waits for delegated work."


class LoopMode:
    """Loop mode of one agent. `get_kind` returns the kind of a tool by name; `limit` is the usual one of iterations."""

    def __init__(
        self,
        recorder: Recorder,
        kind_of: Callable[[str], Kind | None],
        agent: str = "",
        *,
        limit: int = MAX_ITERATIONS,
    ) -> None:
        self.agent = agent
        self._recorder = recorder
        self._kind_of = kind_of
        self._usual_limit = self._limit = limit
        self._goal = ""
        self._mode: Mode | None = None
        self._iteration = 0
        self._stalled = 0
        self._is_unverified = False
        self._done = ""
        """What the model said as it called the Done tool in this iteration."""
        self._seen_results: set[int] = set()
        self._last_prompt_id = ""
        self._cost_before = 0.0
        self._cost_at_end: float | None = None

    @property
    def is_active(self) -> bool:
        return self._state.is_active

    @property
    def _state(self) -> LoopModeState:
        return self._recorder.state.get_loop(self.agent)

    def get_status(self) -> LoopStatus:
        spent = self._measure_cost() if self._cost_at_end is None else self._cost_at_end
        status = self._state.status
        cost = 0.0 if status.state == "idle" else spent - self._cost_before
        return msgspec.structs.replace(status, cost_usd=cost)

    def _measure_cost(self) -> float:
        """Return the cost so far: of the whole session for the main agent, of one agent for the others."""
        totals = self._recorder.state.totals
        if not self.agent:
            return totals.cost_usd
        own = totals.by_agent.get(self.agent)
        return own.cost_usd if own is not None else 0.0

    def switch_on(self, goal: str, mode: Mode | None, limit: int = 0) -> None:
        """Start the loop with the full number of iterations, also if it is already on."""
        self._goal = " ".join(goal.split()) or DEFAULT_GOAL
        self._mode = mode
        self._limit = limit or self._usual_limit
        self._iteration = self._stalled = 0
        self._is_unverified = False
        self._done = ""
        self._seen_results.clear()
        self._cost_before, self._cost_at_end = self._measure_cost(), None
        self._set_state("executing")

    def switch_off(self, why: str = "") -> bool:
        """End the loop after the running turn. False if it was off."""
        if not self.is_active:
            return False
        self._emit(LoopChanged("idle", reason=why))
        return True

    def is_own_prompt(self, prompt_id: str) -> bool:
        """True if this is the last prompt the loop made."""
        return bool(prompt_id) and prompt_id == self._last_prompt_id

    def accept_done(self, summary: str) -> tuple[str, ...]:
        """The model called the Done tool. Return why that is not true yet; empty if it is accepted.

        It is checked again when the turn ends: work after the call counts.
        """
        facts = LoopFacts(
            "end_turn",
            LoopSignals(done=" ".join(summary.split())),
            todos=self._list_open_todos(),
            agents=self._count_sub_agents(),
            is_unverified=self._find_unverified(),
        )
        reasons = (*_list_unfinished(facts), *_list_unverified(facts))
        self._done = "" if reasons else facts.signals.done
        return reasons

    def make_first_prompt(self) -> Prompt:
        """Make the first prompt, for an idle agent."""
        self._iteration += 1
        self._set_state("executing")
        text = build_first_prompt(self._goal, self._iteration, self._limit)
        return self._make_prompt(text, (), f"/loop on {self._goal}")

    def make_next_prompt(self, ended: TurnEnded, *, has_due: bool) -> Prompt | None:
        """Make the next prompt after a turn.

        None if the loop ends, if a prompt of the user is due, or while delegated work goes on.
        """
        if not self.is_active:
            return None
        self._set_state("assessing")
        # Update from the calls of the round whether there was progress and whether changes were verified.
        looping = self._state
        progress = looping.has_file_changes
        for call in looping.calls:
            if call.has_run and call.fingerprint not in self._seen_results:
                self._seen_results.add(call.fingerprint)
                progress = True
        is_verified = ended.verification is not None and ended.verification.outcome in ("passed", "unknown")
        self._is_unverified = not is_verified if ended.verification is not None else self._find_unverified()
        signals, done = parse_signals(ended.text), self._done or self._find_said("Complete")
        self._done = ""
        if asked := self._find_said("Escalate"):
            signals = msgspec.structs.replace(signals, blocked=f"{_DEFAULT_CATEGORY}: {asked}")
        is_waiting = ended.reason == "end_turn" and not signals.blocked and self._is_team_working()
        self._stalled = 0 if progress else self._stalled + (not is_waiting)
        if is_waiting:  # the mail about the work starts the next turn
            self._set_state("executing", _WAITING)
            return None
        facts = LoopFacts(
            ended=ended.reason,
            signals=signals if signals.done or not done else msgspec.structs.replace(signals, done=done),
            iteration=self._iteration,
            limit=self._limit,
            todos=self._list_open_todos(),
            agents=self._count_sub_agents(),
            is_unverified=self._is_unverified,
            verification=ended.verification,
            stalled=self._stalled,
        )
        decision = decide_next(facts)
        if has_due and decision.action in ("continue_from_context", "verify"):
            self._set_state("executing")
            return None
        action = decision.action
        if action == "none":
            self.switch_off(decision.why)
        elif action in ("completed", "blocked", "budget_exhausted"):
            self._cost_at_end = self._measure_cost()
            self._set_state(action, decision.why)
        else:
            self._iteration += 1
            self._set_state("verifying" if decision.action == "verify" else "executing")
            text = build_next_prompt(self._goal, self._iteration, self._limit, decision, self._stalled)
            if decision.action == "verify":
                self._emit(ActivityChanged("verifying", f"{self._iteration} of {self._limit}"))
            return self._make_prompt(text, decision.reasons, summarize_decision(self._iteration, self._limit, decision))
        return None

    def _make_prompt(self, text: str, reasons: tuple[str, ...], shown: str) -> Prompt:
        self._emit(LoopPrompted(text, self._iteration, self._limit, reasons))
        state = self._recorder.state
        self._last_prompt_id = f"{LOOP_PREFIX}{state.seq}"
        own = state.sub_agents.get(self.agent)
        mode = self._mode or (own.mode if own is not None else state.mode)
        return Prompt(self._last_prompt_id, text, mode, display_text=shown, source="schedule")

    def _find_said(self, tool: str) -> str:
        """Return that a sub-agent has called the tool that ends its work in this round, or ""."""
        called = bool(self.agent) and any(call.name == tool and call.is_success for call in self._state.calls)
        return f"It called {tool}." if called else ""

    def _list_open_todos(self) -> tuple[str, ...]:
        state = self._recorder.state
        todos = state.conversation.todos
        if self.agent:
            todos = next((record.todos for record in state.sub_agents.records if record.id == self.agent), ())
        return tuple(todo.content for todo in todos if todo.status in _OPEN_STATUSES)

    def _count_sub_agents(self) -> int:
        """Return the number of running sub-agents: all for the main agent, else those that the agent has started."""
        records = self._recorder.state.sub_agents.records
        return sum(not self.agent or record.owner == self.agent for record in records)

    def _is_team_working(self) -> bool:
        """True while a task that the agent has delegated goes on by itself. A stalled one is reminded."""
        state = self._recorder.state
        live = {record.id for record in state.sub_agents.records}
        return any(
            task.agent in live and (task.state in ACTIVE_STATES or bool(task.stall))
            for task in state.board.tasks.values()
            if not self.agent or task.owner == self.agent
        )

    def _find_unverified(self) -> bool:
        """True if files were changed, in this round or before, and no command has succeeded since."""
        is_unverified = self._is_unverified
        for call in self._state.calls:
            kind = self._kind_of(call.name) if call.is_success else None
            if kind in ("edit", "execute"):
                is_unverified = kind == "edit"
        return is_unverified

    def _set_state(self, state: LoopState, reason: str = "") -> None:
        self._emit(LoopChanged(state, self._goal, self._iteration, self._limit, reason))

    def _emit(self, event: AnyEvent) -> None:
        with suppress(OdinError):  # the turn that needs the log reports that it cannot be written
            self._recorder.emit(event, self.agent)


class DoneArgs(Args, frozen=True):
    summary: Annotated[str, Meta(min_length=1, description="What was done and how it was verified")]


class DoneTool(Tool[DoneArgs]):
    """Say that the goal of loop mode is reached, once everything is done and verified."""

    name = "Done"
    kind = "interactive"
    short = "Say that the goal is reached."
    args = DoneArgs
    exclusive = True

    def __init__(self, loop: LoopMode) -> None:
        self._loop = loop

    @property
    def offered(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._loop.is_active

    def get_title(self, args: DoneArgs) -> str:
        return args.summary

    async def run(self, args: DoneArgs, ctx: ToolContext) -> ToolOutput:
        if not self._loop.is_active:
            return fail("Loop mode is off. Give your answer instead.")
        if not args.summary.strip():
            return fail("The summary is empty. Say what was done and how it was verified.")
        reasons = self._loop.accept_done(args.summary)
        if reasons:
            return fail("Not done yet:\n" + "\n".join(f"- {reason}" for reason in reasons))
        return ToolOutput("Accepted. Now give your final answer.", note="Done")
