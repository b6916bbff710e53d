"""The files that a language server is given, and the diagnostics that it returns about them."""

import asyncio
import os
import stat
from io import FileIO
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from odin.lsp.protocol import PositionEncoding, PositionMap, Range, path_to_uri
from odin.policy.paths import open_for_reading
from odin.tools.files import decode, to_printable

MAX_FILE_BYTES = 2_000_000
"""Larger files are not given to servers."""

_MAX_DIAGNOSTICS = 1_000

ERROR, WARNING = 1, 2

_SUFFIXES = {
    "python": ".py .pyi",
    "typescript": ".ts .mts .cts",
    "typescriptreact": ".tsx",
    "javascript": ".js .mjs .cjs",
    "javascriptreact": ".jsx",
    "rust": ".rs",
    "c": ".c .h",
    "cpp": ".cc .cpp .cxx .hpp .hh",
}
"""The files of a language whose suffix is not its name."""
_LANGUAGES = {suffix: language for language, suffixes in _SUFFIXES.items() for suffix in suffixes.split()}


ErrorIdentity = tuple[str, str, str]


class Diagnostic(Struct, frozen=True):
    """A problem in a file. `line` and `column` count from 1; `excerpt` is the line itself."""

    line: int
    column: int
    severity: int
    message: str
    code: str
    source: str
    excerpt: str = ""

    @property
    def identity(self) -> ErrorIdentity:
        """What stays the same if lines are inserted above it."""
        return self.message, self.code, self.excerpt.strip()


class SourceText(Struct, frozen=True):
    """The text of a file as a server reads it, and the state of the file by which a change is noticed."""

    text: str
    key: tuple[int, int, int]


def read_source(path: str) -> SourceText | None:
    """Return the text of a file at a resolved path; None if there is none, or if it is binary or too large."""
    try:
        with FileIO(open_for_reading(path)) as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_FILE_BYTES:
                return None
            data = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError):
        return None
    decoded = decode(data) if data is not None and len(data) <= MAX_FILE_BYTES else None
    return None if decoded is None else SourceText(to_printable(decoded.text), make_file_key(info))


def make_file_key(info: os.stat_result) -> tuple[int, int, int]:
    return info.st_ino, info.st_mtime_ns, info.st_size


class WatchedChange(Struct, frozen=True):
    """A change of a file on the disk: 1 created, 2 changed, 3 deleted."""

    path: str
    kind: Literal[1, 2, 3]


Channel = Literal["pushed", "pulled"]
"""How diagnostics came: the server published them, or was asked. Some servers do both, with different findings."""


class OpenDocument:
    """A file that the server has been given. While `is_busy`, its diagnostics are preliminary."""

    def __init__(self, path: str, source: SourceText) -> None:
        self.path = path
        self.uri = path_to_uri(path)
        self.source = source
        self.version = 1
        self.is_busy = False
        self.idle_timer: asyncio.TimerHandle | None = None
        self._found: dict[Channel, tuple[int, tuple[Diagnostic, ...]]] = {}
        self.reviewed_version = 0
        self.review: asyncio.Task[None] | None = None
        self.published = asyncio.Event()
        self._positions: tuple[SourceText, PositionMap] | None = None

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...] | None:
        """The diagnostics of the newest text that has any; None before the first."""
        newest = max((version for version, _ in self._found.values()), default=0)
        found = [items for version, items in self._found.values() if version == newest]
        return tuple(dict.fromkeys(item for items in found for item in items)) if found else None

    def keep(self, channel: Channel, items: tuple[Diagnostic, ...]) -> None:
        """Keep the diagnostics of the text as it is now."""
        self._found[channel] = self.version, items

    def end_busy(self) -> None:
        """What is known now is not preliminary any more."""
        self.is_busy = False
        if self.is_reviewed:
            self.published.set()

    @property
    def is_current(self) -> bool:
        """True if the diagnostics are about the text that is on the disk."""
        try:
            return self.is_reviewed and make_file_key(os.lstat(self.path)) == self.source.key
        except OSError:
            return False

    @property
    def is_reviewed(self) -> bool:
        """True if the diagnostics are about the newest text, and not preliminary."""
        return not self.is_busy and any(version == self.version for version, _ in self._found.values())

    def map_positions(self, encoding: PositionEncoding) -> PositionMap:
        """Return the map of positions in the text as it is now. It is made once for each text."""
        if self._positions is None or self._positions[0] is not self.source:
            self._positions = self.source, PositionMap(self.source.text, encoding)
        return self._positions[1]

    def describe(self) -> dict[str, Any]:
        """Return the document as a server is given it when it is opened."""
        suffix = Path(self.path).suffix
        return {
            "uri": self.uri,
            "languageId": _LANGUAGES.get(suffix, suffix.removeprefix(".") or "plaintext"),
            "version": self.version,
            "text": self.source.text,
        }


class _RawDiagnostic(Struct):
    range: Range
    message: str
    severity: int = ERROR
    code: str | int | None = None
    source: str | None = None


def parse_diagnostics(items: list[Any], positions: PositionMap, server: str) -> tuple[Diagnostic, ...]:
    """Return the diagnostics of a file. What is none is left out."""
    found: list[Diagnostic] = []
    for item in items[:_MAX_DIAGNOSTICS]:
        try:
            raw = msgspec.convert(item, _RawDiagnostic)
        except msgspec.ValidationError:
            continue
        line, column = positions.to_place(raw.range.start)
        code = "" if raw.code is None else str(raw.code)
        excerpt = positions.get_line(line)[:200]
        source = raw.source or server
        found.append(Diagnostic(line, column, raw.severity, raw.message, code[:100], source[:100], excerpt))
    return tuple(found)
