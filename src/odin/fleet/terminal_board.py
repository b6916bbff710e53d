"""The board of a run on a terminal: how far it is, what failed, what runs, what took long. Keys stop tasks."""

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from odin.core.format import clip_line, format_count, format_seconds, format_usd
from odin.fleet.board import describe_rate, describe_reason, get_pause
from odin.fleet.engine import FleetEngine, FleetRun, TaskState
from odin.fleet.summary import FleetSummary, get_seconds, get_status, get_tokens, get_usd, summarize
from odin.ui.terminal import escape_hidden, restore_terminal_after

_STYLES = {"passed": "green", "failed": "red", "not_run": "yellow", "cancelled": "yellow", "running": "cyan"}
_HEAD_LINES = 6
_MOST_REASONS = 5
_MOST_SLOW = 5


class TerminalBoard:
    """`is_mine`: this process runs the tasks. Otherwise the run goes on without it."""

    def __init__(
        self, run: FleetRun, engine: FleetEngine, out: TextIO, fd: int, clock: Callable[[], float], *, is_mine: bool
    ) -> None:
        self.is_left = False
        self.has_keys = True
        self._run = run
        self._engine = engine
        self._fd = fd
        self._clock = clock
        self._is_mine = is_mine
        self._began = clock()
        self._states: Sequence[TaskState] = ()
        self._message = ""
        self._asks = False
        self._pressed = asyncio.Event()
        self._acting: set[asyncio.Task[int]] = set()
        self._console = Console(file=out)
        self._live = Live(console=self._console, screen=True, auto_refresh=False)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        import tty

        self._stack.enter_context(restore_terminal_after(self._fd))
        tty.setcbreak(self._fd)
        asyncio.get_running_loop().add_reader(self._fd, self._read_keys)
        self._stack.callback(asyncio.get_running_loop().remove_reader, self._fd)
        self._stack.enter_context(self._live)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def update(self, states: Sequence[TaskState]) -> None:
        self._states = states
        self._draw()

    def say(self, text: str) -> None:
        self._message = text
        self._draw()

    async def wait(self, until: "asyncio.Future[Any]") -> None:
        pressed = asyncio.create_task(self._pressed.wait())
        await asyncio.wait({until, pressed}, timeout=get_pause(len(self._states)), return_when="FIRST_COMPLETED")
        pressed.cancel()
        self._pressed.clear()

    # --- keys ---

    def _read_keys(self) -> None:
        try:
            typed = os.read(self._fd, 1024).decode(errors="replace")
        except OSError:
            typed = ""
        if not typed:
            asyncio.get_running_loop().remove_reader(self._fd)
        for key in typed:
            self._press(key)
        self._draw()

    def _press(self, key: str) -> None:
        if self._asks:
            self._asks = False
            self._message = ""
            if key == "y":
                self._signal("cancel")
        elif key == "p":
            self._signal("pause")
        elif key == "r":
            self._signal("resume")
        elif key == "c":
            self._asks = True
            self._message = "Cancel all tasks that are not done? y/n"
        elif key == "q" and not self._is_mine:
            self.is_left = True
            self._pressed.set()

    def _signal(self, signal: Any) -> None:
        task = asyncio.create_task(self._engine.signal(signal))
        self._acting.add(task)
        task.add_done_callback(self._end_signal)

    def _end_signal(self, task: "asyncio.Task[int]") -> None:
        self._acting.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self.say(str(error))
        self._pressed.set()

    # --- what is shown ---

    def _draw(self) -> None:
        now = self._clock()
        summary = summarize(self._states, now, self._began)
        keys = ["r resume"] if summary.paused else []
        keys += ["p pause"] if summary.running or summary.waiting else []
        text = "   ".join([*keys, "c cancel", "Ctrl-C stop" if self._is_mine else "q leave"])
        footer = _make_line(self._message, "yellow") if self._message else _make_line(text, "dim")
        self._live.update(render_board(self._run, self._states, summary, now, self._console.size, footer), refresh=True)


def render_board(
    run: FleetRun,
    states: Sequence[TaskState],
    summary: FleetSummary,
    now: float,
    size: tuple[int, int],
    footer: RenderableType,
) -> RenderableType:
    """Return the board for a terminal of this width and height. What is least urgent gives way to the rest."""
    columns, left = size[0], size[1] - _HEAD_LINES
    budget = f" of {format_usd(run.budget_usd)}" if run.budget_usd else ""
    use = f"{format_usd(summary.usd)}{budget}, {format_count(summary.tokens)} tokens; {describe_rate(summary)}"
    parts: list[RenderableType] = [
        _make_line(f"{run.name}  {format_seconds(summary.seconds)}", "bold"),
        _make_progress(summary, columns),
        _make_counts(summary),
        _make_line(use, ""),
    ]
    if reasons := summary.reasons[: max(min(_MOST_REASONS, left // 3 - 1), 0)]:
        left -= len(reasons) + 2
        parts += _make_section("WHY TASKS DID NOT PASS", _make_reasons(reasons, states, columns))
    running = sorted((one for one in states if one.status == "running"), key=lambda one: one.started)
    slow = [one for one in states if one.result is not None and one.started]
    slow.sort(key=lambda one: -get_seconds(one, now))
    of_running = len(running) + 2 if running else 0
    slow = slow[: max(min(_MOST_SLOW, max(left - of_running, left // 2) - 2), 0)]
    left -= len(slow) + 2 if slow else 0
    if running and left > 2:
        shown = running[: left - 2]
        more = f", {len(running) - len(shown):,} more" if len(running) > len(shown) else ""
        parts += _make_section(f"RUNNING{more}", _make_table(shown, now, columns))
    if slow:
        parts += _make_section("SLOWEST", _make_table(slow, now, columns))
    return Group(*parts, Text(), footer)


def _make_section(title: str, body: RenderableType) -> list[RenderableType]:
    return [Text(), _make_line(title, "dim"), body]


def _make_reasons(reasons: Sequence[tuple[str, int]], states: Sequence[TaskState], columns: int) -> RenderableType:
    """Show each reason with its count and an example."""
    table = _make_grid(columns, 6, 16)
    for reason, count in reasons:
        example = next(
            one for one in states if one.result is not None and (one.result.reason or one.result.outcome) == reason
        )
        table.add_row(f"{count:,}", Text(escape_hidden(reason)), Text(_describe_example(example), "dim"))
    return table


def _describe_example(state: TaskState) -> str:
    detail = state.result.detail if state.result is not None else ""
    return escape_hidden(clip_line(": ".join(filter(None, (state.task.id, detail)))))


def _make_line(text: str, style: str) -> Text:
    return Text(escape_hidden(text), style, no_wrap=True, overflow="ellipsis")


def _make_progress(summary: FleetSummary, columns: int) -> RenderableType:
    share = f" {summary.done:,} of {summary.total:,}"
    grid = Table.grid()
    grid.add_row(ProgressBar(max(summary.total, 1), summary.done, columns - len(share) - 1), Text(share))
    return grid


def _make_counts(summary: FleetSummary) -> Text:
    names = ("passed", "failed", "not_run", "cancelled", "running", "waiting", "paused")
    line = Text(no_wrap=True, overflow="ellipsis")
    for name in names:
        number = getattr(summary, name)
        if number or name in ("passed", "failed", "running"):
            line.append(f"{number:,} {name.replace('_', ' ')}   ", _STYLES.get(name, "") if number else "dim")
    return line


def _make_grid(columns: int, *widths: int) -> Table:
    """Return a table without lines whose last column takes the rest of the width."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for width in widths:
        table.add_column(width=width, no_wrap=True, overflow="ellipsis")
    table.add_column(width=max(columns - sum(widths) - 2 * len(widths) - 1, 10), no_wrap=True, overflow="ellipsis")
    return table


def _make_table(states: Sequence[TaskState], now: float, columns: int) -> RenderableType:
    table = _make_grid(columns, max(columns // 3, 12), 10, 7, 8)
    for state in states:
        table.add_row(
            Text(state.task.id, _STYLES.get(get_status(state), "")),
            format_seconds(get_seconds(state, now)),
            format_count(get_tokens(state)),
            format_usd(get_usd(state)),
            Text(_describe(state), "dim"),
        )
    return table


def _describe(state: TaskState) -> str:
    text = describe_reason(state) if state.result is not None else state.progress.activity or "starting"
    return escape_hidden(clip_line(text))
