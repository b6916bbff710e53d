"""What a pattern in a command line stands for now, or more than that, but never less."""

import os
import re
from collections.abc import Iterator, Sequence
from fnmatch import translate

from odin.policy.command.harmless.options import GlobMatch
from odin.policy.command.shapes import ShellWord

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
