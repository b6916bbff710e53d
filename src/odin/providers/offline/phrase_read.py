"""Requests to see one file: all of it, some of its lines, its outline, a summary."""

import re

from msgspec import Struct

from odin.providers.offline.quotes import Request
from odin.providers.offline.task import LAST_FILE, Task
from odin.providers.offline.template import Said, Table, rule
from odin.providers.offline.vocabulary import looks_like_file, looks_like_path

_PART = "(functions?|class|classes|methods?|symbols?|headings?|sections?|definitions?|types?)"
_PARTS = f"[all] [the] ({_PART} [(and|or) {_PART}]|outline|structure)"
_FILE = "[the] [file] {path:file} [file]"
_WHOLE = "[the] [whole|entire|full|raw] [contents?|text|source|code|body|rest|top|beginning|end] [of|from|in|at]"


class Lines(Struct, frozen=True):
    """The lines a clause asks for, and the clause without those words. A negative `first` counts from the end."""

    rest: str
    first: int = 0
    last: int = 0


def _is_clear(said: Said) -> bool:
    """Whether the field is surely a file, for verbs that are also used for other things."""
    path = said.file()
    return said.quoted("path") or path != said["path"] or looks_like_path(path)


def _outlined(said: Said) -> Task | None:
    sure = _is_clear(said) or "outline" in said.clause.lower()
    return Task("outline", path=said.file()) if sure else None


def _summarised(said: Said) -> Task:
    return Task("summary", path=said.file())


def _described(said: Said) -> Task | None:
    return Task("summary", path=said.file()) if _is_clear(said) else None


def _read_file(said: Said) -> Task:
    path = said.file()
    return Task("list", path=path) if path.endswith("/") else Task("read", path=path)


def _read_clear(said: Said) -> Task | None:
    return _read_file(said) if _is_clear(said) else None


def _read_contents(said: Said) -> Task | None:
    path = said.file()
    return Task("read", path=path) if path == LAST_FILE or looks_like_file(path) else None


_about = Table(
    rule(
        _outlined,
        f"outline [of] {_FILE}",
        f"[(show|give|list|print|display|get|find) [me]] [a|an] {_PARTS} (of|in|for|from|inside|defined in) {_FILE}",
        f"(what|which) {_PARTS} (are|is) [there] [defined] (in|inside) {_FILE}",
        f"(what|which) {_PARTS} does {_FILE} (have|define|contain)",
    ),
    rule(Task("outline", path=LAST_FILE), "[show|give] [me] (the|an) outline", "outline"),
    rule(
        _summarised,
        f"(summarise|summarize|sum up|tldr|tl;dr) [of] [the contents of] {_FILE}",
        f"[(give|show|write|get) [me]] [a|the] [short|brief|quick] summary of {_FILE}",
    ),
    rule(
        _described,
        f"(describe|explain) [the contents of] {_FILE} [to me]",
        f"what (is|does) {_FILE} (about|do|for)",
    ),
)

_contents = Table(
    rule(
        _read_file,
        f"(read|open|cat|view|head|tail|type|inspect) [me] {_WHOLE} {_FILE}",
        f"(look at|have a look at|take a look at|check out|let me see|let me read) {_WHOLE} {_FILE}",
        f"what does {_FILE} (say|contain|look like|hold) [in it]",
    ),
    rule(_read_clear, f"(show|print|display|see|give|dump|get) [me] {_WHOLE} {_FILE}"),
    rule(_read_contents, f"what (is|are) [the contents?] (in|inside|of) {_FILE}", f"[the] contents? of {_FILE}"),
)

_lines_of = Table(
    rule(
        _read_file,
        f"(read|open|cat|view|head|tail|show|print|display|see|give|get|look at) [me] {_WHOLE} {_FILE}",
        f"[of|from|in] {_FILE}",
        f"what is [on|at|in] [of|from|in] {_FILE}",
    ),
)


def read(clause: str, words: Request) -> Task | None:
    task = _about(clause, words)
    if task:
        return task
    lines = take_lines(clause)
    if not lines.first and not lines.last:
        return _contents(clause, words)
    if re.fullmatch(
        r"(?:read|show|print|view|see|display|open|head|tail|give|look at)?(?: me)?", lines.rest, re.IGNORECASE
    ):
        return Task("read", path=LAST_FILE, first=lines.first, last=lines.last)
    task = _lines_of(lines.rest, words)
    return Task("read", path=task.path, first=lines.first, last=lines.last) if task else None


_LINE_FORMS = (
    ("range", r"(?:\bfrom )?\b(?:the )?lines? (\d+) ?(?:-|–|—|to|through|till|until|\.\.|and) ?(?:line )?(\d+)\b"),
    ("onward", r"\b(?:starting )?(?:from|at) line (\d+) on(?:wards?)?\b"),
    ("at", r"\b(?:at|around|near|on|from|to) line (\d+)\b"),
    ("line", r"\b(?:the )?lines? (\d+)\b"),
    ("head", r"\b(?:the )?(?:first|top) (\d+) lines?\b"),
    ("tail", r"\b(?:the )?(?:last|bottom|final) (\d+) lines?\b"),
    ("head", r"(?<=\bhead) -n? ?(\d+)\b"),
    ("tail", r"(?<=\btail) -n? ?(\d+)\b"),
    ("head", r"\b(?:the )?first line\b"),
    ("tail", r"\b(?:the )?last line\b"),
    ("range", r"(?<=[\w/])[:#]L?(\d+)-L?(\d+)\b"),
    ("at", r"(?<=[\w/])[:#]L?(\d+)(?::\d+)?\b"),
)


def take_lines(clause: str) -> Lines:
    """Find "lines 10-20", "line 40", "first 20 lines", "a.py:40" and take it out of the clause."""
    verb = clause.split(maxsplit=1)[0].lower()
    if not re.search(r"\blines?\b|[:#]L?\d|\b(?:head|tail) -", clause, re.IGNORECASE):
        return Lines(clause, *_bounds(verb, [10])) if verb in ("head", "tail") else Lines(clause)
    for kind, pattern in _LINE_FORMS:
        found = re.search(pattern, clause, re.IGNORECASE)
        if found:
            rest = clause[: found.start()] + " " + re.sub(r" with (?:some )?context$", "", clause[found.end() :])
            numbers = [int(group[:7]) for group in found.groups()]
            return Lines(re.sub(r"\s+", " ", rest).strip(" ,"), *_bounds(kind, numbers))
    return Lines(clause)


def _bounds(kind: str, numbers: list[int]) -> tuple[int, int]:
    one = max(1, numbers[0]) if numbers else 1
    if kind == "range":
        return max(1, min(numbers)), max(1, *numbers)
    if kind == "tail":
        return -one, 0
    if kind == "head":
        return 1, one
    if kind == "onward":
        return one, 0
    return max(1, one - 5), one + (20 if kind == "at" else 5)
