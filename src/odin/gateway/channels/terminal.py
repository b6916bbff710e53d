"""`odin gateway chat`: a chat in a terminal of this computer, over a Unix socket, as lines of JSON.

Who connects is the owner: another process of the same user that no session has started.
"""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import msgspec
from msgspec import Struct

from odin.core.errors import UsageError
from odin.gateway.channel import Abilities, ChannelInbox, ChannelSetup, DeliveryFailed, InboundMessage, OutboundPart
from odin.remote.local import shorten_path
from odin.server.local import is_foreign
from odin.ui.terminal import write_line

SOCKET_NAME = "terminal.sock"
_MAX_LINE = 1_000_000


class TerminalLine(Struct, frozen=True, omit_defaults=True):
    """A line in either direction. The first one of a client names its `chat` only."""

    text: str = ""
    id: str = ""
    chat: str = ""


class TerminalChannel:
    name = "terminal"
    abilities = Abilities(max_length=100_000, is_internal=True, right="owner")

    def __init__(self, setup: ChannelSetup) -> None:
        self._path = setup.folder / SOCKET_NAME
        self._clients: dict[str, set[asyncio.StreamWriter]] = {}
        self._inbox: ChannelInbox | None = None

    async def run(self, inbox: ChannelInbox) -> None:
        self._inbox = inbox
        self._path.unlink(missing_ok=True)
        with shorten_path(self._path) as name:
            server = await asyncio.start_unix_server(self._serve, name, limit=_MAX_LINE, start_serving=False)
        try:
            self._path.chmod(0o600)
            await server.start_serving()  # may be cancelled
            await asyncio.get_running_loop().create_future()
        finally:
            server.close()
            self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._inbox is not None
        chat = ""
        try:
            if not is_foreign(writer.get_extra_info("socket")):
                return
            chat = msgspec.json.decode(await reader.readline(), type=TerminalLine).chat
            self._clients.setdefault(chat, set()).add(writer)
            await self._inbox.resend(self.name, chat)
            while line := await reader.readline():
                typed = msgspec.json.decode(line, type=TerminalLine)
                await self._inbox.deliver(
                    InboundMessage(channel=self.name, id=typed.id, sender="local", chat=chat, text=typed.text)
                )
        except (OSError, ValueError, msgspec.MsgspecError):
            pass
        finally:
            self._clients.get(chat, set()).discard(writer)
            writer.close()

    async def send(self, part: OutboundPart) -> str:
        clients = self._clients.get(part.chat)
        if not clients:
            raise DeliveryFailed("No terminal shows this chat.")
        for writer in tuple(clients):
            writer.write(msgspec.json.encode(TerminalLine(part.text)) + b"\n")
            await writer.drain()
        return ""

    async def edit(self, chat: str, message: str, text: str) -> None:
        """A terminal keeps what it has shown."""

    async def show_typing(self, chat: str) -> None:
        """A terminal shows answers only."""


async def chat_in_terminal(folder: Path, chat: str, out: TextIO, lines: "asyncio.Queue[str]") -> None:
    """Send lines to a chat of the gateway, and print what it answers. An empty line in the queue ends it."""
    import os

    try:
        with shorten_path(folder / SOCKET_NAME) as name:
            reader, writer = await asyncio.open_unix_connection(name, limit=_MAX_LINE)
    except OSError as error:
        raise UsageError("No gateway is running.", "Start it with `odin gateway`.") from error

    def send(line: TerminalLine) -> None:
        writer.write(msgspec.json.encode(line) + b"\n")

    async def print_answers() -> None:
        while line := await reader.readline():
            out.write(f"{msgspec.json.decode(line, type=TerminalLine).text}\n\n")
            out.flush()

    send(TerminalLine(chat=chat))
    if out.isatty():
        write_line(out, "Ctrl-D ends the chat.")
    printing = asyncio.create_task(print_answers())
    try:
        while not printing.done():
            reading = asyncio.create_task(lines.get())
            await asyncio.wait((reading, printing), return_when=asyncio.FIRST_COMPLETED)
            if not reading.done() or not reading.result():
                reading.cancel()
                break
            if text := reading.result().strip():
                send(TerminalLine(text, os.urandom(8).hex()))
                await writer.drain()
    finally:
        printing.cancel()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
