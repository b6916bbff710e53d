"""The options of a command taken off, one by one, against a list of those that are known.

Options are written as for getopt. Among the short ones, `n:` takes a value, `M?` may have one glued on, `f@` takes the
name of a file that is read. Among the long ones, `name=` takes a value, `name?` may have one after `=`, `name@` names a
file, and `name==` takes the next two words. A long option counts in its full spelling only.

What a pattern in a command line stands for now, or more than that, but never less.
"""

import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from fnmatch import translate
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from odin.core.path_names import contains, is_secret_folder, is_secret_name, is_secret_path
from odin.policy.commands.syntax import ShellWord
from odin.policy.paths import is_folder, is_special_file, resolve_path

_MAX_ENTRIES = 20_000
"""How many names a look into a tree takes in before it gives up."""

_MAX_IGNORES = 20_000
_PACKAGE_FOLDERS = frozenset(("node_modules", "site-packages", ".venv", "venv", ".tox", "__pycache__"))
"""Folders of what package managers fetched: the sample keys in them are nobody's secret."""


class ReadScope(Struct, frozen=True):
    cwd: str
    root: str

    def allows_path(self, path: str) -> bool:
        """Whether an operand stays inside the root and is something that can be read to its end."""
        found = resolve_path(path, self.cwd)
        return found is not None and contains(self.root, found) and not is_special_file(path, self.cwd)

    def allows_name(self, path: str) -> bool:
        """Whether a name itself, be it that of a link, lies inside: enough where no link is followed."""
        folder, _, name = path.rstrip("/").rpartition("/")
        return name not in ("", ".", "..") and self.is_within(folder or ("/" if path.startswith("/") else "."))

    def allows_content(self, path: str) -> bool:
        """Whether the content of an operand may be printed: it is held here and is not known to hold secrets."""
        if path == "-":
            return True
        found = resolve_path(path, self.cwd)
        if found is None or not contains(self.root, found) or is_special_file(path, self.cwd):
            return False
        return not is_secret_path(path) and not is_secret_path(found)

    def is_within(self, path: str) -> bool:
        """Whether a word, if it is a path, leads nowhere else."""
        found = resolve_path(path, self.cwd)
        return found is not None and contains(self.root, found)

    def walk_up(self) -> Iterator[str]:
        """The folder and those above it, up to the root."""
        folder = self.cwd
        while contains(self.root, folder):
            yield folder
            if folder == self.root:
                return
            folder = folder.rpartition("/")[0]

    def has_config(self, names: Sequence[str]) -> bool:
        """Whether one of these files lies here or above, where a program would find it."""
        return any(os.path.lexists(f"{folder}/{name}") for folder in self.walk_up() for name in names)


def _has_negated_ignores(folder: str) -> bool:
    """Whether a list of ignored files also names some that are not: those are searched, even hidden ones."""
    for name in (".gitignore", ".ignore", ".rgignore", ".git/info/exclude"):
        try:
            with Path(folder, name).open(encoding="utf-8", errors="replace") as file:
                text = file.read(_MAX_IGNORES)
        except OSError:
            continue
        if len(text) == _MAX_IGNORES or re.search(r"(?m)^\s*!", text):
            return True
    return False


class TreeScan(Struct, frozen=True):
    """Which files of a tree a search would open. `follows` when it also goes through links and opens pipes."""

    patterns: tuple[str, ...] = ()
    skipped_names: Collection[str] = ()
    include_hidden: bool = True
    follow_links: bool = False

    def is_clear(self, path: str, scope: ReadScope) -> bool:
        """Whether nothing below this path is secret or leads out. False also when there is too much to look at."""
        if not self.include_hidden and any(_has_negated_ignores(folder) for folder in scope.walk_up()):
            return TreeScan(self.patterns, follow_links=self.follow_links).is_clear(path, scope)
        top = resolve_path(path, scope.cwd)
        if top is None or is_secret_path(path) or is_secret_path(top):
            return False
        if not is_folder(top):
            return scope.allows_content(path)
        wanted = re.compile("|".join(translate(pattern) for pattern in self.patterns)) if self.patterns else None
        budget = _MAX_ENTRIES
        folders = [top]
        while folders:
            folder = folders.pop()
            if not self.include_hidden and _has_negated_ignores(folder):
                return TreeScan(self.patterns, follow_links=self.follow_links).is_clear(path, scope)
            found = self._list_entries(folder)
            budget -= len(found)
            if budget < 0:
                return False
            for entry in found:
                if not self._is_entry_clear(entry, wanted, folders, scope):
                    return False
        return True

    def _is_entry_clear(
        self, entry: "os.DirEntry[str]", wanted: "re.Pattern[str] | None", folders: list[str], scope: ReadScope
    ) -> bool:
        if entry.is_dir(follow_symlinks=False):
            if is_secret_folder(entry.name):
                return False
            fetched = entry.name in _PACKAGE_FOLDERS and not self.follow_links
            if entry.name != ".git" and not fetched and entry.name not in self.skipped_names:
                folders.append(entry.path)
            return True
        if self.follow_links and not entry.is_file(follow_symlinks=False):
            return False
        return not (is_secret_name(entry.name) and (wanted is None or wanted.match(entry.name)))

    def _list_entries(self, folder: str) -> "list[os.DirEntry[str]]":
        try:
            with os.scandir(folder) as found:
                return [entry for entry in found if self.include_hidden or not entry.name.startswith(".")]
        except OSError:
            return []


class GlobMatch(str):
    """A word that the shell puts in place of a pattern. It may be an operand, but never the value of an option."""

    __slots__ = ()


class ParsedOptions(Struct):
    """A command line with its options taken off: which were there, with their values, and what is left."""

    options: list[tuple[str, str]]
    operands: list[str]

    def has(self, *names: str) -> bool:
        return any(name in names for name, _ in self.options)

    @property
    def starts_with_glob(self) -> bool:
        """Whether the first operand is not certain: which of its names a pattern puts first is up to the shell."""
        return bool(self.operands) and isinstance(self.operands[0], GlobMatch)

    def values_of(self, *names: str) -> list[str]:
        return [value for name, value in self.options if name in names]


OperandCheck = Callable[[ParsedOptions, ReadScope], bool]
"""Judges what is left when every option is known."""


class ReadOnlyCommand(Struct, frozen=True):
    """One command that may run: its harmless options and what its operands must be.

    `number` when it takes `-5`; `values` is what every value of an option must match; `first` when what follows the
    first operand is no option any more, whatever it looks like; `apart` when it does not read a bundle as others do, so
    that an option with a value must stand alone.
    """

    check: OperandCheck
    short: str = ""
    long: str = ""
    takes_number: bool = False
    value_pattern: str = ""
    options_first: bool = False
    is_unbundled: bool = False

    def accepts(self, words: Sequence[str], scope: ReadScope) -> bool:
        taken = parse_options(self, words, scope)
        return taken is not None and self.check(taken, scope)


@lru_cache(maxsize=512)
def _parse_short_options(spec: str) -> dict[str, str]:
    return dict(re.findall(r"([^:?@])([:?@]?)", spec))


@lru_cache(maxsize=512)
def _parse_long_options(spec: str) -> dict[str, str]:
    return {name.rstrip("=?@"): name[len(name.rstrip("=?@")) :] for name in spec.split()}


def parse_options(known: ReadOnlyCommand, words: Sequence[str], scope: ReadScope) -> ParsedOptions | None:
    """The options and operands; None when an option is not known to be harmless."""
    taken = ParsedOptions([], [])
    rest = list(reversed(words))
    while rest:
        word = rest.pop()
        if word == "--":
            taken.operands.extend(reversed(rest))
            break
        if not word.startswith("-") or word == "-":
            taken.operands.append(word)
        elif (
            isinstance(word, GlobMatch)
            or (known.options_first and taken.operands)
            or (known.is_unbundled and _is_glued(word, known))
        ):
            return None
        elif known.takes_number and word[1:].isascii() and word[1:].isdigit():
            taken.options.append(("number", word[1:]))
        elif not (
            _parse_long(word[2:], known, rest, taken)
            if word.startswith("--")
            else _parse_bundle(word[1:], known, rest, taken)
        ):
            return None
    return taken if _are_values_valid(known, taken, scope) else None


def _is_glued(word: str, known: ReadOnlyCommand) -> bool:
    """Whether an option that takes a value has anything but a number in the same word."""
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
    """Short options, which may stand together: `-la`, `-n5`, `-rn5`."""
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


def _are_values_valid(known: ReadOnlyCommand, parsed: ParsedOptions, scope: ReadScope) -> bool:
    for name, value in parsed.options:
        if known.value_pattern and value and re.fullmatch(known.value_pattern, value) is None:
            return False
        kind = (_parse_short_options(known.short) if len(name) == 1 else _parse_long_options(known.long)).get(name, "")
        if kind == "@" and not scope.allows_content(value):
            return False
    return True


# --- what operands may be ---


def has_no_operands(parsed: ParsedOptions, scope: ReadScope) -> bool:
    return not parsed.operands


def has_any_operands(parsed: ParsedOptions, scope: ReadScope) -> bool:
    return True


def has_only_names(parsed: ParsedOptions, scope: ReadScope) -> bool:
    return all("/" not in word for word in parsed.operands)


def has_inside_paths(parsed: ParsedOptions, scope: ReadScope) -> bool:
    """Paths of which only the outside is shown: names, sizes, dates."""
    return all(scope.allows_path(word) for word in parsed.operands)


def has_readable_files(parsed: ParsedOptions, scope: ReadScope) -> bool:
    """Files whose content is shown."""
    return all(scope.allows_content(word) for word in parsed.operands)


def has_one_readable_file(parsed: ParsedOptions, scope: ReadScope) -> bool:
    """`uniq IN OUT` and its kin write their second operand."""
    return len(parsed.operands) <= 1 and has_readable_files(parsed, scope)


_MAX_MATCHES = 500
_MAX_GLOB_ENTRIES = 5_000
_MAX_PARTS = 6
_MAGIC = re.compile(r"[*?\[]")
_BRACKETS = re.compile(r"\[[^/]*\]")


class TooManyMatches(Exception):
    """There is more to look at than is worth it."""


def expand_globs(words: Sequence[ShellWord], cwd: str) -> list[str] | None:
    """The words with patterns replaced by what they match, and by themselves, which is what is left without a match.

    None when that is too much to look at.
    """
    texts: list[str] = []
    for word in words:
        if not word.glob:
            texts.append(word.text)
            continue
        try:
            found = find_matches(word.text, cwd)
        except TooManyMatches:
            return None
        texts.extend(GlobMatch(name) for name in found)
        texts.append(GlobMatch(word.text) if found else word.text)
    return texts


def find_matches(pattern: str, cwd: str) -> list[str]:
    """All paths that a shell may put in place of this pattern. Raises TooMany."""
    parts = pattern.split("/")
    if len(parts) > _MAX_PARTS:
        raise TooManyMatches
    start = "/" if pattern.startswith("/") else ""
    budget = [_MAX_GLOB_ENTRIES]
    found: list[str] = []
    for name in _walk_pattern(start, [part for part in parts if part], cwd, budget):
        found.append(name + "/" if pattern.endswith("/") else name)
        if len(found) > _MAX_MATCHES:
            raise TooManyMatches
    return found


def _walk_pattern(prefix: str, parts: Sequence[str], cwd: str, budget: list[int]) -> Iterator[str]:
    if not parts:
        yield prefix
        return
    part, rest = parts[0], parts[1:]
    glue = "" if prefix in ("", "/") else "/"
    if not _MAGIC.search(part):
        here = f"{prefix}{glue}{part}"
        if os.path.lexists(here if here.startswith("/") else f"{cwd}/{here}"):
            yield from _walk_pattern(here, rest, cwd, budget)
        return
    fits = re.compile(translate(_BRACKETS.sub("*", part).replace("[", "[[]")))
    for name in _list_folder(prefix if prefix.startswith("/") else f"{cwd}/{prefix}", budget):
        if (not name.startswith(".") or part.startswith(".")) and fits.match(name):
            yield from _walk_pattern(f"{prefix}{glue}{name}", rest, cwd, budget)


def _list_folder(folder: str, budget: list[int]) -> list[str]:
    try:
        found = os.listdir(folder)  # noqa: PTH208 (only names are needed)
    except (OSError, ValueError):
        return []
    budget[0] -= len(found) + 1
    if budget[0] < 0:
        raise TooManyMatches
    return found
