"""`/queue`, `/steer` and `/continue` in a conversation: what waits, and what is said to the turn that runs."""

import os
from typing import TextIO

from odin.core.client import Client
from odin.core.errors import UsageError
from odin.core.event import Mode
from odin.core.op import Continue, Prompt, RemoveLastMessage
from odin.ui.commands.waiting import change_queued_prompt, format_queue
from odin.ui.terminal import size_of, write_line, write_text

QUEUE_COMMANDS = ("/queue", "/steer", "/continue", "/forget")
QUEUE_HELP = (
    "A line typed while Odin works waits; /queue lists what waits, /steer TEXT says it at once, !COMMAND runs one of "
    "yours. Ctrl-C stops the turn, /continue goes on, /forget takes the last message out."
)


async def run_queue_command(client: Client, command: str, rest: str, mode: Mode, err: TextIO) -> None:
    """Do what was typed and say what came of it."""
    if command == "/continue":
        await client.submit(Continue(os.urandom(6).hex()))
    elif command == "/forget":
        removed = await client.submit(RemoveLastMessage())
        write_line(
            err, "The last message was taken out of the conversation." if removed else "There is no message to forget."
        )
    elif command == "/steer":
        await submit_steering(client, rest.strip(), mode, err)
    elif not rest.strip():
        write_text(err, format_queue((await client.snapshot()).queue, size_of(err)[0]))
    else:
        write_line(err, await change_queued_prompt(client, rest.strip()))


async def submit_steering(client: Client, text: str, mode: Mode, err: TextIO) -> None:
    """Words for the turn that runs; when none does they are an ordinary prompt."""
    if not text:
        raise UsageError("/steer needs words.", "Write /steer TEXT.")
    prompt = Prompt(os.urandom(6).hex(), text, mode, delivery="steer")
    await client.submit(prompt)
    if any(item.id == prompt.id for item in (await client.snapshot()).queue):
        write_line(err, "It is told before anything else is begun.")
