"""WriteFile: create a file or replace all of it."""

import os
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from odin.context.files import FileCache, count_lines, digest, fingerprint
from odin.core.tool import Args, Subject, ToolContext, ToolOutput
from odin.tools.atomic import replace_file
from odin.tools.diff import compare
from odin.tools.path import FileTool, Refusal, absolute, open_regular, printable, read_whole
from odin.tools.text import Decoded, decode, is_crlf


class WriteArgs(Args, frozen=True):
    file_path: Annotated[str, Meta(description="Absolute")]
    content: str


class WriteFile(FileTool[WriteArgs]):
    """Create a file, or overwrite all of it. To change a part use EditTool."""

    name = "WriteFile"
    kind = "edit"
    short = "Create a file or overwrite all of it."
    args = WriteArgs

    def __init__(self, files: FileCache) -> None:
        self._files = files

    def subject(self, args: WriteArgs) -> Subject:
        return Subject(paths=(args.file_path,))

    def title(self, args: WriteArgs) -> str:
        return args.file_path

    async def work(self, args: WriteArgs, ctx: ToolContext) -> ToolOutput:
        path = absolute(args.file_path, ctx.cwd, "file_path")
        before = self._present(path, ctx.cwd)
        old = decode(before) if before is not None else Decoded("")
        text, kept = _in_the_style_of(old, args.content, path)
        after = (old or Decoded("")).encode(text)
        if after == before:
            raise Refusal(f"{path} already has exactly this content; nothing was written.")
        target = os.path.realpath(path)
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        mtime = replace_file(target, after, before)
        self._files.wrote(target, fingerprint(after, mtime))
        diff = compare(old.text if old else "", text, path)
        lines = "1 line" if count_lines(after) == 1 else f"{count_lines(after)} lines"
        done = f"Created {path} ({lines})." if before is None else f"Overwrote {path} ({lines}, {diff.counts}).{kept}"
        return ToolOutput(
            text=printable(done),
            note=printable(f"{'Created' if before is None else 'Overwrote'} {path} ({diff.counts})"),
            view=printable(diff.text),
            files=(printable(target),),
        )

    def _present(self, path: str, cwd: str) -> bytes | None:
        """The bytes that are there now, or None. Refuses when they are not the ones this agent has read."""
        if not Path(path).exists():
            return None
        file, info = open_regular(path, cwd)
        with file:
            data = read_whole(file, info)
        if data is None:
            raise Refusal(f"{path} is too large to overwrite safely ({info.st_size} bytes). Remove it first.")
        if self._files.standing(path, digest(data)) == "changed":
            raise Refusal(f"{path} changed on disk since you read it. Nothing was written. Read it again first.")
        return data


def _in_the_style_of(old: Decoded | None, content: str, path: str) -> tuple[str, str]:
    """The content with the line endings of the file it replaces, and a remark when that changed it."""
    try:
        content.encode("utf-8")
    except UnicodeEncodeError:
        raise Refusal("content contains half of a surrogate pair, which is not a character.") from None
    if old is None:
        return content, ""
    if not old.valid and not content.isascii():
        raise Refusal(
            f"{path} is not UTF-8, so overwriting it with other than ASCII text would change its encoding. "
            "Change a part with EditTool, or convert the file with a command first."
        )
    if old.bom and content.startswith("\ufeff"):
        content = content[1:]
    if is_crlf(old.text) and "\r" not in content:
        return content.replace("\n", "\r\n"), " Its CRLF line endings were kept."
    return content, ""
