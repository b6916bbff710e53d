"""The blocks of a story in the order of the screen, and what changed among them since somebody last looked."""

from collections.abc import Iterable
from typing import TypeVar

from odin.ui.tui.story.block import TranscriptBlock

AnyBlock = TypeVar("AnyBlock", bound=TranscriptBlock)


class BlockList:
    """`open` are the blocks of the reply that is being written: provisional until it is finished or taken back.

    What is said beside a reply stands above it, whether it was still being written at that moment or read from the log,
    which knows only finished replies.
    """

    def __init__(self) -> None:
        self.blocks: list[TranscriptBlock] = []
        self.open_blocks: list[TranscriptBlock] = []
        self.now = 0.0
        self._changed: set[TranscriptBlock] = set()
        self._is_reshaped = False
        self._count = 0

    def take_changes(self) -> tuple[set[TranscriptBlock], bool]:
        """The blocks that changed or came, and whether blocks went or moved; it is forgotten with this."""
        changed, reshaped = self._changed, self._is_reshaped
        self._changed, self._is_reshaped = set(), False
        return changed, reshaped

    def make_key(self, kind: str) -> str:
        self._count += 1
        return f"{kind}-{self._count}"

    def touch(self, block: TranscriptBlock) -> None:
        block.touch()
        self._changed.add(block)

    def write(self, block: AnyBlock) -> AnyBlock:
        """A part of the reply that is being written, at the end."""
        block.ts = self.now
        self.blocks.append(block)
        self.open_blocks.append(block)
        self._changed.add(block)
        return block

    def add(self, block: AnyBlock) -> AnyBlock:
        """Something that stays, above the reply that is being written."""
        block.ts = self.now
        self._changed.add(block)
        if self.open_blocks:
            self.blocks.insert(self._index_of(self.open_blocks[0]), block)
            self._is_reshaped = True
        else:
            self.blocks.append(block)
        return block

    def _index_of(self, block: TranscriptBlock) -> int:
        for index in range(len(self.blocks) - 1, -1, -1):
            if self.blocks[index] is block:
                return index
        return len(self.blocks)

    def drop(self, blocks: Iterable[TranscriptBlock]) -> None:
        gone = set(blocks)
        if gone:
            self.blocks = [block for block in self.blocks if block not in gone]
            self.open_blocks = [block for block in self.open_blocks if block not in gone]
            self._is_reshaped = True

    def finish(self, parts: list[TranscriptBlock], stay: list[TranscriptBlock]) -> None:
        """The reply is finished: `parts` take the place of what was open, and of that `stay` stays behind them."""
        before, self.open_blocks = self.open_blocks, []
        for block in parts:
            self.touch(block)
        if before == parts:
            return
        first = self._index_of(before[0]) if before else len(self.blocks)
        gone = {*before, *parts}
        after = [block for block in self.blocks[first:] if block not in gone]
        self.blocks[first:] = [*parts, *stay, *after]
        self._is_reshaped = self._is_reshaped or bool(before) or bool(after)

    def cut(self, key: str) -> list[TranscriptBlock]:
        """Take away the block of that key and all after it."""
        place = next((i for i in range(len(self.blocks) - 1, -1, -1) if self.blocks[i].key == key), None)
        if place is None:
            return []
        gone = self.blocks[place:]
        self.blocks = self.blocks[:place]
        self._is_reshaped = True
        return gone

    def put_back(self, blocks: list[TranscriptBlock], in_place_of: TranscriptBlock) -> None:
        """Blocks that were cut away come back where this one stands."""
        place = self._index_of(in_place_of)
        self.blocks[place : place + 1] = blocks
        self._is_reshaped = True
