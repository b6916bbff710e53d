"""A plain conversation: lines in, answers out, until the input ends. What is typed while a turn runs waits its turn."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

from odin.core.client import Client, SessionInfo
from odin.core.errors import OdinError
from odin.core.event import Envelope, Mode, TurnStarted
from odin.core.op import ChangePrompt, Continue, Interrupt, Prompt
from odin.core.sessions import Sessions
from odin.ui.chat import compact, draft, queue, rewind, rules, sessions, strictness, usage
from odin.ui.chat.keyboard import Keyboard
from odin.ui.chat.own import OwnCommands
from odin.ui.picking import ASK
from odin.ui.print import run_text
from odin.ui.terminal import say, shorten, size_of, visible

HELP = (
    "/ask, /plan, /edit [TEXT] choose the mode; Ctrl-D or /exit ends.",
    queue.HELP,
    rewind.HELP,
    rules.HELP,
    strictness.HELP,
    sessions.HELP,
    usage.HELP,
    compact.HELP,
)
_MODES: dict[str, Mode] = {"/ask": "ask_mode", "/plan": "plan_mode", "/edit": "edit_mode"}
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

    `mode` is the mode of the next prompt. The session may change: /new, /resume and /fork lead to others.
    """

    def __init__(self, held: Sessions, info: SessionInfo, mode: Mode) -> None:
        self._sessions = held
        self._mode: Mode = mode
        self._strictness = strictness.Strictness(held.client, info.permission_mode)
        self._commands = sessions.SessionCommands(held, sys.stderr)
        self._own = OwnCommands(sys.stderr)
        self._summaries = compact.Summaries(sys.stderr)
        self._keyboard = Keyboard(sys.stdin, sys.stderr, lambda: self.prompt, self._typed)
        self._table: dict[str, Callable[[str, str], Awaitable[None]]] = {
            "/help": self._help,
            "/rules": self._rules,
            **dict.fromkeys(strictness.COMMANDS, self._permissions),
            **dict.fromkeys(rewind.COMMANDS, self._rewind),
            **dict.fromkeys(queue.COMMANDS, self._queue),
            **dict.fromkeys(compact.COMMANDS, self._compact),
            **dict.fromkeys(usage.COMMANDS, self._usage),
        }
        self._lines: asyncio.Queue[tuple[str, bool]] = asyncio.Queue()
        self._stays = True
        self._on_screen = ""
        self._ending = False
        self._heard: Client | None = None
        self._hears = asyncio.Event()
        self._resting: list[ChangePrompt] = []
        self._coming = False
        self._fresh = True
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._asides: set[asyncio.Task[object]] = set()
        self.code = 0

    @property
    def _client(self) -> Client:
        return self._sessions.client

    @property
    def prompt(self) -> str:
        if self._commands.choosing:
            return ASK
        return f"{self._mode.removesuffix('_mode')}{self._strictness.warning}> "

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
            for number in (signal.SIGINT, signal.SIGCONT, signal.SIGWINCH, *_ENDINGS):
                self._loop.remove_signal_handler(number)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
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

    def _interrupted(self) -> None:
        """Ctrl-C at the prompt: what was typed goes, else what runs, else the list; without any of them we go, too.

        Only the second one ends the conversation: the first may have been meant for a turn that just ended.
        """
        if self._keyboard.text:
            self._keyboard.forget()
        elif self._coming or self._own.running:
            self._aside(self._client.submit(Interrupt("join")))
        elif self._summaries.running:
            self._aside(self._summaries.cancel(self._client))
        elif self._commands.choosing:
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
            self._heard = client
            self._hears.set()
            async for envelope in events:
                if isinstance(envelope.event, TurnStarted) and not envelope.agent:
                    await self._turn(client, envelope, envelope.event, events)
                else:
                    self._beside(envelope)
            if self._client is client:
                self._leave()
                return

    async def _turn(
        self, client: Client, envelope: Envelope, started: TurnStarted, events: AsyncIterator[Envelope]
    ) -> None:
        if started.text and started.id != self._on_screen:
            with self._keyboard.aside():
                self._tell(f"{started.mode.removesuffix('_mode')}> ", started.text)
        code = await run_text(
            client,
            Prompt(started.id, started.text, started.mode),
            out=sys.stdout,
            err=sys.stderr,
            tty_in=sys.stdin,
            first=self._fresh,
            begun=_with(envelope, events),
            keyboard=self._keyboard,
            watch=self._beside,
        )
        self._coming = self._fresh = False
        self.code = code
        self._mind_signals()
        if code in _ENDINGS.values():
            self._leave(code)
        self._keyboard.show()

    def _beside(self, envelope: Envelope) -> None:
        for shown in (self._own, self._summaries):
            if not envelope.agent and shown.concerns(envelope.event):
                with self._keyboard.aside():
                    shown.show(envelope.event)

    def _tell(self, before: str, prompt: str) -> None:
        """A prompt in a line of its own."""
        say(sys.stderr, shorten(f"{before}{visible(' '.join(prompt.split()))}", size_of(sys.stderr)[0] - 1))

    # --- what is typed ---

    def _typed(self, text: str | None) -> None:
        if text is None or text.strip() in _EXIT:
            self._leave()
        else:
            self._ending = False
            self._lines.put_nowait((text, self._keyboard.stays))

    async def _work(self, first: str, left: str) -> None:
        await self._commands.tell_resumed()
        await self._entered(None)
        if left and not first:
            await self._guarded(left, change=True)
        if first:
            await self._guarded(first)
        while True:
            if not self._coming:
                self._keyboard.show()
            text, self._stays = await self._lines.get()
            await _signals_heard()
            await self._guarded(text)

    async def _guarded(self, text: str, *, change: bool = False) -> None:
        """What cannot be done is said; the conversation goes on."""
        try:
            await (self._change(text) if change else self._take(text))
        except OdinError as error:
            with self._keyboard.aside():
                say(sys.stderr, error.sentence())

    async def _take(self, text: str) -> None:
        """A command, or a prompt; after /resume, which session."""
        if self._commands.choosing:
            before = self._client
            with self._keyboard.aside():
                await self._commands.choose(text)
            await self._entered(before)
            return
        command, _, rest = text.strip().partition(" ")
        if command in _MODES:
            self._mode, text = _MODES[command], rest
        elif text.lstrip().startswith("!"):
            await self._own.start(self._client, text.lstrip()[1:])
            return
        elif await self._commanded(command, rest):
            return
        if text.strip():
            await self._send(text)

    async def _send(self, text: str) -> None:
        client = self._client
        while self._heard is not client:
            self._hears.clear()
            await self._hears.wait()
        prompt = Prompt(os.urandom(6).hex(), text, self._mode)
        self._coming = True
        self._on_screen = prompt.id if self._stays else self._on_screen
        try:
            await client.submit(prompt)
        except OdinError:
            self._coming = self._keyboard.busy
            raise
        resting, self._resting = self._resting, []
        for sent in resting:
            await client.submit(sent)
        waiting = [item.id for item in (await client.snapshot()).queue]
        if prompt.id in waiting:
            with self._keyboard.aside():
                self._tell(f"Waits as number {waiting.index(prompt.id) + 1}: ", text)

    async def _commanded(self, command: str, rest: str) -> bool:
        if command in sessions.COMMANDS:
            before = self._client
            with self._keyboard.aside():
                left = await self._commands.command(command, rest)
            await self._entered(before)
            await self._change(left)
            return True
        if command == "/continue":
            self._coming = True
        act = self._table.get(command)
        if act is None:
            return False
        with self._keyboard.aside():
            try:
                await act(command, rest)
            except OdinError:
                self._coming = self._keyboard.busy
                raise
        return True

    async def _help(self, command: str, rest: str) -> None:
        for line in HELP:
            say(sys.stderr, line)

    async def _rules(self, command: str, rest: str) -> None:
        await rules.rules_command(self._client, rest, sys.stderr)

    async def _permissions(self, command: str, rest: str) -> None:
        await self._strictness.command(command, rest, sys.stderr)

    async def _rewind(self, command: str, rest: str) -> None:
        await rewind.go_back(self._client, command, rest, sys.stderr)

    async def _queue(self, command: str, rest: str) -> None:
        await queue.queue_command(self._client, command, rest, self._mode, sys.stderr)

    async def _compact(self, command: str, rest: str) -> None:
        await self._summaries.command(self._client, rest)

    async def _usage(self, command: str, rest: str) -> None:
        if await usage.usage_command(self._client, command, rest, sys.stderr):
            self._coming = True
            await self._client.submit(Continue(os.urandom(6).hex()))

    async def _change(self, left: str) -> None:
        """A prompt that came back: what the person makes of it is asked."""
        if not left:
            return
        self._keyboard.hold()
        try:
            text = await draft.changed(left, self.prompt)
        finally:
            self._keyboard.release()
            self._mind_signals()
        if text.strip():
            self._stays = True
            await self._take(text)

    async def _entered(self, before: Client | None) -> None:
        """Another session is open now: what holds in it, and what waits there from before."""
        if self._client is before:
            return
        info = await self._client.info()
        self._strictness = strictness.Strictness(self._client, info.permission_mode)
        self._own, self._summaries = OwnCommands(sys.stderr), compact.Summaries(sys.stderr)
        self._fresh = True
        waiting = (await self._client.snapshot()).queue
        self._resting = [ChangePrompt(item.id, lane=item.lane) for item in waiting]
        if waiting:
            what = "1 prompt waits" if len(waiting) == 1 else f"{len(waiting)} prompts wait"
            say(sys.stderr, f"{what} from before and will follow your next one. /queue lists, changes and drops them.")


async def _signals_heard() -> None:
    """A Ctrl-C typed before a line acts first, although the loop hears of it some steps after the line."""
    for _ in range(4):
        await asyncio.sleep(0)


async def _with(first: Envelope, events: AsyncIterator[Envelope]) -> AsyncIterator[Envelope]:
    yield first
    async for envelope in events:
        yield envelope


async def run_chat(held: Sessions, *, first: str, mode: Mode, left: str = "") -> int:
    """`left` is a prompt that a fork left out, to be changed and asked first."""
    info = await held.client.info()
    for line in (*introduction(info, mode), START):
        say(sys.stderr, line)
    return await _Chat(held, info, mode).run(first, left)
