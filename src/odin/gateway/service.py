"""`odin gateway` without its command line: channels bring messages, sessions answer them, and the outbox sends that."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TextIO

from msgspec.structs import replace

from odin.config import Options, load
from odin.config.paths import LOG_FOLDER, make_environment
from odin.core.errors import ConfigError, OdinError
from odin.core.gateway_settings import ChannelSettings, GatewaySettings
from odin.gateway.admission import SenderAccess
from odin.gateway.channel import (
    AnswerState,
    Channel,
    ChannelFactory,
    ChannelSetup,
    DeliveryReceipt,
    InboundMessage,
    TokenRefused,
    make_channel,
)
from odin.gateway.channels import BUILT_IN
from odin.gateway.channels.terminal import TerminalChannel
from odin.gateway.channels.webhook import WebhookChannel
from odin.gateway.chats import Chats
from odin.gateway.gateway_log import GATEWAY_LOG_NAME, GatewayLog
from odin.gateway.heartbeat import HeartbeatChannel
from odin.gateway.jobs import HEARTBEAT, LAST_OWNER_CHAT
from odin.gateway.lock import GATEWAY_FOLDER, hold_lock
from odin.gateway.outbox import FIRST_PAUSE_S, Outbox, describe_error
from odin.gateway.progress import FIRST_MESSAGE_S
from odin.gateway.schedules import TICK_S, Scheduler
from odin.gateway.secrets_check import check_secrets
from odin.gateway.session import ChatServices
from odin.gateway.store import Chat, GatewayStore, StoreThread
from odin.host.manager import SessionManager
from odin.providers.http import HttpClient
from odin.server.access import open_access
from odin.server.local import LocalListener

SYSTEM_CHANNEL = "system"
LAST_CHAT = "last_chat"

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 300.0
_SETTLE_S = 90.0
_CLOSE_S = 10.0


class Gateway:
    """Takes the messages of all channels."""

    def __init__(
        self,
        db: StoreThread,
        outbox: Outbox,
        channels: Mapping[str, Channel],
        settings: GatewaySettings,
        services: ChatServices,
        *,
        first_pause_s: float = _FIRST_PAUSE_S,
    ) -> None:
        self.channels = channels
        self.outbox = outbox
        self._db = db
        self._log = services.log
        self._services = services
        self._first_pause_s = first_pause_s
        self._access = SenderAccess(db, channels, settings.channels)
        self.chats = Chats(services, self._access.find_right)
        self._last_chat = ""

    async def deliver(self, message: InboundMessage, *, wait: bool = True) -> DeliveryReceipt:
        place = message.channel, message.chat
        if message.channel == SYSTEM_CHANNEL:
            self._log.write("system", *place, message.id)
            return DeliveryReceipt("ignored")
        right = await self._access.find_right(message)
        if not right:
            return await self._meet_stranger(message)
        if not await self._access.is_answered(message, right):
            return DeliveryReceipt("ignored")
        if not (message.text.strip() or message.media or message.choice or message.instructions):
            return DeliveryReceipt("ignored")
        key, outcome = await self.chats.take(message, right, wait=wait)
        self._log.write("received" if outcome == "accepted" else "duplicate", *place, key, f"from {message.sender}")
        name = ":".join(place)
        if right == "owner" and not message.is_group and self.channels[message.channel].abilities.approves:
            await self._db.run(GatewayStore.set_value, LAST_OWNER_CHAT, name)
        if not self.channels[message.channel].abilities.is_internal and name != self._last_chat:
            self._last_chat = name
            await self._db.run(GatewayStore.set_value, LAST_CHAT, name)
        return DeliveryReceipt("accepted" if outcome == "accepted" else "duplicate", key)

    async def is_wanted(self, message: InboundMessage) -> bool:
        right = await self._access.find_right(message)
        return bool(right) and await self._access.is_answered(message, right)

    async def _meet_stranger(self, message: InboundMessage) -> DeliveryReceipt:
        said = await self._access.pair(message)
        if not said:
            self._log.write("ignored", message.channel, message.chat, note=f"from {message.sender}, who is not paired")
            return DeliveryReceipt("ignored")
        self._log.write("paired", message.channel, message.chat, note=message.sender)
        key, _ = await self._db.run(GatewayStore.add_message, message, "control")
        chat = Chat(channel=message.channel, chat=message.chat)
        parts = self._services.make_parts(chat, f"{key}.said", said, key)
        await self._db.run(GatewayStore.finish, chat, parts, done=(key,))
        self.outbox.wake()
        return DeliveryReceipt("accepted", key)

    async def resend(self, channel: str, chat: str) -> None:
        await self._db.run(GatewayStore.make_due, channel, chat)
        self.outbox.wake()

    async def find_answer(self, channel: str, account: str, id: str) -> AnswerState | None:
        return await self._db.run(GatewayStore.find_answer, channel, account, id)

    async def run_channel(self, channel: Channel) -> None:
        """Keep a channel running. After an error it starts again, after a pause that grows while it fails at once.

        One that has failed counts as connected when it has run for longer than a platform takes to answer.
        """
        pause, loop = self._first_pause_s, asyncio.get_running_loop()
        name = f"channel:{channel.name}"
        self._log.write("connected", channel.name)
        await self._db.run(GatewayStore.set_value, name, "connected")
        why = ""
        while True:
            started = loop.time()
            running = asyncio.create_task(channel.run(self))
            try:
                if why and not (await asyncio.wait((running,), timeout=_SETTLE_S))[0]:
                    self._log.write("connected", channel.name)
                    await self._db.run(GatewayStore.set_value, name, "connected")
                await running
                why = "It has ended by itself."
            except TokenRefused as error:
                why = self._log.redact(error.describe())
                self._log.write("failed", channel.name, note=f"{why} The channel is not used until the next start.")
                await self._db.run(GatewayStore.set_value, name, why)
                return
            except Exception as error:  # foreign code: one channel must not stop the others
                why = self._log.redact(describe_error(error))
            finally:
                running.cancel()
            has_run = loop.time() - started > _LONGEST_PAUSE_S
            pause = self._first_pause_s if has_run else min(pause * 2, _LONGEST_PAUSE_S)
            self._log.write("failed", channel.name, note=f"{why} It starts again in {pause:.0f} s.")
            await self._db.run(GatewayStore.set_value, name, why)
            await asyncio.sleep(pause)

    async def run_outbox(self) -> None:
        while True:
            try:
                await self.outbox.run()
            except Exception as error:  # such as a full disk
                self._log.write("failed", "outbox", note=describe_error(error))
                await asyncio.sleep(_FIRST_PAUSE_S)


@asynccontextmanager
async def open_gateway(
    options: Options,
    err: TextIO | None = sys.stderr,
    *,
    built_in: Mapping[str, ChannelFactory] = BUILT_IN,
    first_pause_s: float = FIRST_PAUSE_S,
    progress_s: float = FIRST_MESSAGE_S,
    tick_s: float = TICK_S,
) -> AsyncGenerator[Gateway]:
    """Run the gateway of the user until the end of the context. `err` gets its log."""
    environment = make_environment(options.env, "/", options.state_dir, options.timing)
    env, state = environment.variables, Path(environment.state_dir)
    config = load("/", env)
    if wrong := next((problem for problem in config.problems if problem.key == "gateway"), None):
        raise ConfigError(wrong.describe(), "Correct it, or remove it.")
    settings = config.gateway
    check_secrets(settings, lambda token: open_access(env).find(token) is not None)
    workspace = Path(environment.expand_home(settings.workspace))
    with suppress(FileExistsError):
        workspace.mkdir(parents=True, mode=0o700)
    folder = state / GATEWAY_FOLDER
    clock = options.timing.clock
    with hold_lock(folder):
        secrets = [value for _, value in settings.list_secrets()]
        log = GatewayLog(state / LOG_FOLDER / GATEWAY_LOG_NAME, err, secrets, clock)
        http, manager = HttpClient(env), SessionManager()
        db = StoreThread(GatewayStore(folder, clock))
        try:
            setup = ChannelSetup(
                "", ChannelSettings(), settings, folder, env, http, partial(log.write, "failed", "gateway", "", "")
            )
            channels: dict[str, Channel] = {"terminal": TerminalChannel(setup)}
            if settings.webhooks:
                channels["webhook"] = WebhookChannel(setup, clock)
            for name, given in settings.channels.items():
                if name in (*channels, "webhook", HEARTBEAT, SYSTEM_CHANNEL, "cli"):
                    raise ConfigError(f"gateway.channels: {name!r} is a name of Odin's own.", "Choose another one.")
                if given.enabled:
                    report = partial(log.write, "failed", name, "", "")
                    channels[name] = make_channel(replace(setup, name=name, settings=given, report=report), built_in)
            heartbeat = HeartbeatChannel(db, settings.heartbeat)
            if settings.heartbeat.enabled:
                channels[HEARTBEAT] = heartbeat
            heartbeat.outbox = outbox = Outbox(db, channels, log, clock, first_pause_s=first_pause_s)
            place = os.path.realpath(workspace)
            services = ChatServices(
                manager, options, settings, environment, place, db, outbox, channels, log, progress_s
            )
            gateway = Gateway(db, outbox, channels, settings, services, first_pause_s=first_pause_s)
            outbox.on_sent = gateway.chats.note_sent
            async with LocalListener(manager, options, state):
                async with _run_all(gateway, db, Scheduler(services, gateway.chats, tick_s=tick_s)):
                    log.write("started", "gateway", note=", ".join(channels))
                    yield gateway
                log.write("stopped", "gateway")
        finally:
            with suppress(OdinError):
                await manager.close(_CLOSE_S)
            await http.close()
            db.close()


@asynccontextmanager
async def _run_all(gateway: Gateway, db: StoreThread, scheduler: Scheduler) -> AsyncGenerator[None]:
    """Run the channels, the outbox, the scheduler and the chats with messages that an earlier gateway has left."""
    for channel, chat in await db.run(GatewayStore.recover):
        if channel in gateway.channels:
            gateway.chats.get(channel, chat)
    await scheduler.recover()
    running = [asyncio.create_task(gateway.run_outbox())]
    running.append(asyncio.create_task(scheduler.run()))
    running += [asyncio.create_task(gateway.run_channel(channel)) for channel in gateway.channels.values()]
    try:
        yield
    finally:
        for task in running[1:]:
            task.cancel()
        await gateway.chats.close()
        running[0].cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await db.run(GatewayStore.release)
