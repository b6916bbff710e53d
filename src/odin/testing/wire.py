"""HTTP/1.1 as far as a model server needs it: requests read from a byte stream, heads and chunks written."""

from http import HTTPStatus

from msgspec import Struct

MAX_HEAD = 256 * 1024


class HttpParseError(Exception):
    """The bytes are not an HTTP/1.1 request."""


class RawRequest(Struct):
    method: str
    path: str
    headers: dict[str, str]
    keep_alive: bool
    at: float
    length: int | None
    """None when the body comes in chunks."""
    body: bytes = b""


class RequestReader:
    """Collects bytes until a whole request is there. What follows it stays for the next one."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._head: RawRequest | None = None
        self._chunks: list[bytes] = []

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def wants_continue(self) -> bool:
        """Whether the client waits for permission to send the body. True once."""
        head = self._head
        return head is not None and head.headers.pop("expect", "").lower() == "100-continue"

    def take_request(self, now: float) -> RawRequest | None:
        if self._head is None:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                if len(self._buffer) > MAX_HEAD:
                    raise HttpParseError("The request headers are too long.")
                return None
            self._head = parse_head(bytes(self._buffer[:end]), now)
            del self._buffer[: end + 4]
        head = self._head
        if head.length is None:
            if not self._take_chunks():
                return None
            head.body = b"".join(self._chunks)
            self._chunks.clear()
        elif len(self._buffer) < head.length:
            return None
        else:
            head.body = bytes(self._buffer[: head.length])
            del self._buffer[: head.length]
        self._head = None
        return head

    def _take_chunks(self) -> bool:
        while True:
            line = self._buffer.find(b"\r\n")
            if line < 0:
                return False
            try:
                size = int(bytes(self._buffer[:line]).split(b";")[0], 16)
            except ValueError as error:
                raise HttpParseError("A chunk of the body has no size.") from error
            if len(self._buffer) < line + 2 + size + 2:
                return False
            self._chunks.append(bytes(self._buffer[line + 2 : line + 2 + size]))
            del self._buffer[: line + 2 + size + 2]
            if size == 0:
                return True


def parse_head(head: bytes, now: float) -> RawRequest:
    lines = head.decode("latin-1").split("\r\n")
    try:
        method, path, version = lines[0].split(" ")
    except ValueError as error:
        raise HttpParseError("The request line is malformed.") from error
    if version not in ("HTTP/1.1", "HTTP/1.0"):
        raise HttpParseError(f"{version} is not spoken here.")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon:
            raise HttpParseError("A header has no colon.")
        headers[name.strip().lower()] = value.strip()
    wish = headers.get("connection", "").lower()
    keep_alive = wish != "close" if version == "HTTP/1.1" else wish == "keep-alive"
    chunked = headers.get("transfer-encoding", "").lower() == "chunked"
    length = headers.get("content-length", "0")
    if not length.isdecimal():
        raise HttpParseError("The content-length is not a number.")
    return RawRequest(method, path, headers, keep_alive, now, None if chunked else int(length))


def encode_head(status: int, headers: dict[str, str]) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Overloaded" if status == 529 else "Unknown"
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def encode_chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"
