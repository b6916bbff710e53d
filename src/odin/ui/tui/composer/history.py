"""What was written before, and walking through it."""

from collections.abc import Iterable

from odin.ui.fuzzy import PART, score
from odin.ui.tui.composer.draft import Draft, Piece

MOST = 500
_MOST_SIZE = 40_000_000


class History:
    """Earlier drafts, the newest last. What was written or changed on a walk is among them when the walk is over."""

    def __init__(self) -> None:
        self._past: list[Draft] = []
        self._at: int | None = None
        self._changed: dict[int, Draft] = {}

    def add(self, draft: Draft) -> None:
        self.rest()
        if draft.empty:
            return
        if draft in self._past:
            self._past.remove(draft)
        self._past.append(draft)
        self._shorten()

    def earlier(self, texts: Iterable[str]) -> None:
        """Prompts of earlier sessions, the newest first. They are older than everything that is known."""
        known = {draft.expanded() for draft in self._past}
        older: list[Draft] = []
        for text in texts:
            if text.strip() and text not in known:
                known.add(text)
                older.append(folded(text))
        self._past[:0] = reversed(older)
        if self._at is not None:
            self._at += len(older)
            self._changed = {at + len(older): draft for at, draft in self._changed.items()}
        self._shorten()

    def up(self, now: Draft) -> Draft | None:
        """The draft before the one that is shown, or None when there is none."""
        at = len(self._past) if self._at is None else self._at
        return self._go(at, at - 1, now) if at > 0 else None

    def down(self, now: Draft) -> Draft | None:
        """The draft after it; after the last one comes what was being written when the walk began."""
        if self._at is None or self._at >= len(self._past):
            return None
        return self._go(self._at, self._at + 1, now)

    def rest(self) -> None:
        """The walk is over. What was left on it without being sent is kept: it was written later than the others."""
        left = [draft for at, draft in sorted(self._changed.items()) if at != self._at and not draft.empty]
        self._past += [draft for draft in left if draft not in self._past]
        self._at = None
        self._changed = {}
        self._shorten()

    def search(self, words: str, most: int) -> list[Draft]:
        """Those with these words in them, the newest first, then those with their letters."""
        newest = list(reversed(self._past))
        if not words.strip():
            return newest[:most]
        scored = [(score(words, draft.text), draft) for draft in newest]
        whole = [draft for found, draft in scored if found >= PART]
        loose = [draft for found, draft in scored if 0 < found < PART]
        return [*whole, *loose][:most]

    def _go(self, at: int, to: int, now: Draft) -> Draft:
        self._changed[at] = now
        self._at = to
        return self._changed.get(to) or self._past[to]

    def _shorten(self) -> None:
        size = sum(_size(draft) for draft in self._past)
        while self._past and (len(self._past) > MOST or size > _MOST_SIZE):
            size -= _size(self._past.pop(0))


def folded(text: str) -> Draft:
    """A text of an earlier session. One that no screen could show is folded as a paste is."""
    if len(text) <= 10_000 and text.count("\n") < 200:
        return Draft(text)
    label = f"[pasted #1: {text.count(chr(10)) + 1:,} lines]"
    return Draft(label, (Piece(label, text),))


def _size(draft: Draft) -> int:
    pictures = sum(len(piece.picture.data) for piece in draft.pieces if piece.picture is not None)
    return len(draft.text) + pictures + sum(len(piece.text) for piece in draft.pieces)
