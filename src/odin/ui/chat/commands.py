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
from odin.ui.chat.own import UserShellView
from odin.ui.troubles import ErrorLog

HELP_LINES = (
    "/ask, /plan, /edit [TEXT] choose the mode; /editor opens $EDITOR; Ctrl-D or /exit ends.",
    queue.QUEUE_HELP,
    rewind.REWIND_HELP,
    rules.RULES_HELP,
    strictness.PERMISSION_HELP,
    sessions.SESSION_HELP,
    looking.INFO_HELP,
    usage.USAGE_HELP,
    compact.COMPACT_HELP,
    loop.LOOP_HELP,
    custom.CUSTOM_HELP,
    helping.HELP_HELP,
)
MODE_COMMANDS: dict[str, Mode] = {"/ask": "ask_mode", "/plan": "plan_mode", "/edit": "edit_mode"}


class PlainCommands:
    """`mode` is the mode of the next prompt. `coming` is called when a command begins a turn.

    The commands that lead to other sessions are in `switching`; what runs in one session is left behind with it.
    """

    def __init__(self, held: Sessions, permission: str, mode: Mode, err: TextIO, coming: Callable[[], None]) -> None:
        self.mode: Mode = mode
        self.error_log = ErrorLog()
        self.session_commands = sessions.SessionCommands(held, err)
        self._sessions = held
        self._err = err
        self._expect_turn = coming
        self._table: dict[str, Callable[[str, str], Awaitable[None]]] = {
            "/help": self._run_help,
            "/?": self._run_help,
            "/rules": self._run_rules,
            **dict.fromkeys(strictness.PERMISSION_COMMANDS, self._run_permissions),
            **dict.fromkeys(rewind.REWIND_COMMANDS, self._run_rewind),
            **dict.fromkeys(queue.QUEUE_COMMANDS, self._run_queue),
            **dict.fromkeys(compact.COMPACT_COMMANDS, self._run_compact),
            **dict.fromkeys(usage.USAGE_COMMANDS, self._run_usage),
            **dict.fromkeys(loop.LOOP_COMMANDS, self._run_loop),
            **dict.fromkeys(custom.CUSTOM_COMMANDS, self._run_custom),
            **dict.fromkeys(screen.SCREEN_COMMANDS, self._run_screen),
            **looking.InfoCommands(held, self.error_log, err, lambda: self.mode).build_table(),
        }
        self.enter_session(permission)

    def enter_session(self, permission: str) -> None:
        """Another session is open now, in this permission mode."""
        self.permission_mode = strictness.PermissionModeSwitch(self._client, permission)
        self.user_shell, self.compaction = UserShellView(self._err), compact.CompactionView(self._err)
        self._loop_view = loop.LoopView(self._err)

    def list_views_for(self, event: Event) -> list[UserShellView | compact.CompactionView | loop.LoopView]:
        """Who has something to show of it."""
        return [shown for shown in (self.user_shell, self.compaction, self._loop_view) if shown.wants(event)]

    def list_names(self) -> tuple[str, ...]:
        return tuple(self._table)

    def __contains__(self, command: str) -> bool:
        return command in self._table

    async def run(self, command: str, rest: str) -> None:
        await self._table[command](command, rest)

    @property
    def _client(self) -> Client:
        return self._sessions.client

    async def _run_help(self, command: str, rest: str) -> None:
        await helping.run_help_command(self._client, rest, HELP_LINES, self._err)

    async def _run_rules(self, command: str, rest: str) -> None:
        await rules.run_rules_command(self._client, rest, self._err)

    async def _run_permissions(self, command: str, rest: str) -> None:
        await strictness.run_permissions_command(self.permission_mode, command, rest, self._err)

    async def _run_rewind(self, command: str, rest: str) -> None:
        await rewind.run_rewind_command(self._client, command, rest, self._err)

    async def _run_queue(self, command: str, rest: str) -> None:
        if command == "/continue":
            self._expect_turn()
        await queue.run_queue_command(self._client, command, rest, self.mode, self._err)

    async def _run_compact(self, command: str, rest: str) -> None:
        await self.compaction.run_command(self._client, rest)

    async def _run_usage(self, command: str, rest: str) -> None:
        if await usage.run_usage_command(self._client, command, rest, self._err):
            self._expect_turn()
            await self._client.submit(Continue(os.urandom(6).hex()))

    async def _run_loop(self, command: str, rest: str) -> None:
        if rest.split(maxsplit=1)[:1] == ["on"]:
            self._expect_turn()
        await self._loop_view.run_command(self._client, rest, self.mode)

    async def _run_screen(self, command: str, rest: str) -> None:
        await screen.run_screen_command(command, self._err)

    async def _run_custom(self, command: str, rest: str) -> None:
        await custom.run_commands_command(self._client, self._err)
