"""The words of the way to a tool: whose call it is, whether it may run, and why not."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from odin.core.errors import Denied, OdinError
from odin.core.event import CallAudit, CallStatus, DiscardReason, Mode
from odin.core.message import ToolCall
from odin.core.tool import Subject, Tool
from odin.engine.call.guard import RepetitionGuard
from odin.policy.rules import Verdict


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
