"""The line above the composer: what Odin is doing, for how long, and how to stop it."""

from rich.text import Text
from textual.timer import Timer

from odin.ui.terminal import width as width_of
from odin.ui.tui.panels.amounts import lasted
from odin.ui.tui.panels.panel import Panel, Row, beside, piece

MARKS = "·∙•∙"
STEP_S = 0.5
"""How long the mark stays as it is when something happens all the time."""
TICK_S = 1.0
"""How often both are looked at while something runs and nothing happens. When nothing runs, no clock ticks."""

ROOM_FOR_KEYS = 50
WORTH_TELLING_S = 5


class ActivityLine(Panel):
    """Always one row, so that nothing jumps when work begins or ends. It is about the agent that is looked at."""

    DEFAULT_CSS = """
    ActivityLine { height: 1; padding: 0 1; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._timer: Timer | None = None

    def sync(self) -> None:
        self._tick_if(self.facts.agents.busy)
        super().sync()

    def _tick_if(self, busy: bool) -> None:
        if busy and self._timer is None:
            self._timer = self.set_interval(TICK_S, self._tick)
        elif not busy and self._timer is not None:
            self._timer.stop()
            self._timer = None

    def _tick(self) -> None:
        """Only the time goes on: what else there is on the screen stays as it is."""
        self.sync()
        self.odin.side.sync()

    def rows(self, width: int) -> list[Row]:
        return [Row(beside(self._said(), self._keys(width), width))]

    def _said(self) -> Text:
        colours = self.palette
        if self.odin.info is None:
            return piece("  opening the session", colours.dim)
        agents = self.facts.agents
        now = self.odin.clock()
        words = agents.of(self.odin.agent).words(now)
        mark = (
            MARKS[int(now / STEP_S) % len(MARKS)] if words.busy else "?" if words.asking else "!" if words.bad else " "
        )
        style = colours.warn if words.asking else colours.bad if words.bad else colours.accent
        loud = words.busy or words.asking or words.bad
        said = Text.assemble((f"{mark} ", style), piece(words.what, style if loud else colours.dim))
        for more in (words.beside, self._others()):
            if more:
                said.append_text(piece(f" · {more}", colours.dim))
        return said

    def _others(self) -> str:
        agents = self.facts.agents
        others = [line for line in agents.working if line.id != self.odin.agent]
        if not others:
            return ""
        asking = sum(line.asks for line in others)
        count = f"{len(others)} {'agent' if len(others) == 1 else 'agents'} at work"
        return f"{count}, {asking} waiting for you" if asking else count

    def _keys(self, width: int) -> Text:
        colours, keys = self.palette, self.odin.keys
        main = self.facts.agents.main
        if not main.busy:
            return piece(f"{keys.shown('help')} help", colours.dim) if width >= ROOM_FOR_KEYS else Text("")
        stop = f"{keys.shown('stop')} stops"
        took = self.odin.clock() - main.turn_since if main.turn else 0.0
        if took >= WORTH_TELLING_S and width >= ROOM_FOR_KEYS:
            stop = f"{lasted(took)} in all · {stop}"
        return piece(f"  {stop}" if width_of(stop) + 12 < width else "", colours.dim)
