"""Remote sessions: every argument and result passes through JSON.

The app works over this, so it works with a session in another process or on another machine.
"""

import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any, get_type_hints

import msgspec

from odin.core.client import Client, Sessions
from odin.core.errors import OdinError
from odin.core.event import Envelope
from odin.core.op import Op, Prompt

Heard = Callable[[Op], None]


def over(value: Any, kind: Any) -> Any:
    """Encode and decode the value, as if sent over the wire."""
    return msgspec.json.decode(msgspec.json.encode(value), type=kind)


def _refused(error: OdinError) -> OdinError:
    """Only the messages of an error are transferred."""
    return OdinError(over(str(error), str), over(error.hint, str))


async def _asked(near: Any, protocol: type[Any], name: str, args: tuple[Any, ...], more: dict[str, Any]) -> Any:
    """Call a method with arguments and result converted by the type hints of the protocol."""
    told = getattr(protocol, name)
    hints = get_type_hints(told)
    given = inspect.signature(told).bind(None, *args, **more).arguments
    sent = {key: over(value, hints[key]) for key, value in given.items() if key in hints}
    try:
        answer = await getattr(near, name)(**sent)
    except OdinError as error:
        raise _refused(error) from None
    return over(answer, hints["return"])


class FarClient:
    """A client with a remote session. `heard` is called with every op sent."""

    def __init__(self, near: Client, heard: Heard) -> None:
        self.near = near
        self._heard = heard
        self.opened = 0

    async def submit(self, op: Op) -> bool:
        arrived = over(op, Op)
        self._heard(arrived)
        try:
            return over(await self.near.submit(arrived), bool)
        except OdinError as error:
            raise _refused(error) from None

    def stream_events(self, after: int | None = None) -> AsyncIterator[Envelope]:
        return self._events(self.near.stream_events(after))

    async def _events(self, near: AsyncIterator[Envelope]) -> AsyncIterator[Envelope]:
        self.opened += 1
        try:
            async for envelope in near:
                yield over(envelope, Envelope)
        finally:
            self.opened -= 1

    def __getattr__(self, name: str) -> Any:
        def ask(*args: Any, **more: Any) -> Any:
            return _asked(self.near, Client, name, args, more)

        return ask


class FarSessions:
    """`ops` are all ops sent to any session, in order; `heard` is called with each of them.

    `asked` are the names of the methods called on the sessions.
    """

    def __init__(self, near: Sessions) -> None:
        self.near = near
        self.ops: list[Op] = []
        self.asked: list[str] = []
        self.heard: Heard | None = None
        self._far: dict[int, FarClient] = {}
        self._wrap()

    def _wrap(self) -> FarClient:
        near = self.near.client
        if id(near) not in self._far:
            self._far = {id(near): FarClient(near, self._hear)}
        return self._far[id(near)]

    def _hear(self, op: Op) -> None:
        self.ops.append(op)
        if self.heard is not None:
            self.heard(op)

    @property
    def client(self) -> Any:
        return self._wrap()

    async def open_new(self) -> Any:
        return await self._go(self.near.open_new())

    async def resume(self, session: str) -> Any:
        return await self._go(self.near.resume(over(session, str)))

    async def fork(self, turn: str = "") -> tuple[Any, str]:
        _, left = await self._go(self.near.fork(over(turn, str)))
        return self.client, over(left, str)

    async def execute_plan(self, plan: str = "", role: str = "") -> tuple[Any, Prompt]:
        _, prompt = await self._go(self.near.execute_plan(over(plan, str), over(role, str)))
        return self.client, over(prompt, Prompt)

    async def _go(self, going: Any) -> Any:
        try:
            return await going
        except OdinError as error:
            raise _refused(error) from None

    async def close(self) -> None:
        await self.near.close()

    def __getattr__(self, name: str) -> Any:
        def ask(*args: Any, **more: Any) -> Any:
            self.asked.append(name)
            return _asked(self.near, Sessions, name, args, more)

        return ask
