"""What a command did in its copy-on-write view: the list that users approve and the log records."""

import os
from typing import Literal

from msgspec import Struct

from odin.core.event_values import FileKind
from odin.core.format import format_size, pluralize

EffectKind = Literal["created", "changed", "attributes", "touched", "linked", "moved", "deleted"]
"""`attributes`: only mode, owner or extended attributes changed; `touched`: only the modification time; `linked`: only
another hard link was added; `moved`: a folder with everything in it. A file that was moved is deleted and created."""

EffectGroup = Literal["", "cache", "git"]
"""`cache`: a program can make it again; `git`: part of a repository's git folder."""


class FileEffect(Struct, frozen=True, omit_defaults=True):
    """One path. Folders that were created or deleted are followed by effects for all that is in them.

    Paths are absolute and encoded (`path_names.encode_path`). `source` is where a moved folder, or a path below one,
    was before. `refusal` says why the effect cannot be made real, so that the command must run without a view. A
    created path of kind `other` (a socket, pipe or device) is left out.
    """

    path: str
    kind: EffectKind
    before: FileKind = "absent"
    after: FileKind = "absent"
    mode_before: int = 0
    mode: int = 0
    size: int = 0
    source: str = ""
    group: EffectGroup = ""
    refusal: str = ""

    @property
    def verb(self) -> str:
        return "changed the attributes of" if self.kind == "attributes" else self.kind

    @property
    def is_folder(self) -> bool:
        return self.before == "folder" or self.after == "folder"


ViewMode = Literal["trusted", "user"]
"""Who mounted a view: root, or an ordinary user in a namespace."""


class ViewRoot(Struct, frozen=True):
    """A folder that the view shows, by its real path, and its upper layer."""

    real: str
    upper: str
    work: str


class ViewLayer(Struct, frozen=True):
    """`since` is when the command started, by the clock of the file system: what others change later is a conflict."""

    folder: str
    roots: tuple[ViewRoot, ...]
    mode: ViewMode
    since: int = 0

    @property
    def name(self) -> str:
        return os.path.basename(self.folder)  # noqa: PTH119

    @property
    def stage(self) -> str:
        """Where applying it keeps what it replaces. An interrupted apply is resumed from it."""
        return f"{self.folder}/stage"

    @property
    def prefix(self) -> str:
        """That of the mount's own attributes."""
        return f"{self.mode}.overlay."


CACHE_NAMES = frozenset(("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".benchmarks"))
"""Made by interpreters and checkers in every run; the last one by a usual plugin of pytest, empty."""

PACKAGE_NAMES = frozenset(
    ("node_modules", "bower_components", "site-packages", "venv", ".venv", ".tox", ".nox", ".eggs", ".gradle")
)
"""Folders that package managers fill: one line each."""


class FolderSummary(Struct, frozen=True):
    """The effects in one folder as one line. `size` is that of the created and changed files."""

    path: str
    created: int = 0
    changed: int = 0
    deleted: int = 0
    size: int = 0

    def describe(self) -> str:
        """Return `12,403 files, 88 MB`, or what happened to them if it is not all the same."""
        counts = {"created": self.created, "changed": self.changed, "deleted": self.deleted}
        parts = [f"{number:,} {word}" for word, number in counts.items() if number]
        if self.created == sum(counts.values()):
            parts = [pluralize(self.created, "file")]
        elif len(parts) == 1:
            parts = [f"{pluralize(sum(counts.values()), 'file')} {parts[0].partition(' ')[2]}"]
        return ", ".join([*parts, *([format_size(self.size)] if self.size else [])])


class EffectSummary(Struct, frozen=True):
    """Effects as users see them: `files` one by one, `folders` and `caches` as one line each, `git` in git's words.

    In a request, paths in the project are relative to it, and `more` files are left out.
    """

    files: tuple[FileEffect, ...] = ()
    folders: tuple[FolderSummary, ...] = ()
    caches: tuple[FolderSummary, ...] = ()
    git: tuple[FileEffect, ...] = ()
    more: int = 0
