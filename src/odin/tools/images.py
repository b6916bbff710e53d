"""Images for the model: checked, and copied into the session's folder.

An image that a model API cannot decode would fail the request, and every later request of the session, which contains
it again. So images are validated completely here and refused if they are broken, too large or animated.
"""

import asyncio
import os
import time
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from zlib import crc32, decompressobj, error

from msgspec import Struct

from odin.context.file_cache import hash_bytes
from odin.core.image_header import BrokenImage, ImageHeader, find_jpeg_marker, read_image_header
from odin.core.message import Image
from odin.core.path_names import quote_path
from odin.core.tool import ToolOutput
from odin.tools.files import Refusal, read_whole, to_printable

_CHUNK_BYTES = 1 << 20
_CUT_OFF = "it is cut off"

_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""Channels per pixel, by PNG color type."""

_ANCILLARY_BIT = 0x20
"""Set in the first letter of PNG chunks that an image does not need."""

MAX_BYTES = 3_932_160
"""5 MiB in base64, the maximum of the model APIs."""

MAX_PIXELS = 8000
"""Maximum width and height of the model APIs."""


def validate_image(data: bytes, header: ImageHeader) -> bytes:
    """Return the bytes to send: the image, or the first frame of an animated GIF. Raise BrokenImage."""
    try:
        return _FORMAT_CHECKS[header.kind](data, header)
    except IndexError:
        raise BrokenImage(_CUT_OFF) from None


def _check_png(data: bytes, header: ImageHeader) -> bytes:
    """Check the checksums of all chunks, and that the pixels unpack to the expected size.

    Return the image without damaged ancillary chunks (a color profile, a comment), which decoders skip.
    """
    # The size of all rows with their filter bytes.
    depth, channels, interlaced = data[24], _CHANNELS.get(data[25]), data[28]
    if channels is None or depth not in (1, 2, 4, 8, 16):
        raise BrokenImage("its header is damaged")
    row = (header.width * depth * channels + 7) // 8
    pixels, needed = _PixelCounter(), header.height * (row if interlaced else 1 + row)
    kept = [data[:8]]
    for chunk, is_intact in _read_chunks(data):
        name = chunk[4:8]
        if is_intact:
            kept.append(chunk)
        elif not name[0] & _ANCILLARY_BIT:
            raise BrokenImage("it is damaged")
        if name == b"IEND":
            if not pixels.is_complete or pixels.size < needed:
                raise BrokenImage("its pixels are cut off")
            return b"".join(kept)
        if name == b"IDAT":
            pixels.add(chunk[8:-4], 2 * needed + _CHUNK_BYTES)
    raise BrokenImage(_CUT_OFF)


class _PixelCounter:
    """Unpacks pixel data chunk by chunk and counts the bytes."""

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
                    raise BrokenImage("it unpacks to more data than its size allows")
        except error:
            raise BrokenImage("its pixels are damaged") from None


def _read_chunks(data: bytes) -> Iterator[tuple[bytes, bool]]:
    """Yield each chunk of a PNG file, and whether its checksum is right."""
    at = 8
    while at < len(data):
        end = at + 12 + int.from_bytes(data[at : at + 4], "big")
        if end > len(data):
            raise BrokenImage(_CUT_OFF)
        yield data[at:end], crc32(data[at + 4 : end - 4]) == int.from_bytes(data[end - 4 : end], "big")
        at = end


def _check_jpeg(data: bytes, header: ImageHeader) -> bytes:
    """Check that an end marker follows the first scan. The marker of an embedded preview comes before it."""
    if data.rfind(b"\xff\xd9") < find_jpeg_marker(data, frozenset({0xDA})):
        raise BrokenImage(_CUT_OFF)
    return data


def _check_gif(data: bytes, header: ImageHeader) -> bytes:
    """Return the file up to the end of the first frame: not every API accepts animations, and none shows more."""
    at = 13 + _measure_color_table(data[10])
    while data[at] == 0x21:
        at = _skip_blocks(data, at + 2)
    if data[at] != 0x2C:
        raise BrokenImage("it has no frame" if data[at] == 0x3B else "it is damaged")
    end = _skip_blocks(data, at + 11 + _measure_color_table(data[at + 9]))
    return data if data[end] == 0x3B else data[:end] + b"\x3b"


def _measure_color_table(flags: int) -> int:
    """Return the size of the color table that these flags declare."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _skip_blocks(data: bytes, at: int) -> int:
    """Return the position after a sequence of data blocks."""
    while data[at]:
        at += 1 + data[at]
    return at + 1


def _check_webp(data: bytes, header: ImageHeader) -> bytes:
    if header.animated:
        raise BrokenImage("it is animated, which not every model API accepts")
    end = 8 + int.from_bytes(data[4:8], "little")
    if end > len(data):
        raise BrokenImage(_CUT_OFF)
    at, names = 12, set[bytes]()
    while at + 8 <= end:
        names.add(data[at : at + 4])
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        at += 8 + size + size % 2
    if at > end + 1 or not names & {b"VP8 ", b"VP8L"}:
        raise BrokenImage(_CUT_OFF if at > end + 1 else "it contains no image data")
    return data


_FORMAT_CHECKS = {"png": _check_png, "jpeg": _check_jpeg, "gif": _check_gif, "webp": _check_webp}


class CheckedImage(Struct, frozen=True):
    """A validated image."""

    data: bytes
    info: ImageHeader

    def describe(self, name: str = "") -> str:
        shown = self.info
        return f"{name and f'{name}, '}{shown.width}x{shown.height}, {shown.kind}, {format_size(len(self.data))}"


def format_size(size: int) -> str:
    return f"{size} bytes" if size < 1000 else f"{size / 1000:.0f} kB" if size < 1e6 else f"{size / 1e6:.1f} MB"


def check_image(data: bytes) -> CheckedImage | None:
    """Return the image, or None if the bytes are not an image. Raise BrokenImage if no API would accept it."""
    header = read_image_header(data)
    if header is None:
        return None
    if max(header.width, header.height) > MAX_PIXELS:
        raise BrokenImage(f"it has {header.width}x{header.height} pixels; at most {MAX_PIXELS} per side are allowed")
    if len(data) > MAX_BYTES:
        raise _make_size_error(len(data))
    return CheckedImage(validate_image(data, header), header)


def _make_size_error(size: int) -> BrokenImage:
    return BrokenImage(f"it has {format_size(size)}; at most {format_size(MAX_BYTES)} are allowed")


def store_image(image: CheckedImage, folder: Path | None, source: str = "") -> Image:
    """Copy the image into the session folder, so that later requests send the same bytes. Without one, use the file."""
    path = source if folder is None else _copy_image(image, folder / "images")
    return Image(path, image.info.media_type, image.info.width, image.info.height)


def _copy_image(image: CheckedImage, folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    target = folder / f"{hash_bytes(image.data)}.{image.info.kind}"
    if not target.exists():
        part = folder / f".{target.name}.{os.getpid()}-{time.time_ns():x}"
        try:
            fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(image.data)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    return str(target)


async def read_image(path: str, file: FileIO, info: os.stat_result, folder: Path | None) -> ToolOutput:
    """Return the Read result for an image file."""
    try:
        data = read_whole(file, info)
        if data is None:
            raise _make_size_error(info.st_size)
        image = await asyncio.to_thread(check_image, data)
    except BrokenImage as broken:
        raise Refusal(f"{path} is an image that cannot be shown: {broken}. {_suggest_copy(path)}") from None
    if image is None:
        raise Refusal(f"{path} changed while it was read. Read it again.")
    text = to_printable(f"(image: {image.describe(Path(path).name)})")
    size = f"{image.info.width}x{image.info.height}"
    return ToolOutput(
        text=text, note=to_printable(f"Read {path} (image {size})"), images=(store_image(image, folder, path),)
    )


def _suggest_copy(path: str) -> str:
    """Suggest a command that makes a smaller, valid, not animated copy."""
    smaller = f"{Path(path).with_suffix('')}-small.png"
    command = f"magick {quote_path(path + '[0]')} -resize '2000x2000>' {quote_path(smaller)}"
    return f"Make a smaller or valid copy and read that, for example: {command}"
