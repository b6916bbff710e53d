"""Asks the user about one tool call, and remembers what the answer says to remember."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from msgspec.structs import replace

from odin.core.call_events import PermissionAsked
from odin.core.errors import OdinError, UsageError
from odin.core.event import PermissionModeChanged, Warned
from odin.core.event_values import Mode
from odin.core.op import Answer
from odin.core.policy import RememberScope, RuleAction
from odin.core.profile import NO_GRANTS
from odin.core.text import to_valid_unicode
from odin.core.tool import Kind, Target
from odin.engine.call import Call, CallDeps, CallScope


class PermissionRequest:
    """A permission request for one call. `grants` is what approval lets a command do in spite of the sandbox."""

    def __init__(self, call: Call, scope: CallScope, deps: CallDeps) -> None:
        self._call = call
        self._scope = scope
        self._deps = deps
        self._policy = deps.policy
        self.grants = NO_GRANTS

    @property
    def _about(self) -> tuple[str, Kind, Target, Mode]:
        """What the policy is asked about. The mode may change while the request waits."""
        return self._call.tool.name, self._call.tool.kind, self._call.target, self._scope.mode

    async def ask(self, decide_again: Callable[[Call], RuleAction]) -> Answer | None:
        """Return the answer; None if rules decide by now, so that it is not needed any more."""
        recheck = partial(decide_again, self._call)
        if recheck() != "ask":
            return None
        self.grants = self._policy().find_grants(*self._about)
        asked, agent = await self._build(), self._scope.agent
        return await self._deps.interactions.ask(asked, agent, recheck=recheck, handle_answer=self._remember)

    async def _build(self) -> PermissionAsked:
        call, tool, deps, policy = self._call, self._call.tool, self._deps, self._policy()
        effect = policy.describe_effect(*self._about)
        preview = ""
        if tool.kind == "edit":
            with suppress(Exception):  # the request comes without the change that cannot be shown
                preview = await tool.preview(call.args) or await deps.preview(call.args, call.target.resolved)
        return PermissionAsked(
            ask_id="",
            call_id=call.id,
            name=tool.name,
            args=call.request.args,
            reason=deps.clean(call.decision.reason),
            subject=deps.clean(call.target.text),
            rules=() if deps.rules is None else policy.suggest_rules(*self._about),
            preview=deps.clean(preview),
            sandbox=deps.sandbox() if tool.kind == "execute" else "",
            asked_paths=tuple(to_valid_unicode(path) for path in call.asked_paths),
            allowed_paths=tuple(to_valid_unicode(path) for path in call.allowed_paths),
            danger=effect.danger,
            effect=deps.clean(effect.sentence),
            permission_modes=self._list_offered_modes(),
            title=deps.clean(policy.name_call(*self._about)),
            granted_paths=tuple(to_valid_unicode(path) for path in self.grants.paths),
            granted_network=self.grants.network,
        )

    def _list_offered_modes(self) -> tuple[str, ...]:
        if self._deps.set_permission_mode is None or self._call.is_asked_by_hook:
            return ()
        return self._policy().suggest_modes(*self._about)

    async def _remember(self, answer: Answer) -> Answer:
        """Set the mode and add the rule that the answer names. Return the answer with what was remembered.

        What cannot be set or added makes the answer apply to this call only, and the user is warned.
        """
        if answer.allow and answer.permission_mode:
            switch = self._deps.set_permission_mode
            try:
                if switch is None or answer.permission_mode not in self._list_offered_modes():
                    raise UsageError(f"the permission mode {answer.permission_mode!r} was not offered.")
                mode = switch(answer.permission_mode)
            except OdinError as error:
                self._warn(f"The answer applies once and the permission mode stays as it was: {error.describe()}")
            else:
                self._deps.recorder.emit(PermissionModeChanged(mode))
        if answer.scope is None:
            return replace(answer, rule="")
        problem = await self._add_rule(answer, answer.scope)
        if not problem:
            return replace(answer, rule=answer.rule.strip())
        self._warn(f"The answer applies once and was not saved as a rule: {problem}")
        return replace(answer, rule="", scope=None)

    async def _add_rule(self, answer: Answer, remember: RememberScope) -> str:
        """Return why the rule was not added, or ""."""
        text = answer.rule.strip()
        action: RuleAction = "allow" if answer.allow else "deny"
        if not text:
            return "no rule was given."
        if answer.args is not None:
            return "the arguments were changed, so the rule does not match what runs."
        if self._deps.rules is None:
            return "rules cannot be changed in this session."
        try:
            if not self._policy().would_decide(text, action, *self._about):
                return f"the rule {text} does not match this call."
            await self._deps.rules.add(text, action, remember)
        except OdinError as error:
            return error.describe()
        except OSError as error:
            return f"it could not be saved ({error.strerror or error})."
        return ""

    async def ask_unsandboxed(self, blocked: str) -> Answer:
        """Ask whether a command may run again without the sandbox, with the same arguments. Nothing is remembered."""
        call, deps = self._call, self._deps
        effect = self._policy().describe_effect(*self._about)
        request = PermissionAsked(
            ask_id="",
            call_id=call.id,
            name=call.tool.name,
            args=call.request.args,
            reason=f"The sandbox kept it from {deps.clean(blocked)}.",
            subject=deps.clean(call.tool.get_target(call.args).text),
            sandbox=deps.sandbox(),
            unsandboxed=True,
            danger=effect.danger,
            effect=deps.clean(effect.sentence),
        )

        async def accept_once(answer: Answer) -> Answer:
            if answer.args is not None:
                problem = "The arguments cannot be changed in this request, so the command was not run again."
                self._warn(problem)
                return Answer(answer.id, "deny", problem, by=answer.by)
            if answer.scope is not None:
                self._warn("Running outside the sandbox is allowed only once; no rule was saved.")
            return replace(answer, rule="", scope=None)

        answer = await deps.interactions.ask(request, self._scope.agent, handle_answer=accept_once)
        return answer or Answer("", "deny")

    def _warn(self, text: str) -> None:
        self._deps.recorder.emit(Warned(text), self._scope.agent)
