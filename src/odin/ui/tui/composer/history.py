"""What was written before, and walking through it."""

from collections.abc import Iterable

from odin.ui.fuzzy import EXACT_PART_SCORE, score_match
from odin.ui.tui.composer.draft import DraftPart, PromptDraft

MAX_DRAFTS = 500
_MAX_SIZE = 40_000_000


class PromptHistory:
    """Earlier drafts, the newest last. What was written or changed on a walk is among them when the walk is over."""

    def __init__(self) -> None:
        self._past: list[PromptDraft] = []
        self._cursor: int | None = None
        self._edited: dict[int, PromptDraft] = {}

    def add(self, draft: PromptDraft) -> None:
        self.end_walk()
        if draft.is_empty:
            return
        if draft in self._past:
            self._past.remove(draft)
        self._past.append(draft)
        self._shorten()

    def add_older(self, texts: Iterable[str]) -> None:
        """Prompts of earlier sessions, the newest first. They are older than everything that is known."""
        known = {draft.expand() for draft in self._past}
        older: list[PromptDraft] = []
        for text in texts:
            if text.strip() and text not in known:
                known.add(text)
                older.append(fold_text(text))
        self._past[:0] = reversed(older)
        if self._cursor is not None:
            self._cursor += len(older)
            self._edited = {at + len(older): draft for at, draft in self._edited.items()}
        self._shorten()

    def go_back(self, now: PromptDraft) -> PromptDraft | None:
        """The draft before the one that is shown, or None when there is none."""
        at = len(self._past) if self._cursor is None else self._cursor
        return self._go(at, at - 1, now) if at > 0 else None

    def go_forward(self, now: PromptDraft) -> PromptDraft | None:
        """The draft after it; after the last one comes what was being written when the walk began."""
        if self._cursor is None or self._cursor >= len(self._past):
            return None
        return self._go(self._cursor, self._cursor + 1, now)

    def end_walk(self) -> None:
        """The walk is over. What was left on it without being sent is kept: it was written later than the others."""
        left = [draft for at, draft in sorted(self._edited.items()) if at != self._cursor and not draft.is_empty]
        self._past += [draft for draft in left if draft not in self._past]
        self._cursor = None
        self._edited = {}
        self._shorten()

    def search(self, words: str, most: int) -> list[PromptDraft]:
        """Those with these words in them, the newest first, then those with their letters."""
        newest = list(reversed(self._past))
        if not words.strip():
            return newest[:most]
        scored = [(score_match(words, draft.text), draft) for draft in newest]
        whole = [draft for found, draft in scored if found >= EXACT_PART_SCORE]
        loose = [draft for found, draft in scored if 0 < found < EXACT_PART_SCORE]
        return [*whole, *loose][:most]

    def _go(self, at: int, to: int, now: PromptDraft) -> PromptDraft:
        self._edited[at] = now
        self._cursor = to
        return self._edited.get(to) or self._past[to]

    def _shorten(self) -> None:
        size = sum(_size_of(draft) for draft in self._past)
        while self._past and (len(self._past) > MAX_DRAFTS or size > _MAX_SIZE):
            size -= _size_of(self._past.pop(0))


def fold_text(text: str) -> PromptDraft:
    """A text of an earlier session. One that no screen could show is folded as a paste is."""
    if len(text) <= 10_000 and text.count("\n") < 200:
        return PromptDraft(text)
    label = f"[pasted #1: {text.count(chr(10)) + 1:,} lines]"
    return PromptDraft(label, (DraftPart(label, text),))


def _size_of(draft: PromptDraft) -> int:
    pictures = sum(len(piece.image.data) for piece in draft.parts if piece.image is not None)
    return len(draft.text) + pictures + sum(len(piece.text) for piece in draft.parts)
