"""What a permission request shows, and the tool arguments that the user may edit in it; for plain mode and the app.

Homoglyphs get a warning: someone who allows `gіt` (with a Cyrillic letter) should know that it is not git.
"""

import re
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from odin.core.call_events import PermissionAnswered, PermissionAsked
from odin.core.errors import UsageError
from odin.ui.terminal import escape_hidden, quote_block, shorten

_MAX_NAMED = 3
_HOMOGLYPHS = dict.fromkeys("аеорсухіјѕԁһӏԛԝкмтнвгпАВЕКМНОРСТХІЅЈЗαορνικυχτεωγΑΒΕΖΗΙΚΜΝΟΡΤΥΧıȷɡɑǃ", True)
"""Letters of other scripts that look like Latin letters."""

_WORD_PATTERN = re.compile(r"\w+")
_HOMOGLYPH_SIGN = re.compile(
    "[\u037e\u0387\u055d\u0589\u05c3\u2024\u2039\u203a\u2044"
    "\u204e\u2052-\u2053\u2212\u2215-\u2217\u2223\u2236\u223c\u223d\u2571-\u2573\u27cb\u27cd\u29f5\u29f8\u29f9\u2cf9"
    "\ua4f8\ua789\ufe50-\ufe6b\uff01-\uff5e\U0001d400-\U0001d7ff]"
)
"""Characters that look like shell or path syntax, and styled Latin alphabets."""


MAX_TASK = 60
"""Characters of a sub-agent's task in a headline."""


def format_headline(ask: PermissionAsked, agent: str = "") -> str:
    task = f" ({shorten(' '.join(escape_hidden(ask.task).split()), MAX_TASK)})" if ask.task else ""
    asker = f"The sub-agent {escape_hidden(agent)}{task}" if agent else "Odin"
    action = "run this again outside the sandbox" if ask.unsandboxed else f"use {escape_hidden(ask.name)}"
    return f"{asker} asks to {action}:"


def subject_of(ask: PermissionAsked) -> str:
    return ask.subject or msgspec.json.encode(ask.args).decode()


def format_subject(ask: PermissionAsked, columns: int) -> list[str]:
    """Return the subject of the request, with paths that need an answer apart from those already allowed."""
    paths = (*ask.asked_paths, *ask.allowed_paths)
    if len(paths) < 2:
        return quote_block(subject_of(ask), columns)
    lines: list[str] = []
    if sorted(paths) != sorted(subject_of(ask).split(", ")):
        lines += quote_block(subject_of(ask), columns)
    if ask.asked_paths:
        if lines or ask.allowed_paths:
            lines.append("Needs your answer:")
        lines += quote_block("\n".join(ask.asked_paths), columns)
    if ask.allowed_paths:
        lines += ["Allowed already:", *quote_block("\n".join(ask.allowed_paths), columns)]
    return lines


def list_circumstances(ask: PermissionAsked) -> list[str]:
    """Return the reason of the request, homoglyph warnings, and the sandbox."""
    lines = [escape_hidden(ask.reason)] if ask.reason else []
    lines += warn_of_homoglyphs(subject_of(ask))
    if ask.sandbox and not ask.unsandboxed:
        lines.append(f"It would run in {escape_hidden(ask.sandbox)}.")
    return lines


def list_offered_rules(ask: PermissionAsked) -> tuple[str, ...]:
    """Return the rules that can be offered: those that print exactly as they will be stored."""
    return () if ask.unsandboxed else tuple(rule for rule in ask.rules if escape_hidden(rule) == rule)


def describe_answer_elsewhere(answered: PermissionAnswered) -> str:
    """Return who answered a request that was on the screen; "" if it was canceled, which the session reports."""
    if answered.by in ("interrupt", "shutdown", "timeout", "steer"):
        return ""
    verdict = "allowed" if answered.allowed else "denied"
    return f"This was answered elsewhere: {verdict} by {escape_hidden(answered.by)}."


def warn_of_homoglyphs(text: str) -> list[str]:
    """Return a warning that names the homoglyphs, if any. Words entirely in another script are fine."""
    if text.isascii():
        return []
    found = dict.fromkeys(sign for sign in _HOMOGLYPH_SIGN.findall(text))
    for word in _WORD_PATTERN.findall(text):
        if not word.isascii() and any(char.isascii() and char.isalpha() for char in word):
            found.update((char, None) for char in word if char in _HOMOGLYPHS)
    if not found:
        return []
    names = [_describe_character(char) for char in list(found)[:_MAX_NAMED]]
    more = f" and {len(found) - _MAX_NAMED} more" if len(found) > _MAX_NAMED else ""
    return [f"Warning: it contains characters that look like others: {', '.join(names)}{more}."]


def _describe_character(char: str) -> str:
    import unicodedata

    name = unicodedata.name(char, "").lower() or "a letter without a name"
    return f"{char} is {name} (U+{ord(char):04X})"


def format_arguments(args: Mapping[str, Any]) -> str:
    return msgspec.json.format(msgspec.json.encode(args), indent=2).decode() + "\n"


def parse_edited_arguments(text: str) -> dict[str, Any]:
    """Parse the edited JSON object. Raise UsageError."""
    try:
        args = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise UsageError(f"Invalid JSON: {error}.") from None
    if not isinstance(args, dict):
        raise UsageError("The arguments must be a JSON object.")
    return cast("dict[str, Any]", args)


def summarize_change(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return "changed" and the names of the changed arguments, or ""."""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return f"changed {', '.join(names)}" if names else ""
