"""Prompts on their way from the keyboard to the session.

Calls the person back to a plain conversation: the same bell, notification and title as the app's, where it may.

A plain conversation: lines in, answers out, until the input ends. What is typed while a turn runs waits its turn.
"""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Coroutine
from typing import Any, TextIO

from odin.core.client import Client, QueuedPrompt, SessionInfo, Sessions
from odin.core.errors import OdinError
from odin.core.event import Envelope, Mode, TurnStarted
from odin.core.op import ChangePrompt, Interrupt, Prompt
from odin.core.slash_commands import is_reserved
from odin.core.tui_settings import TuiSettings
from odin.ui.exit import EXIT_READER_GONE, format_resume_hint
from odin.ui.notifications import Notifier
from odin.ui.plain import commands, editors
from odin.ui.plain.commands import MODE_COMMANDS, PlainCommands
from odin.ui.plain.info_commands import resolve_synonym
from odin.ui.plain.keyboard import Keyboard, complete
from odin.ui.plain.turn_output import TurnView
from odin.ui.slash_commands.sessions import PICK_PROMPT
from odin.ui.terminal import is_dumb, write_line, write_text


class PromptSender:
    """`coming` says that a turn was asked for and has not ended. What waits from before rests until the next prompt."""

    def __init__(self, keyboard: Keyboard) -> None:
        self.expects_turn = False
        self._keyboard = keyboard
        self._followed_client: Client | None = None
        self._following = asyncio.Event()
        self._paused: list[ChangePrompt] = []

    def expect(self) -> None:
        self.expects_turn = True

    def cancel_expected(self) -> None:
        """What was asked for does not come; what ran before may still run."""
        self.expects_turn = self._keyboard.is_busy

    def set_followed(self, client: Client) -> None:
        """Somebody hears what happens in that session from now on."""
        self._followed_client = client
        self._following.set()

    def remember_paused(self, waiting: tuple[QueuedPrompt, ...]) -> None:
        self._paused = [ChangePrompt(item.id, delivery=item.delivery) for item in waiting]

    async def wait_until_followed(self, client: Client) -> None:
        """Nothing is asked of a session before somebody hears its answer."""
        while self._followed_client is not client:
            self._following.clear()
            await self._following.wait()

    async def send(self, client: Client, prompt: Prompt) -> int:
        """Its place among those that wait, from 1; 0 when it is its turn at once."""
        self.expect()
        try:
            await client.submit(prompt)
        except OdinError:
            self.cancel_expected()
            raise
        resting, self._paused = self._paused, []
        for sent in resting:
            await client.submit(sent)
        waiting = [item.id for item in (await client.snapshot()).queue]
        return waiting.index(prompt.id) + 1 if prompt.id in waiting else 0


_DELAY_S = 0.1
"""A turn that another follows at once calls nobody."""


class PlainNotifier:
    """Nothing is written to what is no terminal, or to one that understands only lines."""

    def __init__(self, settings: TuiSettings, err: TextIO) -> None:
        self._notifier = Notifier(None, settings)
        self._notifier.write = lambda text: write_text(err, text)
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


START_HINT = "Type what you want done. /help tells the rest; Ctrl-D ends."
_PRESS_AGAIN = "Ctrl-C once more ends Odin, and so does Ctrl-D."
_EXIT_WORDS = ("/exit", "/quit", "exit", "quit")
_SIGNAL_CODES = {signal.SIGTERM: 143, signal.SIGHUP: 129}


def format_introduction(info: SessionInfo, mode: Mode) -> list[str]:
    """What holds in this conversation: a line for where it takes place, and one for how much it may do."""
    where = f"Odin {info.version} · {info.model} · {info.cwd}"
    how = [mode.removesuffix("_mode"), f"permissions {info.permission_mode}"]
    return [where, " · ".join([*how, f"commands in {info.sandbox}"] if info.sandbox else how)]


class _PlainRepl:
    """One reader of the session's events and one of the keyboard, which meet here.

    The session may change: /new, /resume and /fork lead to others.
    """

    def __init__(self, held: Sessions, info: SessionInfo, mode: Mode, settings: TuiSettings) -> None:
        self._sessions = held
        self._keyboard = Keyboard(
            sys.stdin, sys.stderr, lambda: self.prompt, self._queue_line, lambda before: complete(self._client, before)
        )
        self._sender = PromptSender(self._keyboard)
        self._turns = TurnView(self._keyboard, self._observe, self._install_signals)
        self._commands = PlainCommands(held, info.permission_mode, mode, sys.stderr, self._sender.expect)
        self._notifier = PlainNotifier(settings, sys.stderr)
        self._lines: asyncio.Queue[tuple[str, bool]] = asyncio.Queue()
        self._line_stays = True
        self._ending = False
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._side_tasks: set[asyncio.Task[object]] = set()
        self.code = 0

    @property
    def _client(self) -> Client:
        return self._sessions.client

    @property
    def prompt(self) -> str:
        if self._commands.session_commands.is_choosing:
            return PICK_PROMPT
        return f"{self._commands.mode.removesuffix('_mode')}{self._commands.permission_mode.warning}> "

    async def run(self, first: str, left: str) -> int:
        tasks = [self._loop.create_task(work) for work in (self._follow(), self._work(first, left))]
        for task in tasks:
            task.add_done_callback(self._report_failure)
        self._install_signals()
        self._loop.add_signal_handler(signal.SIGCONT, self._keyboard.resume)
        self._loop.add_signal_handler(signal.SIGWINCH, self._keyboard.redraw)
        self._keyboard.open()
        try:
            await self._done
        finally:
            self._keyboard.close()
            self._notifier.close()
            for number in (signal.SIGCONT, signal.SIGWINCH):
                self._loop.remove_signal_handler(number)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._ignore_signals()
        return self.code

    def _leave(self, code: int | None = None) -> None:
        self.code = self.code if code is None else code
        if not self._done.done():
            self._done.set_result(None)

    def _report_failure(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) and not self._done.done():
            self._done.set_exception(error)

    # --- signals ---

    def _install_signals(self) -> None:
        """While no turn is followed; one that is has its own way with them."""
        self._loop.add_signal_handler(signal.SIGINT, self._handle_interrupt)
        for number, code in _SIGNAL_CODES.items():
            self._loop.add_signal_handler(number, self._leave, code)

    def _ignore_signals(self) -> None:
        """Everything is being put away from here on; one more Ctrl-C must not tear that off."""
        for number in _SIGNAL_CODES:
            self._loop.add_signal_handler(number, _do_nothing)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        self._loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])

    def _handle_interrupt(self) -> None:
        """Ctrl-C at the prompt: what was typed goes, else what runs, else the list; without any of them we go, too.

        Only the second one ends the conversation: the first may have been meant for a turn that just ended.
        """
        if self._done.done():
            return
        if self._keyboard.text:
            self._keyboard.clear_line()
        elif self._sender.expects_turn or self._commands.user_shell.is_running:
            self._start_side_task(self._client.submit(Interrupt("inject")))
        elif self._commands.compaction.is_running:
            self._start_side_task(self._commands.compaction.cancel(self._client))
        elif self._commands.session_commands.is_choosing:
            self._queue_line("")
        elif self._ending:
            sys.stderr.write("\n")
            self._leave()
        else:
            self._ending = True
            with self._keyboard.write_above():
                write_line(sys.stderr, _PRESS_AGAIN)

    def _start_side_task(self, act: Coroutine[Any, Any, object]) -> None:
        task = self._loop.create_task(act)
        self._side_tasks.add(task)
        task.add_done_callback(self._side_tasks.discard)

    # --- what happens ---

    async def _follow(self) -> None:
        """Everything that happens in the session that is open, one after the other."""
        while True:
            client = self._client
            events = client.stream_events()
            self._sender.set_followed(client)
            async for envelope in events:
                if isinstance(envelope.event, TurnStarted) and not envelope.agent:
                    self._finish_turn(await self._turns.show(client, envelope, envelope.event, events))
                else:
                    self._observe(envelope)
            if self._client is client:
                self._leave()
                return

    def _finish_turn(self, code: int) -> None:
        self._sender.expects_turn = False
        self.code = code
        if code in (*_SIGNAL_CODES.values(), EXIT_READER_GONE):
            self._leave(code)
        self._keyboard.show()

    def _observe(self, envelope: Envelope) -> None:
        self._commands.error_log.handle_event(envelope, True)
        self._notifier.handle_event(envelope)
        if envelope.agent:
            return
        for shown in self._commands.list_views_for(envelope.event):
            with self._keyboard.write_above():
                shown.show(envelope.event)

    # --- what is typed ---

    def _queue_line(self, text: str | None) -> None:
        if text is None or text.strip() in _EXIT_WORDS:
            self._leave()
        else:
            self._ending = False
            self._lines.put_nowait((text, self._keyboard.line_stays))

    async def _work(self, first: str, left: str) -> None:
        await self._commands.session_commands.tell_resumed()
        await self._enter_session(None)
        if left and not first:
            await self._run_reporting_errors(left, change=True)
        if first:
            await self._run_reporting_errors(first)
        while True:
            if not self._sender.expects_turn:
                self._keyboard.show()
            text, self._line_stays = await self._lines.get()
            await _let_signals_run()
            await self._run_reporting_errors(text)

    async def _run_reporting_errors(self, text: str, *, change: bool = False) -> None:
        """What cannot be done is said; the conversation goes on."""
        try:
            await (self._edit_draft(text) if change else self._run_line(text))
        except OdinError as error:
            self._commands.error_log.add(time.time(), "refused", error.describe())
            with self._keyboard.write_above():
                write_line(sys.stderr, error.describe())

    async def _run_line(self, text: str) -> None:
        """A command, or a prompt; after /resume, which session."""
        if self._commands.session_commands.is_choosing:
            before = self._client
            with self._keyboard.write_above():
                await self._commands.session_commands.choose_session(text)
            await self._enter_session(before)
            return
        command, _, rest = text.strip().partition(" ")
        command, rest = resolve_synonym(command.casefold() if is_reserved(command) else command, rest)
        if text.strip() == "$":
            command = "/stats"
        if command in MODE_COMMANDS:
            self._commands.mode, text = MODE_COMMANDS[command], rest
        elif text.lstrip().startswith("!"):
            await self._commands.user_shell.start(self._client, text.lstrip()[1:])
            return
        elif command == "/editor":
            await self._edit_draft(rest or " ", outside=True)
            return
        elif await self._run_command(command, rest):
            return
        if text.strip():
            await self._send_prompt(text)

    async def _send_prompt(self, text: str) -> None:
        client = self._client
        await self._sender.wait_until_followed(client)
        prompt = Prompt(os.urandom(6).hex(), text, self._commands.mode)
        if self._line_stays:
            self._turns.prompt_on_screen = prompt.id
        if place := await self._sender.send(client, prompt):
            self._turns.show_prompt(f"Waits as number {place}: ", text)

    async def _run_command(self, command: str, rest: str) -> bool:
        if command in commands.SESSION_COMMANDS:
            before = self._client
            with self._keyboard.write_above():
                left = await self._commands.session_commands.run_command(command, rest)
            await self._enter_session(before)
            await self._edit_draft(left)
            return True
        if command not in self._commands:
            return False
        with self._keyboard.write_above():
            try:
                await self._commands.run(command, rest)
            except OdinError:
                self._sender.cancel_expected()
                raise
        return True

    async def _edit_draft(self, left: str, *, outside: bool = False) -> None:
        """A prompt that came back, or that is written in an editor: what the person makes of it is asked."""
        if not left:
            return
        self._keyboard.hold()
        try:
            text = await editors.edit_draft(left, self.prompt, outside=outside)
        finally:
            self._keyboard.release()
            self._install_signals()
        if text.strip():
            self._line_stays = not outside
            await (self._send_prompt(text) if outside else self._run_line(text))

    async def _enter_session(self, before: Client | None) -> None:
        """Another session is open now: what holds in it, and what waits there from before."""
        if self._client is before:
            return
        info = await self._client.get_info()
        self._commands.enter_session(info.permission_mode)
        self._notifier.enter_session(self._client, info)
        self._turns.is_first_turn = True
        waiting = (await self._client.snapshot()).queue
        self._sender.remember_paused(waiting)
        if waiting:
            what = "1 prompt waits" if len(waiting) == 1 else f"{len(waiting)} prompts wait"
            write_line(
                sys.stderr, f"{what} from before and will follow your next one. /queue lists, changes and drops them."
            )


def _do_nothing() -> None:
    """We are ending already."""


async def _let_signals_run() -> None:
    """A Ctrl-C typed before a line acts first, although the loop hears of it some steps after the line."""
    for _ in range(4):
        await asyncio.sleep(0)


async def run_plain(
    held: Sessions, *, first: str, mode: Mode, left: str = "", settings: TuiSettings | None = None
) -> int:
    """`left` is a prompt that a fork left out, to be changed and asked first. At the end we say how to come back."""
    info = await held.client.get_info()
    for line in (*format_introduction(info, mode), START_HINT):
        write_line(sys.stderr, line)
    try:
        return await _PlainRepl(held, info, mode, settings or TuiSettings()).run(first, left)
    finally:
        with contextlib.suppress(OdinError):
            shot = await held.client.snapshot()
            write_text(sys.stderr, format_resume_hint(shot.session, bool(shot.messages)))
