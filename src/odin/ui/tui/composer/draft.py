"""What is being written: a text in which long pastes and pictures are one short label each.

What was written before, and walking through it.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from odin.core.message import MAX_IMAGES, Attachment
from odin.ui.completion import EXACT_PART_SCORE, score_match
from odin.ui.terminal import escape_hidden, shorten

_LABEL = re.compile(r"\[(?:pasted|image) #\d+[^\[\]\n]*\]")
_MAX_NAME = 40


class DraftPart(Struct, frozen=True):
    """What a label stands for: a text that was pasted, or a picture."""

    label: str
    text: str = ""
    image: Attachment | None = None


class PromptDraft(Struct, frozen=True):
    """A text with the pieces whose labels may stand in it."""

    text: str = ""
    parts: tuple[DraftPart, ...] = ()

    def expand(self) -> str:
        """The text as it is sent: pastes whole; a picture keeps its label, so that the words can speak of it."""
        whole = {piece.label: piece.text for piece in self.parts if piece.image is None}
        return _LABEL.sub(lambda found: whole.get(found[0], found[0]), self.text) if whole else self.text

    def list_images(self) -> tuple[Attachment, ...]:
        """The pictures whose labels stand in the text."""
        return tuple(piece.image for piece in self.parts if piece.image is not None and piece.label in self.text)

    def refold(self, text: str) -> "PromptDraft":
        """Another text with the same pieces; a paste that stands in it as it was is folded again."""
        for piece in self.parts:
            if piece.text:
                text = text.replace(piece.text, piece.label)
        return replace(self, text=text)

    @property
    def is_empty(self) -> bool:
        return not self.text.strip()


class DraftParts:
    """The pieces of the draft that is open. What is deleted stays known, because it can come back by an undo."""

    def __init__(self) -> None:
        self._by_label: dict[str, DraftPart] = {}

    def load(self, parts: Sequence[DraftPart]) -> None:
        self._by_label = {piece.label: piece for piece in parts}

    def build_draft(self, text: str) -> PromptDraft:
        return PromptDraft(text, tuple(piece for piece in self._by_label.values() if piece.label in text))

    def add_paste(self, text: str) -> str:
        """The label of a text that was pasted."""
        lines = text.rstrip("\n").count("\n") + 1
        size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        return self._add_part("pasted", f": {size}", DraftPart("", text))

    def add_image(self, image: Attachment) -> str:
        name = image.name or image.path.rsplit("/", 1)[-1] or "picture"
        shown = shorten(escape_hidden(name).replace("[", "(").replace("]", ")"), _MAX_NAME)
        return self._add_part("image", f" {shown}", DraftPart("", image=image))

    def count_image_room(self, text: str) -> int:
        """How many pictures may still come beside this text."""
        return MAX_IMAGES - len(self.build_draft(text).list_images())

    def find(self, label: str) -> DraftPart | None:
        return self._by_label.get(label)

    def find_labels(self, line: str) -> Iterator[tuple[int, int, DraftPart]]:
        """The labels of a line that stand for something: where each begins and ends."""
        if not self._by_label or "[" not in line:
            return
        for found in _LABEL.finditer(line):
            piece = self._by_label.get(found[0])
            if piece is not None:
                yield found.start(), found.end(), piece

    def _add_part(self, kind: str, rest: str, part: DraftPart) -> str:
        number = 1 + sum(label.startswith(f"[{kind} ") for label in self._by_label)
        label = f"[{kind} #{number}{rest}]"
        self._by_label[label] = replace(part, label=label)
        return label


def draft_of_prompt(body: str, attached: Sequence[Attachment]) -> PromptDraft:
    """A prompt that was sent, as a draft again: its pictures go with the labels in its text, or with new ones."""
    labels = iter([found[0] for found in _LABEL.finditer(body) if found[0].startswith("[image ")])
    pieces, text = DraftParts(), body
    kept: list[DraftPart] = []
    for picture in attached:
        label = next(labels, "")
        made = pieces.add_image(picture)
        kept.append(DraftPart(label or made, image=picture))
        if not label:
            text = f"{text} {made}"
    return PromptDraft(text, tuple(kept))


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
