"""`/rules` in a conversation: the rules that hold, one more, one less."""

from typing import TextIO

from odin.core.client import Client
from odin.core.errors import OdinError, UsageError
from odin.core.op import RemoveRule
from odin.ui.commands.rules import RULES_USAGE, find_rule, format_rules, parse_rule
from odin.ui.telling import SCOPE_WORDS
from odin.ui.terminal import escape_hidden, write_line, write_text

RULES_HELP = "/rules lists the rules; /rules add TEXT and /rules remove N change them."


async def run_rules_command(client: Client, rest: str, err: TextIO) -> None:
    """Do what was typed and say what came of it."""
    verb, _, more = rest.strip().partition(" ")
    try:
        if not verb:
            write_text(err, format_rules(await client.list_rules()))
        elif verb == "add":
            write_text(err, await _add_rule(client, more))
        elif verb == "remove":
            write_text(err, await _remove_rule(client, more.strip()))
        else:
            raise UsageError(f"/rules does not know {verb!r}.", RULES_USAGE)
    except OdinError as error:
        write_line(err, error.describe())


async def _add_rule(client: Client, text: str) -> str:
    op = parse_rule(text)
    await client.submit(op)
    return f"Remembered {SCOPE_WORDS[op.scope]}: {op.action} {escape_hidden(op.text)}\n"


async def _remove_rule(client: Client, text: str) -> str:
    found = find_rule(await client.list_rules(), text)
    await client.submit(RemoveRule(found.number))
    return f"Removed: {found.action} {escape_hidden(found.text)}\n"
