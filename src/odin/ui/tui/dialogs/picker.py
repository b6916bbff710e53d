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
from odin.ui.tui.dialogs.dialog import Dialog
from odin.ui.tui.dialogs.widgets import Hints, RowContent, Rows
from odin.ui.tui.keys import DialogInput, KeyScope
from odin.ui.tui.paint.sanitize import sanitize
from odin.ui.tui.palette import Palette, get_palette

MIN_HEIGHT = 14

Item = TypeVar("Item")
ConfirmedAction = Callable[[], Awaitable[None]]
EntryAction = Callable[[str], Awaitable[None]]


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
    HORIZONTAL_BREAKPOINTS: list[tuple[int, str]] | None = [(0, "-narrow"), (90, "-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS: list[tuple[int, str]] | None = [(0, "-low"), (18, "-high")]  # noqa: RUF012
    DEFAULT_CSS = """
    PickerDialog > .panel { height: 85%; }
    PickerDialog.-low > .panel { max-height: 100%; height: 100%; }
    PickerDialog .line { height: 1; }
    PickerDialog .line > .title { width: auto; padding-right: 2; }
    PickerDialog .line > DialogInput { width: 1fr; }
    PickerDialog #entry { display: none; }
    PickerDialog.entering #entry { display: block; }
    PickerDialog.entering #filter { display: none; }
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
        self._confirmed_action: ConfirmedAction | None = None
        self._entry_action: EntryAction | None = None
        self._was_in_list = False
        self.rows: Rows[Item] = Rows(self.draw, self._take_field_key)
        self.hints = Hints()
        self.filter = DialogInput(self._take_field_key, "type to filter", id="filter")
        self.entry = DialogInput(self._take_entry_key, "", id="entry")
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
                yield self.entry
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
            "yes": lambda: self._answer(yes=True),
            "no": lambda: self._answer(yes=False),
            "confirm": self._take_entry,
            "back": self._end_entry,
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
        if self._answer_confirmation(event):
            return True
        name = self.find_key_action(event.key)
        if name == "close" and self.filter.has_focus and not self.STARTS_IN_FILTER:
            self.filter.value = ""
            self.rows.focus()
            return True
        return bool(name) and self._perform(name)

    # --- confirmation and text entry ---

    def ask_whether(self, question: str, yes: ConfirmedAction) -> None:
        """Ask the user to confirm before calling `yes`."""
        self._confirmed_action = yes
        keys = self.odin.keys
        self.hints.show([(name, keys.get_label(name), name) for name in ("yes", "no")], question)

    def _answer_confirmation(self, event: events.Key) -> bool:
        if self._confirmed_action is None:
            return False
        self._answer(yes=self.odin.keys.find_action(event.key, "confirm") == "yes")
        return True

    def _answer(self, *, yes: bool) -> None:
        act, self._confirmed_action = self._confirmed_action, None
        self._show_hints()
        if yes and act is not None:
            self._run_and_report(act())

    def ask_for(self, what: str, value: str, entered: EntryAction) -> None:
        """Ask the user for a line of text."""
        self._entry_action = entered
        self._was_in_list = self.focused is self.rows
        self.entry.placeholder = what
        self.entry.value = value
        self.entry.cursor_position = len(value)
        self.add_class("entering")
        self.entry.focus()
        keys = self.odin.keys
        self.hints.show([("confirm", keys.get_label("confirm"), what), ("back", keys.get_label("back"), "cancel")])

    def _take_entry_key(self, event: events.Key) -> bool:
        name = self.odin.keys.find_action(event.key, "step")
        return name in ("confirm", "back") and self._perform(name)

    def _take_entry(self) -> None:
        entered, value = self._entry_action, self.entry.value.strip()
        self._end_entry()
        if entered is not None and value:
            self._run_and_report(entered(value))

    def _end_entry(self) -> None:
        self._entry_action = None
        self.remove_class("entering")
        (self.rows if self._was_in_list else self.filter).focus()
        self._show_hints()

    def action_close(self) -> None:
        if self._entry_action is not None:
            self._end_entry()
        elif self._confirmed_action is not None:
            self._answer(yes=False)
        else:
            self.dismiss(None)

    def _show_hints(self) -> None:
        hints = {"list_choose": self.ENTER_LABEL} if self.ENTER_LABEL else {}
        hints |= self.ACTIONS
        if not self.STARTS_IN_FILTER and self.CAN_FILTER:
            hints["list_narrow"] = "filter"
        label_of, typing = self.odin.keys.get_label, self.STARTS_IN_FILTER
        self.hints.show(
            [(name, label_of(name, typing=typing), label) for name, label in (hints | {"close": "close"}).items()]
        )


class LivePicker(PickerDialog[Item]):
    """A list that observes the session while it is open. `RELOAD_ON` are the events after which it is loaded again."""

    RELOAD_ON: ClassVar[tuple[type, ...]] = ()

    def on_mount(self) -> None:
        super().on_mount()
        self.odin.observers.append(self)

    def on_unmount(self) -> None:
        self.odin.observers.remove(self)

    def enter_session(self, client: Client, info: SessionInfo) -> None:
        self.run_worker(self.reload, group="load", exclusive=True)

    def handle_event(self, envelope: Envelope, live: bool) -> None:
        if live and isinstance(envelope.event, self.RELOAD_ON):
            self.run_worker(partial(self.reload, self.rows.mark), group="load", exclusive=True)

    def draw_frame(self) -> None:
        return None
