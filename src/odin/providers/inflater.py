"""Decompresses responses. Odin asks for none, but a proxy may compress them nevertheless."""

import zlib

MAX_DECODED = 16 * 1024 * 1024

_GZIP_START = b"\x1f\x8b"


class Inflater:
    """Decompresses gzip, of which there may be several members, and deflate with and without its header."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(47)
        self._is_first = True

    def feed(self, data: bytes) -> bytes:
        """Return what these bytes decompress to. Raise ValueError if they are damaged, or it is too much."""
        plain = b""
        while data:
            if self._inflate.eof:
                if not data.startswith(_GZIP_START[: len(data)]):
                    break  # padding
                self._inflate = zlib.decompressobj(31)
            plain += self._decompress(data)
            data = self._inflate.unused_data
        return plain

    def flush(self) -> bytes:
        return self._inflate.flush()

    def _decompress(self, data: bytes) -> bytes:
        try:
            plain = self._inflate.decompress(data, MAX_DECODED)
        except zlib.error:
            if not self._is_first:
                raise ValueError("its compressed answer is damaged") from None
            self._inflate, self._is_first = zlib.decompressobj(-15), False
            return self._decompress(data)
        self._is_first = False
        if self._inflate.unconsumed_tail:
            raise ValueError("its compressed answer is too large")
        return plain
