"""Whether the settings of a folder count. Nothing of them is used before the answer, which is No by default."""

from collections.abc import Sequence

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.strip import Strip
from textual.widgets import Static

from odin.core.trust import TrustRequest
from odin.ui.question.trust import MAX_LINES, format_trust_page
from odin.ui.terminal import wrap_words
from odin.ui.tui.dialogs.choices import ChoiceBar, DialogChoice
from odin.ui.tui.dialogs.guarded import DebouncedDialog
from odin.ui.tui.dialogs.page import TextPage
from odin.ui.tui.paint.canvas import Canvas
from odin.ui.tui.palette import make_palette

TRUST_TITLE = "This folder brings settings of its own, which count only when you trust it:"
TOO_MUCH_TO_SHOW = "That is too much to look through here: `odin trust` lists all of it."


class TrustDialog(DebouncedDialog[bool]):
    """True when the person trusts the folder."""

    DEFAULT_CSS = """
    TrustDialog > .panel { max-height: 100%; }
    TrustDialog #said { color: $warning; }
    """

    def __init__(self, wish: TrustRequest) -> None:
        super().__init__()
        self._wish = wish

    def compose(self) -> ComposeResult:
        with Vertical(classes="panel"):
            yield Static(TRUST_TITLE, classes="title", markup=False)
            yield TextPage(self._make_canvas, id="about")
            yield Static(TOO_MUCH_TO_SHOW if self._is_too_much else "", id="said", markup=False)
            yield ChoiceBar(id="answers")

    @property
    def _is_too_much(self) -> bool:
        return max(len(self._wish.starts), len(self._wish.allows)) > MAX_LINES

    def on_mount(self) -> None:
        self.query_one(TextPage).show(self._paint_page)
        self.query_one(TextPage).focus()
        self._fit()

    def handle_ready(self) -> None:
        self.query_one(ChoiceBar).offer(self._list_choices(), current=0)
        self._fit()

    def _list_choices(self) -> Sequence[DialogChoice]:
        keys = self.odin.keys
        no = DialogChoice("no", keys.label_of("no"), "Go on without them", "Without")
        yes = DialogChoice("yes", keys.label_of("yes"), "Trust it as it is now", "Trust it")
        return (no,) if self._is_too_much else (no, yes)

    def _make_canvas(self, width: int) -> Canvas:
        return Canvas(width, make_palette(self.odin.current_theme))

    def _paint_page(self, canvas: Canvas) -> list[Strip]:
        wish = self._wish
        text = format_trust_page(
            folder=wish.folder, changed=wish.changed, starts=wish.starts, allows=wish.allows, columns=canvas.width
        )
        rows = [row for line in text.rstrip("\n").split("\n") for row in wrap_words(line, canvas.width + 1).split("\n")]
        ours = canvas.palette.dim
        return [canvas.paint_row((row, canvas.palette.strong if row[2:4] in ("| ", ": ") else ours)) for row in rows]

    def on_resize(self) -> None:
        self._fit()

    def _fit(self) -> None:
        width, height = max(self.odin.size.width - 2, 1), self.odin.size.height
        said = self.query_one("#said", Static)
        said.display = self._is_too_much
        used = (
            1
            + wrap_words(TRUST_TITLE, width).count("\n")
            + 1
            + max(self.query_one(ChoiceBar).count_rows(width), 1)
            + said.display * 2
        )
        about = self.query_one(TextPage)
        about.styles.height = max(min(about.count_rows(width), height - used - 1), 1)

    async def take_key(self, event: events.Key) -> None:
        keys = self.odin.keys
        closes = keys.find_action(event.key, "dialog") == "close"
        name = keys.find_action(event.key, "confirm") or ("no" if closes else keys.find_action(event.key, "answers"))
        if name:
            event.stop()
            event.prevent_default()
            await self.run_action(name)

    def action_next_answer(self) -> None:
        self.query_one(ChoiceBar).move(1)

    def action_previous_answer(self) -> None:
        self.query_one(ChoiceBar).move(-1)

    def action_take_answer(self) -> None:
        if name := self.query_one(ChoiceBar).chosen:
            self._answer(name)

    def action_yes(self) -> None:
        self._answer("yes")

    def action_no(self) -> None:
        self._answer("no")

    def _answer(self, name: str) -> None:
        self.dismiss(name == "yes" and not self._is_too_much)
