"""The form of a summary: fixed headings, so that whoever goes on finds everything in its place."""

import re

from odin.context.size import tokens_of

HEADINGS = (
    "Goal",
    "User Constraints",
    "Progress",
    "Key Decisions",
    "Files and Evidence",
    "Todo State",
    "SubAgent State",
    "Open Problems",
    "Next Step",
)

MIN_HEADINGS = 6
"""A summary with fewer of its headings than this is none."""

EMPTY_SECTION = "(none)"


def parse_sections(text: str) -> dict[str, str]:
    """What stands under each heading. Headings are found in any case, with or without marks around them."""
    names = {name.lower(): name for name in HEADINGS}
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in text.splitlines():
        name = names.get(re.sub(r"^[\s#*\d.)]+|[\s*:]+$", "", line).lower())
        if name is not None:
            current = found.setdefault(name, [])
        elif current is not None:
            current.append(line)
    return {name: "\n".join(lines).strip() for name, lines in found.items()}


def render_sections(parts: dict[str, str]) -> str:
    """All headings in their order; what is missing is said to be."""
    return "\n\n".join(f"## {name}\n{parts.get(name, '').strip() or EMPTY_SECTION}" for name in HEADINGS)


def find_weakness(text: str, most: int) -> str:
    """Why an answer is no summary to go on with, or ""."""
    if not text.strip():
        return "it was empty"
    found = parse_sections(text)
    if len(found) < MIN_HEADINGS:
        return f"only {len(found)} of {len(HEADINGS)} headings were there"
    if not any(found.get(name) for name in ("Goal", "Progress", "Next Step")):
        return "it said nothing under its headings"
    if tokens_of(text) > most:
        return "it was too long"
    return ""
