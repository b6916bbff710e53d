"""What a tool has shown or written is known: lines that a search found, files that were changed."""

from collections.abc import Iterable

from odin.context.files import FileCache, LineSpan, take_fingerprint
from odin.tools.files.diff import lines_of
from odin.tools.files.path import Refusal, open_regular, read_whole
from odin.tools.files.text import DecodedText, decode
from odin.tools.searching.search import LineHit

MAX_REREAD_BYTES = 10_000_000
"""The largest file that is read again to see whether lines of it still stand there."""

_MAX_TOTAL_BYTES = 50_000_000


def remember_write(files: FileCache, target: str, data: bytes, mtime: int, style: DecodedText, text: str) -> None:
    """A file was written: `data`, which is `text` in the encoding of `style`."""
    lines = None if style.codec == "utf-8" else len(lines_of(text))
    files.record_write(target, take_fingerprint(data, mtime, lines=lines, valid=style.valid), text=text)


def remember_lines(files: FileCache, hits: Iterable[LineHit], line_chars: int) -> None:
    """Lines were shown, those longer than `line_chars` cut. They count as read if they are still in the file."""
    by_path: dict[str, list[LineHit]] = {}
    for hit in hits:
        by_path.setdefault(hit.path, []).append(hit)
    read = 0
    for path, lines in by_path.items():
        try:
            read += _remember_file(files, path, lines, line_chars)
        except (Refusal, OSError):
            continue
        if read > _MAX_TOTAL_BYTES:
            return


def _remember_file(files: FileCache, path: str, hits: list[LineHit], line_chars: int) -> int:
    """How many bytes were read for it."""
    began = files.now()
    file, info = open_regular(path, "/")
    with file:
        if info.st_size > MAX_REREAD_BYTES or all(
            files.recall(path, info, first, last) for first, last in _to_ranges(hit.line for hit in hits)
        ):
            return 0
        data = read_whole(file, info)
    decoded = decode(data) if data is not None else None
    if data is None or decoded is None:
        return info.st_size
    lines = decoded.text.split("\n")
    total = len(lines) - (lines[-1] == "")
    same = [hit for hit in hits if hit.line <= total and lines[hit.line - 1].removesuffix("\r") == hit.text]
    ranges = _to_ranges(hit.line for hit in same)
    texts = ["\n".join(lines[first - 1 : last]) for first, last in ranges]
    seen = take_fingerprint(data, info, lines=total, valid=decoded.valid)
    if ranges:
        cut = any(len(hit.text) > line_chars for hit in same)
        files.record_lines(path, seen, ranges, texts=texts, truncated=cut, at=began)
    return info.st_size


def _to_ranges(lines: Iterable[int]) -> list[LineSpan]:
    ranges: list[LineSpan] = []
    for line in sorted(set(lines)):
        if ranges and ranges[-1][1] == line - 1:
            ranges[-1] = (ranges[-1][0], line)
        else:
            ranges.append((line, line))
    return ranges
