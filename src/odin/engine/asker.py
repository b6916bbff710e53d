"""What a person is asked, permissions and questions of tools: one at a time, matched by id, the first answer wins.

Every question that was put gets exactly one answer in the log, whoever gave it: a person, a program, the clock
(`timeout`), an interrupt of the turn (`interrupt`) or the end of the session (`shutdown`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from odin.core.errors import AgentShutdown
from odin.core.event import PermissionAnswered, PermissionAsked, Question, QuestionsAnswered, QuestionsAsked, Warned
from odin.core.hook import HookCall, Hooks, NoHooks
from odin.core.op import Answer, AnswerQuestions
from odin.engine.recorder import Recorder

Prepare = Callable[[], Awaitable[PermissionAsked | None]]
"""Makes a question when its turn comes, as things are then; None when it need not be put any more."""

Heed = Callable[[Answer], Awaitable[Answer]]
"""What is done with an answer before the next question is put; what it returns is what is recorded."""


async def _as_given(answer: Answer) -> Answer:
    return answer


class Asker:
    """Asks whoever listens. The lock keeps a person from being asked two things at once.

    `patience` is how many seconds the questions of a tool wait for an answer, `confirm_timeout` how many a permission
    does; 0 means as long as it takes.
    """

    def __init__(
        self,
        recorder: Recorder,
        *,
        can_ask: bool,
        patience: float = 0,
        confirm_timeout: float = 0,
        hooks: Hooks | None = None,
    ) -> None:
        self.can_ask = can_ask
        self.closed = False
        self._patience = patience
        self._confirm_timeout = confirm_timeout
        self._recorder = recorder
        self._hooks = hooks or NoHooks()
        self._lock = asyncio.Lock()
        self._waiting: dict[str, tuple[asyncio.Future[Answer], str]] = {}
        self._questioned: dict[str, asyncio.Future[AnswerQuestions]] = {}
        self._tellings: set[asyncio.Task[None]] = set()
        self._pending = 0
        self._count = 0

    async def ask(self, prepare: Prepare, agent: str, *, heed: Heed = _as_given) -> Answer | None:
        """The answer; None when the question had become needless by the time it could be put."""
        self._pending += 1
        try:
            async with self._lock:
                question = None if self.closed else await prepare()
                if self.closed:
                    return _SHUTDOWN
                if question is None:
                    return None
                asked = msgspec.structs.replace(question, ask_id=self._new_id())
                try:
                    answer = await self._answered(asked, agent)
                    changed = answer.args if answer.args != asked.args else None
                    answer = await heed(msgspec.structs.replace(answer, args=changed))
                except asyncio.CancelledError:
                    self._record(asked, _SHUTDOWN if self.closed else _INTERRUPTED, agent)
                    raise
                self._record(asked, answer, agent)
                return answer
        finally:
            self._pending -= 1

    async def _answered(self, asked: PermissionAsked, agent: str) -> Answer:
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[asked.ask_id] = answered, agent
        try:
            self._recorder.emit(asked, agent)
            self._tell(
                HookCall(
                    "wait_confirm", agent, call_id=asked.call_id, tool=asked.name, args=asked.args, text=asked.reason
                ),
                "" if asked.outside else asked.ask_id,
            )
            async with asyncio.timeout(self._confirm_timeout or None):
                return await answered
        except TimeoutError:
            return Answer(asked.ask_id, False, f"Nobody answered within {self._confirm_timeout:g} s.", by="timeout")
        finally:
            del self._waiting[asked.ask_id]

    def _record(self, asked: PermissionAsked, answer: Answer, agent: str) -> None:
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

    def take_back(self, agent: str) -> None:
        """The calls this agent waits to be let through are no longer wanted: somebody said something else instead."""
        for ask_id, (waiting, of) in list(self._waiting.items()):
            if of == agent:
                _settle(waiting, Answer(ask_id, False, "You said something else instead.", by="steer"))

    def answer(self, op: Answer) -> bool:
        """False when nothing waits for this answer: unknown, late, or answered already."""
        waiting, _ = self._waiting.get(op.ask_id, (None, ""))
        return _settle(waiting, op)

    async def ask_questions(
        self, call_id: str, questions: tuple[Question, ...], agent: str
    ) -> tuple[tuple[str, ...], ...] | None:
        """One answer for each question; None when the person would not. Raises TimeoutError when nobody came."""
        self._pending += 1
        try:
            async with self._lock:
                if self.closed:
                    raise AgentShutdown
                ask_id = self._new_id()
                answer = await self._questions_answered(ask_id, call_id, questions, agent)
                answers = () if answer.cancelled else _completed(questions, answer.answers)
                self._recorder.emit(QuestionsAnswered(ask_id, call_id, answers, answer.cancelled, answer.by), agent)
                if answer.by == "shutdown":
                    raise AgentShutdown
                return None if answer.cancelled else answers
        finally:
            self._pending -= 1

    async def _questions_answered(
        self, ask_id: str, call_id: str, questions: tuple[Question, ...], agent: str
    ) -> AnswerQuestions:
        answered: asyncio.Future[AnswerQuestions] = asyncio.get_running_loop().create_future()
        self._questioned[ask_id] = answered
        try:
            self._recorder.emit(QuestionsAsked(ask_id, call_id, questions), agent)
            self._tell(HookCall("wait_question", agent, call_id=call_id, text=questions[0].text))
            async with asyncio.timeout(self._patience or None):
                return await answered
        except TimeoutError:
            self._recorder.emit(QuestionsAnswered(ask_id, call_id, cancelled=True, by="timeout"), agent)
            raise
        except asyncio.CancelledError:
            by = "shutdown" if self.closed else "interrupt"
            self._recorder.emit(QuestionsAnswered(ask_id, call_id, cancelled=True, by=by), agent)
            raise
        finally:
            del self._questioned[ask_id]

    def answer_questions(self, op: AnswerQuestions) -> bool:
        """False when nothing waits for this answer."""
        return _settle(self._questioned.get(op.ask_id), op)

    async def close(self) -> None:
        """Nobody is asked any more: whoever waits hears a no, and has heard it when this returns."""
        self.closed = True
        for waiting, _ in self._waiting.values():
            _settle(waiting, _SHUTDOWN)
        for ask_id, questioned in self._questioned.items():
            _settle(questioned, AnswerQuestions(ask_id, cancelled=True, by="shutdown"))
        for _ in range(_PATIENT):
            if not self._pending:
                break
            await asyncio.sleep(0)
        for telling in self._tellings:
            telling.cancel()
        await asyncio.gather(*self._tellings, return_exceptions=True)

    def _tell(self, call: HookCall, ask_id: str = "") -> None:
        """Hooks hear that somebody is waited for, and are not waited for. They may answer the question of that id."""
        if self._hooks.listens(call.point):
            telling = asyncio.create_task(self._fire(call, ask_id))
            self._tellings.add(telling)
            telling.add_done_callback(self._tellings.discard)

    async def _fire(self, call: HookCall, ask_id: str) -> None:
        verdict = await self._hooks.fire(call)
        if ask_id and verdict.decision in ("allow", "deny"):
            self.answer(Answer(ask_id, verdict.decision == "allow", verdict.message, verdict.args, by="hook"))
        if verdict.notice:
            self._recorder.emit(Warned(verdict.notice), call.agent)

    def _new_id(self) -> str:
        self._count += 1
        return f"ask-{self._recorder.state.seq + 1}-{self._count}"


_SHUTDOWN = Answer("", False, str(AgentShutdown()), by="shutdown")
_INTERRUPTED = Answer("", False, "The turn was interrupted.", by="interrupt")

_PATIENT = 1000
"""Rounds of the event loop that those who wait get to take their answer, before the turn is cancelled under them."""

_Answer = TypeVar("_Answer")


def _settle(waiting: "asyncio.Future[_Answer] | None", op: _Answer) -> bool:
    if waiting is None or waiting.done():
        return False
    waiting.set_result(op)
    return True


def _completed(questions: Sequence[Question], given: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """An answer to every question: what was not answered takes the first option, and one choice is one."""
    answers: list[tuple[str, ...]] = []
    for number, question in enumerate(questions):
        said = tuple(word for word in given[number] if word.strip()) if number < len(given) else ()
        default = tuple(option.label for option in question.options[:1])
        answers.append((said if question.multiple else said[:1]) or default)
    return tuple(answers)
