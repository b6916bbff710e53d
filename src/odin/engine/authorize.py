"""Decides whether a tool call may run: repetition → find → parse → mode → rules → tool's own refusal → hooks → ask.

If a hook or the user changes the arguments, they are parsed and checked again: a deny rule applies even if
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
from odin.core.policy import HookEffect, RememberScope, RuleAction
from odin.core.profile import SandboxGrants
from odin.core.text import to_valid_unicode
from odin.core.tool import ResolvedPath, Target, Tool, ToolContext
from odin.engine.call import Call, CallDeps, CallScope, audit_change, describe_change, describe_tool_error, fire_hook
from odin.policy.decision import Decision
from odin.policy.modes import get_mode_spec

MAX_ARGUMENT_ROUNDS = 5
"""Rounds of changed arguments or changed rules, after which a call is denied."""


async def authorize(call: Call, scope: CallScope, deps: CallDeps) -> Call:
    """Return the call authorized or refused.

    A call that comes in checked has been started speculatively. It is not checked again, because what it has done since
    must not count against it (a file it created now exists); `is_still_allowed` repeats the rules alone.
    """
    call, tool = _find_tool(call, deps)
    repetition = scope.guard.check_call(call.id, tool.name if tool else call.request.name, call.request.args)
    if repetition:
        return call.refuse(repetition, discard_reason="repetition")
    if tool is None:
        known = ", ".join(item.name for item in deps.registry.list_offered(get_mode_spec(scope.mode).allows_tool))
        return call.refuse(f"There is no tool {call.request.name!r}. The tools are: {known}.")
    if call.stage != "evaluated":
        call = await _resolve_and_evaluate(call, tool, scope, deps)
    if not call.is_refused:
        call = await _apply_hooks(call, scope, deps)
    return call if call.is_refused else await _ask_until_decided(call, scope, deps)


def _find_tool(call: Call, deps: CallDeps) -> tuple[Call, Tool[Any] | None]:
    """Return the tool of a call, and the call that it stands for."""
    tool = deps.registry.get(call.request.name)
    meant = None if tool is None else tool.redirect(call.request.args)
    if meant is None:
        return call, tool
    name, args = meant
    return msgspec.structs.replace(
        call, request=msgspec.structs.replace(call.request, name=name, args=args)
    ), deps.registry.get(name)


async def _resolve_and_evaluate(call: Call, tool: Tool[Any], scope: CallScope, deps: CallDeps) -> Call:
    """Check a call. A tool that must look up what the call acts on does so first."""
    if tool.resolves and not _explain_unavailable(tool, scope.mode, deps):
        with suppress(Exception):  # checking refuses what was not prepared
            await tool.resolve(tool.parse(call.request.args), _make_context(call, scope, deps, ()))
    return _evaluate(call, tool, scope, deps)


# --- parse → mode → rules → tool's own refusal: nothing here waits for anybody ---


def evaluate_without_asking(call: Call, scope: CallScope, deps: CallDeps) -> Call | None:
    """Return the checked call if it may run without approval, otherwise None."""
    call, tool = _find_tool(call, deps)
    if tool is None:
        return None
    call = _evaluate(call, tool, scope, deps)
    return call if not call.is_refused and call.decision.action == "allow" else None


def is_still_allowed(call: Call, scope: CallScope, deps: CallDeps) -> bool:
    """True if mode and rules still allow a call that has been started speculatively."""
    if _explain_unavailable(call.tool, scope.mode, deps):
        return False
    try:
        return _evaluate_rules(call, call.target, scope, deps).decision.action == "allow"
    except Exception:  # if checking fails, `authorize` starts over
        return False


def _evaluate(call: Call, tool: Tool[Any], scope: CallScope, deps: CallDeps) -> Call:
    try:
        args = tool.parse(call.request.args)
    except msgspec.ValidationError as error:
        known = ", ".join(tool.build_spec().schema.get("properties", {}))
        text = f"The arguments of {tool.name} do not fit its schema: {error}. Its fields are: {known}."
        return call.refuse(text, discard_reason="args_invalid")
    except Exception as error:
        return call.refuse(describe_tool_error(tool, error), discard_reason="args_invalid")
    unavailable = _explain_unavailable(tool, scope.mode, deps)
    if unavailable:
        return call.refuse(unavailable, "denied")
    try:
        evaluated = msgspec.structs.replace(call, registered_tool=tool, args=args)
        evaluated = _evaluate_rules(evaluated, deps.policy().resolve(tool.get_target(args)), scope, deps)
        if evaluated.decision.action == "deny":
            return call.refuse(_format_denial(evaluated.decision), "denied")
        refusal = tool.validate(args)
    except Exception as error:  # a call that cannot be checked does not run
        return call.refuse(describe_tool_error(tool, error))
    return call.refuse(refusal) if refusal else evaluated


def _explain_unavailable(tool: Tool[Any], mode: Mode, deps: CallDeps) -> str:
    if deps.registry.is_disabled(tool.name):
        return f"{tool.name} is switched off in this session. Nothing was done."
    if not get_mode_spec(mode).allows_kind(tool.kind):
        return (
            f"{tool.name} is not available in {mode}: it changes files, and in this mode nothing is changed. "
            "Nothing was done. Describe the change instead."
        )
    return ""


_SECRET_FILES = ("files whose names suggest secrets",)
"""Shown instead of file names if a folder is too large to search for secret files."""

_STRICTNESS = {"allow": 0, "ask": 1, "deny": 2}


def _evaluate_rules(call: Call, target: Target, scope: CallScope, deps: CallDeps) -> Call:
    """Return the call with its decision. Several paths are also checked one by one; the strictest decision counts."""
    tool = call.tool
    policy = deps.policy()
    decision = policy.evaluate(tool.name, tool.kind, target, scope.mode)
    asked: list[str] = []
    allowed: list[str] = []
    for part in target.split_paths() if len(target.paths) > 1 else ():
        alone = policy.evaluate(tool.name, tool.kind, part, scope.mode)
        if _STRICTNESS[alone.action] > _STRICTNESS[decision.action]:
            decision = alone
        (allowed if alone.action == "allow" else asked).append(part.text)
    if not asked:  # no single path needs permission, so the request covers all of them
        asked, allowed = allowed, []
    if decision.action == "ask" and not decision.may_be_denied and deps.registry.is_allowed(tool.name):
        decision = Decision("allow")
    args, left_out = call.args, call.left_out
    if decision.action == "allow" and decision.amended is not None:
        # the policy allows a narrower command, which leaves out secret files
        args = msgspec.structs.replace(args, command=decision.amended.command)
        left_out = decision.amended.left_out or _SECRET_FILES
    return msgspec.structs.replace(
        call,
        stage="evaluated",
        args=args,
        left_out=left_out,
        target=target,
        decision=decision,
        asked_paths=tuple(asked),
        allowed_paths=tuple(allowed),
    )


async def _replace_arguments(
    call: Call, args: dict[str, Any], by: str, summary: str, scope: CallScope, deps: CallDeps
) -> Call:
    """Return the call with other arguments, checked as if the model had sent them."""
    original = call.audit.original if call.audit else call.request.args
    audit = audit_change(original, args, by, summary)
    requested = Call(ToolCall(call.id, call.request.name, args), audit=audit)
    evaluated = await _resolve_and_evaluate(requested, call.tool, scope, deps)
    if evaluated.refusal is None or audit is None:
        return evaluated
    refusal = evaluated.refusal
    text = f"{refusal.text}\n{describe_change(audit)} It was not run."
    return requested.refuse(text, refusal.status, discard_reason=refusal.discard_reason, error_type=refusal.error_type)


# --- tool_call hooks ---


async def _apply_hooks(call: Call, scope: CallScope, deps: CallDeps) -> Call:
    """Apply the hooks' decision. A hook can deny, ask, or allow what would be asked; it cannot allow a denied call."""
    effect = await _fire_tool_call(call, scope, deps)
    call = await _apply_hook_arguments(call, effect, scope, deps)
    if call.is_refused:
        return call
    if effect.decision == "deny" or effect.halt:
        return _deny_by_hook(call, effect)
    if effect.decision == "allow" and not (call.decision.builtin or call.decision.may_be_denied):
        return msgspec.structs.replace(call, decision=Decision("allow"))
    if effect.decision == "ask" and (call.decision.action == "allow" or scope.is_approved):
        asking = Decision("ask", effect.message or "A hook asks for confirmation.")
        return msgspec.structs.replace(call, decision=asking, is_asked_by_hook=True)
    return call


async def _fire_tool_call(call: Call, scope: CallScope, deps: CallDeps) -> HookEffect:
    """Fire `tool_call`. Arguments a hook returns unchanged are no change."""
    effect = await fire_hook("PreToolUse", call, scope, deps)
    same = effect.args is not None and effect.args == call.tool.rename_args(call.request.args)
    return msgspec.structs.replace(effect, args=None) if same else effect


async def _apply_hook_arguments(call: Call, effect: HookEffect, scope: CallScope, deps: CallDeps) -> Call:
    if effect.args is None or effect.args == call.request.args or effect.decision == "deny":
        return call
    return await _replace_arguments(call, effect.args, "hook", effect.message, scope, deps)


def _deny_by_hook(call: Call, effect: HookEffect) -> Call:
    return call.refuse(_format_hook_denial(effect.message), "denied", discard_reason="hook_block")


# --- ask the user ---


async def _ask_until_decided(call: Call, scope: CallScope, deps: CallDeps) -> Call:
    """Ask again while the answers change the arguments or rules change while a request is open."""
    for _ in range(MAX_ARGUMENT_ROUNDS):
        if call.decision.action == "allow" or _is_approved(call, scope):
            return _mark_authorized(call)
        if not deps.approvals.can_ask or deps.policy().permission_mode == "dontAsk":
            return call.refuse(_format_unaskable(call), "denied", error_type=NeedsConfirmation)
        # The error that the call would give now: the user is not asked about what cannot work.
        try:
            failure = await call.tool.dry_run(call.args, _make_context(call, scope, deps, call.target.resolved))
        except Exception:  # the tool reports it when it runs
            failure = None
        if failure is not None:
            return call.refuse_with(failure)
        answer, grants = await _ask_permission(call, scope, deps)
        if answer is None:
            call = _evaluate(Call(call.request, audit=call.audit), call.tool, scope, deps)
        elif not answer.allow:
            error_type = Denied if answer.by in _AUTOMATIC_ANSWERS else Rejected
            return call.refuse(_format_rejection(answer), "denied", error_type=error_type, stops_turn=_is_stop(answer))
        elif answer.args is None:
            return _mark_authorized(msgspec.structs.replace(call, grants=grants) if answer.by in _GRANTORS else call)
        else:
            # Authorize the arguments the user wrote, unless a rule or a hook denies them. If a hook changes them once
            # more, the user has not seen the outcome, so the call comes back checked, to be asked about again.
            edited = await _replace_arguments(call, answer.args, answer.by, answer.summary, scope, deps)
            if edited.is_refused:
                call = edited
            else:
                effect = await _fire_tool_call(edited, scope, deps)
                if effect.decision == "deny" or effect.halt:
                    call = _deny_by_hook(edited, effect)
                else:
                    changed = await _apply_hook_arguments(edited, effect, scope, deps)
                    call = _mark_authorized(edited) if changed is edited else changed
        if call.stage in ("authorized", "refused"):
            return call
    return call.refuse("Denied: its arguments were changed too many times.", "denied")


def _is_approved(call: Call, scope: CallScope) -> bool:
    """True if the user has approved this call beforehand, no hook wants to ask, and no deny rule may apply."""
    return scope.is_approved and not (call.is_asked_by_hook or call.decision.may_be_denied or call.audit)


def _make_context(call: Call, scope: CallScope, deps: CallDeps, evaluated: tuple[ResolvedPath, ...]) -> ToolContext:
    return ToolContext(
        cwd=scope.cwd,
        root=scope.root,
        session=deps.recorder.state.session,
        agent=scope.agent,
        call_id=call.id,
        mode=scope.mode,
        progress=lambda text: None,
        environment=deps.policy().scope.environment,
        resolved_paths=evaluated,
    )


def _mark_authorized(call: Call) -> Call:
    return msgspec.structs.replace(call, stage="authorized")


async def _ask_permission(
    call: Call, scope: CallScope, deps: CallDeps
) -> tuple[AnswerPermission | None, SandboxGrants]:
    """Ask the user. Return the answer and what approval grants.

    The answer is None if no approval was needed any more.
    """
    grants = deps.policy().find_grants(call.tool.name, call.tool.kind, call.target, scope.mode)

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
    now = _evaluate(Call(call.request), call.tool, scope, deps)
    return not now.is_refused and now.decision.action == "ask"


async def _build_request(call: Call, grants: SandboxGrants, scope: CallScope, deps: CallDeps) -> PermissionAsked:
    tool = call.tool
    modes = _list_offered_modes(call, scope, deps)
    rules = () if deps.rules is None else deps.policy().suggest_rules(tool.name, tool.kind, call.target, scope.mode)
    effect = deps.policy().describe_effect(tool.name, tool.kind, call.target, scope.mode)
    return PermissionAsked(
        ask_id="",
        call_id=call.id,
        name=tool.name,
        args=call.request.args,
        reason=_clean(call.decision.reason, deps),
        subject=_clean(call.target.text, deps),
        rules=rules,
        preview=await _render_preview(call, deps),
        sandbox=deps.sandbox() if tool.kind == "execute" else "",
        asked_paths=tuple(to_valid_unicode(path) for path in call.asked_paths),
        allowed_paths=tuple(to_valid_unicode(path) for path in call.allowed_paths),
        danger=effect.danger,
        effect=_clean(effect.sentence, deps),
        permission_modes=modes,
        title=_clean(deps.policy().name_call(tool.name, tool.kind, call.target, scope.mode), deps),
        granted_paths=tuple(to_valid_unicode(path) for path in grants.paths),
        granted_network=grants.network,
    )


def _list_offered_modes(call: Call, scope: CallScope, deps: CallDeps) -> tuple[str, ...]:
    if deps.set_permission_mode is None or call.is_asked_by_hook:
        return ()
    return deps.policy().suggest_modes(call.tool.name, call.tool.kind, call.target, scope.mode)


async def _render_preview(call: Call, deps: CallDeps) -> str:
    """Return the change an edit would make. If it cannot be shown, the request comes without it."""
    if call.tool.kind != "edit":
        return ""
    try:
        text = await call.tool.preview(call.args) or await deps.preview(call.args, call.target.resolved)
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
        if not deps.policy().would_decide(text, action, tool.name, tool.kind, call.target, scope.mode):
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
    effect = deps.policy().describe_effect(call.tool.name, call.tool.kind, call.target, scope.mode)
    request = PermissionAsked(
        ask_id="",
        call_id=call.id,
        name=call.tool.name,
        args=call.request.args,
        reason=f"The sandbox kept it from {blocked}.",
        subject=_clean(call.tool.get_target(call.args).text, deps),
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


def _format_denial(decision: Decision) -> str:
    """Return the rule and how to allow the call.

    A certain deny rule needs no reason; other denials give theirs.
    """
    by = f"Denied by rule {decision.rule.removeprefix('deny ')}" if decision.rule else "Denied"
    is_certain = decision.rule.startswith("deny ") and not decision.may_be_denied
    return f"{by}. {decision.hint}".rstrip() if is_certain else f"{by}: {decision.reason} {decision.hint}".rstrip()


def _format_hook_denial(message: str) -> str:
    return f"Denied by a hook: {message or 'it gave no reason.'}"


def _format_unaskable(call: Call) -> str:
    decision = call.decision
    return (
        f"{call.tool.name} requires confirmation: {decision.reason} No user can be asked here, so nothing was done. "
        f"{decision.hint}".rstrip()
    )


def _format_rejection(answer: AnswerPermission) -> str:
    if answer.by == "timeout":
        return f"Denied: the permission request timed out. {answer.reason} Nothing was done."
    if answer.by == "hook":
        return _format_hook_denial(answer.reason)
    if answer.by in ("shutdown", "nobody"):
        return f"Denied: {answer.reason} Nothing was done."
    return (
        f"The user denied this tool call: {answer.reason}\nIt was not run."
        if answer.reason
        else "The user denied this tool call. It was not run."
    )


_AUTOMATIC_ANSWERS = ("timeout", "hook", "shutdown", "nobody")
"""Values of `AnswerPermission.by` for answers that did not come from the user."""


_GRANTORS = ("user", "sdk", "api")
"""Values of `AnswerPermission.by` that grant what the request names.

Only these answers may widen the sandbox; those of hooks and replays may not.
"""


def _is_stop(answer: AnswerPermission) -> bool:
    return answer.interrupt or answer.by == "shutdown"
