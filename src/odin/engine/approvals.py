"""Asks the user: permission requests, questions and plans of the model, one at a time. The first answer to an id wins.

Each gets exactly one answer in the log, from the user, a hook or program, a steering prompt, the clock
(`timeout`), an interrupt of the turn (`interrupt`) or the end of the session (`shutdown`). `RuleChanges` edits the
rules of a running session.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from odin.core.call_events import (
    PermissionAnswered,
    PermissionAsked,
    PlanAnswered,
    PlanAsked,
    QuestionsAnswered,
    QuestionsAsked,
    RuleAdded,
    RuleRemoved,
)
from odin.core.errors import AgentShutdown, UsageError
from odin.core.event import Warned
from odin.core.event_values import Question
from odin.core.op import AnswerPermission, AnswerPlan, AnswerQuestions
from odin.core.policy import HookCall, Hooks, NoHooks, RememberScope, RuleAction, RuleLine
from odin.core.text import list_choices
from odin.core.tool import PlanProposal
from odin.engine.recorder import Recorder
from odin.policy.rules.rule import RuleSet, get_scope

PrepareRequest = Callable[[], Awaitable[PermissionAsked | None]]
"""Called when the request can be shown. Returns None if it is no longer needed."""

HandleAnswer = Callable[[AnswerPermission], Awaitable[AnswerPermission]]
"""Processes an answer before the next request is shown. Returns the answer to record."""


async def _keep_answer(answer: AnswerPermission) -> AnswerPermission:
    return answer


class Approvals:
    """The open permission requests, questions and plans of a session. A lock lets only one be shown at a time.

    `question_timeout` and `confirm_timeout` are the seconds until a question or plan and a permission request time out;
    0 means never.
    """

    def __init__(
        self,
        recorder: Recorder,
        *,
        can_ask: bool,
        question_timeout: float = 0,
        confirm_timeout: float = 0,
        hooks: Hooks | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.can_ask = can_ask
        self.is_closed = False
        self._question_timeout = question_timeout
        self._confirm_timeout = confirm_timeout
        self._recorder = recorder
        self._hooks = hooks or NoHooks()
        self._clock = clock
        self._lock = asyncio.Lock()
        self._open_requests: dict[str, tuple[asyncio.Future[AnswerPermission], str]] = {}
        self._open_questions: dict[str, asyncio.Future[AnswerQuestions]] = {}
        self._open_plans: dict[str, tuple[asyncio.Future[AnswerPlan], PlanAsked]] = {}
        self._hook_tasks: set[asyncio.Task[None]] = set()
        self._pending = 0
        self._count = 0
        self._waited_s = 0.0
        self._waiting_since: float | None = None

    async def ask(
        self, prepare: PrepareRequest, agent: str, *, handle_answer: HandleAnswer = _keep_answer
    ) -> AnswerPermission | None:
        """Return the answer, or None if the request was no longer needed when its turn came: check the call again."""
        self._pending += 1
        try:
            async with self._lock:
                request = None if self.is_closed else await prepare()
                if self.is_closed:
                    return _SHUTDOWN
                if request is None:
                    return None
                asked = msgspec.structs.replace(request, ask_id=self._make_id(), task=self._find_task(agent))
                try:
                    answer = await self._wait_for_answer(asked, agent)
                    changed = answer.args if answer.args != asked.args else None
                    answer = await handle_answer(msgspec.structs.replace(answer, args=changed))
                except asyncio.CancelledError:
                    self._record_answer(asked, _SHUTDOWN if self.is_closed else _INTERRUPTED, agent)
                    raise
                self._record_answer(asked, answer, agent)
                return answer
        finally:
            self._pending -= 1

    def _find_task(self, agent: str) -> str:
        """Return what a sub-agent works on; "" for the main agent."""
        records = self._recorder.state.sub_agents.records if agent else ()
        return next((record.description for record in records if record.id == agent), "")

    async def _wait_for_answer(self, asked: PermissionAsked, agent: str) -> AnswerPermission:
        answered: asyncio.Future[AnswerPermission] = asyncio.get_running_loop().create_future()
        self._open_requests[asked.ask_id] = answered, agent
        self._waiting_since = self._clock()
        try:
            self._recorder.emit(asked, agent)
            self._notify_hooks(
                HookCall(
                    "PermissionRequest",
                    agent,
                    call_id=asked.call_id,
                    tool=asked.name,
                    args=asked.args,
                    text=asked.reason,
                ),
                "" if asked.unsandboxed else asked.ask_id,  # hooks cannot answer this, only the user can
            )
            async with asyncio.timeout(self._confirm_timeout or None):
                return await answered
        except TimeoutError:
            return AnswerPermission(
                asked.ask_id, False, f"The user did not answer within {self._confirm_timeout:g} s.", by="timeout"
            )
        finally:
            self._stop_waiting()
            del self._open_requests[asked.ask_id]

    def _record_answer(self, asked: PermissionAsked, answer: AnswerPermission, agent: str) -> None:
        self._recorder.emit(
            PermissionAnswered(
                asked.ask_id,
                asked.call_id,
                answer.allow,
                answer.by,
                answer.reason,
                answer.args,
                answer.summary,
                answer.rule,
                answer.remember,
            ),
            agent,
        )

    def cancel_for_agent(self, agent: str) -> None:
        """Answer no to the open permission requests of an agent, because a steering prompt overtook them."""
        for ask_id, (waiting, asking) in list(self._open_requests.items()):
            if asking == agent:
                _set_result(waiting, AnswerPermission(ask_id, False, "You sent a steering prompt instead.", by="steer"))

    def find_asking(self, ask_id: str) -> str:
        """Return the agent that waits for the answer to this permission request; "" is the main agent."""
        return self._open_requests[ask_id][1] if ask_id in self._open_requests else ""

    def answer(self, op: AnswerPermission) -> bool:
        """Answer a permission request. Return False if none with this id is open."""
        waiting, _ = self._open_requests.get(op.ask_id, (None, ""))
        return _set_result(waiting, op)

    async def ask_questions(
        self, call_id: str, questions: tuple[Question, ...], agent: str
    ) -> tuple[tuple[str, ...], ...] | None:
        """Return one answer per question, or None if the user cancelled. Raise TimeoutError if no answer came."""
        self._pending += 1
        try:
            async with self._lock:
                if self.is_closed:
                    raise AgentShutdown
                ask_id = self._make_id()
                answer = await self._wait_for_question_answers(ask_id, call_id, questions, agent)
                answers = () if answer.cancelled else _complete_answers(questions, answer.answers)
                self._recorder.emit(QuestionsAnswered(ask_id, call_id, answers, answer.cancelled, answer.by), agent)
                if answer.by == "shutdown":
                    raise AgentShutdown
                return None if answer.cancelled else answers
        finally:
            self._pending -= 1

    async def _wait_for_question_answers(
        self, ask_id: str, call_id: str, questions: tuple[Question, ...], agent: str
    ) -> AnswerQuestions:
        answered: asyncio.Future[AnswerQuestions] = asyncio.get_running_loop().create_future()
        self._open_questions[ask_id] = answered
        self._waiting_since = self._clock()
        try:
            self._recorder.emit(QuestionsAsked(ask_id, call_id, questions), agent)
            self._notify_hooks(HookCall("on_wait_question", agent, call_id=call_id, text=questions[0].text))
            async with asyncio.timeout(self._question_timeout or None):
                return await answered
        except TimeoutError:
            self._recorder.emit(QuestionsAnswered(ask_id, call_id, cancelled=True, by="timeout"), agent)
            raise
        except asyncio.CancelledError:
            by = "shutdown" if self.is_closed else "interrupt"
            self._recorder.emit(QuestionsAnswered(ask_id, call_id, cancelled=True, by=by), agent)
            raise
        finally:
            self._stop_waiting()
            del self._open_questions[ask_id]

    async def ask_plan(self, call_id: str, plan: PlanProposal, agent: str) -> AnswerPlan:
        """Return the decision about a plan. Raise TimeoutError if none came.

        If it is approved without a role, it gets the first one offered.
        """
        self._pending += 1
        try:
            async with self._lock:
                if self.is_closed:
                    raise AgentShutdown
                asked = PlanAsked(self._make_id(), call_id, plan.path, plan.title, plan.text, plan.roles)
                answer = await self._wait_for_decision(asked, agent)
                if answer.by == "shutdown":
                    raise AgentShutdown
                return answer
        finally:
            self._pending -= 1

    async def _wait_for_decision(self, asked: PlanAsked, agent: str) -> AnswerPlan:
        answered: asyncio.Future[AnswerPlan] = asyncio.get_running_loop().create_future()
        self._open_plans[asked.ask_id] = answered, asked
        self._waiting_since = self._clock()
        answer = AnswerPlan(asked.ask_id, "keep_planning", by="timeout")
        try:
            self._recorder.emit(asked, agent)
            self._notify_hooks(HookCall("on_wait_question", agent, call_id=asked.call_id, text=asked.title))
            async with asyncio.timeout(self._question_timeout or None):
                answer = await answered
        except asyncio.CancelledError:
            by = "shutdown" if self.is_closed else "interrupt"
            answer = AnswerPlan(asked.ask_id, "keep_planning", by=by)
            raise
        finally:
            self._stop_waiting()
            del self._open_plans[asked.ask_id]
            role = answer.role or next(iter(asked.roles), "")
            approved = answer.decision in ("approve", "approve_new_session")
            answer = msgspec.structs.replace(answer, role=role if approved else "")
            edited = answer.text if answer.text != asked.text else ""
            self._recorder.emit(
                PlanAnswered(
                    asked.ask_id, asked.call_id, answer.decision, answer.comment, answer.role, edited, answer.by
                ),
                agent,
            )
        return answer

    def answer_plan(self, op: AnswerPlan) -> bool:
        """Decide about a plan. Return False if it is not open, and raise UsageError for a role that is not offered."""
        waiting, asked = self._open_plans.get(op.ask_id, (None, None))
        if asked is not None and op.role and op.role not in asked.roles:
            raise UsageError(f"The role {op.role!r} cannot carry out this plan.", f"Use {list_choices(asked.roles)}.")
        return _set_result(waiting, op)

    def measure_work(self) -> float:
        """Return the time on a clock that stands while the user answers. Requests are open one at a time."""
        now = self._clock() if self._waiting_since is None else self._waiting_since
        return now - self._waited_s

    def _stop_waiting(self) -> None:
        if self._waiting_since is not None:
            self._waited_s += self._clock() - self._waiting_since
            self._waiting_since = None

    def answer_questions(self, op: AnswerQuestions) -> bool:
        """Answer the questions of a tool call. Return False if they are not open."""
        return _set_result(self._open_questions.get(op.ask_id), op)

    async def close(self) -> None:
        """Deny what is open and refuse new requests. The waiting tasks have their answers on return."""
        self.is_closed = True
        for waiting, _ in self._open_requests.values():
            _set_result(waiting, _SHUTDOWN)
        for ask_id, pending in self._open_questions.items():
            _set_result(pending, AnswerQuestions(ask_id, cancelled=True, by="shutdown"))
        for decision, asked in self._open_plans.values():
            _set_result(decision, AnswerPlan(asked.ask_id, "keep_planning", by="shutdown"))
        for _ in range(_CLOSE_ROUNDS):
            if not self._pending:
                break
            await asyncio.sleep(0)
        for task in self._hook_tasks:
            task.cancel()
        await asyncio.gather(*self._hook_tasks, return_exceptions=True)

    def _notify_hooks(self, call: HookCall, ask_id: str = "") -> None:
        """Run hooks in the background while the user is asked. They may answer the request `ask_id`."""
        if self._hooks.has_hook_for(call.point):
            task = asyncio.create_task(self._fire_hook(call, ask_id))
            self._hook_tasks.add(task)
            task.add_done_callback(self._hook_tasks.discard)

    async def _fire_hook(self, call: HookCall, ask_id: str) -> None:
        effect = await self._hooks.fire(call)
        if ask_id and effect.decision in ("allow", "deny"):
            self.answer(AnswerPermission(ask_id, effect.decision == "allow", effect.message, effect.args, by="hook"))
        if effect.notice:
            self._recorder.emit(Warned(effect.notice), call.agent)

    def _make_id(self) -> str:
        self._count += 1
        return f"ask-{self._recorder.state.seq + 1}-{self._count}"


_SHUTDOWN = AnswerPermission("", False, str(AgentShutdown()), by="shutdown")
_INTERRUPTED = AnswerPermission("", False, "The turn was interrupted.", by="interrupt")

_CLOSE_ROUNDS = 1000
"""How many times `close` yields to the event loop, so that waiting tasks can record their answers."""

_AnswerT = TypeVar("_AnswerT")


def _set_result(waiting: "asyncio.Future[_AnswerT] | None", op: _AnswerT) -> bool:
    if waiting is None or waiting.done():
        return False
    waiting.set_result(op)
    return True


def _complete_answers(questions: Sequence[Question], given: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """Return an answer to every question: the first option if none was given, one option for single choice."""
    answers: list[tuple[str, ...]] = []
    for number, question in enumerate(questions):
        words = tuple(word for word in given[number] if word.strip()) if number < len(given) else ()
        default = tuple(option.label for option in question.options[:1])
        answers.append((words if question.multiple else words[:1]) or default)
    return tuple(answers)


class RuleChanges:
    """Edits the rules of a running session, one change at a time. Files are written in a thread: they may be locked.

    `list_fixed` returns rules that are shown with the others, such as those of the role.
    """

    def __init__(
        self, rule_set: RuleSet, recorder: Recorder, list_fixed: Callable[[], tuple[RuleLine, ...]] = lambda: ()
    ) -> None:
        self._rule_set = rule_set
        self._recorder = recorder
        self._list_fixed = list_fixed
        self._lock = asyncio.Lock()

    async def add(self, text: str, action: RuleAction, scope: RememberScope) -> None:
        """Add a rule. Raise OdinError if the text is not a rule or cannot be saved."""
        async with self._lock:
            if scope == "session":
                rule = self._rule_set.add(text, action, scope)
            else:
                rule = await asyncio.to_thread(self._rule_set.add, text, action, scope)
            self._recorder.emit(RuleAdded(rule.text, action, scope, rule.role))

    async def remove(self, number: int) -> None:
        async with self._lock:
            rule = await asyncio.to_thread(self._rule_set.remove, number)
            self._recorder.emit(RuleRemoved(rule.text, rule.action, get_scope(rule), rule.role))

    def list_rules(self) -> tuple[RuleLine, ...]:
        return (*self._rule_set.list_rules(), *self._list_fixed())
