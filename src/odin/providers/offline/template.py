"""Phrases written as people say them, with their variants in brackets.

    [show|list] [me] the (files|folders) in {path}

`[…]` may be left out, `(…|…)` is a choice, `{name}` is one word or one quoted text, and `files?` is file or files. More
kinds of fields: `{name:text}` any words, `{name:quoted}` a quoted text, `{name:number}`, and `{name:file}`, which also
takes "it", "that file" and "the second one"; the others are next to their patterns below. A template is compiled only
when a request begins with one of its first words.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache

from msgspec import Struct

from odin.providers.offline.quotes import QUOTED, QuotedRequest
from odin.providers.offline.task import LAST_FILE, PlannerTask, make_entry_ref

_WORD_PATTERN = rf"(?:{QUOTED}|[^\s,;]+)"
_PRONOUN_PATTERN = r"(?:it|that|this|(?:that|this|the|the same|the last) (?:file|one|script))"
_ORDINALS = {"first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5, "sixth": 6, "last": -1, "top": 1}
_ITEM_PATTERN = r"(?:one|result|match|hit|file|entry|of them|of those)"
_ENTRY_PATTERN = (
    rf"(?:the )?(?:{'|'.join(_ORDINALS)}|\d+(?:st|nd|rd|th)) {_ITEM_PATTERN}|(?:{_ITEM_PATTERN} |number )#?\d+|#\d+"
)
_NUMBERS = {
    "one": 1,
    "two": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "seven": 7,
    "eight": 8,
    "nine": 9,
    "ten": 10,
}
_FIELD_PATTERNS = {
    "": _WORD_PATTERN,
    "text": ".+?",
    "quoted": QUOTED,
    "number": rf"\d+|{'|'.join(_NUMBERS)}",
    "noun": r"(?:text )?(?:file|script|document|module|page)",
    "place": r"(?:in|inside|under|across|within|throughout) .+",
    "flags": r"-[\w-]+(?: -[\w-]+)*",
    "uses": r"(?:uses?|usages?|occurrences?|references?|mentions?|matches|callers|calls) (?:of|to|for) .+",
    "file": rf"{_PRONOUN_PATTERN}|{_ENTRY_PATTERN}|{_WORD_PATTERN}",
}


class PhraseMatch(Struct, frozen=True):
    """The fields a template found in a clause."""

    clause: str
    words: QuotedRequest
    fields: dict[str, str]

    def __getitem__(self, name: str) -> str:
        """A field without its quotes; "" when it was left out."""
        return self.words.unquote(self.fields.get(name, ""))

    def get_raw(self, name: str) -> str:
        return self.fields.get(name, "")

    def is_quoted(self, name: str) -> bool:
        return re.fullmatch(QUOTED, self.get_raw(name)) is not None

    def parse_number(self, name: str) -> int:
        word = self.get_raw(name).lower()
        return _NUMBERS.get(word) or int(word[:7] or 0)

    def get_path(self, name: str = "path") -> str:
        """The path in a field, with "it" and "the second one" kept as references."""
        word = self.get_raw(name)
        if re.fullmatch(_PRONOUN_PATTERN, word, re.IGNORECASE):
            return LAST_FILE
        if re.fullmatch(_ENTRY_PATTERN, word, re.IGNORECASE):
            digits = re.search(r"\d+", word)
            named = next((at for ordinal, at in _ORDINALS.items() if ordinal in word.lower().split()), 0)
            return make_entry_ref(int(digits[0][:4]) if digits else named)
        return self.words.unquote(word)


TaskMaker = Callable[[PhraseMatch], PlannerTask | None]


class PhraseRule(Struct, frozen=True):
    """Templates that mean the same, and what to make of them. A maker that returns None declines."""

    make: PlannerTask | TaskMaker
    templates: tuple[str, ...]


def make_rule(make: PlannerTask | TaskMaker, *templates: str) -> PhraseRule:
    return PhraseRule(make, templates)


class PhraseTable:
    """Rules in order of precedence, looked up by the first word of a clause."""

    def __init__(self, *rules: PhraseRule) -> None:
        self._rules = rules
        self._index: dict[str, list[tuple[str, PlannerTask | TaskMaker]]] = {}

    def __call__(self, clause: str, words: QuotedRequest) -> PlannerTask | None:
        if not self._index:
            self._fill_index()
        first = clause.split(maxsplit=1)[0].lower() if clause.strip() else ""
        for template, make in self._index.get(first, self._index[""]):
            found = compile_template(template).fullmatch(f" {clause}")
            if not found:
                continue
            fields = {name: value for name, value in found.groupdict().items() if value}
            task = make if isinstance(make, PlannerTask) else make(PhraseMatch(clause, words, fields))
            if task is not None:
                return task
        return None

    def _fill_index(self) -> None:
        """List under each first word the templates that can begin with it, and under "" those that take any."""
        rows = [(template, one.make, first_words_of(template)) for one in self._rules for template in one.templates]
        words = {word for _, _, starts in rows for word in starts} | {""}
        for word in words:
            self._index[word] = [(template, make) for template, make, starts in rows if starts & {word, ""}]


@cache
def compile_template(template: str) -> re.Pattern[str]:
    pattern = "".join(_render_node(node) for node in _parse_template(template))
    return re.compile(pattern, re.IGNORECASE)


@cache
def first_words_of(template: str) -> frozenset[str]:
    """The words a clause that fits can begin with, with "" for any word."""
    return frozenset(_first_words_of_nodes(_parse_template(template))[0])


TemplateNode = tuple[str, str, "list[list[TemplateNode]]"]
"""A word, a field with its kind, or a choice; the list holds the ways of a choice."""


def _parse_template(template: str) -> list[TemplateNode]:
    tokens = iter(re.findall(r"\{[^}]*\}|[\[\]()|]|[^\s\[\](){}|]+", template))
    return _parse_alternatives(tokens)[0]


def _parse_alternatives(tokens: Iterator[str]) -> list[list[TemplateNode]]:
    """The alternatives up to the bracket that closes them."""
    ways: list[list[TemplateNode]] = [[]]
    for token in tokens:
        if token in "])":
            break
        if token == "|":
            ways.append([])
        elif token in "[(":
            ways[-1].append(("optional" if token == "[" else "choice", "", _parse_alternatives(tokens)))
        elif token.startswith("{"):
            ways[-1].append(("field", token[1:-1], []))
        else:
            ways[-1].append(("word", token, []))
    return ways


def _render_node(node: TemplateNode) -> str:
    kind, text, ways = node
    if kind == "word":
        return " " + re.escape(text).replace(r"\?", "?")
    if kind == "field":
        name, _, sort = text.partition(":")
        return f" (?P<{name}>{_FIELD_PATTERNS[sort]})"
    inside = "|".join("".join(_render_node(part) for part in way) for way in ways)
    return f"(?:{inside}){'?' if kind == 'optional' else ''}"


def _first_words_of_nodes(nodes: list[TemplateNode]) -> tuple[set[str], bool]:
    """The first words of a sequence, and whether all of it may be left out."""
    found: set[str] = set()
    for kind, text, ways in nodes:
        if kind == "field":
            return found | {""}, False
        if kind == "word":
            bare = re.sub(r".\?", "", text)
            return found | {bare.lower(), text.replace("?", "").lower()}, False
        skippable = kind == "optional"
        for way in ways:
            starts, empty = _first_words_of_nodes(way)
            found |= starts
            skippable = skippable or empty
        if not skippable:
            return found, False
    return found, True
