"""The prompts of this conversation, to go to one or to go on from before it in a copy."""

import time
from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text

from odin.core.errors import UsageError
from odin.ui.terminal import visible
from odin.ui.tui.dialogs.hints import Act
from odin.ui.tui.dialogs.picker import Picker
from odin.ui.tui.dialogs.rows import Drawn
from odin.ui.tui.paint.foreign import foreign
from odin.ui.tui.story.block import AnswerBlock, Block, PromptBlock


class ContentsDialog(Picker[PromptBlock]):
    """In the order in which they were asked, the last one marked. Gives the key of the one to fork at."""

    PLACES = ("contents", "list", "dialog")
    HEAD = "Contents"
    EMPTY = "Nothing was asked here yet."
    TYPING = False
    ENTER = "go there"
    ACTS: ClassVar[tuple[Act, ...]] = (Act("fork_there", "edit it in a copy of this session"),)

    def __init__(self, blocks: Sequence[Block]) -> None:
        super().__init__()
        self._blocks = blocks

    async def load(self) -> Sequence[PromptBlock]:
        return [block for block in self._blocks if isinstance(block, PromptBlock)]

    async def reload(self, mark: int = 0) -> None:
        await super().reload(mark)
        self.rows.move_to(len(self.rows.items) - 1)

    def text_of(self, item: PromptBlock) -> str:
        return item.text.casefold()

    def draw(self, item: PromptBlock) -> Drawn:
        line = Text().append("↳ " if item.joined else "", self.colours.dim)
        line.append(visible(" ".join(item.text.split())) or "(continued)", self.colours.text)
        return line, (time.strftime("%H:%M", time.localtime(item.ts)), item.mode.removesuffix("_mode"))

    async def about(self, item: PromptBlock) -> Text:
        text = Text().append(f"{foreign(item.text.strip()) or '(continued)'}\n", self.colours.user)
        answer = self._answer_to(item)
        if answer:
            text.append(f"\n{foreign(answer)}", self.colours.text)
        return text

    def _answer_to(self, item: PromptBlock) -> str:
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
        if item.joined or item.continues:
            raise UsageError("This was no prompt of its own.", "Choose the one before it.")
        self.dismiss(item.key)
