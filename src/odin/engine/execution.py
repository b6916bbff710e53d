"""Executes one tool call, stage by stage:

    requested  → evaluated    repetition, find the tool, parse, mode, rules, the tool's own refusal    ┐
    evaluated  → authorized   PreToolUse hooks, ask the user                                           ┘ authorize
    authorized → running      before steps, around: the tool, again with more access if the user agrees ┐
    running    → finished     what a command wrote kept or discarded, after steps, PostToolUse hooks    ┘ run
    finished   → recorded     redact, bound, remarks, on_before_tool_result_append hooks, events         record

Until it runs, any step can refuse the call; it is then recorded without running. Arguments that a hook or the user
changes are evaluated again: a deny rule applies even if the user allowed the call. Nothing here ends the turn:
refusals and exceptions become results that the model reads.
"""

import asyncio
import functools
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from odin.core.call_events import FileCached, TodosChanged, ToolEnded, ToolProgressed, ToolStarted
from odin.core.errors import Denied, NeedsConfirmation, OdinError, Rejected
from odin.core.event import AnyEvent, ContextSummarized, ModeChanged
from odin.core.event_values import CallAudit
from odin.core.message import ToolCall
from odin.core.policy import NO_HOOK_EFFECT, HookCall, HookEffect, HookPoint, RuleAction
from odin.core.profile import ProcessProfile
from odin.core.text import join_some, to_valid_unicode
from odin.core.tool import Target, Tool, ToolContext, ToolOutput, fail, hide_nothing
from odin.engine.call import Call, CallDeps, CallScope
from odin.engine.call_text import (
    bound_text,
    describe_change,
    describe_tool_error,
    format_denial,
    format_hook_denial,
    format_rejection,
    format_unaskable,
)
from odin.engine.permission_request import GRANTORS, PermissionRequest
from odin.engine.settlement import Settlement
from odin.policy.commands.analysis import is_plainly_read_only
from odin.policy.decision import Decision
from odin.policy.modes import get_mode_spec
from odin.sandbox.runner import ViewUnavailable
from odin.session.thread import INTERRUPTED

MAX_ARGUMENT_ROUNDS = 5
"""Rounds of changed arguments or changed rules, after which a call is denied."""

UNSUPPORTED_MEDIA = "[Unsupported tool result type]"
STOPPED = "Interrupted: this call did not finish."
WITHHELD_TEXT = "A hook withheld this result"
UNCHECKED_TEXT = "The output is withheld, because the hooks that check results did not run."
"""Said to the model about the output of an interrupted call."""

_AUTOMATIC_ANSWERS = ("timeout", "hook", "shutdown", "nobody")
"""Values of `Answer.by` for answers that did not come from the user."""

_STRICTNESS = {"allow": 0, "ask": 1, "deny": 2}
_MAX_NAMED = 5


class RawOutput(Struct, frozen=True):
    """The output of a tool before the after steps. `is_stopped`: a before step gave it, and the tool did not run."""

    output: ToolOutput
    is_stopped: bool = False


class ToolRun:
    """One run of a tool. Its progress is shown only while `is_shown`, so that late output is dropped.

    `partial` is what the tool had produced when it was cancelled, or None if that is nothing; `is_settled`: what it
    changed is known. `stops_turn`: the user's answer to a request about it also ends the turn.
    """

    def __init__(self, *, is_shown: bool = True) -> None:
        self.is_shown = is_shown
        self.partial: ToolOutput | None = None
        self.stops_turn = False
        self.is_settled = False
        self._started_at = time.monotonic()
        self._duration_ms: int | None = None

    @property
    def elapsed_s(self) -> float:
        return round(time.monotonic() - self._started_at, 3)

    def stop_clock(self) -> int:
        """Return the duration in milliseconds. Only the first call stops the clock."""
        if self._duration_ms is None:
            self._duration_ms = int((time.monotonic() - self._started_at) * 1000)
        return self._duration_ms

    def restart_clock(self) -> None:
        self._started_at, self._duration_ms = time.monotonic(), None

    async def await_started(self) -> RawOutput | None:
        """Return the output of a run that began before the call was authorized; None if it has yet to begin."""
        return None


class CallExecutor:
    """Executes calls of one turn: `authorize`, `run` and `record` each return the call at a later stage."""

    def __init__(self, scope: CallScope, deps: CallDeps) -> None:
        self.scope = scope
        self._deps = deps

    # --- authorize ---

    async def authorize(self, call: Call) -> Call:
        """Return the call authorized or refused.

        A call that comes in evaluated has been started speculatively. It is not evaluated again, because what it has
        done since must not count against it (a file it created now exists); `is_still_allowed` repeats the rules alone.
        """
        scope, registry = self.scope, self._deps.registry
        call, tool = self._find_tool(call)
        repetition = scope.guard.check_call(call.id, tool.name if tool else call.request.name, call.request.args)
        if repetition:
            return call.refuse(repetition, discard_reason="repetition")
        if tool is None:
            known = ", ".join(item.name for item in registry.list_offered(get_mode_spec(scope.mode).allows_tool))
            return call.refuse(f"There is no tool {call.request.name!r}. The tools are: {known}.")
        if call.stage != "evaluated":
            call = await self._resolve_and_evaluate(call, tool)
        if call.is_refused:
            return call
        # A hook can deny, ask, or allow what would be asked; it cannot allow a denied call.
        call, effect = await self._fire_pre_tool_use(call)
        if call.is_refused:
            return call
        if effect.decision == "allow" and not (call.decision.builtin or call.decision.may_be_denied):
            call = replace(call, decision=_allow(call.decision))
        elif effect.decision == "ask" and (call.decision.action == "allow" or scope.is_approved):
            why = effect.message or "A hook asks for confirmation."
            call = replace(call, decision=_keep_place(Decision("ask", why), call.decision), is_asked_by_hook=True)
        return await self._ask_until_decided(call)

    def _find_tool(self, call: Call) -> tuple[Call, Tool[Any] | None]:
        """Return the tool of a call, and the call that it stands for."""
        tool = self._deps.registry.get(call.request.name)
        meant = None if tool is None else tool.redirect(call.request.args)
        if meant is None:
            return call, tool
        name, args = meant
        return replace(call, request=replace(call.request, name=name, args=args)), self._deps.registry.get(name)

    async def _resolve_and_evaluate(self, call: Call, tool: Tool[Any]) -> Call:
        """Evaluate a call. A tool that must look up what the call acts on does so first.

        What the sandbox can do, which decides about commands, is found out before.
        """
        if tool.kind == "execute":
            await self._deps.policy().examine()
        if tool.resolves and not self._explain_unavailable(tool):
            with suppress(Exception):  # evaluating refuses what was not prepared
                await tool.resolve(tool.parse(call.request.args), self._make_context(call, resolved_paths=()))
        return self._evaluate(call, tool)

    def _evaluate(self, call: Call, tool: Tool[Any]) -> Call:
        """Parse → mode → rules → tool's own refusal. Nothing here waits for anybody."""
        try:
            args = tool.parse(call.request.args)
        except msgspec.ValidationError as error:
            known = ", ".join(tool.build_spec().schema.get("properties", {}))
            text = f"The arguments of {tool.name} do not fit its schema: {error}. Its fields are: {known}."
            return call.refuse(text, discard_reason="args_invalid")
        except Exception as error:
            return call.refuse(describe_tool_error(tool, error), discard_reason="args_invalid")
        unavailable = self._explain_unavailable(tool)
        if unavailable:
            return call.refuse(unavailable, "denied")
        try:
            evaluated = replace(call, registered_tool=tool, args=args)
            evaluated = self._evaluate_rules(evaluated, self._deps.policy().resolve(tool.get_target(args)))
            if evaluated.decision.action == "deny":
                return call.refuse(format_denial(evaluated.decision), "denied")
            refusal = tool.validate(args)
        except Exception as error:  # a call that cannot be evaluated does not run
            return call.refuse(describe_tool_error(tool, error))
        return call.refuse(refusal) if refusal else evaluated

    def _explain_unavailable(self, tool: Tool[Any]) -> str:
        mode = self.scope.mode
        if self._deps.registry.is_disabled(tool.name):
            return f"{tool.name} is switched off in this session. Nothing was done."
        if not get_mode_spec(mode).allows_kind(tool.kind):
            return (
                f"{tool.name} is not available in {mode}: it changes files, and in this mode nothing is changed. "
                "Nothing was done. Describe the change instead."
            )
        return ""

    def _evaluate_rules(self, call: Call, target: Target) -> Call:
        """Return the call with its decision. Several paths are also evaluated one by one; the strictest one counts."""
        tool, mode = call.tool, self.scope.mode
        policy = self._deps.policy()
        decision = policy.evaluate(tool.name, tool.kind, target, mode)
        asked: list[str] = []
        allowed: list[str] = []
        for part in target.split_paths() if len(target.paths) > 1 else ():
            alone = policy.evaluate(tool.name, tool.kind, part, mode)
            if _STRICTNESS[alone.action] > _STRICTNESS[decision.action]:
                decision = alone
            (allowed if alone.action == "allow" else asked).append(part.text)
        if not asked:  # no single path needs permission, so the request covers all of them
            asked, allowed = allowed, []
        if decision.action == "ask" and not decision.may_be_denied and self._deps.registry.is_allowed(tool.name):
            decision = _allow(decision)
        if decision.runs_in == "view" and not tool.has_view:
            is_asked = decision.action == "ask" or decision.after != "apply"
            decision = replace(decision, action="ask" if is_asked else "allow", runs_in="project", after="apply")
        return replace(
            call,
            stage="evaluated",
            target=target,
            decision=decision,
            asked_paths=tuple(asked),
            allowed_paths=tuple(allowed),
        )

    async def _replace_arguments(self, call: Call, args: dict[str, Any], by: str, summary: str) -> Call:
        """Return the call with other arguments, evaluated as if the model had sent them."""
        original = call.audit.original if call.audit else call.request.args
        audit = CallAudit(original, args, by, summary) if original != args else None
        requested = Call(ToolCall(call.id, call.request.name, args), audit=audit)
        evaluated = await self._resolve_and_evaluate(requested, call.tool)
        refusal = evaluated.refusal
        if refusal is None or audit is None:
            return evaluated
        return requested.refuse(
            f"{refusal.text}\n{describe_change(audit)} It was not run.",
            refusal.status,
            discard_reason=refusal.discard_reason,
            error_type=refusal.error_type,
        )

    async def _fire_pre_tool_use(self, call: Call) -> tuple[Call, HookEffect]:
        """Return the call denied or with other arguments if a hook wants that, otherwise the same one."""
        effect = await self._fire_hook("PreToolUse", call)
        if effect.decision == "deny" or effect.halt:
            return call.refuse(format_hook_denial(effect.message), "denied", discard_reason="hook_block"), effect
        if effect.args is None or effect.args in (call.request.args, call.tool.rename_args(call.request.args)):
            return call, effect
        return await self._replace_arguments(call, effect.args, "hook", effect.message), effect

    async def _fire_hook(self, point: HookPoint, call: Call, output: ToolOutput | None = None) -> HookEffect:
        """Fire the hooks of a point that is about one call."""
        if not self._deps.hooks.has_hook_for(point):
            return NO_HOOK_EFFECT
        about = HookCall(
            point,
            self.scope.agent,
            self.scope.mode,
            call_id=call.id,
            tool=call.tool.name,
            args=call.tool.rename_args(call.request.args),
            paths=call.paths,
        )
        if output is not None:
            about = replace(about, output=output.text, is_error=output.is_error)
        return await self._deps.hooks.fire(about)

    async def _ask_until_decided(self, call: Call) -> Call:
        """Ask again while the answers change the arguments or rules change while a request is open."""
        scope, deps = self.scope, self._deps
        for _ in range(MAX_ARGUMENT_ROUNDS):
            # The user may have approved the calls of this turn: unless a hook asks or a deny rule may apply.
            is_approved = scope.is_approved and not (call.is_asked_by_hook or call.decision.may_be_denied or call.audit)
            if call.decision.action == "allow":
                return replace(call, stage="authorized")
            if is_approved:
                return replace(call, stage="authorized", decision=_allow(call.decision))
            if not deps.interactions.can_ask or deps.policy().permission_mode == "dontAsk":
                return call.refuse(format_unaskable(call), "denied", error_type=NeedsConfirmation)
            # The error that the call would give now: the user is not asked about what cannot work.
            try:
                failure = await call.tool.dry_run(call.args, self._make_context(call))
            except Exception:  # the tool reports it when it runs
                failure = None
            if failure is not None:
                return call.refuse_with(failure)
            request = PermissionRequest(call, scope, deps)
            answer = await request.ask(self._decide_again)
            if answer is None:
                call = self._evaluate(Call(call.request, audit=call.audit), call.tool)
            elif not answer.allow:
                error_type = Denied if answer.by in _AUTOMATIC_ANSWERS else Rejected
                stops_turn = answer.interrupt or answer.by == "shutdown"
                return call.refuse(format_rejection(answer), "denied", error_type=error_type, stops_turn=stops_turn)
            elif answer.args is None:
                is_granted = answer.by in GRANTORS
                if is_granted and await request.is_outdated():
                    continue
                decision = replace(call.decision, hides_secrets=call.decision.hides_secrets and not is_granted)
                grants = request.grants if is_granted else call.grants
                return replace(call, stage="authorized", grants=grants, decision=decision)
            else:
                # The arguments the user wrote are authorized, unless a rule or a hook denies them. If a hook changes
                # them once more, the user has not seen the outcome and is asked again.
                call = edited = await self._replace_arguments(call, answer.args, answer.by, answer.summary)
                if not edited.is_refused:
                    call, _ = await self._fire_pre_tool_use(edited)
                    if call is edited:
                        return replace(call, stage="authorized")
            if call.is_refused:
                return call
        return call.refuse("Denied: its arguments were changed too many times.", "denied")

    def _decide_again(self, call: Call) -> RuleAction:
        """Return what the rules decide now about a call that is being asked about."""
        if call.is_asked_by_hook:
            return "ask"
        return self._evaluate_again(call).action

    def _evaluate_again(self, call: Call) -> Decision:
        now = self._evaluate(Call(call.request), call.tool)
        return Decision("deny") if now.is_refused else now.decision

    # --- what speculation and the order of calls depend on ---

    async def evaluate_without_asking(self, request: ToolCall) -> Call | None:
        """Return the evaluated call if it may run without approval, otherwise None."""
        call, tool = self._find_tool(Call(request))
        if tool is None:
            return None
        if tool.kind == "execute":
            await self._deps.policy().examine()
        call = self._evaluate(call, tool)
        return call if not call.is_refused and call.decision.action == "allow" else None

    def is_still_allowed(self, call: Call) -> bool:
        """True if mode and rules still allow a call that has been started speculatively."""
        if self._explain_unavailable(call.tool):
            return False
        try:
            now = self._evaluate_rules(call, call.target).decision
        except Exception:  # if evaluating fails, `authorize` starts over
            return False
        return (now.action, now.runs_in, now.after) == ("allow", call.decision.runs_in, call.decision.after)

    def is_read_only(self, call: Call) -> bool:
        """True for a tool that only reads, and for a command that provably does nothing else."""
        if call.tool.kind != "execute":
            return call.tool.kind == "read"
        command = call.tool.get_target(call.args).command
        return (
            bool(command)
            and call.tool.can_speculate(call.args)
            and is_plainly_read_only(command, self._deps.policy().scope)
        )

    # --- run ---

    async def run(self, call: Call, run: ToolRun | None = None) -> Call:
        """Run an authorized call and return it finished. A `run` that has already started gives its output instead.

        If it is cancelled, record what it has produced so far.
        """
        try:
            title = call.tool.get_title(call.args)
        except Exception:
            title = ""
        self.emit(ToolStarted(call.id, call.tool.name, call.request.args, self._deps.clean(title)))
        call = replace(call, stage="running")
        run = run or ToolRun()
        context: ToolContext | None = None
        try:
            try:
                call, context, raw = await self._run_until_settled(call, run)
                if call.is_refused:  # the user has changed the arguments to what may not run
                    return replace(call, output=raw.output, duration_ms=run.stop_clock(), stops_turn=run.stops_turn)
                output = raw.output
                for step in () if raw.is_stopped else self._deps.steps.after:
                    output = await step(call.tool, call.args, output, context)
            except Exception as error:  # whatever a tool raises is its result
                output = fail(describe_tool_error(call.tool, error))
            run.is_shown = False
            call = replace(call, stage="finished", output=output, duration_ms=run.stop_clock())
            # A hook can replace the output; a deny is added to it as an objection.
            effect, changes = await self._fire_after(call, context, output)
            output = _replace_output(output, effect)
            if changes:
                output = replace(output, text="\n\n".join((output.text, *changes)))
            if effect.decision == "deny" and effect.message:
                output = replace(output, text=f"{output.text}\n\n[A hook objects: {effect.message}]")
        except asyncio.CancelledError:
            if call.stage == "running" and run.partial is not None:
                call = replace(call, output=run.partial, duration_ms=run.stop_clock())
            if call.stage == "finished" or run.partial is not None:
                self.record_interrupted(call, STOPPED if run.is_settled else INTERRUPTED)
            raise
        finally:
            run.is_shown = False
        return replace(call, output=output, stops_turn=run.stops_turn)

    async def _fire_after(
        self, call: Call, context: ToolContext | None, output: ToolOutput
    ) -> tuple[HookEffect, list[str]]:
        """Run the PostToolUse hooks. Return their effect, and what they changed in files of the call, for the model.

        That belongs to the call: it can be undone, and the model may edit the file again, as after a formatter.
        """
        is_edit = call.tool.kind == "edit" and not output.is_error and bool(call.target.resolved)
        if context is None or not is_edit or not self._deps.hooks.has_hook_for("PostToolUse", call.tool.name):
            return await self._fire_hook("PostToolUse", call, output), []
        steps = self._deps.steps
        async with steps.around(call.tool, call.args, context):
            effect = await self._fire_hook("PostToolUse", call, output)
        found = [await asyncio.to_thread(steps.follow, place, context.cwd) for place in call.target.resolved]
        return effect, list(filter(None, found))

    async def run_tool(
        self,
        call: Call,
        context: ToolContext,
        *,
        on_start: Callable[[], None] | None = None,
    ) -> RawOutput:
        """Run the before steps and the tool. `on_start` may veto by raising."""
        tool, args, steps = call.tool, call.args, self._deps.steps
        for step in steps.before:
            stopped = await step(tool, args, context)
            if stopped is not None:
                return RawOutput(stopped, is_stopped=True)
        async with steps.around(tool, args, context):
            if on_start is not None:
                on_start()
            return RawOutput(await tool.run(args, context))

    def _make_context(self, call: Call, **more: Any) -> ToolContext:
        scope, deps = self.scope, self._deps
        policy = deps.policy().scope
        context: dict[str, Any] = {"progress": _drop_progress, "resolved_paths": call.target.resolved, **more}
        return ToolContext(
            cwd=scope.cwd,
            root=scope.root,
            session=deps.recorder.state.session,
            agent=scope.agent,
            call_id=call.id,
            mode=scope.mode,
            environment=policy.environment,
            roots=policy.roots,
            channel=scope.channel,
            chat=scope.chat,
            **context,
        )

    def build_context(self, call: Call, run: ToolRun) -> ToolContext:
        """Return the context in which an authorized call runs."""

        def report_progress(text: str) -> None:
            if run.is_shown:
                self.emit(ToolProgressed(call.id, call.tool.name, self._deps.clean(text), run.elapsed_s))

        def keep_partial(output: ToolOutput) -> None:
            run.partial = output

        policy, mode, hides = self._deps.policy(), self.scope.mode, hide_nothing
        limits = policy.write_scope
        scope = limits.list_paths(policy.root) if limits.is_limited else None
        place = call.decision.runs_in
        writes = place == "view" or (place == "project" and get_mode_spec(mode).allows_changes)
        name = "read" if not writes or limits.read_only else "granted" if call.grants else "project"
        secrets = self._deps.list_secret_files() if call.decision.hides_secrets else ()
        hidden = tuple(path for path in secrets if not policy.may_read_secret(path))
        is_view, sandboxed = place == "view" and name != "read", call.decision.is_confined
        profile = ProcessProfile(name, call.grants, scope, sandboxed=sandboxed, view=is_view, hidden=hidden)
        if call.tool.kind == "read":  # a search must not show these; other tools name their paths, which were evaluated
            found = policy.make_result_filter(call.tool.name, "read", call.target, mode)
            hides = hide_nothing if found.is_idle else found
        return self._make_context(
            call,
            progress=report_progress,
            profile=profile,
            is_hidden=hides,
            keep_partial=keep_partial,
        )

    async def _run_until_settled(self, call: Call, run: ToolRun) -> tuple[Call, ToolContext, RawOutput]:
        """Run the tool. A command runs again, in another way, if the user agrees; what it wrote is kept or discarded.

        Return the call with the arguments that ran last, in its last context.
        """
        context, remarks, note, has_started = self.build_context(call, run), list[str](), "", False
        for _ in range(MAX_ARGUMENT_ROUNDS):
            settlement = Settlement(call, self.scope, self._deps, context, self._evaluate_again)
            if has_started:
                run.restart_clock()
            try:
                raw = None if has_started else await run.await_started()
                raw = raw or await self.run_tool(call, context)
                run.stop_clock()  # it does not count how long the user thinks about it
                run.partial = raw.output
                moved = self._deps.find_moved(call.id) if raw.output.asynchronous else None
                if moved is not None and moved.settler is not None and moved.running.view is not None:
                    moved.settler.set_result(functools.partial(settlement.settle_later, moved.running.view))
                outcome = raw.output if raw.is_stopped else await settlement.settle(raw.output)
            except ViewUnavailable as error:
                raw = RawOutput(fail(f"Not run: it needs a private view of the project. {error}."))
                outcome = await settlement.offer_direct_run(raw.output, str(error))
            except asyncio.CancelledError:
                if run.partial is not None and run.partial.layer is not None:
                    run.partial, run.is_settled = await settlement.settle_interrupted(run.partial), True
                raise
            has_started = True
            run.stops_turn = run.stops_turn or settlement.stops_turn
            if isinstance(outcome, ToolOutput):
                text = "\n\n".join([outcome.text, *remarks])
                return call, context, replace(raw, output=replace(outcome, text=text, note=f"{outcome.note}{note}"))
            if outcome.edited is None:
                context = replace(context, profile=outcome.profile)
                remarks.append(f"[{outcome.remark}]")
                note = f" ({outcome.note})"
                continue
            answer = outcome.edited
            edited = await self._replace_arguments(call, answer.args or {}, answer.by, answer.summary)
            if not edited.is_refused:
                edited, _ = await self._fire_pre_tool_use(edited)
            if edited.is_refused:
                refused = replace(call, refusal=edited.refusal, audit=edited.audit)
                return refused, context, RawOutput(edited.output, is_stopped=True)
            call = replace(edited, stage="running")
            remarks.clear()
            note = ""
            context = self.build_context(call, run)
        return call, context, RawOutput(fail("Denied: it was changed too many times. Nothing was kept."))

    # --- record ---

    async def record(self, call: Call) -> Call:
        """Record the result of a finished or refused call, and what it changed besides: to-dos, mode, known files."""
        try:
            output, secrets = self._redact_and_bound(call.output)
            output = self._add_remarks(output, call, secrets)
            if not call.is_refused:
                # The last look at a result before it is recorded. A deny withholds it.
                effect = await self._fire_hook("on_before_tool_result_append", call, output)
                if effect.decision != "deny":
                    replaced = _replace_output(output, effect)
                else:
                    text = f"{WITHHELD_TEXT}: {effect.message}" if effect.message else f"{WITHHELD_TEXT}."
                    replaced = ToolOutput(text=text, is_error=output.is_error, files=output.files, todos=output.todos)
                if replaced is not output:
                    output, more = self._redact_and_bound(replaced)
                    secrets = tuple(dict.fromkeys((*secrets, *more)))
        except asyncio.CancelledError:
            self.record_interrupted(call)
            raise
        self._emit_result(call, output, secrets)
        return replace(call, stage="recorded")

    def record_interrupted(self, call: Call, ending: str = INTERRUPTED) -> None:
        """Record what a call had produced when its turn was cancelled. No more hooks run.

        The user sees the output. The model reads it unless a hook checks results: that hook has not seen it.
        """
        output, secrets = self._redact_and_bound(call.output)
        hooks = self._deps.hooks
        if not call.is_refused and (
            hooks.has_hook_for("PostToolUse", call.tool.name) or hooks.has_hook_for("on_before_tool_result_append")
        ):
            output = replace(output, text=UNCHECKED_TEXT, view=output.view or output.text)
        if call.stage == "running":
            output = replace(output, text=f"{output.text}\n\n[{ending}]" if output.text else ending)
        with suppress(OdinError):  # the end of the turn reports a log that cannot be written
            self._emit_result(call, self._add_remarks(output, call, secrets), secrets)

    def _redact_and_bound(self, output: ToolOutput) -> tuple[ToolOutput, tuple[str, ...]]:
        """Return the output without secrets and bounded, and the names of the secrets that were removed."""
        clean = [self._deps.redact(text) for text in (output.text, output.note, output.view, output.for_user)]
        secrets = tuple(dict.fromkeys(secret for one in clean for secret in one.secrets))
        text, note, view, for_user = (one.text for one in clean)
        text = UNSUPPORTED_MEDIA if output.media else bound_text(text, self._deps.save)
        return replace(output, text=text, note=note, view=view, for_user=for_user), secrets

    def _add_remarks(self, output: ToolOutput, call: Call, secrets: tuple[str, ...]) -> ToolOutput:
        """Append what the model must know about this result: files left out, changed arguments, removed secrets."""
        text = output.text
        if not call.is_refused and call.left_out:
            names = self._deps.clean(join_some(call.left_out, _MAX_NAMED))
            text = f"{text}\n\n[Not searched, because they may contain secrets: {names}. Name a file to ask for it.]"
        if not call.is_refused and call.audit is not None:
            text = f"{text}\n\n{self._deps.clean(describe_change(call.audit))}"
        if secrets:
            text = f"{text}\n\n[redacted: {', '.join(secrets)}]"
        return replace(output, text=text)

    def _emit_result(self, call: Call, shown: ToolOutput, secrets: tuple[str, ...]) -> None:
        """Emit the result of a call, which is `shown`, and what the output says about the rest of the turn."""
        scope, output, refusal = self.scope, call.output, call.refusal
        if refusal is not None:
            status = refusal.status
        elif call.stage == "running":
            status = "cancelled"
        else:
            status = "error" if shown.is_error else "success"
        event = ToolEnded(
            call_id=call.id,
            name=call.name,
            status=status,
            text=to_valid_unicode(shown.text),
            note=to_valid_unicode(shown.note),
            display=to_valid_unicode(shown.view),
            for_user="" if shown.silent else to_valid_unicode(shown.for_user),
            files=tuple(to_valid_unicode(path) for path in shown.files),
            duration_ms=call.duration_ms,
            images=shown.images,
            asynchronous=shown.asynchronous,
            audit=call.audit,
            redacted=secrets,
            error_kind=shown.error_kind if refusal is None else refusal.error_kind or shown.error_kind,
            aside=to_valid_unicode(shown.aside),
        )
        self.emit(event)
        tool = call.registered_tool or self._deps.registry.get(call.request.name)
        if tool is not None and tool.kind in ("edit", "execute"):
            if status == "denied" or event.error_kind in (NeedsConfirmation.__name__, Rejected.__name__):
                scope.is_denied = scope.is_denied is not False
            elif refusal is None and not self.is_read_only(call):
                scope.is_denied = False
        scope.on_result(call, event)
        if output.summary:
            self.emit(ContextSummarized(self._deps.clean(output.summary), output.covers))
        if output.todos is not None:
            self.emit(TodosChanged(output.todos))
        if output.mode not in (None, scope.mode):
            self.emit(ModeChanged(output.mode))
        scope.follow(replace(output, answer=self._deps.clean(output.answer)))
        for file in self._deps.take_seen_files():
            self.emit(FileCached(replace(file, path=to_valid_unicode(file.path))))

    def emit(self, event: AnyEvent) -> None:
        self._deps.recorder.emit(event, self.scope.agent)


def _drop_progress(text: str) -> None:
    return


def _replace_output(output: ToolOutput, effect: HookEffect) -> ToolOutput:
    """Return the output with a hook's text. The view for the user showed the old text and goes with it."""
    if effect.output is None or effect.output == output.text:
        return output
    return replace(output, text=effect.output, view="", for_user="")


def _allow(decision: Decision) -> Decision:
    """Return the decision to allow a call without asking, as a rule does. Where nothing is kept, nothing is."""
    after = "discard" if decision.after == "discard" else "apply"
    return Decision("allow", runs_in=decision.runs_in, after=after, is_confined=decision.is_confined)


def _keep_place(decision: Decision, earlier: Decision) -> Decision:
    """Return a decision with where the earlier one lets a command run."""
    return replace(
        decision,
        runs_in=earlier.runs_in,
        after=earlier.after,
        is_confined=earlier.is_confined,
        hides_secrets=earlier.hides_secrets,
    )
