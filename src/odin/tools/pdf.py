"""PDFs for Read: the extracted text as numbered lines, with a heading line for each page."""

import os
import sys
from collections import OrderedDict

import msgspec
from msgspec import Struct

from odin.core.tool import ToolOutput
from odin.sandbox.runner import ProcessRunner
from odin.tools import pdf_text
from odin.tools.files import LINES, WHOLE_BYTES, Refusal, number_lines, to_printable

PDF_SECONDS = 60.0
_MAX_TEXT_BYTES = 20_000_000
_MAX_REMEMBERED = 4


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
        self._known: OrderedDict[tuple[str, int, int], PdfText] = OrderedDict()

    async def read_text(self, path: str, info: os.stat_result, cwd: str) -> PdfText:
        if info.st_size > WHOLE_BYTES:
            raise Refusal(
                f"{path} is a PDF of {info.st_size} bytes; at most {WHOLE_BYTES} are read. Use a command, such as "
                "pdftotext -f 1 -l 20."
            )
        key = (path, info.st_mtime_ns, info.st_size)
        if key not in self._known:
            self._known[key] = await self._extract(path, cwd)
            while len(self._known) > _MAX_REMEMBERED:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return self._known[key]

    async def _extract(self, path: str, cwd: str) -> PdfText:
        argv = [sys.executable, "-I", pdf_text.__file__, path]
        result = await self._runner.capture(argv, cwd=cwd, timeout=self._seconds, stop_after=_MAX_TEXT_BYTES)
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
        return _compose_text(head.pages, pages)


def _parse_line(line: bytes) -> _PdfLine:
    return msgspec.json.decode(line, type=_PdfLine) if b"\\ud" not in line else _parse_broken_line(line)


def _parse_broken_line(line: bytes) -> _PdfLine:
    """Parse a line with lone surrogates, which msgspec rejects."""
    import json

    found = json.loads(line)
    return _PdfLine(
        found.get("fault", ""), found.get("reason", ""), found.get("pages", 0), to_printable(found.get("text", ""))
    )


def _describe_error(path: str, head: _PdfLine) -> str:
    if head.fault == "encrypted":
        return f"{path} is an encrypted PDF and needs a password. Ask for a copy without, or use qpdf --decrypt."
    if head.fault == "no pypdf":
        return f"{path} is a PDF; reading it needs the Python package pypdf, which is not installed."
    return f"{path} is a broken PDF ({head.reason}). It cannot be read as it is."


def _compose_text(total: int, pages: list[_PdfLine]) -> PdfText:
    lines: list[str] = []
    for number, page in enumerate(pages, 1):
        lines.append(f"--- page {number} of {total} ---")
        text = page.text.rstrip()
        if page.reason:
            lines.append(f"(this page cannot be read: {page.reason})")
        elif text:
            lines += text.split("\n")
    return PdfText(lines, total, len(pages), not any(page.text.strip() for page in pages))


def format_pdf(path: str, found: PdfText, first: int, count: int) -> ToolOutput:
    """Return lines of the extracted text, numbered and limited like those of a text file."""
    if found.empty and found.read == found.pages:
        raise Refusal(
            f"{path} is a PDF of {found.pages} pages with no text on any page; it may be scanned. "
            "Turn a page into an image and read that, for example: "
            "pdftoppm -r 100 -png -f 1 -l 1 FILE.pdf page"
        )
    total = len(found.lines)
    if first > total:
        raise Refusal(f"{path} has only {total} lines of text; offset {first} is past the end.")
    page = number_lines(found.lines[first - 1 : first - 1 + min(count, LINES)], first)
    notes = [page.text]
    if found.read < found.pages:
        notes.append(f"(only pages 1-{found.read} of {found.pages} could be read within the time and size limits)")
    if page.first > 1 or page.last < total:
        more = f"; go on with offset={page.last + 1}" if page.last < total else ""
        notes.append(f"(showing lines {page.first}-{page.last} of {total} total{more})")
    note = f"Read {path} (PDF, {found.pages} pages, lines {page.first}-{page.last} of {total})"
    return ToolOutput(text=to_printable("\n".join(notes)), note=to_printable(note))
