"""Base class of list dialogs: type to filter, arrows to move, Enter to choose, with details of the marked item."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import ClassVar, Generic, Literal, TypeVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.containers import Container, Horizontal, Vertical, VerticalScroll
from textual.widgets import Input, Static

from odin.core.client import Client, SessionInfo
from odin.core.errors import OdinError
from odin.core.event import Envelope
from odin.ui.clean_text import sanitize
from odin.ui.tui.dialogs.dialog import Dialog
from odin.ui.tui.dialogs.form import FormDialog, FormResult
from odin.ui.tui.dialogs.widgets import Hints, RowContent, Rows
from odin.ui.tui.keys import DialogInput, KeyScope
from odin.ui.tui.palette import Palette, get_palette

MIN_HEIGHT = 14

Item = TypeVar("Item")


class PickerDialog(Dialog[str], Generic[Item]):
    """A subclass loads the items, draws and describes one, and handles the choice and its own `ACTIONS`.

    With `STARTS_IN_FILTER` the filter has the focus at first, else the list.
    """

    KEY_SCOPES: ClassVar[tuple[KeyScope, ...]] = ("list", "dialog")
    HEADING = ""
    EMPTY_TEXT = "Nothing here."
    STARTS_IN_FILTER: ClassVar[bool] = True
    CAN_FILTER: ClassVar[bool] = True
    DETAIL: ClassVar[Literal["always", "where there is room", "never"]] = "where there is room"
    ACTIONS: ClassVar[dict[str, str]] = {}
    """Further actions and their hints. The name is also that of the key."""
    ENTER_LABEL = "choose"
    RELOAD_ON: ClassVar[tuple[type, ...]] = ()
    """The events of the session after which the items are loaded again."""
    HORIZONTAL_BREAKPOINTS: list[tuple[int, str]] | None = [(0, "-narrow"), (90, "-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS: list[tuple[int, str]] | None = [(0, "-low"), (18, "-high")]  # noqa: RUF012
    DEFAULT_CLASSES = "-wide -high"
    DEFAULT_CSS = """
    PickerDialog > .panel { height: 85%; }
    PickerDialog.-low > .panel { max-height: 100%; height: 100%; }
    PickerDialog .line { height: 1; }
    PickerDialog .line > .title { width: auto; padding-right: 2; }
    PickerDialog .line > DialogInput { width: 1fr; }
    PickerDialog #body { height: 1fr; layout: horizontal; }
    PickerDialog #detail { width: 45%; padding: 0 1; border-left: solid $primary 40%; scrollbar-size-vertical: 1; }
    PickerDialog.-narrow #body { layout: vertical; }
    PickerDialog.-narrow #detail { width: 100%; height: 40%; padding: 0; }
    PickerDialog.-narrow #detail { border-left: none; border-top: solid $primary 40%; }
    PickerDialog.-narrow.-low #detail { display: none; }
    PickerDialog.-narrow.-low.-detail-always #detail { display: block; height: 4; }
    PickerDialog.-no-detail #detail { display: none; }
    PickerDialog #detail { scrollbar-background: $surface; scrollbar-background-hover: $surface; }
    PickerDialog #about { width: 100%; height: auto; }
    """

    def __init__(self, words: str = "") -> None:
        super().__init__()
        self._initial_filter = words
        self.all_items: Sequence[Item] = ()
        self._is_loaded = False
        self.rows: Rows[Item] = Rows(self.draw, self._take_field_key)
        self.hints = Hints()
        self.filter = DialogInput(self._take_field_key, "type to filter", id="filter")
        self._detail = Static("", id="about", markup=False)

    # --- for subclasses ---

    async def load(self) -> Sequence[Item]:
        raise NotImplementedError

    def get_filter_text(self, item: Item) -> str:
        """Return the lowercase text that the filter searches."""
        raise NotImplementedError

    def draw(self, item: Item) -> RowContent:
        raise NotImplementedError

    async def describe(self, item: Item) -> Text:
        """Return the details shown while the item is marked."""
        return Text()

    async def choose(self, item: Item) -> None:
        raise NotImplementedError

    async def act(self, name: str, item: Item | None) -> None:
        """Run one of `ACTIONS`."""

    def filter_items(self, items: Sequence[Item], words: str) -> Sequence[Item]:
        terms = words.casefold().split()
        if not terms:
            return items
        return [item for item in items if all(term in self.get_filter_text(item) for term in terms)]

    # --- widgets ---

    @property
    def palette(self) -> Palette:
        return get_palette(self)

    def compose(self) -> ComposeResult:
        with Vertical(classes="panel"):
            with Horizontal(classes="line"):
                yield Static(self.HEADING, classes="title", markup=False)
                yield self.filter
            with Container(id="body"):
                yield self.rows
                with VerticalScroll(id="detail", can_focus=False):
                    yield self._detail
            yield self.hints

    def on_mount(self) -> None:
        self.set_class(self.DETAIL == "never", "-no-detail")
        self.set_class(self.DETAIL == "always", "-detail-always")
        if not self.STARTS_IN_FILTER:
            self.filter.placeholder = f"{self.odin.keys.get_label('list_narrow')} to filter"
        self.filter.value = self._initial_filter
        self.filter.cursor_position = len(self._initial_filter)
        (self.filter if self.STARTS_IN_FILTER else self.rows).focus()
        self._show_hints()
        self.run_worker(self.reload, group="load", exclusive=True)
        if self.RELOAD_ON:
            self.odin.observers.append(self)

    def on_unmount(self) -> None:
        if self.RELOAD_ON:
            self.odin.observers.remove(self)

    # --- as a session observer ---

    def enter_session(self, client: Client, info: SessionInfo) -> None:
        self.run_worker(self.reload, group="load", exclusive=True)

    def handle_event(self, envelope: Envelope, live: bool) -> None:
        if live and isinstance(envelope.event, self.RELOAD_ON):
            self.run_worker(partial(self.reload, self.rows.mark), group="load", exclusive=True)

    def draw_frame(self) -> None:
        return None

    # --- items ---

    async def reload(self, mark: int = 0) -> None:
        """Load the items; show an error if that fails."""
        try:
            self.all_items = await self.load()
        except OdinError as error:
            self.odin.show_toast(error.describe(), "error")
        self._is_loaded = True
        self.rows.empty = self.EMPTY_TEXT
        # Make the panel as tall as the unfiltered list, so that filtering does not resize it.
        height = max(len(self.all_items) + 3, MIN_HEIGHT)
        too_tall = height >= self.size.height * 85 // 100
        self.query_one(".panel").styles.height = None if too_tall else height
        self.narrow(mark)

    def narrow(self, mark: int = 0) -> None:
        """Show the items that match the filter."""
        self.rows.show(self.filter_items(self.all_items, self.filter.value), mark)

    # --- choosing and actions ---

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input is self.filter and self._is_loaded:
            self.narrow()

    def on_rows_marked(self) -> None:
        self.run_worker(self._show_detail, group="about", exclusive=True)

    async def _show_detail(self) -> None:
        item = self.rows.marked
        if item is None:
            self._detail.update("")
            return
        try:
            text = await self.describe(item)
        except OdinError as error:
            text = Text(sanitize(error.describe()), self.palette.bad)
        self._detail.update(text)

    def on_rows_chosen(self) -> None:
        self._choose()

    def action_do(self, name: str) -> None:
        """Run the action of a clicked hint."""
        self._perform(name)

    def _perform(self, name: str) -> bool:
        """Run the action of a key or a click; False if it does not exist here."""
        if name in self.ACTIONS:
            self._run_and_report(self.act(name, self.rows.marked))
            return True
        rows = self.rows
        actions: dict[str, Callable[[], object]] = {
            "close": self.action_close,
            "list_up": lambda: rows.move(-1),
            "list_down": lambda: rows.move(1),
            "list_page_up": lambda: rows.move(-rows.page_size),
            "list_page_down": lambda: rows.move(rows.page_size),
            "list_first": lambda: rows.move_to(0),
            "list_last": lambda: rows.move_to(len(rows.items) - 1),
            "list_choose": self._choose,
        }
        if self.CAN_FILTER:
            actions["list_narrow"] = self.filter.focus
            actions["list_other"] = (rows if self.filter.has_focus else self.filter).focus
        action = actions.get(name)
        if action is not None:
            action()
        return action is not None

    def _choose(self) -> None:
        item = self.rows.marked
        if item is not None:
            self._run_and_report(self.choose(item))

    def _run_and_report(self, work: Awaitable[None]) -> None:
        async def guarded() -> None:
            try:
                await work
            except OdinError as error:
                self.odin.show_toast(error.describe(), "error")

        self.run_worker(guarded, group="work")

    # --- keys ---

    def _take_field_key(self, event: events.Key) -> bool:
        name = self.find_key_action(event.key)
        if name == "close" and self.filter.has_focus and not self.STARTS_IN_FILTER:
            self.filter.value = ""
            self.rows.focus()
            return True
        return bool(name) and self._perform(name)

    def ask(self, form: FormDialog, then: Callable[[FormResult], Awaitable[None]]) -> None:
        """Show a form above the list, and do what follows from its result."""
        self.odin.push_screen(form, lambda result: result and self._run_and_report(then(result)))

    def _show_hints(self) -> None:
        hints = {"list_choose": self.ENTER_LABEL} if self.ENTER_LABEL else {}
        hints |= self.ACTIONS
        if not self.STARTS_IN_FILTER and self.CAN_FILTER:
            hints["list_narrow"] = "filter"
        label_of, typing = self.odin.keys.get_label, self.STARTS_IN_FILTER
        self.hints.show(
            [(name, label_of(name, typing=typing), label) for name, label in (hints | {"close": "close"}).items()]
        )
