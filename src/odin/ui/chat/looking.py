"""Commands of a conversation that show something: models, what was spent, how the session is and what went wrong."""

import time
from collections.abc import Awaitable, Callable
from typing import TextIO

from odin.core.client import Client
from odin.core.errors import UsageError
from odin.core.event import Mode
from odin.core.op import SetModel
from odin.core.sessions import Sessions
from odin.ui.commands.models import models_text
from odin.ui.commands.state import DOCTOR, NO_SERVERS, SERVERS, facts
from odin.ui.commands.stats import BY, stats_text, wanted_stats
from odin.ui.terminal import put, say, size_of, visible
from odin.ui.troubles import Troubles

HELP = "/models lists the models, /model NAME chooses one; /stats, /diagnostics, /errors and /show tell more."
_LOOK = "look"


class Looking:
    """Keeps no state of its own; `mode` tells which mode the next prompt has."""

    def __init__(self, held: Sessions, troubles: Troubles, err: TextIO, mode: Callable[[], Mode]) -> None:
        self._sessions = held
        self._troubles = troubles
        self._err = err
        self._mode = mode

    def table(self) -> dict[str, Callable[[str, str], Awaitable[None]]]:
        return {
            "/model": self._model,
            "/models": self._models,
            "/stats": self._stats,
            "/mcp": self._servers,
            "/diagnostics": self._diagnostics,
            "/errors": self._errors,
            "/show": self._show,
            "/list": self._list,
            "/switch": self._switch,
        }

    @property
    def _client(self) -> Client:
        return self._sessions.client

    @property
    def _columns(self) -> int:
        return size_of(self._err)[0] if self._err.isatty() else 100

    async def _model(self, command: str, rest: str) -> None:
        if not rest.strip():
            model = visible((await self._client.info()).model)
            say(self._err, f"The model is {model}. /model NAME chooses another, /models lists them.")
            return
        await self._client.submit(SetModel(rest.strip()))
        say(self._err, f"{visible((await self._client.info()).model)} answers from now on.")

    async def _models(self, command: str, rest: str) -> None:
        words = rest.split()
        look = _LOOK in words
        found = await self._client.models(look=look)
        sought = " ".join(word for word in words if word != _LOOK)
        put(self._err, models_text(found, (await self._client.info()).model, self._columns, sought))
        if not look:
            say(self._err, "/model NAME chooses one; /models look asks the servers on this machine, too.")

    async def _stats(self, command: str, rest: str) -> None:
        wanted = wanted_stats(rest)
        session = (await self._client.info()).session if wanted.scope == "session" else ""
        report = await self._sessions.usage(BY[wanted.view], days=wanted.days, session=session)
        say(self._err, f"{wanted.scope}, {wanted.view}, {report.period}")
        put(self._err, stats_text(report, wanted.view, self._columns))

    async def _servers(self, command: str, rest: str) -> None:
        say(self._err, SERVERS)

    async def _diagnostics(self, command: str, rest: str) -> None:
        info = await self._client.info()
        for line in (info.notice, *info.warnings):
            if line:
                say(self._err, line)
        if not info.warnings:
            say(self._err, "No warnings.")
        count = self._troubles.count
        say(self._err, f"Errors since Odin was started: {count}. /errors shows them." if count else "No errors.")
        for name, value in facts(info):
            say(self._err, f"  {name:<16}{value}")
        say(self._err, NO_SERVERS)
        say(self._err, DOCTOR)

    async def _errors(self, command: str, rest: str) -> None:
        found = self._troubles.newest_first
        if not found:
            say(self._err, "No errors since Odin was started.")
        for trouble in reversed(found):
            who = f" [{trouble.agent}]" if trouble.agent else ""
            say(self._err, f"{time.strftime('%H:%M:%S', time.localtime(trouble.ts))} {trouble.kind}{who}")
            for line in trouble.detail.splitlines():
                say(self._err, f"    {line}")

    # --- what is left of the words for the same things ---

    async def _show(self, command: str, rest: str) -> None:
        info, word = await self._client.info(), rest.strip().casefold()
        if word == "mode":
            mode = self._mode().removesuffix("_mode")
            say(self._err, f"The mode is {mode}; permissions are {info.permission_mode}.")
        elif word == "sandbox":
            say(self._err, f"Commands run in {info.sandbox or 'no sandbox'}.")
        else:
            raise UsageError(f"/show does not know {rest!r}.", "Write /show model, mode, sandbox, rules or context.")

    async def _list(self, command: str, rest: str) -> None:
        if rest.strip().casefold() != "tools":
            hint = "Write /list models, sessions, rules, commands or tools."
            raise UsageError(f"/list does not know {rest!r}.", hint)
        say(self._err, ", ".join((await self._client.info()).tools))

    async def _switch(self, command: str, rest: str) -> None:
        raise UsageError(f"/switch does not know {rest!r}.", "Write /switch model NAME, or /switch mode ask.")


_SAME = {
    "/show": {"": "/diagnostics", "model": "/model", "rules": "/rules", "context": "/context"},
    "/list": {"": "/help", "models": "/models", "sessions": "/sessions", "rules": "/rules", "commands": "/commands"},
    "/switch": {"model": "/model", "mode ask": "/ask", "mode plan": "/plan", "mode edit": "/edit"},
}


def meant(command: str, rest: str) -> tuple[str, str]:
    """The command that another way of writing it stands for: /list models is /models."""
    words = " ".join(rest.split())
    same = _SAME.get(command, {})
    if found := same.get(words.casefold()):
        return found, ""
    first, _, more = words.partition(" ")
    return ("/model", more) if command == "/switch" and first == "model" else (command, rest)
