"""The completion popup above the composer, and the completer that fills it.

Files and custom commands are looked up in background tasks, so a key never waits for completion.
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

from odin.core.client import AgentSummary, Client, CustomCommand, SubAgentRecord
from odin.core.errors import OdinError
from odin.core.team import TaskRecord
from odin.ui.completion import (
    CompletionItem,
    CompletionTarget,
    complete_argument,
    complete_command,
    find_target,
    is_command,
    make_file_items,
)
from odin.ui.slash_commands.agents import list_team
from odin.ui.terminal import escape_hidden, measure_width, shorten
from odin.ui.tui.palette import get_theme

MAX_ROWS = 8
_MIN_COLUMN = 24


class Popup(Widget):
    """An overlay above the composer, so that opening it moves nothing. The composer keeps the focus and the keys."""

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
        """Show the choices above a region. `again`: they are for the same letters, so the selection is kept."""
        before = self.selected if again and self.at else None
        self.choices = choices
        self.at = next((at for at, choice in enumerate(choices) if before and choice.label == before.label), 0)
        self.follow(above)

    def follow(self, above: Region) -> None:
        """Adjust to the new position or size of the region below."""
        self._anchor_region = above
        self._max_width = max(above.width - 2, 20)
        self.display = bool(self.choices)
        if self.choices:
            rows = len(self._compute_window()) + bool(self._hidden_count)
            self.absolute_offset = Offset(self._anchor_region.x + 1, max(self._anchor_region.y - rows, 0))
            self.refresh(layout=True)

    def close(self) -> None:
        if self.choices:
            self.choices = ()
            self.display = False

    def move(self, by: int) -> None:
        if self.choices:
            self.at = (self.at + by) % len(self.choices)
            self.refresh(layout=True)

    @property
    def _rows(self) -> int:
        return max(1, min(MAX_ROWS, self._anchor_region.y - 1))

    @property
    def _hidden_count(self) -> int:
        return len(self.choices) - len(self._compute_window())

    def _compute_window(self) -> range:
        rows = self._rows
        first = min(max(self.at - rows + 1, 0), max(len(self.choices) - rows, 0))
        return range(first, min(first + rows, len(self.choices)))

    def render(self) -> Text:
        theme = get_theme(self)
        names = [
            measure_width(escape_hidden(self.choices[at].label)) + measure_width(self.choices[at].hint) + 1
            for at in self._compute_window()
        ]
        column = min(max(names, default=0), max(self._max_width * 2 // 5, _MIN_COLUMN))
        lines = [self._format_row(at, column) for at in self._compute_window()]
        for at, line in zip(self._compute_window(), lines, strict=True):
            line.pad_right(self._max_width - line.cell_len)
            if at == self.at:
                line.stylize(Style(bgcolor=theme.surface, bold=True))
        if count := self._hidden_count:
            lines.append(Text(f"  {count} more: type some letters, or use Up and Down", Style(dim=True), no_wrap=True))
            lines[-1].truncate(self._max_width - 1, overflow="ellipsis")
        return Text("\n", no_wrap=True, end="").join(lines)

    def _format_row(self, at: int, column: int) -> Text:
        choice, theme = self.choices[at], get_theme(self)
        dim = Style(dim=True)
        line = Text(no_wrap=True, end="").append("› " if at == self.at else "  ", Style(color=theme.accent))
        name = shorten(escape_hidden(choice.label), max(self._max_width - 3, 8))
        line.append(name, Style(color=theme.primary if at == self.at else theme.foreground))
        if choice.hint:
            line.append(f" {escape_hidden(choice.hint)}", dim)
            if choice.help:
                line.truncate(max(column + 2, measure_width(name) + 2), overflow="ellipsis")
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
"""Delays before searching again; the path index may still be incomplete."""


class ShowItems(Protocol):
    """Shows completion items, or hides the popup if empty. `again`: the letters are unchanged."""

    def __call__(self, items: Sequence[CompletionItem], *, again: bool) -> None: ...


class ComposerCompleter:
    """Finds completion items for the word at the cursor and passes them to `offer`, now or when they arrive."""

    def __init__(self, offer: ShowItems) -> None:
        self._offer = offer
        self._client: Client | None = None
        self._file_task: asyncio.Task[None] | None = None
        self._command_task: asyncio.Task[None] | None = None
        self._custom_commands: Sequence[CustomCommand] = ()
        self._agents: Sequence[AgentSummary] = ()
        self._team: Sequence[SubAgentRecord | TaskRecord] = ()
        self.target: CompletionTarget | None = None

    def enter_session(self, client: Client) -> None:
        """Use the files and custom commands of another session."""
        self._client = client
        self._custom_commands = ()
        self.close()
        self._refresh_commands()

    def update(self, line: str, column: int, *, first: bool) -> None:
        """Complete the word at this column of the line. `first`: it is the first line of the prompt."""
        target = find_target(line, column, first=first)
        if target == self.target:
            return
        if target is not None and target.kind != "file" and (self.target is None or self.target.kind == "file"):
            self._refresh_commands()
        self._stop()
        self.target = target
        if target is None:
            self._offer((), again=False)
        elif target.kind == "file":
            self._file_task = asyncio.create_task(self._find_files(target.letters))
        else:
            self._offer(self._match_locally(target), again=False)

    def close(self) -> None:
        self._stop()
        self.target = None
        self._offer((), again=False)

    def is_complete(self) -> bool:
        """True if the typed word is the full name of a command."""
        target = self.target
        return target is not None and target.kind == "command" and is_command(target.letters, self._custom_commands)

    def _match_locally(self, target: CompletionTarget) -> Sequence[CompletionItem]:
        if target.kind == "command":
            return complete_command(target.letters, self._custom_commands)
        return complete_argument(target, self._agents, self._team)

    async def _find_files(self, letters: str) -> None:
        """Show matching files now, and again as the path index grows."""
        shown: tuple[str, ...] | None = None
        for pause in (*_RETRY_DELAYS_S, 0.0):
            paths = await self._query(lambda client: client.find_files(letters, MAX_FILES))
            if paths != shown:
                self._offer(make_file_items(paths), again=shown is not None)
                shown = paths
            await asyncio.sleep(pause)

    def _refresh_commands(self) -> None:
        """Reload the custom commands, which can change while the app runs, the roles and the sub-agents."""
        if self._command_task is None or self._command_task.done():
            self._command_task = asyncio.create_task(self._load_commands())

    async def _load_commands(self) -> None:
        known = (self._team, self._agents, self._custom_commands)
        self._team = await self._query(list_team)
        self._agents = await self._query(lambda client: client.list_agents())
        self._custom_commands = await self._query(lambda client: client.list_commands())
        is_new = known != (self._team, self._agents, self._custom_commands)
        if is_new and self.target is not None and self.target.kind != "file":
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
