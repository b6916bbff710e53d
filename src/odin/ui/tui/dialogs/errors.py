"""The last errors of this run."""

import time
from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text

from odin.ui.terminal import visible
from odin.ui.troubles import Trouble
from odin.ui.tui.dialogs.hints import Act
from odin.ui.tui.dialogs.picker import Picker
from odin.ui.tui.dialogs.rows import Drawn
from odin.ui.tui.paint.foreign import foreign


class ErrorsDialog(Picker[Trouble]):
    """Newest first, the whole of the marked one beside them."""

    PLACES = ("errors", "list", "dialog")
    HEAD = "Errors"
    EMPTY = "Nothing went wrong since Odin was started."
    TYPING = False
    ENTER = "copy"
    BESIDE = "always"
    ACTS: ClassVar[tuple[Act, ...]] = (Act("copy_errors", "copy all"),)

    async def load(self) -> Sequence[Trouble]:
        return self.odin.troubles.newest_first

    def text_of(self, item: Trouble) -> str:
        return f"{item.kind} {item.agent} {item.detail}".casefold()

    def draw(self, item: Trouble) -> Drawn:
        line = Text().append(f"{_clock(item.ts)} ", self.colours.dim)
        line.append(visible(item.line), self.colours.text)
        return line, (visible(item.kind), visible(item.agent))

    async def about(self, item: Trouble) -> Text:
        colours = self.colours
        text = Text().append(f"{visible(item.kind)}\n", colours.bad)
        whose = visible(item.agent) or "main agent"
        text.append(f"{_clock(item.ts)} · {whose}\n\n", colours.dim)
        text.append(foreign(item.detail), colours.text)
        return text

    async def choose(self, item: Trouble) -> None:
        self.odin.copy_to_clipboard(_written(item))
        self.odin.tell("Copied.")

    async def act(self, name: str, item: Trouble | None) -> None:
        if self.everything:
            self.odin.copy_to_clipboard("\n\n".join(map(_written, self.everything)))
            self.odin.tell(f"Copied {len(self.everything)}.")


def _clock(ts: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(ts))


def _written(item: Trouble) -> str:
    whose = f" ({item.agent})" if item.agent else ""
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(item.ts))} {item.kind}{whose}\n{item.detail}"
