"""The first run: what was found on this machine, and with one key the conversation begins."""

from collections.abc import Sequence
from typing import Literal

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.strip import Strip
from textual.widgets import Input, Static

from odin.core.errors import OdinError
from odin.core.setup import Found, Setup
from odin.ui.terminal import folded, visible
from odin.ui.tui.dialogs.choices import Choice, Choices
from odin.ui.tui.dialogs.field import Line
from odin.ui.tui.dialogs.guarded import Guarded
from odin.ui.tui.dialogs.page import Page
from odin.ui.tui.dialogs.permission_page import words
from odin.ui.tui.paint.canvas import Canvas, blank
from odin.ui.tui.palette import palette
from odin.ui.tui.panels.amounts import tilde

Step = Literal["list", "provider", "key"]

WELCOME = "Odin works with a model of your choice. Found here:"
PROVIDERS = "Whose key is it?"
_KINDS = {"key": "a key in", "stored": "a key in", "server": "on this machine,", "planner": ""}


class WelcomeDialog(Guarded[Found]):
    """Gives what was chosen, after it was written down, or None. Nobody is asked over the network unless it is wanted.

    Going without a model is never written down: it is no reason to leave a key aside that is set later.
    """

    DEFAULT_CSS = """
    WelcomeDialog > .panel { max-height: 100%; }
    WelcomeDialog Input { background: $panel; border: none; height: 1; padding: 0; }
    WelcomeDialog #said { color: $warning; }
    """

    def __init__(self, setup: Setup, *, again: bool = False) -> None:
        super().__init__()
        self._setup = setup
        self._again = again
        self._found: list[Found] = []
        self._step: Step = "list"
        self._cursor = 0
        self._provider = ""
        self._busy = False
        self._lines: dict[int, int] = {}

    def compose(self) -> ComposeResult:
        with Vertical(classes="panel"):
            yield Static("Welcome to Odin", classes="title", markup=False)
            yield Page(self._canvas, id="about")
            yield Line(id="line", compact=True, password=True)
            yield Static(id="said", markup=False)
            yield Choices(id="answers")

    def on_mount(self) -> None:
        self.run_worker(self._begin())

    async def _begin(self) -> None:
        self._found = list(await self._setup.found())
        self._show()

    def became_ready(self) -> None:
        self._show()

    # --- what is shown ---

    def _canvas(self, width: int) -> Canvas:
        return Canvas(width, palette(self.odin.current_theme))

    def _show(self, said: str = "") -> None:
        line = self.query_one("#line", Input)
        line.display = self._step == "key"
        (line if line.display else self.query_one(Page)).focus()
        self.query_one("#said", Static).update(said)
        self.query_one(Choices).offer(self._choices() if self.ready else ())
        self.query_one(Page).show(self._page)
        self._fit()

    def _choices(self) -> Sequence[Choice]:
        shown = self.odin.keys.shown
        if self._step == "list":
            leave = ("Close", "") if self._again else ("Without a model", "Without")
            return (
                Choice("welcome_use", shown("welcome_use"), "Use it"),
                Choice("welcome_key", shown("welcome_key"), "Enter a key", "Key"),
                Choice("welcome_look", shown("welcome_look"), "Look for servers on this machine", "Servers"),
                Choice("welcome_back", shown("welcome_back"), *leave),
            )
        if self._step == "key":
            store = Choice("welcome_use", shown("confirm"), "Store it")
            return store, Choice("welcome_back", shown("back"), "Back")
        use = Choice("welcome_use", shown("welcome_use"), "This one")
        return use, Choice("welcome_back", shown("welcome_back"), "Back")

    def _page(self, canvas: Canvas) -> list[Strip]:
        self._lines = {}
        if self._step == "key":
            return words(canvas, f"The key of {visible(self._provider)}. It is not shown, and stored for you alone:")
        strips = [*words(canvas, WELCOME if self._step == "list" else PROVIDERS), blank()]
        for number, (name, detail) in enumerate(self._rows()):
            here = number == self._cursor
            row = [
                ("› " if here else "  ", canvas.palette.accent),
                (f"{number + 1} " if number < 9 else "  ", canvas.palette.dim),
                (name, canvas.palette.cursor if here else canvas.palette.text),
            ]
            fits = len(name) + len(detail) + 6 <= canvas.width
            below = [canvas.row((f"    {detail}", canvas.palette.dim))] if detail and not fits else []
            if fits:
                row.append((f"  {detail}", canvas.palette.dim))
            for strip in (canvas.row(*row), *below):
                self._lines[len(strips)] = number
                strips.append(strip)
        return strips

    def _rows(self) -> list[tuple[str, str]]:
        if self._step == "provider":
            return [(visible(name), "") for name in self._setup.providers]
        return [_told(found) for found in self._found]

    def on_resize(self) -> None:
        self._fit()

    def _fit(self) -> None:
        width, height = max(self.odin.size.width - 2, 1), self.odin.size.height
        said = self.query_one("#said", Static)
        text = str(said.content)
        said.display = bool(text)
        used = 2 + max(self.query_one(Choices).rows(width), 1) + self.query_one("#line", Input).display
        used += folded(text, width).count("\n") + 1 if text else 0
        about = self.query_one(Page)
        about.styles.height = max(min(about.rows(width), height - used - 1), 1)
        at = next((line for line, number in self._lines.items() if number == self._cursor), 0)
        self.call_after_refresh(about.scroll_to, y=max(at - about.size.height // 2, 0), animate=False)

    # --- keys and clicks ---

    async def take(self, event: events.Key) -> None:
        name = self._named(event.key)
        if name:
            event.stop()
            event.prevent_default()
            await self._do(name)

    def _named(self, key: str) -> str:
        keys = self.odin.keys
        if self._step == "key":
            return {"confirm": "welcome_use", "back": "welcome_back"}.get(keys.name(key, "step"), "")
        if len(key) == 1 and key.isdecimal() and key != "0":
            return f"pick({int(key) - 1})"
        name = keys.name(key, "welcome")
        if name in ("welcome_key", "welcome_look") and self._step != "list":
            return ""
        return name or self.scrolling(key)

    async def _do(self, name: str) -> None:
        if not self._busy:
            await self.run_action(name)

    def action_welcome_next(self) -> None:
        self._move(1)

    def action_welcome_previous(self) -> None:
        self._move(-1)

    def _move(self, by: int) -> None:
        self._cursor = (self._cursor + by) % max(len(self._rows()), 1)
        self._show()

    async def action_pick(self, number: int) -> None:
        if number < len(self._rows()):
            self._cursor = number
            await self.action_welcome_use()

    async def action_welcome_use(self) -> None:
        if self._step == "provider":
            self._provider = self._setup.providers[self._cursor]
            self.query_one("#line", Input).value = ""
            self._go("key")
        elif self._step == "key":
            await self._store()
        elif self._found:
            await self._choose(self._found[self._cursor])

    def action_welcome_key(self) -> None:
        self._go("provider")

    def _go(self, step: Step, said: str = "") -> None:
        self._step, self._cursor = step, 0
        self._show(said)

    async def action_welcome_back(self) -> None:
        if self._step != "list":
            self.query_one("#line", Input).value = ""
            self._go("list" if self._step == "provider" else "provider")
        else:
            self.dismiss(None)

    async def action_welcome_look(self) -> None:
        """Ask the servers of this machine, because the person wants it."""
        self._busy = True
        self._show("Looking for servers on this machine …")
        try:
            servers = await self._setup.servers()
        except OdinError as error:
            self._show(visible(error.sentence()))
            return
        finally:
            self._busy = False
        known = {one.ref for one in self._found}
        new = [one for one in servers if one.ref not in known]
        keys = [one for one in self._found if one.kind != "planner"]
        self._found = [*keys, *new, *(one for one in self._found if one.kind == "planner")]
        self._cursor = len(keys) if new else 0
        self._show("" if servers else "No server answered on this machine.")

    async def _store(self) -> None:
        line = self.query_one("#line", Input)
        key, line.value = line.value.strip(), ""
        if not key:
            self._show(f"The key is empty. Paste one, or go back with {self.odin.keys.shown('back')}.")
            return
        try:
            found = await self._setup.store_key(self._provider, key)
        except OdinError as error:
            self._show(visible(error.sentence()))
            return
        self._found = [found, *(one for one in self._found if one.ref != found.ref)]
        self._go("list", f"Stored in {visible(tilde(self._setup.keys_file))}; nobody but you can read that file.")

    async def _choose(self, found: Found) -> None:
        if found.kind == "planner":
            self.dismiss(found)
            return
        if not found.ref:
            self._show(f"No model of {visible(found.name)} is known: choose one with /model.")
            return
        try:
            await self._setup.choose(found.ref)
        except OdinError as error:
            self._show(visible(error.sentence()))
            return
        self.dismiss(found)


def _told(found: Found) -> tuple[str, str]:
    """A way to a model in words: which model, and where it was found."""
    if found.kind == "planner":
        return "Without a model", visible(f"{found.name}: {found.detail}" if found.detail else found.name)
    return visible(found.ref or found.name), " ".join(filter(None, (_KINDS[found.kind], visible(found.detail))))
