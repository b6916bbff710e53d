"""A client of Matrix that encrypts, as somebody in a room has it."""

import asyncio
import importlib
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.gateway.synapse import Homeserver, Person
from tests.waiting import TimeLimit

_nio: Any = importlib.import_module("nio")
logging.getLogger("nio").propagate = False


class MatrixClient:
    """What it could decrypt is in `messages`, with edits as messages of their own; other events are in `unread`."""

    def __init__(self, client: Any) -> None:
        self.messages: list[Any] = []
        self.unread: list[Any] = []
        self.nio = client
        client.add_event_callback(self._note, _nio.RoomMessage)
        client.add_event_callback(self._note_unread, _nio.MegolmEvent)

    async def _note(self, room: Any, event: Any) -> None:
        if event.sender != self.nio.user_id:
            assert event.decrypted or not room.encrypted, event
            event.room_id = room.room_id
            self.messages.append(event)

    async def _note_unread(self, room: Any, event: Any) -> None:
        self.unread.append(event)

    async def send(self, room: str, text: str, **content: Any) -> str:
        while room not in self.nio.rooms or not self.nio.rooms[room].members_synced:
            await self.sync()
            await self.nio.joined_members(room)
        body = {"msgtype": "m.text", "body": text, **content}
        sent = await self.nio.room_send(room, "m.room.message", body, ignore_unverified_devices=True)
        assert isinstance(sent, _nio.RoomSendResponse), sent
        return sent.event_id

    async def sync(self) -> None:
        """Wait for news for a moment."""
        found = await self.nio.sync(timeout=500)
        assert isinstance(found, _nio.SyncResponse), found
        if self.nio.should_upload_keys:
            await self.nio.keys_upload()
        if self.nio.should_query_keys:
            await self.nio.keys_query()
        if self.nio.should_claim_keys:
            await self.nio.keys_claim(self.nio.get_users_for_key_claiming())
        await self.nio.send_to_device_messages()

    async def wait_until(self, is_so: Callable[[], bool]) -> None:
        async with TimeLimit():
            while not is_so():
                await self.sync()

    async def wait_for(self, room: str, count: int) -> list[str]:
        """Return what others wrote in a room when it is so much."""
        await self.wait_until(lambda: len(self.list_texts(room)) >= count)
        return self.list_texts(room)

    async def wait_for_text(self, room: str, text: str) -> str:
        """Return the id of the first message that contains the text."""
        await self.wait_until(lambda: any(text in one for one in self.list_texts(room)))
        return next(one.event_id for one in self.messages if one.room_id == room and text in one.body)

    def list_texts(self, room: str) -> list[str]:
        return [one.body for one in self.messages if one.room_id == room]


@asynccontextmanager
async def connect_client(server: Homeserver, person: Person, folder: Path) -> AsyncGenerator[MatrixClient]:
    folder.mkdir(exist_ok=True)
    device = (await person.call("GET", "account/whoami"))["device_id"]
    config = _nio.AsyncClientConfig(encryption_enabled=True, store_sync_tokens=False)
    client = _nio.AsyncClient(server.url, person.id, device, store_path=str(folder), config=config)
    try:
        client.restore_login(person.id, device, person.token)
        found = MatrixClient(client)
        await found.sync()
        yield found
    finally:
        await client.close()
        await asyncio.sleep(0)  # it closes its connections in the next turn of the loop
        if client.store:
            client.store.database.close()
