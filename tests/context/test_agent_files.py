"""Agent files: their keys, their precedence, and how mistakes are reported."""

from pathlib import Path
from typing import Any

import pytest

from odin.app.roles import find_rule_problems, make_rules
from odin.context.agent_definition import AgentCatalog, AgentDefinition
from odin.context.agent_files import AgentFolder, load_agent_catalog
from odin.core.errors import UsageError
from odin.core.server_tool import ServerTool
from tests.table import each

CLAUDE_FILE = """\
---
name: code-reviewer
description: Use this agent when code was written. Examples: <example>Context: a change. user: "Review: it" </example>
tools: Read, Grep, Glob, Bash, NotebookEdit, mcp__github__get_issue
model: sonnet
color: purple
memory: project
---

You are a senior code reviewer.

1. Run git diff.
"""


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def load(*folders: Path, given: str = "") -> AgentCatalog:
    places = [AgentFolder(str(folder), "project" if at else "user") for at, folder in enumerate(folders)]
    return load_agent_catalog(places, given=given, check_rules=find_rule_problems)


def find(catalog: AgentCatalog, name: str) -> AgentDefinition:
    return next(item for item in catalog.list_all() if item.name == name)


def test_a_file_of_claude_code_works_unchanged(tmp_path: Path) -> None:
    path = write(tmp_path / "code-reviewer.md", CLAUDE_FILE)
    catalog = load(tmp_path)
    assert catalog.problems == ()
    found = catalog.find_type("code-reviewer")
    assert found.tools == ("Read", "Grep", "Glob", "ExecuteCommand", "mcp__github__get_issue")
    assert found.description.startswith("Use this agent when code was written. Examples: <example>Context: a change.")
    assert found.prompt == "You are a senior code reviewer.\n\n1. Run git diff."
    assert (found.model, found.color, found.use, found.source, found.path) == (
        "sonnet",
        "purple",
        "subagent",
        "user",
        str(path),
    )


@each(
    "written, servers",
    [
        ("mcpServers:\n  - github\n  - web:\n      url: https://x.example\n", {"github": None, "web": {"url": "https://x.example"}}),
        ("mcp_servers:\n  own:\n    command: serve\n    args: [a]\n", {"own": {"command": "serve", "args": ["a"]}}),
        ("mcpServers: github, my.server\n", {"github": None, "my.server": None}),
        ("mcpServers:\n  - github:\n", {"github": None}),
    ],
)  # fmt: skip
def test_mcp_servers_of_an_agent_are_named_or_defined(tmp_path: Path, written: str, servers: dict[str, Any]) -> None:
    write(tmp_path / "a.md", f"---\nname: a\ntools: Read\ndisallowedTools: mcp__github__delete\n{written}---\nHelp.\n")
    catalog = load(tmp_path)
    assert catalog.problems == ()
    found = catalog.find_type("a")
    assert found.servers == servers
    uses = [*(ServerTool(name, "get") for name in servers), ServerTool("github", "delete"), ServerTool("other", "get")]
    assert [found.has_tool(use.public_name, use) for use in uses] == [*(True for _ in servers), False, False]
    assert [found.has_tool(name) for name in ("McpCall", "Bash")] == [True, False]
    assert not found.has_tool("ReadMcpResource", ServerTool("github__delete")), "what is denied may mean this server"


def test_plugin_agent_cannot_define_an_mcp_server(tmp_path: Path) -> None:
    write(tmp_path / "a.md", "---\nname: a\nmcpServers:\n  - web\n  - own:\n      command: serve\n---\nHelp.\n")
    catalog = load_agent_catalog([AgentFolder(str(tmp_path), "plugin")])
    assert catalog.find_type("a").servers == {"web": None}
    assert [problem.text for problem in catalog.problems] == [
        "The MCP server 'own' is ignored: write it into the plugin's .mcp.json."
    ]


def test_every_key_of_an_agent_file_is_read(tmp_path: Path) -> None:
    write(
        tmp_path / "docs.md",
        "---\ndescription: writes docs\nmode: all\nmodel: inherit\npermission-mode: acceptEdits\nread_only: no\n"
        "write-scope: [docs/, README.md]\nisolation: worktree\ncolor: '#AAbb00'\nidle-time: 30\nmax-turns: 7\n"
        "cwd: ./docs\nvenv: docs/.venv\ninstructions: docs/AGENTS.md\n"
        "delegation:\n  max_children: 3\n  max-depth: 2\n  child_join: false\n"
        "disallowedTools: [WebFetch]\nrules:\n  Bash:\n    '*': deny\n    git log *: allow\n  Edit: ask\n---\nWrite.",
    )
    catalog = load(tmp_path)
    assert catalog.problems == ()
    found = find(catalog, "docs")
    assert (found.use, found.model, found.permission_mode, found.read_only) == ("all", "", "acceptEdits", False)
    assert (found.write_scope, found.isolation, found.color) == (("docs", "README.md"), "worktree", "#aabb00")
    assert (found.cwd, found.venv, found.instructions) == ("docs", "docs/.venv", ("docs/AGENTS.md",))
    assert found.delegation == {"max_children": 3, "max_depth": 2, "child_join": False}
    assert (found.idle_s, found.max_turns, found.denied_tools) == (30.0, 7, ("WebFetch",))
    assert [(rule.action, rule.text) for rule in make_rules(found)] == [
        ("deny", "Bash"),
        ("allow", "Bash(git log *)"),
        ("ask", "Edit(**)"),
    ]
    assert found.has_tool("Read") and not found.has_tool("web_fetch")


@each(
    ("front", "line", "words", "used"),
    [
        ("name: a\nmodell: x", 3, "Unknown key 'modell' is ignored. Did you mean model?", True),
        ("name: a\ntools: Read, Grepp", 3, "Unknown tool 'Grepp' is ignored. Did you mean Grep?", True),
        ("name: a\ntools:\n  - Read\n  - Bash(git:*)", 5, "Bash(git:*) is ignored: a tool has no pattern here.", True),
        ("name: a\ntools: {Read: yes}", 3, "tools must be a list of tools", False),
        ("name: a\nmode: maine", 3, "Unknown value 'maine' for mode. Use main, subagent or all.", False),
        ("name: a\nread-only: perhaps", 3, "Unknown value 'perhaps' for read-only.", False),
        ("name: a\nisolation: vm", 3, "Use none or worktree.", False),
        ("name: a\npermission-mode: yolo", 3, "Unknown value 'yolo' for permission-mode.", False),
        ("name: a\nwrite-scope: ../other", 3, "'../other' is not a path inside the project.", False),
        ("name: a\nwrite-scope: /etc", 3, "'/etc' is not a path inside the project.", False),
        ("name: a\ncolor: beige", 3, "Unknown color 'beige'.", True),
        ("name: a\nidle-time: soon", 3, "idle-time must be a number of seconds, not 'soon'.", True),
        ("name: a\nmax-turns: -1", 3, "max-turns must be a number of requests", True),
        ("name: a\ndescription: [a, b]", 3, "description must be a text.", True),
        ("name: a\nrules: 7", 3, "rules must be allow, ask or deny", False),
        ("name: a\nrules:\n  Bash: maybe", 4, "rules.Bash is ignored: it must be one of allow, ask, deny.", True),
        ("name: a\nrules:\n  - Read\n  - '!!'", 5, "rules[1] is ignored:", True),
        ("name: a\nrules: {Bash: [", 3, "rules is not valid YAML:", False),
        ("name: a\nmcpServers: [{x: y}]", 3, "mcpservers must be a list of MCP servers: names, or", True),
        ("name: a\nmode: main\nmcpServers: x", 4, "mcpServers is ignored: only sub-agents have servers", True),
        ("name: a\ncwd: /tmp", 3, "cwd: '/tmp' is not a path inside the project. cwd is ignored.", True),
        ("name: a\nvenv: [x]", 3, "venv: \"['x']\" is not a path inside the project.", True),
        ("name: a\ninstructions: ../x", 3, "instructions: '../x' is not a path inside the project.", True),
        ("name: a\ndelegation: 3", 3, "delegation must be a mapping of max_children, max_depth or child_join.", False),
        ("name: a\ndelegation:\n  max_depth: deep", 4, "delegation.max_depth must be a number of levels", False),
        ("name: a\ndelegation:\n  child_join: perhaps", 4, "Unknown value 'perhaps'", False),
        ("name: a\ndelegation:\n  max_child: 3", 4, "Did you mean max_children?", True),
        ("name: two words", 2, "'two words' is not a name", False),
        ("name: a\nname: A", 3, "name is written twice.", True),
        ("name: a\njust text", 3, "'just text' is not `key: value`.", True),
    ],
)
def test_a_mistake_is_reported_with_file_and_line(
    tmp_path: Path, front: str, line: int, words: str, used: bool
) -> None:
    path = write(tmp_path / "a.md", f"---\n{front}\n---\nPrompt.")
    catalog = load(tmp_path)
    assert [(item.path, item.line) for item in catalog.problems] == [(str(path), line)]
    assert words in catalog.problems[0].text
    assert catalog.problems[0].describe().startswith(f"{path}:{line}: ")
    own = [item for item in catalog.list_all() if item.source != "built-in"]
    assert bool(own) == used


@each(
    ("text", "words"),
    [
        ("---\nname: a\n---\n\n", "The prompt is empty. This agent is ignored."),
        ("Only text.", "It has no front matter"),
        ("---\nname: a\n", "It has no front matter"),
    ],
)
def test_file_without_prompt_or_front_matter_is_ignored(tmp_path: Path, text: str, words: str) -> None:
    write(tmp_path / "a.md", text)
    write(tmp_path / "README.md", "About these agents.")
    catalog = load(tmp_path)
    assert [words in item.text for item in catalog.problems] == [True]
    assert all(item.source == "built-in" for item in catalog.list_all())


def test_second_file_with_the_same_agent_name_is_ignored(tmp_path: Path) -> None:
    write(tmp_path / "a" / "twin.md", "---\nname: twin\n---\nFirst.")
    second = write(tmp_path / "b" / "twin.md", "---\ndescription: x\nname: Twin\n---\nSecond.")
    catalog = load(tmp_path)
    assert catalog.find_type("twin").prompt == "First."
    assert catalog.problems[0].describe() == (
        f"{second}:3: The name Twin is already used in {tmp_path / 'a' / 'twin.md'}. This file is ignored."
    )


def test_agents_can_be_yaml_files(tmp_path: Path) -> None:
    text = "name: helper\ndescription: Helps.\ntools: [Read, Grep]\nprompt: |\n  Help.\n  Twice.\n"
    write(tmp_path / "helper.yaml", text)
    second = write(tmp_path / "helper.yml", text)
    empty = write(tmp_path / "no.yaml", "description: x\n")
    catalog = load(tmp_path)
    found = catalog.find_type("helper")
    assert (found.prompt, found.description, found.tools) == ("Help.\nTwice.", "Helps.", ("Read", "Grep"))
    assert [(item.path, item.text.split(".")[0]) for item in catalog.problems] == [
        (str(second), f"The name helper is already used in {tmp_path}/helper"),
        (str(empty), "The prompt is empty"),
    ]


def test_an_agent_that_is_not_called_like_its_file_is_reported(tmp_path: Path) -> None:
    path = write(tmp_path / "filename.md", "---\nname: other-name\n---\nHelp.")
    catalog = load(tmp_path)
    assert find(catalog, "other-name").prompt == "Help."
    assert [item.describe() for item in catalog.problems] == [
        f"{path}:2: The file is called filename, and its agent other-name. Give both the same name."
    ]


def test_project_agents_replace_user_agents_and_both_replace_built_in_ones(tmp_path: Path) -> None:
    user, project = tmp_path / "user", tmp_path / "project"
    write(user / "helper.md", "---\ndescription: user's\ntools: Read\n---\nU.")
    write(user / "explore.md", "---\nmodel: small\n---\n")
    write(project / "helper.md", "---\ndescription: project's\n---\nP.")
    catalog = load(user, project)
    assert catalog.problems == ()
    helper, explore = catalog.find_type("helper"), catalog.find_type("EXPLORE")
    assert (helper.prompt, helper.description, helper.tools, helper.source) == ("P.", "project's", None, "project")
    assert (explore.model, explore.read_only, explore.source) == ("small", True, "user")
    assert explore.prompt and explore.description


def test_agents_of_the_command_line_replace_all_others(tmp_path: Path) -> None:
    write(tmp_path / "helper.md", "---\ndescription: file\n---\nFile.")
    given = '{"helper": {"description": "d", "prompt": "Flag.", "tools": ["Read"], "model": "haiku", "maxTurns": 3}}'
    found = load(tmp_path, given=given).find_type("helper")
    assert (found.prompt, found.tools, found.model, found.max_turns) == ("Flag.", ("Read",), "haiku", 3)
    assert found.source == "flag"


@each(
    ("given", "words"),
    [
        ("{", "--agents: It is not valid JSON"),
        ("[]", "--agents: It must be an object"),
        ('{"a": "b"}', "--agents a: It must be an object with description and prompt."),
        ('{"a": {"description": "d"}}', "--agents a: The prompt is empty. This agent is ignored."),
        ('{"a": {"prompt": "p", "tools": "Rread"}}', "--agents a: Unknown tool 'Rread' is ignored. Did you mean Read?"),
    ],
)
def test_mistake_in_the_agents_flag_is_reported(given: str, words: str) -> None:
    assert load(given=given).problems[0].describe().startswith(words)


def test_types_and_roles_are_found_by_name() -> None:
    catalog = AgentCatalog()
    assert [item.name for item in catalog.list_types()] == ["explore", "general"]
    assert [item.name for item in catalog.list_roles()] == ["builder", "planner"]
    assert catalog.describe_types().startswith("- explore: Searches")
    assert catalog.find_type("explore").restrict_mode("edit_mode") == "ask_mode"
    assert catalog.find_type("general").restrict_mode("edit_mode") == "edit_mode"


@each(
    ("kind", "name", "message"),
    [
        (
            "find_type",
            "exlpore",
            "There is no sub-agent type 'exlpore'. Did you mean explore? The types are: explore, general.",
        ),
        (
            "find_type",
            "planner",
            "planner is a role of the main agent, not a type of sub-agent. The types are: explore, general.",
        ),
        ("find_type", "", "There is no sub-agent type ''. The types are: explore, general."),
        ("find_role", "buidler", "There is no role 'buidler'. Did you mean builder? The roles are: builder, planner."),
        ("find_role", "explore", "explore is a type of sub-agent, not a role. The roles are: builder, planner."),
    ],
)
def test_error_for_an_unknown_name_lists_the_known_ones(kind: str, name: str, message: str) -> None:
    search: Any = getattr(AgentCatalog(), kind)
    with pytest.raises(UsageError) as raised:
        search(name)
    assert raised.value.describe() == message


def test_roles_come_in_a_fixed_order(tmp_path: Path) -> None:
    for name, mode in (("Zeta", "main"), ("alpha", "all"), ("hidden", "subagent")):
        write(tmp_path / f"{name}.md", f"---\nmode: {mode}\n---\nP.")
    catalog = load(tmp_path)
    assert [item.name for item in catalog.list_roles()] == ["builder", "planner", "alpha", "Zeta"]
    assert [item.name for item in catalog.list_types()] == ["alpha", "explore", "general", "hidden"]


def test_a_link_out_of_the_project_is_not_followed(tmp_path: Path) -> None:
    secret = write(tmp_path / "secret.md", "---\nname: a\n---\nSecret.")
    folder = tmp_path / "project/.odin/agents"
    folder.mkdir(parents=True)
    (folder / "a.md").symlink_to(secret)
    catalog = load_agent_catalog([AgentFolder(str(folder), "project", str(tmp_path / "project"))])
    assert "points outside the project" in catalog.problems[0].text
    assert all(item.source == "built-in" for item in catalog.list_all())


def test_missing_files_and_folders_are_reported(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "out").symlink_to("/usr")
    front = "---\ncwd: {}\nvenv: {}\ninstructions:\n  - {}\n---\nWrite."
    write(tmp_path / "agents/good.md", front.format("docs", "env", "docs/AGENTS.md"))
    write(tmp_path / "docs/AGENTS.md", "Be brief.")
    write(tmp_path / "env/bin/python", "")
    write(tmp_path / "agents/wrong.md", front.format("docs/AGENTS.md", "out", "docs"))
    catalog = load_agent_catalog([AgentFolder(str(tmp_path / "agents"), "project", str(tmp_path))])
    assert [(item.line, item.text) for item in catalog.problems] == [
        (2, "cwd: the project has no folder 'docs/AGENTS.md'."),
        (3, "venv: the project has no virtual environment 'out'."),
        (4, "instructions: the project has no file 'docs'."),
    ]
    assert find(catalog, "wrong").venv == "out", "the virtual environment may be created later"


def test_examples_that_are_not_indented_belong_to_the_description(tmp_path: Path) -> None:
    text = (
        "---\nname: reviewer\ndescription: Use it when: code was written.\n\n<example>\nContext: a change\n"
        'user: "review"\n<commentary>\nJust text.\n</commentary>\n</example>\n\nmodel: opus\ntool: Read\n---\nReview.'
    )
    write(tmp_path / "reviewer.md", text)
    catalog = load(tmp_path)
    assert [(item.line, item.text) for item in catalog.problems] == [
        (14, "Unknown key 'tool' is ignored. Did you mean tools?")
    ]
    found = catalog.find_type("reviewer")
    assert found.description.endswith(
        '<example> Context: a change user: "review" <commentary> Just text. </commentary> </example>'
    )
    assert found.model == "opus"
