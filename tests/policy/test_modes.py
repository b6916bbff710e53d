"""Modes and permission modes: their names, aliases and tools."""

from typing import Any, get_args

import pytest

from odin.core.errors import UnknownMode, UsageError
from odin.core.event_values import Mode
from odin.core.tool import Args, Kind, Tool, ToolContext, ToolOutput
from odin.policy.modes import (
    MODES,
    PERMISSION_MODES,
    get_mode_spec,
    parse_mode,
    parse_permission_mode,
    split_plan_alias,
)
from tests.table import each


class _Probe(Tool[Args]):
    name = "Probe"
    short = "Probe."
    args = Args

    async def run(self, args: Args, ctx: ToolContext) -> ToolOutput:
        return ToolOutput("")


def make_tool(kind: Kind) -> Tool[Any]:
    class ToolOfKind(_Probe):
        kind: Kind

    ToolOfKind.kind = kind
    return ToolOfKind()


def test_every_mode_of_the_protocol_has_a_spec():
    assert tuple(spec.mode for spec in MODES) == get_args(Mode)


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("ask", "ask_mode"),
        ("ask_mode", "ask_mode"),
        ("PLAN", "plan_mode"),
        (" plan_mode ", "plan_mode"),
        ("edit", "edit_mode"),
        ("edit_mode", "edit_mode"),
    ],
)
def test_short_and_full_mode_names_are_accepted(text: str, mode: str):
    assert parse_mode(text) == mode
    assert get_mode_spec(text).mode == mode


@pytest.mark.parametrize("text", ["", "yolo", "ask_mod", "mode", "editmode", "ask,plan"])
def test_error_for_an_unknown_mode_lists_the_known_ones(text: str):
    with pytest.raises(UnknownMode) as caught:
        parse_mode(text)
    assert caught.value.exit_code == 2
    assert "ask, plan or edit" in caught.value.describe()


@pytest.mark.parametrize("mode", ["ask", "plan"])
def test_ask_and_plan_mode_offer_all_tools_except_edit_tools(mode: str):
    spec = get_mode_spec(mode)
    assert [kind for kind in get_args(Kind) if spec.allows_kind(kind)] == ["read", "execute", "network", "interactive"]
    assert not spec.allows_changes
    assert not spec.allows_tool(make_tool("edit"))
    assert spec.allows_tool(make_tool("interactive"))


def test_edit_mode_offers_tools_of_every_kind():
    assert all(get_mode_spec("edit").allows_tool(make_tool(kind)) for kind in get_args(Kind))
    assert get_mode_spec("edit").allows_changes


@pytest.mark.parametrize("mode", PERMISSION_MODES)
def test_permission_modes_are_accepted_in_any_case(mode: str):
    assert parse_permission_mode(mode) == mode
    assert parse_permission_mode(mode.upper()) == mode


def test_permission_modes_may_be_written_with_dashes():
    assert parse_permission_mode("accept-edits") == "acceptEdits"


def test_error_for_an_unknown_permission_mode_lists_the_known_ones():
    with pytest.raises(UsageError, match="'always'") as caught:
        parse_permission_mode("always")
    assert all(mode in caught.value.hint for mode in PERMISSION_MODES)


@each(
    ("mode", "permission_mode", "both"),
    [
        ("", "", ("", "")),
        ("ask", "acceptEdits", ("ask", "acceptEdits")),
        ("", "plan", ("plan_mode", "default")),
        ("plan", " Plan ", ("plan_mode", "default")),
        ("edit", "plan", None),
    ],
)
def test_plan_as_a_permission_mode_selects_plan_mode(mode: str, permission_mode: str, both: Any) -> None:
    if both is None:
        with pytest.raises(UsageError, match="--permission-mode plan selects plan mode, but --mode is edit"):
            split_plan_alias(mode, permission_mode)
    else:
        assert split_plan_alias(mode, permission_mode) == both


def test_plan_is_not_a_permission_mode() -> None:
    with pytest.raises(UsageError, match="plan is a mode, not a permission mode"):
        parse_permission_mode("plan")
