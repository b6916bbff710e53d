"""Slash commands of the app: the shared actions, and handlers for commands that open a dialog or change the screen."""

import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from msgspec.structs import replace

from odin.core.errors import UsageError
from odin.core.format import format_usd
from odin.core.message import Attachment
from odin.core.slash_commands import find_slash_command, make_argument_error
from odin.core.tui_settings import ThemeSetting
from odin.sandbox.terminal import make_terminal_programs
from odin.ui.session_follower import SessionObserver
from odin.ui.slash_commands.actions import (
    ACTIONS,
    AGENT_OPTION,
    SHOWN_WITHOUT_ARGUMENT,
    change_rules,
    format_roots,
    is_model_choice,
    resolve_synonym,
    save_choice,
    split_session_option,
)
from odin.ui.slash_commands.extensions import format_skills
from odin.ui.slash_commands.processes import control_process, find_process
from odin.ui.slash_commands.reports import parse_paths, parse_stats
from odin.ui.transcript.blocks import AnswerBlock
from odin.ui.tui.agent_focus import AgentFocus
from odin.ui.tui.composer.composer import Composer
from odin.ui.tui.composer.external_text import run_in_terminal
from odin.ui.tui.composer.input_panel import InputPanel
from odin.ui.tui.session_app import SessionApp
from odin.ui.tui.session_commands import NavigationCommands, SharedActions, TurnCommands
from odin.ui.tui.terminal_driver import set_mouse
from odin.ui.tui.transcript import TranscriptView

_REPORTS = ("agents", "context", "diagnostics", "lsp", "memory", "plugins", "status", "usage")
"""The commands that show a report; their texts are loaded with the first."""


class ReportCommands:
    """Commands that open a window."""

    def __init__(self, app: SessionApp, actions: SharedActions, edit_command: Callable[[str], None]) -> None:
        self._app = app
        self._actions = actions
        self._edit_command = edit_command

    async def run_rules(self, rest: str) -> None:
        if rest:
            await change_rules(self._actions.context, rest)  # the rule's event shows a line
            return
        from odin.ui.tui.dialogs.rules import RulesDialog

        self._app.push_screen(RulesDialog())

    async def run_add_dir(self, rest: str) -> None:
        self._app.show_toast(format_roots(await self._app.client.get_info()))

    async def run_help(self, rest: str) -> None:
        from odin.ui.tui.dialogs.reports import HelpDialog

        def taken(command: str | None) -> None:
            if command:
                self._edit_command(command)

        self._app.push_screen(HelpDialog(rest.removeprefix("/")), taken)

    async def run_mcp(self, rest: str) -> None:
        from odin.ui.tui.dialogs.servers import ServersDialog

        self._app.push_screen(ServersDialog())

    async def run_ps(self, rest: str) -> None:
        from odin.ui.tui.dialogs.processes import ProcessesDialog, ProcessOutputDialog

        client = self._app.client
        told, verb = await control_process(client, rest, self._app.recipient)
        if verb:
            self._app.push_screen(ProcessOutputDialog(await find_process(client, told)) if told else ProcessesDialog())
        elif told:
            self._app.show_toast(told)

    async def run_commands(self, rest: str) -> None:
        await self.run_help(f"custom {rest}".strip())

    async def run_keys(self, rest: str) -> None:
        await self.run_help(f"key {rest}".strip())

    async def show(self, name: str, rest: str) -> None:
        """Open the report of this name."""
        from odin.ui.tui.dialogs.reports import REPORTS, ReportDialog

        self._app.push_screen(ReportDialog(*REPORTS[name]))

    async def run_skills(self, rest: str) -> None:
        from odin.ui.tui.dialogs.reports import make_skills_report

        await format_skills(self._app.client, rest, 80)  # an unknown name is refused before the window opens
        self._app.push_screen(make_skills_report(rest))

    async def run_models(self, rest: str) -> None:
        from odin.ui.tui.dialogs.onboarding import ModelPicker

        if is_model_choice(rest, (await self._app.client.get_info()).pools):
            await self._actions.run("model", rest)
            return
        agent = self._app.recipient

        def choose(ref: str | None) -> None:
            if ref:
                chosen = f"{ref} {AGENT_OPTION} {agent}" if agent else ref
                self._app.run_in_background(self._actions.run("model", chosen))

        self._app.push_screen(ModelPicker(rest), choose)

    async def run_setup(self, rest: str) -> None:
        await self._app.run_action("setup")

    async def run_model(self, rest: str) -> None:
        await self.run_models("")

    async def run_diff(self, rest: str) -> None:
        from odin.ui.tui.dialogs.reports import make_changes_report

        self._app.push_screen(make_changes_report(await self._app.sessions.list_changes(parse_paths(rest))))

    async def run_errors(self, rest: str) -> None:
        from odin.ui.tui.dialogs.reports import ErrorsDialog

        self._app.push_screen(ErrorsDialog())

    async def run_stats(self, rest: str) -> None:
        from odin.ui.tui.dialogs.stats import StatsDialog

        self._app.push_screen(StatsDialog(*parse_stats(rest)))

    async def run_budget(self, rest: str) -> None:
        client = self._app.client
        limit = (await client.get_info()).budget_usd
        spent = format_usd((await client.snapshot()).cost_usd)
        budget = f"Budget of this session: {format_usd(limit)}" if limit else "This session has no budget limit"
        self._app.show_toast(f"{budget}; spent so far: {spent}. /budget USD sets a limit.")


_THEMES: dict[str, ThemeSetting] = {"auto": "auto", "dark": "dark", "light": "light"}
_PAGER = "less"


class DisplayCommands:
    def __init__(
        self, app: SessionApp, agent_focus: AgentFocus, composer: Composer, choose_theme: Callable[[ThemeSetting], None]
    ) -> None:
        self._app = app
        self._agent_focus = agent_focus
        self._composer = composer
        self._choose_theme = choose_theme

    async def run_copy(self, rest: str) -> None:
        number = int(rest) if rest.isdecimal() and len(rest) < 7 else 0 if rest else 1
        blocks = self._app.query_one(TranscriptView).blocks
        answers = [block.text for block in blocks if isinstance(block, AnswerBlock) and block.text.strip()]
        if not 1 <= number <= len(answers):
            raise UsageError(f"No answer number {rest}." if rest else "No answer to copy yet.", "1 is the last answer.")
        self._app.copy_to_clipboard(answers[-number])
        self._app.show_toast("Copied the last answer." if number == 1 else f"Copied answer {number} from the end.")

    async def run_transcript(self, rest: str) -> None:
        """Open the conversation in $PAGER."""
        import shlex

        from odin.ui.tui.lifecycle import print_transcript
        from odin.ui.tui.palette import make_palette

        blocks = self._app.query_one(TranscriptView).blocks
        pager = shlex.split(os.environ.get("PAGER", "")) or [_PAGER]
        with make_terminal_programs(self._app.info, os.environ).open_scratch() as folder:
            path = folder / "transcript.txt"
            with path.open("w", encoding="utf-8", errors="replace") as file:
                print_transcript(blocks, make_palette(self._app.current_theme), file)
            await run_in_terminal(self._app, [*pager, str(path)])

    async def run_theme(self, rest: str) -> None:
        look, is_saved = split_session_option(rest)
        if not look:
            look = "light" if self._app.current_theme.dark else "dark"
        name = _THEMES.get(look.casefold())
        if name is None:
            raise make_argument_error("theme", look)
        self._choose_theme(name)
        saved = await save_choice(self._app.sessions, "tui.theme", name) if is_saved else "Only for this session."
        self._app.show_toast(f"Theme: {name}. {saved}")

    async def run_mouse(self, rest: str) -> None:
        on = _parse_on_off(rest, not self._app.settings.mouse, "mouse")
        self._app.settings = replace(self._app.settings, mouse=on)
        set_mouse(self._app, on)
        self._app.show_toast("Mouse support is on." if on else "Mouse support is off: select text with your terminal.")

    async def run_vim(self, rest: str) -> None:
        on = _parse_on_off(rest, not self._app.settings.vim, "vim")
        self._app.settings = replace(self._app.settings, vim=on)
        stop, write = self._app.keys.get_label("stop"), self._app.keys.get_label("write")
        hint = f"Vim-style navigation is on: {stop} leaves the prompt, {write} returns to it."
        self._app.show_toast(hint if on else "Vim-style navigation is off.")

    async def run_editor(self, rest: str) -> None:
        await self._composer.run_action("edit_outside")

    async def run_exit(self, rest: str) -> None:
        self._agent_focus.exit_app()


def _parse_on_off(word: str, toggled: bool, command: str) -> bool:
    """Return the explicit argument `on` or `off`, or without one the toggled current value."""
    if word.casefold() in ("on", "off"):
        return word.casefold() == "on"
    if word:
        raise make_argument_error(command, word)
    return toggled


class CommandTable:
    """Runs slash commands: the shared actions, and the app's own handlers for commands that open something.

    The handler of a command is the method of that name with `run_` before it. It gets the text typed after the name.
    """

    def __init__(
        self,
        app: SessionApp,
        agent_focus: AgentFocus,
        input_panel: InputPanel,
        choose_theme: Callable[[ThemeSetting], None],
    ) -> None:
        self._actions = SharedActions(app)
        self.navigation = NavigationCommands(app, self._actions, agent_focus, input_panel)
        turn_commands = TurnCommands(app, self._actions, self.navigation, agent_focus)
        self._prompt_table = turn_commands.build_prompt_table()
        self._table: dict[str, Callable[[str], Awaitable[None]]] = {
            name: partial(self._actions.run, name) for name in ACTIONS
        }
        reports = ReportCommands(app, self._actions, self.navigation.edit_command)
        self._table |= {name: partial(reports.show, name) for name in _REPORTS}
        groups = (
            turn_commands,
            self.navigation,
            reports,
            DisplayCommands(app, agent_focus, input_panel.composer, choose_theme),
        )
        for group in groups:
            for method in dir(group):
                if method.startswith("run_"):
                    self._table[method.removeprefix("run_").replace("_", "-")] = getattr(group, method)

    @property
    def names(self) -> frozenset[str]:
        return frozenset((*self._table, *self._prompt_table))

    @property
    def observers(self) -> tuple[SessionObserver, ...]:
        return self.navigation, self._actions

    async def run(self, name: str, rest: str = "", attached: Sequence[Attachment] = ()) -> bool:
        """Run a command. Return False if there is none of that name: the text is then a prompt for the model.

        Attachments go with the text of commands that send a prompt. Raise OdinError if the command is refused.
        """
        found = find_slash_command(name)
        if found is None:
            return False
        resolved, rest = resolve_synonym(found.name, rest.strip())
        if resolved in self._prompt_table:
            await self._prompt_table[resolved](rest, attached)
            return True
        if resolved not in self._table:
            return False
        if rest and resolved in SHOWN_WITHOUT_ARGUMENT:
            await self._actions.run(resolved, rest)
        else:
            await self._table[resolved](rest)
        return True
