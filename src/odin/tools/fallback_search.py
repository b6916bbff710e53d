"""The built-in search for machines without ripgrep: finds the same lines and prints the same format.

It runs in a separate process, because a regular expression that never finishes can only be killed. Patterns are
translated from ripgrep's syntax to Python's; syntax that Python reads differently is rewritten, or refused, because a
wrong result would look right. Bytes that are not UTF-8 are lone surrogates in the text, and as in ripgrep neither a dot
nor a negated class matches them.
"""

import os
import re
import sys
from collections.abc import Iterator
from io import FileIO
from os import fsencode
from pathlib import Path

import msgspec

from odin.policy.paths import open_for_reading
from odin.tools.files import Refusal
from odin.tools.ripgrep import HERE, INPUT, SearchMode, SearchQuery, compile_glob, parse_ignore_line, walk_files

_INVALID_BYTES = r"\udc80-\udcff"

_CLASSES = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "ascii": r"\x00-\x7f",
    "blank": r" \t",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\s",
    "upper": "A-Z",
    "word": r"\w",
    "xdigit": "0-9a-fA-F",
}

_ESCAPES = {
    "<": r"(?:\b(?=\w))",
    ">": r"(?:\b(?<=\w))",
    "h": r"[ \t]",
    "W": rf"[^\w{_INVALID_BYTES}]",
    "D": rf"[^\d{_INVALID_BYTES}]",
    "S": rf"[^\s{_INVALID_BYTES}]",
}

_BOUNDARIES = {
    "{start}": _ESCAPES["<"],
    "{end}": _ESCAPES[">"],
    "{start-half}": r"(?<!\w)",
    "{end-half}": r"(?!\w)",
}

_LINE_START = r"(?:\A|(?<=\n)|(?<=\r)(?!\n))"

_LINE_END = r"(?:\Z|(?=\r)|(?<!\r)(?=\n))"
"""Start and end of a line where a lone carriage return ends a line, too."""

_RIPGREP_ONLY = "pPKRXGQEAzZNCHV"
"""Escapes that only ripgrep supports."""

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
"""The file types of the built-in search. Ripgrep has many more."""


def compile_pattern(query: SearchQuery) -> "re.Pattern[str]":
    flags = re.MULTILINE | (re.IGNORECASE if query.ignore_case else 0) | (re.DOTALL if query.across_lines else 0)
    text = (
        re.escape(query.pattern) if query.literal else _RegexTranslator(query.pattern, query.across_lines).translate()
    )
    try:
        return re.compile(text, flags)
    except (re.error, OverflowError, RecursionError) as error:
        raise Refusal(f"regex parse error: {error}") from None


class _RegexTranslator:
    """Translates a pattern in one pass from left to right."""

    def __init__(self, pattern: str, across_lines: bool) -> None:
        self._pattern = pattern
        self._across_lines = across_lines
        self._at = 0

    def translate(self) -> str:
        out: list[str] = []
        while self._at < len(self._pattern):
            out.append(self._translate_next())
        return "".join(out)

    def _take(self, count: int) -> str:
        taken = self._pattern[self._at : self._at + count]
        self._at += count
        return taken

    def _translate_next(self) -> str:
        rest = self._pattern[self._at :]
        if rest[0] == "\\" and len(rest) > 1:
            return self._translate_escape()
        if rest[0] == "[":
            return self._translate_set()
        if rest[0] == ".":
            self._at += 1
            return f"[^{_INVALID_BYTES}]" if self._across_lines else rf"[^\r\n{_INVALID_BYTES}]"
        if rest[0] in "^$" and self._across_lines:
            return _LINE_START if self._take(1) == "^" else _LINE_END
        if match := re.match(r"\(\?<([A-Za-z_]\w*)>", rest):
            self._at += match.end()
            return f"(?P<{match[1]}>"
        if flags := re.match(r"\(\?([a-zA-Z]*)(?:-[a-zA-Z]+)?[:)]", rest):
            return self._translate_flags(flags)
        return self._take(1)

    def _translate_flags(self, flags: "re.Match[str]") -> str:
        """Translate inline flags. Python allows global flags only at the start, so later ones become a group."""
        if re.search(r"[^imsx)(?:-]", flags[0]):
            raise _make_unknown_refusal(flags[0])
        if flags[0].endswith(")") and self._at > 0:
            self._at += flags.end()
            depth_end = self._find_group_end()
            inner = _RegexTranslator(self._pattern[self._at : depth_end], self._across_lines).translate()
            self._at = depth_end
            return f"{flags[0][:-1]}:{inner})"
        return self._take(flags.end())

    def _find_group_end(self) -> int:
        """Return the position of the parenthesis that closes the current group."""
        depth, at, in_set = 0, self._at, False
        while at < len(self._pattern):
            char = self._pattern[at]
            if char == "\\":
                at += 1
            elif in_set:
                in_set = char != "]"
            elif char == "[":
                in_set = True
            elif char in "()":
                depth += 1 if char == "(" else -1
                if depth < 0:
                    return at
            at += 1
        return len(self._pattern)

    def _translate_escape(self) -> str:
        rest = self._pattern[self._at :]
        if point := re.match(r"\\[xuU]\{([0-9a-fA-F]{1,6})\}", rest):
            self._at += point.end()
            return re.escape(chr(min(int(point[1], 16), 0x10FFFF)))
        if border := re.match(r"\\b(\{[a-z-]+\})", rest):
            self._at += border.end()
            if border[1] not in _BOUNDARIES:
                raise _make_unknown_refusal(border[0])
            return _BOUNDARIES[border[1]]
        if rest[1] in _RIPGREP_ONLY:
            raise _make_unknown_refusal(rest[:2])
        translated = _ESCAPES.get(rest[1])
        taken = self._take(2)
        return taken if translated is None else translated

    def _translate_set(self) -> str:
        """Translate a character class. Refuse nested classes and set operations, which Python lacks."""
        out = [self._take(1)]
        if self._pattern[self._at : self._at + 1] == "^":
            out.append(f"{self._take(1)}{_INVALID_BYTES}")
        if self._pattern[self._at : self._at + 1] == "]":
            out.append(f"\\{self._take(1)}")
        while self._at < len(self._pattern):
            rest = self._pattern[self._at :]
            if rest[0] == "]":
                return "".join([*out, self._take(1)])
            out.append(self._translate_member(rest))
        raise Refusal("regex parse error: unclosed character class")

    def _translate_member(self, rest: str) -> str:
        if match := re.match(r"\[:([a-z]+):\]", rest):
            if match[1] not in _CLASSES:
                raise _make_unknown_refusal(match[0])
            self._at += match.end()
            return _CLASSES[match[1]]
        if rest[0] == "[" or rest[:2] in ("&&", "--", "~~"):
            raise _make_unknown_refusal(f"{rest[:2]}\N{HORIZONTAL ELLIPSIS} inside brackets")
        if point := re.match(r"\\[xuU]\{([0-9a-fA-F]{1,6})\}", rest):
            self._at += point.end()
            return re.escape(chr(min(int(point[1], 16), 0x10FFFF)))
        if rest[0] == "\\" and rest[1:2] in {*_RIPGREP_ONLY, *"WDSh"}:
            raise _make_unknown_refusal(f"{rest[:2]} inside brackets")
        return self._take(2 if rest[0] == "\\" else 1)


def _make_unknown_refusal(syntax: str) -> Refusal:
    return Refusal(
        f"{syntax} is not supported: ripgrep was not found, and the built-in search has a smaller "
        "regular-expression language. Write the pattern without it."
    )


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
    regex = compile_pattern(query)
    following = False
    for path, name in _list_candidates(query):
        text = _read_text(path)
        matching = _find_matching_lines(text, regex, query) if text else None
        if not text or not matching:
            continue
        name = fsencode(name) + b"\0"
        if mode == "paths":
            yield name
        elif mode == "counts":
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
    """Split at LF only."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def _find_matching_lines(text: str, regex: "re.Pattern[str]", query: SearchQuery) -> set[int]:
    """Return the numbers of matching lines. Within a line, a carriage return separates lines, as in ripgrep."""
    if not query.across_lines:
        parts = ((number, line.removesuffix("\r").split("\r")) for number, line in enumerate(_split_lines(text), 1))
        return {number for number, parts_of_line in parts if any(map(regex.search, parts_of_line))}
    line_numbers: set[int] = set()
    line, at = 1, 0
    for match in regex.finditer(text):
        line += text.count("\n", at, match.start())
        at = match.start()
        line_numbers.update(range(line, line + text.count("\n", at, max(at, match.end() - 1)) + 1))
    return line_numbers & set(range(len(_split_lines(text)) + 1))


def _read_text(path: str) -> str | None:
    """Return the text of a file or of the standard input; None if it is unreadable or binary (contains a NUL byte)."""
    try:
        with FileIO(0 if path == INPUT else open_for_reading(path)) as file:
            data = file.readall()
    except OSError:
        return None
    for mark, codec in ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")):
        if data.startswith(mark):
            data = data[2:].decode(codec, "replace").encode()
    return None if b"\0" in data else data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")


def _list_candidates(query: SearchQuery) -> list[tuple[str, str]]:
    """Return the files to search with the names to print, sorted. A single file is searched even if it is ignored."""
    if query.type and query.type not in FILE_TYPES:
        raise Refusal(f"unrecognized file type: {query.type}. Use glob instead.")
    if query.path == INPUT or Path(query.path).is_file():
        return [(query.path, query.path)]
    top = os.path.realpath(query.path)
    glob_rule = parse_ignore_line(top, query.glob) if query.glob else None
    if query.glob and glob_rule is None:
        raise Refusal(f"error parsing glob {query.glob!r}")
    globs = [compile_glob(glob) for glob in FILE_TYPES[query.type].split()] if query.type else []
    paths = walk_files(
        top,
        glob_rule=glob_rule,
        matches_type=(lambda name: any(fits(name) for fits in globs)) if globs else None,
    )
    found = sorted(paths, key=lambda path: fsencode(path).replace(b"/", b"\0"))
    start = len(top.rstrip("/")) + 1
    return [(path, f"{HERE}{path[start:]}" if query.path == HERE else path) for path in found]
