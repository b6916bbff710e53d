"""AppendFile: more at the end of a file."""

import os
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from odin.context.files import FileCache, count_lines, hash_bytes
from odin.core.tool import Args, Subject, ToolContext, ToolOutput
from odin.tools.files.atomic import replace_file
from odin.tools.files.diff import compare
from odin.tools.files.path import FileTool, Refusal, require_absolute, to_printable
from odin.tools.files.present import read_current_bytes
from odin.tools.files.seen import remember_write
from odin.tools.files.text import DecodedText, decode, is_crlf


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
