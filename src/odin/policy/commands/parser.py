"""Parses a command line with tree-sitter's bash grammar (`script_reader`), and tells whether it is plain.

A plain text has only simple commands of literal words and globs, joined by operators, and a splitter of words that
knows nothing of the grammar (`shlex`) finds the same words in it. Only a plain command can be on the short list or be
allowed by a rule for its parts. Texts with invisible or misleading characters cannot be parsed.
"""

import shlex
import unicodedata
from functools import lru_cache
from itertools import dropwhile

from msgspec.structs import replace

from odin.policy.commands.script_reader import read_script
from odin.policy.commands.syntax import MAX_COMMAND_CHARS, ShellScript, Unparseable, split_names

_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_INVISIBLE = frozenset(
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180e\u180f\u200b\u200c\u200d\u2060\u2061\u2062\u2063\u2064"
    "\u2800\u3164\ufeff\uffa0\ufffc"
)


def explain_hidden_text(text: str) -> str:
    """Return why a user cannot trust the displayed text (too long, invisible characters), as a clause, or ""."""
    if len(text) > MAX_COMMAND_CHARS:
        return f"it is too long to check ({len(text)} characters, at most {MAX_COMMAND_CHARS})"
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return ""
    for char in text:
        kind = _describe_character(char)
        if kind:
            return f"it contains {kind} (U+{ord(char):04X})"
    return ""


def _describe_character(char: str) -> str:
    if char in "\n\t" or " " <= char <= "~":
        return ""
    if char == "\0":
        return "a NUL character"
    if char == "\r":
        return "a carriage return"
    if char in _BIDI:
        return "a character that changes the text direction"
    code = ord(char)
    if char in _INVISIBLE or 0xFE00 <= code <= 0xFE0F or 0xE0000 <= code <= 0xE0FFF:
        return "an invisible character"
    category = unicodedata.category(char)
    return _CATEGORIES.get(category, "")


_CATEGORIES = {
    "Cc": "a control character",
    "Cf": "an invisible character",
    "Cs": "a lone surrogate",
    "Co": "a private-use character",
    "Cn": "an unassigned character",
    "Zs": "an unusual space",
    "Zl": "a line separator",
    "Zp": "a paragraph separator",
}


_RESERVED = split_names("! [[ ]] { } case coproc do done elif else esac fi for function if in select then until while")
_OPERATORS = split_names("&& || ; |")
_REDIRECTS = split_names("< > >> >& &> &>> >| <<<")
_MARKS = frozenset("();<>|&")


def _is_plain(text: str, script: ShellScript) -> bool:
    """True if a text has nothing but the words, operators and redirections of these commands."""
    if script.doubts or script.functions or script.bodies:
        return False
    pieces: list[str] = []
    for simple in script.commands:
        words = [*simple.words, *(item.target for item in simple.redirects)]
        if simple.nested or not simple.words or any(word.expands for word in words):
            return False
        timed = dropwhile(lambda text: text in ("time", "-p", "--"), (word.text for word in simple.words))
        if next(timed, "") in _RESERVED or not {simple.operator} <= _OPERATORS | {"", "\n"}:
            return False
        if not all(item.op in _REDIRECTS and len(item.fd) < 2 for item in simple.redirects):
            return False
        if any(word.text and _MARKS.issuperset(word.text) and word.text not in ("(", ")") for word in words):
            return False  # the splitter cannot tell it from an operator
        pieces += [word.text for word in words] + [simple.operator] * (simple.operator in _OPERATORS)
        pieces += [text for item in simple.redirects for text in (item.op, item.fd) if text]
    splitter = shlex.shlex(text.replace("\\\n", " "), posix=True, punctuation_chars=True)
    splitter.whitespace_split = True
    try:
        found = list(splitter)
    except ValueError:
        return False
    is_ended = found[-1:] == [";"] and len(found) > len(pieces)
    return sorted(found[:-1] if is_ended else found) == sorted(pieces)


_MAX_COMMANDS = 500
_MAX_WORDS = 2_000


def parse_command(text: str) -> ShellScript:
    """Parse a command line. Raises Unparseable if it is too long, invalid, or has hidden characters."""
    script, why = examine_command(text)
    if why:
        raise Unparseable(why)
    return script


@lru_cache(maxsize=128)
def examine_command(text: str) -> tuple[ShellScript, str]:
    """Return everything that can be parsed, and why the parse is not reliable, or ""."""
    script, flaw = read_script(text)
    why = explain_hidden_text(text) or flaw or _check_size(script)
    if why:
        return script, why
    return (replace(script, plain=True) if _is_plain(text, script) else script), ""


def _check_size(script: ShellScript) -> str:
    """Return a reason if a script has more commands or words than a user would read before approving it, or ""."""
    if len(script.commands) > _MAX_COMMANDS or sum(len(simple.words) for simple in script.commands) > _MAX_WORDS:
        return f"it has too many parts to check (at most {_MAX_COMMANDS} commands and {_MAX_WORDS} words)"
    return ""
