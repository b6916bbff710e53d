"""The commands of a conversation, in one table: what a person can do there besides asking."""

import os
from collections.abc import Awaitable, Callable
from typing import TextIO

from odin.core.client import Client
from odin.core.event import Event, Mode
from odin.core.op import Continue
from odin.core.sessions import Sessions
from odin.ui.chat import (
    compact,
    custom,
    helping,
    looking,
    loop,
    queue,
    rewind,
    rules,
    screen,
    sessions,
    strictness,
    usage,
)
from odin.ui.chat.own import OwnCommands
from odin.ui.troubles import Troubles

HELP = (
    "/ask, /plan, /edit [TEXT] choose the mode; /editor opens $EDITOR; Ctrl-D or /exit ends.",
    queue.HELP,
    rewind.HELP,
    rules.HELP,
    strictness.HELP,
    sessions.HELP,
    looking.HELP,
    usage.HELP,
    compact.HELP,
    loop.HELP,
    custom.HELP,
    helping.HELP,
)
MODES: dict[str, Mode] = {"/ask": "ask_mode", "/plan": "plan_mode", "/edit": "edit_mode"}


class Commands:
    """`mode` is the mode of the next prompt. `coming` is called when a command begins a turn.

    The commands that lead to other sessions are in `switching`; what runs in one session is left behind with it.
    """

    def __init__(self, held: Sessions, permission: str, mode: Mode, err: TextIO, coming: Callable[[], None]) -> None:
        self.mode: Mode = mode
        self.troubles = Troubles()
        self.switching = sessions.SessionCommands(held, err)
        self._sessions = held
        self._err = err
        self._coming = coming
        self._table: dict[str, Callable[[str, str], Awaitable[None]]] = {
            "/help": self._help,
            "/?": self._help,
            "/rules": self._rules,
            **dict.fromkeys(strictness.COMMANDS, self._permissions),
            **dict.fromkeys(rewind.COMMANDS, self._rewind),
            **dict.fromkeys(queue.COMMANDS, self._queue),
            **dict.fromkeys(compact.COMMANDS, self._compact),
            **dict.fromkeys(usage.COMMANDS, self._usage),
            **dict.fromkeys(loop.COMMANDS, self._loop),
            **dict.fromkeys(custom.COMMANDS, self._custom),
            **dict.fromkeys(screen.COMMANDS, self._screen),
            **looking.Looking(held, self.troubles, err, lambda: self.mode).table(),
        }
        self.enter(permission)

    def enter(self, permission: str) -> None:
        """Another session is open now, in this permission mode."""
        self.strictness = strictness.Strictness(self._client, permission)
        self.own, self.summaries = OwnCommands(self._err), compact.Summaries(self._err)
        self._loops = loop.Loops(self._err)

    def showing(self, event: Event) -> list[OwnCommands | compact.Summaries | loop.Loops]:
        """Who has something to show of it."""
        return [shown for shown in (self.own, self.summaries, self._loops) if shown.concerns(event)]

    def names(self) -> tuple[str, ...]:
        return tuple(self._table)

    def __contains__(self, command: str) -> bool:
        return command in self._table

    async def run(self, command: str, rest: str) -> None:
        await self._table[command](command, rest)

    @property
    def _client(self) -> Client:
        return self._sessions.client

    async def _help(self, command: str, rest: str) -> None:
        await helping.help_command(self._client, rest, HELP, self._err)

    async def _rules(self, command: str, rest: str) -> None:
        await rules.rules_command(self._client, rest, self._err)

    async def _permissions(self, command: str, rest: str) -> None:
        await strictness.permissions_command(self.strictness, command, rest, self._err)

    async def _rewind(self, command: str, rest: str) -> None:
        await rewind.go_back(self._client, command, rest, self._err)

    async def _queue(self, command: str, rest: str) -> None:
        if command == "/continue":
            self._coming()
        await queue.queue_command(self._client, command, rest, self.mode, self._err)

    async def _compact(self, command: str, rest: str) -> None:
        await self.summaries.command(self._client, rest)

    async def _usage(self, command: str, rest: str) -> None:
        if await usage.usage_command(self._client, command, rest, self._err):
            self._coming()
            await self._client.submit(Continue(os.urandom(6).hex()))

    async def _loop(self, command: str, rest: str) -> None:
        if rest.split(maxsplit=1)[:1] == ["on"]:
            self._coming()
        await self._loops.command(self._client, rest, self.mode)

    async def _screen(self, command: str, rest: str) -> None:
        await screen.screen_command(command, self._err)

    async def _custom(self, command: str, rest: str) -> None:
        await custom.commands_command(self._client, self._err)
