"""Delete: files, symlinks, blocked paths, and files that changed since they were read."""

import os
from pathlib import Path

import pytest

from tests.tools.toolbox import Toolbox

WHY = "no longer needed"


async def test_files_are_deleted_and_absent_ones_are_no_error(box: Toolbox):
    one, two = box.write("a.txt", "a"), box.write("sub/b c.txt", "b")
    output = await box.ok("Delete", paths=[one, f"{box.folder}/gone.txt", two], reason=WHY)
    assert output.text == f"Deleted:\n  {one}\n  {two}\nAlready absent:\n  {box.folder}/gone.txt"
    assert output.files == (one, two)
    assert not Path(one).exists()
    assert not Path(two).exists()
    assert Path(two).parent.is_dir()


async def test_only_absent_files_are_no_error(box: Toolbox):
    output = await box.ok("Delete", paths=[f"{box.folder}/gone.txt", f"{box.folder}/no/such.txt"], reason=WHY)
    assert output.text.startswith("Already absent:")


async def test_deleting_a_symlink_keeps_its_target_and_its_cache_entry(box: Toolbox):
    target = box.write("real.txt", "one\n")
    await box.ok("Read", file_path=target)
    links = [box.folder / name for name in ("to-file", "to-folder", "to-nothing")]
    for link, end in zip(links, ("real.txt", "..", "nowhere"), strict=True):
        link.symlink_to(end)
    await box.ok("Delete", paths=[str(link) for link in links], reason=WHY)
    assert not any(os.path.lexists(link) for link in links)
    assert Path(target).read_text() == "one\n"
    await box.ok("EditTool", file_path=target, old_string="one", new_string="two")


async def test_directories_and_wildcards_are_blocked(box: Toolbox):
    kept = box.write("sub/a.txt", "a")
    text = await box.refused("Delete", paths=[f"{box.folder}/sub", f"{box.folder}/sub/*.txt"], reason=WHY)
    assert text.startswith("Blocked:\n")
    assert "sub is a directory" in text
    assert "wildcards are not expanded" in text
    assert Path(kept).exists()


async def test_a_relative_path_starts_at_the_working_directory(box: Toolbox):
    gone = box.write("sub/a.txt", "a")
    output = await box.ok("Delete", paths=["sub/a.txt"], reason=WHY)
    assert output.text == f"Deleted:\n  {gone}"
    assert not Path(gone).exists()


async def test_a_file_name_with_a_star_is_not_a_wildcard(box: Toolbox):
    star, other = box.write("a*.txt", ""), box.write("ab.txt", "")
    await box.ok("Delete", paths=[star], reason=WHY)
    assert Path(other).exists()
    assert not Path(star).exists()


@pytest.mark.parametrize("name", [".git/config", ".GIT/hooks/pre-commit", "sub/.git", "link/config"])
async def test_files_of_git_are_blocked(name: str, box: Toolbox):
    box.write(".git/config", "[core]\n")
    (box.folder / "link").symlink_to(".git")
    path = f"{box.folder}/{name}"
    if not Path(path).exists():
        box.write(name, "x")
    assert "belongs to git" in await box.refused("Delete", paths=[path], reason=WHY)
    assert Path(path).exists()


async def test_a_file_that_changed_since_it_was_read_is_blocked_until_it_is_read_again(box: Toolbox):
    path, other = box.write("a.txt", "mine\n"), box.write("b.txt", "b")
    await box.ok("Read", file_path=path)
    box.write("a.txt", "somebody else's work\n")
    output = await box.ok("Delete", paths=[path, other], reason=WHY)
    assert output.text == f"Deleted:\n  {other}\nBlocked:\n  {path} changed on disk since you read it. " + (
        "Read it again, then decide."
    )
    await box.ok("Read", file_path=path)
    await box.ok("Delete", paths=[path], reason=WHY)
    assert not Path(path).exists()


async def test_a_deleted_file_is_removed_from_the_cache(box: Toolbox):
    path = box.write("a.txt", "one\n")
    await box.ok("Read", file_path=path)
    await box.ok("Delete", paths=[path], reason=WHY)
    assert box.files.get_cached_file(path) is None
    await box.ok("WriteFile", file_path=path, content="new\n")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may delete anything")
async def test_after_a_system_error_the_remaining_files_are_not_attempted(box: Toolbox):
    locked, rest = box.write("locked/a.txt", "a"), box.write("b.txt", "b")
    (box.folder / "locked").chmod(0o500)
    try:
        text = await box.refused("Delete", paths=[locked, rest], reason=WHY)
    finally:
        (box.folder / "locked").chmod(0o700)
    assert text == f"Failed:\n  {locked}: Permission denied\nNot attempted:\n  {rest}"
    assert Path(rest).exists()


async def test_a_name_that_is_too_long_fails_and_the_rest_is_not_attempted(box: Toolbox):
    rest, long = box.write("b.txt", "b"), f"{box.folder}/{'x' * 300}"
    text = await box.refused("Delete", paths=[long, rest], reason=WHY)
    assert text == f"Failed:\n  {long}: File name too long\nNot attempted:\n  {rest}"


async def test_a_path_given_twice_is_deleted_once(box: Toolbox):
    path = box.write("a.txt", "")
    assert (await box.ok("Delete", paths=[path, path], reason=WHY)).text == f"Deleted:\n  {path}"


async def test_a_pipe_is_refused(box: Toolbox):
    os.mkfifo(box.folder / "pipe")
    assert "pipe or socket" in await box.refused("Delete", paths=[f"{box.folder}/pipe"], reason=WHY)


def test_permission_rules_see_every_path(box: Toolbox):
    tool = box.tools["Delete"]
    assert tool.get_target(tool.parse({"paths": ["/a", "/b"], "reason": WHY})).paths == ("/a", "/b")
