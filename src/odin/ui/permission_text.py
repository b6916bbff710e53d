"""What a permission request shows, in plain mode and the app.

Homoglyphs get a warning: someone who allows `gіt` (with a Cyrillic letter) should know that it is not git.
"""

import re

import msgspec

from odin.core.call_events import PermissionAnswered, PermissionAsked
from odin.core.policy import Danger
from odin.core.tool import user_name_of
from odin.ui.terminal import escape_hidden, quote_block, shorten

_MAX_NAMED = 3
_MAX_TITLE = 150
"""A longer title is cut, and the request shows the whole path below it."""

_HOMOGLYPHS = dict.fromkeys("аеорсухіјѕԁһӏԛԝкмтнвгпАВЕКМНОРСТХІЅЈЗαορνικυχτεωγΑΒΕΖΗΙΚΜΝΟΡΤΥΧıȷɡɑǃ", True)
"""Letters of other scripts that look like Latin letters."""

_WORD_PATTERN = re.compile(r"\w+")
_HOMOGLYPH_SIGN = re.compile(
    "[\u037e\u0387\u055d\u0589\u05c3\u2024\u2039\u203a\u2044"
    "\u204e\u2052-\u2053\u2212\u2215-\u2217\u2223\u2236\u223c\u223d\u2571-\u2573\u27cb\u27cd\u29f5\u29f8\u29f9\u2cf9"
    "\ua4f8\ua789\ufe50-\ufe6b\uff01-\uff5e\U0001d400-\U0001d7ff]"
)
"""Characters that look like shell or path syntax, and styled Latin alphabets."""


DANGER_WORDS: dict[Danger, str] = {
    "harmless": "harmless",
    "changes_files": "changes files",
    "network": "network",
    "outside_project": "outside the project",
    "hard_to_undo": "hard to undo",
    "credentials": "credentials",
}
"""How dangerous a call is, as shown to the user."""

_OUTSIDE = ", outside the project."
"""The end of a sentence about paths; the danger level says the same."""

_MAX_TASK = 60
"""Characters of a sub-agent's task in a headline."""


def format_headline(ask: PermissionAsked, agent: str = "") -> str:
    """Return what the request is about: the tool and its file, or the model's description of a command."""
    title = escape_hidden(ask.title or user_name_of(ask.name))
    if ask.unsandboxed:
        title = "Run this again outside the sandbox"
    elif description := describe_command(ask):
        title = f"{title}: {escape_hidden(description)}"
    title = shorten(title, _MAX_TITLE)
    if not agent:
        return title
    task = f" ({shorten(' '.join(escape_hidden(ask.task).split()), _MAX_TASK)})" if ask.task else ""
    return f"{escape_hidden(agent)}{task} asks: {title}"


def describe_command(ask: PermissionAsked) -> str:
    """Return the model's description of a command as one line, or ""."""
    description = ask.args.get("description")
    return " ".join(description.split()) if isinstance(description, str) and "command" in ask.args else ""


def subject_of(ask: PermissionAsked) -> str:
    return ask.subject or msgspec.json.encode(ask.args).decode()


def format_subject(ask: PermissionAsked, columns: int) -> list[str]:
    """Return the command, URL or paths of the request; a single file is named by the headline.

    Paths that need an answer are listed apart from those already allowed.
    """
    paths = (*ask.asked_paths, *ask.allowed_paths)
    if len(paths) < 2:
        return [] if _is_named_by_title(ask) else quote_block(subject_of(ask), columns)
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


def _is_named_by_title(ask: PermissionAsked) -> bool:
    """True if the title ends with the file that the request is about, and is shown as a whole."""
    if len(escape_hidden(ask.title)) > _MAX_TITLE:
        return False
    _, _, name = ask.title.partition(" ")
    name = name.removeprefix("file ")
    return bool(name) and (ask.subject == name or ask.subject.endswith(f"/{name}"))


def format_effect(ask: PermissionAsked) -> str:
    """Return what the call would do, as far as the headline does not say it; "" for an edited call."""
    if _is_named_by_title(ask) and ask.danger in ("changes_files", "outside_project", "network"):
        return ""
    effect = escape_hidden(ask.effect)
    return effect.replace(_OUTSIDE, ".") if ask.danger == "outside_project" else effect


def list_circumstances(ask: PermissionAsked) -> list[str]:
    """Return the reason of the request unless its effect says the same, and homoglyph warnings."""
    is_outside_told = ask.danger == "outside_project" or _OUTSIDE in ask.effect
    is_told = ask.reason == ask.effect or (is_outside_told and "outside the project" in ask.reason)
    lines = [escape_hidden(ask.reason)] if ask.reason and not is_told else []
    return lines + warn_of_homoglyphs(subject_of(ask))


def describe_confinement(ask: PermissionAsked) -> str:
    """Return the sandbox that the command would run in and what approval lets it do besides, as a sentence, or ""."""
    if not ask.sandbox or ask.unsandboxed:
        return ""
    grants = ["use the network"] if ask.granted_network and not ask.sandbox.endswith("network on") else []
    grants += [f"write {escape_hidden(', '.join(ask.granted_paths))}"] if ask.granted_paths else []
    besides = f"; if you allow it, it may {' and '.join(grants)}" if grants and not _is_unconfined(ask) else ""
    return f"It would run in {escape_hidden(ask.sandbox)}{besides}."


def _is_unconfined(ask: PermissionAsked) -> bool:
    return ask.sandbox.startswith("no sandbox")


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
