"""The lines of .gitignore and the like."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from odin.tools.searching.pattern import translate_glob


class IgnoreRule(Struct, frozen=True):
    """One line of an ignore file, applied byte by byte to paths below the folder the file is in."""

    base: str
    pattern: "re.Pattern[bytes]"
    negated: bool
    folders_only: bool

    def fits(self, path: str, is_folder: bool) -> bool:
        if self.folders_only and not is_folder:
            return False
        return self.pattern.fullmatch(os.fsencode(path.removeprefix(self.base))) is not None


def is_in_repository(path: str) -> bool:
    return any(os.path.lexists(folder / ".git") for folder in (Path(path), *Path(path).parents))


def read_ignore_file(folder: str, name: str) -> list[IgnoreRule]:
    try:
        text = Path(folder, name).read_text("utf-8", "surrogateescape")
    except OSError:
        return []
    lines = text.removeprefix("\ufeff").split("\n")
    return [rule for line in lines if (rule := parse_ignore_line(folder, line.removesuffix("\r"))) is not None]


def parse_ignore_line(folder: str, line: str) -> IgnoreRule | None:
    """None for a comment, an empty line, and what is no pattern."""
    if line.startswith("#"):
        return None
    line = re.sub(r"(?<!\\)\s+$", "", line)
    negated = line.startswith("!")
    body = line[1:] if negated else line
    anchored = body.startswith("/")
    body = body.removeprefix("/")
    folders_only = body.endswith("/")
    body = body.removesuffix("/")
    if not body:
        return None
    glob = body if anchored or "/" in body else f"**/{body}"
    if glob.endswith("/**"):
        glob += "/*"
    try:
        pattern = re.compile(os.fsencode(translate_glob(glob)), re.DOTALL)
    except re.error:
        return None
    return IgnoreRule(f"{folder.rstrip('/')}/", pattern, negated, folders_only)


def decide_ignored(path: str, is_folder: bool, groups: Sequence[Sequence[IgnoreRule]]) -> bool | None:
    """Whether it is ignored; None when no rule speaks of it. Within a group the last rule that fits decides."""
    for rules in groups:
        for rule in reversed(rules):
            if rule.fits(path, is_folder):
                return not rule.negated
    return None
