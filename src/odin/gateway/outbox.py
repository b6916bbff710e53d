"""Sends what waits in the outbox: the parts of a chat one after the other, those of several chats at the same time.

A part that fails is sent again with growing pauses, and given up after a day. Of one that may have been sent, nobody
knows: it is sent again with its key where the platform recognizes that, else it is listed by `odin gateway failed`.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from odin.core.errors import OdinError
from odin.core.format import format_size
from odin.gateway.channel import Abilities, Channel, DeliveryFailed, DeliveryRefused, OutboundPart
from odin.gateway.gateway_log import GatewayLog
from odin.gateway.store import DuePart, GatewayStore, StoreThread

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 300.0
GIVE_UP_S = 86_400.0


class Outbox:
    def __init__(
        self,
        db: StoreThread,
        channels: Mapping[str, Channel],
        log: GatewayLog,
        clock: Callable[[], float],
        *,
        first_pause_s: float = FIRST_PAUSE_S,
    ) -> None:
        self.on_sent: Callable[[DuePart], object] = lambda part: None
        self._db = db
        self._channels = channels
        self._log = log
        self._clock = clock
        self._first_pause_s = first_pause_s
        self._work = asyncio.Event()
        self._sending: dict[tuple[str, str], asyncio.Task[None]] = {}

    def wake(self) -> None:
        """Look for parts to send. Also another process may have added some."""
        self._work.set()

    async def run(self) -> None:
        """Send parts until it is cancelled."""
        is_first = True
        try:
            while True:
                self._work.clear()
                heads = await self._db.run(GatewayStore.list_heads)
                if is_first:
                    await self._settle_interrupted(heads)
                    is_first = False
                    continue
                now, pause = self._clock(), 60.0
                for part in heads:
                    place = part.channel, part.chat
                    if place in self._sending or part.channel not in self._channels:
                        continue
                    if part.due > now:
                        pause = min(pause, part.due - now)
                        continue
                    self._sending[place] = task = asyncio.create_task(self._send(part))
                    task.add_done_callback(lambda _, place=place: self._sending.pop(place))
                await self._wait(pause)
        finally:
            for task in self._sending.values():
                task.cancel()

    async def _wait(self, pause: float) -> None:
        try:
            async with asyncio.timeout(pause):
                await self._work.wait()
        except TimeoutError:
            pass

    async def _settle_interrupted(self, heads: list[DuePart]) -> None:
        """Decide about the parts that an earlier gateway was sending when it ended."""
        for part in heads:
            channel = self._channels.get(part.channel)
            if not part.was_sending or channel is None:
                continue
            if channel.abilities.is_idempotent:
                await self._db.run(GatewayStore.mark_unsent, part.seq, "pending", "")
            else:
                await self._note_unsure(part, "The gateway ended while it was sent.")
        self.wake()

    async def _note_unsure(self, part: DuePart, why: str) -> None:
        await self._db.run(GatewayStore.mark_unsent, part.seq, "unsure", why)
        self._log.write("unsure", part.channel, part.chat, part.key, why)

    async def _send(self, part: DuePart) -> None:
        channel = self._channels[part.channel]
        await self._db.run(GatewayStore.mark_sending, part.seq)
        try:
            platform = await channel.send(_make_outbound(part, channel.abilities))
        except DeliveryFailed as error:
            await self._retry(part, error, error.retry_after)
        except DeliveryRefused as error:
            await self._give_up(part, error)
        except Exception as error:  # foreign code, or a connection that broke: whether it was sent is not known
            if channel.abilities.is_idempotent:
                await self._retry(part, error)
            else:
                await self._note_unsure(part, f"{type(error).__name__}: {error}")
        else:
            self.on_sent(part)
            await self._db.run(GatewayStore.mark_sent, part.seq, platform)
            self._log.write("sent", part.channel, part.chat, part.key)
        self.wake()

    async def _retry(self, part: DuePart, error: Exception, retry_after: float = 0.0) -> None:
        now = self._clock()
        if now - part.created > GIVE_UP_S:
            await self._give_up(part, error)
            return
        pause = max(retry_after, min(self._first_pause_s * 2**part.attempts, LONGEST_PAUSE_S))
        await self._db.run(GatewayStore.mark_unsent, part.seq, "pending", str(error), now + pause)
        self._log.write("retry", part.channel, part.chat, part.key, f"in {pause:.0f} s: {describe_error(error)}")

    async def _give_up(self, part: DuePart, error: Exception) -> None:
        await self._db.run(GatewayStore.mark_unsent, part.seq, "dead", str(error))
        self._log.write("dead", part.channel, part.chat, part.key, describe_error(error))


def _make_outbound(part: DuePart, abilities: Abilities) -> OutboundPart:
    """Return what the channel is to send: if it does not take the file, a line that names it."""
    text, file = part.text, part.file
    if file is not None:
        try:
            size = Path(file.path).stat().st_size
        except OSError as error:
            raise DeliveryRefused(f"The file {file.name} is gone.") from error
        if size > abilities.max_file_bytes:
            text, file = f"The file {file.name} ({format_size(size)}) cannot be sent here.", None
    return OutboundPart(part.key, part.chat, text, part.buttons, part.answers, file)


def describe_error(error: Exception) -> str:
    return error.describe() if isinstance(error, OdinError) else f"{type(error).__name__}: {error}"
