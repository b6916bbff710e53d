"""`/new`, `/resume`, `/fork` and the other commands of a conversation that are about sessions."""

from typing import TextIO

from odin.core.errors import OdinError, UsageError
from odin.core.sessions import Sessions
from odin.ui.commands.exporting import wanted_export
from odin.ui.picking import LISTED, Picker, line, match_lines, narrowed
from odin.ui.terminal import say, size_of, visible

COMMANDS = ("/new", "/clear", "/resume", "/fork", "/sessions", "/rename", "/title", "/delete", "/export")
HELP = (
    "/new begins a session, /resume goes to an earlier one, /fork [N] to a copy; /sessions, /rename, /delete, /export."
)


class SessionCommands:
    """Does what was typed. `choosing` says that the next line answers the list that /resume showed."""

    def __init__(self, sessions: Sessions, err: TextIO) -> None:
        self._sessions = sessions
        self._err = err
        self._picker: Picker | None = None

    @property
    def choosing(self) -> bool:
        return self._picker is not None

    async def command(self, command: str, rest: str) -> str:
        """Gives the prompt that a fork left out, to be changed and sent again. A failure only is said."""
        try:
            return await self._do(command, rest.strip())
        except OdinError as error:
            say(self._err, error.sentence())
            return ""

    async def choose(self, typed: str) -> None:
        """The line after /resume."""
        picker, self._picker = self._picker, None
        chosen = picker.take(typed) if picker is not None else ""
        if chosen is None:
            self._picker = picker
            self._show()
        elif chosen:
            await self.command("/resume", chosen)

    async def _do(self, command: str, rest: str) -> str:
        if command in ("/new", "/clear"):
            await self._sessions.new()
            say(self._err, f"A new session: {await self._id()}")
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

    async def _id(self) -> str:
        return (await self._sessions.client.info()).session

    async def _resume(self, session: str) -> None:
        if not session:
            here = await self._id()
            self._picker = Picker([item for item in await self._sessions.list() if item.id != here])
            self._show()
            return
        await self._sessions.resume(session)
        await self.tell_resumed()

    async def tell_resumed(self) -> None:
        """Say where the conversation goes on, when it is not a new one."""
        shot = await self._sessions.client.snapshot()
        if shot.messages:
            count = "1 prompt" if len(shot.messages) == 1 else f"{len(shot.messages)} prompts"
            say(self._err, f"Resumed {await self._id()}: {shot.title or '(no title)'}, {count}")

    def _show(self) -> None:
        picker = self._picker
        if picker is None:
            return
        for row in picker.lines(self._columns()):
            say(self._err, row)
        if picker.empty:
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
        say(self._err, f"This is now a copy: {await self._id()}. The original stays as it was.")
        return draft

    async def _list(self, words: str) -> None:
        columns, here = self._columns(), await self._id()
        if words:
            found = await self._sessions.search(words)
            rows = [row for match in found[:LISTED] for row in match_lines(match, columns, here)]
        else:
            found = await self._sessions.list()
            rows = [line(item, columns, here) for item in found[:LISTED]]
        for row in rows or ["No session fits these words." if words else "No sessions yet."]:
            say(self._err, row)
        if len(found) > LISTED:
            say(self._err, f"and {len(found) - LISTED} more; see `odin sessions`")

    async def _rename(self, title: str) -> None:
        if not title:
            raise UsageError("/rename needs a title.", "Write /rename TITLE.")
        await self._sessions.rename(await self._id(), title)
        say(self._err, f"This session is now called {title}")

    async def _delete(self, session: str) -> None:
        if not session:
            raise UsageError("/delete needs the id of a session.", "/sessions lists them.")
        found = await self._sessions.list()
        if any(item.id == session for item in found):
            await self._sessions.delete(session)
            say(self._err, f"Deleted session {session}.")
            return
        fitting = narrowed(found, session)
        if len(fitting) != 1:
            raise UsageError(f"There is no session {session}.", "/sessions lists them.")
        say(self._err, line(fitting[0], self._columns(), await self._id()))
        say(self._err, f"Write /delete {fitting[0].id} to delete it for good.")

    async def _export(self, words: list[str]) -> None:
        form, path = wanted_export(words)
        written = await self._sessions.export(await self._id(), form, path)
        say(self._err, f"Written to {visible(written)}")

    def _columns(self) -> int:
        return size_of(self._err)[0] if self._err.isatty() else 100
