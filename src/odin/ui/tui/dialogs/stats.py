"""What was spent: by this session or the whole project, as a whole, by model, by agent or by day."""

from typing import NamedTuple

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from odin.core.errors import OdinError
from odin.core.usage import UsageReport, UsageRow
from odin.ui.commands.stats import BY, NOTHING, SCOPES, VIEWS, Scope, View, calls, cost, overview, table, unpriced
from odin.ui.terminal import visible
from odin.ui.tui.dialogs.colours import colours_of
from odin.ui.tui.dialogs.hints import Hints
from odin.ui.tui.dialogs.sheet import Sheet, SheetDialog
from odin.ui.tui.dialogs.tabs import Tab, Tabs
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
    PLACES = ("stats", "reading", "dialog")
    DEFAULT_CSS = """
    StatsDialog > .panel { height: 85%; }
    StatsDialog.-low > .panel { max-height: 100%; height: 100%; }
    StatsDialog.-low Tabs { margin-bottom: 0; }
    StatsDialog Sheet { height: 1fr; }
    StatsDialog #text { width: 100%; height: auto; }
    """

    def __init__(self, scope: Scope = "session", view: View = "overview", days: int = 0) -> None:
        super().__init__()
        self.scope: Scope = scope
        self.view: View = view
        self.days = days
        self._tabs = Tabs()
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
        what = " ".join(_ARROWS.get(key, key) for key in map(keys.shown, ("stats_previous", "stats_next")))
        when = " ".join(keys.shown(item.name) for item in _RANGES)
        close = ("close", keys.shown("close"), "close")
        self._hints.show([("scope", keys.shown("stats_scope"), "whose"), ("", what, "what"), ("", when, "when"), close])

    def on_resize(self) -> None:
        self._changed()

    # --- keys and clicks ---

    def action_stats_scope(self) -> None:
        self._pick("session" if self.scope == "project" else "project")

    def action_stats_next(self) -> None:
        self._turn(1)

    def action_stats_previous(self) -> None:
        self._turn(-1)

    def _turn(self, by: int) -> None:
        self._pick(VIEWS[(VIEWS.index(self.view) + by) % len(VIEWS)])

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
    def plain(self) -> str:
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
        for scope in SCOPES:
            self.scope = scope if name == scope else self.scope
        for view in VIEWS:
            self.view = view if name == view else self.view
        for item in _RANGES:
            self.days = item.days if name == item.label else self.days
        self._changed()

    # --- the report ---

    def _changed(self) -> None:
        self._tabs.show(
            [
                [Tab(name, name == self.scope) for name in SCOPES],
                [Tab(name, name == self.view) for name in VIEWS],
                [Tab(item.label, item.days == self.days) for item in _RANGES],
            ]
        )
        self.run_worker(self._fill, exclusive=True)

    async def _fill(self) -> None:
        colours = colours_of(self)
        session = self.odin.info.session if self.scope == "session" and self.odin.info else ""
        try:
            report = await self.odin.sessions.usage(BY[self.view], days=self.days, session=session)
            whole = self.view == "overview"
            text = _overview(report, colours) if whole else _table(report, colours, self.size.width - 4)
        except OdinError as error:
            text = Text(error.sentence(), colours.bad)
        self.query_one("#text", Static).update(text)


def _overview(report: UsageReport, colours: Palette) -> Text:
    total = report.total
    if not total.calls:
        return Text(NOTHING, colours.dim)
    text = Text()
    for name, value in overview(total):
        text.append(f"{name:<16}", colours.dim)
        text.append(f"{value}\n", colours.text)
    if len(report.rows) > 1:
        text.append("\nwhat for\n", colours.dim)
        for row in report.rows:
            text.append(f"{visible(row.name):<16}", colours.text)
            text.append(f"{calls(row)}, {cost(row)}\n", colours.text)
    return _unpriced(text, total, colours)


def _table(report: UsageReport, colours: Palette, columns: int) -> Text:
    if not report.rows:
        return Text(NOTHING, colours.dim)
    head, *rows, total = table(report, columns)
    text = Text(f"{head}\n", colours.dim)
    for line in rows:
        text.append(f"{line}\n", colours.text)
    text.append(f"{total}\n", colours.strong)
    return _unpriced(text, report.total, colours)


def _unpriced(text: Text, total: UsageRow, colours: Palette) -> Text:
    if told := unpriced(total):
        text.append(f"\n{told}\n", colours.warn)
    return text
