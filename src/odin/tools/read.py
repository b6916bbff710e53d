"""Read: the numbered lines of a text file, or the content of an image, PDF or notebook.

Images and PDFs are recognized by their first bytes. PDFs are read in a separate process, because a hostile one must be
stoppable, which a thread is not.
"""

import asyncio
import os
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, structs

from odin.context.file_cache import HEAD_BYTES, CachedLines, FileCache, Fingerprint, take_fingerprint
from odin.core.format import pluralize
from odin.core.message import detect_image_kind
from odin.core.tool import Args, ResolvedPath, Target, ToolContext, ToolOutput
from odin.policy.paths import read_status
from odin.sandbox.runner import ProcessRunner
from odin.tools.files import (
    LINE_CHARS,
    LINES,
    WHOLE_BYTES,
    FileTool,
    NumberedLines,
    Refusal,
    decode,
    find_resolved_path,
    number_lines,
    open_regular,
    read_whole,
    to_printable,
)

if TYPE_CHECKING:
    from odin.tools.documents import PdfReader


_PROBE_BYTES = 16

_HUGE_HEAD_BYTES = 8192
"""A large file is binary if its head is: it is refused without reading the rest."""

_MAX_KEPT_BYTES = LINES * LINE_CHARS * 4


def is_plain_text(path: str, head: bytes) -> bool:
    """True if Read shows a file with this name and these first bytes as text lines."""
    return not (path.endswith(".ipynb") or head.startswith(b"%PDF-") or detect_image_kind(head))


class FormatReader:
    """Reads images, PDFs and notebooks. `folder` takes copies of images; `runner` starts the PDF reader."""

    def __init__(self, folder: Path | None, runner: ProcessRunner) -> None:
        self._folder = folder
        self._runner = runner
        self._pdf: PdfReader | None = None

    async def read(self, path: str, file: FileIO, info: os.stat_result, first: int, count: int) -> ToolOutput | None:
        """Return the result for an image, PDF or notebook; None for a text file. The file is rewound."""
        head = file.read(_PROBE_BYTES) or b""
        file.seek(0)
        if detect_image_kind(head):
            from odin.tools.images import read_image

            return await read_image(path, file, info, self._folder)
        if head.startswith(b"%PDF-"):
            from odin.tools.documents import PdfReader, format_pdf

            self._pdf = self._pdf or PdfReader(self._runner)
            return format_pdf(path, await self._pdf.read_text(path, file, info), first, count)
        if path.endswith(".ipynb") and info.st_size <= WHOLE_BYTES:
            from odin.tools.documents import read_notebook

            data = read_whole(file, info)
            file.seek(0)
            if data is None:
                return None
            return await asyncio.to_thread(read_notebook, path, data, first, count, self._folder)
        return None


class ReadArgs(Args, frozen=True):
    file_path: str
    offset: Annotated[int | None, Meta(description="First line, from 1")] = None
    limit: Annotated[int | None, Meta(description="Lines, default 2000")] = None


class ReadTool(FileTool[ReadArgs]):
    """Read a file: numbered lines, image, PDF text, notebook cells. Required before editing."""

    name = "Read"
    kind = "read"
    short = "Read a file, or limit lines of it from offset."
    args = ReadArgs
    argument_aliases = (("path", "file_path"),)

    def __init__(self, files: FileCache, formats: FormatReader) -> None:
        self._files = files
        self._formats = formats

    def get_target(self, args: ReadArgs) -> Target:
        return Target(paths=(args.file_path,))

    def can_speculate(self, args: ReadArgs) -> bool:
        return True

    async def work(self, args: ReadArgs, ctx: ToolContext) -> ToolOutput:
        place = find_resolved_path(args.file_path, ctx)
        path = place.shown
        first = max(1, args.offset or 1)
        count = args.limit if args.limit is not None and args.limit > 0 else LINES
        bounded = args.offset is not None or args.limit is not None
        cached = self._recall(place, first, first + count - 1, bounded)
        if cached is not None:
            return _build_output(path, cached, self._make_page(path, cached, first))
        started = self._files.now()
        file, info = open_regular(place, ctx.cwd)
        with file:
            shown = await self._formats.read(path, file, info, first, count)
            if shown is not None:
                return shown
            if info.st_size > WHOLE_BYTES and not bounded:
                raise Refusal(_describe_too_large(path, info.st_size))
            try:
                found, text = _read_from_disk(path, file, info, first, first + count - 1)
            except Refusal:  # the cached state is outdated and must not block later writes and deletions
                self._files.forget(place.path)
                raise
        page = self._make_page(path, found, first)
        if page.last - page.first + 1 == found.fingerprint.lines:
            self._files.record_whole(place.path, found.fingerprint, text=text, truncated=page.cut, at=started)
        else:
            shown = None if text is None else ["\n".join(found.lines[: page.last - page.first + 1])]
            self._files.record_lines(
                place.path, found.fingerprint, [(page.first, page.last)], texts=shown, truncated=page.cut, at=started
            )
        return _build_output(path, found, page)

    def _recall(self, place: ResolvedPath, first: int, last: int, bounded: bool) -> CachedLines | None:
        """Return the lines from the cache, or None if they are not cached or the file changed."""
        if self._files.find(place.path) is None:
            return None
        try:
            info = read_status(place.path)
        except OSError:
            return None
        huge = info.st_size > WHOLE_BYTES
        cached = None if huge and not bounded else self._files.recall(place.path, info, first, last)
        if cached is None or not is_plain_text(place.shown, cached.fingerprint.head):
            return None
        if not huge:
            return cached
        valid = all(to_printable(line) == line for line in cached.lines)
        return CachedLines(cached.lines, structs.replace(cached.fingerprint, is_text=valid))

    def _make_page(self, path: str, found: CachedLines, first: int) -> NumberedLines:
        if first > found.fingerprint.lines > 0:
            raise Refusal(f"{path} has only {found.fingerprint.lines} lines; offset {first} is past the end.")
        return number_lines(found.lines, first)


def _read_from_disk(
    path: str, file: FileIO, info: os.stat_result, first: int, last: int
) -> tuple[CachedLines, str | None]:
    """Return the lines, and the whole decoded text if it is complete."""
    huge = info.st_size > WHOLE_BYTES
    if huge and decode(os.pread(file.fileno(), _HUGE_HEAD_BYTES, 0)) is None:
        raise Refusal(_describe_binary(path, info.st_size))
    data, fingerprint = _scan_huge_file(file, info, first, last) if huge else (read_whole(file, info), None)
    if data is None:
        raise Refusal(_describe_too_large(path, info.st_size))
    decoded = decode(data)
    if decoded is None:
        raise Refusal(_describe_binary(path, info.st_size))
    if fingerprint is None:
        lines = None if decoded.codec == "utf-8" else _count_lines(decoded.text)
        fingerprint = take_fingerprint(data, info, lines=lines, valid=decoded.valid)
    else:
        fingerprint = structs.replace(fingerprint, is_text=decoded.valid)
    start = 0 if huge else first - 1
    wanted_count = min(last, fingerprint.lines) - first + 1
    lines = decoded.text.split("\n")[start : start + max(0, wanted_count)]
    return CachedLines(lines, fingerprint), None if huge and len(data) >= _MAX_KEPT_BYTES else decoded.text


def _build_output(path: str, found: CachedLines, page: NumberedLines) -> ToolOutput:
    total = found.fingerprint.lines
    if total == 0:
        return ToolOutput(text="(empty file)", note=to_printable(f"Read {path} (empty)"))
    notes = [page.text]
    if not found.fingerprint.is_text:
        notes.append("(not valid UTF-8: invalid bytes are shown as U+FFFD; EditTool preserves them)")
    if page.last - page.first + 1 < total:
        more = f"; go on with offset={page.last + 1}" if page.last < total else ""
        notes.append(f"(showing lines {page.first}-{page.last} of {total} total{more})")
    span = f"lines {page.first}-{page.last} of {total}" if len(notes) > 1 else pluralize(total, "line")
    return ToolOutput(text=to_printable("\n".join(notes)), note=to_printable(f"Read {path} ({span})"))


def _count_lines(text: str) -> int:
    return text.count("\n") + (1 if text and not text.endswith("\n") else 0)


def _describe_too_large(path: str, size: int) -> str:
    return f"{path} is too large to read whole ({size} bytes). Read a part with offset and limit, or use Grep."


def _describe_binary(path: str, size: int) -> str:
    return f"{path} is a binary file ({size} bytes); it cannot be shown as text."


def _scan_huge_file(file: FileIO, info: os.stat_result, first: int, last: int) -> tuple[bytes, Fingerprint]:
    """Return the bytes of lines `first` to `last` of a file too large for memory, and the whole file's fingerprint."""
    import hashlib

    hasher = hashlib.sha256()
    kept_bytes = bytearray()
    line, size, ending, head = 1, 0, b"\n", b""
    while chunk := file.read(1 << 20):
        hasher.update(chunk)
        size += len(chunk)
        ending = chunk[-1:]
        head = head or chunk[:HEAD_BYTES]
        newlines = chunk.count(b"\n")
        if line <= last and line + newlines >= first and len(kept_bytes) < _MAX_KEPT_BYTES:
            # The bytes from line `first` up to and including newline number `upto` of the chunk.
            upto = last - line + 1
            start = 0
            for _ in range(max(0, first - line)):
                start = chunk.index(b"\n", start) + 1
            parts = chunk.split(b"\n", upto)
            end = len(chunk) - len(parts[upto]) if len(parts) > upto else len(chunk)
            kept_bytes += chunk[start:end]
        line += newlines
    total = line if ending != b"\n" else line - 1
    times = info.st_mtime_ns, info.st_ctime_ns
    return bytes(kept_bytes), Fingerprint(size, total, hasher.hexdigest(), *times, info.st_ino, head=head)
