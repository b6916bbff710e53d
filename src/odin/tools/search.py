"""Finding lines: by ripgrep, or by a walk of our own that finds the same ones in the same order."""

import asyncio
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from odin.policy.sandbox import ProcessRunner
from odin.tools.path import WHOLE_BYTES, Refusal
from odin.tools.pattern import matcher
from odin.tools.ripgrep import SEARCH_SECONDS, base_arguments
from odin.tools.text import decode
from odin.tools.walk import walk

_STOP_BYTES = 8_000_000
_RG_LINE = rb"(\d+)([:-])(.*)"

TYPES = {
    "c": "*.c *.h",
    "cpp": "*.cc *.cpp *.cxx *.hh *.hpp *.hxx *.h",
    "css": "*.css *.scss",
    "go": "*.go",
    "html": "*.htm *.html",
    "java": "*.java",
    "js": "*.js *.jsx *.mjs *.cjs *.vue",
    "json": "*.json",
    "kotlin": "*.kt *.kts",
    "md": "*.md *.markdown *.mdx",
    "php": "*.php",
    "py": "*.py *.pyi",
    "ruby": "*.rb *.gemspec",
    "rust": "*.rs",
    "sh": "*.sh *.bash *.zsh",
    "sql": "*.sql",
    "swift": "*.swift",
    "toml": "*.toml",
    "ts": "*.ts *.tsx *.mts *.cts",
    "txt": "*.txt",
    "xml": "*.xml",
    "yaml": "*.yaml *.yml",
}
"""The file types the built-in search knows. Ripgrep knows many more."""


class Query(Struct, frozen=True):
    """What is looked for. `before` and `after` are lines of context around each match."""

    pattern: str
    path: str
    glob: str = ""
    type: str = ""
    ignore_case: bool = False
    literal: bool = False
    multiline: bool = False
    before: int = 0
    after: int = 0


class Hit(Struct, frozen=True):
    """One line of one file: a match, or context around one."""

    path: str
    line: int
    is_match: bool
    text: str


class Hits(Struct, frozen=True):
    """In order of path and line. `complete` is false when the search was stopped because there was too much."""

    hits: list[Hit]
    complete: bool = True


async def find_lines(query: Query, rg: str | None, runner: ProcessRunner) -> Hits:
    if rg is None:
        return Hits(await asyncio.to_thread(lambda: list(_walk_lines(query))))
    data, complete = await _ripgrep(rg, query, ["--line-number"], runner)
    return Hits(sorted(_parse_lines(data), key=_by_path), complete)


async def count_lines(query: Query, rg: str | None, runner: ProcessRunner) -> tuple[dict[str, int], bool]:
    """How many matching lines each file has, by path, and whether the search was complete."""
    if rg is None:
        return await asyncio.to_thread(lambda: _walk_counts(query)), True
    data, complete = await _ripgrep(rg, query, ["--count"], runner)
    pairs = (line.rstrip(b"\r").partition(b"\0") for line in data.split(b"\n"))
    counts = {os.fsdecode(path): int(number) for path, found, number in pairs if found and number.isdigit()}
    return dict(sorted(counts.items(), key=lambda item: _parts(item[0]))), complete


def _by_path(hit: Hit) -> tuple[list[str], int]:
    return _parts(hit.path), hit.line


def _parts(path: str) -> list[str]:
    return path.split("/")


# --- by ripgrep ---


async def _ripgrep(rg: str, query: Query, mode: list[str], runner: ProcessRunner) -> tuple[bytes, bool]:
    """Run in the searched folder, because ripgrep reads a glob with a slash relative to where it runs."""
    argv = [*base_arguments(rg), *mode, "--with-filename", "--null", "--no-heading", "--crlf", "--engine=auto"]
    argv += ["--ignore-case"] if query.ignore_case else []
    argv += ["--fixed-strings"] if query.literal else []
    argv += ["--multiline", "--multiline-dotall"] if query.multiline or "\n" in query.pattern else []
    argv += [f"--glob={query.glob}"] if query.glob else []
    argv += [f"--type={query.type}"] if query.type else []
    argv += [f"--before-context={query.before}"] if query.before else []
    argv += [f"--after-context={query.after}"] if query.after else []
    argv += ["-e", query.pattern, "--", query.path]
    folder = query.path if Path(query.path).is_dir() else str(Path(query.path).parent)
    found = await runner.capture(argv, cwd=folder, timeout=SEARCH_SECONDS, stop_after=_STOP_BYTES)
    if found.timed_out:
        raise Refusal(f"The search took longer than {SEARCH_SECONDS:g}s and was stopped. Search in a smaller folder.")
    if found.code == 2 and found.errors and not found.data:
        raise Refusal(f"The search is not valid: {found.errors.removeprefix('rg: ').strip()}")
    return found.data, not found.stopped


def _parse_lines(data: bytes) -> Iterator[Hit]:
    line = re.compile(_RG_LINE, re.DOTALL)
    for raw in data.split(b"\n"):
        path, found, rest = raw.partition(b"\0")
        parsed = line.match(rest) if found else None
        if parsed is None:
            continue
        number, sign, text = parsed.groups()
        shown = text.removesuffix(b"\r").decode("utf-8", "surrogateescape")
        yield Hit(os.fsdecode(path), int(number), sign == b":", shown)


# --- by our own walk ---


def _walk_counts(query: Query) -> dict[str, int]:
    regex = _compile(query)
    counts = ((path, len(_matching_lines(text, regex, query))) for path, text in _texts(query))
    return {path: count for path, count in counts if count}


def _walk_lines(query: Query) -> Iterator[Hit]:
    regex = _compile(query)
    for path, text in _texts(query):
        lines = text.split("\n")
        last = len(lines) - (1 if text.endswith("\n") else 0)
        matching = _matching_lines(text, regex, query)
        around = (range(max(1, line - query.before), min(last, line + query.after) + 1) for line in matching)
        shown = {number for numbers in around for number in numbers}
        for number in sorted(shown):
            yield Hit(path, number, number in matching, lines[number - 1].removesuffix("\r"))


def _compile(query: Query) -> "re.Pattern[str]":
    flags = re.MULTILINE | (re.IGNORECASE if query.ignore_case else 0) | (re.DOTALL if query.multiline else 0)
    try:
        return re.compile(re.escape(query.pattern) if query.literal else query.pattern, flags)
    except re.error as error:
        raise Refusal(f"The search is not valid: regex parse error: {error}") from None


def _matching_lines(text: str, regex: "re.Pattern[str]", query: Query) -> set[int]:
    if query.multiline or "\n" in query.pattern:
        found: set[int] = set()
        for match in regex.finditer(text):
            first = text.count("\n", 0, match.start()) + 1
            found.update(range(first, first + match.group().rstrip("\n").count("\n") + 1))
        return found
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return {number for number, line in enumerate(lines, 1) if regex.search(line.removesuffix("\r"))}


def _texts(query: Query) -> Iterator[tuple[str, str]]:
    for path in _candidates(query):
        try:
            data = b"" if Path(path).stat().st_size > WHOLE_BYTES else Path(path).read_bytes()
        except OSError:
            continue
        decoded = None if b"\0" in data and data[:2] not in (b"\xff\xfe", b"\xfe\xff") else decode(data)
        if decoded is not None:
            yield path, decoded.text


def _candidates(query: Query) -> Iterable[str]:
    """The files to look into, in order of path. A file that was named is searched whatever the ignore files say."""
    if Path(query.path).is_file():
        return [query.path]
    if query.type and query.type not in TYPES:
        raise Refusal(f"The search is not valid: unrecognized file type: {query.type}. Use glob instead.")
    globs = [matcher(glob) for glob in TYPES[query.type].split()] if query.type else []
    excluding = query.glob.startswith("!")
    filtered = matcher(query.glob.removeprefix("!")) if query.glob else None
    start = len(query.path.rstrip("/")) + 1

    def fits(path: str) -> bool:
        kind = not globs or any(matches(path) for matches in globs)
        return kind and (filtered is None or filtered(path) != excluding)

    found = walk(query.path, wanted=None if excluding else filtered, seconds=SEARCH_SECONDS)
    return sorted((path for path in found if fits(path[start:])), key=_parts)
