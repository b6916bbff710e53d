"""The bottom of the screen: queue panel, composer and completion popup, and the queue that submits drafts."""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, cast

from msgspec import Struct
from textual.app import ComposeResult
from textual.containers import Vertical

from odin.core.client import QueuedPrompt
from odin.core.errors import OdinError
from odin.core.event_values import Delivery, Mode
from odin.core.op import ChangeMemory, ChangePrompt, DropPrompt, Prompt, RunUserShell, SetPermissionMode
from odin.core.slash_commands import find_slash_command
from odin.ui.slash_commands.actions import refuse_unknown_command
from odin.ui.slash_commands.extensions import change_memory, find_memory_line
from odin.ui.tui.composer.completion import Popup
from odin.ui.tui.composer.composer import Composer
from odin.ui.tui.composer.draft import PromptDraft, join_drafts, make_draft
from odin.ui.tui.composer.queue import QueuePanel
from odin.ui.tui.keys import KeyTable

if TYPE_CHECKING:
    from odin.ui.tui.app import OdinApp


ALREADY_TAKEN = "This prompt has already left the queue."
MAX_HISTORY = 200
"""How many prompts of earlier sessions are loaded into the history."""

_COMMAND_S = 0.5
"""How long later drafts wait for a slash command, which may switch to another session."""


class SubmittedDraft(Struct, frozen=True):
    draft: PromptDraft
    delivery: Delivery | None
    mode: Mode | None
    agent: str = ""


class SubmitQueue:
    """Submits drafts to the session in order. They wait while no session is open or another one is being opened."""

    def __init__(self, app: "OdinApp", composer: Composer, queue: QueuePanel) -> None:
        self._app = app
        self._composer = composer
        self._queue_panel = queue
        self._drafts: asyncio.Queue[SubmittedDraft] = asyncio.Queue()
        self._open = asyncio.Event()
        self._switch_lock = asyncio.Lock()

    def put(self, draft: PromptDraft, delivery: Delivery | None) -> None:
        """Queue a draft. Before the session is open, the mode counts only if the user chose it."""
        mode = self._app.mode if self._open.is_set() or self._app.is_mode_chosen else None
        self._drafts.put_nowait(SubmittedDraft(draft, delivery, mode, self._composer.target.recipient))

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
                self._app.transcript.to_end()
                await self._app.client.submit(RunUserShell(name, command, agent))
            elif remembered := find_memory_line(text):
                self._app.show_toast(await change_memory(self._app.client, ChangeMemory(remembered)))
            elif not await self._run_slash_command(text, submitted):
                await self._send_prompt(text, submitted)
        except OdinError as error:
            self._app.show_toast(error.describe(), "error")
            self._composer.restore_draft(submitted.draft)

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
            if not await self._app.run_command(name, rest, submitted.draft.list_images()):
                await self._send_prompt(submitted.draft.expand(), submitted)
        except OdinError as error:
            self._app.show_toast(error.describe(), "error")
            self._composer.restore_draft(submitted.draft)
        finally:
            done.set()

    async def _send_prompt(self, text: str, submitted: SubmittedDraft) -> None:
        client = self._app.client
        attached = submitted.draft.list_images()
        left_over = () if submitted.agent else self._queue_panel.queued.left_over
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
            self._app.agent_focus.show("")
        self._app.transcript.to_end()
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
            self._composer.restore_draft(draft)

    async def load_history(self) -> Sequence[str]:
        """Return prompts of the project's earlier sessions, newest first."""
        with contextlib.suppress(OdinError, OSError):
            return await self._app.sessions.list_prompts(MAX_HISTORY)
        return ()


PERMISSION_CYCLE = ("default", "acceptEdits", "auto")
"""The permission modes a key cycles through. Bypassing permissions requires the command /yolo."""


class InputPanel(Vertical):
    """The queue, the composer and its popup, and the queue that submits drafts."""

    DEFAULT_CSS = """
    InputPanel { height: auto; }
    """

    def __init__(self, keys: KeyTable, app: "OdinApp", *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.queue = QueuePanel(keys, self, id="queue")
        self._popup = Popup(id="popup")
        self.composer = Composer(keys, self._popup, self, id="composer")
        self.submit_queue = SubmitQueue(app, self.composer, self.queue)

    def compose(self) -> ComposeResult:
        yield self.queue
        yield self.composer
        yield self._popup

    def on_mount(self) -> None:
        self.odin.observers += [self.composer, self.queue]
        self.run_worker(self.submit_queue.run(), exit_on_error=True)
        for line in self.odin.typed_ahead:
            if line.strip():
                self.composer.send_draft(PromptDraft(line))

    @property
    def odin(self) -> "OdinApp":
        return cast("OdinApp", self.app)

    async def begin(self, first: str) -> None:
        """The first session is open: submit the prompt `first`, then the drafts written so far."""
        if first:
            await self.submit_queue.send_first(PromptDraft(first))
        self.submit_queue.begin()
        self.composer.prompt_history.add_older(await self.submit_queue.load_history())

    def set_recipient(self, agent: str, color: str = "") -> None:
        """Send the next prompts to this agent and show its queue."""
        self.composer.target.recipient, self.composer.target.color = agent, color
        self.queue.show_queue(agent)

    # --- app-wide keys ---

    def focus_queue(self) -> None:
        if not len(self.queue.queued):
            self.odin.show_toast("The queue is empty.")
        elif self.queue.has_focus:
            self.composer.focus()
        else:
            self.queue.select_last()
            self.queue.focus()

    async def switch_permission_mode(self) -> None:
        """Set the next permission mode that the session accepts; say why it refuses one."""
        current = self.composer.target.permission_mode
        start = PERMISSION_CYCLE.index(current) + 1 if current in PERMISSION_CYCLE else 0
        for mode in (*PERMISSION_CYCLE[start:], *PERMISSION_CYCLE[:start]):
            if await self.odin.submit(SetPermissionMode(mode)):
                return

    def on_popup_chosen(self, message: Popup.Chosen) -> None:
        message.stop()
        self.composer.choose_item(message.number)

    async def handle_paused(self, prompts: Sequence[QueuedPrompt]) -> None:
        """After an interrupt, queued prompts go back to an empty composer; otherwise they stay queued, paused."""
        if self.composer.is_in_use or len({prompt.mode for prompt in prompts}) > 1:
            count = len(prompts)
            subject = "1 queued prompt is" if count == 1 else f"{count} queued prompts are"
            key = self.odin.keys.get_label("queue")
            self.odin.show_toast(f"{subject} paused. {key} edits, sends or drops queued prompts.")
            return
        taken = [prompt for prompt in prompts if await self.odin.submit(DropPrompt(prompt.id, prompt.agent))]
        if taken:
            self.odin.mode = taken[0].mode
            self.composer.restore_draft(join_drafts([make_draft(prompt.body, prompt.attachments) for prompt in taken]))
