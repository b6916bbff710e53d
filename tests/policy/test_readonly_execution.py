"""Commands that count as read-only are run without a sandbox, and no file of the project may change."""

import asyncio
import os
import random
import stat
import time
from pathlib import Path

import pytest

from odin.config.paths import make_environment
from odin.core.profile import UNSANDBOXED, ProcessProfile
from odin.policy.commands.analysis import is_read_only
from odin.policy.commands.readonly.check import READ_ONLY_COMMANDS
from odin.policy.commands.readonly.git import GIT_COMMANDS
from odin.policy.commands.readonly.options import _parse_long_options, _parse_short_options
from odin.sandbox.runner import ProcessRunner
from tests.policy.everyday_commands import EVERYDAY_COMMANDS, make_repository
from tests.policy.policies import make_scope


def snapshot_tree(folder: Path) -> dict[str, object]:
    """Return the mode, inode and content of every file below a folder."""
    found: dict[str, object] = {}
    for top, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(top, name)
            kept = path.lstat()
            content = path.read_bytes() if stat.S_ISREG(kept.st_mode) else b""
            found[str(path)] = (kept.st_mode, kept.st_ino, content)
    return found


@pytest.mark.slow
async def test_everyday_commands_change_nothing(workspace: Path, home: Path):
    make_repository(workspace)
    for name in ("Makefile", "data.csv", "src/app.py"):
        os.utime(workspace / name, (1_000_000_000, 1_000_000_000))  # git would refresh its index for these
    before = snapshot_tree(workspace)
    runner = ProcessRunner(make_environment(cwd="/"))
    some = asyncio.Semaphore(6)

    async def run_one(command: str) -> None:
        assert is_read_only(command, make_scope(workspace)), command
        async with some:
            done = await runner.run(command, cwd=str(workspace), timeout=60, profile=ProcessProfile("project"))
        assert not done.timed_out, command
        assert not done.has_survivors, command

    await asyncio.gather(*map(run_one, EVERYDAY_COMMANDS))
    await runner.close()
    after = snapshot_tree(workspace)
    assert {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)} == set()
    assert [name for name in os.listdir(home) if name not in (".rustup", ".npm", ".cargo", ".docker", ".cache")] == []


async def test_snapshot_detects_a_change(workspace: Path):
    make_repository(workspace)
    before = snapshot_tree(workspace)
    runner = ProcessRunner(make_environment(cwd="/"))
    await runner.run("git diff > docs/x", cwd=str(workspace), timeout=60, profile=UNSANDBOXED)
    await runner.close()
    assert snapshot_tree(workspace).keys() - before.keys() == {str(workspace / "docs" / "x")}


OPERANDS = ["", "README.md", "README.md names.txt", "OUT", "README.md OUT", "HEAD", "list", "1", ". data.json"]


def make_random_command(chosen: random.Random) -> str:
    """Return a known command with some of its known options; values and operands include names of new files."""
    name, known = chosen.choice(
        [*READ_ONLY_COMMANDS.items(), *((f"git {name}", known) for name, known in GIT_COMMANDS.items())]
    )
    options = [(f"-{letter}", kind) for letter, kind in _parse_short_options(known.short).items()]
    options += [(f"--{word}", kind) for word, kind in _parse_long_options(known.long).items()]
    words: list[str] = []
    for option, kind in chosen.sample(options, min(len(options), 2)):
        value = chosen.choice(["OUT", "1", "README.md"])
        glued = f"{option}={value}" if option.startswith("--") else f"{option}{value}"
        words += [chosen.choice([glued, option])] if kind else [option]
    return " ".join([name, *words, chosen.choice(OPERANDS)]).strip()


@pytest.mark.slow
async def test_no_listed_option_writes_anything(workspace: Path):
    make_repository(workspace)
    before = snapshot_tree(workspace)
    chosen = random.Random(0 if os.environ.get("CI") else time.time_ns())
    tried = [make_random_command(chosen) for _ in range(400)]
    known = [command for command in tried if is_read_only(command, make_scope(workspace))][:120]
    assert len(known) > 20
    runner = ProcessRunner(make_environment(cwd="/"))
    some = asyncio.Semaphore(6)

    async def run_one(command: str) -> None:
        async with some:
            await runner.run(command, cwd=str(workspace), timeout=60, profile=ProcessProfile("project"))

    await asyncio.gather(*map(run_one, known))
    await runner.close()
    assert snapshot_tree(workspace) == before, known
