"""How much a person is asked: `/permissions` and `/yolo` in a conversation."""

from typing import TextIO

from odin.core.errors import OdinError
from odin.ui.commands.strictness import PermissionModeSwitch
from odin.ui.terminal import write_line

PERMISSION_COMMANDS = ("/yolo", "/permissions")
PERMISSION_HELP = "/permissions MODE chooses how much is asked; /yolo on asks nothing at all."


async def run_permissions_command(strictness: PermissionModeSwitch, command: str, rest: str, err: TextIO) -> None:
    try:
        write_line(err, await strictness.run_command(command, rest))
    except OdinError as error:
        write_line(err, error.describe())
