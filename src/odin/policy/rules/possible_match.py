"""Whether a command may match the pattern of a deny rule once its unknown words are known.

`CommandPattern.matches` compares the words as written. Here every word is what the shell may make of it, an option may
take the word after it as its value, and a long option may be abbreviated.

The shell may expand a word in several ways. Each expansion is a sequence of pieces: an exact word, a word whose start
is known, or any number of unknown words. Variables are resolved if every assignment to them in the text is literal.
Everything else that the shell computes (substitutions, arithmetic, positional parameters, inherited variables) is
unknown.
"""

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import product

from msgspec import Struct

from odin.policy.command_scope import CommandScope
from odin.policy.commands.syntax import CommandAnalysis, ExtractedCommand, ShellWord, split_names
from odin.policy.rules.pattern import GIT_VALUED_OPTIONS, CommandPattern, compile_wildcard, has_wildcard


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

    def __init__(self, analysis: CommandAnalysis, scope: CommandScope) -> None:
        self._values: dict[str, tuple[str, ...]] = {}
        self._home = scope.environment.get("HOME")
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
        for name, value in (("HOME", self._home), ("PWD", "" if moves else scope.cwd)):
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


def expand_forms(part: ExtractedCommand, values: VariableValues) -> list[WordForms]:
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


_State = tuple[int, bool]
"""The number of wanted words matched so far, and whether the next word may be the value of an option."""

_NEVER_VALUED = re.compile(
    r"--no-.*|--(?:verbose|quiet|silent|debug|json|yes|force|dry-run|help|version|all|global|offline|locked|frozen)"
    r"|-[vqyhV]"
)
_GIT_PROGRAM = re.compile(r"git-([a-z-]+)")
_ABBREVIATING = split_names("npm pnpm hg svn ip")
"""Programs that accept the beginning of a subcommand."""


def may_match(pattern: CommandPattern, forms: Sequence[WordForms]) -> bool:
    """True if a command with these words may match, with any path to its program."""
    if not pattern.words:
        return pattern.is_prefix
    return _PossibleMatch(pattern, forms).is_possible()


class _PossibleMatch:
    def __init__(self, pattern: CommandPattern, forms: Sequence[WordForms]) -> None:
        plain = [word for word in pattern.words if not word.startswith("-") or word == "-"]
        self._wanted = [plain[0].rsplit("/", 1)[-1], *plain[1:]] if plain else []
        self._wanted_flags = set(_list_flags(pattern.words))
        self._is_prefix = pattern.is_prefix or pattern.words[-1].endswith("*")
        self._has_wildcards = any(has_wildcard(word) for word in pattern.words)
        self._forms = forms

    def is_possible(self) -> bool:
        if not self._wanted or not self._are_flags_possible():
            return False
        states: set[_State] = {(0, False)}
        size = len(self._wanted)
        for forms in self._forms:
            if self._is_prefix and any(at == size for at, _ in states):
                return True
            states = {after for pieces in forms for after in self._take_pieces(states, pieces)}
            if not states:
                return False
        return any(all(word == "*" for word in self._wanted[at:]) for at, _ in states)

    def _take_pieces(self, states: set[_State], pieces: Sequence[WordPiece]) -> set[_State]:
        for piece in pieces:
            if not states:
                break
            states = set(self._take_many(states) if piece.is_many else self._take(states, piece))
        return states

    def _take_many(self, states: set[_State]) -> Iterator[_State]:
        first = min(at for at, _ in states)
        return product(range(first, len(self._wanted) + 1), (False, True))

    def _take(self, states: set[_State], piece: WordPiece) -> Iterator[_State]:
        started = [state for state in states if state[0]]
        if len(started) < len(states):
            yield from self._take_program(piece)
        if not started:
            return
        size = len(self._wanted)
        is_exact = piece.is_exact
        may_be_option = _may_be_option(piece)
        may_take_value = may_be_option and (not is_exact or self._may_take_value(piece.text))
        is_option = is_exact and len(piece.text) > 1 and piece.text.startswith("-")
        fits = {wanted: _fits(wanted, piece) for wanted in set(self._wanted)}
        for at, may_skip in started:
            if may_skip:
                yield at, False
            if may_be_option:
                yield at, may_take_value
            if is_option:
                continue
            if at == size:
                if self._is_prefix:
                    yield at, False
                continue
            wanted = self._wanted[at]
            if wanted == "*" or fits[wanted] or self._is_abbreviation(wanted, piece):
                yield at + 1, False
            if wanted == "*":
                yield at, False
                if at + 1 < size and fits[self._wanted[at + 1]]:
                    yield at + 2, False

    def _take_program(self, piece: WordPiece) -> Iterator[_State]:
        wanted = self._wanted[0]
        base = WordPiece(piece.text.rsplit("/", 1)[-1], piece.is_start, piece.is_glob)
        if _fits(wanted, base):
            yield 1, False
        inner = _GIT_PROGRAM.fullmatch(base.text) if piece.is_exact and wanted == "git" else None
        if inner is not None and len(self._wanted) > 1 and _fits(self._wanted[1], WordPiece(inner[1])):
            yield 2, False

    def _is_abbreviation(self, wanted: str, piece: WordPiece) -> bool:
        return (
            self._wanted[0] in _ABBREVIATING and piece.is_exact and bool(piece.text) and wanted.startswith(piece.text)
        )

    def _may_take_value(self, option: str) -> bool:
        if "=" in option or _NEVER_VALUED.fullmatch(option):
            return False
        return self._wanted[0] != "git" or option in GIT_VALUED_OPTIONS

    def _are_flags_possible(self) -> bool:
        pieces = [piece for forms in self._forms[1:] for form in forms for piece in form]
        given = set(_list_flags([piece.text for piece in pieces if piece.is_exact]))
        if any(not piece.is_exact and _may_be_option(piece) for piece in pieces):
            given |= self._wanted_flags
        missing = {flag for flag in self._wanted_flags - given if not _is_abbreviated(flag, given)}
        if missing:
            return False
        return self._is_prefix or self._has_wildcards or given <= self._wanted_flags


def _fits(wanted: str, piece: WordPiece) -> bool:
    """True if a piece may become a word that a pattern names."""
    if piece.is_many:
        return True
    if piece.is_start:
        fixed = re.split(r"[*?]", wanted, maxsplit=1)[0]
        return wanted.startswith(piece.text) or (has_wildcard(wanted) and piece.text.startswith(fixed))
    if piece.is_glob:
        return has_wildcard(wanted) or fnmatchcase(wanted, piece.text.replace("[^", "[!"))
    return compile_wildcard(wanted)(piece.text) if has_wildcard(wanted) else wanted == piece.text


def _may_be_option(piece: WordPiece) -> bool:
    if piece.is_exact:
        return len(piece.text) > 1 and piece.text.startswith("-")
    if piece.is_many or not piece.text:
        return True
    return piece.text.startswith("-") or (piece.is_glob and piece.text[0] in "*?[" and not set(piece.text) & set("./"))


def _list_flags(words: Sequence[str]) -> Iterator[str]:
    """Yield long options by name, and the letters of short ones."""
    for word in words:
        if word.startswith("--"):
            yield word.split("=", 1)[0]
        elif word.startswith("-"):
            yield from word[1:]


def _is_abbreviated(flag: str, given: set[str]) -> bool:
    return any(len(item) > 3 and item.startswith("--") and flag.startswith(item) for item in given)
