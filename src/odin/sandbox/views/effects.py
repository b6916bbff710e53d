"""What a command did in its view: its upper layer compared with the real files.

In an upper layer, a character device 0:0 is a deleted name (a whiteout), a folder marked `opaque` hides all that the
real one has, `redirect` marks a moved folder, and `origin` what was copied up before it changed. A file that was copied
up and is still equal is no effect. Everything else is compared entry by entry, also below an opaque folder, so that the
list names exactly what differs.
"""

import os
import stat
from collections.abc import Collection, Iterator

from msgspec import Struct
from msgspec.structs import replace

from odin.core.effects import EffectKind, FileEffect, ViewLayer
from odin.core.path_names import encode_path
from odin.sandbox.views.caches import GroupFinder
from odin.sandbox.views.open_tree import OpenTree, get_kind, point_at, read_attributes, read_marks

SEVERAL_LINKS = "it has several hard links, which a view cannot keep"
GONE = "it was moved or deleted meanwhile"
TOO_LARGE = "it is larger than 512 MB"
TOO_DEEP = "there are too many folders around it"

_MAX_BYTES = 512_000_000
"""A larger file is copied as a whole when a command changes a byte of it, and once more for undo."""

_MAX_PATH, _MAX_DEPTH = 4096, 500
"""Longer paths cannot be opened. What is deeper is not looked at: the time that takes grows with the square."""

_BLOCK = 1 << 20


class _UpperEntry(Struct, frozen=True):
    """One path of an upper layer. `lower` is its counterpart in the real tree, if there is one.

    `via` is the source of the moved folder around it, `source` its own if it was moved. `hides`: nothing of the real
    folder shows through; `names` are those in the upper folder.
    """

    path: str
    lower: str
    via: str
    status: os.stat_result
    marks: dict[str, bytes]
    source: str
    hides: bool
    names: tuple[str, ...]


def read_effects(layer: ViewLayer) -> tuple[FileEffect, ...]:
    """Return the effects by root and path. All processes of the view must have ended."""
    effects: list[FileEffect] = []
    for root in layer.roots:
        with OpenTree(root.upper) as upper, OpenTree(root.real) as real:
            locked: list[tuple[str, int]] = []
            try:
                entries = _list_entries(upper, layer.prefix, locked)
                found = sorted(_compare(entries, upper, real, layer.prefix), key=lambda effect: effect.path.split("/"))
                groups = GroupFinder(found, upper, real, layer.since)
                for effect in found:
                    path = encode_path(f"{root.real}/{effect.path}".rstrip("/"))
                    source = effect.source and encode_path(f"{root.real}/{effect.source}")
                    refusal = TOO_DEEP if _is_too_deep(effect.path) else effect.refusal
                    group = groups.find(effect)
                    effects.append(replace(effect, path=path, source=source, group=group, refusal=refusal))
            finally:
                for path, mode in reversed(locked):
                    os.chmod(point_at(upper.locate(path)), mode)  # noqa: PTH101
    # A moved hard link is a deleted name and a new file, which is no longer the same as the other links. If there is no
    # new file, the deleted ones were not moved.
    if not any(effect.after == "file" and effect.kind in ("created", "changed") for effect in effects):
        effects = [replace(effect, refusal="") if effect.kind == "deleted" else effect for effect in effects]
    return tuple(effects)


def _is_too_deep(path: str) -> bool:
    return len(path) > _MAX_PATH or path.count("/") >= _MAX_DEPTH


def _list_entries(upper: OpenTree, prefix: str, locked: list[tuple[str, int]]) -> list[_UpperEntry]:
    """List an upper layer, outer folders first. Folders that the user cannot read are opened and noted in `locked`."""
    top = upper.find("")
    if top is None:
        raise FileNotFoundError(upper.path)
    entries: list[_UpperEntry] = []
    todo = [("", "", "", False, top)]
    while todo:
        path, lower, via, hides, status = todo.pop()
        source = ""
        marks: dict[str, bytes] = {}
        names: tuple[str, ...] = ()
        if stat.S_ISDIR(status.st_mode) and os.geteuid() and status.st_mode & 0o500 != 0o500:
            os.chmod(point_at(upper.locate(path)), 0o700)  # noqa: PTH101
            locked.append((path, stat.S_IMODE(status.st_mode)))
        if path:
            marks = read_marks(point_at(upper.locate(path)), prefix)
        if stat.S_ISDIR(status.st_mode):
            target = os.fsdecode(marks.get("redirect", b""))
            if target and ".." not in target.split("/"):
                folder = lower.rpartition("/")[0]
                source = target[1:] if target[0] == "/" else f"{folder}/{target}".lstrip("/")
            hides = not source and (hides or marks.get("opaque") == b"y")
            names = () if _is_too_deep(path) else tuple(upper.list_names(path))
            for name in names:
                inner = upper.find(f"{path}/{name}".lstrip("/"))
                if inner is not None:
                    below = f"{source or lower}/{name}".lstrip("/")
                    todo.append((f"{path}/{name}".lstrip("/"), below, source or via, hides, inner))
        entries.append(_UpperEntry(path, lower, via, status, marks, source, hides, names))
    return entries


def _compare(entries: list[_UpperEntry], upper: OpenTree, real: OpenTree, prefix: str) -> Iterator[FileEffect]:
    """Yield the effects with paths relative to the root."""
    sources = {entry.source for entry in entries if entry.source}

    def find_real(path: str, via: str) -> os.stat_result | None:
        """Find what the view shows of the real tree at this path: nothing where a folder was moved away."""
        return real.find(path) if find_outer(path, sources) in (None, via) else None

    def delete(path: str) -> Iterator[FileEffect]:
        todo = [path]
        while todo:
            path = todo.pop()
            status = real.find(path)
            if status is None or path in sources:
                continue
            if stat.S_ISDIR(status.st_mode):
                todo += (f"{path}/{name}" for name in real.list_names(path))
            effect = _make_effect(path, "deleted", status, None)
            is_linked = effect.before == "file" and status.st_nlink > 1
            yield replace(effect, refusal=SEVERAL_LINKS) if is_linked else effect

    for entry in entries:
        path, new = entry.path, entry.status
        old = find_real(entry.lower, entry.via)
        before, after = get_kind(old), get_kind(new)
        source = entry.lower if entry.lower != path else ""
        if after == "folder":
            if entry.source:
                if old is not None:
                    yield from delete(entry.lower)
                source, old = entry.source, find_real(entry.source, entry.source)
                effect = _make_effect(path, "moved", old, new, source)
                yield effect if effect.before == "folder" else replace(effect, refusal=GONE)
            elif before != "folder":
                if old is not None:
                    yield from delete(entry.lower)
                effect = _make_effect(path, "created", None, new)
                is_gone = old is None and "origin" in entry.marks and not entry.hides
                yield replace(effect, refusal=GONE) if is_gone else effect
                continue
            if old is not None and stat.S_ISDIR(old.st_mode):
                kind = _compare_attributes(path, new, source or path, old, upper, real, prefix)
                if kind:
                    yield _make_effect(path, kind, old, new, source)
                for name in real.list_names(entry.lower) if entry.hides else ():
                    if name not in entry.names:
                        yield from delete(f"{entry.lower}/{name}")
        elif after == "other":
            if old is not None:
                yield from delete(entry.lower)
            if not (stat.S_ISCHR(new.st_mode) and new.st_rdev == 0):
                yield _make_effect(path, "created", None, new)
        elif old is None or before == "folder":
            if old is not None:
                yield from delete(entry.lower)
            yield _make_effect(path, "created", None, new)
        else:
            kind = "changed"
            if before == after and has_same_content(path, new, source or path, old, upper, real):
                kind = _compare_attributes(path, new, source or path, old, upper, real, prefix)
                if after == "file" and new.st_nlink > 1:
                    kind = "changed" if kind else "linked"
            if kind:
                is_large = kind == "changed" and max(old.st_size, new.st_size) > _MAX_BYTES
                is_linked = before == "file" and old.st_nlink > 1
                refusal = SEVERAL_LINKS if is_linked else TOO_LARGE if is_large else ""
                yield replace(_make_effect(path, kind, old, new, source), refusal=refusal)


def find_outer(path: str, folders: Collection[str]) -> str | None:
    """Return the innermost of these folders that is the path or contains it."""
    while path and folders:
        if path in folders:
            return path
        path = path.rpartition("/")[0]
    return None


def _make_effect(
    path: str, kind: EffectKind, old: os.stat_result | None, new: os.stat_result | None, source: str = ""
) -> FileEffect:
    shown = new or old
    return FileEffect(
        path,
        kind,
        get_kind(old),
        get_kind(new),
        mode_before=0 if old is None else stat.S_IMODE(old.st_mode),
        mode=0 if new is None else stat.S_IMODE(new.st_mode),
        size=shown.st_size if shown is not None and not stat.S_ISDIR(shown.st_mode) else 0,
        source=source,
    )


def _compare_attributes(
    path: str,
    new: os.stat_result,
    lower: str,
    old: os.stat_result,
    upper: OpenTree,
    real: OpenTree,
    prefix: str,
) -> EffectKind | None:
    if (new.st_mode, new.st_uid, new.st_gid) != (old.st_mode, old.st_uid, old.st_gid):
        return "attributes"
    ours, theirs = (read_attributes(point_at(tree.locate(at)), prefix) for tree, at in ((upper, path), (real, lower)))
    if ours != theirs:
        return "attributes"
    return "touched" if new.st_mtime_ns != old.st_mtime_ns else None


def has_same_content(
    path: str, new: os.stat_result, lower: str, old: os.stat_result, upper: OpenTree, real: OpenTree
) -> bool:
    if new.st_size != old.st_size:
        return False
    places = upper.locate(path), real.locate(lower)
    if stat.S_ISLNK(new.st_mode):
        ours, theirs = (os.readlink(name, dir_fd=fd) for fd, name in places)
        return ours == theirs
    try:
        with os.fdopen(upper.open_file(path), "rb") as one, os.fdopen(real.open_file(lower), "rb") as other:
            while block := one.read(_BLOCK):
                if block != other.read(_BLOCK):
                    return False
    except PermissionError:
        return False  # it is replaced, which needs no reading
    return True
