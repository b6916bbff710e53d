"""The tool registry: lookup, aliases, argument parsing and definitions."""

from typing import Annotated, Any, ClassVar, Literal, get_args

import msgspec
import pytest

from odin.core.tool import ALIASES, Args, Kind, Registry, Tool, ToolContext, ToolOutput, get_canonical_name


class Fields(Args, frozen=True):
    path: Annotated[str, msgspec.Meta(description="where")]
    depth: Annotated[int, msgspec.Meta(ge=1)] | None = None
    order: Literal["name", "time"] = "name"
    flag: bool = msgspec.field(default=False, name="-i")


class Look(Tool[Fields]):
    """Look at a place.
    Second line."""

    name = "LS"
    kind = "read"
    short = "Look."
    args: ClassVar[type[Args]] = Fields

    async def run(self, args: Fields, ctx: ToolContext) -> ToolOutput:
        return ToolOutput(args.path)


class Run(Look):
    name = "ExecuteCommand"
    kind = "execute"


def test_tools_are_found_and_listed_in_a_stable_order() -> None:
    registry = Registry([Run()])
    registry.register(Look())
    assert registry.list_names() == ("ExecuteCommand", "LS")
    assert isinstance(registry.get("LS"), Look)
    assert registry.get("nope") is None


def test_a_disabled_tool_is_not_offered_but_still_found() -> None:
    registry = Registry([Look(), Run()], disabled=["Bash"], allowed=["list_dir"])
    assert [item["function"]["name"] for item in registry.build_openai_definitions()] == ["LS"]
    assert isinstance(registry.get("Bash"), Run)
    assert registry.is_disabled("ExecuteCommand")
    assert registry.is_allowed("LS")
    assert not registry.is_allowed("Bash")


class OptInTool(Look):
    name = "AppendFile"
    kind = "edit"
    offered = False


def test_opt_in_tool_is_offered_only_if_opted_in() -> None:
    assert [tool.name for tool in Registry([Look(), OptInTool()]).list_offered()] == ["LS"]
    assert [tool.name for tool in Registry([Look(), OptInTool()], opted_in=["append_file"]).list_offered()] == [
        "LS",
        "AppendFile",
    ]
    assert isinstance(Registry([OptInTool()]).get("append_file"), OptInTool)
    assert Registry([OptInTool()], opted_in=["AppendFile"], disabled=["AppendFile"]).list_offered() == ()


class ToolWithAliases(Look):
    argument_aliases = (("folder", "path"),)


def test_argument_alias_is_accepted_only_without_the_argument_itself() -> None:
    assert ToolWithAliases().parse({"folder": "/a", "depth": 2}) == ToolWithAliases().parse({"path": "/a", "depth": 2})
    for raw in ({"folder": "/a", "path": "/b"}, {"folder": 1}, {"place": "/a"}):
        with pytest.raises(msgspec.ValidationError):
            ToolWithAliases().parse(raw)


def test_definitions_have_the_openai_form_and_a_closed_schema() -> None:
    (definition,) = Registry([Look()]).build_openai_definitions()
    assert definition == {
        "type": "function",
        "function": {
            "name": "LS",
            "description": "Look at a place.\nSecond line.",
            "parameters": {
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "where"},
                    "depth": {"type": "integer", "minimum": 1},
                    "order": {"type": "string", "enum": ["name", "time"]},
                    "-i": {"type": "boolean"},
                },
                "required": ["path"],
                "additionalProperties": False,
            },
        },
    }


EFFECTS: dict[Kind, str] = {
    "read": "read_only",
    "edit": "mutating",
    "execute": "blocking",
    "network": "network",
    "interactive": "none",
}


def test_tool_kind_determines_side_effect_and_safety() -> None:
    """TOOL3. A tool is safe if it changes nothing and sends nothing."""
    tools = [type(f"Tool{kind}", (Look,), {"name": f"Tool{kind}", "kind": kind})() for kind in get_args(Kind)]
    assert {tool.kind: tool.side_effect for tool in tools} == EFFECTS
    assert Registry(tools).list_safe_tools() == ("Toolread", "Toolinteractive")


@pytest.mark.parametrize(
    ("raw", "word"),
    [({}, "path"), ({"path": 1}, "path"), ({"path": "/", "depht": 1}, "depht"), ({"path": "/", "depth": 0}, "depth")],
)
def test_invalid_argument_is_named_in_the_error(raw: dict[str, Any], word: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=word):
        Look().parse(raw)


@pytest.mark.parametrize(
    ("name", "odin"),
    [
        ("Bash", "ExecuteCommand"),
        ("FileRead", "Read"),
        ("Edit", "EditTool"),
        ("read_file", "Read"),
        ("exec", "ExecuteCommand"),
        ("Task", "AgentTool"),
        ("subagent", "AgentTool"),
        ("spawn", "Spawn"),  # a process, not a sub-agent
        ("FileWrite", "WriteFile"),
        ("FileEdit", "EditTool"),
        ("GREP", "Grep"),
        ("Whatever", "Whatever"),
    ],
)
def test_alias_resolves_to_the_canonical_tool_name(name: str, odin: str) -> None:
    assert get_canonical_name(name) == odin


def test_no_alias_belongs_to_two_tools() -> None:
    owners = {
        alias.casefold(): {tool for tool, text in ALIASES.items() if alias.casefold() in text.casefold().split()}
        for text in ALIASES.values()
        for alias in text.split()
    }
    assert {alias for alias, tools in owners.items() if len(tools) > 1} == set()
