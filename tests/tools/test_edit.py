"""EditTool and MultiEditTool: matching, unread lines, line endings, encodings, and all edits or none."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odin.tools.atomic_write import replace_file
from odin.tools.files import Refusal
from odin.tools.replacement import Edit, EditBuffer
from tests.tools.toolbox import Toolbox


async def edit(box: Toolbox, content: str | bytes, old: str, new: str, **more: Any) -> bytes:
    """Write, read and edit a file; return its bytes."""
    path = box.write("f.txt", content)
    await box.ok("Read", file_path=path)
    await box.ok("EditTool", file_path=path, old_string=old, new_string=new, **more)
    return Path(path).read_bytes()


async def test_an_edit_replaces_text_and_shows_the_place(box: Toolbox) -> None:
    path = box.write("a.py", "a = 1\nb = 2\nc = 3\n")
    await box.ok("Read", file_path=path)
    output = await box.ok("EditTool", file_path=path, old_string="b = 2", new_string="b = 20\nbb = 21")
    assert Path(path).read_text() == "a = 1\nb = 20\nbb = 21\nc = 3\n"
    assert "1 replacement, +2 -1 lines" in output.text
    assert "     2\tb = 20\n     3\tbb = 21\n" in output.text
    assert "@@ -1,3 +1,4 @@\n a = 1\n-b = 2\n+b = 20\n+bb = 21\n c = 3\n" in output.view
    assert output.files == (path,)
    known = box.files.get_cached_file(path)
    assert known is not None
    assert known.modified
    assert not known.truncated


async def test_a_second_edit_needs_no_second_read(box: Toolbox) -> None:
    await edit(box, "a b\n", "a", "x")
    await box.ok("EditTool", file_path=str(box.folder / "f.txt"), old_string="b", new_string="y")
    assert (box.folder / "f.txt").read_text() == "x y\n"


async def test_an_unread_file_is_refused(box: Toolbox) -> None:
    path = box.write("a.txt", "x\n")
    assert "Must read file first" in await box.refused("EditTool", file_path=path, old_string="x", new_string="y")
    assert Path(path).read_text() == "x\n"


async def test_the_cache_is_cleared_even_if_a_folder_became_a_symlink(box: Toolbox) -> None:
    await box.ok("Read", file_path=box.write("folder/a.txt", "x\n"))
    (box.folder / "folder").rename(box.folder / "moved")
    (box.folder / "folder").symlink_to("moved")
    box.files.forget_all()
    assert box.files.list_files() == ()


async def test_a_resumed_session_can_edit_only_files_it_had_read_whole(box: Toolbox) -> None:
    whole, part = box.write("a.txt", "x\n"), box.write("b.txt", "x\nfar away\n")
    await box.ok("Read", file_path=whole)
    await box.ok("Read", file_path=part, limit=1)
    later = Toolbox(box.folder)
    later.files.restore(box.files.list_files())
    await later.ok("EditTool", file_path=whole, old_string="x", new_string="y")
    assert "Must read file first" in await later.refused("EditTool", file_path=part, old_string="x", new_string="y")


async def test_a_file_that_changed_on_disk_is_refused_until_read_again(box: Toolbox) -> None:
    path = box.write("a.txt", "x\nfar away\n")
    await box.ok("Read", file_path=path)
    info = os.stat(path)
    Path(path).write_text("x\nFAR away\n")
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))
    args = {"file_path": path, "old_string": "x", "new_string": "y"}
    assert "changed on disk" in await box.refused("EditTool", **args)
    assert Path(path).read_text() == "x\nFAR away\n"
    await box.ok("Read", file_path=path)
    await box.ok("EditTool", **args)
    assert Path(path).read_text() == "y\nFAR away\n"


async def test_a_change_between_reading_and_replacing_is_refused(box: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    path = box.write("a.txt", "x\n")
    await box.ok("Read", file_path=path)

    def change_then_replace(target: str, data: bytes, before: bytes | None) -> os.stat_result:
        Path(path).write_text("theirs\n")
        return replace_file(target, data, before)

    monkeypatch.setattr("odin.tools.file_edit.replace_file", change_then_replace)
    assert "changed on disk" in await box.refused("EditTool", file_path=path, old_string="x", new_string="y")
    assert Path(path).read_text() == "theirs\n"
    assert os.listdir(box.folder) == ["a.txt"], "no temporary file is left"


async def test_a_missing_old_string_shows_the_nearest_text(box: Toolbox) -> None:
    path = box.write("a.py", "def f():\n    return 1\n")
    await box.ok("Read", file_path=path)
    text = await box.refused("EditTool", file_path=path, old_string="\treturn 1", new_string="x")
    assert "was not found" in text
    assert "     2\t    return 1" in text
    numbered = await box.refused("EditTool", file_path=path, old_string="     3\t    return 1", new_string="x")
    assert "line numbers" in numbered


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("     1\ta = 1\n     2\t  b = 2", "     1\ta = 9\n     2\t  b = 8", "a = 9\n  b = 8\n"),
        ("2   b = 2", "2   b = 8", "a = 1\n  b = 8\n"),
        ("2\tb = 2\n", "  b = 8\n", "a = 1\n  b = 8\n"),
        ("1: a = 1", "a = 7\n\n3", "a = 7\n\n3\n  b = 2\n"),
    ],
)
async def test_line_numbers_copied_from_read_are_dropped(box: Toolbox, old: str, new: str, expected: str) -> None:
    assert (await edit(box, "a = 1\n  b = 2\n", old, new)).decode() == expected


async def test_numbers_that_are_not_line_numbers_are_kept(box: Toolbox) -> None:
    path = box.write("f.txt", "a = 1\nb = 2\n")
    await box.ok("Read", file_path=path)
    assert "was not found" in await box.refused("EditTool", file_path=path, old_string="1 b = 2", new_string="x")
    assert (await edit(box, "1 one\n2 two\n", "2 two", "2 deux")).decode() == "1 one\n2 deux\n"


async def test_several_matches_are_refused_with_their_lines(box: Toolbox) -> None:
    path = box.write("a.txt", "x\nb\nx\n")
    await box.ok("Read", file_path=path)
    text = await box.refused("EditTool", file_path=path, old_string="x", new_string="y")
    assert "occurs 2 times (lines 1, 3)" in text
    await box.ok("EditTool", file_path=path, old_string="x", new_string="y", replace_all=True)
    assert Path(path).read_text() == "y\nb\ny\n"


@pytest.mark.parametrize("replace_all", [False, True])
async def test_a_final_newline_that_the_file_lacks_is_tolerated_only_for_a_unique_text(
    box: Toolbox, replace_all: bool
) -> None:
    """EDIT5: otherwise an edit of the last line would also change other lines that start with the same text."""
    path = box.write("a.txt", "end here\nend")
    await box.ok("Read", file_path=path)
    given = {"file_path": path, "old_string": "end\n", "new_string": "over\n", "replace_all": replace_all}
    assert "was not found" in await box.refused("EditTool", **given)
    assert Path(path).read_text() == "end here\nend"
    unique = box.write("b.txt", "one\nend")
    await box.ok("Read", file_path=unique)
    await box.ok("EditTool", **{**given, "file_path": unique})
    assert Path(unique).read_text() == "one\nover"


@pytest.mark.parametrize(("old", "new", "word"), [("x", "x", "identical"), ("", "x", "empty")])
async def test_identical_strings_and_an_empty_old_string_are_refused(
    box: Toolbox, old: str, new: str, word: str
) -> None:
    path = box.write("a.txt", "x\n")
    await box.ok("Read", file_path=path)
    assert word in await box.refused("EditTool", file_path=path, old_string=old, new_string=new)


async def test_an_edit_never_creates_a_file(box: Toolbox) -> None:
    path = str(box.folder / "new.txt")
    assert "does not exist" in await box.refused("EditTool", file_path=path, old_string="a", new_string="b")
    assert not Path(path).exists()


async def test_unread_lines_must_be_read_first(box: Toolbox) -> None:
    path = box.write("a.txt", "".join(f"line {n}.\n" for n in range(1, 101)))
    await box.ok("Read", file_path=path, offset=1, limit=20)
    args = {"file_path": path, "old_string": "line 50.\nline 51.", "new_string": "z"}
    text = await box.refused("EditTool", **args)
    assert "Must read lines 50-51 first" in text
    assert "offset=50 and limit=2" in text
    await box.ok("Read", file_path=path, offset=50, limit=2)
    await box.ok("EditTool", **args)
    assert "line 49.\nz\nline 52." in Path(path).read_text()


async def test_a_refusal_names_all_unread_lines_by_their_numbers_in_the_file(box: Toolbox) -> None:
    path = box.write("a.txt", "".join(f"line {n}.\n" for n in range(1, 101)))
    await box.ok("Read", file_path=path, offset=1, limit=20)
    moved = {"old_string": "line 5.\n", "new_string": "5\nand\nmore\n"}
    far = {"old_string": "0.\n", "new_string": "zero\n", "replace_all": True}
    args = {"file_path": path, "edits": [moved, {"old_string": "line 50.", "new_string": "fifty"}]}
    assert "Must read lines 50-50 first" in await box.refused("MultiEditTool", **args)
    await box.ok("Read", file_path=path, offset=50, limit=1)
    await box.ok("MultiEditTool", **args)
    path = box.write("b.txt", "".join(f"line {n}.\n" for n in range(1, 51)))
    await box.ok("Read", file_path=path, offset=1, limit=20)
    text = await box.refused("EditTool", file_path=path, **far)
    assert "lines 30-30 and 40-40 and 50-50" in text
    assert "offset=30 and limit=1, then offset=40 and limit=1, then offset=50 and limit=1" in text
    for line in (30, 40, 50):
        await box.ok("Read", file_path=path, offset=line, limit=1)
    await box.ok("EditTool", file_path=path, **far)
    path = box.write("c.txt", "".join(f"line {n}.\n" for n in range(1, 101)))
    await box.ok("Read", file_path=path, offset=1, limit=9)
    assert "Must read lines 10-100 first" in await box.refused("EditTool", file_path=path, **far)


async def test_lines_shown_by_grep_count_as_read(box: Toolbox) -> None:
    path = box.write("a.txt", "one\ntwo TODO\nthree\n")
    os.utime(path, (1, 1))
    await box.ok("Grep", pattern="TODO", path=path)
    assert "Must read lines 3-3" in await box.refused("EditTool", file_path=path, old_string="three", new_string="3")
    await box.ok("EditTool", file_path=path, old_string="TODO", new_string="DONE")
    assert Path(path).read_text() == "one\ntwo DONE\nthree\n"


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a\r\nb\r\nc\r\n", "a\nb", "a\nx\nb", b"a\r\nx\r\nb\r\nc\r\n"),
        (b"a\r\nb\r\n", "b", "x\ny", b"a\r\nx\r\ny\r\n"),
        (b"a\r\nb\r\n", "\nb", "\nx\ny", b"a\r\nx\r\ny\r\n"),
        (b"a\r\nb\r\n", "\nb", " b", b"a b\r\n"),
        (b"a\r\nb\r\n", "a\n", "", b"b\r\n"),
        (b"a\nb\n", "a\r\nb", "x\r\ny", b"x\ny\n"),
        (b"a\r\nb\r\nc\n", "a\nb\nc\n", "a\nX\nc\n", b"a\r\nX\r\nc\n"),
        (b"a\nb\r\nc\n", "a\nb\nc\n", "a\nX\nc\n", b"a\nX\nc\n"),
        (b"a\nb\r\n", "a\n", "a\nx\n", b"a\nx\nb\r\n"),
        (b"a\r\nb\r\n", "a\r\n", "a\n", b"a\nb\r\n"),
        (b"a\nb\n", "a\n", "a\r\n", b"a\r\nb\n"),
        (b"a\rb\rc", "a\nb", "x\ny", b"x\ry\rc"),
        (b"\xef\xbb\xbfa\r\nb", "a", "x", b"\xef\xbb\xbfx\r\nb"),
        (b"a\nb", "b\n", "c\n", b"a\nc"),
        (b"a\nb", "b", "c\n", b"a\nc\n"),
        (b"x = 1;\n// caf\xe9\n", "x = 1", "x = 2", b"x = 2;\n// caf\xe9\n"),
        (b"\xc4\xe3\xba\xc3 end\n", "end", "END", b"\xc4\xe3\xba\xc3 END\n"),
        ("\ufeffgrün\r\nend\r\n".encode("utf-16-le"), "end", "ö\nü", "\ufeffgrün\r\nö\r\nü\r\n".encode("utf-16-le")),
        ("\ufeffa\n".encode("utf-16-be"), "a", "b", "\ufeffb\n".encode("utf-16-be")),
        (b"tab\there  \n", "here  ", "there", b"tab\tthere\n"),
    ],
)
async def test_every_other_byte_is_kept(box: Toolbox, before: bytes, old: str, new: str, after: bytes) -> None:
    assert await edit(box, before, old, new) == after


async def test_only_ascii_goes_into_a_file_that_is_not_utf8(box: Toolbox) -> None:
    path = box.write("a.txt", b"caf\xe9 x\n")
    await box.ok("Read", file_path=path)
    assert "not UTF-8" in await box.refused("EditTool", file_path=path, old_string="x", new_string="é")
    assert "U+FFFD" in await box.refused("EditTool", file_path=path, old_string="caf\ufffd", new_string="tea")
    assert Path(path).read_bytes() == b"caf\xe9 x\n"


async def test_file_mode_and_symlink_are_kept(box: Toolbox) -> None:
    path = box.write("real.sh", "a\n")
    os.chmod(path, 0o755)
    os.symlink(path, box.folder / "link.sh")
    await box.ok("Read", file_path=str(box.folder / "link.sh"))
    output = await box.ok("EditTool", file_path=str(box.folder / "link.sh"), old_string="a", new_string="b")
    assert (box.folder / "link.sh").is_symlink()
    assert Path(path).read_text() == "b\n"
    assert os.stat(path).st_mode & 0o777 == 0o755
    assert output.files == (path,)


async def test_hard_links_stay_linked(box: Toolbox) -> None:
    path = box.write("a.txt", "longer text\n")
    os.link(path, box.folder / "twin.txt")
    await box.ok("Read", file_path=path)
    await box.ok("EditTool", file_path=path, old_string="longer text", new_string="x")
    assert (box.folder / "twin.txt").read_text() == "x\n"
    assert os.stat(path).st_nlink == 2
    assert sorted(os.listdir(box.folder)) == ["a.txt", "twin.txt"]


async def test_a_name_of_255_bytes_can_be_edited(box: Toolbox) -> None:
    path = box.write("n" * 255, "a\n")
    await box.ok("Read", file_path=path)
    await box.ok("EditTool", file_path=path, old_string="a", new_string="b")
    assert Path(path).read_text() == "b\n"


async def test_multi_edit_writes_all_edits_or_none(box: Toolbox) -> None:
    path = box.write("a.txt", "one two three\n")
    await box.ok("Read", file_path=path)
    edits = [
        {"old_string": "one", "new_string": "1"},
        {"old_string": "missing", "new_string": "2"},
        {"old_string": "three", "new_string": "3"},
    ]
    text = await box.refused("MultiEditTool", file_path=path, edits=edits)
    assert "Edit 2 of 3 failed, so nothing was written" in text
    assert Path(path).read_text() == "one two three\n"


async def test_each_edit_applies_to_the_result_of_the_previous_one(box: Toolbox) -> None:
    path = box.write("a.txt", "a\nb\n")
    await box.ok("Read", file_path=path)
    edits = [{"old_string": "a", "new_string": "b"}, {"old_string": "b", "new_string": "c", "replace_all": True}]
    output = await box.ok("MultiEditTool", file_path=path, edits=edits)
    assert Path(path).read_text() == "c\nc\n"
    assert "3 replacements" in output.text


async def test_edits_that_cancel_out_are_refused(box: Toolbox) -> None:
    path = box.write("a.txt", "a\n")
    await box.ok("Read", file_path=path)
    edits = [{"old_string": "a", "new_string": "b"}, {"old_string": "b", "new_string": "a"}]
    assert "cancel each other out" in await box.refused("MultiEditTool", file_path=path, edits=edits)


def test_unread_lines_move_with_the_text() -> None:
    draft = EditBuffer("a\nb\nc\nd\n", unseen=[(3, 3)])
    draft.apply(Edit("a", "a1\na2\na3"))
    with pytest.raises(Refusal, match="Must read lines 3-3 first"):
        draft.apply(Edit("c", "x"))
    draft.apply(Edit("d", "e"))
    assert draft.text == "a1\na2\na3\nb\nc\ne\n"


pieces = st.sampled_from(
    [b"a", b"b", b" ", b"\t", b"\n", b"\r\n", b"\r", b"\xe9", b"\xc3\xa9", b"\xf0\x9f\x98\x80", b"\xff", b"\x80"]
)
chunks = st.lists(pieces, max_size=30).map(b"".join)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=chunks, after=chunks, new=st.text(st.characters(codec="ascii", exclude_characters="\0\r\n"), max_size=8))
async def test_bytes_outside_the_replaced_text_are_identical(
    workspace: Path, before: bytes, after: bytes, new: str
) -> None:
    box = Toolbox(workspace)
    mark = "NEEDLE"
    path = box.write("p.bin", before + mark.encode() + after)
    await box.ok("Read", file_path=path)
    await box.ok("EditTool", file_path=path, old_string=mark, new_string=new)
    assert Path(path).read_bytes() == before + new.encode() + after


@settings(max_examples=60, deadline=None)
@given(
    lines=st.lists(st.tuples(st.text("ab ", max_size=4), st.sampled_from(["\n", "\r\n"])), min_size=1, max_size=8),
    data=st.data(),
)
def test_untouched_lines_keep_their_own_endings(lines: list[tuple[str, str]], data: st.DataObject) -> None:
    """Replace one line in the middle of a block given with LF."""
    lines = [(f"{number}{text}", end) for number, (text, end) in enumerate(lines)]
    at = data.draw(st.integers(0, len(lines) - 1))
    old = "".join(f"{text}\n" for text, _ in lines)
    new = "".join("NEW\n" if number == at else f"{text}\n" for number, (text, _) in enumerate(lines))
    draft = EditBuffer("".join(text + end for text, end in lines))
    draft.apply(Edit(old, new))
    result = draft.text.split("\n")
    for number, (text, end) in enumerate(lines):
        if number != at:
            assert result[number] == text + end[:-1]
    assert result[at].rstrip("\r") == "NEW"
