"""Whether the settings of a folder count. Nothing of them is used before the answer, which is No by default."""

from collections.abc import Sequence

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.strip import Strip
from textual.widgets import Static

from odin.core.trust import Wish
from odin.ui.question.trust import MOST, page
from odin.ui.terminal import folded
from odin.ui.tui.dialogs.choices import Choice, Choices
from odin.ui.tui.dialogs.guarded import Guarded
from odin.ui.tui.dialogs.page import Page
from odin.ui.tui.paint.canvas import Canvas
from odin.ui.tui.palette import palette

TITLE = "This folder brings settings of its own, which count only when you trust it:"
TOO_MUCH = "That is too much to look through here: `odin trust` lists all of it."


class TrustDialog(Guarded[bool]):
    """True when the person trusts the folder."""

    DEFAULT_CSS = """
    TrustDialog > .panel { max-height: 100%; }
    TrustDialog #said { color: $warning; }
    """

    def __init__(self, wish: Wish) -> None:
        super().__init__()
        self._wish = wish

    def compose(self) -> ComposeResult:
        with Vertical(classes="panel"):
            yield Static(TITLE, classes="title", markup=False)
            yield Page(self._canvas, id="about")
            yield Static(TOO_MUCH if self._too_much else "", id="said", markup=False)
            yield Choices(id="answers")

    @property
    def _too_much(self) -> bool:
        return max(len(self._wish.starts), len(self._wish.allows)) > MOST

    def on_mount(self) -> None:
        self.query_one(Page).show(self._page)
        self.query_one(Page).focus()
        self._fit()

    def became_ready(self) -> None:
        self.query_one(Choices).offer(self._choices(), current=0)
        self._fit()

    def _choices(self) -> Sequence[Choice]:
        keys = self.odin.keys
        no = Choice("no", keys.shown("no"), "Go on without them", "Without")
        yes = Choice("yes", keys.shown("yes"), "Trust it as it is now", "Trust it")
        return (no,) if self._too_much else (no, yes)

    def _canvas(self, width: int) -> Canvas:
        return Canvas(width, palette(self.odin.current_theme))

    def _page(self, canvas: Canvas) -> list[Strip]:
        wish = self._wish
        text = page(
            folder=wish.folder, changed=wish.changed, starts=wish.starts, allows=wish.allows, columns=canvas.width
        )
        rows = [row for line in text.rstrip("\n").split("\n") for row in folded(line, canvas.width + 1).split("\n")]
        ours = canvas.palette.dim
        return [canvas.row((row, canvas.palette.strong if row[2:4] in ("| ", ": ") else ours)) for row in rows]

    def on_resize(self) -> None:
        self._fit()

    def _fit(self) -> None:
        width, height = max(self.odin.size.width - 2, 1), self.odin.size.height
        said = self.query_one("#said", Static)
        said.display = self._too_much
        used = 1 + folded(TITLE, width).count("\n") + 1 + max(self.query_one(Choices).rows(width), 1) + said.display * 2
        about = self.query_one(Page)
        about.styles.height = max(min(about.rows(width), height - used - 1), 1)

    async def take(self, event: events.Key) -> None:
        keys = self.odin.keys
        closes = keys.name(event.key, "dialog") == "close"
        name = keys.name(event.key, "confirm") or ("no" if closes else keys.name(event.key, "answers"))
        if name:
            event.stop()
            event.prevent_default()
            await self.run_action(name)

    def action_next_answer(self) -> None:
        self.query_one(Choices).move(1)

    def action_previous_answer(self) -> None:
        self.query_one(Choices).move(-1)

    def action_take_answer(self) -> None:
        if name := self.query_one(Choices).chosen:
            self._answer(name)

    def action_yes(self) -> None:
        self._answer("yes")

    def action_no(self) -> None:
        self._answer("no")

    def _answer(self, name: str) -> None:
        self.dismiss(name == "yes" and not self._too_much)
