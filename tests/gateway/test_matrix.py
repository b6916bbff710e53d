"""Matrix, against a real homeserver."""

import io
import os
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from odin.config import Options
from odin.gateway.channels.matrix import KEY_WAIT_S, MatrixChannel
from odin.gateway.service import Gateway, open_gateway
from odin.providers.http import HttpClient
from odin.testing import ScriptedServer, call, say
from tests.gateway.http_stand_in import FaultyWay, Reply
from tests.gateway.platform import locate_gateway, open_store, write_settings
from tests.gateway.synapse import Homeserver, Person
from tests.gateway.test_chats import answer_last
from tests.pictures import png
from tests.waiting import TimeLimit, until

pytestmark = pytest.mark.slow


@asynccontextmanager
async def connect(
    model: ScriptedServer,
    home: Path,
    url: str,
    odin: Person,
    owner: Person,
    *,
    token: str | None = None,
    allow_from: tuple[Person, ...] = (),
    groups: tuple[str, ...] = (),
    err: io.StringIO | None = None,
    poll_s: float = 5.0,
    progress_s: float = 60.0,
    key_wait_s: float = KEY_WAIT_S,
    options: dict[str, str] | None = None,
) -> AsyncGenerator[Gateway]:
    settings: dict[str, Any] = {
        "token": odin.token if token is None else token,
        "owners": [owner.id],
        "allow_from": [one.id for one in allow_from],
        "groups": groups,
        "options": {"homeserver": url, **(options or {})},
    }
    write_settings(home, channels={"matrix": settings})

    def make(setup: Any) -> MatrixChannel:
        return MatrixChannel(setup, poll_s=poll_s, page=10, key_wait_s=key_wait_s)

    async with open_gateway(
        Options(env={**os.environ, **model.env("anthropic")}),
        err or io.StringIO(),
        built_in={"matrix": make},
        first_pause_s=0.01,
        progress_s=progress_s,
    ) as gateway:
        yield gateway


def list_bodies(messages: list[dict[str, Any]]) -> list[str]:
    return [message["content"]["body"] for message in messages]


async def test_a_direct_chat(home: Path, homeserver: Homeserver) -> None:
    """Odin joins where it may, and answers each message once: also what came before it joined or while it was away,
    and over a way that loses answers."""
    odin, ann, eve = [await homeserver.add_person(name) for name in ("odin", "ann", "eve")]
    http = HttpClient({})
    way = FaultyWay(homeserver.url, http)
    with ScriptedServer(answer_last) as model:
        async with way.serve():
            foreign = await eve.open_room(odin)
            async with connect(model, home, way.url, odin, ann):
                room = await ann.open_room(odin)
                await ann.send(room, "**hello** & <b>")
                (answer,) = await ann.wait_for(room, 1, odin)
                assert answer["content"]["body"] == "re: **hello** & <b>"
                assert answer["content"]["formatted_body"] == "<p>re: <strong>hello</strong> &amp; &lt;b&gt;</p>"
                way.faults["/sync"] = ["lose", "cut"]
                await ann.send(room, "second")
                assert list_bodies(await ann.wait_for(room, 2, odin))[1] == "re: second"
            await ann.send(room, "while you were away")
            for number in range(25):
                await ann.send(room, f"{number}", msgtype="m.notice")
            async with connect(model, home, way.url, odin, ann):
                assert list_bodies(await ann.wait_for(room, 3, odin))[2] == "re: while you were away"
                await ann.send(room, "last")
                assert len(await ann.wait_for(room, 4, odin)) == 4
    await http.close()
    assert len(model.requests) == 4
    assert [one for one in way.complaints if "/state/m.room.encryption" not in one] == []
    members = await eve.call("GET", f"rooms/{foreign}/joined_members")
    assert list(members["joined"]) == [eve.id]
    assert (locate_gateway() / "matrix.json").stat().st_mode & 0o777 == 0o600


async def test_a_part_that_is_sent_again_appears_once(home: Path, homeserver: Homeserver) -> None:
    odin, ann = [await homeserver.add_person(name) for name in ("odin", "ann")]
    http, err = HttpClient({}), io.StringIO()
    way = FaultyWay(homeserver.url, http)
    limit = Reply(429, {"errcode": "M_LIMIT_EXCEEDED", "error": "Too Many Requests", "retry_after_ms": 300})
    with ScriptedServer(answer_last) as model:
        async with way.serve(), connect(model, home, way.url, odin, ann, err=err):
            room = await ann.open_room(odin)
            await ann.send(room, "one")
            await ann.wait_for(room, 1, odin)
            way.faults[".0"] = ["lose", limit, "cut", "lose"]
            await ann.send(room, "two")
            await ann.wait_for(room, 2, odin)
            await way.wait_until(lambda: way.faults[".0"] == [])
            await ann.send(room, "three")
            assert list_bodies(await ann.wait_for(room, 3, odin)) == ["re: one", "re: two", "re: three"]
    await http.close()
    assert err.getvalue().count(" retry ") >= 2 and "Too Many Requests" in err.getvalue()
    assert open_store().list_failed() == []


async def test_groups_edits_and_requests(home: Path, homeserver: Homeserver, workspace: Path) -> None:
    odin, ann, bob = [await homeserver.add_person(name) for name in ("odin", "ann", "bob")]
    script = [say("to the group"), say("edited"), call("WriteFile", {"file_path": "n", "content": "x\n"}), say("done")]
    with ScriptedServer(script) as model:
        room = await ann.open_room(odin, bob)
        await bob.join(room)
        async with connect(model, home, homeserver.url, odin, ann, allow_from=(bob,)):
            await ann.send(room, "odin: /help")  # groups are not answered before the owner wants it
            await ann.send(room, f"Odin, /bind {workspace}")
            assert "works in" in (await ann.wait_for(room, 1, odin))[0]["content"]["body"]
            await bob.send(room, "nobody is asked")
            await bob.send(room, "what is odinary?")
            asked = await bob.send(room, "tell us", more={"m.mentions": {"user_ids": [odin.id]}})
            await ann.wait_for(room, 2, odin)
            changed = {"msgtype": "m.text", "body": "Odin: tell us more"}
            relation = {"rel_type": "m.replace", "event_id": asked}
            await bob.send(room, "* tell us more", more={"m.new_content": changed, "m.relates_to": relation})
            await ann.wait_for(room, 3, odin)
            await ann.send(room, "Odin: write it")
            texts = await wait_for_text(ann, room, odin, "1️⃣ Yes")
            request = next(one for one in texts if "1️⃣ Yes" in one["content"]["body"])
            await bob.react(room, request["event_id"], "1️⃣")
            await ann.react(room, request["event_id"], "1\u20e3")
            await wait_for_text(ann, room, odin, "done")
        offered = [one for one in ann.list_events(room, "m.reaction") if one["sender"] == odin.id]
    assert (workspace / "n").read_text() == "x\n"
    assert [one["content"]["m.relates_to"]["key"] for one in offered][:2] == ["1️⃣", "2️⃣"]
    assert "> tell us more" in str(model.requests[1].messages)


async def test_long_work_is_one_message(home: Path, homeserver: Homeserver) -> None:
    odin, ann = [await homeserver.add_person(name) for name in ("odin", "ann")]
    gate = threading.Event()
    with ScriptedServer([say("done").hold(gate)]) as model:
        async with connect(model, home, homeserver.url, odin, ann, progress_s=0.05):
            room = await ann.open_room(odin)
            await ann.send(room, "work")
            await wait_for_text(ann, room, odin, "Working for ")
            gate.set()
            await wait_for_text(ann, room, odin, "done")
    assert [body.partition(" for")[0] for body in list_bodies(ann.list_messages(room, odin))] == ["Worked", "done"]


async def wait_for_text(person: Person, room: str, sender: Person, text: str) -> list[dict[str, Any]]:
    async with TimeLimit():
        while not any(text in body for body in list_bodies(person.list_messages(room, sender))):
            await person.sync()
    return person.list_messages(room, sender)


async def test_files(home: Path, homeserver: Homeserver) -> None:
    odin, ann = [await homeserver.add_person(name) for name in ("odin", "ann")]
    (home / "odin").mkdir()
    (home / "odin/a.txt").write_text("hello")
    with ScriptedServer([say("seen"), say("read"), call("message", {"files": ["a.txt"]}), say("sent")]) as model:
        async with connect(model, home, homeserver.url, odin, ann):
            room = await ann.open_room(odin)
            picture = await ann.upload(png(), "image/png")
            await ann.send(room, "what is it?", msgtype="m.image", filename="it.png", url=picture)
            assert list_bodies(await ann.wait_for(room, 1, odin)) == ["seen"]
            note = await ann.upload(b"a note\n", "text/plain")
            await ann.send(room, "note.txt", msgtype="m.file", url=note)
            await ann.wait_for(room, 2, odin)
            await ann.send(room, "voice.ogg", msgtype="m.audio", url=note)
            await ann.send(room, "big.bin", msgtype="m.file", url=note, info={"size": 20_000_000})
            said = list_bodies(await ann.wait_for(room, 4, odin))[2:]
            await ann.send(room, "send it")
            file = (await ann.wait_for(room, 5, odin))[4]["content"]
            place = file["url"].removeprefix("mxc://")
            assert await ann.call("GET", f"media/download/{place}", version="client/v1") == b"hello"
    assert (file["msgtype"], file["body"]) == ("m.file", "a.txt")
    assert said[0] == "Odin reads text, pictures and files, but no voice."
    assert said[1] == "The file big.bin cannot be used: it has 20.0 MB, and at most 10.0 MB are read."
    assert "'type': 'image'" in str(model.requests[0].messages) and "what is it?" in str(model.requests[0].messages)
    assert "> a note" in str(model.requests[1].messages)


async def test_logins(home: Path, homeserver: Homeserver) -> None:
    """With a password Odin logs in again as the same device; a token that is refused ends the channel."""
    odin, ann = [await homeserver.add_person(name) for name in ("odin", "ann")]
    err, login = io.StringIO(), {"user": odin.id, "password": odin.password}
    with ScriptedServer(answer_last) as model:
        async with connect(model, home, homeserver.url, odin, ann, token="", err=err, poll_s=1.0, options=login):
            room = await ann.open_room(odin)
            await ann.send(room, "one")
            await ann.wait_for(room, 1, odin)
            device = (locate_gateway() / "matrix.json").read_text()
            await odin.call("POST", "logout/all", {})
            await ann.send(room, "two")
            assert list_bodies(await ann.wait_for(room, 2, odin)) == ["re: one", "re: two"]
            assert device != (locate_gateway() / "matrix.json").read_text()
        async with connect(model, home, homeserver.url, odin, ann, err=err):
            await wait_for_line(err, "The homeserver does not accept the token. Set gateway.channels.matrix.token")
        wrong = login | {"password": "A different long one"}
        (locate_gateway() / "matrix.json").unlink()
        async with connect(model, home, homeserver.url, odin, ann, token="", err=err, options=wrong):
            await wait_for_line(err, "does not accept the user and password")
    assert odin.token not in err.getvalue() and odin.password not in err.getvalue()


async def wait_for_line(err: io.StringIO, text: str) -> None:
    await until(lambda: text in err.getvalue())
