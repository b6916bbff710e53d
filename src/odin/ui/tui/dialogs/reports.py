"""A text in a dialog that is scrolled, copied and closed by the keys of the table.

Something to read: a few lines, or many to scroll through.

What the app tells about itself and its session, as text to read.

The last errors of this run.

What was spent: by this session or the whole project, as a whole, by model, by agent or by day.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.widgets import Static

from odin.core.errors import OdinError
from odin.core.usage import UsageReport, UsageRow
from odin.ui.format import shorten_home
from odin.ui.slash_commands.diagnostics import DOCTOR_HINT, NO_LANGUAGE_SERVERS, NO_MCP_SERVERS, ErrorEntry, list_facts
from odin.ui.slash_commands.usage import (
    NO_USAGE,
    STATS_SCOPES,
    STATS_VIEWS,
    VIEW_GROUPINGS,
    StatsScope,
    StatsView,
    format_calls,
    format_context,
    format_overview,
    format_row_cost,
    format_table,
    format_unpriced,
    format_usage,
)
from odin.ui.terminal import escape_hidden
from odin.ui.tui.dialogs.dialog import Dialog
from odin.ui.tui.dialogs.picker import PickerDialog
from odin.ui.tui.dialogs.widgets import DialogAction, Hints, RowContent, TabBar, TabLabel, palette_of
from odin.ui.tui.paint.sanitize import sanitize
from odin.ui.tui.palette import Palette

if TYPE_CHECKING:
    from odin.ui.tui.app import OdinApp


class Sheet(VerticalScroll, inherit_bindings=False):
    """The dialog has the keys."""

    DEFAULT_CSS = """
    Sheet { scrollbar-size-vertical: 1; background: $surface; }
    Sheet { scrollbar-background: $surface; scrollbar-background-hover: $surface; }
    """


class SheetDialog(Dialog[str]):
    """A dialog with one sheet."""

    KEY_SCOPES = ("reading", "dialog")

    @property
    def plain_text(self) -> str:
        """The text, for whoever copies it."""
        return ""

    def action_read_copy(self) -> None:
        self.odin.copy_to_clipboard(self.plain_text)
        self.odin.show_toast("Copied.")

    def action_read_close(self) -> None:
        self.action_close()

    def action_read_down(self) -> None:
        self._scroll(1)

    def action_read_up(self) -> None:
        self._scroll(-1)

    def action_read_page_down(self) -> None:
        self._scroll(self._page_size)

    def action_read_page_up(self) -> None:
        self._scroll(-self._page_size)

    def action_read_first(self) -> None:
        self.query_one(Sheet).scroll_home(animate=False)

    def action_read_last(self) -> None:
        self.query_one(Sheet).scroll_end(animate=False)

    @property
    def _page_size(self) -> int:
        return max(self.query_one(Sheet).size.height - 1, 1)

    def _scroll(self, by: int) -> None:
        self.query_one(Sheet).scroll_relative(y=by, animate=False)


ROOMY_HEIGHT = 18
"""From so many rows on the conversation stays in sight."""

ReportWriter = Callable[[Palette, int], Awaitable[Text]]
"""Makes the text for these colours and so many columns."""


class ReportDialog(SheetDialog):
    """Its text is asked for when it is shown, and again when the size changes."""

    DEFAULT_CSS = """
    ReportDialog Sheet { height: auto; }
    ReportDialog > .panel { max-height: 100%; }
    ReportDialog #text { width: 100%; height: auto; }
    """

    def __init__(self, head: str, write: ReportWriter) -> None:
        super().__init__()
        self._heading = head
        self._writer = write
        self._hints = Hints()
        self._text = Text()

    def compose(self) -> ComposeResult:
        with Vertical(classes="panel"):
            yield Static(self._heading, classes="title", markup=False)
            with Sheet(id="scroll"):
                yield Static("", id="text", markup=False)
            yield self._hints

    def on_mount(self) -> None:
        self.query_one("#scroll").focus()
        keys = self.odin.keys
        self._hints.show([("copy", keys.label_of("read_copy"), "copy"), ("close", keys.label_of("close"), "close")])

    def on_resize(self) -> None:
        room = self.size.height * (85 if self.size.height >= ROOMY_HEIGHT else 100) // 100
        self.query_one("#scroll").styles.max_height = max(room - 3, 1)
        self.run_worker(self._fill, exclusive=True)

    async def _fill(self) -> None:
        try:
            self._text = await self._writer(palette_of(self), max(self.size.width - 3, 10))
        except OdinError as error:
            self._text = Text(sanitize(error.describe()), palette_of(self).bad)
        self.query_one("#text", Static).update(self._text)

    def action_do(self, name: str) -> None:
        if name == "copy":
            self.action_read_copy()
        else:
            self.action_close()

    @property
    def plain_text(self) -> str:
        return self._text.plain


_BAR = 60


def make_context_report(app: "OdinApp") -> ReportDialog:
    async def write(colours: Palette, columns: int) -> Text:
        report = await app.client.report_context()
        lines = format_context(report).splitlines()
        text = Text().append(f"{lines[0]}\n", colours.strong)
        if report.limit:
            room = min(_BAR, columns)
            used = min(room, round(report.used / report.limit * room))
            at = min(room - 1, round(report.threshold / report.limit * room)) if report.threshold else -1
            for place in range(room):
                full = place < used
                sign = "█" if full else "┊" if place == at else "░"
                text.append(sign, colours.accent if full else colours.dim)
            text.append("\n")
        for line in lines[2 if report.limit else 1 :]:
            text.append(f"{line}\n", colours.text if line.startswith("  ") else colours.dim)
        return text

    return ReportDialog("What fills the window", write)


def make_usage_report(app: "OdinApp") -> ReportDialog:
    async def write(colours: Palette, columns: int) -> Text:
        return Text(format_usage(await app.client.snapshot(), await app.client.get_info()), colours.text)

    return ReportDialog("What this session has spent", write)


def make_servers_report(app: "OdinApp") -> ReportDialog:
    async def write(colours: Palette, columns: int) -> Text:
        return Text(NO_MCP_SERVERS, colours.text)

    return ReportDialog("MCP servers", write)


def make_diagnostics_report(app: "OdinApp") -> ReportDialog:
    """What is not as it should be, and what one would want to know then."""

    async def write(colours: Palette, columns: int) -> Text:
        info = await app.client.get_info()
        text = Text()
        if info.notice:
            text.append(f"{escape_hidden(info.notice)}\n\n", colours.warn)
        if info.warnings:
            text.append(f"{len(info.warnings)} {'warning' if len(info.warnings) == 1 else 'warnings'}\n", colours.warn)
            for warning in info.warnings:
                text.append(f"• {escape_hidden(warning)}\n", colours.text)
        else:
            text.append("No warnings.\n", colours.good)
        count = app.error_log.count
        key = app.keys.label_of("errors")
        many = "1 error" if count == 1 else f"{count} errors"
        errors = f"{many} since Odin was started; {key} shows them." if count else "No errors since Odin was started."
        text.append(f"\n{errors}\n\n", colours.bad if count else colours.text)
        for name, value in list_facts(info):
            text.append(f"{name:<16}", colours.dim)
            text.append(f"{escape_hidden(shorten_home(value))}\n", colours.text)
        text.append(f"\n{NO_LANGUAGE_SERVERS}\n", colours.dim)
        text.append(DOCTOR_HINT, colours.dim)
        return text

    return ReportDialog("Diagnostics", write)


class ErrorsDialog(PickerDialog[ErrorEntry]):
    """Newest first, the whole of the marked one beside them."""

    KEY_SCOPES = ("errors", "list", "dialog")
    HEADING = "Errors"
    EMPTY_TEXT = "Nothing went wrong since Odin was started."
    STARTS_IN_FILTER = False
    ENTER_LABEL = "copy"
    DETAIL = "always"
    ACTIONS: ClassVar[tuple[DialogAction, ...]] = (DialogAction("copy_errors", "copy all"),)

    async def load(self) -> Sequence[ErrorEntry]:
        return self.odin.error_log.newest_first

    def text_of(self, item: ErrorEntry) -> str:
        return f"{item.kind} {item.agent} {item.detail}".casefold()

    def draw(self, item: ErrorEntry) -> RowContent:
        line = Text().append(f"{_format_clock(item.ts)} ", self.palette.dim)
        line.append(escape_hidden(item.line), self.palette.text)
        return line, (escape_hidden(item.kind), escape_hidden(item.agent))

    async def describe(self, item: ErrorEntry) -> Text:
        colours = self.palette
        text = Text().append(f"{escape_hidden(item.kind)}\n", colours.bad)
        whose = escape_hidden(item.agent) or "main agent"
        text.append(f"{_format_clock(item.ts)} · {whose}\n\n", colours.dim)
        text.append(sanitize(item.detail), colours.text)
        return text

    async def choose(self, item: ErrorEntry) -> None:
        self.odin.copy_to_clipboard(_format_error(item))
        self.odin.show_toast("Copied.")

    async def act(self, name: str, item: ErrorEntry | None) -> None:
        if self.all_items:
            self.odin.copy_to_clipboard("\n\n".join(map(_format_error, self.all_items)))
            self.odin.show_toast(f"Copied {len(self.all_items)}.")


def _format_clock(ts: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(ts))


def _format_error(item: ErrorEntry) -> str:
    whose = f" ({item.agent})" if item.agent else ""
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(item.ts))} {item.kind}{whose}\n{item.detail}"


class _Range(NamedTuple):
    name: str
    label: str
    days: int


_RANGES = (
    _Range("stats_today", "today", 1),
    _Range("stats_week", "7d", 7),
    _Range("stats_month", "30d", 30),
    _Range("stats_quarter", "90d", 90),
    _Range("stats_all", "all", 0),
)

_ARROWS = {"Left": "←", "Right": "→"}


class StatsDialog(SheetDialog):
    """Tab changes whose it is, the arrows what is shown, a letter the time. Everything can be clicked, too."""

    VERTICAL_BREAKPOINTS: list[tuple[int, str]] | None = [(0, "-low"), (18, "-high")]  # noqa: RUF012
    KEY_SCOPES = ("stats", "reading", "dialog")
    DEFAULT_CSS = """
    StatsDialog > .panel { height: 85%; }
    StatsDialog.-low > .panel { max-height: 100%; height: 100%; }
    StatsDialog.-low TabBar { margin-bottom: 0; }
    StatsDialog Sheet { height: 1fr; }
    StatsDialog #text { width: 100%; height: auto; }
    """

    def __init__(self, scope: StatsScope = "session", view: StatsView = "overview", days: int = 0) -> None:
        super().__init__()
        self.scope: StatsScope = scope
        self.view: StatsView = view
        self.days = days
        self._tabs = TabBar()
        self._hints = Hints()

    def compose(self) -> ComposeResult:
        with Vertical(classes="panel"):
            yield self._tabs
            with Sheet(id="scroll"):
                yield Static("", id="text", markup=False)
            yield self._hints

    def on_mount(self) -> None:
        self.query_one("#scroll").focus()
        keys = self.odin.keys
        what = " ".join(_ARROWS.get(key, key) for key in map(keys.label_of, ("stats_previous", "stats_next")))
        when = " ".join(keys.label_of(item.name) for item in _RANGES)
        close = ("close", keys.label_of("close"), "close")
        self._hints.show(
            [("scope", keys.label_of("stats_scope"), "whose"), ("", what, "what"), ("", when, "when"), close]
        )

    def on_resize(self) -> None:
        self._show_selection()

    # --- keys and clicks ---

    def action_stats_scope(self) -> None:
        self._pick("session" if self.scope == "project" else "project")

    def action_stats_next(self) -> None:
        self._switch_view(1)

    def action_stats_previous(self) -> None:
        self._switch_view(-1)

    def _switch_view(self, by: int) -> None:
        self._pick(STATS_VIEWS[(STATS_VIEWS.index(self.view) + by) % len(STATS_VIEWS)])

    def action_stats_today(self) -> None:
        self._pick("today")

    def action_stats_week(self) -> None:
        self._pick("7d")

    def action_stats_month(self) -> None:
        self._pick("30d")

    def action_stats_quarter(self) -> None:
        self._pick("90d")

    def action_stats_all(self) -> None:
        self._pick("all")

    @property
    def plain_text(self) -> str:
        return str(self.query_one("#text", Static).content)

    def action_do(self, name: str) -> None:
        if name == "scope":
            self.action_stats_scope()
        elif name == "close":
            self.action_close()
        else:
            self._pick(name)

    def _pick(self, name: str) -> None:
        """A tab, by what stands on it."""
        for scope in STATS_SCOPES:
            self.scope = scope if name == scope else self.scope
        for view in STATS_VIEWS:
            self.view = view if name == view else self.view
        for item in _RANGES:
            self.days = item.days if name == item.label else self.days
        self._show_selection()

    # --- the report ---

    def _show_selection(self) -> None:
        self._tabs.show(
            [
                [TabLabel(name, name == self.scope) for name in STATS_SCOPES],
                [TabLabel(name, name == self.view) for name in STATS_VIEWS],
                [TabLabel(item.label, item.days == self.days) for item in _RANGES],
            ]
        )
        self.run_worker(self._fill, exclusive=True)

    async def _fill(self) -> None:
        colours = palette_of(self)
        session = self.odin.info.session if self.scope == "session" and self.odin.info else ""
        try:
            report = await self.odin.sessions.report_usage(VIEW_GROUPINGS[self.view], days=self.days, session=session)
            whole = self.view == "overview"
            text = _render_overview(report, colours) if whole else _render_table(report, colours, self.size.width - 4)
        except OdinError as error:
            text = Text(error.describe(), colours.bad)
        self.query_one("#text", Static).update(text)


def _render_overview(report: UsageReport, colours: Palette) -> Text:
    total = report.total
    if not total.calls:
        return Text(NO_USAGE, colours.dim)
    text = Text()
    for name, value in format_overview(total):
        text.append(f"{name:<16}", colours.dim)
        text.append(f"{value}\n", colours.text)
    if len(report.rows) > 1:
        text.append("\nwhat for\n", colours.dim)
        for row in report.rows:
            text.append(f"{escape_hidden(row.name):<16}", colours.text)
            text.append(f"{format_calls(row)}, {format_row_cost(row)}\n", colours.text)
    return _append_unpriced(text, total, colours)


def _render_table(report: UsageReport, colours: Palette, columns: int) -> Text:
    if not report.rows:
        return Text(NO_USAGE, colours.dim)
    head, *rows, total = format_table(report, columns)
    text = Text(f"{head}\n", colours.dim)
    for line in rows:
        text.append(f"{line}\n", colours.text)
    text.append(f"{total}\n", colours.strong)
    return _append_unpriced(text, report.total, colours)


def _append_unpriced(text: Text, total: UsageRow, colours: Palette) -> Text:
    if told := format_unpriced(total):
        text.append(f"\n{told}\n", colours.warn)
    return text
