"""The runs that were started on this machine, on the page of `odin serve`."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TypeVar, cast, get_args

import msgspec
from msgspec import Struct

from odin.app.crash_log import make_redactor
from odin.core.errors import OdinError, UsageError
from odin.core.format import clip_line, format_age, format_seconds, format_usd, pluralize
from odin.fleet.board import describe_rate, describe_reason
from odin.fleet.engine import FleetEngine, FleetRun, Signal, TaskState, name_session
from odin.fleet.run_folder import RunFolder, find_run, list_runs
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

_PATIENCE_S = 5.0
_REMEMBERED_S = 10.0
"""How long what a server said of a run is shown before it is asked again: the page asks every two seconds."""

OpenEngine = Callable[[RunFolder], Awaitable[FleetEngine]]
Result = TypeVar("Result")


class _KnownRun(Struct, frozen=True):
    """A run as it was at a time; `fault` says why it could not be read."""

    places: RunFolder
    read_at: float
    run: FleetRun
    states: Sequence[TaskState] = ()
    fault: str = ""

    @property
    def goes_on(self) -> bool:
        """True if a process or, on a server, some worker has its tasks."""
        if self.places.server.exists():
            return any(state.status in ("waiting", "running") for state in self.states)
        return bool(self.places.find_runner())


class FleetBoard:
    name = "fleet"
    title = "Fleet"

    def __init__(self, env: Mapping[str, str], open_engine: OpenEngine, clock: Callable[[], float] = time.time) -> None:
        self._env = env
        self._open_engine = open_engine
        self._clock = clock
        self._known: dict[str, _KnownRun] = {}

    def exists(self) -> bool:
        return bool(list_runs(self._env))

    def read(self) -> Board:
        """Show all runs, and the tasks of those that run; if none does, those of the latest one."""
        now = self._clock()
        names = list_runs(self._env)
        found = [RunFolder(name, self._env) for name in names[:_MAX_RUNS]]
        runs = sorted((self._read(places, now) for places in found), key=lambda known: -known.run.created)
        shown = [known for known in runs if known.goes_on] or runs[:1]
        rows = [_make_run_row(known, summarize(known.states, now), now) for known in runs]
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
        for known in shown:
            sections += _list_tasks(known, now, redact)
        return Board(self.name, self.title, tuple(sections))

    def act(self, action: str) -> str:
        verb, _, name = action.partition(":")
        if verb not in get_args(Signal):
            raise UsageError("The fleet has no such action.", "Load the page again.")
        places = find_run(name, self._env)
        count = self._ask(places, lambda engine: engine.signal(cast("Signal", verb)))
        self._known.pop(name, None)
        text = f"{verb.capitalize()}: {pluralize(count, 'task')} of {name}."
        if count and verb in ("resume", "retry") and not places.server.exists() and not places.find_runner():
            text += f" Run odin fleet run --continue {name}."
        return text

    def _read(self, places: RunFolder, now: float) -> _KnownRun:
        known = self._known.get(places.name)
        if known is not None and places.server.exists() and now - known.read_at < _REMEMBERED_S:
            return known

        async def read(engine: FleetEngine) -> _KnownRun:
            return _KnownRun(places, now, await engine.read_run(), await engine.list_tasks())

        try:
            known = self._ask(places, read)
        except (OdinError, TimeoutError) as error:
            fault = str(error) or "Its server does not answer."
            last = known or _KnownRun(places, now, FleetRun(places.name, "", 0.0))
            known = msgspec.structs.replace(last, read_at=now, fault=fault)
        self._known[places.name] = known
        return known

    def _ask(self, places: RunFolder, ask: Callable[[FleetEngine], Awaitable[Result]]) -> Result:
        async def run() -> Result:
            async with asyncio.timeout(_PATIENCE_S):
                engine = await self._open_engine(places)
                try:
                    return await ask(engine)
                finally:
                    await engine.close()

        return asyncio.run(run())


def _make_run_row(known: _KnownRun, summary: FleetSummary, now: float) -> BoardRow:
    run = known.run
    state = "running" if known.goes_on else "done" if summary.done == summary.total else "stopped"
    age = format_age(now - run.created) if run.created else ""
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
            BoardCell(known.fault or state, "bad" if known.fault else _TONES.get(state, "")),
            BoardCell(f"{summary.done:,} of {summary.total:,}", progress=summary.done / max(summary.total, 1)),
            BoardCell(f"{summary.passed:,}"),
            BoardCell(f"{summary.failed:,}", "bad" if summary.failed else "dim"),
            BoardCell(f"{summary.not_run + summary.cancelled:,}", "warn" if summary.not_run else "dim"),
            BoardCell(format_usd(summary.usd)),
            BoardCell(age if age in ("", "now") else f"{age} ago"),
        ),
        tuple(action for action in offered if action is not None),
    )


def _list_tasks(known: _KnownRun, now: float, redact: Callable[[str], str]) -> Iterator[BoardSection]:
    places, states = known.places, known.states
    summary = summarize(states, now)
    running = sorted((one for one in states if one.status == "running"), key=lambda one: one.started)
    unsolved = [one for one in states if get_status(one) in ("failed", "not_run")]
    slow = sorted((one for one in states if one.result is not None), key=lambda one: -get_seconds(one, now))
    why = ", ".join(f"{reason} ({count:,})" for reason, count in summary.reasons)
    for heading, facts, chosen in (
        (f"{places.name}: running", f"{describe_rate(summary)}.", running),
        (f"{places.name}: did not pass", f"{why}.", unsolved),
        (f"{places.name}: slowest", "", slow[:_MOST_SLOW]),
    ):
        rows = tuple(_make_task_row(known, state, now, redact) for state in chosen[:_MAX_ROWS])
        if rows:
            columns = ("Task", "State", "Time", "Tokens", "Cost", "What")
            yield BoardSection(heading, redact(facts), columns, rows, len(chosen) - len(rows))


def _make_task_row(known: _KnownRun, state: TaskState, now: float, redact: Callable[[str], str]) -> BoardRow:
    status = get_status(state)
    text = describe_reason(state) if state.result is not None else state.progress.activity or "starting"
    if state.status == "running" and state.progress.url:
        text = f"{text}, on {state.progress.url}"
    can_open = state.attempt and known.places.locate_checkout(state.task.id).exists()
    session = name_session(known.run, state.task.id, state.retries) if can_open else ""
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
