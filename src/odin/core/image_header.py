"""Reads an image's format and size from its first bytes, without decoding it and without trusting its file name."""

from msgspec import Struct

from odin.core.message import detect_image_kind

_SIZE_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""JPEG markers that carry the size."""


class BrokenImage(ValueError):
    """The data starts like an image but is damaged. The message completes a sentence about the image."""


class ImageHeader(Struct, frozen=True):
    """`kind` is png, jpeg, gif or webp."""

    kind: str
    width: int
    height: int
    animated: bool = False

    @property
    def media_type(self) -> str:
        return f"image/{self.kind}"


def read_image_header(data: bytes) -> ImageHeader | None:
    """Return the header, or None if the data is not an image. Raise BrokenImage if the header is damaged."""
    kind = detect_image_kind(data[:12])
    if not kind:
        return None
    try:
        found = _READERS[kind](data)
    except IndexError:
        raise BrokenImage("its header is cut off") from None
    if found.width < 1 or found.height < 1:
        raise BrokenImage("its header gives it no size")
    return found


def _read_png(data: bytes) -> ImageHeader:
    if data[12:16] != b"IHDR":
        raise BrokenImage("its header is damaged")
    return ImageHeader("png", _read_big_endian(data, 16, 4), _read_big_endian(data, 20, 4))


def _read_gif(data: bytes) -> ImageHeader:
    return ImageHeader("gif", _read_little_endian(data, 6, 2), _read_little_endian(data, 8, 2))


def _read_jpeg(data: bytes) -> ImageHeader:
    at = find_jpeg_marker(data, _SIZE_MARKERS)
    return ImageHeader("jpeg", _read_big_endian(data, at + 7, 2), _read_big_endian(data, at + 5, 2))


def find_jpeg_marker(data: bytes, wanted: frozenset[int]) -> int:
    """Return the offset of the first of these markers. Skips whole segments, so embedded previews do not count."""
    at = 2
    while True:
        if data[at] != 0xFF:
            raise BrokenImage("its header is damaged")
        while data[at + 1] == 0xFF:
            at += 1
        marker = data[at + 1]
        if marker in wanted:
            return at
        if marker == 0xD9:
            raise BrokenImage("it ends before its first picture")
        alone = marker == 0x01 or 0xD0 <= marker <= 0xD7
        at += 2 if alone else 2 + _read_big_endian(data, at + 2, 2)


def _read_webp(data: bytes) -> ImageHeader:
    form = data[12:16]
    if form == b"VP8X":
        return ImageHeader(
            "webp",
            1 + _read_little_endian(data, 24, 3),
            1 + _read_little_endian(data, 27, 3),
            animated=bool(data[20] & 2),
        )
    if form == b"VP8L" and data[20] == 0x2F:
        bits = _read_little_endian(data, 21, 4)
        return ImageHeader("webp", 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF))
    if form == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        return ImageHeader("webp", _read_little_endian(data, 26, 2) & 0x3FFF, _read_little_endian(data, 28, 2) & 0x3FFF)
    raise BrokenImage("its header is damaged")


_READERS = {"png": _read_png, "jpeg": _read_jpeg, "gif": _read_gif, "webp": _read_webp}


def _read_big_endian(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(_take_bytes(data, at, size), "big")


def _read_little_endian(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(_take_bytes(data, at, size), "little")


def _take_bytes(data: bytes, at: int, size: int) -> bytes:
    part = data[at : at + size]
    if len(part) < size:
        raise IndexError
    return part
