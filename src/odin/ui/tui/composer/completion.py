"""The list above the composer: what the letters before the cursor may become.

Keeps the list above the composer right while somebody types. Nothing here is waited for by a key.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from rich.style import Style
from rich.text import Text
from textual import events
from textual.geometry import Offset, Region
from textual.message import Message
from textual.widget import Widget

from odin.core.client import Client, CustomCommand
from odin.core.errors import OdinError
from odin.ui.completion import (
    CompletionItem,
    CompletionTarget,
    complete_argument,
    complete_command,
    find_target,
    is_command,
    make_file_items,
)
from odin.ui.terminal import escape_hidden, shorten, width_of
from odin.ui.tui.composer.messages import theme_of

MAX_ROWS = 8
_MIN_COLUMN = 24


class Popup(Widget):
    """Lies over the conversation, so that nothing moves when it comes and goes. The composer has the keys."""

    DEFAULT_CSS = """
    Popup {
        display: none;
        overlay: screen;
        constrain: none inside;
        width: auto;
        height: auto;
        background: $panel;
        color: $foreground;
    }
    """

    class Chosen(Message):
        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.choices: Sequence[CompletionItem] = ()
        self.at = 0
        self._max_width = 80
        self._anchor_region = Region()

    @property
    def open(self) -> bool:
        return bool(self.choices)

    @property
    def selected(self) -> CompletionItem | None:
        return self.choices[self.at] if self.choices else None

    def offer(self, choices: Sequence[CompletionItem], above: Region, *, again: bool) -> None:
        """Show these above that part of the screen. `again`: for the same letters; what was chosen stays chosen."""
        before = self.selected if again and self.at else None
        self.choices = choices
        self.at = next((at for at, choice in enumerate(choices) if before and choice.label == before.label), 0)
        self.follow(above)

    def follow(self, above: Region) -> None:
        """That part of the screen is elsewhere, or of another size."""
        self._anchor_region = above
        self._max_width = max(above.width - 2, 20)
        self._update_position()

    def close(self) -> None:
        if self.choices:
            self.choices = ()
            self.display = False

    def move(self, by: int) -> None:
        if self.choices:
            self.at = (self.at + by) % len(self.choices)
            self.refresh(layout=True)

    def _update_position(self) -> None:
        self.display = bool(self.choices)
        if self.choices:
            rows = min(len(self.choices), self._rows)
            self.absolute_offset = Offset(self._anchor_region.x + 1, max(self._anchor_region.y - rows, 0))
            self.refresh(layout=True)

    @property
    def _rows(self) -> int:
        return max(1, min(MAX_ROWS, self._anchor_region.y))

    def _compute_window(self) -> range:
        rows = self._rows
        first = min(max(self.at - rows + 1, 0), max(len(self.choices) - rows, 0))
        return range(first, min(first + rows, len(self.choices)))

    def render(self) -> Text:
        theme = theme_of(self)
        names = [
            width_of(escape_hidden(self.choices[at].label)) + width_of(self.choices[at].hint) + 1
            for at in self._compute_window()
        ]
        column = min(max(names, default=0), max(self._max_width * 2 // 5, _MIN_COLUMN))
        lines = [self._format_row(at, column) for at in self._compute_window()]
        for at, line in zip(self._compute_window(), lines, strict=True):
            line.pad_right(self._max_width - line.cell_len)
            if at == self.at:
                line.stylize(Style(bgcolor=theme.surface, bold=True))
        return Text("\n", no_wrap=True, end="").join(lines)

    def _format_row(self, at: int, column: int) -> Text:
        choice, theme = self.choices[at], theme_of(self)
        dim = Style(dim=True)
        line = Text(no_wrap=True, end="").append("› " if at == self.at else "  ", Style(color=theme.accent))
        name = shorten(escape_hidden(choice.label), max(self._max_width - 3, 8))
        line.append(name, Style(color=theme.primary if at == self.at else theme.foreground))
        if choice.hint:
            line.append(f" {escape_hidden(choice.hint)}", dim)
            if choice.help:
                line.truncate(max(column + 2, width_of(name) + 2), overflow="ellipsis")
        if choice.help:
            line.append(" " * max(column + 4 - line.cell_len, 2))
            line.append(escape_hidden(choice.help), dim)
        line.truncate(self._max_width - 1, overflow="ellipsis")
        return line

    def on_click(self, event: events.Click) -> None:
        event.stop()
        window = self._compute_window()
        if 0 <= event.y < len(window):
            self.post_message(self.Chosen(window[event.y]))


QueryResult = TypeVar("QueryResult")

MAX_FILES = 20
_RETRY_DELAYS_S = (0.2, 0.4, 0.8, 1.6)
"""When the same question is asked again: the project is still being looked through the first time."""


class ShowItems(Protocol):
    """Shows choices, or nothing; `again` says that they are for the same letters as those before."""

    def __call__(self, choices: Sequence[CompletionItem], *, again: bool) -> None: ...


class ComposerCompleter:
    """`offer` is called at once, or when an answer has come that is still wanted."""

    def __init__(self, offer: ShowItems) -> None:
        self._offer = offer
        self._client: Client | None = None
        self._file_task: asyncio.Task[None] | None = None
        self._command_task: asyncio.Task[None] | None = None
        self._custom_commands: Sequence[CustomCommand] = ()
        self.target: CompletionTarget | None = None

    def enter_session(self, client: Client) -> None:
        """Another session: its files, its commands."""
        self._client = client
        self._custom_commands = ()
        self.close()
        self._refresh_commands()

    def update(self, line: str, column: int, *, first: bool) -> None:
        """The cursor stands there now, because something was typed."""
        want = find_target(line, column, first=first)
        if want == self.target:
            return
        if want is not None and want.kind == "command" and (self.target is None or self.target.kind != "command"):
            self._refresh_commands()
        self._stop()
        self.target = want
        if want is None:
            self._offer((), again=False)
        elif want.kind == "file":
            self._file_task = asyncio.create_task(self._find_files(want.letters))
        else:
            self._offer(self._match_locally(want), again=False)

    def close(self) -> None:
        self._stop()
        self.target = None
        self._offer((), again=False)

    def is_complete(self) -> bool:
        """Whether what is typed is a whole command already."""
        want = self.target
        return want is not None and want.kind == "command" and is_command(want.letters, self._custom_commands)

    def _match_locally(self, want: CompletionTarget) -> Sequence[CompletionItem]:
        return (
            complete_command(want.letters, self._custom_commands) if want.kind == "command" else complete_argument(want)
        )

    async def _find_files(self, letters: str) -> None:
        """What is known now, and what else is found in the next moments."""
        shown: tuple[str, ...] | None = None
        for pause in (*_RETRY_DELAYS_S, 0.0):
            found = await self._query(lambda client: client.find_files(letters, MAX_FILES))
            if found != shown:
                self._offer(make_file_items(found), again=shown is not None)
                shown = found
            await asyncio.sleep(pause)

    def _refresh_commands(self) -> None:
        """Custom commands can come and go while the app runs."""
        if self._command_task is None or self._command_task.done():
            self._command_task = asyncio.create_task(self._load_commands())

    async def _load_commands(self) -> None:
        found = await self._query(lambda client: client.list_commands())
        if found != self._custom_commands:
            self._custom_commands = found
            if self.target is not None and self.target.kind == "command":
                self._offer(self._match_locally(self.target), again=True)

    async def _query(self, query: Callable[[Client], Awaitable[tuple[QueryResult, ...]]]) -> tuple[QueryResult, ...]:
        if self._client is not None:
            with contextlib.suppress(OdinError, OSError):
                return await query(self._client)
        return ()

    def _stop(self) -> None:
        if self._file_task is not None:
            self._file_task.cancel()
            self._file_task = None
