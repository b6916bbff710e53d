"""Reading a cached file again: the same result, without opening the file, while it is unchanged."""

import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odin.context.file_cache import FileCache
from odin.context.settings import CacheSettings
from odin.tools import ToolDeps, build_standard_tools
from tests.tools.toolbox import Toolbox

_opened: list[str] = []
_listening = False


def _hear(event: str, args: tuple[Any, ...]) -> None:
    if _listening and event == "open":
        _opened.append(os.path.basename(str(args[0])))


sys.addaudithook(_hear)


class opened:  # noqa: N801
    """Record the names of the files and folders that are opened."""

    def __enter__(self) -> list[str]:
        global _listening
        _opened.clear()
        _listening = True
        return _opened

    def __exit__(self, *_: object) -> None:
        global _listening
        _listening = False


def at_leisure(box: Toolbox, **limits: Any) -> Toolbox:
    """Return the tools with a clock past the time in which a second change could go unnoticed."""
    box.files = FileCache(CacheSettings(**limits), clock=lambda: time.time() + 10)
    box.tools = {tool.name: tool for tool in build_standard_tools(ToolDeps(box.files, box.runner))}
    return box


@pytest.fixture
async def box(workspace: Path) -> AsyncIterator[Toolbox]:
    box = at_leisure(Toolbox(workspace))
    yield box
    await box.runner.close()


def thousand(box: Toolbox) -> str:
    return box.write("a.txt", "".join(f"line {n}\n" for n in range(1, 1001)))


async def test_a_second_read_opens_nothing_and_says_the_same(box: Toolbox) -> None:
    name = thousand(box)
    first = await box.ok("Read", file_path=name)
    with opened() as files:
        again = await box.ok("Read", file_path=name)
    assert again == first
    assert os.path.basename(name) not in files
    entry = box.files.find(name)
    assert entry is not None
    assert (entry.whole, entry.access_count) == (True, 2)


@pytest.mark.parametrize("how", ["created", "overwritten", "edited", "in place"])
async def test_what_odin_wrote_is_not_read_again_until_something_else_changes_it(workspace: Path, how: str) -> None:
    """At once, by the real clock: the time stamps are those of the write itself."""
    box = Toolbox(workspace)
    path = str(workspace / "a.txt")
    if how != "created":
        Path(path).write_text("old\nx\n")
        await box.ok("Read", file_path=path)
    if how == "in place":
        os.link(path, workspace / "b.txt")
    if how in ("edited", "in place"):
        await box.ok("EditTool", file_path=path, old_string="old", new_string="new")
    else:
        await box.ok("WriteFile", file_path=path, content="new\nx\n")
    with opened() as files:
        again = await box.ok("Read", file_path=path)
    assert "     1\tnew" in again.text
    assert "a.txt" not in files
    Path(path).write_text("own\nx\n")
    assert "     1\town" in (await box.ok("Read", file_path=path)).text
    await box.runner.close()


async def test_lines_inside_a_segment_are_not_read_again(box: Toolbox) -> None:
    name = thousand(box)
    await box.ok("Read", file_path=name, offset=100, limit=101)
    with opened() as files:
        inside = await box.ok("Read", file_path=name, offset=145, limit=11)
    assert os.path.basename(name) not in files
    assert box.files.list_segments(name) == ("100-200",)
    fresh = await at_leisure(Toolbox(box.folder)).ok("Read", file_path=name, offset=145, limit=11)
    assert inside == fresh
    with opened() as files:
        await box.ok("Read", file_path=name, offset=500, limit=2)
    assert os.path.basename(name) in files
    assert box.files.list_segments(name) == ("100-200", "500-501")


async def test_segments_give_together_what_each_has_a_part_of(box: Toolbox) -> None:
    name = thousand(box)
    await box.ok("Read", file_path=name, offset=10, limit=10)
    await box.ok("Grep", pattern="line 2[0-9]$", path=name)
    await box.ok("Read", file_path=name, offset=25, limit=20)
    with opened() as files:
        both = await box.ok("Read", file_path=name, offset=12, limit=30)
    assert os.path.basename(name) not in files
    assert both == await at_leisure(Toolbox(box.folder)).ok("Read", file_path=name, offset=12, limit=30)


async def test_context_lines_of_grep_are_the_borders_of_a_segment(box: Toolbox) -> None:
    name = thousand(box)
    await box.ok("Grep", pattern="line 500$", path=name, **{"-B": 2, "-A": 3})
    assert box.files.list_segments(name) == ("498-503",)
    with opened() as files:
        await box.ok("Read", file_path=name, offset=498, limit=6)
    assert os.path.basename(name) not in files


async def test_other_modes_of_grep_and_listings_keep_nothing(box: Toolbox) -> None:
    name = thousand(box)
    await box.ok("Grep", pattern="line", path=name, output_mode="count")
    await box.ok("Grep", pattern="line", path=name, output_mode="files_with_matches")
    await box.ok("LS", path=str(box.folder))
    await box.ok("Glob", pattern="*.txt")
    assert len(box.files) == 0


async def test_a_changed_file_is_read_again(box: Toolbox) -> None:
    name = thousand(box)
    await box.ok("Read", file_path=name, offset=1, limit=3)
    Path(name).write_text("other\n")
    assert (await box.ok("Read", file_path=name, offset=1, limit=3)).text == "     1\tother"
    Path(name).unlink()
    assert "does not exist" in await box.refused("Read", file_path=name, offset=1, limit=3)


async def test_a_file_read_right_after_a_change_is_looked_at_again(workspace: Path) -> None:
    box = Toolbox(workspace)
    name = box.write("a.txt", "one\n")
    await box.ok("Read", file_path=name)
    with opened() as files:
        await box.ok("Read", file_path=name)
    assert os.path.basename(name) in files


async def test_what_an_edit_wrote_is_kept_whole(box: Toolbox) -> None:
    name = thousand(box)
    await box.ok("Grep", pattern="line 500$", path=name)
    await box.ok("EditTool", file_path=name, old_string="line 500\n", new_string="LINE\n")
    entry = box.files.find(name)
    assert entry is not None
    assert (entry.content, entry.modified, tuple(entry.segments)) == (Path(name).read_bytes(), True, ())
    assert entry.fingerprint.mtime_ns == os.stat(name).st_mtime_ns
    edits = [{"old_string": "line 7\n", "new_string": "seven\n"}, {"old_string": "line 8\n", "new_string": ""}]
    await box.ok("MultiEditTool", file_path=name, edits=edits)
    await box.ok("WriteFile", file_path=str(box.folder / "new.txt"), content="fresh\n")
    for path_ in (name, str(box.folder / "new.txt")):
        entry = box.files.find(path_)
        assert entry is not None
        assert (entry.content, entry.modified) == (Path(path_).read_bytes(), True)
        assert entry.fingerprint.sha256 != entry.original_hash


async def test_past_the_end_and_empty_are_said_the_same_way(box: Toolbox) -> None:
    short, empty = box.write("s.txt", "x\n"), box.write("e.txt", "")
    for name, offset in ((short, 5), (empty, None)):
        await box.ok("Read", file_path=name)
        with opened() as files:
            again = await box.call("Read", file_path=name, offset=offset)
        assert os.path.basename(name) not in files
        assert again == await at_leisure(Toolbox(box.folder)).call("Read", file_path=name, offset=offset)


async def test_a_notebook_or_a_pdf_is_never_given_as_its_lines(box: Toolbox) -> None:
    """Grep caches their lines, but Read shows something else."""
    notebook = box.write("n.ipynb", '{"cells": [{"cell_type": "markdown", "source": "hi"}], "nbformat": 4}\n')
    await box.ok("Grep", pattern="cells", path=notebook)
    assert box.files.list_segments(notebook) == ("1-1",)
    assert "cell_type" not in (await box.ok("Read", file_path=notebook)).text
    paper = box.write("p.txt", "%PDF-1.4\nnot really\n")
    await box.ok("Grep", pattern="PDF", path=paper, **{"-A": 5})
    with opened() as files:
        await box.call("Read", file_path=paper)
    assert os.path.basename(paper) in files


async def test_a_huge_file_is_hashed_once(box: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("files", "read"):
        monkeypatch.setattr(f"odin.tools.{module}.WHOLE_BYTES", 5000)
    name = thousand(box)
    assert Path(name).stat().st_size > 5000
    first = await box.ok("Read", file_path=name, offset=900, limit=50)
    with opened() as opened_files:
        again = await box.ok("Read", file_path=name, offset=900, limit=50)
        part = await box.ok("Read", file_path=name, offset=910, limit=2)
    assert name not in opened_files
    assert again == first
    assert part == await at_leisure(Toolbox(box.folder)).ok("Read", file_path=name, offset=910, limit=2)
    assert "too large to read whole" in await box.refused("Read", file_path=name)


async def test_without_room_a_file_is_known_and_read_from_disk(box: Toolbox) -> None:
    at_leisure(box, max_file_bytes=100)
    name = thousand(box)
    first = await box.ok("Read", file_path=name)
    assert box.files.held_bytes == 0
    assert await box.ok("Read", file_path=name) == first
    await box.ok("EditTool", file_path=name, old_string="line 9\n", new_string="nine\n")


pieces = st.sampled_from(
    [b"a", b"b c", b"\t", b"\n", b"\n", b"\r\n", b"\r", b"\xe9", b"\xc3\xa9", b"\xff", b"y" * 2100]
)
spans = st.tuples(st.integers(1, 12), st.integers(1, 12))


@pytest.mark.slow
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.one_of(
        st.lists(pieces, max_size=40).map(b"".join),
        st.text("ab\nü\r", max_size=40).map(lambda text: ("\ufeff" + text).encode("utf-16-le")),
        st.text("ab\nü\r", max_size=40).map(lambda text: ("\ufeff" + text).encode()),
    ),
    reads=st.lists(spans, min_size=1, max_size=8),
)
async def test_the_cache_and_the_disk_say_the_same(workspace: Path, data: bytes, reads: list[tuple[int, int]]) -> None:
    box = at_leisure(Toolbox(workspace))
    name = box.write("p.txt", data)
    for first, count in reads:
        from_cache = await box.call("Read", file_path=name, offset=first, limit=count)
        from_disk = await at_leisure(Toolbox(workspace)).call("Read", file_path=name, offset=first, limit=count)
        assert from_cache == from_disk
