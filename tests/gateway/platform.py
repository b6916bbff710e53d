"""A chat platform in the test's own process, its channel, and a gateway with it and a scripted model."""

import asyncio
import io
import itertools
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from odin.config import Options, get_state_dir
from odin.core.timing import DEFAULT_TIMING, Timing
from odin.gateway.channel import (
    Abilities,
    ChannelInbox,
    ChannelSetup,
    DeliveryFailed,
    DeliveryReceipt,
    InboundMessage,
    OutboundPart,
)
from odin.gateway.lock import GATEWAY_FOLDER
from odin.gateway.service import Gateway, open_gateway
from odin.gateway.store import GatewayStore
from odin.testing import ScriptedServer
from tests.waiting import until

TOKEN = "123456:AAE-a-token-of-this-platform"


class Platform:
    """What the platform has: the messages that Odin has sent, by chat, and their buttons."""

    name = "chatty"

    def __init__(self, **abilities: Any) -> None:
        given: dict[str, Any] = {"buttons": True, "edits": True, "typing": True, "max_length": 500}
        self.abilities = Abilities(**{**given, **abilities})
        self.sent: list[OutboundPart] = []
        self.edits: list[str] = []
        self.fails: list[Exception] = []
        """Raised by the next attempts to send, the first one first."""
        self.hangs = False
        """The next attempt to send does not end."""
        self.inbox: ChannelInbox | None = None
        self.setup: ChannelSetup | None = None
        self.changed = asyncio.Event()
        self._ids = itertools.count(1)

    def connect(self, setup: ChannelSetup) -> "Platform":
        self.setup = setup
        return self

    async def run(self, inbox: ChannelInbox) -> None:
        self.inbox = inbox
        self._note()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.inbox = None

    async def send(self, part: OutboundPart) -> str:
        if self.hangs:
            self.hangs = False
            await asyncio.get_running_loop().create_future()
        if self.fails and not part.key.startswith("progress."):
            raise self.fails.pop(0)
        self.sent.append(part)
        self._note()
        return f"sent-{len(self.sent)}"

    async def edit(self, chat: str, message: str, text: str) -> None:
        self.edits.append(text)
        self._note()

    async def show_typing(self, chat: str) -> None:
        pass

    def _note(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    # --- what people do there ---

    async def write(
        self, text: str, *, sender: str = "ann", chat: str = "", id: str = "", **more: Any
    ) -> DeliveryReceipt:
        """Deliver a message of somebody; by default in the direct chat with the sender."""
        await self.wait_until(lambda: self.inbox is not None)
        assert self.inbox is not None
        name = more.pop("sender_name", sender.capitalize())
        message = InboundMessage(
            channel=self.name,
            id=id or f"m{next(self._ids)}",
            sender=sender,
            sender_name=name,
            chat=chat or sender,
            text=text,
            **more,
        )
        return await self.inbox.deliver(message)

    async def press(self, label: str, *, sender: str = "ann", chat: str = "", **more: Any) -> None:
        """Press the newest button with this label."""
        parts = [part for part in self.sent if part.chat == (chat or sender)]
        data = next(one.data for part in reversed(parts) for one in part.buttons if one.label == label)
        await self.write("", sender=sender, chat=chat, choice=data, **more)

    def list_texts(self, chat: str = "ann") -> list[str]:
        return [part.text for part in self.sent if part.chat == chat and not part.key.startswith("progress.")]

    async def wait_until(self, is_so: Callable[[], bool]) -> None:
        async def wait_for_change(seconds: float) -> None:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self.changed.wait()

        await until(is_so, pause=wait_for_change)

    async def wait_for(self, count: int, chat: str = "ann") -> list[str]:
        """Return the texts of a chat when there are so many of them."""
        await self.wait_until(lambda: len(self.list_texts(chat)) >= count)
        return self.list_texts(chat)

    async def wait_for_request(self) -> str:
        """Return what was sent last when it asks something, and Odin knows that it was sent."""
        await self.wait_until(lambda: bool(self.sent) and bool(self.sent[-1].buttons))
        key = self.sent[-1].key
        await self.wait_until(lambda: open_store().is_sent(key))
        return "\n".join(part.text for part in self.sent if part.key.startswith(key))


def write_settings(home: Path, *, more: Mapping[str, Any] | None = None, **gateway: Any) -> None:
    """Write the settings of the gateway, and `more` beside them."""
    folder = home / ".config/odin"
    folder.mkdir(parents=True, exist_ok=True)
    given = {"workspace": str(home / "odin"), **gateway}
    (folder / "odinconfig.json").write_bytes(msgspec.json.encode({"gateway": given, **(more or {})}))


def open_store() -> GatewayStore:
    return GatewayStore(locate_gateway())


def locate_gateway() -> Path:
    return get_state_dir(os.environ) / GATEWAY_FOLDER


@asynccontextmanager
async def run_gateway(
    model: ScriptedServer,
    platform: Platform,
    home: Path,
    *,
    owners: Sequence[str] = ("ann",),
    allow_from: Sequence[str] = ("bob",),
    groups: Sequence[str] = (),
    err: io.StringIO | None = None,
    progress_s: float = 60.0,
    timing: Timing = DEFAULT_TIMING,
    token: str = TOKEN,
    **settings: Any,
) -> AsyncGenerator[Gateway]:
    """Run a gateway of which `owners` are owners on the platform, and `allow_from` may write."""
    people = {"token": token, "owners": owners, "allow_from": allow_from, "groups": groups}
    write_settings(home, channels={"chatty": people}, **settings)
    options = Options(env={**os.environ, **model.env("anthropic")}, timing=timing)
    async with open_gateway(
        options,
        err or io.StringIO(),
        built_in={"chatty": platform.connect},
        first_pause_s=0.01,
        progress_s=progress_s,
        tick_s=0.01,
    ) as gateway:
        yield gateway


__all__ = ["DeliveryFailed", "Platform", "open_store", "run_gateway", "write_settings"]
