"""Asking a person about a call: what the question shows, what the answer means, and what is remembered of it."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from odin.core.errors import OdinError
from odin.core.event import PermissionAsked, Warned
from odin.core.op import AnswerPermission
from odin.core.redaction import Redact
from odin.core.rule import RememberScope, RuleAction
from odin.core.text import to_valid_unicode
from odin.core.tool import Tool
from odin.engine.asker import Approvals
from odin.engine.call.admitted import AdmittedCall, CallScope, JudgedCall
from odin.engine.recorder import Recorder
from odin.policy.rules import Policy

PreviewCall = Callable[[Tool[Any], Any], Awaitable[str]]
"""What a call would change, as text for people; "" when there is nothing to show."""


async def skip_preview(tool: Tool[Any], args: Any) -> str:
    return ""


class RuleWriter(Protocol):
    """Where answers are remembered."""

    async def add(self, text: str, action: RuleAction, scope: RememberScope) -> None:
        """From now on. Raises OdinError for a text that is no rule, or when it cannot be written down."""
        ...


class CallApproval:
    """`sandbox` names what commands run in; `rules` is None where nothing can be remembered."""

    def __init__(
        self,
        *,
        asker: Approvals,
        policy: Callable[[], Policy],
        recorder: Recorder,
        rules: RuleWriter | None,
        redact: Redact,
        preview: PreviewCall,
        sandbox: Callable[[], str],
    ) -> None:
        self._approvals = asker
        self._policy = policy
        self._recorder = recorder
        self._rules = rules
        self._redact = redact
        self._preview = preview
        self._sandbox = sandbox

    @property
    def can_ask(self) -> bool:
        return self._approvals.can_ask

    async def ask_permission(
        self, judged: JudgedCall, scope: CallScope, needed: Callable[[], bool]
    ) -> AnswerPermission | None:
        """May this call run? None when it is not `needed` to ask any more by the time the question could be put."""

        async def prepare() -> PermissionAsked | None:
            return await self._build_question(judged, scope) if needed() else None

        async def heed(answer: AnswerPermission) -> AnswerPermission:
            return await self._remember_rule(answer, judged, scope)

        return await self._approvals.ask(prepare, scope.agent, handle_answer=heed)

    async def _build_question(self, judged: JudgedCall, scope: CallScope) -> PermissionAsked:
        return PermissionAsked(
            ask_id="",
            call_id=judged.call.id,
            name=judged.tool.name,
            args=judged.call.args,
            reason=self._clean(judged.verdict.reason),
            subject=self._clean(judged.subject.text),
            rules=self._suggest_rules(judged, scope),
            preview=await self._render_preview(judged),
            sandbox=self._sandbox() if judged.tool.kind == "execute" else "",
            asked_paths=tuple(to_valid_unicode(path) for path in judged.asked_paths),
            allowed_paths=tuple(to_valid_unicode(path) for path in judged.allowed_paths),
        )

    async def ask_unsandboxed(self, item: AdmittedCall, blocked: str, scope: CallScope) -> AnswerPermission:
        """May it run again without the sandbox? Nothing is remembered of this, and the arguments are what they were."""
        blocked = self._clean(blocked)
        question = PermissionAsked(
            ask_id="",
            call_id=item.call.id,
            name=item.tool.name,
            args=item.call.args,
            reason=f"The sandbox kept it from {blocked}.",
            subject=self._clean(item.tool.subject_of(item.args).text),
            sandbox=self._sandbox(),
            unsandboxed=True,
        )

        async def heed(answer: AnswerPermission) -> AnswerPermission:
            if answer.args is not None:
                why = "The arguments cannot be changed in this question, so the command was not run again."
                self._warn(why, scope)
                return AnswerPermission(answer.ask_id, False, why, by=answer.by)
            if answer.remember is not None:
                self._warn("Running outside the sandbox is allowed once; it is not remembered.", scope)
            return msgspec.structs.replace(answer, rule="", remember=None)

        async def prepare() -> PermissionAsked:
            return question

        answer = await self._approvals.ask(prepare, scope.agent, handle_answer=heed)
        return answer or AnswerPermission("", False)

    def _suggest_rules(self, judged: JudgedCall, scope: CallScope) -> tuple[str, ...]:
        if self._rules is None:
            return ()
        return self._policy().suggest_rules(judged.tool.name, judged.tool.kind, judged.subject, scope.mode)

    async def _render_preview(self, judged: JudgedCall) -> str:
        """What would change. It helps to decide; when it cannot be shown, the question is asked without it."""
        if judged.tool.kind != "edit":
            return ""
        try:
            return self._clean(await self._preview(judged.tool, judged.args))
        except Exception:
            return ""

    async def _remember_rule(self, answer: AnswerPermission, judged: JudgedCall, scope: CallScope) -> AnswerPermission:
        """The answer with what was really remembered. What cannot be is an answer for this once."""
        if answer.remember is None:
            return msgspec.structs.replace(answer, rule="")
        why = await self._add_rule(answer, answer.remember, judged, scope)
        if not why:
            return msgspec.structs.replace(answer, rule=answer.rule.strip())
        self._warn(f"The answer holds for this once and was not remembered: {why}", scope)
        return msgspec.structs.replace(answer, rule="", remember=None)

    async def _add_rule(
        self, answer: AnswerPermission, keep: RememberScope, judged: JudgedCall, scope: CallScope
    ) -> str:
        """Why the rule was not added, or ""."""
        text = answer.rule.strip()
        action: RuleAction = "allow" if answer.allow else "deny"
        if not text:
            return "no rule was named."
        if answer.args is not None:
            return "the arguments were changed, so the rule is not about what runs."
        if self._rules is None:
            return "rules cannot be changed in this session."
        tool, subject = judged.tool, judged.subject
        try:
            if not self._policy().would_decide(text, action, tool.name, tool.kind, subject, scope.mode):
                return f"the rule {text} is not about this call."
            await self._rules.add(text, action, keep)
        except OdinError as error:
            return error.describe()
        except OSError as error:
            return f"it could not be written ({error.strerror or error})."
        return ""

    def _warn(self, text: str, scope: CallScope) -> None:
        self._recorder.emit(Warned(text), scope.agent)

    def _clean(self, text: str) -> str:
        return to_valid_unicode(self._redact(text).text) if text else ""
