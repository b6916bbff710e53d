"""Text that comes from elsewhere: what is pasted, dropped, in the clipboard, or written in an editor."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from textual import events
from textual.app import App

from odin.core.errors import OdinError, UsageError
from odin.ui.tui.composer.area import DraftArea
from odin.ui.tui.composer.clipboard import read_clipboard
from odin.ui.tui.composer.messages import Told
from odin.ui.tui.composer.outside import edited
from odin.ui.tui.composer.pasting import cleaned, folds, picture_from, picture_paths, read_picture, too_long
from odin.ui.tui.keys import KeyTable
from odin.ui.tui.panels.toasts import Level

_READ_S = 3.0
"""How long the disk may take to give a picture that was dropped here."""


class PasteArea(DraftArea):
    """`may_fold` is false while a long paste must stay what it is."""

    def __init__(self, keys: KeyTable, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.keys = keys
        self.may_fold = True

    def tell(self, text: str, level: Level = "info") -> None:
        self.post_message(Told(text, level))

    def pasted(self) -> None:
        """Something came that nobody typed; for those who show more than the text."""

    # --- pasting ---

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        self.focus()
        await self.paste(event.text)

    async def paste(self, text: str) -> None:
        """Take what was pasted: pictures by their paths, a long text as a folded piece, words as they are."""
        if sentence := too_long(text):
            self.tell(sentence, "warn")
            return
        text = cleaned(text)
        if (paths := picture_paths(text)) and await self._pictures(paths):
            return
        if folds(text) and self.may_fold:
            text = self.pieces.paste(text)
        self._put(text)

    async def _pictures(self, paths: Sequence[str]) -> bool:
        """False when these are paths of no pictures after all, and so are words."""
        try:
            async with asyncio.timeout(_READ_S):
                for path in paths:
                    picture = await asyncio.to_thread(read_picture, path)
                    self._add_picture(picture.data, picture.path)
        except TimeoutError:
            self.tell("The picture could not be read in time.", "warn")
        except UsageError as error:
            self.tell(error.sentence(), "warn")
            return False
        return True

    def _add_picture(self, data: bytes, name: str) -> None:
        """Raises UsageError."""
        if self.pieces.room(self.text) < 1:
            raise UsageError("At most five pictures go with a prompt; this one was left out.")
        self._put(self.pieces.picture(picture_from(data, name)) + " ")

    def _put(self, text: str) -> None:
        result = self._replace_via_keyboard(text, *self.selection)
        if result is not None:
            self.move_cursor(result.end_location)
        self.pasted()

    def action_paste_image(self) -> None:
        self.run_worker(self._paste_clipboard(), group="clipboard", exclusive=True)

    async def _paste_clipboard(self) -> None:
        """A picture or a text of the clipboard, where a program can give it, else what was copied in the app."""
        clipped = await read_clipboard()
        if clipped.picture:
            try:
                self._add_picture(clipped.picture, "clipboard")
            except UsageError as error:
                self.tell(error.sentence(), "warn")
        elif text := clipped.text or cast("App[Any]", self.app).clipboard:
            await self.paste(text)
        else:
            self.tell("There is nothing in the clipboard that can be read from here.")

    def on_click(self, event: events.Click) -> None:
        if self.unfold(self.get_target_document_location(event)) is False:
            key = self.keys.shown("edit_outside")
            self.tell(f"That is too long to be shown here; {key} opens it in your editor.")

    # --- the editor ---

    async def action_edit_outside(self) -> None:
        before = self.draft
        try:
            text = await edited(cast("App[Any]", self.app), before.expanded())
        except (OdinError, OSError) as error:
            self.tell(error.sentence() if isinstance(error, OdinError) else str(error), "error")
            return
        draft = before.refolded(text)
        self.pieces.load(draft.pieces)
        self.replace(draft.text, (0, 0), self.document.end)
        self.move_cursor(self.document.end)
        self.pasted()
