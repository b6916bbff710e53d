"""Textual's text area, without a crash of it."""

from textual.geometry import Offset
from textual.widgets import TextArea


class StableTextArea(TextArea):
    """A text area whose undo and redo may shorten the text above the cursor.

    Textual moves the cursor only after it has updated the scroll bar. If the scroll bar goes, it looks for the cursor
    in lines that no longer exist.
    """

    def scroll_cursor_visible(self, center: bool = False, animate: bool = False) -> Offset:
        if self.cursor_location[0] >= self.wrapped_document.document.line_count:
            return Offset()
        return super().scroll_cursor_visible(center, animate)
