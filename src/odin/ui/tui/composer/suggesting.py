"""Keeps the list above the composer right while somebody types. Nothing here is waited for by a key."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from odin.core.client import Client, CustomCommand
from odin.core.errors import OdinError
from odin.ui.completing import Choice, Wanted, arguments, commands, files, is_command, wanted

Found = TypeVar("Found")

MOST_FILES = 20
_AGAIN_S = (0.2, 0.4, 0.8, 1.6)
"""When the same question is asked again: the project is still being looked through the first time."""


class Offer(Protocol):
    """Shows choices, or nothing; `again` says that they are for the same letters as those before."""

    def __call__(self, choices: Sequence[Choice], *, again: bool) -> None: ...


class Suggesting:
    """`offer` is called at once, or when an answer has come that is still wanted."""

    def __init__(self, offer: Offer) -> None:
        self._offer = offer
        self._client: Client | None = None
        self._asking: asyncio.Task[None] | None = None
        self._learning: asyncio.Task[None] | None = None
        self._custom: Sequence[CustomCommand] = ()
        self.wanted: Wanted | None = None

    def enter(self, client: Client) -> None:
        """Another session: its files, its commands."""
        self._client = client
        self._custom = ()
        self.close()
        self._learn()

    def update(self, line: str, column: int, *, first: bool) -> None:
        """The cursor stands there now, because something was typed."""
        want = wanted(line, column, first=first)
        if want == self.wanted:
            return
        if want is not None and want.kind == "command" and (self.wanted is None or self.wanted.kind != "command"):
            self._learn()
        self._stop()
        self.wanted = want
        if want is None:
            self._offer((), again=False)
        elif want.kind == "file":
            self._asking = asyncio.create_task(self._ask(want.letters))
        else:
            self._offer(self._at_once(want), again=False)

    def close(self) -> None:
        self._stop()
        self.wanted = None
        self._offer((), again=False)

    def complete(self) -> bool:
        """Whether what is typed is a whole command already."""
        want = self.wanted
        return want is not None and want.kind == "command" and is_command(want.letters, self._custom)

    def _at_once(self, want: Wanted) -> Sequence[Choice]:
        return commands(want.letters, self._custom) if want.kind == "command" else arguments(want)

    async def _ask(self, letters: str) -> None:
        """What is known now, and what else is found in the next moments."""
        shown: tuple[str, ...] | None = None
        for pause in (*_AGAIN_S, 0.0):
            found = await self._answered(lambda client: client.find_files(letters, MOST_FILES))
            if found != shown:
                self._offer(files(found), again=shown is not None)
                shown = found
            await asyncio.sleep(pause)

    def _learn(self) -> None:
        """Custom commands can come and go while the app runs."""
        if self._learning is None or self._learning.done():
            self._learning = asyncio.create_task(self._learned())

    async def _learned(self) -> None:
        found = await self._answered(lambda client: client.commands())
        if found != self._custom:
            self._custom = found
            if self.wanted is not None and self.wanted.kind == "command":
                self._offer(self._at_once(self.wanted), again=True)

    async def _answered(self, query: Callable[[Client], Awaitable[tuple[Found, ...]]]) -> tuple[Found, ...]:
        if self._client is not None:
            with contextlib.suppress(OdinError, OSError):
                return await query(self._client)
        return ()

    def _stop(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None
