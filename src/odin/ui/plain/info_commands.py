"""Commands of a conversation that show something: models, what was spent, how the session is and what went wrong.

`/context`, `/usage` and `/budget` in a conversation: how full the window is, what was spent, and what may be.

`/commands` in a conversation: the custom commands there are.

`/help` in a conversation: the usual commands in a few lines, all of them, or one of them.

Commands of the app that are about a screen: plain mode has none, and says so, and how else it is done here.
"""

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TextIO

from odin.core.client import Client, CustomCommand, Sessions
from odin.core.errors import OdinError, UsageError
from odin.core.event import Mode
from odin.core.op import SetBudget, SetModel
from odin.core.slash_commands import SLASH_COMMANDS, SlashCommand, find_slash_command
from odin.ui.slash_commands.diagnostics import DOCTOR_HINT, NO_LANGUAGE_SERVERS, NO_MCP_SERVERS, ErrorLog, list_facts
from odin.ui.slash_commands.usage import (
    VIEW_GROUPINGS,
    can_resume_work,
    describe_budget,
    format_context,
    format_models,
    format_stats,
    format_usage,
    parse_budget,
    parse_stats,
)
from odin.ui.terminal import escape_hidden, shorten, size_of, wrap_words, write_line, write_text

INFO_HELP = "/models lists the models, /model NAME chooses one; /stats, /diagnostics, /errors and /show tell more."
_LOOK_WORD = "look"


class InfoCommands:
    """Keeps no state of its own; `mode` tells which mode the next prompt has."""

    def __init__(self, held: Sessions, troubles: ErrorLog, err: TextIO, mode: Callable[[], Mode]) -> None:
        self._sessions = held
        self._error_log = troubles
        self._err = err
        self._mode = mode

    def build_table(self) -> dict[str, Callable[[str, str], Awaitable[None]]]:
        return {
            "/model": self._run_model,
            "/models": self._run_models,
            "/stats": self._run_stats,
            "/mcp": self._run_mcp,
            "/diagnostics": self._run_diagnostics,
            "/errors": self._run_errors,
            "/show": self._run_show,
            "/list": self._run_list,
            "/switch": self._run_switch,
        }

    @property
    def _client(self) -> Client:
        return self._sessions.client

    @property
    def _columns(self) -> int:
        return size_of(self._err)[0] if self._err.isatty() else 100

    async def _run_model(self, command: str, rest: str) -> None:
        if not rest.strip():
            model = escape_hidden((await self._client.get_info()).model)
            write_line(self._err, f"The model is {model}. /model NAME chooses another, /models lists them.")
            return
        await self._client.submit(SetModel(rest.strip()))
        write_line(self._err, f"{escape_hidden((await self._client.get_info()).model)} answers from now on.")

    async def _run_models(self, command: str, rest: str) -> None:
        words = rest.split()
        look = _LOOK_WORD in words
        found = await self._client.list_models(probe_servers=look)
        sought = " ".join(word for word in words if word != _LOOK_WORD)
        write_text(self._err, format_models(found, (await self._client.get_info()).model, self._columns, sought))
        if not look:
            write_line(self._err, "/model NAME chooses one; /models look asks the servers on this machine, too.")

    async def _run_stats(self, command: str, rest: str) -> None:
        wanted = parse_stats(rest)
        session = (await self._client.get_info()).session if wanted.scope == "session" else ""
        report = await self._sessions.report_usage(VIEW_GROUPINGS[wanted.view], days=wanted.days, session=session)
        write_line(self._err, f"{wanted.scope}, {wanted.view}, {report.period}")
        write_text(self._err, format_stats(report, wanted.view, self._columns))

    async def _run_mcp(self, command: str, rest: str) -> None:
        write_line(self._err, NO_MCP_SERVERS)

    async def _run_diagnostics(self, command: str, rest: str) -> None:
        info = await self._client.get_info()
        for line in (info.notice, *info.warnings):
            if line:
                write_line(self._err, line)
        if not info.warnings:
            write_line(self._err, "No warnings.")
        count = self._error_log.count
        write_line(self._err, f"Errors since Odin was started: {count}. /errors shows them." if count else "No errors.")
        for name, value in list_facts(info):
            write_line(self._err, f"  {name:<16}{value}")
        write_line(self._err, NO_LANGUAGE_SERVERS)
        write_line(self._err, DOCTOR_HINT)

    async def _run_errors(self, command: str, rest: str) -> None:
        found = self._error_log.newest_first
        if not found:
            write_line(self._err, "No errors since Odin was started.")
        for trouble in reversed(found):
            who = f" [{trouble.agent}]" if trouble.agent else ""
            write_line(self._err, f"{time.strftime('%H:%M:%S', time.localtime(trouble.ts))} {trouble.kind}{who}")
            for line in trouble.detail.splitlines():
                write_line(self._err, f"    {line}")

    # --- what is left of the words for the same things ---

    async def _run_show(self, command: str, rest: str) -> None:
        info, word = await self._client.get_info(), rest.strip().casefold()
        if word == "mode":
            mode = self._mode().removesuffix("_mode")
            write_line(self._err, f"The mode is {mode}; permissions are {info.permission_mode}.")
        elif word == "sandbox":
            write_line(self._err, f"Commands run in {info.sandbox or 'no sandbox'}.")
        else:
            raise UsageError(f"/show does not know {rest!r}.", "Write /show model, mode, sandbox, rules or context.")

    async def _run_list(self, command: str, rest: str) -> None:
        if rest.strip().casefold() != "tools":
            hint = "Write /list models, sessions, rules, commands or tools."
            raise UsageError(f"/list does not know {rest!r}.", hint)
        write_line(self._err, ", ".join((await self._client.get_info()).tools))

    async def _run_switch(self, command: str, rest: str) -> None:
        raise UsageError(f"/switch does not know {rest!r}.", "Write /switch model NAME, or /switch mode ask.")


_SYNONYMS = {
    "/show": {"": "/diagnostics", "model": "/model", "rules": "/rules", "context": "/context"},
    "/list": {"": "/help", "models": "/models", "sessions": "/sessions", "rules": "/rules", "commands": "/commands"},
    "/switch": {"model": "/model", "mode ask": "/ask", "mode plan": "/plan", "mode edit": "/edit"},
}


def resolve_synonym(command: str, rest: str) -> tuple[str, str]:
    """The command that another way of writing it stands for: /list models is /models."""
    words = " ".join(rest.split())
    same = _SYNONYMS.get(command, {})
    if found := same.get(words.casefold()):
        return found, ""
    first, _, more = words.partition(" ")
    return ("/model", more) if command == "/switch" and first == "model" else (command, rest)


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


KEY_LINES = (
    "Enter sends the line; Tab completes a command or an @ file.",
    "Up and Down, or Ctrl-P and Ctrl-N, bring earlier lines back.",
    "Left, Right, Home, End, Ctrl-A, Ctrl-E move; Ctrl-W, Ctrl-U, Ctrl-K take a word or the line before or after away.",
    "Ctrl-C stops the turn; twice at an empty prompt it ends Odin, and so does Ctrl-D there, at once.",
    "Ctrl-Z gives the terminal to the shell; fg comes back.",
)
UNAVAILABLE_SENTENCES = {
    "/copy": "The answers are ordinary lines of your terminal: select and copy them there, or /export the session.",
    "/transcript": "The conversation is in your terminal's scrollback; /export writes the whole of it to a file.",
    "/theme": "Plain mode has the colours of your terminal; NO_COLOR=1 leaves out the little it uses.",
    "/mouse": "The mouse is the terminal's own in plain mode.",
    "/setup": "Plain mode has no setup: `odin auth` stores keys, /models and /model choose the model.",
    "/vim": "Vim-style navigation needs the app: odin without --plain.",
}
SCREEN_COMMANDS = (*UNAVAILABLE_SENTENCES, "/keys")


async def run_screen_command(command: str, err: TextIO) -> None:
    for line in KEY_LINES if command == "/keys" else (UNAVAILABLE_SENTENCES[command],):
        write_line(err, line)
