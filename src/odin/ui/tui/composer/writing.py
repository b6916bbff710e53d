"""The bottom of the screen: what waits, where one writes, the list that completes it, and what comes of their keys."""

from typing import TYPE_CHECKING, cast

from textual.app import ComposeResult
from textual.containers import Vertical

from odin.core.event import Mode
from odin.core.op import SetPermissionMode
from odin.ui.tui.composer.composer import Composer
from odin.ui.tui.composer.draft import PromptDraft
from odin.ui.tui.composer.messages import DraftSent, ModeChosen, QueuedPromptEdited, ToastRequested
from odin.ui.tui.composer.popup import Popup
from odin.ui.tui.composer.sending import SubmitQueue
from odin.ui.tui.keys import KeyTable
from odin.ui.tui.panels.queue import QueuePanel

if TYPE_CHECKING:
    from odin.ui.tui.app import OdinApp

PERMISSION_CYCLE = ("default", "acceptEdits", "plan")
"""Through which a key goes. Asking nothing at all has to be said in words: /yolo."""


class InputPanel(Vertical):
    """Its parts know nothing of the app; what they want comes here as messages."""

    DEFAULT_CSS = """
    InputPanel { height: auto; }
    """

    def __init__(self, keys: KeyTable, app: "OdinApp", *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.queue = QueuePanel(keys, id="queue")
        self._popup = Popup(id="popup")
        self.composer = Composer(keys, self._popup, self._get_mode, self.queue.get_newest, id="composer")
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

    def _get_mode(self) -> Mode:
        return self.odin.mode

    async def begin(self, first: str) -> None:
        """The first session is open and is being followed: what was written by now is sent, `first` before it."""
        if first and not await self.odin.send_prompt(first):
            self.composer.restore_draft(PromptDraft(first))
        self.submit_queue.begin()
        self.composer.load_history(await self.submit_queue.load_history())

    # --- keys of the app ---

    def focus_queue(self) -> None:
        if not len(self.queue.queued):
            self.odin.show_toast("Nothing waits.")
        elif self.queue.has_focus:
            self.composer.focus()
        else:
            self.queue.select_last()
            self.queue.focus()

    async def switch_permission_mode(self) -> None:
        now = self.composer.permission_mode
        at = PERMISSION_CYCLE.index(now) + 1 if now in PERMISSION_CYCLE else 0
        await self.odin.submit(SetPermissionMode(PERMISSION_CYCLE[at % len(PERMISSION_CYCLE)]))

    # --- what the parts want ---

    def on_composer_draft_sent(self, message: DraftSent) -> None:
        message.stop()
        self.submit_queue.put(message.draft, message.lane, message.mode)

    async def on_composer_queued_prompt_edited(self, message: QueuedPromptEdited) -> None:
        message.stop()
        await self.submit_queue.save_queued(message.prompt.id, message.draft, message.mode)

    def on_composer_toast_requested(self, message: ToastRequested) -> None:
        message.stop()
        self.odin.show_toast(message.text, message.level)

    def on_composer_mode_chosen(self, message: ModeChosen) -> None:
        message.stop()
        self.odin.mode = message.mode

    def on_popup_chosen(self, message: Popup.Chosen) -> None:
        message.stop()
        self.composer.choose_item(message.number)

    def on_queue_panel_edit_requested(self, message: QueuePanel.EditRequested) -> None:
        message.stop()
        self.composer.edit_queued(message.prompt)

    async def on_queue_panel_change_requested(self, message: QueuePanel.ChangeRequested) -> None:
        message.stop()
        await self.submit_queue.change_queued(message.op, message.done)

    def on_queue_panel_exited(self, message: QueuePanel.Exited) -> None:
        message.stop()
        self.composer.focus()

    def on_queue_panel_removed(self, message: QueuePanel.Removed) -> None:
        message.stop()
        if self.composer.editing_id == message.prompt:
            self.composer.end_queued_edit()

    def on_queue_panel_injected(self, message: QueuePanel.Injected) -> None:
        message.stop()
        what = "The prompt that waited" if message.count == 1 else f"The {message.count} prompts that waited"
        self.odin.show_toast(f"{what} joined the conversation; the model reads it with your next prompt.")
