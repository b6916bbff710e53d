"""What a person allows, wants to be asked about, or forbids: the words for rules that every room shares.

Taking secrets out of a text.

Programs and callbacks that are told at certain points what is about to happen, and may have a say in it.

Programs come from `odinconfig.json`. A front end or the Python API brings callbacks of its own: it makes a
`CallbackHook` and gives it to `Client.add_hook` before the first prompt.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Literal, Protocol

from msgspec import Struct

RuleAction = Literal["allow", "ask", "deny"]

RuleLayer = Literal["default", "user", "project", "role", "session"]
"""Who said it, from the weakest to the strongest."""

RememberScope = Literal["session", "project", "user"]
"""For how long a person wants an answer remembered: this session, this project, everywhere."""


class RuleLine(Struct, frozen=True):
    """One rule as people see it in a list. `number` is how it is named when it is to be removed; 0 cannot be removed.

    `text` is `Tool` or `Tool(pattern)`; `source` says where it is written down.
    """

    number: int
    layer: RuleLayer
    action: RuleAction
    text: str
    source: str = ""


class RedactedText(Struct, frozen=True):
    """A text without its secrets, and what they were, by kind or by the name of their variable."""

    text: str
    secrets: tuple[str, ...] = ()


Redact = Callable[[str], RedactedText]


def redact_nothing(text: str) -> RedactedText:
    return RedactedText(text)


HookPoint = Literal[
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

    `text` is the prompt, the question, the answer, the summary or the error. `paths` are the files a call is about,
    `changed` those that a batch of calls has changed, and `tools` the tools of such a batch. `reason` says why a
    session begins or ends, or why a person is asked. `again` says that a stop hook has already kept this turn going.
    """

    point: HookPoint
    agent: str = ""
    mode: str = ""
    model: str = ""
    call_id: str = ""
    tool: str = ""
    tools: tuple[str, ...] = ()
    args: dict[str, Any] | None = None
    output: str = ""
    is_error: bool = False
    paths: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    text: str = ""
    reason: str = ""
    stop_hook_active: bool = False


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
    continue_turn: bool = False


NO_VERDICT = HookVerdict()


HookPayload = dict[str, Any]
"""What a hook is told and what it says, as JSON: the objects that a program reads and prints."""


class CallbackHook(Struct, frozen=True):
    """A hook that is a function instead of a program.

    `event` is any name the configuration knows: `PreToolUse`, `Stop`, `on_idle`, … `call` gets the object that a
    program would read, with `tool_use_id` among it, and gives what a program would print: an empty object or None says
    nothing. What it raises counts as a hook that failed. `matcher` chooses tools, as in the configuration.
    """

    name: str
    event: str
    call: Callable[[HookPayload], Awaitable[HookPayload | None]]
    matcher: str = ""
    timeout: float = 30.0


class Hooks(Protocol):
    """The hooks of a session. `fire` never raises because of a hook: a faulty one is reported and counts as silent."""

    def has_hook_for(self, point: HookPoint, tool: str = "") -> bool:
        """Whether a hook is told at this point, and, with a tool, of that tool."""
        ...

    async def fire(self, call: HookCall) -> HookVerdict: ...


class NoHooks:
    """Nobody listens."""

    def has_hook_for(self, point: HookPoint, tool: str = "") -> bool:
        return False

    async def fire(self, call: HookCall) -> HookVerdict:
        return NO_VERDICT
