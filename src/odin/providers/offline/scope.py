"""Where a request looks: the "in src", "in python files", "everywhere" at its end, and the words around a term."""

import re

from msgspec import Struct

from odin.providers.offline.quotes import QUOTED, QuotedRequest
from odin.providers.offline.task import LAST_FILE, LAST_PLACE, LAST_TERM
from odin.providers.offline.vocabulary import TEST_GLOBS, extensions_of, to_singular

_IN_WORDS = r"(?:in|inside|within|under|across|from|throughout|through|over)"
_PROJECT_WORDS = (
    r"(?:the|this|my|our|your) (?:whole |entire |current |complete |source )?"
    r"(?:project|repo|repository|code ?base|code|workspace|tree|working directory|directory|folder)"
)
_ALL_FILES = r"(?:all|every|any|each)(?: (?:of|the|my|our|project|source))* files?"
_EVERYWHERE = rf",? ?\b(?:everywhere|anywhere|globally|recursively|{_IN_WORDS} (?:{_PROJECT_WORDS}|{_ALL_FILES}|here|everything))$"
_KIND_PATTERN = (
    rf"(?:^| )(?:{_IN_WORDS}|for|among) (?:(?:all|any|every|the|my|our) )*(?P<kind>[\w.*+#]+)[ -]"
    r"(?:source |code )?(?:files?|sources?|modules?|scripts?|code)$"
)
_GLOB_PATTERN = rf"(?:^| ){_IN_WORDS} (?:all )?(?P<glob>[\w./-]*\*[\w./*-]*)$"
_BACK_REFERENCE = rf"(?:^| ){_IN_WORDS} (?:it|that|this|there|them|(?:that|this|the same|the last) (?:file|folder|directory|place|one))$"
_THING = r"(?:file|folder|directory|dir|subfolder|module|package|tree)"
_PLACE_PATTERN = rf"(?:^| ){_IN_WORDS} (?:(?:the|my|our) )?(?:{_THING} )?(?P<place>{QUOTED}|[^\s,;]+)(?: {_THING})?$"


class PlaceScope(Struct, frozen=True):
    """`rest` is what the request says without its place."""

    rest: str
    path: str = ""
    globs: tuple[str, ...] = ()
    everywhere: bool = False

    @property
    def is_given(self) -> bool:
        return bool(self.path or self.globs or self.everywhere)


def cut_scope(text: str, words: QuotedRequest) -> PlaceScope:
    """Take the place off the end of a request, up to a kind of file and a folder together."""
    scope = PlaceScope(text.strip())
    for _ in range(3):
        shorter = _cut_once(scope, words)
        if shorter is None:
            break
        scope = shorter
    return scope


def _cut_once(scope: PlaceScope, words: QuotedRequest) -> PlaceScope | None:
    text = scope.rest
    found = re.search(_EVERYWHERE, text, re.IGNORECASE)
    if found:
        return PlaceScope(text[: found.start()].rstrip(" ,"), scope.path, scope.globs, True)
    globs, start = ((), 0) if scope.globs else _find_kind_at_end(text)
    if globs:
        return PlaceScope(text[:start].rstrip(), scope.path, globs, scope.everywhere)
    if scope.path:
        return None
    found = re.search(_BACK_REFERENCE, text, re.IGNORECASE)
    if found:
        path = LAST_FILE if text.lower().endswith("file") else LAST_PLACE
        return PlaceScope(text[: found.start()].rstrip(), path, scope.globs, scope.everywhere)
    found = re.search(_PLACE_PATTERN, text, re.IGNORECASE)
    if found:
        return PlaceScope(text[: found.start()].rstrip(), words.unquote(found["place"]), scope.globs, scope.everywhere)
    return None


def _find_kind_at_end(text: str) -> tuple[tuple[str, ...], int]:
    """The globs of "in python files" or "in *.py" at the end, and where that begins."""
    found = re.search(_KIND_PATTERN, text, re.IGNORECASE)
    if found:
        if found["kind"].lower() in ("test", "tests"):
            return TEST_GLOBS, found.start()
        return tuple(f"**/*.{ending}" for ending in extensions_of(found["kind"])), found.start()
    found = re.search(_GLOB_PATTERN, text)
    return ((found["glob"],), found.start()) if found else ((), 0)


_BEFORE_A_TERM = (
    ("", r"(?:all|any|every|each|both|the|of|for|single) "),
    ("word", r"(?:uses?|usages?|references?|calls?|callers?) (?:of|to|for) "),
    ("", r"(?:number of) "),
    ("", r"(?:occurrences?|instances?|mentions?|appearances?|matches|lines?) (?:of|to|for|with|containing) "),
    (
        "",
        r"(?:words?|strings?|texts?|phrases?|terms?|symbols?|functions?|methods?|variables?|identifiers?|constants?) ",
    ),
    ("regex", r"(?:regexp?|regular expression|pattern) "),
    ("", r"(?:named|called) "),
)
"""Words around a term that are not part of it, and how they say it is meant."""


def clean_term(text: str, words: QuotedRequest) -> tuple[str, str]:
    """The bare term of "all uses of the function 'foo'", and how it is meant: "word", "regex" or ""."""
    how = ""
    fragment = text.strip()
    if re.fullmatch(r"all|(?:the|that|this|those|these) (?:term|word|text|match|matches|ones?|hits?)", fragment, re.I):
        return LAST_TERM, how
    for _ in range(6):
        before = fragment
        for meant, pattern in _BEFORE_A_TERM:
            found = re.match(rf"{pattern}(?=\S)", fragment, re.IGNORECASE)
            if found:
                fragment = fragment[found.end() :]
                how = meant or how
        if fragment == before:
            break
    if re.fullmatch(r"(?:it|them|those|these)(?: all)?|that|this", fragment, re.IGNORECASE):
        return LAST_TERM, how
    quoted = re.fullmatch(rf"({QUOTED})(?: (?:comments?|markers?|calls?|uses|lines?))?", fragment, re.IGNORECASE)
    if quoted:
        return words.unquote(quoted[1]), how
    marker = re.fullmatch(r"([A-Z_]{2,}s?) (?:comments?|markers?|notes?|tags?)", fragment)
    return to_singular(marker[1] if marker else words.unquote(fragment)), how
