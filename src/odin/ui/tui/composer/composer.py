"""The text that is being written, with labels that are one piece each: no cursor inside, no half of one deleted.

Text that comes from elsewhere: what is pasted, dropped, in the clipboard, or written in an editor.

The list above the composer and what is taken from it: files, commands, and earlier prompts.

Where a person writes.
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, cast

from rich.style import Style
from rich.text import Text
from textual import events
from textual.app import App
from textual.binding import Binding, BindingType
from textual.document._document import Location, Selection
from textual.widgets import TextArea

from odin.core.client import Client, QueuedPrompt, SessionInfo
from odin.core.errors import OdinError, UsageError
from odin.core.event import Delivery, Envelope, Mode, PermissionModeChanged
from odin.ui.completion import CompletionItem
from odin.ui.terminal import width_of
from odin.ui.tui.composer import messages
from odin.ui.tui.composer.completion import ComposerCompleter, Popup
from odin.ui.tui.composer.draft import DraftPart, DraftParts, PromptDraft, PromptHistory, draft_of_prompt
from odin.ui.tui.composer.external_editor import edit_in_editor
from odin.ui.tui.composer.messages import DraftSent, ModeChosen, QueuedPromptEdited, ToastRequested, theme_of
from odin.ui.tui.composer.paste import (
    clean_text,
    explain_too_long,
    find_image_paths,
    make_image,
    read_clipboard,
    read_image,
    should_fold,
)
from odin.ui.tui.keys import KeyTable, dispatch_key
from odin.ui.tui.panels.status import ToastLevel

UNFOLD_CHARS = 20_000
"""A longer paste is not unfolded into the text; an editor shows it."""

_MENTION = re.compile(r"""(?<![\w@/.+-])@(?:"[^"\n]+"(?::\d+(?:-\d+)?)?|[^\s"@]+)""")


class DraftArea(TextArea):
    """A text area that knows the pieces of a draft."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("alt+b", "cursor_word_left", show=False),
        Binding("alt+f", "cursor_word_right", show=False),
        Binding("alt+d", "delete_word_right", show=False),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        self.draft_parts = DraftParts()
        super().__init__(
            id=id, soft_wrap=True, tab_behavior="focus", show_line_numbers=False, highlight_cursor_line=False
        )
        self.cursor_blink = False
        self.match_cursor_bracket = False

    @property
    def draft(self) -> PromptDraft:
        return self.draft_parts.build_draft(self.text)

    def load(self, draft: PromptDraft) -> None:
        """Show this draft in the place of what is there, with the cursor at its end."""
        self.draft_parts.load(draft.parts)
        self.load_text(draft.text)
        self.move_cursor(self.document.end)

    def find_matching_bracket(self, bracket: str, search_from: Location) -> Location | None:
        """Brackets are not matched: that would look through the whole text at every key."""
        return None

    # --- labels are one piece ---

    def validate_selection(self, selection: Selection) -> Selection:
        start = self._move_outside_label(selection.start, self.selection.start)
        end = start if selection.is_empty else self._move_outside_label(selection.end, self.selection.end)
        return selection if (start, end) == tuple(selection) else Selection(start, end)

    def _move_outside_label(self, to: Location, was: Location) -> Location:
        """Where a cursor that would stand inside of a label stands instead, coming from there."""
        row, column = to
        for first, last, _ in self._find_labels(row):
            if first < column < last:
                if was == (row, last) or (was > (row, first) and column - first < last - column):
                    return row, first
                return row, last
        return to

    def _find_labels(self, row: int) -> list[tuple[int, int, DraftPart]]:
        return list(self.draft_parts.find_labels(self.document[row])) if row < self.document.line_count else []

    def get_cursor_left_location(self) -> Location:
        return self._move_outside_label(super().get_cursor_left_location(), self.cursor_location)

    def get_cursor_right_location(self) -> Location:
        return self._move_outside_label(super().get_cursor_right_location(), self.cursor_location)

    def get_cursor_word_left_location(self) -> Location:
        return self._move_outside_label(super().get_cursor_word_left_location(), self.cursor_location)

    def get_cursor_word_right_location(self) -> Location:
        return self._move_outside_label(super().get_cursor_word_right_location(), self.cursor_location)

    def unfold(self, at: Location) -> bool | None:
        """Put a paste in the place of its label there. None when there is none, False when it is too long for that."""
        row, column = at
        for first, last, piece in self._find_labels(row):
            if first <= column < last and piece.text:
                if len(piece.text) > UNFOLD_CHARS:
                    return False
                self.replace(piece.text, (row, first), (row, last))
                return True
        return None

    def action_delete_to_start_of_line(self) -> None:
        """As in a shell, at the start of a line the line's end before it goes."""
        if self.selection.is_empty and self.cursor_location[1] == 0:
            self.action_delete_left()
        else:
            super().action_delete_to_start_of_line()

    # --- how it looks ---

    def get_line(self, line_index: int) -> Text:
        line = super().get_line(line_index)
        theme = theme_of(self)
        if "@" in line.plain:
            for found in _MENTION.finditer(line.plain):
                line.stylize(Style(color=theme.primary), found.start(), found.end())
        for first, last, _ in self.draft_parts.find_labels(line.plain):
            line.stylize(Style(color=theme.accent, bold=True), first, last)
        return line

    async def _on_key(self, event: events.Key) -> None:
        """Editing keys act here and now. As bindings they would come after characters that were typed behind them."""
        bindings = self._bindings.key_to_bindings.get(event.key)
        if bindings and not event.is_printable:
            event.stop()
            event.prevent_default()
            await self.run_action(bindings[0].action)
        else:
            await super()._on_key(event)


_IMAGE_READ_S = 3.0
"""How long the disk may take to give a picture that was dropped here."""


class PasteArea(DraftArea):
    """`may_fold` is false while a long paste must stay what it is."""

    def __init__(self, keys: KeyTable, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.keys = keys
        self.can_fold = True

    def show_toast(self, text: str, level: ToastLevel = "info") -> None:
        self.post_message(ToastRequested(text, level))

    def handle_pasted(self) -> None:
        """Something came that nobody typed; for those who show more than the text."""

    # --- pasting ---

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        self.focus()
        await self.paste(event.text)

    async def paste(self, text: str) -> None:
        """Take what was pasted: pictures by their paths, a long text as a folded piece, words as they are."""
        if sentence := explain_too_long(text):
            self.show_toast(sentence, "warn")
            return
        text = clean_text(text)
        if (paths := find_image_paths(text)) and await self._paste_images(paths):
            return
        if should_fold(text) and self.can_fold:
            text = self.draft_parts.add_paste(text)
        self._insert_pasted(text)

    async def _paste_images(self, paths: Sequence[str]) -> bool:
        """False when these are paths of no pictures after all, and so are words."""
        try:
            async with asyncio.timeout(_IMAGE_READ_S):
                for path in paths:
                    picture = await asyncio.to_thread(read_image, path)
                    self._add_image(picture.data, picture.path)
        except TimeoutError:
            self.show_toast("The picture could not be read in time.", "warn")
        except UsageError as error:
            self.show_toast(error.describe(), "warn")
            return False
        return True

    def _add_image(self, data: bytes, name: str) -> None:
        """Raises UsageError."""
        if self.draft_parts.count_image_room(self.text) < 1:
            raise UsageError("At most five pictures go with a prompt; this one was left out.")
        self._insert_pasted(self.draft_parts.add_image(make_image(data, name)) + " ")

    def _insert_pasted(self, text: str) -> None:
        result = self._replace_via_keyboard(text, *self.selection)
        if result is not None:
            self.move_cursor(result.end_location)
        self.handle_pasted()

    def action_paste_image(self) -> None:
        self.run_worker(self._paste_clipboard(), group="clipboard", exclusive=True)

    async def _paste_clipboard(self) -> None:
        """A picture or a text of the clipboard, where a program can give it, else what was copied in the app."""
        clipped = await read_clipboard()
        if clipped.image:
            try:
                self._add_image(clipped.image, "clipboard")
            except UsageError as error:
                self.show_toast(error.describe(), "warn")
        elif text := clipped.text or cast("App[Any]", self.app).clipboard:
            await self.paste(text)
        else:
            self.show_toast("There is nothing in the clipboard that can be read from here.")

    def on_click(self, event: events.Click) -> None:
        if self.unfold(self.get_target_document_location(event)) is False:
            key = self.keys.label_of("edit_outside")
            self.show_toast(f"That is too long to be shown here; {key} opens it in your editor.")

    # --- the editor ---

    async def action_edit_outside(self) -> None:
        before = self.draft
        try:
            text = await edit_in_editor(cast("App[Any]", self.app), before.expand())
        except (OdinError, OSError) as error:
            self.show_toast(error.describe() if isinstance(error, OdinError) else str(error), "error")
            return
        draft = before.refold(text)
        self.draft_parts.load(draft.parts)
        self.replace(draft.text, (0, 0), self.document.end)
        self.move_cursor(self.document.end)
        self.handle_pasted()


_MAX_MATCHES = 50


class ListArea(PasteArea):
    """While an earlier prompt is being found, the text is what is sought, and the draft is laid aside."""

    def __init__(self, keys: KeyTable, popup: Popup, *, id: str | None = None) -> None:
        self.prompt_history = PromptHistory()
        self.popup = popup
        self.completer = ComposerCompleter(self._offer_items)
        self.searching = False
        self._history_matches: Sequence[PromptDraft] = ()
        self._saved_draft = PromptDraft()
        self._load_count = 0
        super().__init__(keys, id=id)

    def show_draft(self, draft: PromptDraft) -> None:
        """This draft in the place of what is there. Nothing is offered for what nobody has typed."""
        self._load_count += 1
        self.completer.close()
        self.load(draft)
        self.update_border()

    def update_border(self) -> None:
        """The text is another one; for those who say something about it."""

    def send(self) -> None:
        """Send what is written, in the usual way."""

    def handle_pasted(self) -> None:
        self.completer.close()
        self.update_border()
        if self.searching:
            self._find_in_history()

    def handle_typed(self) -> None:
        """The text is another one, because of a key."""
        self.update_border()
        if self.searching:
            self._find_in_history()
        else:
            row, column = self.cursor_location
            self.completer.update(self.document[row], column, first=row == 0)

    def _offer_items(self, choices: Sequence[CompletionItem], *, again: bool = False) -> None:
        if choices and self.is_mounted:
            self.popup.offer(choices, self.region, again=again)
        else:
            self.popup.close()

    # --- moving and taking ---

    def action_choose_next(self) -> None:
        self.popup.move(1)

    def action_choose_previous(self) -> None:
        self.popup.move(-1)

    def action_close_list(self) -> None:
        if self.searching:
            self.end_search()
        else:
            self.popup.close()

    def action_choose(self) -> None:
        """Take what is chosen in the list into the text."""
        if self.searching:
            self._take_match()
        elif (choice := self.popup.selected) is not None:
            self._insert_item(choice)

    def action_choose_and_send(self) -> None:
        """The same; what is a whole command by that, or was one before, is sent."""
        choice = self.popup.selected
        if self.searching or choice is None:
            self.action_choose()
        elif self._is_complete(choice):
            self.completer.close()
            self.send()
        else:
            self._insert_item(choice)
            if choice.is_runnable:
                self.send()

    def _is_complete(self, choice: CompletionItem) -> bool:
        """Whether there is nothing to complete: the word is one already, or an argument that may be left out."""
        want = self.completer.target
        if want is None or self.completer.is_complete():
            return True
        return want.letters == choice.label or (want.kind == "argument" and not want.letters)

    def _insert_item(self, choice: CompletionItem) -> None:
        want = self.completer.target
        if want is None:
            return
        row = self.cursor_location[0]
        self.replace(choice.insert, (row, want.start), (row, want.end))
        self.move_cursor((row, want.start + len(choice.insert)))
        self.completer.close()

    def choose_item(self, number: int) -> None:
        """Somebody clicked on it."""
        self.popup.at = number
        self.action_choose()
        self.handle_typed()
        self.focus()

    # --- finding an earlier prompt ---

    def action_search_history(self) -> None:
        if self.searching:
            self.popup.move(1)
            return
        self._saved_draft = self.draft
        self.searching, self.can_fold = True, False
        self.show_draft(PromptDraft())
        self._find_in_history()

    def end_search(self) -> None:
        """What was laid aside is here again."""
        self.searching, self.can_fold = False, True
        self.show_draft(self._saved_draft)

    def _find_in_history(self) -> None:
        self._history_matches = self.prompt_history.search(self.text, _MAX_MATCHES)
        self._offer_items([CompletionItem(" ".join(draft.text[:300].split()), "") for draft in self._history_matches])

    def _take_match(self) -> None:
        at = self.popup.at
        if self.popup.open and at < len(self._history_matches):
            found = self._history_matches[at]
            self.prompt_history.add(self._saved_draft)
            self._saved_draft = found
        self.end_search()


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
        first, theme = self.document[0][:1], messages.theme_of(self)
        says = (theme.name, self._get_mode(), self._permission_mode, first, self.searching, self.editing_id)
        if says == self._border_state:
            return
        self._border_state = says
        self.set_class(first == "!" and not self.searching, "-shell")
        self.set_class(first == "/" and not self.searching, "-command")
        self.border_title = messages.make_title(theme, self._get_mode(), self._permission_mode)
        told = messages.make_subtitle(first, self.keys, searching=self.searching, editing=bool(self.editing_id))
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
