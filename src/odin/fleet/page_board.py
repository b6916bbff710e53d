"""The runs of this machine on the page of `odin serve`, read from their tables."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar, cast, get_args

from odin.app.crash_log import make_redactor
from odin.core.errors import UsageError
from odin.core.format import clip_line, format_age, format_seconds, format_usd, pluralize
from odin.fleet.board import describe_rate, describe_reason
from odin.fleet.engine import FleetRun, Signal, TaskState, name_session
from odin.fleet.run_folder import RunFolder, find_run, list_runs
from odin.fleet.run_table import RunTable
from odin.fleet.summary import FleetSummary, get_seconds, get_status, get_tokens, get_usd, summarize
from odin.remote.protocol import Board, BoardAction, BoardCell, BoardRow, BoardSection, BoardTone
from odin.ui.terminal import escape_hidden

_MAX_RUNS = 20
_MAX_ROWS = 200
_MOST_SLOW = 10
_MAX_TEXT = 160

_TONES: dict[str, BoardTone] = {
    "passed": "good",
    "running": "good",
    "failed": "bad",
    "not_run": "warn",
    "cancelled": "warn",
    "waiting": "dim",
    "paused": "dim",
    "stopped": "warn",
}

Result = TypeVar("Result")


class FleetBoard:
    name = "fleet"
    title = "Fleet"

    def __init__(self, env: Mapping[str, str], clock: Callable[[], float] = time.time) -> None:
        self._env = env
        self._clock = clock

    def exists(self) -> bool:
        return bool(list_runs(self._env))

    def read(self) -> Board:
        """Show all runs, and the tasks of those that run; if none does, those of the latest one."""
        now = self._clock()
        names = list_runs(self._env)
        found = [RunFolder(name, self._env) for name in names[:_MAX_RUNS]]
        runs = [(places, *_read(places)) for places in found if not places.server.exists()]
        runs.sort(key=lambda item: -item[1].created)
        going = {places.name for places, _, _ in runs if places.find_runner()} or {
            places.name for places, _, _ in runs[:1]
        }
        rows = [_make_run_row(places, run, summarize(states, now), now) for places, run, states in runs]
        # The page is too impatient to ask a server.
        rows += [_make_remote_row(places) for places in found if places.server.exists()]
        sections = [
            BoardSection(
                "Runs",
                f"{pluralize(len(names), 'run')} on this machine." if runs else "There are no runs.",
                ("Run", "State", "Done", "Passed", "Failed", "Not run", "Cost", "Started"),
                tuple(rows),
                len(names) - len(found),
            )
        ]
        redact = make_redactor(self._env)
        for places, _, states in runs:
            if places.name in going:
                sections += _list_tasks(places, states, now, redact)
        return Board(self.name, self.title, tuple(sections))

    def act(self, action: str) -> str:
        verb, _, name = action.partition(":")
        if verb not in get_args(Signal):
            raise UsageError("The fleet has no such action.", "Load the page again.")
        places = find_run(name, self._env)
        if places.server.exists():
            raise UsageError(f"{name} is on a Temporal server.", f"Use odin fleet {verb} {name}.")

        async def signal() -> int:
            table = RunTable(places.table)
            try:
                return await table.signal(cast("Signal", verb))
            finally:
                await table.close()

        count = asyncio.run(signal())
        text = f"{verb.capitalize()}: {pluralize(count, 'task')} of {name}."
        if count and verb in ("resume", "retry") and not places.find_runner():
            text += f" Run odin fleet run --continue {name}."
        return text


def _read(places: RunFolder) -> tuple[FleetRun, Sequence[TaskState]]:
    async def read() -> tuple[FleetRun, Sequence[TaskState]]:
        table = RunTable(places.table)
        try:
            return await table.read_run(), await table.list_tasks()
        finally:
            await table.close()

    return asyncio.run(read())


def _make_remote_row(places: RunFolder) -> BoardRow:
    cells = (places.name, "on a Temporal server", f"odin fleet watch {places.name}")
    return BoardRow(places.name, tuple(map(BoardCell, (*cells, *[""] * 5))))


def _make_run_row(places: RunFolder, run: FleetRun, summary: FleetSummary, now: float) -> BoardRow:
    state = "running" if places.find_runner() else "done" if summary.done == summary.total else "stopped"
    age = format_age(now - run.created)
    left = summary.running + summary.waiting
    offered = (
        BoardAction("Pause", f"pause:{run.name}") if left else None,
        BoardAction("Resume", f"resume:{run.name}") if summary.paused else None,
        BoardAction("Retry", f"retry:{run.name}", f"What {run.name} did not pass starts over.")
        if summary.failed + summary.not_run + summary.cancelled
        else None,
        BoardAction("Cancel", f"cancel:{run.name}", f"{pluralize(left + summary.paused, 'task')} will not be done.")
        if left + summary.paused
        else None,
    )
    return BoardRow(
        run.name,
        (
            BoardCell(run.name),
            BoardCell(state, _TONES.get(state, "")),
            BoardCell(f"{summary.done:,} of {summary.total:,}", progress=summary.done / max(summary.total, 1)),
            BoardCell(f"{summary.passed:,}"),
            BoardCell(f"{summary.failed:,}", "bad" if summary.failed else "dim"),
            BoardCell(f"{summary.not_run + summary.cancelled:,}", "warn" if summary.not_run else "dim"),
            BoardCell(format_usd(summary.usd)),
            BoardCell(age if age == "now" else f"{age} ago"),
        ),
        tuple(action for action in offered if action is not None),
    )


def _list_tasks(
    places: RunFolder, states: Sequence[TaskState], now: float, redact: Callable[[str], str]
) -> Iterator[BoardSection]:
    summary = summarize(states, now)
    running = sorted((one for one in states if one.status == "running"), key=lambda one: one.started)
    unsolved = [one for one in states if get_status(one) in ("failed", "not_run")]
    slow = sorted((one for one in states if one.result is not None), key=lambda one: -get_seconds(one, now))
    why = ", ".join(f"{reason} ({count:,})" for reason, count in summary.reasons)
    for heading, facts, chosen in (
        (f"{places.name}: running", f"{describe_rate(summary)}.", running),
        (f"{places.name}: did not pass", f"{why}." if why else "Nothing.", unsolved),
        (f"{places.name}: slowest", "", slow[:_MOST_SLOW]),
    ):
        rows = tuple(_make_task_row(places, state, now, redact) for state in chosen[:_MAX_ROWS])
        more = len(chosen) - len(rows)
        yield BoardSection(
            heading, redact(facts), ("Task", "State", "Time", "Tokens", "Cost", "What") if rows else (), rows, more
        )


def _make_task_row(places: RunFolder, state: TaskState, now: float, redact: Callable[[str], str]) -> BoardRow:
    status = get_status(state)
    text = describe_reason(state) if state.result is not None else state.progress.activity or "starting"
    can_open = state.attempt and places.locate_checkout(state.task.id).exists()
    session = name_session(places.name, state.task.id, state.retries) if can_open else ""
    return BoardRow(
        state.task.id,
        (
            BoardCell(state.task.id, session=session),
            BoardCell(status.replace("_", " "), _TONES.get(status, "")),
            BoardCell(format_seconds(get_seconds(state, now))),
            BoardCell(f"{get_tokens(state):,}"),
            BoardCell(format_usd(get_usd(state))),
            BoardCell(escape_hidden(clip_line(redact(text), _MAX_TEXT))),
        ),
    )
