"""`/rewind`, `/undo` and `/redo` in a conversation: which prompt is meant, and what became of its files."""

import os
import time
from typing import TextIO

from odin.core.client import Client, TurnRecord
from odin.core.errors import OdinError, UsageError
from odin.core.event import Redone, Rewound
from odin.core.op import Redo, Rewind
from odin.ui.terminal import put, say, shorten, visible

COMMANDS = ("/rewind", "/undo", "/redo")
HELP = "/undo takes the last prompt back, /rewind N an earlier one, /redo undoes that."
_LISTED = 20


async def go_back(client: Client, command: str, rest: str, err: TextIO) -> None:
    """Do what was typed and say what came of it."""
    try:
        if command == "/redo":
            await _follow(client, Redo(force=_forced(rest.split())), err)
        elif command == "/rewind" and not rest.strip():
            put(err, _prompts((await client.snapshot()).messages))
        else:
            await _follow(client, _rewind(rest.split(), (await client.snapshot()).messages, command), err)
    except OdinError as error:
        say(err, error.sentence())


def _forced(words: list[str]) -> bool:
    if set(words) - {"force"}:
        raise UsageError(f"{' '.join(words)!r} is not understood here.", "Only the word force may follow.")
    return "force" in words


def _rewind(words: list[str], turns: tuple[TurnRecord, ...], command: str) -> Rewind:
    number = words.pop(0) if words and words[0].isdecimal() else "1"
    if set(words) - {"files", "chat", "force"}:
        raise UsageError(f"{' '.join(words)!r} is not understood here.", f"Write {command} [N] [files|chat] [force].")
    if not 1 <= int(number) <= len(turns):
        raise UsageError(f"There is no prompt number {number} to take back.", "/rewind lists them.")
    both = ("files" in words) == ("chat" in words)
    return Rewind(
        turns[-int(number)].id, files=both or "files" in words, chat=both or "chat" in words, force="force" in words
    )


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
            put(err, _told(envelope.event, (await client.info()).cwd))
            return


def _told(event: Rewound | Redone, cwd: str) -> str:
    lines: list[str] = []
    for change in sorted(event.changes, key=lambda change: change.after.path):
        verb = "removed" if change.after.kind == "absent" else "restored"
        lines.append(f"{verb:<10}  {_shown(change.after.path, cwd)}")
    lines += [f"left alone  {_shown(file.path, cwd)} ({file.reason})" for file in event.kept]
    if event.kept and isinstance(event, Rewound):
        lines.append("To take what was left alone back too, if it is saved: /redo, then the same again with force.")
    if isinstance(event, Redone):
        lines.append("That was put back.")
    elif event.chat:
        lines.append("The conversation is back to before that prompt. /redo takes this back.")
    else:
        lines.append("The conversation stays as it is. /redo takes this back.")
    return "\n".join(lines) + "\n"


def _shown(path: str, cwd: str) -> str:
    return visible(os.path.relpath(path, cwd))
