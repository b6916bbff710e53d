"""Saved rules: written atomically to the user's own file, with other keys preserved."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from odin.core.errors import ConfigError, UsageError
from odin.policy.rules.rule import RuleSet
from odin.policy.rules.rule_file import RuleFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config" / "rules.json"


def list_rules(file: RuleFile) -> list[tuple[str, str, str]]:
    return [(rule.layer, rule.action, rule.text) for rule in file.load_rules()]


def test_rules_are_saved_for_the_user_or_for_one_project(path: Path, workspace: Path) -> None:
    file = RuleFile(path, str(workspace))
    assert list_rules(file) == []
    file.add("Bash(make)", "allow", "project")
    file.add("Bash(git push:*)", "deny", "user")
    expected = [("user", "deny", "Bash(git push:*)"), ("project", "allow", "Bash(make)")]
    assert list_rules(file) == expected
    assert list_rules(RuleFile(path, str(workspace))) == expected
    assert list_rules(RuleFile(path, str(workspace.parent))) == expected[:1]
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(workspace.iterdir()) == []


def test_project_is_identified_by_its_resolved_path(path: Path, workspace: Path) -> None:
    link = workspace.parent / "door"
    link.symlink_to(workspace)
    RuleFile(path, str(link)).add("Bash(make)", "allow", "project")
    assert list(json.loads(path.read_text())["projects"]) == [os.path.realpath(workspace)]
    assert len(RuleFile(path, str(workspace)).load_rules()) == 1


def test_other_content_of_the_file_is_preserved(path: Path, workspace: Path) -> None:
    path.parent.mkdir()
    mine: dict[str, Any] = {
        "note": "mine",
        "rules": ["Bash(a)", {"rule": "((", "action": "allow"}, {"ask": ["Bash(b)"]}],
        "projects": {"/other": [{"rule": "Read", "action": "deny", "why": "x"}]},
    }
    path.write_text(json.dumps(mine))
    file = RuleFile(path, str(workspace))
    assert [rule.text for rule in file.load_rules()] == ["Bash(a)", "Bash(b)"]
    assert "rules[1] is ignored" in file.warnings[0]
    file.add("Bash(c)", "allow", "user")
    file.remove("Bash(a)", "allow", "user")
    kept = json.loads(path.read_text())
    assert kept["note"] == "mine"
    assert kept["rules"] == [*mine["rules"][1:], {"rule": "Bash(c)", "action": "allow"}]
    assert kept["projects"] == mine["projects"]
    with pytest.raises(UsageError, match="no separate entry for the rule"):
        file.remove("Bash(b)", "ask", "user")


def test_added_rule_replaces_its_duplicate(path: Path, workspace: Path) -> None:
    file = RuleFile(path, str(workspace))
    for text in ("Bash(a)", "Bash(b)", "Bash(a)"):
        file.add(text, "allow", "user")
    assert [rule.text for rule in file.load_rules()] == ["Bash(b)", "Bash(a)"]
    file.add("Bash(a)", "deny", "user")
    assert len(file.load_rules()) == 3


@pytest.mark.parametrize(
    "content", ["{", "[]", '"x"', "\xff", '{"projects": []}', "{}" + " " * 1_000_001, "[" * 100_000]
)
def test_damaged_file_has_no_rules_and_is_not_overwritten(path: Path, workspace: Path, content: str) -> None:
    path.parent.mkdir()
    path.write_bytes(content.encode("latin-1"))
    file = RuleFile(path, str(workspace))
    assert file.load_rules() == []
    (warning,) = file.warnings
    assert str(path) in warning
    assert "are ignored until then" in warning
    for change in (file.add, file.remove):
        with pytest.raises(ConfigError, match=r"rules\.json"):
            change("Bash(a)", "allow", "user")
    assert path.read_bytes() == content.encode("latin-1")


def test_folder_in_place_of_the_file_is_reported(path: Path, workspace: Path) -> None:
    path.mkdir(parents=True)
    file = RuleFile(path, str(workspace))
    assert file.load_rules() == []
    assert "not a regular file" in file.warnings[0]


def test_a_link_stays_a_link(path: Path, workspace: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.json"
    path.parent.mkdir()
    path.symlink_to(real)
    RuleFile(path, str(workspace)).add("Bash(a)", "allow", "user")
    assert path.is_symlink()
    assert "Bash(a)" in real.read_text()


def test_writing_leaves_no_temporary_files(path: Path, workspace: Path) -> None:
    file = RuleFile(path, str(workspace))
    for number in range(5):
        file.add(f"Bash(x{number})", "allow", "user")
    assert sorted(item.name for item in path.parent.iterdir()) == ["rules.json", "rules.json.lock"]


@pytest.mark.slow
def test_concurrent_processes_lose_no_rule(path: Path, workspace: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from odin.policy.rules.rule_file import RuleFile\n"
        "file = RuleFile(Path(sys.argv[1]), sys.argv[2])\n"
        "for n in range(10): file.add(f'Bash({sys.argv[3]}-{n})', 'allow', 'user')\n"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", program, str(path), str(workspace), f"p{number}"])
        for number in range(4)
    ]
    assert [process.wait(120) for process in running] == [0, 0, 0, 0]
    assert len(RuleFile(path, str(workspace)).load_rules()) == 40


def test_removal_by_number_removes_the_listed_rule_despite_changes_since(path: Path, workspace: Path) -> None:
    rule_set = RuleSet(store=RuleFile(path, str(workspace)))
    rule_set.add("Bash(a)", "allow", "user")
    rule_set.add("Bash(b)", "allow", "user")
    other = RuleSet(store=RuleFile(path, str(workspace)))
    other.remove(1)
    other.add("Bash(c)", "allow", "user")
    assert rule_set.remove(2).text == "Bash(b)"
    assert [rule.text for rule in RuleFile(path, str(workspace)).load_rules()] == ["Bash(c)"]
