"""Letters that pass for others: a person who allows `gіt` should know that it is not git.

The permission question as a person sees it, and what a typed answer means. Nothing here reads or writes anything.
"""

import re
from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from odin.core.event import PermissionAnswered, PermissionAsked
from odin.core.policy import RememberScope
from odin.ui.terminal import escape_control, escape_hidden, quote_block, shorten, wrap_words

_MAX_NAMED = 3
_HOMOGLYPHS = dict.fromkeys("аеорсухіјѕԁһӏԛԝкмтнвгпАВЕКМНОРСТХІЅЈЗαορνικυχτεωγΑΒΕΖΗΙΚΜΝΟΡΤΥΧıȷɡɑǃ", True)
"""Of the scripts beside the Latin one: what has the shape of a Latin letter."""

_WORD_PATTERN = re.compile(r"\w+")
_HOMOGLYPH_SIGN = re.compile(
    "[\u037e\u0387\u055d\u0589\u05c3\u2024\u2039\u203a\u2044"
    "\u204e\u2052-\u2053\u2212\u2215-\u2217\u2223\u2236\u223c\u223d\u2571-\u2573\u27cb\u27cd\u29f5\u29f8\u29f9\u2cf9"
    "\ua4f8\ua789\ufe50-\ufe6b\uff01-\uff5e\U0001d400-\U0001d7ff]"
)
"""Signs that look like those of a shell or a path, and whole alphabets in the shape of the Latin one."""


def warn_of_homoglyphs(text: str) -> list[str]:
    """A warning that names them, or nothing. Words that are wholly of another script are just words."""
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
    """What a person wants. `words` is the reason of a no, or what was not understood; `scope` how long it is kept."""

    act: PermissionAct
    words: str = ""
    scope: RememberScope = "session"


def list_offered_rules(ask: PermissionAsked) -> tuple[str, ...]:
    """The rules a person may take over: those that are on the screen exactly as they will be remembered."""
    return () if ask.unsandboxed else tuple(rule for rule in ask.rules if escape_hidden(rule) == rule)


# --- what is shown ---


def format_permission_question(ask: PermissionAsked, agent: str = "", columns: int = 80, rows: int = 50) -> str:
    """What a person decides on: who asks, everything it is about, why, and where it would run."""
    lines = [
        format_headline(ask, agent),
        *format_subject(ask, columns),
        *(wrap_words(line, columns) for line in list_circumstances(ask)),
    ]
    room = rows - sum(line.count("\n") + 1 for line in lines) - _PROMPT_ROWS - 3
    lines += format_preview(ask.preview, max(min(room, PREVIEW_LINES), _MIN_PREVIEW_LINES), columns)
    return "\n".join(lines) + "\n"


def format_headline(ask: PermissionAsked, agent: str = "") -> str:
    """Who asks for what."""
    who = f"The sub-agent {escape_hidden(agent)}" if agent else "Odin"
    what = "run this again outside the sandbox" if ask.unsandboxed else f"use {escape_hidden(ask.name)}"
    return f"{who} asks to {what}:"


def list_circumstances(ask: PermissionAsked) -> list[str]:
    """Why it is asked, what in it is not what it looks like, and where it would run."""
    lines = [escape_hidden(ask.reason)] if ask.reason else []
    lines += warn_of_homoglyphs(subject_of(ask))
    if ask.sandbox and not ask.unsandboxed:
        lines.append(f"It would run in {escape_hidden(ask.sandbox)}.")
    return lines


def warn_if_too_tall(shown: str, rows: int) -> str:
    """A warning when the beginning of a question has left the screen by the time it is answered."""
    return "" if shown.count("\n") + _PROMPT_ROWS <= rows else "This did not fit on the screen: it begins further up.\n"


def format_permission_prompt(ask: PermissionAsked) -> str:
    """The line behind which the answer is typed, and above it how to make the answer last."""
    if ask.unsandboxed:
        return "Run it without the sandbox? [y]es, [n]o, or say why not: "
    lasting = (
        "Remember a yes for this [s]ession, [p]roject or [u]ser; [d]eny for good.\n" if list_offered_rules(ask) else ""
    )
    return f"{lasting}Allow it? [y]es, [e]dit, [v]iew all, [?] help, [n]o, or say why not: "


def format_permission_help(ask: PermissionAsked) -> str:
    """What the keys do."""
    lines = ["y    allow it this once"]
    if list_offered_rules(ask):
        lines += [
            "s    allow it and remember a rule for this session; you see it first",
            "p    the same, for this project",
            "u    the same, for all your projects",
            "d    deny it and remember that",
        ]
    if not ask.unsandboxed:
        lines.append("e    change the arguments first, in $EDITOR or on this line")
    lines += [
        "v    show everything there is to know about the call",
        "n    deny it; n and some words, or just words, deny it and tell the model why",
    ]
    return "\n".join(f"  {line}" for line in lines) + "\n"


def format_all_details(ask: PermissionAsked, columns: int = 80) -> str:
    """All arguments and the whole preview."""
    args = msgspec.json.format(msgspec.json.encode(ask.args), indent=2).decode()
    lines = [
        f"Arguments of {escape_hidden(ask.name)}:",
        *quote_block(args, columns),
        *format_preview(ask.preview, 0, columns),
    ]
    return "\n".join(lines) + "\n"


def subject_of(ask: PermissionAsked) -> str:
    return ask.subject or msgspec.json.encode(ask.args).decode()


def format_preview(text: str, most: int, columns: int = 80) -> list[str]:
    """What would change, and how much of it is not shown here. `most` 0 is all of it."""
    if not text:
        return []
    lines = text.rstrip("\n").split("\n")
    if not most:
        return ["What would change:", *quote_block("\n".join(lines), columns)]
    shown = [shorten(line, _PREVIEW_COLUMNS) for line in lines[:most]]
    left = [f"  … {len(lines) - most} more lines, v shows them"] if len(lines) > most else []
    left += ["  … long lines are cut, v shows them whole"] if shown != lines[:most] else []
    return ["What would change:", *quote_block("\n".join(shown), columns), *left]


def format_subject(ask: PermissionAsked, columns: int) -> list[str]:
    """What is asked about. The paths that need an answer stand apart from those of the same call that need none."""
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
    """The rules on offer, in the very words that would be remembered."""
    lines = [f"{wording}:", *(f"  {number}. {rule}" for number, rule in enumerate(rules, 1))]
    which = f"1 to {len(rules)}, Enter for 1" if len(rules) > 1 else "Enter for yes"
    return "\n".join([*lines, f"{which}, [e]dit the rule, [b]ack: "])


def describe_answer_elsewhere(answered: PermissionAnswered) -> str:
    """Who has answered a question that was on the screen. When nobody did, the session itself says so."""
    if answered.by in ("interrupt", "shutdown", "timeout", "steer"):
        return ""
    verdict = "allowed" if answered.allowed else "denied"
    return f"This was answered elsewhere: {verdict} by {escape_hidden(answered.by)}."


# --- what is typed ---


def parse_reply(ask: PermissionAsked, typed: str) -> PermissionReply:
    """What a line means. The end of the input is a no; a stray key is a question, never an answer."""
    line = typed.strip()
    word = line.casefold()
    if word in _YES_WORDS:
        return PermissionReply("allow")
    if word in _NO_WORDS:
        return PermissionReply("deny")
    if escape_control(line) != line:
        return PermissionReply("unclear", "That holds keys that cannot be read as words.")
    key = _parse_key(ask, word)
    if key is not None:
        return key
    if len(line) <= 2:
        return PermissionReply("unclear", f"{line!r} is no answer here; ? explains the keys.")
    first = word.replace(",", " ").split()[0]
    if first in _ALMOST_YES_WORDS:
        return PermissionReply(
            "unclear", "Only y or yes by itself allows it. Words are a no with a reason: begin them with n."
        )
    return PermissionReply("deny", line[1:].strip() if word.startswith("n ") else line)


def _parse_key(ask: PermissionAsked, word: str) -> PermissionReply | None:
    """The keys beside yes and no, where they are offered."""
    if word in ("?", "h", "help"):
        return PermissionReply("help")
    if word in ("v", "view"):
        return PermissionReply("view")
    if ask.unsandboxed:
        return (
            PermissionReply("unclear", "This can be allowed once or denied: y or n.")
            if word in _REMEMBER_KEYS
            else None
        )
    if word in ("e", "edit"):
        return PermissionReply("edit")
    if word in _REMEMBER_KEYS and not list_offered_rules(ask):
        return PermissionReply("unclear", "There is no rule that would remember this: y allows it once, n denies it.")
    if word in _SCOPE_KEYS:
        return PermissionReply("remember", scope=_SCOPE_KEYS[word])
    return PermissionReply("forbid") if word in ("d", "deny") else None


_REMEMBER_KEYS = frozenset((*_SCOPE_KEYS, "d", "deny", "e", "edit"))


def parse_scope(typed: str) -> RememberScope | None:
    """For how long, when a deny is to be remembered; Enter is the shortest."""
    word = typed.strip().casefold()
    return "session" if not word and typed else _SCOPE_KEYS.get(word)


def parse_rule_number(typed: str, count: int) -> int | None:
    """Which of the rules on offer was chosen, from 0."""
    word = typed.strip().casefold()
    if typed and (not word or (count == 1 and word in _YES_WORDS)):
        return 0
    return int(word) - 1 if word.isdecimal() and len(word) < 4 and 1 <= int(word) <= count else None
