"""The dialog of /stats: usage by day, model and more, for a range of days."""

from collections.abc import Sequence
from functools import partialmethod
from typing import NamedTuple

from rich.text import Text

from odin.core.call_events import UsageReport, UsageRow
from odin.ui.slash_commands.reports import (
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
    list_caveats,
)
from odin.ui.terminal import escape_hidden
from odin.ui.tui.dialogs.reports import ReportDialog
from odin.ui.tui.dialogs.widgets import TabBar, TabLabel
from odin.ui.tui.keys import KeyTable
from odin.ui.tui.palette import Palette
from odin.ui.tui.session_app import SessionApp


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


class StatsDialog(ReportDialog):
    """Token usage and cost. Tab switches session/project, the arrows the view, a letter the time range; or click."""

    VERTICAL_BREAKPOINTS: list[tuple[int, str]] | None = [(0, "-low"), (18, "-high")]  # noqa: RUF012
    DEFAULT_CLASSES = "-high"
    KEY_SCOPES = ("stats", "reading", "dialog")
    DEFAULT_CSS = """
    StatsDialog > .panel { height: 85%; }
    StatsDialog.-low > .panel { max-height: 100%; height: 100%; }
    StatsDialog.-low TabBar { margin-bottom: 0; }
    StatsDialog Sheet { height: 1fr; }
    """

    def __init__(self, scope: StatsScope = "session", view: StatsView = "overview", days: int = 0) -> None:
        self._tabs = TabBar()
        super().__init__(self._tabs, self._write)
        self.scope: StatsScope = scope
        self.view: StatsView = view
        self.days = days

    def list_hints(self, keys: KeyTable) -> Sequence[tuple[str, str, str]]:
        views = " ".join(_ARROWS.get(key, key) for key in map(keys.get_label, ("stats_previous", "stats_next")))
        days = " ".join(keys.get_label(item.name) for item in _RANGES if item.days > 1)
        return [
            ("stats_scope", keys.get_label("stats_scope"), "session or project"),
            ("", views, "view"),
            ("stats_today", keys.get_label("stats_today"), "today"),
            ("", days, "days"),
            ("stats_all", keys.get_label("stats_all"), "all time"),
            ("close", keys.get_label("close"), "close"),
        ]

    # --- keys and clicks ---

    def action_stats_scope(self) -> None:
        self._pick("session" if self.scope == "project" else "project")

    def _switch_view(self, by: int) -> None:
        self._pick(STATS_VIEWS[(STATS_VIEWS.index(self.view) + by) % len(STATS_VIEWS)])

    action_stats_next = partialmethod(_switch_view, 1)
    action_stats_previous = partialmethod(_switch_view, -1)

    async def action_do(self, name: str) -> None:
        """Run the action of a clicked hint, or select the clicked tab."""
        if name.startswith("stats_") or name == "close":
            await super().action_do(name)
        else:
            self._pick(name)

    def _pick(self, name: str) -> None:
        """Select a tab by its label."""
        for scope in STATS_SCOPES:
            self.scope = scope if name == scope else self.scope
        for view in STATS_VIEWS:
            self.view = view if name == view else self.view
        for item in _RANGES:
            self.days = item.days if name == item.label else self.days
        self.refill()

    action_stats_today = partialmethod(_pick, "today")
    action_stats_week = partialmethod(_pick, "7d")
    action_stats_month = partialmethod(_pick, "30d")
    action_stats_quarter = partialmethod(_pick, "90d")
    action_stats_all = partialmethod(_pick, "all")

    # --- the report ---

    def refill(self) -> None:
        self._tabs.show(
            [
                [TabLabel(name, name == self.scope) for name in STATS_SCOPES],
                [TabLabel(name, name == self.view) for name in STATS_VIEWS],
                [TabLabel(item.label, item.days == self.days) for item in _RANGES],
            ]
        )
        super().refill()

    async def _write(self, app: SessionApp, colors: Palette, columns: int) -> Text:
        session = app.info.session if self.scope == "session" and app.info else ""
        report = await app.sessions.report_usage(VIEW_GROUPINGS[self.view], days=self.days, session=session)
        is_whole = self.view == "overview"
        return _render_overview(report, colors) if is_whole else _render_table(report, colors, columns - 1)


def _render_overview(report: UsageReport, colors: Palette) -> Text:
    total = report.total
    if not total.calls:
        return Text(NO_USAGE, colors.dim)
    text = Text()
    for name, value in format_overview(total):
        text.append(f"{name:<16}", colors.dim)
        text.append(f"{value}\n", colors.text)
    if len(report.rows) > 1:
        text.append("\nby purpose\n", colors.dim)
        for row in report.rows:
            text.append(f"{escape_hidden(row.name):<16}", colors.text)
            text.append(f"{format_calls(row)}, {format_row_cost(row)}\n", colors.text)
    return _append_caveats(text, total, colors)


def _render_table(report: UsageReport, colors: Palette, columns: int) -> Text:
    if not report.rows:
        return Text(NO_USAGE, colors.dim)
    head, *rows, total = format_table(report, columns)
    text = Text(f"{head}\n", colors.dim)
    for line in rows:
        text.append(f"{line}\n", colors.text)
    text.append(f"{total}\n", colors.strong)
    return _append_caveats(text, report.total, colors)


def _append_caveats(text: Text, total: UsageRow, colors: Palette) -> Text:
    for caveat in list_caveats(total):
        text.append(f"\n{caveat}\n", colors.warn)
    return text
