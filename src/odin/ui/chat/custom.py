"""`/commands` in a conversation: the custom commands there are."""

from collections.abc import Sequence
from typing import TextIO

from odin.core.client import Client, CustomCommand
from odin.ui.terminal import put, shorten, size_of, visible

COMMANDS = ("/commands",)
HELP = "/commands lists the commands that you and the project have written."
_NONE = (
    "There are none yet. A file .odin/commands/NAME.md makes /NAME, and so does commands/NAME.md beside your settings."
)


async def commands_command(client: Client, err: TextIO) -> None:
    columns = size_of(err)[0] if err.isatty() else 1000
    put(err, listing(await client.commands(), columns))


def listing(commands: Sequence[CustomCommand], columns: int) -> str:
    """One line for each, with where it comes from."""
    if not commands:
        return f"{_NONE}\n"
    lines: list[str] = []
    for command in commands:
        name = visible(f"/{command.name} {command.hint}".rstrip())
        lines.append(shorten(f"{name:<24} {visible(command.description)} ({command.source})", columns - 1))
    return "\n".join(lines) + "\n"
