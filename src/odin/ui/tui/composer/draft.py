"""What is being written: a text in which long pastes and pictures are one short label each."""

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from odin.core.attachment import MAX_IMAGES, Attachment
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
