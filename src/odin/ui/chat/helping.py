"""`/help` in a conversation: the usual commands in a few lines, all of them, or one of them."""

from collections.abc import Iterable, Sequence
from typing import TextIO

from odin.core.client import Client, CustomCommand
from odin.core.commands import SLASH_COMMANDS, SlashCommand, find_slash_command
from odin.core.errors import UsageError
from odin.ui.terminal import escape_hidden, size_of, wrap_words, write_line, write_text

HELP_HELP = "/help all lists every command, /help COMMAND tells about one, /keys about the keys; Tab completes."
_INDENT = "    "


async def run_help_command(client: Client, rest: str, usual: Iterable[str], err: TextIO) -> None:
    word = rest.strip()
    columns = size_of(err)[0] if err.isatty() else 1000
    if not word:
        for line in usual:
            write_line(err, line)
    elif word.casefold() == "all":
        write_text(err, "".join(_format_slash_command(command, columns) for command in SLASH_COMMANDS))
    elif (found := find_slash_command(word)) is not None:
        write_text(err, _format_slash_command(found, columns))
    else:
        write_text(err, _format_custom_command(word.removeprefix("/"), await client.list_commands()))


def _format_slash_command(command: SlashCommand, columns: int) -> str:
    names = ", ".join(f"/{name}" for name in (command.name, *command.aliases))
    return wrap_words(f"{names} {command.hint}".rstrip() + f": {command.help}", columns, _INDENT) + "\n"


def _format_custom_command(name: str, commands: Sequence[CustomCommand]) -> str:
    for command in commands:
        if command.name.casefold() == name.casefold():
            about = command.description or f"A command of the {command.source}."
            return escape_hidden(f"/{command.name} {command.hint}".rstrip() + f": {about}") + "\n"
    raise UsageError(f"There is no command /{name}.", "/help all and /commands list them.")
