"""Reading a cached file again: the same result, without opening the file, while it is unchanged."""

import os
import sys
import time
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odin.context.file_cache import FileCache
from odin.context.settings import CacheSettings
from odin.tools import ToolDeps, build_standard_tools
from tests.tools.toolbox import Toolbox

_opened_names: list[str] = []
_is_recording = False


def _record_open(event: str, args: tuple[Any, ...]) -> None:
    if _is_recording and event == "open":
        _opened_names.append(os.path.basename(str(args[0])))


sys.addaudithook(_record_open)


@contextmanager
def record_opens() -> Generator[list[str]]:
    """Yield a list that collects the names of the files and folders that are opened in this block."""
    global _is_recording
    _opened_names.clear()
    _is_recording = True
    try:
        yield _opened_names
    finally:
        _is_recording = False


def use_late_clock(box: Toolbox, **limits: Any) -> Toolbox:
    """Give the cache a clock ten seconds ahead, so that no file looks recently changed; return the box."""
    box.files = FileCache(CacheSettings(**limits), clock=lambda: time.time() + 10)
    box.tools = {tool.name: tool for tool in build_standard_tools(ToolDeps(box.files, box.runner))}
    return box


@pytest.fixture
async def box(workspace: Path) -> AsyncIterator[Toolbox]:
    box = use_late_clock(Toolbox(workspace))
    yield box
    await box.runner.close()


def write_thousand_lines(box: Toolbox) -> str:
    return box.write("a.txt", "".join(f"line {n}\n" for n in range(1, 1001)))


async def test_a_second_read_returns_the_same_without_opening_the_file(box: Toolbox) -> None:
    name = write_thousand_lines(box)
    first = await box.ok("Read", file_path=name)
    with record_opens() as files:
        again = await box.ok("Read", file_path=name)
    assert again == first
    assert os.path.basename(name) not in files
    entry = box.files.find(name)
    assert entry is not None
    assert (entry.whole, entry.access_count) == (True, 2)


@pytest.mark.parametrize("how", ["created", "overwritten", "edited", "in place"])
async def test_a_file_that_odin_wrote_is_read_again_only_after_another_change(workspace: Path, how: str) -> None:
    """With the real clock: the cache takes the time stamps from the write itself."""
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
    with record_opens() as files:
        again = await box.ok("Read", file_path=path)
    assert "     1\tnew" in again.text
    assert "a.txt" not in files
    Path(path).write_text("own\nx\n")
    assert "     1\town" in (await box.ok("Read", file_path=path)).text
    await box.runner.close()


async def test_lines_inside_a_segment_are_not_read_again(box: Toolbox) -> None:
    name = write_thousand_lines(box)
    await box.ok("Read", file_path=name, offset=100, limit=101)
    with record_opens() as files:
        inside = await box.ok("Read", file_path=name, offset=145, limit=11)
    assert os.path.basename(name) not in files
    assert box.files.list_segments(name) == ("100-200",)
    fresh = await use_late_clock(Toolbox(box.folder)).ok("Read", file_path=name, offset=145, limit=11)
    assert inside == fresh
    with record_opens() as files:
        await box.ok("Read", file_path=name, offset=500, limit=2)
    assert os.path.basename(name) in files
    assert box.files.list_segments(name) == ("100-200", "500-501")


async def test_a_read_can_be_served_from_several_segments(box: Toolbox) -> None:
    name = write_thousand_lines(box)
    await box.ok("Read", file_path=name, offset=10, limit=10)
    await box.ok("Grep", pattern="line 2[0-9]$", path=name)
    await box.ok("Read", file_path=name, offset=25, limit=20)
    with record_opens() as files:
        both = await box.ok("Read", file_path=name, offset=12, limit=30)
    assert os.path.basename(name) not in files
    assert both == await use_late_clock(Toolbox(box.folder)).ok("Read", file_path=name, offset=12, limit=30)


async def test_context_lines_of_grep_belong_to_the_cached_segment(box: Toolbox) -> None:
    name = write_thousand_lines(box)
    await box.ok("Grep", pattern="line 500$", path=name, **{"-B": 2, "-A": 3})
    assert box.files.list_segments(name) == ("498-503",)
    with record_opens() as files:
        await box.ok("Read", file_path=name, offset=498, limit=6)
    assert os.path.basename(name) not in files


async def test_other_grep_modes_and_listings_cache_nothing(box: Toolbox) -> None:
    name = write_thousand_lines(box)
    await box.ok("Grep", pattern="line", path=name, output_mode="count")
    await box.ok("Grep", pattern="line", path=name, output_mode="files_with_matches")
    await box.ok("LS", path=str(box.folder))
    await box.ok("Glob", pattern="*.txt")
    assert len(box.files) == 0


async def test_a_changed_file_is_read_again(box: Toolbox) -> None:
    name = write_thousand_lines(box)
    await box.ok("Read", file_path=name, offset=1, limit=3)
    Path(name).write_text("other\n")
    assert (await box.ok("Read", file_path=name, offset=1, limit=3)).text == "     1\tother"
    Path(name).unlink()
    assert "does not exist" in await box.refused("Read", file_path=name, offset=1, limit=3)


async def test_a_file_read_right_after_a_change_is_opened_again(workspace: Path) -> None:
    box = Toolbox(workspace)
    name = box.write("a.txt", "one\n")
    await box.ok("Read", file_path=name)
    with record_opens() as files:
        await box.ok("Read", file_path=name)
    assert os.path.basename(name) in files


async def test_edited_and_written_files_are_cached_whole(box: Toolbox) -> None:
    name = write_thousand_lines(box)
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


async def test_cached_reads_of_empty_files_and_past_the_end_give_the_same_text(box: Toolbox) -> None:
    short, empty = box.write("s.txt", "x\n"), box.write("e.txt", "")
    for name, offset in ((short, 5), (empty, None)):
        await box.ok("Read", file_path=name)
        with record_opens() as files:
            again = await box.call("Read", file_path=name, offset=offset)
        assert os.path.basename(name) not in files
        assert again == await use_late_clock(Toolbox(box.folder)).call("Read", file_path=name, offset=offset)


async def test_cached_lines_are_not_used_for_notebooks_and_pdfs(box: Toolbox) -> None:
    """Grep caches their lines, but Read shows something else."""
    notebook = box.write("n.ipynb", '{"cells": [{"cell_type": "markdown", "source": "hi"}], "nbformat": 4}\n')
    await box.ok("Grep", pattern="cells", path=notebook)
    assert box.files.list_segments(notebook) == ("1-1",)
    assert "cell_type" not in (await box.ok("Read", file_path=notebook)).text
    paper = box.write("p.txt", "%PDF-1.4\nnot really\n")
    await box.ok("Grep", pattern="PDF", path=paper, **{"-A": 5})
    with record_opens() as files:
        await box.call("Read", file_path=paper)
    assert os.path.basename(paper) in files


async def test_a_huge_file_is_hashed_once(box: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("files", "read"):
        monkeypatch.setattr(f"odin.tools.{module}.WHOLE_BYTES", 5000)
    name = write_thousand_lines(box)
    assert Path(name).stat().st_size > 5000
    first = await box.ok("Read", file_path=name, offset=900, limit=50)
    with record_opens() as opened_files:
        again = await box.ok("Read", file_path=name, offset=900, limit=50)
        part = await box.ok("Read", file_path=name, offset=910, limit=2)
    assert name not in opened_files
    assert again == first
    assert part == await use_late_clock(Toolbox(box.folder)).ok("Read", file_path=name, offset=910, limit=2)
    assert "too large to read whole" in await box.refused("Read", file_path=name)


async def test_a_file_too_large_for_the_cache_is_read_from_disk_and_can_be_edited(box: Toolbox) -> None:
    use_late_clock(box, max_file_bytes=100)
    name = write_thousand_lines(box)
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
async def test_cache_and_disk_give_the_same_text(workspace: Path, data: bytes, reads: list[tuple[int, int]]) -> None:
    box = use_late_clock(Toolbox(workspace))
    name = box.write("p.txt", data)
    for first, count in reads:
        from_cache = await box.call("Read", file_path=name, offset=first, limit=count)
        from_disk = await use_late_clock(Toolbox(workspace)).call("Read", file_path=name, offset=first, limit=count)
        assert from_cache == from_disk
