"""The terminal app: a client that shows one session at a time.

Session events are applied as they arrive and drawn in frames, at most 30 per second and only after a change.
"""

import asyncio
import os
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.driver import Driver
from textual.filter import LineFilter
from textual.geometry import Size
from textual.screen import Screen
from textual.widget import Widget

from odin.core.client import Sessions
from odin.core.errors import UsageError
from odin.core.event_values import Mode
from odin.core.message import Attachment
from odin.core.op import SetEffort, SetRole
from odin.core.tui_settings import ThemeSetting, TuiSettings
from odin.ui.notifications import Notifier
from odin.ui.transcript.blocks import ProcessBlock
from odin.ui.tui.agent_focus import AgentFocus
from odin.ui.tui.card_mode import CardHints, route_input
from odin.ui.tui.commands import CommandTable
from odin.ui.tui.composer.composer import Composer
from odin.ui.tui.composer.external_text import clean_text
from odin.ui.tui.composer.input_panel import InputPanel
from odin.ui.tui.dialog_queue import DialogQueue
from odin.ui.tui.keys import make_scroll_action
from odin.ui.tui.lifecycle import DoublePress, LoadSetup, LoadTrust, Startup
from odin.ui.tui.palette import (
    NoColors,
    TerminalBackground,
    choose_theme_name,
    is_background_known,
    make_palette,
    should_query_background,
)
from odin.ui.tui.panels.panel import BottomArea, skip_second_styling
from odin.ui.tui.panels.side import SidePanel, TodoPanel
from odin.ui.tui.panels.status import ActivityLine, StartPanel, StatusLine
from odin.ui.tui.panels.updater import PanelUpdater
from odin.ui.tui.search import SearchBar
from odin.ui.tui.session_app import SessionApp
from odin.ui.tui.terminal_driver import OdinDriver, redraw
from odin.ui.tui.terminal_input import BACKGROUND_QUERY, BackgroundReported
from odin.ui.tui.timers import call_after
from odin.ui.tui.timing import DEFAULT_APP_TIMING, AppTiming
from odin.ui.tui.transcript import TranscriptView

RESIZE_SETTLE_S = 0.15
"""How long the size must be stable before the screen is redrawn."""

PRELOAD_S = 1.0
PRELOAD_MODULES = (
    "odin.ui.tui.paint.markdown",
    "markdown_it",
    "pygments.lexers",
    "rich.syntax",
    "odin.ui.tui.dialogs.interaction",
)
"""Needed by the first answer and the first dialog; imported in a thread shortly after start."""

MODES: tuple[Mode, ...] = ("ask_mode", "plan_mode", "edit_mode")
EFFORT_CYCLE = ("low", "medium", "high")

Connect = Callable[[], Awaitable[Sessions]]
"""Opens the session. Called after the screen is drawn."""


class MainScreen(Screen[None]):
    """The screen below all dialogs. The composer has the focus from the start."""

    AUTO_FOCUS = "#composer"
    VERTICAL_BREAKPOINTS: list[tuple[int, str]] | None = [(0, "-flat"), (7, "-low"), (11, "-high")]  # noqa: RUF012
    DEFAULT_CLASSES = "-high"

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        skip_second_styling(event)


def make_command_action(name: str) -> "Callable[[OdinApp], None]":
    """Return the action of a key that runs a slash command."""
    return lambda app: app.run_in_background(app.run_command(name))


class OdinApp(SessionApp, inherit_bindings=False):
    """The screen, its parts and the keys that work everywhere."""

    TITLE = "Odin"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { layout: vertical; background: $background; }
    Dialog { background: $background 0%; }
    #middle { height: 1fr; layers: base above; }
    TranscriptView { width: 1fr; height: 1fr; }
    InputPanel, Composer { min-width: 12; }
    ToastRack { dock: top; align: right top; margin: 0 1; }
    Toast { max-width: 90%; padding: 0 1; margin: 0; background: $panel; color: $foreground; }
    MainScreen.-low TodoPanel, MainScreen.-flat TodoPanel { display: none; }
    MainScreen.-flat ActivityLine, MainScreen.-flat StatusLine { display: none; }
    """

    def __init__(
        self,
        connect: Connect,
        settings: TuiSettings | None = None,
        *,
        first: str = "",
        mode: Mode | None = None,
        clock: Callable[[], float] = time.time,
        timing: AppTiming = DEFAULT_APP_TIMING,
        driver_class: type[Driver] | None = None,
        setup: LoadSetup | None = None,
        trust: LoadTrust | None = None,
        attaching: Awaitable[Sessions | None] | None = None,
    ) -> None:
        """`attaching` gives the sessions of another process, or None: then `connect` opens one after the dialogs."""
        super().__init__(settings or TuiSettings(), mode, clock, timing, driver_class)
        self._connect = connect
        self._attaching = attaching
        self._first = first
        self._end_code = 0
        self._is_started = False
        self.prints_transcript = False
        self._quit_press = DoublePress(timing.double_press_s, timing.clock)
        self._escape_press = DoublePress(timing.double_escape_s, timing.clock)
        self._redraw_timer: asyncio.TimerHandle | None = None
        self._task_factory: Any = None
        self.theme_choice: ThemeSetting = self.settings.theme
        self._no_colors = NoColors(self.current_theme) if os.environ.get("NO_COLOR") else None
        self._terminal_background: TerminalBackground | None = None
        self._follow_background(is_background_known(self.theme_choice))
        self.side = SidePanel(id="side")
        self.todos = TodoPanel(self.side, id="todos")
        self.input_panel = InputPanel(self, self.run_command, id="writing")
        self.startup = Startup(self, trust, setup)
        self.agent_focus = AgentFocus(self, self.input_panel)
        self.panel_updater = PanelUpdater(self, self.side)
        self.notifier = Notifier(self.settings, self._write_to_terminal, is_suspended=self._is_suspended)
        self.commands = CommandTable(self, self.agent_focus, self.input_panel, self.choose_theme)
        self.observers += [
            self.panel_updater,
            self.agent_focus,
            self.notifier,
            DialogQueue(self),
            self.error_log,
            *self.commands.observers,
        ]

    def get_default_screen(self) -> Screen[None]:
        return MainScreen(id="_default")

    def compose(self) -> ComposeResult:
        with Horizontal(id="middle"):
            yield TranscriptView(self.keys, self.palette, self.settings.diff, clock=self.clock, id="transcript")
            yield self.side
        with BottomArea(id="bottom"):
            yield StartPanel(id="start")
            yield CardHints(id="cards")
            yield SearchBar(id="search")
            yield self.todos
            yield ActivityLine(self.side, id="activity")
            yield self.input_panel
            yield StatusLine(id="status")

    @property
    def focused(self) -> Widget | None:
        """The widget that gets the keys; on the main screen the composer, even before it is drawn."""
        widget = super().focused
        if widget is None and len(self.screen_stack) == 1 and self.composer.is_attached:
            return self.composer
        return widget

    @property
    def transcript(self) -> TranscriptView:
        return self.query_one(TranscriptView)

    @property
    def composer(self) -> Composer:
        return self.input_panel.composer

    # --- the session ---

    def on_mount(self) -> None:
        self.transcript.show(self.transcripts[""])
        self.transcript.render_cache.on_failure = self._record_paint_error
        self.composer.focus()
        call_after(self, PRELOAD_S, self._preload)
        self.call_after_refresh(self._ask_background)
        signals: Any = self
        signals.app_suspend_signal.subscribe(self, lambda _: self.notifier.restore_title(), immediate=True)  # pyright: ignore[reportUnknownLambdaType]
        signals.app_resume_signal.subscribe(self, lambda _: self.request_frame())  # pyright: ignore[reportUnknownLambdaType]
        self.side.update_placement()
        self.prints_transcript = self.settings.transcript_on_exit
        self._is_started = True
        if self.ending.is_set():
            self.exit(self._end_code)
        else:
            self.run_worker(self._open(), exit_on_error=True)

    def _preload(self) -> None:
        self.run_worker(asyncio.to_thread(lambda: [*map(import_module, PRELOAD_MODULES)]), exit_on_error=False)

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key | events.Paste):
            now = self.timing.clock()
            self.key_pause, self.last_key_at = now - self.last_key_at, now
            if len(self.screen_stack) == 1:
                self.typed_at = now
                route_input(self, event)
        await super().on_event(event)

    def on_app_focus(self) -> None:
        self.notifier.record_focus(True)

    def on_app_blur(self) -> None:
        self.notifier.record_focus(False)

    def on_unmount(self) -> None:
        self.notifier.restore_title()
        self.follower.stop()

    def _fatal_error(self) -> None:
        """Suppress Textual's traceback, which prints local variables such as API keys. The caller reports it."""
        self.fail(sys.exception() or self._exception)

    def panic(self, *renderables: object) -> None:
        """See _fatal_error; Textual calls this for other kinds of errors."""
        self.fail(sys.exception() or self._exception)

    def end(self, code: int) -> None:
        """Exit with this code, on a signal. An exit the user already started keeps its own code."""
        self.ending.set()
        self._end_code = code
        if self._is_started and not self._exit:
            self.exit(code)

    async def run_async(self, **options: Any) -> int | None:
        self._task_factory = asyncio.get_running_loop().get_task_factory()
        return await super().run_async(**options)

    async def _process_messages(self, *args: Any, **options: Any) -> None:
        # Textual has just installed an eager task factory, in the loop of all sessions of this process.
        asyncio.get_running_loop().set_task_factory(self._task_factory)
        await super()._process_messages(*args, **options)

    async def _open(self) -> None:
        self._sessions = await self._attaching if self._attaching is not None else None
        if self._sessions is None:
            await self.startup.run_dialogs()
            self._sessions = await self._connect()
        await self.show_session()
        await self.input_panel.begin(self._first)

    def _record_paint_error(self, error: Exception) -> None:
        self.error_log.add(self.clock(), "screen", "".join(traceback.format_exception(error)))

    def on_resize(self) -> None:
        """Some terminals drop content when resized back to an earlier size, so redraw everything once it is stable."""
        self.call_next(self.side.update_placement)  # Textual sets the new size after this
        self.request_frame()
        if self._redraw_timer is not None:
            self._redraw_timer.cancel()
        self._redraw_timer = call_after(self, RESIZE_SETTLE_S, self._redraw_after_resize)

    def _redraw_after_resize(self) -> None:
        """Query the terminal for its size, because the last SIGWINCH of a burst can be lost."""
        driver = self._driver
        columns, rows = driver._get_terminal_size() if isinstance(driver, OdinDriver) else self.size
        if (columns, rows) != self.size:
            self.post_message(events.Resize(Size(columns, rows), Size(columns, rows)))
        else:
            redraw(self)

    def draw_frame(self) -> None:
        self.transcript.sync()
        super().draw_frame()

    # --- the terminal ---

    def _write_to_terminal(self, text: str) -> None:
        if self._driver is not None and not self.is_headless:
            self._driver.write(text)
            self._driver.flush()

    def _is_suspended(self) -> bool:
        return not getattr(self._driver, "holding", True)

    def clear_notifications(self) -> None:
        """Also remove the holders of the toasts, which Textual leaves behind as empty rows."""
        super().clear_notifications()
        self.screen.query("ToastHolder").remove()

    def copy_to_clipboard(self, text: str) -> None:
        """Copy without escape sequences, which would control the terminal they are pasted into."""
        super().copy_to_clipboard(clean_text(text))

    def choose_theme(self, look: ThemeSetting) -> None:
        """Use a theme until the app ends; `auto` queries the terminal for its background."""
        self.theme_choice = look
        self._apply_theme(choose_theme_name(look), is_background_known(look))
        self._ask_background()

    def _ask_background(self) -> None:
        if should_query_background(self.theme_choice) and not self.is_headless:
            BACKGROUND_QUERY.ask(self._write_to_terminal)

    def on_background_reported(self, message: BackgroundReported) -> None:
        if self.theme_choice == "auto":
            self._apply_theme(choose_theme_name("light" if message.light else "dark"), True)

    def _apply_theme(self, theme: str, is_background_known: bool) -> None:
        self.theme = theme
        self._follow_background(is_background_known)
        self.palette = make_palette(self.current_theme)
        self.transcript.set_palette(self.palette, self.settings.diff)
        for widget in self.screen.walk_children(Widget):
            widget.refresh()
        self.request_frame()

    def _follow_background(self, is_known: bool) -> None:
        """Show the terminal's own background if it is known to suit the theme; else the theme paints its own."""
        self._terminal_background = TerminalBackground(self.current_theme) if is_known else None

    def get_line_filters(self) -> Sequence[LineFilter]:
        if self._no_colors is not None:
            return [self._no_colors]
        filters = super().get_line_filters()
        return filters if self._terminal_background is None else [*filters, self._terminal_background]

    async def run_command(self, name: str, rest: str = "", attached: Sequence[Attachment] = ()) -> bool:
        """Run a slash command of the app; False if the name is unknown. Raise OdinError if it fails."""
        return await self.commands.run(name, rest, attached)

    # --- dialogs ---

    action_models, action_mcp, action_diagnostics = map(make_command_action, ("models", "mcp", "diagnostics"))
    action_errors, action_help, action_stats = map(make_command_action, ("errors", "help", "stats"))

    def action_rewind(self) -> None:
        self.commands.navigation.choose_rewind()

    def action_contents(self) -> None:
        self.commands.navigation.show_contents()

    # --- keys ---

    async def action_stop(self) -> None:
        """Esc: leave card mode, else interrupt the work. In Vim mode it starts card mode, and interrupts from there."""
        # set_focus, not focus(), which is delayed: the next key already belongs to the other widget
        if self.settings.vim and self.composer.has_focus:
            self.screen.set_focus(self.transcript)
        elif not self.composer.has_focus and not (self.settings.vim and self.agent_focus.is_busy):
            self.screen.set_focus(self.composer)
        elif not await self.agent_focus.stop() and not self.composer.text and self._escape_press.press():
            await self.run_action("rewind")

    def action_setup(self) -> None:
        self.run_worker(self.startup.show_onboarding(), exit_on_error=True)

    async def action_next_role(self) -> None:
        """Tab: switch to the role after the active one."""
        if self.info is None:
            return
        roles = [agent.name for agent in await self.client.list_agents() if agent.is_role]
        current = self.facts.role
        await self.submit(SetRole(roles[(roles.index(current) + 1) % len(roles)] if current in roles else roles[0]))

    def action_next_mode(self) -> None:
        self.mode = MODES[(MODES.index(self.mode) + 1) % len(MODES)]
        self.is_mode_chosen = True

    def action_queue(self) -> None:
        self.input_panel.focus_queue()

    async def action_permissions(self) -> None:
        await self.input_panel.switch_permission_mode()

    async def action_effort(self) -> None:
        if self._sessions is None:
            return
        agent = self.recipient
        current = self.facts.get_effort(agent) if agent else (await self.client.get_info()).effort
        effort = EFFORT_CYCLE[(EFFORT_CYCLE.index(current) + 1) % 3 if current in EFFORT_CYCLE else 0]
        if await self.submit(SetEffort(effort, agent)):
            self.show_toast(f"Effort: {effort}.")

    async def action_leave(self) -> None:
        """Ctrl+C: copy the selection, else clear the prompt, else interrupt the work. Twice: exit."""
        if selected := self.screen.get_selected_text():
            self.copy_to_clipboard(selected)
            self.screen.clear_selection()
            self.show_toast("Copied.")
            return
        key = self.keys.get_label("leave")
        if self.composer.text or self.composer.is_in_use:
            self.composer.clear_draft()
            if self.agent_focus.is_busy:
                self.show_toast(f"Cleared; Up brings the prompt back. Press {key} again to stop the work.")
            return
        if self._sessions is not None:
            await self.agent_focus.interrupt()
        if self._quit_press.press():
            self.agent_focus.exit_app()
        else:
            self.show_toast(f"Press {key} again to exit.")

    def handle_interrupt(self) -> None:
        """Treat SIGINT as Ctrl+C, unless an external program has the terminal."""
        if not self._exit and getattr(self._driver, "holding", False):
            self.call_next(self.run_action, "leave")

    async def action_quit(self) -> None:
        if self._quit_press.press():
            self.agent_focus.exit_app()
        else:
            self.show_toast(f"Press {self.keys.get_label('quit')} again to exit.")

    def action_end_of_input(self) -> None:
        if not self.composer.text:
            self.agent_focus.exit_app()

    def action_suspend(self) -> None:
        self.action_suspend_process()

    def action_redraw(self) -> None:
        redraw(self)

    def action_todos(self) -> None:
        self.todos.toggle()

    def action_side_panel(self) -> None:
        self.side.toggle()
        self.request_frame()

    def action_to_background(self) -> None:
        self.run_in_background(self.run_command("ps", "background"))

    def action_show_process(self, id: str) -> None:
        self.run_in_background(self.run_command("ps", id))

    def action_write(self) -> None:
        self.screen.set_focus(self.composer)

    def action_look(self) -> None:
        """Start card mode, at the last card if there is no other."""
        self.transcript.focus()
        if self.transcript.cursor is None:
            self.transcript.action_last_card()

    def action_next_agent(self) -> None:
        self.agent_focus.show_next()

    def action_show_agent(self, agent: str) -> None:
        self.agent_focus.show(agent)

    def action_show_change(self, call_id: str) -> None:
        self.agent_focus.show_change(call_id)

    def on_transcript_view_output_wanted(self, message: TranscriptView.OutputWanted) -> None:
        self.run_in_background(self._load_output(message.block))

    async def _load_output(self, block: ProcessBlock) -> None:
        with suppress(UsageError):  # it ran before the session was resumed
            block.output = (await self.client.read_process(block.key)).text
            block.touch()
            self.transcript.repaint([block], keep=block)

    def on_transcript_view_edit_requested(self, message: TranscriptView.EditRequested) -> None:
        self.commands.navigation.ask_fork(message.turn)

    action_page_up = make_scroll_action(TranscriptView, "scroll_page_up")
    action_page_down = make_scroll_action(TranscriptView, "scroll_page_down")
    action_to_top = make_scroll_action(TranscriptView, "scroll_home")

    def action_to_end(self) -> None:
        self.transcript.to_end()
