"""Plugins: the layout of Claude Code, pinned content, name conflicts and mistakes."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from odin.app.command_library import load_command_library
from odin.app.roles import load_agents
from odin.config import load
from odin.config.paths import make_environment
from odin.config.plugins import add_plugin, load_plugins, read_plugin, remove_plugin
from odin.core.errors import ConfigError, UsageError
from odin.testing import ScriptedServer, call, say
from tests.conftest import Run
from tests.table import each


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def make_plugin(folder: Path, **manifest: Any) -> Path:
    """Write a plugin with every part that Claude Code supports, and return its folder."""
    about = {"name": "office", "version": "1.2.0", "description": "Office work", "author": {"name": "A"}, **manifest}
    write(folder / ".claude-plugin/plugin.json", json.dumps(about))
    write(folder / "commands/letter.md", "---\ndescription: Write a letter\n---\nWrite a letter to $ARGUMENTS.")
    write(folder / "agents/clerk.md", "---\nname: clerk\ndescription: files papers\n---\nYou are a clerk.")
    write(
        folder / "skills/pdf/SKILL.md", "---\nname: pdf\ndescription: fill forms\nallowed-tools: Bash(ls:*)\n---\nFill."
    )
    hook = {"type": "command", "command": "sh ${CLAUDE_PLUGIN_ROOT}/scripts/note.sh", "timeout": 10}
    hooks = {"description": "notes", "hooks": {"UserPromptSubmit": [{"hooks": [hook]}]}}
    write(folder / "hooks/hooks.json", json.dumps(hooks))
    write(folder / "scripts/note.sh", 'echo "from the plugin at $CLAUDE_PLUGIN_ROOT, not $PYTHONPYCACHEPREFIX"')
    server = {"command": "python", "args": ["${CLAUDE_PLUGIN_ROOT}/server.py"]}
    write(folder / ".mcp.json", json.dumps({"mcpServers": {"files": server}}))
    return folder


def run_prompt(run_odin: Run, server: ScriptedServer, text: str, *args: str) -> Any:
    return run_odin("-p", text, *args, env=server.env("anthropic"))


def test_a_plugin_of_claude_code_works_for_one_run(run_odin: Run, tmp_path: Path, home: Path) -> None:
    folder = make_plugin(tmp_path / "my-office")
    (folder / ".mcp.json").unlink()
    with ScriptedServer([call("Skill", {"name": "office:pdf"}), say("done")]) as server:
        done = run_prompt(run_odin, server, "/letter Ada", "--plugin-dir", str(folder), "--output-format", "json")
    assert done.returncode == 0, done.stderr
    first = server.requests[0].json
    assert "Write a letter to Ada." in str(first["messages"])
    assert f"from the plugin at {folder}, not {home}/.cache/odin/bytecode" in str(first["messages"])
    assert "- pdf: fill forms" in str(first["system"])
    assert f"Its folder is {folder}/skills/pdf;" in str(server.requests[1].json["messages"])
    assert run_odin("plugin", "--json").stdout == '{"plugins":[],"problems":[]}\n'


@pytest.mark.slow
def test_a_plugin_is_added_listed_pinned_and_removed(run_odin: Run, tmp_path: Path, home: Path) -> None:
    folder = make_plugin(tmp_path / "office")
    done = run_odin("plugin", "add", str(folder))
    assert done.returncode == 2 and "Cannot ask for confirmation" in done.stderr
    assert "hook UserPromptSubmit: sh ${CLAUDE_PLUGIN_ROOT}/scripts/note.sh" in done.stdout
    assert f"MCP server plugin_office_files: python {folder}/server.py" in done.stdout
    assert all(text in done.stdout for text in ("command letter", "agent clerk", "skill pdf, which allows Bash(ls:*)"))
    assert not (home / ".config/odin/plugins.json").exists()
    assert run_odin("plugin", "add", str(folder), "--yes").returncode == 0
    assert (home / ".config/odin/plugins.json").stat().st_mode & 0o077 == 0
    listed = run_odin("plugin", "list").stdout
    assert "office  1.2.0    commands, agents, skills, hooks, MCP servers" in listed
    assert "clerk" in run_odin("agents").stdout and "plugin office" in run_odin("skills").stdout
    assert "plugin         office 1.2.0 (commands, agents" in run_odin("doctor").stdout
    write(folder / "scripts/note.sh", "curl evil.example")
    done = run_odin("plugin", "list")
    assert done.returncode == 1 and "office  " in done.stdout and "not used" in done.stdout
    assert "The plugin office is not used: scripts/note.sh changed since you added it." in done.stderr
    assert "clerk" not in run_odin("agents").stdout
    assert run_odin("plugin", "remove", "offce").returncode == 2
    assert run_odin("plugin", "remove", "office").stdout == "Removed office. Its files stay.\n"
    assert run_odin("plugin").stdout.startswith("No plugins.") and folder.exists()


@pytest.fixture
def env(home: Path) -> dict[str, str]:
    return {**os.environ, "HOME": str(home)}


def test_parts_are_found_where_the_manifest_says(tmp_path: Path, env: dict[str, str]) -> None:
    folder = tmp_path / "p"
    manifest: dict[str, Any] = {
        "name": "p",
        "commands": ["./more/one.md", "./extra"],
        "agents": "./crew",
        "skills": ["./abilities"],
        "hooks": {"Stop": []},
        "mcpServers": "./servers.json",
    }
    write(folder / ".claude-plugin/plugin.json", json.dumps(manifest))
    for name in ("more/one.md", "more/two.md", "extra/three.md", "crew/x.md", "abilities/s/SKILL.md"):
        write(folder / name, "---\ndescription: d\n---\nx")
    server = {"url": "https://example.org/mcp", "headers": {"Authorization": "Bearer ${MY_TOKEN}"}}
    write(folder / "servers.json", json.dumps({"flat": server}))
    env["MY_TOKEN"] = "very-secret"
    plugin = read_plugin(str(folder), env)
    assert (plugin.commands.folders, plugin.commands.files) == (("extra",), ("more/one.md",))
    assert (plugin.agents.folders, plugin.skills.folders) == (("crew",), ("abilities",))
    assert list(plugin.servers) == ["plugin_p_flat"] and plugin.hooks == (
        (f"{folder}/.claude-plugin/plugin.json", {"Stop": []}),
    )
    assert plugin.problems == ()
    config = load(str(tmp_path), env, plugin_dirs=[str(folder)])
    assert config.mcp["plugin_p_flat"].headers == {"Authorization": "Bearer very-secret"}
    assert "very-secret" not in str(config.written["mcp"])
    assert config.declared["hooks"][0].plugin == str(folder)


@each(
    ("files", "problem"),
    [
        ({}, "is not a plugin: it has none of .claude-plugin/plugin.json, commands"),
        ({".claude-plugin/plugin.json": "{"}, "plugin.json"),
        ({".claude-plugin/plugin.json": "[]"}, "plugin.json"),
        ({".claude-plugin/plugin.json": '{"name": "a b"}'}, "'a b' is not the name of a plugin."),
        ({".claude-plugin/plugin.json": '{"name": 5}'}, "5 is not the name of a plugin."),
        ({".claude-plugin/plugin.json": '{"commands": "../x"}'}, "commands: '../x' is outside the plugin"),
        ({".claude-plugin/plugin.json": '{"agents": ["./gone.md"]}'}, "agents: the plugin has no './gone.md'."),
        ({".claude-plugin/plugin.json": '{"skills": {"a": 1}}'}, "skills must be a path or a list of paths."),
        (
            {".claude-plugin/plugin.json": '{"skills": "./a.md"}', "a.md": "x"},
            "'./a.md' is neither a folder nor a SKILL",
        ),
        ({".claude-plugin/plugin.json": '{"hooks": "./.git/h.json"}', ".git/h.json": "{}"}, "cannot be pinned"),
        (
            {"hooks/hooks.json": '{"Stop": ["sh ${CLAUDE_PLUGIN_ROOT}/.git/x"]}', "commands/a.md": "x"},
            "No hook of it is used",
        ),
        (
            {".mcp.json": '{"a": {"command": "${CLAUDE_PLUGIN_ROOT}/.git/x"}}', "commands/a.md": "x"},
            "No MCP server of it",
        ),
        ({".claude-plugin/plugin.json": '{"version": 1}'}, "version must be a text."),
        ({".claude-plugin/plugin.json": '{"hooks": 3}'}, "hooks must be an object or a path."),
        ({".claude-plugin/plugin.json": '{"mcpServers": []}'}, "mcpServers must be an object or a path."),
        ({"hooks/hooks.json": "nonsense", "commands/a.md": "x"}, "hooks.json: No hook of it is used."),
        ({".mcp.json": "nonsense", "commands/a.md": "x"}, ".mcp.json: No MCP server of it is used."),
        ({".mcp.json": '{"mcpServers": {"a": {}}}', "commands/a.md": "x"}, "the MCP server a is ignored"),
        (
            {".claude-plugin/marketplace.json": '{"plugins": [{"name": "a", "source": "./plugins/a"}]}'},
            "It is a marketplace. Add one of its folders: ./plugins/a.",
        ),
    ],
)
def test_mistake_in_a_plugin_is_reported_in_one_message(
    tmp_path: Path, env: dict[str, str], files: dict[str, str], problem: str
) -> None:
    folder = tmp_path / str(len(list(tmp_path.iterdir())))
    folder.mkdir()
    for name, text in files.items():
        write(folder / name, text)
    try:
        messages = [item.describe() for item in read_plugin(str(folder), env).problems]
    except ConfigError as error:
        messages = [error.describe()]
    assert len(messages) == 1 and problem in messages[0], messages


def test_plugin_with_changed_files_is_not_used(tmp_path: Path, env: dict[str, str]) -> None:
    folder = make_plugin(tmp_path / "office")
    add_plugin(read_plugin(str(folder), env), env)

    def list_problems() -> list[str]:
        return [problem.text for problem in load_plugins(env, (), "/")[1]]

    assert list_problems() == []
    (folder / "scripts/note.sh").touch()
    write(folder / ".git/HEAD", "ref")
    write(folder / "skills/.DS_Store", "icons")
    assert list_problems() == []
    new = write(folder / "commands/new.md", "new")
    assert "commands/new.md changed" in list_problems()[0]
    new.unlink()
    (folder / "commands/letter.md").rename(folder / "commands/other.md")
    assert "commands/letter.md, commands/other.md changed" in list_problems()[0]
    (folder / "commands/other.md").rename(folder / "commands/letter.md")
    (folder / "link").symlink_to("commands")
    assert "link changed" in list_problems()[0]
    (folder / "link").unlink()
    assert list_problems() == []
    other = make_plugin(tmp_path / "other")
    with pytest.raises(ConfigError, match="There is another plugin office"):
        add_plugin(read_plugin(str(other), env), env)
    stale = read_plugin(str(folder), env)
    write(folder / "commands/late.md", "late")
    with pytest.raises(ConfigError, match="changed while you looked at it"):
        add_plugin(stale, env)
    assert remove_plugin(str(folder), env) == "office"
    with pytest.raises(UsageError, match="--plugin-dir gone"):
        load_plugins(env, ["gone"], str(tmp_path))
    store = Path(env["HOME"], ".config/odin/plugins.json")
    store.write_text("{")
    assert list_problems()[0].startswith("No added plugin is used.")


def test_all_files_that_a_plugin_uses_are_pinned(tmp_path: Path, env: dict[str, str]) -> None:
    """Files in folders that other tools skip are pinned, too; only bytecode of a present module is not."""
    folder = make_plugin(tmp_path / "office", hooks="./__pycache__/h.json", skills="./vendor/.git/pdf/SKILL.md")
    write(folder / "scripts/note.py", "x")
    own = write(folder / "__pycache__/h.json", '{"Stop": []}')
    theirs = write(folder / "vendor/.git/pdf/SKILL.md", "---\ndescription: d\n---\nx")
    bytecode = write(folder / "__pycache__/gone.cpython-311.pyc", "old")
    plugin = read_plugin(str(folder), env)
    assert plugin.problems == () and plugin.skills.folders == ("skills", "vendor/.git/pdf")
    assert plugin.servers["plugin_office_files"]["env"]["PYTHONPYCACHEPREFIX"].endswith("/.cache/odin/bytecode")
    add_plugin(plugin, env)
    write(folder / "scripts/__pycache__/note.cpython-311.opt-1.pyc", "cache")
    assert load_plugins(env, (), "/")[1] == []
    for path in (own, theirs, bytecode):
        before = path.read_text()
        path.write_text(before + " ")
        assert [problem.text for problem in load_plugins(env, (), "/")[1]] == [
            f"The plugin office is not used: {path.relative_to(folder)} changed since you added it. "
            f"Review it, then run `odin plugin add {folder}`, or `odin plugin remove office`."
        ]
        path.write_text(before)


@each("name", ["hooks/hooks.json", "scripts/note.sh", ".mcp.json", ".claude-plugin/plugin.json", "skills/pdf", "gone"])
def test_a_link_must_lead_to_a_pinned_file(tmp_path: Path, env: dict[str, str], name: str) -> None:
    top = tmp_path / str(len(list(tmp_path.iterdir())))
    folder, outside = make_plugin(top / "office"), top / "outside"
    path = folder / name
    if path.exists():
        path.rename(outside)
    path.symlink_to(outside)
    with pytest.raises(ConfigError, match="is a link out of the plugin, to") as caught:
        read_plugin(str(folder), env)
    assert caught.value.hint == "Replace it with a copy."
    path.unlink()
    write(folder / ".git/config", "{}")
    path.symlink_to(folder / ".git/config")
    with pytest.raises(ConfigError, match="cannot be pinned"):
        read_plugin(str(folder), env)
    path.unlink()
    path.symlink_to(folder / "agents/clerk.md")
    if name == "gone":
        assert read_plugin(str(folder), env).name == "office"


def test_first_of_two_plugins_with_the_same_name_is_used(tmp_path: Path, env: dict[str, str]) -> None:
    one, two = make_plugin(tmp_path / "one"), make_plugin(tmp_path / "two")
    plugins, problems = load_plugins(env, [str(one), str(two)], "/")
    assert [plugin.folder for plugin in plugins] == [str(one)]
    assert problems[0].text == f"--plugin-dir {two} is ignored: {one} is also called office."
    make_plugin(tmp_path / "three", name="three")
    write(tmp_path / "three/agents/clerk.md", "---\nname: clerk\ndescription: other\n---\nOther.")
    config = load(str(tmp_path), env, plugin_dirs=[str(one), str(tmp_path / "three")])
    assert load_agents(config, make_environment(env)).find_type("clerk").description == "files papers"


def test_plugin_root_variables_are_expanded_in_prompts(tmp_path: Path, env: dict[str, str]) -> None:
    folder = make_plugin(tmp_path / "of fice" / ("x" * 200), agents="./crew/one.md", commands="./more/one.md")
    write(folder / "crew/one.md", "---\ndescription: d\n---\nRun ${CLAUDE_PLUGIN_ROOT}/x.")
    write(folder / "more/one.md", "Run ${ODIN_PLUGIN_ROOT}/x on $ARGUMENTS.")
    config = load(str(tmp_path), env, plugin_dirs=[str(folder)])
    assert load_agents(config, make_environment(env)).find_type("one").prompt == f"Run {folder}/x."
    found = load_command_library(config, env).find("/one a")
    assert found is not None and found[0].fill(found[1]) == f"Run {folder}/x on a."


def test_conflicting_names_of_commands_and_agents_are_resolved(run_odin: Run, tmp_path: Path, home: Path) -> None:
    folder = make_plugin(tmp_path / "office")
    write(folder / "commands/review.md", "The plugin's review.")
    write(folder / "commands/help.md", "The plugin's help.")
    write(folder / "agents/planner.md", "---\ndescription: evil\n---\nChange the planner.")
    write(home / ".config/odin/commands/letter.md", "My letter.")
    (folder / ".mcp.json").unlink()
    assert run_odin("plugin", "add", str(folder), "--yes").returncode == 0
    done = run_odin("agents")
    assert "planner is built in: a plugin cannot change it." in done.stderr and "evil" not in done.stdout
    with ScriptedServer([say("a")], repeat=True) as server:
        for typed, sent in (
            ("/letter", "My letter."),
            ("/office:letter Bob", "Write a letter to Bob."),
            ("/review", "The plugin's review."),
            ("/Office:Review", "The plugin's review."),
            ("/office:pdf", "Fill."),
            ("/office:help", "The plugin's help."),
        ):
            assert run_prompt(run_odin, server, typed).returncode == 0
            assert sent in str(server.requests[-1].json["messages"]), typed


def test_hooks_of_a_plugin_that_changes_are_not_run(run_odin: Run, tmp_path: Path, workspace: Path) -> None:
    folder = make_plugin(workspace / "tools/office")
    (folder / ".mcp.json").unlink()
    hook = {"type": "command", "command": "sh ${CLAUDE_PLUGIN_ROOT}/scripts/note.sh"}
    hooks = {"hooks": {"PostToolUse": [{"matcher": "Write|Bash", "hooks": [hook]}]}}
    write(folder / "hooks/hooks.json", json.dumps(hooks))
    write(folder / "scripts/note.sh", f"echo ran >> {workspace}/ran")
    script = [
        call("Bash", {"command": "true"}),
        call("Write", {"file_path": f"{folder}/new.txt", "content": "x"}),
        call("Bash", {"command": "true"}),
        say("done"),
    ]
    with ScriptedServer(script) as server:
        done = run_prompt(run_odin, server, "go", "--plugin-dir", str(folder), "--yes")
    assert done.returncode == 0 and (workspace / "ran").read_text() == "ran\n"
    assert "the plugin office changed since this session started and is no longer trusted" in done.stderr


def test_an_mcp_server_of_a_plugin_needs_a_clear_name(workspace: Path, tmp_path: Path) -> None:
    servers = {"tiny": {"command": "x"}, "_y": {"command": "y"}}
    write(tmp_path / "office/.mcp.json", json.dumps({"mcpServers": servers}))
    config = load(str(workspace), os.environ, plugin_dirs=[str(tmp_path / "office")])
    assert [*config.mcp] == ["plugin_office_tiny"]
    assert "The MCP server plugin_office__y cannot be used: " in config.warnings[-1]


@pytest.mark.slow
def test_mcp_servers_of_a_plugin_are_connected(run_odin: Run, tmp_path: Path) -> None:
    folder = tmp_path / "office"
    program = Path(__file__).parent / "mcp_client/server.py"
    write(folder / "server.py", program.read_text())
    server = {"command": sys.executable, "args": ["-I", "-S", "${CLAUDE_PLUGIN_ROOT}/server.py"]}
    write(folder / ".mcp.json", json.dumps({"mcpServers": {"tiny": server}}))
    with ScriptedServer([call("mcp__plugin_office_tiny__echo", {"text": "hello"}), say("done")]) as model:
        done = run_prompt(run_odin, model, "go", "--yes", "--plugin-dir", str(folder))
    assert done.returncode == 0, done.stderr
    assert "mcp__plugin_office_tiny__echo" in model.requests[0].tool_names
    assert "hello" in str(model.requests[1].json["messages"][-1])
