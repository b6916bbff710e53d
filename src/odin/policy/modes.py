"""What each mode allows, as values: the code asks the value and never the name of the mode.

Two words that sound alike: a *mode* (ask, plan, edit) belongs to one message and says which kinds of tools exist at
all; a *permission mode* belongs to the session and says what runs without a question.
"""

from typing import Any, Literal, cast, get_args

from msgspec import Struct

from odin.core.errors import UnknownMode, UsageError
from odin.core.event import Mode
from odin.core.tool import Kind, Tool

PermissionMode = Literal["default", "acceptEdits", "plan", "dontAsk", "bypassPermissions"]

PERMISSION_MODES: tuple[PermissionMode, ...] = get_args(PermissionMode)

_BASE_KINDS: tuple[Kind, ...] = ("read", "execute", "network", "talk")


class ModeSpec(Struct, frozen=True):
    """One mode: which kinds of tools it shows, and which section of the prompt describes it.

    With `changes` false only commands that provably change nothing run without a question.
    """

    mode: Mode
    short_name: str
    kinds: tuple[Kind, ...]
    allows_changes: bool
    prompt_section: str

    def allows_kind(self, kind: Kind) -> bool:
        return kind in self.kinds

    def allows_tool(self, tool: Tool[Any]) -> bool:
        return tool.kind in self.kinds


ASK = ModeSpec("ask_mode", "ask", _BASE_KINDS, allows_changes=False, prompt_section="ask")
PLAN = ModeSpec("plan_mode", "plan", _BASE_KINDS, allows_changes=False, prompt_section="plan")
EDIT = ModeSpec("edit_mode", "edit", (*_BASE_KINDS, "edit"), allows_changes=True, prompt_section="edit")

MODES: tuple[ModeSpec, ...] = (ASK, PLAN, EDIT)

_BY_NAME = {name: spec for spec in MODES for name in (spec.mode, spec.short_name)}


def spec_of(mode: str) -> ModeSpec:
    """The mode of that name, in its wire form (`ask_mode`) or its short one (`ask`), in any case."""
    spec = _BY_NAME.get(mode.strip().lower())
    if spec is None:
        raise UnknownMode(mode)
    return spec


def mode_of(text: str) -> Mode:
    """The wire value of a mode that a person wrote."""
    return spec_of(text).mode


_PERMISSION_BY_NAME = {name.lower(): name for name in PERMISSION_MODES}


def permission_mode_of(text: str) -> PermissionMode:
    """The permission mode a person wrote, in any case; an unknown one is refused."""
    found = _PERMISSION_BY_NAME.get(text.strip().lower().replace("-", "").replace("_", ""))
    if found is None:
        known = ", ".join(PERMISSION_MODES)
        raise UsageError(f"There is no permission mode {text!r}.", f"Use one of: {known}.")
    return cast("PermissionMode", found)
