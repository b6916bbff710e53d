"""The last errors of this run."""

import time
from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text

from odin.ui.terminal import escape_hidden
from odin.ui.troubles import ErrorEntry
from odin.ui.tui.dialogs.hints import DialogAction
from odin.ui.tui.dialogs.picker import PickerDialog
from odin.ui.tui.dialogs.rows import RowContent
from odin.ui.tui.paint.foreign import sanitize


class ErrorsDialog(PickerDialog[ErrorEntry]):
    """Newest first, the whole of the marked one beside them."""

    KEY_SCOPES = ("errors", "list", "dialog")
    HEADING = "Errors"
    EMPTY_TEXT = "Nothing went wrong since Odin was started."
    STARTS_IN_FILTER = False
    ENTER_LABEL = "copy"
    DETAIL = "always"
    ACTIONS: ClassVar[tuple[DialogAction, ...]] = (DialogAction("copy_errors", "copy all"),)

    async def load(self) -> Sequence[ErrorEntry]:
        return self.odin.error_log.newest_first

    def text_of(self, item: ErrorEntry) -> str:
        return f"{item.kind} {item.agent} {item.detail}".casefold()

    def draw(self, item: ErrorEntry) -> RowContent:
        line = Text().append(f"{_format_clock(item.ts)} ", self.palette.dim)
        line.append(escape_hidden(item.line), self.palette.text)
        return line, (escape_hidden(item.kind), escape_hidden(item.agent))

    async def describe(self, item: ErrorEntry) -> Text:
        colours = self.palette
        text = Text().append(f"{escape_hidden(item.kind)}\n", colours.bad)
        whose = escape_hidden(item.agent) or "main agent"
        text.append(f"{_format_clock(item.ts)} · {whose}\n\n", colours.dim)
        text.append(sanitize(item.detail), colours.text)
        return text

    async def choose(self, item: ErrorEntry) -> None:
        self.odin.copy_to_clipboard(_format_error(item))
        self.odin.show_toast("Copied.")

    async def act(self, name: str, item: ErrorEntry | None) -> None:
        if self.all_items:
            self.odin.copy_to_clipboard("\n\n".join(map(_format_error, self.all_items)))
            self.odin.show_toast(f"Copied {len(self.all_items)}.")


def _format_clock(ts: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(ts))


def _format_error(item: ErrorEntry) -> str:
    whose = f" ({item.agent})" if item.agent else ""
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(item.ts))} {item.kind}{whose}\n{item.detail}"
