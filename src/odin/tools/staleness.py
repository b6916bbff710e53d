"""Detects files that changed since the model read them, and records in the file cache what it wrote or was shown."""

from collections.abc import Iterable
from pathlib import Path

from odin.context.file_cache import FileCache, LineSpan, SeenPart, hash_bytes, take_fingerprint
from odin.core.errors import Conflict, ExternalModification
from odin.tools.diff import compare, lines_of
from odin.tools.files import DecodedText, Refusal, decode, open_regular, read_whole
from odin.tools.search import LineHit

_DIFF_CHARS = 3000
_MAX_PARTS = 10

MAX_REREAD_BYTES = 10_000_000
"""Maximum size of a file that is read again to check whether the lines a search found are still in it."""

_MAX_TOTAL_BYTES = 50_000_000


def make_stale_refusal(files: FileCache, path: str, sha256: str, message: str) -> Refusal:
    """Return the refusal for a file that changed since it was read; it names the other agent that changed it."""
    writer = files.writer_of(path, sha256)
    if writer:
        return Refusal(f"{message} (It was changed by {writer}.)", Conflict)
    return Refusal(message, ExternalModification)


def describe_drift(files: FileCache, path: str, data: bytes) -> str:
    """Return sentences about what changed, starting with a space; "" if the old text is not cached."""
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
            return " Only its final newline or its encoding differs."
        cut = f"\n... ({_DIFF_CHARS} of {len(diff)} characters of the difference)" if len(diff) > _DIFF_CHARS else ""
        return f" The difference:\n{diff[:_DIFF_CHARS].rstrip()}{cut}\n"
    now = decoded.text.split("\n")
    changes = [sentence for part in parts if (sentence := _describe_part(part, now, decoded.text))]
    more = f" ... and {len(changes) - _MAX_PARTS} more." if len(changes) > _MAX_PARTS else ""
    if not changes:
        return " The lines you have read are unchanged; others changed."
    return "".join(f" {sentence}" for sentence in changes[:_MAX_PARTS]) + more


def _describe_part(part: SeenPart, now: list[str], text: str) -> str:
    """Return what happened to lines that were read; "" if they are unchanged."""
    if now[part.first - 1 : part.last] == part.lines:
        return ""
    at = f"\n{text}\n".find("\n" + "\n".join(part.lines) + "\n")
    if at < 0:
        return f"Lines {part.first}-{part.last} changed."
    first = text.count("\n", 0, at) + 1
    return f"Lines {part.first}-{part.last} are now lines {first}-{first + len(part.lines) - 1}."


def read_current_bytes(files: FileCache, path: str, cwd: str, *, too_large: str) -> bytes | None:
    """Return the current bytes of a file, or None if it does not exist. Raise Refusal if they changed since the agent
    read them.

    `too_large` completes the sentence "... is too large to ...", with advice.
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
        message = f"{path} changed on disk since you read it. Nothing was written.{describe_drift(files, path, data)}"
        raise make_stale_refusal(files, path, sha256, f"{message} Read it again first.")
    return data


def remember_write(files: FileCache, target: str, data: bytes, mtime: int, style: DecodedText, text: str) -> None:
    """Record in the cache that `data` was written, which is `text` in the encoding of `style`."""
    lines = None if style.codec == "utf-8" else len(lines_of(text))
    files.record_write(target, take_fingerprint(data, mtime, lines=lines, valid=style.valid), text=text)


def remember_lines(files: FileCache, hits: Iterable[LineHit], line_chars: int) -> None:
    """Record shown lines as read, if they are still in the file. Lines longer than `line_chars` were cut."""
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
    """Record the shown lines of one file. Return how many bytes were read for it."""
    started = files.now()
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
    fingerprint = take_fingerprint(data, info, lines=total, valid=decoded.valid)
    if ranges:
        cut = any(len(hit.text) > line_chars for hit in same)
        files.record_lines(path, fingerprint, ranges, texts=texts, truncated=cut, at=started)
    return info.st_size


def _to_ranges(lines: Iterable[int]) -> list[LineSpan]:
    ranges: list[LineSpan] = []
    for line in sorted(set(lines)):
        if ranges and ranges[-1][1] == line - 1:
            ranges[-1] = (ranges[-1][0], line)
        else:
            ranges.append((line, line))
    return ranges
