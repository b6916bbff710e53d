"""`/help` in a conversation: the usual commands in a few lines, all of them, or one of them."""

from collections.abc import Iterable, Sequence
from typing import TextIO

from odin.core.client import Client, CustomCommand
from odin.core.commands import BUILT_INS, BuiltIn, built_in
from odin.core.errors import UsageError
from odin.ui.terminal import folded, put, say, size_of, visible

HELP = "/help all lists every command, /help COMMAND tells about one, /keys about the keys; Tab completes."
_INDENT = "    "


async def help_command(client: Client, rest: str, usual: Iterable[str], err: TextIO) -> None:
    word = rest.strip()
    columns = size_of(err)[0] if err.isatty() else 1000
    if not word:
        for line in usual:
            say(err, line)
    elif word.casefold() == "all":
        put(err, "".join(_told(command, columns) for command in BUILT_INS))
    elif (found := built_in(word)) is not None:
        put(err, _told(found, columns))
    else:
        put(err, _own(word.removeprefix("/"), await client.commands()))


def _told(command: BuiltIn, columns: int) -> str:
    names = ", ".join(f"/{name}" for name in (command.name, *command.aliases))
    return folded(f"{names} {command.hint}".rstrip() + f": {command.help}", columns, _INDENT) + "\n"


def _own(name: str, commands: Sequence[CustomCommand]) -> str:
    for command in commands:
        if command.name.casefold() == name.casefold():
            about = command.description or f"A command of the {command.source}."
            return visible(f"/{command.name} {command.hint}".rstrip() + f": {about}") + "\n"
    raise UsageError(f"There is no command /{name}.", "/help all and /commands list them.")
