"""What the tools answered, read back from their text. Anything unexpected is skipped, never guessed at."""

import re
from collections.abc import Sequence

from msgspec import Struct

from odin.core.message import ToolResult


class GrepHit(Struct, frozen=True):
    """One line that a search found."""

    path: str
    line: int
    text: str


class ReadPage(Struct, frozen=True):
    """Numbered lines of a file, and how many the file has in all."""

    lines: tuple[tuple[int, str], ...]
    total: int

    @property
    def text(self) -> str:
        return "\n".join(line for _, line in self.lines)

    @property
    def last(self) -> int:
        return self.lines[-1][0] if self.lines else 0


def parse_hits(text: str, path: str = "") -> list[GrepHit]:
    """The lines of a Grep in content mode. `path` is the file when only one was searched."""
    found: list[GrepHit] = []
    for line in text.splitlines():
        whole = re.match(r"(?P<path>.+?):(?P<line>\d+):(?P<text>.*)", line)
        bare = re.match(r"(?P<line>\d+):(?P<text>.*)", line)
        if bare and path:
            found.append(GrepHit(path, int(bare["line"]), bare["text"]))
        elif whole:
            found.append(GrepHit(whole["path"], int(whole["line"]), whole["text"]))
    return found


def parse_counts(text: str, path: str = "") -> dict[str, int]:
    """The lines of a Grep in count mode: how often each file matched."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        pair = re.fullmatch(r"(.+):(\d+)", line.strip())
        if pair:
            found[pair[1]] = int(pair[2])
        elif path and line.strip().isdigit():
            found[path] = int(line)
    return found


def parse_paths(text: str) -> list[str]:
    """The paths of a Glob or of a Grep for files, one to a line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    rooted = [line for line in lines if line.startswith(("/", "./"))]
    if rooted:
        return rooted
    return [line for line in lines if not re.match(r"[(\[]|No (?:files|matches)|Found \d", line)]


class ToolListing(Struct, frozen=True):
    """The text in which a tool listed files, and where it looked."""

    tool: str
    text: str
    folder: str


def list_files(lists: Sequence[ToolListing]) -> list[str]:
    """The files that were listed, each once, in the order an answer shows them."""
    found: list[str] = []
    for listing in lists:
        if listing.tool == "Grep":
            found += _list_searched_files(listing)
        elif listing.tool == "LS":
            names = parse_entries(listing.text)
            found += [f"{listing.folder.rstrip('/')}/{name}" for name in names if not name.endswith("/")]
        else:
            found += parse_paths(listing.text)
    unique = list(dict.fromkeys(found))
    return sorted(unique) if all(listing.tool == "Glob" for listing in lists) else unique


def _list_searched_files(listing: ToolListing) -> list[str]:
    in_lines = [hit.path for hit in parse_hits(listing.text)]
    return in_lines or sort_by_count(parse_counts(listing.text)) or parse_paths(listing.text)


def sort_by_count(found: dict[str, int]) -> list[str]:
    """Files by how often they match, most first."""
    return sorted(found, key=lambda path: (-found[path], path))


def parse_entries(text: str) -> list[str]:
    """The names an LS lists; folders end in a slash."""
    names: list[str] = []
    for line in text.splitlines()[1:]:
        name = re.sub(r"\s+\[[^\]]*\]$| -> .*$", "", line.strip().removeprefix("- "))
        if name and not name.startswith("("):
            names.append(name)
    return names


def parse_page(text: str) -> ReadPage:
    """The numbered lines of a Read."""
    lines: list[tuple[int, str]] = []
    for line in text.split("\n"):
        found = re.match(r" *(\d+)(?:\t|→)(.*)", line, re.DOTALL)
        if found:
            lines.append((int(found[1]), found[2]))
    total = re.search(r"\(showing lines \d+-\d+ of (\d+) total", text[-300:])
    return ReadPage(tuple(lines), int(total[1]) if total else (lines[-1][0] if lines else 0))


def is_empty(result: ToolResult) -> bool:
    """Whether a Read found a file without any text."""
    return not result.is_error and "empty file" in result.text[:40]


def is_missing(result: ToolResult) -> bool:
    return result.is_error and bool(
        re.search(r"does not exist|not found|no such (?:file|directory|path)", result.text, re.I)
    )


def is_folder(result: ToolResult) -> bool:
    return result.is_error and bool(re.search(r"is a (?:directory|folder)", result.text, re.IGNORECASE))


def parse_total_files(text: str) -> int:
    """How many files a Glob found in all, when it shows only some of them."""
    found = re.search(r"\(showing .* of (?:more than )?(\d+) files", text[-300:])
    return int(found[1]) if found else 0


def exit_code_of(result: ToolResult) -> int | None:
    """The exit code of a command, or None when it was stopped before it ended by itself."""
    if not result.is_error:
        return 0
    found = re.search(r"\(exit code (-?\d+)\)", result.text[-400:])
    return int(found[1]) if found else None


def output_of(result: ToolResult) -> str:
    """What a command printed, without the remarks about it."""
    text = re.sub(r"\n?\((?:exit code -?\d+|no output)\)\s*$", "", result.text.rstrip())
    return re.sub(r"^\(no output\)$", "", text.strip("\n"))


_REFUSALS = (
    r"Denied\b|Not run: |The user said no|\w+ requires confirmation|\w+ is (?:not available|switched off)|loop detected"
    r"|There is no tool|The arguments of|The call has no result|command is empty"
)


def was_refused(result: ToolResult) -> bool:
    """Whether the call was not made at all: denied by a rule, a mode or a person, or in need of a confirmation."""
    return result.is_error and re.match(_REFUSALS, result.text.lstrip()) is not None
