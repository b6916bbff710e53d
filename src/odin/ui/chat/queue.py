"""`/queue`, `/steer` and `/continue` in a conversation: what waits, and what is said to the turn that runs."""

import os
from typing import TextIO

from odin.core.client import Client, QueuedPrompt
from odin.core.errors import UsageError
from odin.core.event import Lane, Mode
from odin.core.op import ChangePrompt, Continue, DropPrompt, Prompt, RemoveLast
from odin.ui.terminal import put, say, shorten, size_of, visible

COMMANDS = ("/queue", "/steer", "/continue", "/forget")
HELP = (
    "A line typed while Odin works waits; /queue lists what waits, /steer TEXT says it at once, !COMMAND runs one of "
    "yours. Ctrl-C stops the turn, /continue goes on, /forget takes the last message out."
)
_HOW = "/queue edit N TEXT, /queue drop N, /queue steer N, /queue send N"
_GONE = "It was taken or dropped meanwhile."


async def queue_command(client: Client, command: str, rest: str, mode: Mode, err: TextIO) -> None:
    """Do what was typed and say what came of it."""
    if command == "/continue":
        await client.submit(Continue(os.urandom(6).hex()))
    elif command == "/forget":
        removed = await client.submit(RemoveLast())
        say(err, "The last message was taken out of the conversation." if removed else "There is no message to forget.")
    elif command == "/steer":
        await steer(client, rest.strip(), mode, err)
    elif not rest.strip():
        put(err, listing((await client.snapshot()).queue, size_of(err)[0]))
    else:
        await _change(client, rest.strip(), err)


async def steer(client: Client, text: str, mode: Mode, err: TextIO) -> None:
    """Words for the turn that runs; when none does they are an ordinary prompt."""
    if not text:
        raise UsageError("/steer needs words.", "Write /steer TEXT.")
    prompt = Prompt(os.urandom(6).hex(), text, mode, lane="steer")
    await client.submit(prompt)
    if any(item.id == prompt.id for item in (await client.snapshot()).queue):
        say(err, "It is told before anything else is begun.")


def listing(waiting: tuple[QueuedPrompt, ...], columns: int) -> str:
    if not waiting:
        return "Nothing waits.\n"
    lines: list[str] = []
    for number, item in enumerate(waiting, 1):
        how = item.mode.removesuffix("_mode") + ("" if item.lane == "queue" else f", {item.lane}")
        lines.append(shorten(f"{number:>3}  {how:<12} {visible(' '.join(item.body.split()))}", columns - 1))
    return "\n".join([*lines, _HOW, ""])


async def _change(client: Client, rest: str, err: TextIO) -> None:
    verb, _, more = rest.partition(" ")
    number, _, text = more.strip().partition(" ")
    if verb not in ("edit", "drop", "steer", "send"):
        raise UsageError(f"/queue does not know {verb!r}.", f"Write {_HOW}.")
    shot = await client.snapshot()
    item = _numbered(shot.queue, number)
    if verb == "drop":
        done, said = await client.submit(DropPrompt(item.id)), "Dropped"
    elif verb == "edit":
        done, said = await client.submit(ChangePrompt(item.id, text)), "Changed"
    else:
        lane: Lane = "steer" if verb == "steer" else "queue"
        done = await client.submit(ChangePrompt(item.id, lane=lane))
        said = "Begins after this turn" if lane == "queue" and shot.executing else "Sent"
    shown = text if verb == "edit" else item.body
    say(err, f"{said}: {shorten(' '.join(shown.split()), 60)}" if done else _GONE)


def _numbered(waiting: tuple[QueuedPrompt, ...], number: str) -> QueuedPrompt:
    if not number.isdecimal() or len(number) > 6 or not 1 <= int(number) <= len(waiting):
        raise UsageError(f"There is no waiting prompt number {number!r}.", "/queue lists them.")
    return waiting[int(number) - 1]
