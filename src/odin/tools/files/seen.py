"""What a tool has shown or written is known: lines that a search found, files that were changed."""

from collections.abc import Iterable

from odin.context.files import FileCache, Lines, fingerprint
from odin.tools.files.diff import lines_of
from odin.tools.files.path import Refusal, open_regular, read_whole
from odin.tools.files.text import Decoded, decode
from odin.tools.searching.search import Hit

RECORDED_BYTES = 10_000_000
"""The largest file that is read again to see whether lines of it still stand there."""

_IN_ALL_BYTES = 50_000_000


def remember_write(files: FileCache, target: str, data: bytes, mtime: int, style: Decoded, text: str) -> None:
    """A file was written: `data`, which is `text` in the encoding of `style`."""
    lines = None if style.codec == "utf-8" else len(lines_of(text))
    files.wrote(target, fingerprint(data, mtime, lines=lines, valid=style.valid), text=text)


def remember_lines(files: FileCache, hits: Iterable[Hit], line_chars: int) -> None:
    """Lines were shown, those longer than `line_chars` cut. They count as read if they are still in the file."""
    by_path: dict[str, list[Hit]] = {}
    for hit in hits:
        by_path.setdefault(hit.path, []).append(hit)
    read = 0
    for path, lines in by_path.items():
        try:
            read += _remember(files, path, lines, line_chars)
        except (Refusal, OSError):
            continue
        if read > _IN_ALL_BYTES:
            return


def _remember(files: FileCache, path: str, hits: list[Hit], line_chars: int) -> int:
    """How many bytes were read for it."""
    began = files.now()
    file, info = open_regular(path, "/")
    with file:
        if info.st_size > RECORDED_BYTES or all(
            files.recall(path, info, first, last) for first, last in _ranges(hit.line for hit in hits)
        ):
            return 0
        data = read_whole(file, info)
    decoded = decode(data) if data is not None else None
    if data is None or decoded is None:
        return info.st_size
    lines = decoded.text.split("\n")
    total = len(lines) - (lines[-1] == "")
    same = [hit for hit in hits if hit.line <= total and lines[hit.line - 1].removesuffix("\r") == hit.text]
    ranges = _ranges(hit.line for hit in same)
    texts = ["\n".join(lines[first - 1 : last]) for first, last in ranges]
    seen = fingerprint(data, info, lines=total, valid=decoded.valid)
    if ranges:
        cut = any(len(hit.text) > line_chars for hit in same)
        files.saw_lines(path, seen, ranges, texts=texts, truncated=cut, at=began)
    return info.st_size


def _ranges(lines: Iterable[int]) -> list[Lines]:
    ranges: list[Lines] = []
    for line in sorted(set(lines)):
        if ranges and ranges[-1][1] == line - 1:
            ranges[-1] = (ranges[-1][0], line)
        else:
            ranges.append((line, line))
    return ranges
