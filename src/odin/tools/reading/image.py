"""Images as Read gives them: checked, copied into the session's folder, and sent to the model beside the text.

What a model API would refuse is refused here, because a request that carries it would fail, and all requests after it.
"""

import asyncio
import os
import time
from io import FileIO
from pathlib import Path

from msgspec import Struct

from odin.context.files import hash_bytes
from odin.core.message import Image
from odin.core.picture import BrokenImage, ImageHeader, read_image_header
from odin.core.tool import ToolOutput
from odin.tools.files.path import Refusal, read_whole, to_printable
from odin.tools.reading.image_check import validate_image

MAX_BYTES = 3_932_160
"""What becomes 5 MiB in base64, the most an API takes."""

MAX_PIXELS = 8000
"""The longest side an API takes."""


class CheckedImage(Struct, frozen=True):
    """An image that can be sent."""

    data: bytes
    info: ImageHeader

    def describe(self, name: str = "") -> str:
        shown = self.info
        return f"{name and f'{name}, '}{shown.width}x{shown.height}, {shown.kind}, {format_size(len(self.data))}"


def format_size(size: int) -> str:
    return f"{size} bytes" if size < 1000 else f"{size / 1000:.0f} kB" if size < 1e6 else f"{size / 1e6:.1f} MB"


def check_image(data: bytes) -> CheckedImage | None:
    """The image, or None when the bytes are none. Raises BrokenPicture when no model could be shown it."""
    picture = read_image_header(data)
    if picture is None:
        return None
    if max(picture.width, picture.height) > MAX_PIXELS:
        raise BrokenImage(f"it has {picture.width}x{picture.height} pixels and at most {MAX_PIXELS} a side are taken")
    if len(data) > MAX_BYTES:
        raise _make_size_error(len(data))
    return CheckedImage(validate_image(data, picture), picture)


def _make_size_error(size: int) -> BrokenImage:
    return BrokenImage(f"it has {format_size(size)} and at most {format_size(MAX_BYTES)} are taken")


def store_image(found: CheckedImage, folder: Path | None, source: str = "") -> Image:
    """The image as a result carries it: a copy that stays as it was seen. Without a folder, the file itself."""
    path = source if folder is None else _copy_image(found, folder / "images")
    return Image(path, found.info.media_type, found.info.width, found.info.height)


def _copy_image(found: CheckedImage, folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    target = folder / f"{hash_bytes(found.data)}.{found.info.kind}"
    if not target.exists():
        part = folder / f".{target.name}.{os.getpid()}-{time.time_ns():x}"
        try:
            fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(found.data)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    return str(target)


async def read_image(path: str, file: FileIO, info: os.stat_result, folder: Path | None) -> ToolOutput:
    """`file` begins with the mark of an image."""
    try:
        data = read_whole(file, info)
        if data is None:
            raise _make_size_error(info.st_size)
        found = await asyncio.to_thread(check_image, data)
    except BrokenImage as broken:
        raise Refusal(f"{path} is an image that cannot be shown: {broken}. {_suggest_copy(path)}") from None
    if found is None:
        raise Refusal(f"{path} changed while it was read. Read it again.")
    text = to_printable(f"(image: {found.describe(Path(path).name)})")
    size = f"{found.info.width}x{found.info.height}"
    return ToolOutput(
        text=text, note=to_printable(f"Read {path} (image {size})"), images=(store_image(found, folder, path),)
    )


def _suggest_copy(path: str) -> str:
    """One command helps against all of it: another file, sound, not animated and smaller."""
    import shlex

    smaller = f"{Path(path).with_suffix('')}-small.png"
    command = f"magick {shlex.quote(path + '[0]')} -resize '2000x2000>' {shlex.quote(smaller)}"
    return f"Make a smaller or sound copy and read that, for example: {command}"
