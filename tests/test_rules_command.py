"""`odin rules`, with rules from configuration, saved rules and session rules."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Run


@pytest.fixture
def user(home: Path) -> Path:
    folder = home / ".config" / "odin"
    folder.mkdir(parents=True)
    return folder


def list_rules(run_odin: Run, *args: str) -> list[dict[str, Any]]:
    done = run_odin("rules", "--json", *args)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["rules"]


def test_empty_list_of_rules(run_odin: Run) -> None:
    assert run_odin("rules").stdout == "No rules besides the defaults.\n"


def test_rules_are_added_listed_and_removed_by_number(run_odin: Run, user: Path, workspace: Path) -> None:
    assert (
        run_odin("rules", "add", "Bash(npm test:*)").stdout == "Rule added for this project: allow Bash(npm test:*)\n"
    )
    added = run_odin("rules", "add", "--deny", "--scope", "user", "Bash(git push:*)")
    assert added.stdout == "Rule added for all projects: deny Bash(git push:*)\n"
    assert run_odin("rules", "add", "--ask", "Edit(docs/**)").returncode == 0
    source = str(user / "rules.json")
    assert list_rules(run_odin) == [
        {"number": 1, "layer": "user", "action": "deny", "text": "Bash(git push:*)", "source": source, "role": ""},
        {"number": 2, "layer": "project", "action": "allow", "text": "Bash(npm test:*)", "source": source, "role": ""},
        {"number": 3, "layer": "project", "action": "ask", "text": "Edit(docs/**)", "source": source, "role": ""},
    ]
    shown = run_odin("rules").stdout.splitlines()
    assert shown[0].split() == ["1", "user", "deny", "Bash(git", "push:*)", source]
    assert run_odin("rules", "remove", "2").stdout == "Rule removed: allow Bash(npm test:*)\n"
    assert [rule["text"] for rule in list_rules(run_odin)] == ["Bash(git push:*)", "Edit(docs/**)"]
    assert "npm" not in (user / "rules.json").read_text()
    assert list(workspace.iterdir()) == []


def test_project_rules_apply_only_to_their_project(run_odin: Run, user: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    run_odin("rules", "add", "Bash(make)")
    run_odin("rules", "add", "--scope", "user", "Bash(ls)")
    assert [rule["text"] for rule in list_rules(run_odin, "--cwd", str(other))] == ["Bash(ls)"]


def test_rules_from_files_are_listed_with_their_source_and_cannot_be_removed(
    run_odin: Run, user: Path, workspace: Path
) -> None:
    mine = user / "odinconfig.json"
    mine.write_text(
        json.dumps(
            {
                "AllowedCommands": ["make"],
                "ForbiddenCommands": ["git push"],
                "allowed_tools": ["Read(~/notes/**)"],
                "rules": {"permissions": {"ask": ["Bash(make deploy:*)"]}},
            }
        )
    )
    theirs = workspace / "odinconfig.json"
    theirs.write_text(
        json.dumps({"ForbiddenCommands": ["deploy"], "rules": [{"ask": ["Edit(law/**)"], "allow": ["Bash"]}]})
    )
    rules = list_rules(run_odin)
    assert {rule["number"] for rule in rules} == {0}
    found = [(rule["layer"], rule["action"], rule["text"], rule["source"]) for rule in rules]
    assert ("user", "allow", "Bash(make:*)", f"AllowedCommands in {mine}") in found
    assert ("user", "deny", "Bash(git push:*)", f"ForbiddenCommands in {mine}") in found
    assert ("user", "allow", "Read(~/notes/**)", f"allowed_tools in {mine}") in found
    assert ("user", "ask", "Bash(make deploy:*)", str(mine)) in found
    assert ("project", "deny", "Bash(deploy:*)", f"ForbiddenCommands in {theirs}") in found
    assert ("project", "ask", "Edit(law/**)", str(theirs)) in found
    assert not [rule for rule in found if rule[2] == "Bash"]
    refused = run_odin("rules", "remove", "1")
    assert refused.returncode == 2
    assert "No removable rule with number 1" in refused.stderr


def test_allow_rules_of_an_untrusted_project_are_ignored_and_reported(run_odin: Run, workspace: Path) -> None:
    (workspace / "odinconfig.json").write_text(json.dumps({"rules": ["Bash(make:*)"]}))
    done = run_odin("rules")
    assert "rules[0] (Bash(make:*)) is ignored" in done.stderr
    assert "not trusted" in done.stderr
    assert done.stdout == "No rules besides the defaults.\n"


def test_wrong_rules_in_a_file_are_reported_with_their_position(run_odin: Run, user: Path) -> None:
    (user / "odinconfig.json").write_text(
        json.dumps(
            {"rules": ["Bash(a)", "((", "Delete(x/**)"], "allowed_tools": ["b))", "Read"], "AllowedCommands": ["c"]}
        )
    )
    done = run_odin("rules")
    path = user / "odinconfig.json"
    assert f"{path}: rules[1] is ignored: '((' is not a rule." in done.stderr
    assert f"{path}: rules[2] is ignored: Delete(x/**) would allow any deletion" in done.stderr
    assert f"{path}: allowed_tools[0] is ignored: 'b))' is not a rule." in done.stderr
    assert [line.split()[3] for line in done.stdout.splitlines()] == ["Bash(a)", "Read", "Bash(c:*)"]


def test_damaged_rules_file_is_reported_and_not_changed(run_odin: Run, user: Path) -> None:
    (user / "rules.json").write_text("{")
    done = run_odin("rules")
    assert done.returncode == 0
    assert "rules.json is not valid JSON" in done.stderr
    refused = run_odin("rules", "add", "Bash(a)")
    assert refused.returncode == 2
    assert (user / "rules.json").read_text() == "{"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("add",), "`odin rules add` needs a rule"),
        (("add", "(("), "is not a rule"),
        (("add", "Delete(build/**)"), "exact paths only"),
        (("add", "Delete"), "exact paths only"),
        (("remove",), "needs the number of a rule"),
        (("remove", "x"), "needs the number of a rule"),
        (("remove", "7"), "No removable rule with number 7"),
        (("list", "x"), "takes no rule"),
        (("--cwd", "/no/such/folder"), "Folder not found: /no/such/folder"),
        (("add", "--deny", "--ask", "Bash"), "not allowed with argument"),
    ],
)
def test_wrong_usage_is_reported(run_odin: Run, args: tuple[str, ...], message: str) -> None:
    done = run_odin("rules", *args)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stdout == ""


def test_hostile_rule_cannot_send_terminal_sequences(run_odin: Run, workspace: Path) -> None:
    (workspace / "odinconfig.json").write_text(json.dumps({"rules": [{"deny": ["Bash(\x1b[2Jx)"]}]}))
    assert "\x1b" not in run_odin("rules").stdout
