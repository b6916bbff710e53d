"""Folders of Markdown files with front matter: how custom commands are stored.

Front matter is YAML. Real files often contain values that are not valid YAML, such as `argument-hint: [a] [b]`; those
values are read as plain text, so parsing never fails. A file is read again only if it changed. Links that lead out
of a project are not followed: a cloned repository must not be able to send any file of this machine to the model.
"""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

_FENCE = "---"
MAX_FRONT_MATTER_LINES = 200
"""A fence that is not closed within this many lines is part of the text."""


def split_front_matter(text: str) -> tuple[dict[str, Any], str]:
    """Return the front matter with lowercase keys, and the text. Without a closing fence everything is text.

    Scalars are strings, as written; lists and mappings are nested.
    """
    lines = text.removeprefix("\ufeff").splitlines()
    if not lines or lines[0].rstrip() != _FENCE:
        return {}, text.strip()
    end = next(
        (at for at, line in enumerate(lines[1:MAX_FRONT_MATTER_LINES], 1) if line.rstrip() in (_FENCE, "...")), None
    )
    if end is None:
        return {}, text.strip()
    return _parse_values(lines[1:end]), "\n".join(lines[end + 1 :]).strip()


def _parse_values(lines: list[str]) -> dict[str, Any]:
    values = _load_yaml("\n".join(lines))
    if not isinstance(values, dict):
        values = {}
        for block in _split_blocks(lines):
            values.update(_parse_block(block))
    return {str(key).strip().casefold().replace("_", "-"): value for key, value in values.items()}


def _load_yaml(text: str) -> dict[Any, Any] | None:
    """Return the mapping in the text with all scalars as strings, or None if it is not one."""
    import yaml

    try:
        value: Any = yaml.load(text, yaml.BaseLoader)
    except (yaml.YAMLError, RecursionError, ValueError):
        return None
    return cast("dict[Any, Any]", value) if isinstance(value, dict) else None


def _split_blocks(lines: list[str]) -> Iterator[list[str]]:
    """Yield each top-level key with its continuation lines."""
    block: list[str] = []
    for line in lines:
        if line.strip() and not line[0].isspace() and not line.startswith(("- ", "#")) and block:
            yield block
            block = []
        block.append(line)
    if block:
        yield block


def _parse_block(block: list[str]) -> dict[Any, Any]:
    """Return the key and value of one block. A value that is not valid YAML is taken as text."""
    values = _load_yaml("\n".join(block))
    if values is not None:
        return values
    name, colon, first = block[0].partition(":")
    return {name: " ".join(part for line in [first, *block[1:]] if (part := line.strip()))} if colon else {}


def text_of(value: Any) -> str:
    """Return a front matter value as one line of text."""
    if isinstance(value, list):
        return f"[{', '.join(text_of(item) for item in cast('list[Any]', value))}]"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {text_of(item)}" for key, item in cast("dict[Any, Any]", value).items())
    return str(value)


MAX_BYTES = 64 * 1024
MAX_FILES = 500
MAX_DEPTH = 8
MAX_SCANNED = 5_000
_MAX_LINE = 200

Warn = Callable[[str], None]
"""Receives what was skipped and why."""


class MarkdownFile(Struct, frozen=True):
    """One file: its name relative to the folder without suffix, its front matter, and its text."""

    name: str
    path: str
    values: dict[str, Any]
    body: str


class _ParsedFile(Struct, frozen=True):
    """A parsed file and the stamp it had. `fault` says why it is skipped."""

    stamp: tuple[int, int, int]
    values: dict[str, Any]
    body: str = ""
    error: str = ""


class MarkdownFolder:
    """A folder of Markdown files with a cache. With `within`, anything that leads outside is skipped."""

    def __init__(self, folder: str, within: str = "") -> None:
        self._folder = folder
        self._within = within
        self._files: dict[str, _ParsedFile] = {}

    def read_files(self, tell: Warn) -> Iterator[MarkdownFile]:
        """Yield the files sorted by name."""
        before, self._files = self._files, {}
        for name, path, found in _MarkdownWalk(self._folder, self._within, tell).walk():
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
            known = before.get(path)
            seen = known if known is not None and known.stamp == stamp else _parse_file(path, stamp)
            self._files[path] = seen
            if seen.error:
                tell(f"{to_plain_line(path)} is not used: {seen.error}")
            else:
                yield MarkdownFile(name, to_plain_line(path), seen.values, seen.body)


class _MarkdownWalk:
    """The Markdown files below a folder, sorted by name; each folder is entered once."""

    def __init__(self, folder: str, within: str, tell: Warn) -> None:
        self._folder = folder
        self._within = os.path.realpath(within) if within else ""
        self._warn = tell
        self._entered: set[str] = set()
        self._scanned = 0
        self._found = 0

    def walk(self) -> Iterator[tuple[str, str, os.stat_result]]:
        """Yield the name of each command, its path, and its stat result."""
        if Path(self._folder).is_dir() and self._is_inside(self._folder):
            yield from self._walk_folder(self._folder, (), MAX_DEPTH)

    def _walk_folder(
        self, folder: str, names: tuple[str, ...], depth: int
    ) -> Iterator[tuple[str, str, os.stat_result]]:
        real = os.path.realpath(folder)
        if real in self._entered:
            return
        self._entered.add(real)
        for name in self._list_names(folder):
            self._scanned += 1
            if self._is_full():
                return
            path = f"{folder}/{name}"
            try:
                found = Path(path).stat()
            except OSError:
                continue
            if stat.S_ISDIR(found.st_mode):
                if depth and not name.startswith(".") and self._is_inside(path):
                    yield from self._walk_folder(path, (*names, name), depth - 1)
            elif name.endswith(".md") and stat.S_ISREG(found.st_mode) and self._is_inside(path):
                yield from self._yield_file((*names, name.removesuffix(".md")), path, found)

    def _yield_file(
        self, names: tuple[str, ...], path: str, found: os.stat_result
    ) -> Iterator[tuple[str, str, os.stat_result]]:
        name = "/".join(names)
        if not is_typable(name):
            self._warn(f"{to_plain_line(path)} is not used: its name cannot be typed as one word.")
            return
        self._found += 1
        yield name, path, found

    def _list_names(self, folder: str) -> list[str]:
        try:
            with os.scandir(folder) as entries:
                return sorted(entry.name for _, entry in zip(range(MAX_SCANNED), entries, strict=False))
        except OSError as error:
            self._warn(f"{to_plain_line(folder)} cannot be read: {error.strerror or error}.")
            return []

    def _is_full(self) -> bool:
        full = self._scanned > MAX_SCANNED or self._found >= MAX_FILES
        if full:
            folder = to_plain_line(self._folder)
            self._warn(f"{folder} holds more than {MAX_FILES} commands, or too much else; not all of it is used.")
        return full

    def _is_inside(self, path: str) -> bool:
        if not self._within or Path(os.path.realpath(path)).is_relative_to(self._within):
            return True
        self._warn(f"{to_plain_line(path)} leads out of the project and is not used.")
        return False


def _parse_file(path: str, stamp: tuple[int, int, int]) -> _ParsedFile:
    if stamp[1] > MAX_BYTES:
        return _ParsedFile(stamp, {}, error=f"it is {stamp[1]:,} bytes long; {MAX_BYTES:,} is the limit.")
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            raw = file.read(MAX_BYTES + 1) if stat.S_ISREG(os.fstat(fd).st_mode) else b"\0"
    except OSError as error:
        return _ParsedFile(stamp, {}, error=f"it cannot be read ({error.strerror or error}).")
    if b"\0" in raw:
        return _ParsedFile(stamp, {}, error="it is no text.")
    values, body = split_front_matter(raw[:MAX_BYTES].decode("utf-8-sig", "replace"))
    return _ParsedFile(stamp, values, body)


def to_plain_line(text: str) -> str:
    """Return the text as one line without control characters or direction marks."""
    line = " ".join(text.split())
    shown = "".join(char if char.isprintable() else "\ufffd" for char in line)
    return shown if len(shown) <= _MAX_LINE else shown[: _MAX_LINE - 1] + "…"


def is_typable(name: str) -> bool:
    """True if the name can be typed as one word and is not misleading."""
    return (
        0 < len(name) <= _MAX_LINE
        and name.isprintable()
        and not any(char.isspace() for char in name)
        and all(part and not part.startswith(".") for part in name.split("/"))
    )
