"""Encrypted Matrix rooms, against a real homeserver and a client of another make."""

import importlib
import io
import sys
from pathlib import Path
from typing import Any

import pytest

from odin.providers.http import HttpClient
from odin.testing import ScriptedServer, call, say
from tests.gateway.http_stand_in import FaultyWay, Reply, Seen
from tests.gateway.matrix_client import connect_client
from tests.gateway.platform import locate_gateway, open_store
from tests.gateway.synapse import Homeserver
from tests.gateway.test_chats import answer_last
from tests.gateway.test_matrix import connect, list_bodies, wait_for_line  # pyright: ignore[reportUnusedImport]
from tests.pictures import png
from tests.waiting import TimeLimit, until

pytestmark = pytest.mark.slow

_nio: Any = importlib.import_module("nio")
_ENCRYPTION = {"algorithm": "m.megolm.v1.aes-sha2"}


async def test_an_encrypted_chat(home: Path, homeserver: Homeserver, tmp_path: Path) -> None:
    """Odin reads and answers over a way that loses answers and repeats requests, also after a restart, as the same
    device; nothing is readable for the server; its device is signed."""
    odin, ann = [await homeserver.add_person(name) for name in ("odin", "ann")]
    http, err = HttpClient({}), io.StringIO()
    way = FaultyWay(homeserver.url, http)
    login = {"user": odin.id, "password": odin.password}
    given: Any = {"token": "", "options": login, "err": err, "poll_s": 1.0}
    way.faults["/keys/upload"] = ["cut", "lose", "twice"]
    way.faults["/keys/query"] = ["lose"]
    way.faults["_signing/upload"] = ["lose"]
    with ScriptedServer(answer_last) as model:
        async with way.serve(), connect_client(homeserver, ann, tmp_path / "ann") as client:
            async with connect(model, home, way.url, odin, ann, **given):
                room = await ann.open_room(odin, encrypted=True)
                await wait_for_members(ann, room, 2)
                await client.send(room, "one")
                assert await client.wait_for(room, 1) == ["re: one"]
                way.faults["/sync"] = ["lose", "twice", "cut"]
                way.faults[".0"] = ["lose", "cut", "twice"]
                await client.send(room, "two")
                await client.wait_for(room, 2)
                await way.wait_until(lambda: not way.faults[".0"])
            before = read_keys(homeserver, await find_keys(ann, odin.id))
            await client.send(room, "while you were away")
            async with connect(model, home, way.url, odin, ann, **given):
                await client.wait_for(room, 3)
                await client.send(room, "four")
                await client.wait_for(room, 4)
                await odin.call("POST", "logout/all", {})  # the server forgets the keys, too
                await wait_for_keys(ann, odin.id, before)
                await client.send(room, "five")
                await client.wait_for(room, 5)
            assert client.list_texts(room) == [
                f"re: {text}" for text in ("one", "two", "while you were away", "four", "five")
            ]
            assert client.unread == []
            found = await find_keys(ann, odin.id)
    await http.close()
    (device,) = found["device_keys"][odin.id].values()
    (signer,) = found["self_signing_keys"][odin.id]["keys"]
    assert signer in device["signatures"][odin.id] and len(device["signatures"][odin.id]) == 2
    await ann.sync()
    assert ann.list_events(room, "m.room.message") == []
    assert open_store().list_failed() == [] and not any(way.faults.values())
    files = [path for path in locate_gateway().iterdir() if path.name.startswith("matrix.")]
    assert len(files) == 3 and {path.stat().st_mode & 0o777 for path in files} == {0o600}


async def find_keys(person: Any, user: str) -> dict[str, Any]:
    return await person.call("POST", "keys/query", {"device_keys": {user: []}})


def read_keys(server: Homeserver, found: dict[str, Any]) -> dict[str, Any]:
    return {name: device["keys"] for devices in found["device_keys"].values() for name, device in devices.items()}


async def wait_for_keys(person: Any, user: str, keys: dict[str, Any]) -> None:
    async with TimeLimit():
        while read_keys(person, await find_keys(person, user)) != keys:
            await person.sync()


async def wait_for_members(person: Any, room: str, count: int) -> None:
    async with TimeLimit():
        while len((await person.call("GET", f"rooms/{room}/joined_members"))["joined"]) < count:
            await person.sync()


async def test_a_room_that_is_encrypted_later(
    home: Path, homeserver: Homeserver, workspace: Path, tmp_path: Path
) -> None:
    """From then on all is encrypted, for each device there is: requests, edits and files, too. A server that was never
    given the keys of an account takes them without a password."""
    odin, ann, eve = [await homeserver.add_person(name) for name in ("odin", "ann", "eve")]
    err = io.StringIO()
    script = [
        call("WriteFile", {"file_path": "n", "content": "x\n"}),
        say("done"),
        say("seen"),
        call("message", {"content": "edited", "files": ["n"]}),
        say("not sent"),
        say("last"),
    ]
    with ScriptedServer(script) as model:
        async with (
            connect_client(homeserver, ann, tmp_path / "ann") as client,
            connect(model, home, homeserver.url, odin, ann, err=err, poll_s=1.0),
        ):
            room = await ann.open_room(odin)
            await ann.send(room, f"/bind {workspace}")
            await client.wait_for(room, 1)
            await ann.call("PUT", f"rooms/{room}/state/m.room.encryption/", _ENCRYPTION)
            await client.wait_until(lambda: client.nio.rooms[room].encrypted)
            await client.send(room, "write it")
            asked = await client.wait_for_text(room, "1️⃣ Yes")
            await ann.react(room, asked, "1️⃣")
            await client.wait_for_text(room, "done")
            content, keys = _nio.crypto.encrypt_attachment(png())
            file = {**keys, "url": await ann.upload(content, "application/octet-stream")}
            picture = await client.send(room, "what is it?", msgtype="m.image", filename="it.png", file=file)
            await client.wait_for_text(room, "seen")
            relation = {"rel_type": "m.replace", "event_id": picture}
            changed = {"msgtype": "m.text", "body": "tell us more"}
            await client.send(room, "* more", **{"m.new_content": changed, "m.relates_to": relation})
            await client.wait_for_text(room, "edited")
            await client.wait_until(lambda: client.list_texts(room)[-1] == "n")
            file = client.messages[-1].source["content"]["file"]
            sent = await ann.call("GET", f"media/download/{file['url'].removeprefix('mxc://')}", version="client/v1")
            await ann.call("POST", f"rooms/{room}/invite", {"user_id": eve.id})
            await eve.join(room)
            async with connect_client(homeserver, eve, tmp_path / "eve") as other:
                await client.send(room, "Odin: and who is new?")
                assert await other.wait_for_text(room, "last")
    assert " failed matrix" not in err.getvalue()
    assert (workspace / "n").read_text() == "x\n" and sent != b"x\n"
    assert _nio.crypto.decrypt_attachment(sent, file["key"]["k"], file["hashes"]["sha256"], file["iv"]) == b"x\n"
    assert "'type': 'image'" in str(model.requests[2].messages) and "tell us more" in str(model.requests[3].messages)
    await ann.sync()
    assert ann.list_messages(room, odin) == []  # of the last events, none is readable for the server


class HoldingWay(FaultyWay):
    """Keeps what is sent to devices, while it `holds`."""

    holds = False

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.held: list[Any] = []

    async def answer(self, seen: Seen) -> Reply:
        if self.holds and "/sendToDevice/" in seen.path:
            self.held.append(seen.json)
            return Reply(200, {})
        return await super().answer(seen)


async def test_what_cannot_be_read(home: Path, homeserver: Homeserver, tmp_path: Path) -> None:
    """A message waits for its key, also over a restart. If none comes, the room is told once. What another device than
    one of its sender has encrypted is nothing that they wrote."""
    odin, ann, bob = [await homeserver.add_person(name) for name in ("odin", "ann", "bob")]
    http, err = HttpClient({}), io.StringIO()
    way = HoldingWay(homeserver.url, http)
    key = "A" * 43
    foreign = {"user_id": odin.id, "usage": ["master"], "keys": {f"ed25519:{key}": key}}
    await odin.call("POST", "keys/device_signing/upload", {"master_key": foreign})
    with ScriptedServer(answer_last) as model:
        async with (
            way.serve(),
            connect_client(homeserver, ann, tmp_path / "ann") as client,
            connect_client(homeserver, bob, tmp_path / "bob") as other,
        ):
            client.nio.homeserver, way.holds = way.url, True
            async with connect(model, home, homeserver.url, odin, ann, err=err, poll_s=1.0):
                room = await ann.open_room(odin, encrypted=True)
                await wait_for_members(ann, room, 2)
                early = await client.send(room, "early")
                await until(lambda: early in read_place())
            async with connect(model, home, homeserver.url, odin, ann, err=err, poll_s=1.0):
                for number, keys in enumerate(way.held):
                    await ann.call("PUT", f"sendToDevice/m.room.encrypted/late{number}", keys)
                assert await client.wait_for(room, 1) == ["re: early"]
            assert early not in read_place()
            await ann.call("POST", f"rooms/{room}/invite", {"user_id": bob.id})
            await bob.join(room)
            await other.send(room, "Odin: nobody is asked")
            given: Any = {"err": err, "poll_s": 1.0, "key_wait_s": 0.0, "groups": (room,)}
            async with connect(model, home, homeserver.url, odin, ann, **given):
                for _ in range(2):
                    body = {"msgtype": "m.text", "body": "Odin: forged"}
                    kind, sealed = other.nio.encrypt(room, "m.room.message", body)
                    await ann.send(room, type=kind, more=sealed)
                await client.wait_for_text(room, "Odin has got no key")
                await until(lambda: err.getvalue().count("There is no key to the message") == 2)
    await http.close()
    assert "Another client has made the keys that sign the devices" in err.getvalue()
    assert len([text for text in client.list_texts(room) if text.startswith("Odin has got no key")]) == 1
    assert len(model.requests) == 1


def read_place() -> str:
    return (locate_gateway() / "matrix.json").read_text()


async def test_without_the_package(home: Path, homeserver: Homeserver, monkeypatch: pytest.MonkeyPatch) -> None:
    """An encrypted room is told once what to install, and nothing else is sent there."""
    monkeypatch.setitem(sys.modules, "odin.gateway.channels.matrix_encryption", None)
    odin, ann = [await homeserver.add_person(name) for name in ("odin", "ann")]
    err = io.StringIO()
    with ScriptedServer(answer_last) as model:
        async with connect(model, home, homeserver.url, odin, ann, err=err):
            room, secret = await ann.open_room(odin), await ann.open_room(odin, encrypted=True)
            for _ in range(2):
                await ann.send(secret, type="m.room.encrypted", algorithm="m.megolm.v1.aes-sha2", ciphertext="x")
            (told,) = list_bodies(await ann.wait_for(secret, 1, odin))
            await ann.send(secret, "not encrypted")
            await wait_for_line(err, "The room is encrypted.")
            await ann.send(room, "hello")
            assert list_bodies(await ann.wait_for(room, 1, odin)) == ["re: hello"]
    assert told == "Encrypted rooms need a package: pip install 'odin-code[matrix]'"
    assert list_bodies(ann.list_messages(secret, odin)) == [told] and err.getvalue().count(f"failed matrix {told}") == 1
