"""SaveArtifact and ReadArtifact: saving, listing, partial reads, and names that leave the folder."""

from pathlib import Path

import pytest

from odin.context.file_cache import FileCache
from odin.tools import ToolDeps, build_standard_tools
from odin.tools.artifacts import MAX_BYTES
from tests.tools.toolbox import Toolbox


@pytest.fixture
def session_box(box: Toolbox, tmp_path: Path) -> Toolbox:
    """The standard tools of a session that has a folder for artifacts."""
    box.tools = {
        tool.name: tool
        for tool in build_standard_tools(ToolDeps(FileCache(), box.runner, session_folder=tmp_path / "session"))
    }
    return box


async def test_an_artifact_is_saved_read_listed_and_replaced(session_box: Toolbox, tmp_path: Path):
    saved = await session_box.ok("SaveArtifact", name="plan/first step.md", content="one\ntwo\n")
    assert saved.text.startswith("Saved the artifact plan/first step.md (2 lines).")
    assert (tmp_path / "session/artifacts/plan/first step.md").read_text() == "one\ntwo\n"
    assert (await session_box.ok("ReadArtifact", name="plan/first step.md")).text == "     1\tone\n     2\ttwo"
    again = await session_box.ok("SaveArtifact", name="plan/first step.md", content="tre")
    assert again.text.startswith("Replaced")
    await session_box.ok("SaveArtifact", name="a.md", content="")
    assert (await session_box.ok("ReadArtifact")).text == (
        "The artifacts of this session:\n  a.md (0 bytes)\n  plan/first step.md (3 bytes)"
    )
    assert (await session_box.ok("ReadArtifact", name="a.md")).text == "(empty)"
    assert list(session_box.folder.iterdir()) == []


async def test_a_partial_read_names_its_lines_and_the_total(session_box: Toolbox):
    await session_box.ok("SaveArtifact", name="long", content="\n".join(map(str, range(1, 11))))
    text = (await session_box.ok("ReadArtifact", name="long", offset=3, limit=2)).text
    assert text == "     3\t3\n     4\t4\n(showing lines 3-4 of 10 total; go on with offset=5)"
    assert "has only 10 lines" in await session_box.refused("ReadArtifact", name="long", offset=11)
    await session_box.ok("SaveArtifact", name="huge", content="x" * 60 + "\n" * 5000)
    assert "go on with offset=2001)" in (await session_box.ok("ReadArtifact", name="huge")).text


@pytest.mark.parametrize(
    "name",
    ["../out.md", "/etc/passwd", "a/../../b", "a//b", "a/", "./a", ".", "..", "a\0b", "x" * 201, "a/" * 600 + "b"],
)
async def test_invalid_names_and_names_that_leave_the_folder_are_refused(
    name: str, session_box: Toolbox, tmp_path: Path
):
    await session_box.refused("SaveArtifact", name=name, content="x")
    await session_box.refused("ReadArtifact", name=name)
    assert not (tmp_path / "out.md").exists()
    assert not (tmp_path / "session").exists()


async def test_a_symlink_out_of_the_folder_is_refused(session_box: Toolbox, tmp_path: Path):
    (tmp_path / "secret").write_text("secret")
    folder = tmp_path / "session/artifacts"
    folder.mkdir(parents=True)
    (folder / "link").symlink_to(tmp_path)
    (folder / "file").symlink_to(tmp_path / "secret")
    for name in ("link/secret", "file"):
        assert "points outside" in await session_box.refused("ReadArtifact", name=name)
        assert "points outside" in await session_box.refused("SaveArtifact", name=name, content="x")
    assert (tmp_path / "secret").read_text() == "secret"
    assert (await session_box.ok("ReadArtifact")).text == "This session has no artifacts."


async def test_folders_and_missing_artifacts_are_told_apart(session_box: Toolbox):
    await session_box.ok("SaveArtifact", name="a/b", content="x")
    assert "is a folder" in await session_box.refused("SaveArtifact", name="a", content="x")
    assert "a/b (1 bytes)" in await session_box.refused("ReadArtifact", name="c")
    await session_box.refused("SaveArtifact", name="a/b/c", content="x")


async def test_an_artifact_that_is_too_large_is_refused(session_box: Toolbox):
    assert f"at most {MAX_BYTES}" in await session_box.refused("SaveArtifact", name="a", content="x" * (MAX_BYTES + 1))
    assert (await session_box.ok("ReadArtifact")).text == "This session has no artifacts."


def test_artifact_tools_need_a_session_folder(box: Toolbox):
    names = {tool.name for tool in build_standard_tools(ToolDeps(FileCache(), box.runner))}
    assert not {"SaveArtifact", "ReadArtifact"} & names
