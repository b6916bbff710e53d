"""Characters that make a command look like another one than it is."""

import unicodedata

from odin.policy.command.shapes import MAX_COMMAND_CHARS

_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_INVISIBLE = frozenset(
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180e\u180f\u200b\u200c\u200d\u2060\u2061\u2062\u2063\u2064"
    "\u2800\u3164\ufeff\uffa0\ufffc"
)


def explain_hidden_text(text: str) -> str:
    """Why a person cannot trust what they see of this text, or "": it is overlong, or holds what does not show."""
    if len(text) > MAX_COMMAND_CHARS:
        return f"it is too long to be read ({len(text)} characters, at most {MAX_COMMAND_CHARS})"
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return ""
    for char in text:
        kind = _describe_character(char)
        if kind:
            return f"it holds {kind} (U+{ord(char):04X})"
    return ""


def _describe_character(char: str) -> str:
    if char in "\n\t" or " " <= char <= "~":
        return ""
    if char == "\0":
        return "a NUL character"
    if char == "\r":
        return "a carriage return"
    if char in _BIDI:
        return "a character that changes the direction of writing"
    code = ord(char)
    if char in _INVISIBLE or 0xFE00 <= code <= 0xFE0F or 0xE0000 <= code <= 0xE0FFF:
        return "an invisible character"
    category = unicodedata.category(char)
    return _CATEGORIES.get(category, "")


_CATEGORIES = {
    "Cc": "a control character",
    "Cf": "an invisible character",
    "Cs": "half of a character",
    "Co": "a private character",
    "Cn": "an unknown character",
    "Zs": "a space that is not the usual one",
    "Zl": "a line separator",
    "Zp": "a paragraph separator",
}
