"""Where a request looks: the "in src", "in python files", "everywhere" at its end, and the words around a search term."""

import re

from msgspec import Struct

from odin.providers.offline.quotes import QUOTED, Request
from odin.providers.offline.task import LAST_FILE, LAST_PLACE, LAST_TERM
from odin.providers.offline.vocabulary import PLACE, TEST_GLOBS, endings_of, singular

_IN = r"(?:in|inside|within|under|across|from|throughout|through|over)"
_PROJECT = (
    r"(?:the|this|my|our|your)\s+(?:whole\s+|entire\s+|current\s+|complete\s+)?"
    r"(?:project|repo|repository|code\s?base|code|workspace|source code|source tree|working directory|current directory|"
    r"directory|folder)"
)
_ALL_FILES = r"(?:all|every|any|each)(?:\s+(?:of|the|my|our|project|source))*\s+files?"
_ENDINGS_OF_SENTENCE = (
    rf",?\s*\b(?:everywhere|anywhere|globally|recursively|{_IN}\s+(?:{_PROJECT}|{_ALL_FILES}|here|everything))"
)
_KIND = r"(?:all\s+|any\s+|every\s+|the\s+|my\s+|our\s+)*(?P<kind>[\w.*+#]+)[\s-]+(?:source\s+|code\s+)?(?:files?|sources?|modules?|scripts?|code)"
_IT = r"(?:it|that|this|there|them|(?:that|this|the same|the last)\s+(?:file|folder|directory|place|one))"
_THING = r"(?:file|folder|directory|dir|subfolder|module|package|tree)"


class Scope(Struct, frozen=True):
    """`rest` is what the request says without its place."""

    rest: str
    path: str = ""
    globs: tuple[str, ...] = ()
    everywhere: bool = False

    @property
    def given(self) -> bool:
        return bool(self.path or self.globs or self.everywhere)


def cut_scope(text: str, words: Request) -> Scope:
    """Take the place off the end of a request, up to a kind of file and a folder together."""
    scope = Scope(text.strip())
    for _ in range(3):
        shorter = _cut_once(scope, words)
        if shorter is None:
            break
        scope = shorter
    return scope


def _cut_once(scope: Scope, words: Request) -> Scope | None:
    text = scope.rest
    found = re.search(rf"{_ENDINGS_OF_SENTENCE}$", text, re.IGNORECASE)
    if found:
        return Scope(text[: found.start()].rstrip(" ,"), scope.path, scope.globs, True)
    if not scope.globs:
        globs, start = _kind_at_end(text)
        if globs:
            return Scope(text[:start].rstrip(), scope.path, globs, scope.everywhere)
    if scope.path:
        return None
    found = re.search(rf"(?:^|\s){_IN}\s+{_IT}$", text, re.IGNORECASE)
    if found:
        pronoun = LAST_FILE if text.lower().endswith("file") else LAST_PLACE
        return Scope(text[: found.start()].rstrip(), pronoun, scope.globs, scope.everywhere)
    found = re.search(
        rf"(?:^|\s){_IN}\s+(?:the\s+|my\s+|our\s+)?(?:{_THING}\s+)?(?P<place>{PLACE})(?:\s+{_THING})?$",
        text,
        re.IGNORECASE,
    )
    if found:
        place = words.content(found["place"])
        return Scope(text[: found.start()].rstrip(), place, scope.globs, scope.everywhere)
    return None


def _kind_at_end(text: str) -> tuple[tuple[str, ...], int]:
    """The globs of "in python files" or "in *.py" at the end, and where that begins."""
    found = re.search(rf"(?:^|\s)(?:{_IN}|for|among)\s+{_KIND}$", text, re.IGNORECASE)
    if found:
        if found["kind"].lower() in ("test", "tests"):
            return TEST_GLOBS, found.start()
        endings = endings_of(found["kind"])
        return tuple(f"**/*.{ending}" for ending in endings), found.start()
    found = re.search(rf"(?:^|\s){_IN}\s+(?:all\s+)?(?P<glob>[\w./-]*\*[\w./*-]*)$", text)
    return ((found["glob"],), found.start()) if found else ((), 0)


_WORD_KINDS = (
    "word string text phrase term symbol function method class variable identifier constant name literal marker comment type"
).split()


def clean_term(text: str, words: Request) -> tuple[str, str]:
    """The bare term of "all uses of the function 'foo'", and how it is meant: "word", "regex" or ""."""
    how = ""
    fragment = text.strip()
    for _ in range(6):
        before = fragment
        fragment = re.sub(r"^(?:all|any|every|each|both|the|of|for|single)\s+(?=\S)", "", fragment, flags=re.IGNORECASE)
        uses = re.match(
            r"(?:uses?|usages?|references?|calls?|callers?)\s+(?:of|to|for)\s+(?=\S)", fragment, re.IGNORECASE
        )
        plain = re.match(
            r"(?:occurrences?|instances?|mentions?|appearances?|matches|lines?)\s+(?:of|to|for|with|containing)\s+(?=\S)",
            fragment,
            re.IGNORECASE,
        )
        named = re.match(rf"(?:{'|'.join(_WORD_KINDS)})s?\s+(?:named\s+|called\s+)?(?=\S)", fragment, re.IGNORECASE)
        regex = re.match(r"(?:regex(?:p)?|regular expression|pattern)\s+(?=\S)", fragment, re.IGNORECASE)
        if uses or regex:
            how = "word" if uses else "regex"
        cut = uses or plain or named or regex
        if cut:
            fragment = fragment[cut.end() :]
        if fragment == before:
            break
    if re.fullmatch(
        r"(?:it|that|them|those|this|(?:the|that|this)?\s*(?:term|word|match(?:es)?|all))", fragment, re.IGNORECASE
    ):
        return LAST_TERM, how
    quoted = re.match(rf"({QUOTED})(?:\s+(?:comments?|markers?|calls?|uses|lines?))?$", fragment, re.IGNORECASE)
    if quoted:
        return words.content(quoted[1]), how
    return singular(_without_noun(words.content(fragment))), how


def _without_noun(term: str) -> str:
    """TODO comments → TODO."""
    return re.sub(r"^([A-Z_]{2,}s?)\s+(?:comments?|markers?|notes?|tags?)$", r"\1", term)
