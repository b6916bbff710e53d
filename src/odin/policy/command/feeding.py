"""What a command prints that is written out in the same line, and so what the command behind a pipe reads."""

import re
from collections.abc import Sequence

from odin.policy.command.shapes import ShellWord, SimpleCommand, split_names

_MAX_INPUT_CHARS = 4_000
_PASS_THROUGH = split_names("cat tee tac rev sort uniq head tail nl tr sed")


def find_inputs(commands: Sequence[SimpleCommand]) -> list[tuple[str, ...]]:
    """For each command the texts that are known to reach its standard input."""
    found: list[tuple[str, ...]] = []
    for index, simple in enumerate(commands):
        here = tuple(item.target.text for item in simple.redirects if item.op == "<<<")
        if simple.operator in ("|", "|&") and index:
            here = (*here, *_find_output(commands[index - 1], found[-1]))
        found.append(tuple(text[:_MAX_INPUT_CHARS] for text in here))
    return found


def _find_output(simple: SimpleCommand, fed: tuple[str, ...]) -> tuple[str, ...]:
    words = simple.words
    name = words[0].text.rsplit("/", 1)[-1] if words else ""
    if name == "echo":
        return (_resolve_escapes(" ".join(_printed_texts_of(words[1:]))),)
    if name == "printf":
        return (_resolve_escapes("\n".join(_printed_texts_of(words[1:]))),)
    if name == "pwd":
        return ("$PWD",)
    return fed if name in _PASS_THROUGH else ()


def _printed_texts_of(words: Sequence[ShellWord]) -> list[str]:
    """The words that are printed; one that names a folder by a sign stays that."""
    texts = [word.text for word in words]
    while texts and re.fullmatch(r"-[neE]+|--", texts[0]):
        texts.pop(0)
    return texts


def _resolve_escapes(text: str) -> str:
    return text.replace("\\n", "\n").replace("\\t", "\t")


def split_loose_words(text: str) -> list[ShellWord]:
    """The words of a text that is no command line: parted by blanks, with quotes and backslashes taken away."""
    return [_make_loose_word(piece) for piece in re.sub(r"['\"\\]", "", text).split()]


def _make_loose_word(text: str) -> ShellWord:
    expands = "$" in text or "`" in text or text.startswith("~") or ("{" in text and "," in text)
    return ShellWord(text, expands, any(char in text for char in "*?["))
