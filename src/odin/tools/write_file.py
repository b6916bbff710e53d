"""WriteFile: create a file or replace all of it."""

import os
from pathlib import Path

from odin.context.files import FileCache, count_lines
from odin.core.tool import Args, Subject, ToolContext, ToolOutput
from odin.tools.files.atomic import replace_file
from odin.tools.files.diff import compare
from odin.tools.files.path import FileTool, Refusal, require_absolute, to_printable
from odin.tools.files.present import read_current_bytes
from odin.tools.files.seen import remember_write
from odin.tools.files.text import DecodedText, decode, is_crlf


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
