"""The blocks of a story in the order of the screen, and what changed among them since somebody last looked."""

from collections.abc import Iterable
from typing import TypeVar

from odin.ui.tui.story.block import Block

AnyBlock = TypeVar("AnyBlock", bound=Block)


class Page:
    """`open` are the blocks of the reply that is being written: provisional until it is finished or taken back.

    What is said beside a reply stands above it, whether it was still being written at that moment or read from the log,
    which knows only finished replies.
    """

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.open: list[Block] = []
        self.now = 0.0
        self._changed: set[Block] = set()
        self._reshaped = False
        self._count = 0

    def take(self) -> tuple[set[Block], bool]:
        """The blocks that changed or came, and whether blocks went or moved; it is forgotten with this."""
        changed, reshaped = self._changed, self._reshaped
        self._changed, self._reshaped = set(), False
        return changed, reshaped

    def key(self, kind: str) -> str:
        self._count += 1
        return f"{kind}-{self._count}"

    def touch(self, block: Block) -> None:
        block.touch()
        self._changed.add(block)

    def write(self, block: AnyBlock) -> AnyBlock:
        """A part of the reply that is being written, at the end."""
        block.ts = self.now
        self.blocks.append(block)
        self.open.append(block)
        self._changed.add(block)
        return block

    def add(self, block: AnyBlock) -> AnyBlock:
        """Something that stays, above the reply that is being written."""
        block.ts = self.now
        self._changed.add(block)
        if self.open:
            self.blocks.insert(self._place(self.open[0]), block)
            self._reshaped = True
        else:
            self.blocks.append(block)
        return block

    def _place(self, block: Block) -> int:
        for index in range(len(self.blocks) - 1, -1, -1):
            if self.blocks[index] is block:
                return index
        return len(self.blocks)

    def drop(self, blocks: Iterable[Block]) -> None:
        gone = set(blocks)
        if gone:
            self.blocks = [block for block in self.blocks if block not in gone]
            self.open = [block for block in self.open if block not in gone]
            self._reshaped = True

    def finish(self, parts: list[Block], stay: list[Block]) -> None:
        """The reply is finished: `parts` take the place of what was open, and of that `stay` stays behind them."""
        before, self.open = self.open, []
        for block in parts:
            self.touch(block)
        if before == parts:
            return
        first = self._place(before[0]) if before else len(self.blocks)
        gone = {*before, *parts}
        after = [block for block in self.blocks[first:] if block not in gone]
        self.blocks[first:] = [*parts, *stay, *after]
        self._reshaped = self._reshaped or bool(before) or bool(after)

    def cut(self, key: str) -> list[Block]:
        """Take away the block of that key and all after it."""
        place = next((i for i in range(len(self.blocks) - 1, -1, -1) if self.blocks[i].key == key), None)
        if place is None:
            return []
        gone = self.blocks[place:]
        self.blocks = self.blocks[:place]
        self._reshaped = True
        return gone

    def put_back(self, blocks: list[Block], in_place_of: Block) -> None:
        """Blocks that were cut away come back where this one stands."""
        place = self._place(in_place_of)
        self.blocks[place : place + 1] = blocks
        self._reshaped = True
