"""Chooses which images of a conversation a request includes, and encodes them.

APIs limit the number of images and the size of a request. When a limit is reached, the older half is dropped at once,
so that requests keep the same prefix until the limit is reached again. Images an API rejected are not sent again; if
the whole request was too large, only the newest images are sent from then on.
"""

import re
from binascii import b2a_base64
from collections import OrderedDict
from collections.abc import Iterator
from io import FileIO

from msgspec import Struct

from odin.core.errors import ProviderError
from odin.core.message import Image, PromptMessage, ToolMessage, ToolResult
from odin.core.provider import Request

MAX_IMAGES = 20
"""Maximum images per request. With more of them APIs accept only small ones."""

MAX_IMAGE_CHARS = 20_000_000
"""Maximum base64 characters per request."""

UNSUPPORTED_RESULT = "[Unsupported tool result type]"
"""Replaces an image for models that do not accept images."""

IMAGES_NOT_SHOWN = "(The user attached images, which this model is not shown.)"
"""Added to a prompt whose images the model does not accept."""

_MAX_ONE_IMAGE = 5 * 1024 * 1024

_SHRINK_FACTOR = 4
"""After a request was too large, its images may use only one part in this many."""

ImageKey = tuple[int, int]
"""Identifies an image: the identity of its result or prompt, and its position there."""


class ShownContent(Struct, frozen=True):
    """A result or prompt as sent. Images are (media type, base64)."""

    text: str
    images: tuple[tuple[str, str], ...] = ()


def render_without_images(holder: ToolResult | PromptMessage) -> str:
    """Return the text for a model that does not accept images."""
    if not holder.images:
        return holder.text
    if isinstance(holder, PromptMessage):
        return f"{holder.text}\n{IMAGES_NOT_SHOWN}" if holder.text else IMAGES_NOT_SHOWN
    return f"{UNSUPPORTED_RESULT} This model is not shown images.\n{holder.text}"


class ImageSelection:
    """The images of one request."""

    def __init__(self, sees: bool, shown: dict[ImageKey, str], why: dict[ImageKey, str]) -> None:
        self._is_enabled = sees
        self._shown = shown
        self._reasons = why
        self.paths: set[str] = set()

    @property
    def is_empty(self) -> bool:
        return not self._shown

    @property
    def chars(self) -> int:
        return _size_of(self._shown)

    @property
    def is_single(self) -> bool:
        return len(self._shown) == 1

    def render(self, holder: ToolResult | PromptMessage) -> ShownContent:
        if not holder.images or not self._is_enabled:
            return ShownContent(render_without_images(holder))
        images: list[tuple[str, str]] = []
        lines = [holder.text] if holder.text else []
        for at, image in enumerate(holder.images):
            data = self._shown.get((id(holder), at))
            if data is not None:
                images.append((image.media_type, data))
            else:
                which = f" {at + 1}" if len(holder.images) > 1 else ""
                lines.append(f"(image{which} no longer shown: {self._reasons.get((id(holder), at), 'left out')})")
        return ShownContent("\n".join(lines), tuple(images))


class ImageBudget:
    """The images sent to one provider, encoded once, and which of them it rejected."""

    def __init__(self) -> None:
        self._encoded: OrderedDict[str, str] = OrderedDict()
        self._accepted: set[str] = set()
        self._refused: set[str] = set()
        self._room = MAX_IMAGE_CHARS

    def select_images(self, request: Request) -> ImageSelection:
        if not request.images:
            return ImageSelection(False, {}, {})
        shown: dict[ImageKey, str] = {}
        why: dict[ImageKey, str] = {}
        paths: dict[ImageKey, str] = {}
        for place, image in _list_images(request):
            data = self._load(image)
            if data is None:
                refused = image.path in self._refused
                why[place] = "the model's API refused it" if refused else "its file is gone"
                continue
            if len(shown) >= MAX_IMAGES or _size_of(shown) + len(data) > self._room:
                for old in _pick_oldest(shown, len(data), self._room):
                    del shown[old]
                    why[old] = "there are newer ones; read the file again to see it"
            shown[place] = data
            paths[place] = image.path
        selection = ImageSelection(True, shown, why)
        selection.paths = {paths[place] for place in shown}
        self._trim()
        return selection

    def accept(self, selection: ImageSelection) -> None:
        self._accepted |= selection.paths

    def refuse(self, selection: ImageSelection) -> None:
        """Handle a rejection: images new to the API are the likely cause; if there are none, all are."""
        self._refused |= selection.paths - self._accepted or selection.paths

    def shrink(self, selection: ImageSelection) -> None:
        """Handle a size limit lower than the API's: keep only the newest images."""
        if selection.is_single:
            self._refused |= selection.paths
        else:
            self._room = selection.chars // _SHRINK_FACTOR

    def _load(self, image: Image) -> str | None:
        if image.path in self._refused:
            return None
        if image.path not in self._encoded:
            try:
                with FileIO(image.path) as file:
                    raw = file.readall()
            except (OSError, ValueError):
                return None
            data = b2a_base64(raw, newline=False).decode()
            if not data or len(data) > _MAX_ONE_IMAGE:
                return None
            self._encoded[image.path] = data
        self._encoded.move_to_end(image.path)
        return self._encoded[image.path]

    def _trim(self) -> None:
        while sum(map(len, self._encoded.values())) > 2 * MAX_IMAGE_CHARS:
            self._encoded.popitem(last=False)


def _list_images(request: Request) -> Iterator[tuple[ImageKey, Image]]:
    """Yield every image in order, except those of failed tool calls, which APIs reject."""
    for message in request.messages:
        if isinstance(message, PromptMessage):
            yield from (((id(message), at), image) for at, image in enumerate(message.images))
        elif isinstance(message, ToolMessage):
            for result in message.results:
                if not result.is_error:
                    yield from (((id(result), at), image) for at, image in enumerate(result.images))


def _size_of(shown: dict[ImageKey, str]) -> int:
    return sum(map(len, shown.values()))


def _pick_oldest(shown: dict[ImageKey, str], coming: int, room: int) -> list[ImageKey]:
    """Return the oldest images to drop so that half of the budget is free."""
    left, size = len(shown), _size_of(shown)
    gone: list[ImageKey] = []
    for place, data in shown.items():
        if left <= MAX_IMAGES // 2 and size + coming <= max(room // 2, coming):
            break
        gone.append(place)
        left, size = left - 1, size - len(data)
    return gone


def make_data_url(media_type: str, data: str) -> str:
    return f"data:{media_type};base64,{data}"


def is_about_images(error: ProviderError) -> bool:
    """True if a rejection may be caused by the images. A temporary failure says so in more words."""
    pattern = r"image.*(not|n't) support|mmproj" if error.retryable else r"image|vision|multi-?modal|media.type"
    return error.status == 413 or re.search(pattern, str(error), re.IGNORECASE) is not None
