"""WriteFile: create a file or replace all of it.

AppendFile: more at the end of a file.
"""

import os
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from odin.context.file_cache import FileCache, count_lines, hash_bytes
from odin.core.tool import Args, Subject, ToolContext, ToolOutput
from odin.tools.atomic_write import replace_file
from odin.tools.diff import compare
from odin.tools.file_state import read_current_bytes, remember_write
from odin.tools.files import DecodedText, FileTool, Refusal, decode, is_crlf, require_absolute, to_printable


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
        text, kept = _match_style(old, args.content)
        after = (old or DecodedText("")).encode(text)
        if after == before:
            raise Refusal(f"{path} already has exactly this content; nothing was written.")
        target = os.path.realpath(path)
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        mtime = replace_file(target, after, before)
        remember_write(self._files, target, after, mtime, old or DecodedText(""), text)
        diff = compare(old.text if old else "", text, path)
        lines = "1 line" if count_lines(after) == 1 else f"{count_lines(after)} lines"
        done = f"Created {path} ({lines})." if before is None else f"Overwrote {path} ({lines}, {diff.counts}).{kept}"
        return ToolOutput(
            text=to_printable(done),
            note=to_printable(f"{'Created' if before is None else 'Overwrote'} {path} ({diff.counts})"),
            view=to_printable(diff.text),
            files=(to_printable(target),),
        )


def _match_style(old: DecodedText | None, content: str) -> tuple[str, str]:
    """The content with the line endings of the file it replaces, and a remark when that changed it."""
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
            raise Refusal(f"{path} is written in a way that appending text would change. Use a command instead.")
        target = os.path.realpath(path)
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        known = self._has_seen_all(path, before)
        mtime = replace_file(target, after, before)
        if known:
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
    """The content with the line endings of the file it is added to."""
    old.check_text(content, "content")
    return content.replace("\n", "\r\n") if is_crlf(old.text) and "\r" not in content else content


def _describe_seam(old: str, content: str) -> str:
    """What the model should know about the seam and the end."""
    remarks = ""
    if old and not old.endswith("\n"):
        remarks = " The file had no newline at its end, so the content goes on in what was its last line."
    if not content.endswith("\n"):
        remarks += " It ends without a newline."
    return remarks


def _format_line_count(data: bytes) -> str:
    count = count_lines(data)
    return "1 line" if count == 1 else f"{count} lines"
