"""What was spent: by this session or the whole project, as a whole, by model, by agent or by day."""

from typing import NamedTuple

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from odin.core.errors import OdinError
from odin.core.usage import UsageReport, UsageRow
from odin.ui.commands.stats import (
    NO_USAGE,
    STATS_SCOPES,
    STATS_VIEWS,
    VIEW_GROUPINGS,
    StatsScope,
    StatsView,
    format_calls,
    format_overview,
    format_row_cost,
    format_table,
    format_unpriced,
)
from odin.ui.terminal import escape_hidden
from odin.ui.tui.dialogs.colours import palette_of
from odin.ui.tui.dialogs.hints import Hints
from odin.ui.tui.dialogs.sheet import Sheet, SheetDialog
from odin.ui.tui.dialogs.tabs import TabBar, TabLabel
from odin.ui.tui.palette import Palette


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
