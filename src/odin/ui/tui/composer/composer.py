"""The text area in which the user writes a prompt.

Editing keys run in `_on_key` instead of as Textual bindings: bindings are queued, so characters typed after them would
overtake them.
"""

import asyncio
import os
import re
from collections.abc import Callable, Sequence
from functools import partialmethod
from typing import ClassVar, cast

from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.document._document import Location, Selection

from odin.core.client import Client, QueuedPrompt, SessionInfo
from odin.core.errors import OdinError, UsageError
from odin.core.event import Envelope
from odin.core.event_values import Delivery, Mode
from odin.sandbox.terminal import make_terminal_programs
from odin.ui.completion import CompletionItem
from odin.ui.slash_commands.extensions import find_memory_line
from odin.ui.terminal import escape_hidden, measure_width
from odin.ui.tui.composer import external_text
from odin.ui.tui.composer.border import PromptTarget
from odin.ui.tui.composer.completion import ComposerCompleter, Popup
from odin.ui.tui.composer.draft import DraftPart, DraftParts, PromptDraft, PromptHistory, make_draft
from odin.ui.tui.composer.submit_queue import SubmitQueue
from odin.ui.tui.keys import KeyTable, StableTextArea, dispatch_key
from odin.ui.tui.palette import get_theme
from odin.ui.tui.session_app import SessionApp
from odin.ui.tui.toasts import ToastLevel

UNFOLD_CHARS = 20_000
"""A longer paste is not expanded in place; only the external editor shows it."""

MAX_LINES = 10
FOLD_LINES = 10
FOLD_CHARS = 1_000
"""A paste of so many lines or characters is folded."""

_IMAGE_READ_S = 3.0

_MENTION = re.compile(r"""(?<![\w@/.+-])@(?:"[^"\n]+"(?::\d+(?:-\d+)?)?|[^\s"@]+)""")
_MAX_MATCHES = 50
_PLACEHOLDERS = (
    "Ask, or type / for commands, @ for files, ! for your shell",
    "Ask, or type / for commands, @ for files, ! for a shell",
    "Ask, or type / commands, @ files, ! shell",
    "Ask, or type / @ !",
)
"""Longest first; the first that fits the width is shown."""


class Composer(StableTextArea):
    """A multi-line prompt editor with completion, history search and folded pastes.

    Long pastes and images appear as labels such as `[pasted #1: 40 lines]`. A label behaves like one character: the
    cursor never stops inside it. Text is never lost: it is sent, stored in the history, or stays in the composer.

    While the history is searched, the text is the search term and the draft is kept in `_saved_draft`.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("alt+b", "cursor_word_left", show=False),
        Binding("alt+f", "cursor_word_right", show=False),
        Binding("alt+d", "delete_word_right", show=False),
        Binding("ctrl+w", "delete_to_whitespace", show=False),
    ]
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

    def __init__(self, keys: KeyTable, popup: Popup, submit_queue: SubmitQueue, *, id: str | None = None) -> None:
        self._submit_queue = submit_queue
        self.keys = keys
        self.popup = popup
        self.draft_parts = DraftParts()
        self.prompt_history = PromptHistory()
        self.completer = ComposerCompleter(self._offer_items)
        self.searching = False
        self.target = PromptTarget()
        self._border_state: object = None
        self._load_count = 0
        self._offered: Selection | None = None
        self._mention_end: Location | None = None
        self._history_matches: Sequence[PromptDraft] = ()
        self._saved_draft = PromptDraft()
        self._edited_prompt: QueuedPrompt | None = None
        self._stashed_draft = PromptDraft()
        self._stashed_mode: Mode = "edit_mode"
        super().__init__(
            id=id, soft_wrap=True, tab_behavior="focus", show_line_numbers=False, highlight_cursor_line=False
        )
        self.cursor_blink = False
        self.match_cursor_bracket = False

    @property
    def _odin(self) -> SessionApp:
        return cast(SessionApp, self.app)

    def on_mount(self) -> None:
        self.update_border()

    def on_resize(self) -> None:
        self.placeholder = next((text for text in _PLACEHOLDERS if measure_width(text) <= self.size.width), "")
        self.styles.max_height = 2 + max(1, min(MAX_LINES, self.screen.size.height // 3))
        if self.popup.open:
            self.popup.follow(self.region)

    def show_toast(self, text: str, level: ToastLevel = "info") -> None:
        self._odin.show_toast(text, level)

    def _report_image(self) -> None:
        """Say before the prompt is sent if its image is of no use."""
        info = self._odin.facts.info
        if info is not None and not info.sees_images:
            self.show_toast(
                f"{escape_hidden(info.model)} cannot see images, only their names. /model switches the model; "
                'if this one can, set "images": true in its settings.',
                "warn",
            )

    # --- session events ---

    def enter_session(self, client: Client, info: SessionInfo) -> None:
        """Switch completion to another session. The draft is kept."""
        self.completer.enter_session(client)
        self.target.enter_session(info)
        self.update_border()

    def handle_event(self, envelope: Envelope, live: bool) -> None:
        self.target.handle_event(envelope, live)

    def draw_frame(self) -> None:
        self.update_border()

    # --- appearance ---

    def get_line(self, line_index: int) -> Text:
        line = super().get_line(line_index)
        theme = get_theme(self)
        if "@" in line.plain:
            for mention in _MENTION.finditer(line.plain):
                line.stylize(Style(color=theme.primary), mention.start(), mention.end())
        for first, last, _ in self.draft_parts.find_labels(line.plain):
            line.stylize(Style(color=theme.accent, bold=True), first, last)
        return line

    def find_matching_bracket(self, bracket: str, search_from: Location) -> Location | None:
        """Disable bracket matching, which would scan the whole text on every key."""
        return None

    def update_border(self) -> None:
        """Show the role, the mode, the permission mode and the meaning of Enter on the border."""
        if not self.is_mounted:
            return
        first, theme, target = self.document[0][:1], get_theme(self), self.target
        if first == "#" and not find_memory_line(self.text):
            first = ""
        mode = self._odin.mode
        state = (theme.name, mode, first, self.searching, self.editing_id, target.describe_state())
        if state == self._border_state:
            return
        self._border_state = state
        self.set_class(first == "!" and not self.searching, "-shell")
        self.set_class(first == "/" and not self.searching, "-command")
        self.border_title = target.format_title(theme, mode)
        editing = bool(self.editing_id)
        self.border_subtitle = Text(target.describe_enter(first, self.keys, searching=self.searching, editing=editing))

    # --- drafts ---

    @property
    def draft(self) -> PromptDraft:
        return self.draft_parts.build_draft(self.text)

    def show_draft(self, draft: PromptDraft) -> None:
        """Replace the text with this draft, put the cursor at its end and close the popup."""
        self._load_count += 1
        self._offered = None
        self.completer.close()
        self.draft_parts.load(draft.parts)
        self.load_text(draft.text)
        self.move_cursor(self.document.end)
        self.update_border()

    def clear_draft(self) -> bool:
        """Close an open search or edit, else move the draft to the history. False if there was nothing to clear."""
        if self.searching or self.editing_id:
            self._cancel_edit()
            return True
        draft = self.draft
        self.prompt_history.add(draft)
        self.show_draft(PromptDraft())
        return not draft.is_empty

    @property
    def is_in_use(self) -> bool:
        """True if there is text in it, or a queued prompt is being edited or the history searched."""
        return not self.draft.is_empty or bool(self.editing_id) or self.searching

    def offer_draft(self, draft: PromptDraft) -> None:
        """Bring back a draft, selected: what is typed next replaces it, and Ctrl+C clears it."""
        if self.restore_draft(draft):
            self.select_all()
            self._offered = self.selection

    def restore_draft(self, draft: PromptDraft) -> bool:
        """Bring back a draft that could not be sent; if the composer is in use, store it in the history: False."""
        if not self.is_in_use:
            self.show_draft(draft)
            return True
        self.prompt_history.add(draft)
        self.show_toast("The unsent prompt is in the history: press Up on the first line to get it back.")
        return False

    def send_draft(self, draft: PromptDraft, delivery: Delivery | None = None) -> None:
        self.prompt_history.add(draft)
        self._submit_queue.put(draft, delivery, self.target.recipient)

    def action_send(self, delivery: Delivery | None = None) -> None:
        draft = self.draft
        if self.searching:
            self.action_choose()
        elif delivery is None and self._continue_line():
            return
        elif not draft.is_empty and self._edited_prompt is not None:
            saving = self._submit_queue.save_queued(self._edited_prompt, draft, self._odin.mode)
            self.run_worker(saving, exit_on_error=True)
            self._cancel_edit()
        elif not draft.is_empty:
            self.show_draft(PromptDraft())
            self.send_draft(draft, delivery)

    action_steer = partialmethod(action_send, "steer")

    def _continue_line(self) -> bool:
        """Replace a backslash at the end of the current line with a line break; False if there is none."""
        row, column = self.cursor_location
        line = self.document[row]
        if not line.endswith("\\") or column != len(line):
            return False
        self.replace("\n", (row, column - 1), (row, column))
        return True

    # --- editing a queued prompt ---

    @property
    def editing_id(self) -> str:
        """The id of the queued prompt that is being edited, or ""."""
        return self._edited_prompt.id if self._edited_prompt is not None else ""

    def edit_queued(self, prompt: QueuedPrompt) -> None:
        """Edit a queued prompt. The current draft comes back afterwards."""
        if self.searching or self.editing_id:
            self._cancel_edit()
        self._stashed_draft, self._stashed_mode = self.draft, self._odin.mode
        self._edited_prompt = prompt
        self._odin.mode = prompt.mode
        self.show_draft(make_draft(prompt.body, prompt.attachments))
        self.focus()

    def end_queued_edit(self) -> None:
        """Close the edit of a prompt that has left the queue. Changed text becomes an ordinary draft."""
        if self._edited_prompt is None:
            return
        draft = self.draft
        changed = draft != make_draft(self._edited_prompt.body, self._edited_prompt.attachments)
        self._cancel_edit()
        self.show_toast("The prompt you were editing has already been sent.")
        if changed:
            self.restore_draft(draft)

    def _cancel_edit(self) -> None:
        """Close the history search, or stop editing the queued prompt without changing it."""
        if self.searching:
            self.end_search()
        elif self._edited_prompt is not None:
            self._odin.mode = self._stashed_mode
            self._edited_prompt = None
            self.show_draft(self._stashed_draft)

    # --- labels ---

    def validate_selection(self, selection: Selection) -> Selection:
        start = self._move_outside_label(selection.start, self.selection.start)
        end = start if selection.is_empty else self._move_outside_label(selection.end, self.selection.end)
        return selection if (start, end) == tuple(selection) else Selection(start, end)

    def _move_outside_label(self, to: Location, origin: Location) -> Location:
        """Return `to`, or the edge of the label that contains it, depending on where the cursor came from."""
        row, column = to
        for first, last, _ in self._find_labels(row):
            if first < column < last:
                if origin == (row, last) or (origin > (row, first) and column - first < last - column):
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

    def on_click(self, event: events.Click) -> None:
        """Expand the clicked paste label in place."""
        row, column = self.get_target_document_location(event)
        for first, last, part in self._find_labels(row):
            if first <= column < last and part.text:
                if len(part.text) > UNFOLD_CHARS:
                    key = self.keys.get_label("edit_outside")
                    self.show_toast(f"Too long to show here; press {key} to open it in your editor.")
                else:
                    self.replace(part.text, (row, first), (row, last))
                return

    # --- pasting ---

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        self.focus()
        await self.paste(event.text)

    async def paste(self, text: str) -> None:
        """Insert pasted text: image paths as images, long text as a label, other text as it is."""
        if reason := external_text.explain_too_long(text):
            self.show_toast(reason, "warn")
            return
        text = external_text.clean_text(text)
        if (paths := external_text.find_image_paths(text)) and await self._paste_images(paths):
            return
        # A long paste is shown as a label instead of in full.
        if (len(text) > FOLD_CHARS or text.count("\n") >= FOLD_LINES) and not self.searching:
            text = self.draft_parts.add_paste(text)
        self._insert_pasted(text)

    async def _paste_images(self, paths: Sequence[str]) -> bool:
        """Return False if a path is not a readable image, so that the paste is inserted as text."""
        try:
            async with asyncio.timeout(_IMAGE_READ_S):
                for path in paths:
                    image = await asyncio.to_thread(external_text.read_image, path)
                    self._add_image(image.data, image.path)
        except TimeoutError:
            self.show_toast("Reading the image timed out.", "warn")
        except UsageError as error:
            self.show_toast(error.describe(), "warn")
            return False
        return True

    def _add_image(self, data: bytes, name: str) -> None:
        """Raise UsageError if the prompt has too many images or the data is not an image."""
        if self.draft_parts.count_image_room(self.text) < 1:
            raise UsageError("A prompt can have at most five images; this one was left out.")
        self._insert_pasted(self.draft_parts.add_image(external_text.make_image(data, name)) + " ")
        self._report_image()

    def _insert_pasted(self, text: str) -> None:
        result = self._replace_via_keyboard(text, *self.selection)
        if result is not None:
            self.move_cursor(result.end_location)
        self._handle_inserted()

    def _handle_inserted(self) -> None:
        """Update border and search after text was inserted by other means than typing."""
        self.completer.close()
        self.update_border()
        if self.searching:
            self._search_history()

    def action_paste_image(self) -> None:
        self.run_worker(self._paste_clipboard(), group="clipboard", exclusive=True)

    async def _paste_clipboard(self) -> None:
        """Paste from the system clipboard, or from the app's own clipboard if no program can read that one."""
        content = await external_text.read_clipboard(make_terminal_programs(self._odin.info, os.environ))
        if content.image:
            try:
                self._add_image(content.image, "clipboard")
            except UsageError as error:
                self.show_toast(error.describe(), "warn")
        elif text := content.text or self._odin.clipboard:
            await self.paste(text)
        else:
            self.show_toast("The clipboard is empty or cannot be read.")

    async def action_edit_outside(self) -> None:
        before = self.draft
        try:
            text = await external_text.edit_in_editor(self._odin, before.expand())
        except (OdinError, OSError) as error:
            self.show_toast(error.describe() if isinstance(error, OdinError) else str(error), "error")
            return
        draft = before.refold(text)
        self.draft_parts.load(draft.parts)
        self.replace(draft.text, (0, 0), self.document.end)
        self.move_cursor(self.document.end)
        self._handle_inserted()

    # --- completion ---

    def handle_typed(self) -> None:
        """Update completion or search after a key changed the text."""
        self.update_border()
        if self.searching:
            self._search_history()
        else:
            row, column = self.cursor_location
            self.completer.update(self.document[row], column, first=row == 0)

    def _offer_items(self, items: Sequence[CompletionItem], *, again: bool = False) -> None:
        if items and self.is_mounted:
            self.popup.offer(items, self.region, again=again)
        else:
            self.popup.close()

    def choose_item(self, number: int) -> None:
        """Take an item of the popup that was clicked."""
        self.popup.at = number
        self.action_choose()
        self.handle_typed()
        self.focus()

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
        """Insert the selected item of the popup."""
        if self.searching:
            index = self.popup.at
            if self.popup.open and index < len(self._history_matches):
                match = self._history_matches[index]
                self.prompt_history.add(self._saved_draft)
                self._saved_draft = match
            self.end_search()
        elif (item := self.popup.selected) is not None:
            self._insert_item(item)

    def action_choose_and_send(self) -> None:
        """Insert the selected item; send the prompt if it is a complete command."""
        item = self.popup.selected
        if self.searching or item is None:
            self.action_choose()
        elif self._is_complete(item):
            self.completer.close()
            self.action_send()
        else:
            self._insert_item(item)
            if item.is_runnable:
                self.action_send()

    def _is_complete(self, item: CompletionItem) -> bool:
        """True if the item would add nothing: the word is complete, or it is an optional argument."""
        target = self.completer.target
        if target is None or self.completer.is_complete():
            return True
        return target.letters == item.label or (target.kind == "argument" and not target.letters)

    def _insert_item(self, item: CompletionItem) -> None:
        target = self.completer.target
        if target is None:
            return
        row = self.cursor_location[0]
        self.replace(item.insert, (row, target.start), (row, target.end))
        if target.kind == "file" and external_text.has_image_suffix(item.label):
            self._report_image()
        self.move_cursor((row, target.start + len(item.insert)))
        self._mention_end = self.cursor_location if target.kind == "file" and not item.continues else None
        self.completer.close()

    # --- history search ---

    def action_search_history(self) -> None:
        if self.editing_id:
            return
        if self.searching:
            self.popup.move(1)
            return
        self._saved_draft = self.draft
        self.searching = True
        self.show_draft(PromptDraft())
        self._search_history()

    def end_search(self) -> None:
        """Close the history search and bring back the draft."""
        self.searching = False
        self.show_draft(self._saved_draft)

    def _search_history(self) -> None:
        self._history_matches = self.prompt_history.search(self.text, _MAX_MATCHES)
        self._offer_items([CompletionItem(" ".join(draft.text[:300].split()), "") for draft in self._history_matches])

    # --- keys ---

    async def _on_key(self, event: events.Key) -> None:
        text, cursor, load_count = self.text, self.cursor_location, self._load_count
        if event.character == ":" and cursor == self._mention_end:
            self.action_delete_left()  # the space after a completed path: a range of lines follows
        self._mention_end = None
        await self._dispatch_composer_key(event)
        if self._load_count != load_count:
            return
        if self.text != text:
            self.handle_typed()
        elif self.cursor_location != cursor:
            self.completer.close()

    async def _dispatch_composer_key(self, event: events.Key) -> None:
        own = self.keys.find_action(event.key, "composer")
        if own == "errors_here" and self.text:
            await self._edit(event)
            return
        everywhere = "" if own else self.keys.find_action(event.key, "everywhere")
        if self.popup.open and self.keys.find_action(event.key, "popup"):
            await dispatch_key(self, self.keys, event, "popup")
        elif (action := self._find_override(everywhere)) is not None:
            event.stop()
            event.prevent_default()
            action()
        elif not await dispatch_key(self, self.keys, event, "composer"):
            await self._edit(event)

    async def _edit(self, event: events.Key) -> None:
        """Run an editing key of the text area at once instead of through the binding queue."""
        bindings = self._bindings.key_to_bindings.get(event.key)
        if bindings and not event.is_printable:
            event.stop()
            event.prevent_default()
            await self.run_action(bindings[0].action)
        else:
            await super()._on_key(event)

    def _find_override(self, name: str) -> Callable[[], object] | None:
        """Return what an app-wide key does in the composer instead, or None."""
        if name == "end_of_input" and self.text:
            return self.action_delete_right
        if name == "leave" and self.selected_text and self.selection != self._offered:
            return self._copy_selection
        if name == "stop" and (self.searching or self.editing_id):
            return self._cancel_edit
        return None

    def _copy_selection(self) -> None:
        self.action_copy()
        self.move_cursor(self.cursor_location)
        self.show_toast("Copied.")

    def action_newline(self) -> None:
        self._replace_via_keyboard("\n", *self.selection)

    def action_delete_to_whitespace(self) -> None:
        """Delete the word to the left as a shell does: whatever it consists of, up to the whitespace before it."""
        row, column = self.cursor_location
        if not self.selection.is_empty or column == 0:
            self.action_delete_word_left()
            return
        before = self.document[row][:column].rstrip()
        start = max(before.rfind(" "), before.rfind("\t")) + 1
        for first, last, _ in self._find_labels(row):
            if first < start < last:
                start = first
        self._delete_via_keyboard(self.cursor_location, (row, start))

    def action_delete_to_start_of_line(self) -> None:
        """At the start of a line, join it with the previous one."""
        if self.selection.is_empty and self.cursor_location[1] == 0:
            self.action_delete_left()
        else:
            super().action_delete_to_start_of_line()

    def action_cursor_up(self, select: bool = False) -> None:
        """On the first row, edit the newest queued prompt (if the text is empty) or go back in the history."""
        if select or not self._is_at_edge(self.get_cursor_up_location()):
            super().action_cursor_up(select)
        elif self.editing_id or self.searching:
            return
        elif not self.text and (prompt := self._submit_queue.queued.get_newest()) is not None:
            self.edit_queued(prompt)
        elif (draft := self.prompt_history.go_back(self.draft)) is not None:
            self.show_draft(draft)

    def action_cursor_down(self, select: bool = False) -> None:
        """On the last row, go forward in the history."""
        if select or not self._is_at_edge(self.get_cursor_down_location()):
            super().action_cursor_down(select)
        elif self.editing_id or self.searching:
            return
        elif (draft := self.prompt_history.go_forward(self.draft)) is not None:
            self.show_draft(draft)

    def _is_at_edge(self, target: Location) -> bool:
        """True if moving to `target` stays on the same screen row."""
        row = self.wrapped_document.location_to_offset(target)[1]
        return row == self.wrapped_document.location_to_offset(self.cursor_location)[1]
