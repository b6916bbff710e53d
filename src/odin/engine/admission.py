"""What stands in a result for a secret must not be written into a file in the secret's place.

Whether a call may run.

    find → guard → parse → mode → rules → refusal of the tool → hooks → ask

Whoever changes the arguments on the way, a hook or a person, sends them back to be parsed and judged: a deny holds
whatever anybody allows. Everything that is wrong with a call becomes a result that the model reads.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import msgspec

from odin.core.errors import Denied, NeedsConfirmation, Rejected
from odin.core.event import CallAudit, Mode
from odin.core.message import ToolCall
from odin.core.op import AnswerPermission
from odin.core.policy import HookVerdict
from odin.core.registry import Registry
from odin.core.tool import Subject, Tool, ToolContext, ToolOutput, fail
from odin.engine.approvals import CallApproval
from odin.engine.call_types import (
    AdmittedCall,
    CallScope,
    JudgedCall,
    RefusedCall,
    audit_change,
    describe_change,
    describe_tool_error,
)
from odin.engine.hooks import ToolHooks
from odin.policy.modes import spec_of
from odin.policy.policy import Policy, Verdict

FindPlaceholders = Callable[[str], tuple[str, ...]]
"""The stand-ins for secrets that a text holds."""


class PlaceholderGuard:
    """A step before calls that change files: a text with a stand-in that the file does not hold itself is refused."""

    def __init__(self, stand_ins: FindPlaceholders) -> None:
        self._find_placeholders = stand_ins

    async def __call__(self, tool: Tool[Any], args: Any, context: ToolContext) -> ToolOutput | None:
        if tool.kind != "edit":
            return None
        found = self._find_placeholders("\n".join(_walk_texts(msgspec.to_builtins(args))))
        if not found:
            return None
        there = b"".join(_read_content(Path(context.cwd, path)) for path in tool.subject_of(args).paths)
        foreign = [text for text in found if text.encode() not in there]
        if not foreign:
            return None
        return fail(
            f"Nothing was changed: {', '.join(foreign)} stands for a secret that was taken out of what you were shown, "
            "and would be written in its place. Change only the text around it, in edits that leave the secret alone; "
            "a new secret is put in by the user."
        )


def _walk_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in cast("dict[str, Any]", value).values():
            yield from _walk_texts(item)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _walk_texts(item)


def _read_content(path: Path) -> bytes:
    try:
        return path.read_bytes() if path.is_file() else b""
    except OSError:
        return b""


MAX_ARGUMENT_ROUNDS = 5
"""How often arguments may be changed by a person and then again by a hook, before nobody is asked any more."""


class Admission:
    def __init__(
        self, *, registry: Registry, policy: Callable[[], Policy], confirm: CallApproval, hooks: ToolHooks
    ) -> None:
        self._registry = registry
        self._policy = policy
        self._approval = confirm
        self._hooks = hooks

    async def admit(
        self, call: ToolCall, scope: CallScope, speculated: JudgedCall | None = None
    ) -> AdmittedCall | RefusedCall:
        """Whether it may run. `begun` is how it was judged when it was begun early: its parts have not changed since.

        What it did then must not be held against it now, so only the rules are asked again (`still_allowed`).
        """
        tool = self._registry.get(call.name)
        if tool is None:
            known = ", ".join(item.name for item in self._registry.list_offered(spec_of(scope.mode).allows_tool))
            return RefusedCall(call, f"There is no tool {call.name!r}. The tools are: {known}.")
        circling = scope.guard.check_call(tool.name, call.args)
        if circling:
            return RefusedCall(call, circling, reason="repetition")
        judged = speculated or self._check_call(call, tool, scope)
        if isinstance(judged, RefusedCall):
            return judged
        heard = await self._apply_hooks(judged, scope)
        return heard if isinstance(heard, RefusedCall) else await self._ask_person(heard, scope)

    # --- what can be told without asking anybody ---

    def admit_without_asking(self, call: ToolCall, scope: CallScope) -> JudgedCall | None:
        """The call as it was judged, when it may run and nobody has to be asked."""
        tool = self._registry.get(call.name)
        judged = self._check_call(call, tool, scope) if tool is not None else None
        return judged if isinstance(judged, JudgedCall) and judged.verdict.action == "allow" else None

    def is_still_allowed(self, begun: JudgedCall, scope: CallScope) -> bool:
        """Whether the rules still say what they said when the call was begun."""
        if self._unavailable_reason_of(begun.tool, scope.mode):
            return False
        try:
            return self._judge_by_rules(begun.call, begun.tool, begun.args, scope).verdict.action == "allow"
        except Exception:  # what cannot be judged any more is judged anew from the beginning
            return False

    def _check_call(self, call: ToolCall, tool: Tool[Any], scope: CallScope) -> JudgedCall | RefusedCall:
        parsed = self._parse_arguments(tool, call.args)
        if isinstance(parsed, str):
            return RefusedCall(call, parsed, reason="args_invalid")
        barred = self._unavailable_reason_of(tool, scope.mode)
        if barred:
            return RefusedCall(call, barred, "denied")
        try:
            judged = self._judge_by_rules(call, tool, parsed, scope)
            if judged.verdict.action == "deny":
                return RefusedCall(call, _denial_text_of(judged.verdict), "denied")
            refusal = tool.refusal_of(parsed)
        except Exception as error:  # what cannot be judged is not run
            return RefusedCall(call, describe_tool_error(tool, error))
        return RefusedCall(call, refusal) if refusal else judged

    def _parse_arguments(self, tool: Tool[Any], raw: dict[str, Any]) -> Any:
        """The parsed arguments, or a sentence that names the field that is wrong."""
        try:
            return tool.parse(raw)
        except msgspec.ValidationError as error:
            known = ", ".join(tool.build_spec().schema.get("properties", {}))
            return f"The arguments of {tool.name} do not fit its schema: {error}. Its fields are: {known}."
        except Exception as error:
            return describe_tool_error(tool, error)

    def _unavailable_reason_of(self, tool: Tool[Any], mode: Mode) -> str:
        if self._registry.is_disabled(tool.name):
            return f"{tool.name} is switched off in this session. Nothing was done."
        if not spec_of(mode).allows_kind(tool.kind):
            return (
                f"{tool.name} is not available in {mode}: it changes files, and in this mode nothing is changed. "
                "Nothing was done. Describe the change instead."
            )
        return ""

    def _judge_by_rules(self, call: ToolCall, tool: Tool[Any], args: Any, scope: CallScope) -> JudgedCall:
        """By the rules. A call about several paths is also judged path by path: the strictest verdict is the call's."""
        subject = tool.subject_of(args)
        policy = self._policy()
        verdict = policy.judge(tool.name, tool.kind, subject, scope.mode)
        asked: list[str] = []
        allowed: list[str] = []
        for path in subject.paths if len(subject.paths) > 1 else ():
            alone = policy.judge(tool.name, tool.kind, Subject(paths=(path,)), scope.mode)
            if _STRICTNESS[alone.action] > _STRICTNESS[verdict.action]:
                verdict = alone
            (allowed if alone.action == "allow" else asked).append(path)
        if not asked:  # what is asked about is all of them together
            asked, allowed = allowed, []
        if verdict.action == "ask" and self._registry.is_allowed(tool.name):
            verdict = Verdict("allow")
        return JudgedCall(call, tool, args, subject, verdict, tuple(asked), tuple(allowed))

    # --- hooks ---

    async def _apply_hooks(self, judged: JudgedCall, scope: CallScope) -> JudgedCall | RefusedCall:
        """What the hooks make of it. They may say no, ask, or yes to what would be asked, never yes to a no."""
        said = await self._hooks.fire_tool_call(judged.tool, judged.call, judged.args, scope)
        heard = self._apply_hook_arguments(judged, said, scope)
        if isinstance(heard, RefusedCall):
            return heard
        if said.decision == "deny" or said.halt:
            message = _hook_denial_text_of(said.message)
            return RefusedCall(heard.call, message, "denied", audit=heard.audit, reason="hook_block")
        if said.decision == "allow" and not heard.verdict.builtin:
            return msgspec.structs.replace(heard, verdict=Verdict("allow"))
        if said.decision == "ask" and heard.verdict.action == "allow":
            return msgspec.structs.replace(heard, verdict=_hook_verdict_of(said), asked_by_hook=True)
        return heard

    def _apply_hook_arguments(
        self, judged: JudgedCall, said: HookVerdict, scope: CallScope
    ) -> JudgedCall | RefusedCall:
        if said.args is None or said.args == judged.call.args or said.decision == "deny":
            return judged
        return self._replace_arguments(judged, said.args, "hook", said.message, scope)

    def _replace_arguments(
        self, judged: JudgedCall, args: dict[str, Any], by: str, summary: str, scope: CallScope
    ) -> JudgedCall | RefusedCall:
        """The call with other arguments, parsed and judged as if the model had sent them."""
        call = ToolCall(judged.call.id, judged.call.name, args)
        original = judged.audit.original if judged.audit else judged.call.args
        audit = audit_change(original, args, by, summary)
        checked = self._check_call(call, judged.tool, scope)
        if isinstance(checked, RefusedCall):
            text = f"{checked.text}\n{describe_change(audit)} It was not run." if audit else checked.text
            return msgspec.structs.replace(checked, text=text, audit=audit)
        return msgspec.structs.replace(checked, audit=audit)

    # --- the person ---

    async def _ask_person(self, judged: JudgedCall, scope: CallScope) -> AdmittedCall | RefusedCall:
        for _ in range(MAX_ARGUMENT_ROUNDS):
            if judged.verdict.action == "allow":
                return _admit_judged(judged)
            if not self._approval.can_ask or self._policy().permission_mode == "dontAsk":
                return RefusedCall(
                    judged.call, _unaskable_text_of(judged), "denied", audit=judged.audit, error_type=NeedsConfirmation
                )
            answer = await self._approval.ask_permission(
                judged, scope, lambda judged=judged: self._must_still_ask(judged, scope)
            )
            if answer is None:
                following = self._check_call(judged.call, judged.tool, scope)
                following = _with_audit(following, judged.audit)
            elif not answer.allow:
                named = Denied if answer.by in _AUTOMATIC_ANSWERS else Rejected
                return RefusedCall(
                    judged.call, _rejection_text_of(answer), "denied", _is_stop(answer), judged.audit, error_type=named
                )
            elif answer.args is None:
                return _admit_judged(judged)
            else:
                following = await self._apply_edited_arguments(judged, answer.args, answer, scope)
            if isinstance(following, AdmittedCall | RefusedCall):
                return following
            judged = following
        return RefusedCall(
            judged.call, "Denied: its arguments were changed again and again.", "denied", audit=judged.audit
        )

    def _must_still_ask(self, judged: JudgedCall, scope: CallScope) -> bool:
        """Whether the question must still be put: a rule may have been added while others were asked."""
        if judged.asked_by_hook:
            return True
        now = self._check_call(judged.call, judged.tool, scope)
        return isinstance(now, JudgedCall) and now.verdict.action == "ask"

    async def _apply_edited_arguments(
        self, judged: JudgedCall, args: dict[str, Any], answer: AnswerPermission, scope: CallScope
    ) -> AdmittedCall | JudgedCall | RefusedCall:
        """The person wrote these arguments, so they are approved; what is denied stays denied, and hooks see them.

        Where a hook changes them once more, the person has not seen the outcome: it is asked about again.
        """
        changed = self._replace_arguments(judged, args, answer.by, answer.summary, scope)
        if isinstance(changed, RefusedCall):
            return changed
        said = await self._hooks.fire_tool_call(changed.tool, changed.call, changed.args, scope)
        if said.decision == "deny" or said.halt:
            message = _hook_denial_text_of(said.message)
            return RefusedCall(changed.call, message, "denied", audit=changed.audit, reason="hook_block")
        heard = self._apply_hook_arguments(changed, said, scope)
        return _admit_judged(changed) if heard is changed else heard


def _admit_judged(judged: JudgedCall) -> AdmittedCall:
    return AdmittedCall(judged.call, judged.tool, judged.args, judged.audit)


def _with_audit(item: JudgedCall | RefusedCall, audit: CallAudit | None) -> JudgedCall | RefusedCall:
    return msgspec.structs.replace(item, audit=audit)


_STRICTNESS = {"allow": 0, "ask": 1, "deny": 2}


# --- what the model reads: every no says whose it is ---


def _denial_text_of(verdict: Verdict) -> str:
    by = f"Denied by rule {verdict.rule.removeprefix('deny ')}" if verdict.rule else "Denied"
    return f"{by}: {verdict.reason} {verdict.hint}".rstrip()


def _hook_denial_text_of(message: str) -> str:
    return f"Denied by a hook: {message or 'it gave no reason.'}"


def _hook_verdict_of(said: HookVerdict) -> Verdict:
    return Verdict("ask", said.message or "A hook wants a person to decide.")


def _unaskable_text_of(judged: JudgedCall) -> str:
    verdict = judged.verdict
    return (
        f"{judged.tool.name} requires confirmation: {verdict.reason} Nobody can be asked here, so nothing was done. "
        f"{verdict.hint}".rstrip()
    )


def _rejection_text_of(answer: AnswerPermission) -> str:
    if answer.by == "timeout":
        return f"Denied: the question timed out. {answer.reason} Nothing was done."
    if answer.by == "hook":
        return _hook_denial_text_of(answer.reason)
    if answer.by in ("shutdown", "nobody"):
        return f"Denied: {answer.reason} Nothing was done."
    return (
        f"The user said no: {answer.reason}\nNothing was done."
        if answer.reason
        else "The user said no. Nothing was done."
    )


_AUTOMATIC_ANSWERS = ("timeout", "hook", "shutdown", "nobody")
"""Who answers a question when no person does."""


def _is_stop(answer: AnswerPermission) -> bool:
    return answer.interrupt or answer.by == "shutdown"
