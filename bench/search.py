"""Compare Grep and Glob over 20,000 files with the plain `rg` command."""

import asyncio
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from odin.config.paths import make_environment
from odin.context.file_cache import FileCache
from odin.core.tool import Tool, ToolContext
from odin.sandbox.runner import ProcessRunner
from odin.tools.ripgrep import find_ripgrep
from odin.tools.search_tools import GlobTool, GrepTool
from row import Row
from tree import RARE, source_tree

FILES = 20_000
ROUNDS = 9

GREPS: tuple[tuple[str, dict[str, Any], list[str]], ...] = (
    ("a rare word", {"pattern": RARE}, ["-n", RARE]),
    ("a rare word with context", {"pattern": RARE, "-C": 3}, ["-n", "-C3", RARE]),
    ("three words in a row", {"pattern": "alpha beta gamma"}, ["-n", "alpha beta gamma"]),
    ("a word in every file", {"pattern": "alpha"}, ["-n", "alpha"]),
    ("its files", {"pattern": "alpha", "output_mode": "files_with_matches"}, ["-l", "alpha"]),
    ("its counts", {"pattern": "alpha", "output_mode": "count"}, ["-c", "alpha"]),
)

NARROW = ("src/**/*.{ts,tsx}", "**/needle*", "**/*_12*.py")
"""Few files match. The floor is `rg --files`, which lists the tree and asks for no times."""

BROAD = ("**/*_1*.py", "**/*.py", "**/*")
"""Thousands match. Glob shows the newest, so it needs the time of every match. The floor is ripgrep doing the same:
listing the matches sorted by time."""


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name).resolve() / "tree"
        source_tree(root, FILES)
        return asyncio.run(_measure(root))


async def _measure(root: Path) -> list[Row]:
    rg = find_ripgrep()
    assert rg is not None, "ripgrep is installed with Odin"
    bare = [rg, "--no-config", "--no-require-git"]
    runner = ProcessRunner(make_environment(cwd="/"))
    grep, glob = GrepTool(FileCache(), runner), GlobTool(runner)
    found: list[Row] = []
    for what, args, command in GREPS:
        odin, floor = await _in_turns(grep, args, [*bare, *command], root)
        found.append(Row(f"Grep in {FILES:,} files: {what}", odin, floor, 1.3, "ms", by_ratio=True, allowance=10))
    listings = [(pattern, "", ["--files"]) for pattern in NARROW]
    listings += [
        (pattern, ", sorted by time", ["--files", "--sortr=modified", f"--glob={pattern}"]) for pattern in BROAD
    ]
    for pattern, how, command in listings:
        odin, floor = await _in_turns(glob, {"pattern": pattern}, [*bare, *command], root)
        what = f"Glob in {FILES:,} files: {pattern}{how}"
        found.append(Row(what, odin, floor, 1.3, "ms", by_ratio=True, allowance=10 if how else 0))
    await runner.close()
    return found


async def _in_turns(tool: Tool[Any], args: dict[str, Any], command: list[str], root: Path) -> tuple[float, float]:
    """Return the milliseconds of the tool's `run` and of the command, including reading its output.

    Other programs only make it slower, so the fastest of the rounds counts, for both.
    """
    where = ToolContext(
        str(root), str(root), "bench", "", "call", "edit_mode", lambda _: None, make_environment(cwd=str(root))
    )
    odin: list[float] = []
    floor: list[float] = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        subprocess.run([*command, str(root)], capture_output=True, check=True)
        floor.append((time.perf_counter() - started) * 1000)
        started = time.perf_counter()
        output = await tool.run(tool.parse(args), where)
        odin.append((time.perf_counter() - started) * 1000)
        if output.is_error:
            raise SystemExit(f"bench: {output.text}")
    return min(odin), min(floor)
