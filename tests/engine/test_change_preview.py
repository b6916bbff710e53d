"""The preview of an edit in a permission request."""

from pathlib import Path
from typing import Any

import pytest

from odin.context.file_cache import FileCache
from odin.core.tool import Tool
from odin.policy.paths import resolve_target
from odin.tools.change_preview import MAX_BYTES, MAX_CHARS, MAX_LINES, preview_change
from odin.tools.edit import EditTool, MultiEditTool
from odin.tools.search_tools import LSTool
from odin.tools.whole_file import AppendFileTool, DeleteTool, WriteFileTool


async def get_preview(tool: Tool[Any], **args: Any) -> str:
    parsed = tool.parse(args)
    return await preview_change(parsed, resolve_target(tool.get_target(parsed), "/", "/").resolved)


async def test_every_editing_tool_has_a_diff_preview(workspace: Path) -> None:
    file, files = workspace / "a", FileCache()
    file.write_text("one\ntwo\n")
    path = str(file)
    edits = [{"old_string": "one", "new_string": "1"}, {"old_string": "two", "new_string": "2"}]
    assert "-two\n+three" in await get_preview(WriteFileTool(files), file_path=path, content="one\nthree\n")
    assert "+three" in await get_preview(AppendFileTool(files), file_path=path, content="three\n")
    assert "-two\n+2" in await get_preview(EditTool(files), file_path=path, old_string="two", new_string="2")
    assert "-one\n-two\n+1\n+2" in await get_preview(MultiEditTool(files), file_path=path, edits=edits)
    assert "-one\n-two" in await get_preview(DeleteTool(files), paths=[path], reason="old")
    assert "+new" in await get_preview(WriteFileTool(files), file_path=str(workspace / "b"), content="new\n")
    assert file.read_text() == "one\ntwo\n"
    assert [item.name for item in workspace.iterdir()] == ["a"]


async def test_files_that_cannot_be_compared_are_described(workspace: Path) -> None:
    files = FileCache()
    (workspace / "binary").write_bytes(b"\0\1\2")
    (workspace / "large").write_bytes(b"x" * (MAX_BYTES + 1))
    (workspace / "link").symlink_to("binary")
    (workspace / "folder").mkdir()
    write = WriteFileTool(files)
    assert "is binary: 3 bytes" in await get_preview(write, file_path=str(workspace / "binary"), content="x")
    assert "too large to compare" in await get_preview(write, file_path=str(workspace / "large"), content="x")
    assert "is a directory" in await get_preview(write, file_path=str(workspace / "folder"), content="x")
    gone = [str(workspace / name) for name in ("binary", "large", "link", "folder", "absent")]
    text = await get_preview(DeleteTool(files), paths=gone, reason="old")
    for part in ("3 bytes", f"{MAX_BYTES + 1} bytes", "a symbolic link to binary", "not a file", "does not exist"):
        assert part in text


async def test_preview_of_a_failing_edit_gives_the_reason(workspace: Path) -> None:
    (workspace / "a").write_text("one\n")
    text = await get_preview(EditTool(FileCache()), file_path=str(workspace / "a"), old_string="two", new_string="2")
    assert text.startswith("(This would currently fail: old_string was not found")


@pytest.mark.parametrize("content", ["line\n" * 5_000, "x" * 500_000])
async def test_long_preview_is_cut_with_a_note(workspace: Path, content: str) -> None:
    text = await get_preview(WriteFileTool(FileCache()), file_path=str(workspace / "a"), content=content)
    assert len(text) <= MAX_CHARS + 100
    assert text.count("\n") <= MAX_LINES + 1
    assert "... cut:" in text.splitlines()[-1]


async def test_preview_ignores_line_endings(workspace: Path) -> None:
    (workspace / "a").write_bytes(b"one\r\ntwo\r\n")
    text = await get_preview(WriteFileTool(FileCache()), file_path=str(workspace / "a"), content="one\nthree\n")
    assert "-one" not in text
    assert "-two\n+three" in text
    text = await get_preview(AppendFileTool(FileCache()), file_path=str(workspace / "a"), content="three\n")
    assert text.splitlines()[3:] == [" one", " two", "+three"]


async def test_other_tools_have_no_preview(workspace: Path) -> None:
    assert await get_preview(LSTool(FileCache()), path=str(workspace)) == ""


async def test_a_special_file_is_not_opened(workspace: Path) -> None:
    import os

    os.mkfifo(workspace / "pipe")
    assert "not a regular file" in await get_preview(
        WriteFileTool(FileCache()), file_path=str(workspace / "pipe"), content="x"
    )
