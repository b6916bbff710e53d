"""What a hook said: the exit code and the JSON of Claude Code's hooks, and the words of our own points.

Exit code 0 with a JSON object says something; 2 blocks, with standard error as the reason; any other code, a flood, a
hang or broken JSON is a hook that failed, and a hook that failed changes nothing.
"""

from collections.abc import Sequence
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct

from odin.core.hook import SILENT, HookCall, HookVerdict
from odin.core.text import mended
from odin.policy.hook.declared import Hook
from odin.policy.process.runner import Captured

MAX_OUTPUT = 1_000_000
"""Bytes a hook may print. One that prints more is ended."""

MAX_TEXT = 10_000
"""Characters of one text of a hook that reach the model or the person."""

BLOCK = 2

Outcome = Literal["silent", "allowed", "asked", "denied", "modified", "context", "halted", "failed", "timed_out"]

_DENYING = frozenset(
    ("tool_call", "tool_result", "before_tool_result_append", "prompt_submit", "wait_confirm", "before_compress")
)
_STOPPING = frozenset(("stop", "subagent_stop"))
_HALTING = frozenset(("before_llm_call", "after_llm_call"))
_PLAIN_IS_CONTEXT = frozenset(("prompt_submit", "session_start"))


class Said(Struct, frozen=True):
    """What one hook said, and one word for it. `problem` is what was wrong with it."""

    verdict: HookVerdict = SILENT
    outcome: Outcome = "silent"
    problem: str = ""

    @property
    def detail(self) -> str:
        said = self.verdict
        return self.problem or said.message or said.context or said.notice


class Unreadable(Exception):
    """The hook's answer does not have the shape it must have."""


def heard(hook: Hook, call: HookCall, done: Captured) -> Said:
    """What a program said by what it printed and how it ended."""
    if done.timed_out:
        return Said(outcome="timed_out", problem=f"it did not end within {hook.timeout:g} s and was stopped.")
    if done.stopped:
        return Said(outcome="failed", problem=f"it printed more than {MAX_OUTPUT:,} bytes and was stopped.")
    if done.code == BLOCK:
        reason = _bounded(done.errors.strip() or _reason_in(done.data))
        return _said(_blocked(call, reason or f"The hook {hook.name} gave no reason."))
    if done.code != 0:
        how = f"exit code {done.code}" if done.code > 0 else f"killed by signal {-done.code}"
        return Said(outcome="failed", problem=f"{how}. {_bounded(done.errors.strip(), 500)}".strip())
    return _printed(hook, call, done.data)


def answered(call: HookCall, value: Any) -> Said:
    """What a callback said with the object it returned."""
    if value is None or value == {}:
        return Said()
    try:
        return _said(_verdict(call, value))
    except Unreadable as error:
        return Said(outcome="failed", problem=f"its answer cannot be used: {error}.")


def together(said: Sequence[HookVerdict]) -> HookVerdict:
    """All hooks of one point as one: deny beats ask beats allow, and what was changed last holds."""
    strongest = max(said, key=lambda item: _STRENGTH[item.decision]).decision
    speaking = [item for item in said if item.halt or item.go_on or (strongest and item.decision == strongest)]
    changed = [item.args for item in said if item.args is not None]
    outputs = [item.output for item in said if item.output is not None]
    return HookVerdict(
        decision=strongest,
        message=_joined(item.message for item in speaking),
        args=changed[-1] if changed else None,
        output=outputs[-1] if outputs else None,
        context=_joined(item.context for item in said),
        notice=_joined(item.notice for item in said),
        halt=any(item.halt for item in said),
        go_on=any(item.go_on for item in said),
    )


_STRENGTH = {"": 0, "allow": 1, "ask": 2, "deny": 3}


def _joined(texts: Any) -> str:
    return "\n\n".join(dict.fromkeys(text for text in texts if text))


def _printed(hook: Hook, call: HookCall, data: bytes) -> Said:
    text = data.strip()
    if not text.startswith(b"{"):
        return _said(_plain(hook, call, _bounded(mended(text.decode("utf-8", "replace")))))
    try:
        return _said(_verdict(call, msgspec.json.decode(text)))
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return Said(outcome="failed", problem=f"it printed broken JSON: {error}.")
    except Unreadable as error:
        return Said(outcome="failed", problem=f"its answer cannot be used: {error}.")


def _plain(hook: Hook, call: HookCall, text: str) -> HookVerdict:
    if hook.append == "toast":
        return HookVerdict(notice=text)
    if hook.append == "context" or call.point in _PLAIN_IS_CONTEXT:
        return HookVerdict(context=text)
    return SILENT


def _reason_in(data: bytes) -> str:
    """The reason of a hook that blocks by its exit code and writes why to its standard output."""
    text = mended(data.decode("utf-8", "replace")).strip()
    try:
        found = _Answer(msgspec.json.decode(text)) if text.startswith("{") else None
    except (msgspec.DecodeError, UnicodeError, RecursionError, Unreadable):
        return text
    return found.reason if found else text


def _said(verdict: HookVerdict) -> Said:
    return Said(verdict, _word(verdict))


def _word(verdict: HookVerdict) -> Outcome:
    if verdict.halt:
        return "halted"
    if verdict.decision == "deny" or verdict.go_on:
        return "denied"
    if verdict.args is not None or verdict.output is not None:
        return "modified"
    if verdict.decision:
        return "allowed" if verdict.decision == "allow" else "asked"
    return "context" if verdict.context or verdict.notice else "silent"


class _Answer:
    """The object that a hook printed, with the place of everything that may stand in several."""

    def __init__(self, value: Any) -> None:
        self.top = _object(value, "it")
        self.own = _object(self.top.get("hookSpecificOutput") or {}, "hookSpecificOutput")
        decision = self.own.get("decision")
        self.request = _object(decision, "decision") if isinstance(decision, dict) else {}

    @property
    def reason(self) -> str:
        return self._text(self.own, "permissionDecisionReason", "reason") or self._said_no() or self._stop_reason()

    def _said_no(self) -> str:
        return self._text(self.request, "message") or self._text(self.top, "reason", "message")

    def _stop_reason(self) -> str:
        return self._text(self.top, "stopReason")

    @property
    def decision(self) -> str:
        """allow, ask, deny or "", whichever of its names was used."""
        words = [
            self._text(self.own, "permissionDecision"),
            self._text(self.request, "behavior"),
            self._text(self.top, "decision", "action"),
        ]
        said = next((word for word in words if word), "")
        if said.casefold() not in _DECISIONS:
            raise Unreadable(f"{said!r} is no decision")
        return _DECISIONS[said.casefold()]

    @property
    def args(self) -> dict[str, Any] | None:
        for place, name in ((self.own, "updatedInput"), (self.request, "updatedInput"), (self.top, "args")):
            if place.get(name) is not None:
                return _object(place[name], name)
        return None

    @property
    def output(self) -> str | None:
        for place, name in ((self.own, "updatedToolOutput"), (self.own, "updatedMCPToolOutput"), (self.top, "output")):
            if place.get(name) is not None:
                found = place[name]
                return mended(found if isinstance(found, str) else msgspec.json.encode(found).decode())
        return None

    @property
    def goes_on(self) -> bool | None:
        found = self.top.get("continue")
        if found is not None and not isinstance(found, bool):
            raise Unreadable("continue is neither true nor false")
        return found

    @property
    def context(self) -> str:
        return _joined(
            (self._text(self.own, "additionalContext"), self._text(self.top, "additionalContext", "context"))
        )

    @property
    def notice(self) -> str:
        return self._text(self.top, "systemMessage")

    def _text(self, place: dict[str, Any], *names: str) -> str:
        for name in names:
            found = place.get(name)
            if found is not None and not isinstance(found, str) and not (name == "decision" and place is self.own):
                raise Unreadable(f"{name} is no text")
            if isinstance(found, str) and found.strip():
                return _bounded(mended(found.strip()))
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


def _verdict(call: HookCall, value: Any) -> HookVerdict:
    answer = _Answer(value)
    decision, reason = answer.decision, answer.reason
    verdict = _blocked(call, reason) if decision == "deny" else _allowed(call, decision, reason)
    if answer.goes_on is False:
        verdict = msgspec.structs.replace(verdict, halt=True, go_on=False, message=answer.reason)
    elif answer.goes_on and call.point in _STOPPING and (reason or answer.notice or not call.again):
        verdict = HookVerdict(go_on=True, message=reason or answer.notice)
    return msgspec.structs.replace(
        verdict,
        args=answer.args if call.point in ("tool_call", "wait_confirm") else None,
        output=answer.output if call.point in ("tool_result", "before_tool_result_append") else None,
        context=_joined((verdict.context, answer.context, answer.notice)),
        notice=_joined((verdict.notice, answer.notice)),
    )


def _blocked(call: HookCall, reason: str) -> HookVerdict:
    """What a no means depends on the point; where nothing can be stopped it is shown to the person."""
    if call.point in _DENYING:
        return HookVerdict("deny", reason)
    if call.point in _STOPPING:
        return HookVerdict(message=reason, go_on=True)
    if call.point in _HALTING:
        return HookVerdict(message=reason, halt=True)
    return HookVerdict(context=reason) if call.point == "tool_batch_complete" else HookVerdict(notice=reason)


def _allowed(call: HookCall, decision: str, reason: str) -> HookVerdict:
    if decision == "allow" and call.point in ("tool_call", "wait_confirm"):
        return HookVerdict("allow", reason)
    if decision == "ask" and call.point == "tool_call":
        return HookVerdict("ask", reason)
    return SILENT


def _object(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Unreadable(f"{name} is no object")
    return cast("dict[str, Any]", value)


def _bounded(text: str, limit: int = MAX_TEXT) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters)"
