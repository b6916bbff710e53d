"""Read: the lines of one file, numbered."""

import os
from io import FileIO
from typing import Annotated

from msgspec import Meta, Struct

from odin.context.files import FileCache, Fingerprint, fingerprint
from odin.core.tool import Args, Subject, ToolContext, ToolOutput
from odin.tools.path import WHOLE_BYTES, FileTool, Refusal, absolute, open_regular, printable, read_whole
from odin.tools.text import Decoded, decode

LINES = 2000
LINE_CHARS = 2000
SHOWN_CHARS = 50_000


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
    """Read a text file as numbered lines. Required before editing."""

    name = "Read"
    kind = "read"
    short = "Read a file, or limit lines of it from offset."
    args = ReadArgs

    def __init__(self, files: FileCache) -> None:
        self._files = files

    def subject(self, args: ReadArgs) -> Subject:
        return Subject(paths=(args.file_path,))

    async def work(self, args: ReadArgs, ctx: ToolContext) -> ToolOutput:
        path = absolute(args.file_path, ctx.cwd, "file_path")
        first = max(1, args.offset or 1)
        count = args.limit if args.limit is not None and args.limit > 0 else LINES
        file, info = open_regular(path, ctx.cwd)
        with file:
            if info.st_size > WHOLE_BYTES:
                if args.offset is None and args.limit is None:
                    raise Refusal(_too_large(path, info.st_size))
                body, seen = _scan(file, info, first, first + count - 1)
            else:
                data = read_whole(file, info)
                if data is None:
                    raise Refusal(_too_large(path, info.st_size))
                body, seen = data, fingerprint(data, info.st_mtime_ns)
        decoded = decode(body)
        if decoded is None:
            raise Refusal(f"{path} is a binary file ({info.st_size} bytes); it cannot be shown as text.")
        skipped = first - 1 if info.st_size > WHOLE_BYTES else 0
        return self._show(path, decoded, seen, first, count, skipped)

    def _show(self, path: str, decoded: Decoded, seen: Fingerprint, first: int, count: int, skipped: int) -> ToolOutput:
        total = seen.lines if decoded.codec == "utf-8" else _count(decoded.text)
        if total == 0:
            self._files.saw_all(path, seen)
            return ToolOutput(text="(empty file)", note=printable(f"Read {path} (empty)"))
        if first > total:
            raise Refusal(f"{path} has only {total} lines; offset {first} is past the end.")
        lines = decoded.text.split("\n")[first - 1 - skipped : first - 1 - skipped + min(count, total - first + 1)]
        page = numbered(lines, first)
        if page.first == 1 and page.last == total:
            self._files.saw_all(path, seen, truncated=page.cut)
        else:
            self._files.saw_lines(path, seen, [(page.first, page.last)], truncated=page.cut)
        notes = [page.text]
        if not decoded.valid:
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
    line, size, ending = 1, 0, b"\n"
    while chunk := file.read(1 << 20):
        hasher.update(chunk)
        size += len(chunk)
        ending = chunk[-1:]
        newlines = chunk.count(b"\n")
        if line <= last and line + newlines >= first and len(kept) < LINES * LINE_CHARS * 4:
            kept += _slice(chunk, first - line, last - line + 1)
        line += newlines
    total = line if ending != b"\n" else line - 1
    return bytes(kept), Fingerprint(size, total, hasher.hexdigest(), info.st_mtime_ns)


def _slice(chunk: bytes, skip: int, upto: int) -> bytes:
    """What follows the first `skip` line ends, up to and with line end number `upto`."""
    start = 0
    for _ in range(max(0, skip)):
        start = chunk.index(b"\n", start) + 1
    parts = chunk.split(b"\n", upto)
    end = len(chunk) - len(parts[upto]) if len(parts) > upto else len(chunk)
    return chunk[start:end]
