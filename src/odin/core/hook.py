"""Programs and callbacks that are told at certain points what is about to happen, and may have a say in it."""

from typing import Any, Literal, Protocol

from msgspec import Struct

Point = Literal[
    "session_start",
    "session_end",
    "prompt_submit",
    "before_llm_call",
    "after_llm_call",
    "tool_call",
    "tool_result",
    "before_tool_result_append",
    "tool_batch_complete",
    "before_compress",
    "after_compress",
    "idle",
    "wait_confirm",
    "wait_question",
    "agent_error",
    "stop",
    "subagent_stop",
]


class HookCall(Struct, frozen=True):
    """What hooks are told. Only the fields that belong to the point are filled.

    `text` is the prompt, the question, the answer or the error. `paths` are the files a call is about, `changed` those
    that a batch of calls has changed. `again` says that a stop hook has already kept this turn going.
    """

    point: Point
    agent: str = ""
    mode: str = ""
    model: str = ""
    call_id: str = ""
    tool: str = ""
    args: dict[str, Any] | None = None
    output: str = ""
    is_error: bool = False
    paths: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    text: str = ""
    reason: str = ""
    again: bool = False


class HookVerdict(Struct, frozen=True):
    """What the hooks of one point said together. Nothing is the default and changes nothing.

    `message` is the reason of a deny, for the model. `args` replaces a call's arguments, `output` its result. `context`
    is told to the model beside its next request, `notice` is shown to the person. `halt` ends the turn; `go_on`, from a
    stop hook, keeps it running.
    """

    decision: Literal["", "allow", "ask", "deny"] = ""
    message: str = ""
    args: dict[str, Any] | None = None
    output: str | None = None
    context: str = ""
    notice: str = ""
    halt: bool = False
    go_on: bool = False


SILENT = HookVerdict()


class Hooks(Protocol):
    """The hooks of a session. `fire` never raises because of a hook: a faulty one is reported and counts as silent."""

    def listens(self, point: Point) -> bool: ...

    async def fire(self, call: HookCall) -> HookVerdict: ...


class NoHooks:
    """Nobody listens."""

    def listens(self, point: Point) -> bool:
        return False

    async def fire(self, call: HookCall) -> HookVerdict:
        return SILENT
