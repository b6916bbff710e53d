"""`/context`, `/usage` and `/budget` in a conversation: how full the window is, what was spent, and what may be."""

from typing import TextIO

from odin.core.client import Client
from odin.core.errors import OdinError
from odin.core.op import SetBudget
from odin.ui.commands.spending import budget_told, context_text, freed, usage_text, wanted_budget
from odin.ui.terminal import folded, put, say, size_of

COMMANDS = ("/context", "/usage", "/cost", "/budget")
HELP = "/context shows what fills the model's window, /usage what was spent; /budget USD sets what may be."


async def usage_command(client: Client, command: str, rest: str, err: TextIO) -> bool:
    """Do what was typed. True when work that a budget had stopped can go on now."""
    try:
        if command == "/context":
            put(err, context_text(await client.context()))
        elif command == "/budget" and rest.strip():
            return await _set_budget(client, rest.strip(), err)
        else:
            columns = size_of(err)[0] if err.isatty() else 1000
            put(err, folded_all(usage_text(await client.snapshot(), await client.info()), columns))
    except OdinError as error:
        say(err, error.sentence())
    return False


async def _set_budget(client: Client, text: str, err: TextIO) -> bool:
    usd = wanted_budget(text)
    await client.submit(SetBudget(usd))
    say(err, budget_told(usd))
    return freed(await client.snapshot(), usd)


def folded_all(text: str, columns: int) -> str:
    return "\n".join(folded(line, columns, "    ") for line in text.split("\n"))
