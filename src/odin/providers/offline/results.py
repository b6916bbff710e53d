"""Reads the conversation as turns, and parses tool results. Unexpected text is skipped, never guessed at."""

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct, field

from odin.core.message import Message, PromptMessage, ReplyMessage, ToolCall, ToolMessage, ToolResult
from odin.core.provider import Request

CALL_ID_PREFIX = "offline-"
"""The prefix of this planner's call ids. Calls of a model in the same turn are not part of its plan."""

_CACHE_NOTE = "Cached files: "


class PlannerStep(Struct, frozen=True):
    """The calls of one reply with their results."""

    calls: tuple[ToolCall, ...]
    results: tuple[ToolResult, ...]

    @property
    def is_own(self) -> bool:
        return all(call.id.startswith(CALL_ID_PREFIX) for call in self.calls)


class PlannerTurn(Struct):
    prompt: str
    steps: list[PlannerStep] = field(default_factory=list[PlannerStep])


def collect_turns(messages: Iterable[Message]) -> list[PlannerTurn]:
    """Return the turns of a history. A call without a result counts as failed."""
    found: list[PlannerTurn] = []
    open_calls: tuple[ToolCall, ...] = ()
    for message in messages:
        if isinstance(message, PromptMessage):
            if message.text.strip() and not message.text.startswith(_CACHE_NOTE):
                found.append(PlannerTurn(message.text))
        elif not found:
            continue
        elif isinstance(message, ReplyMessage):
            open_calls = message.calls
        elif open_calls:
            found[-1].steps.append(_make_step(open_calls, message))
            open_calls = ()
    return found


def _make_step(calls: tuple[ToolCall, ...], message: ToolMessage) -> PlannerStep:
    by_id = {result.call_id: result for result in message.results}
    lost = "The call has no result."
    return PlannerStep(calls, tuple(by_id.get(call.id) or ToolResult(call.id, lost, True) for call in calls))


def find_working_directory(request: Request) -> str:
    """Return the working directory named in the prompt, or "."."""
    return _find_line(request, r"^\W*(?:Working directory|cwd)\W*[:=]\s*`?(?P<value>[^`\n]+?)`?\s*$") or "."


def mode_of(request: Request) -> str:
    """Return ask, plan or edit if the system prompt names it."""
    found = next(
        (match for block in request.system if (match := re.search(r"^# Mode: (\w+)", block, re.MULTILINE))), None
    )
    return found[1].removesuffix("_mode") if found else ""


def _find_line(request: Request, pattern: str) -> str:
    """Return the newest matching line in the notes or system blocks."""
    notes = [note for message in request.messages if not isinstance(message, ReplyMessage) for note in message.notes]
    for text in (*reversed(notes), *reversed(request.system)):
        found = re.search(pattern, text, re.MULTILINE | re.IGNORECASE)
        if found:
            return found["value"].strip()
    return ""


def make_call_ids(request: Request, count: int) -> list[str]:
    """Return new call ids, deterministic for the same history and unused in it."""
    used = {call.id for message in request.messages if isinstance(message, ReplyMessage) for call in message.calls}
    ids: list[str] = []
    number = len(request.messages)
    while len(ids) < count:
        fresh = f"{CALL_ID_PREFIX}{number}-{len(ids)}"
        if fresh in used:
            number += 1
        else:
            ids.append(fresh)
    return ids


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


def parse_hits(text: str, path: str = "") -> list[GrepHit]:
    """Return the lines of a Grep in content mode. `path` is the file if only one was searched."""
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
    """Return the matches per file of a Grep in count mode."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        pair = re.fullmatch(r"(.+):(\d+)", line.strip())
        if pair:
            found[pair[1]] = int(pair[2])
        elif path and line.strip().isdigit():
            found[path] = int(line)
    return found


def parse_paths(text: str) -> list[str]:
    """Return the paths of a Glob, or of a Grep for files."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    rooted = [line for line in lines if line.startswith(("/", "./"))]
    if rooted:
        return rooted
    return [line for line in lines if not re.match(r"[(\[]|No (?:files|matches)|Found \d", line)]


class ToolListing(Struct, frozen=True):
    """The text in which a tool listed files, and the folder it listed."""

    tool: str
    text: str
    folder: str


def list_files(lists: Sequence[ToolListing]) -> list[str]:
    """Return the listed files, each once, in display order."""
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
    """Return files by number of matches, most first."""
    return sorted(found, key=lambda path: (-found[path], path))


def parse_entries(text: str) -> list[str]:
    """Return the names in an LS result; folders end in a slash."""
    names: list[str] = []
    for line in text.splitlines()[1:]:
        name = re.sub(r"\s+\[[^\]]*\]$| -> .*$", "", line.strip().removeprefix("- "))
        if name and not name.startswith("("):
            names.append(name)
    return names


def parse_page(text: str) -> ReadPage:
    """Return the numbered lines of a Read result."""
    lines: list[tuple[int, str]] = []
    for line in text.split("\n"):
        found = re.match(r" *(\d+)(?:\t|→)(.*)", line, re.DOTALL)
        if found:
            lines.append((int(found[1]), found[2]))
    total = re.search(r"\(showing lines \d+-\d+ of (\d+) total", text[-300:])
    return ReadPage(tuple(lines), int(total[1]) if total else (lines[-1][0] if lines else 0))


def is_empty(result: ToolResult) -> bool:
    """True if a Read found a file without text."""
    return not result.is_error and "empty file" in result.text[:40]


def is_missing(result: ToolResult) -> bool:
    return result.is_error and bool(
        re.search(r"does not exist|not found|no such (?:file|directory|path)", result.text, re.I)
    )


def is_folder(result: ToolResult) -> bool:
    return result.is_error and bool(re.search(r"is a (?:directory|folder)", result.text, re.IGNORECASE))


def parse_total_files(text: str) -> int:
    """Return how many files a Glob found in total, if it shows only some."""
    found = re.search(r"\(showing .* of (?:more than )?(\d+) files", text[-300:])
    return int(found[1]) if found else 0


def exit_code_of(result: ToolResult) -> int | None:
    """Return the exit code of a command, or None if it was stopped."""
    if not result.is_error:
        return 0
    found = re.search(r"\(exit code (-?\d+)\)", result.text[-400:])
    return int(found[1]) if found else None


def output_of(result: ToolResult) -> str:
    """Return the output of a command without Odin's remarks."""
    text = re.sub(r"\n?\((?:exit code -?\d+|no output)\)\s*$", "", result.text.rstrip())
    return re.sub(r"^\(no output\)$", "", text.strip("\n"))


_REFUSALS = (
    r"Denied\b|Not run: |The user said no|\w+ requires confirmation|\w+ is (?:not available|switched off)|loop detected"
    r"|There is no tool|The arguments of|The call has no result|command is empty"
)


def was_refused(result: ToolResult) -> bool:
    """True if the call did not run: denied by a rule, a mode or the user, or without the required approval."""
    return result.is_error and re.match(_REFUSALS, result.text.lstrip()) is not None
