"""`/rewind`, `/undo` and `/redo` in a conversation: which prompt is meant, and what became of its files."""

import time
from typing import TextIO

from odin.core.client import Client, TurnRecord
from odin.core.errors import OdinError
from odin.core.event import Redone, Rewound
from odin.core.op import Redo, Rewind
from odin.ui.commands.rewind import forced, told, wanted_rewind
from odin.ui.terminal import put, say, shorten, visible

COMMANDS = ("/rewind", "/undo", "/redo")
HELP = "/undo takes the last prompt back, /rewind N an earlier one, /redo undoes that."
_LISTED = 20


async def go_back(client: Client, command: str, rest: str, err: TextIO) -> None:
    """Do what was typed and say what came of it."""
    try:
        if command == "/redo":
            await _follow(client, Redo(force=forced(rest.split())), err)
        elif command == "/rewind" and not rest.strip():
            put(err, _prompts((await client.snapshot()).messages))
        else:
            await _follow(client, wanted_rewind(rest.split(), (await client.snapshot()).messages, command), err)
    except OdinError as error:
        say(err, error.sentence())


def _prompts(turns: tuple[TurnRecord, ...]) -> str:
    if not turns:
        return "There is no prompt to take back yet.\n"
    lines: list[str] = []
    for number, turn in enumerate(reversed(turns[-_LISTED:]), 1):
        when = time.strftime("%H:%M", time.localtime(turn.started))
        files = "1 file " if turn.files == 1 else f"{turn.files} files"
        lines.append(
            f"{number:>3}  {when}  {files:>8}  {shorten(visible(' '.join(turn.body.split())) or '(continued)', 60)}"
        )
    if len(turns) > _LISTED:
        lines.append(f"     and {len(turns) - _LISTED} earlier ones, up to number {len(turns)}")
    lines.append("/rewind N goes back to before number N; add files or chat for only one of them.")
    return "\n".join(lines) + "\n"


async def _follow(client: Client, op: Rewind | Redo, err: TextIO) -> None:
    events = client.events()
    await client.submit(op)
    async for envelope in events:
        if isinstance(envelope.event, Rewound | Redone):
            put(err, told(envelope.event, (await client.info()).cwd))
            return
