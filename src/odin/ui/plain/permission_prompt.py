"""Text of permission requests, for plain mode and the app and parsing of the answers. Does no input or output itself.

It warns of homoglyphs: someone who allows `gіt` (with a Cyrillic letter) should know that it is not git.
"""

import re
from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from odin.core.call_events import PermissionAnswered, PermissionAsked
from odin.core.policy import RememberScope
from odin.ui.terminal import escape_control, escape_hidden, quote_block, shorten, wrap_words

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
    return [f"Look twice: it has letters or signs that look like others: {', '.join(names)}{more}."]


def _describe_character(char: str) -> str:
    import unicodedata

    name = unicodedata.name(char, "").lower() or "a letter without a name"
    return f"{char} is {name} (U+{ord(char):04X})"


PREVIEW_LINES = 24
_PREVIEW_COLUMNS = 150
_MIN_PREVIEW_LINES = 6
_PROMPT_ROWS = 2

_SCOPE_KEYS: dict[str, RememberScope] = {
    "s": "session",
    "session": "session",
    "p": "project",
    "project": "project",
    "u": "user",
    "user": "user",
}

_YES_WORDS = ("y", "yes")
_NO_WORDS = ("", "n", "no")
_ALMOST_YES_WORDS = frozenset(("y", "yes", "yep", "yeah", "ok", "okay", "sure", "allow", "allowed", "always", "go"))

PermissionAct = Literal["allow", "deny", "remember", "forbid", "edit", "view", "help", "unclear"]


class PermissionReply(Struct, frozen=True):
    """A parsed answer. `words` is the reason of a denial, or the message if `act` is unclear; `scope` is the rule's."""

    act: PermissionAct
    words: str = ""
    scope: RememberScope = "session"


def list_offered_rules(ask: PermissionAsked) -> tuple[str, ...]:
    """Return the rules that can be offered: those that print exactly as they will be stored."""
    return () if ask.unsandboxed else tuple(rule for rule in ask.rules if escape_hidden(rule) == rule)


# --- text ---


def format_permission_question(ask: PermissionAsked, agent: str = "", columns: int = 80, rows: int = 50) -> str:
    """Return the whole request: who asks, for what, why, and in which sandbox."""
    lines = [
        format_headline(ask, agent),
        *format_subject(ask, columns),
        *(wrap_words(line, columns) for line in list_circumstances(ask)),
    ]
    room = rows - sum(line.count("\n") + 1 for line in lines) - _PROMPT_ROWS - 3
    lines += format_preview(ask.preview, max(min(room, PREVIEW_LINES), _MIN_PREVIEW_LINES), columns)
    return "\n".join(lines) + "\n"


def format_headline(ask: PermissionAsked, agent: str = "") -> str:
    who = f"The sub-agent {escape_hidden(agent)}" if agent else "Odin"
    what = "run this again outside the sandbox" if ask.unsandboxed else f"use {escape_hidden(ask.name)}"
    return f"{who} asks to {what}:"


def list_circumstances(ask: PermissionAsked) -> list[str]:
    """Return the reason of the request, homoglyph warnings, and the sandbox."""
    lines = [escape_hidden(ask.reason)] if ask.reason else []
    lines += warn_of_homoglyphs(subject_of(ask))
    if ask.sandbox and not ask.unsandboxed:
        lines.append(f"It would run in {escape_hidden(ask.sandbox)}.")
    return lines


def warn_if_too_tall(shown: str, rows: int) -> str:
    """Return a warning if the start of the request has scrolled off the screen."""
    return (
        ""
        if shown.count("\n") + _PROMPT_ROWS <= rows
        else "This does not fit on the screen: scroll up to see it all.\n"
    )


def format_permission_prompt(ask: PermissionAsked) -> str:
    """Return the input prompt, with the keys that add a rule above it."""
    if ask.unsandboxed:
        return "Run it without the sandbox? [y]es, [n]o, or say why not: "
    lasting = (
        "Always allow in this [s]ession, [p]roject or for this [u]ser; always [d]eny.\n"
        if list_offered_rules(ask)
        else ""
    )
    return f"{lasting}Allow it? [y]es, [e]dit, [v]iew all, [?] help, [n]o, or say why not: "


def format_permission_help(ask: PermissionAsked) -> str:
    lines = ["y    allow once"]
    if list_offered_rules(ask):
        lines += [
            "s    allow and add a rule for this session, which is shown first",
            "p    allow and add a rule for this project",
            "u    allow and add a rule for all projects",
            "d    deny and add a rule",
        ]
    if not ask.unsandboxed:
        lines.append("e    edit the arguments first, in $EDITOR or on this line")
    lines += [
        "v    view the whole call",
        "n    deny; text after n, or any other text, is the reason for the model",
    ]
    return "\n".join(f"  {line}" for line in lines) + "\n"


def format_all_details(ask: PermissionAsked, columns: int = 80) -> str:
    args = msgspec.json.format(msgspec.json.encode(ask.args), indent=2).decode()
    lines = [
        f"Arguments of {escape_hidden(ask.name)}:",
        *quote_block(args, columns),
        *format_preview(ask.preview, 0, columns),
    ]
    return "\n".join(lines) + "\n"


def subject_of(ask: PermissionAsked) -> str:
    return ask.subject or msgspec.json.encode(ask.args).decode()


def format_preview(text: str, limit: int, columns: int = 80) -> list[str]:
    """Return the changes as at most `limit` lines, and how much is missing. 0 means no limit."""
    if not text:
        return []
    lines = text.rstrip("\n").split("\n")
    if not limit:
        return ["What would change:", *quote_block("\n".join(lines), columns)]
    shown = [shorten(line, _PREVIEW_COLUMNS) for line in lines[:limit]]
    missing = [f"  … {len(lines) - limit} more lines; v shows them"] if len(lines) > limit else []
    missing += ["  … long lines are cut; v shows them"] if shown != lines[:limit] else []
    return ["What would change:", *quote_block("\n".join(shown), columns), *missing]


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


def format_rule_choice(rules: Sequence[str], wording: str) -> str:
    """Return the offered rules exactly as they would be stored."""
    lines = [f"{wording}:", *(f"  {number}. {rule}" for number, rule in enumerate(rules, 1))]
    which = f"1 to {len(rules)}, Enter for 1" if len(rules) > 1 else "Enter for yes"
    return "\n".join([*lines, f"{which}, [e]dit the rule, [b]ack: "])


def describe_answer_elsewhere(answered: PermissionAnswered) -> str:
    """Return who answered a request that was on the screen; "" if it was canceled, which the session reports."""
    if answered.by in ("interrupt", "shutdown", "timeout", "steer"):
        return ""
    verdict = "allowed" if answered.allowed else "denied"
    return f"This was answered elsewhere: {verdict} by {escape_hidden(answered.by)}."


# --- parsing ---


def parse_reply(ask: PermissionAsked, typed: str) -> PermissionReply:
    """Parse a typed line. The end of input denies; a stray key asks again and never allows."""
    line = typed.strip()
    word = line.casefold()
    if word in _YES_WORDS:
        return PermissionReply("allow")
    if word in _NO_WORDS:
        return PermissionReply("deny")
    if escape_control(line) != line:
        return PermissionReply("unclear", "The line contains control characters.")
    key = _parse_key(ask, word)
    if key is not None:
        return key
    if len(line) <= 2:
        return PermissionReply("unclear", f"Unknown answer {line!r}; ? lists the keys.")
    first = word.replace(",", " ").split()[0]
    if first in _ALMOST_YES_WORDS:
        return PermissionReply("unclear", "Type only y or yes to allow. To deny with this reason, start it with n.")
    return PermissionReply("deny", line[1:].strip() if word.startswith("n ") else line)


def _parse_key(ask: PermissionAsked, word: str) -> PermissionReply | None:
    """Parse the keys besides yes and no, if they are offered."""
    if word in ("?", "h", "help"):
        return PermissionReply("help")
    if word in ("v", "view"):
        return PermissionReply("view")
    if ask.unsandboxed:
        return (
            PermissionReply("unclear", "This can only be allowed once or denied: y or n.")
            if word in _REMEMBER_KEYS
            else None
        )
    if word in ("e", "edit"):
        return PermissionReply("edit")
    if word in _REMEMBER_KEYS and not list_offered_rules(ask):
        return PermissionReply("unclear", "No rule can cover this: y allows it once, n denies it.")
    if word in _SCOPE_KEYS:
        return PermissionReply("remember", scope=_SCOPE_KEYS[word])
    return PermissionReply("forbid") if word in ("d", "deny") else None


_REMEMBER_KEYS = frozenset((*_SCOPE_KEYS, "d", "deny", "e", "edit"))


def parse_scope(typed: str) -> RememberScope | None:
    """Parse the scope of a deny rule; Enter means this session."""
    word = typed.strip().casefold()
    return "session" if not word and typed else _SCOPE_KEYS.get(word)


def parse_rule_number(typed: str, count: int) -> int | None:
    """Return the index of the chosen rule, or None."""
    word = typed.strip().casefold()
    if typed and (not word or (count == 1 and word in _YES_WORDS)):
        return 0
    return int(word) - 1 if word.isdecimal() and len(word) < 4 and 1 <= int(word) <= count else None
