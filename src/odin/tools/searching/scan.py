"""The built-in search, for machines without ripgrep: a program that finds the same and prints it the same way.

It runs in a process of its own, because a regular expression that never comes to an end can only be ended from outside.
"""

import re
import sys
from collections.abc import Iterator
from os import fsencode
from pathlib import Path

import msgspec

from odin.tools.files.path import Refusal
from odin.tools.searching.dialect import compile_pattern
from odin.tools.searching.ignore import parse_ignore_line
from odin.tools.searching.pattern import compile_glob
from odin.tools.searching.query import SearchMode, SearchQuery
from odin.tools.searching.walk import walk_files

FILE_TYPES = {
    "c": "*.[chH] *.[chH].in *.cats",
    "cpp": "*.[ChH] *.[ChH].in *.[ch]pp *.[ch]pp.in *.[ch]xx *.[ch]xx.in *.cc *.cc.in *.hh *.hh.in *.inl",
    "css": "*.css *.scss",
    "go": "*.go",
    "html": "*.htm *.html *.ejs",
    "java": "*.java *.jsp *.jspx *.properties",
    "js": "*.js *.jsx *.vue *.cjs *.mjs",
    "json": "*.json composer.lock *.sarif",
    "kotlin": "*.kt *.kts",
    "markdown": "*.markdown *.md *.mdown *.mdwn *.mkd *.mkdn *.mdx",
    "md": "*.markdown *.md *.mdown *.mdwn *.mkd *.mkdn *.mdx",
    "php": "*.php *.php3 *.php4 *.php5 *.php7 *.php8 *.pht *.phtml",
    "py": "*.py *.pyi",
    "python": "*.py *.pyi",
    "ruby": "*.gemspec *.rake *.rb *.rbw .irbrc Gemfile Rakefile config.ru",
    "rust": "*.rs",
    "sh": "*.bash *.bashrc *.csh *.cshrc *.env *.ksh *.kshrc *.sh *.tcsh *.zsh .bash_login .bash_logout .bash_profile "
    ".bashrc .cshrc .env .kshrc .login .logout .profile .tcshrc .zlogin .zlogout .zprofile .zshenv .zshrc bash_login "
    "bash_logout bash_profile bashrc profile zlogin zlogout zprofile zshenv zshrc",
    "sql": "*.psql *.sql",
    "swift": "*.swift",
    "toml": "*.toml Cargo.lock",
    "ts": "*.ts *.tsx *.cts *.mts",
    "typescript": "*.ts *.tsx *.cts *.mts",
    "txt": "*.txt",
    "xml": "*.dtd *.rng *.sch *.xhtml *.xjb *.xml *.xml.dist *.xsd *.xsl *.xslt",
    "yaml": "*.yaml *.yml",
}
"""The file types the built-in search knows. Ripgrep knows many more."""


def build_scan_argv(query: SearchQuery, answer: SearchMode) -> list[str]:
    """The path goes by itself, because it may hold bytes that JSON has no letters for."""
    code = "from odin.tools.searching.scan import main; main()"
    asked = msgspec.json.encode(msgspec.structs.replace(query, path="")).decode()
    return [sys.executable, "-I", "-c", code, answer, asked, query.path]


def main() -> None:
    answer, asked, path = sys.argv[1:]
    query = msgspec.structs.replace(msgspec.json.decode(asked, type=SearchQuery), path=path)
    try:
        for piece in scan_files(query, msgspec.convert(answer, SearchMode)):
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
    except (Refusal, RecursionError) as refusal:
        sys.stdout.buffer.flush()
        sys.stderr.write(str(refusal))
        sys.exit(2)


def scan_files(query: SearchQuery, answer: SearchMode) -> Iterator[bytes]:
    """What ripgrep prints: lines below the path of their file, counts, or paths that end with a NUL byte."""
    regex = compile_pattern(query)
    following = False
    for path in _list_candidates(query):
        text = _read_text(path)
        matching = _find_matching_lines(text, regex, query) if text else None
        if not text or not matching:
            continue
        name = fsencode(path) + b"\0"
        if answer == "paths":
            yield name
        elif answer == "counts":
            yield name + b"%d\n" % len(matching)
        else:
            yield (b"\n" if following else b"") + name + _format_rows(text, matching, query)
            following = True


def _format_rows(text: str, matching: set[int], query: SearchQuery) -> bytes:
    lines = _split_lines(text)
    around = (range(max(1, line - query.before), min(len(lines), line + query.after) + 1) for line in matching)
    rows: list[str] = []
    previous = 0
    for number in sorted({number for numbers in around for number in numbers}):
        if query.context and previous and number > previous + 1:
            rows.append("--")
        previous = number
        rows.append(f"{number}{':' if number in matching else '-'}{lines[number - 1]}")
    return "".join(f"{row}\n" for row in rows).encode("utf-8", "surrogateescape")


def _split_lines(text: str) -> list[str]:
    """Only a line feed ends a line."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def _find_matching_lines(text: str, regex: "re.Pattern[str]", query: SearchQuery) -> set[int]:
    """No match within a line reaches across a carriage return, and `^` and `$` match beside one."""
    if not query.across_lines:
        parts = ((number, line.removesuffix("\r").split("\r")) for number, line in enumerate(_split_lines(text), 1))
        return {number for number, pieces in parts if any(map(regex.search, pieces))}
    found: set[int] = set()
    line, at = 1, 0
    for match in regex.finditer(text):
        line += text.count("\n", at, match.start())
        at = match.start()
        found.update(range(line, line + text.count("\n", at, max(at, match.end() - 1)) + 1))
    return found & set(range(len(_split_lines(text)) + 1))


def _read_text(path: str) -> str | None:
    """The text of a file, or None: it cannot be read, or it is binary, as a NUL byte says."""
    try:
        data = Path(path).read_bytes()
    except OSError:
        return None
    for mark, codec in ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")):
        if data.startswith(mark):
            data = data[2:].decode(codec, "replace").encode()
    return None if b"\0" in data else data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")


def _list_candidates(query: SearchQuery) -> list[str]:
    """The files to look into, in order of path. A file that was named is searched whatever the ignore files say."""
    if query.type and query.type not in FILE_TYPES:
        raise Refusal(f"unrecognized file type: {query.type}. Use glob instead.")
    if Path(query.path).is_file():
        return [query.path]
    named = parse_ignore_line(query.path, query.glob) if query.glob else None
    if query.glob and named is None:
        raise Refusal(f"error parsing glob {query.glob!r}")
    globs = [compile_glob(glob) for glob in FILE_TYPES[query.type].split()] if query.type else []
    found = walk_files(
        query.path, glob_rule=named, matches_type=(lambda name: any(fits(name) for fits in globs)) if globs else None
    )
    return sorted(found, key=lambda path: fsencode(path).replace(b"/", b"\0"))
