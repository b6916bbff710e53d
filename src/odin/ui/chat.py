"""A plain conversation: one line in, one answer out, until the input ends."""

import os
import sys

from odin.core.client import Client
from odin.core.event import Mode
from odin.core.op import Prompt
from odin.ui.print import run_text

HELP = "Type what you want done. /ask, /plan and /edit choose the mode, /exit or Ctrl-D ends."
_MODES: dict[str, Mode] = {"/ask": "ask_mode", "/plan": "plan_mode", "/edit": "edit_mode"}


async def run_chat(client: Client, *, first: str, mode: Mode) -> int:
    info = await client.info()
    sys.stderr.write(f"Odin {info.version} · {info.model} · {info.cwd}\n{HELP}\n")
    code = 0
    fresh = True
    while True:
        text = first or _read_line(mode)
        first = ""
        if text is None or text.strip() in ("/exit", "/quit", "exit", "quit"):
            return code
        command, _, rest = text.strip().partition(" ")
        if command in _MODES:
            mode, text = _MODES[command], rest
        elif command == "/help":
            sys.stderr.write(f"{HELP}\n")
            continue
        if text.strip():
            prompt = Prompt(os.urandom(6).hex(), text, mode)
            code = await run_text(client, prompt, out=sys.stdout, err=sys.stderr, tty_in=sys.stdin, first=fresh)
            fresh = False


def _read_line(mode: Mode) -> str | None:
    """The next line, or None at the end. Nothing else runs between two turns, so waiting in place blocks nobody."""
    try:
        return input(f"{mode.removesuffix('_mode')}> ")
    except (EOFError, KeyboardInterrupt):
        sys.stderr.write("\n")
        return None
