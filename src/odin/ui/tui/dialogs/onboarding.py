"""Whether the settings of a folder count. Nothing of them is used before the answer, which is No by default.

The first run: what was found on this machine, and with one key the conversation begins.
"""

from collections.abc import Sequence
from typing import Literal

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.strip import Strip
from textual.widgets import Input, Static

from odin.core.errors import OdinError
from odin.core.onboarding import ModelOption, Setup, TrustRequest
from odin.ui.format import shorten_home
from odin.ui.plain.trust_prompt import MAX_LINES, format_trust_page
from odin.ui.terminal import escape_hidden, wrap_words
from odin.ui.tui.dialogs.dialog import DebouncedDialog
from odin.ui.tui.dialogs.permission_view import paint_sentence
from odin.ui.tui.dialogs.widgets import ChoiceBar, DialogChoice, TextPage
from odin.ui.tui.keys import LineInput
from odin.ui.tui.paint.canvas import Canvas, make_blank
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


OnboardingStep = Literal["list", "provider", "key"]

MODELS_TITLE = "Odin works with a model of your choice. Found here:"
PROVIDERS_TITLE = "Whose key is it?"
_KIND_WORDS = {"key": "a key in", "stored": "a key in", "server": "on this machine,", "planner": ""}


class OnboardingDialog(DebouncedDialog[ModelOption]):
    """Gives what was chosen, after it was written down, or None. Nobody is asked over the network unless it is wanted.

    Going without a model is never written down: it is no reason to leave a key aside that is set later.
    """

    DEFAULT_CSS = """
    OnboardingDialog > .panel { max-height: 100%; }
    OnboardingDialog Input { background: $panel; border: none; height: 1; padding: 0; }
    OnboardingDialog #said { color: $warning; }
    """

    def __init__(self, setup: Setup, *, again: bool = False) -> None:
        super().__init__()
        self._setup = setup
        self._is_reopened = again
        self._options: list[ModelOption] = []
        self._step: OnboardingStep = "list"
        self._cursor = 0
        self._provider = ""
        self._is_busy = False
        self._option_lines: dict[int, int] = {}

    def compose(self) -> ComposeResult:
        with Vertical(classes="panel"):
            yield Static("Welcome to Odin", classes="title", markup=False)
            yield TextPage(self._make_canvas, id="about")
            yield LineInput(id="line", compact=True, password=True)
            yield Static(id="said", markup=False)
            yield ChoiceBar(id="answers")

    def on_mount(self) -> None:
        self.run_worker(self._load_options())

    async def _load_options(self) -> None:
        self._options = list(await self._setup.find_options())
        self._show()

    def handle_ready(self) -> None:
        self._show()

    # --- what is shown ---

    def _make_canvas(self, width: int) -> Canvas:
        return Canvas(width, make_palette(self.odin.current_theme))

    def _show(self, said: str = "") -> None:
        line = self.query_one("#line", Input)
        line.display = self._step == "key"
        (line if line.display else self.query_one(TextPage)).focus()
        self.query_one("#said", Static).update(said)
        self.query_one(ChoiceBar).offer(self._list_choices() if self.ready else ())
        self.query_one(TextPage).show(self._paint_page)
        self._fit()

    def _list_choices(self) -> Sequence[DialogChoice]:
        shown = self.odin.keys.label_of
        if self._step == "list":
            leave = ("Close", "") if self._is_reopened else ("Without a model", "Without")
            return (
                DialogChoice("welcome_use", shown("welcome_use"), "Use it"),
                DialogChoice("welcome_key", shown("welcome_key"), "Enter a key", "Key"),
                DialogChoice("welcome_look", shown("welcome_look"), "Look for servers on this machine", "Servers"),
                DialogChoice("welcome_back", shown("welcome_back"), *leave),
            )
        if self._step == "key":
            store = DialogChoice("welcome_use", shown("confirm"), "Store it")
            return store, DialogChoice("welcome_back", shown("back"), "Back")
        use = DialogChoice("welcome_use", shown("welcome_use"), "This one")
        return use, DialogChoice("welcome_back", shown("welcome_back"), "Back")

    def _paint_page(self, canvas: Canvas) -> list[Strip]:
        self._option_lines = {}
        if self._step == "key":
            return paint_sentence(
                canvas, f"The key of {escape_hidden(self._provider)}. It is not shown, and stored for you alone:"
            )
        strips = [*paint_sentence(canvas, MODELS_TITLE if self._step == "list" else PROVIDERS_TITLE), make_blank()]
        for number, (name, detail) in enumerate(self._list_rows()):
            here = number == self._cursor
            row = [
                ("› " if here else "  ", canvas.palette.accent),
                (f"{number + 1} " if number < 9 else "  ", canvas.palette.dim),
                (name, canvas.palette.cursor if here else canvas.palette.text),
            ]
            fits = len(name) + len(detail) + 6 <= canvas.width
            below = [canvas.paint_row((f"    {detail}", canvas.palette.dim))] if detail and not fits else []
            if fits:
                row.append((f"  {detail}", canvas.palette.dim))
            for strip in (canvas.paint_row(*row), *below):
                self._option_lines[len(strips)] = number
                strips.append(strip)
        return strips

    def _list_rows(self) -> list[tuple[str, str]]:
        if self._step == "provider":
            return [(escape_hidden(name), "") for name in self._setup.providers]
        return [_describe_option(found) for found in self._options]

    def on_resize(self) -> None:
        self._fit()

    def _fit(self) -> None:
        width, height = max(self.odin.size.width - 2, 1), self.odin.size.height
        said = self.query_one("#said", Static)
        text = str(said.content)
        said.display = bool(text)
        used = 2 + max(self.query_one(ChoiceBar).count_rows(width), 1) + self.query_one("#line", Input).display
        used += wrap_words(text, width).count("\n") + 1 if text else 0
        about = self.query_one(TextPage)
        about.styles.height = max(min(about.count_rows(width), height - used - 1), 1)
        at = next((line for line, number in self._option_lines.items() if number == self._cursor), 0)
        self.call_after_refresh(about.scroll_to, y=max(at - about.size.height // 2, 0), animate=False)

    # --- keys and clicks ---

    async def take_key(self, event: events.Key) -> None:
        name = self._find_step_action(event.key)
        if name:
            event.stop()
            event.prevent_default()
            await self._perform(name)

    def _find_step_action(self, key: str) -> str:
        keys = self.odin.keys
        if self._step == "key":
            return {"confirm": "welcome_use", "back": "welcome_back"}.get(keys.find_action(key, "step"), "")
        if len(key) == 1 and key.isdecimal() and key != "0":
            return f"pick({int(key) - 1})"
        name = keys.find_action(key, "welcome")
        if name in ("welcome_key", "welcome_look") and self._step != "list":
            return ""
        return name or self.find_scroll_action(key)

    async def _perform(self, name: str) -> None:
        if not self._is_busy:
            await self.run_action(name)

    def action_welcome_next(self) -> None:
        self._move(1)

    def action_welcome_previous(self) -> None:
        self._move(-1)

    def _move(self, by: int) -> None:
        self._cursor = (self._cursor + by) % max(len(self._list_rows()), 1)
        self._show()

    async def action_pick(self, number: int) -> None:
        if number < len(self._list_rows()):
            self._cursor = number
            await self.action_welcome_use()

    async def action_welcome_use(self) -> None:
        if self._step == "provider":
            self._provider = self._setup.providers[self._cursor]
            self.query_one("#line", Input).value = ""
            self._go_to_step("key")
        elif self._step == "key":
            await self._store_key()
        elif self._options:
            await self._choose(self._options[self._cursor])

    def action_welcome_key(self) -> None:
        self._go_to_step("provider")

    def _go_to_step(self, step: OnboardingStep, said: str = "") -> None:
        self._step, self._cursor = step, 0
        self._show(said)

    async def action_welcome_back(self) -> None:
        if self._step != "list":
            self.query_one("#line", Input).value = ""
            self._go_to_step("list" if self._step == "provider" else "provider")
        else:
            self.dismiss(None)

    async def action_welcome_look(self) -> None:
        """Ask the servers of this machine, because the person wants it."""
        self._is_busy = True
        self._show("Looking for servers on this machine …")
        try:
            servers = await self._setup.find_local_servers()
        except OdinError as error:
            self._show(escape_hidden(error.describe()))
            return
        finally:
            self._is_busy = False
        known = {one.ref for one in self._options}
        new = [one for one in servers if one.ref not in known]
        keys = [one for one in self._options if one.kind != "planner"]
        self._options = [*keys, *new, *(one for one in self._options if one.kind == "planner")]
        self._cursor = len(keys) if new else 0
        self._show("" if servers else "No server answered on this machine.")

    async def _store_key(self) -> None:
        line = self.query_one("#line", Input)
        key, line.value = line.value.strip(), ""
        if not key:
            self._show(f"The key is empty. Paste one, or go back with {self.odin.keys.label_of('back')}.")
            return
        try:
            found = await self._setup.store_key(self._provider, key)
        except OdinError as error:
            self._show(escape_hidden(error.describe()))
            return
        self._options = [found, *(one for one in self._options if one.ref != found.ref)]
        self._go_to_step(
            "list",
            f"Stored in {escape_hidden(shorten_home(self._setup.keys_file))}; nobody but you can read that file.",
        )

    async def _choose(self, found: ModelOption) -> None:
        if found.kind == "planner":
            self.dismiss(found)
            return
        if not found.ref:
            self._show(f"No model of {escape_hidden(found.name)} is known: choose one with /model.")
            return
        try:
            await self._setup.choose_model(found.ref)
        except OdinError as error:
            self._show(escape_hidden(error.describe()))
            return
        self.dismiss(found)


def _describe_option(found: ModelOption) -> tuple[str, str]:
    """A way to a model in words: which model, and where it was found."""
    if found.kind == "planner":
        return "Without a model", escape_hidden(f"{found.name}: {found.detail}" if found.detail else found.name)
    return escape_hidden(found.ref or found.name), " ".join(
        filter(None, (_KIND_WORDS[found.kind], escape_hidden(found.detail)))
    )
