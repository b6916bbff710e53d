"""What the channels do with each message: fetch its files, store it, and tell its sender what is not possible."""

import mimetypes
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from odin.core.errors import OdinError
from odin.core.format import clip, format_size
from odin.core.private_folders import make_private_folder
from odin.gateway.channel import (
    Channel,
    ChannelInbox,
    DeliveryReceipt,
    InboundMessage,
    InboxFull,
    Media,
    OutboundPart,
)

MAX_FILE_BYTES = 10_000_000
MAX_FILES = 10
_KEPT_S = 30 * 86_400


class RemoteFile(Struct, frozen=True):
    """A file on the platform. `fetch` writes it to a path; its `size` is 0 if that is not known."""

    id: str
    name: str
    media_type: str
    size: int
    fetch: Callable[[Path], Awaitable[None]]


class Intake:
    """Delivers the messages of one channel. `folder` keeps their files for 30 days."""

    def __init__(self, channel: Channel, inbox: ChannelInbox, folder: Path) -> None:
        self._channel = channel
        self._inbox = inbox
        self._folder = make_private_folder(folder)
        self._full = set[str]()
        for path in folder.iterdir():
            if path.stat().st_mtime < time.time() - _KEPT_S:
                path.unlink()

    async def take(
        self, message: InboundMessage, files: Sequence[RemoteFile] = (), refused: Sequence[str] = ()
    ) -> DeliveryReceipt:
        """Deliver a message with its files. `refused` are sentences about what of it cannot be used."""
        if (files or refused) and not await self._inbox.is_wanted(message):
            return await self._inbox.deliver(message)
        problems, media = [*refused], list[Media]()
        if len(files) > MAX_FILES:
            problems.append(f"Only the first {MAX_FILES} files of a message are read.")
        for file in files[:MAX_FILES]:
            try:
                media.append(await self._fetch(file))
            except (OdinError, OSError) as error:
                problems.append(f"The file {clip(file.name, 80)} cannot be used: {str(error).rstrip('.')}.")
        if problems:
            await self.say(message, "\n".join(problems))
        if refused and not (media or message.text.strip()):
            return DeliveryReceipt("ignored")
        try:
            receipt = await self._inbox.deliver(replace(message, media=(*message.media, *media)), wait=False)
        except InboxFull as error:
            # Waiting would keep the messages of all other chats, and `/stop`, from coming in.
            if message.chat not in self._full:
                self._full.add(message.chat)
                await self.say(message, error.describe())
            return DeliveryReceipt("ignored")
        self._full.discard(message.chat)
        return receipt

    async def say(self, message: InboundMessage, text: str) -> None:
        """Answer a message at once, without the outbox. It does no harm if that fails."""
        with suppress(Exception):  # foreign code
            await self._channel.send(OutboundPart(f"said.{message.id}", message.chat, text))

    async def _fetch(self, file: RemoteFile) -> Media:
        if file.size > MAX_FILE_BYTES:
            limit = format_size(MAX_FILE_BYTES)
            raise OdinError(f"it has {format_size(file.size)}, and at most {limit} are read")
        from hashlib import sha256

        suffix = re.sub(r"[^.\w]", "", Path(file.name).suffix)[:12]
        suffix = suffix or mimetypes.guess_extension(file.media_type) or ""
        path = self._folder / f"{sha256(file.id.encode()).hexdigest()[:24]}{suffix}"
        if not path.exists():  # else the message came once more
            fresh = path.with_name(f".{path.name}")
            await file.fetch(fresh)
            fresh.replace(path)
        return Media(str(path), file.name, file.media_type)
