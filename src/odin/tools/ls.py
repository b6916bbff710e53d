"""LS: what is in one directory."""

import os
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from odin.context.files import FileCache
from odin.core.tool import Args, Subject, ToolContext, ToolOutput
from odin.tools.path import FileTool, absolute, existing_folder, printable
from odin.tools.pattern import matcher

SHOWN = 200


class LSArgs(Args, frozen=True):
    path: Annotated[str, Meta(description="Absolute")]
    ignore: Annotated[tuple[str, ...], Meta(description="Globs")] = ()


class LS(FileTool[LSArgs]):
    """List a directory. Prefer Glob or Grep when you know what to look for."""

    name = "LS"
    kind = "read"
    short = "List a directory."
    args = LSArgs

    def __init__(self, files: FileCache) -> None:
        self._files = files

    def subject(self, args: LSArgs) -> Subject:
        return Subject(paths=(args.path,))

    async def work(self, args: LSArgs, ctx: ToolContext) -> ToolOutput:
        folder = existing_folder(absolute(args.path, ctx.cwd, "path"), ctx.cwd)
        ignored = [matcher(glob) for glob in args.ignore]
        with os.scandir(folder) as found:
            entries = [entry for entry in found if not any(matches(entry.name) for matches in ignored)]
        entries.sort(key=lambda entry: entry.name)
        lines = [self._line(entry) for entry in entries[:SHOWN]]
        if len(entries) > SHOWN:
            lines.append(f"(showing {SHOWN} of {len(entries)} entries; use Glob or ignore to narrow it down)")
        text = "\n".join([f"{folder.rstrip('/')}/", *(lines or ["(empty directory)"])])
        return ToolOutput(text=printable(text), note=printable(f"Listed {folder}: {len(entries)} entries"))

    def _line(self, entry: "os.DirEntry[str]") -> str:
        if entry.is_symlink():
            try:
                return f"  {entry.name}{'/' if entry.is_dir() else ''} -> {Path(entry.path).readlink()}"
            except OSError:
                return f"  {entry.name}"
        if entry.is_dir():
            return f"  {entry.name}/"
        known = self._files.get(entry.path)
        if known is None:
            return f"  {entry.name}"
        return f"  {entry.name} [{'cached, modified' if known.modified else 'cached'}]"
