"""Prompt drafts and their history. In a draft, labels stand for long pastes and images."""

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
    """The pasted text or image behind a label."""

    label: str
    text: str = ""
    image: Attachment | None = None


class PromptDraft(Struct, frozen=True):
    """The text of a prompt and the parts behind the labels in it."""

    text: str = ""
    parts: tuple[DraftPart, ...] = ()

    def expand(self) -> str:
        """Return the text to send. Pastes are in full; images stay labels, so that the text can refer to them."""
        whole = {part.label: part.text for part in self.parts if part.image is None}
        return _LABEL.sub(lambda found: whole.get(found[0], found[0]), self.text) if whole else self.text

    def list_images(self) -> tuple[Attachment, ...]:
        """Return the images whose labels are in the text."""
        return tuple(part.image for part in self.parts if part.image is not None and part.label in self.text)

    def refold(self, text: str) -> "PromptDraft":
        """Return a draft with this text and the same parts; unchanged pastes become labels again."""
        for part in self.parts:
            if part.text:
                text = text.replace(part.text, part.label)
        return replace(self, text=text)

    @property
    def is_empty(self) -> bool:
        return not self.text.strip()


class DraftParts:
    """The parts of the open draft. Parts whose label was deleted are kept, because undo can bring it back."""

    def __init__(self) -> None:
        self._by_label: dict[str, DraftPart] = {}

    def load(self, parts: Sequence[DraftPart]) -> None:
        self._by_label = {part.label: part for part in parts}

    def build_draft(self, text: str) -> PromptDraft:
        return PromptDraft(text, tuple(part for part in self._by_label.values() if part.label in text))

    def add_paste(self, text: str) -> str:
        """Store a pasted text and return its label."""
        lines = text.rstrip("\n").count("\n") + 1
        size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        return self._add_part("pasted", f": {size}", DraftPart("", text))

    def add_image(self, image: Attachment) -> str:
        name = image.name or image.path.rsplit("/", 1)[-1] or "image"
        shown = shorten(escape_hidden(name).replace("[", "(").replace("]", ")"), _MAX_NAME)
        return self._add_part("image", f" {shown}", DraftPart("", image=image))

    def count_image_room(self, text: str) -> int:
        """Return how many more images a prompt with this text may have."""
        return MAX_IMAGES - len(self.build_draft(text).list_images())

    def find(self, label: str) -> DraftPart | None:
        return self._by_label.get(label)

    def find_labels(self, line: str) -> Iterator[tuple[int, int, DraftPart]]:
        """Yield start, end and part of each label in a line."""
        if not self._by_label or "[" not in line:
            return
        for found in _LABEL.finditer(line):
            part = self._by_label.get(found[0])
            if part is not None:
                yield found.start(), found.end(), part

    def _add_part(self, kind: str, rest: str, part: DraftPart) -> str:
        number = 1 + sum(label.startswith(f"[{kind} ") for label in self._by_label)
        label = f"[{kind} #{number}{rest}]"
        self._by_label[label] = replace(part, label=label)
        return label


def make_draft(body: str, attached: Sequence[Attachment]) -> PromptDraft:
    """Return a sent prompt as a draft; its images get the labels in its text, or new ones."""
    labels = iter([found[0] for found in _LABEL.finditer(body) if found[0].startswith("[image ")])
    numbering, text = DraftParts(), body
    parts: list[DraftPart] = []
    for image in attached:
        label = next(labels, "")
        new_label = numbering.add_image(image)
        parts.append(DraftPart(label or new_label, image=image))
        if not label:
            text = f"{text} {new_label}"
    return PromptDraft(text, tuple(parts))


def join_drafts(drafts: Sequence[PromptDraft]) -> PromptDraft:
    """Return one draft with the texts of several, separated by blank lines. Labels get new numbers."""
    if len(drafts) == 1:
        return drafts[0]
    numbering = DraftParts()
    texts: list[str] = []
    for draft in drafts:
        labels = {
            part.label: numbering.add_image(part.image) if part.image is not None else numbering.add_paste(part.text)
            for part in draft.parts
        }
        texts.append(_LABEL.sub(lambda found, labels=labels: labels.get(found[0], found[0]), draft.text))
    return numbering.build_draft("\n\n".join(texts))


MAX_DRAFTS = 500
_MAX_SIZE = 40_000_000


class PromptHistory:
    """Earlier drafts, newest last, with a cursor for Up and Down.

    Drafts edited on the way through the history are added to it when the walk ends.
    """

    def __init__(self) -> None:
        self._past: list[PromptDraft] = []
        self._cursor: int | None = None
        self._edited: dict[int, PromptDraft] = {}

    def add(self, draft: PromptDraft) -> None:
        # Reset the cursor. Drafts that were edited but not sent are added as the newest.
        unsent = [draft for at, draft in sorted(self._edited.items()) if at != self._cursor and not draft.is_empty]
        self._past += [draft for draft in unsent if draft not in self._past]
        self._cursor = None
        self._edited = {}
        self._shorten()
        if draft.is_empty:
            return
        if draft in self._past:
            self._past.remove(draft)
        self._past.append(draft)
        self._shorten()

    def add_older(self, texts: Iterable[str]) -> None:
        """Add prompts of earlier sessions (newest first) before all others."""
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

    def go_back(self, current: PromptDraft) -> PromptDraft | None:
        """Return the draft before the current one, or None at the beginning."""
        at = len(self._past) if self._cursor is None else self._cursor
        return self._go(at, at - 1, current) if at > 0 else None

    def go_forward(self, current: PromptDraft) -> PromptDraft | None:
        """Return the next draft, or None. The last one is the draft that was open before the first `go_back`."""
        if self._cursor is None or self._cursor >= len(self._past):
            return None
        return self._go(self._cursor, self._cursor + 1, current)

    def search(self, words: str, limit: int) -> list[PromptDraft]:
        """Return drafts that contain the words, newest first, then fuzzy matches."""
        newest = list(reversed(self._past))
        if not words.strip():
            return newest[:limit]
        scored = [(score_match(words, draft.text), draft) for draft in newest]
        exact = [draft for score, draft in scored if score >= EXACT_PART_SCORE]
        fuzzy = [draft for score, draft in scored if 0 < score < EXACT_PART_SCORE]
        return [*exact, *fuzzy][:limit]

    def _go(self, at: int, to: int, current: PromptDraft) -> PromptDraft:
        self._edited[at] = current
        self._cursor = to
        return self._edited.get(to) or self._past[to]

    def _shorten(self) -> None:
        size = sum(_get_size(draft) for draft in self._past)
        while self._past and (len(self._past) > MAX_DRAFTS or size > _MAX_SIZE):
            size -= _get_size(self._past.pop(0))


def fold_text(text: str) -> PromptDraft:
    """Return a prompt of an earlier session as a draft, folded into a label if it is very long."""
    if len(text) <= 10_000 and text.count("\n") < 200:
        return PromptDraft(text)
    label = f"[pasted #1: {text.count(chr(10)) + 1:,} lines]"
    return PromptDraft(label, (DraftPart(label, text),))


def _get_size(draft: PromptDraft) -> int:
    images = sum(len(part.image.data) for part in draft.parts if part.image is not None)
    return len(draft.text) + images + sum(len(part.text) for part in draft.parts)
