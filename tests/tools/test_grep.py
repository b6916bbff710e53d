import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.tools.toolbox import Toolbox


@pytest.fixture(params=[False, True], ids=["ripgrep", "built-in"])
async def box(request: pytest.FixtureRequest, workspace: Path) -> AsyncIterator[Toolbox]:
    """Every test here runs with ripgrep and with the built-in walk, and expects the same."""
    box = Toolbox(workspace, without_ripgrep=request.param)
    yield box
    await box.runner.close()


async def lines(box: Toolbox, pattern: str, **args: Any) -> list[str]:
    text = (await box.ok("Grep", pattern=pattern, **args)).text
    return text.replace(f"{box.folder}/", "").split("\n")


def tree(box: Toolbox) -> None:
    box.write("a.py", "import os\nTODO one\nlast\n")
    box.write("src/b.ts", "// todo two\n")
    box.write("src/c.tsx", "TODO three\nTODO four\n")
    box.write("src-b/z.py", "TODO five\n")
    box.write(".hidden/d.py", "TODO hidden\n")
    box.write(".gitignore", "ignored/\n*.log\n!keep.log\n/only_top.py\n")
    box.write("ignored/e.py", "TODO ignored\n")
    box.write("x.log", "TODO log\n")
    box.write("keep.log", "TODO kept\n")
    box.write("only_top.py", "TODO top\n")
    box.write("src/only_top.py", "TODO not top\n")
    box.write("bin.dat", b"\0\0TODO binary\n")


async def test_content_is_path_line_text(box: Toolbox) -> None:
    tree(box)
    assert await lines(box, "TODO") == [
        "a.py:2:TODO one",
        "keep.log:1:TODO kept",
        "src/c.tsx:1:TODO three",
        "src/c.tsx:2:TODO four",
        "src/only_top.py:1:TODO not top",
        "src-b/z.py:1:TODO five",
    ]


async def test_modes_and_filters(box: Toolbox) -> None:
    tree(box)
    assert await lines(box, "TODO", output_mode="files_with_matches", glob="*.{ts,tsx}") == ["src/c.tsx"]
    assert await lines(box, "todo", output_mode="count", glob="*.{ts,tsx}", **{"-i": True}) == [
        "src/b.ts:1",
        "src/c.tsx:2",
    ]
    assert await lines(box, "TODO", type="py", glob="!src-b/**") == [
        "a.py:2:TODO one",
        "src/only_top.py:1:TODO not top",
    ]
    assert await lines(box, "TODO", path=str(box.folder / "src-b")) == ["src-b/z.py:1:TODO five"]
    assert await lines(box, "TODO", path=str(box.folder / "x.log")) == ["x.log:1:TODO log"]


async def test_line_numbers_can_be_left_out(box: Toolbox) -> None:
    box.write("z.py", "TODO five\n")
    assert await lines(box, "TODO", **{"-n": False}) == ["z.py:TODO five"]


async def test_context_is_marked_and_separated(box: Toolbox) -> None:
    box.write("a.txt", "1\n2 x\n3\n4\n5\n6 x\n7 x\n8\n")
    box.write("b.txt", "x\n")
    assert await lines(box, "x", **{"-C": 1}) == [
        "a.txt-1-1",
        "a.txt:2:2 x",
        "a.txt-3-3",
        "--",
        "a.txt-5-5",
        "a.txt:6:6 x",
        "a.txt:7:7 x",
        "a.txt-8-8",
        "--",
        "b.txt:1:x",
    ]
    assert (await lines(box, "6 x", **{"-A": 1, "-B": 2}))[0] == "a.txt-4-4"


async def test_no_match_is_not_an_error(box: Toolbox) -> None:
    box.write("a.txt", "x\n")
    for mode in ("content", "files_with_matches", "count"):
        assert (await box.ok("Grep", pattern="nothing", output_mode=mode)).text == "No matches found"


async def test_a_bad_search_is_one(box: Toolbox) -> None:
    box.write("a.txt", "x\n")
    assert "regex parse error" in await box.refused("Grep", pattern="(")
    assert "unrecognized file type" in await box.refused("Grep", pattern="x", type="klingon")
    assert "does not exist" in await box.refused("Grep", pattern="x", path=str(box.folder / "no"))
    assert "NUL" in await box.refused("Grep", pattern="\0")


async def test_literal_and_multiline(box: Toolbox) -> None:
    box.write("a.txt", "f(x)\nbegin\nmiddle\nend\n")
    assert await lines(box, "f(x)", literal_text=True) == ["a.txt:1:f(x)"]
    assert await lines(box, "begin.*end", multiline=True) == ["a.txt:2:begin", "a.txt:3:middle", "a.txt:4:end"]
    assert await lines(box, "begin\nmiddle") == ["a.txt:2:begin", "a.txt:3:middle"]


async def test_a_dollar_matches_before_crlf(box: Toolbox) -> None:
    box.write("a.txt", "one\r\ntwo\r\n")
    assert await lines(box, "one$") == ["a.txt:1:one"]


async def test_limits_are_loud(box: Toolbox) -> None:
    box.write("a.txt", "x\n" * 300)
    assert await lines(box, "x", head_limit=2) == [
        "a.txt:1:x",
        "a.txt:2:x",
        "(showing the first 2 of 300 results; narrow it down or raise head_limit)",
    ]
    assert "first 250 of 300 results" in (await lines(box, "x"))[-1]
    box.write("b.txt", "y" * 3000 + "\n")
    assert "[line cut: 500 of 3000 characters]" in (await lines(box, "yy"))[0]


async def test_a_range_of_one_file(box: Toolbox) -> None:
    path = box.write("a.txt", "x\n" * 300)
    os.utime(path, (1, 1))
    assert await lines(box, "x", path=path, offset=100, limit=50) == [f"a.txt:{n}:x" for n in range(100, 150)]
    assert box.files.segments(path) == ("100-149",)
    assert "one file" in await box.refused("Grep", pattern="x", offset=1)


async def test_only_content_is_remembered(box: Toolbox) -> None:
    path = box.write("a.txt", "x\ny\nz\n")
    os.utime(path, (1, 1))
    await box.ok("Grep", pattern="x", output_mode="files_with_matches")
    await box.ok("Grep", pattern="x", output_mode="count")
    assert box.files.get(path) is None
    await box.ok("Grep", pattern="x", **{"-A": 1})
    assert box.files.segments(path) == ("1-2",)
    assert box.files.unseen(path) == [(3, 3)]


async def test_a_file_that_changed_while_we_searched_was_not_read(box: Toolbox) -> None:
    path = box.write("a.txt", "x\n")
    later = time.time() + 1000
    os.utime(path, (later, later))
    await box.ok("Grep", pattern="x")
    assert box.files.get(path) is None


async def test_odd_bytes_are_shown(box: Toolbox) -> None:
    box.write("a.txt", b"x caf\xe9\n")
    box.write("w.txt", "\ufeffx wide\n".encode("utf-16-le"))
    assert await lines(box, "x") == ["a.txt:1:x caf\ufffd", "w.txt:1:x wide"]


async def test_ignore_files_of_the_folders_above_hold(box: Toolbox) -> None:
    (box.folder / ".git").mkdir()
    box.write(".gitignore", "gen*\n")
    box.write("deep/inner/generated.py", "x\n")
    box.write("deep/inner/real.py", "x\n")
    box.write("deep/.gitignore", "!generated.py\nother/**\n")
    box.write("deep/other/y.py", "x\n")
    here = str(box.folder / "deep")
    assert await lines(box, "x", path=here) == ["deep/inner/generated.py:1:x", "deep/inner/real.py:1:x"]
    assert await lines(box, "x", path=here, glob="other/*.py") == ["deep/other/y.py:1:x"], "what is named is searched"


async def test_a_flood_is_stopped(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box = Toolbox(workspace)
    monkeypatch.setattr("odin.tools.search._STOP_BYTES", 100_000)
    box.write("a.txt", "x" * 60 + "\n")
    box.write("b.txt", ("x" * 60 + "\n") * 100_000)
    text = (await box.ok("Grep", pattern="x")).text
    assert "too many" in text
    assert len(text) < 40_000
    await box.runner.close()
