"""`odin skills`, and skills in `odin trust` and `odin doctor`."""

import json
from pathlib import Path

from tests.conftest import Run
from tests.context.test_skills import write_skill


def test_skills_are_listed_with_their_mistakes(run_odin: Run, home: Path, workspace: Path) -> None:
    places = ".odin/skills, .agents/skills or .claude/skills"
    assert run_odin("skills").stdout == f"No skills. They are folders with a SKILL.md in {places}.\n"
    write_skill(home / ".claude/skills", "pdf", allowed_tools="Bash(pdftk:*)")
    write_skill(workspace / ".agents/skills", "own", allowed_tools="Bash(make:*)")
    done = run_odin("skills")
    assert (done.returncode, done.stderr) == (
        0,
        f"The skill of {workspace} cannot be used: this folder is not trusted. "
        "Review it with `odin trust`, then trust it with `odin trust add`.\n",
    )
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [["NAME", "SOURCE"], ["pdf", "user"]]
    assert "skill: .agents/skills/own/SKILL.md, which allows Bash(make:*)" in run_odin("trust").stdout
    assert run_odin("trust", "add", "--yes").returncode == 0
    bad = write_skill(home / ".agents/skills", "bad", description="")
    done = run_odin("skills", "list", "--json")
    found = json.loads(done.stdout)
    assert [skill["name"] for skill in found["skills"]] == ["own", "pdf"] and done.returncode == 1
    assert [(item["path"], item["line"]) for item in found["problems"]] == [(str(bad), 1)]
    doctor = run_odin("doctor").stdout
    assert "skills         2 skills: own, pdf\n" in doctor and f"{bad}:1: description is missing" in doctor
    (workspace / ".agents/skills/own/run.sh").write_text("new")
    assert "not trusted" in run_odin("skills").stderr
    assert ".agents/skills/own/run.sh" in run_odin("trust").stdout


def test_check_reports_problems_in_a_folder(run_odin: Run, tmp_path: Path) -> None:
    path = write_skill(tmp_path, "pdf", allowed_tools="\n  - Read\n  - Bash(*:*)\n  - E*")
    done = run_odin("skills", "check", str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "1 skill, 2 problems\n")
    assert done.stderr.splitlines() == [
        f"{path}:6: allowed-tools: Bash(*:*) has no effect. A skill must name the program, such as Bash(git log:*).",
        f"{path}:7: allowed-tools: E* has no effect. "
        "A skill must name each tool exactly, such as Read or mcp__github__get_issue.",
    ]
    write_skill(tmp_path, "pdf")
    assert run_odin("skills", "check", str(tmp_path / "pdf")).stdout == "1 skill, no problems\n"
    (tmp_path / "empty").mkdir()
    done = run_odin("skills", "check", str(tmp_path / "empty"))
    assert (done.returncode, done.stderr) == (1, f"There is no SKILL.md in {tmp_path}/empty.\n")
    done = run_odin("skills", "check", str(tmp_path / "gone"))
    assert done.returncode == 2 and "is not a folder" in done.stderr


def test_skills_of_configured_project_folders_are_shown(run_odin: Run, workspace: Path) -> None:
    write_skill(workspace / "tools/s", "own", allowed_tools="Bash(make:*) Bash")
    (workspace / "odinconfig.json").write_text('{"skills": {"paths": ["tools/s"]}}')
    assert "skill: tools/s/own/SKILL.md, which allows Bash(make:*)\n" in run_odin("trust").stdout
    assert f"The skill of {workspace} cannot be used" in run_odin("skills").stderr


def test_a_linked_folder_of_the_project_can_be_trusted(run_odin: Run, workspace: Path, tmp_path: Path) -> None:
    write_skill(workspace / ".agents/skills", "own")
    (workspace / ".claude").mkdir()
    (workspace / ".claude/skills").symlink_to("../.agents/skills")
    assert run_odin("trust", "add", "--yes").returncode == 0
    assert json.loads(run_odin("skills", "--json").stdout)["skills"][0]["name"] == "own"
    write_skill(workspace / ".agents/skills", "own", "Other text.")
    done = run_odin("skills")
    assert "No skills." in done.stdout and "not trusted" in done.stderr
