"""Requests to see one file: all of it, some of its lines, its outline, a summary."""

import re

from msgspec import Struct

from odin.providers.offline.quotes import QuotedRequest
from odin.providers.offline.task import LAST_FILE, PlannerTask
from odin.providers.offline.template import PhraseMatch, PhraseTable, make_rule
from odin.providers.offline.vocabulary import is_file_like, is_path_like

_PART = "(functions?|class|classes|methods?|symbols?|headings?|sections?|definitions?|types?)"
_PARTS = f"[all] [the] ({_PART} [(and|or) {_PART}]|outline|structure)"
_FILE = "[the] [file] {path:file} [file]"
_WHOLE = "[the] [whole|entire|full|raw] [contents?|text|source|code|body|rest|top|beginning|end] [of|from|in|at]"


class LineRequest(Struct, frozen=True):
    """The lines a clause asks for, and the clause without those words. A negative `first` counts from the end."""

    rest: str
    first: int = 0
    last: int = 0


def _is_clear(said: PhraseMatch) -> bool:
    """Whether the field is surely a file, for verbs that are also used for other things."""
    path = said.get_path()
    return said.is_quoted("path") or path != said["path"] or is_path_like(path)


def _make_outline(said: PhraseMatch) -> PlannerTask | None:
    sure = _is_clear(said) or "outline" in said.clause.lower()
    return PlannerTask("outline", path=said.get_path()) if sure else None


def _make_summary(said: PhraseMatch) -> PlannerTask:
    return PlannerTask("summary", path=said.get_path())


def _make_description(said: PhraseMatch) -> PlannerTask | None:
    return PlannerTask("summary", path=said.get_path()) if _is_clear(said) else None


def _make_read(said: PhraseMatch) -> PlannerTask:
    path = said.get_path()
    return PlannerTask("list", path=path) if path.endswith("/") else PlannerTask("read", path=path)


def _make_clear_read(said: PhraseMatch) -> PlannerTask | None:
    return _make_read(said) if _is_clear(said) else None


def _make_contents_read(said: PhraseMatch) -> PlannerTask | None:
    path = said.get_path()
    return PlannerTask("read", path=path) if path == LAST_FILE or is_file_like(path) else None


_match_about = PhraseTable(
    make_rule(
        _make_outline,
        f"outline [of] {_FILE}",
        f"[(show|give|list|print|display|get|find) [me]] [a|an] {_PARTS} (of|in|for|from|inside|defined in) {_FILE}",
        f"(what|which) {_PARTS} (are|is) [there] [defined] (in|inside) {_FILE}",
        f"(what|which) {_PARTS} does {_FILE} (have|define|contain)",
    ),
    make_rule(PlannerTask("outline", path=LAST_FILE), "[show|give] [me] (the|an) outline", "outline"),
    make_rule(
        _make_summary,
        f"(summarise|summarize|sum up|tldr|tl;dr) [of] [the contents of] {_FILE}",
        f"[(give|show|write|get) [me]] [a|the] [short|brief|quick] summary of {_FILE}",
    ),
    make_rule(
        _make_description,
        f"(describe|explain) [the contents of] {_FILE} [to me]",
        f"what (is|does) {_FILE} (about|do|for)",
    ),
)

_match_contents = PhraseTable(
    make_rule(
        _make_read,
        f"(read|open|cat|view|head|tail|type|inspect) [me] {_WHOLE} {_FILE}",
        f"(look at|have a look at|take a look at|check out|let me see|let me read) {_WHOLE} {_FILE}",
        f"what does {_FILE} (say|contain|look like|hold) [in it]",
    ),
    make_rule(_make_clear_read, f"(show|print|display|see|give|dump|get) [me] {_WHOLE} {_FILE}"),
    make_rule(
        _make_contents_read, f"what (is|are) [the contents?] (in|inside|of) {_FILE}", f"[the] contents? of {_FILE}"
    ),
)

_match_lines = PhraseTable(
    make_rule(
        _make_read,
        f"(read|open|cat|view|head|tail|show|print|display|see|give|get|look at) [me] {_WHOLE} {_FILE}",
        f"[of|from|in] {_FILE}",
        f"what is [on|at|in] [of|from|in] {_FILE}",
    ),
)


def match_read(clause: str, words: QuotedRequest) -> PlannerTask | None:
    task = _match_about(clause, words)
    if task:
        return task
    lines = take_lines(clause)
    if not lines.first and not lines.last:
        return _match_contents(clause, words)
    if re.fullmatch(
        r"(?:read|show|print|view|see|display|open|head|tail|give|look at)?(?: me)?", lines.rest, re.IGNORECASE
    ):
        return PlannerTask("read", path=LAST_FILE, first=lines.first, last=lines.last)
    task = _match_lines(lines.rest, words)
    return PlannerTask("read", path=task.path, first=lines.first, last=lines.last) if task else None


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


def take_lines(clause: str) -> LineRequest:
    """Find "lines 10-20", "line 40", "first 20 lines", "a.py:40" and take it out of the clause."""
    verb = clause.split(maxsplit=1)[0].lower()
    if not re.search(r"\blines?\b|[:#]L?\d|\b(?:head|tail) -", clause, re.IGNORECASE):
        return LineRequest(clause, *_line_bounds_of(verb, [10])) if verb in ("head", "tail") else LineRequest(clause)
    for kind, pattern in _LINE_FORMS:
        found = re.search(pattern, clause, re.IGNORECASE)
        if found:
            rest = clause[: found.start()] + " " + re.sub(r" with (?:some )?context$", "", clause[found.end() :])
            numbers = [int(group[:7]) for group in found.groups()]
            return LineRequest(re.sub(r"\s+", " ", rest).strip(" ,"), *_line_bounds_of(kind, numbers))
    return LineRequest(clause)


def _line_bounds_of(kind: str, numbers: list[int]) -> tuple[int, int]:
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
