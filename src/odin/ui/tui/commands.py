"""Commands about what is allowed, and how much is asked.

Commands that show something: help, models, what was spent, what is wrong.

Commands about the screen itself: colours, the mouse, copying, leaving.

All commands of the app by their names. What each does is with its kind.
"""

import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from odin.core.client import Client, SessionInfo
from odin.core.errors import UsageError
from odin.core.event import Envelope, PermissionModeChanged
from odin.core.message import Attachment
from odin.core.op import Continue, RemoveRule, SetBudget, SetModel
from odin.core.slash_commands import find_slash_command
from odin.core.tui_settings import ThemeSetting
from odin.ui.slash_commands.permissions import RULES_USAGE, PermissionModeSwitch, find_rule, parse_rule
from odin.ui.slash_commands.usage import can_resume_work, describe_budget, format_usd, parse_budget, parse_stats
from odin.ui.terminal import escape_hidden
from odin.ui.tui.blocks import AnswerBlock
from odin.ui.tui.composer.external_editor import run_in_terminal
from odin.ui.tui.session_commands import NavigationCommands, TurnCommands
from odin.ui.tui.session_follower import SessionObserver
from odin.ui.tui.terminal.driver import set_mouse

if TYPE_CHECKING:
    from odin.ui.tui.app import OdinApp


class PermissionCommands:
    """Also told of what happens: the mode may be changed by somebody else."""

    def __init__(self, app: "OdinApp") -> None:
        self._app = app
        self._mode_switch: PermissionModeSwitch | None = None

    def build_table(self) -> dict[str, Callable[[str], Awaitable[None]]]:
        return {
            "permissions": lambda rest: self._switch_mode("/permissions", rest),
            "yolo": lambda rest: self._switch_mode("/yolo", rest),
            "rules": self._handle_rules,
        }

    # --- as a watcher ---

    def enter_session(self, client: Client, info: SessionInfo) -> None:
        self._mode_switch = PermissionModeSwitch(client, info.permission_mode)

    def handle_event(self, envelope: Envelope, live: bool) -> None:
        """What was changed in an earlier run holds no longer."""
        event = envelope.event
        if live and isinstance(event, PermissionModeChanged) and not envelope.agent and self._mode_switch is not None:
            self._mode_switch.record_mode(event.mode)

    def draw_frame(self) -> None:
        return None

    # --- how much is asked ---

    async def _switch_mode(self, command: str, rest: str) -> None:
        if self._mode_switch is not None:
            self._app.show_toast(await self._mode_switch.run_command(command, rest))

    # --- rules ---

    async def _handle_rules(self, rest: str) -> None:
        verb, _, more = rest.partition(" ")
        if not verb:
            from odin.ui.tui.dialogs.rules import RulesDialog

            self._app.push_screen(RulesDialog())
        elif verb == "add":
            await self._app.client.submit(parse_rule(more))
        elif verb == "remove":
            found = find_rule(await self._app.client.list_rules(), more.strip())
            await self._app.client.submit(RemoveRule(found.number))
        else:
            raise UsageError(f"/rules does not know {verb!r}.", RULES_USAGE)


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
        from odin.ui.tui.dialogs.reports import ErrorsDialog

        self._app.push_screen(ErrorsDialog())

    async def _show_stats(self, rest: str) -> None:
        from odin.ui.tui.dialogs.reports import StatsDialog

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


_THEMES: dict[str, ThemeSetting] = {"auto": "auto", "dark": "dark", "light": "light"}
_PAGER = "less"


class DisplayCommands:
    def __init__(self, app: "OdinApp") -> None:
        self._app = app

    def build_table(self) -> dict[str, Callable[[str], Awaitable[None]]]:
        return {
            "copy": self._copy_answer,
            "transcript": self._show_transcript,
            "theme": self._set_theme,
            "mouse": self._set_mouse,
            "vim": self._set_vim,
            "editor": self._open_editor,
            "exit": self._exit,
        }

    async def _copy_answer(self, rest: str) -> None:
        number = int(rest) if rest.isdecimal() and len(rest) < 7 else 0 if rest else 1
        blocks = self._app.transcript.blocks
        answers = [block.text for block in blocks if isinstance(block, AnswerBlock) and block.text.strip()]
        if not 1 <= number <= len(answers):
            raise UsageError(
                f"There is no answer number {rest} to copy." if rest else "There is no answer to copy yet.",
                "1 is the last one.",
            )
        self._app.copy_to_clipboard(answers[-number])
        self._app.show_toast("The answer was copied." if number == 1 else f"Answer {number} from the end was copied.")

    async def _show_transcript(self, rest: str) -> None:
        """The whole conversation in $PAGER."""
        import os
        import shlex
        import tempfile

        from odin.ui.tui.lifecycle import print_transcript
        from odin.ui.tui.palette import make_palette

        pager = shlex.split(os.environ.get("PAGER", "")) or [_PAGER]
        with tempfile.TemporaryDirectory(prefix="odin-transcript-") as folder:
            path = Path(folder, "transcript.txt")
            with path.open("w", encoding="utf-8", errors="replace") as file:
                print_transcript(self._app.transcript.blocks, make_palette(self._app.current_theme), file)
            await run_in_terminal(self._app, [*pager, str(path)])

    async def _set_theme(self, rest: str) -> None:
        if not rest:
            rest = "light" if self._app.current_theme.dark else "dark"
        name = _THEMES.get(rest.casefold())
        if name is None:
            raise UsageError(f"There is no theme {rest!r}.", "Write /theme dark, /theme light or /theme auto.")
        self._app.choose_theme(name)

    async def _set_mouse(self, rest: str) -> None:
        on = _parse_on_off(rest, not self._app.settings.mouse, "/mouse")
        self._app.settings = replace(self._app.settings, mouse=on)
        set_mouse(self._app, on)
        self._app.show_toast(
            "Clicks and the wheel are Odin's again." if on else "The mouse is the terminal's now: select as usual."
        )

    async def _set_vim(self, rest: str) -> None:
        on = _parse_on_off(rest, not self._app.settings.vim, "/vim")
        self._app.settings = replace(self._app.settings, vim=on)
        stop, write = self._app.keys.label_of("stop"), self._app.keys.label_of("write")
        how = f"{stop} leaves the prompt for the conversation; {write} comes back."
        self._app.show_toast(how if on else "Vim-style navigation is off.")

    async def _open_editor(self, rest: str) -> None:
        await self._app.composer.run_action("edit_outside")

    async def _exit(self, rest: str) -> None:
        self._app.exit(0)


def _parse_on_off(word: str, other: bool, command: str) -> bool:
    """What was written, or else the other of what holds."""
    if word.casefold() in ("on", "off"):
        return word.casefold() == "on"
    if word:
        raise UsageError(f"{command} does not know {word!r}.", f"Write {command} on or {command} off.")
    return other


CommandHandler = Callable[[str], Awaitable[None]]
"""Does it, with what was written after the name."""


class CommandTable:
    """Those about words for the model also take what is attached to them."""

    def __init__(self, app: "OdinApp") -> None:
        self.navigation = NavigationCommands(app)
        self._permissions = PermissionCommands(app)
        working = TurnCommands(app, self.navigation)
        self._prompt_table = working.build_prompt_table()
        self._table: dict[str, CommandHandler] = {
            **working.build_table(),
            **self.navigation.build_table(),
            **self._permissions.build_table(),
            **ReportCommands(app, self).build_table(),
            **DisplayCommands(app).build_table(),
        }

    @property
    def names(self) -> frozenset[str]:
        return frozenset((*self._table, *self._prompt_table))

    @property
    def observers(self) -> tuple[SessionObserver, ...]:
        """Those that are told of what happens."""
        return self.navigation, self._permissions

    async def run(self, name: str, rest: str = "", attached: Sequence[Attachment] = ()) -> bool:
        """False when there is no such command: then it is no business of ours, and the model may read it.

        Raises OdinError for what cannot be done; nothing else happens then.
        """
        found = find_slash_command(name)
        if found is None:
            return False
        if found.name in self._prompt_table:
            await self._prompt_table[found.name](rest.strip(), attached)
            return True
        act = self._table.get(found.name)
        if act is not None:
            await act(rest.strip())
        return act is not None
