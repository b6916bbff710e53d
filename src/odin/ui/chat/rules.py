"""`/rules` in a conversation: the rules that hold, one more, one less."""

from typing import TextIO

from odin.core.client import Client
from odin.core.errors import OdinError, UsageError
from odin.core.op import RemoveRule
from odin.ui.commands.rules import HOW, listing, numbered, wanted
from odin.ui.telling import SCOPES
from odin.ui.terminal import put, say, visible

HELP = "/rules lists the rules; /rules add TEXT and /rules remove N change them."


async def rules_command(client: Client, rest: str, err: TextIO) -> None:
    """Do what was typed and say what came of it."""
    verb, _, more = rest.strip().partition(" ")
    try:
        if not verb:
            put(err, listing(await client.rules()))
        elif verb == "add":
            put(err, await _add(client, more))
        elif verb == "remove":
            put(err, await _remove(client, more.strip()))
        else:
            raise UsageError(f"/rules does not know {verb!r}.", HOW)
    except OdinError as error:
        say(err, error.sentence())


async def _add(client: Client, text: str) -> str:
    op = wanted(text)
    await client.submit(op)
    return f"Remembered {SCOPES[op.scope]}: {op.action} {visible(op.text)}\n"


async def _remove(client: Client, text: str) -> str:
    found = numbered(await client.rules(), text)
    await client.submit(RemoveRule(found.number))
    return f"Removed: {found.action} {visible(found.text)}\n"
