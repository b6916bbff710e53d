"""Where a person writes."""

from collections.abc import Callable, Sequence

from rich.text import Text
from textual import events

from odin.core.client import Client, QueuedPrompt, SessionInfo
from odin.core.event import Envelope, Lane, Mode, PermissionModeChanged
from odin.ui.terminal import width
from odin.ui.tui.composer import label
from odin.ui.tui.composer.draft import Draft, of_prompt
from odin.ui.tui.composer.list_area import ListArea
from odin.ui.tui.composer.messages import ModeChosen, Saved, Sent
from odin.ui.tui.composer.popup import Popup
from odin.ui.tui.keys import KeyTable, pressed

MOST_LINES = 10

_INVITING = (
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
        self._editing: QueuedPrompt | None = None
        self._stashed = Draft()
        self._stashed_mode: Mode = "edit_mode"
        self._mode = mode
        self._waiting = waiting
        self._said: object = None
        self._permission = "default"
        super().__init__(keys, popup, id=id)

    def on_mount(self) -> None:
        self.changed()

    def on_resize(self) -> None:
        self.placeholder = next((words for words in _INVITING if width(words) <= self.size.width), "")
        self.styles.max_height = 2 + max(1, min(MOST_LINES, self.screen.size.height // 3))
        if self.popup.open:
            self.popup.follow(self.region)

    # --- the session it belongs to ---

    def enter(self, client: Client, info: SessionInfo) -> None:
        """What is being written stays; what completes it is that of the other session."""
        self.suggesting.enter(client)
        self._permission = info.permission_mode
        self.changed()

    def see(self, envelope: Envelope, live: bool) -> None:
        if live and isinstance(envelope.event, PermissionModeChanged) and not envelope.agent:
            self._permission = envelope.event.mode

    def frame(self) -> None:
        self.changed()

    @property
    def permission(self) -> str:
        """The permission mode that holds."""
        return self._permission

    def remember(self, texts: Sequence[str]) -> None:
        """Prompts of earlier sessions, the newest first."""
        self.past.earlier(texts)

    def changed(self) -> None:
        """Say on the border what is being written, and in which mode it would be sent."""
        if not self.is_mounted:
            return
        first, theme = self.document[0][:1], label.theme_of(self)
        says = (theme.name, self._mode(), self._permission, first, self.searching, self.editing)
        if says == self._said:
            return
        self._said = says
        self.set_class(first == "!" and not self.searching, "-shell")
        self.set_class(first == "/" and not self.searching, "-command")
        self.border_title = label.title(theme, self._mode(), self._permission)
        told = label.subtitle(first, self.keys, searching=self.searching, editing=bool(self.editing))
        self.border_subtitle = Text(told)

    # --- drafts ---

    def put_away(self) -> bool:
        """Clear the prompt; it can be called back by Up. What is open, a search or a waiting prompt, is only left."""
        if self.searching or self.editing:
            self._leave()
            return True
        draft = self.draft
        self.past.add(draft)
        self.show(Draft())
        return not draft.empty

    def give_back(self, draft: Draft) -> None:
        """What could not be sent is here again; where something else is being written, Up brings it."""
        if self.draft.empty and not self.editing and not self.searching:
            self.show(draft)
        else:
            self.past.add(draft)
            self.tell("What could not be sent is in the history: Up on the first line brings it back.")

    def send(self) -> None:
        self._send(None)

    def _send(self, lane: Lane | None) -> None:
        draft = self.draft
        if self.searching:
            self.action_choose()
        elif lane is None and self._continued():
            return
        elif not draft.empty and self._editing is not None:
            self.post_message(Saved(self._editing, draft, self._mode()))
            self._leave()
        elif not draft.empty:
            self.show(Draft())
            self.send_draft(draft, lane)

    def _continued(self) -> bool:
        """A backslash at the end of the line means that another line follows."""
        row, column = self.cursor_location
        line = self.document[row]
        if not line.endswith("\\") or column != len(line):
            return False
        self.replace("\n", (row, column - 1), (row, column))
        return True

    def send_draft(self, draft: Draft, lane: Lane | None = None) -> None:
        self.past.add(draft)
        self.post_message(Sent(draft, lane, self._mode()))

    # --- a prompt that waits ---

    @property
    def editing(self) -> str:
        """The id of the waiting prompt that is being edited, or ""."""
        return self._editing.id if self._editing is not None else ""

    def edit_waiting(self, item: QueuedPrompt) -> None:
        """Edit it here; what was being written comes back afterwards."""
        if self.searching or self.editing:
            self._leave()
        self._stashed, self._stashed_mode = self.draft, self._mode()
        self._editing = item
        self.post_message(ModeChosen(item.mode))
        self.show(of_prompt(item.body, item.attached))
        self.focus()

    def taken(self) -> None:
        """The prompt that is being edited waits no longer. What was made of it is an ordinary draft now."""
        if self._editing is None:
            return
        draft = self.draft
        changed = draft != of_prompt(self._editing.body, self._editing.attached)
        self._leave()
        self.tell("The prompt you were editing was taken meanwhile.")
        if changed:
            self.give_back(draft)

    def _leave(self) -> None:
        """Close the search, or leave the waiting prompt as it is."""
        if self.searching:
            self.end_search()
        elif self._editing is not None:
            self.post_message(ModeChosen(self._stashed_mode))
            self._editing = None
            self.show(self._stashed)

    # --- keys ---

    async def _on_key(self, event: events.Key) -> None:
        before, cursor = self.text, self.cursor_location
        shown = self._shown
        await self._key(event)
        if self._shown != shown:
            return
        if self.text != before:
            self.typed()
        elif self.cursor_location != cursor:
            self.suggesting.close()

    async def _key(self, event: events.Key) -> None:
        own = self.keys.name(event.key, "composer")
        if own == "errors_here" and self.text:
            await super()._on_key(event)
            return
        everywhere = "" if own else self.keys.name(event.key, "everywhere")
        if self.popup.open and self.keys.name(event.key, "popup"):
            await pressed(self, self.keys, event, "popup")
        elif (action := self._instead(everywhere)) is not None:
            event.stop()
            event.prevent_default()
            action()
        elif not await pressed(self, self.keys, event, "composer"):
            await super()._on_key(event)

    def _instead(self, name: str) -> Callable[[], object] | None:
        """What a key of the app does while there is something to do it to here."""
        if name == "end_of_input" and self.text:
            return self.action_delete_right
        if name == "leave" and self.selected_text:
            return self._copy
        if name in ("stop", "leave") and (self.searching or self.editing):
            return self._leave
        return None

    def _copy(self) -> None:
        self.action_copy()
        self.move_cursor(self.cursor_location)
        self.tell("Copied.")

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
        if not self.editing:
            super().action_search_history()

    def action_cursor_up(self, select: bool = False) -> None:
        if select or not self._at_edge(self.get_cursor_up_location()):
            super().action_cursor_up(select)
        elif self.editing or self.searching:
            return
        elif not self.text and (item := self._waiting()) is not None:
            self.edit_waiting(item)
        elif (draft := self.past.up(self.draft)) is not None:
            self.show(draft)

    def action_cursor_down(self, select: bool = False) -> None:
        if select or not self._at_edge(self.get_cursor_down_location()):
            super().action_cursor_down(select)
        elif not self.editing and not self.searching and (draft := self.past.down(self.draft)) is not None:
            self.show(draft)

    def _at_edge(self, target: tuple[int, int]) -> bool:
        """Whether going there stays on the same row of the screen."""
        row = self.wrapped_document.location_to_offset(target)[1]
        return row == self.wrapped_document.location_to_offset(self.cursor_location)[1]
