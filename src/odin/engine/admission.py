"""Decides whether a tool call may run: repetition → find → parse → mode → rules → tool's own refusal → hooks → ask.

If a hook or the user changes the arguments, they are parsed and judged again: a deny rule applies even if
the user allowed the call. Every refusal becomes a result that the model reads.
"""

from contextlib import suppress
from typing import Any

import msgspec

from odin.core.call_events import PermissionAsked
from odin.core.errors import Denied, NeedsConfirmation, OdinError, Rejected, UsageError
from odin.core.event import PermissionModeChanged, Warned
from odin.core.event_values import Mode
from odin.core.message import ToolCall
from odin.core.op import AnswerPermission
from odin.core.policy import HookVerdict, RememberScope, RuleAction
from odin.core.profile import SandboxGrants
from odin.core.text import to_valid_unicode
from odin.core.tool import ResolvedPath, Subject, Tool, ToolContext
from odin.engine.call import Call, CallDeps, CallScope, audit_change, describe_change, describe_tool_error, fire_hook
from odin.policy.modes import spec_of
from odin.policy.verdict import Verdict

MAX_ARGUMENT_ROUNDS = 5
"""Rounds of changed arguments or changed rules, after which a call is denied."""


async def admit(call: Call, scope: CallScope, deps: CallDeps) -> Call:
    """Return the call admitted or refused.

    A call that comes in judged has been started speculatively. It is not judged again, because what it has done since
    must not count against it (a file it created now exists); `is_still_allowed` repeats the rules alone.
    """
    call, tool = _find_tool(call, deps)
    repetition = scope.guard.check_call(call.id, tool.name if tool else call.request.name, call.request.args)
    if repetition:
        return call.refuse(repetition, discard_reason="repetition")
    if tool is None:
        known = ", ".join(item.name for item in deps.registry.list_offered(spec_of(scope.mode).allows_tool))
        return call.refuse(f"There is no tool {call.request.name!r}. The tools are: {known}.")
    if call.stage != "judged":
        call = await _prepare_and_judge(call, tool, scope, deps)
    if not call.is_refused:
        call = await _apply_hooks(call, scope, deps)
    return call if call.is_refused else await _ask_until_decided(call, scope, deps)


def _find_tool(call: Call, deps: CallDeps) -> tuple[Call, Tool[Any] | None]:
    """Return the tool of a call, and the call that it stands for."""
    tool = deps.registry.get(call.request.name)
    meant = None if tool is None else tool.find_delegate(call.request.args)
    if meant is None:
        return call, tool
    name, args = meant
    return msgspec.structs.replace(
        call, request=msgspec.structs.replace(call.request, name=name, args=args)
    ), deps.registry.get(name)


async def _prepare_and_judge(call: Call, tool: Tool[Any], scope: CallScope, deps: CallDeps) -> Call:
    """Judge a call. A tool that must look up what the call acts on does so first."""
    if tool.prepares and not _unavailable_reason_of(tool, scope.mode, deps):
        with suppress(Exception):  # judging refuses what was not prepared
            await tool.prepare(tool.parse(call.request.args), _make_context(call, scope, deps, ()))
    return _judge(call, tool, scope, deps)


# --- parse → mode → rules → tool's own refusal: nothing here waits for anybody ---


def judge_without_asking(call: Call, scope: CallScope, deps: CallDeps) -> Call | None:
    """Return the judged call if it may run without approval, otherwise None."""
    call, tool = _find_tool(call, deps)
    if tool is None:
        return None
    call = _judge(call, tool, scope, deps)
    return call if not call.is_refused and call.verdict.action == "allow" else None


def is_still_allowed(call: Call, scope: CallScope, deps: CallDeps) -> bool:
    """True if mode and rules still allow a call that has been started speculatively."""
    if _unavailable_reason_of(call.tool, scope.mode, deps):
        return False
    try:
        return _judge_by_rules(call, call.subject, scope, deps).verdict.action == "allow"
    except Exception:  # if judging fails, `admit` starts over
        return False


def _judge(call: Call, tool: Tool[Any], scope: CallScope, deps: CallDeps) -> Call:
    try:
        args = tool.parse(call.request.args)
    except msgspec.ValidationError as error:
        known = ", ".join(tool.build_spec().schema.get("properties", {}))
        text = f"The arguments of {tool.name} do not fit its schema: {error}. Its fields are: {known}."
        return call.refuse(text, discard_reason="args_invalid")
    except Exception as error:
        return call.refuse(describe_tool_error(tool, error), discard_reason="args_invalid")
    unavailable = _unavailable_reason_of(tool, scope.mode, deps)
    if unavailable:
        return call.refuse(unavailable, "denied")
    try:
        judged = msgspec.structs.replace(call, registered_tool=tool, args=args)
        judged = _judge_by_rules(judged, deps.policy().resolve(tool.subject_of(args)), scope, deps)
        if judged.verdict.action == "deny":
            return call.refuse(_denial_text_of(judged.verdict), "denied")
        refusal = tool.refusal_of(args)
    except Exception as error:  # a call that cannot be judged does not run
        return call.refuse(describe_tool_error(tool, error))
    return call.refuse(refusal) if refusal else judged


def _unavailable_reason_of(tool: Tool[Any], mode: Mode, deps: CallDeps) -> str:
    if deps.registry.is_disabled(tool.name):
        return f"{tool.name} is switched off in this session. Nothing was done."
    if not spec_of(mode).allows_kind(tool.kind):
        return (
            f"{tool.name} is not available in {mode}: it changes files, and in this mode nothing is changed. "
            "Nothing was done. Describe the change instead."
        )
    return ""


_SECRET_FILES = ("files whose names suggest secrets",)
"""Shown instead of file names if a folder is too large to search for secret files."""

_STRICTNESS = {"allow": 0, "ask": 1, "deny": 2}


def _judge_by_rules(call: Call, subject: Subject, scope: CallScope, deps: CallDeps) -> Call:
    """Return the call with its verdict. Several paths are also judged one by one; the strictest verdict counts."""
    tool = call.tool
    policy = deps.policy()
    verdict = policy.judge(tool.name, tool.kind, subject, scope.mode)
    asked: list[str] = []
    allowed: list[str] = []
    for part in subject.split_paths() if len(subject.paths) > 1 else ():
        alone = policy.judge(tool.name, tool.kind, part, scope.mode)
        if _STRICTNESS[alone.action] > _STRICTNESS[verdict.action]:
            verdict = alone
        (allowed if alone.action == "allow" else asked).append(part.text)
    if not asked:  # no single path needs permission, so the request covers all of them
        asked, allowed = allowed, []
    if verdict.action == "ask" and not verdict.may_be_denied and deps.registry.is_allowed(tool.name):
        verdict = Verdict("allow")
    args, left_out = call.args, call.left_out
    if verdict.action == "allow" and verdict.amended is not None:
        # the policy allows a narrower command, which leaves out secret files
        args = msgspec.structs.replace(args, command=verdict.amended.command)
        left_out = verdict.amended.left_out or _SECRET_FILES
    return msgspec.structs.replace(
        call,
        stage="judged",
        args=args,
        left_out=left_out,
        subject=subject,
        verdict=verdict,
        asked_paths=tuple(asked),
        allowed_paths=tuple(allowed),
    )


async def _replace_arguments(
    call: Call, args: dict[str, Any], by: str, summary: str, scope: CallScope, deps: CallDeps
) -> Call:
    """Return the call with other arguments, judged as if the model had sent them."""
    original = call.audit.original if call.audit else call.request.args
    audit = audit_change(original, args, by, summary)
    requested = Call(ToolCall(call.id, call.request.name, args), audit=audit)
    judged = await _prepare_and_judge(requested, call.tool, scope, deps)
    if judged.refusal is None or audit is None:
        return judged
    refusal = judged.refusal
    text = f"{refusal.text}\n{describe_change(audit)} It was not run."
    return requested.refuse(text, refusal.status, discard_reason=refusal.discard_reason, error_type=refusal.error_type)


# --- tool_call hooks ---


async def _apply_hooks(call: Call, scope: CallScope, deps: CallDeps) -> Call:
    """Apply the hooks' decision. A hook can deny, ask, or allow what would be asked; it cannot allow a denied call."""
    verdict = await _fire_tool_call(call, scope, deps)
    call = await _apply_hook_arguments(call, verdict, scope, deps)
    if call.is_refused:
        return call
    if verdict.decision == "deny" or verdict.halt:
        return _deny_by_hook(call, verdict)
    if verdict.decision == "allow" and not (call.verdict.builtin or call.verdict.may_be_denied):
        return msgspec.structs.replace(call, verdict=Verdict("allow"))
    if verdict.decision == "ask" and (call.verdict.action == "allow" or scope.is_approved):
        asking = Verdict("ask", verdict.message or "A hook asks for confirmation.")
        return msgspec.structs.replace(call, verdict=asking, is_asked_by_hook=True)
    return call


async def _fire_tool_call(call: Call, scope: CallScope, deps: CallDeps) -> HookVerdict:
    """Fire `tool_call`. Arguments a hook returns unchanged are no change."""
    verdict = await fire_hook("tool_call", call, scope, deps)
    same = verdict.args is not None and verdict.args == call.tool.rename_args(call.request.args)
    return msgspec.structs.replace(verdict, args=None) if same else verdict


async def _apply_hook_arguments(call: Call, verdict: HookVerdict, scope: CallScope, deps: CallDeps) -> Call:
    if verdict.args is None or verdict.args == call.request.args or verdict.decision == "deny":
        return call
    return await _replace_arguments(call, verdict.args, "hook", verdict.message, scope, deps)


def _deny_by_hook(call: Call, verdict: HookVerdict) -> Call:
    return call.refuse(_hook_denial_text_of(verdict.message), "denied", discard_reason="hook_block")


# --- ask the user ---


async def _ask_until_decided(call: Call, scope: CallScope, deps: CallDeps) -> Call:
    """Ask again while the answers change the arguments or rules change while a request is open."""
    for _ in range(MAX_ARGUMENT_ROUNDS):
        if call.verdict.action == "allow" or _is_approved(call, scope):
            return _admit_judged(call)
        if not deps.approvals.can_ask or deps.policy().permission_mode == "dontAsk":
            return call.refuse(_unaskable_text_of(call), "denied", error_type=NeedsConfirmation)
        # The error that the call would give now: the user is not asked about what cannot work.
        try:
            failure = await call.tool.find_failure(call.args, _make_context(call, scope, deps, call.subject.resolved))
        except Exception:  # the tool reports it when it runs
            failure = None
        if failure is not None:
            return call.refuse_with(failure)
        answer, grants = await _ask_permission(call, scope, deps)
        if answer is None:
            call = _judge(Call(call.request, audit=call.audit), call.tool, scope, deps)
        elif not answer.allow:
            error_type = Denied if answer.by in _AUTOMATIC_ANSWERS else Rejected
            return call.refuse(_rejection_text_of(answer), "denied", error_type=error_type, stops_turn=_is_stop(answer))
        elif answer.args is None:
            return _admit_judged(msgspec.structs.replace(call, grants=grants) if answer.by in _GRANTORS else call)
        else:
            # Admit the arguments the user wrote, unless a rule or a hook denies them. If a hook changes them once more,
            # the user has not seen the outcome, so the call comes back judged, to be asked about again.
            edited = await _replace_arguments(call, answer.args, answer.by, answer.summary, scope, deps)
            if edited.is_refused:
                call = edited
            else:
                verdict = await _fire_tool_call(edited, scope, deps)
                if verdict.decision == "deny" or verdict.halt:
                    call = _deny_by_hook(edited, verdict)
                else:
                    changed = await _apply_hook_arguments(edited, verdict, scope, deps)
                    call = _admit_judged(edited) if changed is edited else changed
        if call.stage in ("admitted", "refused"):
            return call
    return call.refuse("Denied: its arguments were changed too many times.", "denied")


def _is_approved(call: Call, scope: CallScope) -> bool:
    """True if the user has approved this call beforehand, no hook wants to ask, and no deny rule may apply."""
    return scope.is_approved and not (call.is_asked_by_hook or call.verdict.may_be_denied or call.audit)


def _make_context(call: Call, scope: CallScope, deps: CallDeps, judged: tuple[ResolvedPath, ...]) -> ToolContext:
    return ToolContext(
        cwd=scope.cwd,
        root=scope.root,
        session=deps.recorder.state.session,
        agent=scope.agent,
        call_id=call.id,
        mode=scope.mode,
        progress=lambda text: None,
        environment=deps.policy().scope.environment,
        judged=judged,
    )


def _admit_judged(call: Call) -> Call:
    return msgspec.structs.replace(call, stage="admitted")


async def _ask_permission(
    call: Call, scope: CallScope, deps: CallDeps
) -> tuple[AnswerPermission | None, SandboxGrants]:
    """Ask the user. Return the answer and what approval grants.

    The answer is None if no approval was needed any more.
    """
    grants = deps.policy().find_grants(call.tool.name, call.tool.kind, call.subject, scope.mode)

    async def prepare() -> PermissionAsked | None:
        return await _build_request(call, grants, scope, deps) if _must_still_ask(call, scope, deps) else None

    async def remember(answer: AnswerPermission) -> AnswerPermission:
        _switch_permission_mode(answer, call, scope, deps)
        # Add the rule the answer names and return the answer with what was remembered. If the rule cannot be added, the
        # answer applies to this call only, and the user is warned.
        if answer.remember is None:
            return msgspec.structs.replace(answer, rule="")
        problem = await _add_rule(answer, answer.remember, call, scope, deps)
        if not problem:
            return msgspec.structs.replace(answer, rule=answer.rule.strip())
        _warn(f"The answer applies once and was not saved as a rule: {problem}", scope, deps)
        return msgspec.structs.replace(answer, rule="", remember=None)

    return await deps.approvals.ask(prepare, scope.agent, handle_answer=remember), grants


def _must_still_ask(call: Call, scope: CallScope, deps: CallDeps) -> bool:
    if call.is_asked_by_hook:
        return True
    now = _judge(Call(call.request), call.tool, scope, deps)
    return not now.is_refused and now.verdict.action == "ask"


async def _build_request(call: Call, grants: SandboxGrants, scope: CallScope, deps: CallDeps) -> PermissionAsked:
    tool = call.tool
    modes = _list_offered_modes(call, scope, deps)
    rules = () if deps.rules is None else deps.policy().suggest_rules(tool.name, tool.kind, call.subject, scope.mode)
    effect = deps.policy().describe_effect(tool.name, tool.kind, call.subject, scope.mode)
    return PermissionAsked(
        ask_id="",
        call_id=call.id,
        name=tool.name,
        args=call.request.args,
        reason=_clean(call.verdict.reason, deps),
        subject=_clean(call.subject.text, deps),
        rules=rules,
        preview=await _render_preview(call, deps),
        sandbox=deps.sandbox() if tool.kind == "execute" else "",
        asked_paths=tuple(to_valid_unicode(path) for path in call.asked_paths),
        allowed_paths=tuple(to_valid_unicode(path) for path in call.allowed_paths),
        danger=effect.danger,
        effect=_clean(effect.sentence, deps),
        permission_modes=modes,
        title=_clean(deps.policy().name_call(tool.name, tool.kind, call.subject, scope.mode), deps),
        granted_paths=tuple(to_valid_unicode(path) for path in grants.paths),
        granted_network=grants.network,
    )


def _list_offered_modes(call: Call, scope: CallScope, deps: CallDeps) -> tuple[str, ...]:
    if deps.set_permission_mode is None or call.is_asked_by_hook:
        return ()
    return deps.policy().suggest_modes(call.tool.name, call.tool.kind, call.subject, scope.mode)


async def _render_preview(call: Call, deps: CallDeps) -> str:
    """Return the change an edit would make. If it cannot be shown, the request comes without it."""
    if call.tool.kind != "edit":
        return ""
    try:
        text = await call.tool.preview(call.args) or await deps.preview(call.args, call.subject.resolved)
        return _clean(text, deps)
    except Exception:
        return ""


def _switch_permission_mode(answer: AnswerPermission, call: Call, scope: CallScope, deps: CallDeps) -> None:
    """Set the permission mode that comes with an answer. If it cannot be set, the answer applies to this call only."""
    if not answer.allow or not answer.permission_mode:
        return
    try:
        if deps.set_permission_mode is None or answer.permission_mode not in _list_offered_modes(call, scope, deps):
            raise UsageError(f"the permission mode {answer.permission_mode!r} was not offered.")
        mode = deps.set_permission_mode(answer.permission_mode)
    except OdinError as error:
        _warn(f"The answer applies once and the permission mode stays as it was: {error.describe()}", scope, deps)
    else:
        deps.recorder.emit(PermissionModeChanged(mode))


async def _add_rule(
    answer: AnswerPermission, remember: RememberScope, call: Call, scope: CallScope, deps: CallDeps
) -> str:
    """Return why the rule was not added, or ""."""
    text = answer.rule.strip()
    action: RuleAction = "allow" if answer.allow else "deny"
    if not text:
        return "no rule was given."
    if answer.args is not None:
        return "the arguments were changed, so the rule does not match what runs."
    if deps.rules is None:
        return "rules cannot be changed in this session."
    tool = call.tool
    try:
        if not deps.policy().would_decide(text, action, tool.name, tool.kind, call.subject, scope.mode):
            return f"the rule {text} does not match this call."
        await deps.rules.add(text, action, remember)
    except OdinError as error:
        return error.describe()
    except OSError as error:
        return f"it could not be saved ({error.strerror or error})."
    return ""


async def ask_unsandboxed(call: Call, blocked: str, scope: CallScope, deps: CallDeps) -> AnswerPermission:
    """Ask whether a command may run again without the sandbox, with the same arguments. Nothing is remembered."""
    blocked = _clean(blocked, deps)
    effect = deps.policy().describe_effect(call.tool.name, call.tool.kind, call.subject, scope.mode)
    request = PermissionAsked(
        ask_id="",
        call_id=call.id,
        name=call.tool.name,
        args=call.request.args,
        reason=f"The sandbox kept it from {blocked}.",
        subject=_clean(call.tool.subject_of(call.args).text, deps),
        sandbox=deps.sandbox(),
        unsandboxed=True,
        danger=effect.danger,
        effect=_clean(effect.sentence, deps),
    )

    async def prepare() -> PermissionAsked:
        return request

    async def accept_once(answer: AnswerPermission) -> AnswerPermission:
        if answer.args is not None:
            problem = "The arguments cannot be changed in this request, so the command was not run again."
            _warn(problem, scope, deps)
            return AnswerPermission(answer.ask_id, False, problem, by=answer.by)
        if answer.remember is not None:
            _warn("Running outside the sandbox is allowed only once; no rule was saved.", scope, deps)
        return msgspec.structs.replace(answer, rule="", remember=None)

    answer = await deps.approvals.ask(prepare, scope.agent, handle_answer=accept_once)
    return answer or AnswerPermission("", False)


def _warn(text: str, scope: CallScope, deps: CallDeps) -> None:
    deps.recorder.emit(Warned(text), scope.agent)


def _clean(text: str, deps: CallDeps) -> str:
    return to_valid_unicode(deps.redact(text).text) if text else ""


# --- refusal texts: each says who refused ---


def _denial_text_of(verdict: Verdict) -> str:
    """Return the rule and how to allow the call.

    A certain deny rule needs no reason; other denials give theirs.
    """
    by = f"Denied by rule {verdict.rule.removeprefix('deny ')}" if verdict.rule else "Denied"
    is_certain = verdict.rule.startswith("deny ") and not verdict.may_be_denied
    return f"{by}. {verdict.hint}".rstrip() if is_certain else f"{by}: {verdict.reason} {verdict.hint}".rstrip()


def _hook_denial_text_of(message: str) -> str:
    return f"Denied by a hook: {message or 'it gave no reason.'}"


def _unaskable_text_of(call: Call) -> str:
    verdict = call.verdict
    return (
        f"{call.tool.name} requires confirmation: {verdict.reason} No user can be asked here, so nothing was done. "
        f"{verdict.hint}".rstrip()
    )


def _rejection_text_of(answer: AnswerPermission) -> str:
    if answer.by == "timeout":
        return f"Denied: the permission request timed out. {answer.reason} Nothing was done."
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
"""Values of `AnswerPermission.by` for answers that did not come from the user."""


_GRANTORS = ("user", "sdk", "api")
"""Values of `AnswerPermission.by` that grant what the request names.

Only these answers may widen the sandbox; those of hooks and replays may not.
"""


def _is_stop(answer: AnswerPermission) -> bool:
    return answer.interrupt or answer.by == "shutdown"
