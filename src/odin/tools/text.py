"""Bytes to text and back without losing one.

Text that is not valid UTF-8 is decoded with an escape for each odd byte, so encoding it again gives the same bytes. A
byte order mark is kept aside. UTF-16 is recognised by its mark.
"""

import codecs

from msgspec import Struct

_PROBE = 8192


class Decoded(Struct, frozen=True):
    """A file's text. `valid` is false when some bytes are not UTF-8; they are lone surrogates in `text`."""

    text: str
    codec: str = "utf-8"
    bom: bytes = b""
    valid: bool = True

    def encode(self, text: str) -> bytes:
        """`text` as bytes in this file's encoding."""
        if self.codec == "utf-8":
            return self.bom + text.encode("utf-8", "surrogateescape")
        return self.bom + text.encode(self.codec, "surrogatepass")


def decode(data: bytes) -> Decoded | None:
    """The text of a file, or None when it is binary: a NUL byte near the start, as git decides it."""
    for bom, codec in ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")):
        if data.startswith(bom):
            return _wide(data, bom, codec)
    if b"\0" in data[:_PROBE]:
        return None
    bom = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    body = data[len(bom) :]
    try:
        return Decoded(body.decode("utf-8"), bom=bom)
    except UnicodeDecodeError:
        return Decoded(body.decode("utf-8", "surrogateescape"), bom=bom, valid=False)


def _wide(data: bytes, bom: bytes, codec: str) -> Decoded | None:
    try:
        text = data[len(bom) :].decode(codec, "surrogatepass")
    except UnicodeDecodeError:
        return None
    found = Decoded(text, codec, bom)
    return found if found.encode(text) == data else None


def is_crlf(text: str) -> bool:
    """Whether every line of the text ends with a carriage return and a line feed."""
    lines = text.count("\n")
    return lines > 0 and lines == text.count("\r\n")
