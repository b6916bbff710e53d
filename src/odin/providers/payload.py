"""Shared parts of the wire formats: encoding requests and images, decoding responses.

APIs limit the number of images and the size of a request. When a limit is reached, the older half of the images is
dropped at once, so that requests keep the same prefix until the limit is reached again. Images an API rejected are not
sent again; if the whole request was too large, only the newest images are sent from then on.
"""

import re
from binascii import b2a_base64, crc32
from collections import OrderedDict
from collections.abc import Callable, Iterator
from io import FileIO
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec
from msgspec import Struct

from odin.core.errors import ProviderError
from odin.core.message import Image, Message, PromptMessage, ReplyMessage, ToolMessage, ToolResult, is_extension_of
from odin.core.provider import Request

if TYPE_CHECKING:
    from hashlib import blake2b

MAX_IMAGES = 20
"""Maximum images per request. With more of them APIs accept only small ones."""

MAX_IMAGE_CHARS = 20_000_000
"""Maximum base64 characters per request."""

UNSUPPORTED_RESULT = "[Unsupported tool result type]"
"""Replaces an image for models that do not accept images."""

IMAGES_INTRO = "Images of the results above:"
"""Comes before images that cannot be part of their tool results."""

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
    return f"{UNSUPPORTED_RESULT} This model does not support images.\n{holder.text}"


class ImageSelection:
    """The images of one request."""

    def __init__(self, enabled: bool, shown: dict[ImageKey, str], why: dict[ImageKey, str]) -> None:
        self._is_enabled = enabled
        self._shown = shown
        self._reasons = why
        self.paths: set[str] = set()

    @property
    def is_empty(self) -> bool:
        return not self._shown

    @property
    def chars(self) -> int:
        return _get_size(self._shown)

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

    def select_images(self, request: Request, has_images: bool = True) -> ImageSelection:
        if not request.images or not has_images:
            return ImageSelection(request.images, {}, {})
        shown: dict[ImageKey, str] = {}
        why: dict[ImageKey, str] = {}
        paths: dict[ImageKey, str] = {}
        for place, image in _list_images(request):
            data = self._load(image)
            if data is None:
                refused = image.path in self._refused
                why[place] = "the model's API refused it" if refused else "its file is gone"
                continue
            if len(shown) >= MAX_IMAGES or _get_size(shown) + len(data) > self._room:
                for old in _pick_oldest(shown, len(data), self._room):
                    del shown[old]
                    why[old] = "there are newer ones; read the file again to see it"
            shown[place] = data
            paths[place] = image.path
        selection = ImageSelection(True, shown, why)
        selection.paths = {paths[place] for place in shown}
        while sum(map(len, self._encoded.values())) > 2 * MAX_IMAGE_CHARS:
            self._encoded.popitem(last=False)
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


def _list_images(request: Request) -> Iterator[tuple[ImageKey, Image]]:
    """Yield every image in order, except those of failed tool calls, which APIs reject."""
    for message in request.messages:
        if isinstance(message, PromptMessage):
            yield from (((id(message), at), image) for at, image in enumerate(message.images))
        elif isinstance(message, ToolMessage):
            for result in message.results:
                if not result.is_error:
                    yield from (((id(result), at), image) for at, image in enumerate(result.images))


def _get_size(shown: dict[ImageKey, str]) -> int:
    return sum(map(len, shown.values()))


def _pick_oldest(shown: dict[ImageKey, str], coming: int, room: int) -> list[ImageKey]:
    """Return the oldest images to drop so that half of the budget is free."""
    left, size = len(shown), _get_size(shown)
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
    pattern = r"image.*(not|n't) support|mmproj" if error.retryable else r"image|\bvision|multi-?modal|media.type"
    return error.status == 413 or re.search(pattern, str(error), re.IGNORECASE) is not None


_STRICT_KEYWORDS = "type properties required additionalProperties items enum const anyOf title description $defs $ref"
_STRICT_KEYS = frozenset(_STRICT_KEYWORDS.split())


def is_strict_schema(schema: dict[str, Any]) -> bool:
    """True if every API that enforces schemas takes this one.

    It has only types, choices and closed objects whose properties are all required, and it is not recursive.
    """
    definitions = schema.get("$defs", {})
    known: set[str] = set()

    def check(node: Any, parents: tuple[str, ...] = ()) -> bool:
        if not isinstance(node, dict):
            return False
        found = cast("dict[str, Any]", node)
        if "$ref" in found:
            name = str(found["$ref"]).removeprefix("#/$defs/")
            if name not in known:
                if name in parents or name not in definitions or not check(definitions[name], (*parents, name)):
                    return False
                known.add(name)
            return len(found) == 1
        kind, properties = found.get("type", ""), found.get("properties", {})
        is_closed = found.get("additionalProperties") is False and set(properties) == set(found.get("required", ()))
        if not found.keys() <= _STRICT_KEYS or not (kind or "anyOf" in found):
            return False
        if ("object" in kind and not is_closed) or ("array" in kind and "items" not in found):
            return False
        children = [*properties.values(), *found.get("anyOf", ()), *([found["items"]] if "items" in found else ())]
        return all(check(child, parents) for child in children)

    return check(schema) and all(check({"$ref": f"#/$defs/{name}"}) for name in definitions)


T = TypeVar("T")

NO_OUTPUT = "(no output)"
"""Stands for a tool result without text, which some APIs reject."""


def encode_body(body: dict[str, Any]) -> bytes:
    """Return the body as JSON. Lone surrogates become U+FFFD, because no API accepts them."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        return msgspec.json.encode(_replace_surrogates(body))


def _replace_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return re.sub("[\ud800-\udfff]", "\ufffd", value)
    if isinstance(value, (list, tuple)):
        return [_replace_surrogates(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {
            _replace_surrogates(key): _replace_surrogates(item) for key, item in cast("dict[str, Any]", value).items()
        }
    return value


def decode_event(kind: type[T], data: bytes) -> T:
    """Return one decoded event. Invalid UTF-8 and surrogate escapes are repaired."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeError):
        import json

        try:
            value = json.loads(data.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            raise msgspec.DecodeError("not JSON") from None
        return msgspec.json.decode(encode_body({"value": value})[9:-1], type=kind)


def encode_arguments(value: Any) -> str:
    """Return a call's arguments as JSON text; some servers send the object itself."""
    if value is None:
        return ""
    return value if isinstance(value, str) else encode_body({"value": value})[9:-1].decode()


def make_legal_id(call_id: str) -> str:
    """Return a call id every API accepts. Deterministic, and different ids stay different."""
    if _is_legal(call_id) and len(call_id) <= 40:
        return call_id
    return f"{_replace_illegal(call_id)[:31]}_{crc32(call_id.encode('utf-8', 'replace')):08x}"


def get_written_id_prefix(model: str) -> str:
    """Return how the ids of calls start that this model wrote as text."""
    return f"json_{crc32(model.encode()):08x}_"


def make_short_id(call_id: str) -> str:
    """Return nine letters and digits, the only form one API accepts. Deterministic; different ids stay different."""
    if len(call_id) == 9 and call_id.isascii() and call_id.isalnum():
        return call_id
    from base64 import b32encode
    from hashlib import blake2b

    return b32encode(blake2b(call_id.encode("utf-8", "replace"), digest_size=6).digest())[:9].decode().lower()


def make_legal_name(name: str) -> str:
    """Return a tool name the APIs accept; a model may have called something that is not a valid name."""
    return name if _is_legal(name) and len(name) <= 64 else _replace_illegal(name)[:64] or "unknown"


def _is_legal(text: str) -> bool:
    return text.isascii() and text.replace("_", "a").replace("-", "a").isalnum()


def _replace_illegal(text: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "_", text)


class TokenDetails(Struct):
    """Parts of a token count in the OpenAI APIs."""

    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None


class CallIdMap:
    """The call ids of one request, in a form that its API takes. They are unique in the log already.

    `freeform` are the ids of calls without JSON arguments.
    """

    def __init__(self, legal: Callable[[str], str] = make_legal_id) -> None:
        self.get = legal
        self.freeform: set[str] = set()


def format_result(text: str, is_error: bool) -> str:
    """Return the text, marked as an error if needed: the OpenAI APIs have no flag for failed calls."""
    text = text if text.strip() else NO_OUTPUT
    return f"Error: {text}" if is_error and not text.lower().startswith("error") else text


class BoundItems(Struct, frozen=True):
    """A reply with its thinking (`full`) and without it (`plain`).

    Where thinking is bound to what came before it, it names itself (`last`) and the thinking that it came after
    (`previous`, "" for none). `previous` is None where it is not bound. `full` is empty if the thinking is lost,
    because something before it has changed.
    """

    plain: list[dict[str, Any]]
    full: list[dict[str, Any]]
    last: str = ""
    previous: str | None = None


EncodeMessage = Callable[[Message, int, CallIdMap], list[dict[str, Any]] | BoundItems]
"""Returns the items of the message at this index, which may be none."""


class _Chunk(Struct, frozen=True):
    """One message as JSON, without brackets."""

    plain: bytes
    full: bytes = b""
    last: str = ""
    previous: str | None = None
    is_lost: bool = False


class EncodedHistory:
    """The messages of one conversation as an API receives them.

    Each request of a conversation extends the previous one, so only messages that were not part of it are encoded.
    `loop_start` is where the running tool loop starts: after the prompt that opened it.
    Some models use thinking only there. A prompt or note right after tool results does not start a loop: for an API it
    belongs to the same turn, and the calls still need their thinking. An empty reply is never sent, so it ends no loop.

    Bound thinking is sent as an unbroken run that ends with the newest; what is not part of it is left out here, and
    nowhere else. `last_thought` is the end of that run, `left_out` the number of replies without their thinking.
    """

    def __init__(self, messages: tuple[Message, ...] = ()) -> None:
        self.loop_start = 0
        self.has_images = False
        self.last_thought = ""
        self.left_out = 0
        self._is_looping = False
        self._messages: tuple[Message, ...] = ()
        self._form: object = None
        self._ids = CallIdMap()
        self._chunks: list[_Chunk] = []
        self._hash = start_hash()
        self.extend(messages)

    @property
    def prefix(self) -> str:
        """Identifies the messages that are encoded so far, without thinking."""
        return self._hash.hexdigest()

    def extend(self, messages: tuple[Message, ...]) -> bool:
        """Take these messages. False if they do not extend those of the previous request."""
        if not is_extension_of(messages, self._messages):
            return False
        for index in range(len(self._messages), len(messages)):
            message = messages[index]
            if isinstance(message, ReplyMessage):
                if message.calls or message.text.strip():
                    self._is_looping = bool(message.calls)
            elif isinstance(message, ToolMessage):
                self._is_looping = True
                self.has_images = self.has_images or any(result.images for result in message.results)
            else:
                self.loop_start = self.loop_start if self._is_looping else index + 1
                self.has_images = self.has_images or bool(message.images)
        self._messages = messages
        return True

    def encode(self, form: object, encode: EncodeMessage, legal: Callable[[str], str] = make_legal_id) -> bytes:
        """Return the items of all messages, without brackets. What was encoded in another `form` is encoded again."""
        if form != self._form:
            self._ids, self._chunks, self._hash = CallIdMap(legal), [], start_hash()
        self._form = None
        for index in range(len(self._chunks), len(self._messages)):
            found = encode(self._messages[index], index, self._ids)
            if isinstance(found, BoundItems):
                plain, full = _encode_items(found.plain), _encode_items(found.full)
                chunk = _Chunk(plain, full, found.last, found.previous, is_lost=not full)
            else:
                chunk = _Chunk(_encode_items(found))
            self._hash.update(chunk.plain)
            self._chunks.append(chunk)
        self._form = form
        return b",".join(filter(None, self._choose_thoughts()))

    def _choose_thoughts(self) -> list[bytes]:
        """Return the messages, with the thinking that may be sent."""
        wanted: str | None = None
        self.last_thought, self.left_out = "", 0
        chosen: list[bytes] = []
        for chunk in reversed(self._chunks):
            is_sent = bool(chunk.full) and (chunk.previous is None or wanted is None or chunk.last == wanted)
            if is_sent and chunk.previous is not None:
                self.last_thought = self.last_thought or chunk.last
                wanted = chunk.previous
            self.left_out += chunk.is_lost or (bool(chunk.full) and not is_sent)
            chosen.append(chunk.full if is_sent else chunk.plain)
        return chosen[::-1]


def start_hash(data: bytes = b"") -> "blake2b":
    """Return a running hash. Its digest has 16 letters."""
    from hashlib import blake2b

    return blake2b(data, digest_size=8)


def _encode_items(items: list[dict[str, Any]]) -> bytes:
    return encode_body({"": items})[5:-2] if items else b""


def choose_history(request: Request, history: EncodedHistory | None) -> EncodedHistory:
    """Return `history` if it can be used: which images are shown changes from request to request."""
    if history is None or (history.has_images and request.images):
        return EncodedHistory(request.messages)
    return history


def append_items(body: dict[str, Any], name: str, items: bytes) -> bytes:
    """Return the body as JSON, with a list of encoded items as its last field."""
    return b'%b,"%b":[%b]}' % (encode_body(body)[:-1], name.encode(), items)


def may_replay(message: ReplyMessage, provider: str, model: str) -> bool:
    """True if the message's thinking came from the model that is being asked."""
    return message.provider == provider and message.model == model


def get_reply_model(reported: str | None, requested: str) -> str:
    """Return the model of a reply. An API may report the exact version of the requested name."""
    reported = reported or requested
    return requested if reported.startswith(requested.removesuffix("-latest")) else reported
