"""Read: line numbers, partial reads, limits, encodings, and files that cannot be read."""

import os
from pathlib import Path

import pytest

from odin.tools import files as tool_path
from tests.tools.toolbox import Toolbox


async def test_lines_are_numbered_like_cat_n(box: Toolbox) -> None:
    path = box.write("a.txt", "one\ntwo\n")
    assert (await box.ok("Read", file_path=path)).text == "     1\tone\n     2\ttwo"


async def test_a_partial_read_names_its_lines_and_the_total(box: Toolbox) -> None:
    path = box.write("a.txt", "".join(f"line {n}\n" for n in range(1, 101)))
    text = (await box.ok("Read", file_path=path, offset=10, limit=3)).text
    assert text.startswith("    10\tline 10\n    11\tline 11\n    12\tline 12\n")
    assert "showing lines 10-12 of 100 total" in text
    assert box.files.list_segments(path) == ("10-12",)


async def test_a_read_shows_at_most_2000_lines(box: Toolbox) -> None:
    path = box.write("a.txt", "x\n" * 2500)
    assert "showing lines 1-2000 of 2500 total; go on with offset=2001" in (await box.ok("Read", file_path=path)).text
    assert "showing lines 2001-2500 of 2500" in (await box.ok("Read", file_path=path, offset=2001)).text
    assert box.files.list_unseen(path) == []


async def test_long_lines_are_truncated_with_a_note(box: Toolbox) -> None:
    path = box.write("a.txt", "y" * 5000 + "\nshort\n")
    text = (await box.ok("Read", file_path=path)).text
    assert "[line cut: 2000 of 5000 characters]" in text
    assert text.endswith("     2\tshort")
    known = box.files.get_cached_file(path)
    assert known is not None
    assert known.truncated


async def test_a_read_is_limited_in_characters(box: Toolbox) -> None:
    path = box.write("a.txt", ("z" * 1000 + "\n") * 1000)
    text = (await box.ok("Read", file_path=path)).text
    assert len(text) < 60_000
    assert "of 1000 total; go on with offset=" in text


async def test_an_empty_file_is_reported_as_empty(box: Toolbox) -> None:
    path = box.write("a.txt", "")
    assert (await box.ok("Read", file_path=path)).text == "(empty file)"
    assert box.files.get_cached_file(path) is not None


async def test_an_offset_past_the_end_is_refused(box: Toolbox) -> None:
    assert "has only 1 lines" in await box.refused("Read", file_path=box.write("a.txt", "x"), offset=5)


async def test_a_missing_file_suggests_the_nearest(box: Toolbox) -> None:
    box.write("src/parser.py", "")
    text = await box.refused("Read", file_path=str(box.folder / "src/parsr.py"))
    assert f"does not exist. Did you mean {box.folder}/src/parser.py?" in text
    assert f"Did you mean {box.folder}/src/parser.py?" in await box.refused("Read", file_path="/src/parser.py")


async def test_directories_binary_files_and_pipes_are_refused_by_kind(box: Toolbox) -> None:
    assert "is a directory" in await box.refused("Read", file_path=str(box.folder))
    assert "is a binary file" in await box.refused("Read", file_path=box.write("a.bin", b"\x7fELF\0\0"))
    os.mkfifo(box.folder / "pipe")
    assert "not a regular file" in await box.refused("Read", file_path=str(box.folder / "pipe"))


async def test_other_encodings_are_shown_as_well_as_possible(box: Toolbox) -> None:
    text = (await box.ok("Read", file_path=box.write("l.txt", b"caf\xe9\n"))).text
    assert "caf\ufffd" in text
    assert "not valid UTF-8" in text
    wide = (await box.ok("Read", file_path=box.write("w.txt", "\ufeffgrüße\n".encode("utf-16-le")))).text
    assert wide == "     1\tgrüße"


async def test_crlf_is_not_shown_and_only_line_feeds_end_lines(box: Toolbox) -> None:
    path = box.write("a.txt", "one\r\ntwo\x0cstill two\u2028too\r\n")
    assert (await box.ok("Read", file_path=path)).text == "     1\tone\n     2\ttwo\x0cstill two\u2028too"


async def test_a_huge_binary_file_is_not_read_to_its_end(box: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    def scan(*_: object) -> None:
        raise AssertionError("it was read")

    monkeypatch.setattr("odin.tools.read._scan_huge_file", scan)
    path = box.write("huge", "\0")
    os.truncate(path, 2_000_000_000)
    assert "is a binary file (2000000000 bytes)" in await box.refused("Read", file_path=path, offset=1, limit=5)


@pytest.mark.slow
async def test_a_huge_file_is_read_in_parts_only(box: Toolbox) -> None:
    path = str(box.folder / "huge.txt")
    line = b"0123456789" * 10 + b"\n"
    with Path(path).open("wb") as file:
        for _ in range(500):
            file.write(line * 1000)
        file.write(b"the last line")
    assert Path(path).stat().st_size > tool_path.WHOLE_BYTES
    assert "too large to read whole" in await box.refused("Read", file_path=path)
    text = (await box.ok("Read", file_path=path, offset=499_999, limit=5)).text
    assert text.splitlines()[0].startswith("499999\t0123456789")
    assert "500001\tthe last line" in text
    assert "showing lines 499999-500001 of 500001 total" in text
    middle = (await box.ok("Read", file_path=path, offset=250_000, limit=2)).text
    assert [row.split("\t")[0] for row in middle.splitlines()[:2]] == ["250000", "250001"]
