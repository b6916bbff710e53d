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
from odin.engine.command_effects import EffectTexts
from odin.engine.interactions import Recheck

GRANTORS = ("user", "sdk", "api")
"""Values of `Answer.by` that grant what the request names.

Only these answers may widen the sandbox; those of hooks and replays may not.
"""


class PermissionRequest:
    """A permission request for one call. `grants` is what approval lets a command do in spite of the sandbox."""

    def __init__(self, call: Call, scope: CallScope, deps: CallDeps) -> None:
        self._call = call
        self._scope = scope
        self._deps = deps
        self._policy = deps.policy
        self.grants = NO_GRANTS
        self._preview = ""
        self._is_kept = False

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
        self._preview = await self._make_preview()
        return PermissionAsked(
            ask_id="",
            call_id=call.id,
            name=tool.name,
            args=call.request.args,
            reason=deps.clean(call.decision.reason),
            subject=deps.clean(call.target.text),
            rules=() if deps.rules is None else self.list_rules(),
            preview=deps.clean(self._preview),
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

    async def _make_preview(self) -> str:
        call, tool, preview = self._call, self._call.tool, ""
        if tool.kind == "edit":
            with suppress(Exception):  # the request comes without the change that cannot be shown
                preview = await tool.preview(call.args)
                self._is_kept = bool(preview)
                preview = preview or await self._deps.preview(call.args, call.target.resolved)
        return preview

    async def is_outdated(self) -> bool:
        """True if the call would change other text than the request has shown: a file has changed meanwhile.

        A tool with a preview of its own writes what that has shown.
        """
        return not self._is_kept and self._preview != await self._make_preview()

    def list_rules(self) -> tuple[str, ...]:
        """Return the rules that would allow the call, narrowest first."""
        return self._policy().suggest_rules(*self._about)

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
                mode = await switch(answer.permission_mode)
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

    async def ask_effects(
        self, effects: EffectTexts, preview: str, reason: str, recheck: Recheck, *, has_rules: bool, turn: str = ""
    ) -> Answer | None:
        """Ask whether what a command wrote is kept; None if rules decide by now. `turn`: see `Interactions.ask`."""
        call, deps = self._call, self._deps
        modes = (mode for mode in self._list_offered_modes() if self._would_apply(mode))
        asked = PermissionAsked(
            ask_id="",
            call_id=call.id,
            name=call.tool.name,
            args=call.request.args,
            reason=deps.clean(reason),
            subject=deps.clean(call.target.text),
            rules=self.list_rules() if has_rules and deps.rules is not None else (),
            preview=deps.clean(preview),
            permission_modes=tuple(modes) if has_rules else (),
            title=deps.clean(self._policy().name_call(*self._about)),
            effects=effects.summary,
            git_changes=tuple(map(deps.clean, effects.git_changes)),
        )
        agent, remember = self._scope.agent, self._remember
        return await deps.interactions.ask(asked, agent, recheck=recheck, handle_answer=remember, turn=turn)

    def _would_apply(self, mode: str) -> bool:
        return self._policy().with_permission_mode(mode).evaluate(*self._about).after == "apply"

    async def ask_again(self, reason: str, title: str, *, network: bool = False, unsandboxed: bool = False) -> Answer:
        """Ask whether a command may run again, with the same arguments. Nothing is remembered."""
        call, deps = self._call, self._deps
        effect = self._policy().describe_effect(*self._about)
        request = PermissionAsked(
            ask_id="",
            call_id=call.id,
            name=call.tool.name,
            args=call.request.args,
            reason=reason,
            subject=deps.clean(call.tool.get_target(call.args).text),
            sandbox=deps.sandbox(),
            unsandboxed=unsandboxed,
            danger=effect.danger,
            effect=deps.clean(effect.sentence),
            title=title,
            granted_network=network,
        )

        async def accept_once(answer: Answer) -> Answer:
            if answer.args is not None:
                problem = "The arguments cannot be changed in this request, so the command was not run again."
                self._warn(problem)
                return Answer(answer.id, "deny", problem, by=answer.by)
            if network and answer.allow and answer.by not in GRANTORS:
                return Answer(answer.id, "deny", "Only the user can grant the network.", by=answer.by)
            if answer.scope is not None:
                self._warn("Running it again is allowed only once; no rule was saved.")
            return replace(answer, rule="", scope=None)

        answer = await deps.interactions.ask(request, self._scope.agent, handle_answer=accept_once)
        return answer or Answer("", "deny")

    def _warn(self, text: str) -> None:
        self._deps.recorder.emit(Warned(text), self._scope.agent)
