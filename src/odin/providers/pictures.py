"""Which images of a conversation a request shows, and their bytes as JSON carries them.

APIs limit how many images a request may hold and how large it may be, and a conversation only grows. When a limit is
reached, the older half is no longer shown, in one go: so the bytes sent before stay the beginning of the next request
until the limit is reached again. What an API refuses is not sent to it a second time; when it is the size of a whole
request that was refused, fewer are shown from then on, the newest.
"""

import re
from binascii import b2a_base64
from collections import OrderedDict
from collections.abc import Iterator
from io import FileIO

from msgspec import Struct

from odin.core.errors import ProviderError
from odin.core.message import Image, ToolMessage, ToolResult, UserMessage
from odin.core.provider import Request

MOST = 20
"""Images in one request. With more of them, an API takes only small ones."""

MOST_CHARS = 20_000_000
"""Characters of base64 in one request."""

UNSUPPORTED = "[Unsupported tool result type]"
"""Stands where a model is not shown an image."""

BLIND = "(The user attached images, which this model is not shown.)"
"""Stands beside a prompt with images."""

_ONE = 5 * 1024 * 1024

_LESS = 4
"""After a request that was too large, one part in so many of what its images took is left for them."""

Place = tuple[int, int]
"""One image: the identity of its result or prompt, and its position there."""


class Shown(Struct, frozen=True):
    """A result or a prompt as the model gets it. Images are (media type, base64)."""

    text: str
    images: tuple[tuple[str, str], ...] = ()


def told(holder: ToolResult | UserMessage) -> str:
    """The text for a model that is not shown images."""
    if not holder.images:
        return holder.text
    if isinstance(holder, UserMessage):
        return f"{holder.text}\n{BLIND}" if holder.text else BLIND
    return f"{UNSUPPORTED} This model is not shown images.\n{holder.text}"


class Album:
    """The images of one request."""

    def __init__(self, sees: bool, shown: dict[Place, str], why: dict[Place, str]) -> None:
        self._sees = sees
        self._shown = shown
        self._why = why
        self.paths: set[str] = set()

    @property
    def empty(self) -> bool:
        return not self._shown

    @property
    def chars(self) -> int:
        return _size(self._shown)

    @property
    def single(self) -> bool:
        return len(self._shown) == 1

    def of(self, holder: ToolResult | UserMessage) -> Shown:
        if not holder.images or not self._sees:
            return Shown(told(holder))
        images: list[tuple[str, str]] = []
        lines = [holder.text] if holder.text else []
        for at, image in enumerate(holder.images):
            data = self._shown.get((id(holder), at))
            if data is not None:
                images.append((image.media_type, data))
            else:
                which = f" {at + 1}" if len(holder.images) > 1 else ""
                lines.append(f"(image{which} no longer shown: {self._why.get((id(holder), at), 'left out')})")
        return Shown("\n".join(lines), tuple(images))


class Pictures:
    """The images one provider has been shown: encoded once, and what became of them."""

    def __init__(self) -> None:
        self._encoded: OrderedDict[str, str] = OrderedDict()
        self._taken: set[str] = set()
        self._refused: set[str] = set()
        self._room = MOST_CHARS

    def album(self, request: Request) -> Album:
        if not request.images:
            return Album(False, {}, {})
        shown: dict[Place, str] = {}
        why: dict[Place, str] = {}
        paths: dict[Place, str] = {}
        for place, image in _images(request):
            data = self._load(image)
            if data is None:
                refused = image.path in self._refused
                why[place] = "the model's API refused it" if refused else "its file is gone"
                continue
            if len(shown) >= MOST or _size(shown) + len(data) > self._room:
                for old in _older(shown, len(data), self._room):
                    del shown[old]
                    why[old] = "there are newer ones; read the file again to see it"
            shown[place] = data
            paths[place] = image.path
        album = Album(True, shown, why)
        album.paths = {paths[place] for place in shown}
        self._trim()
        return album

    def accepted(self, album: Album) -> None:
        self._taken |= album.paths

    def refused(self, album: Album) -> None:
        """The API would not have them: those that are new to it are the likely cause; if none is, all are."""
        self._refused |= album.paths - self._taken or album.paths

    def too_large(self, album: Album) -> None:
        """A server on the way takes less than the API: the newest images are the ones to keep."""
        if album.single:
            self._refused |= album.paths
        else:
            self._room = album.chars // _LESS

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
            if not data or len(data) > _ONE:
                return None
            self._encoded[image.path] = data
        self._encoded.move_to_end(image.path)
        return self._encoded[image.path]

    def _trim(self) -> None:
        while sum(map(len, self._encoded.values())) > 2 * MOST_CHARS:
            self._encoded.popitem(last=False)


def _images(request: Request) -> Iterator[tuple[Place, Image]]:
    """Every image in its order. An API takes none beside an error."""
    for message in request.messages:
        if isinstance(message, UserMessage):
            yield from (((id(message), at), image) for at, image in enumerate(message.images))
        elif isinstance(message, ToolMessage):
            for result in message.results:
                if not result.is_error:
                    yield from (((id(result), at), image) for at, image in enumerate(result.images))


def _size(shown: dict[Place, str]) -> int:
    return sum(map(len, shown.values()))


def _older(shown: dict[Place, str], coming: int, room: int) -> list[Place]:
    """The oldest images, as many as have to go so that half of the room is free."""
    left, size = len(shown), _size(shown)
    gone: list[Place] = []
    for place, data in shown.items():
        if left <= MOST // 2 and size + coming <= max(room // 2, coming):
            break
        gone.append(place)
        left, size = left - 1, size - len(data)
    return gone


def data_url(media_type: str, data: str) -> str:
    return f"data:{media_type};base64,{data}"


def about_images(error: ProviderError) -> bool:
    """Whether a refusal may be for the images in the request. A failure that may pass says so in more words."""
    pattern = r"image.*(not|n't) support|mmproj" if error.retryable else r"image|vision|multi-?modal|media.type"
    return error.status == 413 or re.search(pattern, str(error), re.IGNORECASE) is not None
