"""Read: the lines of one file, numbered."""

import os
from io import FileIO
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct, structs

from odin.context.files import FileCache, Fingerprint, Recalled, fingerprint
from odin.context.known import HEAD_BYTES
from odin.core.tool import Args, Subject, ToolContext, ToolOutput
from odin.tools.files.path import WHOLE_BYTES, FileTool, Refusal, absolute, open_regular, printable, read_whole
from odin.tools.files.text import decode
from odin.tools.reading.formats import Formats, is_lines

LINES = 2000
LINE_CHARS = 2000
SHOWN_CHARS = 50_000
_KEPT_BYTES = LINES * LINE_CHARS * 4


class ReadArgs(Args, frozen=True):
    file_path: Annotated[str, Meta(description="Absolute")]
    offset: Annotated[int | None, Meta(description="First line, from 1")] = None
    limit: Annotated[int | None, Meta(description="Lines, default 2000")] = None


class Page(Struct, frozen=True):
    """The numbered lines `first` to `last`, and whether any of them was cut."""

    text: str
    first: int
    last: int
    cut: bool


class Read(FileTool[ReadArgs]):
    """Read a file: numbered lines, image, PDF text, notebook cells. Required before editing."""

    name = "Read"
    kind = "read"
    short = "Read a file, or limit lines of it from offset."
    args = ReadArgs
    other_names = (("path", "file_path"),)

    def __init__(self, files: FileCache, formats: Formats | None = None) -> None:
        self._files = files
        self._formats = formats or Formats()

    def subject(self, args: ReadArgs) -> Subject:
        return Subject(paths=(args.file_path,))

    def early(self, args: ReadArgs) -> bool:
        return True

    async def work(self, args: ReadArgs, ctx: ToolContext) -> ToolOutput:
        path = absolute(args.file_path, ctx.cwd, "file_path")
        first = max(1, args.offset or 1)
        count = args.limit if args.limit is not None and args.limit > 0 else LINES
        bounded = args.offset is not None or args.limit is not None
        known = self._recall(path, first, first + count - 1, bounded)
        if known is not None:
            return _output(path, known, self._page(path, known, first))
        began = self._files.now()
        file, info = open_regular(path, ctx.cwd)
        with file:
            shown = await self._formats.read(path, file, info, first, count, ctx.cwd)
            if shown is not None:
                return shown
            if info.st_size > WHOLE_BYTES and not bounded:
                raise Refusal(_too_large(path, info.st_size))
            try:
                found, text = _from_disk(path, file, info, first, first + count - 1)
            except Refusal:  # what was known of it is no more, and must not bar a write or a deletion for ever
                self._files.forget(path)
                raise
        page = self._page(path, found, first)
        self._remember(path, found, page, text, began)
        return _output(path, found, page)

    def _recall(self, path: str, first: int, last: int, bounded: bool) -> Recalled | None:
        """The lines as the cache has them, if it does and the file is still the same."""
        try:
            info = Path(path).stat()
        except OSError:
            return None
        huge = info.st_size > WHOLE_BYTES
        found = None if huge and not bounded else self._files.recall(path, info, first, last)
        if found is None or not is_lines(path, found.of.head):
            return None
        if not huge:
            return found
        valid = all(printable(line) == line for line in found.lines)
        return Recalled(found.lines, structs.replace(found.of, valid=valid))

    def _page(self, path: str, found: Recalled, first: int) -> Page:
        if first > found.of.lines > 0:
            raise Refusal(f"{path} has only {found.of.lines} lines; offset {first} is past the end.")
        return numbered(found.lines, first)

    def _remember(self, path: str, found: Recalled, page: Page, text: str | None, began: float) -> None:
        if page.last - page.first + 1 == found.of.lines:
            self._files.saw_all(path, found.of, text=text, truncated=page.cut, at=began)
        else:
            shown = None if text is None else ["\n".join(found.lines[: page.last - page.first + 1])]
            self._files.saw_lines(path, found.of, [(page.first, page.last)], texts=shown, truncated=page.cut, at=began)


def _from_disk(path: str, file: FileIO, info: os.stat_result, first: int, last: int) -> tuple[Recalled, str | None]:
    """The wanted lines, and the text they are from when that is all of it."""
    huge = info.st_size > WHOLE_BYTES
    data, seen = _scan(file, info, first, last) if huge else (read_whole(file, info), None)
    if data is None:
        raise Refusal(_too_large(path, info.st_size))
    decoded = decode(data)
    if decoded is None:
        raise Refusal(f"{path} is a binary file ({info.st_size} bytes); it cannot be shown as text.")
    if seen is None:
        lines = None if decoded.codec == "utf-8" else _count(decoded.text)
        seen = fingerprint(data, info, lines=lines, valid=decoded.valid)
    else:
        seen = structs.replace(seen, valid=decoded.valid)
    start = 0 if huge else first - 1
    wanted = min(last, seen.lines) - first + 1
    lines = decoded.text.split("\n")[start : start + max(0, wanted)]
    return Recalled(lines, seen), None if huge and len(data) >= _KEPT_BYTES else decoded.text


def _output(path: str, found: Recalled, page: Page) -> ToolOutput:
    total = found.of.lines
    if total == 0:
        return ToolOutput(text="(empty file)", note=printable(f"Read {path} (empty)"))
    notes = [page.text]
    if not found.of.valid:
        notes.append("(not valid UTF-8: the other bytes are shown as U+FFFD and are kept by EditTool)")
    if page.last - page.first + 1 < total:
        more = f"; go on with offset={page.last + 1}" if page.last < total else ""
        notes.append(f"(showing lines {page.first}-{page.last} of {total} total{more})")
    span = f"lines {page.first}-{page.last} of {total}" if len(notes) > 1 else f"{total} lines"
    return ToolOutput(text=printable("\n".join(notes)), note=printable(f"Read {path} ({span})"))


def numbered(lines: list[str], first: int, limit: int = SHOWN_CHARS) -> Page:
    """`lines` as `cat -n` prints them, up to `limit` characters in all and with very long lines cut."""
    out: list[str] = []
    cut, size = False, 0
    for number, line in enumerate(lines, first):
        shown = line.removesuffix("\r")
        if len(shown) > LINE_CHARS:
            cut = True
            shown = f"{shown[:LINE_CHARS]}... [line cut: {LINE_CHARS} of {len(shown)} characters]"
        size += len(shown) + 8
        if size > limit and out:
            break
        out.append(f"{number:6}\t{shown}")
    return Page("\n".join(out), first, first + len(out) - 1, cut)


def _count(text: str) -> int:
    return text.count("\n") + (1 if text and not text.endswith("\n") else 0)


def _too_large(path: str, size: int) -> str:
    return f"{path} is too large to read whole ({size} bytes). Read a part with offset and limit, or use Grep."


def _scan(file: FileIO, info: os.stat_result, first: int, last: int) -> tuple[bytes, Fingerprint]:
    """The bytes of lines `first` to `last` of a file too large for memory, and the fingerprint of all of it."""
    import hashlib

    hasher = hashlib.sha256()
    kept = bytearray()
    line, size, ending, head = 1, 0, b"\n", b""
    while chunk := file.read(1 << 20):
        hasher.update(chunk)
        size += len(chunk)
        ending = chunk[-1:]
        head = head or chunk[:HEAD_BYTES]
        newlines = chunk.count(b"\n")
        if line <= last and line + newlines >= first and len(kept) < _KEPT_BYTES:
            kept += _slice(chunk, first - line, last - line + 1)
        line += newlines
    total = line if ending != b"\n" else line - 1
    times = info.st_mtime_ns, info.st_ctime_ns
    return bytes(kept), Fingerprint(size, total, hasher.hexdigest(), *times, info.st_ino, head=head)


def _slice(chunk: bytes, skip: int, upto: int) -> bytes:
    """What follows the first `skip` line ends, up to and with line end number `upto`."""
    start = 0
    for _ in range(max(0, skip)):
        start = chunk.index(b"\n", start) + 1
    parts = chunk.split(b"\n", upto)
    end = len(chunk) - len(parts[upto]) if len(parts) > upto else len(chunk)
    return chunk[start:end]
