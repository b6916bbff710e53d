"""The built-in search for machines without ripgrep: a walk with Python's regular expressions, in ripgrep's format.

It runs in a separate process, because a regular expression that never finishes can only be killed.
"""

import os
import re
import sys
import warnings
from collections.abc import Iterator
from io import FileIO
from os import fsencode
from pathlib import Path

import msgspec

from odin.policy.paths import open_for_reading
from odin.tools.files import Refusal
from odin.tools.ripgrep import HERE, INPUT, SearchMode, SearchQuery, parse_ignore_line, walk_files

MAX_FILE_BYTES = 100_000_000

_CLASSES = {"alnum": "a-zA-Z0-9", "alpha": "a-zA-Z", "digit": "0-9", "lower": "a-z", "space": r"\s", "upper": "A-Z"}
"""Names of character classes (`[[:space:]]`), which Python lacks."""

_SUFFIXES = {
    "c": "c h",
    "cpp": "cpp hpp cc hh cxx hxx h inl",
    "css": "css scss",
    "go": "go",
    "html": "html htm ejs",
    "java": "java jsp jspx properties",
    "js": "js jsx cjs mjs vue",
    "json": "json sarif",
    "md": "md markdown mdown mdwn mkd mkdn mdx",
    "py": "py pyi",
    "rust": "rs",
    "sh": "sh bash zsh ksh csh tcsh env",
    "ts": "ts tsx cts mts",
    "txt": "txt",
    "yaml": "yaml yml",
}
"""The file types of the built-in search, by the ends of names, as in ripgrep. Others are refused."""


def build_scan_argv(query: SearchQuery, mode: SearchMode) -> list[str]:
    """Return the command line. The path is a separate argument, because JSON cannot encode all of its bytes."""
    code = "from odin.tools.fallback_search import main; main()"
    encoded_query = msgspec.json.encode(msgspec.structs.replace(query, path="")).decode()
    return [sys.executable, "-I", "-c", code, mode, encoded_query, query.path]


def main() -> None:
    mode, encoded_query, path = sys.argv[1:]
    query = msgspec.structs.replace(msgspec.json.decode(encoded_query, type=SearchQuery), path=path)
    try:
        for chunk in scan_files(query, msgspec.convert(mode, SearchMode)):
            sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
    except (Refusal, RecursionError) as refusal:
        sys.stdout.buffer.flush()
        sys.stderr.write(str(refusal))
        sys.exit(2)


def scan_files(query: SearchQuery, mode: SearchMode) -> Iterator[bytes]:
    """Yield the output in ripgrep's format: lines after the path of their file, counts, or NUL-terminated paths."""
    pattern = compile_pattern(query)
    separator = b""
    for path, name in _list_candidates(query):
        text = _read_text(path)
        lines = text.removesuffix("\n").split("\n") if text else []
        if query.across_lines:
            matching, at, number = set[int](), 0, 1
            for match in pattern.finditer(text):
                number += text.count("\n", at, match.start())
                at = match.start()
                matching.update(range(number, number + match[0].removesuffix("\n").count("\n") + 1))
            matching.discard(len(lines) + 1)
        else:
            matching = {number for number, line in enumerate(lines, 1) if pattern.search(line)}
        if not matching:
            continue
        if mode == "paths":
            yield fsencode(name) + b"\0"
        elif mode == "counts":
            yield fsencode(name) + b"\0%d\n" % len(matching)
        else:
            yield separator + fsencode(name) + b"\0" + _format_rows(lines, matching, query)
            separator = b"\n"


def compile_pattern(query: SearchQuery) -> "re.Pattern[str]":
    """Compile the pattern. Refuse what Python lacks or reads differently, because a wrong result would look right."""
    flags = re.MULTILINE | (re.IGNORECASE if query.ignore_case else 0) | (re.DOTALL if query.across_lines else 0)
    pattern = re.escape(query.pattern)
    if not query.literal:
        pattern = re.sub(r"\[:(\w+):\]", lambda found: _CLASSES.get(found[1], found[0]), query.pattern)
        if re.search(r"(?<!\\)(?:\\\\)*\\(?:[<>]|b\{)", pattern):
            raise Refusal(
                r"regex parse error: ripgrep was not found, and without it there is only \b for word boundaries"
            )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Python only warns of nested classes and of flags within a pattern
            return re.compile(pattern, flags)
    except (re.error, Warning, OverflowError, RecursionError) as error:
        raise Refusal(f"regex parse error: {error} (ripgrep was not found, so the syntax is that of Python)") from None


def _list_candidates(query: SearchQuery) -> list[tuple[str, str]]:
    """Return the files to search with the names to print, sorted. A single file is searched even if it is ignored."""
    if query.type and query.type not in _SUFFIXES:
        raise Refusal(f"unrecognized file type: {query.type}. Use glob instead, or install ripgrep.")
    if query.path == INPUT or Path(query.path).is_file():
        return [(query.path, query.path)]
    top = os.path.realpath(query.path)
    glob = parse_ignore_line(top, query.glob) if query.glob else None
    if query.glob and glob is None:
        raise Refusal(f"error parsing glob {query.glob!r}")
    ends = tuple(f".{suffix}" for suffix in _SUFFIXES[query.type].split()) if query.type else ""
    # A glob takes precedence over a type, as in ripgrep.
    paths = [path for path in walk_files(top, glob=glob) if path.endswith(ends) or (glob and not glob.negated)]
    paths.sort(key=lambda path: fsencode(path).replace(b"/", b"\0"))
    start = len(top.rstrip("/")) + 1
    return [(path, f"{HERE}{path[start:]}" if query.path == HERE else path) for path in paths]


def _read_text(path: str) -> str:
    """Return the text of a file or of the standard input; "" if it is unreadable, too large or binary."""
    try:
        with FileIO(0 if path == INPUT else open_for_reading(path)) as file:
            too_large = os.fstat(file.fileno()).st_size > MAX_FILE_BYTES
            data = b"" if too_large else file.readall()
    except OSError:
        return ""
    if too_large and path == INPUT:
        raise Refusal("The file is too large to be searched without ripgrep. Read a part of it.")
    for mark, codec in ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")):
        if data.startswith(mark):
            data = data[2:].decode(codec, "replace").encode()
    if b"\0" in data:
        return ""
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape").replace("\r\n", "\n")


def _format_rows(lines: list[str], matching: set[int], query: SearchQuery) -> bytes:
    around = (range(max(1, line - query.before), min(len(lines), line + query.after) + 1) for line in matching)
    rows: list[str] = []
    previous = 0
    for number in sorted({number for numbers in around for number in numbers}):
        if query.context and previous and number > previous + 1:
            rows.append("--")
        previous = number
        rows.append(f"{number}{':' if number in matching else '-'}{lines[number - 1]}")
    return "".join(f"{row}\n" for row in rows).encode("utf-8", "surrogateescape")
