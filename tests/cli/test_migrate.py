"""`odin migrate`: reads setups that the agents themselves made (`setups/`), and imports what is chosen from them."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odin.config.auth import read_auth_file
from odin.session.store import SessionStore
from tests.conftest import RunHere
from tests.terminal.emulator import open_terminal

SETUPS = Path(__file__).parent / "setups"


@pytest.fixture
def setups(home: Path, workspace: Path) -> Iterator[Path]:
    """The setups of the four agents in the home folder and the workspace. They stay as they are."""
    slug = re.sub(r"[^A-Za-z0-9]", "-", str(workspace))
    for base, folder in (("home", home), ("project", workspace)):
        for path in (SETUPS / base).rglob("*"):
            if path.is_file():
                copy = folder / str(path.relative_to(SETUPS / base)).replace("-home-dev-project", slug)
                copy.parent.mkdir(parents=True, exist_ok=True)
                text = path.read_text().replace("/home/dev/project", str(workspace))
                copy.write_text(text.replace("/home/dev", str(home)))
    before = read_tree(home, workspace)
    yield home
    after = read_tree(home, workspace)
    assert {path: after.get(path) for path in before} == before
    own = (home / ".config/odin", home / ".local/state/odin")
    assert all(any(path.is_relative_to(folder) for folder in own) for path in after.keys() - before.keys())


def read_tree(*folders: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file()}


def read_rows(run_here: RunHere, *args: str) -> list[dict[str, Any]]:
    code, printed, said = run_here("migrate", "--json", *args)
    assert code == 0, said
    return json.loads(printed)


def list_rows(rows: list[dict[str, Any]], **wanted: Any) -> list[str]:
    """Return `agent: kind name`, without dates, of the rows with these values."""
    found = (row for row in rows if all(row[key] == value for key, value in wanted.items()))
    return [re.sub(r"20..-..-.. ", "", f"{row['agent']}: {row['kind']} {row['name']}") for row in found]


def test_setups_are_listed_with_what_would_happen(run_here: RunHere, setups: Path) -> None:
    rows = read_rows(run_here)
    assert list_rows(rows, ticked=True) == [
        "Claude Code: MCP server docs",
        "Claude Code: session What is in hello.txt?",
        "Codex: MCP server tracker",
        "Codex: provider local",
        "Codex: model openai/gpt-6.1-sol",
        "Codex: rule allow Bash(git pull:*)",
        "Codex: rule deny Bash(rm:*)",
        "Codex: instructions AGENTS.md",
        "Codex: command review",
        "Codex: session What is in hello.txt?",
        "OpenCode: provider lab",
        "OpenCode: rule ask Edit",
        "OpenCode: rule ask Write",
        "OpenCode: rule ask Bash",
        "OpenCode: rule allow Bash(git status*)",
        "OpenCode: rule deny Bash(rm *)",
        "OpenCode: command test",
        "OpenCode: agent docs",
        "Gemini CLI: rule allow Bash(git status:*)",
        "Gemini CLI: command git/commit",
        "Gemini CLI: session What is in hello.txt?",
    ]
    assert list_rows(rows, then="import", ticked=False) == [
        "Claude Code: MCP server tracker",
        "Codex: key openai …LDER",
        "OpenCode: key anthropic …LDER",
        "Gemini CLI: key google …LDER",
    ]
    assert list_rows(rows, then="used as it is") == ["Claude Code: MCP server .mcp.json"]
    assert "Codex: settings approval_policy" in list_rows(rows, then="not supported")
    assert {row["why"] for row in rows if row["name"] == "docs" and row["then"] == "already there"} == {
        "The same as in Claude Code."
    }
    assert "PLACEHOLDER" not in json.dumps(rows)
    assert not (setups / ".config/odin/odinconfig.json").exists(), "without --all nothing is imported"


def test_files_of_claude_code_are_used_where_they_are(run_here: RunHere, home: Path, workspace: Path) -> None:
    names = ("settings.json", "agents", "commands", "skills", "CLAUDE.md", "rules")
    for place in (home / ".claude", workspace / ".claude"):
        place.mkdir()
        for name in names:
            (place / name).touch()
    for name in ("AGENTS.md", "CLAUDE.local.md", "GEMINI.md"):
        (workspace / name).touch()
    (home / ".claude/.credentials.json").touch()
    (home / ".codex/skills/mine").mkdir(parents=True)
    rows = read_rows(run_here, "--all")
    used = [Path(row["source"]).name for row in rows if row["then"] == "used as it is"]
    assert sorted(used) == sorted([*names, *names, "AGENTS.md", "CLAUDE.local.md"])
    assert {row["name"]: row["then"] for row in rows if Path(row["source"]).name not in used} == {
        ".credentials.json": "not supported",
        "mine": "not supported",
        "GEMINI.md": "not supported",
    }
    (workspace / "CLAUDE.md").touch()
    then = {row["source"]: row["then"] for row in read_rows(run_here)}
    assert then[str(workspace / "CLAUDE.md")] == then[str(workspace / "AGENTS.md")] == "used as it is"


def test_everything_marked_is_imported_once(
    run_here: RunHere, setups: Path, store: SessionStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("npx", "git", "notify-send", "codex", "opencode"):  # the programs that the setups name
        (tmp_path / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    rows = read_rows(run_here, "--all")
    assert not (tmp_path / "started").exists()
    assert list_rows(rows, imported=True) == list_rows(rows, ticked=True) != []
    own = setups / ".config/odin"
    settings = json.loads((own / "odinconfig.json").read_text())
    assert settings["model"] == "openai/gpt-6.1-sol"
    assert settings["mcp"] == {
        "docs": {"command": "npx", "args": ["-y", "docs-server"], "env": {"TOKEN": "abc123"}},
        "tracker": {"url": "https://tracker.example.com/mcp", "headers": {"Authorization": "Bearer $TRACKER_TOKEN"}},
    }
    assert settings["providers"]["lab"]["api_key"] == "${LAB_KEY}"
    assert settings["providers"]["local"]["base_url"] == "http://127.0.0.1:9999/v1"
    assert "Run the tests of $ARGUMENTS." in (own / "commands/test.md").read_text()
    assert "!`git diff --staged`\nStyle: @docs/style.md. $ARGUMENTS" in (own / "commands/git/commit.md").read_text()
    assert (own / "AGENTS.md").read_text() == "Answer briefly.\n"
    assert "deny   Bash(rm:*)" in run_here("rules")[1]
    assert "docs     subagent" in run_here("agents")[1]
    assert len(store.list()) == 3
    assert read_auth_file(os.environ).raw_keys == {}, "keys are not taken without --keys"
    before = read_tree(own)
    again = read_rows(run_here, "--all")
    assert list_rows(again, imported=True) == list_rows(again, ticked=True) == []
    assert set(list_rows(rows, imported=True)) <= set(list_rows(again, then="already there"))
    assert read_tree(own) == before


def test_keys_are_taken_if_asked_for_and_shown_masked(run_here: RunHere, setups: Path) -> None:
    code, printed, said = run_here("migrate", "--all", "--keys", "--from", "codex,gemini")
    assert code == 0, said
    assert "Imported: key openai …LDER" in printed and "PLACEHOLDER" not in printed + said
    assert read_auth_file(os.environ).raw_keys == {
        "openai": ("OPENAI-KEY-PLACEHOLDER",),
        "google": ("GEMINI-KEY-PLACEHOLDER",),
    }
    assert "Claude" not in printed


def test_what_odin_has_is_never_replaced(run_here: RunHere, setups: Path) -> None:
    own = setups / ".config/odin"
    (own / "commands").mkdir(parents=True)
    (own / "odinconfig.json").write_text('{"mcp": {"docs": {"command": "mine"}}, "model": "offline/planner"}')
    (own / "commands/review.md").symlink_to(setups / "nowhere")
    rows = read_rows(run_here, "--all")
    different = [row["name"] for row in rows if row["why"] == "Odin's own is different and stays."]
    assert set(different) == {"docs", "review"}
    assert {row["why"] for row in rows if row["kind"] == "model"} == {"Odin has one default model."}
    settings = json.loads((own / "odinconfig.json").read_text())
    assert (settings["mcp"]["docs"], settings["model"]) == ({"command": "mine"}, "offline/planner")


def test_values_keep_their_meaning(run_here: RunHere, home: Path) -> None:
    """Each agent has its own syntax for variables; what is none there is none here."""
    (home / ".codex").mkdir()
    (home / ".gemini").mkdir()
    (home / ".config/opencode").mkdir(parents=True)
    server = {"command": "x", "args": ["$A", "${A}", "5$"], "env": {"B": "{env:B}"}}
    (home / ".claude.json").write_text(json.dumps({"mcpServers": {"claude": server}}))
    (home / ".gemini/settings.json").write_text(
        json.dumps({"mcpServers": {"gemini": {**server, "includeTools": ["t"]}}})
    )
    (home / ".codex/config.toml").write_text(
        '[mcp_servers.codex]\ncommand = "x"\nargs = ["$A", "${A}", "5$"]\nenv_vars = ["C"]\nenabled = false\n'
        '[mcp_servers.web]\nurl = "https://x.example"\nenv_http_headers = {X = "D"}\nhttp_headers = {Y = "$"}\n'
    )
    local = {"type": "local", "command": ["x", "$A", "${A}"], "environment": {"B": "{env:B}"}, "enabled": False}
    secret = {"type": "remote", "url": "https://x.example", "headers": {"Authorization": "{file:~/.token}"}}
    gateway = {"options": {"baseURL": "https://gateway.example", "apiKey": "abc"}}
    found = {
        "mcp": {"opencode": local, "secret": secret},
        "provider": {"anthropic": gateway, "odd": {**gateway, "npm": "x"}},
    }
    (home / ".config/opencode/opencode.json").write_text(json.dumps(found))
    rows = read_rows(run_here, "--all")
    assert list_rows(rows, then="not supported") == ["OpenCode: MCP server secret", "OpenCode: provider odd"]
    settings = json.loads((home / ".config/odin/odinconfig.json").read_text())
    assert settings["providers"] == {"anthropic": {"base_url": "https://gateway.example"}}
    assert settings["mcp"] == {
        "claude": {"command": "x", "args": ["$$A", "${A}", "5$$"], "env": {"B": "{env:B}"}},
        "gemini": {"command": "x", "args": ["$A", "${A}", "5$$"], "env": {"B": "{env:B}"}, "allowed_tools": ["t"]},
        "codex": {"command": "x", "args": ["$$A", "$${A}", "5$$"], "env": {"C": "$C"}, "manual": True},
        "web": {"url": "https://x.example", "headers": {"Y": "$$", "X": "$D"}},
        "opencode": {"command": "x", "args": ["$$A", "$${A}"], "env": {"B": "${B}"}, "manual": True},
    }


def test_dry_run_and_a_pipe_only_list(run_here: RunHere, setups: Path) -> None:
    for args in (("--dry-run", "--all"), ()):
        code, printed, said = run_here("migrate", *args)
        assert code == 0 and "[x]  1  MCP server    docs " in printed
        assert said == "Nothing was imported. `odin migrate --all` imports what is marked with [x].\n"
    assert not (setups / ".config/odin/odinconfig.json").exists()


def test_unknown_agent_and_no_setup(run_here: RunHere, home: Path) -> None:
    assert run_here("migrate")[1] == "No setup of Claude Code, Codex, OpenCode or Gemini CLI was found.\n"
    code, _, said = run_here("migrate", "--from", "codx")
    assert code == 2 and "Unknown agent 'codx'. Did you mean codex?" in said


BROKEN = (
    *(".claude.json", ".codex/config.toml", ".codex/hooks.json", ".codex/auth.json", ".gemini/settings.json"),
    *(".config/opencode/opencode.json", ".local/share/opencode/auth.json", ".gemini/projects.json"),
)


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b'{"a":' * 60 + b"1" + b"}" * 60,
        b"[1, 2]",
        b'"x"',
        b"x = [",
        b"\0",
        b"/*" * 100_000,
        b'"' + b'\\"' * 100_000,
        b"{" + b"," * 100_000,
    ],
    ids=range(11),
)
def test_broken_files_are_named_and_cost_only_themselves(run_here: RunHere, home: Path, content: bytes) -> None:
    for name in BROKEN:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(content)
    (home / ".codex/rules").mkdir()
    (home / ".codex/rules/x.rules").write_bytes(b"(" * 100_000)
    (home / ".codex/rules/y.rules").write_text("prefix_rule(pattern={[1]: 2})")
    (home / ".codex/AGENTS.md").write_text("Be brief.")
    rows = read_rows(run_here)
    assert {row["then"] for row in rows if row["name"] != "AGENTS.md"} <= {"not supported"}
    assert "Codex: instructions AGENTS.md" in list_rows(rows, ticked=True)
    assert any(row["name"] == "x.rules" for row in rows)


def test_hostile_values_and_files_are_refused(run_here: RunHere, home: Path, workspace: Path) -> None:
    os.mkfifo(home / ".claude.json")
    for folder in (".codex/prompts", ".codex/sessions/2026/01/01", ".gemini", ".opencode"):
        (home / folder).mkdir(parents=True)
    os.mkfifo(home / ".codex/prompts/pipe.md")
    os.mkfifo(home / ".codex/sessions/2026/01/01/rollout-x.jsonl")
    (home / ".codex/auth.json").write_text('{"OPENAI_API_KEY": "two words"}')
    (home / ".codex/prompts/loop.md").symlink_to("loop.md")
    (home / ".codex/prompts/huge.md").write_text("x" * 100_000)
    Path(os.fsdecode(bytes(home / ".codex/prompts") + b"/\xff\x1b.md")).write_text("hi")
    (home / ".local/share/opencode").mkdir(parents=True)
    (home / ".local/share/opencode/auth.json").write_text('{"openai": {"type": "api", "key": [1]}, "groq": 7}')
    (home / ".config/opencode").mkdir(parents=True)
    (home / ".config/opencode/opencode.json").write_text('{"command": {"x": {"template": "\\ud800"}}}')
    (home / ".codex/hooks.json").write_text('{"hooks": {"Stop": [], "Unknown": [], "PreToolUse": "x"}}')
    (home / ".gemini/projects.json").write_text(json.dumps({"projects": {str(workspace): "../../../x"}}))
    servers: dict[str, Any] = {
        "../x": {"command": "x"},
        "a.b": {"command": "x"},
        "a__b": {"command": "x"},
        "\x1b[31mred": {"command": "x"},
        "number": {"command": 7},
        "empty": {},
        "file": {"url": "file:///etc/passwd"},
        "list": [],
        "fine": {"command": "echo", "args": ["$HOME", "$5"]},
    }
    (home / ".gemini/settings.json").write_text(json.dumps({"mcpServers": servers, "tools": {"exclude": ["x", 1]}}))
    commands = {name: {"template": "hi"} for name in ("../../up", "/abs", ".hidden", "a b", "fine")}
    (workspace / "opencode.json").write_text(json.dumps({"command": commands, "permission": {"bash": {"*": "allow"}}}))
    rows = read_rows(run_here, "--all")
    assert list_rows(rows, imported=True) == ["Gemini CLI: MCP server fine"]
    choices = ["Codex: hook Stop", "OpenCode: rule allow Bash", "OpenCode: command fine"]
    assert list_rows(rows, then="import", ticked=False) == choices
    settings = json.loads((home / ".config/odin/odinconfig.json").read_text())
    assert settings["mcp"] == {"fine": {"command": "echo", "args": ["$HOME", "$$5"]}}
    printed = run_here("migrate")[1]
    assert "\x1b" not in printed and "up.md" not in str(read_tree(home, workspace))


def test_user_chooses_by_number_at_a_terminal(setups: Path, workspace: Path) -> None:
    with open_terminal("migrate", "--from", "codex", cwd=workspace, rows=50) as odin:
        shown = odin.see("Import which?")
        assert "[x]  1  MCP server    docs" in shown and "[ ]  9  key           openai …LDER" in shown
        odin.type("1 99-3\r")
        odin.see("Type numbers from 1 to 10.")
        odin.type("2, 9-9\r")
        odin.see("Imported: MCP server tracker", "Imported: key openai …LDER")
        odin.assert_exit_code(0)
    settings = json.loads((setups / ".config/odin/odinconfig.json").read_text())
    assert [*settings] == ["mcp"] and [*settings["mcp"]] == ["tracker"]
    for typed in ("none\r", "\x04", "\x03"):
        with open_terminal("migrate", cwd=workspace) as odin:
            odin.see("Import which?")
            odin.type(typed)
            odin.assert_exit_code(0)
    assert json.loads((setups / ".config/odin/odinconfig.json").read_text()) == settings
