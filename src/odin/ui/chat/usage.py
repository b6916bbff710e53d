"""`/context`, `/usage` and `/budget` in a conversation: how full the window is, what was spent, and what may be."""

from typing import TextIO

from odin.core.client import Client
from odin.core.errors import OdinError
from odin.core.op import SetBudget
from odin.ui.commands.spending import can_resume_work, describe_budget, format_context, format_usage, parse_budget
from odin.ui.terminal import size_of, wrap_words, write_line, write_text

USAGE_COMMANDS = ("/context", "/usage", "/cost", "/budget")
USAGE_HELP = "/context shows what fills the model's window, /usage what was spent; /budget USD sets what may be."


async def run_usage_command(client: Client, command: str, rest: str, err: TextIO) -> bool:
    """Do what was typed. True when work that a budget had stopped can go on now."""
    try:
        if command == "/context":
            write_text(err, format_context(await client.report_context()))
        elif command == "/budget" and rest.strip():
            return await _set_budget(client, rest.strip(), err)
        else:
            columns = size_of(err)[0] if err.isatty() else 1000
            write_text(err, wrap_all_lines(format_usage(await client.snapshot(), await client.get_info()), columns))
    except OdinError as error:
        write_line(err, error.describe())
    return False


async def _set_budget(client: Client, text: str, err: TextIO) -> bool:
    usd = parse_budget(text)
    await client.submit(SetBudget(usd))
    write_line(err, describe_budget(usd))
    return can_resume_work(await client.snapshot(), usd)


def wrap_all_lines(text: str, columns: int) -> str:
    return "\n".join(wrap_words(line, columns, "    ") for line in text.split("\n"))
