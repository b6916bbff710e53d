"""The work of apply_patch: plan every file of a patch in memory, then write them all, or none."""

import os
from collections.abc import Callable

from msgspec import Struct

from odin.context.file_cache import FileCache
from odin.core.timing import run_in_thread
from odin.core.tool import ResolvedPath, ToolContext, ToolOutput
from odin.policy.paths import PathChanged, name_in, open_parent
from odin.tools.atomic_write import replace_file
from odin.tools.diff import compare
from odin.tools.file_edit import EditReviewer, format_remark, format_snippet, read_for_edit
from odin.tools.files import DecodedText, Refusal, decode, find_resolved_path, to_printable
from odin.tools.patch import FilePatch, apply_hunks, parse_patch
from odin.tools.replacement import EditBuffer
from odin.tools.staleness import exists, read_current_bytes, remember_write
from odin.tools.whole_file import check_deletable

_VERBS = {"add": "Created", "update": "Edited", "delete": "Deleted"}


class PlannedFile(Struct, frozen=True):
    """One file of a patch: `text` in the encoding of `style` replaces the bytes `before`. `target`: it moves there."""

    patch: FilePatch
    place: ResolvedPath
    before: bytes | None
    style: DecodedText
    text: str
    target: ResolvedPath | None = None

    @property
    def after(self) -> bytes:
        return self.style.encode(self.text)

    @property
    def name(self) -> str:
        return self.place.shown if self.target is None else self.target.shown


def plan_patch(files: FileCache, text: str, ctx: ToolContext) -> list[PlannedFile]:
    """Return the files of a patch as they would be. Raise Refusal if one of them cannot be changed as it says."""
    return [_plan_file(files, patch, ctx) for patch in parse_patch(text)]


def _plan_file(files: FileCache, patch: FilePatch, ctx: ToolContext) -> PlannedFile:
    place = find_resolved_path(patch.path, ctx)
    match patch.action:
        case "add":
            if exists(place):
                raise Refusal(f"{place.shown} exists. Use '*** Update File:' to change it. Nothing was written.")
            style = DecodedText("")
            style.check_text(patch.content, "the patch")
            return PlannedFile(patch, place, None, style, patch.content)
        case "delete":
            _refuse_link(place)
            with open_parent(place.path) as folder:
                check_deletable(files, folder, place)
            before = read_current_bytes(files, place, ctx.cwd, too_large="delete with a patch; use Delete")
            return PlannedFile(patch, place, before, decode(before or b"") or DecodedText(""), "")
        case "update":
            return _plan_update(files, patch, place, ctx)


def _plan_update(files: FileCache, patch: FilePatch, place: ResolvedPath, ctx: ToolContext) -> PlannedFile:
    opened = read_for_edit(files, patch.path, [], ctx)
    decoded = opened.decoded
    buffer = EditBuffer(decoded.text, files.list_unseen(place.path), is_encoding_unknown=not decoded.valid)
    try:
        for hunk in patch.hunks:
            decoded.check_text(hunk.edit.new, "the patch")
        apply_hunks(buffer, patch.hunks)
    except Refusal as refusal:
        raise Refusal(f"{place.shown}: {refusal} Nothing was written.", refusal.error_type) from None
    target = None
    if patch.move_to:
        _refuse_link(place)
        target = find_resolved_path(patch.move_to, ctx)
        if exists(target):
            raise Refusal(f"{target.shown} exists, so {place.shown} cannot be moved there. Nothing was written.")
    return PlannedFile(patch, place, opened.data, decoded, buffer.text, target)


def _refuse_link(place: ResolvedPath) -> None:
    if os.path.islink(place.shown):  # noqa: PTH114
        raise Refusal(f"{place.shown} is a symbolic link. Use Delete, or a command, for the link itself.")


async def apply_patch(files: FileCache, text: str, ctx: ToolContext, reviewer: EditReviewer) -> ToolOutput:
    """Change all files of a patch, or none."""
    planned = plan_patch(files, text, ctx)
    remarks = [await _review(reviewer, file) for file in planned]
    await write_all(files, planned)
    lines: list[str] = []
    notes: list[str] = []
    views: list[str] = []
    for file, remark in zip(planned, remarks, strict=True):
        diff = compare(file.style.text, file.text, file.name)
        moved = f", moved from {file.place.shown}" if file.target is not None else ""
        notes.append(f"{_VERBS[file.patch.action]} {file.name} ({diff.counts}{moved})")
        shown = f"\n{format_snippet(diff)}" if file.patch.action == "update" and file.patch.hunks else ""
        lines.append(f"{notes[-1]}{shown}{format_remark(remark)}")
        views.append(diff.text)
    paths = [place.path for file in planned for place in (file.place, file.target) if place is not None]
    return ToolOutput(
        text=to_printable("\n".join(lines)),
        note=to_printable("; ".join(notes)),
        view=to_printable("".join(views)),
        files=tuple(map(to_printable, paths)),
    )


async def _review(reviewer: EditReviewer, file: PlannedFile) -> str:
    if file.patch.action != "update":
        return ""
    return await reviewer.review(file.place.path, file.style.text, [hunk.edit for hunk in file.patch.hunks])


async def write_all(files: FileCache, planned: list[PlannedFile]) -> None:
    """Write the files. If one fails, restore those before it."""
    try:
        for file, target, info in await run_in_thread(lambda _: _write_files(files, planned)):
            remember_write(files, target, file.after, info, file.style, file.text)
    finally:
        for file in planned:
            files.forget(file.place.path) if file.patch.action == "delete" or file.target else None


def _write_files(files: FileCache, planned: list[PlannedFile]) -> list[tuple[PlannedFile, str, os.stat_result]]:
    """Return the files that have a new content, with their paths and stat results."""
    undo: list[tuple[str, Callable[[], object]]] = []
    written: list[tuple[PlannedFile, str, os.stat_result]] = []
    try:
        for file in planned:
            restore, target, info = _write(files, file)
            undo.append((file.place.shown, restore))
            written += [(file, target, info)] if info is not None else []
    except (Refusal, OSError) as error:
        left = [name for name, restore in reversed(undo) if not _try(restore)]
        reason = str(error) if isinstance(error, Refusal | PathChanged) else f"{error.strerror or error}."
        kept = f" These files are changed and could not be restored: {', '.join(left)}." if left else ""
        raise Refusal(f"{reason} Nothing was changed.{kept}") from None
    return written


def _try(restore: Callable[[], object]) -> bool:
    try:
        restore()
    except (Refusal, OSError):
        return False
    return True


def _write(files: FileCache, file: PlannedFile) -> tuple[Callable[[], object], str, os.stat_result | None]:
    """Write one file; return what undoes it, its path, and the stat result of a new content."""
    path, before, after = file.place.path, file.before, file.after
    if file.patch.action == "delete":
        with open_parent(path) as folder:
            check_deletable(files, folder, file.place)
            folder.unlink(name_in(path))
        return lambda: replace_file(path, before or b"", None), path, None
    if file.target is not None:
        _move(path, file.target.path)
    target, info = path if file.target is None else file.target.path, None
    if after != before:
        try:
            info = replace_file(target, after, before)
        except BaseException:
            if file.target is not None:
                _move(target, path)
            raise
    return lambda: _restore(file, target), target, info


def _restore(file: PlannedFile, target: str) -> None:
    if file.before is None:
        with open_parent(target) as folder:
            folder.unlink(name_in(target))
        return
    if file.after != file.before:
        replace_file(target, file.before, file.after)
    if file.target is not None:
        _move(target, file.place.path)


def _move(source: str, target: str) -> None:
    """Move a file without replacing another one."""
    with open_parent(source) as old, open_parent(target, create=True) as new:
        name, moved = name_in(source), name_in(target)
        try:
            os.link(name, moved, src_dir_fd=old.fd, dst_dir_fd=new.fd, follow_symlinks=False)
        except FileExistsError:
            raise Refusal(f"{target} exists in the meantime.") from None
        except OSError:
            if new.find(moved) is not None:
                raise Refusal(f"{target} exists in the meantime.") from None
            os.rename(name, moved, src_dir_fd=old.fd, dst_dir_fd=new.fd)
        else:
            old.unlink(name)
