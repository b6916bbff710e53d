"""The prompts of this conversation, to go to one or to go on from before it in a copy."""

import time
from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text

from odin.core.errors import UsageError
from odin.ui.terminal import escape_hidden
from odin.ui.tui.dialogs.hints import DialogAction
from odin.ui.tui.dialogs.picker import PickerDialog
from odin.ui.tui.dialogs.rows import RowContent
from odin.ui.tui.paint.foreign import sanitize
from odin.ui.tui.story.block import AnswerBlock, PromptBlock, TranscriptBlock


class ContentsDialog(PickerDialog[PromptBlock]):
    """In the order in which they were asked, the last one marked. Gives the key of the one to fork at."""

    KEY_SCOPES = ("contents", "list", "dialog")
    HEADING = "Contents"
    EMPTY_TEXT = "Nothing was asked here yet."
    STARTS_IN_FILTER = False
    ENTER_LABEL = "go there"
    ACTIONS: ClassVar[tuple[DialogAction, ...]] = (DialogAction("fork_there", "edit it in a copy of this session"),)

    def __init__(self, blocks: Sequence[TranscriptBlock]) -> None:
        super().__init__()
        self._blocks = blocks

    async def load(self) -> Sequence[PromptBlock]:
        return [block for block in self._blocks if isinstance(block, PromptBlock)]

    async def reload(self, mark: int = 0) -> None:
        await super().reload(mark)
        self.rows.move_to(len(self.rows.items) - 1)

    def text_of(self, item: PromptBlock) -> str:
        return item.text.casefold()

    def draw(self, item: PromptBlock) -> RowContent:
        line = Text().append("↳ " if item.is_injected else "", self.palette.dim)
        line.append(escape_hidden(" ".join(item.text.split())) or "(continued)", self.palette.text)
        return line, (time.strftime("%H:%M", time.localtime(item.ts)), item.mode.removesuffix("_mode"))

    async def describe(self, item: PromptBlock) -> Text:
        text = Text().append(f"{sanitize(item.text.strip()) or '(continued)'}\n", self.palette.user)
        answer = self._find_answer(item)
        if answer:
            text.append(f"\n{sanitize(answer)}", self.palette.text)
        return text

    def _find_answer(self, item: PromptBlock) -> str:
        """The last words before the next prompt, as far as there is room for them."""
        at = self._blocks.index(item)
        found = ""
        for block in self._blocks[at + 1 :]:
            if isinstance(block, PromptBlock):
                break
            if isinstance(block, AnswerBlock) and block.text.strip():
                found = block.text.strip()
        return found[:2_000]

    async def choose(self, item: PromptBlock) -> None:
        self.odin.transcript.point_at(item)
        self.dismiss(None)

    async def act(self, name: str, item: PromptBlock | None) -> None:
        if item is None:
            return
        if item.is_injected or item.is_continuation:
            raise UsageError("This was no prompt of its own.", "Choose the one before it.")
        self.dismiss(item.key)
