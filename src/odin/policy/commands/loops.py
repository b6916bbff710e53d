"""`for` loops over literal words written out as plain commands, and printed variables as text, for read-only checks.

`for f in a b; do wc -l "$f"; done` becomes `wc -l a; wc -l b`. The result is only checked, never run. A text with
anything else than plain commands and such loops is not written out.
"""

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from odin.policy.commands.syntax import split_names

_MAX_CHARS = 6_000
_MAX_VALUES = 50
_MAX_DEPTH = 3

_WORD = re.compile(
    r"""(?:[\w%+,./:@=~^!*?\[\]{}-]|(?<=[^\s;&|])\#|'[^']*'|"(?:[^"\\`$]|\\.|\$\w+|\$\{\w+\}|\$(?=[^\w{("]))*"|\\[^\n]"""
    r"""|\$\w+|\$\{\w+\})+"""
)
_BLANK = re.compile(r"(?:[ \t]|\\\n)+")
_COMMENT = re.compile(r"#[^\n]*")
_OPERATOR = re.compile(r"&&|\|\||\|(?!&)|;(?!;)|\n")
_REDIRECT = re.compile(r"\d?(?:&>>?|>>|>&|>\||<<<|<(?![<&>(])|>(?![>&|(]))")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
_NAME = re.compile(r"(?!_$|argv$|status$|pipestatus$|prompt$|\w*path$|\w*proxy$)[a-z_][a-z0-9_]*|[A-Z]")
"""Loop variables that no shell or program gives a meaning."""

_LOOP = re.compile(r"\bfor\b")
_VALUE = re.compile(r"[\w./:@%+,=-]+")
_GLOB_VALUE = re.compile(r"[\w./:@%+,=*?-]+")
_SEQUENCE = re.compile(r"\{(-?\d{1,4})\.\.(-?\d{1,4})\}")
_RESERVED = split_names("! [[ { } case coproc do done elif else esac fi for function if select then until while time")
_PRINTERS = ("echo", "printf")
_PRINTED_VARIABLES = split_names("PATH HOME SHELL USER LOGNAME LANG PWD TERM VIRTUAL_ENV EDITOR TZ HOSTNAME CI")


class ShellToken(Struct, frozen=True):
    """A word, redirection or operator as written."""

    text: str
    kind: str


class _NotPlain(Exception):
    """The text has something that is not written out."""


def write_out(text: str, *, once: bool = False) -> str | None:
    """Return a command line with its loops and printed variables written out; None if that gives nothing plain.

    With `once`, every loop runs only for its first value, so that each command appears once.
    """
    if "$" not in text and _LOOP.search(text) is None:
        return None
    try:
        written = _LoopWriter(once).write_list(list(_split_tokens(text)), ())
    except _NotPlain:
        return None
    return written if written.strip() and len(written) <= _MAX_CHARS else None


def _split_tokens(text: str) -> Iterator[ShellToken]:
    at = 0
    while at < len(text):
        if blank := _BLANK.match(text, at):
            at = blank.end()
            continue
        comment = _COMMENT.match(text, at)
        if comment and (at == 0 or text[at - 1] in " \t\n;&|"):
            at = comment.end()
            continue
        for pattern, kind in ((_OPERATOR, "operator"), (_REDIRECT, "redirect"), (_WORD, "word")):
            match = pattern.match(text, at)
            if match:
                yield ShellToken("\n" if match[0] == "\n" else match[0], kind)
                at = match.end()
                break
        else:
            raise _NotPlain


class _LoopWriter:
    """Writes out lists of commands and loops; with `once`, each loop for its first value only."""

    def __init__(self, once: bool) -> None:
        self._once = once

    def write_list(self, tokens: Sequence[ShellToken], names: tuple[str, ...]) -> str:
        """Write out a list inside loops over these variables."""
        if len(names) > _MAX_DEPTH:
            raise _NotPlain
        pieces: list[str] = []
        at = 0
        command: list[ShellToken] = []
        while at < len(tokens):
            token = tokens[at]
            if token.kind == "operator":
                pieces += [_write_command(command), f" {token.text} "]
                command = []
                at += 1
            elif not command and token.text == "for":
                if pieces and pieces[-1].strip(" ") == "|":
                    raise _NotPlain
                loop, at = self._write_loop(tokens, at, names)
                pieces.append(loop)
                at = _skip_loop_end(tokens, at, pieces)
            elif not command and token.text in _RESERVED:
                raise _NotPlain
            else:
                command.append(token)
                at += 1
        return "".join([*pieces, _write_command(command)]).strip(" ;\n")

    def _write_loop(self, tokens: Sequence[ShellToken], start: int, names: tuple[str, ...]) -> tuple[str, int]:
        """Return a loop as commands, and the position after its `done`."""
        texts = [token.text for token in tokens[start : start + 3]]
        if len(texts) < 3 or not _NAME.fullmatch(texts[1]) or texts[1] in names or texts[2] != "in":
            raise _NotPlain
        at = start + 3
        values: list[str] = []
        while at < len(tokens) and tokens[at].kind == "word":
            values += _read_values(tokens[at].text)
            at += 1
        while at < len(tokens) and tokens[at].text in (";", "\n"):
            at += 1
        if at >= len(tokens) or tokens[at].text != "do" or not values or len(values) > _MAX_VALUES:
            raise _NotPlain
        end = _find_done(tokens, at + 1)
        body = tokens[at + 1 : end]
        rounds = [
            self.write_list(_put_value(body, texts[1], value), (*names, texts[1]))
            for value in (values[:1] if self._once else values)
        ]
        return " ; ".join(rounds), end + 1


def _skip_loop_end(tokens: Sequence[ShellToken], at: int, pieces: list[str]) -> int:
    """Write the operator after `done` as the end of a command, since the loop is now several commands."""
    if at < len(tokens):
        if tokens[at].kind != "operator":
            raise _NotPlain
        pieces.append(" ; ")
        at += 1
    while at < len(tokens) and tokens[at].text == "\n":
        at += 1
    return at


def _find_done(tokens: Sequence[ShellToken], start: int) -> int:
    """Return the position of the `done` that ends the loop whose body starts here."""
    open_loops = 0
    for at in range(start, len(tokens)):
        if at > start and tokens[at - 1].kind != "operator" and tokens[at - 1].text != "do":
            continue
        if tokens[at].text == "for":
            open_loops += 1
        elif tokens[at].text == "done":
            if not open_loops:
                return at
            open_loops -= 1
    raise _NotPlain


def _read_values(word: str) -> list[str]:
    """Return the values of one word after `in`: a literal, a glob, or a sequence of numbers."""
    sequence = _SEQUENCE.fullmatch(word)
    if sequence:
        first, last = int(sequence[1]), int(sequence[2])
        if abs(last - first) >= _MAX_VALUES:
            raise _NotPlain
        step = 1 if last >= first else -1
        return [str(number) for number in range(first, last + step, step)]
    quoted = re.fullmatch(r"'([^']*)'|\"([^\"$`\\]*)\"", word)
    text = (quoted[1] or quoted[2] or "") if quoted else word
    if not (_VALUE if quoted else _GLOB_VALUE).fullmatch(text):
        raise _NotPlain
    return [text]


def _put_value(body: Sequence[ShellToken], name: str, value: str) -> list[ShellToken]:
    """Return the body of a loop with its variable replaced."""
    program = ""
    written: list[ShellToken] = []
    for index, token in enumerate(body):
        if index == 0 or body[index - 1].kind == "operator" or body[index - 1].text == "do":
            program = token.text
        text = token.text
        if token.kind == "word" and f"${name}" in text.replace("{", "").replace("}", ""):
            text = _replace(text, {name: value}, printed=program in _PRINTERS)
        written.append(ShellToken(text, token.kind))
    return written


def _replace(word: str, values: dict[str, str], *, printed: bool) -> str:
    """Return a word with variables replaced by values that need no quotes.

    A glob must not be quoted: what it matches decides where a command leads. For words that are only printed it may be.
    """
    if "'" in word or "\\" in word:
        raise _NotPlain
    replaced = _VARIABLE.sub(lambda match: values.get(match[1] or match[2], match[0]), word)
    if replaced != word and any(char in value for value in values.values() for char in "*?"):
        bare = replaced.replace('"', "")
        if _GLOB_VALUE.fullmatch(bare):
            return bare
        if not printed:
            raise _NotPlain
    return replaced


def _write_command(tokens: Sequence[ShellToken]) -> str:
    """Return a command; in one that only prints, known variables become text."""
    texts = [token.text for token in tokens]
    if texts and texts[0] in _PRINTERS:
        texts = [_print_variables(text) if "$" in text else text for text in texts]
    return " ".join(texts)


def _print_variables(word: str) -> str:
    names = {match[1] or match[2] for match in _VARIABLE.finditer(word)}
    if not names <= _PRINTED_VARIABLES or set(word) & set("*?[{'\\") - set("{"):
        raise _NotPlain
    return _replace(word, {name: f"value-of-{name}" for name in names}, printed=True)
