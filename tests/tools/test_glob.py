"""Glob, with ripgrep and with the built-in search: patterns, order, ignored folders, limits."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.tools.toolbox import Toolbox


@pytest.fixture(params=[False, True], ids=["ripgrep", "built-in"])
async def box(request: pytest.FixtureRequest, workspace: Path) -> AsyncIterator[Toolbox]:
    box = Toolbox(workspace, without_ripgrep=request.param)
    yield box
    await box.runner.close()


def write_by_age(box: Toolbox, *names: str) -> None:
    """Write empty files, from the oldest to the newest."""
    for age, name in enumerate(names):
        os.utime(box.write(name, ""), (1000 + age, 1000 + age))


async def find_files(box: Toolbox, pattern: str, path: str | None = None) -> list[str]:
    text = (await box.ok("Glob", pattern=pattern, **({"path": path} if path else {}))).text
    return text.replace(f"{box.folder}/", "").split("\n")


async def test_newest_first_and_by_name_when_equally_old(box: Toolbox) -> None:
    write_by_age(box, "old.py", "src/new.py")
    for name in ("b.py", "a.py"):
        os.utime(box.write(name, ""), (500, 500))
    assert await find_files(box, "**/*.py") == ["src/new.py", "old.py", "a.py", "b.py"]


async def test_glob_patterns_match(box: Toolbox) -> None:
    write_by_age(box, "a.ts", "src/b.ts", "src/deep/c.tsx", "src/d1.js", "src/[x].js")
    assert await find_files(box, "*.ts") == ["src/b.ts", "a.ts"]
    assert await find_files(box, "src/*.ts") == ["src/b.ts"]
    assert await find_files(box, "src/**/*.{ts,tsx}") == ["src/deep/c.tsx", "src/b.ts"]
    assert await find_files(box, "**/d[0-9].js") == ["src/d1.js"]
    assert await find_files(box, "**/[!d]*.js") == ["src/[x].js"]
    assert await find_files(box, "b.?s") == ["src/b.ts"]
    assert await find_files(box, "*.tsx", str(box.folder / "src")) == ["src/deep/c.tsx"]
    assert await find_files(box, f"{box.folder}/src/*.js") == ["src/[x].js", "src/d1.js"]


async def test_hidden_ignored_and_bulky_folders_are_skipped(box: Toolbox) -> None:
    (box.folder / ".git").mkdir()
    box.write(".git/x.py", "")
    box.write(".gitignore", "out/\n*.gen.py\n")
    write_by_age(
        box, "out/a.py", "b.gen.py", "node_modules/c.py", "vendor/d.py", "__pycache__/e.py", ".github/f.py", "g.py"
    )
    assert await find_files(box, "**/*.py") == ["g.py"]
    assert await find_files(box, ".github/*.py") == [".github/f.py"]
    assert await find_files(box, "node_modules/*.py") == ["node_modules/c.py"]
    assert await find_files(box, "*.gen.py") == ["No files found"]


async def test_more_than_100_files_are_truncated_with_a_note(box: Toolbox) -> None:
    write_by_age(box, *(f"f{n:03}.txt" for n in range(120)))
    rows = await find_files(box, "*.txt")
    assert rows[0] == "f119.txt"
    assert len(rows) == 101
    assert rows[-1].startswith("(showing the newest 100 of 120 files")


async def test_bad_folders_and_patterns_are_refused(box: Toolbox) -> None:
    for word in ("undefined", "null"):
        (box.folder / word).mkdir()
        assert "Leave it out" in await box.refused("Glob", pattern="*", path=word)
    assert "does not exist" in await box.refused("Glob", pattern="*", path=str(box.folder / "no"))
    assert "is a file" in await box.refused("Glob", pattern="*", path=box.write("a", ""))
    assert "not a valid glob" in await box.refused("Glob", pattern="[z-a]")


async def test_symlink_loops_are_not_followed(box: Toolbox) -> None:
    write_by_age(box, "src/a.py")
    os.symlink(box.folder, box.folder / "src/loop")
    os.mkfifo(box.folder / "pipe.py")
    assert await find_files(box, "**/*.py") == ["src/a.py"]


async def test_patterns_with_many_stars_match_quickly(box: Toolbox) -> None:
    """Matching blocks the process, so its time must not grow with the number of stars."""
    name = "a" * 200
    write_by_age(box, f"{name}b.txt", "/".join("d" * 30) + "/deep.txt")
    for pattern in (
        "*" * 100 + "x",
        "*a" * 60 + "x",
        "{" + "*a" * 60 + "x,y}",
        "**/" * 60 + "z",
        "x/" + "*" * 90 + "y",
    ):
        assert await find_files(box, pattern) == ["No files found"]
    for pattern in ("*" * 100 + ".txt", "*a" * 60 + "*b.txt", "{" + "*a" * 60 + "b.t*,y}"):
        assert f"{name}b.txt" in await find_files(box, pattern)
    assert len(await find_files(box, "**/" * 60 + "d/**/*.txt")) == 1
