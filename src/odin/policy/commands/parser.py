"""Parses a command line twice: with tree-sitter's bash grammar (`script_reader`) and with a strict parser of its own.

The strict parser knows literal words, quotes without expansions, globs, four operators, newlines, comments and
redirections, and rejects everything else. A command counts as `plain`, and so may run without approval, only if both
parsers find the same words. Texts with invisible or misleading characters are never plain.
"""

import re
import shlex
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from odin.policy.commands.loops import write_out
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


_BARE = re.compile(r"[\w%+,./:@=~^!*?\[\]{}#-]+")
_QUOTED = re.compile(r"'([^']*)'")
_DOUBLE = re.compile(r'"((?:[^"$`\\]|\$(?=["|) ]))*)"')
_DOUBLE_ESCAPED = re.compile(r'"((?:[^"$`\\]|\$(?=["|) ])|\\["$`\\]|\\[^"$`\\\n])*)"')
"""A dollar sign is literal if the next character cannot start a name."""

_TABBED = re.compile(r"\$'((?:\\[tn])+)'")
_ESCAPED = re.compile(r"\\([^\n])")
_BLANK = re.compile(r"(?:[ \t]|\\\n)+")
_JOINED = re.compile(r"(?:\\\n)+[^ \t\n;&|]")
"""A line continuation right after a word continues that word."""

_COMMENT = re.compile(r"(?<![^ \t\n;&|])(?<!\\\n)#[^\n]*")
_OPERATOR = re.compile(r"(?:&&|\|\|)[ \t\n]*|\|(?!&)[ \t\n]*|;(?!;)[ \t\n]*|\n[ \t\n]*")
_REDIRECT = re.compile(r"(?:(?<![\w/.-])(\d?))(&>>?|>>|>&|>\||<<<|<(?![<&>(])|>(?![>&|(]))[ \t]*")
_RESERVED = split_names("! [[ ]] { } case coproc do done elif else esac fi for function if in select then until while")
_UNARY = split_names("-d -e -f -r -w -x -s -L -h -n -z")


class StrictCommand(Struct, frozen=True):
    """A command as the strict parser reads it, with the start and end of each of its words in the text."""

    simple: SimpleCommand
    spans: tuple[tuple[int, int], ...]


def append_words(text: str, additions: Mapping[int, Sequence[str]]) -> str:
    """Return a plain command line with words added to some of its commands, by their index.

    They come after all other words, or before the `--` that ends the options.
    """
    text = text.strip(" \t\n")
    commands = _read_strictly(text) or []
    for index in sorted(additions, reverse=True):
        words = [word.text for word in commands[index].simple.words]
        spans = commands[index].spans
        added = shlex.join(additions[index])
        if "--" in words:
            at = spans[words.index("--")][0]
            text = f"{text[:at]}{added} {text[at:]}"
        else:
            at = spans[-1][1]
            text = f"{text[:at]} {added}{text[at:]}"
    return text


def matches_strict_reading(text: str, commands: Sequence[SimpleCommand]) -> bool:
    """True if the strict parser finds exactly these commands in the text."""
    found = _read_strictly(text.strip(" \t\n"))
    if found is None or len(found) != len(commands):
        return False
    strict = [command.simple for command in found]
    return all(
        simple.operator == other.operator
        and not simple.nested
        and _make_keys(simple.words) == _make_keys(other.words)
        and [(item.fd, item.op, *_make_keys([item.target])) for item in simple.redirects]
        == [(item.fd, item.op, *_make_keys([item.target])) for item in other.redirects]
        for simple, other in zip(commands, strict, strict=True)
    )


def _make_keys(words: Sequence[ShellWord]) -> list[tuple[str, bool, bool]]:
    return [(word.text, word.expands, word.glob) for word in words]


def _read_strictly(text: str) -> list[StrictCommand] | None:
    commands: list[StrictCommand] = []
    words: list[ShellWord] = []
    spans: list[tuple[int, int]] = []
    redirects: list[Redirect] = []
    previous = ""
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
            commands.append(StrictCommand(SimpleCommand(tuple(words), tuple(redirects), previous), tuple(spans)))
            words, redirects, spans = [], [], []
            at = operator.end()
            previous = operator[0].strip(" \t\n") or "\n"
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
        spans.append((at, taken[1]))
        at = taken[1]
    if words and not _starts_reserved(words):
        commands.append(StrictCommand(SimpleCommand(tuple(words), tuple(redirects), previous), tuple(spans)))
    elif words or redirects or previous not in ("", ";", "\n"):
        return None
    return commands


def _starts_reserved(words: Sequence[ShellWord]) -> bool:
    """True if a command starts with a reserved word. `time` is skipped, since it only precedes a command."""
    rest = list(words)
    while rest[1:] and rest[0].text in ("time", "-p", "--"):
        rest.pop(0)
    if rest[0].quoted or rest[0].text not in _RESERVED:
        return False
    return not (rest[0].text == "[[" and _is_single_test(rest[1:]))


def _is_single_test(words: Sequence[ShellWord]) -> bool:
    """True for `-f x ]]` or `! a = b ]]`: a single test of literal words, which means the same in single brackets."""
    texts = [word.text for word in words]
    if not texts or texts.pop() != "]]" or words[-1].quoted or any(word.glob for word in words):
        return False
    rest = texts[1:] if texts[:1] == ["!"] else texts
    return (len(rest) == 2 and rest[0] in _UNARY) or (len(rest) == 3 and rest[1] in ("=", "==", "!="))


def _read_strict_word(text: str, start: int) -> tuple[ShellWord, int] | None:
    """Return one literal word or glob and its end, or None for anything else."""
    at = start
    pieces: list[str] = []
    bare: list[str] = []
    quoted = False
    while at < len(text):
        piece = _BARE.match(text, at)
        if piece:
            if at == start and piece[0][0] in "#~=^" and piece[0] not in ("=", "=="):
                return None
            pieces.append(piece[0])
            bare.append(piece[0])
        else:
            piece = _QUOTED.match(text, at) or _DOUBLE.match(text, at)
            if piece:
                pieces.append(piece[1])
            elif (piece := _TABBED.match(text, at)) is not None:
                pieces.append(piece[1].replace("\\t", "\t").replace("\\n", "\n"))
            elif (piece := _DOUBLE_ESCAPED.match(text, at)) is not None:
                pieces.append(re.sub(r'\\(["$`\\])', r"\1", piece[1]))
            elif (piece := _ESCAPED.match(text, at)) is not None:
                pieces.append(piece[1])
            else:
                break
            quoted = True
        at = piece.end()
    plain = "".join(bare)
    if at == start or (at < len(text) and text[at] not in " \t\n;&|<>\\"):
        return None
    if _has_expansion(plain):
        return None
    whole = "".join(pieces)
    glob = any(char in plain for char in "*?") or ("[" in plain and "]" in plain[plain.index("[") :])
    return ShellWord(whole, glob=glob, quoted=quoted), at


def _has_expansion(bare: str) -> bool:
    """True if unquoted text has a tilde after `=` or `:`, expanding braces, or a history reference."""
    if "~" in bare and re.search(r"[=:]~", bare):
        return True
    if "{" in bare and has_brace_expansion(bare):
        return True
    return "!" in bare and re.search(r"![\w!?#-]", bare) is not None


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
    if matches_strict_reading(text, script.commands):
        return replace(script, plain=True), ""
    inner = _write_out_loops(text, script) if not script.doubts else None
    return replace(script, written_out=inner), ""


def _write_out_loops(text: str, script: ShellScript) -> ShellScript | None:
    """Return a script with its loops written out, if both parsers agree about every command in it; else None."""
    written, sketch = write_out(text), write_out(text, once=True)
    if written is None or sketch is None:
        return None
    found = _read_strictly(sketch)
    counts = [(len(simple.words), len(simple.redirects)) for simple in script.commands]
    if found is None or [(len(one.simple.words), len(one.simple.redirects)) for one in found] != counts:
        return None
    inner, flaw = read_script(written)
    same = not flaw and not inner.doubts and matches_strict_reading(written, inner.commands)
    return replace(inner, plain=True) if same else None


def _check_size(script: ShellScript) -> str:
    """Return a reason if a script has more commands or words than a user would read before approving it, or ""."""
    if len(script.commands) > _MAX_COMMANDS or sum(len(simple.words) for simple in script.commands) > _MAX_WORDS:
        return f"it has too many parts to check (at most {_MAX_COMMANDS} commands and {_MAX_WORDS} words)"
    return ""
