"""The form: a yes or no question, or a line of text with options that keys switch."""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from odin.ui.tui.dialogs.dialog import Dialog
from odin.ui.tui.dialogs.widgets import Hints
from odin.ui.tui.keys import DialogInput, KeyScope, is_typing_key


class FormResult(Struct, frozen=True):
    """The text, and the selected words by the names of their keys. Both are empty if a question was answered yes."""

    text: str = ""
    selected: Mapping[str, str] = {}


class FormDialog(Dialog[FormResult]):
    """Returns what was entered, or None.

    `accept` is what Enter does with the line; `options` are the words that a key switches between, by its name. Without
    `accept` it is a question: any key but yes means no.
    """

    def __init__(
        self,
        title: str,
        about: str = "",
        *,
        accept: str = "",
        placeholder: str = "",
        value: str = "",
        options: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        super().__init__()
        self._title = title
        self._about = about
        self._accept = accept
        self._initial_value = value
        self._options = {name: list(words) for name, words in options.items()} if options else {}
        self._field = DialogInput(self._take_key, placeholder, id="line")
        self._hints = Hints()

    def compose(self) -> ComposeResult:
        with Vertical(classes="panel"):
            yield Static(self._title, classes="title", markup=False)
            if self._accept:
                yield self._field
            if self._about:
                yield Static(self._about, classes="hint" if self._accept else "", markup=False)
            yield self._hints

    def on_mount(self) -> None:
        if self._accept:
            self._field.value = self._initial_value
            self._field.cursor_position = len(self._initial_value)
            self._field.focus()
        self._show_hints()

    def _show_hints(self) -> None:
        labels = {"yes": "yes", "no": "no"}
        if self._accept:
            labels = {name: words[0] for name, words in self._options.items()}
            labels |= {"confirm": self._accept, "close": "cancel"}
        self._hints.show([(name, self.odin.keys.get_label(name), label) for name, label in labels.items()])

    async def on_key(self, event: events.Key) -> None:
        if self._take_key(event):
            event.stop()
            event.prevent_default()
            return
        await super().on_key(event)
        if not self._accept and self.is_current and event.is_printable:
            self.dismiss(None)

    def _take_key(self, event: events.Key) -> bool:
        if self._accept and is_typing_key(event.key):
            return False
        scopes: tuple[KeyScope, ...] = ("rule", "step") if self._accept else ("confirm",)
        find = self.odin.keys.find_action
        known = (*self._options, "confirm", "back", "yes", "no")
        name = next((name for scope in scopes if (name := find(event.key, scope)) in known), "")
        if name:
            self.action_do(name)
        return bool(name)

    def action_do(self, name: str) -> None:
        """Run the action of a key or of a clicked hint."""
        text = self._field.value.strip() if self._accept else ""
        if name in self._options:
            words = self._options[name]
            words.append(words.pop(0))
            self._show_hints()
        elif name == "yes" or (name == "confirm" and text):
            self.dismiss(FormResult(text, {name: words[0] for name, words in self._options.items()}))
        elif name != "confirm":
            self.dismiss(None)
