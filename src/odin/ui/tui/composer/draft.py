"""What is being written: a text in which long pastes and pictures are one short label each."""

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from odin.core.attachment import MAX_IMAGES, Attachment
from odin.ui.terminal import shorten, visible

_LABEL = re.compile(r"\[(?:pasted|image) #\d+[^\[\]\n]*\]")
_NAME = 40


class Piece(Struct, frozen=True):
    """What a label stands for: a text that was pasted, or a picture."""

    label: str
    text: str = ""
    picture: Attachment | None = None


class Draft(Struct, frozen=True):
    """A text with the pieces whose labels may stand in it."""

    text: str = ""
    pieces: tuple[Piece, ...] = ()

    def expanded(self) -> str:
        """The text as it is sent: pastes whole; a picture keeps its label, so that the words can speak of it."""
        whole = {piece.label: piece.text for piece in self.pieces if piece.picture is None}
        return _LABEL.sub(lambda found: whole.get(found[0], found[0]), self.text) if whole else self.text

    def attached(self) -> tuple[Attachment, ...]:
        """The pictures whose labels stand in the text."""
        return tuple(piece.picture for piece in self.pieces if piece.picture is not None and piece.label in self.text)

    def refolded(self, text: str) -> "Draft":
        """Another text with the same pieces; a paste that stands in it as it was is folded again."""
        for piece in self.pieces:
            if piece.text:
                text = text.replace(piece.text, piece.label)
        return replace(self, text=text)

    @property
    def empty(self) -> bool:
        return not self.text.strip()


class Pieces:
    """The pieces of the draft that is open. What is deleted stays known, because it can come back by an undo."""

    def __init__(self) -> None:
        self._known: dict[str, Piece] = {}

    def load(self, pieces: Sequence[Piece]) -> None:
        self._known = {piece.label: piece for piece in pieces}

    def draft(self, text: str) -> Draft:
        return Draft(text, tuple(piece for piece in self._known.values() if piece.label in text))

    def paste(self, text: str) -> str:
        """The label of a text that was pasted."""
        lines = text.rstrip("\n").count("\n") + 1
        size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        return self._add("pasted", f": {size}", Piece("", text))

    def picture(self, picture: Attachment) -> str:
        name = picture.name or picture.path.rsplit("/", 1)[-1] or "picture"
        shown = shorten(visible(name).replace("[", "(").replace("]", ")"), _NAME)
        return self._add("image", f" {shown}", Piece("", picture=picture))

    def room(self, text: str) -> int:
        """How many pictures may still come beside this text."""
        return MAX_IMAGES - len(self.draft(text).attached())

    def find(self, label: str) -> Piece | None:
        return self._known.get(label)

    def spans(self, line: str) -> Iterator[tuple[int, int, Piece]]:
        """The labels of a line that stand for something: where each begins and ends."""
        if not self._known or "[" not in line:
            return
        for found in _LABEL.finditer(line):
            piece = self._known.get(found[0])
            if piece is not None:
                yield found.start(), found.end(), piece

    def _add(self, kind: str, rest: str, piece: Piece) -> str:
        number = 1 + sum(label.startswith(f"[{kind} ") for label in self._known)
        label = f"[{kind} #{number}{rest}]"
        self._known[label] = replace(piece, label=label)
        return label


def of_prompt(body: str, attached: Sequence[Attachment]) -> Draft:
    """A prompt that was sent, as a draft again: its pictures go with the labels in its text, or with new ones."""
    labels = iter([found[0] for found in _LABEL.finditer(body) if found[0].startswith("[image ")])
    pieces, text = Pieces(), body
    kept: list[Piece] = []
    for picture in attached:
        label = next(labels, "")
        made = pieces.picture(picture)
        kept.append(Piece(label or made, picture=picture))
        if not label:
            text = f"{text} {made}"
    return Draft(text, tuple(kept))
