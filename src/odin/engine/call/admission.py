"""Whether a call may run.

    find → guard → parse → mode → rules → refusal of the tool → hooks → ask

Whoever changes the arguments on the way, a hook or a person, sends them back to be parsed and judged: a deny holds
whatever anybody allows. Everything that is wrong with a call becomes a result that the model reads.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from odin.core.errors import Denied, NeedsConfirmation, Rejected
from odin.core.event import CallAudit, Mode
from odin.core.hook import HookVerdict
from odin.core.message import ToolCall
from odin.core.op import Answer
from odin.core.registry import Registry
from odin.core.tool import Subject, Tool
from odin.engine.call.admitted import Admitted, Judged, Refused, Scope, fault
from odin.engine.call.changed import audited, how_changed
from odin.engine.call.confirm import Confirm
from odin.engine.call.hooking import ToolHooks
from odin.policy.modes import spec_of
from odin.policy.rules import Policy, Verdict

MAX_ROUNDS = 5
"""How often arguments may be changed by a person and then again by a hook, before nobody is asked any more."""


class Admission:
    def __init__(self, *, registry: Registry, policy: Callable[[], Policy], confirm: Confirm, hooks: ToolHooks) -> None:
        self._registry = registry
        self._policy = policy
        self._confirm = confirm
        self._hooks = hooks

    async def admit(self, call: ToolCall, scope: Scope, begun: Judged | None = None) -> Admitted | Refused:
        """Whether it may run. `begun` is how it was judged when it was begun early: its parts have not changed since.

        What it did then must not be held against it now, so only the rules are asked again (`still_allowed`).
        """
        tool = self._registry.get(call.name)
        if tool is None:
            known = ", ".join(item.name for item in self._registry.offered(spec_of(scope.mode).visible))
            return Refused(call, f"There is no tool {call.name!r}. The tools are: {known}.")
        circling = scope.guard.check(tool.name, call.args)
        if circling:
            return Refused(call, circling, reason="repetition")
        judged = begun or self._check(call, tool, scope)
        if isinstance(judged, Refused):
            return judged
        heard = await self._hear(judged, scope)
        return heard if isinstance(heard, Refused) else await self._decide(heard, scope)

    # --- what can be told without asking anybody ---

    def allowed(self, call: ToolCall, scope: Scope) -> Judged | None:
        """The call as it was judged, when it may run and nobody has to be asked."""
        tool = self._registry.get(call.name)
        judged = self._check(call, tool, scope) if tool is not None else None
        return judged if isinstance(judged, Judged) and judged.verdict.action == "allow" else None

    def still_allowed(self, begun: Judged, scope: Scope) -> bool:
        """Whether the rules still say what they said when the call was begun."""
        if self._barred(begun.tool, scope.mode):
            return False
        try:
            return self._judge(begun.call, begun.tool, begun.args, scope).verdict.action == "allow"
        except Exception:  # what cannot be judged any more is judged anew from the beginning
            return False

    def _check(self, call: ToolCall, tool: Tool[Any], scope: Scope) -> Judged | Refused:
        parsed = self._parse(tool, call.args)
        if isinstance(parsed, str):
            return Refused(call, parsed, reason="args_invalid")
        barred = self._barred(tool, scope.mode)
        if barred:
            return Refused(call, barred, "denied")
        try:
            judged = self._judge(call, tool, parsed, scope)
            if judged.verdict.action == "deny":
                return Refused(call, _denied(judged.verdict), "denied")
            refusal = tool.refusal(parsed)
        except Exception as error:  # what cannot be judged is not run
            return Refused(call, fault(tool, error))
        return Refused(call, refusal) if refusal else judged

    def _parse(self, tool: Tool[Any], raw: dict[str, Any]) -> Any:
        """The parsed arguments, or a sentence that names the field that is wrong."""
        try:
            return tool.parse(raw)
        except msgspec.ValidationError as error:
            known = ", ".join(tool.spec().schema.get("properties", {}))
            return f"The arguments of {tool.name} do not fit its schema: {error}. Its fields are: {known}."
        except Exception as error:
            return fault(tool, error)

    def _barred(self, tool: Tool[Any], mode: Mode) -> str:
        if self._registry.is_disabled(tool.name):
            return f"{tool.name} is switched off in this session. Nothing was done."
        if not spec_of(mode).shows(tool.kind):
            return (
                f"{tool.name} is not available in {mode}: it changes files, and in this mode nothing is changed. "
                "Nothing was done. Describe the change instead."
            )
        return ""

    def _judge(self, call: ToolCall, tool: Tool[Any], args: Any, scope: Scope) -> Judged:
        """By the rules. A call about several paths is also judged path by path: the strictest verdict is the call's."""
        subject = tool.subject(args)
        policy = self._policy()
        verdict = policy.judge(tool.name, tool.kind, subject, scope.mode)
        asked: list[str] = []
        allowed: list[str] = []
        for path in subject.paths if len(subject.paths) > 1 else ():
            alone = policy.judge(tool.name, tool.kind, Subject(paths=(path,)), scope.mode)
            if _STRICTER[alone.action] > _STRICTER[verdict.action]:
                verdict = alone
            (allowed if alone.action == "allow" else asked).append(path)
        if not asked:  # what is asked about is all of them together
            asked, allowed = allowed, []
        if verdict.action == "ask" and self._registry.is_allowed(tool.name):
            verdict = Verdict("allow")
        return Judged(call, tool, args, subject, verdict, tuple(asked), tuple(allowed))

    # --- hooks ---

    async def _hear(self, judged: Judged, scope: Scope) -> Judged | Refused:
        """What the hooks make of it. They may say no, ask, or yes to what would be asked, never yes to a no."""
        said = await self._hooks.before(judged.tool, judged.call, judged.args, scope)
        heard = self._rewritten(judged, said, scope)
        if isinstance(heard, Refused):
            return heard
        if said.decision == "deny" or said.halt:
            message = _hook_said_no(said.message)
            return Refused(heard.call, message, "denied", audit=heard.audit, reason="hook_block")
        if said.decision == "allow" and not heard.verdict.builtin:
            return msgspec.structs.replace(heard, verdict=Verdict("allow"))
        if said.decision == "ask" and heard.verdict.action == "allow":
            return msgspec.structs.replace(heard, verdict=_asked_by_hook(said), asked_by_hook=True)
        return heard

    def _rewritten(self, judged: Judged, said: HookVerdict, scope: Scope) -> Judged | Refused:
        if said.args is None or said.args == judged.call.args or said.decision == "deny":
            return judged
        return self._changed(judged, said.args, "hook", said.message, scope)

    def _changed(self, judged: Judged, args: dict[str, Any], by: str, summary: str, scope: Scope) -> Judged | Refused:
        """The call with other arguments, parsed and judged as if the model had sent them."""
        call = ToolCall(judged.call.id, judged.call.name, args)
        original = judged.audit.original if judged.audit else judged.call.args
        audit = audited(original, args, by, summary)
        checked = self._check(call, judged.tool, scope)
        if isinstance(checked, Refused):
            text = f"{checked.text}\n{how_changed(audit)} It was not run." if audit else checked.text
            return msgspec.structs.replace(checked, text=text, audit=audit)
        return msgspec.structs.replace(checked, audit=audit)

    # --- the person ---

    async def _decide(self, judged: Judged, scope: Scope) -> Admitted | Refused:
        for _ in range(MAX_ROUNDS):
            if judged.verdict.action == "allow":
                return _admitted(judged)
            if not self._confirm.can_ask or self._policy().permission_mode == "dontAsk":
                return Refused(judged.call, _unasked(judged), "denied", audit=judged.audit, named=NeedsConfirmation)
            answer = await self._confirm.permission(
                judged, scope, lambda judged=judged: self._still_asks(judged, scope)
            )
            if answer is None:
                following = self._check(judged.call, judged.tool, scope)
                following = _with_audit(following, judged.audit)
            elif not answer.allow:
                named = Denied if answer.by in _NOBODY else Rejected
                return Refused(judged.call, _said_no(answer), "denied", _stops(answer), judged.audit, named=named)
            elif answer.args is None:
                return _admitted(judged)
            else:
                following = await self._edited(judged, answer.args, answer, scope)
            if isinstance(following, Admitted | Refused):
                return following
            judged = following
        return Refused(judged.call, "Denied: its arguments were changed again and again.", "denied", audit=judged.audit)

    def _still_asks(self, judged: Judged, scope: Scope) -> bool:
        """Whether the question must still be put: a rule may have been added while others were asked."""
        if judged.asked_by_hook:
            return True
        now = self._check(judged.call, judged.tool, scope)
        return isinstance(now, Judged) and now.verdict.action == "ask"

    async def _edited(
        self, judged: Judged, args: dict[str, Any], answer: Answer, scope: Scope
    ) -> Admitted | Judged | Refused:
        """The person wrote these arguments, so they are approved; what is denied stays denied, and hooks see them.

        Where a hook changes them once more, the person has not seen the outcome: it is asked about again.
        """
        changed = self._changed(judged, args, answer.by, answer.summary, scope)
        if isinstance(changed, Refused):
            return changed
        said = await self._hooks.before(changed.tool, changed.call, changed.args, scope)
        if said.decision == "deny" or said.halt:
            message = _hook_said_no(said.message)
            return Refused(changed.call, message, "denied", audit=changed.audit, reason="hook_block")
        heard = self._rewritten(changed, said, scope)
        return _admitted(changed) if heard is changed else heard


def _admitted(judged: Judged) -> Admitted:
    return Admitted(judged.call, judged.tool, judged.args, judged.audit)


def _with_audit(item: Judged | Refused, audit: CallAudit | None) -> Judged | Refused:
    return msgspec.structs.replace(item, audit=audit)


_STRICTER = {"allow": 0, "ask": 1, "deny": 2}


# --- what the model reads: every no says whose it is ---


def _denied(verdict: Verdict) -> str:
    by = f"Denied by rule {verdict.rule.removeprefix('deny ')}" if verdict.rule else "Denied"
    return f"{by}: {verdict.reason} {verdict.hint}".rstrip()


def _hook_said_no(message: str) -> str:
    return f"Denied by a hook: {message or 'it gave no reason.'}"


def _asked_by_hook(said: HookVerdict) -> Verdict:
    return Verdict("ask", said.message or "A hook wants a person to decide.")


def _unasked(judged: Judged) -> str:
    verdict = judged.verdict
    return (
        f"{judged.tool.name} requires confirmation: {verdict.reason} Nobody can be asked here, so nothing was done. "
        f"{verdict.hint}".rstrip()
    )


def _said_no(answer: Answer) -> str:
    if answer.by == "timeout":
        return f"Denied: the question timed out. {answer.reason} Nothing was done."
    if answer.by == "hook":
        return _hook_said_no(answer.reason)
    if answer.by in ("shutdown", "nobody"):
        return f"Denied: {answer.reason} Nothing was done."
    return (
        f"The user said no: {answer.reason}\nNothing was done."
        if answer.reason
        else "The user said no. Nothing was done."
    )


_NOBODY = ("timeout", "hook", "shutdown", "nobody")
"""Who answers a question when no person does."""


def _stops(answer: Answer) -> bool:
    return answer.interrupt or answer.by == "shutdown"
