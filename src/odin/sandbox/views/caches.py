"""Which effects are caches: files that a program makes again, so that nobody needs to be asked about them.

A cache is known by the name of its folder or by its tag (https://bford.info/cachedir). A tag counts for nothing in a
folder that other programs run or read something from: an environment or another package folder (uv tags its own), a
folder that existed before the command and had no tag, and a new one whose name does not say that it is a cache. Cargo
makes `target`.
"""

import os
import stat
from collections.abc import Collection, Sequence
from contextlib import suppress

from odin.core.effects import CACHE_NAMES, PACKAGE_NAMES, EffectGroup, FileEffect, ViewLayer
from odin.core.path_names import contains, decode_path
from odin.sandbox.views.open_tree import OpenTree

_TAG_NAME, _TAG = "CACHEDIR.TAG", b"Signature: 8a477f597d28d172789f06886806bc55"

_EMPTY = bytes.fromhex("e69de29bb2d1d6434b8b29ae775ad8c2e48c5391")
"""Git's name for an empty file."""

_CACHED_EXTENSIONS = frozenset((b"UNTR", b"FSMN"))
"""Parts of a git index that say what git has seen of the project. Git commits what another one, TREE, says."""


def is_kept_unasked(effect: FileEffect) -> bool:
    """True for a cache that can be made real although nobody was asked.

    Not the byte code of Python: an interpreter outside would run it in place of the source, and that it was made from
    the source can only be known by making it again. It is discarded, unless all effects are applied.
    """
    return effect.group == "cache" and not (effect.path.endswith((".pyc", ".pyo")) or "/__pycache__" in effect.path)


class GroupFinder:
    """Finds the group of the effects of one root; their paths are relative to it."""

    def __init__(self, effects: Sequence[FileEffect], upper: OpenTree, real: OpenTree, since: int) -> None:
        self._upper, self._real, self._since = upper, real, since
        self._created = {effect.path for effect in effects if effect.kind == "created" and effect.after == "folder"}
        self._caches: dict[str, bool] = {"": False}
        self._is_git = ".git" in real.path.split("/")

    def find(self, effect: FileEffect) -> EffectGroup:
        # What was moved was a cache, too, or it would be missing; a link can lead other programs to any file, and a
        # set-user-ID program lets others act as the user.
        paths = filter(None, (effect.path, effect.source))
        folders = [path if effect.is_folder else path.rpartition("/")[0] for path in paths]
        is_plain = effect.after != "link" and not (effect.after == "file" and effect.mode & 0o6000)
        if is_plain and all(map(self._is_cache, folders)):
            return "cache"
        if not self._is_git and ".git" not in effect.path.split("/"):
            return ""
        folder, _, name = effect.path.rpartition("/")
        if name == "COMMIT_EDITMSG" and effect.after == "file" and "refs" not in folder.split("/"):
            return "cache"  # a draft, which git leaves behind even if there was nothing to commit
        is_same = effect.kind in ("changed", "touched") and effect.mode == effect.mode_before
        if is_same and name == "index" and self._is_refreshed(effect.path):
            return "cache"
        return "git"

    def _is_cache(self, folder: str) -> bool:
        outer: list[str] = []
        while folder not in self._caches:
            outer.append(folder)
            folder = folder.rpartition("/")[0]
        for inner in reversed(outer):
            name = inner.rpartition("/")[2]
            is_tagged = self._caches[folder] or self._has_tag(inner, name)
            self._caches[inner] = name in CACHE_NAMES or (is_tagged and not self._is_package(inner))
            folder = inner
        return self._caches[folder]

    def _is_package(self, folder: str) -> bool:
        mark = f"{folder}/pyvenv.cfg"
        return not PACKAGE_NAMES.isdisjoint(folder.split("/")) or bool(self._upper.find(mark) or self._real.find(mark))

    def _has_tag(self, folder: str, name: str) -> bool:
        is_new = folder in self._created
        if is_new and not (name.startswith(".") and "cache" in name) and name != "target":
            return False
        tree, path = self._upper if is_new else self._real, f"{folder}/{_TAG_NAME}"
        status = tree.find(path)
        if status is None or not stat.S_ISREG(status.st_mode):
            return False
        if tree is self._real and status.st_ctime_ns >= self._since:
            return False
        return _read(tree, path, len(_TAG)) == _TAG

    def _is_refreshed(self, path: str) -> bool:
        """True if an index has the same entries as before, apart from what git notes about the files in the project."""
        try:
            entries = [parse_index(_read(tree, path)) for tree in (self._upper, self._real)]
        except (ValueError, IndexError):
            return False
        return entries[0] == entries[1]


def _read(tree: OpenTree, path: str, limit: int = -1) -> bytes:
    try:
        with os.fdopen(tree.open_file(path), "rb") as file:
            return file.read(limit)
    except OSError:
        return b""


def find_emptied(layer: ViewLayer, effects: Sequence[FileEffect], hidden: Collection[str]) -> tuple[str, ...]:
    """Return the hidden files that git has recorded as empty, because it saw them so."""
    found: set[str] = set()
    for effect in effects:
        path = decode_path(effect.path)
        if not effect.group or not path.endswith("/index"):
            continue
        root = max((root for root in layer.roots if contains(root.real, path)), key=lambda root: len(root.real))
        with OpenTree(root.upper) as upper, OpenTree(root.real) as real, suppress(ValueError, IndexError):
            name = path[len(root.real) + 1 :]
            old = parse_index(_read(real, name)) if real.find(name) else []
            entries = [entry for entry in parse_index(_read(upper, name)) if _EMPTY in entry and entry not in old]
            found |= {one for one in hidden if any(one.endswith(f"/{os.fsdecode(entry[26:])}") for entry in entries)}
    return tuple(sorted(found))


def parse_index(data: bytes) -> list[bytes]:
    """Return the parts of a git index that mean something: mode, object, flags and name of its entries, extensions.

    Raise ValueError or IndexError if its format is not known (SHA-256, for example).
    """
    import hashlib

    version, count = int.from_bytes(data[4:8], "big"), int.from_bytes(data[8:12], "big")
    is_unsummed = not any(data[-20:]) and any(data[-32:-20])  # index.skipHash
    is_known = is_unsummed or hashlib.sha1(data[:-20]).digest() == data[-20:]
    if data[:4] != b"DIRC" or version not in (2, 3, 4) or not is_known:
        raise ValueError("unknown index format")
    parts: list[bytes] = []
    at, name = 12, b""
    for _ in range(count):
        start = at
        at += 64 if data[at + 60] & 0x40 else 62
        flags = data[start + 24 : start + 28] + data[start + 40 : at]
        if version == 4:
            cut = data[at] & 0x7F
            while data[at] & 0x80:
                at += 1
                cut = ((cut + 1) << 7) | (data[at] & 0x7F)
            end = data.index(b"\0", at + 1)
            name = name[: len(name) - cut] + data[at + 1 : end]
            at = end + 1
        else:
            end = data.index(b"\0", at)
            name = data[at:end]
            at = start + (end - start + 8) // 8 * 8
        parts.append(flags + name)
    while at < len(data) - 20:
        size = int.from_bytes(data[at + 4 : at + 8], "big")
        if data[at : at + 4] not in _CACHED_EXTENSIONS:
            parts.append(data[at : at + 8 + size])
        at += 8 + size
    return parts
