"""Images as Read gives them: checked, copied into the session's folder, and sent to the model beside the text.

What a model API would refuse is refused here, because a request that carries it would fail, and all requests after it.
"""

import asyncio
import os
import time
from io import FileIO
from pathlib import Path

from msgspec import Struct

from odin.context.files import digest
from odin.core.message import Image
from odin.core.picture import BrokenPicture, Picture, picture_of
from odin.core.tool import ToolOutput
from odin.tools.files.path import Refusal, printable, read_whole
from odin.tools.reading.image_check import whole

MAX_BYTES = 3_932_160
"""What becomes 5 MiB in base64, the most an API takes."""

MAX_PIXELS = 8000
"""The longest side an API takes."""


class Checked(Struct, frozen=True):
    """An image that can be sent."""

    data: bytes
    picture: Picture

    def described(self, name: str = "") -> str:
        shown = self.picture
        return f"{name and f'{name}, '}{shown.width}x{shown.height}, {shown.kind}, {size_text(len(self.data))}"


def size_text(size: int) -> str:
    return f"{size} bytes" if size < 1000 else f"{size / 1000:.0f} kB" if size < 1e6 else f"{size / 1e6:.1f} MB"


def checked(data: bytes) -> Checked | None:
    """The image, or None when the bytes are none. Raises BrokenPicture when no model could be shown it."""
    picture = picture_of(data)
    if picture is None:
        return None
    if max(picture.width, picture.height) > MAX_PIXELS:
        raise BrokenPicture(f"it has {picture.width}x{picture.height} pixels and at most {MAX_PIXELS} a side are taken")
    if len(data) > MAX_BYTES:
        raise _too_many(len(data))
    return Checked(whole(data, picture), picture)


def _too_many(size: int) -> BrokenPicture:
    return BrokenPicture(f"it has {size_text(size)} and at most {size_text(MAX_BYTES)} are taken")


def kept(found: Checked, folder: Path | None, source: str = "") -> Image:
    """The image as a result carries it: a copy that stays as it was seen. Without a folder, the file itself."""
    path = source if folder is None else _copy(found, folder / "images")
    return Image(path, found.picture.media_type, found.picture.width, found.picture.height)


def _copy(found: Checked, folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    target = folder / f"{digest(found.data)}.{found.picture.kind}"
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
            raise _too_many(info.st_size)
        found = await asyncio.to_thread(checked, data)
    except BrokenPicture as broken:
        raise Refusal(f"{path} is an image that cannot be shown: {broken}. {_advice(path)}") from None
    if found is None:
        raise Refusal(f"{path} changed while it was read. Read it again.")
    text = printable(f"(image: {found.described(Path(path).name)})")
    size = f"{found.picture.width}x{found.picture.height}"
    return ToolOutput(text=text, note=printable(f"Read {path} (image {size})"), images=(kept(found, folder, path),))


def _advice(path: str) -> str:
    """One command helps against all of it: another file, sound, not animated and smaller."""
    import shlex

    smaller = f"{Path(path).with_suffix('')}-small.png"
    command = f"magick {shlex.quote(path + '[0]')} -resize '2000x2000>' {shlex.quote(smaller)}"
    return f"Make a smaller or sound copy and read that, for example: {command}"
