"""A notebook as Read gives it: its cells in order, each with its source and what it put out.

For notebooks `offset` and `limit` count cells. The model sees no line of the file as it is, so this does not count as
having read it for an edit.
"""

import binascii
from pathlib import Path

from odin.core.message import Image
from odin.core.picture import BrokenPicture
from odin.core.tool import ToolOutput
from odin.tools.files.path import Refusal, printable
from odin.tools.reading.image import checked, kept, size_text
from odin.tools.reading.notebook import Cell, Notebook, Shown, parse_notebook

CHARS = 48_000
LINES = 1900
SOURCE_CHARS = 20_000
OUTPUT_CHARS = 4000
IMAGES = 5
_TRIED = 2 * IMAGES
"""Images that are unpacked to see whether they are sound; a notebook may hold thousands."""

_EDITING = "(to edit it, see its raw lines with Grep in content mode first)"


def read_notebook(path: str, data: bytes, first: int, count: int, folder: Path | None) -> ToolOutput | None:
    """None when this is no notebook after all, so that it is shown as the text it is."""
    notebook = parse_notebook(data)
    if notebook is None:
        return None
    total = len(notebook.cells)
    if not total:
        return ToolOutput(text=f"(a notebook without cells)\n{_EDITING}", note=printable(f"Read {path} (no cells)"))
    if first > total:
        raise Refusal(f"{path} has only {total} cells; offset {first} is past the end. In notebooks it counts cells.")
    page = _Page(folder)
    last = first - 1
    for number in range(first, min(total, first + count - 1) + 1):
        if not page.take(number, notebook.cells[number - 1]):
            break
        last = number
    notes = [_title(notebook), *page.parts]
    if last - first + 1 < total:
        more = f"; go on with offset={last + 1}" if last < total else ""
        notes.append(f"(showing cells {first}-{last} of {total} total{more}; offset and limit count cells)")
    notes.append(_EDITING)
    note = f"Read {path} (notebook, cells {first}-{last} of {total})"
    return ToolOutput(text=printable("\n".join(notes)), note=printable(note), images=tuple(page.images))


def _title(notebook: Notebook) -> str:
    language = f", {notebook.language}" if notebook.language else ""
    count = len(notebook.cells)
    return f"(notebook: {count} cell{'' if count == 1 else 's'}{language})"


class _Page:
    """The cells that fit into one result, and the images that go with them."""

    def __init__(self, folder: Path | None) -> None:
        self.parts: list[str] = []
        self.images: list[Image] = []
        self._folder = folder
        self._chars = 0
        self._lines = 0
        self._tried = 0

    def take(self, number: int, cell: Cell) -> bool:
        """Add a cell. False when there is no room for it; the first one always has room."""
        images = len(self.images)
        text = self._cell(number, cell)
        chars, lines = self._chars + len(text), self._lines + text.count("\n") + 1
        if self.parts and (chars > CHARS or lines > LINES):
            del self.images[images:]
            return False
        self.parts.append(text)
        self._chars, self._lines = chars, lines
        return True

    def _cell(self, number: int, cell: Cell) -> str:
        run = f", run {cell.count}" if cell.count else ""
        parts = [f"--- cell {number}: {cell.kind}{run} ---"]
        if cell.source:
            parts.append(_cut(cell.source, SOURCE_CHARS, LINES // 2))
        room = CHARS // 2
        for at, output in enumerate(cell.outputs):
            if room <= 0:
                parts.append(f"(outputs {at + 1}-{len(cell.outputs)} of {len(cell.outputs)} left out)")
                break
            shown = self._output(output)
            parts.append(f"--- {'error' if output.kind == 'error' else 'output'} ---\n{shown}")
            room -= len(shown) + 40 * shown.count("\n")
        return "\n".join(parts)

    def _output(self, output: Shown) -> str:
        if output.kind == "image":
            return self._image(output.text)
        if output.kind == "skipped":
            return f"({output.text}, not shown)"
        return _cut(output.text, OUTPUT_CHARS, 100)

    def _image(self, encoded: str) -> str:
        try:
            data = binascii.a2b_base64(encoded)
            if self._folder is None or self._tried >= _TRIED:
                return f"(image output, {size_text(len(data))}, not shown)"
            self._tried += 1
            found = checked(data)
        except binascii.Error:
            return "(image output that is damaged)"
        except BrokenPicture as broken:
            return f"(image output, not shown: {broken})"
        if found is None:
            return "(image output of an unknown kind)"
        if len(self.images) >= IMAGES:
            return f"(image output, {size_text(len(data))}, not shown)"
        self.images.append(kept(found, self._folder))
        return f"(image {len(self.images)}: {found.described()})"


def _cut(text: str, chars: int, lines: int) -> str:
    """The beginning of a text that is too long, and how much of it that is."""
    shown = "\n".join(text[:chars].split("\n")[:lines])
    if len(shown) == len(text):
        return text
    return f"{shown}\n[... cut: {len(shown)} of {len(text)} characters are shown; Grep finds the rest in the file ...]"
