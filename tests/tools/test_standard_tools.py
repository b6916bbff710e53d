"""The standard tools as a set: order, size, schemas, targets and side effects."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from odin.tools.agent import AgentTool
from odin.tools.web import WebFetchTool, WebSearchTool
from tests.tools.toolbox import Toolbox

REQUIRED = {
    "LS": ["path"],
    "Read": ["file_path"],
    "Grep": ["pattern"],
    "Glob": ["pattern"],
    "ExecuteCommand": ["command"],
    "Spawn": ["command"],
    "SpawnStatus": [],
    "SpawnStop": ["id"],
    "TodoWrite": ["todos"],
    "Question": ["questions"],
    "SaveArtifact": ["content", "name"],
    "ReadArtifact": [],
    "WriteFile": ["content", "file_path"],
    "EditTool": ["file_path", "new_string", "old_string"],
    "MultiEditTool": ["edits", "file_path"],
    "apply_patch": ["input"],
    "Delete": ["paths", "reason"],
    "AppendFile": ["content", "file_path"],
}

GREP_FIELDS = {
    "pattern": "string",
    "path": "string",
    "glob": "string",
    "type": "string",
    "output_mode": "string",
    "-n": "boolean",
    "-i": "boolean",
    "-A": "number",
    "-B": "number",
    "-C": "number",
    "head_limit": "number",
    "multiline": "boolean",
}


def test_the_order_never_changes(workspace: Path) -> None:
    assert list(Toolbox(workspace).tools) == list(REQUIRED)


def test_all_specs_together_stay_small(workspace: Path) -> None:
    """The first request with its system prompt must fit in 10 kB; these tools may take 6.2 of them."""
    specs = [tool.build_spec() for tool in Toolbox(workspace).tools.values() if tool.offered]
    assert len(msgspec.json.encode(specs)) <= 6200


def test_brief_specs_are_smaller_and_lose_no_field(workspace: Path) -> None:
    tools = Toolbox(workspace).tools.values()
    whole = len(msgspec.json.encode([tool.build_spec() for tool in tools]))
    assert len(msgspec.json.encode([tool.build_spec(brief=True) for tool in tools])) < whole * 0.87
    for tool in tools:
        full, brief = tool.build_spec(), tool.build_spec(brief=True)
        assert len(msgspec.json.encode(brief)) <= len(msgspec.json.encode(full))
        assert list(brief.schema["properties"]) == list(full.schema["properties"])
        assert brief.description.count(".") == 1, "one sentence"


def _find_objects(schema: Any) -> list[dict[str, Any]]:
    if isinstance(schema, list):
        return [found for item in schema for found in _find_objects(item)]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(schema, dict):
        return []
    node: dict[str, Any] = schema  # pyright: ignore[reportUnknownVariableType]
    inner = [found for value in node.values() for found in _find_objects(value)]
    return [node, *inner] if node.get("type") == "object" else inner


@pytest.mark.parametrize("name", list(REQUIRED))
def test_schemas_require_what_the_specification_requires_and_forbid_the_rest(name: str, workspace: Path) -> None:
    schema = Toolbox(workspace).tools[name].build_spec().schema
    assert sorted(schema.get("required", [])) == REQUIRED[name]
    for node in _find_objects(schema):
        assert node["additionalProperties"] is False
    json.dumps(schema)


def test_grep_keeps_the_fields_of_the_specification(workspace: Path) -> None:
    properties = Toolbox(workspace).tools["Grep"].build_spec().schema["properties"]
    assert {name: properties[name]["type"] for name in GREP_FIELDS} == GREP_FIELDS
    assert set(properties["output_mode"]["enum"]) == {"content", "files_with_matches", "count"}


@pytest.mark.parametrize(
    ("name", "args", "field"),
    [
        ("Read", {"file_path": "/x", "lines": 3}, "lines"),
        ("Read", {"file_path": 3}, "file_path"),
        ("Read", {}, "file_path"),
        ("MultiEditTool", {"file_path": "/x", "edits": []}, "edits"),
        ("MultiEditTool", {"file_path": "/x", "edits": [{"old_string": "a", "new_string": "b", "x": 1}]}, "x"),
        ("TodoWrite", {"todos": [{"id": "1", "content": "", "status": "pending"}]}, "content"),
        ("TodoWrite", {"todos": [{"id": "1", "content": "a", "status": "done"}]}, "done"),
    ],
)
def test_the_error_for_wrong_arguments_names_the_field(
    name: str, args: dict[str, Any], field: str, workspace: Path
) -> None:
    with pytest.raises(msgspec.ValidationError, match=field):
        Toolbox(workspace).tools[name].parse(args)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("LS", {"path": "src"}),
        ("Read", {"file_path": "src/a.py"}),
        ("Grep", {"pattern": "x", "path": "src"}),
        ("Glob", {"pattern": "*", "path": "src"}),
        ("WriteFile", {"file_path": "src/a.py", "content": "x"}),
        ("EditTool", {"file_path": "src/a.py", "old_string": "a", "new_string": "b"}),
        ("MultiEditTool", {"file_path": "src/a.py", "edits": [{"old_string": "a", "new_string": "b"}]}),
        ("AppendFile", {"file_path": "./src/a.py", "content": "x"}),
        ("Delete", {"paths": ["src/../src/a.py"], "reason": "r"}),
    ],
)
async def test_a_relative_path_starts_at_the_working_directory(name: str, args: dict[str, Any], box: Toolbox) -> None:
    box.write("src/a.py", "a x\n")
    await box.ok("Read", file_path="src/a.py")
    output = await box.ok(name, **args)
    assert str(box.folder / "src") in output.text + output.note
    if box.tools[name].kind == "edit":
        assert not (box.folder / "src/a.py").exists() or (box.folder / "src/a.py").read_text() != "a x\n"


def test_subjects_name_the_paths_and_commands_for_the_rules(workspace: Path) -> None:
    tools = Toolbox(workspace).tools

    def target(name: str, **args: Any) -> Any:
        return tools[name].get_target(tools[name].parse(args))

    assert target("Read", file_path="/a").paths == ("/a",)
    assert target("Glob", pattern="/etc/**/*.conf").paths == ("/etc",)
    assert target("Grep", pattern="x").paths == ()
    assert target("ExecuteCommand", command="ls").command == "ls"


def test_every_tool_declares_its_side_effect(workspace: Path) -> None:
    """TOOL3. A sub-agent has the tools of its mode, so it may change files; stopping a process is not read-only."""
    others = [kind.__new__(kind) for kind in (WebFetchTool, WebSearchTool, AgentTool)]
    found: dict[str, list[str]] = {}
    for tool in (*Toolbox(workspace).tools.values(), *others):
        found.setdefault(tool.side_effect, []).append(tool.name)
    assert found == {
        "read_only": ["LS", "Read", "Grep", "Glob", "SpawnStatus"],
        "blocking": ["ExecuteCommand", "Spawn", "SpawnStop"],
        "none": ["TodoWrite", "Question", "SaveArtifact", "ReadArtifact"],
        "mutating": ["WriteFile", "EditTool", "MultiEditTool", "apply_patch", "Delete", "AppendFile", "AgentTool"],
        "network": ["WebFetch", "WebSearch"],
    }
