"""Search in the transcript, including folded and unpainted blocks, and the search bar at the bottom."""

from collections.abc import Callable, Sequence
from typing import cast

from rich.style import Style
from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.strip import Strip
from textual.widgets import Input, Static

from odin.ui.transcript.blocks import TranscriptBlock
from odin.ui.tui.keys import LineInput
from odin.ui.tui.paint.canvas import style_spans
from odin.ui.tui.paint.painter import get_search_text
from odin.ui.tui.session_app import SessionApp


class TranscriptSearch:
    """The matches of `words`. `here` is the current one: its block and its number within the block."""

    def __init__(self) -> None:
        self.words = ""
        self.here: tuple[TranscriptBlock, int] | None = None
        self._places: list[tuple[TranscriptBlock, int]] = []

    def search_for(self, words: str, blocks: Sequence[TranscriptBlock]) -> None:
        self.words = words.casefold()
        self._places = []
        if self.words:
            for block in blocks:
                count = get_search_text(block).casefold().count(self.words)
                self._places += [(block, number) for number in range(count)]
        self.here = None

    def clear(self) -> None:
        self.search_for("", ())

    def find_next(self, step: int, visible: Sequence[TranscriptBlock]) -> tuple[TranscriptBlock, int] | None:
        """Return the next match, in a cycle. The first search starts at the `visible` blocks."""
        if not self._places:
            return None
        if self.here in self._places:
            index = (self._places.index(self.here) + step) % len(self._places)
        else:
            shown = set(visible)
            start = 0 if step > 0 else len(self._places) - 1
            index = next((i for i, place in enumerate(self._places) if place[0] in shown), start)
        self.here = self._places[index]
        return self.here

    @property
    def count_label(self) -> str:
        if not self.words:
            return ""
        if not self._places:
            return "no matches"
        place = self._places.index(self.here) + 1 if self.here in self._places else 0
        return f"{place} of {len(self._places)}" if place else f"{len(self._places)} found"


def find_match_line(lines: Sequence[Strip], words: str, number: int) -> int:
    """Return the line of match `number`, or the last line with a match if markup or wrapping hides some."""
    total = 0
    last = min(1, len(lines) - 1)
    for place, strip in enumerate(lines):
        count = strip.text.casefold().count(words)
        if count:
            total, last = total + count, place
        if total > number:
            return place
    return max(last, 0)


def highlight_matches(strip: Strip, words: str, style: Style) -> Strip:
    """Style all matches in a line."""
    text = strip.text.casefold()
    if words not in text or len(text) != len(strip.text):
        return strip
    matches: list[tuple[int, int]] = []
    at = text.find(words)
    while at >= 0:
        matches.append((at, at + len(words)))
        at = text.find(words, at + len(words))
    return Strip(style_spans(strip, matches, style), strip.cell_length)


SearchListener = Callable[[str, bool], None]
"""Called with the search words, and True once the user confirmed them."""


class SearchBar(Horizontal):
    """Hidden until opened. Enter returns to the transcript with the matches, Esc cancels the search."""

    DEFAULT_CSS = """
    SearchBar { height: 1; display: none; padding: 0 1; background: $surface; }
    SearchBar.-open { display: block; }
    SearchBar > #sign { width: 2; color: $accent; }
    SearchBar > Input, SearchBar > Input:focus { width: 1fr; height: 1; border: none; padding: 0; }
    SearchBar > #count { width: auto; min-width: 1; padding: 0 0 0 1; color: $foreground; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._listener: SearchListener | None = None

    def compose(self) -> ComposeResult:
        yield Static("/ ", id="sign", markup=False)
        yield LineInput(placeholder="Search the conversation", compact=True)
        yield Static("", id="count", markup=False)

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

    def show_count(self, label: str) -> None:
        self.query_one("#count", Static).update(label)

    def _notify_listener(self, words: str, done: bool) -> None:
        if self.is_open and self._listener is not None:
            self._listener(words, done)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if self.query_one(Input).has_focus:
            self._notify_listener(event.value, False)

    def on_key(self, event: events.Key) -> None:
        name = cast(SessionApp, self.app).keys.find_action(event.key, "search")
        if name:
            event.stop()
            event.prevent_default()
            self._notify_listener(self.query_one(Input).value if name == "search_done" else "", True)
