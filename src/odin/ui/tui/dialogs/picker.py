"""A list to choose from: type to narrow it, arrows to move, Enter to choose, and what is marked shown beside it."""

from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar, Generic, Literal, TypeVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.containers import Container, Horizontal, Vertical, VerticalScroll
from textual.widgets import Input, Static

from odin.core.errors import OdinError
from odin.ui.tui.dialogs.colours import colours_of
from odin.ui.tui.dialogs.dialog import Dialog
from odin.ui.tui.dialogs.field import Field
from odin.ui.tui.dialogs.hints import Act, Hints
from odin.ui.tui.dialogs.rows import Drawn, Rows
from odin.ui.tui.keys import Where
from odin.ui.tui.paint.foreign import foreign
from odin.ui.tui.palette import Palette

LEAST_HEIGHT = 14

Item = TypeVar("Item")
Yes = Callable[[], Awaitable[None]]
Text_ = Callable[[str], Awaitable[None]]


class Picker(Dialog[str], Generic[Item]):
    """`HEAD` stands above; with `TYPING` the keyboard begins in the line to type in, else in the list.

    A subclass loads its items, says which fit some words, draws one and does what is chosen.
    """

    PLACES: ClassVar[tuple[Where, ...]] = ("list", "dialog")
    HEAD = ""
    EMPTY = "There is nothing here."
    TYPING: ClassVar[bool] = True
    NARROWS: ClassVar[bool] = True
    BESIDE: ClassVar[Literal["always", "where there is room", "never"]] = "where there is room"
    ACTS: ClassVar[tuple[Act, ...]] = ()
    ENTER = "choose"
    HORIZONTAL_BREAKPOINTS: list[tuple[int, str]] | None = [(0, "-narrow"), (90, "-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS: list[tuple[int, str]] | None = [(0, "-low"), (18, "-high")]  # noqa: RUF012
    DEFAULT_CSS = """
    Picker > .panel { height: 85%; }
    Picker.-low > .panel { max-height: 100%; height: 100%; }
    Picker .line { height: 1; }
    Picker .line > .title { width: auto; padding-right: 2; }
    Picker .line > Field { width: 1fr; }
    Picker #entry { display: none; }
    Picker.entering #entry { display: block; }
    Picker.entering #filter { display: none; }
    Picker #body { height: 1fr; layout: horizontal; }
    Picker #beside { width: 45%; padding: 0 1; border-left: solid $primary 40%; scrollbar-size-vertical: 1; }
    Picker.-narrow #body { layout: vertical; }
    Picker.-narrow #beside { width: 100%; height: 40%; border-left: none; border-top: solid $primary 40%; padding: 0; }
    Picker.-narrow.-low #beside { display: none; }
    Picker.-narrow.-low.telling #beside { display: block; height: 4; }
    Picker.alone #beside { display: none; }
    Picker #beside { scrollbar-background: $surface; scrollbar-background-hover: $surface; }
    Picker #about { width: 100%; height: auto; }
    """

    def __init__(self, words: str = "") -> None:
        super().__init__()
        self._words = words
        self._all: Sequence[Item] = ()
        self._loaded = False
        self._yes: Yes | None = None
        self._entered: Text_ | None = None
        self._in_list = False
        self.rows: Rows[Item] = Rows(self.draw, self._key)
        self.hints = Hints()
        self.filter = Field(self._key, "type to narrow the list", id="filter")
        self.entry = Field(self._key_in_entry, "", id="entry")
        self._about = Static("", id="about", markup=False)

    # --- for subclasses ---

    async def load(self) -> Sequence[Item]:
        raise NotImplementedError

    def text_of(self, item: Item) -> str:
        """What the words that are typed are looked for in, in small letters."""
        raise NotImplementedError

    def draw(self, item: Item) -> Drawn:
        raise NotImplementedError

    async def about(self, item: Item) -> Text:
        """What stands beside the list while it is marked."""
        return Text()

    async def choose(self, item: Item) -> None:
        raise NotImplementedError

    async def act(self, name: str, item: Item | None) -> None:
        """Do one of `ACTS`."""

    def narrowed(self, items: Sequence[Item], words: str) -> Sequence[Item]:
        wanted = words.casefold().split()
        if not wanted:
            return items
        return [item for item in items if all(word in self.text_of(item) for word in wanted)]

    # --- the parts ---

    @property
    def colours(self) -> Palette:
        return colours_of(self)

    def compose(self) -> ComposeResult:
        with Vertical(classes="panel"):
            with Horizontal(classes="line"):
                yield Static(self.HEAD, classes="title", markup=False)
                yield self.filter
                yield self.entry
            with Container(id="body"):
                yield self.rows
                with VerticalScroll(id="beside", can_focus=False):
                    yield self._about
            yield self.hints

    def on_mount(self) -> None:
        self.set_class(self.BESIDE == "never", "alone")
        self.set_class(self.BESIDE == "always", "telling")
        if not self.TYPING:
            self.filter.placeholder = f"{self.odin.keys.shown('list_narrow')} to narrow the list"
        self.filter.value = self._words
        self.filter.cursor_position = len(self._words)
        (self.filter if self.TYPING else self.rows).focus()
        self._show_hints()
        self.run_worker(self.reload, group="load", exclusive=True)

    async def reload(self, mark: int = 0) -> None:
        """Load the items anew. What cannot be loaded is said."""
        try:
            self._all = await self.load()
        except OdinError as error:
            self.odin.tell(error.sentence(), "error")
        self._loaded = True
        self.rows.empty = self.EMPTY
        self._find_height()
        self.narrow(mark)

    def _find_height(self) -> None:
        """A short list takes little room. It stays as tall as it is while it is narrowed."""
        wanted = max(len(self._all) + 3, LEAST_HEIGHT)
        low = wanted >= self.size.height * 85 // 100
        self.query_one(".panel").styles.height = None if low else wanted

    def narrow(self, mark: int = 0) -> None:
        """Show those that fit what is typed."""
        self.rows.show(self.narrowed(self._all, self.filter.value), mark)

    @property
    def everything(self) -> Sequence[Item]:
        return self._all

    # --- what happens ---

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input is self.filter and self._loaded:
            self.narrow()

    def on_rows_marked(self) -> None:
        self.run_worker(self._show_about, group="about", exclusive=True)

    async def _show_about(self) -> None:
        item = self.rows.marked
        if item is None:
            self._about.update("")
            return
        try:
            text = await self.about(item)
        except OdinError as error:
            text = Text(foreign(error.sentence()), self.colours.bad)
        self._about.update(text)

    def on_rows_chosen(self) -> None:
        self._choose()

    def action_do(self, name: str) -> None:
        """One of the labels below was clicked."""
        self._do(name)

    def _do(self, name: str) -> bool:
        """What a key or a click means. False when there is no such thing here."""
        if name in {act.name for act in self.ACTS}:
            self._work(self.act(name, self.rows.marked))
            return True
        doing = self._doings().get(name)
        if doing is not None:
            doing()
        return doing is not None

    def _doings(self) -> dict[str, Callable[[], object]]:
        rows = self.rows
        found: dict[str, Callable[[], object]] = {
            "close": self.action_close,
            "yes": lambda: self._answer(yes=True),
            "no": lambda: self._answer(yes=False),
            "confirm": self._take_entry,
            "back": self._end_entry,
            "list_up": lambda: rows.move(-1),
            "list_down": lambda: rows.move(1),
            "list_page_up": lambda: rows.move(-rows.page),
            "list_page_down": lambda: rows.move(rows.page),
            "list_first": lambda: rows.move_to(0),
            "list_last": lambda: rows.move_to(len(rows.items) - 1),
            "list_choose": self._choose,
        }
        if self.NARROWS:
            found["list_narrow"] = self.filter.focus
            found["list_other"] = (rows if self.filter.has_focus else self.filter).focus
        return found

    def _choose(self) -> None:
        item = self.rows.marked
        if item is not None:
            self._work(self.choose(item))

    def _work(self, doing: Awaitable[None]) -> None:
        async def guarded() -> None:
            try:
                await doing
            except OdinError as error:
                self.odin.tell(error.sentence(), "error")

        self.run_worker(guarded, group="work")

    # --- keys ---

    def _key(self, event: events.Key) -> bool:
        if self._question(event):
            return True
        name = self.named(event.key)
        if name == "close" and self.filter.has_focus and not self.TYPING:
            self.filter.value = ""
            self.rows.focus()
            return True
        return bool(name) and self._do(name)

    # --- questions ---

    def ask_whether(self, question: str, yes: Yes) -> None:
        """Do it only when the person says so."""
        self._yes = yes
        keys = self.odin.keys
        self.hints.show([(name, keys.shown(name), name) for name in ("yes", "no")], question)

    def _question(self, event: events.Key) -> bool:
        if self._yes is None:
            return False
        self._answer(yes=self.odin.keys.name(event.key, "confirm") == "yes")
        return True

    def _answer(self, *, yes: bool) -> None:
        act, self._yes = self._yes, None
        self._show_hints()
        if yes and act is not None:
            self._work(act())

    def ask_for(self, what: str, value: str, entered: Text_) -> None:
        """Let the person write a line."""
        self._entered = entered
        self._in_list = self.focused is self.rows
        self.entry.placeholder = what
        self.entry.value = value
        self.entry.cursor_position = len(value)
        self.add_class("entering")
        self.entry.focus()
        keys = self.odin.keys
        self.hints.show([("confirm", keys.shown("confirm"), what), ("back", keys.shown("back"), "leave it")])

    def _key_in_entry(self, event: events.Key) -> bool:
        name = self.odin.keys.name(event.key, "step")
        return name in ("confirm", "back") and self._do(name)

    def _take_entry(self) -> None:
        entered, value = self._entered, self.entry.value.strip()
        self._end_entry()
        if entered is not None and value:
            self._work(entered(value))

    def _end_entry(self) -> None:
        self._entered = None
        self.remove_class("entering")
        (self.rows if self._in_list else self.filter).focus()
        self._show_hints()

    def action_close(self) -> None:
        if self._entered is not None:
            self._end_entry()
        elif self._yes is not None:
            self._answer(yes=False)
        else:
            self.dismiss(None)

    def _show_hints(self) -> None:
        acts = [Act("list_choose", self.ENTER)] if self.ENTER else []
        acts += self.ACTS
        if not self.TYPING and self.NARROWS:
            acts.append(Act("list_narrow", "narrow"))
        keys = self.odin.keys
        acts.append(Act("close", "close"))
        self.hints.show([(act.name, keys.shown(act.name, typing=self.TYPING), act.label) for act in acts])
