"""`odin agents`: the list, mistakes in agent files, and untrusted projects."""

import json
from pathlib import Path

from tests.conftest import Run


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_the_built_in_agents_are_listed(run_odin: Run) -> None:
    done = run_odin("agents")
    lines = [line.split()[:2] for line in done.stdout.splitlines()]
    assert lines == [
        ["NAME", "TYPE"],
        ["builder", "main"],
        ["planner", "main"],
        ["explore", "subagent"],
        ["general", "subagent"],
    ]
    assert (done.returncode, done.stderr) == (0, "")


def test_files_of_the_user_and_of_claude_code_are_listed_with_their_mistakes(run_odin: Run, home: Path) -> None:
    own = write(
        home / ".config/odin/agents/lead.md", "---\nmode: all\nmodel: openai/gpt-5\ndescription: leads\n---\nLead."
    )
    write(home / ".claude/agents/tester.md", "---\nname: tester\ndescription: tests\ntools: Read, Bash\n---\nTest.")
    bad = write(home / ".claude/agents/bad.md", "---\nname: bad\n\ntool: Read\n---\nBad.")
    done = run_odin("agents", "--json")
    found = json.loads(done.stdout)
    rows = {row["name"]: row for row in found["agents"]}
    assert rows["lead"] == {
        "name": "lead",
        "type": "all",
        "model": "openai/gpt-5",
        "source": str(own),
        "description": "leads",
    }
    assert list(rows) == ["builder", "planner", "lead", "bad", "explore", "general", "tester"]
    assert found["problems"] == [
        {"path": str(bad), "line": 4, "text": "Unknown key 'tool' is ignored. Did you mean tools?"}
    ]
    assert done.returncode == 1
    shown = run_odin("agents")
    assert shown.stderr == f"{bad}:4: Unknown key 'tool' is ignored. Did you mean tools?\n"
    assert shown.returncode == 1


def test_files_of_an_untrusted_project_are_not_used(run_odin: Run, workspace: Path) -> None:
    write(workspace / ".odin/agents/a.md", "---\nname: mine\n---\nDo.")
    write(workspace / ".claude/agents/b.md", "---\nname: theirs\n---\nDo.")
    done = run_odin("agents")
    assert "mine" not in done.stdout and "theirs" not in done.stdout
    assert done.stderr.startswith(f"The 2 agent files of {workspace} cannot be used: this folder is not trusted.")
    assert done.returncode == 0
    assert "mine" in run_odin("agents", "--trust").stdout
    assert "agent file: .odin/agents/a.md" in run_odin("trust").stdout
    run_odin("trust", "add", "--yes")
    assert "theirs" in run_odin("agents").stdout
    write(workspace / ".claude/agents/b.md", "---\nname: theirs\n---\nDo something else.")
    assert "theirs" not in run_odin("agents").stdout
