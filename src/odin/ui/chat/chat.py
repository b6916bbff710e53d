"""A plain conversation: lines in, answers out, until the input ends. What is typed while a turn runs waits its turn."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Coroutine
from typing import Any

from odin.core.client import Client, SessionInfo
from odin.core.commands import reserved
from odin.core.errors import OdinError
from odin.core.event import Envelope, Mode, TurnStarted
from odin.core.op import Interrupt, Prompt
from odin.core.screen import ScreenSettings
from odin.core.sessions import Sessions
from odin.ui.chat import draft, sessions
from odin.ui.chat.calling import Calling
from odin.ui.chat.commands import MODES, Commands
from odin.ui.chat.completing import completed
from odin.ui.chat.keyboard import Keyboard
from odin.ui.chat.looking import meant
from odin.ui.chat.sending import Sending
from odin.ui.chat.turns import Turns
from odin.ui.ending import READER_GONE, farewell
from odin.ui.picking import ASK
from odin.ui.terminal import put, say

START = "Type what you want done. /help tells the rest; Ctrl-D ends."
_AGAIN = "Ctrl-C once more ends Odin, and so does Ctrl-D."
_EXIT = ("/exit", "/quit", "exit", "quit")
_ENDINGS = {signal.SIGTERM: 143, signal.SIGHUP: 129}


def introduction(info: SessionInfo, mode: Mode) -> list[str]:
    """What holds in this conversation: a line for where it takes place, and one for how much it may do."""
    where = f"Odin {info.version} · {info.model} · {info.cwd}"
    how = [mode.removesuffix("_mode"), f"permissions {info.permission_mode}"]
    return [where, " · ".join([*how, f"commands in {info.sandbox}"] if info.sandbox else how)]


class _Chat:
    """One reader of the session's events and one of the keyboard, which meet here.

    The session may change: /new, /resume and /fork lead to others.
    """

    def __init__(self, held: Sessions, info: SessionInfo, mode: Mode, settings: ScreenSettings) -> None:
        self._sessions = held
        self._keyboard = Keyboard(
            sys.stdin, sys.stderr, lambda: self.prompt, self._typed, lambda before: completed(self._client, before)
        )
        self._sending = Sending(self._keyboard)
        self._turns = Turns(self._keyboard, self._beside, self._mind_signals)
        self._commands = Commands(held, info.permission_mode, mode, sys.stderr, self._sending.expect)
        self._calling = Calling(settings, sys.stderr)
        self._lines: asyncio.Queue[tuple[str, bool]] = asyncio.Queue()
        self._stays = True
        self._ending = False
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._asides: set[asyncio.Task[object]] = set()
        self.code = 0

    @property
    def _client(self) -> Client:
        return self._sessions.client

    @property
    def prompt(self) -> str:
        if self._commands.switching.choosing:
            return ASK
        return f"{self._commands.mode.removesuffix('_mode')}{self._commands.strictness.warning}> "

    async def run(self, first: str, left: str) -> int:
        tasks = [self._loop.create_task(work) for work in (self._follow(), self._work(first, left))]
        for task in tasks:
            task.add_done_callback(self._failed)
        self._mind_signals()
        self._loop.add_signal_handler(signal.SIGCONT, self._keyboard.come_back)
        self._loop.add_signal_handler(signal.SIGWINCH, self._keyboard.redraw)
        self._keyboard.open()
        try:
            await self._done
        finally:
            self._keyboard.close()
            self._calling.close()
            for number in (signal.SIGCONT, signal.SIGWINCH):
                self._loop.remove_signal_handler(number)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._forget_signals()
        return self.code

    def _leave(self, code: int | None = None) -> None:
        self.code = self.code if code is None else code
        if not self._done.done():
            self._done.set_result(None)

    def _failed(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) and not self._done.done():
            self._done.set_exception(error)

    # --- signals ---

    def _mind_signals(self) -> None:
        """While no turn is followed; one that is has its own way with them."""
        self._loop.add_signal_handler(signal.SIGINT, self._interrupted)
        for number, code in _ENDINGS.items():
            self._loop.add_signal_handler(number, self._leave, code)

    def _forget_signals(self) -> None:
        """Everything is being put away from here on; one more Ctrl-C must not tear that off."""
        for number in _ENDINGS:
            self._loop.add_signal_handler(number, _nothing)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        self._loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])

    def _interrupted(self) -> None:
        """Ctrl-C at the prompt: what was typed goes, else what runs, else the list; without any of them we go, too.

        Only the second one ends the conversation: the first may have been meant for a turn that just ended.
        """
        if self._done.done():
            return
        if self._keyboard.text:
            self._keyboard.forget()
        elif self._sending.coming or self._commands.own.running:
            self._aside(self._client.submit(Interrupt("join")))
        elif self._commands.summaries.running:
            self._aside(self._commands.summaries.cancel(self._client))
        elif self._commands.switching.choosing:
            self._typed("")
        elif self._ending:
            sys.stderr.write("\n")
            self._leave()
        else:
            self._ending = True
            with self._keyboard.aside():
                say(sys.stderr, _AGAIN)

    def _aside(self, act: Coroutine[Any, Any, object]) -> None:
        task = self._loop.create_task(act)
        self._asides.add(task)
        task.add_done_callback(self._asides.discard)

    # --- what happens ---

    async def _follow(self) -> None:
        """Everything that happens in the session that is open, one after the other."""
        while True:
            client = self._client
            events = client.events()
            self._sending.follows(client)
            async for envelope in events:
                if isinstance(envelope.event, TurnStarted) and not envelope.agent:
                    self._turn_over(await self._turns.show(client, envelope, envelope.event, events))
                else:
                    self._beside(envelope)
            if self._client is client:
                self._leave()
                return

    def _turn_over(self, code: int) -> None:
        self._sending.coming = False
        self.code = code
        if code in (*_ENDINGS.values(), READER_GONE):
            self._leave(code)
        self._keyboard.show()

    def _beside(self, envelope: Envelope) -> None:
        self._commands.troubles.see(envelope, True)
        self._calling.see(envelope)
        if envelope.agent:
            return
        for shown in self._commands.showing(envelope.event):
            with self._keyboard.aside():
                shown.show(envelope.event)

    # --- what is typed ---

    def _typed(self, text: str | None) -> None:
        if text is None or text.strip() in _EXIT:
            self._leave()
        else:
            self._ending = False
            self._lines.put_nowait((text, self._keyboard.stays))

    async def _work(self, first: str, left: str) -> None:
        await self._commands.switching.tell_resumed()
        await self._entered(None)
        if left and not first:
            await self._guarded(left, change=True)
        if first:
            await self._guarded(first)
        while True:
            if not self._sending.coming:
                self._keyboard.show()
            text, self._stays = await self._lines.get()
            await _signals_heard()
            await self._guarded(text)

    async def _guarded(self, text: str, *, change: bool = False) -> None:
        """What cannot be done is said; the conversation goes on."""
        try:
            await (self._change(text) if change else self._take(text))
        except OdinError as error:
            self._commands.troubles.keep(time.time(), "refused", error.sentence())
            with self._keyboard.aside():
                say(sys.stderr, error.sentence())

    async def _take(self, text: str) -> None:
        """A command, or a prompt; after /resume, which session."""
        if self._commands.switching.choosing:
            before = self._client
            with self._keyboard.aside():
                await self._commands.switching.choose(text)
            await self._entered(before)
            return
        command, _, rest = text.strip().partition(" ")
        command, rest = meant(command.casefold() if reserved(command) else command, rest)
        if text.strip() == "$":
            command = "/stats"
        if command in MODES:
            self._commands.mode, text = MODES[command], rest
        elif text.lstrip().startswith("!"):
            await self._commands.own.start(self._client, text.lstrip()[1:])
            return
        elif command == "/editor":
            await self._change(rest or " ", outside=True)
            return
        elif await self._commanded(command, rest):
            return
        if text.strip():
            await self._send(text)

    async def _send(self, text: str) -> None:
        client = self._client
        await self._sending.heard(client)
        prompt = Prompt(os.urandom(6).hex(), text, self._commands.mode)
        if self._stays:
            self._turns.on_screen = prompt.id
        if place := await self._sending.send(client, prompt):
            self._turns.tell(f"Waits as number {place}: ", text)

    async def _commanded(self, command: str, rest: str) -> bool:
        if command in sessions.COMMANDS:
            before = self._client
            with self._keyboard.aside():
                left = await self._commands.switching.command(command, rest)
            await self._entered(before)
            await self._change(left)
            return True
        if command not in self._commands:
            return False
        with self._keyboard.aside():
            try:
                await self._commands.run(command, rest)
            except OdinError:
                self._sending.failed()
                raise
        return True

    async def _change(self, left: str, *, outside: bool = False) -> None:
        """A prompt that came back, or that is written in an editor: what the person makes of it is asked."""
        if not left:
            return
        self._keyboard.hold()
        try:
            text = await draft.changed(left, self.prompt, outside=outside)
        finally:
            self._keyboard.release()
            self._mind_signals()
        if text.strip():
            self._stays = not outside
            await (self._send(text) if outside else self._take(text))

    async def _entered(self, before: Client | None) -> None:
        """Another session is open now: what holds in it, and what waits there from before."""
        if self._client is before:
            return
        info = await self._client.info()
        self._commands.enter(info.permission_mode)
        self._calling.enter(self._client, info)
        self._turns.fresh = True
        waiting = (await self._client.snapshot()).queue
        self._sending.rest(waiting)
        if waiting:
            what = "1 prompt waits" if len(waiting) == 1 else f"{len(waiting)} prompts wait"
            say(sys.stderr, f"{what} from before and will follow your next one. /queue lists, changes and drops them.")


def _nothing() -> None:
    """We are ending already."""


async def _signals_heard() -> None:
    """A Ctrl-C typed before a line acts first, although the loop hears of it some steps after the line."""
    for _ in range(4):
        await asyncio.sleep(0)


async def run_chat(
    held: Sessions, *, first: str, mode: Mode, left: str = "", settings: ScreenSettings | None = None
) -> int:
    """`left` is a prompt that a fork left out, to be changed and asked first. At the end we say how to come back."""
    info = await held.client.info()
    for line in (*introduction(info, mode), START):
        say(sys.stderr, line)
    try:
        return await _Chat(held, info, mode, settings or ScreenSettings()).run(first, left)
    finally:
        with contextlib.suppress(OdinError):
            shot = await held.client.snapshot()
            put(sys.stderr, farewell(shot.session, bool(shot.messages)))
