"""PDFs and Jupyter notebooks for Read.

A PDF is returned as its text in numbered lines, with a heading line for each page; a separate process extracts it. A
notebook (nbformat 3 and 4) is returned as its cells with source and outputs; `offset` and `limit` count cells, and
malformed parts are skipped. Neither counts as having read the file for an edit, because the model has not seen its
lines.
"""

import binascii
import os
import re
import sys
from collections import OrderedDict
from io import FileIO
from pathlib import Path
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct

from odin.core.image_header import BrokenImage
from odin.core.message import Image
from odin.core.profile import READ
from odin.core.tool import ToolOutput
from odin.sandbox.runner import ProcessRunner
from odin.tools.files import LINES, WHOLE_BYTES, Refusal, number_lines, to_printable
from odin.tools.images import check_image, format_size, store_image

PDF_SECONDS = 60.0
_MAX_TEXT_BYTES = 20_000_000
_CONVERTER = Path(__file__).with_name("converter.py")
_MAX_REMEMBERED = 4

_ANSI = r"\x1b\[[0-9;?]*[ -/]*[@-~]"
_IMAGE_TYPES = {"image/png": "png", "image/jpeg": "jpeg", "image/gif": "gif", "image/webp": "webp"}
_OTHER_TYPES = {
    "svg": "image/svg+xml",
    "html": "text/html",
    "latex": "text/latex",
    "javascript": "application/javascript",
}
MAX_CHARS = 48_000
MAX_LINES = 1900
MAX_SOURCE_CHARS = 20_000
MAX_OUTPUT_CHARS = 4000
MAX_IMAGES = 5

_MAX_CHECKED_IMAGES = 2 * MAX_IMAGES
"""Maximum number of images that are validated; a notebook may contain thousands."""

_EDITING_ADVICE = "(to edit it, view its raw lines with Grep in content mode first)"


class PdfText(Struct, frozen=True):
    """The extracted text. `read` of `pages` pages were read before a limit was reached."""

    lines: list[str]
    pages: int
    read: int
    empty: bool


class _PdfLine(Struct):
    fault: str = ""
    reason: str = ""
    pages: int = 0
    text: str = ""


class PdfReader:
    """Reads PDFs in a separate process, and caches the last few for reading on."""

    def __init__(self, runner: ProcessRunner, seconds: float = PDF_SECONDS) -> None:
        self._runner = runner
        self._seconds = seconds
        self._known: OrderedDict[tuple[int, int, int, int], PdfText] = OrderedDict()

    async def read_text(self, path: str, file: FileIO, info: os.stat_result) -> PdfText:
        if info.st_size > WHOLE_BYTES:
            raise Refusal(
                f"{path} is a PDF of {info.st_size} bytes; at most {WHOLE_BYTES} are read. Use a command, such as "
                "pdftotext -f 1 -l 20."
            )
        key = (info.st_dev, info.st_ino, info.st_mtime_ns, info.st_size)
        if key not in self._known:
            self._known[key] = await self._extract(path, file)
            while len(self._known) > _MAX_REMEMBERED:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return self._known[key]

    async def _extract(self, path: str, file: FileIO) -> PdfText:
        argv = [sys.executable, "-I", str(_CONVERTER), "pdf"]
        result = await self._runner.capture(
            argv, cwd="/", timeout=self._seconds, stop_after=_MAX_TEXT_BYTES, profile=READ, stdin=file.fileno()
        )
        head, *pages = [_parse_line(line) for line in result.data.split(b"\n")[:-1]] or [_PdfLine("nothing")]
        if head.fault == "nothing" or (head.pages and not pages):
            reason = (
                f"its text was not found within {self._seconds:g} s" if result.timed_out else "it takes too much memory"
            )
            raise Refusal(f"{path} is a PDF that cannot be read: {reason}. Use a command, such as pdftotext.")
        if head.fault:
            raise Refusal(_describe_error(path, head))
        faults = sorted({page.reason for page in pages if page.reason})
        if faults and not any(page.text.strip() for page in pages):
            raise Refusal(
                f"{path} is a PDF of {head.pages} pages, but no text could be extracted because of errors or size "
                f"limits ({', '.join(faults)[:200]}). Use a command, such as pdftotext."
            )
        lines: list[str] = []
        for number, page in enumerate(pages, 1):
            lines.append(f"--- page {number} of {head.pages} ---")
            text = page.text.rstrip()
            if page.reason:
                lines.append(f"(this page cannot be read: {page.reason})")
            elif text:
                lines += text.split("\n")
        return PdfText(lines, head.pages, len(pages), not any(page.text.strip() for page in pages))


def _parse_line(line: bytes) -> _PdfLine:
    return msgspec.json.decode(line, type=_PdfLine) if b"\\ud" not in line else _parse_broken_line(line)


def _parse_broken_line(line: bytes) -> _PdfLine:
    """Parse a line with lone surrogates, which msgspec rejects."""
    import json

    fields = json.loads(line)
    return _PdfLine(
        fields.get("fault", ""), fields.get("reason", ""), fields.get("pages", 0), to_printable(fields.get("text", ""))
    )


def _describe_error(path: str, head: _PdfLine) -> str:
    if head.fault == "encrypted":
        return f"{path} is an encrypted PDF and needs a password. Ask for a copy without, or use qpdf --decrypt."
    if head.fault == "no pypdf":
        return f"{path} is a PDF; reading it needs the Python package pypdf, which is not installed."
    return f"{path} is a broken PDF ({head.reason}). It cannot be read as it is."


def format_pdf(path: str, pdf: PdfText, first: int, count: int) -> ToolOutput:
    """Return lines of the extracted text, numbered and limited like those of a text file."""
    if pdf.empty and pdf.read == pdf.pages:
        raise Refusal(
            f"{path} is a PDF of {pdf.pages} pages with no text on any page; it may be scanned. "
            "Turn a page into an image and read that, for example: "
            "pdftoppm -r 100 -png -f 1 -l 1 FILE.pdf page"
        )
    total = len(pdf.lines)
    if first > total:
        raise Refusal(f"{path} has only {total} lines of text; offset {first} is past the end.")
    page = number_lines(pdf.lines[first - 1 : first - 1 + min(count, LINES)], first)
    notes = [page.text]
    if pdf.read < pdf.pages:
        notes.append(f"(only pages 1-{pdf.read} of {pdf.pages} could be read within the time and size limits)")
    if page.first > 1 or page.last < total:
        more = f"; go on with offset={page.last + 1}" if page.last < total else ""
        notes.append(f"(showing lines {page.first}-{page.last} of {total} total{more})")
    note = f"Read {path} (PDF, {pdf.pages} pages, lines {page.first}-{page.last} of {total})"
    return ToolOutput(text=to_printable("\n".join(notes)), note=to_printable(note))


class CellOutput(Struct, frozen=True):
    """One output of a cell. For an image, `text` is base64; for a skipped output, its media type."""

    kind: Literal["text", "error", "image", "skipped"]
    text: str


class NotebookCell(Struct, frozen=True):
    """One cell. `count` is its execution count, empty if it was not run."""

    kind: str
    source: str
    count: str = ""
    outputs: tuple[CellOutput, ...] = ()


class Notebook(Struct, frozen=True):
    language: str
    cells: tuple[NotebookCell, ...]


def parse_notebook(data: bytes) -> Notebook | None:
    """Parse a notebook; None if the bytes are not a notebook."""
    top = _as_dict(_decode_json(data))
    cells = _as_list(top.get("cells"))
    if "cells" not in top:
        sheets = _as_list(top.get("worksheets"))
        if not sheets:
            return None
        cells = [cell for sheet in sheets for cell in _as_list(_as_dict(sheet).get("cells"))]
    elif not isinstance(top["cells"], list):
        return None
    about = _as_dict(top.get("metadata"))
    spec, info = _as_dict(about.get("kernelspec")), _as_dict(about.get("language_info"))
    language = spec.get("language") or info.get("name") or ""
    return Notebook(str(language), tuple(_parse_cell(_as_dict(cell)) for cell in cells))


def _decode_json(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        import json

        try:
            return json.loads(data.decode("utf-8-sig", "replace"))
        except (ValueError, RecursionError):
            return None


def _parse_cell(cell: dict[str, Any]) -> NotebookCell:
    count = cell.get("execution_count", cell.get("prompt_number"))
    outputs = [shown for output in _as_list(cell.get("outputs")) for shown in _parse_output(_as_dict(output))]
    return NotebookCell(
        kind=str(cell.get("cell_type") or "cell"),
        source=_join_text(cell.get("source", cell.get("input"))),
        count=str(count) if isinstance(count, int) else "",
        outputs=tuple(outputs),
    )


def _parse_output(output: dict[str, Any]) -> list[CellOutput]:
    kind = output.get("output_type")
    if kind == "stream":
        return _make_text_outputs("text", output.get("text"))
    if kind in ("error", "pyerr"):
        trace = "\n".join(_join_text(line) for line in _as_list(output.get("traceback")))
        return _make_text_outputs("error", trace or f"{output.get('ename', 'Error')}: {output.get('evalue', '')}")
    # The output by media type. nbformat 3 uses short names as keys.
    if "data" in output:
        bundle = _as_dict(output["data"])
    else:
        short = {short: name for name, short in _IMAGE_TYPES.items()} | {"text": "text/plain"} | _OTHER_TYPES
        bundle = {name: output[key] for key, name in short.items() if output.get(key)}
    images = [CellOutput("image", _join_text(bundle[name])) for name in _IMAGE_TYPES if bundle.get(name)]
    if images:
        return images[:1]
    words = _make_text_outputs("text", bundle.get("text/plain"))
    skipped = [CellOutput("skipped", name) for name in bundle if name != "text/plain"]
    return words or skipped[:1]


def _make_text_outputs(kind: Literal["text", "error"], value: Any) -> list[CellOutput]:
    text = re.sub(_ANSI, "", _join_text(value)).rstrip("\n")
    return [CellOutput(kind, text)] if text.strip() else []


def _join_text(value: Any) -> str:
    """Return text that is stored as a string or as a list of lines."""
    return "".join(str(part) for part in _as_list(value)) if isinstance(value, list) else str(value or "")


def _as_dict(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _as_list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def read_notebook(path: str, data: bytes, first: int, count: int, folder: Path | None) -> ToolOutput | None:
    """Return the Read result, or None if this is not a notebook and should be shown as text."""
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
    """The cells that fit into one result, with their images."""

    def __init__(self, folder: Path | None) -> None:
        self.parts: list[str] = []
        self.images: list[Image] = []
        self._folder = folder
        self._chars = 0
        self._lines = 0
        self._checked_images = 0

    def add_cell(self, number: int, cell: NotebookCell) -> bool:
        """Add a cell. False if it does not fit; the first one always fits."""
        images = len(self.images)
        run = f", run {cell.count}" if cell.count else ""
        parts = [f"--- cell {number}: {cell.kind}{run} ---"]
        if cell.source:
            parts.append(_truncate(cell.source, MAX_SOURCE_CHARS, MAX_LINES // 2))
        room = MAX_CHARS // 2
        for at, output in enumerate(cell.outputs):
            if room <= 0:
                parts.append(f"(outputs {at + 1}-{len(cell.outputs)} of {len(cell.outputs)} left out)")
                break
            if output.kind == "image":
                shown = self._add_image(output.text)
            elif output.kind == "skipped":
                shown = f"({output.text}, not shown)"
            else:
                shown = _truncate(output.text, MAX_OUTPUT_CHARS, 100)
            parts.append(f"--- {'error' if output.kind == 'error' else 'output'} ---\n{shown}")
            room -= len(shown) + 40 * shown.count("\n")
        text = "\n".join(parts)
        chars, lines = self._chars + len(text), self._lines + text.count("\n") + 1
        if self.parts and (chars > MAX_CHARS or lines > MAX_LINES):
            del self.images[images:]
            return False
        self.parts.append(text)
        self._chars, self._lines = chars, lines
        return True

    def _add_image(self, encoded: str) -> str:
        try:
            data = binascii.a2b_base64(encoded)
            if self._folder is None or self._checked_images >= _MAX_CHECKED_IMAGES:
                return f"(image output, {format_size(len(data))}, not shown)"
            self._checked_images += 1
            image = check_image(data)
        except binascii.Error:
            return "(damaged image output)"
        except BrokenImage as broken:
            return f"(image output, not shown: {broken})"
        if image is None:
            return "(image output of unknown format)"
        if len(self.images) >= MAX_IMAGES:
            return f"(image output, {format_size(len(data))}, not shown)"
        self.images.append(store_image(image, self._folder))
        return f"(image {len(self.images)}: {image.describe()})"


def _truncate(text: str, chars: int, lines: int) -> str:
    """Cut a text that is too long, with a note how much is shown."""
    shown = "\n".join(text[:chars].split("\n")[:lines])
    if len(shown) == len(text):
        return text
    return f"{shown}\n[... cut: {len(shown)} of {len(text)} characters are shown; Grep finds the rest in the file ...]"
