"""What the tools answered, read back from their text. Anything unexpected is skipped, never guessed at."""

import re

from msgspec import Struct

from odin.core.message import ToolResult


class Hit(Struct, frozen=True):
    """One line that a search found."""

    path: str
    line: int
    text: str


class Page(Struct, frozen=True):
    """Numbered lines of a file, and how many the file has in all."""

    lines: tuple[tuple[int, str], ...]
    total: int

    @property
    def text(self) -> str:
        return "\n".join(line for _, line in self.lines)

    @property
    def last(self) -> int:
        return self.lines[-1][0] if self.lines else 0


def hits(text: str, path: str = "") -> list[Hit]:
    """The lines of a Grep in content mode. `path` is the file when only one was searched."""
    found: list[Hit] = []
    for line in text.splitlines():
        whole = re.match(r"(?P<path>.+?):(?P<line>\d+):(?P<text>.*)", line)
        bare = re.match(r"(?P<line>\d+):(?P<text>.*)", line)
        if bare and path:
            found.append(Hit(path, int(bare["line"]), bare["text"]))
        elif whole:
            found.append(Hit(whole["path"], int(whole["line"]), whole["text"]))
    return found


def counts(text: str, path: str = "") -> dict[str, int]:
    """The lines of a Grep in count mode: how often each file matched."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        pair = re.fullmatch(r"(.+):(\d+)", line.strip())
        if pair:
            found[pair[1]] = int(pair[2])
        elif path and line.strip().isdigit():
            found[path] = int(line)
    return found


def paths(text: str) -> list[str]:
    """The paths of a Glob or of a Grep for files, one to a line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    rooted = [line for line in lines if line.startswith(("/", "./"))]
    if rooted:
        return rooted
    return [line for line in lines if not re.match(r"[(\[]|No (?:files|matches)|Found \d", line)]


def files_in(tool: str, text: str, folder: str) -> list[str]:
    """The files a result lists, each once, in its order, whatever tool it came from."""
    if tool == "Grep":
        content = [hit.path for hit in hits(text, folder)]
        found = content or list(counts(text)) or paths(text)
    elif tool == "LS":
        found = [f"{folder.rstrip('/')}/{name}" for name in entries(text) if not name.endswith("/")]
    else:
        found = paths(text)
    return list(dict.fromkeys(found))


def entries(text: str) -> list[str]:
    """The names an LS lists; folders end in a slash."""
    names: list[str] = []
    for line in text.splitlines()[1:]:
        name = re.sub(r"\s+\[[^\]]*\]$| -> .*$", "", line.strip().removeprefix("- "))
        if name and not name.startswith("("):
            names.append(name)
    return names


def page(text: str) -> Page:
    """The numbered lines of a Read."""
    lines: list[tuple[int, str]] = []
    for line in text.split("\n"):
        found = re.match(r" *(\d+)(?:\t|→)(.*)", line, re.DOTALL)
        if found:
            lines.append((int(found[1]), found[2]))
    total = re.search(r"\(showing lines \d+-\d+ of (\d+) total", text[-300:])
    return Page(tuple(lines), int(total[1]) if total else (lines[-1][0] if lines else 0))


def is_empty(result: ToolResult) -> bool:
    """Whether a Read found a file without any text."""
    return not result.is_error and "empty file" in result.text[:40]


def is_missing(result: ToolResult) -> bool:
    return result.is_error and bool(
        re.search(r"does not exist|not found|no such (?:file|directory|path)", result.text, re.I)
    )


def is_folder(result: ToolResult) -> bool:
    return result.is_error and bool(re.search(r"is a (?:directory|folder)", result.text, re.IGNORECASE))


def exit_code(result: ToolResult) -> int:
    """The exit code of a command: what the text says, else 1 for an error and 0 for success."""
    found = re.search(
        r"exit(?:ed with)?(?: code| status)[: ]+(-?\d+)", result.text[-400:] + "\n" + result.text[:200], re.IGNORECASE
    )
    if found:
        return int(found[1])
    return 1 if result.is_error else 0


def was_refused(result: ToolResult) -> bool:
    """Whether the call was not made at all: denied by a rule, a mode or a person, or in need of a confirmation."""
    return result.is_error and bool(
        re.search(
            r"\bdenied\b|requires confirmation|said no|not available in|switched off|loop detected|not allowed|forbidden|refused",
            result.text,
            re.I,
        )
    )
