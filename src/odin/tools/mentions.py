"""`@path` in what a person writes: which files may be meant. Whether there is such a file only the disk can tell.

What a prompt names: files, folders and pictures on this machine, with their whole paths.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from msgspec import Struct, structs

from odin.context.file_cache import hash_bytes
from odin.core.errors import UsageError
from odin.core.image_header import BrokenImage, detect_image_kind
from odin.core.message import MAX_IMAGE_BYTES, MAX_IMAGES, Attachment
from odin.core.op import Prompt
from odin.policy import paths
from odin.tools.images import CheckedImage, check_image, format_size, store_image

MAX_MENTIONS = 50
"""Mentions that are looked at in one text."""

_MAX_LENGTH = 4096
_MAX_CANDIDATES = 40
_MENTION = re.compile(r'(?<![\w@/.+-])@(?:"([^"\n]{1,4096})"(:\d{1,9}(?:-\d{1,9})?)?|([^\s"@][^\s"]*))')
_LINES = re.compile(r"(.+?):(\d{1,9})(?:-(\d{1,9}))?")
_TRAILING_PUNCTUATION = frozenset(".,;:!?)]}>'`*_…。，、；：！？）」』》")
"""What may follow a path without being part of it."""


def find_mentions(text: str) -> Iterator[tuple[Attachment, ...]]:
    """For every `@` the ways to read it, the longest first: punctuation may be part of a name, or of the sentence."""
    if "@" not in text:
        return
    for count, found in enumerate(_MENTION.finditer(text)):
        if count == MAX_MENTIONS:
            return
        if found[1] is not None:
            yield (_parse_line_range(f"{found[1]}{found[2] or ''}") or Attachment(found[1]),)
        elif len(found[3]) <= _MAX_LENGTH and (ways := tuple(islice(_list_candidates(found[3]), _MAX_CANDIDATES))):
            yield ways


def _list_candidates(word: str) -> Iterator[Attachment]:
    for part in (word, *(word[:at] for at in range(len(word) - 1, 0, -1) if word[at] in _TRAILING_PUNCTUATION)):
        if not part.strip("./~"):
            continue
        yield Attachment(part)
        if (ranged := _parse_line_range(part)) is not None:
            yield ranged


def _parse_line_range(word: str) -> Attachment | None:
    """`a.py:10` is one line, `a.py:10-20` eleven of them, in either order."""
    found = _LINES.fullmatch(word)
    if found is None:
        return None
    first = int(found[2])
    last = int(found[3] or first)
    return Attachment(found[1], max(1, min(first, last)), max(1, first, last))


_IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
_HEAD_BYTES = 16
_MAX_TEXT_BYTES = 5_000_000
_SMALLER_HINT = "Make a smaller or sound copy of it, for example with `magick IMAGE -resize 2000x2000 copy.png`."


class PathBase(Struct, frozen=True):
    """Where paths begin: the folder the session works in, its project, and the home of the person."""

    cwd: str
    root: str
    home: str

    def resolve(self, path: str) -> str:
        if path == "~" or path.startswith("~/"):
            return os.path.normpath(f"{self.home}/{path[1:]}")
        return os.path.normpath(path if path.startswith("/") else f"{self.cwd}/{path}")


def find_attachments(prompt: Prompt, base: PathBase) -> list[Attachment]:
    """What is attached, and what the text mentions if it is there; with whole paths, each once.

    Where the text is not what the person typed, because a custom command stands for it, it names what lies in the
    project; anything else only the person can.
    """
    found = [structs.replace(item, path=base.resolve(item.path)) for item in prompt.attachments if not item.data]
    found += _find_mentioned(prompt.text, base, prompt.display_text)
    return list(dict.fromkeys(found))


def _find_mentioned(text: str, base: PathBase, shown: str) -> Iterator[Attachment]:
    typed = set(_find_mentioned(shown, base, "")) if shown and shown != text else None
    for ways in find_mentions(text):
        there = (structs.replace(way, path=base.resolve(way.path)) for way in ways)
        item = next((way for way in there if os.path.exists(way.path)), None)  # noqa: PTH110 (it may hold a NUL)
        if item is None:
            continue
        if typed is None or item in typed or paths.is_inside(item.path, base.root, base.cwd):
            yield item


def is_image(item: Attachment) -> bool:
    """Whether a file is, or says that it is, an image. Only a regular file is opened."""
    try:
        if not stat.S_ISREG(Path(item.path).stat().st_mode):
            return False
        with Path(item.path).open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except (OSError, ValueError):
        return False
    return bool(detect_image_kind(head)) or item.path.lower().endswith(_IMAGE_SUFFIXES)


def check_images(items: Iterable[Attachment], brought: int) -> None:
    """Refuse what no model could be shown, before anything is said. `brought` counts those that come as bytes."""
    pictures = [item for item in items if is_image(item)]
    refuse_too_many(len(pictures) + brought)
    for item in pictures:
        name = Path(item.path).name
        size = Path(item.path).stat().st_size
        if size > MAX_IMAGE_BYTES:
            raise _make_refusal(
                name, f"it has {format_size(size)} and at most {format_size(MAX_IMAGE_BYTES)} are taken"
            )
        validate_image(Path(item.path).read_bytes(), name)


def refuse_too_many(count: int) -> None:
    if count > MAX_IMAGES:
        raise UsageError(
            f"{count} images are attached, and a prompt takes at most {MAX_IMAGES}.",
            "Send the others with the next prompt.",
        )


def validate_image(data: bytes, name: str) -> CheckedImage:
    """The image as it can be sent. Raises UsageError when it cannot."""
    if not data:
        raise _make_refusal(name, "it is empty")
    try:
        found = check_image(data)
    except BrokenImage as broken:
        raise _make_refusal(name, str(broken)) from None
    if found is None:
        raise _make_refusal(name, "it is none of PNG, JPEG, GIF and WebP")
    return found


def _make_refusal(name: str, why: str) -> UsageError:
    return UsageError(f"{name} is an image that cannot be attached: {why}.", _SMALLER_HINT)


def has_image_data(item: Attachment) -> bool:
    """Whether the bytes that come along are an image, or are said to be one."""
    said = item.media_type.startswith("image/") or item.path.lower().endswith(_IMAGE_SUFFIXES)
    return bool(item.data) and (said or bool(detect_image_kind(item.data[:_HEAD_BYTES])))


def store_attachment(item: Attachment, folder: Path) -> Attachment:
    """The bytes that came along as a file of the session, so that its log stays small and a queue survives a crash."""
    name = item.path.rpartition("/")[2] or "clipboard"
    if has_image_data(item):
        image = store_image(validate_image(item.data, name), folder)
        return Attachment(image.path, media_type=image.media_type, name=name)
    if len(item.data) > _MAX_TEXT_BYTES or b"\0" in item.data:
        raise UsageError(
            f"{name} cannot be attached: only images and text "
            f"of at most {format_size(_MAX_TEXT_BYTES)} can come as bytes.",
            "Save it in the project and mention its path.",
        )
    target = folder / "attached" / f"{hash_bytes(item.data)[:16]}-{re.sub(r'[^A-Za-z0-9._-]', '_', name)[-60:]}"
    _write_atomically(target, item.data)
    return Attachment(str(target), item.first, item.last, media_type=item.media_type, name=name)


def _write_atomically(target: Path, data: bytes) -> None:
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
