"""What a person is asked, permissions and questions of tools: one at a time, matched by id, the first answer wins."""

import asyncio
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from odin.core.event import PermissionAnswered, PermissionAsked, Question, QuestionsAnswered, QuestionsAsked
from odin.core.op import Answer, AnswerQuestions
from odin.engine.recorder import Recorder


class Asker:
    """Asks whoever listens. The lock keeps a person from being asked two things at once.

    `patience` is how many seconds the questions of a tool wait for an answer; 0 means as long as it takes.
    """

    def __init__(self, recorder: Recorder, *, can_ask: bool, patience: float = 0) -> None:
        self.can_ask = can_ask
        self._patience = patience
        self._recorder = recorder
        self._lock = asyncio.Lock()
        self._waiting: dict[str, asyncio.Future[Answer]] = {}
        self._questioned: dict[str, asyncio.Future[AnswerQuestions]] = {}
        self._count = 0

    async def ask(
        self, *, call_id: str, name: str, args: dict[str, Any], reason: str, subject: str, agent: str
    ) -> Answer:
        async with self._lock:
            ask_id = self._new_id()
            answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
            self._waiting[ask_id] = answered
            try:
                self._recorder.emit(PermissionAsked(ask_id, call_id, name, args, reason, subject), agent)
                answer = await answered
            finally:
                del self._waiting[ask_id]
            changed = answer.args if answer.args != args else None
            self._recorder.emit(
                PermissionAnswered(ask_id, call_id, answer.allow, answer.by, answer.reason, changed), agent
            )
            return msgspec.structs.replace(answer, args=changed)

    def answer(self, op: Answer) -> bool:
        """False when nothing waits for this answer: unknown, late, or answered already."""
        return _settle(self._waiting.get(op.ask_id), op)

    async def ask_questions(
        self, call_id: str, questions: tuple[Question, ...], agent: str
    ) -> tuple[tuple[str, ...], ...] | None:
        """One answer for each question; None when the person would not. Raises TimeoutError when nobody came."""
        async with self._lock:
            ask_id = self._new_id()
            answered: asyncio.Future[AnswerQuestions] = asyncio.get_running_loop().create_future()
            self._questioned[ask_id] = answered
            try:
                self._recorder.emit(QuestionsAsked(ask_id, call_id, questions), agent)
                async with asyncio.timeout(self._patience or None):
                    answer = await answered
            except TimeoutError:
                self._recorder.emit(QuestionsAnswered(ask_id, call_id, cancelled=True, by="timeout"), agent)
                raise
            finally:
                del self._questioned[ask_id]
            answers = () if answer.cancelled else _completed(questions, answer.answers)
            self._recorder.emit(QuestionsAnswered(ask_id, call_id, answers, answer.cancelled, answer.by), agent)
            return None if answer.cancelled else answers

    def answer_questions(self, op: AnswerQuestions) -> bool:
        """False when nothing waits for this answer."""
        return _settle(self._questioned.get(op.ask_id), op)

    def _new_id(self) -> str:
        self._count += 1
        return f"ask-{self._recorder.state.seq + 1}-{self._count}"


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
