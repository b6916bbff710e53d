"""The bottom of the screen: what waits, where one writes, the list that completes it, and what comes of their keys."""

from typing import TYPE_CHECKING, cast

from textual.app import ComposeResult
from textual.containers import Vertical

from odin.core.event import Mode
from odin.core.op import SetPermissionMode
from odin.ui.tui.composer.composer import Composer
from odin.ui.tui.composer.draft import Draft
from odin.ui.tui.composer.messages import ModeChosen, Saved, Sent, Told
from odin.ui.tui.composer.popup import Popup
from odin.ui.tui.composer.sending import Sending
from odin.ui.tui.keys import KeyTable
from odin.ui.tui.panels.queue import QueuePanel

if TYPE_CHECKING:
    from odin.ui.tui.app import OdinApp

PERMISSIONS = ("default", "acceptEdits", "plan")
"""Through which a key goes. Asking nothing at all has to be said in words: /yolo."""


class Writing(Vertical):
    """Its parts know nothing of the app; what they want comes here as messages."""

    DEFAULT_CSS = """
    Writing { height: auto; }
    """

    def __init__(self, keys: KeyTable, app: "OdinApp", *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.queue = QueuePanel(keys, id="queue")
        self._popup = Popup(id="popup")
        self.composer = Composer(keys, self._popup, self._mode, self.queue.newest, id="composer")
        self.sending = Sending(app, self.composer, self.queue)

    def compose(self) -> ComposeResult:
        yield self.queue
        yield self.composer
        yield self._popup

    def on_mount(self) -> None:
        self.odin.watchers += [self.composer, self.queue]
        self.run_worker(self.sending.run(), exit_on_error=True)
        for line in self.odin.typed_ahead:
            if line.strip():
                self.composer.send_draft(Draft(line))

    @property
    def odin(self) -> "OdinApp":
        return cast("OdinApp", self.app)

    def _mode(self) -> Mode:
        return self.odin.mode

    async def begin(self, first: str) -> None:
        """The first session is open and is being followed: what was written by now is sent, `first` before it."""
        if first and not await self.odin.prompt(first):
            self.composer.give_back(Draft(first))
        self.sending.begin()
        self.composer.remember(await self.sending.recall())

    # --- keys of the app ---

    def go_to_queue(self) -> None:
        if not len(self.queue.waiting):
            self.odin.tell("Nothing waits.")
        elif self.queue.has_focus:
            self.composer.focus()
        else:
            self.queue.choose_last()
            self.queue.focus()

    async def next_permission_mode(self) -> None:
        now = self.composer.permission
        at = PERMISSIONS.index(now) + 1 if now in PERMISSIONS else 0
        await self.odin.ask(SetPermissionMode(PERMISSIONS[at % len(PERMISSIONS)]))

    # --- what the parts want ---

    def on_composer_sent(self, message: Sent) -> None:
        message.stop()
        self.sending.put(message.draft, message.lane, message.mode)

    async def on_composer_saved(self, message: Saved) -> None:
        message.stop()
        await self.sending.save(message.prompt.id, message.draft, message.mode)

    def on_composer_told(self, message: Told) -> None:
        message.stop()
        self.odin.tell(message.text, message.level)

    def on_composer_mode_chosen(self, message: ModeChosen) -> None:
        message.stop()
        self.odin.mode = message.mode

    def on_popup_chosen(self, message: Popup.Chosen) -> None:
        message.stop()
        self.composer.choose(message.number)

    def on_queue_panel_editing(self, message: QueuePanel.Editing) -> None:
        message.stop()
        self.composer.edit_waiting(message.prompt)

    async def on_queue_panel_changing(self, message: QueuePanel.Changing) -> None:
        message.stop()
        await self.sending.change(message.op, message.done)

    def on_queue_panel_left(self, message: QueuePanel.Left) -> None:
        message.stop()
        self.composer.focus()

    def on_queue_panel_taken(self, message: QueuePanel.Taken) -> None:
        message.stop()
        if self.composer.editing == message.prompt:
            self.composer.taken()

    def on_queue_panel_joined(self, message: QueuePanel.Joined) -> None:
        message.stop()
        what = "The prompt that waited" if message.count == 1 else f"The {message.count} prompts that waited"
        self.odin.tell(f"{what} joined the conversation; the model reads it with your next prompt.")
