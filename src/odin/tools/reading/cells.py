"""A notebook as Read gives it: its cells in order, each with its source and what it put out.

For notebooks `offset` and `limit` count cells. The model sees no line of the file as it is, so this does not count as
having read it for an edit.
"""

import binascii
from pathlib import Path

from odin.core.message import Image
from odin.core.picture import BrokenImage
from odin.core.tool import ToolOutput
from odin.tools.files.path import Refusal, to_printable
from odin.tools.reading.image import check_image, format_size, store_image
from odin.tools.reading.notebook import CellOutput, Notebook, NotebookCell, parse_notebook

MAX_CHARS = 48_000
MAX_LINES = 1900
MAX_SOURCE_CHARS = 20_000
MAX_OUTPUT_CHARS = 4000
MAX_IMAGES = 5
_MAX_CHECKED_IMAGES = 2 * MAX_IMAGES
"""Images that are unpacked to see whether they are sound; a notebook may hold thousands."""

_EDITING_ADVICE = "(to edit it, see its raw lines with Grep in content mode first)"


def read_notebook(path: str, data: bytes, first: int, count: int, folder: Path | None) -> ToolOutput | None:
    """None when this is no notebook after all, so that it is shown as the text it is."""
    notebook = parse_notebook(data)
    if notebook is None:
        return None
    total = len(notebook.cells)
    if not total:
        return ToolOutput(
            text=f"(a notebook without cells)\n{_EDITING_ADVICE}", note=to_printable(f"Read {path} (no cells)")
        )
    if first > total:
        raise Refusal(f"{path} has only {total} cells; offset {first} is past the end. In notebooks it counts cells.")
    page = _NotebookPage(folder)
    last = first - 1
    for number in range(first, min(total, first + count - 1) + 1):
        if not page.add_cell(number, notebook.cells[number - 1]):
            break
        last = number
    notes = [_describe_notebook(notebook), *page.parts]
    if last - first + 1 < total:
        more = f"; go on with offset={last + 1}" if last < total else ""
        notes.append(f"(showing cells {first}-{last} of {total} total{more}; offset and limit count cells)")
    notes.append(_EDITING_ADVICE)
    note = f"Read {path} (notebook, cells {first}-{last} of {total})"
    return ToolOutput(text=to_printable("\n".join(notes)), note=to_printable(note), images=tuple(page.images))


def _describe_notebook(notebook: Notebook) -> str:
    language = f", {notebook.language}" if notebook.language else ""
    count = len(notebook.cells)
    return f"(notebook: {count} cell{'' if count == 1 else 's'}{language})"


class _NotebookPage:
    """The cells that fit into one result, and the images that go with them."""

    def __init__(self, folder: Path | None) -> None:
        self.parts: list[str] = []
        self.images: list[Image] = []
        self._folder = folder
        self._chars = 0
        self._lines = 0
        self._checked_images = 0

    def add_cell(self, number: int, cell: NotebookCell) -> bool:
        """Add a cell. False when there is no room for it; the first one always has room."""
        images = len(self.images)
        text = self._format_cell(number, cell)
        chars, lines = self._chars + len(text), self._lines + text.count("\n") + 1
        if self.parts and (chars > MAX_CHARS or lines > MAX_LINES):
            del self.images[images:]
            return False
        self.parts.append(text)
        self._chars, self._lines = chars, lines
        return True

    def _format_cell(self, number: int, cell: NotebookCell) -> str:
        run = f", run {cell.count}" if cell.count else ""
        parts = [f"--- cell {number}: {cell.kind}{run} ---"]
        if cell.source:
            parts.append(_truncate(cell.source, MAX_SOURCE_CHARS, MAX_LINES // 2))
        room = MAX_CHARS // 2
        for at, output in enumerate(cell.outputs):
            if room <= 0:
                parts.append(f"(outputs {at + 1}-{len(cell.outputs)} of {len(cell.outputs)} left out)")
                break
            shown = self._format_output(output)
            parts.append(f"--- {'error' if output.kind == 'error' else 'output'} ---\n{shown}")
            room -= len(shown) + 40 * shown.count("\n")
        return "\n".join(parts)

    def _format_output(self, output: CellOutput) -> str:
        if output.kind == "image":
            return self._add_image(output.text)
        if output.kind == "skipped":
            return f"({output.text}, not shown)"
        return _truncate(output.text, MAX_OUTPUT_CHARS, 100)

    def _add_image(self, encoded: str) -> str:
        try:
            data = binascii.a2b_base64(encoded)
            if self._folder is None or self._checked_images >= _MAX_CHECKED_IMAGES:
                return f"(image output, {format_size(len(data))}, not shown)"
            self._checked_images += 1
            found = check_image(data)
        except binascii.Error:
            return "(image output that is damaged)"
        except BrokenImage as broken:
            return f"(image output, not shown: {broken})"
        if found is None:
            return "(image output of an unknown kind)"
        if len(self.images) >= MAX_IMAGES:
            return f"(image output, {format_size(len(data))}, not shown)"
        self.images.append(store_image(found, self._folder))
        return f"(image {len(self.images)}: {found.describe()})"


def _truncate(text: str, chars: int, lines: int) -> str:
    """The beginning of a text that is too long, and how much of it that is."""
    shown = "\n".join(text[:chars].split("\n")[:lines])
    if len(shown) == len(text):
        return text
    return f"{shown}\n[... cut: {len(shown)} of {len(text)} characters are shown; Grep finds the rest in the file ...]"
