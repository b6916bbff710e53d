"""Slack as it is documented, for one app in socket mode. It refuses what Slack refuses."""

import itertools
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, NoReturn
from urllib.parse import parse_qsl

import msgspec
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from tests.gateway.http_stand_in import HttpStandIn, Refused, Reply, Seen

TOKEN = "xoxb-31-42-QmFzZTY0aXNoVG9rZW4"
APP_TOKEN = "xapp-1-A31-42-f00dfeedbeefcafe"
BOT = "U0BOT"

_METHODS: dict[str, tuple[str, set[str], set[str]]] = {
    "auth.test": (TOKEN, set(), set()),
    "apps.connections.open": (APP_TOKEN, set(), set()),
    "users.info": (TOKEN, {"user"}, {"user"}),
    "chat.postMessage": (TOKEN, {"channel", "text"}, {"channel", "text", "blocks", "thread_ts", "unfurl_links"}),
    "files.getUploadURLExternal": (TOKEN, {"filename", "length"}, {"filename", "length"}),
    "files.completeUploadExternal": (TOKEN, {"files"}, {"files", "channel_id", "thread_ts"}),
    "chat.update": (TOKEN, {"channel", "ts", "text"}, {"channel", "ts", "text", "blocks"}),
}
"""The token of each method, its required and its known parameters."""


def _refuse(error: str, status: int = 200, **more: str) -> NoReturn:
    raise Refused(Reply(status, {"ok": False, "error": error, **more}))


class SlackStandIn(HttpStandIn):
    """`channels` has the messages of each channel that the app has sent, by their timestamps."""

    def __init__(self) -> None:
        super().__init__()
        self.channels: dict[str, dict[str, dict[str, Any]]] = {}
        self.files: dict[str, bytes] = {}
        self.uploads: dict[str, dict[str, Any]] = {}
        """The files of the app, by their ids."""

        self.sockets: list[ServerConnection] = []
        self.acks: list[str] = []
        self.on_ack: Callable[[str], object] = lambda envelope: None
        self.keeps_quiet = False
        """True: what is sent into the socket is not carried out, as if it were lost on the way."""
        self._open: dict[str, dict[str, Any]] = {}
        self._ids = itertools.count(1)
        self._socket_url = ""
        self._links: set[str] = set()

    @asynccontextmanager
    async def serve(self) -> AsyncGenerator[None]:
        async with super().serve(), serve(self._talk, "127.0.0.1", 0) as server:
            self._socket_url = f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"
            yield

    # --- what people do ---

    async def write(
        self, text: str = "", *, user: str = "UANN", channel: str = "DANN", type: str = "message", **fields: Any
    ) -> str:
        """Write a message. Return its timestamp."""
        ts = fields.pop("ts", "") or f"1800000000.{next(self._ids):06}"
        self.channels.setdefault(channel, {})
        kind = {"channel_type": "im" if channel[0] == "D" else "channel"} if type == "message" else {}
        event = {"type": type, "channel": channel, "user": user, "text": text, "ts": ts, **kind, **fields}
        await self.push("events_api", {"type": "event_callback", "event_id": f"Ev{next(self._ids)}", "event": event})
        return ts

    async def press(self, label: str, *, user: str = "UANN", channel: str = "DANN") -> None:
        """Press the newest button with this label."""
        for ts, message in reversed(self.channels[channel].items()):
            for block in message["blocks"]:
                for element in block.get("elements", []):
                    if element["text"]["text"] == label:
                        action = {**element, "action_ts": f"1800000001.{next(self._ids):06}"}
                        payload = {
                            "type": "block_actions",
                            "user": {"id": user, "username": user.lower()},
                            "channel": {"id": channel, "name": "x"},
                            "message": {"type": "message", "ts": ts, "user": BOT},
                            "actions": [action],
                        }
                        await self.push("interactive", payload)
                        return
        raise AssertionError(f"there is no button {label!r}")

    async def push(self, kind: str, payload: dict[str, Any]) -> None:
        """Bring an envelope to the newest connection. It is brought again to the next one if nobody takes it."""
        name = f"envelope-{next(self._ids)}"
        self._open[name] = {"type": kind, "envelope_id": name, "payload": payload, "accepts_response_payload": False}
        if self.sockets:
            await self._send(self.sockets[-1], self._open[name])

    async def disconnect(self, reason: str) -> None:
        await self._send(self.sockets[-1], {"type": "disconnect", "reason": reason})

    @property
    def unacknowledged(self) -> int:
        return len(self._open)

    def list_texts(self, channel: str = "DANN") -> list[str]:
        """Return what the messages of the app show."""
        shown: list[str] = []
        for message in self.channels.get(channel, {}).values():
            texts = (block.get("text", "") for block in message["blocks"])
            shown.append("".join(text if isinstance(text, str) else text["text"] for text in texts))
        return shown

    async def wait_for(self, count: int, channel: str = "DANN") -> list[str]:
        await self.wait_until(lambda: len(self.list_texts(channel)) >= count)
        return self.list_texts(channel)

    # --- the socket ---

    async def _talk(self, socket: ServerConnection) -> None:
        assert socket.request is not None
        if socket.request.path not in self._links:
            await socket.close(1008, "this link is used up")
            return
        self._links.remove(socket.request.path)
        try:
            await self._send(socket, {"type": "hello", "num_connections": 1, "connection_info": {"app_id": "A31"}})
            self.sockets.append(socket)
            self.note()
            for envelope in tuple(self._open.values()):
                await self._send(socket, {**envelope, "retry_attempt": 1, "retry_reason": "timeout"})
            async for frame in socket:
                answer = msgspec.json.decode(frame, type=dict[str, Any])
                if set(answer) - {"envelope_id", "payload"} or answer["envelope_id"] not in self._open:
                    self.complaints.append(f"socket: {answer}")
                elif not self.keeps_quiet:
                    self.on_ack(answer["envelope_id"])
                    self.acks.append(answer["envelope_id"])
                    del self._open[answer["envelope_id"]]
                self.note()
        except ConnectionClosed:
            pass
        finally:
            if socket in self.sockets:
                self.sockets.remove(socket)

    async def _send(self, socket: ServerConnection, message: dict[str, Any]) -> None:
        await socket.send(msgspec.json.encode(message).decode())

    # --- the API ---

    async def answer(self, seen: Seen) -> Reply:
        token = seen.headers.get("authorization", "").removeprefix("Bearer ")
        if seen.path.startswith("/files/"):
            content = self.files.get(seen.path.removeprefix("/files/"))
            if token != TOKEN or content is None:
                return Reply(302, b"", {"location": "https://slack.com/signin"})
            return Reply(200, content)
        if seen.path.startswith("/upload/"):
            file = self.uploads[seen.path.removeprefix("/upload/")]
            file["content"] = seen.body
            return Reply(200 if len(seen.body) == file["length"] else 400, b"OK")
        method = seen.path.removeprefix("/api/")
        if method not in _METHODS:
            _refuse("unknown_method")
        wanted, required, known = _METHODS[method]
        if seen.headers.get("content-type") != "application/x-www-form-urlencoded":
            _refuse("invalid_form_data")
        if token != wanted:
            _refuse("invalid_auth")
        params = dict(parse_qsl(seen.body.decode(), keep_blank_values=True, strict_parsing=bool(seen.body)))
        if set(params) - known or required - set(params):
            _refuse("invalid_arguments")
        return Reply(200, {"ok": True, **getattr(self, f"_{method.replace('.', '_')}")(**params)})

    def _auth_test(self) -> dict[str, Any]:
        return {"url": "https://odin.slack.com/", "team_id": "T31", "user_id": BOT, "bot_id": "B42"}

    def _apps_connections_open(self) -> dict[str, Any]:
        path = f"/link/?ticket={next(self._ids)}"
        self._links.add(path)
        return {"url": f"{self._socket_url}{path}"}

    def _users_info(self, user: str) -> dict[str, Any]:
        profile = {"display_name": user.removeprefix("U").capitalize()}
        return {"user": {"id": user, "real_name": f"{user} Real", "profile": profile}}

    def _chat_postMessage(  # noqa: N802
        self, channel: str, text: str, blocks: str = "[]", thread_ts: str = "", unfurl_links: str = "true"
    ) -> dict[str, Any]:
        message = self._check(channel, text, blocks)
        ts = f"1800000002.{next(self._ids):06}"
        self.channels[channel][ts] = {**message, "thread_ts": thread_ts}
        return {"channel": channel, "ts": ts, "message": {"type": "message", "text": text, "ts": ts}}

    def _chat_update(self, channel: str, ts: str, text: str, blocks: str = "[]") -> dict[str, Any]:
        message = self._check(channel, text, blocks)
        if ts not in self.channels[channel]:
            _refuse("message_not_found")
        self.channels[channel][ts].update(message)
        return {"channel": channel, "ts": ts, "text": text}

    def _files_getUploadURLExternal(self, filename: str, length: str) -> dict[str, Any]:  # noqa: N802
        name = f"F{next(self._ids)}"
        self.uploads[name] = {"name": filename, "length": int(length)}
        return {"upload_url": f"{self.url}/upload/{name}", "file_id": name}

    def _files_completeUploadExternal(self, files: str, channel_id: str, thread_ts: str = "") -> dict[str, Any]:  # noqa: N802
        if channel_id not in self.channels:
            _refuse("channel_not_found")
        given: list[dict[str, str]] = msgspec.json.decode(files)
        for file in given:
            upload = self.uploads[file["id"]]
            shown = f"[{upload['name']}: {upload['content'].decode()}]"
            message = {"text": "", "blocks": [{"type": "file", "text": shown}], "thread_ts": thread_ts}
            self.channels[channel_id][f"1800000002.{next(self._ids):06}"] = message
        return {"files": given}

    def _check(self, channel: str, text: str, blocks: str) -> dict[str, Any]:
        if channel not in self.channels:
            _refuse("channel_not_found")
        given: list[dict[str, Any]] = msgspec.json.decode(blocks)
        if not text and not given:
            _refuse("no_text")
        if len(text) > 40_000:
            _refuse("msg_too_long")
        if "<!" in text or "<@" in text:
            self.complaints.append(f"the summary notifies people: {text}")
        if len(given) > 50 or sum(len(block["text"]) for block in given if block["type"] == "markdown") > 12_000:
            _refuse("invalid_blocks")
        for block in given:
            match block:
                case {"type": "markdown", "text": str(said), **more} if said and not more:
                    pass
                case {"type": "section", "text": {"type": "plain_text", "text": str(said)}} if 0 < len(said) <= 3000:
                    pass
                case {"type": "actions"}:
                    self._check_buttons(block["elements"])
                case _:
                    _refuse("invalid_blocks")
        return {"text": text, "blocks": given}

    def _check_buttons(self, elements: list[dict[str, Any]]) -> None:
        ids = [element["action_id"] for element in elements]
        if not 1 <= len(elements) <= 25 or len(set(ids)) < len(ids):
            _refuse("invalid_blocks")
        for element in elements:
            label = element["text"]
            if element["type"] != "button" or label["type"] != "plain_text" or not 0 < len(label["text"]) <= 75:
                _refuse("invalid_blocks")
            if len(element["value"]) > 2000:
                _refuse("invalid_blocks")
