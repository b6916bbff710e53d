"""The Language Server Protocol on the wire: frames, JSON-RPC messages, positions and file addresses.

Nothing here trusts the server. Frames and rates are bounded, unknown ids are ignored, and whatever breaks the protocol
ends the connection with a reason.
"""

import asyncio
import os
import re
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any, Literal, cast
from urllib.parse import quote, unquote_to_bytes

import msgspec
from msgspec import Struct

MAX_FRAME_BYTES = 16_000_000
_MAX_HEADER_BYTES = 4_096

WINDOW_S = 5.0
MAX_WINDOW_BYTES = 32_000_000
MAX_WINDOW_MESSAGES = 10_000
"""What a server may send in one window. More would only keep Odin busy."""

_METHOD_NOT_FOUND = -32601
_OVERTAKEN = (-32801, -32802)
"""The codes of ContentModified and ServerCancelled."""

PositionEncoding = Literal["utf-8", "utf-16", "utf-32"]


class ServerFault(Exception):
    """A language server did not answer a request as it should. The message says why."""


class RequestOvertaken(ServerFault):
    """The server gave a request up because its view of the files has changed, or is not complete yet: ask again."""


class UnknownMethod(Exception):
    """The server asks for something that this client does not do."""


class FrameReader:
    """Splits the output of a server into the bodies of its messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._length = -1

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the bodies that are complete. Raise ServerFault if this is not the protocol."""
        self._buffer += data
        while (body := self._take_body()) is not None:
            yield body

    def _take_body(self) -> bytes | None:
        if self._length < 0:
            end = self._buffer.find(b"\r\n\r\n", 0, _MAX_HEADER_BYTES)
            if end < 0:
                if len(self._buffer) >= _MAX_HEADER_BYTES:
                    raise ServerFault("its output is not the language server protocol")
                return None
            self._length = _parse_length(bytes(self._buffer[:end]))
            del self._buffer[: end + 4]
        if len(self._buffer) < self._length:
            return None
        body = bytes(self._buffer[: self._length])
        del self._buffer[: self._length]
        self._length = -1
        return body


def _parse_length(header: bytes) -> int:
    match = re.search(rb"(?i)(?:^|\r\n)content-length:[ \t]*(\d{1,12})[ \t]*(?:\r\n|$)", header)
    if match is None:
        raise ServerFault("its output is not the language server protocol")
    length = int(match[1])
    if length > MAX_FRAME_BYTES:
        raise ServerFault(f"it sent a message of {length:,} bytes; {MAX_FRAME_BYTES:,} is the limit")
    return length


class JsonRpcConnection:
    """Requests and notifications in both directions, over a pipe.

    `answer` returns the result of a request of the server, or raises UnknownMethod. `on_broken` is called once, with
    the reason, when the server breaks the protocol; the caller then closes the connection.
    """

    def __init__(
        self,
        write: Callable[[bytes], None],
        on_notification: Callable[[str, Any], None],
        answer: Callable[[str, Any], Any],
        on_broken: Callable[[str], None],
    ) -> None:
        self._write = write
        self._on_notification = on_notification
        self._answer = answer
        self._on_broken = on_broken
        self._frames = FrameReader()
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._next_id = 0
        self._closed_because = ""
        self._window_start = time.monotonic()
        self._window_bytes = self._window_messages = 0

    def notify(self, method: str, params: Any) -> None:
        self._send({"method": method, "params": params})

    async def request(self, method: str, params: Any, timeout: float) -> Any:
        """Return the result. Raise ServerFault for an error, a timeout, or a server that ends."""
        if self._closed_because:
            raise ServerFault(self._closed_because)
        self._next_id += 1
        number = self._next_id
        future = self._pending[number] = asyncio.get_running_loop().create_future()
        self._send({"id": number, "method": method, "params": params})
        try:
            async with asyncio.timeout(timeout):
                return await future
        except TimeoutError:
            raise ServerFault(f"no answer to {method} within {timeout:g} s") from None
        finally:
            if self._pending.pop(number, None) is not None and not (future.done() and not future.cancelled()):
                self.notify("$/cancelRequest", {"id": number})

    def _send(self, message: dict[str, Any]) -> None:
        if self._closed_because:
            return
        body = msgspec.json.encode({"jsonrpc": "2.0", **message})
        self._write(b"Content-Length: %d\r\n\r\n" % len(body) + body)

    def receive(self, data: bytes) -> None:
        """Handle output of the server. Never raises."""
        if self._closed_because:
            return
        try:
            self._count(bytes_=len(data))
            for body in self._frames.feed(data):
                self._count(messages=1)
                try:
                    message: Any = msgspec.json.decode(body)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                    raise ServerFault(f"it sent broken JSON ({error})") from None
                self._handle(cast("dict[str, Any]", message) if isinstance(message, dict) else {})
        except ServerFault as fault:
            reason = str(fault)
            self.close(reason)
            self._on_broken(reason)

    def _count(self, *, bytes_: int = 0, messages: int = 0) -> None:
        now = time.monotonic()
        if now - self._window_start > WINDOW_S:
            self._window_start, self._window_bytes, self._window_messages = now, 0, 0
        self._window_bytes += bytes_
        self._window_messages += messages
        if self._window_bytes > MAX_WINDOW_BYTES or self._window_messages > MAX_WINDOW_MESSAGES:
            raise ServerFault("it sent more than Odin reads")

    def _handle(self, message: dict[str, Any]) -> None:
        method, number = message.get("method"), message.get("id")
        if isinstance(method, str):
            if number is None:
                self._on_notification(method, message.get("params"))
            elif isinstance(number, int | str):
                self._reply(number, method, message.get("params"))
            return
        future = self._pending.get(number) if isinstance(number, int) else None
        if future is None or future.done():
            return
        error = message.get("error")
        if error is None:
            future.set_result(message.get("result"))
        else:
            fields = cast("dict[str, Any]", error) if isinstance(error, dict) else {}
            text = fields.get("message")
            said = text[:500] if isinstance(text, str) and text else "the server reported an error"
            future.set_exception(RequestOvertaken(said) if fields.get("code") in _OVERTAKEN else ServerFault(said))

    def _reply(self, number: int | str, method: str, params: Any) -> None:
        try:
            self._send({"id": number, "result": self._answer(method, params)})
        except UnknownMethod:
            self._send({"id": number, "error": {"code": _METHOD_NOT_FOUND, "message": f"{method} is not supported"}})

    def close(self, reason: str) -> None:
        """Fail all open requests. Later ones fail at once."""
        if self._closed_because:
            return
        self._closed_because = reason
        for future in self._pending.values():
            if not future.done():
                future.set_exception(ServerFault(reason))
                future.exception()  # it may not be awaited any more
        self._pending.clear()


# --- positions ---


class Position(Struct, frozen=True):
    """A position as the protocol counts it: from 0, in code units of the encoding."""

    line: int
    character: int


class Range(Struct, frozen=True):
    start: Position
    end: Position


_LINE_END = re.compile(r"\r\n|\n|\r")


class PositionMap:
    """Converts between the positions of a server and offsets in a text.

    The protocol also ends lines at a lone carriage return; Odin, like most programs, only at a newline.
    """

    def __init__(self, text: str, encoding: PositionEncoding) -> None:
        self._text = text
        self._encoding: PositionEncoding = encoding
        self._starts = [0, *(match.end() for match in _LINE_END.finditer(text))]
        self._newlines = self._starts if "\r" not in text.replace("\r\n", "") else _find_newlines(text)

    def to_offset(self, position: Position) -> int:
        """Return the offset of a position. One that does not exist is moved to the nearest that does."""
        if position.line >= len(self._starts):
            return len(self._text)
        start = self._starts[max(position.line, 0)]
        match = _LINE_END.search(self._text, start)
        line = self._text[start : match.start() if match else len(self._text)]
        return start + _count_chars(line, max(position.character, 0), self._encoding)

    def to_position(self, offset: int) -> Position:
        line = bisect_right(self._starts, offset) - 1
        return Position(line, _count_units(self._text[self._starts[line] : offset], self._encoding))

    def to_place(self, position: Position) -> tuple[int, int]:
        """Return the line and the column in characters, both from 1, as Odin's tools count them."""
        offset = self.to_offset(position)
        line = bisect_right(self._newlines, offset)
        return line, offset - self._newlines[line - 1] + 1

    def get_line(self, number: int) -> str:
        """Return the text of a line, counted from 1, without its end; "" if there is none."""
        if not 1 <= number <= len(self._newlines):
            return ""
        start = self._newlines[number - 1]
        end = self._newlines[number] if number < len(self._newlines) else len(self._text)
        return self._text[start:end].rstrip("\r\n")

    def find_offset(self, number: int, column: int) -> int | None:
        """Return the offset of a line and column counted from 1; None if there is no such line."""
        if not 1 <= number <= len(self._newlines):
            return None
        return self._newlines[number - 1] + min(max(column - 1, 0), len(self.get_line(number)))


def _find_newlines(text: str) -> list[int]:
    return [0, *(match.end() for match in re.finditer("\n", text))]


def _count_units(text: str, encoding: PositionEncoding) -> int:
    if text.isascii() or encoding == "utf-32":
        return len(text)
    if encoding == "utf-8":
        return len(text.encode("utf-8", "surrogatepass"))
    return len(text) + sum(char > "\uffff" for char in text)


def _count_chars(text: str, units: int, encoding: PositionEncoding) -> int:
    """Return how many whole characters the first `units` code units are."""
    if text.isascii() or encoding == "utf-32":
        return min(units, len(text))
    for at, char in enumerate(text):
        units -= _count_units(char, encoding)
        if units < 0:
            return at
    return len(text)


# --- addresses ---


def path_to_uri(path: str) -> str:
    return f"file://{quote(os.fsencode(path))}"


def uri_to_path(uri: object) -> str:
    """Return the absolute path of a file address; "" if it is none."""
    if not isinstance(uri, str) or not uri.lower().startswith("file://"):
        return ""
    rest = uri[len("file://") :]
    rest = rest if rest.startswith("/") else f"/{rest.partition('/')[2]}"
    data = unquote_to_bytes(rest)
    return "" if b"\0" in data else os.path.normpath(os.fsdecode(data))
