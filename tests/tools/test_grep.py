"""Grep, with ripgrep and with the built-in search: output modes, filters, ignore files, limits, caching."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from odin.core.timing import Timing
from odin.policy.paths import resolve_given
from odin.tools.fallback_search import MAX_FILE_BYTES
from odin.tools.search import LineHit, open_source
from odin.tools.search_tools import GlobTool, GrepTool
from odin.tools.staleness import confirm_lines
from tests.tools.toolbox import Toolbox


@pytest.fixture(params=[False, True], ids=["ripgrep", "built-in"])
async def box(request: pytest.FixtureRequest, workspace: Path) -> AsyncIterator[Toolbox]:
    """Every test runs with ripgrep and with the built-in search, and expects the same result."""
    box = Toolbox(workspace, without_ripgrep=request.param)
    yield box
    await box.runner.close()


async def grep(box: Toolbox, pattern: str, **args: Any) -> list[str]:
    text = (await box.ok("Grep", pattern=pattern, **args)).text
    return text.replace(f"{box.folder}/", "").split("\n")


def write_tree(box: Toolbox) -> None:
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


async def test_content_mode_shows_path_line_number_and_text(box: Toolbox) -> None:
    write_tree(box)
    assert await grep(box, "TODO") == [
        "a.py:2:TODO one",
        "keep.log:1:TODO kept",
        "src/c.tsx:1:TODO three",
        "src/c.tsx:2:TODO four",
        "src/only_top.py:1:TODO not top",
        "src-b/z.py:1:TODO five",
    ]


async def test_output_modes_and_filters(box: Toolbox) -> None:
    write_tree(box)
    assert await grep(box, "TODO", output_mode="files_with_matches", glob="*.{ts,tsx}") == ["src/c.tsx"]
    assert await grep(box, "todo", output_mode="count", glob="*.{ts,tsx}", **{"-i": True}) == [
        "src/b.ts:1",
        "src/c.tsx:2",
    ]
    assert await grep(box, "TODO", type="py", glob="!src-b/**") == [
        "a.py:2:TODO one",
        "src/only_top.py:1:TODO not top",
    ]
    assert await grep(box, "TODO", path=str(box.folder / "src-b")) == ["src-b/z.py:1:TODO five"]
    assert await grep(box, "TODO", path=str(box.folder / "x.log")) == ["x.log:1:TODO log"]


async def test_line_numbers_can_be_left_out(box: Toolbox) -> None:
    box.write("z.py", "TODO five\n")
    assert await grep(box, "TODO", **{"-n": False}) == ["z.py:TODO five"]


async def test_context_lines_are_marked_and_separated(box: Toolbox) -> None:
    box.write("a.txt", "1\n2 x\n3\n4\n5\n6 x\n7 x\n8\n")
    box.write("b.txt", "x\n")
    assert await grep(box, "x", **{"-C": 1}) == [
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
    assert (await grep(box, "6 x", **{"-A": 1, "-B": 2}))[0] == "a.txt-4-4"


async def test_no_match_is_not_an_error(box: Toolbox) -> None:
    box.write("a.txt", "x\n")
    for mode in ("content", "files_with_matches", "count"):
        assert (await box.ok("Grep", pattern="nothing", output_mode=mode)).text == "No matches found"


async def test_a_bad_search_is_an_error(box: Toolbox) -> None:
    box.write("a.txt", "x\n")
    assert "regex parse error" in await box.refused("Grep", pattern="(")
    assert "unrecognized file type" in await box.refused("Grep", pattern="x", type="klingon")
    assert "does not exist" in await box.refused("Grep", pattern="x", path=str(box.folder / "no"))
    assert "NUL" in await box.refused("Grep", pattern="\0")


async def test_literal_and_multiline_searches(box: Toolbox) -> None:
    box.write("a.txt", "f(x)\nbegin\nmiddle\nend\n")
    assert await grep(box, "f(x)", literal_text=True) == ["a.txt:1:f(x)"]
    assert await grep(box, "begin.*end", multiline=True) == ["a.txt:2:begin", "a.txt:3:middle", "a.txt:4:end"]
    assert await grep(box, "begin\nmiddle") == ["a.txt:2:begin", "a.txt:3:middle"]


async def test_a_dollar_matches_before_crlf(box: Toolbox) -> None:
    box.write("a.txt", "one\r\ntwo\r\n")
    assert await grep(box, "one$") == ["a.txt:1:one"]


async def test_truncated_results_and_lines_are_marked(box: Toolbox) -> None:
    box.write("a.txt", "x\n" * 300)
    assert await grep(box, "x", head_limit=2) == [
        "a.txt:1:x",
        "a.txt:2:x",
        "(showing the first 2 of 300 results; narrow it down or raise head_limit)",
    ]
    assert "first 250 of 300 results" in (await grep(box, "x"))[-1]
    box.write("b.txt", "y" * 3000 + "\n")
    assert "[line cut: 500 of 3000 characters]" in (await grep(box, "yy"))[0]


async def test_offset_and_limit_search_a_range_of_one_file(box: Toolbox) -> None:
    path = box.write("a.txt", "x\n" * 300)
    os.utime(path, (1, 1))
    assert await grep(box, "x", path=path, offset=100, limit=50) == [f"a.txt:{n}:x" for n in range(100, 150)]
    assert box.files.list_segments(path) == ("100-149",)
    assert "one file" in await box.refused("Grep", pattern="x", offset=1)


@pytest.mark.slow
async def test_only_content_mode_caches_lines(box: Toolbox) -> None:
    path = box.write("a.txt", "x\ny\nz\n")
    os.utime(path, (1, 1))
    await box.ok("Grep", pattern="x", output_mode="files_with_matches")
    await box.ok("Grep", pattern="x", output_mode="count")
    assert box.files.get_cached_file(path) is None
    await box.ok("Grep", pattern="x", **{"-A": 1})
    assert box.files.list_segments(path) == ("1-2",)
    assert box.files.list_unseen(path) == [(3, 3)]


async def test_a_line_that_changed_during_the_search_is_not_confirmed(box: Toolbox) -> None:
    path = box.write("a.txt", "x\ny\n")
    with open_source(resolve_given(str(box.folder), "/", "/"), "/") as source:
        changed = [LineHit(path, 1, True, "x as it was"), LineHit(path, 3, True, "gone")]
        assert confirm_lines(box.files, source, changed, 500) == {path}
        assert box.files.get_cached_file(path) is None
        assert confirm_lines(box.files, source, [changed[0], LineHit(path, 2, False, "y")], 500) == {path}
        assert box.files.list_segments(path) == ("2-2",)
        assert confirm_lines(box.files, source, [LineHit(path, 2, False, "y")], 500) == set()
        assert confirm_lines(box.files, source, [LineHit(f"{box.folder}/gone", 1, True, "x")], 500) == {
            f"{box.folder}/gone"
        }


async def test_lines_of_files_too_large_to_read_again_are_confirmed(
    box: Toolbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odin.tools.staleness.MAX_REREAD_BYTES", 10)
    box.write("a.txt", b"\xef\xbb\xbffirst x\r\nmore\n" + b"filler\n" * 100 + b"last x \xe9")
    assert await grep(box, "x") == ["a.txt:1:first x", "a.txt:103:last x \ufffd"]
    path = str(box.folder / "a.txt")
    with open_source(resolve_given(str(box.folder), "/", "/"), "/") as source:
        for hit in (LineHit(path, 2, True, "mora"), LineHit(path, 104, True, "")):
            assert confirm_lines(box.files, source, [hit], 500) == {path}


async def test_text_in_other_encodings_is_shown(box: Toolbox) -> None:
    box.write("a.txt", b"x caf\xe9\n")
    box.write("w.txt", "\ufeffx wide\n".encode("utf-16-le"))
    assert await grep(box, "x") == ["a.txt:1:x caf\ufffd", "w.txt:1:x wide"]


async def test_ignore_files_of_parent_folders_apply(box: Toolbox) -> None:
    (box.folder / ".git").mkdir()
    box.write(".gitignore", "gen*\n")
    box.write("deep/inner/generated.py", "x\n")
    box.write("deep/inner/real.py", "x\n")
    box.write("deep/.gitignore", "!generated.py\nother/**\n")
    box.write("deep/other/y.py", "x\n")
    here = str(box.folder / "deep")
    assert await grep(box, "x", path=here) == ["deep/inner/generated.py:1:x", "deep/inner/real.py:1:x"]
    assert await grep(box, "x", path=here, glob="other/*.py") == ["deep/other/y.py:1:x"], (
        "an ignored file that is named is searched"
    )


@pytest.mark.slow
async def test_a_search_with_too_many_matches_stops_and_shows_the_first_by_path(box: Toolbox) -> None:
    for number in range(30):
        box.write(f"f{number:02}.txt", f"x{number} {'y' * 60}\n" * 5_000)
    rows = await grep(box, "x", head_limit=3)
    assert rows[:3] == [f"f00.txt:{line}:x0 {'y' * 60}" for line in (1, 2, 3)]
    assert rows[3].startswith("(showing the first 3 results; the search was stopped because there are too many")
    assert len((await box.ok("Grep", pattern="x")).text) < 40_000


@pytest.mark.slow
async def test_a_range_far_down_in_a_file_is_searched_despite_many_matches(box: Toolbox) -> None:
    path = box.write("a.txt", "".join(f"x {number}\n" for number in range(1, 800_001)))
    found = await grep(box, "x", path=path, offset=799_000, limit=2)
    assert found == ["a.txt:799000:x 799000", "a.txt:799001:x 799001"]


async def test_pipes_and_binary_files_are_refused_by_kind(box: Toolbox) -> None:
    os.mkfifo(box.folder / "pipe")
    assert "pipe" in await box.refused("Grep", pattern="x", path=str(box.folder / "pipe"))
    assert "binary file" in await box.refused("Grep", pattern="x", path=box.write("b.bin", b"x\n\0\n"))
    wide = box.write("w.txt", "\ufeffx\n".encode("utf-16-le"))
    assert await grep(box, "x", path=wide) == ["w.txt:1:x"]


async def test_half_a_surrogate_pair_is_refused(box: Toolbox) -> None:
    box.write("a.txt", "x\n")
    assert "half a surrogate pair" in await box.refused("Grep", pattern="\ud83d")
    assert "glob" in await box.refused("Grep", pattern="x", glob="\ud83d")


@pytest.mark.slow
async def test_context_options_apply_only_to_content_mode(box: Toolbox) -> None:
    box.write("a.txt", "1\nx\n3\n")
    assert await grep(box, "x", output_mode="count", **{"-C": 1, "-n": True}) == ["a.txt:1"]
    assert await grep(box, "x", output_mode="files_with_matches", **{"-A": 9}) == ["a.txt"]
    assert len(await grep(box, "x", **{"-C": 1e300})) == 3


async def test_count_mode_counts_the_lines_of_multiline_matches(box: Toolbox) -> None:
    box.write("a.txt", "begin\nmiddle\nend\n")
    assert await grep(box, "begin.*end", multiline=True, output_mode="count") == ["a.txt:3"]


async def test_ignore_files_above_the_repository_do_not_apply(box: Toolbox) -> None:
    """A home folder kept in git ignores everything it does not name."""
    (box.folder.parent / ".gitignore").write_text("*\n")
    box.write(".git/HEAD", "")
    box.write("a.txt", "x\n")
    assert await grep(box, "x") == ["a.txt:1:x"]
    assert (await box.ok("Glob", pattern="*.txt")).text.endswith("a.txt")


async def test_a_glob_does_not_search_the_git_folder(box: Toolbox) -> None:
    box.write(".git/config", "x\n")
    box.write("a.txt", "x\n")
    assert await grep(box, "x", glob="*") == ["a.txt:1:x"]
    box.write(".gitignore", "*\n!*/\n!*.txt\n")
    assert await grep(box, "x") == ["a.txt:1:x"]


@pytest.mark.slow
async def test_a_long_list_of_files_is_truncated_with_a_note(box: Toolbox) -> None:
    for number in range(260):
        box.write(f"f{number:03}", "x\n")
    rows = await grep(box, "x", output_mode="files_with_matches")
    assert rows[:2] == ["f000", "f001"]
    assert rows[250:] == ["(showing the first 250 of 260 results; narrow it down or raise head_limit)"]


@pytest.mark.slow
async def test_a_regex_with_exponential_backtracking_is_stopped(workspace: Path) -> None:
    box = Toolbox(workspace, without_ripgrep=True, timing=Timing(search_s=1.0))
    box.write("a.txt", "a" * 60 + "!\n")
    assert "took longer than 1s" in await box.refused("Grep", pattern="(a+)+$")
    await box.runner.close()


async def test_the_built_in_search_replaces_a_ripgrep_that_does_not_start(workspace: Path) -> None:
    box = Toolbox(workspace)
    broken = box.write("not-rg", "no program\n")
    tools = (GrepTool(box.files, box.runner, lambda: broken), GlobTool(box.runner, lambda: broken))
    box.tools |= {tool.name: tool for tool in tools}
    box.write("a.txt", "x\n")
    assert await grep(box, "x") == ["a.txt:1:x"]
    assert (await box.ok("Glob", pattern="*.txt")).text.endswith("a.txt")
    await box.runner.close()


async def test_without_ripgrep_files_too_large_for_memory_are_not_searched(workspace: Path) -> None:
    box = Toolbox(workspace, without_ripgrep=True)
    box.write("a.txt", "x\n")
    large = box.write("b.txt", "x\n" * 40_000)
    os.truncate(large, MAX_FILE_BYTES + 1)
    assert await grep(box, "x") == ["a.txt:1:x"]
    assert "too large to be searched without ripgrep" in await box.refused("Grep", pattern="x", path=large)
    await box.runner.close()


@pytest.mark.parametrize(
    ("name", "args", "ending"),
    [
        ("Grep", {"pattern": "only", "output_mode": "content"}, ": 1 match"),
        ("Grep", {"pattern": "only", "output_mode": "files_with_matches"}, ": 1 file"),
        ("Grep", {"pattern": "only", "output_mode": "count"}, ": 1 matching line in 1 file"),
        ("Glob", {"pattern": "*.txt"}, "Found 1 file for *.txt"),
        ("LS", {"path": "."}, ": 1 entry"),
        ("Read", {"file_path": "a.txt"}, "(1 line)"),
    ],
)
async def test_users_are_told_the_number_of_results_in_words_that_fit(
    box: Toolbox, name: str, args: dict[str, str], ending: str
) -> None:
    box.write("a.txt", "only\n")
    assert (await box.ok(name, **args)).note.endswith(ending)
