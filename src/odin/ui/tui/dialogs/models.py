"""The models that can be used from here. Servers on this machine are asked only when the person wants that."""

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text

from odin.core.client import ModelChoice
from odin.ui.commands.models import prices, window
from odin.ui.terminal import visible
from odin.ui.tui.dialogs.hints import Act
from odin.ui.tui.dialogs.picker import Picker
from odin.ui.tui.dialogs.rows import Drawn

TYPED = "as you typed it"


class ModelPicker(Picker[ModelChoice]):
    """What is typed narrows the list; a name that is not in it can be chosen as it is written."""

    PLACES = ("models", "list", "dialog")
    HEAD = "Models"
    EMPTY = "No model is known here. Type the name of one, such as provider/model."
    ENTER = "use"
    ACTS: ClassVar[tuple[Act, ...]] = (Act("look_for_servers", "look for local servers"),)

    def __init__(self, words: str = "") -> None:
        super().__init__(words)
        self._look = False
        self._chosen = ""
        self._answering = ""

    async def load(self) -> Sequence[ModelChoice]:
        self._chosen = self.odin.facts.chosen or (await self.odin.client.info()).model
        self._answering = self.odin.facts.running or self._chosen
        return await self.odin.client.models(look=self._look)

    def text_of(self, item: ModelChoice) -> str:
        return f"{item.ref} {item.where} {item.note}".casefold()

    def narrowed(self, items: Sequence[ModelChoice], words: str) -> Sequence[ModelChoice]:
        fitting = list(super().narrowed(items, words))
        typed = words.strip()
        if typed and " " not in typed and not any(item.ref == typed for item in items):
            fitting.append(ModelChoice(typed, 0, "", "", note=TYPED))
        return fitting

    async def reload(self, mark: int = 0) -> None:
        await super().reload(mark)
        if not self.filter.value and not mark:
            refs = [item.ref for item in self.everything]
            self.rows.move_to(refs.index(self._chosen) if self._chosen in refs else 0)

    def draw(self, item: ModelChoice) -> Drawn:
        colours = self.colours
        if item.note == TYPED:
            return Text(f"Use {visible(item.ref)}", colours.text), (TYPED,)
        line = Text().append("● " if item.ref == self._chosen else "  ", colours.good)
        line.append(visible(item.ref), colours.text)
        used = "in use" if item.ref == self._chosen == self._answering else self._part(item)
        return line, (used, window(item.context), prices(item))

    def _part(self, item: ModelChoice) -> str:
        """While another model stands in for the chosen one, both are told apart."""
        return {self._answering: "answers for now", self._chosen: "chosen"}.get(item.ref, "")

    async def about(self, item: ModelChoice) -> Text:
        colours = self.colours
        text = Text().append(f"{visible(item.ref)}\n", colours.strong)
        if item.note == TYPED:
            text.append("It is not in the list; whether it can be used shows when it is asked.", colours.dim)
            return text
        rows = (
            ("window", f"{item.context:,} tokens" if item.context else "not known"),
            ("prices", prices(item) or "not known"),
            ("cache", _cache(item)),
            ("tools", visible(item.tools)),
            ("where", visible(item.where)),
            ("how", visible(item.note)),
        )
        for name, value in rows:
            if value:
                text.append(f"{name:<8}", colours.dim)
                text.append(f"{value}\n", colours.text)
        return text

    async def choose(self, item: ModelChoice) -> None:
        self.dismiss(item.ref)

    async def act(self, name: str, item: ModelChoice | None) -> None:
        self._look = True
        before = len(self.everything)
        self.odin.tell("Looking for model servers on this machine…")
        await self.reload(self.rows.mark)
        more = len(self.everything) - before
        self.odin.tell(f"Found {more} more." if more > 0 else "No other model server was found on this machine.")


def _cache(item: ModelChoice) -> str:
    if item.price_cache_read is None:
        return ""
    write = "" if item.price_cache_write is None else f", ${item.price_cache_write:g} written"
    return f"${item.price_cache_read:g} read{write} per million"
