"""`/commands` in a conversation: the custom commands there are."""

from collections.abc import Sequence
from typing import TextIO

from odin.core.client import Client, CustomCommand
from odin.ui.terminal import escape_hidden, shorten, size_of, write_text

CUSTOM_COMMANDS = ("/commands",)
CUSTOM_HELP = "/commands lists the commands that you and the project have written."
_NO_CUSTOM_COMMANDS = (
    "There are none yet. A file .odin/commands/NAME.md makes /NAME, and so does commands/NAME.md beside your settings."
)


async def run_commands_command(client: Client, err: TextIO) -> None:
    columns = size_of(err)[0] if err.isatty() else 1000
    write_text(err, format_custom_commands(await client.list_commands(), columns))


def format_custom_commands(commands: Sequence[CustomCommand], columns: int) -> str:
    """One line for each, with where it comes from."""
    if not commands:
        return f"{_NO_CUSTOM_COMMANDS}\n"
    lines: list[str] = []
    for command in commands:
        name = escape_hidden(f"/{command.name} {command.hint}".rstrip())
        lines.append(shorten(f"{name:<24} {escape_hidden(command.description)} ({command.source})", columns - 1))
    return "\n".join(lines) + "\n"
