"""Commands that show something: help, models, what was spent, what is wrong."""

import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from odin.core.errors import UsageError
from odin.core.op import Continue, SetBudget, SetModel
from odin.ui.commands.spending import budget_told, freed, usd, wanted_budget
from odin.ui.commands.stats import wanted_stats
from odin.ui.terminal import visible

if TYPE_CHECKING:
    from odin.ui.tui.app import OdinApp
    from odin.ui.tui.commands.table import Commands


class LookingCommands:
    def __init__(self, app: "OdinApp", others: "Commands") -> None:
        self._app = app
        self._others = others

    def table(self) -> dict[str, Callable[[str], Awaitable[None]]]:
        return {
            "help": self._help,
            "commands": lambda rest: self._help(f"custom {rest}".strip()),
            "keys": lambda rest: self._help(f"key {rest}".strip()),
            "model": self._model,
            "models": self._models,
            "setup": self._setup,
            "context": self._context,
            "usage": self._usage,
            "stats": self._stats,
            "budget": self._budget,
            "mcp": self._servers,
            "diagnostics": self._diagnostics,
            "errors": self._errors,
            "show": self._show,
            "list": self._list,
            "switch": self._switch,
        }

    # --- windows ---

    async def _help(self, rest: str) -> None:
        from odin.ui.tui.dialogs.help import HelpDialog

        def taken(command: str | None) -> None:
            if command:
                self._others.moving.give(command)

        self._app.push_screen(HelpDialog(rest.removeprefix("/")), taken)

    async def _models(self, rest: str) -> None:
        from odin.ui.tui.dialogs.models import ModelPicker

        def chosen(ref: str | None) -> None:
            if ref:
                self._app.do(self._use(ref))

        self._app.push_screen(ModelPicker(rest), chosen)

    async def _setup(self, rest: str) -> None:
        self._app.action_setup()

    async def _model(self, rest: str) -> None:
        await (self._use(rest) if rest else self._models(""))

    async def _use(self, ref: str) -> None:
        await self._app.client.submit(SetModel(ref))
        self._app.tell(f"{visible((await self._app.client.info()).model)} answers from now on.")

    async def _context(self, rest: str) -> None:
        from odin.ui.tui.dialogs.reports import context

        self._app.push_screen(context(self._app))

    async def _usage(self, rest: str) -> None:
        from odin.ui.tui.dialogs.reports import usage

        self._app.push_screen(usage(self._app))

    async def _servers(self, rest: str) -> None:
        from odin.ui.tui.dialogs.reports import servers

        self._app.push_screen(servers(self._app))

    async def _diagnostics(self, rest: str) -> None:
        from odin.ui.tui.dialogs.reports import diagnostics

        self._app.push_screen(diagnostics(self._app))

    async def _errors(self, rest: str) -> None:
        from odin.ui.tui.dialogs.errors import ErrorsDialog

        self._app.push_screen(ErrorsDialog())

    async def _stats(self, rest: str) -> None:
        from odin.ui.tui.dialogs.stats import StatsDialog

        self._app.push_screen(StatsDialog(*wanted_stats(rest)))

    async def _budget(self, rest: str) -> None:
        client = self._app.client
        if not rest:
            limit = (await client.info()).budget_usd
            spent = usd((await client.snapshot()).cost_usd)
            what = f"may cost {usd(limit)}" if limit else "has no budget"
            self._app.tell(f"This session {what}; it has cost {spent}. /budget USD sets what it may cost.")
            return
        amount = wanted_budget(rest)
        await client.submit(SetBudget(amount))
        self._app.tell(budget_told(amount))
        if freed(await client.snapshot(), amount):
            await client.submit(Continue(os.urandom(6).hex()))

    # --- words for the same things ---

    async def _show(self, rest: str) -> None:
        info = await self._app.client.info()
        word = rest.casefold()
        if word in ("rules", "context"):
            await self._others.run(word)
        elif word == "model":
            self._app.tell(f"The model is {visible(info.model)}.")
        elif word == "mode":
            mode = self._app.mode.removesuffix("_mode")
            self._app.tell(f"The mode is {mode}; permissions are {info.permission_mode}.")
        elif word == "sandbox":
            self._app.tell(f"Commands run in {visible(info.sandbox) or 'no sandbox'}.")
        elif word:
            raise UsageError(f"/show does not know {rest!r}.", "Write /show model, mode, sandbox, rules or context.")
        else:
            await self._diagnostics("")

    async def _list(self, rest: str) -> None:
        word = rest.casefold()
        if word in ("models", "sessions", "rules", "commands"):
            await self._others.run(word)
        elif word == "tools":
            self._app.tell(", ".join((await self._app.client.info()).tools))
        elif word:
            raise UsageError(
                f"/list does not know {rest!r}.", "Write /list models, sessions, rules, commands or tools."
            )
        else:
            await self._help("")

    async def _switch(self, rest: str) -> None:
        what, _, name = rest.partition(" ")
        name = name.strip()
        if what == "model":
            await self._model(name)
        elif what == "mode" and name in ("ask", "plan", "edit"):
            await self._others.run(name)
        else:
            raise UsageError(f"/switch does not know {rest!r}.", "Write /switch model NAME, or /switch mode ask.")
