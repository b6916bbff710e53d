"""What the words of a command may become when it runs, for deny rules.

A word becomes one of several sequences of pieces. A piece is exact, or one word of which only the start is known, or
any number of unknown words. Variables are resolved if every assignment to them in the text is literal. Everything else
that the shell computes (substitutions, arithmetic, positional parameters, inherited variables) is unknown.
"""

import os
import re
from collections.abc import Sequence
from itertools import product

from msgspec import Struct

from odin.policy.commands.syntax import CommandAnalysis, ExtractedCommand, ShellWord, split_names


class WordPiece(Struct, frozen=True):
    """A word that is `text`, starts with it (`is_start`), or matches it as a glob (`is_glob`).

    `is_many`: any number of words, about which nothing is known.
    """

    text: str = ""
    is_start: bool = False
    is_glob: bool = False
    is_many: bool = False

    @property
    def is_exact(self) -> bool:
        return not (self.is_start or self.is_glob or self.is_many)


WordForms = Sequence[Sequence[WordPiece]]
"""The alternatives for one word: each is the pieces that it may become."""

_ANYTHING: WordForms = ((WordPiece(is_many=True),),)
_MAX_FORMS = 32
_EXPANSION = re.compile(r"[$`]")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
_LOOKUP = re.compile(r"(?:\$\(|`)\s*(?:which|command\s+-v|type\s+-p)\s+([\w.-]+)\s*(?:\)|`)")
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
_BRACE_SEQUENCE = re.compile(r"\{[^{}]*\.\.[^{}]*\}")
_GLOB_CHARS = re.compile(r"[*?\[]")
_SIMPLE_PATH = re.compile(r"/[\w./+@=-]*")
_ASSIGNING = split_names("read mapfile readarray getopts select let wait unset")
_CHANGING_LETTERS = re.compile(r"[-+]\w*[lucnia]")


class VariableValues:
    """The literal values of the variables assigned in a text; a variable that is not listed may be anything.

    HOME and PWD have their values if they are simple paths and the text does not change them.
    """

    def __init__(self, analysis: CommandAnalysis, cwd: str) -> None:
        self._values: dict[str, tuple[str, ...]] = {}
        self._home = os.environ.get("HOME", "")
        unknown = {name for name, value in analysis.assigned if value is None}
        for part in analysis.commands:
            if part.name in _ASSIGNING or (part.name == "printf" and "-v" in part.texts):
                unknown.update(text.split("[", 1)[0] for text in part.texts[1:])
            elif part.name in ("declare", "typeset", "local", "export", "readonly") and any(
                _CHANGING_LETTERS.match(text) for text in part.texts[1:]
            ):
                unknown.update(text.split("=", 1)[0] for text in part.texts[1:])
        for name, value in analysis.assigned:
            if value is not None and name not in unknown:
                self._values[name] = tuple(dict.fromkeys((*self._values.get(name, ()), value, "")))
        moves = any(part.folder != "" for part in analysis.commands)
        for name, value in (("HOME", self._home), ("PWD", "" if moves else cwd)):
            if name not in unknown and name not in self._values and _SIMPLE_PATH.fullmatch(value):
                self._values[name] = (value,)

    def find_forms(self, word: ShellWord) -> WordForms:
        """Return everything a word may become."""
        if word.literal:
            return ((WordPiece(word.text),),)
        if not word.expands:
            return ((WordPiece(word.text, is_glob=True),),)
        texts = self._substitute(word)
        if texts is None:
            return _ANYTHING
        forms = [self._read_pieces(text, word) for text in texts]
        return [*forms, *([WordPiece(text)] for text in texts if word.quoted and not _EXPANSION.search(text))]

    def _substitute(self, word: ShellWord) -> list[str] | None:
        """Return the word with known variables replaced and braces expanded, or None if there are too many."""
        text = _LOOKUP.sub(lambda match: match[1], word.text)
        known = [match for match in _VARIABLE.finditer(text) if (match[1] or match[2]) in self._values]
        texts: list[str] = []
        choices = [self._values[match[1] or match[2]] for match in known]
        for values in product(*choices):
            done, at = "", 0
            for match, value in zip(known, values, strict=True):
                done += text[at : match.start()] + value
                at = match.end()
            texts.append(done + text[at:])
            if len(texts) > _MAX_FORMS:
                return None
        if not word.splits:
            return texts
        if any(_BRACE_SEQUENCE.search(text) for text in texts):
            return None
        return [_expand_braces(text) for text in texts]

    def _read_pieces(self, text: str, word: ShellWord) -> Sequence[WordPiece]:
        """Return the pieces of a text in which only unknown expansions are left."""
        mark = _EXPANSION.search(text)
        if mark is None:
            if text == "~" or text.startswith("~/"):
                return (WordPiece(self._home + text[1:]),)
            pieces = text.split() if word.splits else [text]
            return [WordPiece(piece, is_glob=_GLOB_CHARS.search(piece) is not None) for piece in pieces]
        if word.splits:
            return (WordPiece(is_many=True),)
        return (WordPiece(text[: mark.start()], is_start=True),)


def _expand_braces(text: str) -> str:
    """Return a text with its braces expanded to words separated by blanks."""
    words = text.split()
    for _ in range(4):
        words = [form for word in words for form in _expand_first(word)]
        if len(words) > _MAX_FORMS:
            break
    return " ".join(words)


def _expand_first(word: str) -> list[str]:
    match = _BRACES.search(word)
    if match is None:
        return [word]
    return [word[: match.start()] + piece + word[match.end() :] for piece in match[1].split(",")]


def forms_of(part: ExtractedCommand, values: VariableValues) -> list[WordForms]:
    """Return what every word of a command may become, including the words that it is given at run time."""
    forms: list[WordForms] = []
    for index, word in enumerate(part.words):
        program = _find_program_name(word) if not index else ""
        if program:
            forms.append(((WordPiece(program),),))
        elif part.placeholder and part.placeholder in word.text:
            start = word.text.split(part.placeholder, 1)[0]
            forms.append(((WordPiece(start, is_start=True),),))
        else:
            forms.append(values.find_forms(word))
    return [*forms, _ANYTHING] if part.is_open else forms


def _find_program_name(word: ShellWord) -> str:
    """Return the name of a program in an unknown folder, such as `"$VENV/bin/python"`, or ""."""
    name = word.text.rpartition("/")[2]
    is_named = word.expands and not word.splits and "/" in word.text and not set(name) & set("$`*?[{}()")
    return name if is_named else ""
