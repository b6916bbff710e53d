"""Looks up in one search where a project defines the words of a prompt, where it sets them, and how its tests run.

An ordinary word such as `mean` or `port` becomes a name because the project defines it.
"""

import re
from collections.abc import Collection, Iterable

from msgspec import Struct, field

from odin.providers.whole_files.project_tests import TEST_LINE

_MAX_WORDS = 16
_WORD = re.compile(r"(?<![\w./-])[A-Za-z_]\w{2,}(?![\w/]|\.\w)")
_STOP_WORDS = re.compile(
    r"the|and|for|with|that|this|these|those|from|into|its|are|was|were|has|have|had|not|but|you|your|our|can|could|would"
    r"|should|shall|must|will|may|what|which|where|when|who|why|how|does|did|done|please|then|there|here|them|they|their"
    r"|some|any|all|each|every|only|also|just|new|old|same|files?|folder|functions?|methods?|class|classes|constant"
    r"|variable|module|script|project|code|lines?|called|named|instead|about|after|before|between|inside|within|sure"
    r"|many|much|often|times|python|javascript|one|two|three|everywhere",
    re.IGNORECASE,
)
"""Words that are hardly ever names."""
_VAGUE_WORDS = re.compile(
    r"names?|values?|default|returns?|prints?|run|used?|uses|[sg]et|find|list|count|number|tests?|types?|string|words?"
    r"|defined?|definition|program|calls?|add",
    re.IGNORECASE,
)
"""Words that may be names of functions, but are no names of settings."""
_DEFINES = (
    r"^\s*(?:export\s+|default\s+|async\s+|pub\s+|static\s+|abstract\s+)*"
    r"(?:def|class|function\*?|func|const|let|var|type|fn|struct|interface|enum)\s+(?:\([^)]*\)\s*)?"
)
"""How a definition starts, up to its name."""
_SETS = r"^\s*(?:export\s+|const\s+|let\s+|var\s+|self\.|this\.)*[\"']?[\w.-]*"
_SET_END = r"[\w.-]*[\"']?\s*(?::[^=]{0,20})?[:=]"
"""How a value is set: an assignment, or a key of a configuration file, whose name contains a word."""
_FOUND = re.compile(r"^(?P<path>[^:\n]+):(?P<line>\d+):(?P<text>.*)$")


def find_words(text: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the words of a prompt that the project may define: `names` are certain ones, the others just words."""
    plain = (word for word in _WORD.findall(text) if not _STOP_WORDS.fullmatch(word))
    known = (name for name in names if re.fullmatch(r"[A-Za-z_]\w+", name))
    return tuple(dict.fromkeys((*known, *plain)))[:_MAX_WORDS]


def build_lookup(words: Collection[str], *, with_values: bool) -> str:
    """Return the pattern of the one search. `with_values`: lines that set a value named like a word, too."""
    parts = [TEST_LINE]
    if words:
        parts.append(f"{_DEFINES}(?:{'|'.join(words)})\\b")
    telling = [word for word in words if not _VAGUE_WORDS.fullmatch(word)]
    if telling and with_values:
        parts.append(f"(?i:{_SETS}(?:{'|'.join(telling)}){_SET_END})")
    return "|".join(parts)


class LookupHits(Struct):
    """What the search found: `path:line` of each definition, the files that set a value, the lines about tests."""

    definitions: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    setters: list[str] = field(default_factory=list[str])
    test_lines: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def has_leads(self) -> bool:
        """True if the project defines or sets something that the prompt names."""
        return bool(self.definitions or self.setters)

    def add_lines(self, lines: Iterable[str], words: Collection[str]) -> None:
        defines = re.compile(f"{_DEFINES}({'|'.join(words)})\\b") if words else None
        is_about_tests = re.compile(TEST_LINE)
        for found in filter(None, map(_FOUND.match, lines)):
            path, text = found["path"], found["text"]
            if defined := defines.match(text) if defines else None:
                self.definitions.setdefault(defined[1], []).append(f"{path}:{found['line']}")
            if is_about_tests.search(text):
                self.test_lines[path] = f"{self.test_lines.get(path, '')}{text}\n"
            elif not defined and path not in self.setters:
                self.setters.append(path)

    def find_defining_files(self) -> dict[str, list[str]]:
        """Return the files that define each word."""
        return {
            word: list(dict.fromkeys(place.rpartition(":")[0] for place in places))
            for word, places in self.definitions.items()
        }
