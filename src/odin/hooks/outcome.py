"""Interprets the output of hooks: Claude Code's exit codes and JSON, and Odin's own fields.

Exit code 0 with a JSON object is an answer. Exit code 2 blocks, with standard error as the reason. Any other code, too
much output, a timeout or invalid JSON is a failed hook, and a failed hook changes nothing.
"""

from collections.abc import Sequence
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct

from odin.core.policy import NO_HOOK_EFFECT, HookCall, HookEffect
from odin.core.text import to_valid_unicode
from odin.hooks.declaration import HookSpec
from odin.sandbox.runner import CapturedOutput

MAX_OUTPUT_BYTES = 1_000_000
"""A hook that prints more is stopped."""

MAX_TEXT_CHARS = 10_000
"""Texts of a hook are cut to this length before the model or the user sees them."""

BLOCK_EXIT_CODE = 2

HookOutcome = Literal["silent", "allowed", "asked", "denied", "modified", "context", "halted", "failed", "timed_out"]

_DENYING_POINTS = frozenset(
    ("PreToolUse", "PostToolUse", "on_before_tool_result_append", "UserPromptSubmit", "PermissionRequest", "PreCompact")
)
_STOPPING_POINTS = frozenset(("Stop", "SubagentStop"))
_HALTING_POINTS = frozenset(("on_before_llm_call", "on_after_llm_call"))
_CONTEXT_POINTS = frozenset(("UserPromptSubmit", "SessionStart"))


class HookResult(Struct, frozen=True):
    """The decision of one hook and its outcome for the log. `problem` says why the hook failed."""

    effect: HookEffect = NO_HOOK_EFFECT
    outcome: HookOutcome = "silent"
    problem: str = ""

    @property
    def detail(self) -> str:
        effect = self.effect
        return self.problem or effect.message or effect.context or effect.notice


class InvalidHookOutput(Exception):
    """The hook's output does not have the expected format."""


def interpret_program(hook: HookSpec, call: HookCall, done: CapturedOutput) -> HookResult:
    """Interpret the output and exit code of a hook program."""
    if done.timed_out:
        return HookResult(outcome="timed_out", problem=f"it did not finish within {hook.timeout:g} s and was stopped.")
    if done.stopped:
        return HookResult(outcome="failed", problem=f"it printed more than {MAX_OUTPUT_BYTES:,} bytes and was stopped.")
    if done.code == BLOCK_EXIT_CODE:
        reason = _limit_text(done.errors.strip() or _find_reason(done.data))
        return _make_result(_make_block_effect(call, reason or f"The hook {hook.name} gave no reason."))
    if done.code != 0 and hook.append == "failure":
        printed = to_valid_unicode(done.data.decode("utf-8", "replace"))
        return _make_result(HookEffect(context=_limit_text(_join_texts((printed.strip(), done.errors.strip())))))
    if done.code != 0:
        ending = f"exit code {done.code}" if done.code > 0 else f"killed by signal {-done.code}"
        return HookResult(outcome="failed", problem=f"{ending}. {_limit_text(done.errors.strip(), 500)}".strip())
    text = done.data.strip()
    if not text.startswith(b"{"):
        return _make_result(
            _interpret_plain_text(hook, call, _limit_text(to_valid_unicode(text.decode("utf-8", "replace"))))
        )
    try:
        return _make_result(_read_verdict(hook, call, msgspec.json.decode(text)))
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return HookResult(outcome="failed", problem=f"it printed invalid JSON: {error}.")
    except InvalidHookOutput as error:
        return HookResult(outcome="failed", problem=f"its output is invalid: {error}.")


def interpret_callback(hook: HookSpec, call: HookCall, value: Any) -> HookResult:
    """Interpret the object returned by a callback."""
    if value is None or value == {}:
        return HookResult()
    try:
        return _make_result(_read_verdict(hook, call, value))
    except InvalidHookOutput as error:
        return HookResult(outcome="failed", problem=f"its output is invalid: {error}.")


def merge_effects(effects: Sequence[HookEffect]) -> HookEffect:
    """Combine the verdicts of all hooks: deny beats ask beats allow, and the last change wins."""
    strongest = max(effects, key=lambda item: _STRENGTH[item.decision]).decision
    deciding = [
        item for item in effects if item.halt or item.continue_turn or (strongest and item.decision == strongest)
    ]
    args = [item.args for item in effects if item.args is not None]
    outputs = [item.output for item in effects if item.output is not None]
    return HookEffect(
        decision=strongest,
        message=_join_texts(item.message for item in deciding),
        args=args[-1] if args else None,
        output=outputs[-1] if outputs else None,
        context=_join_texts(item.context for item in effects),
        notice=_join_texts(item.notice for item in effects),
        halt=any(item.halt for item in effects),
        continue_turn=any(item.continue_turn for item in effects),
    )


_STRENGTH = {"": 0, "allow": 1, "ask": 2, "deny": 3}


def _join_texts(texts: Any) -> str:
    return "\n\n".join(dict.fromkeys(text for text in texts if text))


def _interpret_plain_text(hook: HookSpec, call: HookCall, text: str) -> HookEffect:
    if hook.append == "toast":
        return HookEffect(notice=text)
    if hook.append == "context" or call.point in _CONTEXT_POINTS:
        return HookEffect(context=text)
    return NO_HOOK_EFFECT


def _find_reason(data: bytes) -> str:
    """Return the reason that a hook with exit code 2 printed to standard output."""
    text = to_valid_unicode(data.decode("utf-8", "replace")).strip()
    try:
        output = _HookOutput(msgspec.json.decode(text)) if text.startswith("{") else None
    except (msgspec.DecodeError, UnicodeError, RecursionError, InvalidHookOutput):
        return text
    return output.reason if output else text


def _make_result(effect: HookEffect) -> HookResult:
    return HookResult(effect, _make_outcome(effect))


def _make_outcome(effect: HookEffect) -> HookOutcome:
    if effect.halt:
        return "halted"
    if effect.decision == "deny" or effect.continue_turn:
        return "denied"
    if effect.args is not None or effect.output is not None:
        return "modified"
    if effect.decision:
        return "allowed" if effect.decision == "allow" else "asked"
    return "context" if effect.context or effect.notice else "silent"


class _HookOutput:
    """The object that a hook printed. Its properties look up each value under all of its names."""

    def __init__(self, value: Any) -> None:
        self.top = _require_object(value, "it")
        self.specific = _require_object(self.top.get("hookSpecificOutput") or {}, "hookSpecificOutput")
        decision = self.specific.get("decision")
        self.request = _require_object(decision, "decision") if isinstance(decision, dict) else {}

    @property
    def reason(self) -> str:
        return (
            self._find_text(self.specific, "permissionDecisionReason", "reason")
            or self._find_text(self.request, "message")
            or self._find_text(self.top, "reason", "message")
            or self._find_text(self.top, "stopReason")
        )

    @property
    def message(self) -> str:
        return self._find_text(self.top, "message")

    @property
    def decision(self) -> str:
        """allow, ask, deny or ""."""
        words = [
            self._find_text(self.specific, "permissionDecision"),
            self._find_text(self.request, "behavior"),
            self._find_text(self.top, "decision", "action"),
        ]
        decision = next((word for word in words if word), "")
        if decision.casefold() not in _DECISIONS:
            raise InvalidHookOutput(f"{decision!r} is not a decision")
        return _DECISIONS[decision.casefold()]

    @property
    def args(self) -> dict[str, Any] | None:
        for section, name in ((self.specific, "updatedInput"), (self.request, "updatedInput"), (self.top, "args")):
            if section.get(name) is not None:
                return _require_object(section[name], name)
        return None

    @property
    def output(self) -> str | None:
        for section, name in (
            (self.specific, "updatedToolOutput"),
            (self.specific, "updatedMCPToolOutput"),
            (self.top, "output"),
        ):
            if section.get(name) is not None:
                value = section[name]
                return to_valid_unicode(value if isinstance(value, str) else msgspec.json.encode(value).decode())
        return None

    @property
    def continues(self) -> bool | None:
        value = self.top.get("continue")
        if value is not None and not isinstance(value, bool):
            raise InvalidHookOutput("continue must be true or false")
        return value

    @property
    def context(self) -> str:
        return _join_texts(
            (
                self._find_text(self.specific, "additionalContext"),
                self._find_text(self.top, "additionalContext", "context"),
            )
        )

    @property
    def notice(self) -> str:
        return self._find_text(self.top, "systemMessage")

    def _find_text(self, section: dict[str, Any], *names: str) -> str:
        for name in names:
            value = section.get(name)
            if (
                value is not None
                and not isinstance(value, str)
                and not (name == "decision" and section is self.specific)
            ):
                raise InvalidHookOutput(f"{name} must be a string")
            if isinstance(value, str) and value.strip():
                return _limit_text(to_valid_unicode(value.strip()))
        return ""


_DECISIONS = {
    "": "",
    "continue": "",
    "modify": "",
    "none": "",
    "allow": "allow",
    "approve": "allow",
    "ask": "ask",
    "deny": "deny",
    "block": "deny",
}


def _read_verdict(hook: HookSpec, call: HookCall, value: Any) -> HookEffect:
    answer = _HookOutput(value)
    # In Claude Code `true` is the default and means nothing; `message` is a field that only other agents have.
    continues = answer.continues and (hook.event.startswith("on_") or answer.message)
    decision, reason = answer.decision, answer.reason
    effect = _make_block_effect(call, reason) if decision == "deny" else _make_allow_effect(call, decision, reason)
    if answer.continues is False:
        effect = msgspec.structs.replace(effect, halt=True, continue_turn=False, message=answer.reason)
    elif continues and call.point in _STOPPING_POINTS and (reason or answer.notice or not call.stop_hook_active):
        effect = HookEffect(continue_turn=True, message=reason or answer.notice)
    return msgspec.structs.replace(
        effect,
        args=_drop_added_path(answer.args, call) if call.point in ("PreToolUse", "PermissionRequest") else None,
        output=answer.output if call.point in ("PostToolUse", "on_before_tool_result_append") else None,
        context=_join_texts((effect.context, answer.context, answer.notice)),
        notice=_join_texts((effect.notice, answer.notice)),
    )


def _make_block_effect(call: HookCall, reason: str) -> HookEffect:
    """Return the decision for a denial at this point. Where nothing can be blocked, the user sees the reason."""
    if call.point in _DENYING_POINTS:
        return HookEffect("deny", reason)
    if call.point in _STOPPING_POINTS:
        return HookEffect(message=reason, continue_turn=True)
    if call.point in _HALTING_POINTS:
        return HookEffect(message=reason, halt=True)
    return HookEffect(context=reason) if call.point == "on_tool_batch_complete" else HookEffect(notice=reason)


def _make_allow_effect(call: HookCall, decision: str, reason: str) -> HookEffect:
    if decision == "allow" and call.point in ("PreToolUse", "PermissionRequest"):
        return HookEffect("allow", reason)
    if decision == "ask" and call.point == "PreToolUse":
        return HookEffect("ask", reason)
    return NO_HOOK_EFFECT


def _require_object(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidHookOutput(f"{name} must be an object")
    return cast("dict[str, Any]", value)


def _limit_text(text: str, limit: int = MAX_TEXT_CHARS) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters)"


def _drop_added_path(args: dict[str, Any] | None, call: HookCall) -> dict[str, Any] | None:
    """Return the arguments without a `file_path` that only the hook's input had."""
    if args is None or "file_path" in (call.args or {}):
        return args
    return {name: value for name, value in args.items() if name != "file_path"}
