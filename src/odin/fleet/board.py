"""What a run shows while it goes on: a line for each task that has ended, or a board on a terminal."""

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Protocol, Self, TextIO

from odin.core.format import clip_line, format_duration, format_seconds, format_usd, pluralize
from odin.fleet.engine import TaskState
from odin.fleet.summary import FleetSummary, get_seconds, get_status, get_usd
from odin.ui.terminal import escape_hidden, write_line

_EVERY_S = 1.0
_TASKS_PER_S = 2000
"""How many tasks are read in a second: a board of many is drawn less often."""


class RunBoard(Protocol):
    """A context manager that shows the tasks. `has_keys`: a user can resume paused tasks here. `is_left`: that user
    has seen enough."""

    has_keys: bool
    is_left: bool

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def update(self, states: Sequence[TaskState]) -> None: ...

    def say(self, text: str) -> None: ...

    async def wait(self, until: "asyncio.Future[Any]") -> None:
        """Wait for the next update, a key, or the end of a task."""
        ...


class LineBoard:
    """Writes one line for each task that has ended."""

    def __init__(self, out: TextIO, clock: Callable[[], float]) -> None:
        self.has_keys = False
        self.is_left = False
        self._out = out
        self._clock = clock
        self._seen: dict[str, int] = {}
        self._is_begun = False
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def update(self, states: Sequence[TaskState]) -> None:
        """What had ended before the first update is only counted."""
        self._count = len(states)
        ended = [
            state for state in states if state.result is not None and self._seen.get(state.task.id) != state.retries
        ]
        done = sum(state.result is not None for state in states)
        for number, state in enumerate(ended, done - len(ended) + 1):
            self._seen[state.task.id] = state.retries
            if self._is_begun:
                self.say(f"[{number:,}/{len(states):,}] {describe_end(state)}")
        if not self._is_begun and (ended or len(states) != done):
            before = f", {done:,} of them done before" if done else ""
            self.say(f"{pluralize(len(states), 'task')}{before}.")
        self._is_begun = True

    def say(self, text: str) -> None:
        write_line(self._out, escape_hidden(text))

    async def wait(self, until: "asyncio.Future[Any]") -> None:
        await asyncio.wait({until}, timeout=get_pause(self._count))


def get_pause(tasks: int) -> float:
    """Return how many seconds a board of so many tasks rests."""
    return max(_EVERY_S, tasks / _TASKS_PER_S)


def describe_end(state: TaskState) -> str:
    """Return one line about a task that has ended."""
    result = state.result
    assert result is not None
    facts = f"{format_duration(get_seconds(state, state.ended))}, {format_usd(get_usd(state))}"
    line = f"{get_status(state).replace('_', ' '):9} {state.task.id}  {facts}"
    return line + (f"  {describe_reason(state)}" if result.outcome != "passed" else "")


def describe_reason(state: TaskState) -> str:
    """Return why a task did not pass, in one line; "" if there is nothing to say."""
    if state.result is None:
        return ""
    return clip_line(": ".join(filter(None, (state.result.reason, state.result.detail))))


def list_facts(summary: FleetSummary) -> list[str]:
    """Return a run in a few lines."""
    counts = [
        f"{number:,} {name}"
        for number, name in (
            (summary.passed, "passed"),
            (summary.failed, "failed"),
            (summary.not_run, "did not run"),
            (summary.cancelled, "cancelled"),
            (summary.running, "running"),
            (summary.waiting, "waiting"),
            (summary.paused, "paused"),
        )
        if number or name == "passed"
    ]
    lines = [f"{pluralize(summary.total, 'task')}: {', '.join(counts)}."]
    used = f"{format_usd(summary.usd)}, {summary.tokens:,} tokens in {pluralize(summary.requests, 'request')}"
    lines.append(f"{used}; {format_seconds(summary.seconds)}, {describe_rate(summary)}.")
    if summary.reasons:
        lines.append(f"Why: {', '.join(f'{reason} ({count:,})' for reason, count in summary.reasons)}.")
    return lines


def describe_rate(summary: FleetSummary) -> str:
    rate = f"{summary.tasks_per_minute:.1f} tasks/min, {format_usd(summary.usd_per_hour)}/h"
    return rate + (f", {format_seconds(summary.eta_s)} left" if summary.eta_s is not None else "")
