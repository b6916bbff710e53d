"""`@path` mentions and attachments of a prompt: which files, folders and images it names.

A mention is ambiguous (punctuation may belong to the path or to the sentence), so each has several candidates, and the
first that exists counts.
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
from odin.core.image_header import BrokenImage
from odin.core.message import MAX_IMAGE_BYTES, MAX_IMAGES, Attachment, detect_image_kind
from odin.core.op import Prompt
from odin.core.text import get_typed_text
from odin.policy import paths
from odin.tools.images import CheckedImage, check_image, format_size, store_image

MAX_MENTIONS = 50
"""Maximum number of mentions in one text."""

_MAX_LENGTH = 4096
_MAX_CANDIDATES = 40
_MENTION = re.compile(r'(?<![\w@/.+-])@(?:"([^"\n]{1,4096})"(:\d{1,9}(?:-\d{1,9})?)?|([^\s"@][^\s"]*))')
_LINES = re.compile(r"(.+?):(\d{1,9})(?:-(\d{1,9}))?")

_TRAILING_PUNCTUATION = frozenset(".,;:!?)]}>'`*_…。，、；：！？）」』》")
"""Characters that may follow a path without being part of it."""

_FILE_NAME = re.compile(
    r"[\w./~+ -]+\.(?:c|cc|cfg|conf|cpp|cs|css|csv|gif|go|h|hpp|html|ini|ipynb|java|jpe?g|jsx?|json|kt|log|lua|md|pdf"
    r"|php|png|pyi?|rb|rs|rst|scss|sh|sql|svg|swift|toml|tsx?|txt|webp|xml|ya?ml)",
    re.IGNORECASE,
)
"""A mention that can only be meant for a file, unlike `@dataclass` or `@you`."""

_IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
_HEAD_BYTES = 16
_MAX_TEXT_BYTES = 5_000_000
_SMALLER_HINT = "Make a smaller or valid copy, for example with `magick IMAGE -resize 2000x2000 copy.png`."


def find_mentions(text: str) -> Iterator[tuple[Attachment, ...]]:
    """Yield the candidates of each mention, longest first."""
    if "@" not in text:
        return
    for count, match in enumerate(_MENTION.finditer(text)):
        if count == MAX_MENTIONS:
            return
        if match[1] is not None:
            yield (_parse_line_range(f"{match[1]}{match[2] or ''}") or Attachment(match[1]),)
        elif len(match[3]) <= _MAX_LENGTH:
            candidates = tuple(islice(_list_candidates(match[3]), _MAX_CANDIDATES))
            if candidates:
                yield candidates


def _list_candidates(word: str) -> Iterator[Attachment]:
    for part in (word, *(word[:at] for at in range(len(word) - 1, 0, -1) if word[at] in _TRAILING_PUNCTUATION)):
        if not part.strip("./~"):
            continue
        yield Attachment(part)
        if (ranged := _parse_line_range(part)) is not None:
            yield ranged


def _parse_line_range(word: str) -> Attachment | None:
    """Parse `a.py:10` (one line) or `a.py:10-20` (a range, in either order); None for other words."""
    match = _LINES.fullmatch(word)
    if match is None:
        return None
    first = int(match[2])
    last = int(match[3] or first)
    return Attachment(match[1], max(1, min(first, last)), max(1, first, last))


class PathBase(Struct, frozen=True):
    """The folders that paths are relative to: working directory, project and home. `others` are those besides the
    project."""

    cwd: str
    root: str
    home: str
    others: tuple[str, ...] = ()

    def contains(self, path: str) -> bool:
        """True if a path lies in the project or one of the others."""
        return any(paths.is_inside(path, root, self.cwd) for root in (self.root, *self.others))

    def resolve(self, path: str) -> str:
        """Return the absolute path, without `..`. A path that leads nowhere stays as it is."""
        found = paths.resolve_given(path, self.cwd, self.home)
        return path if found.fault else found.shown


def find_attachments(prompt: Prompt, base: PathBase) -> list[Attachment]:
    """Return the attachments and the existing mentioned files of a prompt, with absolute paths, without duplicates.

    If the text comes from a custom command, mentions outside of the project and the other folders count only if the
    user typed them. Text that was piped to Odin mentions nothing: it may be anyone's.
    """
    found = [structs.replace(item, path=base.resolve(item.path)) for item in prompt.attachments if not item.data]
    found += _find_mentioned(get_typed_text(prompt.text), base, get_typed_text(prompt.display_text))
    return list(dict.fromkeys(found))


def _find_mentioned(text: str, base: PathBase, display_text: str) -> Iterator[Attachment]:
    typed = set(_find_mentioned(display_text, base, "")) if display_text and display_text != text else None
    for candidates in find_mentions(text):
        resolved = (structs.replace(item, path=base.resolve(item.path)) for item in candidates)
        item = next((item for item in resolved if os.path.exists(item.path)), None)  # noqa: PTH110 (it may hold a NUL)
        if item is None:
            continue
        if typed is None or item in typed or base.contains(item.path):
            yield item


def find_missing(text: str, base: PathBase) -> list[str]:
    """Return the mentions that look like files but lead nowhere."""
    found: list[str] = []
    for candidates in find_mentions(text):
        if not any(os.path.exists(base.resolve(item.path)) for item in candidates):  # noqa: PTH110
            found += [item.path for item in candidates if _FILE_NAME.fullmatch(item.path)][:1]
    return list(dict.fromkeys(found))


def is_image(item: Attachment) -> bool:
    """True if a regular file is an image by its content or its suffix."""
    try:
        with open(os.open(item.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return False
            head = file.read(_HEAD_BYTES)
    except (OSError, ValueError):
        return False
    return bool(detect_image_kind(head)) or item.path.lower().endswith(_IMAGE_SUFFIXES)


def check_images(items: Iterable[Attachment], inline_count: int) -> None:
    """Raise UsageError for images no model accepts. `inline_count` is the number of images that come as bytes."""
    images = [item for item in items if is_image(item)]
    count = len(images) + inline_count
    if count > MAX_IMAGES:
        raise UsageError(
            f"{count} images are attached; a prompt can have at most {MAX_IMAGES}.",
            "Send the others with the next prompt.",
        )
    for item in images:
        name = Path(item.path).name
        size = Path(item.path).stat().st_size
        if size > MAX_IMAGE_BYTES:
            raise _make_refusal(name, f"it has {format_size(size)}; at most {format_size(MAX_IMAGE_BYTES)} are allowed")
        validate_image(Path(item.path).read_bytes(), name)


def validate_image(data: bytes, name: str) -> CheckedImage:
    """Return the validated image. Raise UsageError if it cannot be sent."""
    if not data:
        raise _make_refusal(name, "it is empty")
    try:
        image = check_image(data)
    except BrokenImage as broken:
        raise _make_refusal(name, str(broken)) from None
    if image is None:
        raise _make_refusal(name, "it is not a PNG, JPEG, GIF or WebP image")
    return image


def _make_refusal(name: str, reason: str) -> UsageError:
    return UsageError(f"{name} cannot be attached: {reason}.", _SMALLER_HINT)


def has_image_data(item: Attachment) -> bool:
    """True if the attached bytes are an image, by content, media type or suffix."""
    is_declared = item.media_type.startswith("image/") or item.path.lower().endswith(_IMAGE_SUFFIXES)
    return bool(item.data) and (is_declared or bool(detect_image_kind(item.data[:_HEAD_BYTES])))


def store_attachment(item: Attachment, folder: Path) -> Attachment:
    """Save attached bytes as a file of the session, so that the log stays small and a queue survives a crash."""
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
    # Write a file so that it appears complete or not at all.
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(item.data)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    return Attachment(str(target), item.first, item.last, media_type=item.media_type, name=name)
