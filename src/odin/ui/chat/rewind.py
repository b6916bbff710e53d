"""`/rewind`, `/undo` and `/redo` in a conversation: which prompt is meant, and what became of its files."""

import time
from typing import TextIO

from odin.core.client import Client, TurnRecord
from odin.core.errors import OdinError
from odin.core.event import Redone, Rewound
from odin.core.op import Redo, Rewind
from odin.ui.commands.rewind import describe_rewind, parse_force, parse_rewind
from odin.ui.terminal import escape_hidden, shorten, write_line, write_text

REWIND_COMMANDS = ("/rewind", "/undo", "/redo")
REWIND_HELP = "/undo takes the last prompt back, /rewind N an earlier one, /redo undoes that."
_MAX_PROMPTS_LISTED = 20


async def run_rewind_command(client: Client, command: str, rest: str, err: TextIO) -> None:
    """Do what was typed and say what came of it."""
    try:
        if command == "/redo":
            await _submit_and_report(client, Redo(force=parse_force(rest.split())), err)
        elif command == "/rewind" and not rest.strip():
            write_text(err, _format_prompts((await client.snapshot()).messages))
        else:
            await _submit_and_report(
                client, parse_rewind(rest.split(), (await client.snapshot()).messages, command), err
            )
    except OdinError as error:
        write_line(err, error.describe())


def _format_prompts(turns: tuple[TurnRecord, ...]) -> str:
    if not turns:
        return "There is no prompt to take back yet.\n"
    lines: list[str] = []
    for number, turn in enumerate(reversed(turns[-_MAX_PROMPTS_LISTED:]), 1):
        when = time.strftime("%H:%M", time.localtime(turn.started))
        files = "1 file " if turn.files == 1 else f"{turn.files} files"
        lines.append(
            f"{number:>3}  {when}  {files:>8}  {shorten(escape_hidden(' '.join(turn.body.split())) or '(continued)', 60)}"
        )
    if len(turns) > _MAX_PROMPTS_LISTED:
        lines.append(f"     and {len(turns) - _MAX_PROMPTS_LISTED} earlier ones, up to number {len(turns)}")
    lines.append("/rewind N goes back to before number N; add files or chat for only one of them.")
    return "\n".join(lines) + "\n"


async def _submit_and_report(client: Client, op: Rewind | Redo, err: TextIO) -> None:
    events = client.stream_events()
    await client.submit(op)
    async for envelope in events:
        if isinstance(envelope.event, Rewound | Redone):
            write_text(err, describe_rewind(envelope.event, (await client.get_info()).cwd))
            return
