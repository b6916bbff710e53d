"""What the bytes of an image say of it: its kind and its size, without decoding it. The name of a file says nothing."""

from msgspec import Struct

_PNG = b"\x89PNG\r\n\x1a\n"
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""JPEG markers that carry the size."""


class BrokenPicture(ValueError):
    """It begins like an image and is none. The text says what is wrong, as the rest of a sentence about the image."""


class Picture(Struct, frozen=True):
    """`kind` is png, jpeg, gif or webp."""

    kind: str
    width: int
    height: int
    animated: bool = False

    @property
    def media_type(self) -> str:
        return f"image/{self.kind}"


def picture_kind(head: bytes) -> str:
    """The kind of image that begins with these bytes (12 are enough); empty when it is none that models take."""
    if head.startswith(_PNG):
        return "png"
    if head.startswith(b"\xff\xd8\xff"):
        return "jpeg"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "gif"
    return "webp" if head.startswith(b"RIFF") and head[8:12] == b"WEBP" else ""


def picture_of(data: bytes) -> Picture | None:
    """What the header says; None when this is no image. Raises BrokenPicture when the header is damaged."""
    kind = picture_kind(data[:12])
    if not kind:
        return None
    try:
        found = _READERS[kind](data)
    except IndexError:
        raise BrokenPicture("its header is cut off") from None
    if found.width < 1 or found.height < 1:
        raise BrokenPicture("its header gives it no size")
    return found


def _png(data: bytes) -> Picture:
    if data[12:16] != b"IHDR":
        raise BrokenPicture("its header is damaged")
    return Picture("png", _big(data, 16, 4), _big(data, 20, 4))


def _gif(data: bytes) -> Picture:
    return Picture("gif", _little(data, 6, 2), _little(data, 8, 2))


def _jpeg(data: bytes) -> Picture:
    at = jpeg_marker(data, _FRAMES)
    return Picture("jpeg", _big(data, at + 7, 2), _big(data, at + 5, 2))


def jpeg_marker(data: bytes, wanted: frozenset[int]) -> int:
    """Where the first of these markers stands. Whole segments are passed over, so that a preview does not count."""
    at = 2
    while True:
        if data[at] != 0xFF:
            raise BrokenPicture("its header is damaged")
        while data[at + 1] == 0xFF:
            at += 1
        marker = data[at + 1]
        if marker in wanted:
            return at
        if marker == 0xD9:
            raise BrokenPicture("it ends before its first picture")
        alone = marker == 0x01 or 0xD0 <= marker <= 0xD7
        at += 2 if alone else 2 + _big(data, at + 2, 2)


def _webp(data: bytes) -> Picture:
    form = data[12:16]
    if form == b"VP8X":
        return Picture("webp", 1 + _little(data, 24, 3), 1 + _little(data, 27, 3), animated=bool(data[20] & 2))
    if form == b"VP8L" and data[20] == 0x2F:
        bits = _little(data, 21, 4)
        return Picture("webp", 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF))
    if form == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        return Picture("webp", _little(data, 26, 2) & 0x3FFF, _little(data, 28, 2) & 0x3FFF)
    raise BrokenPicture("its header is damaged")


_READERS = {"png": _png, "jpeg": _jpeg, "gif": _gif, "webp": _webp}


def _big(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(_slice(data, at, size), "big")


def _little(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(_slice(data, at, size), "little")


def _slice(data: bytes, at: int, size: int) -> bytes:
    part = data[at : at + size]
    if len(part) < size:
        raise IndexError
    return part
