"""The calls that wait for one server: their time limits, and what the server asks of Odin meanwhile.

A server may ask the user (elicitation) or the model (sampling) only during a call, once at a time per call, and what it
asked for is given up with the call. So no server can queue questions, and no question outlives its reason.
What it sends during a call belongs to the session that made the call.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from msgspec import Struct

from odin.core.tool import ToolContext

_GIVE_UP_S = 1.0


class ServerUser(Struct, frozen=True, eq=False):
    """A session that uses connections. `folder` is where results are kept that are too large for the model.

    `on_change` is called whenever the status or the listing of one changes; `log` with a message of a server for the
    user. `answer` answers an elicitation and `sample` a sampling request, in the types of the official package.
    """

    folder: Path
    on_change: Callable[[], None]
    log: Callable[[str, str], None]
    answer: Callable[[str, Any, ToolContext], Awaitable[Any]]
    sample: Callable[[str, Any], Awaitable[Any]]


class _Call(Struct, eq=False):
    """A request that waits for the server."""

    user: ServerUser
    context: ToolContext
    limit: asyncio.Timeout
    is_silenced: bool = False


class _Demand(Struct, eq=False):
    """What a server asks for during `calls`. It is given up with the last of them."""

    calls: list[_Call]
    task: asyncio.Future[Any]


_CALL: ContextVar[_Call | None] = ContextVar("mcp_call", default=None)
"""The call that a message of a server belongs to. The HTTP transport of the package hands it on; pipes cannot."""


class RunningCalls:
    """`limit_s` is how long a call may wait without progress."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._calls: list[_Call] = []
        self._demands: list[_Demand] = []

    async def run(self, answer: Awaitable[Any], context: ToolContext, user: ServerUser) -> Any:
        """Return the answer. Raise TimeoutError if it does not come in time."""
        token = _CALL.set(None)
        call: _Call | None = None
        try:
            async with asyncio.timeout(self._limit_s) as limit:
                call = _Call(user, context, limit)
                self._calls.append(call)
                _CALL.set(call)
                return await answer
        finally:
            _CALL.reset(token)
            if call is not None:
                self._calls.remove(call)
                ended = call
                given_up: list[asyncio.Future[Any]] = []
                for demand in self._demands:
                    demand.calls = [call for call in demand.calls if call is not ended]
                    if not demand.calls:
                        demand.task.cancel()
                        given_up.append(demand.task)
                if given_up:
                    await asyncio.wait(given_up, timeout=_GIVE_UP_S)

    def find_context(self) -> ToolContext | None:
        """Return the context of the call that a message belongs to: the latest, if the transport does not say which.

        None if it may belong to calls of several sessions.
        """
        calls = self._find_calls()
        return calls[-1].context if len(self.list_users()) == 1 else None

    def list_users(self) -> list[ServerUser]:
        """Return the users of the calls that a message may belong to."""
        return list(dict.fromkeys(call.user for call in self._find_calls()))

    def _find_calls(self) -> list[_Call]:
        call = _CALL.get()
        return [call] if call in self._calls else [*self._calls]

    def note_progress(self, context: ToolContext) -> None:
        """Start the time limit of a call again."""
        for call in self._calls:
            if call.context is context:
                self._restart_limit(call)

    def _restart_limit(self, call: _Call) -> None:
        if not any(call in demand.calls for demand in self._demands):
            call.limit.reschedule(asyncio.get_running_loop().time() + self._limit_s)

    @property
    def can_serve(self) -> bool:
        """True if the server may ask for something now."""
        return len(self._demands) < len(self._calls)

    @property
    def can_ask(self) -> bool:
        """True if the server may ask the user now."""
        return self.can_serve and not all(call.is_silenced for call in self._find_calls())

    def stop_questions(self, user: ServerUser) -> None:
        """Let the running calls ask this user nothing more: a question was cancelled."""
        for call in self._find_calls():
            call.is_silenced = call.is_silenced or call.user is user

    async def serve(self, work: Callable[[ToolContext], Awaitable[Any]]) -> Any:
        """Do what the server asks during a call. Return None if that took too long, or its calls have ended.

        The time that the work takes is not the time of the call.
        """
        calls = self._find_calls()
        demand = _Demand(calls, asyncio.ensure_future(work(calls[-1].context)))
        self._demands.append(demand)
        for call in calls:
            call.limit.reschedule(None)
        try:
            return await demand.task
        except TimeoutError:
            return None
        except asyncio.CancelledError:
            if demand.calls:
                raise
            return None
        finally:
            self._demands.remove(demand)
            for call in demand.calls:
                self._restart_limit(call)
