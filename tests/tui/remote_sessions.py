"""Simulated remote sessions: every argument and result is copied through JSON.

If the app works over them, it works with a session in another process or on another machine.
"""

import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any, get_type_hints

import msgspec

from odin.core.client import Client, Sessions
from odin.core.errors import OdinError
from odin.core.event import Envelope
from odin.core.op import Op, Prompt

OpListener = Callable[[Op], None]


def copy_through_json(value: Any, kind: Any) -> Any:
    """Return the value after encoding and decoding it as JSON."""
    return msgspec.json.decode(msgspec.json.encode(value), type=kind)


def _copy_error(error: OdinError) -> OdinError:
    """Return a copy of the error with only its message and hint, as a connection would transfer it."""
    return OdinError(copy_through_json(str(error), str), copy_through_json(error.hint, str))


async def _call_through_json(
    local: Any, protocol: type[Any], name: str, args: tuple[Any, ...], more: dict[str, Any]
) -> Any:
    """Call a method; copy its arguments and its result through JSON by the type hints of the protocol."""
    method = getattr(protocol, name)
    hints = get_type_hints(method)
    given = inspect.signature(method).bind(None, *args, **more).arguments
    sent = {key: copy_through_json(value, hints[key]) for key, value in given.items() if key in hints}
    try:
        result = await getattr(local, name)(**sent)
    except OdinError as error:
        raise _copy_error(error) from None
    return copy_through_json(result, hints["return"])


class RemoteClient:
    """A client of a remote session. It calls `on_op` with every submitted op."""

    def __init__(self, local: Client, on_op: OpListener) -> None:
        self.local = local
        self._on_op = on_op

    async def submit(self, op: Op) -> bool:
        arrived = copy_through_json(op, Op)
        self._on_op(arrived)
        try:
            return copy_through_json(await self.local.submit(arrived), bool)
        except OdinError as error:
            raise _copy_error(error) from None

    def stream_events(self, after: int | None = None) -> AsyncIterator[Envelope]:
        return self._copy_events(self.local.stream_events(after))

    async def _copy_events(self, local: AsyncIterator[Envelope]) -> AsyncIterator[Envelope]:
        async for envelope in local:
            yield copy_through_json(envelope, Envelope)

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **more: Any) -> Any:
            return _call_through_json(self.local, Client, name, args, more)

        return call


class RemoteSessions:
    """Remote sessions. `ops` are all ops submitted to any session, in order; `on_op` is called with each of them.

    `called` are the names of the methods called on the sessions.
    """

    def __init__(self, local: Sessions) -> None:
        self.local = local
        self.ops: list[Op] = []
        self.called: list[str] = []
        self.on_op: OpListener | None = None
        self._clients: dict[int, RemoteClient] = {}
        self._wrap_client()

    def _wrap_client(self) -> RemoteClient:
        local = self.local.client
        if id(local) not in self._clients:
            self._clients = {id(local): RemoteClient(local, self._record_op)}
        return self._clients[id(local)]

    def _record_op(self, op: Op) -> None:
        self.ops.append(op)
        if self.on_op is not None:
            self.on_op(op)

    @property
    def client(self) -> Any:
        return self._wrap_client()

    async def open_new(self) -> Any:
        return await self._forward(self.local.open_new())

    async def resume(self, session: str) -> Any:
        return await self._forward(self.local.resume(copy_through_json(session, str)))

    async def fork(self, turn: str = "") -> tuple[Any, str]:
        _, prompt_text = await self._forward(self.local.fork(copy_through_json(turn, str)))
        return self.client, copy_through_json(prompt_text, str)

    async def execute_plan(self, plan: str = "", role: str = "") -> tuple[Any, Prompt]:
        _, prompt = await self._forward(
            self.local.execute_plan(copy_through_json(plan, str), copy_through_json(role, str))
        )
        return self.client, copy_through_json(prompt, Prompt)

    async def _forward(self, call: Any) -> Any:
        try:
            return await call
        except OdinError as error:
            raise _copy_error(error) from None

    async def close(self) -> None:
        await self.local.close()

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **more: Any) -> Any:
            self.called.append(name)
            return _call_through_json(self.local, Sessions, name, args, more)

        return call
