"""The read-eval-print loop of plain mode: lines in, answers out. Prompts typed while a turn runs are queued."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any, TextIO

from odin.core.call_events import AskEvent, PlanAnswered, PlanAsked
from odin.core.client import Client, QueuedPrompt, SessionInfo, Sessions, Snapshot, close_events
from odin.core.errors import OdinError, OutputFailed, UsageError
from odin.core.event import (
    AgentEnded,
    AgentStarted,
    Envelope,
    LoopChanged,
    ModeChanged,
    PermissionModeChanged,
    RoleChanged,
    TurnEnded,
    TurnStarted,
    Warned,
)
from odin.core.event_values import DEFAULT_ROLE, Mode
from odin.core.format import pluralize
from odin.core.op import BYPASS_PERMISSIONS, ChangeMemory, ChangePrompt, Interrupt, Prompt
from odin.core.slash_commands import find_slash_command
from odin.core.tui_settings import TuiSettings
from odin.ui.exit import EXIT_INTERRUPTED, EXIT_READER_GONE, format_resume_hint
from odin.ui.notifications import Notifier
from odin.ui.plain.agent_lines import AgentLines
from odin.ui.plain.command_views import CommandView
from odin.ui.plain.commands import MODES, PlainCommands
from odin.ui.plain.dialog_queue import TerminalDialogs
from odin.ui.plain.external_editor import edit_externally
from odin.ui.plain.keyboard import Keyboard
from odin.ui.plain.turn_view import TurnView
from odin.ui.plan_text import format_execution
from odin.ui.slash_commands.actions import refuse_unknown_command, resolve_synonym
from odin.ui.slash_commands.agents import describe_working
from odin.ui.slash_commands.extensions import change_memory, find_memory_line, make_skill_prompt
from odin.ui.slash_commands.sessions import PICK_PROMPT
from odin.ui.terminal import TextStyle, find_editor, is_dumb, write_line, write_text


class PromptSender:
    """Submits prompts. `expects_turn` is True from the request for a turn until it ends.

    Prompts left in the queue by an earlier run stay paused until the next prompt is sent.
    """

    def __init__(self, keyboard: Keyboard) -> None:
        self.expects_turn = False
        self._keyboard = keyboard
        self._followed_client: Client | None = None
        self._following = asyncio.Event()
        self._paused: list[ChangePrompt] = []

    def expect(self) -> None:
        self.expects_turn = True

    def cancel_expected(self) -> None:
        """The requested turn does not start; an earlier one may still run."""
        self.expects_turn = self._keyboard.is_busy

    def set_followed(self, client: Client) -> None:
        self._followed_client = client
        self._following.set()

    def remember_paused(self, queue: tuple[QueuedPrompt, ...]) -> None:
        self._paused = [ChangePrompt(item.id, delivery=item.delivery) for item in queue]

    async def wait_until_followed(self, client: Client) -> None:
        """Wait until the events of this session are read, so that no answer is missed."""
        while self._followed_client is not client:
            self._following.clear()
            await self._following.wait()

    async def send(self, client: Client, prompt: Prompt) -> int:
        """Submit a prompt. Return its position in the queue, or 0 if it runs at once."""
        if prompt.agent:
            await client.submit(prompt)
            return await self._find_place(client, prompt)
        self.expect()
        try:
            await client.submit(prompt)
        except OdinError:
            self.cancel_expected()
            raise
        paused, self._paused = self._paused, []
        for change in paused:
            await client.submit(change)
        return await self._find_place(client, prompt)

    async def _find_place(self, client: Client, prompt: Prompt) -> int:
        queue = [item.id for item in (await client.snapshot()).queue if item.agent == prompt.agent]
        return queue.index(prompt.id) + 1 if prompt.id in queue else 0


_DELAY_S = 0.1
"""Wait before notifying: a turn that the next one follows at once needs no notification."""


class PlainNotifier:
    """Sends the same bell, notification and title as the app, unless stderr is no terminal or a dumb one."""

    def __init__(self, settings: TuiSettings, err: TextIO) -> None:
        self._notifier = Notifier(settings, lambda text: write_text(err, text))
        self._enabled = err.isatty() and not is_dumb(os.environ)
        self._timer: asyncio.TimerHandle | None = None

    def enter_session(self, client: Client, info: SessionInfo) -> None:
        self._notifier.enter_session(client, info)
        self._schedule()

    def handle_event(self, envelope: Envelope) -> None:
        self._notifier.handle_event(envelope, True)
        self._schedule()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._notifier.restore_title()

    def _schedule(self) -> None:
        if self._enabled and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_DELAY_S, self._draw)

    def _draw(self) -> None:
        self._timer = None
        self._notifier.draw_frame()


_INTRODUCTION_STYLES: tuple[TextStyle | None, ...] = ("bold", None, "dim")
START_HINT = "Type a prompt. /help lists commands; Ctrl-D exits."
_PRESS_AGAIN = "Press Ctrl-C again or Ctrl-D to exit."
_EXIT_WORDS = ("/exit", "/quit", "exit", "quit")
_SIGNAL_CODES = {signal.SIGTERM: 143, signal.SIGHUP: 129}


def format_introduction(info: SessionInfo, mode: Mode) -> list[str]:
    """Return the header lines: version, model and folder; mode, permissions and sandbox."""
    first = f"Odin {info.version} · {info.model} · {info.cwd}"
    role = [] if info.role == DEFAULT_ROLE else [f"role: {info.role}"]
    second = [mode.removesuffix("_mode"), *role, f"permissions: {info.permission_mode}"]
    return [first, " · ".join([*second, f"sandbox: {info.sandbox}"] if info.sandbox else second)]


class _PlainRepl:
    """Reads session events and the keyboard in two tasks. /new, /resume and /fork switch the session."""

    def __init__(self, sessions: Sessions, info: SessionInfo, mode: Mode, settings: TuiSettings) -> None:
        self._sessions = sessions
        self._keyboard = self._make_keyboard()
        self._err = self._keyboard.err
        self._sender = PromptSender(self._keyboard)
        self._turns = TurnView(self._keyboard, self._observe)
        self._agent_lines = AgentLines()
        self._is_leaving = False
        self._busy_agents: set[str] = set()
        self._commands = PlainCommands(sessions, info, mode, self._err, self._sender.expect, can_follow=True)
        self._notifier = PlainNotifier(settings, sys.stderr)
        self._lines: asyncio.Queue[tuple[str, bool]] = asyncio.Queue()
        self._line_stays = True
        self._ending = False
        self._own_answers: set[str] = set()
        self._presented = ""
        self._execution = ""
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._side_tasks: set[asyncio.Task[object]] = set()
        self.code = 0

    def _make_keyboard(self) -> Keyboard:
        if is_dumb(os.environ) or not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
            return Keyboard(lambda: self.prompt, self._queue_line)
        from odin.ui.plain.line_editor import LineEditor

        return LineEditor(lambda: self.prompt, self._queue_line, lambda: self._client, self._sessions.list_prompts)

    @property
    def _client(self) -> Client:
        return self._sessions.client

    @property
    def prompt(self) -> str:
        if self._commands.is_choosing:
            return PICK_PROMPT
        role = "" if self._commands.role == DEFAULT_ROLE else f"{self._commands.role} "
        warning = " (yolo: no permission prompts)" if self._commands.permission_mode == BYPASS_PERMISSIONS else ""
        role = f"{self._commands.agent} " if self._commands.agent else role
        return f"{role}{self._commands.mode.removesuffix('_mode')}{warning}> "

    async def run(self, first: str, draft: str) -> int:
        tasks = [self._loop.create_task(work) for work in (self._follow(), self._work(first, draft))]
        for task in tasks:
            task.add_done_callback(self._report_failure)
        self._loop.add_signal_handler(signal.SIGINT, self._handle_interrupt)
        for number, code in _SIGNAL_CODES.items():
            self._loop.add_signal_handler(number, self._leave, code)
        self._loop.add_signal_handler(signal.SIGCONT, self._keyboard.resume)
        self._keyboard.open()
        try:
            await self._done
        finally:
            await self._keyboard.close()
            self._notifier.close()
            self._loop.remove_signal_handler(signal.SIGCONT)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            # Ignore signals during shutdown, so that one more Ctrl-C does not abort it.
            for number in _SIGNAL_CODES:
                self._loop.add_signal_handler(number, _do_nothing)
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
            self._loop.remove_signal_handler(signal.SIGINT)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        return self.code

    def _leave(self, code: int | None = None) -> None:
        self.code = self.code if code is None else code
        if not self._done.done():
            self._done.set_result(None)

    def _report_failure(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) and not self._done.done():
            self._done.set_exception(error)

    # --- signals ---

    def _handle_interrupt(self) -> None:
        """Handle Ctrl-C: clear the line, else stop what runs, else close the session list, else exit.

        A focused sub-agent that works is stopped alone. Exiting takes two: the first may have been meant for a turn
        that just ended.
        """
        agent = self._commands.agent
        if self._done.done() or self._commands.stop_following():
            return
        if self._keyboard.text and not self._keyboard.is_held:
            self._keyboard.clear_text()
        elif agent and agent in self._busy_agents:
            self._start_side_task(self._client.submit(Interrupt(agent=agent)))
        elif self._turns.stopping is not None:
            self._turns.stopping.stop(EXIT_INTERRUPTED)
        elif self._sender.expects_turn or self._commands.user_shell.is_running:
            self._start_side_task(self._client.submit(Interrupt(alone=not self._sender.expects_turn)))
        elif self._commands.compaction.is_running:
            self._start_side_task(self._commands.cancel_compaction())
        elif self._commands.is_choosing:
            self._queue_line("")
        elif self._ending:
            self._start_side_task(self._leave_or_ask())
        else:
            self._ending = True
            write_line(self._err, _PRESS_AGAIN)

    async def _leave_or_ask(self) -> None:
        """Exit; while sub-agents work, say so first and exit only if the user repeats it."""
        working: list[str] = []
        if not self._is_leaving and sys.stdin.isatty():
            with contextlib.suppress(OdinError):
                working = describe_working(await self._client.snapshot())
        if not working:
            self._leave()
            return
        self._is_leaving, self._ending = True, False
        write_line(self._err, "Agents are still at work:")
        for line in working:
            write_line(self._err, f"  {line}")
        write_line(self._err, "Exit again to leave. Resuming the session continues their tasks.")
        self._keyboard.open()
        self._keyboard.show()

    def _start_side_task(self, work: Coroutine[Any, Any, object]) -> None:
        task = self._loop.create_task(work)
        self._side_tasks.add(task)
        task.add_done_callback(self._side_tasks.discard)

    # --- events ---

    async def _follow(self) -> None:
        """Show the events of the current session, in order."""
        while True:
            client = self._client
            events = client.stream_events()
            shot = await client.snapshot()
            if shot.executing or shot.interactions:  # it is at work for another client
                close_events(events)
                events = _resume_events(client.stream_events(after=-1), shot)
            self._sender.set_followed(client)
            dialogs = TerminalDialogs(client, self._keyboard, self._keyboard)
            self._own_answers = dialogs.own_answers
            self._busy_agents.clear()
            async for envelope in events:
                if isinstance(envelope.event, TurnStarted) and not envelope.agent:
                    self._sender.expect()  # also if Odin started the turn: Ctrl-C is for it from now on
                    code = await self._turns.show(client, envelope, envelope.event, events, dialogs)
                    if code == EXIT_INTERRUPTED:
                        # Say which prompts the interrupt left in the queue: they are neither lost nor started.
                        count = sum(item.paused for item in (await client.snapshot()).queue)
                        if count:
                            subject = pluralize(count, "queued prompt is", "queued prompts are")
                            advice = "/queue shows, /queue send N sends, /queue drop N removes."
                            write_line(self._err, f"{subject} paused. {advice}")
                    self._sender.expects_turn = False
                    if not self._done.done():  # else leaving has interrupted the turn
                        self.code = code
                    if code in (EXIT_READER_GONE, OutputFailed.exit_code):
                        self._leave(code)
                    self._keyboard.show()
                    if self._execution:
                        self._queue_line(f"/execute {self._execution}")
                        self._execution = ""
                else:
                    self._observe(envelope)
                    dialogs.handle_event(envelope)
                    if isinstance(envelope.event, Warned) and not envelope.agent:  # a turn shows its own
                        write_line(self._err, envelope.event.text)
            await dialogs.end()
            if self._client is client:
                self._leave()
                return

    def _observe(self, envelope: Envelope) -> None:
        self._commands.error_log.handle_event(envelope, True)
        self._notifier.handle_event(envelope)
        self._show_agents(envelope)
        if envelope.agent:
            self._show_views(envelope, [self._commands.user_shell])
            return
        match envelope.event:
            case PermissionModeChanged(mode=mode):
                self._commands.record_permission_mode(mode)
            case RoleChanged(role=role):
                self._commands.record_role(role)
            case ModeChanged(mode=mode):
                self._commands.mode = mode
            case PlanAsked(path=path):
                self._presented = path
            case PlanAnswered(ask, decision="approve_new_session", role=role) if ask in self._own_answers:
                self._execution = format_execution(self._presented, role)
            case _:
                pass
        self._show_views(envelope, self._commands.list_views_for(envelope.event))

    def _show_views(self, envelope: Envelope, views: Sequence[CommandView]) -> None:
        if envelope.agent and isinstance(envelope.event, LoopChanged):  # the line about the agent says it
            return
        for view in views:
            if view.wants(envelope.event):
                view.show(envelope.event)

    def _show_agents(self, envelope: Envelope) -> None:
        """Print what sub-agents do, and leave the focus of one that has ended."""
        event, commands = envelope.event, self._commands
        if isinstance(event, TurnStarted):
            self._busy_agents.add(envelope.agent)
        elif isinstance(event, TurnEnded):
            self._busy_agents.discard(envelope.agent)
        for line in self._agent_lines.format_lines(envelope, focus=commands.agent, in_turn=self._keyboard.is_busy):
            self._agent_lines.write(self._err, line)
        if isinstance(event, AgentEnded) and event.id == commands.agent:
            commands.agent = ""
            write_line(self._err, "Prompts go to the main agent again.")
        elif isinstance(event, AgentStarted) and event.continues and event.continues == commands.agent:
            commands.agent = event.id

    # --- input ---

    def _queue_line(self, text: str | None) -> None:
        if text is None or text.strip() in _EXIT_WORDS:
            self._start_side_task(self._leave_or_ask())
        else:
            self._ending = self._is_leaving = False
            if self._commands.stop_following() and not text.strip():
                return
            self._lines.put_nowait((text, self._keyboard.line_stays))

    async def _work(self, first: str, draft: str) -> None:
        await self._commands.print_resumed()
        await self._enter_session(None)
        if draft and not first:
            self._keyboard.set_text(draft.rstrip())
        if first:
            await self._run_reporting_errors(first)
        while True:
            if not self._sender.expects_turn:
                self._keyboard.show()
            text, self._line_stays = await self._lines.get()
            # Let a Ctrl-C typed before a line act first: the event loop handles the signal a few steps later.
            for _ in range(4):
                await asyncio.sleep(0)
            await self._run_reporting_errors(text)

    async def _run_reporting_errors(self, text: str) -> None:
        try:
            await self._run_line(text)
        except OdinError as error:
            self._commands.error_log.add(time.time(), "refused", error.describe())
            write_line(self._err, error.describe(), "red")

    async def _run_line(self, text: str) -> None:
        """Run a command, send a prompt, or, after /resume, choose a session."""
        if self._commands.is_choosing:
            before = self._client
            await self._commands.choose_session(text)
            await self._enter_session(before)
            return
        line = text.strip()
        if line.startswith("!"):
            await self._commands.user_shell.start(self._client, text.lstrip()[1:], self._commands.agent)
            return
        if remembered := find_memory_line(text):
            write_line(self._err, await change_memory(self._client, ChangeMemory(remembered)))
            return
        word, _, rest = line.partition(" ")
        known = find_slash_command(word) if text.startswith("/") else None
        name, rest = resolve_synonym(known.name, rest) if known is not None else ("stats" if line == "$" else "", rest)
        if name in MODES:
            self._commands.mode, text = MODES[name], rest
        elif name == "use":
            text = await make_skill_prompt(self._client, rest.strip())
        elif name == "editor":
            await self._open_editor(rest)
            return
        elif self._commands.has_command(name):
            await self._run_command(name, rest)
            return
        if known is None:
            await refuse_unknown_command(self._client, text)
        if text.strip():
            await self._send_prompt(text)

    async def _send_prompt(self, text: str) -> None:
        prompt = Prompt(os.urandom(6).hex(), text, self._commands.mode, agent=self._commands.agent)
        if self._line_stays:
            self._turns.prompt_on_screen = prompt.id
        await self._submit_prompt(prompt)

    async def _submit_prompt(self, prompt: Prompt) -> None:
        client = self._client
        await self._sender.wait_until_followed(client)
        if place := await self._sender.send(client, prompt):
            to = f" for {prompt.agent}" if prompt.agent else ""
            self._turns.show_prompt(f"Queued #{place}{to}: ", prompt.text)

    async def _run_command(self, name: str, rest: str) -> None:
        before = self._client
        try:
            draft = await self._commands.run(name, rest)
        except OdinError:
            self._sender.cancel_expected()
            raise
        await self._enter_session(before)
        first, self._commands.first_prompt = self._commands.first_prompt, None
        if first is not None:
            await self._submit_prompt(first)
        if draft:
            self._keyboard.set_text(draft.rstrip())

    async def _open_editor(self, text: str) -> None:
        """Let the user write a prompt in $EDITOR, and send it."""
        command = find_editor()
        if not command:
            raise UsageError("No editor is set.", "Set $VISUAL or $EDITOR.")
        self._keyboard.hold()
        try:
            text = await edit_externally(self._keyboard, self._client, command, text, "prompt.md")
        finally:
            self._keyboard.release()
        if text.strip():
            self._line_stays = False
            await self._send_prompt(text)

    async def _enter_session(self, before: Client | None) -> None:
        """Reset the state for a session that was just opened. Do nothing if it is still the session `before`."""
        if self._client is before:
            return
        info = await self._client.get_info()
        self._commands.enter_session(info.permission_mode, info.role)
        self._notifier.enter_session(self._client, info)
        self._turns.is_first_turn = True
        queue = (await self._client.snapshot()).queue
        self._sender.remember_paused(queue)
        if queue:
            count = pluralize(len(queue), "queued prompt")
            write_line(
                self._err, f"{count} from the last session will run after your next prompt. /queue shows the queue."
            )


async def _resume_events(events: AsyncIterator[Envelope], shot: Snapshot) -> AsyncIterator[Envelope]:
    """Yield what waits for an answer, the events of the running turn from its start on, and then all events."""
    asked = {interaction.id for interaction in shot.interactions}
    is_shown = False
    async for envelope in events:
        event = envelope.event
        is_shown = is_shown or envelope.seq > shot.seq
        is_shown = is_shown or (isinstance(event, TurnStarted) and not envelope.agent and event.id == shot.running_turn)
        if isinstance(event, AskEvent) and envelope.seq <= shot.seq:
            if event.ask_id in asked:
                yield envelope
        elif is_shown:
            yield envelope


def _do_nothing() -> None:
    """Replace a signal handler during shutdown."""


async def run_plain(
    sessions: Sessions, *, first: str, mode: Mode, draft: str = "", settings: TuiSettings | None = None
) -> int:
    """Run plain mode and return the exit code. `draft` is a prompt that a fork left out, to be edited first."""
    info = await sessions.client.get_info()
    for line, style in zip((*format_introduction(info, mode), START_HINT), _INTRODUCTION_STYLES, strict=True):
        write_line(sys.stderr, line, style)
    try:
        return await _PlainRepl(sessions, info, mode, settings or TuiSettings()).run(first, draft)
    finally:
        with contextlib.suppress(OdinError):
            snapshot = await sessions.client.snapshot()
            write_text(sys.stderr, format_resume_hint(snapshot.session, bool(snapshot.messages)))
