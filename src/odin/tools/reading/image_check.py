"""Whether an image is whole. An API that cannot decode one refuses the request, and every later one with it."""

from collections.abc import Iterator
from zlib import crc32, decompressobj, error

from odin.core.picture import BrokenImage, ImageHeader, find_jpeg_marker

_CHUNK_BYTES = 1 << 20
_CUT_OFF = "it is cut off"
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""How many numbers a pixel has, by the colour type of a PNG."""


def validate_image(data: bytes, picture: ImageHeader) -> bytes:
    """The bytes a model can be shown: of an animated GIF the first frame. Raises BrokenPicture with the reason."""
    try:
        return _FORMAT_CHECKS[picture.kind](data, picture)
    except IndexError:
        raise BrokenImage(_CUT_OFF) from None


def _check_png(data: bytes, picture: ImageHeader) -> bytes:
    """Every chunk with its checksum, and pixels that unpack to what the size needs and not to far more."""
    pixels, needed = _PixelCounter(), _count_png_bytes(data, picture)
    for name, body in _read_chunks(data):
        if name == b"IEND":
            if not pixels.is_complete or pixels.size < needed:
                raise BrokenImage("its pixels are cut off")
            return data
        if name == b"IDAT":
            pixels.add(body, 2 * needed + _CHUNK_BYTES)
    raise BrokenImage(_CUT_OFF)


def _count_png_bytes(data: bytes, picture: ImageHeader) -> int:
    """The bytes of all rows, each with its filter."""
    depth, channels, interlaced = data[24], _CHANNELS.get(data[25]), data[28]
    if channels is None or depth not in (1, 2, 4, 8, 16):
        raise BrokenImage("its header is damaged")
    row = (picture.width * depth * channels + 7) // 8
    return picture.height * (row if interlaced else 1 + row)


class _PixelCounter:
    """Packed pixel data, unpacked piece by piece and only counted."""

    def __init__(self) -> None:
        self.size = 0
        self._inflater = decompressobj()

    @property
    def is_complete(self) -> bool:
        return self._inflater.eof

    def add(self, body: bytes, max_bytes: int) -> None:
        try:
            while body and not self.is_complete:
                self.size += len(self._inflater.decompress(body, _CHUNK_BYTES))
                body = self._inflater.unconsumed_tail
                if self.size > max_bytes:
                    raise BrokenImage("it unpacks to more than its size")
        except error:
            raise BrokenImage("its pixels are damaged") from None


def _read_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 8
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        body, check = data[at + 4 : at + 8 + size], data[at + 8 + size : at + 12 + size]
        if len(check) < 4:
            raise BrokenImage(_CUT_OFF)
        if crc32(body) != int.from_bytes(check, "big"):
            raise BrokenImage("it is damaged")
        yield body[:4], body[4:]
        at += 12 + size


def _check_jpeg(data: bytes, picture: ImageHeader) -> bytes:
    """The end mark must follow the first scan; the one of a preview in the header stands before it."""
    if data.rfind(b"\xff\xd9") < find_jpeg_marker(data, frozenset({0xDA})):
        raise BrokenImage(_CUT_OFF)
    return data


def _check_gif(data: bytes, picture: ImageHeader) -> bytes:
    """Up to the end of the first frame. Not every API takes an animation, and none shows more than this of it."""
    at = 13 + _measure_color_table(data[10])
    while data[at] == 0x21:
        at = _skip_blocks(data, at + 2)
    if data[at] != 0x2C:
        raise BrokenImage("it has no frame" if data[at] == 0x3B else "it is damaged")
    end = _skip_blocks(data, at + 11 + _measure_color_table(data[at + 9]))
    return data if data[end] == 0x3B else data[:end] + b"\x3b"


def _measure_color_table(flags: int) -> int:
    """The bytes of the colour table these flags announce."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _skip_blocks(data: bytes, at: int) -> int:
    """Where a row of data blocks ends."""
    while data[at]:
        at += 1 + data[at]
    return at + 1


def _check_webp(data: bytes, picture: ImageHeader) -> bytes:
    if picture.animated:
        raise BrokenImage("it is animated, which not every model API takes")
    end = 8 + int.from_bytes(data[4:8], "little")
    if end > len(data):
        raise BrokenImage(_CUT_OFF)
    at, names = 12, set[bytes]()
    while at + 8 <= end:
        names.add(data[at : at + 4])
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        at += 8 + size + size % 2
    if at > end + 1 or not names & {b"VP8 ", b"VP8L"}:
        raise BrokenImage(_CUT_OFF if at > end + 1 else "it has no picture")
    return data


_FORMAT_CHECKS = {"png": _check_png, "jpeg": _check_jpeg, "gif": _check_gif, "webp": _check_webp}
