"""Glob: find files by name."""

import asyncio
import functools
import os
import re
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import Annotated

from msgspec import Meta

from odin.core.tool import Args, Subject, ToolContext, ToolOutput
from odin.policy.process.runner import ProcessRunner
from odin.tools.files.path import FileTool, Refusal, absolute, existing_folder, printable
from odin.tools.files.temporary import is_temporary
from odin.tools.searching.kept import left_out, parted
from odin.tools.searching.newest import Choose, Newest
from odin.tools.searching.pattern import matcher, name_filter
from odin.tools.searching.ripgrep import base_arguments, find_ripgrep
from odin.tools.searching.search import SEARCH_SECONDS, took_too_long
from odin.tools.searching.walk import walk

SHOWN = 100
_STOP_BYTES = 64_000_000
_BESIDE = 200
_SKIPPED = ("node_modules", "vendor", "__pycache__")


class GlobArgs(Args, frozen=True):
    pattern: Annotated[str, Meta(description="e.g. src/**/*.{ts,tsx}")]
    path: Annotated[str | None, Meta(description="Default: working directory")] = None


class Glob(FileTool[GlobArgs]):
    """Find files by name, newest first, at most 100; honours .gitignore."""

    name = "Glob"
    kind = "read"
    short = "Find files by name pattern."
    args = GlobArgs

    def __init__(self, runner: ProcessRunner, rg: Callable[[], str | None] = find_ripgrep) -> None:
        self._runner = runner
        self._rg = rg

    def subject(self, args: GlobArgs) -> Subject:
        folder = _split(args.pattern)[0] if args.pattern.startswith("/") else args.path
        return Subject(paths=(folder,) if folder else ())

    def early(self, args: GlobArgs) -> bool:
        return True

    def title(self, args: GlobArgs) -> str:
        return f"{args.pattern} in {args.path}" if args.path else args.pattern

    async def work(self, args: GlobArgs, ctx: ToolContext) -> ToolOutput:
        if args.path in ("undefined", "null"):
            raise Refusal(f"path is {args.path!r}. Leave it out to search the working directory.")
        pattern, folder = args.pattern, ctx.cwd if args.path is None else absolute(args.path, ctx.cwd, "path")
        if pattern.startswith("/"):
            folder, pattern = _split(pattern)
        if not pattern or "\0" in pattern or printable(pattern) != pattern:
            raise Refusal("pattern is empty or contains what no file name can contain.")
        kept: list[str] = []
        found = await self._newest(existing_folder(folder, ctx.cwd), pattern, ctx.keeps_back, kept)
        note = printable(f"Found {found.total} files for {args.pattern}")
        lines = found.first(SHOWN)
        if not lines:
            return ToolOutput(text=printable("\n".join(["No files found", *left_out(kept)])), note=note)
        if len(lines) < found.total or not found.complete:
            total = f"{found.total}" if found.complete else f"more than {found.total}"
            lines = [*lines, f"(showing the newest {len(lines)} of {total} files; use a narrower pattern or path)"]
        return ToolOutput(text=printable("\n".join([*lines, *left_out(kept)])), note=note)

    async def _newest(self, folder: str, pattern: str, keeps_back: Callable[[str], bool], kept: list[str]) -> Newest:
        """The files that match and are neither ignored nor hidden. What a pattern names is not skipped.

        What the rules keep back is put into `kept` instead.
        """
        hidden = bool(re.search(r"(?:^|/)\.(?!\.?/)", pattern))
        skip = frozenset(name for name in _SKIPPED if name not in pattern)
        matches = matcher(pattern)
        names, exact = name_filter(pattern)
        start = len(folder.rstrip("/")) + 1

        def choose(paths: Iterable[str], exact: bool = False) -> Iterable[str]:
            shown = [path for path in paths if (not is_temporary(path) if hidden else path.find("/.", start - 1) < 0)]
            wanted = shown if exact else [path for path in shown if matches(path[start:])]
            chosen, rest = parted(wanted, str, keeps_back)
            kept.extend(rest)
            return chosen

        rg = self._rg()
        if rg is not None:
            try:
                argv = _arguments(rg, folder, names, hidden, [*sorted(skip), *_beside(folder, pattern)])
                return await self._listed(argv, folder, functools.partial(choose, exact=exact))
            except OSError:
                pass
        found = Newest(SEARCH_SECONDS)
        paths = walk(folder, hidden=hidden, skip=skip, seconds=SEARCH_SECONDS)
        await asyncio.to_thread(lambda: found.take(choose(paths)))
        return found

    async def _listed(self, argv: list[str], folder: str, choose: Choose) -> Newest:
        found = Newest(SEARCH_SECONDS)
        pieces: SimpleQueue[bytes | None] = SimpleQueue()
        reading = asyncio.get_running_loop().run_in_executor(None, found.read, pieces.get, choose)
        try:
            listed = await self._runner.capture(
                argv, cwd=folder, timeout=SEARCH_SECONDS, stop_after=_STOP_BYTES, on_data=pieces.put
            )
        finally:
            pieces.put(None)
        await reading
        if listed.timed_out:
            raise took_too_long()
        found.complete = found.complete and not listed.stopped
        return found


def _arguments(rg: str, folder: str, names: str, hidden: bool, skip: list[str]) -> list[str]:
    """A type of our own narrows by name and leaves ignored files ignored, which a glob would not."""
    argv = [*base_arguments(rg, folder), "--files", "--null", *(f"--glob=!{name}" for name in skip)]
    argv += ["--glob=!.git", *(["--hidden"] if hidden else [])]
    argv += [f"--type-add=wanted:{names}", "--type=wanted"] if names else []
    return [*argv, "--", folder]


def _beside(folder: str, pattern: str) -> list[str]:
    """What lies beside the folder in which every match is, so that ripgrep does not go there."""
    first, inside, _ = pattern.removeprefix("./").partition("/")
    plain = re.compile(r"[\w.-]+", re.ASCII)
    if not inside or not plain.fullmatch(first):
        return []
    try:
        names = os.listdir(folder)  # noqa: PTH208
    except OSError:
        return []
    others = [f"/{name}" for name in names if name != first and plain.fullmatch(name)]
    return others if len(others) <= _BESIDE else []


def _split(pattern: str) -> tuple[str, str]:
    """The folder an absolute pattern names literally, and the rest of it."""
    parts = pattern.split("/")
    plain = next((at for at, part in enumerate(parts) if re.search(r"[*?\[{]", part)), len(parts) - 1)
    return "/".join(parts[:plain]) or "/", "/".join(parts[plain:])
