"""Glob: find files by name."""

import asyncio
import os
import re
from collections.abc import Callable, Iterable
from typing import Annotated

from msgspec import Meta

from odin.core.tool import Args, Subject, ToolContext, ToolOutput
from odin.policy.sandbox import ProcessRunner
from odin.tools.path import FileTool, Refusal, absolute, existing_folder, printable
from odin.tools.pattern import matcher
from odin.tools.ripgrep import SEARCH_SECONDS, base_arguments, find_ripgrep
from odin.tools.walk import walk

SHOWN = 100
_STOP_BYTES = 64_000_000
_SKIPPED = ("node_modules", "vendor", "__pycache__")


class GlobArgs(Args, frozen=True):
    pattern: Annotated[str, Meta(description="e.g. src/**/*.{ts,tsx}")]
    path: Annotated[str | None, Meta(description="Absolute; default: working directory")] = None


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
        folder = args.path or (_split(args.pattern)[0] if args.pattern.startswith("/") else "")
        return Subject(paths=(folder,) if folder else ())

    def title(self, args: GlobArgs) -> str:
        return f"{args.pattern} in {args.path}" if args.path else args.pattern

    async def work(self, args: GlobArgs, ctx: ToolContext) -> ToolOutput:
        if args.path in ("undefined", "null"):
            raise Refusal(f"path is {args.path!r}. Leave it out to search the working directory.")
        pattern, folder = args.pattern, ctx.cwd if args.path is None else absolute(args.path, ctx.cwd, "path")
        if pattern.startswith("/"):
            folder, pattern = _split(pattern)
        if not pattern or "\0" in pattern:
            raise Refusal("pattern is empty or contains a NUL byte.")
        folder = existing_folder(folder, ctx.cwd)
        matches = matcher(pattern)
        start = len(folder.rstrip("/")) + 1
        paths, complete = await self._files(folder, pattern, ctx.cwd)
        found = _newest_first(path for path in paths if matches(path[start:]))
        note = printable(f"Found {len(found)} files for {args.pattern}")
        if not found:
            return ToolOutput(text="No files found", note=note)
        lines = found[:SHOWN]
        if len(found) > SHOWN or not complete:
            total = f"{len(found)}" if complete else f"more than {len(found)}"
            lines = [*lines, f"(showing the newest {len(lines)} of {total} files; use a narrower pattern or path)"]
        return ToolOutput(text=printable("\n".join(lines)), note=note)

    async def _files(self, folder: str, pattern: str, cwd: str) -> tuple[list[str], bool]:
        """Every file that is not ignored, and whether that is all of them. What a pattern names is not skipped."""
        hidden = bool(re.search(r"(?:^|/)\.(?!\.?/)", pattern))
        skip = frozenset(name for name in _SKIPPED if name not in pattern)
        rg = self._rg()
        if rg is None:
            found = await asyncio.to_thread(
                lambda: list(walk(folder, hidden=hidden, skip=skip, seconds=SEARCH_SECONDS))
            )
            return found, True
        argv = [*base_arguments(rg), "--files", "--null", "--glob=!.git", *(f"--glob=!{name}" for name in sorted(skip))]
        argv += ["--hidden"] if hidden else []
        listed = await self._runner.capture(
            [*argv, "--", folder], cwd=cwd, timeout=SEARCH_SECONDS, stop_after=_STOP_BYTES
        )
        if listed.timed_out:
            raise Refusal(f"The search took longer than {SEARCH_SECONDS:g}s and was stopped. Use a smaller folder.")
        return [os.fsdecode(path) for path in listed.data.split(b"\0") if path], not listed.stopped


def _split(pattern: str) -> tuple[str, str]:
    """The folder an absolute pattern names literally, and the rest of it."""
    parts = pattern.split("/")
    plain = next((at for at, part in enumerate(parts) if re.search(r"[*?\[{]", part)), len(parts) - 1)
    return "/".join(parts[:plain]) or "/", "/".join(parts[plain:])


def _newest_first(paths: Iterable[str]) -> list[str]:
    dated: list[tuple[int, str]] = []
    for path in paths:
        try:
            dated.append((-os.stat(path).st_mtime_ns, path))  # noqa: PTH116
        except OSError:
            continue
    return [path for _, path in sorted(dated)]
