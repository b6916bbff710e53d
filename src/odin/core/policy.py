"""Shared types for permission rules, redaction and hooks, and the forms of known secrets.

Hook programs come from `odinconfig.json`. A front end or the Python API adds callbacks: it passes a `CallbackHook` to
`Client.add_hook` before the first prompt.
"""

import re
from collections.abc import Awaitable, Callable
from typing import Any, Literal, Protocol

from msgspec import Struct

from odin.core.lazy_pattern import compile_lazily

RuleAction = Literal["allow", "ask", "deny"]

CommandsAsk = Literal["effects", "before"]
"""When the user is asked about a command that runs in a view: when it has ended, with what it wrote, or before."""

EffectsAction = Literal["apply", "edits", "ask", "discard"]
"""What happens to what a command wrote in its view. `edits`: files that it created or changed are applied, and the user
is asked about the rest: deletions, moves and changes of the repository."""

RuleLayer = Literal["default", "user", "project", "session"]
"""Where a rule comes from, weakest first."""

RememberScope = Literal["session", "project", "user"]
"""How long an answer is remembered: in this session, in this project, or everywhere."""


Danger = Literal["read_only", "changes_files", "hard_to_undo", "outside_project", "network", "credentials", "harmless"]
"""The worst that a tool call would do, for permission requests. `harmless` is `read_only` in old logs."""


class RuleLine(Struct, frozen=True):
    """One rule as shown in a list. `number` identifies it for removal; 0 cannot be removed.

    `text` is `Tool` or `Tool(pattern)`; `source` is the file that holds the rule. `role` is the role in which it holds,
    "": in every role.
    """

    number: int
    layer: RuleLayer
    action: RuleAction
    text: str
    source: str = ""
    role: str = ""

    @property
    def origin(self) -> str:
        """The role and the source, as shown to people."""
        return ", ".join(filter(None, (self.role and f"role {self.role}", self.source)))


class SessionRule(Struct, frozen=True):
    """A rule that the user gave for a session. `role` is the role in which it holds, "": in every role."""

    text: str
    action: RuleAction
    role: str = ""


MIN_SECRET_CHARS = 8
"""Shorter texts are never treated as secrets."""


class RedactedText(Struct, frozen=True):
    """A text without its secrets, and the kinds or variable names of what was removed."""

    text: str
    secrets: tuple[str, ...] = ()


Redact = Callable[[str], RedactedText]


class SessionRedactor(Protocol):
    """Redacts for the model and the log when it is called, and for everyone else with `hide`."""

    def __call__(self, text: str) -> RedactedText: ...

    def hide(self, text: str) -> str:
        """Return the text without its secrets. What the model may write as a placeholder stays the same."""
        ...

    def find_open_end(self, text: str) -> int:
        """Return where a secret may begin that goes on after the text; its length if none can."""
        ...


def redact_nothing(text: str) -> RedactedText:
    return RedactedText(text)


_LOGIN = compile_lazily(
    r"""(?<=://)(?:[^\s/?#"'<>`\\]{1,300}|[^\s/?#@:"'<>`\\]{0,300}:(?!\d{1,5}[/?#])[^\s,"'<>`\\]{0,300})@"""
)
"""What stands before the host of a URL. A password may have a `/`; behind a port, an `@` is part of the path."""


def mask_logins(text: str, mask: str = "…@") -> str:
    """Return the text with `…@` in place of the `user:password@` of every URL."""
    return _LOGIN.sub(mask, text) if "://" in text and "@" in text else text


def hide_key(text: str, key: str) -> str:
    """Return the text with `[key]` in place of the key, in whatever encoding a server may repeat it."""
    if len(key) <= 3:
        return text
    for form in sorted({key, *list_encodings(key)}, key=len, reverse=True):
        text = text.replace(form, "[key]")
    return text


def list_encodings(value: str) -> set[str]:
    """Return the value as it is, and URL-encoded, JSON-escaped, shell-quoted, in base64 and in hexadecimal."""
    import json
    from base64 import b64encode
    from urllib.parse import quote, quote_plus

    raw = value.encode("utf-8", "surrogateescape")
    forms = {value, json.dumps(value, ensure_ascii=False)[1:-1], json.dumps(value)[1:-1], value.replace("'", "'\\''")}
    quoted = {quote(raw, safe=""), quote(raw), quote_plus(raw)}
    forms |= {raw.hex(), *quoted, *(re.sub(r"%..", lambda found: found[0].lower(), form) for form in quoted)}
    for offset in range(3):
        forms |= _list_base64_forms(b64encode(b"\0" * offset + raw).decode(), offset, len(raw))
    return {form for form in forms if len(form) >= MIN_SECRET_CHARS}


def _list_base64_forms(encoded: str, offset: int, length: int) -> set[str]:
    """Return the base64 characters that depend only on the value, whatever surrounds it."""
    first = -(-offset * 8 // 6)
    last = (offset + length) * 8 // 6
    core = encoded[first:last]
    if len(core) < 12:
        return set()
    return {core, core.replace("+", "-").replace("/", "_")}


HookPoint = Literal[
    "SessionStart",
    "SessionEnd",
    "UserPromptSubmit",
    "on_before_llm_call",
    "on_after_llm_call",
    "PreToolUse",
    "PostToolUse",
    "on_before_tool_result_append",
    "on_tool_batch_complete",
    "PreCompact",
    "PostCompact",
    "on_idle",
    "PermissionRequest",
    "on_wait_question",
    "on_agent_error",
    "Stop",
    "SubagentStop",
]
"""The events of hooks as settings name them: Claude Code's names, or Odin's where it has none."""

RecordedHookPoint = Literal[
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

RECORDED_POINTS: dict[HookPoint, RecordedHookPoint] = {
    "SessionStart": "session_start",
    "SessionEnd": "session_end",
    "UserPromptSubmit": "prompt_submit",
    "on_before_llm_call": "before_llm_call",
    "on_after_llm_call": "after_llm_call",
    "PreToolUse": "tool_call",
    "PostToolUse": "tool_result",
    "on_before_tool_result_append": "before_tool_result_append",
    "on_tool_batch_complete": "tool_batch_complete",
    "PreCompact": "before_compress",
    "PostCompact": "after_compress",
    "on_idle": "idle",
    "PermissionRequest": "wait_confirm",
    "on_wait_question": "wait_question",
    "on_agent_error": "agent_error",
    "Stop": "stop",
    "SubagentStop": "subagent_stop",
}
"""The names in logs. With `on_` before them, settings may use them, too, and hooks are told them."""


class HookCall(Struct, frozen=True):
    """The input of a hook. Only the fields that belong to the hook point are set.

    `text` is the prompt, question, answer, summary or error. `paths` are the files of one tool call, `changed` and
    `tools` the changed files and the tools of a batch. `reason` says why a session starts or ends, or why approval is
    needed. `stop_hook_active`: a stop hook has already kept this turn running.
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


class HookEffect(Struct, frozen=True):
    """The combined output of all hooks at one point. The default changes nothing.

    `message` is the reason for a denial, for the model. `args` replaces a tool call's arguments, `output` its result.
    `context` is added to the next request, `notice` is shown to the user. `halt` ends the turn; `continue_turn`, from a
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


NO_HOOK_EFFECT = HookEffect()


HookPayload = dict[str, Any]
"""The JSON object a hook program reads or prints."""

ServerExchange = Callable[[dict[str, Any]], Awaitable[dict[str, Any] | None]]
"""Gives a message to an MCP server that a front end hosts. Return its response, None for a notification."""


class CallbackHook(Struct, frozen=True):
    """A hook implemented as a function instead of a program.

    `event` is any event name of the configuration: `PreToolUse`, `Stop`, `on_idle`, … `call` receives the object a
    program would read, including `tool_use_id`, and returns what a program would print; an empty object or None changes
    nothing. An exception counts as a failed hook. `matcher` selects tools, as in the configuration.
    """

    name: str
    event: str
    call: Callable[[HookPayload], Awaitable[HookPayload | None]]
    matcher: str = ""
    timeout: float = 30.0


class Hooks(Protocol):
    """The hooks of a session. `fire` never raises because of a hook: a failing hook is reported and ignored."""

    def has_hook_for(self, point: HookPoint, tool: str = "") -> bool:
        """True if a hook is registered for this point and, if given, this tool."""
        ...

    async def fire(self, call: HookCall) -> HookEffect: ...


class NoHooks:
    """No hooks are registered."""

    def has_hook_for(self, point: HookPoint, tool: str = "") -> bool:
        return False

    async def fire(self, call: HookCall) -> HookEffect:
        return NO_HOOK_EFFECT
