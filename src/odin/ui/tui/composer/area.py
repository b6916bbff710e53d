"""The text that is being written, with labels that are one piece each: no cursor inside, no half of one deleted."""

import re
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.document._document import Location, Selection
from textual.widgets import TextArea

from odin.ui.tui.composer.draft import DraftPart, DraftParts, PromptDraft
from odin.ui.tui.composer.label import theme_of

UNFOLD_CHARS = 20_000
"""A longer paste is not unfolded into the text; an editor shows it."""

_MENTION = re.compile(r"""(?<![\w@/.+-])@(?:"[^"\n]+"(?::\d+(?:-\d+)?)?|[^\s"@]+)""")


class DraftArea(TextArea):
    """A text area that knows the pieces of a draft."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("alt+b", "cursor_word_left", show=False),
        Binding("alt+f", "cursor_word_right", show=False),
        Binding("alt+d", "delete_word_right", show=False),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        self.draft_parts = DraftParts()
        super().__init__(
            id=id, soft_wrap=True, tab_behavior="focus", show_line_numbers=False, highlight_cursor_line=False
        )
        self.cursor_blink = False
        self.match_cursor_bracket = False

    @property
    def draft(self) -> PromptDraft:
        return self.draft_parts.build_draft(self.text)

    def load(self, draft: PromptDraft) -> None:
        """Show this draft in the place of what is there, with the cursor at its end."""
        self.draft_parts.load(draft.parts)
        self.load_text(draft.text)
        self.move_cursor(self.document.end)

    def find_matching_bracket(self, bracket: str, search_from: Location) -> Location | None:
        """Brackets are not matched: that would look through the whole text at every key."""
        return None

    # --- labels are one piece ---

    def validate_selection(self, selection: Selection) -> Selection:
        start = self._move_outside_label(selection.start, self.selection.start)
        end = start if selection.is_empty else self._move_outside_label(selection.end, self.selection.end)
        return selection if (start, end) == tuple(selection) else Selection(start, end)

    def _move_outside_label(self, to: Location, was: Location) -> Location:
        """Where a cursor that would stand inside of a label stands instead, coming from there."""
        row, column = to
        for first, last, _ in self._find_labels(row):
            if first < column < last:
                if was == (row, last) or (was > (row, first) and column - first < last - column):
                    return row, first
                return row, last
        return to

    def _find_labels(self, row: int) -> list[tuple[int, int, DraftPart]]:
        return list(self.draft_parts.find_labels(self.document[row])) if row < self.document.line_count else []

    def get_cursor_left_location(self) -> Location:
        return self._move_outside_label(super().get_cursor_left_location(), self.cursor_location)

    def get_cursor_right_location(self) -> Location:
        return self._move_outside_label(super().get_cursor_right_location(), self.cursor_location)

    def get_cursor_word_left_location(self) -> Location:
        return self._move_outside_label(super().get_cursor_word_left_location(), self.cursor_location)

    def get_cursor_word_right_location(self) -> Location:
        return self._move_outside_label(super().get_cursor_word_right_location(), self.cursor_location)

    def unfold(self, at: Location) -> bool | None:
        """Put a paste in the place of its label there. None when there is none, False when it is too long for that."""
        row, column = at
        for first, last, piece in self._find_labels(row):
            if first <= column < last and piece.text:
                if len(piece.text) > UNFOLD_CHARS:
                    return False
                self.replace(piece.text, (row, first), (row, last))
                return True
        return None

    def action_delete_to_start_of_line(self) -> None:
        """As in a shell, at the start of a line the line's end before it goes."""
        if self.selection.is_empty and self.cursor_location[1] == 0:
            self.action_delete_left()
        else:
            super().action_delete_to_start_of_line()

    # --- how it looks ---

    def get_line(self, line_index: int) -> Text:
        line = super().get_line(line_index)
        theme = theme_of(self)
        if "@" in line.plain:
            for found in _MENTION.finditer(line.plain):
                line.stylize(Style(color=theme.primary), found.start(), found.end())
        for first, last, _ in self.draft_parts.find_labels(line.plain):
            line.stylize(Style(color=theme.accent, bold=True), first, last)
        return line

    async def _on_key(self, event: events.Key) -> None:
        """Editing keys act here and now. As bindings they would come after characters that were typed behind them."""
        bindings = self._bindings.key_to_bindings.get(event.key)
        if bindings and not event.is_printable:
            event.stop()
            event.prevent_default()
            await self.run_action(bindings[0].action)
        else:
            await super()._on_key(event)
