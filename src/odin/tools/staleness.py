"""Detects files that changed since the model read them, and records in the file cache what it wrote or was shown."""

import os
import stat
from codecs import BOM_UTF8
from collections.abc import Iterable
from io import BufferedReader, FileIO

from odin.context.file_cache import FileCache, LineSpan, SeenPart, hash_bytes, take_fingerprint
from odin.core.errors import Conflict, ExternalModification
from odin.core.tool import ResolvedPath
from odin.policy.paths import open_for_reading, read_status
from odin.tools.diff import compare, split_lines
from odin.tools.files import DecodedText, Refusal, decode, open_regular, read_whole
from odin.tools.search import LineHit, SearchSource

_DIFF_CHARS = 3000
_MAX_PARTS = 10

MAX_REREAD_BYTES = 10_000_000
"""Maximum size of a file that is read again to check whether the lines a search found are still in it."""

_MAX_TOTAL_BYTES = 50_000_000
_CHUNK_BYTES = 1 << 20
_MAX_SCANNED_BYTES = 1_000_000_000
"""Lines of larger files cannot be confirmed: search such a file by its path."""


def make_stale_refusal(files: FileCache, path: str, sha256: str, message: str) -> Refusal:
    """Return the refusal for a file that changed since it was read; it names the other agent that changed it."""
    writer = files.find_writer(path, sha256)
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


def read_current_bytes(files: FileCache, place: ResolvedPath, cwd: str, *, too_large: str) -> bytes | None:
    """Return the current bytes of a file, or None if it does not exist. Raise Refusal if they changed since the agent
    read them.

    `too_large` completes the sentence "... is too large to ...", with advice.
    """
    if not exists(place):
        return None
    file, info = open_regular(place, cwd)
    with file:
        data = read_whole(file, info)
    if data is None:
        raise Refusal(f"{place.shown} is too large ({info.st_size} bytes) to {too_large}.")
    sha256 = hash_bytes(data)
    if files.compare(place.path, sha256) == "changed":
        drift = describe_drift(files, place.path, data)
        message = f"{place.shown} changed on disk since you read it. Nothing was written.{drift}"
        raise make_stale_refusal(files, place.path, sha256, f"{message} Read it again first.")
    return data


def exists(place: ResolvedPath) -> bool:
    try:
        read_status(place.path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def remember_write(
    files: FileCache, target: str, data: bytes, info: os.stat_result, style: DecodedText, text: str
) -> None:
    """Record in the cache that `data` was written, which is `text` in the encoding of `style`."""
    lines = None if style.codec == "utf-8" else len(split_lines(text))
    files.record_write(target, take_fingerprint(data, info, lines=lines, valid=style.valid), text=text)


def follow_change(files: FileCache, place: ResolvedPath, cwd: str) -> str:
    """Return how a file differs from what the agent wrote, for the model, and record that it knows that; "" if not.

    What is too much to show it must read.
    """
    entry = files.find(place.path)
    try:
        file, info = open_regular(place, cwd)
        with file:
            data = read_whole(file, info)
    except (Refusal, OSError):  # the next call that needs it says why
        return ""
    if entry is None or data is None or files.compare(place.path, hash_bytes(data)) != "changed":
        return ""
    decoded, drift = decode(data), describe_drift(files, place.path, data)
    if decoded is not None and entry.whole and len(drift) < _DIFF_CHARS:
        remember_write(files, place.path, data, info, decoded, decoded.text)
        return f"[A hook changed {place.shown}.{drift}]"
    return f"[A hook changed {place.shown}. Read it again before you edit it.]"


def confirm_lines(files: FileCache, source: SearchSource, hits: Iterable[LineHit], line_chars: int) -> set[str]:
    """Record shown lines as read. Return the paths to show of files that do not contain their lines (any more).

    The lines of a single searched file come from its descriptor, so they need no confirmation. Lines longer than
    `line_chars` were cut.
    """
    by_path: dict[str, list[LineHit]] = {}
    for hit in hits:
        by_path.setdefault(hit.path, []).append(hit)
    changed: set[str] = set()
    budget = _MAX_TOTAL_BYTES
    for shown, lines in by_path.items():
        found = _FoundLines(files, source.get_real_path(shown), lines)
        try:
            budget -= found.check(line_chars, budget, has_proof=source.is_file)
        except OSError:
            found.are_there = False
        if not found.are_there and not source.is_file:
            changed.add(shown)
    return changed


class _FoundLines:
    """The lines that a search found in one file. `are_there`: they are in the file at this path without links."""

    def __init__(self, files: FileCache, path: str, hits: list[LineHit]) -> None:
        self.are_there = True
        self._files = files
        self._path = path
        self._hits = hits

    def check(self, line_chars: int, budget: int, *, has_proof: bool) -> int:
        """Record the lines as read if they are there. Return how many bytes were read for it.

        A file that is too large for that is only read if there is no other proof that the lines are there.
        """
        started = self._files.now()
        with FileIO(open_for_reading(self._path)) as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode):
                self.are_there = False
            elif self._is_cached(info):
                return 0
            elif info.st_size <= min(MAX_REREAD_BYTES, budget):
                self._record(read_whole(file, info) or b"", info, line_chars, started)
                return info.st_size
            else:
                self.are_there = has_proof or (info.st_size <= _MAX_SCANNED_BYTES and self._is_in(file))
        return 0

    def _is_cached(self, info: os.stat_result) -> bool:
        for first, last in _to_ranges(hit.line for hit in self._hits):
            cached = self._files.recall(self._path, info, first, last)
            if cached is None or len(cached.lines) != last - first + 1:
                return False
            texts = {first + at: text.removesuffix("\r") for at, text in enumerate(cached.lines)}
            if any(texts[hit.line] != hit.text for hit in self._hits if first <= hit.line <= last):
                return False
        return True

    def _record(self, data: bytes, info: os.stat_result, line_chars: int, started: float) -> None:
        decoded = decode(data)
        printed = _get_printed_text(data, decoded).split("\n")
        same = [hit for hit in self._hits if _get_line(printed, hit.line) == hit.text]
        self.are_there = len(same) == len(self._hits)
        if decoded is None or not same:
            return
        lines = decoded.text.split("\n")
        total = len(lines) - (lines[-1] == "")
        ranges = _to_ranges(hit.line for hit in same if hit.line <= total)
        texts = ["\n".join(lines[first - 1 : last]) for first, last in ranges]
        fingerprint = take_fingerprint(data, info, lines=total, valid=decoded.valid)
        cut = any(len(hit.text) > line_chars for hit in same)
        self._files.record_lines(self._path, fingerprint, ranges, texts=texts, truncated=cut, at=started)

    def _is_in(self, file: FileIO) -> bool:
        """True if the lines are in a large file, which is read up to the last of them."""
        wanted = {hit.line: hit.text for hit in self._hits}
        last = max(wanted)
        with BufferedReader(file, _CHUNK_BYTES) as lines:
            for number, line in enumerate(lines, 1):
                if number in wanted:
                    raw = line.removeprefix(BOM_UTF8) if number == 1 else line
                    if raw.rstrip(b"\r\n").decode("utf-8", "surrogateescape") != wanted.pop(number).rstrip("\r"):
                        return False
                if number == last:
                    break
        return not wanted


def _get_printed_text(data: bytes, decoded: DecodedText | None) -> str:
    """Return the text of a file as search programs print it: as UTF-8, unless a byte order mark says otherwise."""
    if decoded is not None and (decoded.codec == "utf-8" or decoded.is_wide):
        return decoded.text
    return data.decode("utf-8", "surrogateescape")


def _get_line(lines: list[str], number: int) -> str | None:
    return lines[number - 1].removesuffix("\r") if number <= len(lines) else None


def _to_ranges(lines: Iterable[int]) -> list[LineSpan]:
    ranges: list[LineSpan] = []
    for line in sorted(set(lines)):
        if ranges and ranges[-1][1] == line - 1:
            ranges[-1] = (ranges[-1][0], line)
        else:
            ranges.append((line, line))
    return ranges
