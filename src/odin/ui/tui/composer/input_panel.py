"""The bottom of the screen: queue panel, composer and completion popup."""

from typing import cast

from textual.app import ComposeResult
from textual.containers import Vertical

from odin.core.op import SetPermissionMode
from odin.ui.tui.composer.completion import Popup
from odin.ui.tui.composer.composer import Composer
from odin.ui.tui.composer.draft import PromptDraft
from odin.ui.tui.composer.queue import QueuePanel
from odin.ui.tui.composer.submit_queue import RunCommand, SubmitQueue
from odin.ui.tui.session_app import SessionApp

PERMISSION_CYCLE = ("default", "acceptEdits", "auto")
"""The permission modes a key cycles through. Bypassing permissions requires the command /yolo."""


class InputPanel(Vertical):
    """The queue, the composer and its popup, and the queue that submits drafts."""

    DEFAULT_CSS = """
    InputPanel { height: auto; }
    """

    def __init__(self, app: SessionApp, run_command: RunCommand, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.submit_queue = SubmitQueue(app, run_command, lambda draft: self.composer.restore_draft(draft))
        self._popup = Popup(id="popup")
        self.composer = Composer(app.keys, self._popup, self.submit_queue, id="composer")
        self.queue = QueuePanel(app.keys, self.composer, self.submit_queue, id="queue")

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
    def odin(self) -> SessionApp:
        return cast(SessionApp, self.app)

    async def begin(self, first: str) -> None:
        """The first session is open: submit the prompt `first`, then the drafts written so far."""
        if first:
            await self.submit_queue.send_first(PromptDraft(first))
        self.submit_queue.begin()
        self.composer.prompt_history.add_older(await self.submit_queue.load_history())

    def set_recipient(self, agent: str, color: str = "") -> None:
        """Send the next prompts to this agent and show its queue."""
        self.composer.target.recipient, self.composer.target.color = agent, color
        self.composer.target.names_main = self.odin.agent != agent
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
