"""The models that can be used from here. Servers on this machine are asked only when the person wants that."""

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text

from odin.core.client import AvailableModel
from odin.ui.slash_commands.usage import format_prices, format_window
from odin.ui.terminal import escape_hidden
from odin.ui.tui.dialogs.picker import PickerDialog
from odin.ui.tui.dialogs.widgets import DialogAction, RowContent

TYPED_NOTE = "as you typed it"


class ModelPicker(PickerDialog[AvailableModel]):
    """What is typed narrows the list; a name that is not in it can be chosen as it is written."""

    KEY_SCOPES = ("models", "list", "dialog")
    HEADING = "Models"
    EMPTY_TEXT = "No model is known here. Type the name of one, such as provider/model."
    ENTER_LABEL = "use"
    ACTIONS: ClassVar[tuple[DialogAction, ...]] = (DialogAction("look_for_servers", "look for local servers"),)

    def __init__(self, words: str = "") -> None:
        super().__init__(words)
        self._finds_servers = False
        self._chosen_ref = ""
        self._running_ref = ""

    async def load(self) -> Sequence[AvailableModel]:
        self._chosen_ref = self.odin.facts.chosen_model or (await self.odin.client.get_info()).model
        self._running_ref = self.odin.facts.running_model or self._chosen_ref
        return await self.odin.client.list_models(probe_servers=self._finds_servers)

    def text_of(self, item: AvailableModel) -> str:
        return f"{item.ref} {item.address} {item.note}".casefold()

    def filter_items(self, items: Sequence[AvailableModel], words: str) -> Sequence[AvailableModel]:
        fitting = list(super().filter_items(items, words))
        typed = words.strip()
        if typed and " " not in typed and not any(item.ref == typed for item in items):
            fitting.append(AvailableModel(typed, 0, "", "", note=TYPED_NOTE))
        return fitting

    async def reload(self, mark: int = 0) -> None:
        await super().reload(mark)
        if not self.filter.value and not mark:
            refs = [item.ref for item in self.all_items]
            self.rows.move_to(refs.index(self._chosen_ref) if self._chosen_ref in refs else 0)

    def draw(self, item: AvailableModel) -> RowContent:
        colours = self.palette
        if item.note == TYPED_NOTE:
            return Text(f"Use {escape_hidden(item.ref)}", colours.text), (TYPED_NOTE,)
        line = Text().append("● " if item.ref == self._chosen_ref else "  ", colours.good)
        line.append(escape_hidden(item.ref), colours.text)
        used = "in use" if item.ref == self._chosen_ref == self._running_ref else self._describe_use(item)
        return line, (used, format_window(item.context), format_prices(item))

    def _describe_use(self, item: AvailableModel) -> str:
        """While another model stands in for the chosen one, both are told apart."""
        return {self._running_ref: "answers for now", self._chosen_ref: "chosen"}.get(item.ref, "")

    async def describe(self, item: AvailableModel) -> Text:
        colours = self.palette
        text = Text().append(f"{escape_hidden(item.ref)}\n", colours.strong)
        if item.note == TYPED_NOTE:
            text.append("It is not in the list; whether it can be used shows when it is asked.", colours.dim)
            return text
        rows = (
            ("window", f"{item.context:,} tokens" if item.context else "not known"),
            ("prices", format_prices(item) or "not known"),
            ("cache", _format_cache_price(item)),
            ("tools", escape_hidden(item.tools)),
            ("where", escape_hidden(item.address)),
            ("how", escape_hidden(item.note)),
        )
        for name, value in rows:
            if value:
                text.append(f"{name:<8}", colours.dim)
                text.append(f"{value}\n", colours.text)
        return text

    async def choose(self, item: AvailableModel) -> None:
        self.dismiss(item.ref)

    async def act(self, name: str, item: AvailableModel | None) -> None:
        self._finds_servers = True
        before = len(self.all_items)
        self.odin.show_toast("Looking for model servers on this machine…")
        await self.reload(self.rows.mark)
        more = len(self.all_items) - before
        self.odin.show_toast(f"Found {more} more." if more > 0 else "No other model server was found on this machine.")


def _format_cache_price(item: AvailableModel) -> str:
    if item.price_cache_read is None:
        return ""
    write = "" if item.price_cache_write is None else f", ${item.price_cache_write:g} written"
    return f"${item.price_cache_read:g} read{write} per million"
