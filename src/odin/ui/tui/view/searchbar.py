"""The one line at the bottom where words are typed that are looked for in the conversation."""

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Input, Static

from odin.ui.tui.dialogs.field import LineInput

if TYPE_CHECKING:
    from odin.ui.tui.app import OdinApp

SearchListener = Callable[[str, bool], None]
"""Told what is looked for, and whether that is final."""


class SearchBar(Horizontal):
    """Hidden until it is opened. Enter goes back to the conversation with what was found, Esc gives it up."""

    DEFAULT_CSS = """
    SearchBar { height: 1; display: none; padding: 0 1; background: $surface; }
    SearchBar.-open { display: block; }
    SearchBar > #sign { width: 2; color: $accent; }
    SearchBar > Input, SearchBar > Input:focus { width: 1fr; height: 1; border: none; padding: 0; }
    SearchBar > #found { width: auto; min-width: 1; padding: 0 0 0 1; color: $foreground; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._listener: SearchListener | None = None

    def compose(self) -> ComposeResult:
        yield Static("/ ", id="sign", markup=False)
        yield LineInput(placeholder="Search the conversation", compact=True)
        yield Static("", id="found", markup=False)

    def open(self, listener: SearchListener) -> None:
        self._listener = listener
        self.add_class("-open")
        field = self.query_one(Input)
        field.value = ""
        self.show_count("")
        field.focus()

    def close(self) -> None:
        self.remove_class("-open")

    @property
    def is_open(self) -> bool:
        return self.has_class("-open")

    def show_count(self, found: str) -> None:
        self.query_one("#found", Static).update(found)

    def _tell_listener(self, words: str, done: bool) -> None:
        if self.is_open and self._listener is not None:
            self._listener(words, done)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if self.query_one(Input).has_focus:
            self._tell_listener(event.value, False)

    def on_key(self, event: events.Key) -> None:
        name = cast("OdinApp", self.app).keys.find_action(event.key, "search")
        if name:
            event.stop()
            event.prevent_default()
            self._tell_listener(self.query_one(Input).value if name == "search_done" else "", True)
