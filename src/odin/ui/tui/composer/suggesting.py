"""Keeps the list above the composer right while somebody types. Nothing here is waited for by a key."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from odin.core.client import Client, CustomCommand
from odin.core.errors import OdinError
from odin.ui.completing import (
    CompletionItem,
    CompletionTarget,
    complete_argument,
    complete_command,
    find_target,
    is_command,
    make_file_items,
)

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
