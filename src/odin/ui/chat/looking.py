"""Commands of a conversation that show something: models, what was spent, how the session is and what went wrong."""

import time
from collections.abc import Awaitable, Callable
from typing import TextIO

from odin.core.client import Client
from odin.core.errors import UsageError
from odin.core.event import Mode
from odin.core.op import SetModel
from odin.core.sessions import Sessions
from odin.ui.commands.models import format_models
from odin.ui.commands.state import DOCTOR_HINT, NO_LANGUAGE_SERVERS, NO_MCP_SERVERS, list_facts
from odin.ui.commands.stats import VIEW_GROUPINGS, format_stats, parse_stats
from odin.ui.terminal import escape_hidden, size_of, write_line, write_text
from odin.ui.troubles import ErrorLog

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
