"""Bytes to text and back without losing one.

Text that is not valid UTF-8 is decoded with an escape for each odd byte, so encoding it again gives the same bytes. A
byte order mark is kept aside. UTF-16 and UTF-32 are recognised by their mark, some East Asian encodings by what is
written in them.
"""

import codecs
from collections import OrderedDict

from msgspec import Struct

from odin.tools.files.path import Refusal

_PROBE_BYTES = 8192
_MAX_REMEMBERED = 500

_written_codecs: OrderedDict[tuple[int, int], str] = OrderedDict()
"""Length and hash of bytes that were made here in an encoding without a mark. An edit may take out what it would be
recognised by, and the next edit of the same file must not put in another."""

_WIDE_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class DecodedText(Struct, frozen=True):
    """A file's text. `valid` is false when its encoding is not known; odd bytes are lone surrogates in `text`."""

    text: str
    codec: str = "utf-8"
    bom: bytes = b""
    valid: bool = True

    @property
    def is_wide(self) -> bool:
        return self.codec.startswith(("utf-16", "utf-32"))

    def encode(self, text: str) -> bytes:
        """`text` as bytes in this file's encoding."""
        if self.codec == "utf-8":
            return self.bom + text.encode("utf-8", "surrogateescape")
        if self.is_wide:
            return self.bom + text.encode(self.codec, "surrogatepass")
        try:
            data = text.encode(self.codec)
        except UnicodeEncodeError as error:
            odd = text[error.start : error.start + 1]
            raise Refusal(f"The file is in {self.codec}, which has no {odd!r} (U+{ord(odd):04X}).") from None
        _remember_codec(data, self.codec)
        return data

    def check_text(self, new: str, field: str) -> None:
        """Refuse text that this file cannot take without mixing encodings."""
        try:
            new.encode("utf-8")
        except UnicodeEncodeError:
            raise Refusal(f"{field} contains half of a surrogate pair, which is not a character.") from None
        if not self.valid and not new.isascii():
            raise Refusal(
                "The file is not UTF-8 and its encoding is not known for certain, so only ASCII text can be put into "
                "it without mixing encodings. Use ASCII, or convert the file with a command first."
            )
        if not self.is_wide and self.codec != "utf-8" and not self._can_encode(new):
            raise Refusal(f"{field} has characters that do not exist in {self.codec}, the encoding of the file.")

    def _can_encode(self, new: str) -> bool:
        try:
            return new.encode(self.codec).decode(self.codec) == new
        except UnicodeEncodeError:
            return False


def decode(data: bytes) -> DecodedText | None:
    """The text of a file, or None when it is binary: a NUL byte near the start, as git decides it."""
    for bom, codec in _WIDE_MARKS:
        if data.startswith(bom):
            return _decode_wide(data, bom, codec)
    if b"\0" in data[:_PROBE_BYTES]:
        return None
    codec = _written_codecs.get((len(data), hash(data))) if _written_codecs else None
    if codec is not None:
        return DecodedText(data.decode(codec), codec)
    bom = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    body = data[len(bom) :] if bom else data
    try:
        return DecodedText(body.decode("utf-8"), bom=bom)
    except UnicodeDecodeError:
        return _decode_other(body, bom)


def _remember_codec(data: bytes, codec: str) -> None:
    """Plain ASCII is the same in all of them and says nothing about the next file that looks like it."""
    if data.isascii():
        return
    _written_codecs[len(data), hash(data)] = codec
    if len(_written_codecs) > _MAX_REMEMBERED:
        _written_codecs.popitem(last=False)


def _decode_other(body: bytes, bom: bytes) -> DecodedText:
    from odin.tools.files.encoding import recognize_encoding

    found = recognize_encoding(body) if not bom else None
    if found is not None:
        return DecodedText(*found)
    return DecodedText(body.decode("utf-8", "surrogateescape"), bom=bom, valid=False)


def _decode_wide(data: bytes, bom: bytes, codec: str) -> DecodedText | None:
    try:
        text = data[len(bom) :].decode(codec, "surrogatepass")
    except UnicodeDecodeError:
        return None
    found = DecodedText(text, codec, bom)
    return found if "\0" not in text and found.encode(text) == data else None


def is_crlf(text: str) -> bool:
    """Whether every line of the text ends with a carriage return and a line feed."""
    lines = text.count("\n")
    return lines > 0 and lines == text.count("\r\n")
