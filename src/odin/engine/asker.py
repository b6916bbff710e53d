"""Permission questions: one at a time, matched by id, the first answer wins."""

import asyncio
from typing import Any

import msgspec

from odin.core.event import PermissionAnswered, PermissionAsked
from odin.core.op import Answer
from odin.engine.recorder import Recorder


class Asker:
    """Asks whoever listens. The lock keeps a person from being asked two things at once."""

    def __init__(self, recorder: Recorder, *, can_ask: bool) -> None:
        self.can_ask = can_ask
        self._recorder = recorder
        self._lock = asyncio.Lock()
        self._waiting: dict[str, asyncio.Future[Answer]] = {}
        self._count = 0

    async def ask(
        self, *, call_id: str, name: str, args: dict[str, Any], reason: str, subject: str, agent: str
    ) -> Answer:
        async with self._lock:
            self._count += 1
            ask_id = f"ask-{self._recorder.state.seq + 1}-{self._count}"
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
        waiting = self._waiting.get(op.ask_id)
        if waiting is None or waiting.done():
            return False
        waiting.set_result(op)
        return True
