"""Drafts on their way to the session, and the prompts that wait there while the agent works."""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

from msgspec import Struct

from odin.core.client import QueuedPrompt
from odin.core.errors import OdinError
from odin.core.event import (
    Envelope,
    PromptChanged,
    PromptDropped,
    PromptInjected,
    PromptPaused,
    PromptQueued,
    TurnEnded,
    TurnStarted,
)
from odin.core.event_values import Delivery, Mode
from odin.core.message import Attachment
from odin.core.op import ChangeMemory, ChangePrompt, DropPrompt, Prompt, RunUserShell
from odin.core.prompt import copy_prompt
from odin.core.slash_commands import find_slash_command
from odin.ui.slash_commands.actions import refuse_unknown_command
from odin.ui.slash_commands.extensions import change_memory, find_memory_line
from odin.ui.tui.composer.draft import PromptDraft
from odin.ui.tui.session_app import SessionApp
from odin.ui.tui.transcript import TranscriptView

ALREADY_TAKEN = "This prompt has already left the queue."
MAX_HISTORY = 200
"""How many prompts of earlier sessions are loaded into the history."""

_COMMAND_S = 0.5
"""How long later drafts wait for a slash command, which may switch to another session."""


RunCommand = Callable[[str, str, Sequence[Attachment]], Awaitable[bool]]
"""Runs a slash command, given its name, its arguments and attachments; False if there is none of that name."""


class QueuedPrompts:
    """Queued prompts in delivery order, built from session events.

    A paused prompt does not start by itself. Prompts in `left_over` come from an earlier run and follow the next
    prompt; prompts paused by an interrupt wait until the user sends them. If the session was already working when the
    app attached to it, no prompt is left over. Only the prompts for `agent` are listed.
    """

    def __init__(self, agent: str = "") -> None:
        self.agent = agent
        self._prompts: dict[str, QueuedPrompt] = {}
        self._left_over: set[str] = set()
        self._paused: set[str] = set()
        self._running = False
        self._is_live = False

    def __len__(self) -> int:
        return len(self.prompts)

    @property
    def prompts(self) -> tuple[QueuedPrompt, ...]:
        return tuple(prompt for prompt in self._prompts.values() if prompt.agent == self.agent)

    @property
    def left_over(self) -> tuple[QueuedPrompt, ...]:
        return tuple(prompt for prompt in self._prompts.values() if prompt.id in self._left_over)

    def is_paused(self, prompt: str) -> bool:
        return prompt in self._left_over or prompt in self._paused

    def get_newest(self) -> QueuedPrompt | None:
        return self.prompts[-1] if len(self) else None

    def find(self, prompt: str) -> QueuedPrompt | None:
        return self._prompts.get(prompt)

    def apply(self, envelope: Envelope, live: bool) -> bool:
        """Apply a session event. True if the queue changed."""
        event = envelope.event
        if live and self._running and not self._is_live:
            self._left_over.clear()
        self._is_live = self._is_live or live
        if isinstance(event, TurnStarted | TurnEnded) and not envelope.agent:
            self._running = isinstance(event, TurnStarted)
        if isinstance(event, PromptQueued):
            self._prompts[event.id] = copy_prompt(QueuedPrompt, event, timestamp=envelope.ts, agent=envelope.agent)
            if not live and not envelope.agent:
                self._left_over.add(event.id)
        elif isinstance(event, PromptChanged):
            if event.id not in self._prompts:
                return False
            was = self._prompts[event.id]
            self._prompts[event.id] = copy_prompt(QueuedPrompt, event, timestamp=was.timestamp, agent=was.agent)
        elif isinstance(event, PromptPaused):
            if event.paused:
                self._paused.add(event.id)
            else:
                self._clear_pause(event.id)
        elif isinstance(event, PromptDropped | PromptInjected | TurnStarted):
            self._clear_pause(event.id)
            return self._prompts.pop(event.id, None) is not None
        else:
            return False
        return True

    def _clear_pause(self, prompt: str) -> None:
        self._left_over.discard(prompt)
        self._paused.discard(prompt)


class SubmittedDraft(Struct, frozen=True):
    draft: PromptDraft
    delivery: Delivery | None
    mode: Mode | None
    agent: str = ""


class SubmitQueue:
    """Submits drafts to the session in order. They wait while no session is open or another one is being opened.

    `queued` are the prompts that the session has not started yet. A draft that was refused goes back to `restore`.
    """

    def __init__(self, app: SessionApp, run_command: RunCommand, restore: Callable[[PromptDraft], object]) -> None:
        self._app = app
        self._run_command = run_command
        self._restore = restore
        self.queued = QueuedPrompts()
        self._drafts: asyncio.Queue[SubmittedDraft] = asyncio.Queue()
        self._open = asyncio.Event()
        self._switch_lock = asyncio.Lock()

    def put(self, draft: PromptDraft, delivery: Delivery | None, agent: str) -> None:
        """Queue a draft. Before the session is open, the mode counts only if the user chose it."""
        mode = self._app.mode if self._open.is_set() or self._app.is_mode_chosen else None
        self._drafts.put_nowait(SubmittedDraft(draft, delivery, mode, agent))

    def begin(self) -> None:
        """Start submitting: the session is open and its events are being followed."""
        self._open.set()

    @contextlib.asynccontextmanager
    async def pause(self) -> AsyncGenerator[None]:
        """Hold back drafts while switching to another session. Only one switch runs at a time."""
        async with self._switch_lock:
            self._open.clear()
            try:
                yield
            finally:
                self._open.set()

    async def run(self) -> None:
        """Submit drafts until the app ends."""
        while True:
            submitted = await self._drafts.get()
            await self._open.wait()
            await self._send(submitted)

    async def send_first(self, draft: PromptDraft) -> None:
        """Submit the prompt of the command line, before all drafts."""
        await self._send(SubmittedDraft(draft, None, None))

    async def _send(self, submitted: SubmittedDraft) -> None:
        text = submitted.draft.expand()
        try:
            if text.startswith("!") and text[1:].strip():
                # Run a command of the user. The agent it was typed for reads the output.
                command = text[1:].strip()
                agent = submitted.agent
                name = os.urandom(6).hex()
                self._app.transcripts[agent].add_command(name, command)
                self._app.request_frame()
                self._app.query_one(TranscriptView).to_end()
                await self._app.client.submit(RunUserShell(name, command, agent))
            elif remembered := find_memory_line(text):
                self._app.show_toast(await change_memory(self._app.client, ChangeMemory(remembered)))
            elif not await self._run_slash_command(text, submitted):
                await self._send_prompt(text, submitted)
        except OdinError as error:
            self._app.show_toast(error.describe(), "error")
            self._restore(submitted.draft)

    async def _run_slash_command(self, text: str, submitted: SubmittedDraft) -> bool:
        """Run a slash command of the app in a worker; False if the text is not one.

        The command may open a dialog, so later drafts wait for it only briefly.
        """
        word, _, rest = text.partition(" ") if "\n" not in text.split(" ", 1)[0] else ("", "", "")
        if not word.startswith("/") or find_slash_command(word) is None:
            await refuse_unknown_command(self._app.client, text)
            return False
        done = asyncio.Event()
        self._app.run_worker(
            self._execute_command(word[1:].casefold(), rest.strip(), submitted, done), exit_on_error=True
        )
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(done.wait(), _COMMAND_S)
        return True

    async def _execute_command(self, name: str, rest: str, submitted: SubmittedDraft, done: asyncio.Event) -> None:
        try:
            if not await self._run_command(name, rest, submitted.draft.list_images()):
                await self._send_prompt(submitted.draft.expand(), submitted)
        except OdinError as error:
            self._app.show_toast(error.describe(), "error")
            self._restore(submitted.draft)
        finally:
            done.set()

    async def _send_prompt(self, text: str, submitted: SubmittedDraft) -> None:
        client = self._app.client
        attached = submitted.draft.list_images()
        left_over = () if submitted.agent else self.queued.left_over
        prompt = Prompt(
            os.urandom(6).hex(),
            text,
            submitted.mode or self._app.mode,
            delivery=submitted.delivery,
            attachments=attached,
            agent=submitted.agent,
        )
        await client.submit(prompt)
        if self._app.agent and not submitted.agent:  # an ended agent is on the screen
            await self._app.run_action("show_agent('')")
        self._app.query_one(TranscriptView).to_end()
        for queued in left_over:
            await client.submit(ChangePrompt(queued.id, delivery=queued.delivery))

    async def change_queued(self, op: ChangePrompt | DropPrompt, done: str = "") -> bool:
        """Change a queued prompt and show the result. False if that failed."""
        try:
            changed = await self._app.client.submit(op)
        except OdinError as error:
            self._app.show_toast(error.describe(), "error")
            return False
        if not changed:
            self._app.show_toast(ALREADY_TAKEN)
        elif done:
            self._app.show_toast(done)
        return changed

    async def save_queued(self, prompt: QueuedPrompt, draft: PromptDraft, mode: Mode) -> None:
        """Save an edited queued prompt. If it has left the queue, its text becomes an ordinary draft."""
        change = ChangePrompt(prompt.id, draft.expand(), mode, attachments=draft.list_images(), agent=prompt.agent)
        if not await self.change_queued(change):
            self._restore(draft)

    async def load_history(self) -> Sequence[str]:
        """Return prompts of the project's earlier sessions, newest first."""
        with contextlib.suppress(OdinError, OSError):
            return await self._app.sessions.list_prompts(MAX_HISTORY)
        return ()
