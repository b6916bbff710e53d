"""LS: what is in one directory."""

import asyncio
import heapq
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from odin.context.file_cache import FileCache
from odin.core.tool import Args, Subject, ToolContext, ToolOutput
from odin.tools.atomic_write import is_temporary
from odin.tools.files import FileTool, require_absolute, require_folder, to_printable
from odin.tools.walk import compile_glob

MAX_ENTRIES = 200


class LSArgs(Args, frozen=True):
    path: str
    ignore: tuple[str, ...] = ()


class LSTool(FileTool[LSArgs]):
    """List a directory."""

    name = "LS"
    kind = "read"
    short = "List a directory."
    args = LSArgs

    def __init__(self, files: FileCache) -> None:
        self._files = files

    def subject_of(self, args: LSArgs) -> Subject:
        return Subject(paths=(args.path,))

    def can_speculate(self, args: LSArgs) -> bool:
        return True

    async def work(self, args: LSArgs, ctx: ToolContext) -> ToolOutput:
        folder = require_folder(require_absolute(args.path, ctx.cwd, "path"), ctx.cwd)
        ignored = [compile_glob(glob) for glob in args.ignore]
        entries, total = await asyncio.to_thread(_list_first, folder, ignored)
        lines = [self._format_entry(entry) for entry in entries]
        if total > MAX_ENTRIES:
            lines.append(f"(showing the first {MAX_ENTRIES} of {total} entries; use Glob or ignore to narrow it down)")
        text = "\n".join([f"{folder.rstrip('/')}/", *(lines or ["(empty directory)"])])
        return ToolOutput(text=to_printable(text), note=to_printable(f"Listed {folder}: {total} entries"))

    def _format_entry(self, entry: "os.DirEntry[str]") -> str:
        if entry.is_symlink():
            try:
                return f"  {entry.name}{'/' if entry.is_dir() else ''} -> {Path(entry.path).readlink()}"
            except OSError:
                return f"  {entry.name}"
        if entry.is_dir():
            return f"  {entry.name}/"
        known = self._files.get_cached_file(entry.path)
        if known is None:
            return f"  {entry.name}"
        return f"  {entry.name} [{'cached, modified' if known.modified else 'cached'}]"


def _list_first(folder: str, ignored: list[Callable[[str], bool]]) -> "tuple[list[os.DirEntry[str]], int]":
    """The first entries by name, and how many there are. A directory may have a million of them."""
    total = 0

    def counted(found: "Iterable[os.DirEntry[str]]") -> "Iterator[os.DirEntry[str]]":
        nonlocal total
        for entry in found:
            if not is_temporary(entry.name) and not any(matches(entry.name) for matches in ignored):
                total += 1
                yield entry

    with os.scandir(folder) as found:
        first = heapq.nsmallest(MAX_ENTRIES, counted(found), key=lambda entry: entry.name)
    return first, total
