"""WriteFile: new and overwritten files, encodings and line endings, refused targets."""

import os
from pathlib import Path

import pytest

from tests.tools.toolbox import Toolbox


async def test_a_new_file_is_created_with_its_folders(box: Toolbox) -> None:
    path = str(box.folder / "new/deep/a.txt")
    output = await box.ok("WriteFile", file_path=path, content="one\ntwo\n")
    assert output.text == f"Created {path} (2 lines)."
    assert output.view.endswith("@@ -0,0 +1,2 @@\n+one\n+two\n")
    assert Path(path).read_text() == "one\ntwo\n"
    await box.ok("EditTool", file_path=path, old_string="two", new_string="three")


async def test_an_existing_file_is_overwritten_and_changed_lines_are_counted(box: Toolbox) -> None:
    path = box.write("a.txt", "one\ntwo\n")
    output = await box.ok("WriteFile", file_path=path, content="one\nthree\nfour\n")
    assert output.text == f"Overwrote {path} (3 lines, +2 -1)."
    assert os.listdir(box.folder) == ["a.txt"]


async def test_empty_content_is_allowed(box: Toolbox) -> None:
    path = box.write("a.txt", "x")
    await box.ok("WriteFile", file_path=path, content="")
    assert Path(path).read_bytes() == b""


async def test_the_same_content_is_refused(box: Toolbox) -> None:
    assert "already has exactly this" in await box.refused(
        "WriteFile", file_path=box.write("a.txt", "x\n"), content="x\n"
    )


async def test_a_file_that_changed_since_it_was_read_is_not_overwritten(box: Toolbox) -> None:
    path = box.write("a.txt", "x\n")
    await box.ok("Read", file_path=path)
    Path(path).write_text("theirs\n")
    assert "changed on disk" in await box.refused("WriteFile", file_path=path, content="mine\n")
    assert Path(path).read_text() == "theirs\n"


@pytest.mark.parametrize(
    ("before", "content", "after"),
    [
        (b"a\r\nb\r\n", "x\ny\n", b"x\r\ny\r\n"),
        (b"a\r\nb\n", "x\ny\n", b"x\ny\n"),
        (b"\xef\xbb\xbfa\n", "x\n", b"\xef\xbb\xbfx\n"),
        (b"\xef\xbb\xbfa\n", "\ufeffx\n", b"\xef\xbb\xbfx\n"),
        ("\ufeffa\n".encode("utf-16-le"), "ü\n", "\ufeffü\n".encode("utf-16-le")),
        (b"caf\xe9\n", "tea\n", b"tea\n"),
        (b"a\nb\n", "x\r\ny\r\n", b"x\r\ny\r\n"),
        (b"a\r\nb\r\n", "x\r\ny\n", b"x\r\ny\n"),
        (b"a\r\nb", "x\ny", b"x\r\ny"),
        (b"a\rb\r", "x\ny\n", b"x\ny\n"),
        (b"", "x\n", b"x\n"),
        (b"a\n", "\ufeffx\n", b"\xef\xbb\xbfx\n"),
        (b"\0binary", "text\n", b"text\n"),
    ],
)
async def test_encoding_and_line_endings_of_the_old_file_are_kept(
    box: Toolbox, before: bytes, content: str, after: bytes
) -> None:
    path = box.write("a.txt", before)
    await box.ok("WriteFile", file_path=path, content=content)
    assert Path(path).read_bytes() == after


async def test_an_unknown_encoding_is_not_mixed_with_utf8(box: Toolbox) -> None:
    path = box.write("a.txt", b"caf\xe9\n")
    assert "not UTF-8" in await box.refused("WriteFile", file_path=path, content="café\n")
    assert Path(path).read_bytes() == b"caf\xe9\n"


async def test_a_folder_a_pipe_and_a_file_in_the_way_are_refused(box: Toolbox) -> None:
    assert "is a directory" in await box.refused("WriteFile", file_path=str(box.folder), content="x")
    os.mkfifo(box.folder / "pipe")
    assert "not a regular file" in await box.refused("WriteFile", file_path=str(box.folder / "pipe"), content="x")
    path = box.write("a", "")
    assert await box.refused("WriteFile", file_path=f"{path}/b", content="x")


async def test_a_dangling_symlink_is_written_through(box: Toolbox) -> None:
    os.symlink(box.folder / "target.txt", box.folder / "link.txt")
    await box.ok("WriteFile", file_path=str(box.folder / "link.txt"), content="x\n")
    assert (box.folder / "link.txt").is_symlink()
    assert (box.folder / "target.txt").read_text() == "x\n"


async def test_a_huge_change_has_a_truncated_diff_and_true_counts(box: Toolbox) -> None:
    path = box.write("a.txt", "same\n" + "".join(f"old {n}\n" for n in range(15_000)) + "same\nsame\n")
    content = "same\n" + "".join(f"new {n}\n" for n in range(15_000)) + "same\nsame\n"
    output = await box.ok("WriteFile", file_path=path, content=content)
    assert "+15000 -15000" in output.text
    assert len(output.view) < 61_000
    assert "diff cut" in output.view
