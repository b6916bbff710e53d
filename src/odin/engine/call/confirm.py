"""Asking a person about a call: what the question shows, what the answer means, and what is remembered of it."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from odin.core.errors import OdinError
from odin.core.event import PermissionAsked, Warned
from odin.core.op import Answer
from odin.core.redaction import Redact
from odin.core.rule import Action, RememberScope
from odin.core.text import mended
from odin.core.tool import Tool
from odin.engine.asker import Asker
from odin.engine.call.admitted import Admitted, Judged, Scope
from odin.engine.recorder import Recorder
from odin.policy.rules import Policy

Preview = Callable[[Tool[Any], Any], Awaitable[str]]
"""What a call would change, as text for people; "" when there is nothing to show."""


async def no_preview(tool: Tool[Any], args: Any) -> str:
    return ""


class Rules(Protocol):
    """Where answers are remembered."""

    async def add(self, text: str, action: Action, scope: RememberScope) -> None:
        """From now on. Raises OdinError for a text that is no rule, or when it cannot be written down."""
        ...


class Confirm:
    """`sandbox` names what commands run in; `rules` is None where nothing can be remembered."""

    def __init__(
        self,
        *,
        asker: Asker,
        policy: Callable[[], Policy],
        recorder: Recorder,
        rules: Rules | None,
        redact: Redact,
        preview: Preview,
        sandbox: Callable[[], str],
    ) -> None:
        self._asker = asker
        self._policy = policy
        self._recorder = recorder
        self._rules = rules
        self._redact = redact
        self._preview = preview
        self._sandbox = sandbox

    @property
    def can_ask(self) -> bool:
        return self._asker.can_ask

    async def permission(self, judged: Judged, scope: Scope, needed: Callable[[], bool]) -> Answer | None:
        """May this call run? None when it is not `needed` to ask any more by the time the question could be put."""

        async def prepare() -> PermissionAsked | None:
            return await self._question(judged, scope) if needed() else None

        async def heed(answer: Answer) -> Answer:
            return await self._remembered(answer, judged, scope)

        return await self._asker.ask(prepare, scope.agent, heed=heed)

    async def _question(self, judged: Judged, scope: Scope) -> PermissionAsked:
        return PermissionAsked(
            ask_id="",
            call_id=judged.call.id,
            name=judged.tool.name,
            args=judged.call.args,
            reason=self._clean(judged.verdict.reason),
            subject=self._clean(judged.subject.text),
            rules=self._offered(judged, scope),
            preview=await self._shown(judged),
            sandbox=self._sandbox() if judged.tool.kind == "execute" else "",
            asked_paths=tuple(mended(path) for path in judged.asked_paths),
            allowed_paths=tuple(mended(path) for path in judged.allowed_paths),
        )

    async def outside(self, item: Admitted, blocked: str, scope: Scope) -> Answer:
        """May it run again without the sandbox? Nothing is remembered of this, and the arguments are what they were."""
        blocked = self._clean(blocked)
        question = PermissionAsked(
            ask_id="",
            call_id=item.call.id,
            name=item.tool.name,
            args=item.call.args,
            reason=f"The sandbox kept it from {blocked}.",
            subject=self._clean(item.tool.subject(item.args).text),
            sandbox=self._sandbox(),
            outside=True,
        )

        async def heed(answer: Answer) -> Answer:
            if answer.args is not None:
                why = "The arguments cannot be changed in this question, so the command was not run again."
                self._warn(why, scope)
                return Answer(answer.ask_id, False, why, by=answer.by)
            if answer.remember is not None:
                self._warn("Running outside the sandbox is allowed once; it is not remembered.", scope)
            return msgspec.structs.replace(answer, rule="", remember=None)

        async def prepare() -> PermissionAsked:
            return question

        answer = await self._asker.ask(prepare, scope.agent, heed=heed)
        return answer or Answer("", False)

    def _offered(self, judged: Judged, scope: Scope) -> tuple[str, ...]:
        if self._rules is None:
            return ()
        return self._policy().suggestions(judged.tool.name, judged.tool.kind, judged.subject, scope.mode)

    async def _shown(self, judged: Judged) -> str:
        """What would change. It helps to decide; when it cannot be shown, the question is asked without it."""
        if judged.tool.kind != "edit":
            return ""
        try:
            return self._clean(await self._preview(judged.tool, judged.args))
        except Exception:
            return ""

    async def _remembered(self, answer: Answer, judged: Judged, scope: Scope) -> Answer:
        """The answer with what was really remembered. What cannot be is an answer for this once."""
        if answer.remember is None:
            return msgspec.structs.replace(answer, rule="")
        why = await self._add(answer, answer.remember, judged, scope)
        if not why:
            return msgspec.structs.replace(answer, rule=answer.rule.strip())
        self._warn(f"The answer holds for this once and was not remembered: {why}", scope)
        return msgspec.structs.replace(answer, rule="", remember=None)

    async def _add(self, answer: Answer, keep: RememberScope, judged: Judged, scope: Scope) -> str:
        """Why the rule was not added, or ""."""
        text = answer.rule.strip()
        action: Action = "allow" if answer.allow else "deny"
        if not text:
            return "no rule was named."
        if answer.args is not None:
            return "the arguments were changed, so the rule is not about what runs."
        if self._rules is None:
            return "rules cannot be changed in this session."
        tool, subject = judged.tool, judged.subject
        try:
            if not self._policy().meets(text, action, tool.name, tool.kind, subject, scope.mode):
                return f"the rule {text} is not about this call."
            await self._rules.add(text, action, keep)
        except OdinError as error:
            return error.sentence()
        except OSError as error:
            return f"it could not be written ({error.strerror or error})."
        return ""

    def _warn(self, text: str, scope: Scope) -> None:
        self._recorder.emit(Warned(text), scope.agent)

    def _clean(self, text: str) -> str:
        return mended(self._redact(text).text) if text else ""
