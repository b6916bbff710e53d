"""Reads folders of Markdown files with YAML front matter: custom commands and agent files; also used for skills.

Real files often contain values that are not valid YAML, such as `argument-hint: [a] [b]` or a description with colons.
Those values are read as plain text, so parsing never fails; what could not be read is listed as `errors`. Links that
lead out of a project are not followed: a cloned repository must not be able to send any file of this machine to the
model.
"""

import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct, field

from odin.core.lazy_pattern import compile_lazily

if TYPE_CHECKING:
    import yaml

_FENCE = "---"
MAX_FRONT_MATTER_LINES = 200
"""A fence that is not closed within this many lines is part of the text."""

_PLAIN_LINE = compile_lazily(r"([A-Za-z][\w-]*):[ ]+([A-Za-z0-9/(](?:(?!: | #|:$)[^\n\t\r\x85\u2028\u2029])*)")
"""A key and a value that YAML reads as it is written: without quotes, lists, other keys or comments."""

_MAX_NODES = 5_000
_MAX_DEPTH = 20


class FrontMatter(Struct, frozen=True):
    """The front matter of a file by lowercase key, and its text.

    Scalars are strings, as written; lists and mappings are nested. `lines` has the line of each value: of the key
    `rules`, of its entry `rules.Bash`, of the list item `rules[0]`. `as_text` says of keys that were read as plain text
    why they are not valid YAML. `errors` are line numbers with what could not be read there.
    """

    values: dict[str, Any] = field(default_factory=dict[str, Any])
    body: str = ""
    body_line: int = 1
    lines: dict[str, int] = field(default_factory=dict[str, int])
    as_text: dict[str, str] = field(default_factory=dict[str, str])
    errors: tuple[tuple[int, str], ...] = ()


def split_front_matter(text: str) -> FrontMatter:
    """Return the front matter and the text. Without a closing fence everything is text."""
    lines = text.removeprefix("\ufeff").splitlines()
    if not lines or lines[0].rstrip() != _FENCE:
        return FrontMatter(body=text.strip())
    end = next(
        (at for at, line in enumerate(lines[1:MAX_FRONT_MATTER_LINES], 1) if line.rstrip() in (_FENCE, "...")), None
    )
    if end is None:
        return FrontMatter(body=text.strip())
    reader = _FrontMatterReader()
    reader.read(lines[1:end], 2)
    return FrontMatter(
        reader.values, "\n".join(lines[end + 1 :]).strip(), end + 2, reader.lines, reader.as_text, tuple(reader.errors)
    )


def read_yaml(text: str) -> FrontMatter:
    """Return a YAML file as if it were front matter; its key `prompt` is the text."""
    reader = _FrontMatterReader()
    reader.read(text.removeprefix("\ufeff").splitlines(), 1)
    body = str(reader.values.pop("prompt", "")).strip()
    body_line = reader.lines.get("prompt", 1)
    return FrontMatter(reader.values, body, body_line, reader.lines, reader.as_text, tuple(reader.errors))


class _FrontMatterReader:
    """Collects values and their lines. A document that is not valid YAML is read key by key."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.lines: dict[str, int] = {}
        self.as_text: dict[str, str] = {}
        self.errors: list[tuple[int, str]] = []
        self._nodes = 0

    def read(self, lines: list[str], first: int) -> None:
        if not any(line.strip() and not line.lstrip().startswith("#") for line in lines) or self._read_plain(
            lines, first
        ):
            return
        root = _compose("\n".join(lines))
        if not isinstance(root, str) and self._read_mapping(root, first):
            return
        self.values, self.lines, self.errors = {}, {}, []
        for at, block in _split_blocks(lines):
            self._read_block(block, first + at)

    def _read_plain(self, lines: list[str], first: int) -> bool:
        """Read front matter whose every line is a key with a plain word or sentence, without YAML, which takes long.

        False if it is anything else; then nothing has been read.
        """
        found = [_PLAIN_LINE.fullmatch(line) for line in lines]
        keys = {_normalize_key(match[1]) for match in found if match is not None}
        if len(keys) < len(lines):
            return False
        for number, match in enumerate(found, first):
            assert match is not None
            key = _normalize_key(match[1])
            self.values[key], self.lines[key] = match[2].strip(), number
        return True

    def _read_block(self, block: list[str], line: int) -> None:
        root = _compose("\n".join(block))
        if not isinstance(root, str) and self._read_mapping(root, line):
            return
        name, colon, start = block[0].partition(":")
        if not colon:
            if text := block[0].strip():
                self.errors.append((line, f"{to_plain_line(text)!r} is not `key: value`."))
            return
        key = _normalize_key(name)
        self.values[key] = " ".join(part for text in [start, *block[1:]] if (part := text.strip()))
        self.lines[key] = line
        self.as_text[key] = root if isinstance(root, str) else "it is not a mapping"

    def _read_mapping(self, root: "yaml.Node | None", first: int) -> bool:
        """Add the keys of a mapping. False if it is something else, too deep or too large."""
        import yaml

        if not isinstance(root, yaml.MappingNode):
            return False
        for name, node in root.value:
            key, line = _normalize_key(str(name.value)), first + name.start_mark.line
            if key in self.lines:
                self.errors.append((line, f"{key} is written twice."))
            self.lines[key] = line
            try:
                self.values[key] = self._convert(node, key, first, 0)
            except ValueError as error:
                self.errors.append((line, f"{key} {error}."))
                self.values[key] = ""
        return True

    def _convert(self, node: "yaml.Node", at: str, first: int, depth: int) -> Any:
        """Return the value of a node. Aliases can make a short text endless, so the nodes are counted."""
        import yaml

        self._nodes += 1
        if self._nodes > _MAX_NODES or depth > _MAX_DEPTH:
            raise ValueError("has too many parts")
        self.lines.setdefault(at, first + node.start_mark.line)
        if isinstance(node, yaml.SequenceNode):
            return [self._convert(item, f"{at}[{number}]", first, depth + 1) for number, item in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode):
            names = ((str(name.value), name.start_mark.line, item) for name, item in node.value)
            found: dict[str, Any] = {}
            for name, line, item in names:
                self.lines[f"{at}.{name}"] = first + line
                found[name] = self._convert(item, f"{at}.{name}", first, depth + 1)
            return found
        return node.value


def _normalize_key(name: str) -> str:
    return name.strip().casefold().replace("_", "-")


def _compose(text: str) -> "yaml.Node | str | None":
    """Return the root node of the YAML text, or what is wrong with it."""
    import yaml

    try:
        return cast("yaml.Node | None", yaml.compose(text, yaml.BaseLoader))  # pyright: ignore[reportUnknownMemberType]
    except yaml.YAMLError as error:
        return str(getattr(error, "problem", "") or "it cannot be parsed")
    except (RecursionError, ValueError):
        return "it cannot be parsed"


def _split_blocks(lines: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield each top-level key with its continuation lines, and its place in the list.

    The descriptions of many agents have examples in tags that are not indented; those belong to the value, too.
    """
    block: list[str] = []
    is_example = False
    for at, line in enumerate(lines):
        continues = is_example or not line.strip() or line[0].isspace() or line.startswith(("- ", "#", "<"))
        if block and not continues:
            yield at - len(block), block
            block = []
        block.append(line)
        start, end = line.rfind("<example>"), line.rfind("</example>")
        is_example = start > end if start != end else is_example
    if block:
        yield len(lines) - len(block), block


MAX_BYTES = 64 * 1024
MAX_FILES = 500
MAX_DEPTH = 8
"""Folders below each other that are read."""

MAX_SCANNED = 5_000
_MAX_LINE = 200

Warn = Callable[[str], None]
"""Receives what was skipped and why."""


class MarkdownFile(Struct, frozen=True):
    """One file: its name relative to the folder without suffix, its path as shown, its front matter with its text.

    `file` is the path itself.
    """

    name: str
    path: str
    front: FrontMatter
    file: str


class _ParsedFile(Struct, frozen=True):
    """A parsed file and the stamp it had. `error` says why it is skipped."""

    stamp: tuple[int, int, int]
    front: FrontMatter = FrontMatter()
    error: str = ""


class MarkdownFolder:
    """A folder of Markdown files with a cache. With `within`, anything that leads outside is skipped.

    Files with other `suffixes` are YAML.
    """

    def __init__(self, folder: str, within: str = "", suffixes: tuple[str, ...] = (".md",)) -> None:
        self._folder = folder
        self._within = within
        self._suffixes = suffixes
        self._files: dict[str, _ParsedFile] = {}

    def read_files(self, warn: Warn) -> Iterator[MarkdownFile]:
        """Yield the files sorted by name."""
        before, self._files = self._files, {}
        for name, path, found in _MarkdownWalk(self._folder, self._within, self._suffixes, warn).walk():
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
            known = before.get(path)
            seen = known if known is not None and known.stamp == stamp else _parse_file(path, stamp)
            self._files[path] = seen
            if seen.error:
                warn(f"{to_plain_line(path)} is ignored: {seen.error}")
            else:
                yield MarkdownFile(name, to_plain_line(path), seen.front, path)


class _MarkdownWalk:
    """The Markdown files below a folder, sorted by name; each folder is entered once."""

    def __init__(self, folder: str, within: str, suffixes: tuple[str, ...], warn: Warn) -> None:
        self._suffixes = suffixes
        self._folder = folder
        self._within = os.path.realpath(within) if within else ""
        self._warn = warn
        self._entered: set[str] = set()
        self._scanned = 0
        self._found = 0

    def walk(self) -> Iterator[tuple[str, str, os.stat_result]]:
        """Yield the name of each file without suffix, its path, and its stat result."""
        if os.path.isdir(self._folder) and self._is_inside(self._folder):  # noqa: PTH112
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
            elif name.endswith(self._suffixes) and stat.S_ISREG(found.st_mode) and self._is_inside(path):
                self._found += 1
                yield "/".join((*names, name.rpartition(".")[0])), path, found

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
            self._warn(f"{folder} holds more than {MAX_FILES} Markdown files or other files; some are ignored.")
        return full

    def _is_inside(self, path: str) -> bool:
        if not self._within or Path(os.path.realpath(path)).is_relative_to(self._within):
            return True
        self._warn(f"{to_plain_line(path)} points outside the project and is ignored.")
        return False


def _parse_file(path: str, stamp: tuple[int, int, int]) -> _ParsedFile:
    if stamp[1] > MAX_BYTES:
        return _ParsedFile(stamp, error=f"it is {stamp[1]:,} bytes long; {MAX_BYTES:,} is the limit.")
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            raw = file.read(MAX_BYTES + 1) if stat.S_ISREG(os.fstat(fd).st_mode) else b"\0"
    except OSError as error:
        return _ParsedFile(stamp, error=f"it cannot be read ({error.strerror or error}).")
    if b"\0" in raw:
        return _ParsedFile(stamp, error="it is not a text file.")
    parse = split_front_matter if path.endswith(".md") else read_yaml
    return _ParsedFile(stamp, parse(raw[:MAX_BYTES].decode("utf-8-sig", "replace")))


def split_names(text: str) -> list[str]:
    """Split at commas and spaces, except inside parentheses."""
    return [word for word in re.split(r"[,\s]+(?![^(]*\))", text.strip()) if word]


def to_plain_line(text: str) -> str:
    """Return the text as one line without control characters or direction marks."""
    line = " ".join(text.split())
    shown = "".join(char if char.isprintable() else "\ufffd" for char in line)
    return shown if len(shown) <= _MAX_LINE else shown[: _MAX_LINE - 1] + "…"


_PLUGIN_ROOT = re.compile(r"\$\{(?:CLAUDE|ODIN)_PLUGIN_ROOT\}")


def insert_plugin_root(text: str, folder: str) -> str:
    """Return a text of the plugin in this folder with the folder instead of `${CLAUDE_PLUGIN_ROOT}`."""
    return _PLUGIN_ROOT.sub(lambda _: folder, text)


def is_typable(name: str) -> bool:
    """True if the name can be typed as one word and is not misleading."""
    return (
        0 < len(name) <= _MAX_LINE
        and name.isprintable()
        and not any(char.isspace() for char in name)
        and all(part and not part.startswith(".") for part in name.split("/"))
    )
