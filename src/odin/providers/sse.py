"""Parses server-sent events from bytes split anywhere."""

from msgspec import Struct

from odin.core.errors import BadReply

MAX_EVENT = 16 * 1024 * 1024


class ServerEvent(Struct, frozen=True):
    name: str
    data: bytes


class SseParser:
    """Takes bytes and returns the complete events.

    Lines end in LF, CR or CRLF. An event larger than `limit` is rejected to bound memory.
    """

    def __init__(self, limit: int = MAX_EVENT) -> None:
        self._limit = limit
        self._tail: list[bytes] = []
        self._size = 0
        self._skip_lf = False
        self._first = True
        self._name = b""
        self._data: list[bytes] = []

    def feed(self, data: bytes) -> list[ServerEvent]:
        if self._skip_lf and data:
            self._skip_lf = False
            data = data.removeprefix(b"\n")
        if b"\r" in data:
            self._skip_lf = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self._size += len(data)
        if b"\n" not in data:
            self._tail.append(data)
            self._check_size()
            return []
        lines = b"".join((*self._tail, data)).split(b"\n")
        last = lines.pop()
        self._tail = [last]
        events: list[ServerEvent] = []
        for line in lines:
            self._handle_line(line, events)
        self._size = len(last) + sum(map(len, self._data))
        self._check_size()
        return events

    def flush(self) -> list[ServerEvent]:
        """Return the events completed by the end of the stream: some servers omit the last blank line."""
        events: list[ServerEvent] = []
        self._handle_line(b"".join(self._tail), events)
        self._handle_line(b"", events)
        self._tail = []
        return events

    def _handle_line(self, line: bytes, events: list[ServerEvent]) -> None:
        if self._first:
            self._first = False
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            if self._data:
                events.append(ServerEvent(self._name.decode("utf-8", "replace"), b"\n".join(self._data)))
            self._name = b""
            self._data = []
            return
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" "))
        elif field == b"event":
            self._name = value.removeprefix(b" ")

    def _check_size(self) -> None:
        if self._size > self._limit:
            raise BadReply(
                f"The model server sent one event of more than {self._limit // (1024 * 1024)} MB.",
                "Check that the base URL points at a model API.",
            )
