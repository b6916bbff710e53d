"""What a command prints that is written out in the same line, and so what the command behind a pipe reads."""

import re
from collections.abc import Sequence

from odin.policy.command.shapes import Simple, Word, named

_MAX_CHARS = 4_000
_PASSING = named("cat tee tac rev sort uniq head tail nl tr sed")


def inputs(commands: Sequence[Simple]) -> list[tuple[str, ...]]:
    """For each command the texts that are known to reach its standard input."""
    found: list[tuple[str, ...]] = []
    for index, simple in enumerate(commands):
        here = tuple(item.target.text for item in simple.redirects if item.op == "<<<")
        if simple.after in ("|", "|&") and index:
            here = (*here, *_printed(commands[index - 1], found[-1]))
        found.append(tuple(text[:_MAX_CHARS] for text in here))
    return found


def _printed(simple: Simple, fed: tuple[str, ...]) -> tuple[str, ...]:
    words = simple.words
    name = words[0].text.rsplit("/", 1)[-1] if words else ""
    if name == "echo":
        return (_escaped(" ".join(_texts(words[1:]))),)
    if name == "printf":
        return (_escaped("\n".join(_texts(words[1:]))),)
    if name == "pwd":
        return ("$PWD",)
    return fed if name in _PASSING else ()


def _texts(words: Sequence[Word]) -> list[str]:
    """The words that are printed; one that names a folder by a sign stays that."""
    texts = [word.text for word in words]
    while texts and re.fullmatch(r"-[neE]+|--", texts[0]):
        texts.pop(0)
    return texts


def _escaped(text: str) -> str:
    return text.replace("\\n", "\n").replace("\\t", "\t")


def loose_words(text: str) -> list[Word]:
    """The words of a text that is no command line: parted by blanks, with quotes and backslashes taken away."""
    return [_loose(piece) for piece in re.sub(r"['\"\\]", "", text).split()]


def _loose(text: str) -> Word:
    expands = "$" in text or "`" in text or text.startswith("~") or ("{" in text and "," in text)
    return Word(text, expands, any(char in text for char in "*?["))
