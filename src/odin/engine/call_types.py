"""The words of the way to a tool: whose call it is, whether it may run, and why not.

Arguments that somebody changed before a call ran: what was asked for, what ran, and how the model is told.
"""

import json
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from odin.core.errors import Denied, OdinError
from odin.core.event import CallAudit, CallStatus, DiscardReason, Mode
from odin.core.message import ToolCall
from odin.core.tool import Subject, Tool
from odin.engine.repetition import RepetitionGuard
from odin.policy.policy import Verdict


def _return_false() -> bool:
    return False


class CallScope(Struct, frozen=True):
    """Whose call it is and where it runs. `steered` says that calls that have not begun are to be left out."""

    agent: str
    mode: Mode
    cwd: str
    root: str
    guard: RepetitionGuard
    is_steered: Callable[[], bool] = _return_false


class JudgedCall(Struct, frozen=True):
    """A call whose arguments fit and that nothing forbids; the verdict allows it or wants a person to be asked.

    `asked_paths` need an answer; `allowed_paths` of the same call would not. `audit` tells of changed arguments.
    A question that a hook wants is put whatever rules are added meanwhile.
    """

    call: ToolCall
    tool: Tool[Any]
    args: Any
    subject: Subject
    verdict: Verdict
    asked_paths: tuple[str, ...] = ()
    allowed_paths: tuple[str, ...] = ()
    audit: CallAudit | None = None
    asked_by_hook: bool = False


class AdmittedCall(Struct, frozen=True):
    """A call that may run, with the arguments that will really be used."""

    call: ToolCall
    tool: Tool[Any]
    args: Any
    audit: CallAudit | None = None


class RefusedCall(Struct, frozen=True):
    """A call that does not run. `interrupt` says that whoever refused it wants the turn to stop.

    `reason` is why it is discarded when it was begun early. `named` is the error it is: a denied call is `Denied`
    unless it is known more exactly.
    """

    call: ToolCall
    text: str
    status: CallStatus = "error"
    stops_turn: bool = False
    audit: CallAudit | None = None
    reason: DiscardReason = "not_run"
    error_type: type[OdinError] | None = None

    @property
    def error_kind(self) -> str:
        return (self.error_type or Denied).__name__ if self.error_type or self.status == "denied" else ""


def describe_tool_error(tool: Tool[Any], error: Exception) -> str:
    """What the model reads when a tool raised."""
    return f"{tool.name} failed: {str(error) or type(error).__name__}"


_SHORT_CHARS = 300
_DIFF_LINES = 60
_DIFF_CHARS = 4_000
_MAX_COMPARED_CHARS = 100_000
"""Texts together longer than this are not compared line by line."""


def audit_change(original: dict[str, Any], effective: dict[str, Any], by: str, summary: str = "") -> CallAudit | None:
    """None when nothing differs in the end."""
    return CallAudit(original, effective, by, summary) if original != effective else None


def describe_change(audit: CallAudit) -> str:
    """One or more lines for the model: who changed what, with the old and the new."""
    who = "A hook" if audit.by == "hook" else "The user"
    why = f" ({audit.summary})" if audit.summary else ""
    names = [*audit.original, *(name for name in audit.effective if name not in audit.original)]
    changes = [_describe_field(name, audit) for name in names if _differs(name, audit)]
    return f"[{who} changed the arguments of this call{why}: {'; '.join(changes)}.]"


def _differs(name: str, audit: CallAudit) -> bool:
    return (name in audit.original) != (name in audit.effective) or audit.original.get(name) != audit.effective.get(
        name
    )


def _describe_field(name: str, audit: CallAudit) -> str:
    if name not in audit.effective:
        return f"{name} was left out"
    new = audit.effective[name]
    if name not in audit.original:
        return f"{name} = {_shorten_value(new)} was added"
    old = audit.original[name]
    if isinstance(old, str) and isinstance(new, str) and max(len(old), len(new)) > _SHORT_CHARS:
        return f"{name} was changed as follows:\n{_diff_texts(old, new)}\n"
    return f"{name} was {_shorten_value(old)} and is {_shorten_value(new)}"


def _shorten_value(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHORT_CHARS else f"{text[:_SHORT_CHARS]}… ({len(text)} characters)"


def _diff_texts(old: str, new: str) -> str:
    if len(old) + len(new) > _MAX_COMPARED_CHARS:
        return f"({len(old)} characters before, {len(new)} now)"
    import difflib

    lines = list(difflib.unified_diff(old.splitlines(), new.splitlines(), "asked", "ran", lineterm="", n=1))
    text = "\n".join(lines[:_DIFF_LINES])[:_DIFF_CHARS]
    return f"{text}\n… (the rest of the change is not shown)" if len(text) < len("\n".join(lines)) else text
