"""`/new`, `/resume`, `/fork` and the other commands of a conversation that are about sessions.

The commands of a conversation, in one table: what a person can do there besides asking.
"""

import os
from collections.abc import Awaitable, Callable
from typing import TextIO

from odin.core.client import Client, Sessions
from odin.core.errors import OdinError, UsageError
from odin.core.event import Event, Mode
from odin.core.op import Continue
from odin.ui.plain import info_commands, work_commands
from odin.ui.plain.work_commands import UserShellView
from odin.ui.slash_commands.diagnostics import ErrorLog
from odin.ui.slash_commands.sessions import (
    MAX_SESSIONS_LISTED,
    PlainSessionPicker,
    filter_sessions,
    format_match,
    format_session,
    parse_export,
)
from odin.ui.terminal import escape_hidden, size_of, write_line

SESSION_COMMANDS = ("/new", "/clear", "/resume", "/fork", "/sessions", "/rename", "/title", "/delete", "/export")
SESSION_HELP = (
    "/new begins a session, /resume goes to an earlier one, /fork [N] to a copy; /sessions, /rename, /delete, /export."
)


class SessionCommands:
    """Does what was typed. `choosing` says that the next line answers the list that /resume showed."""

    def __init__(self, sessions: Sessions, err: TextIO) -> None:
        self._sessions = sessions
        self._err = err
        self._picker: PlainSessionPicker | None = None

    @property
    def is_choosing(self) -> bool:
        return self._picker is not None

    async def run_command(self, command: str, rest: str) -> str:
        """Gives the prompt that a fork left out, to be changed and sent again. A failure only is said."""
        try:
            return await self._dispatch(command, rest.strip())
        except OdinError as error:
            write_line(self._err, error.describe())
            return ""

    async def choose_session(self, typed: str) -> None:
        """The line after /resume."""
        picker, self._picker = self._picker, None
        chosen = picker.parse_choice(typed) if picker is not None else ""
        if chosen is None:
            self._picker = picker
            self._show_picker()
        elif chosen:
            await self.run_command("/resume", chosen)

    async def _dispatch(self, command: str, rest: str) -> str:
        if command in ("/new", "/clear"):
            await self._sessions.open_new()
            write_line(self._err, f"A new session: {await self._get_session_id()}")
        elif command == "/resume":
            await self._resume(rest)
        elif command == "/fork":
            return await self._fork(rest)
        elif command == "/sessions":
            await self._list(rest)
        elif command in ("/rename", "/title"):
            await self._rename(rest)
        elif command == "/delete":
            await self._delete(rest)
        else:
            await self._export(rest.split())
        return ""

    async def _get_session_id(self) -> str:
        return (await self._sessions.client.get_info()).session

    async def _resume(self, session: str) -> None:
        if not session:
            here = await self._get_session_id()
            self._picker = PlainSessionPicker(
                [item for item in await self._sessions.list_sessions() if item.id != here]
            )
            self._show_picker()
            return
        await self._sessions.resume(session)
        await self.tell_resumed()

    async def tell_resumed(self) -> None:
        """Say where the conversation goes on, when it is not a new one."""
        shot = await self._sessions.client.snapshot()
        if shot.messages:
            count = "1 prompt" if len(shot.messages) == 1 else f"{len(shot.messages)} prompts"
            write_line(self._err, f"Resumed {await self._get_session_id()}: {shot.title or '(no title)'}, {count}")

    def _show_picker(self) -> None:
        picker = self._picker
        if picker is None:
            return
        for row in picker.format_lines(self._get_columns()):
            write_line(self._err, row)
        if picker.is_empty:
            self._picker = None

    async def _fork(self, at: str) -> str:
        turn = ""
        if at:
            turns = (await self._sessions.client.snapshot()).messages
            if not at.isdecimal() or not 1 <= int(at) <= len(turns):
                raise UsageError(
                    f"There is no prompt number {at} to fork at.", "/rewind lists them; 1 is the last one."
                )
            turn = turns[-int(at)].id
        _, draft = await self._sessions.fork(turn)
        write_line(self._err, f"This is now a copy: {await self._get_session_id()}. The original stays as it was.")
        return draft

    async def _list(self, words: str) -> None:
        columns, here = self._get_columns(), await self._get_session_id()
        if words:
            found = await self._sessions.search(words)
            rows = [row for match in found[:MAX_SESSIONS_LISTED] for row in format_match(match, columns, here)]
        else:
            found = await self._sessions.list_sessions()
            rows = [format_session(item, columns, here) for item in found[:MAX_SESSIONS_LISTED]]
        for row in rows or ["No session fits these words." if words else "No sessions yet."]:
            write_line(self._err, row)
        if len(found) > MAX_SESSIONS_LISTED:
            write_line(self._err, f"and {len(found) - MAX_SESSIONS_LISTED} more; see `odin sessions`")

    async def _rename(self, title: str) -> None:
        if not title:
            raise UsageError("/rename needs a title.", "Write /rename TITLE.")
        await self._sessions.rename(await self._get_session_id(), title)
        write_line(self._err, f"This session is now called {title}")

    async def _delete(self, session: str) -> None:
        if not session:
            raise UsageError("/delete needs the id of a session.", "/sessions lists them.")
        found = await self._sessions.list_sessions()
        if any(item.id == session for item in found):
            await self._sessions.delete(session)
            write_line(self._err, f"Deleted session {session}.")
            return
        fitting = filter_sessions(found, session)
        if len(fitting) != 1:
            raise UsageError(f"There is no session {session}.", "/sessions lists them.")
        write_line(self._err, format_session(fitting[0], self._get_columns(), await self._get_session_id()))
        write_line(self._err, f"Write /delete {fitting[0].id} to delete it for good.")

    async def _export(self, words: list[str]) -> None:
        form, path = parse_export(words)
        written = await self._sessions.export(await self._get_session_id(), form, path)
        write_line(self._err, f"Written to {escape_hidden(written)}")

    def _get_columns(self) -> int:
        return size_of(self._err)[0] if self._err.isatty() else 100


HELP_LINES = (
    "/ask, /plan, /edit [TEXT] choose the mode; /editor opens $EDITOR; Ctrl-D or /exit ends.",
    work_commands.QUEUE_HELP,
    work_commands.REWIND_HELP,
    work_commands.RULES_HELP,
    work_commands.PERMISSION_HELP,
    SESSION_HELP,
    info_commands.INFO_HELP,
    info_commands.USAGE_HELP,
    work_commands.COMPACT_HELP,
    work_commands.LOOP_HELP,
    info_commands.CUSTOM_HELP,
    info_commands.HELP_HELP,
)
MODE_COMMANDS: dict[str, Mode] = {"/ask": "ask_mode", "/plan": "plan_mode", "/edit": "edit_mode"}


class PlainCommands:
    """`mode` is the mode of the next prompt. `coming` is called when a command begins a turn.

    The commands that lead to other sessions are in `switching`; what runs in one session is left behind with it.
    """

    def __init__(self, held: Sessions, permission: str, mode: Mode, err: TextIO, coming: Callable[[], None]) -> None:
        self.mode: Mode = mode
        self.error_log = ErrorLog()
        self.session_commands = SessionCommands(held, err)
        self._sessions = held
        self._err = err
        self._expect_turn = coming
        self._table: dict[str, Callable[[str, str], Awaitable[None]]] = {
            "/help": self._run_help,
            "/?": self._run_help,
            "/rules": self._run_rules,
            **dict.fromkeys(work_commands.PERMISSION_COMMANDS, self._run_permissions),
            **dict.fromkeys(work_commands.REWIND_COMMANDS, self._run_rewind),
            **dict.fromkeys(work_commands.QUEUE_COMMANDS, self._run_queue),
            **dict.fromkeys(work_commands.COMPACT_COMMANDS, self._run_compact),
            **dict.fromkeys(info_commands.USAGE_COMMANDS, self._run_usage),
            **dict.fromkeys(work_commands.LOOP_COMMANDS, self._run_loop),
            **dict.fromkeys(info_commands.CUSTOM_COMMANDS, self._run_custom),
            **dict.fromkeys(info_commands.SCREEN_COMMANDS, self._run_screen),
            **info_commands.InfoCommands(held, self.error_log, err, lambda: self.mode).build_table(),
        }
        self.enter_session(permission)

    def enter_session(self, permission: str) -> None:
        """Another session is open now, in this permission mode."""
        self.permission_mode = work_commands.PermissionModeSwitch(self._client, permission)
        self.user_shell, self.compaction = UserShellView(self._err), work_commands.CompactionView(self._err)
        self._loop_view = work_commands.LoopView(self._err)

    def list_views_for(
        self, event: Event
    ) -> list[UserShellView | work_commands.CompactionView | work_commands.LoopView]:
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
        await info_commands.run_help_command(self._client, rest, HELP_LINES, self._err)

    async def _run_rules(self, command: str, rest: str) -> None:
        await work_commands.run_rules_command(self._client, rest, self._err)

    async def _run_permissions(self, command: str, rest: str) -> None:
        await work_commands.run_permissions_command(self.permission_mode, command, rest, self._err)

    async def _run_rewind(self, command: str, rest: str) -> None:
        await work_commands.run_rewind_command(self._client, command, rest, self._err)

    async def _run_queue(self, command: str, rest: str) -> None:
        if command == "/continue":
            self._expect_turn()
        await work_commands.run_queue_command(self._client, command, rest, self.mode, self._err)

    async def _run_compact(self, command: str, rest: str) -> None:
        await self.compaction.run_command(self._client, rest)

    async def _run_usage(self, command: str, rest: str) -> None:
        if await info_commands.run_usage_command(self._client, command, rest, self._err):
            self._expect_turn()
            await self._client.submit(Continue(os.urandom(6).hex()))

    async def _run_loop(self, command: str, rest: str) -> None:
        if rest.split(maxsplit=1)[:1] == ["on"]:
            self._expect_turn()
        await self._loop_view.run_command(self._client, rest, self.mode)

    async def _run_screen(self, command: str, rest: str) -> None:
        await info_commands.run_screen_command(command, self._err)

    async def _run_custom(self, command: str, rest: str) -> None:
        await info_commands.run_commands_command(self._client, self._err)
