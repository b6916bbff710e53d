"""Characters that make a command look like another one than it is.

A second, much smaller reader, for the one question that matters most: what may run without being asked about.

It knows literal words, quotes without expansions, patterns, four operators and newlines, comments, and redirections to
plain words; everything else it refuses. A command counts as plain only when this reader and the grammar see the same
words.

A command line taken apart into words, operators and redirections, as a shell would before it runs anything.

Tree-sitter's grammar of bash reads the text, and what it says is checked against the text piece by piece (`tree`,
`pieces`). Where anything is not certain, that is said, and whoever asks must then assume the worst.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

from msgspec.structs import replace

from odin.policy.commands.script_reader import read_script
from odin.policy.commands.syntax import (
    MAX_COMMAND_CHARS,
    Redirect,
    ShellScript,
    ShellWord,
    SimpleCommand,
    Unparseable,
    has_brace_expansion,
    split_names,
)

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


_BARE = re.compile(r"[\w%+,./:@=~^!*?\[\]{}#-]+")
_QUOTED = re.compile(r"'([^']*)'")
_DOUBLE = re.compile(r'"((?:[^"$`\\]|\$(?=["|) ]))*)"')
_DOUBLE_ESCAPED = re.compile(r'"((?:[^"$`\\]|\$(?=["|) ])|\\["$`\\]|\\[^"$`\\\n])*)"')
"""A dollar sign is text where what follows it could not begin a name."""

_TABBED = re.compile(r"\$'((?:\\[tn])+)'")
_ESCAPED = re.compile(r"\\([^\n])")
_BLANK = re.compile(r"(?:[ \t]|\\\n)+")
_JOINED = re.compile(r"(?:\\\n)+[^ \t\n;&|]")
"""A line that goes on right behind a word goes on with that word."""

_COMMENT = re.compile(r"(?<![^ \t\n;&|])(?<!\\\n)#[^\n]*")
_OPERATOR = re.compile(r"(?:&&|\|\|)[ \t\n]*|\|(?!&)[ \t\n]*|;(?!;)[ \t\n]*|\n[ \t\n]*")
_REDIRECT = re.compile(r"(?:(?<![\w/.-])(\d?))(&>>?|>>|>&|>\||<<<|<(?![<&>(])|>(?![>&|(]))[ \t]*")
_RESERVED = split_names("! [[ ]] { } case coproc do done elif else esac fi for function if in select then until while")
_UNARY = split_names("-d -e -f -r -w -x -s -L -h -n -z")


def matches_strict_reading(text: str, commands: Sequence[SimpleCommand]) -> bool:
    """Whether the commands are all there is to this text, read a second time in another way."""
    again = _read_strictly(text.strip(" \t\n"))
    if again is None or len(again) != len(commands):
        return False
    return all(
        simple.operator == other.operator
        and not simple.nested
        and _keys_of(simple.words) == _keys_of(other.words)
        and [(item.fd, item.op, *_keys_of([item.target])) for item in simple.redirects]
        == [(item.fd, item.op, *_keys_of([item.target])) for item in other.redirects]
        for simple, other in zip(commands, again, strict=True)
    )


def _keys_of(words: Sequence[ShellWord]) -> list[tuple[str, bool, bool]]:
    return [(word.text, word.expands, word.glob) for word in words]


def _read_strictly(text: str) -> list[SimpleCommand] | None:
    found: list[SimpleCommand] = []
    words: list[ShellWord] = []
    redirects: list[Redirect] = []
    after = ""
    at = 0
    while at < len(text):
        blank = _BLANK.match(text, at)
        if blank:
            at = blank.end()
            continue
        comment = _COMMENT.match(text, at)
        if comment:
            at = comment.end()
            while not words and not redirects and text[at : at + 1].isspace():
                at += 1
            continue
        operator = _OPERATOR.match(text, at)
        if operator:
            if not words or _starts_reserved(words):
                return None
            found.append(SimpleCommand(tuple(words), tuple(redirects), after))
            words, redirects = [], []
            at = operator.end()
            after = operator[0].strip(" \t\n") or "\n"
            continue
        redirect = _REDIRECT.match(text, at)
        if redirect:
            target = _read_strict_word(text, redirect.end())
            if target is None or _JOINED.match(text, target[1]):
                return None
            redirects.append(Redirect(redirect[1], redirect[2], target[0]))
            at = target[1]
            continue
        taken = _read_strict_word(text, at)
        if taken is None or _JOINED.match(text, taken[1]):
            return None
        words.append(taken[0])
        at = taken[1]
    if words and not _starts_reserved(words):
        found.append(SimpleCommand(tuple(words), tuple(redirects), after))
    elif words or redirects or after not in ("", ";", "\n"):
        return None
    return found


def _starts_reserved(words: Sequence[ShellWord]) -> bool:
    """Whether a command begins with a word of the grammar. `time` only stands before one, like any program would."""
    rest = list(words)
    while rest[1:] and rest[0].text in ("time", "-p", "--"):
        rest.pop(0)
    if rest[0].quoted or rest[0].text not in _RESERVED:
        return False
    return not (rest[0].text == "[[" and _is_single_test(rest[1:]))


def _is_single_test(words: Sequence[ShellWord]) -> bool:
    """`-f x ]]` or `! a = b ]]`: one test of literal words, which means the same between single brackets."""
    texts = [word.text for word in words]
    if not texts or texts.pop() != "]]" or words[-1].quoted or any(word.glob for word in words):
        return False
    rest = texts[1:] if texts[:1] == ["!"] else texts
    return (len(rest) == 2 and rest[0] in _UNARY) or (len(rest) == 3 and rest[1] in ("=", "==", "!="))


def _read_strict_word(text: str, start: int) -> tuple[ShellWord, int] | None:
    """One literal word or pattern and where it ends; None when it is anything else."""
    at = start
    made: list[str] = []
    bare: list[str] = []
    quoted = False
    while at < len(text):
        piece = _BARE.match(text, at)
        if piece:
            if at == start and piece[0][0] in "#~=^" and piece[0] not in ("=", "=="):
                return None
            made.append(piece[0])
            bare.append(piece[0])
        else:
            piece = _QUOTED.match(text, at) or _DOUBLE.match(text, at)
            if piece:
                made.append(piece[1])
            elif (piece := _TABBED.match(text, at)) is not None:
                made.append(piece[1].replace("\\t", "\t").replace("\\n", "\n"))
            elif (piece := _DOUBLE_ESCAPED.match(text, at)) is not None:
                made.append(re.sub(r'\\(["$`\\])', r"\1", piece[1]))
            elif (piece := _ESCAPED.match(text, at)) is not None:
                made.append(piece[1])
            else:
                break
            quoted = True
        at = piece.end()
    plain = "".join(bare)
    if at == start or (at < len(text) and text[at] not in " \t\n;&|<>\\"):
        return None
    if _has_surprises(plain):
        return None
    whole = "".join(made)
    glob = any(char in plain for char in "*?") or ("[" in plain and "]" in plain[plain.index("[") :])
    return ShellWord(whole, glob=glob, quoted=quoted), at


def _has_surprises(bare: str) -> bool:
    """Tildes after `=` or `:`, braces that expand, and history: what is unquoted and not just text."""
    if "~" in bare and re.search(r"[=:]~", bare):
        return True
    if "{" in bare and has_brace_expansion(bare):
        return True
    return "!" in bare and re.search(r"![\w!?#-]", bare) is not None


_MAX_COMMANDS = 500
_MAX_WORDS = 2_000


def parse_command(text: str) -> ShellScript:
    """Read a command line. Raises Unclear when it is too long, cannot be read, or hides characters."""
    script, why = examine_command(text)
    if why:
        raise Unparseable(why)
    return script


@lru_cache(maxsize=128)
def examine_command(text: str) -> tuple[ShellScript, str]:
    """What can be read of a command line, and why it cannot be read with certainty, or ""."""
    script, flaw = read_script(text)
    why = explain_hidden_text(text) or flaw or _check_size(script)
    if why or not matches_strict_reading(text, script.commands):
        return script, why
    return replace(script, plain=True), ""


def _check_size(script: ShellScript) -> str:
    """Whether there is more in a text than anybody would read before saying yes to it."""
    if len(script.commands) > _MAX_COMMANDS or sum(len(simple.words) for simple in script.commands) > _MAX_WORDS:
        return f"it has too many parts to be read (at most {_MAX_COMMANDS} commands and {_MAX_WORDS} words)"
    return ""
