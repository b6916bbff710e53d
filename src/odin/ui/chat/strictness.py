"""How much a person is asked: `/permissions` and `/yolo` in a conversation."""

from typing import TextIO

from odin.core.errors import OdinError
from odin.ui.commands.strictness import Strictness
from odin.ui.terminal import say

COMMANDS = ("/yolo", "/permissions")
HELP = "/permissions MODE chooses how much is asked; /yolo on asks nothing at all."


async def permissions_command(strictness: Strictness, command: str, rest: str, err: TextIO) -> None:
    try:
        say(err, await strictness.command(command, rest))
    except OdinError as error:
        say(err, error.sentence())
