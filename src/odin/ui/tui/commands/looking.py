"""Commands that show something: help, models, what was spent, what is wrong."""

import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from odin.core.errors import UsageError
from odin.core.op import Continue, SetBudget, SetModel
from odin.ui.commands.spending import can_resume_work, describe_budget, format_usd, parse_budget
from odin.ui.commands.stats import parse_stats
from odin.ui.terminal import escape_hidden

if TYPE_CHECKING:
    from odin.ui.tui.app import OdinApp
    from odin.ui.tui.commands.table import CommandTable


class ReportCommands:
    def __init__(self, app: "OdinApp", others: "CommandTable") -> None:
        self._app = app
        self._commands = others

    def build_table(self) -> dict[str, Callable[[str], Awaitable[None]]]:
        return {
            "help": self._show_help,
            "commands": lambda rest: self._show_help(f"custom {rest}".strip()),
            "keys": lambda rest: self._show_help(f"key {rest}".strip()),
            "model": self._set_model,
            "models": self._choose_model,
            "setup": self._open_setup,
            "context": self._show_context,
            "usage": self._show_usage,
            "stats": self._show_stats,
            "budget": self._handle_budget,
            "mcp": self._show_servers,
            "diagnostics": self._show_diagnostics,
            "errors": self._show_errors,
            "show": self._show_item,
            "list": self._list_items,
            "switch": self._switch_item,
        }

    # --- windows ---

    async def _show_help(self, rest: str) -> None:
        from odin.ui.tui.dialogs.help import HelpDialog

        def taken(command: str | None) -> None:
            if command:
                self._commands.navigation.edit_prompt(command)

        self._app.push_screen(HelpDialog(rest.removeprefix("/")), taken)

    async def _choose_model(self, rest: str) -> None:
        from odin.ui.tui.dialogs.models import ModelPicker

        def chosen(ref: str | None) -> None:
            if ref:
                self._app.run_in_background(self._use_model(ref))

        self._app.push_screen(ModelPicker(rest), chosen)

    async def _open_setup(self, rest: str) -> None:
        self._app.action_setup()

    async def _set_model(self, rest: str) -> None:
        await (self._use_model(rest) if rest else self._choose_model(""))

    async def _use_model(self, ref: str) -> None:
        await self._app.client.submit(SetModel(ref))
        self._app.show_toast(f"{escape_hidden((await self._app.client.get_info()).model)} answers from now on.")

    async def _show_context(self, rest: str) -> None:
        from odin.ui.tui.dialogs.reports import make_context_report

        self._app.push_screen(make_context_report(self._app))

    async def _show_usage(self, rest: str) -> None:
        from odin.ui.tui.dialogs.reports import make_usage_report

        self._app.push_screen(make_usage_report(self._app))

    async def _show_servers(self, rest: str) -> None:
        from odin.ui.tui.dialogs.reports import make_servers_report

        self._app.push_screen(make_servers_report(self._app))

    async def _show_diagnostics(self, rest: str) -> None:
        from odin.ui.tui.dialogs.reports import make_diagnostics_report

        self._app.push_screen(make_diagnostics_report(self._app))

    async def _show_errors(self, rest: str) -> None:
        from odin.ui.tui.dialogs.errors import ErrorsDialog

        self._app.push_screen(ErrorsDialog())

    async def _show_stats(self, rest: str) -> None:
        from odin.ui.tui.dialogs.stats import StatsDialog

        self._app.push_screen(StatsDialog(*parse_stats(rest)))

    async def _handle_budget(self, rest: str) -> None:
        client = self._app.client
        if not rest:
            limit = (await client.get_info()).budget_usd
            spent = format_usd((await client.snapshot()).cost_usd)
            what = f"may cost {format_usd(limit)}" if limit else "has no budget"
            self._app.show_toast(f"This session {what}; it has cost {spent}. /budget USD sets what it may cost.")
            return
        amount = parse_budget(rest)
        await client.submit(SetBudget(amount))
        self._app.show_toast(describe_budget(amount))
        if can_resume_work(await client.snapshot(), amount):
            await client.submit(Continue(os.urandom(6).hex()))

    # --- words for the same things ---

    async def _show_item(self, rest: str) -> None:
        info = await self._app.client.get_info()
        word = rest.casefold()
        if word in ("rules", "context"):
            await self._commands.run(word)
        elif word == "model":
            self._app.show_toast(f"The model is {escape_hidden(info.model)}.")
        elif word == "mode":
            mode = self._app.mode.removesuffix("_mode")
            self._app.show_toast(f"The mode is {mode}; permissions are {info.permission_mode}.")
        elif word == "sandbox":
            self._app.show_toast(f"Commands run in {escape_hidden(info.sandbox) or 'no sandbox'}.")
        elif word:
            raise UsageError(f"/show does not know {rest!r}.", "Write /show model, mode, sandbox, rules or context.")
        else:
            await self._show_diagnostics("")

    async def _list_items(self, rest: str) -> None:
        word = rest.casefold()
        if word in ("models", "sessions", "rules", "commands"):
            await self._commands.run(word)
        elif word == "tools":
            self._app.show_toast(", ".join((await self._app.client.get_info()).tools))
        elif word:
            raise UsageError(
                f"/list does not know {rest!r}.", "Write /list models, sessions, rules, commands or tools."
            )
        else:
            await self._show_help("")

    async def _switch_item(self, rest: str) -> None:
        what, _, name = rest.partition(" ")
        name = name.strip()
        if what == "model":
            await self._set_model(name)
        elif what == "mode" and name in ("ask", "plan", "edit"):
            await self._commands.run(name)
        else:
            raise UsageError(f"/switch does not know {rest!r}.", "Write /switch model NAME, or /switch mode ask.")
