"""A plain conversation: one line in, one answer out, until the input ends."""

import os
import sys

from odin.core.client import Client, SessionInfo
from odin.core.event import Mode
from odin.core.op import Prompt
from odin.ui.chat import rewind, rules, strictness
from odin.ui.chat.keyboard import Begun, next_line
from odin.ui.print import run_text
from odin.ui.terminal import say

HELP = (
    "Type what you want done. /ask, /plan, /edit choose the mode; Ctrl-D ends.",
    rewind.HELP,
    rules.HELP,
    strictness.HELP,
)
_MODES: dict[str, Mode] = {"/ask": "ask_mode", "/plan": "plan_mode", "/edit": "edit_mode"}


def introduction(info: SessionInfo, mode: Mode) -> list[str]:
    """What holds in this conversation: a line for where it takes place, and one for how much it may do."""
    where = f"Odin {info.version} · {info.model} · {info.cwd}"
    how = [mode.removesuffix("_mode"), f"permissions {info.permission_mode}"]
    return [where, " · ".join([*how, f"commands in {info.sandbox}"] if info.sandbox else how)]


class _Chat:
    def __init__(self, client: Client, info: SessionInfo, mode: Mode) -> None:
        self._client = client
        self._mode: Mode = mode
        self._strictness = strictness.Strictness(client, info.permission_mode)
        self._fresh = True
        self.code = 0

    @property
    def prompt(self) -> str:
        return f"{self._mode.removesuffix('_mode')}{self._strictness.warning}> "

    async def take(self, text: str) -> None:
        """A command, or a prompt."""
        command, _, rest = text.strip().partition(" ")
        if command in _MODES:
            self._mode, text = _MODES[command], rest
        elif await self._commanded(command, rest):
            return
        if text.strip():
            prompt = Prompt(os.urandom(6).hex(), text, self._mode)
            self.code = await run_text(
                self._client, prompt, out=sys.stdout, err=sys.stderr, tty_in=sys.stdin, first=self._fresh
            )
            self._fresh = False

    async def follow(self, begun: Begun) -> None:
        """A turn that began by itself."""
        await run_text(
            self._client, begun.prompt, out=sys.stdout, err=sys.stderr, tty_in=sys.stdin, begun=begun.events()
        )
        begun.close()

    async def _commanded(self, command: str, rest: str) -> bool:
        if command == "/help":
            for line in HELP:
                say(sys.stderr, line)
        elif command == "/rules":
            await rules.rules_command(self._client, rest, sys.stderr)
        elif command in strictness.COMMANDS:
            await self._strictness.command(command, rest, sys.stderr)
        elif command in rewind.COMMANDS:
            await rewind.go_back(self._client, command, rest, sys.stderr)
        else:
            return False
        return True


async def run_chat(client: Client, *, first: str, mode: Mode) -> int:
    info = await client.info()
    for line in (*introduction(info, mode), *HELP):
        say(sys.stderr, line)
    chat = _Chat(client, info, mode)
    if first:
        await chat.take(first)
    while True:
        said = await next_line(client, chat.prompt)
        if isinstance(said, Begun):
            await chat.follow(said)
        elif said is None or said.strip() in ("/exit", "/quit", "exit", "quit"):
            return chat.code
        else:
            await chat.take(said)
