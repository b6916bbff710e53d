"""Webhooks: programs send messages over HTTP, signed with a secret, and ask for the answer or are called back.

    POST /hook/NAME      the body is the message; 202 with its id, 200 if it was known already
    GET  /hook/NAME/ID   how far it is, and the answer

`X-Odin-Signature` is the HMAC-SHA256, in hexadecimal, of `TIMESTAMP.ID.BODY`, with the headers `X-Odin-Timestamp` (in
seconds) and `X-Odin-Id`, which may be left out: then it is empty there, and the signature is the id. A message with an
id that was seen before changes nothing, so it can be sent until it is accepted, and replaying it does no harm. The
server listens on this machine only; others reach it through a proxy.
"""

import asyncio
import hmac
import ipaddress
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from odin.core.errors import OdinError, UsageError
from odin.gateway.channel import (
    Abilities,
    ChannelInbox,
    ChannelSetup,
    DeliveryFailed,
    DeliveryRefused,
    InboundMessage,
    InboxFull,
    Media,
    MessageOptions,
    OutboundPart,
)
from odin.gateway.channels.intake import MAX_FILE_BYTES
from odin.server.http import HttpServer

WINDOW_S = 300
MAX_BODY_BYTES = 200_000
_MAX_ID_CHARS = 200
_CALLBACK_S = 30.0
_AGAIN = (408, 425, 429)


def sign(secret: str, timestamp: str, id: str, body: bytes) -> str:
    return hmac.new(secret.encode(), f"{timestamp}.{id}.".encode() + body, "sha256").hexdigest()


class _HttpError(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class WebhookChannel:
    """All webhooks of the settings. The name of one is its account, its chat and its sender."""

    name = "webhook"
    abilities = Abilities(
        max_length=100_000,
        max_file_bytes=MAX_FILE_BYTES,
        is_idempotent=True,
        is_internal=True,
        right="sender",
        approves=False,
    )

    def __init__(self, setup: ChannelSetup, clock: Callable[[], float] = time.time) -> None:
        self._webhooks = setup.gateway.webhooks
        self._http = setup.http
        self._clock = clock
        self._host = setup.gateway.host
        self._listener = _open_listener(self._host, setup.gateway.port)
        self.port: int = self._listener.getsockname()[1]
        self._inbox: ChannelInbox | None = None

    async def run(self, inbox: ChannelInbox) -> None:
        self._inbox = inbox
        if self._listener.fileno() < 0:  # an earlier run has ended
            self._listener = _open_listener(self._host, self.port)
        server = HttpServer(self._handle)
        await server.listen(self._listener)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await server.close()

    # --- what programs send ---

    async def _handle(self, scope: Any, receive: Any, send: Any) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        more: list[tuple[bytes, bytes]] = []
        try:
            status, answer = await self._answer(scope["method"], scope["path"], headers, receive)
        except _HttpError as error:
            status, answer = error.status, {"error": str(error)}
        except InboxFull as error:
            status, answer, more = 429, {"error": error.describe()}, [(b"retry-after", b"30")]
        except OdinError as error:
            status, answer = 503, {"error": error.describe()}
        content = msgspec.json.encode(answer)
        more += [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": more})
        await send({"type": "http.response.body", "body": content})

    async def _answer(
        self, method: str, path: str, headers: dict[str, str], receive: Any
    ) -> tuple[int, dict[str, Any]]:
        assert self._inbox is not None
        top, _, rest = path.removeprefix("/").partition("/")
        name, _, asked = rest.partition("/")
        if top != "hook" or not name or (method, bool(asked)) not in (("POST", False), ("GET", True)):
            raise _HttpError(404, "Use POST /hook/NAME, or GET /hook/NAME/ID.")
        body = await _read_body(receive)
        given = asked or headers.get("x-odin-id", "")
        signature = self._verify(name, headers, given, body)
        if asked:
            found = await self._inbox.find_answer(self.name, name, asked)
            if found is None:
                raise _HttpError(404, "There is no such message.")
            answer: dict[str, Any] = {"id": asked, "state": found.state, "text": found.text}
            return 200, answer | ({"files": [_encode_file(one) for one in found.files]} if found.files else {})
        if len(given) > _MAX_ID_CHARS:
            raise _HttpError(400, f"X-Odin-Id has more than {_MAX_ID_CHARS} characters.")
        webhook = self._webhooks[name]
        message = InboundMessage(
            channel=self.name,
            account=name,
            id=given or signature,
            sender=name,
            chat=name,
            text=body.decode("utf-8", "replace"),
            instructions=webhook.prompt,
            options=MessageOptions(history=webhook.history),
        )
        receipt = await self._inbox.deliver(message, wait=False)
        return 202 if receipt.admission == "accepted" else 200, {"id": receipt.id, "state": receipt.admission}

    def _verify(self, name: str, headers: dict[str, str], id: str, body: bytes) -> str:
        """Return the signature. One sentence for all that is wrong with it, so that guessing tells nothing."""
        webhook = self._webhooks.get(name)
        timestamp, signature = headers.get("x-odin-timestamp", ""), headers.get("x-odin-signature", "")
        expected = sign(webhook.secret if webhook else "", timestamp, id, body)
        is_right = hmac.compare_digest(expected.encode(), signature.removeprefix("sha256=").lower().encode())
        is_current = timestamp.isdecimal() and abs(self._clock() - int(timestamp[:12])) <= WINDOW_S
        if webhook is None or not is_right or not is_current:
            raise _HttpError(401, "The name, the signature or the time is wrong.")
        return expected

    # --- answers ---

    async def send(self, part: OutboundPart) -> str:
        webhook = self._webhooks.get(part.chat)
        if webhook is None:
            raise DeliveryRefused(f"There is no webhook {part.chat} any more.")
        if not webhook.callback_url:
            return ""  # its sender asks for it
        said = {"text": part.text} if part.file is None else {"text": "", "files": [_encode_file(part.file)]}
        body = msgspec.json.encode({"id": part.answers, **said})
        timestamp = str(int(self._clock()))
        headers = {
            "Content-Type": "application/json",
            "X-Odin-Id": part.key,
            "X-Odin-Timestamp": timestamp,
            "X-Odin-Signature": sign(webhook.secret, timestamp, part.key, body),
        }
        try:
            status, _ = await self._http.fetch(webhook.callback_url, headers=headers, body=body, timeout=_CALLBACK_S)
        except OdinError as error:
            raise DeliveryFailed(str(error)) from error
        if 200 <= status < 300:
            return ""
        refused = 400 <= status < 500 and status not in _AGAIN
        raise (DeliveryRefused if refused else DeliveryFailed)(f"The callback URL answered with {status}.")

    async def edit(self, chat: str, message: str, text: str) -> None:
        """Programs are sent answers only."""

    async def show_typing(self, chat: str) -> None:
        """Programs are sent answers only."""


def _encode_file(file: Media) -> dict[str, Any]:
    """Return a file as JSON has it: the content, which is bytes, in base64."""
    try:
        content = Path(file.path).read_bytes()
    except OSError as error:
        raise DeliveryRefused(f"The file {file.name} is gone.") from error
    return {"name": file.name, "type": file.media_type, "content": content}


async def _read_body(receive: Any) -> bytes:
    body = b""
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise _HttpError(400, "The request was cut off.")
        body += event.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            raise _HttpError(413, f"The body has more than {MAX_BODY_BYTES:,} bytes.")
        if not event.get("more_body"):
            return body


def _open_listener(host: str, port: int) -> socket.socket:
    try:
        is_local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_local = False
    if not is_local:
        hint = "Use 127.0.0.1, and a proxy with TLS for other machines."
        raise UsageError(f"gateway.host is {host!r}, which is not an address that only this machine reaches.", hint)
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        why = (error.strerror or str(error)).lower()
        hint = "Stop what uses it, or set gateway.port to another one."
        raise UsageError(f"Cannot listen on {host} port {port}: {why}.", hint) from error
    return listener
