"""Whether a command may match the pattern of a deny rule once its unknown words are known.

`CommandPattern.matches` compares the words as written. Here every word is what the shell may make of it, an option may
take the word after it as its value, and a long option may be abbreviated.
"""

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from odin.policy.commands.syntax import split_names
from odin.policy.commands.word_shapes import WordForms, WordPiece
from odin.policy.rules.pattern import GIT_VALUED_OPTIONS, CommandPattern, compile_wildcard, has_wildcard

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
        self._wanted_flags = set(_flags_of(pattern.words))
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
        return any(self._is_done(at) for at, _ in states)

    def _is_done(self, at: int) -> bool:
        return all(word == "*" for word in self._wanted[at:])

    def _take_pieces(self, states: set[_State], pieces: Sequence[WordPiece]) -> set[_State]:
        for piece in pieces:
            states = {after for state in states for after in self._take(state, piece)}
        return states

    def _take(self, state: _State, piece: WordPiece) -> Iterator[_State]:
        at, may_skip = state
        size = len(self._wanted)
        if piece.is_many:
            yield from ((later, skip) for later in range(at, size + 1) for skip in (False, True))
            return
        if at == 0:
            yield from self._take_program(piece)
            return
        if may_skip:
            yield at, False
        if _may_be_option(piece):
            yield at, not piece.is_exact or self._may_take_value(piece.text)
        if piece.is_exact and len(piece.text) > 1 and piece.text.startswith("-"):
            return
        if at == size:
            if self._is_prefix:
                yield at, False
            return
        wanted = self._wanted[at]
        if wanted == "*":
            yield at, False
        if wanted == "*" or _fits(wanted, piece) or self._is_abbreviation(wanted, piece):
            yield at + 1, False
        if wanted == "*" and at + 1 < size and _fits(self._wanted[at + 1], piece):
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
        given = set(_flags_of([piece.text for piece in pieces if piece.is_exact]))
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


def _flags_of(words: Sequence[str]) -> Iterator[str]:
    """Yield long options by name, and the letters of short ones."""
    for word in words:
        if word.startswith("--"):
            yield word.split("=", 1)[0]
        elif word.startswith("-"):
            yield from word[1:]


def _is_abbreviated(flag: str, given: set[str]) -> bool:
    return any(len(item) > 3 and item.startswith("--") and flag.startswith(item) for item in given)
