"""Unified diff of what a tool call would change, or what a command has changed in its view, for the permission request.

Nothing is written.
"""

import asyncio
import os
import stat
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from typing import Any

from odin.core.effects import PACKAGE_NAMES, FileEffect, ViewLayer
from odin.core.errors import OdinError
from odin.core.event_values import FileKind
from odin.core.path_names import contains, decode_path, show_path
from odin.core.tool import ResolvedPath
from odin.policy.paths import name_in, open_parent, read_status
from odin.sandbox.views.open_tree import OpenTree
from odin.tools.diff import compare
from odin.tools.edit import EditArgs, MultiEditArgs, PatchArgs
from odin.tools.files import DecodedText, Refusal, decode, is_crlf, open_regular, to_printable
from odin.tools.replacement import Edit, EditBuffer
from odin.tools.staleness import exists
from odin.tools.whole_file import AppendArgs, DeleteArgs, WriteArgs

MAX_LINES = 200
MAX_CHARS = 20_000

MAX_BYTES = 2_000_000
"""Larger files are not compared."""

PREVIEW_TIMEOUT_S = 5.0


async def preview_change(args: Any, resolved_paths: Sequence[ResolvedPath]) -> str:
    """Return the change of the checked paths as text. Never raises."""
    return await preview_diff(asyncio.to_thread(_describe_change, args, resolved_paths))


async def preview_effects(layer: ViewLayer, effects: Sequence[FileEffect], root: str) -> str:
    """Return what a command has done to text files, as a diff. Never raises."""
    return await preview_diff(asyncio.to_thread(_diff_effects, layer, effects, root))


def _diff_effects(layer: ViewLayer, effects: Sequence[FileEffect], root: str) -> str:
    """Return the diffs of created, changed and deleted text files, changed ones first.

    Git's own files and those of package folders are left out.
    """
    diffs: list[str] = []
    length = 0
    order = sorted((effect for effect in effects if effect.kind in _DIFFED), key=lambda one: _DIFFED.index(one.kind))
    with ExitStack() as stack:
        trees = [
            (place.real, *(stack.enter_context(OpenTree(path)) for path in (place.real, place.upper)))
            for place in layer.roots
        ]
        for effect in order:
            path = decode_path(effect.path)
            is_text = not {"file", "link"}.isdisjoint((effect.before, effect.after)) and not effect.group
            if not is_text or not PACKAGE_NAMES.isdisjoint(path.split("/")):
                continue
            top, real, upper = max((tree for tree in trees if contains(tree[0], path)), key=lambda tree: len(tree[0]))
            old = _read_text(real, decode_path(effect.source or effect.path)[len(top) + 1 :], effect.before)
            new = _read_text(upper, path[len(top) + 1 :], effect.after)
            if old is None or new is None:
                continue
            diffs.append(compare(old, new, show_path(effect.path.removeprefix(f"{root}/"))).text)
            length += len(diffs[-1])
            if length > MAX_CHARS:
                break
    return "".join(diffs)


_DIFFED = ("changed", "created", "deleted")


def _read_text(tree: OpenTree, path: str, kind: FileKind) -> str | None:
    """Return the text of a file or where a link leads, "" if there is none, and None if it is binary or too large."""
    if kind == "absent":
        return ""
    status = tree.find(path)
    if kind == "link" and status is not None:
        folder, name = tree.locate(path)
        return os.readlink(name, dir_fd=folder)
    if kind != "file" or status is None or status.st_size > MAX_BYTES:
        return None
    try:
        with os.fdopen(tree.open_file(path), "rb") as file:
            data = file.read(MAX_BYTES)
    except OSError:
        return None
    return None if b"\0" in data[:8000] else data.decode("utf-8", "replace")


async def preview_diff(work: Awaitable[str]) -> str:
    """Return a diff, cut to what a permission request shows.

    Never raises; on an error or a slow disk, return a note that says so.
    """
    try:
        async with asyncio.timeout(PREVIEW_TIMEOUT_S):
            text = await work
    except TimeoutError:
        return "(The preview took too long.)"
    except (Refusal, OdinError) as refusal:
        return to_printable(f"(This would currently fail: {refusal})")
    except OSError as error:
        return to_printable(f"(No preview: {error.strerror or error}.)")
    return to_printable(_truncate_diff(text))


def _describe_change(args: Any, resolved_paths: Sequence[ResolvedPath]) -> str:
    match args:
        case WriteArgs():
            return _diff_rewrite(resolved_paths[0], lambda old: args.content, creates=True)
        case AppendArgs():
            return _diff_rewrite(resolved_paths[0], lambda old: old.text + args.content, creates=True)
        case EditArgs():
            return _diff_edits(resolved_paths[0], [Edit(args.old_string, args.new_string, args.replace_all)])
        case MultiEditArgs():
            return _diff_edits(
                resolved_paths[0], [Edit(item.old_string, item.new_string, item.replace_all) for item in args.edits]
            )
        case DeleteArgs():
            return "\n".join(_describe_removal(place) for place in dict.fromkeys(resolved_paths))
        case PatchArgs():
            from odin.tools.patch import FilePatch, apply_hunks, parse_patch

            places = {place.written: place for place in resolved_paths}

            def describe(patch: FilePatch) -> str:
                def change(old: DecodedText) -> str:
                    buffer = EditBuffer(old.text, is_encoding_unknown=not old.valid)
                    apply_hunks(buffer, patch.hunks)
                    return buffer.text

                place = places[patch.path]
                if patch.action == "delete":
                    return _describe_removal(place)
                if patch.action == "add":
                    return compare("", patch.content, place.shown).text
                moved = f"({place.shown} would move to {places[patch.move_to].shown}.)\n" if patch.move_to else ""
                return moved + (_diff_rewrite(place, change) if patch.hunks else "")

            return "\n".join(describe(patch).rstrip("\n") for patch in parse_patch(args.input)) + "\n"
        case _:
            return ""


def _diff_rewrite(place: ResolvedPath, change: Callable[[DecodedText], str], *, creates: bool = False) -> str:
    path = place.shown
    if creates and not exists(place):
        return compare("", change(DecodedText("")), path).text
    data, size = _read_bounded(place)
    old = decode(data) if data is not None else None
    if old is None:
        kind = "too large to compare" if data is None else "binary"
        return f"({path} is {kind}: {size} bytes would be replaced or added to.)"
    new = change(old)
    if is_crlf(old.text) and "\r" not in new.removeprefix(old.text):
        new = old.text * new.startswith(old.text) + new.removeprefix(old.text).replace("\n", "\r\n")
    return compare(old.text, new, path).text


def _diff_edits(place: ResolvedPath, edits: Sequence[Edit]) -> str:
    def change(old: DecodedText) -> str:
        draft = EditBuffer(old.text, is_encoding_unknown=not old.valid)
        for edit in edits:
            draft.apply(edit)
        return draft.text

    return _diff_rewrite(place, change)


def _describe_removal(place: ResolvedPath) -> str:
    path = place.shown
    try:
        mode = read_status(place.path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return f"({path} does not exist.)"
    if stat.S_ISLNK(mode):
        with open_parent(place.path) as folder:
            target = os.readlink(name_in(place.path), dir_fd=folder.fd)
        return f"({path} is a symbolic link to {target}; only the link would be deleted.)"
    if not stat.S_ISREG(mode):
        return f"({path} is not a file and would not be deleted.)"
    data, size = _read_bounded(place)
    old = decode(data) if data is not None else None
    if old is None or not old.text:
        return f"({path} would be deleted: {size} bytes.)"
    return compare(old.text, "", path).text


def _read_bounded(place: ResolvedPath) -> tuple[bytes | None, int]:
    """Return the bytes of a file (None if it is too large) and its size."""
    file, info = open_regular(place, "/")
    with file:
        if info.st_size > MAX_BYTES:
            return None, info.st_size
        data = file.read(MAX_BYTES + 1)
    return (data if len(data) <= MAX_BYTES else None), len(data)


def _truncate_diff(text: str) -> str:
    lines = text.splitlines()
    shown = "\n".join(lines[:MAX_LINES])[:MAX_CHARS]
    if len(shown) == len("\n".join(lines)):
        return shown
    count = shown.count("\n") + 1
    return f"{shown}\n... cut: {count} of {len(lines)} lines of the change are shown"
