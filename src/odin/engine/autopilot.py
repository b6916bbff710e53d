"""Loop mode: when the model has answered and the goal is not reached, it is asked to go on, up to ten times.

It stands above the loop of a turn. Each iteration is a prompt and a turn like any other, so permissions, budgets and
limits hold as ever. What was decided is recorded; a session that is resumed does not go on by itself.
"""

from collections.abc import Callable
from contextlib import suppress

import msgspec

from odin.core.client import LoopStatus
from odin.core.errors import OdinError
from odin.core.event import ActivityChanged, AnyEvent, LoopChanged, LoopNoted, LoopState, Mode, TurnEnded
from odin.core.op import Prompt
from odin.core.tool import Kind
from odin.engine.assessment import (
    DEFAULT_TARGET,
    MAX_ITERATIONS,
    Decision,
    Facts,
    continuation,
    decide,
    in_short,
    opening,
    signals,
)
from odin.engine.recorder import Recorder

_OPEN = ("pending", "in_progress")


class Autopilot:
    """`kind_of` tells of a tool by its name whether it changes files or runs something."""

    def __init__(self, recorder: Recorder, kind_of: Callable[[str], Kind | None]) -> None:
        self._recorder = recorder
        self._kind_of = kind_of
        self._target = ""
        self._mode: Mode | None = None
        self._iteration = 0
        self._stalled = 0
        self._unchecked = False
        self._known: set[int] = set()
        self._given = ""
        self._spent_before = 0.0
        self._spent_at_end: float | None = None

    @property
    def on(self) -> bool:
        return self._recorder.state.loop.on

    def status(self) -> LoopStatus:
        spent = self._recorder.state.cost_usd if self._spent_at_end is None else self._spent_at_end
        status = self._recorder.state.loop.status
        cost = 0.0 if status.state == "idle" else spent - self._spent_before
        return msgspec.structs.replace(status, cost_usd=cost)

    def switch_on(self, target: str, mode: Mode | None) -> None:
        """From now on, with all iterations before it, also when it is on already."""
        self._target = " ".join(target.split()) or DEFAULT_TARGET
        self._mode = mode
        self._iteration = self._stalled = 0
        self._unchecked = False
        self._known.clear()
        self._spent_before, self._spent_at_end = self._recorder.state.cost_usd, None
        self._change("executing")

    def switch_off(self, why: str = "") -> bool:
        """No iteration follows any more; the turn that runs is left alone. False when it was off."""
        if not self.on:
            return False
        self._emit(LoopChanged("idle", reason=why))
        return True

    def gave(self, prompt_id: str) -> bool:
        """Whether it was this loop that gave the prompt, last."""
        return bool(prompt_id) and prompt_id == self._given

    def begin(self) -> Prompt:
        """The first prompt, for an agent that has nothing to do."""
        self._iteration += 1
        self._change("executing")
        text = opening(self._target, self._iteration, MAX_ITERATIONS)
        return self._prompt(text, (), f"/loop on {self._target}")

    def after(self, ended: TurnEnded, *, waits: bool) -> Prompt | None:
        """The next prompt after a turn of the agent; None when there is none, or somebody's own `waits`."""
        if not self.on:
            return None
        self._change("assessing")
        facts = self._facts(ended)
        decision = decide(facts)
        if waits and decision.action in ("continue_from_context", "verify"):
            self._change("executing")
            return None
        return self._act(decision)

    def _act(self, decision: Decision) -> Prompt | None:
        action = decision.action
        if action == "none":
            self.switch_off(decision.why)
        elif action in ("completed", "blocked", "budget_exhausted"):
            self._spent_at_end = self._recorder.state.cost_usd
            self._change(action, decision.why)
        else:
            return self._goes_on(decision)
        return None

    def _goes_on(self, decision: Decision) -> Prompt:
        self._iteration += 1
        self._change("verifying" if decision.action == "verify" else "executing")
        text = continuation(self._target, self._iteration, MAX_ITERATIONS, decision, self._stalled)
        if decision.action == "verify":
            self._emit(ActivityChanged("verifying", f"{self._iteration} of {MAX_ITERATIONS}"))
        return self._prompt(text, decision.reasons, in_short(self._iteration, MAX_ITERATIONS, decision))

    def _prompt(self, text: str, reasons: tuple[str, ...], shown: str) -> Prompt:
        self._emit(LoopNoted(text, self._iteration, MAX_ITERATIONS, reasons))
        state = self._recorder.state
        self._given = f"loop-{state.seq}"
        return Prompt(self._given, text, self._mode or state.mode, shown=shown)

    def _facts(self, ended: TurnEnded) -> Facts:
        state = self._recorder.state
        self._heed()
        return Facts(
            ended=ended.reason,
            signals=signals(ended.text),
            iteration=self._iteration,
            limit=MAX_ITERATIONS,
            todos=tuple(todo.content for todo in state.todos if todo.status in _OPEN),
            agents=len(state.agents),
            unchecked=self._unchecked,
            stalled=self._stalled,
        )

    def _heed(self) -> None:
        """What the calls of the round mean: whether anything new came of them, and whether changes were checked."""
        looping = self._recorder.state.loop
        progress = looping.changed
        for call in looping.calls:
            if call.ran and call.digest not in self._known:
                self._known.add(call.digest)
                progress = True
            kind = self._kind_of(call.name) if call.succeeded else None
            if kind in ("edit", "execute"):
                self._unchecked = kind == "edit"
        self._stalled = 0 if progress else self._stalled + 1

    def _change(self, state: LoopState, reason: str = "") -> None:
        self._emit(LoopChanged(state, self._target, self._iteration, MAX_ITERATIONS, reason))

    def _emit(self, event: AnyEvent) -> None:
        with suppress(OdinError):  # a log that cannot be written is told by the turn that needs it
            self._recorder.emit(event)
