"""WriteFile, AppendFile and Delete: tools that create, replace, extend or delete whole files."""

import os
import stat
from pathlib import Path
from typing import Annotated, Literal, get_args

from msgspec import Meta

from odin.context.file_cache import FileCache, count_lines, hash_bytes
from odin.core.tool import Args, Subject, ToolContext, ToolOutput
from odin.tools.atomic_write import replace_file
from odin.tools.diff import compare
from odin.tools.files import (
    DecodedText,
    FileTool,
    Refusal,
    decode,
    is_crlf,
    open_regular,
    require_absolute,
    to_printable,
)
from odin.tools.staleness import make_stale_refusal, read_current_bytes, remember_write

_DeleteStatus = Literal["Deleted", "Already absent", "Blocked", "Failed", "Not attempted"]


class WriteArgs(Args, frozen=True):
    file_path: str
    content: str


class WriteFileTool(FileTool[WriteArgs]):
    """Create a file, or overwrite all of it."""

    name = "WriteFile"
    kind = "edit"
    short = "Create a file or overwrite all of it."
    args = WriteArgs
    argument_aliases = (("path", "file_path"),)

    def __init__(self, files: FileCache) -> None:
        self._files = files

    def subject_of(self, args: WriteArgs) -> Subject:
        return Subject(paths=(args.file_path,))

    def can_speculate(self, args: WriteArgs) -> bool:
        return True

    def title_of(self, args: WriteArgs) -> str:
        return args.file_path

    async def work(self, args: WriteArgs, ctx: ToolContext) -> ToolOutput:
        path = require_absolute(args.file_path, ctx.cwd, "file_path")
        before = read_current_bytes(self._files, path, ctx.cwd, too_large="overwrite safely; remove it first")
        old = decode(before) if before is not None else DecodedText("")
        text, remark = _match_style(old, args.content)
        after = (old or DecodedText("")).encode(text)
        if after == before:
            raise Refusal(f"{path} already has exactly this content; nothing was written.")
        target = os.path.realpath(path)
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        mtime = replace_file(target, after, before)
        remember_write(self._files, target, after, mtime, old or DecodedText(""), text)
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
    file_path: Annotated[str, Meta(description="Absolute")]
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

    def subject_of(self, args: AppendArgs) -> Subject:
        return Subject(paths=(args.file_path,))

    def can_speculate(self, args: AppendArgs) -> bool:
        return True

    async def work(self, args: AppendArgs, ctx: ToolContext) -> ToolOutput:
        path = require_absolute(args.file_path, ctx.cwd, "file_path")
        before = read_current_bytes(self._files, path, ctx.cwd, too_large="append to safely; use a command instead")
        old = decode(before) if before is not None else DecodedText("")
        if old is None:
            raise Refusal(f"{path} is a binary file; text cannot be appended to it. Use a command instead.")
        text = old.text + _match_line_endings(old, args.content)
        after = old.encode(text)
        if not after.startswith(before or b""):
            raise Refusal(f"Appending text would change the existing bytes of {path}. Use a command instead.")
        target = os.path.realpath(path)
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        has_seen_all = self._has_seen_all(path, before)
        mtime = replace_file(target, after, before)
        if has_seen_all:
            remember_write(self._files, target, after, mtime, old, text)
        else:
            self._files.forget(target)
        diff = compare(old.text, text, path)
        done = f"Created {path}" if before is None else f"Appended to {path}"
        return ToolOutput(
            text=to_printable(f"{done} ({_format_line_count(after)} now).{_describe_seam(old.text, args.content)}"),
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


def _describe_seam(old: str, content: str) -> str:
    """Return remarks about missing newlines before and at the end of the appended text."""
    remarks = ""
    if old and not old.endswith("\n"):
        remarks = " The file had no final newline, so the content continues its last line."
    if not content.endswith("\n"):
        remarks += " It ends without a newline."
    return remarks


def _format_line_count(data: bytes) -> str:
    count = count_lines(data)
    return "1 line" if count == 1 else f"{count} lines"


class DeleteArgs(Args, frozen=True):
    paths: Annotated[tuple[str, ...], Meta(min_length=1)]
    reason: str


class DeleteTool(FileTool[DeleteArgs]):
    """Delete files and symbolic links, each by its name. No directories."""

    name = "Delete"
    kind = "edit"
    short = "Delete files."
    args = DeleteArgs
    exclusive = True

    def __init__(self, files: FileCache) -> None:
        self._files = files

    def subject_of(self, args: DeleteArgs) -> Subject:
        return Subject(paths=args.paths)

    def can_speculate(self, args: DeleteArgs) -> bool:
        return True

    async def work(self, args: DeleteArgs, ctx: ToolContext) -> ToolOutput:
        lines_by_status: dict[_DeleteStatus, list[str]] = {status: [] for status in get_args(_DeleteStatus)}
        deleted: list[str] = []
        for path in dict.fromkeys(args.paths):
            if lines_by_status["Failed"]:  # an error of the system: leave the rest alone
                lines_by_status["Not attempted"].append(path)
                continue
            status, line = self._delete(path, ctx.cwd)
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

    def _delete(self, given_path: str, cwd: str) -> tuple[_DeleteStatus, str]:
        """Delete one path. Return its status and the line about it."""
        try:
            path = require_absolute(given_path, cwd, "a path")
            info = _lookup_path(path)
            if info is None:
                return "Already absent", path
            _check_kind(path, info)
            if not stat.S_ISLNK(info.st_mode):
                self._check_unchanged(path, cwd)
            Path(path).unlink()
        except Refusal as refusal:
            return "Blocked", str(refusal)
        except FileNotFoundError:
            return "Already absent", given_path
        except OSError as error:
            return "Failed", f"{given_path}: {error.strerror or error}"
        if not stat.S_ISLNK(info.st_mode):
            self._files.forget(path)
        return "Deleted", path

    def _check_unchanged(self, path: str, cwd: str) -> None:
        """Raise Refusal if a file that was read has changed since. Unread files are not checked."""
        if self._files.compare(path, "") in ("unread", "stale"):
            return
        import hashlib

        file, opened = open_regular(path, cwd)
        with file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        now = Path(path).lstat()
        moved = (now.st_ino, now.st_mtime_ns, now.st_size) != (opened.st_ino, opened.st_mtime_ns, opened.st_size)
        if moved or self._files.compare(path, sha256) == "changed":
            message = f"{path} changed on disk since you read it. Read it again, then decide."
            raise make_stale_refusal(self._files, path, sha256, message)


def _lookup_path(path: str) -> os.stat_result | None:
    """Return the status of the path itself, without following links; None if it does not exist."""
    try:
        return Path(path).lstat()
    except (FileNotFoundError, NotADirectoryError):
        if set(Path(path).name) & set("*?["):
            raise Refusal(f"{path} does not exist, and wildcards are not expanded. Name every file.") from None
        return None


def _check_kind(path: str, info: os.stat_result) -> None:
    real = os.path.join(os.path.realpath(Path(path).parent), Path(path).name)  # noqa: PTH118
    if any(part.casefold() == ".git" for form in (path, real) for part in Path(form).parts):
        raise Refusal(f"{path} belongs to git. Use git itself for that.")
    if stat.S_ISDIR(info.st_mode):
        raise Refusal(f"{path} is a directory. Only files and symbolic links are deleted: name the files in it.")
    if not (stat.S_ISREG(info.st_mode) or stat.S_ISLNK(info.st_mode)):
        raise Refusal(f"{path} is a device, pipe or socket, not a file.")


def _format_group(status: _DeleteStatus, lines: list[str]) -> str:
    return "\n".join([f"{status}:", *(f"  {line}" for line in lines)])
