"""Slash commands of the page: those of plain mode, in the name and with the right of the client that typed them.

A command reaches the session through `DirectConnection`, which answers each endpoint as the server would answer that
client over HTTP. So nothing here decides who may do what.
"""

import io
import os
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec.structs import replace

from odin.core.client import Client, SessionInfo
from odin.core.errors import UsageError
from odin.core.format import clip
from odin.core.op import Prompt, Redo
from odin.core.slash_commands import SLASH_COMMANDS, find_slash_command
from odin.core.text import suggest_similar
from odin.remote.connection import Connection
from odin.remote.protocol import ENDPOINTS, ApiEndpoint, CommandAnswer, CommandRequest
from odin.remote.sessions import RemoteSessions
from odin.ui.plain.commands import MODES, PlainCommands
from odin.ui.slash_commands.actions import resolve_synonym
from odin.ui.slash_commands.extensions import make_skill_prompt, parse_memory_change
from odin.ui.slash_commands.sessions import parse_force, parse_rewind

Perform = Callable[[ApiEndpoint, str, Any, Any], Awaitable[Any]]
"""Answers an endpoint for one client, given the session, the query and the body."""

NOT_FOR_PAGES = frozenset(("transcript", "mouse", "vim", "editor", "setup"))
"""What needs a terminal."""

_BY_THE_PAGE = ("resume", "export", "copy", "theme", "keys", "exit")
"""What the page does itself. An export here would write a file where the person who types cannot see it."""


class DirectConnection(Connection):
    """The endpoints of the server as one of its clients reaches them, without a connection."""

    def __init__(self, perform: Perform) -> None:
        self.place = "this server"
        self.is_local = True
        self.run = ""
        self._perform = perform

    async def call(self, name: str, session: str = "", *, query: Any = None, body: Any = None, run: str = "") -> Any:
        endpoint = ENDPOINTS[name]
        return await self._perform(endpoint, session, endpoint.query() if query is None else query, body)

    async def close(self) -> None:
        pass


async def run_command(perform: Perform, session: str, asked: CommandRequest, info: SessionInfo) -> CommandAnswer:
    """Run a slash command and return what it says and changes. Raise UsageError if the page has no such command."""
    word, *words = asked.line.strip().split(None, 1)
    command = find_slash_command(word) if word.startswith("/") else None
    if command is None:
        names = (name for one in SLASH_COMMANDS for name in (one.name, *one.aliases))
        raise UsageError(
            f"Unknown command {clip(word, 50)}.{suggest_similar(word[1:50], names, '/{}')}",
            "/help lists the commands.",
        )
    name, rest = resolve_synonym(command.name, "".join(words))
    out, sessions = io.StringIO(), RemoteSessions(DirectConnection(perform), session)
    commands = PlainCommands(sessions, info, asked.mode, out, lambda: None)
    commands.agent, commands.columns = asked.agent, min(max(asked.columns, 30), 200)
    answer = CommandAnswer("", mode=asked.mode, agent=asked.agent)
    if name in MODES:
        prompt = Prompt(os.urandom(6).hex(), rest, MODES[name], agent=asked.agent) if rest else None
        return replace(answer, mode=MODES[name], prompt=prompt)
    if name == "use":
        text = await make_skill_prompt(sessions.client, rest)
        return replace(answer, prompt=Prompt(os.urandom(6).hex(), text, asked.mode))
    if name in ("undo", "redo") or (name == "rewind" and rest):
        await _go_back(sessions.client, name, rest.split())
        return answer
    if name == "memory" and rest:
        change = parse_memory_change(rest)
        await sessions.client.submit(change)
        return replace(answer, text="Removed from the memory.\n" if change.remove else "Later sessions will know it.\n")
    if name in (*NOT_FOR_PAGES, *_BY_THE_PAGE) or not commands.has_command(name):
        raise UsageError(f"/{name} does not work here.", "/help lists the commands.")
    draft = await commands.run(name, rest)
    opened = (await sessions.client.get_info()).session
    return CommandAnswer(
        out.getvalue(),
        session="" if opened == session else opened,
        draft=draft,
        prompt=commands.first_prompt,
        mode=commands.mode,
        agent=commands.agent,
    )


async def _go_back(client: Client, name: str, words: list[str]) -> None:
    """Undo, redo or rewind. A notice in the transcript tells what became of the files."""
    if name == "redo":
        done = await client.submit(Redo(parse_force(words)))
    else:
        done = await client.submit(parse_rewind(words, (await client.snapshot()).prompts, name))
    if not done:
        raise UsageError(f"Nothing to {name}.")
