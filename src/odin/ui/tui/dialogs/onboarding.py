"""First-run dialogs (folder trust and choosing a model) and the model picker."""

from collections.abc import Sequence
from functools import partialmethod
from typing import ClassVar, Literal

from rich.text import Text
from textual.strip import Strip
from textual.widgets import Input, Static

from odin.core.client import AvailableModel
from odin.core.errors import OdinError
from odin.core.setup import ModelOption, Setup
from odin.ui.slash_commands.actions import SESSION_OPTION
from odin.ui.slash_commands.reports import format_prices, format_window
from odin.ui.terminal import escape_hidden, shorten_home
from odin.ui.tui.dialogs.dialog import RequestDialog
from odin.ui.tui.dialogs.interaction_view import paint_option, paint_sentence
from odin.ui.tui.dialogs.picker import PickerDialog
from odin.ui.tui.dialogs.widgets import ChoiceBar, DialogChoice, RowContent, TextPage
from odin.ui.tui.paint.canvas import Canvas, make_blank

OnboardingStep = Literal["list", "provider", "key", "url"]

_TYPING_STEPS: dict[OnboardingStep, str] = {"key": "Save", "url": "Add"}
"""The steps in which the user types a line, and what confirming it does."""

URL_TITLE = "URL of an OpenAI-compatible server, such as http://localhost:8000/v1:"
MODELS_TITLE = "Choose a model. Found on this machine:"
PROVIDERS_TITLE = "Which provider is the key for?"
_KIND_WORDS = {"key": "key in", "stored": "key in", "server": "local server,", "planner": ""}


class OnboardingDialog(RequestDialog[ModelOption]):
    """Returns the chosen model option after storing it, or None. Contacts local servers only if the user asks for it.

    Choosing no model is not stored, so that a key that is set later is used.
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

    def on_mount(self) -> None:
        self.query_one("#title", Static).update("Welcome to Odin")
        self.run_worker(self._load_options())

    async def _load_options(self) -> None:
        self._options = list(await self._setup.find_options())
        self.show_message()

    # --- appearance ---

    def show_message(self, text: str = "") -> None:
        line = self.query_one("#line", Input)
        line.display = self._step in _TYPING_STEPS
        line.password = self._step == "key"
        (line if line.display else self.query_one(TextPage)).focus()
        self.query_one(ChoiceBar).offer(self._list_choices() if self.ready else ())
        self.query_one(TextPage).show(self._paint_page)
        super().show_message(text)

    def _list_choices(self) -> Sequence[DialogChoice]:
        shown = self.odin.keys.get_label
        if self._step == "list":
            leave = ("Close", "") if self._is_reopened else ("No model", "No model")
            return (
                DialogChoice("welcome_use", shown("welcome_use"), "Use this model"),
                DialogChoice("welcome_key", shown("welcome_key"), "Enter an API key", "Key"),
                DialogChoice("welcome_look", shown("welcome_look"), "Find local model servers", "Servers"),
                DialogChoice("welcome_url", shown("welcome_url"), "Add a server by URL", "URL"),
                DialogChoice("welcome_back", shown("welcome_back"), *leave),
            )
        if self._step in _TYPING_STEPS:
            store = DialogChoice("welcome_use", shown("confirm"), _TYPING_STEPS[self._step])
            return store, DialogChoice("welcome_back", shown("back"), "Back")
        use = DialogChoice("welcome_use", shown("welcome_use"), "Select")
        return use, DialogChoice("welcome_back", shown("welcome_back"), "Back")

    def _paint_page(self, canvas: Canvas) -> list[Strip]:
        self._option_lines = {}
        if self._step == "key":
            return paint_sentence(
                canvas, f"API key for {escape_hidden(self._provider)} (hidden; stored so that only you can read it):"
            )
        if self._step == "url":
            return paint_sentence(canvas, URL_TITLE)
        strips = [*paint_sentence(canvas, MODELS_TITLE if self._step == "list" else PROVIDERS_TITLE), make_blank()]
        for number, (name, detail) in enumerate(self._list_rows()):
            here = number == self._cursor
            fits = len(name) + len(detail) + 6 <= canvas.width
            beside = [(f"  {detail}", canvas.palette.dim)] if fits else []
            below = [canvas.paint_row((f"    {detail}", canvas.palette.dim))] if detail and not fits else []
            key = f"{number + 1} " if number < 9 else "  "
            for strip in (paint_option(canvas, key, name, *beside, here=here), *below):
                self._option_lines[len(strips)] = number
                strips.append(strip)
        if self._step == "list" and self._setup.other_agents:
            strips += [make_blank(), *paint_sentence(canvas, self._setup.other_agents)]
        return strips

    def _list_rows(self) -> list[tuple[str, str]]:
        if self._step == "provider":
            return [(escape_hidden(name), "") for name in self._setup.providers]
        return [_describe_option(option) for option in self._options]

    @property
    def current_option(self) -> int:
        return self._cursor

    # --- keys and clicks ---

    def _find_step_action(self, key: str) -> str:
        keys = self.odin.keys
        if self._step in _TYPING_STEPS:
            return {"confirm": "welcome_use", "back": "welcome_back"}.get(keys.find_action(key, "step"), "")
        if len(key) == 1 and key.isdecimal() and key != "0":
            return f"pick({int(key) - 1})"
        name = keys.find_action(key, "welcome")
        if name in ("welcome_key", "welcome_look", "welcome_url") and self._step != "list":
            return ""
        return name or self.find_scroll_action(key)

    async def _perform(self, name: str) -> None:
        if not self._is_busy:
            await self.run_action(name)

    def _move(self, by: int) -> None:
        self._cursor = (self._cursor + by) % max(len(self._list_rows()), 1)
        self.show_message()

    action_welcome_next = partialmethod(_move, 1)
    action_welcome_previous = partialmethod(_move, -1)

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
        elif self._step == "url":
            await self._add_server()
        elif self._options:
            await self._choose(self._options[self._cursor])

    def action_welcome_key(self) -> None:
        self._go_to_step("provider")

    def action_welcome_url(self) -> None:
        self.query_one("#line", Input).value = ""
        self._go_to_step("url")

    def _go_to_step(self, step: OnboardingStep, message: str = "") -> None:
        self._step, self._cursor = step, 0
        self.show_message(message)

    async def action_welcome_back(self) -> None:
        if self._step != "list":
            self.query_one("#line", Input).value = ""
            self._go_to_step("provider" if self._step == "key" else "list")
        else:
            self.dismiss(None)

    async def action_welcome_look(self) -> None:
        """Search for local model servers and add their models to the list."""
        self._is_busy = True
        self.show_message("Searching for local model servers …")
        try:
            servers = await self._setup.find_local_servers()
        except OdinError as error:
            self.show_message(escape_hidden(error.describe()))
            return
        finally:
            self._is_busy = False
        self._add_options(servers)
        self.show_message("" if servers else "No local model server found.")

    def _add_options(self, found: Sequence[ModelOption]) -> None:
        """Add models of servers before the offline planner, and select the first of them."""
        known = {one.ref for one in self._options}
        new = [one for one in found if one.ref not in known]
        keys = [one for one in self._options if one.kind != "planner"]
        self._options = [*keys, *new, *(one for one in self._options if one.kind == "planner")]
        self._cursor = len(keys) if new else 0

    async def _add_server(self) -> None:
        line = self.query_one("#line", Input)
        url = line.value.strip()
        if not url:
            self.show_message(f"The URL is empty. Enter one, or go back with {self.odin.keys.get_label('back')}.")
            return
        self._is_busy = True
        self.show_message("Asking the server for its models …")
        try:
            models = await self._setup.add_server(url)
        except OdinError as error:
            self.show_message(escape_hidden(error.describe()))
            return
        finally:
            self._is_busy = False
        line.value = ""
        self._step = "list"
        self._add_options(models)
        self.show_message()

    async def _store_key(self) -> None:
        line = self.query_one("#line", Input)
        key, line.value = line.value.strip(), ""
        if not key:
            self.show_message(f"The key is empty. Enter one, or go back with {self.odin.keys.get_label('back')}.")
            return
        self._is_busy = True
        self.show_message("Checking the key …")
        try:
            option = await self._setup.store_key(self._provider, key)
        except OdinError as error:
            self.show_message(escape_hidden(error.describe()))
            return
        finally:
            self._is_busy = False
        self._options = [option, *(one for one in self._options if one.ref != option.ref)]
        saved = f"Saved to {shorten_home(self._setup.keys_file)}, readable only by you."
        unchecked = f" Not checked: {option.unchecked}" if option.unchecked else ""
        self._go_to_step("list", escape_hidden(f"{saved}{unchecked}"))

    async def _choose(self, option: ModelOption) -> None:
        if option.kind == "planner":
            self.dismiss(option)
            return
        if not option.ref:
            self.show_message(f"No model of {escape_hidden(option.name)} is known: choose one with /model.")
            return
        try:
            await self._setup.choose_model(option.ref)
        except OdinError as error:
            self.show_message(escape_hidden(error.describe()))
            return
        self.dismiss(option)


def _describe_option(option: ModelOption) -> tuple[str, str]:
    """Return the model and where it was found."""
    if option.kind == "planner":
        return "No model", escape_hidden(f"{option.name}: {option.detail}" if option.detail else option.name)
    details = (_KIND_WORDS[option.kind], escape_hidden(option.detail))
    return escape_hidden(option.ref or option.name), " ".join(filter(None, details))


TYPED_NOTE = "as typed"


class ModelPicker(PickerDialog[AvailableModel]):
    """The available models. Any typed name can be chosen, too. Local servers are contacted only on request."""

    KEY_SCOPES = ("models", "list", "dialog")
    HEADING = "Models"
    EMPTY_TEXT = "No models found. Type a name such as provider/model."
    ENTER_LABEL = "use"
    ACTIONS: ClassVar[dict[str, str]] = {"use_once": "use once", "look_for_servers": "find local servers"}

    def __init__(self, words: str = "") -> None:
        super().__init__(words)
        self._finds_servers = False
        self._chosen_ref = ""
        self._running_ref = ""
        self._pool = ""

    async def load(self) -> Sequence[AvailableModel]:
        info = await self.odin.client.get_info()
        self._chosen_ref, self._pool = self.odin.facts.chosen_model or info.model, info.pool
        self._running_ref = self.odin.facts.running_model or self._chosen_ref
        return await self.odin.client.list_models("all" if self._finds_servers else "configured")

    def get_filter_text(self, item: AvailableModel) -> str:
        return f"{item.ref} {item.address} {item.note}".casefold()

    def filter_items(self, items: Sequence[AvailableModel], words: str) -> Sequence[AvailableModel]:
        matching = list(super().filter_items(items, words))
        typed = words.strip()
        if typed and " " not in typed and not any(item.ref == typed for item in items):
            matching.append(AvailableModel(typed, 0, "", "", note=TYPED_NOTE))
        return matching

    async def reload(self, mark: int = 0) -> None:
        await super().reload(mark)
        if not self.filter.value and not mark:
            refs = [item.ref for item in self.all_items]
            self.rows.move_to(refs.index(self._chosen_ref) if self._chosen_ref in refs else 0)

    def draw(self, item: AvailableModel) -> RowContent:
        colors = self.palette
        if item.note == TYPED_NOTE:
            return Text(f"Use {escape_hidden(item.ref)}", colors.text), (TYPED_NOTE,)
        is_chosen = item.ref == self._pool if item.pool else item.ref == self._chosen_ref
        line = Text().append("● " if is_chosen else "  ", colors.good)
        line.append(escape_hidden(item.ref), colors.text)
        if item.pool:
            return line, ("in use" if is_chosen else "", f"pool of {len(item.pool)}", "")
        used = "in use" if item.ref == self._chosen_ref == self._running_ref else self._describe_use(item)
        return line, (used, format_window(item.context), format_prices(item))

    def _describe_use(self, item: AvailableModel) -> str:
        """Tell the chosen model from a fallback that is running instead of it."""
        return {self._running_ref: "fallback active", self._chosen_ref: "chosen"}.get(item.ref, "")

    async def describe(self, item: AvailableModel) -> Text:
        colors = self.palette
        text = Text().append(f"{escape_hidden(item.ref)}\n", colors.strong)
        if item.note == TYPED_NOTE:
            text.append("Not in the list; Odin asks its server whether it exists.", colors.dim)
            return text
        if item.pool:
            text.append("While a model cannot answer, the next one does.\n", colors.dim)
            for ref in item.pool:
                text.append(f"{escape_hidden(ref)}\n", colors.text)
            return text
        rows = (
            ("window", f"{item.context:,} tokens" if item.context else "unknown"),
            ("prices", format_prices(item) or "unknown"),
            ("cache", _format_cache_price(item)),
            ("tools", escape_hidden(item.tools)),
            ("address", escape_hidden(item.address)),
            ("note", escape_hidden(item.note)),
        )
        for name, value in rows:
            if value:
                text.append(f"{name:<8}", colors.dim)
                text.append(f"{value}\n", colors.text)
        return text

    async def choose(self, item: AvailableModel) -> None:
        self.dismiss(item.ref)

    async def act(self, name: str, item: AvailableModel | None) -> None:
        if name == "use_once":
            if item is not None:
                self.dismiss(f"{item.ref} {SESSION_OPTION}")
            return
        self._finds_servers = True
        before = len(self.all_items)
        self.odin.show_toast("Searching for local model servers…")
        await self.reload(self.rows.mark)
        more = len(self.all_items) - before
        self.odin.show_toast(f"Found {more} more." if more > 0 else "No local model server found.")


def _format_cache_price(item: AvailableModel) -> str:
    if item.price_cache_read is None:
        return ""
    write = "" if item.price_cache_write is None else f", ${item.price_cache_write:g} written"
    return f"${item.price_cache_read:g} read{write} per million"
