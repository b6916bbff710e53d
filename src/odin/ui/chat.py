"""A plain conversation: one line in, one answer out, until the input ends."""

import os
import sys

from odin.core.client import Client
from odin.core.event import Mode
from odin.core.op import Prompt
from odin.ui import rewind
from odin.ui.keyboard import Begun, next_line
from odin.ui.print import run_text

HELP = f"Type what you want done. /ask, /plan and /edit choose the mode, /exit or Ctrl-D ends.\n{rewind.HELP}"
_MODES: dict[str, Mode] = {"/ask": "ask_mode", "/plan": "plan_mode", "/edit": "edit_mode"}


async def run_chat(client: Client, *, first: str, mode: Mode) -> int:
    info = await client.info()
    sys.stderr.write(f"Odin {info.version} · {info.model} · {info.cwd}\n{HELP}\n")
    code = 0
    fresh = True
    while True:
        said = first or await next_line(client, f"{mode.removesuffix('_mode')}> ")
        first = ""
        if isinstance(said, Begun):
            await run_text(client, said.prompt, out=sys.stdout, err=sys.stderr, tty_in=sys.stdin, begun=said.events())
            said.close()
            continue
        text = said
        if text is None or text.strip() in ("/exit", "/quit", "exit", "quit"):
            return code
        command, _, rest = text.strip().partition(" ")
        if command in _MODES:
            mode, text = _MODES[command], rest
        elif command == "/help":
            sys.stderr.write(f"{HELP}\n")
            continue
        elif command in rewind.COMMANDS:
            await rewind.go_back(client, command, rest, sys.stderr)
            continue
        if text.strip():
            prompt = Prompt(os.urandom(6).hex(), text, mode)
            code = await run_text(client, prompt, out=sys.stdout, err=sys.stderr, tty_in=sys.stdin, first=fresh)
            fresh = False
