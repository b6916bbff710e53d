"""A real Matrix homeserver, which is installed on first use, and the people on it."""

import asyncio
import fcntl
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from tests.waiting import LIMIT_S, TimeLimit

VERSION = "1.163.2"
_START_S = 90
_ids = itertools.count(1)


def install(cache: Path) -> Path:
    """Return the Python that has Synapse. Skip the test if it cannot be installed."""
    folder = cache / f"synapse-{VERSION}"
    python = folder / "bin/python"
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / "complete").exists() and python.exists():
            return python
        make = [uv, "venv", "-q", "--clear", "--python", f"{sys.base_prefix}/bin/python3", str(folder)]
        add = [uv, "pip", "install", "-q", "--python", str(python), f"matrix-synapse=={VERSION}"]
        if not os.access(uv, os.X_OK):
            pytest.skip("uv is not installed")
        for command in (make, add):
            done = subprocess.run(
                ["timeout", f"{LIMIT_S:g}", *command], check=False, capture_output=True, text=True, timeout=2 * LIMIT_S
            )
            if done.returncode:
                pytest.skip(f"matrix-synapse {VERSION} cannot be installed: {done.stderr[-300:]}")
        (folder / "complete").touch()
    return python


class Homeserver:
    def __init__(self, url: str) -> None:
        self.url = url

    def call(self, method: str, path: str, body: Any = None, token: str = "", kind: str = "application/json") -> Any:
        """Send a request and return the answer. Raise HTTPError if the server refuses it."""
        content = body if isinstance(body, bytes) else None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": kind, **({"Authorization": f"Bearer {token}"} if token else {})}
        request = urllib.request.Request(f"{self.url}/_matrix/{path}", content, headers, method=method)
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            content = answer.read()
            return msgspec.json.decode(content) if "json" in answer.headers["content-type"] else content

    async def add_person(self, name: str) -> "Person":
        """Return a new user; each test has its own."""
        user = f"{name}{os.getpid()}-{next(_ids)}"
        password = f"A long one for {user}"
        given = {"username": user, "password": password, "auth": {"type": "m.login.dummy"}}
        made = await asyncio.to_thread(self.call, "POST", "client/v3/register", given)
        person = Person(self, made["user_id"], made["access_token"], password)
        await person.call("PUT", f"profile/{quote(person.id)}/displayname", {"displayname": name.capitalize()})
        return person


class Person:
    """Somebody with a client, which sees what the server shows."""

    def __init__(self, server: Homeserver, id: str, token: str, password: str) -> None:
        self.id = id
        self.token = token
        self.password = password
        self._server = server
        self._since = ""
        self._events: dict[str, list[dict[str, Any]]] = {}

    async def call(self, method: str, path: str, body: Any = None, *, version: str = "client/v3") -> Any:
        return await asyncio.to_thread(self._server.call, method, f"{version}/{path}", body, self.token)

    async def open_room(self, *guests: "Person", encrypted: bool = False) -> str:
        """Make a room, and invite others."""
        state = {"type": "m.room.encryption", "content": {"algorithm": "m.megolm.v1.aes-sha2"}}
        more = {"initial_state": [state]} if encrypted else {}
        invited = [guest.id for guest in guests]
        made = await self.call("POST", "createRoom", {"preset": "trusted_private_chat", "invite": invited, **more})
        return made["room_id"]

    async def join(self, room: str) -> None:
        await self.call("POST", f"join/{quote(room)}", {})

    async def send(
        self, room: str, text: str = "", *, type: str = "m.room.message", more: Any = None, **content: Any
    ) -> str:
        """Send an event with this content. Return its id."""
        body: dict[str, Any] = {**content, **(more or {})}
        if type == "m.room.message":
            body = {"msgtype": "m.text", "body": text, **body}
        sent = await self.call("PUT", f"rooms/{quote(room)}/send/{type}/{next(_ids)}.{os.getpid()}", body)
        return sent["event_id"]

    async def upload(self, content: bytes, kind: str) -> str:
        made = await asyncio.to_thread(self._server.call, "POST", "media/v3/upload", content, self.token, kind)
        return made["content_uri"]

    async def react(self, room: str, event: str, key: str) -> None:
        relation = {"rel_type": "m.annotation", "event_id": event, "key": key}
        await self.send(room, type="m.reaction", more={"m.relates_to": relation})

    async def wait_for(self, room: str, count: int, sender: "Person") -> list[dict[str, Any]]:
        """Return the messages of somebody when there are so many, with their edits applied."""
        async with TimeLimit():
            while len(shown := self.list_messages(room, sender)) < count:
                await self.sync()
        return shown

    async def sync(self) -> None:
        """Wait for news for a moment."""
        query = f"?timeout=2000&since={self._since}" if self._since else "?timeout=0"
        news = await self.call("GET", f"sync{query}")
        self._since = news["next_batch"]
        for room, joined in news["rooms"].get("join", {}).items() if "rooms" in news else ():
            self._events.setdefault(room, []).extend(joined["timeline"]["events"])

    def list_events(self, room: str, kind: str) -> list[dict[str, Any]]:
        return [event for event in self._events.get(room, []) if event["type"] == kind]

    def list_messages(self, room: str, sender: "Person") -> list[dict[str, Any]]:
        shown: dict[str, dict[str, Any]] = {}
        for event in self.list_events(room, "m.room.message"):
            relation = event["content"].get("m.relates_to", {})
            if event["sender"] != sender.id:
                continue
            if relation.get("rel_type") == "m.replace":
                shown[relation["event_id"]]["content"] = event["content"]["m.new_content"]
            else:
                shown[event["event_id"]] = event
        return list(shown.values())


@contextmanager
def run_homeserver(python: Path, folder: Path) -> Generator[Homeserver]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    unlimited = {"per_second": 10_000, "burst_count": 10_000}
    settings = {
        "server_name": "localhost",
        "listeners": [
            {
                "port": port,
                "bind_addresses": ["127.0.0.1"],
                "type": "http",
                "tls": False,
                "resources": [{"names": ["client", "media"]}],
            }
        ],
        "database": {"name": "sqlite3", "args": {"database": str(folder / "db")}},
        "media_store_path": str(folder / "media"),
        "signing_key_path": str(folder / "key"),
        "pid_file": str(folder / "pid"),
        "report_stats": False,
        "enable_registration": True,
        "enable_registration_without_verification": True,
        "bcrypt_rounds": 4,
        "trusted_key_servers": [],
        "macaroon_secret_key": "one of this test",
        "form_secret": "another one of this test",
        "presence": {"enabled": False},
        "rc_message": unlimited,
        "rc_registration": unlimited,
        "rc_joins": {"local": unlimited},
        "rc_invites": {"per_room": unlimited, "per_user": unlimited, "per_issuer": unlimited},
        "rc_login": dict.fromkeys(("address", "account", "failed_attempts"), unlimited),
    }
    (folder / "homeserver.yaml").write_bytes(msgspec.json.encode(settings))
    command = [str(python), "-m", "synapse.app.homeserver", "-c", str(folder / "homeserver.yaml")]
    (folder / "key").write_text(f"ed25519 a_test {b64encode(bytes(32)).decode().rstrip('=')}\n")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, start_new_session=True)
    server = Homeserver(f"http://127.0.0.1:{port}")
    try:
        end = time.monotonic() + _START_S
        while True:
            try:
                server.call("GET", "client/versions")
                break
            except (OSError, urllib.error.HTTPError):
                assert process.poll() is None and time.monotonic() < end, (folder / "log").read_text()[-2000:]
                time.sleep(0.1)
        yield server
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(LIMIT_S)
