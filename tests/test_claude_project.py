"""A repository made for Claude Code, with everything that its folder `.claude` may hold, works unchanged.

Before it is trusted nothing in it runs, allows or replaces anything.
"""

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from odin.testing import ScriptedServer, call, say

from .conftest import Run

FILES = {
    "CLAUDE.md": "ROOT-RULE\n@docs/style.md\n",
    "AGENTS.md": "AGENTS-RULE\n",
    "docs/style.md": "STYLE-RULE\n",
    "src/app.py": "print('app')\n",
    "src/CLAUDE.md": "SRC-RULE\n",
    "secret.txt": "hush-hush\n",
    ".claude/rules/python.md": "---\npaths: src/**/*.py\n---\nPYTHON-RULE\n",
    ".claude/rules/always.md": "ALWAYS-RULE\n",
    ".claude/commands/ops/fix.md": (
        "---\ndescription: Fix an issue\nallowed-tools: Bash(echo:*)\n---\n"
        "Fix #$1 with priority $2. Shell: !`touch canary-command 2>&-; echo from-$((1+1))`\nSee @docs/style.md\n"
    ),
    ".claude/agents/reviewer.md": "---\nname: reviewer\ndescription: AGENT-DESCRIPTION\n---\nREVIEWER-PROMPT\n",
    ".claude/skills/release/SKILL.md": "---\nname: release\ndescription: SKILL-DESCRIPTION\n---\nSKILL-TEXT\n",
    ".claude/output-styles/poet.md": "---\nname: Poet\ndescription: In verse\n---\nPOET-STYLE\n",
    ".claude/settings.local.json": json.dumps({"permissions": {"deny": ["Bash(make deploy:*)"]}}),
}
PLUGIN = {
    ".claude-plugin/plugin.json": json.dumps({"name": "kit", "version": "1.0.0", "description": "Tools"}),
    "commands/ship.md": "---\ndescription: PLUGIN-COMMAND\n---\nShip it.\n",
    "skills/pack/SKILL.md": "---\nname: pack\ndescription: PLUGIN-SKILL\n---\nPack it.\n",
}


@pytest.fixture
def repository(workspace: Path, home: Path) -> Path:
    hook = "touch canary-{0}; echo HOOK-{0}"
    settings = {
        "permissions": {
            "allow": ["Edit(/src/**)", "Bash(echo:*)"],
            "ask": ["Bash(echo careful:*)"],
            "deny": ["Read(./secret.txt)"],
        },
        "env": {"SHOP_MODE": "testing"},
        "hooks": {
            "SessionStart": [{"hooks": [{"type": "command", "command": hook.format("start")}]}],
            "PreToolUse": [
                {
                    "matcher": "Write",
                    "hooks": [{"type": "command", "command": "touch canary-pre; echo '{\"continue\": true}'"}],
                }
            ],
        },
        "statusLine": {"type": "command", "command": "touch canary-status; echo STATUS"},
        "outputStyle": "Poet",
        "additionalThing": 1,
    }
    program = f"import pathlib; pathlib.Path({str(home / 'canary-server')!r}).touch()"
    server = {"command": "python3", "args": ["-c", program]}
    for name, text in {
        **FILES,
        ".claude/settings.json": json.dumps(settings),
        ".mcp.json": json.dumps({"mcpServers": {"shop": server}}),
    }.items():
        path = workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name, text in {
        ".claude/CLAUDE.md": "USER-RULE\n",
        ".claude/settings.json": json.dumps({"env": {"USER_MODE": "mine"}}),
        **{f"plugin/{name}": text for name, text in PLUGIN.items()},
    }.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return workspace


CALLS = [
    call("Read", {"file_path": "src/app.py"}),
    call("WriteFile", {"file_path": "src/new.py", "content": "x = 1\n"}),
    call("ExecuteCommand", {"command": "echo mode=$SHOP_MODE user=$USER_MODE"}),
    call("ExecuteCommand", {"command": "echo careful"}),
    call("Read", {"file_path": "secret.txt"}),
    call("ExecuteCommand", {"command": "make deploy"}),
    say("done"),
]


def run_all(run_odin: Run, home: Path, prompt: str, *flags: str) -> tuple[str, list[dict[str, Any]]]:
    """Run all calls, and return what the user saw and the requests."""
    with ScriptedServer([*CALLS]) as server:
        plugin = ("--plugin-dir", str(home / "plugin"))
        done = run_odin("-p", prompt, *plugin, *flags, env=server.env("anthropic"))
        assert len(server.requests) == len(CALLS), done.stderr
    return done.stderr, [request.json for request in server.requests]


def list_results(requests: list[dict[str, Any]]) -> list[str]:
    """Return the result of each call as the model read it."""
    messages: list[dict[str, Any]] = requests[-1]["messages"]
    parts: list[dict[str, Any]] = [part for message in messages for part in message["content"]]
    return [json.dumps(part["content"]) for part in parts if part["type"] == "tool_result"]


def test_requests_contain_everything_that_it_says(run_odin: Run, repository: Path, home: Path) -> None:
    if shutil.which("bwrap") is None:
        pytest.skip("hooks and servers of a project need the sandbox")
    run_odin("trust", "add", "--yes")
    stderr, requests = run_all(run_odin, home, "/ops:fix 12 high")
    first, last = json.dumps(requests[0]), json.dumps(requests[-1])
    for text in (
        *("USER-RULE", "ROOT-RULE", "AGENTS-RULE", "STYLE-RULE", "ALWAYS-RULE", "POET-STYLE", "HOOK-start"),
        *("SKILL-DESCRIPTION", "PLUGIN-SKILL", "AGENT-DESCRIPTION", "Fix #12 with priority high. Shell: from-2"),
    ):
        assert text in first, text
    for text in ("SRC-RULE", "PYTHON-RULE"):
        assert text not in first and last.count(text) == 1, text
    assert "# Tone" not in first and "SKILL-TEXT" not in last and "REVIEWER-PROMPT" not in last
    for before, after in itertools.pairwise(requests):
        assert after["system"] == before["system"] and after["tools"] == before["tools"]
    _read, _write, mode, careful, secret, deploy = list_results(requests)
    assert "mode=testing user=mine" in mode
    assert "Bash(echo careful:*)" in careful and "careful\\n" not in careful
    assert "Read(./secret.txt)" in secret and "hush" not in last
    assert "Bash(make deploy:*)" in deploy
    assert (repository / "src/new.py").read_text() == "x = 1\n"
    assert {path.name for path in repository.glob("canary-*")} == {"canary-start", "canary-pre"}
    assert "'additionalThing' is not supported" in stderr


def test_before_trust_it_is_text_and_can_only_restrict(run_odin: Run, repository: Path, home: Path) -> None:
    stderr, requests = run_all(run_odin, home, "/ops:fix 12 high")
    first, last = json.dumps(requests[0]), json.dumps(requests[-1])
    for text in ("USER-RULE", "ROOT-RULE", "STYLE-RULE", "ALWAYS-RULE", "PLUGIN-SKILL", "Fix #12 with priority high."):
        assert text in first, text
    for text in ("POET-STYLE", "HOOK-", "from-2", "SKILL-DESCRIPTION", "AGENT-DESCRIPTION", "mode=testing", "hush"):
        assert text not in last, text
    assert not list(repository.glob("canary-*")) and not (home / "canary-server").exists()
    assert not (repository / "src/new.py").exists()
    *_, secret, deploy = list_results(requests)
    assert "Read(./secret.txt)" in secret and "Bash(make deploy:*)" in deploy
    assert "not trusted" in stderr
