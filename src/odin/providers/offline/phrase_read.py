"""Requests to see one file: all of it, some of its lines, its outline, a summary."""

import re

from msgspec import Struct

from odin.providers.offline.quotes import QUOTED, Request
from odin.providers.offline.task import LAST_FILE, Task, nth
from odin.providers.offline.vocabulary import PLACE, looks_like_file, looks_like_path

_IT = r"(?:it|that|this|(?:that|this|the|the same|the last)\s+(?:file|one))"
_ORDINALS = {"first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5, "sixth": 6, "last": -1, "top": 1}
_ITEM = r"(?:one|result|match|hit|file|entry|of (?:them|those))"
_PARTS = r"(?:functions?|class(?:es)?|methods?|symbols?|headings?|sections?|definitions?|outline|structure|types?)"
_STRONG = r"(?:read|open|cat|view|head|tail|type|look at|have a look at|take a look at|check out|inspect|let me see|let me read)"
_WEAK = r"(?:show|print|display|see|give|dump|get)"


class Lines(Struct, frozen=True):
    """The lines a clause asks for, and the clause without those words. A negative `first` counts from the end."""

    rest: str
    first: int = 0
    last: int = 0


def read(clause: str, words: Request) -> Task | None:
    return _outline(clause, words) or _summary(clause, words) or _read(clause, words)


def path_of(fragment: str, words: Request) -> str:
    """The path a fragment names, with "it" and "the second one" kept as references."""
    fragment = fragment.strip()
    if re.fullmatch(_IT, fragment, re.IGNORECASE):
        return LAST_FILE
    found = re.fullmatch(
        rf"(?:the )?(?:(?P<word>{'|'.join(_ORDINALS)})|(?P<digits>\d+)(?:st|nd|rd|th)) {_ITEM}"
        rf"|(?:{_ITEM} |#|number )(?P<number>\d+)",
        fragment,
        re.IGNORECASE,
    )
    if found:
        word = (found["word"] or "").lower()
        return nth(_ORDINALS[word] if word else int((found["digits"] or found["number"])[:4]))
    return words.content(fragment)


def _outline(clause: str, words: Request) -> Task | None:
    what = rf"(?:all )?(?:the )?{_PARTS}(?:,? (?:and|or) {_PARTS})*"
    found = re.fullmatch(
        rf"outline (?:of )?(?:the )?(?:file )?(?P<a>{_IT}|{PLACE})"
        rf"|(?:(?:show|give|list|print|display|get|find)(?: me)? )?(?:an? )?{what} (?:of|in|for|from|inside|defined in) (?:the )?(?:file )?(?P<b>{_IT}|{PLACE})(?: file)?"
        rf"|(?:what|which) {what} (?:are|is)(?: there)?(?: defined)? (?:in|inside) (?P<c>{_IT}|{PLACE})"
        rf"|(?:what|which) {what} does (?P<d>{_IT}|{PLACE}) (?:have|define|contain)"
        rf"|(?:show|give)(?: me)? (?:the|an) outline",
        clause,
        re.IGNORECASE,
    )
    if not found:
        return None
    path = path_of(found["a"] or found["b"] or found["c"] or found["d"] or "it", words)
    if path != LAST_FILE and not looks_like_path(path) and not re.search(rf"{QUOTED}|outline", clause):
        return None
    return Task("outline", path=path)


def _summary(clause: str, words: Request) -> Task | None:
    found = re.fullmatch(
        rf"(?P<verb>summari[sz]e|sum up|tl;?dr|describe|explain) (?:of )?(?:the )?(?:contents? of )?(?:file )?(?P<a>{_IT}|{PLACE})(?: file)?(?: to me)?"
        rf"|(?:(?:give|show|write|get)(?: me)? )?(?:an? |the )?(?:short |brief |quick )*summary of (?:the )?(?:file )?(?P<b>{_IT}|{PLACE})"
        rf"|what (?:is|does) (?:the )?(?:file )?(?P<c>{_IT}|{PLACE})(?: file)? (?:about|do|for)"
        rf"|what's (?P<d>{PLACE}) about",
        clause,
        re.IGNORECASE,
    )
    if not found:
        return None
    path = path_of(found["a"] or found["b"] or found["c"] or found["d"], words)
    bare = path != LAST_FILE and not looks_like_path(path) and not re.search(QUOTED, clause)
    if bare and not re.match(r"summari[sz]e|sum up|tl|.*summary of", clause, re.IGNORECASE):
        return None
    return Task("summary", path=path)


def _read(clause: str, words: Request) -> Task | None:
    lines = take_lines(clause)
    found = re.fullmatch(
        rf"(?:(?P<strong>{_STRONG})|(?P<weak>{_WEAK}))?(?: me)?\s*"
        r"(?:(?:the |all )?(?:whole |entire |full |raw )?(?:contents?|text|source|code|body|rest|top|beginning|end)? ?)?"
        rf"(?:(?:^|\b)(?:of|from|in|at) )?(?:the )?(?P<noun>(?:whole |entire )?file )?(?P<path>{_IT}|(?:the )?[\w#]+ {_ITEM}|{PLACE})?(?: file| again)?",
        lines.rest,
        re.IGNORECASE,
    )
    if not found:
        return _contents(clause, words)
    strong = bool(found["strong"] or found["noun"] or lines.first or lines.last)
    if not found["path"]:
        return Task("read", path=LAST_FILE, first=lines.first, last=lines.last) if lines.first or lines.last else None
    if not (strong or found["weak"]):
        return None
    path = path_of(found["path"], words)
    clear = (
        strong or looks_like_path(path) or re.fullmatch(QUOTED, found["path"]) or path != words.content(found["path"])
    )
    if not clear:
        return None
    return Task("read", path=path, first=lines.first, last=lines.last)


def _contents(clause: str, words: Request) -> Task | None:
    found = re.fullmatch(
        rf"what (?:does|do) (?:the )?(?:file )?(?P<a>{_IT}|{PLACE})(?: file)? (?:say|contain|look like|hold|have)(?: in it)?"
        rf"|what(?:'s| is| are)(?: the contents?)? (?:in|inside|of) (?:the )?(?:file )?(?P<b>{_IT}|{PLACE})",
        clause,
        re.IGNORECASE,
    )
    if not found:
        return None
    path = path_of(found["a"] or found["b"], words)
    return Task("read", path=path) if found["a"] or path == LAST_FILE or looks_like_file(path) else None


_LINE_FORMS = (
    ("range", r"(?:\bfrom )?\b(?:the )?lines? (\d+) ?(?:-|–|—|to|through|till|until|\.\.|and) ?(?:line )?(\d+)\b"),
    ("onward", r"\b(?:starting )?(?:from|at) line (\d+) on(?:wards?)?\b"),
    ("at", r"\b(?:at|around|near|on|from|to) line (\d+)\b"),
    ("line", r"\b(?:the )?lines? (\d+)(?: with (?:some )?context)?"),
    ("head", r"\b(?:the )?(?:first|top) (\d+) lines?\b"),
    ("tail", r"\b(?:the )?(?:last|bottom|final) (\d+) lines?\b"),
    ("head", r"(?<=\bhead) -n? ?(\d+)\b"),
    ("tail", r"(?<=\btail) -n? ?(\d+)\b"),
    ("first", r"\b(?:the )?first line\b"),
    ("final", r"\b(?:the )?last line\b"),
    ("range", r"(?<=[\w/])[:#]L?(\d+)-L?(\d+)\b"),
    ("at", r"(?<=[\w/])[:#]L?(\d+)(?::\d+)?\b"),
)


def take_lines(clause: str) -> Lines:
    """Find "lines 10-20", "line 40", "first 20 lines", "a.py:40" and take it out of the clause."""
    for kind, pattern in _LINE_FORMS:
        found = re.search(pattern, clause, re.IGNORECASE)
        if found:
            rest = clause[: found.start()] + " " + clause[found.end() :]
            numbers = [int(group[:7]) for group in found.groups()]
            return Lines(re.sub(r"\s+", " ", rest).strip(" ,"), *_bounds(kind, numbers))
    verb = clause.split(maxsplit=1)[0].lower()
    if verb in ("head", "tail"):
        return Lines(clause, *_bounds(verb, [10]))
    return Lines(clause)


def _bounds(kind: str, numbers: list[int]) -> tuple[int, int]:
    one = numbers[0] if numbers else 1
    if kind == "range":
        return max(1, min(numbers)), max(numbers)
    if kind in ("tail", "final"):
        return -one, 0
    if kind in ("head", "first"):
        return 1, max(1, one)
    if kind == "onward":
        return max(1, one), 0
    return max(1, one - 5), one + (20 if kind == "at" else 5)
