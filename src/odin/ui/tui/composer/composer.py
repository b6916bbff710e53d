"""Where a person writes."""

from collections.abc import Callable, Sequence

from rich.text import Text
from textual import events

from odin.core.client import Client, QueuedPrompt, SessionInfo
from odin.core.event import Delivery, Envelope, Mode, PermissionModeChanged
from odin.ui.terminal import width_of
from odin.ui.tui.composer import label
from odin.ui.tui.composer.draft import PromptDraft, draft_of_prompt
from odin.ui.tui.composer.list_area import ListArea
from odin.ui.tui.composer.messages import DraftSent, ModeChosen, QueuedPromptEdited
from odin.ui.tui.composer.popup import Popup
from odin.ui.tui.keys import KeyTable, dispatch_key

MAX_LINES = 10

_PLACEHOLDERS = (
    "Ask, or type / for commands, @ for files, ! for your shell",
    "Ask, or type / for commands, @ for files, ! for a shell",
    "Ask, or type / commands, @ files, ! shell",
    "Ask, or type / @ !",
)
"""What an empty prompt says: as much as there is room for, whole."""


class Composer(ListArea):
    """A prompt of one or many lines. Whatever was written in it is never lost: it is sent, put away or stays.

    `waiting` gives the newest prompt that waits. `mode` is that of the next prompt.
    """

    DEFAULT_CSS = """
    Composer {
        height: auto;
        min-height: 3;
        max-height: 12;
        padding: 0 1;
        border: round $primary 40%;
        background: $background;
        scrollbar-size-vertical: 1;
        &:focus { border: round $primary 80%; }
        &.-command { border: round $secondary; }
        &.-shell { border: round $warning; }
        & .text-area--placeholder { color: $foreground 50%; }
    }
    """

    def __init__(
        self,
        keys: KeyTable,
        popup: Popup,
        mode: Callable[[], Mode],
        waiting: Callable[[], QueuedPrompt | None],
        *,
        id: str | None = None,
    ) -> None:
        self._edited_prompt: QueuedPrompt | None = None
        self._stashed_draft = PromptDraft()
        self._stashed_mode: Mode = "edit_mode"
        self._get_mode = mode
        self._newest_queued = waiting
        self._border_state: object = None
        self._permission_mode = "default"
        super().__init__(keys, popup, id=id)

    def on_mount(self) -> None:
        self.update_border()

    def on_resize(self) -> None:
        self.placeholder = next((words for words in _PLACEHOLDERS if width_of(words) <= self.size.width), "")
        self.styles.max_height = 2 + max(1, min(MAX_LINES, self.screen.size.height // 3))
        if self.popup.open:
            self.popup.follow(self.region)

    # --- the session it belongs to ---

    def enter_session(self, client: Client, info: SessionInfo) -> None:
        """What is being written stays; what completes it is that of the other session."""
        self.completer.enter_session(client)
        self._permission_mode = info.permission_mode
        self.update_border()

    def handle_event(self, envelope: Envelope, live: bool) -> None:
        if live and isinstance(envelope.event, PermissionModeChanged) and not envelope.agent:
            self._permission_mode = envelope.event.mode

    def draw_frame(self) -> None:
        self.update_border()

    @property
    def permission_mode(self) -> str:
        """The permission mode that holds."""
        return self._permission_mode

    def load_history(self, texts: Sequence[str]) -> None:
        """Prompts of earlier sessions, the newest first."""
        self.prompt_history.add_older(texts)

    def update_border(self) -> None:
        """Say on the border what is being written, and in which mode it would be sent."""
        if not self.is_mounted:
            return
        first, theme = self.document[0][:1], label.theme_of(self)
        says = (theme.name, self._get_mode(), self._permission_mode, first, self.searching, self.editing_id)
        if says == self._border_state:
            return
        self._border_state = says
        self.set_class(first == "!" and not self.searching, "-shell")
        self.set_class(first == "/" and not self.searching, "-command")
        self.border_title = label.make_title(theme, self._get_mode(), self._permission_mode)
        told = label.make_subtitle(first, self.keys, searching=self.searching, editing=bool(self.editing_id))
        self.border_subtitle = Text(told)

    # --- drafts ---

    def clear_draft(self) -> bool:
        """Clear the prompt; it can be called back by Up. What is open, a search or a waiting prompt, is only left."""
        if self.searching or self.editing_id:
            self._cancel_edit()
            return True
        draft = self.draft
        self.prompt_history.add(draft)
        self.show_draft(PromptDraft())
        return not draft.is_empty

    def restore_draft(self, draft: PromptDraft) -> None:
        """What could not be sent is here again; where something else is being written, Up brings it."""
        if self.draft.is_empty and not self.editing_id and not self.searching:
            self.show_draft(draft)
        else:
            self.prompt_history.add(draft)
            self.show_toast("What could not be sent is in the history: Up on the first line brings it back.")

    def send(self) -> None:
        self._send(None)

    def _send(self, lane: Delivery | None) -> None:
        draft = self.draft
        if self.searching:
            self.action_choose()
        elif lane is None and self._continue_line():
            return
        elif not draft.is_empty and self._edited_prompt is not None:
            self.post_message(QueuedPromptEdited(self._edited_prompt, draft, self._get_mode()))
            self._cancel_edit()
        elif not draft.is_empty:
            self.show_draft(PromptDraft())
            self.send_draft(draft, lane)

    def _continue_line(self) -> bool:
        """A backslash at the end of the line means that another line follows."""
        row, column = self.cursor_location
        line = self.document[row]
        if not line.endswith("\\") or column != len(line):
            return False
        self.replace("\n", (row, column - 1), (row, column))
        return True

    def send_draft(self, draft: PromptDraft, lane: Delivery | None = None) -> None:
        self.prompt_history.add(draft)
        self.post_message(DraftSent(draft, lane, self._get_mode()))

    # --- a prompt that waits ---

    @property
    def editing_id(self) -> str:
        """The id of the waiting prompt that is being edited, or ""."""
        return self._edited_prompt.id if self._edited_prompt is not None else ""

    def edit_queued(self, item: QueuedPrompt) -> None:
        """Edit it here; what was being written comes back afterwards."""
        if self.searching or self.editing_id:
            self._cancel_edit()
        self._stashed_draft, self._stashed_mode = self.draft, self._get_mode()
        self._edited_prompt = item
        self.post_message(ModeChosen(item.mode))
        self.show_draft(draft_of_prompt(item.body, item.attachments))
        self.focus()

    def end_queued_edit(self) -> None:
        """The prompt that is being edited waits no longer. What was made of it is an ordinary draft now."""
        if self._edited_prompt is None:
            return
        draft = self.draft
        changed = draft != draft_of_prompt(self._edited_prompt.body, self._edited_prompt.attachments)
        self._cancel_edit()
        self.show_toast("The prompt you were editing was taken meanwhile.")
        if changed:
            self.restore_draft(draft)

    def _cancel_edit(self) -> None:
        """Close the search, or leave the waiting prompt as it is."""
        if self.searching:
            self.end_search()
        elif self._edited_prompt is not None:
            self.post_message(ModeChosen(self._stashed_mode))
            self._edited_prompt = None
            self.show_draft(self._stashed_draft)

    # --- keys ---

    async def _on_key(self, event: events.Key) -> None:
        before, cursor = self.text, self.cursor_location
        shown = self._load_count
        await self._dispatch_composer_key(event)
        if self._load_count != shown:
            return
        if self.text != before:
            self.handle_typed()
        elif self.cursor_location != cursor:
            self.completer.close()

    async def _dispatch_composer_key(self, event: events.Key) -> None:
        own = self.keys.find_action(event.key, "composer")
        if own == "errors_here" and self.text:
            await super()._on_key(event)
            return
        everywhere = "" if own else self.keys.find_action(event.key, "everywhere")
        if self.popup.open and self.keys.find_action(event.key, "popup"):
            await dispatch_key(self, self.keys, event, "popup")
        elif (action := self._find_override(everywhere)) is not None:
            event.stop()
            event.prevent_default()
            action()
        elif not await dispatch_key(self, self.keys, event, "composer"):
            await super()._on_key(event)

    def _find_override(self, name: str) -> Callable[[], object] | None:
        """What a key of the app does while there is something to do it to here."""
        if name == "end_of_input" and self.text:
            return self.action_delete_right
        if name == "leave" and self.selected_text:
            return self._copy_selection
        if name in ("stop", "leave") and (self.searching or self.editing_id):
            return self._cancel_edit
        return None

    def _copy_selection(self) -> None:
        self.action_copy()
        self.move_cursor(self.cursor_location)
        self.show_toast("Copied.")

    def action_send(self) -> None:
        self._send(None)

    def action_steer(self) -> None:
        self._send("steer")

    def action_newline(self) -> None:
        start, end = self.selection
        self._replace_via_keyboard("\n", start, end)

    async def action_errors_here(self) -> None:
        await self.run_action("app.errors")

    async def action_next_mode(self) -> None:
        await self.run_action("app.next_mode")

    def action_search_history(self) -> None:
        if not self.editing_id:
            super().action_search_history()

    def action_cursor_up(self, select: bool = False) -> None:
        if select or not self._is_at_edge(self.get_cursor_up_location()):
            super().action_cursor_up(select)
        elif self.editing_id or self.searching:
            return
        elif not self.text and (item := self._newest_queued()) is not None:
            self.edit_queued(item)
        elif (draft := self.prompt_history.go_back(self.draft)) is not None:
            self.show_draft(draft)

    def action_cursor_down(self, select: bool = False) -> None:
        if select or not self._is_at_edge(self.get_cursor_down_location()):
            super().action_cursor_down(select)
        elif (
            not self.editing_id
            and not self.searching
            and (draft := self.prompt_history.go_forward(self.draft)) is not None
        ):
            self.show_draft(draft)

    def _is_at_edge(self, target: tuple[int, int]) -> bool:
        """Whether going there stays on the same row of the screen."""
        row = self.wrapped_document.location_to_offset(target)[1]
        return row == self.wrapped_document.location_to_offset(self.cursor_location)[1]
