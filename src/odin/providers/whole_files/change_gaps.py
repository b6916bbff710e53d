"""Finds what a change has left out although the prompt says it exactly: other uses of a renamed name, a new value."""

import re
from collections.abc import Iterable

from msgspec import Struct

from odin.providers.whole_files.turn_history import FoundLine, TurnFacts

_NAME = r"[`\"']?([A-Za-z_$][\w$]*)(?:\(\))?[`\"']?"
_KIND = r"(?:the\s+)?(?:(?:function|method|class|constant|type|struct|interface|variable|helper|name of)\s+)*"
_RENAME = re.compile(
    rf"\brenam(?:e|ing)\s+{_KIND}{_NAME}(?:\s+(?:function|method|class|constant))?"
    rf"(?:\s+(?:in|of|from)\s+[\w./]+)?\s+(?:to|into|as)\s+{_NAME}(?![\w./])"
    rf"|\bchange\s+the\s+name\s+of\s+{_KIND}{_NAME}\s+(?:to|into)\s+{_NAME}(?![\w./])"
    rf"|{_NAME}\s+should\s+be\s+(?:called|named|renamed to)\s+{_NAME}(?![\w./])",
    re.IGNORECASE,
)
"""`rename X to Y` in its usual forms, for names without a dot. Parameters are names in one function."""
_EVERYWHERE = re.compile(
    r"\beverywhere\b|\b(?:all|every|each)\s+(?:\w+\s+)?(?:files?|uses?|usages?|callers?|occurrences?|places?)\b"
    r"|\b(?:whole|entire)\s+project\b|\bthroughout\b",
    re.IGNORECASE,
)
_TEXT = (".md", ".txt", ".rst", ".adoc")
_SET_VALUE = re.compile(
    r"\b(?:set|change|bump|update|raise|lower|increase|decrease|reduce)\b[^.\n]*?\bto\s+[`\"']?(\d+(?:[._]\d+)*)(?!\w)",
    re.IGNORECASE,
)
"""`set limit to 750`, `bump the version to 1.1.0`: the number is in the file afterwards."""
_MAX_NAMED = 6


class Rename(Struct, frozen=True):
    """A name that the prompt wants to be replaced. `everywhere`: in texts, too."""

    old: str
    new: str
    everywhere: bool

    @property
    def is_certain(self) -> bool:
        """True if the old name is written like code, so that each place where it occurs means it."""
        return re.search(r"_|\d|[a-z][A-Z]|^[A-Z]+$", self.old) is not None


def find_rename(prompt: str) -> Rename | None:
    """Return what the prompt renames, if it says so in so many words."""
    found = _RENAME.search(prompt)
    if found is None:
        return None
    old, new = [name for name in found.groups() if name]
    return Rename(old, new, _EVERYWHERE.search(prompt) is not None) if old != new else None


def list_leftovers(rename: Rename, found: Iterable[FoundLine], named: Iterable[str]) -> list[FoundLine]:
    """Return the lines that still use the old name. Files that the prompt names limit it, unless it says everywhere."""
    limits = () if rename.everywhere else tuple(named)
    word = re.compile(rf"(?<![\w$]){re.escape(rename.old)}(?![\w$])")
    in_code = rf"(?<![\w$.]){re.escape(rename.old)}\s*\(|\b(?:import|require)\b.*{word.pattern}"
    use = word if rename.is_certain else re.compile(in_code)
    return [
        line
        for line in found
        if use.search(line.text)
        and (rename.everywhere or not line.path.endswith(_TEXT))
        and (not limits or line.path in limits)
    ]


def replace_name(text: str, rename: Rename) -> str:
    return re.sub(rf"(?<![\w$]){re.escape(rename.old)}(?![\w$])", rename.new, text)


def describe_leftovers(rename: Rename, leftovers: list[FoundLine]) -> str:
    places = ", ".join(f"{line.path}:{line.number}" for line in leftovers[:_MAX_NAMED])
    return f"{rename.old} still occurs in {places}. Change these files, too." if leftovers else ""


def describe_missing_value(prompt: str, facts: TurnFacts) -> str:
    """Return which number of the prompt is in none of the files that were changed, or ""."""
    found = _SET_VALUE.search(prompt)
    texts = [facts.files.get(path, "").replace("_", "") for path in (*facts.changed, *facts.created)]
    if found is None or not texts or any(found[1].replace("_", "") in text for text in texts):
        return ""
    return f"{found[1]} is not in {', '.join(dict.fromkeys((*facts.changed, *facts.created)))}."
