"""A text in a dialog that is scrolled, copied and closed by the keys of the table."""

from textual.containers import VerticalScroll

from odin.ui.tui.dialogs.dialog import Dialog


class Sheet(VerticalScroll, inherit_bindings=False):
    """The dialog has the keys."""

    DEFAULT_CSS = """
    Sheet { scrollbar-size-vertical: 1; background: $surface; }
    Sheet { scrollbar-background: $surface; scrollbar-background-hover: $surface; }
    """


class SheetDialog(Dialog[str]):
    """A dialog with one sheet."""

    KEY_SCOPES = ("reading", "dialog")

    @property
    def plain_text(self) -> str:
        """The text, for whoever copies it."""
        return ""

    def action_read_copy(self) -> None:
        self.odin.copy_to_clipboard(self.plain_text)
        self.odin.show_toast("Copied.")

    def action_read_close(self) -> None:
        self.action_close()

    def action_read_down(self) -> None:
        self._scroll(1)

    def action_read_up(self) -> None:
        self._scroll(-1)

    def action_read_page_down(self) -> None:
        self._scroll(self._page_size)

    def action_read_page_up(self) -> None:
        self._scroll(-self._page_size)

    def action_read_first(self) -> None:
        self.query_one(Sheet).scroll_home(animate=False)

    def action_read_last(self) -> None:
        self.query_one(Sheet).scroll_end(animate=False)

    @property
    def _page_size(self) -> int:
        return max(self.query_one(Sheet).size.height - 1, 1)

    def _scroll(self, by: int) -> None:
        self.query_one(Sheet).scroll_relative(y=by, animate=False)
