"""The line above the composer: what Odin is doing, for how long, and how to stop it."""

from rich.text import Text
from textual.timer import Timer

from odin.ui.terminal import width_of as width_of
from odin.ui.tui.panels.amounts import format_seconds
from odin.ui.tui.panels.panel import Panel, PanelRow, align_sides, make_text

ACTIVITY_MARKS = "·∙•∙"
MARK_S = 0.5
"""How long the mark stays as it is when something happens all the time."""
TICK_S = 1.0
"""How often both are looked at while something runs and nothing happens. When nothing runs, no clock ticks."""

MIN_WIDTH_FOR_KEYS = 50
MIN_SHOWN_S = 5


class ActivityLine(Panel):
    """Always one row, so that nothing jumps when work begins or ends. It is about the agent that is looked at."""

    DEFAULT_CSS = """
    ActivityLine { height: 1; padding: 0 1; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._timer: Timer | None = None

    def sync(self) -> None:
        self._set_ticking(self.facts.agents.busy)
        super().sync()

    def _set_ticking(self, busy: bool) -> None:
        if busy and self._timer is None:
            self._timer = self.set_interval(TICK_S, self._tick)
        elif not busy and self._timer is not None:
            self._timer.stop()
            self._timer = None

    def _tick(self) -> None:
        """Only the time goes on: what else there is on the screen stays as it is."""
        self.sync()
        self.odin.side.sync()

    def build_rows(self, width: int) -> list[PanelRow]:
        return [PanelRow(align_sides(self._format_activity(), self._format_keys(width), width))]

    def _format_activity(self) -> Text:
        colours = self.palette
        if self.odin.info is None:
            return make_text("  opening the session", colours.dim)
        agents = self.facts.agents
        now = self.odin.clock()
        words = agents.activity_of(self.odin.agent).describe(now)
        mark = (
            ACTIVITY_MARKS[int(now / MARK_S) % len(ACTIVITY_MARKS)]
            if words.is_busy
            else "?"
            if words.is_asking
            else "!"
            if words.is_failure
            else " "
        )
        style = colours.warn if words.is_asking else colours.bad if words.is_failure else colours.accent
        loud = words.is_busy or words.is_asking or words.is_failure
        said = Text.assemble((f"{mark} ", style), make_text(words.text, style if loud else colours.dim))
        for more in (words.detail, self._format_others()):
            if more:
                said.append_text(make_text(f" · {more}", colours.dim))
        return said

    def _format_others(self) -> str:
        agents = self.facts.agents
        others = [line for line in agents.running if line.id != self.odin.agent]
        if not others:
            return ""
        asking = sum(line.is_asking for line in others)
        count = f"{len(others)} {'agent' if len(others) == 1 else 'agents'} at work"
        return f"{count}, {asking} waiting for you" if asking else count

    def _format_keys(self, width: int) -> Text:
        colours, keys = self.palette, self.odin.keys
        main = self.facts.agents.main
        if not main.busy:
            return make_text(f"{keys.label_of('help')} help", colours.dim) if width >= MIN_WIDTH_FOR_KEYS else Text("")
        stop = f"{keys.label_of('stop')} stops"
        took = self.odin.clock() - main.turn_started if main.is_in_turn else 0.0
        if took >= MIN_SHOWN_S and width >= MIN_WIDTH_FOR_KEYS:
            stop = f"{format_seconds(took)} in all · {stop}"
        return make_text(f"  {stop}" if width_of(stop) + 12 < width else "", colours.dim)
