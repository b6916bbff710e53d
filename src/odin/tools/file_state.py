"""What to say when a file is no longer what the model has read: which of its lines are different now.

What a file holds before all of it is written anew.

What a tool has shown or written is known: lines that a search found, files that were changed.
"""

from collections.abc import Iterable
from pathlib import Path

from odin.context.file_cache import FileCache, LineSpan, SeenPart, hash_bytes, take_fingerprint
from odin.core.errors import Conflict, ExternalModification
from odin.tools.diff import compare, lines_of
from odin.tools.files import DecodedText, Refusal, decode, open_regular, read_whole
from odin.tools.search import LineHit

_DIFF_CHARS = 3000
_MAX_PARTS = 10


def make_stale_refusal(files: FileCache, path: str, sha256: str, sentence: str) -> Refusal:
    """The refusal to touch a file that is no longer what was read. It says so when another agent changed it."""
    by = files.writer_of(path, sha256)
    if by:
        return Refusal(f"{sentence} (It was changed by {by}.)", Conflict)
    return Refusal(sentence, ExternalModification)


def describe_drift(files: FileCache, path: str, data: bytes) -> str:
    """Sentences about what changed, beginning with a space; empty when the old text is not kept."""
    decoded = decode(data)
    entry = files.find(path)
    parts = files.list_parts(path)
    if decoded is None or entry is None or not parts:
        return ""
    if entry.whole:
        before = "".join(f"{line}\n" for line in parts[0].lines)
        after = decoded.text if decoded.text.endswith("\n") or not decoded.text else f"{decoded.text}\n"
        diff = compare(before, after, path).text
        if not diff:
            return " Only its last line end or its encoding is different."
        cut = f"\n... ({_DIFF_CHARS} of {len(diff)} characters of the difference)" if len(diff) > _DIFF_CHARS else ""
        return f" This is different now:\n{diff[:_DIFF_CHARS].rstrip()}{cut}\n"
    now = decoded.text.split("\n")
    said = [sentence for part in parts if (sentence := _describe_part(part, now, decoded.text))]
    more = f" ... and {len(said) - _MAX_PARTS} more." if len(said) > _MAX_PARTS else ""
    if not said:
        return " The lines you have read are the same; others changed."
    return "".join(f" {sentence}" for sentence in said[:_MAX_PARTS]) + more


def _describe_part(part: SeenPart, now: list[str], text: str) -> str:
    """What became of lines that were read; empty when they are what they were."""
    if now[part.first - 1 : part.last] == part.lines:
        return ""
    at = f"\n{text}\n".find("\n" + "\n".join(part.lines) + "\n")
    if at < 0:
        return f"Lines {part.first}-{part.last} are different now."
    first = text.count("\n", 0, at) + 1
    return f"Lines {part.first}-{part.last} are now lines {first}-{first + len(part.lines) - 1}."


def read_current_bytes(files: FileCache, path: str, cwd: str, *, too_large: str) -> bytes | None:
    """The bytes that are there now, or None. Those that this agent has read must still be the same.

    `too_large` says what a file is too large for, and what to do instead.
    """
    if not Path(path).exists():
        return None
    file, info = open_regular(path, cwd)
    with file:
        data = read_whole(file, info)
    if data is None:
        raise Refusal(f"{path} is too large ({info.st_size} bytes) to {too_large}.")
    sha256 = hash_bytes(data)
    if files.compare(path, sha256) == "changed":
        said = f"{path} changed on disk since you read it. Nothing was written.{describe_drift(files, path, data)}"
        raise make_stale_refusal(files, path, sha256, f"{said} Read it again first.")
    return data


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
