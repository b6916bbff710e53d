"""`/queue`, `/steer` and `/continue` in a conversation: what waits, and what is said to the turn that runs."""

import os
from typing import TextIO

from odin.core.client import Client
from odin.core.errors import UsageError
from odin.core.event import Mode
from odin.core.op import Continue, Prompt, RemoveLast
from odin.ui.commands.waiting import change, listing
from odin.ui.terminal import put, say, size_of

COMMANDS = ("/queue", "/steer", "/continue", "/forget")
HELP = (
    "A line typed while Odin works waits; /queue lists what waits, /steer TEXT says it at once, !COMMAND runs one of "
    "yours. Ctrl-C stops the turn, /continue goes on, /forget takes the last message out."
)


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
        say(err, await change(client, rest.strip()))


async def steer(client: Client, text: str, mode: Mode, err: TextIO) -> None:
    """Words for the turn that runs; when none does they are an ordinary prompt."""
    if not text:
        raise UsageError("/steer needs words.", "Write /steer TEXT.")
    prompt = Prompt(os.urandom(6).hex(), text, mode, lane="steer")
    await client.submit(prompt)
    if any(item.id == prompt.id for item in (await client.snapshot()).queue):
        say(err, "It is told before anything else is begun.")
