"""Instruction files (ODIN.md, AGENTS.md, CLAUDE.md) and personal files."""

import os
from pathlib import Path

import pytest

from odin.context.system_prompt import (
    MAX_BYTES,
    InstructionFile,
    Instructions,
    load_instructions,
    load_personal_files,
    reload_odin_md,
)


def test_no_file_means_no_instructions_and_no_warning(workspace: Path):
    assert load_instructions(str(workspace)) == Instructions()


def test_the_text_of_odin_md_is_the_instructions(workspace: Path):
    (workspace / "ODIN.md").write_text("\n# Rules\n\nUse tabs. Grüße.\n\n", encoding="utf-8")
    found = load_instructions(str(workspace))
    assert found.text == "# Rules\n\nUse tabs. Grüße."
    assert found.path == str(workspace / "ODIN.md")
    assert found.warning == ""


def test_other_instruction_files_are_not_read(workspace: Path):
    for name in ("GEMINI.md", "odin.txt", "README.md"):
        (workspace / name).write_text("something else")
    assert load_instructions(str(workspace)).text == ""


def test_file_of_exactly_the_limit_is_used_whole(workspace: Path):
    (workspace / "ODIN.md").write_text("x" * MAX_BYTES)
    found = load_instructions(str(workspace))
    assert found.text == "x" * MAX_BYTES
    assert found.warning == ""


def test_long_file_is_cut_with_a_note_for_the_model_and_a_warning_for_the_user(workspace: Path):
    (workspace / "ODIN.md").write_text("ä" * MAX_BYTES, encoding="utf-8")
    found = load_instructions(str(workspace))
    kept, _, note = found.text.partition("\n\n")
    assert kept == "ä" * (MAX_BYTES // 2)
    assert "first 32 KiB" in note
    assert "65,536 bytes" in found.warning
    assert str(workspace / "ODIN.md") in found.warning


def test_cut_does_not_split_a_character(workspace: Path):
    (workspace / "ODIN.md").write_text("x" + "ä" * MAX_BYTES, encoding="utf-8")
    assert "\ufffd" not in load_instructions(str(workspace)).text


def test_invalid_bytes_are_replaced(workspace: Path):
    (workspace / "ODIN.md").write_bytes(b"\xef\xbb\xbfgood \xff text")
    assert load_instructions(str(workspace)).text == "good \ufffd text"


def test_folder_or_pipe_named_odin_md_is_ignored(workspace: Path):
    (workspace / "ODIN.md").mkdir()
    assert load_instructions(str(workspace)) == Instructions()
    (workspace / "ODIN.md").rmdir()
    os.mkfifo(workspace / "ODIN.md")
    assert load_instructions(str(workspace)) == Instructions()


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_file_gives_a_warning(workspace: Path):
    (workspace / "ODIN.md").write_text("secret")
    (workspace / "ODIN.md").chmod(0)
    assert "cannot be read" in load_instructions(str(workspace)).warning


def test_agents_md_files_are_read_from_the_root_to_the_working_directory(workspace: Path):
    deep = workspace / "shop" / "cart"
    deep.mkdir(parents=True)
    (workspace / "ODIN.md").write_text("own")
    for folder, text in ((workspace, "top"), (deep, "deep"), (workspace / "shop", "shop")):
        (folder / "AGENTS.md").write_text(text)
    (workspace / "other").mkdir()
    (workspace / "other" / "AGENTS.md").write_text("not on the way")
    found = load_instructions(str(workspace), str(deep))
    assert found.files == (
        InstructionFile("AGENTS.md", "top"),
        InstructionFile("shop/AGENTS.md", "shop"),
        InstructionFile("shop/cart/AGENTS.md", "deep"),
    )
    assert found.odin_md == "own"
    assert found.text == (
        "own\n\n# Instructions of this project (AGENTS.md)\ntop\n\n# Instructions of this project (shop/AGENTS.md)\n"
        "shop\n\n# Instructions of this project (shop/cart/AGENTS.md)\ndeep"
    )


def test_claude_md_is_read_in_folders_without_agents_md(workspace: Path):
    below = workspace / "below"
    below.mkdir()
    (workspace / "AGENTS.md").write_text("agents")
    (workspace / "CLAUDE.md").write_text("not this one")
    (below / "CLAUDE.md").write_text("claude")
    (below / "CLAUDE.local.md").write_text("mine alone")
    found = load_instructions(str(workspace), str(below))
    assert [guide.label for guide in found.files] == ["AGENTS.md", "below/CLAUDE.md", "below/CLAUDE.local.md"]


def test_one_file_under_several_names_is_read_once(workspace: Path):
    (workspace / "AGENTS.md").write_text("once")
    (workspace / "ODIN.md").symlink_to("AGENTS.md")
    (workspace / "CLAUDE.local.md").symlink_to("AGENTS.md")
    found = load_instructions(str(workspace))
    assert (found.odin_md, found.files, found.warning) == ("once", (), "")


def test_instruction_file_that_links_outside_the_project_is_refused(workspace: Path, tmp_path: Path):
    (tmp_path / "secret").write_text("secret")
    (workspace / "AGENTS.md").symlink_to(tmp_path / "secret")
    found = load_instructions(str(workspace))
    assert found.files == ()
    assert "points outside the project" in found.warning


def test_limit_applies_to_all_files_together_with_a_warning(workspace: Path):
    below = workspace / "below"
    below.mkdir()
    (workspace / "ODIN.md").write_text("o" * (MAX_BYTES - 100))
    (workspace / "AGENTS.md").write_text("a" * 300)
    (below / "AGENTS.md").write_text("b" * 10)
    found = load_instructions(str(workspace), str(below))
    (guide,) = found.files
    assert guide.text.startswith("a" * 100 + "\n\n[AGENTS.md was cut here")
    assert f"{workspace / 'AGENTS.md'} is 300 bytes long; of all instructions only the first 32 KiB" in found.warning
    assert f"{below / 'AGENTS.md'} is ignored" in found.warning


def test_reload_reads_only_odin_md_again(workspace: Path):
    (workspace / "AGENTS.md").write_text("as it was")
    known = load_instructions(str(workspace))
    (workspace / "AGENTS.md").write_text("changed")
    (workspace / "ODIN.md").write_text("new")
    assert reload_odin_md(known, str(workspace)).text == (
        "new\n\n# Instructions of this project (AGENTS.md)\nas it was"
    )


def test_personal_files_are_part_of_the_prompt_if_they_exist(tmp_path: Path) -> None:
    user, root = tmp_path / "user", tmp_path / "project"
    (root / ".odin").mkdir(parents=True)
    user.mkdir()
    assert load_personal_files(str(user), str(root)).personal_text == ""
    (user / "USER.md").write_text("Name: Ada\n")
    (user / "SOUL.md").symlink_to(tmp_path / "dotfiles-soul.md")
    (tmp_path / "dotfiles-soul.md").write_text("Be kind.")
    (root / ".odin/IDENTITY.md").write_text("You are Muninn.")
    (root / "USER.md").write_text("an ordinary file of the project")
    (root / ".odin/SOUL.md").symlink_to(tmp_path / "dotfiles-soul.md")
    found = load_personal_files(str(user), str(root))
    parts = ["# Instructions of the user", "## SOUL.md\nBe kind.", "## USER.md\nName: Ada"]
    assert found.personal_text == "\n\n".join([*parts, "## .odin/IDENTITY.md\nYou are Muninn."])
    assert load_personal_files(str(user), "").personal_text == "\n\n".join(parts)
    (user / "USER.md").write_text("x" * 40_000)
    assert "only the first 32 KiB" in load_personal_files(str(user), "").warning
