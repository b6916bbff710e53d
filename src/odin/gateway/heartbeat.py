"""The heartbeat: now and then a cheap model reads HEARTBEAT.md and tells the owner what matters.

It is off until the settings switch it on. Each beat has a session of its own, in ask mode, and its answer is not sent:
the model reaches the owner with the tool `message` only. The beats are a chat of their own, so that two never run at
once, and what they cost is counted there.
"""

import asyncio
import re
from datetime import datetime
from pathlib import Path

from odin.core.errors import ConfigError
from odin.core.gateway_settings import HeartbeatSettings
from odin.core.schedule import Schedule, find_zone
from odin.gateway.channel import (
    Abilities,
    ChannelInbox,
    InboundMessage,
    MessageOptions,
    MessageOrigin,
    OutboundPart,
    SenderRight,
)
from odin.gateway.channels.intake import MAX_FILE_BYTES
from odin.gateway.jobs import DEFAULT_CHAT, HEARTBEAT, LAST_OWNER_CHAT, DueRun, Job, make_message
from odin.gateway.outbox import Outbox
from odin.gateway.store import GatewayStore, NewPart, StoreThread

HEARTBEAT_FILE = "HEARTBEAT.md"
HEARTBEAT_OK = "HEARTBEAT_OK"
_PROBED = "heartbeat_probe"
_COMMENTS = re.compile(r"<!--.*?-->", re.DOTALL)
_HOURS = re.compile(r"(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})")

TEMPLATE = """\
# Heartbeat

<!--
Write below what Odin looks at from time to time, for example:

- Is there a file in ~/inbox that is new? Tell me its name.

As long as there is nothing but this comment, no model is asked. It is also off until `gateway.heartbeat.enabled` is
true in odinconfig.json.
-->
"""

_INSTRUCTIONS = (
    "This is a heartbeat: it comes from time to time, and nobody is waiting. Look at what is asked below. Only what "
    "you send with the tool `message` reaches the owner: use it if something needs attention now. Then answer "
    f"{HEARTBEAT_OK}."
)


class HeartbeatChannel:
    """Passes what the model sends during a beat on to a chat: that of the settings, or the last one of the owner."""

    name = HEARTBEAT
    abilities = Abilities(
        max_length=3500, max_file_bytes=MAX_FILE_BYTES, is_idempotent=True, is_internal=True, approves=False
    )

    def __init__(self, db: StoreThread, settings: HeartbeatSettings) -> None:
        self.outbox: Outbox | None = None
        self._db = db
        self._chat = settings.chat

    async def run(self, inbox: ChannelInbox) -> None:
        await asyncio.get_running_loop().create_future()

    async def send(self, part: OutboundPart) -> str:
        place = self._chat or await self._db.run(GatewayStore.get_value, LAST_OWNER_CHAT) or DEFAULT_CHAT
        channel, _, chat = place.partition(":")
        passed = NewPart(f"{part.key}.passed", channel, chat, part.text, file=part.file)
        await self._db.run(GatewayStore.add_parts, [passed])
        if self.outbox is not None:
            self.outbox.wake()
        return ""

    async def edit(self, chat: str, message: str, text: str) -> None:
        """Nothing is shown of a beat."""

    async def show_typing(self, chat: str) -> None:
        """Nothing is shown of a beat."""


def make_heartbeat_job(settings: HeartbeatSettings) -> Job:
    parse_hours(settings.active_hours)
    find_zone(settings.timezone)
    schedule = Schedule(every=settings.every_minutes * 60.0)
    return Job(HEARTBEAT, schedule, HEARTBEAT, "main", "", "heartbeat", missed="once", history=False)


def parse_hours(text: str) -> tuple[int, int] | None:
    """Return the minutes of the day from and until which it is active; None for all. Raise ConfigError."""
    if not text:
        return None
    found = _HOURS.fullmatch(text.strip())
    if found is not None:
        start, end = int(found[1]) * 60 + int(found[2]), int(found[3]) * 60 + int(found[4])
        if max(start, end) <= 24 * 60 and max(int(found[2]), int(found[4])) < 60 and start != end:
            return start, end
    raise ConfigError(f"gateway.heartbeat.active_hours: {text!r} are no hours.", "Use e.g. 08:00-22:00.")


def is_active(settings: HeartbeatSettings, now: float) -> bool:
    """Return whether a beat may happen now. Hours such as 22:00-06:00 go past midnight."""
    hours = parse_hours(settings.active_hours)
    if hours is None:
        return True
    here = datetime.fromtimestamp(now, find_zone(settings.timezone))
    start, end = hours
    minute = here.hour * 60 + here.minute
    return start <= minute < end if start < end else minute >= start or minute < end


def read_heartbeat_file(workspace: str) -> str | None:
    """Return what the file asks for, "" if that is nothing. Write it and return None if it does not exist."""
    path = Path(workspace) / HEARTBEAT_FILE
    try:
        text = path.read_text(errors="replace")
    except FileNotFoundError:
        path.write_text(TEMPLATE)
        return None
    lines = _COMMENTS.sub("", text).splitlines()
    asks = any(line.strip(" \t-*[]") and not line.lstrip().startswith("#") for line in lines)
    return text.strip() if asks else ""


def make_beat(run: DueRun, asked: str, found: str) -> InboundMessage:
    """Return the message of a beat: what the file asks for, and what the probe has printed."""
    right: SenderRight = "owner"
    instructions = f"{_INSTRUCTIONS}\n\n{asked}" if asked else _INSTRUCTIONS
    return InboundMessage(
        channel=HEARTBEAT,
        id=make_message(run).id,
        account=make_message(run).account,
        sender=HEARTBEAT,
        chat=run.job.chat,
        text=found,
        instructions=instructions,
        origin=MessageOrigin(HEARTBEAT, HEARTBEAT, right),
        options=MessageOptions(history=False, summarize=False, send=False),
    )


async def is_new_finding(db: StoreThread, code: int, output: str) -> bool:
    """Return whether a probe has found something: it succeeded, and printed nothing or something else than before."""
    if code != 0:
        return False
    if output and output == await db.run(GatewayStore.get_value, _PROBED):
        return False
    await db.run(GatewayStore.set_value, _PROBED, output)
    return True
