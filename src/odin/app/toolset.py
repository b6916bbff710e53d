"""Which tools the settings hide, and which names in the settings no tool has."""

from collections.abc import Iterable, Sequence
from typing import Any

from odin.core.registry import ALIASES, canonical_name_of
from odin.core.tool import Tool
from odin.policy.rule.rule import Rule


def find_hidden_tools(tools: Sequence[Tool[Any]], denials: Iterable[Rule], wanted: Iterable[str] | None) -> set[str]:
    """The tools of which every call is denied, or that are not among the wanted ones: no model needs to know them."""
    denied = [rule for rule in denials if rule.bare and not rule.exceptions]
    names = {tool.name for tool in tools if any(rule.matches_tool(tool.name) for rule in denied)}
    if "ExecuteCommand" in names:
        names.add("Spawn")
    if wanted is not None:
        named = {canonical_name_of(name) for name in wanted}
        names |= {tool.name for tool in tools if tool.name not in named}
    return names


def warn_of_unknown_tools(tools: Iterable[Tool[Any]], *given: Iterable[str]) -> list[str]:
    """A warning for every tool that is named somewhere and that nobody knows."""
    known = {*ALIASES, *(tool.name for tool in tools)}
    named = dict.fromkeys(text.partition("(")[0].strip() for texts in given for text in texts)
    strange = [name for name in named if canonical_name_of(name) not in known and "*" not in name and name[:3] != "mcp"]
    return [
        f"There is no tool {name!r}, so the settings that name it do nothing.{_suggest_tool(name)}" for name in strange
    ]


def _suggest_tool(name: str) -> str:
    import difflib

    words = {word.casefold(): word for tool, aliases in ALIASES.items() for word in (*aliases.split(), tool)}
    near = difflib.get_close_matches(name.casefold(), words, n=1)
    return f" Did you mean {canonical_name_of(words[near[0]])}?" if near else ""
