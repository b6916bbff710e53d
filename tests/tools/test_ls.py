"""LS: entries, marks for cached files, ignore globs, limits."""

import os

from tests.tools.toolbox import Toolbox


async def test_folders_are_listed_with_a_slash(box: Toolbox) -> None:
    box.write("b.txt", "")
    box.write("src/a.py", "")
    text = (await box.ok("LS", path=str(box.folder))).text
    assert text == f"{box.folder}/\n  b.txt\n  src/"


async def test_cached_and_modified_files_are_marked(box: Toolbox) -> None:
    path = box.write("a.txt", "x\n")
    box.write("b.txt", "x\n")
    await box.ok("Read", file_path=path)
    assert (await box.ok("LS", path=str(box.folder))).text.endswith("  a.txt [cached]\n  b.txt")
    await box.ok("EditTool", file_path=path, old_string="x", new_string="y")
    assert "  a.txt [cached, modified]\n" in (await box.ok("LS", path=str(box.folder))).text
    assert len(box.files.list_files()) == 1, "listing caches nothing"


async def test_ignore_globs_leave_out_entries(box: Toolbox) -> None:
    for name in ("a.py", "a.pyc", "b.log", "build/x"):
        box.write(name, "")
    assert (await box.ok("LS", path=str(box.folder), ignore=["*.{pyc,log}", "build"])).text.split() == [
        f"{box.folder}/",
        "a.py",
    ]


async def test_many_entries_are_truncated_with_a_note(box: Toolbox) -> None:
    for number in range(205):
        box.write(f"f{number:03}", "")
    text = (await box.ok("LS", path=str(box.folder))).text
    assert "(showing the first 200 of 205 entries" in text
    assert "f199" in text
    assert "f200" not in text


async def test_an_empty_folder_is_reported_and_missing_folders_and_files_are_refused(box: Toolbox) -> None:
    assert "(empty directory)" in (await box.ok("LS", path=str(box.folder))).text
    assert "does not exist" in await box.refused("LS", path=str(box.folder / "no"))
    assert "is a file" in await box.refused("LS", path=box.write("a", ""))


async def test_symlinks_and_names_that_are_not_utf8_are_shown(box: Toolbox) -> None:
    os.symlink("nowhere", box.folder / "link")
    os.close(os.open(os.fsencode(box.folder) + b"/caf\xe9", os.O_CREAT))
    text = (await box.ok("LS", path=str(box.folder))).text
    assert "  link -> nowhere" in text
    assert "caf\ufffd" in text
