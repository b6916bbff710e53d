"""Loop mode: when the model has answered and the goal is not reached, it is asked to go on, up to ten times.

It stands above the loop of a turn. Each iteration is a prompt and a turn like any other, so permissions, budgets and
limits hold as ever. What was decided is recorded; a session that is resumed does not go on by itself.
"""

from collections.abc import Callable
from contextlib import suppress

import msgspec

from odin.core.client import LoopStatus
from odin.core.errors import OdinError
from odin.core.event import ActivityChanged, AnyEvent, LoopChanged, LoopPrompted, LoopState, Mode, TurnEnded
from odin.core.op import Prompt
from odin.core.tool import Kind
from odin.engine.assessment import (
    DEFAULT_TARGET,
    MAX_ITERATIONS,
    LoopDecision,
    LoopFacts,
    build_first_prompt,
    build_next_prompt,
    decide_next,
    parse_signals,
    summarize_decision,
)
from odin.engine.recorder import Recorder

_OPEN_STATUSES = ("pending", "in_progress")


class LoopMode:
    """`kind_of` tells of a tool by its name whether it changes files or runs something."""

    def __init__(self, recorder: Recorder, kind_of: Callable[[str], Kind | None]) -> None:
        self._recorder = recorder
        self._kind_of = kind_of
        self._target = ""
        self._mode: Mode | None = None
        self._iteration = 0
        self._stalled = 0
        self._is_unverified = False
        self._seen_results: set[int] = set()
        self._last_prompt_id = ""
        self._cost_before = 0.0
        self._cost_at_end: float | None = None

    @property
    def is_active(self) -> bool:
        return self._recorder.state.loop.is_active

    def get_status(self) -> LoopStatus:
        spent = self._recorder.state.cost_usd if self._cost_at_end is None else self._cost_at_end
        status = self._recorder.state.loop.status
        cost = 0.0 if status.state == "idle" else spent - self._cost_before
        return msgspec.structs.replace(status, cost_usd=cost)

    def switch_on(self, target: str, mode: Mode | None) -> None:
        """From now on, with all iterations before it, also when it is on already."""
        self._target = " ".join(target.split()) or DEFAULT_TARGET
        self._mode = mode
        self._iteration = self._stalled = 0
        self._is_unverified = False
        self._seen_results.clear()
        self._cost_before, self._cost_at_end = self._recorder.state.cost_usd, None
        self._set_state("executing")

    def switch_off(self, why: str = "") -> bool:
        """No iteration follows any more; the turn that runs is left alone. False when it was off."""
        if not self.is_active:
            return False
        self._emit(LoopChanged("idle", reason=why))
        return True

    def is_own_prompt(self, prompt_id: str) -> bool:
        """Whether it was this loop that gave the prompt, last."""
        return bool(prompt_id) and prompt_id == self._last_prompt_id

    def make_first_prompt(self) -> Prompt:
        """The first prompt, for an agent that has nothing to do."""
        self._iteration += 1
        self._set_state("executing")
        text = build_first_prompt(self._target, self._iteration, MAX_ITERATIONS)
        return self._make_prompt(text, (), f"/loop on {self._target}")

    def make_next_prompt(self, ended: TurnEnded, *, waits: bool) -> Prompt | None:
        """The next prompt after a turn of the agent; None when there is none, or somebody's own `waits`."""
        if not self.is_active:
            return None
        self._set_state("assessing")
        facts = self._collect_facts(ended)
        decision = decide_next(facts)
        if waits and decision.action in ("continue_from_context", "verify"):
            self._set_state("executing")
            return None
        return self._act_on(decision)

    def _act_on(self, decision: LoopDecision) -> Prompt | None:
        action = decision.action
        if action == "none":
            self.switch_off(decision.why)
        elif action in ("completed", "blocked", "budget_exhausted"):
            self._cost_at_end = self._recorder.state.cost_usd
            self._set_state(action, decision.why)
        else:
            return self._continue(decision)
        return None

    def _continue(self, decision: LoopDecision) -> Prompt:
        self._iteration += 1
        self._set_state("verifying" if decision.action == "verify" else "executing")
        text = build_next_prompt(self._target, self._iteration, MAX_ITERATIONS, decision, self._stalled)
        if decision.action == "verify":
            self._emit(ActivityChanged("verifying", f"{self._iteration} of {MAX_ITERATIONS}"))
        return self._make_prompt(text, decision.reasons, summarize_decision(self._iteration, MAX_ITERATIONS, decision))

    def _make_prompt(self, text: str, reasons: tuple[str, ...], shown: str) -> Prompt:
        self._emit(LoopPrompted(text, self._iteration, MAX_ITERATIONS, reasons))
        state = self._recorder.state
        self._last_prompt_id = f"loop-{state.seq}"
        return Prompt(self._last_prompt_id, text, self._mode or state.mode, display_text=shown)

    def _collect_facts(self, ended: TurnEnded) -> LoopFacts:
        state = self._recorder.state
        self._review_calls()
        return LoopFacts(
            ended=ended.reason,
            signals=parse_signals(ended.text),
            iteration=self._iteration,
            limit=MAX_ITERATIONS,
            todos=tuple(todo.content for todo in state.todos if todo.status in _OPEN_STATUSES),
            agents=len(state.agents),
            is_unverified=self._is_unverified,
            stalled=self._stalled,
        )

    def _review_calls(self) -> None:
        """What the calls of the round mean: whether anything new came of them, and whether changes were checked."""
        looping = self._recorder.state.loop
        progress = looping.has_file_changes
        for call in looping.calls:
            if call.has_run and call.fingerprint not in self._seen_results:
                self._seen_results.add(call.fingerprint)
                progress = True
            kind = self._kind_of(call.name) if call.is_success else None
            if kind in ("edit", "execute"):
                self._is_unverified = kind == "edit"
        self._stalled = 0 if progress else self._stalled + 1

    def _set_state(self, state: LoopState, reason: str = "") -> None:
        self._emit(LoopChanged(state, self._target, self._iteration, MAX_ITERATIONS, reason))

    def _emit(self, event: AnyEvent) -> None:
        with suppress(OdinError):  # a log that cannot be written is told by the turn that needs it
            self._recorder.emit(event)
