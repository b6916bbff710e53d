"""WriteFile, AppendFile and Delete: tools that create, replace, extend or delete whole files."""

import os
import stat
from io import FileIO
from pathlib import Path
from typing import Annotated, Literal, get_args

from msgspec import Meta, Struct

from odin.context.file_cache import FileCache, count_lines, hash_bytes
from odin.core.format import pluralize
from odin.core.timing import run_in_thread
from odin.core.tool import Args, ResolvedPath, Target, ToolContext, ToolOutput
from odin.policy.paths import OpenFolder, PathChanged, name_in, open_parent
from odin.tools.files import (
    DecodedText,
    FileTool,
    Refusal,
    decode,
    find_resolved_path,
    is_crlf,
    to_printable,
)

_DeleteStatus = Literal["Deleted", "Already absent", "Blocked", "Failed", "Not attempted"]


class WriteArgs(Args, frozen=True):
    file_path: str
    content: str


class _NewContent(Struct, frozen=True):
    """What a file would contain: `text`, as bytes `after`, instead of `before`. `old` is None for a binary file."""

    place: ResolvedPath
    before: bytes | None
    old: DecodedText | None
    text: str
    after: bytes
    remark: str = ""


class WriteFileTool(FileTool[WriteArgs]):
    """Create a file, or overwrite all of it."""

    name = "WriteFile"
    kind = "edit"
    short = "Create a file or overwrite all of it."
    args = WriteArgs
    argument_aliases = (("path", "file_path"),)

    def __init__(self, files: FileCache) -> None:
        self._files = files

    def get_target(self, args: WriteArgs) -> Target:
        return Target(paths=(args.file_path,))

    def can_speculate(self, args: WriteArgs) -> bool:
        return True

    def get_title(self, args: WriteArgs) -> str:
        return args.file_path

    def plan(self, args: WriteArgs, ctx: ToolContext) -> "_NewContent":
        from odin.tools.staleness import read_current_bytes

        place = find_resolved_path(args.file_path, ctx)
        before = read_current_bytes(self._files, place, ctx.cwd, too_large="overwrite safely; remove it first")
        old = decode(before) if before is not None else DecodedText("")
        text, remark = _match_style(old, args.content)
        after = (old or DecodedText("")).encode(text)
        if after == before:
            raise Refusal(f"{place.shown} already has exactly this content; nothing was written.")
        return _NewContent(place, before, old, text, after, remark)

    async def work(self, args: WriteArgs, ctx: ToolContext) -> ToolOutput:
        from odin.tools.atomic_write import replace_file
        from odin.tools.diff import compare
        from odin.tools.staleness import remember_write

        new = self.plan(args, ctx)
        before, old, text, after, remark = new.before, new.old, new.text, new.after, new.remark
        path, target = new.place.shown, new.place.path
        info = await run_in_thread(lambda _: replace_file(target, after, before))
        remember_write(self._files, target, after, info, old or DecodedText(""), text)
        diff = compare(old.text if old else "", text, path)
        lines = "1 line" if count_lines(after) == 1 else f"{count_lines(after)} lines"
        done = f"Created {path} ({lines})." if before is None else f"Overwrote {path} ({lines}, {diff.counts}).{remark}"
        return ToolOutput(
            text=to_printable(done),
            note=to_printable(f"{'Created' if before is None else 'Overwrote'} {path} ({diff.counts})"),
            view=to_printable(diff.text),
            files=(to_printable(target),),
        )


def _match_style(old: DecodedText | None, content: str) -> tuple[str, str]:
    """Return the content with the line endings of the replaced file, and a remark if that changed it."""
    (old or DecodedText("")).check_text(content, "content")
    if old is None:
        return content, ""
    if old.bom and content.startswith("\ufeff"):
        content = content[1:]
    if is_crlf(old.text) and "\r" not in content:
        return content.replace("\n", "\r\n"), " Its CRLF line endings were kept."
    return content, ""


class AppendArgs(Args, frozen=True):
    file_path: str
    content: Annotated[str, Meta(min_length=1)]


class AppendFileTool(FileTool[AppendArgs]):
    """Add content to the end of a file; a missing file is created."""

    name = "AppendFile"
    kind = "edit"
    short = "Add to the end of a file."
    args = AppendArgs
    offered = False
    argument_aliases = (("path", "file_path"),)

    def __init__(self, files: FileCache) -> None:
        self._files = files

    def get_target(self, args: AppendArgs) -> Target:
        return Target(paths=(args.file_path,))

    def can_speculate(self, args: AppendArgs) -> bool:
        return True

    def plan(self, args: AppendArgs, ctx: ToolContext) -> _NewContent:
        from odin.tools.staleness import read_current_bytes

        place = find_resolved_path(args.file_path, ctx)
        path = place.shown
        before = read_current_bytes(self._files, place, ctx.cwd, too_large="append to safely; use a command instead")
        old = decode(before) if before is not None else DecodedText("")
        if old is None:
            raise Refusal(f"{path} is a binary file; text cannot be appended to it. Use a command instead.")
        text = old.text + _match_line_endings(old, args.content)
        after = old.encode(text)
        if not after.startswith(before or b""):
            raise Refusal(f"Appending text would change the existing bytes of {path}. Use a command instead.")
        return _NewContent(place, before, old, text, after)

    async def work(self, args: AppendArgs, ctx: ToolContext) -> ToolOutput:
        from odin.tools.atomic_write import replace_file
        from odin.tools.diff import compare
        from odin.tools.staleness import remember_write

        new = self.plan(args, ctx)
        before, old, text, after = new.before, new.old or DecodedText(""), new.text, new.after
        path, target = new.place.shown, new.place.path
        has_seen_all = self._has_seen_all(target, before)
        info = await run_in_thread(lambda _: replace_file(target, after, before))
        if has_seen_all:
            remember_write(self._files, target, after, info, old, text)
        else:
            self._files.forget(target)
        diff = compare(old.text, text, path)
        done = f"Created {path}" if before is None else f"Appended to {path}"
        lines = pluralize(count_lines(after), "line")
        # Remarks about missing newlines before and at the end of the appended text.
        remarks = ""
        if old.text and not old.text.endswith("\n"):
            remarks = " The file had no final newline, so the content continues its last line."
        if not args.content.endswith("\n"):
            remarks += " It ends without a newline."
        return ToolOutput(
            text=to_printable(f"{done} ({lines} now).{remarks}"),
            note=to_printable(f"{done} ({diff.counts})"),
            view=to_printable(diff.text),
            files=(to_printable(target),),
        )

    def _has_seen_all(self, path: str, before: bytes | None) -> bool:
        if before is None:
            return True
        return self._files.compare(path, hash_bytes(before)) == "current" and not self._files.list_unseen(path)


def _match_line_endings(old: DecodedText, content: str) -> str:
    """Return the content with the line endings of the file."""
    old.check_text(content, "content")
    return content.replace("\n", "\r\n") if is_crlf(old.text) and "\r" not in content else content


class DeleteArgs(Args, frozen=True):
    paths: Annotated[tuple[str, ...], Meta(min_length=1)]
    reason: str


class DeleteTool(FileTool[DeleteArgs]):
    """Delete files and symbolic links. No directories."""

    name = "Delete"
    kind = "edit"
    short = "Delete files."
    args = DeleteArgs
    exclusive = True

    def __init__(self, files: FileCache) -> None:
        self._files = files

    def get_target(self, args: DeleteArgs) -> Target:
        return Target(paths=args.paths, on_links=True, removes=args.paths)

    def can_speculate(self, args: DeleteArgs) -> bool:
        return True

    def plan(self, args: DeleteArgs, ctx: ToolContext) -> None:
        """Raise Refusal if nothing would be deleted and something blocks it."""
        refusals: list[str] = []
        for path in dict.fromkeys(args.paths):
            try:
                place = find_resolved_path(path, ctx, on_links=True)
                with open_parent(place.path) as folder:
                    check_deletable(self._files, folder, place)
            except Refusal as refusal:
                refusals.append(str(refusal))
            except OSError:
                continue
            else:
                return
        if refusals:
            raise Refusal(_format_group("Blocked", refusals))

    async def work(self, args: DeleteArgs, ctx: ToolContext) -> ToolOutput:
        lines_by_status: dict[_DeleteStatus, list[str]] = {status: [] for status in get_args(_DeleteStatus)}
        deleted: list[str] = []
        for path in dict.fromkeys(args.paths):
            if lines_by_status["Failed"]:  # an error of the system: leave the rest alone
                lines_by_status["Not attempted"].append(path)
                continue
            status, line = self._delete(path, ctx)
            lines_by_status[status].append(line)
            if status == "Deleted":
                deleted.append(line)
        text = "\n".join(_format_group(status, lines) for status, lines in lines_by_status.items() if lines)
        absent = lines_by_status["Already absent"]
        return ToolOutput(
            text=to_printable(text),
            is_error=not deleted and len(absent) < sum(map(len, lines_by_status.values())),
            note=to_printable(f"Deleted {', '.join(deleted)}" if deleted else "Deleted nothing"),
            view=to_printable(text),
            files=tuple(to_printable(path) for path in deleted),
        )

    def _delete(self, given_path: str, ctx: ToolContext) -> tuple[_DeleteStatus, str]:
        """Delete one path. Return its status and the line about it."""
        try:
            place = find_resolved_path(given_path, ctx, on_links=True)
            with open_parent(place.path) as folder:
                is_link = check_deletable(self._files, folder, place)
                folder.unlink(name_in(place.path))
                if not is_link:
                    self._files.forget(place.path)
        except Refusal as refusal:
            return "Blocked", str(refusal)
        except PathChanged as changed:
            return "Failed", str(changed)
        except (FileNotFoundError, NotADirectoryError):
            if set(Path(given_path).name) & set("*?["):
                return "Blocked", f"{given_path} does not exist, and wildcards are not expanded. Name every file."
            return "Already absent", given_path
        except OSError as error:
            return "Failed", f"{given_path}: {error.strerror or error}"
        return "Deleted", place.shown


def check_deletable(files: FileCache, folder: OpenFolder, place: ResolvedPath) -> bool:
    """Raise Refusal if this may not be deleted. Return whether it is a link."""
    info = folder.read_status(name_in(place.path))
    path = place.shown
    if any(part.casefold() == ".git" for form in (path, place.path) for part in form.split("/")):
        raise Refusal(f"{path} belongs to git. Use git itself for that.")
    if stat.S_ISDIR(info.st_mode):
        raise Refusal(f"{path} is a directory. Only files and symbolic links are deleted: name the files in it.")
    if not (stat.S_ISREG(info.st_mode) or stat.S_ISLNK(info.st_mode)):
        raise Refusal(f"{path} is a device, pipe or socket, not a file.")
    is_link = stat.S_ISLNK(info.st_mode)
    if not is_link:
        _check_unchanged(files, folder, place)
    return is_link


def _check_unchanged(files: FileCache, folder: OpenFolder, place: ResolvedPath) -> None:
    """Raise Refusal if a file that was read has changed since. Unread files are not checked."""
    if files.compare(place.path, "") in ("unread", "stale"):
        return
    import hashlib

    from odin.tools.staleness import make_stale_refusal

    name = name_in(place.path)
    with FileIO(folder.open_file(name, os.O_RDONLY | os.O_NONBLOCK)) as file:
        opened = os.fstat(file.fileno())
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    now = folder.read_status(name)
    moved = (now.st_ino, now.st_mtime_ns, now.st_size) != (opened.st_ino, opened.st_mtime_ns, opened.st_size)
    if moved or files.compare(place.path, sha256) == "changed":
        message = f"{place.shown} changed on disk since you read it. Read it again, then decide."
        raise make_stale_refusal(files, place.path, sha256, message)


def _format_group(status: _DeleteStatus, lines: list[str]) -> str:
    return "\n".join([f"{status}:", *(f"  {line}" for line in lines)])
