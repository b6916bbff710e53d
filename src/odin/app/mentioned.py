"""What a prompt names: files, folders and pictures on this machine, with their whole paths."""

import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct, structs

from odin.context.files import digest
from odin.core.attachment import MAX_IMAGE_BYTES, MAX_IMAGES, Attachment
from odin.core.errors import UsageError
from odin.core.mention import mentions
from odin.core.op import Prompt
from odin.core.picture import BrokenPicture, picture_kind
from odin.policy import paths
from odin.tools.reading.image import Checked, checked, kept, size_text

_IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
_HEAD = 16
_TEXT_BYTES = 5_000_000
_SMALLER = "Make a smaller or sound copy of it, for example with `magick IMAGE -resize 2000x2000 copy.png`."


class Place(Struct, frozen=True):
    """Where paths begin: the folder the session works in, its project, and the home of the person."""

    cwd: str
    root: str
    home: str

    def whole(self, path: str) -> str:
        if path == "~" or path.startswith("~/"):
            return os.path.normpath(f"{self.home}/{path[1:]}")
        return os.path.normpath(path if path.startswith("/") else f"{self.cwd}/{path}")


def named(prompt: Prompt, place: Place) -> list[Attachment]:
    """What is attached, and what the text mentions if it is there; with whole paths, each once.

    Where the text is not what the person typed, because a custom command stands for it, it names what lies in the
    project; anything else only the person can.
    """
    found = [structs.replace(item, path=place.whole(item.path)) for item in prompt.attached if not item.data]
    found += _mentioned(prompt.text, place, prompt.shown)
    return list(dict.fromkeys(found))


def _mentioned(text: str, place: Place, shown: str) -> Iterator[Attachment]:
    typed = set(_mentioned(shown, place, "")) if shown and shown != text else None
    for ways in mentions(text):
        there = (structs.replace(way, path=place.whole(way.path)) for way in ways)
        item = next((way for way in there if os.path.exists(way.path)), None)  # noqa: PTH110 (it may hold a NUL)
        if item is None:
            continue
        if typed is None or item in typed or paths.inside(item.path, place.root, place.cwd):
            yield item


def is_picture(item: Attachment) -> bool:
    """Whether a file is, or says that it is, an image. Only a regular file is opened."""
    try:
        if not stat.S_ISREG(Path(item.path).stat().st_mode):
            return False
        with Path(item.path).open("rb") as file:
            head = file.read(_HEAD)
    except (OSError, ValueError):
        return False
    return bool(picture_kind(head)) or item.path.lower().endswith(_IMAGES)


def check_pictures(items: Iterable[Attachment], brought: int) -> None:
    """Refuse what no model could be shown, before anything is said. `brought` counts those that come as bytes."""
    pictures = [item for item in items if is_picture(item)]
    refuse_many(len(pictures) + brought)
    for item in pictures:
        name = Path(item.path).name
        size = Path(item.path).stat().st_size
        if size > MAX_IMAGE_BYTES:
            raise _refused(name, f"it has {size_text(size)} and at most {size_text(MAX_IMAGE_BYTES)} are taken")
        picture(Path(item.path).read_bytes(), name)


def refuse_many(count: int) -> None:
    if count > MAX_IMAGES:
        raise UsageError(
            f"{count} images are attached, and a prompt takes at most {MAX_IMAGES}.",
            "Send the others with the next prompt.",
        )


def picture(data: bytes, name: str) -> Checked:
    """The image as it can be sent. Raises UsageError when it cannot."""
    if not data:
        raise _refused(name, "it is empty")
    try:
        found = checked(data)
    except BrokenPicture as broken:
        raise _refused(name, str(broken)) from None
    if found is None:
        raise _refused(name, "it is none of PNG, JPEG, GIF and WebP")
    return found


def _refused(name: str, why: str) -> UsageError:
    return UsageError(f"{name} is an image that cannot be attached: {why}.", _SMALLER)


def brings_picture(item: Attachment) -> bool:
    """Whether the bytes that come along are an image, or are said to be one."""
    said = item.media_type.startswith("image/") or item.path.lower().endswith(_IMAGES)
    return bool(item.data) and (said or bool(picture_kind(item.data[:_HEAD])))


def stored(item: Attachment, folder: Path) -> Attachment:
    """The bytes that came along as a file of the session, so that its log stays small and a queue survives a crash."""
    name = item.path.rpartition("/")[2] or "clipboard"
    if brings_picture(item):
        image = kept(picture(item.data, name), folder)
        return Attachment(image.path, media_type=image.media_type, name=name)
    if len(item.data) > _TEXT_BYTES or b"\0" in item.data:
        raise UsageError(
            f"{name} cannot be attached: only images and text of at most {size_text(_TEXT_BYTES)} can come as bytes.",
            "Save it in the project and mention its path.",
        )
    target = folder / "attached" / f"{digest(item.data)[:16]}-{re.sub(r'[^A-Za-z0-9._-]', '_', name)[-60:]}"
    _write(target, item.data)
    return Attachment(str(target), item.first, item.last, media_type=item.media_type, name=name)


def _write(target: Path, data: bytes) -> None:
    """It appears whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
