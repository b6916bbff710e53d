"""Whether an image is whole. An API that cannot decode one refuses the request, and every later one with it."""

from collections.abc import Iterator
from zlib import crc32, decompressobj, error

from odin.core.picture import BrokenPicture, Picture, jpeg_marker

_STEP = 1 << 20
_CUT = "it is cut off"
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""How many numbers a pixel has, by the colour type of a PNG."""


def whole(data: bytes, picture: Picture) -> bytes:
    """The bytes a model can be shown: of an animated GIF the first frame. Raises BrokenPicture with the reason."""
    try:
        return _CHECKS[picture.kind](data, picture)
    except IndexError:
        raise BrokenPicture(_CUT) from None


def _png(data: bytes, picture: Picture) -> bytes:
    """Every chunk with its checksum, and pixels that unpack to what the size needs and not to far more."""
    pixels, needed = _Pixels(), _png_bytes(data, picture)
    for name, body in _chunks(data):
        if name == b"IEND":
            if not pixels.complete or pixels.size < needed:
                raise BrokenPicture("its pixels are cut off")
            return data
        if name == b"IDAT":
            pixels.add(body, 2 * needed + _STEP)
    raise BrokenPicture(_CUT)


def _png_bytes(data: bytes, picture: Picture) -> int:
    """The bytes of all rows, each with its filter."""
    depth, channels, interlaced = data[24], _CHANNELS.get(data[25]), data[28]
    if channels is None or depth not in (1, 2, 4, 8, 16):
        raise BrokenPicture("its header is damaged")
    row = (picture.width * depth * channels + 7) // 8
    return picture.height * (row if interlaced else 1 + row)


class _Pixels:
    """Packed pixel data, unpacked piece by piece and only counted."""

    def __init__(self) -> None:
        self.size = 0
        self._inflater = decompressobj()

    @property
    def complete(self) -> bool:
        return self._inflater.eof

    def add(self, body: bytes, most: int) -> None:
        try:
            while body and not self.complete:
                self.size += len(self._inflater.decompress(body, _STEP))
                body = self._inflater.unconsumed_tail
                if self.size > most:
                    raise BrokenPicture("it unpacks to more than its size")
        except error:
            raise BrokenPicture("its pixels are damaged") from None


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 8
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        body, check = data[at + 4 : at + 8 + size], data[at + 8 + size : at + 12 + size]
        if len(check) < 4:
            raise BrokenPicture(_CUT)
        if crc32(body) != int.from_bytes(check, "big"):
            raise BrokenPicture("it is damaged")
        yield body[:4], body[4:]
        at += 12 + size


def _jpeg(data: bytes, picture: Picture) -> bytes:
    """The end mark must follow the first scan; the one of a preview in the header stands before it."""
    if data.rfind(b"\xff\xd9") < jpeg_marker(data, frozenset({0xDA})):
        raise BrokenPicture(_CUT)
    return data


def _gif(data: bytes, picture: Picture) -> bytes:
    """Up to the end of the first frame. Not every API takes an animation, and none shows more than this of it."""
    at = 13 + _colours(data[10])
    while data[at] == 0x21:
        at = _after_blocks(data, at + 2)
    if data[at] != 0x2C:
        raise BrokenPicture("it has no frame" if data[at] == 0x3B else "it is damaged")
    end = _after_blocks(data, at + 11 + _colours(data[at + 9]))
    return data if data[end] == 0x3B else data[:end] + b"\x3b"


def _colours(flags: int) -> int:
    """The bytes of the colour table these flags announce."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _after_blocks(data: bytes, at: int) -> int:
    """Where a row of data blocks ends."""
    while data[at]:
        at += 1 + data[at]
    return at + 1


def _webp(data: bytes, picture: Picture) -> bytes:
    if picture.animated:
        raise BrokenPicture("it is animated, which not every model API takes")
    end = 8 + int.from_bytes(data[4:8], "little")
    if end > len(data):
        raise BrokenPicture(_CUT)
    at, names = 12, set[bytes]()
    while at + 8 <= end:
        names.add(data[at : at + 4])
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        at += 8 + size + size % 2
    if at > end + 1 or not names & {b"VP8 ", b"VP8L"}:
        raise BrokenPicture(_CUT if at > end + 1 else "it has no picture")
    return data


_CHECKS = {"png": _png, "jpeg": _jpeg, "gif": _gif, "webp": _webp}
