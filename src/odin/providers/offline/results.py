"""Parses what tools return. Lines of an unexpected form are skipped, never guessed at."""

import re

from msgspec import Struct

from odin.core.format import clip_line
from odin.core.message import ToolResult


class GrepHit(Struct, frozen=True):
    """One line found by a search."""

    path: str
    line: int
    text: str


class ReadPage(Struct, frozen=True):
    """Numbered lines of a file, and its total number of lines."""

    lines: tuple[tuple[int, str], ...]
    total: int

    @property
    def text(self) -> str:
        return "\n".join(line for _, line in self.lines)

    @property
    def last(self) -> int:
        return self.lines[-1][0] if self.lines else 0


def parse_hits(text: str) -> list[GrepHit]:
    """Return the lines of a Grep in content mode."""
    found = re.findall(r"^(.+?):(\d+):(.*)$", text, re.MULTILINE)
    return [GrepHit(path, int(line), content) for path, line, content in found]


def parse_counts(text: str) -> dict[str, int]:
    """Return the matching lines per file of a Grep in count mode."""
    return {path: int(count) for path, count in re.findall(r"^(.+):(\d+)$", text, re.MULTILINE)}


def parse_paths(text: str) -> list[str]:
    """Return the paths of a Glob, or of a Grep for files."""
    return [line for line in text.splitlines() if line.startswith(("/", "./"))]


def parse_entries(text: str) -> list[str]:
    """Return the names in an LS result; folders end in a slash."""
    names = [re.sub(r"\s+\[[^\]]*\]$| -> .*$", "", line.strip()) for line in text.splitlines()[1:]]
    return [name for name in names if name and not name.startswith("(")]


def parse_page(text: str) -> ReadPage:
    """Return the numbered lines of a Read result."""
    lines = tuple((int(number), line) for number, line in re.findall(r"^ *(\d+)\t(.*)$", text, re.MULTILINE))
    total = re.search(r"\(showing lines \d+-\d+ of (\d+) total", text[-300:])
    return ReadPage(lines, int(total[1]) if total else (lines[-1][0] if lines else 0))


def parse_omitted(text: str) -> str:
    """Return the remark of a search or listing that shows only a part, without its advice; "" if it shows all."""
    found = re.search(r"\((showing the (?:first|newest) [^;)]*)", text[-400:])
    return found[1] if found else ""


def is_missing(result: ToolResult) -> bool:
    return result.is_error and "does not exist" in result.text


def is_empty(result: ToolResult) -> bool:
    """True if a Read found a file without text."""
    return not result.is_error and result.text.startswith("(empty file)")


def get_exit_code(result: ToolResult) -> int | None:
    """Return the exit code of a command, or None if it was refused or stopped."""
    if not result.is_error:
        return 0
    found = re.search(r"\(exit code (-?\d+)\)", result.text[-400:])
    return int(found[1]) if found else None


def get_output(result: ToolResult) -> str:
    """Return the output of a command without Odin's remarks."""
    return re.sub(r"\n?\((?:exit code -?\d+|no output)\)\s*$", "", result.text.rstrip()).strip("\n")


def extract_reason(result: ToolResult) -> str:
    """Return an error result as one line, bounded."""
    return clip_line(result.text, 400) or "no reason was given"


_COUNT_PATTERNS = (
    r"^=*\s*((?:\d+ \w+,? ?)+ in [\d.]+s.*?)\s*=*$",
    r"^(Tests:\s+.+)$",
    r"^(test result: .+)$",
    r"^(Ran \d+ tests? in .+)$",
    r"^\s*(\d+ passing.*|\d+ failing.*)$",
    r"^(\d+ examples?, \d+ failures?.*)$",
    r"^(ok\s+\S+\s+[\d.]+s|FAIL\s+\S+.*)$",
)


def count_results(text: str) -> str:
    """Return the line in which a test runner counts its results."""
    for pattern in _COUNT_PATTERNS:
        found = re.findall(pattern, text[-20_000:], re.MULTILINE)
        if found:
            return re.sub(r"\s+", " ", found[-1]).strip()
    return ""
