import os
from pathlib import Path

import pytest

from odin.context.instructions import MAX_BYTES, Instructions, load_instructions


def test_no_file_means_no_instructions_and_no_warning(workspace: Path):
    assert load_instructions(str(workspace)) == Instructions()


def test_the_text_of_odin_md_is_the_instructions(workspace: Path):
    (workspace / "ODIN.md").write_text("\n# Rules\n\nUse tabs. Grüße.\n\n", encoding="utf-8")
    found = load_instructions(str(workspace))
    assert found.text == "# Rules\n\nUse tabs. Grüße."
    assert found.path == str(workspace / "ODIN.md")
    assert found.warning == ""


def test_other_instruction_files_are_not_read(workspace: Path):
    for name in ("AGENTS.md", "odin.txt", "README.md"):
        (workspace / name).write_text("something else")
    assert load_instructions(str(workspace)).text == ""


def test_exactly_the_limit_is_used_whole(workspace: Path):
    (workspace / "ODIN.md").write_text("x" * MAX_BYTES)
    found = load_instructions(str(workspace))
    assert found.text == "x" * MAX_BYTES
    assert found.warning == ""


def test_a_long_file_is_cut_and_both_reader_and_model_are_told(workspace: Path):
    (workspace / "ODIN.md").write_text("ä" * MAX_BYTES, encoding="utf-8")
    found = load_instructions(str(workspace))
    kept, _, note = found.text.partition("\n\n")
    assert kept == "ä" * (MAX_BYTES // 2)
    assert "first 32 KiB" in note
    assert "65,536 bytes" in found.warning
    assert str(workspace / "ODIN.md") in found.warning


def test_a_character_cut_in_half_leaves_no_trace(workspace: Path):
    (workspace / "ODIN.md").write_text("x" + "ä" * MAX_BYTES, encoding="utf-8")
    assert "\ufffd" not in load_instructions(str(workspace)).text


def test_bytes_that_are_no_text_do_not_stop_the_session(workspace: Path):
    (workspace / "ODIN.md").write_bytes(b"\xef\xbb\xbfgood \xff text")
    assert load_instructions(str(workspace)).text == "good \ufffd text"


def test_a_folder_or_pipe_of_that_name_is_no_file(workspace: Path):
    (workspace / "ODIN.md").mkdir()
    assert load_instructions(str(workspace)) == Instructions()
    (workspace / "ODIN.md").rmdir()
    os.mkfifo(workspace / "ODIN.md")
    assert load_instructions(str(workspace)) == Instructions()


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_is_a_warning(workspace: Path):
    (workspace / "ODIN.md").write_text("secret")
    (workspace / "ODIN.md").chmod(0)
    assert "cannot be read" in load_instructions(str(workspace)).warning
