"""AppendFile: new files, encodings and line endings, changed files, symlinks, and argument names."""

from pathlib import Path

import msgspec
import pytest

from tests.tools.toolbox import Toolbox


async def test_a_missing_file_is_created_with_its_folders(box: Toolbox):
    path = f"{box.folder}/new/deep/log.txt"
    output = await box.ok("AppendFile", file_path=path, content="one\n")
    assert output.text == f"Created {path} (1 line now)."
    assert Path(path).read_text() == "one\n"
    await box.ok("EditTool", file_path=path, old_string="one", new_string="two")


async def test_content_is_appended_unchanged_and_missing_newlines_are_reported(box: Toolbox):
    path = box.write("a.txt", "one\ntwo")
    output = await box.ok("AppendFile", file_path=path, content=" and a half\nthree")
    assert Path(path).read_text() == "one\ntwo and a half\nthree"
    assert "continues its last line" in output.text
    assert "ends without a newline" in output.text
    assert "+two and a half" in output.view


@pytest.mark.parametrize(
    ("before", "content", "after"),
    [
        (b"a\r\nb\r\n", "c\nd\n", b"a\r\nb\r\nc\r\nd\r\n"),
        (b"a\r\nb\n", "c\n", b"a\r\nb\nc\n"),
        (b"\xef\xbb\xbfa\n", "b\n", b"\xef\xbb\xbfa\nb\n"),
        ("a\n".encode("utf-16"), "é\n", "a\né\n".encode("utf-16")),
        (b"caf\xe9\n", "more\n", b"caf\xe9\nmore\n"),
        (b"\xef\xbb\xbfcaf\xe9\r\n", "x\n", b"\xef\xbb\xbfcaf\xe9\r\nx\r\n"),
        (b"", "x", b"x"),
    ],
)
async def test_encoding_byte_order_mark_and_line_endings_are_kept(
    before: bytes, content: str, after: bytes, box: Toolbox
):
    path = box.write("a.txt", before)
    await box.ok("AppendFile", file_path=path, content=content)
    assert Path(path).read_bytes() == after


async def test_unencodable_text_binary_files_and_folders_are_refused(box: Toolbox):
    latin, binary = box.write("l.txt", b"caf\xe9\n"), box.write("b.bin", b"a\0b")
    assert "not UTF-8" in await box.refused("AppendFile", file_path=latin, content="é")
    assert "binary" in await box.refused("AppendFile", file_path=binary, content="x")
    assert "is a directory" in await box.refused("AppendFile", file_path=str(box.folder), content="x")
    assert Path(latin).read_bytes() == b"caf\xe9\n"
    assert Path(binary).read_bytes() == b"a\0b"


async def test_a_file_that_changed_since_it_was_read_is_left_alone(box: Toolbox):
    path = box.write("a.txt", "one\n")
    await box.ok("Read", file_path=path)
    box.write("a.txt", "other\n")
    assert "Read it again" in await box.refused("AppendFile", file_path=path, content="two\n")
    assert Path(path).read_text() == "other\n"


async def test_appending_does_not_count_as_reading_the_file(box: Toolbox):
    known, unknown = box.write("a.txt", "one\n"), box.write("b.txt", "one\n")
    await box.ok("Read", file_path=known)
    for path in (known, unknown):
        await box.ok("AppendFile", file_path=path, content="two\n")
        await box.ok("AppendFile", file_path=path, content="three\n")
    await box.ok("EditTool", file_path=known, old_string="one", new_string="1")
    assert "Must read" in await box.refused("EditTool", file_path=unknown, old_string="one", new_string="1")
    assert Path(unknown).read_text() == "one\ntwo\nthree\n"


async def test_symlinks_and_file_modes_are_kept(box: Toolbox):
    path = Path(box.write("run.sh", "#!/bin/sh\n"))
    path.chmod(0o755)
    link = box.folder / "link.sh"
    link.symlink_to("run.sh")
    await box.ok("AppendFile", file_path=str(link), content="true\n")
    assert link.is_symlink()
    assert path.read_text() == "#!/bin/sh\ntrue\n"
    assert path.stat().st_mode & 0o777 == 0o755


async def test_argument_names_of_other_agents_are_accepted(box: Toolbox):
    path = f"{box.folder}/pico.txt"
    await box.ok("WriteFile", path=path, content="a\n")
    await box.ok("AppendFile", path=path, content="b\n")
    assert "b" in (await box.ok("Read", path=path)).text
    await box.ok("EditTool", path=path, old_text="b", new_text="c")
    assert Path(path).read_text() == "a\nc\n"


@pytest.mark.parametrize(
    "args",
    [{"path": "/a", "file_path": "/b", "content": "x"}, {"paths": "/a", "content": "x"}, {"path": 3, "content": "x"}],
)
def test_ambiguous_unknown_and_mistyped_arguments_are_rejected(args: dict[str, object], box: Toolbox):
    with pytest.raises(msgspec.ValidationError, match="path"):
        box.tools["WriteFile"].parse(args)
