"""Text that comes from elsewhere: what is pasted, dropped, in the clipboard, or written in an editor."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from textual import events
from textual.app import App

from odin.core.errors import OdinError, UsageError
from odin.ui.tui.composer.area import DraftArea
from odin.ui.tui.composer.clipboard import read_clipboard
from odin.ui.tui.composer.messages import ToastRequested
from odin.ui.tui.composer.outside import edit_in_editor
from odin.ui.tui.composer.pasting import (
    clean_text,
    explain_too_long,
    find_image_paths,
    make_image,
    read_image,
    should_fold,
)
from odin.ui.tui.keys import KeyTable
from odin.ui.tui.panels.toasts import ToastLevel

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
