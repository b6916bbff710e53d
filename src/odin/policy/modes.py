"""Modes and permission modes.

A *mode* (ask, plan, edit) belongs to one prompt and decides which kinds of tools are available. A *permission mode*
belongs to the session and decides which calls run without approval. Code tests the properties of a `ModeSpec`, never
the name of a mode.
"""

from typing import Any, Literal, cast, get_args

from msgspec import Struct

from odin.core.errors import UnknownMode, UsageError
from odin.core.event_values import Mode
from odin.core.text import list_choices, suggest_similar
from odin.core.tool import Kind, Tool

PermissionMode = Literal["default", "acceptEdits", "auto", "dontAsk", "bypassPermissions"]

PERMISSION_MODES: tuple[PermissionMode, ...] = get_args(PermissionMode)

_BASE_KINDS: tuple[Kind, ...] = ("read", "execute", "network", "interactive")


class ModeSpec(Struct, frozen=True):
    """One mode: the kinds of tools it offers and the section of the system prompt that describes it.

    Without `allows_changes`, only read-only commands run without approval.
    """

    mode: Mode
    short_name: str
    kinds: tuple[Kind, ...]
    allows_changes: bool
    prompt_section: str

    def allows_kind(self, kind: Kind) -> bool:
        return kind in self.kinds

    def allows_tool(self, tool: Tool[Any]) -> bool:
        return tool.kind in self.kinds and (not tool.modes or self.mode in tool.modes)


ASK = ModeSpec("ask_mode", "ask", _BASE_KINDS, allows_changes=False, prompt_section="ask")
PLAN = ModeSpec("plan_mode", "plan", _BASE_KINDS, allows_changes=False, prompt_section="plan")
EDIT = ModeSpec("edit_mode", "edit", (*_BASE_KINDS, "edit"), allows_changes=True, prompt_section="edit")

MODES: tuple[ModeSpec, ...] = (ASK, PLAN, EDIT)

_BY_NAME = {name: spec for spec in MODES for name in (spec.mode, spec.short_name)}


def get_mode_spec(mode: str) -> ModeSpec:
    """Return the mode with this wire name (`ask_mode`) or short name (`ask`), in any case."""
    spec = _BY_NAME.get(mode.strip().lower())
    if spec is None:
        raise UnknownMode(mode)
    return spec


def parse_mode(text: str) -> Mode:
    """Return the wire name of a mode as the user wrote it."""
    return get_mode_spec(text).mode


_PERMISSION_BY_NAME = {name.lower(): name for name in PERMISSION_MODES}


def parse_permission_mode(text: str) -> PermissionMode:
    """Return the permission mode with this name, in any case. Raises UsageError if it is unknown."""
    if is_plan_alias(text):
        raise UsageError("plan is a mode, not a permission mode.", "Use --mode plan, /plan, or the setting mode.")
    mode = _PERMISSION_BY_NAME.get(text.strip().lower().replace("-", "").replace("_", ""))
    if mode is None:
        raise UsageError(
            f"Unknown permission mode {text!r}.{suggest_similar(text, PERMISSION_MODES)}",
            f"Use {list_choices(PERMISSION_MODES)}.",
        )
    return cast("PermissionMode", mode)


def is_plan_alias(permission_mode: str) -> bool:
    """True for `plan`, which other agents have as a permission mode. It selects plan mode."""
    return permission_mode.strip().lower() == PLAN.short_name


def split_plan_alias(mode: str, permission_mode: str) -> tuple[str, str]:
    """Return the mode and the permission mode that two flags select. The second flag may be `plan`.

    Raise UsageError if the flags contradict each other.
    """
    if not is_plan_alias(permission_mode):
        return mode, permission_mode
    if mode and get_mode_spec(mode) is not PLAN:
        raise UsageError(f"--permission-mode plan selects plan mode, but --mode is {mode}.", "Use only one of them.")
    return PLAN.mode, "default"
