"""From Enter to the session: what was written is sent in order, as soon as there is a session to send it to."""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from odin.core.commands import built_in
from odin.core.errors import OdinError
from odin.core.event import Lane, Mode
from odin.core.op import ChangePrompt, DropPrompt, Prompt, RunCommand
from odin.ui.tui.composer.composer import Composer
from odin.ui.tui.composer.draft import Draft
from odin.ui.tui.panels.queue import QueuePanel

if TYPE_CHECKING:
    from odin.ui.tui.app import OdinApp

TAKEN = "It was taken or dropped meanwhile."
HISTORY = 200
"""Prompts of earlier sessions that can be called back."""

_COMMAND_S = 0.5
"""How long what was written behind a command waits for it; it may lead to another session."""


class Written(Struct, frozen=True):
    draft: Draft
    lane: Lane | None
    mode: Mode | None


class Sending:
    """What is written before the session is open, or while another one is being opened, waits here."""

    def __init__(self, app: "OdinApp", composer: Composer, queue: QueuePanel) -> None:
        self._app = app
        self._composer = composer
        self._queue = queue
        self._written: asyncio.Queue[Written] = asyncio.Queue()
        self._open = asyncio.Event()
        self._moving = asyncio.Lock()

    def put(self, draft: Draft, lane: Lane | None, mode: Mode) -> None:
        """As long as no session is open its own mode is not known; one that the person chose counts."""
        known = self._open.is_set() or self._app.mode_given
        self._written.put_nowait(Written(draft, lane, mode if known else None))

    def begin(self) -> None:
        """There is a session now, and somebody hears what happens in it."""
        self._open.set()

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncGenerator[None]:
        """Nothing is sent while the session is changed for another one, and nobody else changes it meanwhile."""
        async with self._moving:
            self._open.clear()
            try:
                yield
            finally:
                self._open.set()

    async def run(self) -> None:
        """Until the app ends."""
        while True:
            written = await self._written.get()
            await self._open.wait()
            await self._send(written)

    async def _send(self, written: Written) -> None:
        text = written.draft.expanded()
        try:
            if text.startswith("!") and text[1:].strip():
                await self._run_command(text[1:].strip())
            elif not await self._own_command(text, written):
                await self._prompt(text, written)
        except OdinError as error:
            self._app.tell(error.sentence(), "error")
            self._composer.give_back(written.draft)

    async def _run_command(self, command: str) -> None:
        name = os.urandom(6).hex()
        self._app.stories[""].command(name, command)
        self._app.wake()
        await self._app.client.submit(RunCommand(name, command))

    async def _own_command(self, text: str, written: Written) -> bool:
        """A command of the app, at once, also while Odin works. It may open a dialog, so it is not waited for long."""
        word, _, rest = text.partition(" ") if "\n" not in text.split(" ", 1)[0] else ("", "", "")
        if not word.startswith("/") or built_in(word) is None:
            return False
        done = asyncio.Event()
        self._app.run_worker(self._command(word[1:].casefold(), rest.strip(), written, done), exit_on_error=True)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(done.wait(), _COMMAND_S)
        return True

    async def _command(self, name: str, rest: str, written: Written, done: asyncio.Event) -> None:
        try:
            if not await self._app.run_command(name, rest, written.draft.attached()):
                await self._prompt(written.draft.expanded(), written)
        except OdinError as error:
            self._app.tell(error.sentence(), "error")
            self._composer.give_back(written.draft)
        finally:
            done.set()

    async def _prompt(self, text: str, written: Written) -> None:
        client = self._app.client
        attached = written.draft.attached()
        resting = self._queue.waiting.resting
        prompt = Prompt(os.urandom(6).hex(), text, written.mode or self._app.mode, lane=written.lane, attached=attached)
        await client.submit(prompt)
        for left in resting:
            await client.submit(ChangePrompt(left.id, lane=left.lane))

    async def change(self, op: ChangePrompt | DropPrompt, done: str = "") -> bool:
        """Change a prompt that waits, and say what came of it."""
        try:
            changed = await self._app.client.submit(op)
        except OdinError as error:
            self._app.tell(error.sentence(), "error")
            return False
        if not changed:
            self._app.tell(TAKEN)
        elif done:
            self._app.tell(done)
        return changed

    async def save(self, id: str, draft: Draft, mode: Mode) -> None:
        """A waiting prompt that was edited. When it was taken meanwhile, what was written is an ordinary draft."""
        if not await self.change(ChangePrompt(id, draft.expanded(), mode, attached=draft.attached())):
            self._composer.give_back(draft)

    async def recall(self) -> Sequence[str]:
        """What was asked in earlier sessions of the project, the newest first."""
        with contextlib.suppress(OdinError, OSError):
            return await self._app.sessions.prompts(HISTORY)
        return ()
