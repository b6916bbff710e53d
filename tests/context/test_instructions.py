"""Instruction files (ODIN.md, AGENTS.md, CLAUDE.md) and personal files."""

import os
from pathlib import Path

import pytest

from odin.context.instructions import (
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


def test_claude_md_is_read_in_addition_to_agents_md_unless_it_is_a_copy(workspace: Path):
    below = workspace / "below"
    below.mkdir()
    (workspace / "AGENTS.md").write_text("agents")
    (workspace / "CLAUDE.md").write_text("claude at the root")
    (below / "AGENTS.md").write_text("copied")
    (below / "CLAUDE.md").write_text("copied\n")
    (below / "CLAUDE.local.md").write_text("mine alone")
    found = load_instructions(str(workspace), str(below))
    labels = [guide.label for guide in found.files]
    assert labels == ["AGENTS.md", "CLAUDE.md", "below/AGENTS.md", "below/CLAUDE.local.md"]


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


def write_files(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_imports_follow_the_file_that_names_them_once_each(workspace: Path, home: Path) -> None:
    files = {
        "ODIN.md": "See @docs/a.md.",
        "CLAUDE.md": "Read @docs/style.md, (not mail@docs/no.md) and @docs/my\\ notes.md, @nobody @docs/missing.md",
        "docs/a.md": "A",
        "docs/style.md": "Style, see @sub/deep.md @../CLAUDE.md @style.md @~/mine.md",
        "docs/sub/deep.md": "Deep\n@" + str(workspace / "docs/a.md"),
        "docs/my notes.md": "Notes",
        "docs/no.md": "not imported",
    }
    write_files(workspace, **files)
    write_files(home, **{"mine.md": "private"})
    found = load_instructions(str(workspace), home=str(home))
    assert [(guide.label, guide.why) for guide in found.files] == [
        ("docs/a.md", "imported by ODIN.md"),
        ("CLAUDE.md", ""),
        ("docs/style.md", "imported by CLAUDE.md"),
        ("docs/sub/deep.md", "imported by docs/style.md"),
        ("docs/my notes.md", "imported by CLAUDE.md"),
    ]
    assert found.odin_md == files["ODIN.md"]
    assert found.warning == f"{home}/mine.md, imported by docs/style.md, is not read: it is outside the project."


def test_imports_in_code_and_beyond_the_depth_are_text(workspace: Path) -> None:
    code = "`@a.md` ``x ` @a.md`` word`@a.md`\n````md\n```\n@a.md\n```\n````\n~~~\n@a.md\n~~~\n@0.md\n```\n@a.md"
    write_files(workspace, **{"AGENTS.md": code, "a.md": "not this"})
    write_files(workspace, **{f"{number}.md": f"@{number + 1}.md" for number in range(9)})
    labels = [guide.label for guide in load_instructions(str(workspace)).files]
    assert labels == ["AGENTS.md", "0.md", "1.md", "2.md", "3.md", "4.md"]


def test_project_imports_nothing_from_elsewhere_no_secrets_and_no_special_files(workspace: Path, home: Path) -> None:
    names = "@/etc/passwd @../out.md @link.md @folder/hosts @.env @keys/id_rsa @picture.png @pipe @docs @huge.md"
    write_files(workspace, **{"CLAUDE.md": names, ".env": "KEY=1", "keys/id_rsa": "key", "docs/a": ""})
    write_files(workspace, **{"../out.md": "out", "picture.png": "a\0b", "huge.md": "x" * 10_000_000})
    (workspace / "link.md").symlink_to("../out.md")
    (workspace / "folder").symlink_to("/etc")
    os.mkfifo(workspace / "pipe")
    found = load_instructions(str(workspace), home=str(home))
    assert [guide.label for guide in found.files] == ["CLAUDE.md", "huge.md"]
    assert len(found.files_text) < MAX_BYTES + 1_000
    for part in ("/etc/passwd", "/out.md", "/folder/hosts"):
        assert f"{part}, imported by CLAUDE.md, is not read: it is outside the project." in found.warning
    assert found.warning.count("it may contain secrets.") == 2
    assert "picture.png, imported by CLAUDE.md, is not read: it is not a text file." in found.warning
    assert "huge.md is 10,000,000 bytes long" in found.warning


def test_claude_files_of_the_user_follow_the_others_and_import_from_home(tmp_path: Path, home: Path) -> None:
    write_files(home, **{".config/odin/AGENTS.md": "mine @more.md", ".config/odin/more.md": "more"})
    write_files(home, **{".claude/CLAUDE.md": "Claude @~/notes/me.md @~/.ssh/id_rsa", "notes/me.md": "me"})
    write_files(home, **{".ssh/id_rsa": "key", ".claude/rules/all.md": "always", ".claude/rules/CLAUDE.md": ""})
    write_files(home, **{".claude/rules/py.md": "---\npaths: '**/*.py'\n---\npython"})
    found = load_personal_files(str(home / ".config/odin"), "", home=str(home))
    labels = ["AGENTS.md", "~/.config/odin/more.md", "~/.claude/CLAUDE.md", "~/notes/me.md", "~/.claude/rules/all.md"]
    assert [guide.label for guide in found.personal] == labels
    assert [(rule.files[0].text, rule.globs, rule.by_user) for rule in found.rules] == [("python", ("**/*.py",), True)]
    assert found.warning == f"{home}/.ssh/id_rsa, imported by ~/.claude/CLAUDE.md, is not read: it may contain secrets."


def test_rules_without_paths_are_read_at_the_start_and_others_kept(workspace: Path) -> None:
    rules = {
        "style.md": "Style, see @../../docs/a.md",
        "web/ts.md": '---\npaths: src/**/*.{ts,tsx}, "lib/*.ts"\ndescription: x\nglobs: y\n---\nTS',
        "py.md": "---\npaths:\n  - '**/*.py'\n---\n" + "p" * MAX_BYTES,
        "empty.md": "",
    }
    write_files(workspace, **{"docs/a.md": "A"}, **{f".claude/rules/{name}": text for name, text in rules.items()})
    (workspace / ".claude/rules/out.md").symlink_to("/etc/passwd")
    found = load_instructions(str(workspace))
    assert [guide.label for guide in found.files] == [".claude/rules/style.md", "docs/a.md"]
    assert [(rule.files[0].label, rule.globs) for rule in found.rules] == [
        (".claude/rules/py.md", ("**/*.py",)),
        (".claude/rules/web/ts.md", ("src/**/*.{ts,tsx}", "lib/*.ts")),
    ]
    assert "web/ts.md: globs in its front matter has no effect." in found.warning
    assert "out.md points outside the project" in found.warning


def test_number_of_rules_and_globs_is_limited(workspace: Path) -> None:
    paths = "".join(f"  - 'a{number}/*'\n" for number in range(100))
    write_files(workspace, **{f".claude/rules/{n:03}.md": f"---\npaths:\n{paths}---\nx" for n in range(101)})
    found = load_instructions(str(workspace))
    assert len(found.rules) == 100 and len(found.rules[0].globs) == 30
    assert "holds more than 100 rules; the others are ignored." in found.warning


def test_claude_md_may_be_in_its_folder(workspace: Path) -> None:
    write_files(workspace, **{".claude/CLAUDE.md": "see @../docs.md", "docs.md": "docs"})
    assert [guide.label for guide in load_instructions(str(workspace)).files] == [".claude/CLAUDE.md", "docs.md"]
