"""Corrects what a small model adds to a Markdown file: sections in the wrong place, and items copied from others."""

import re

from odin.providers.whole_files.change_words import is_adding
from odin.providers.whole_files.file_outline import Part, join_outline, read_outline, strip_blank

_MARKDOWN = (".md", ".mdx", ".markdown")
_ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+(.+)")
_PLACES = (
    (re.compile(r"\bbetween\s+(?:the\s+)?(?:sections?\s+)?(?P<name>.+?)\s+and\s", re.IGNORECASE), 1),
    (
        re.compile(
            r"\b(?:right\s+|directly\s+)?(?:after|below)\s+(?:the\s+)?(?:section\s+|heading\s+)?(?P<name>.+)", re.I
        ),
        1,
    ),
    (
        re.compile(
            r"\b(?:right\s+|directly\s+)?(?:before|above)\s+(?:the\s+)?(?:section\s+|heading\s+)?(?P<name>.+)", re.I
        ),
        0,
    ),
)
"""Where a prompt wants a section, and how far that is from the section it names."""


def correct_additions(path: str, new: str, old: str, prompt: str) -> str:
    """Return a Markdown file whose new section is where the prompt says, without items copied from other sections."""
    before = read_outline(path, old) if path.endswith(_MARKDOWN) and is_adding(prompt, is_code=False) else None
    parts = read_outline(path, new) if before else None
    if not before or not parts:
        return new
    changed = _drop_copies(before, parts, prompt)
    placed = _place_section(before, parts, prompt)
    return join_outline(placed or parts) if changed or placed else new


def _drop_copies(before: list[Part], parts: list[Part], prompt: str) -> bool:
    """Remove the items that a section got from another one, which still has them."""
    known = {part.name: part.lines for part in before}
    changed = False
    for part in parts:
        others = [line for one in parts if one is not part for line in one.lines if line in known.get(one.name, ())]
        copies = [
            line
            for line in part.lines
            if (item := _ITEM.match(line))
            and part.name in known
            and line not in known[part.name]
            and line in others
            and item[1].rstrip(".").casefold() not in prompt.casefold()
        ]
        part.lines = [line for line in part.lines if line not in copies]
        changed = changed or bool(copies)
    return changed


def _place_section(before: list[Part], parts: list[Part], prompt: str) -> list[Part]:
    """Return the sections in the order that the prompt asks for; none if it does not say, or they are in it."""
    names = {part.name for part in before}
    added = [part for part in parts if part.name and part.name not in names]
    if len(added) != 1:
        return []
    clause = re.split(r"\bwith\b|\bthat\b|\bsaying\b|\bwhich\b|[.:](?:\s|$)", prompt)[0]
    for place, step in _PLACES:
        found = place.search(clause)
        target = _find_section(parts, found["name"]) if found else None
        if target is not None and target is not added[0]:
            rest = [part for part in parts if part is not added[0]]
            at = rest.index(target) + step
            while step and at < len(rest) and _level_of(rest[at]) > _level_of(added[0]):
                at += 1
            ordered = [*rest[:at], added[0], *rest[at:]]
            return [] if ordered == parts else _separate_sections(ordered)
    return []


def _level_of(part: Part) -> int:
    """Return how deep the heading of a section is; 9 for what has none."""
    return len(part.first) - len(part.first.lstrip("#")) or 9


def _find_section(parts: list[Part], words: str) -> Part | None:
    """Return the section whose heading the words of a prompt start with."""
    said = re.sub(r"^[\W_]+", "", words).casefold()
    titles = [(re.sub(r"^[#\s]+", "", part.first).strip().casefold(), part) for part in parts if part.name]
    fitting = [(title, part) for title, part in titles if title and re.match(rf"{re.escape(title)}\b", said)]
    return max(fitting, key=lambda one: len(one[0]))[1] if fitting else None


def _separate_sections(parts: list[Part]) -> list[Part]:
    for part in parts:
        part.lines = [*strip_blank(part.lines), *([] if part is parts[-1] else [""])]
    return parts
