"""Building blocks of the read-only checks: glob expansion, and lists of known options.

Option lists use getopt's notation. Short: `n:` takes a value, `M?` may have a value in the same word, `f@` takes the
name of a file that is read. Long: `name=` takes a value, `name?` may have one after `=`, `name@` names a file, and
`name==` takes the next two words. A long option must be spelled out.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from fnmatch import translate
from functools import lru_cache

from msgspec import Struct

from odin.policy.command_scope import CommandScope
from odin.policy.commands.syntax import ShellWord


class GlobMatch(str):
    """A word that the shell substitutes for a glob. It may be an operand, but not the value of an option."""

    __slots__ = ()


class ParsedOptions(Struct):
    """The options of a command line with their values, and its operands."""

    options: list[tuple[str, str]]
    operands: list[str]

    def has(self, *names: str) -> bool:
        return any(name in names for name, _ in self.options)

    @property
    def starts_with_glob(self) -> bool:
        """True if the first operand comes from a glob, so the shell decides which name is first."""
        return bool(self.operands) and isinstance(self.operands[0], GlobMatch)

    def list_values(self, *names: str) -> list[str]:
        return [value for name, value in self.options if name in names]


OperandCheck = Callable[[ParsedOptions, CommandScope], bool]
"""Checks the operands after every option was found to be known."""


class ReadOnlyCommand(Struct, frozen=True):
    """A command that is read-only with these options and with operands that pass `check`.

    `takes_number`: accepts `-5`. `value_pattern` must match every option value. `options_first`: words after the first
    operand are never options. `is_unbundled`: the program does not parse bundled short options in the usual way, so an
    option with a value must be its own word.
    """

    check: OperandCheck
    short: str = ""
    long: str = ""
    takes_number: bool = False
    value_pattern: str = ""
    options_first: bool = False
    is_unbundled: bool = False

    def accepts(self, words: Sequence[str], scope: CommandScope) -> bool:
        parsed = parse_options(self, words, scope)
        return parsed is not None and self.check(parsed, scope)


@lru_cache(maxsize=512)
def _parse_short_options(spec: str) -> dict[str, str]:
    return dict(re.findall(r"([^:?@])([:?@]?)", spec))


@lru_cache(maxsize=512)
def _parse_long_options(spec: str) -> dict[str, str]:
    return {name.rstrip("=?@"): name[len(name.rstrip("=?@")) :] for name in spec.split()}


def parse_options(known: ReadOnlyCommand, words: Sequence[str], scope: CommandScope) -> ParsedOptions | None:
    """Return the options and operands, or None if an option is not on the list."""
    parsed = ParsedOptions([], [])
    rest = list(reversed(words))
    while rest:
        word = rest.pop()
        if word == "--":
            parsed.operands.extend(reversed(rest))
            break
        if not word.startswith("-") or word == "-":
            parsed.operands.append(word)
        elif (
            isinstance(word, GlobMatch)
            or (known.options_first and parsed.operands)
            or (known.is_unbundled and _is_glued(word, known))
        ):
            return None
        elif known.takes_number and word[1:].isascii() and word[1:].isdigit():
            parsed.options.append(("number", word[1:]))
        elif not (
            _parse_long(word[2:], known, rest, parsed)
            if word.startswith("--")
            else _parse_bundle(word[1:], known, rest, parsed)
        ):
            return None
    return parsed if _are_values_valid(known, parsed, scope) else None


def _is_glued(word: str, known: ReadOnlyCommand) -> bool:
    """True if an option with a value has anything but a number in the same word."""
    options = _parse_short_options(known.short)
    valued = not word.startswith("--") and any(options.get(letter) for letter in word[1:])
    return valued and re.fullmatch(r"-.\d*", word, re.ASCII) is None


def _parse_long(text: str, known: ReadOnlyCommand, rest: list[str], parsed: ParsedOptions) -> bool:
    name, equals, value = text.partition("=")
    kind = _parse_long_options(known.long).get(name)
    if kind is None or (equals and kind in ("", "==")):
        return False
    for _ in range(2 if kind == "==" else int(kind in ("=", "@") and not equals)):
        if not rest or isinstance(rest[-1], GlobMatch):
            return False
        value = rest.pop()
    parsed.options.append((name, value))
    return True


def _parse_bundle(letters: str, known: ReadOnlyCommand, rest: list[str], parsed: ParsedOptions) -> bool:
    """Parse short options, bundled or not: `-la`, `-n5`, `-rn5`. Return False for an unknown one."""
    options = _parse_short_options(known.short)
    for index, letter in enumerate(letters):
        kind = options.get(letter)
        if kind is None:
            return False
        value = letters[index + 1 :] if kind else ""
        if kind in (":", "@") and not value:
            if not rest or isinstance(rest[-1], GlobMatch):
                return False
            value = rest.pop()
        parsed.options.append((letter, value))
        if kind:
            return True
    return bool(letters)


def _are_values_valid(known: ReadOnlyCommand, parsed: ParsedOptions, scope: CommandScope) -> bool:
    for name, value in parsed.options:
        if known.value_pattern and value and re.fullmatch(known.value_pattern, value) is None:
            return False
        kind = (_parse_short_options(known.short) if len(name) == 1 else _parse_long_options(known.long)).get(name, "")
        if kind == "@" and not scope.allows_content(value):
            return False
    return True


# --- operand checks ---


def has_no_operands(parsed: ParsedOptions, scope: CommandScope) -> bool:
    return not parsed.operands


def has_any_operands(parsed: ParsedOptions, scope: CommandScope) -> bool:
    return True


def has_only_names(parsed: ParsedOptions, scope: CommandScope) -> bool:
    return all("/" not in word for word in parsed.operands)


def has_inside_paths(parsed: ParsedOptions, scope: CommandScope) -> bool:
    """Paths whose metadata is shown: names, sizes, dates."""
    return all(scope.allows_path(word) for word in parsed.operands)


def has_readable_files(parsed: ParsedOptions, scope: CommandScope) -> bool:
    """Files whose content is shown."""
    return all(scope.allows_content(word) for word in parsed.operands)


def has_one_readable_file(parsed: ParsedOptions, scope: CommandScope) -> bool:
    """`uniq IN OUT` and similar commands write to their second operand."""
    return len(parsed.operands) <= 1 and has_readable_files(parsed, scope)


_MAX_MATCHES = 500
_MAX_GLOB_ENTRIES = 5_000
_MAX_PARTS = 6
_MAGIC = re.compile(r"[*?\[]")
_LETTER_BRACKETS = re.compile(r"\[(?:\w-\w|\w)+\]", re.ASCII)
_BRACKETS = re.compile(r"\[[^/]*\]")


class TooManyMatches(Exception):
    """A glob has too many matches, or too many folders to search."""


def expand_globs(words: Sequence[ShellWord], cwd: str) -> list[str] | None:
    """Return the words with each glob replaced by its matches and by itself, as the shell keeps it without a match.

    The matches may be more than the shell would find, never fewer. Returns None if there are too many.
    """
    texts: list[str] = []
    for word in words:
        if not word.glob:
            texts.append(word.text)
            continue
        try:
            matches = find_matches(word.text, cwd)
        except TooManyMatches:
            return None
        texts.extend(GlobMatch(name) for name in matches)
        texts.append(GlobMatch(word.text) if matches else word.text)
    return texts


def find_matches(pattern: str, cwd: str) -> list[str]:
    """Return all paths that a shell may substitute for this glob. Raises TooManyMatches."""
    parts = pattern.split("/")
    if len(parts) > _MAX_PARTS:
        raise TooManyMatches
    start = "/" if pattern.startswith("/") else ""
    budget = [_MAX_GLOB_ENTRIES]
    matches: list[str] = []
    for name in _walk_pattern(start, [part for part in parts if part], cwd, budget):
        matches.append(name + "/" if pattern.endswith("/") else name)
        if len(matches) > _MAX_MATCHES:
            raise TooManyMatches
    return [*matches, *_find_climbing_forms(parts)]


def _find_climbing_forms(parts: Sequence[str]) -> Iterator[str]:
    """Yield the pattern with `..` in place of a part that may match it, whether or not anything is there now."""
    for index, part in enumerate(parts):
        if _may_climb(part):
            yield "/".join([*parts[:index], "..", *parts[index + 1 :]])


def _may_climb(part: str) -> bool:
    """True if a part of a glob may match `..`, as it does in shells without `globskipdots`."""
    if not part.startswith(".") or not _MAGIC.search(part):
        return False
    return _compile_part(_LETTER_BRACKETS.sub("x", part)).match("..") is not None


def _compile_part(part: str) -> "re.Pattern[str]":
    return re.compile(translate(_BRACKETS.sub("*", part).replace("[", "[[]")))


def _walk_pattern(prefix: str, parts: Sequence[str], cwd: str, budget: list[int]) -> Iterator[str]:
    if not parts:
        yield prefix
        return
    part, rest = parts[0], parts[1:]
    glue = "" if prefix in ("", "/") else "/"
    if not _MAGIC.search(part):
        path = f"{prefix}{glue}{part}"
        if os.path.lexists(path if path.startswith("/") else f"{cwd}/{path}"):
            yield from _walk_pattern(path, rest, cwd, budget)
        return
    fits = _compile_part(part)
    names = _list_folder(prefix if prefix.startswith("/") else f"{cwd}/{prefix}", budget)
    for name in (*((".", "..") if _may_climb(part) else ()), *names):
        if (not name.startswith(".") or part.startswith(".")) and fits.match(name):
            yield from _walk_pattern(f"{prefix}{glue}{name}", rest, cwd, budget)


def _list_folder(folder: str, budget: list[int]) -> list[str]:
    try:
        names = os.listdir(folder)  # noqa: PTH208 (only names are needed)
    except (OSError, ValueError):
        return []
    budget[0] -= len(names) + 1
    if budget[0] < 0:
        raise TooManyMatches
    return names
