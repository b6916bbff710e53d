"""Rejects what the real APIs reject, with their messages, so that mistakes are found in tests."""

import binascii
import re
from collections.abc import Collection, Iterable
from typing import Any, cast

import msgspec

from odin.core.image_header import BrokenImage, ImageHeader, read_image_header
from odin.testing.render import RenderedReply, list_item_ids
from odin.testing.script import Api

NAME_PATTERN = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class RequestRefused(Exception):
    """The request is rejected; the message is the real API's, as far as known."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        type: str | None = None,
        code: str | None = None,
        param: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.type = type
        self.code = code
        self.param = param


class IssuedIds:
    """What this server has issued, to detect when things that belong together are separated."""

    def __init__(self) -> None:
        self.thinking_calls: dict[str, str] = {}
        """Ids of calls that a thinking block preceded, with the model that thought."""
        self.thinking_groups: dict[str, list[str]] = {}
        """Proofs of thinking blocks, each with those of all blocks of its reply, in their order."""
        self.reasoning_by_item: dict[str, str] = {}
        """Ids of Responses items, with the reasoning item each one needs."""
        self.reasoning: set[str] = set()
        self.reasoning_by_call: dict[str, tuple[str, str]] = {}
        """Ids of calls that reasoning led to, with its item and the model."""

    def learn(self, api: Api, rendered: RenderedReply) -> None:
        if api == "anthropic" and rendered.thoughts:
            self.thinking_calls.update({call.id: rendered.model for call in rendered.calls})
            signatures = [signature for _, signature in rendered.thoughts]
            self.thinking_groups.update(dict.fromkeys(signatures, signatures))
        elif api == "responses" and rendered.thinking:
            reasoning, followers = list_item_ids(rendered)
            self.reasoning.add(reasoning)
            self.reasoning_by_item.update(dict.fromkeys(followers, reasoning))
            self.reasoning_by_call.update({call.id: (reasoning, rendered.model) for call in rendered.calls})


def parse_body(body: bytes) -> dict[str, Any]:
    """Return the body as an object. It must be JSON in UTF-8 without lone surrogates."""
    try:
        body.decode()
        value: Any = msgspec.json.decode(body)
    except UnicodeDecodeError as error:
        raise RequestRefused(f"The request body is not valid UTF-8: {error.reason} at byte {error.start}") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestRefused(f"The request body is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise RequestRefused("The request body is not valid JSON: expected an object")
    return cast("dict[str, Any]", value)


def check_key(api: Api, headers: dict[str, str]) -> None:
    scheme, _, key = headers.get("authorization", "").partition(" ")
    bearer = scheme.lower() == "bearer" and key.strip()
    if api == "anthropic":
        if not bearer and not headers.get("x-api-key"):
            raise RequestRefused("x-api-key header is required", status=401, type="authentication_error")
    elif api == "gemini":
        if not bearer and not headers.get("x-goog-api-key"):
            raise RequestRefused(
                "Method doesn't allow unregistered callers (callers without established identity). Please use API Key "
                "or other form of API consumer identity to call this API.",
                status=403,
            )
    elif not bearer:
        raise RequestRefused(
            "You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer "
            "auth (i.e. Authorization: Bearer YOUR_KEY).",
            status=401,
            type="invalid_request_error",
        )


def check_headers(api: Api, headers: dict[str, str]) -> None:
    check_key(api, headers)
    if api == "anthropic" and not headers.get("anthropic-version"):
        raise RequestRefused("anthropic-version: header is required")
    kind = headers.get("content-type", "")
    if kind.partition(";")[0].strip().lower() != "application/json":
        raise RequestRefused(
            f"Unsupported content type: '{kind}'. This API method only accepts 'application/json' requests.",
            type="invalid_request_error",
        )


def check_model(api: Api, body: dict[str, Any], models: Collection[str] | None) -> None:
    model = body.get("model")
    if models is None or model in models:
        return
    if api == "anthropic":
        raise RequestRefused(f"model: {model}", status=404, type="not_found_error")
    if api == "gemini":
        raise RequestRefused(
            f"models/{model} is not found for API version v1beta, or is not supported for generateContent. Call "
            "ListModels to see the list of available models and their supported methods.",
            status=404,
        )
    raise RequestRefused(
        f"The model `{model}` does not exist or you do not have access to it.",
        status=404,
        type="invalid_request_error",
        code="model_not_found",
    )


def check_window(api: Api, body: dict[str, Any], size: int, window: int | None, local: str | None) -> None:
    """Reject what does not fit. Only vLLM also counts the room for the reply."""
    if window is None:
        return
    if api == "anthropic" and size > window:
        raise RequestRefused(f"prompt is too long: {size} tokens > {window} maximum", type="invalid_request_error")
    if api == "gemini" and size > window:
        raise RequestRefused(f"The input token count ({size}) exceeds the maximum number of tokens allowed ({window}).")
    if api in ("anthropic", "gemini"):
        return
    answer = 0
    if local == "vllm":
        answer = int(body.get("max_completion_tokens") or body.get("max_tokens") or body.get("max_output_tokens") or 0)
    if size + answer <= window:
        return
    if local == "vllm":
        asked = f"you requested {size + answer} tokens ({size} in the messages, {answer} in the completion)"
        advice = "Please reduce the length of the messages or completion."
    else:
        asked, advice = f"your messages resulted in {size} tokens", "Please reduce the length of the messages."
    sentence = f"This model's maximum context length is {window} tokens. However, {asked}. {advice}"
    if api == "responses":
        sentence = "Your input exceeds the context window of this model. Please adjust your input and try again."
    param = "input" if api == "responses" else "messages"
    raise RequestRefused(sentence, type="invalid_request_error", code="context_length_exceeded", param=param)


# --- shared checks ---


def split_keys(words: str) -> frozenset[str]:
    return frozenset(words.split())


def as_object(value: Any) -> dict[str, Any] | None:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def as_list(value: Any) -> list[Any] | None:
    return cast("list[Any]", value) if isinstance(value, list) else None


def as_number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def as_int(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def make_refusal(message: str, param: str | None = None, code: str | None = None) -> RequestRefused:
    """Return an error of the OpenAI APIs."""
    return RequestRefused(message, type="invalid_request_error", code=code, param=param)


def make_missing_error(param: str) -> RequestRefused:
    return make_refusal(f"Missing required parameter: '{param}'.", param, "missing_required_parameter")


def make_value_error(value: Any, supported: str, param: str) -> RequestRefused:
    return make_refusal(f"Invalid value: '{value}'. Supported values are: {supported}.", param, "invalid_value")


def check_keys(
    found: Iterable[str], known: Collection[str], where: str = "", accepts: Collection[str] | None = ()
) -> None:
    """Reject an unknown key as the OpenAI APIs do; `where` ends with the dot before the key."""
    extra = find_unknown_key(found, known, accepts)
    if extra:
        raise make_refusal(f"Unknown parameter: '{where}{extra}'.", f"{where}{extra}", "unknown_parameter")


def find_unknown_key(found: Iterable[str], known: Collection[str], accepts: Collection[str] | None) -> str | None:
    """Return the first unknown key. With `accepts=None` everything passes, as on local servers."""
    if accepts is None:
        return None
    return next((key for key in found if key not in known and key not in accepts), None)


def is_json_object(text: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, UnicodeError):
        return False


def find_strict_schema_error(node: Any, path: tuple[str, ...] = ()) -> str | None:
    """Return why OpenAI's strict mode would reject this schema, or None."""
    schema = as_object(node)
    if schema is None:
        return None
    where = "context=" + repr(path)
    properties = as_object(schema.get("properties")) or {}
    if schema.get("type") == "object" or properties:
        if schema.get("additionalProperties") is not False:
            return f"In {where}, 'additionalProperties' is required to be supplied and to be false."
        required = as_list(schema.get("required")) or []
        missing = next((name for name in properties if name not in required), None)
        if missing is not None or "required" not in schema:
            return (
                f"In {where}, 'required' is required to be supplied and to be an array including every key in "
                f"properties. Missing '{missing}'."
            )
    children: list[tuple[tuple[str, ...], Any]] = [(("properties", name), child) for name, child in properties.items()]
    children.append((("items",), schema.get("items")))
    children += [(("anyOf", str(at)), child) for at, child in enumerate(as_list(schema.get("anyOf")) or [])]
    children += [(("$defs", name), child) for name, child in (as_object(schema.get("$defs")) or {}).items()]
    faults = (find_strict_schema_error(child, path + step) for step, child in children)
    return next((fault for fault in faults if fault), None)


MAX_BASE64 = 5 * 1024 * 1024
MAX_PIXELS = 8000
MANY_IMAGES = 20
MANY_PIXELS = 2000
_MEDIA_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_DATA_URL = re.compile(r"data:([^;,]*);base64,(.*)", re.DOTALL)
_TEXT_ONLY_MODELS = re.compile(r"gpt-3|o1-mini|o3-mini|gpt-oss|deepseek")


def _decode_base64(text: str) -> bytes | None:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError):
        return None


def _parse_image(data: bytes) -> ImageHeader | None:
    try:
        return read_image_header(data)
    except BrokenImage:
        return None


# --- Anthropic ---


def check_source(block: dict[str, Any], where: str) -> ImageHeader | None:
    """Check an image block of the Messages API and return its header, or None if it is a URL."""
    source = as_object(block.get("source")) or {}
    if source.get("type") == "url":
        return None
    data = source.get("data")
    if source.get("type") != "base64" or not isinstance(data, str):
        raise RequestRefused(f"{where}.source: Field required")
    kind = source.get("media_type")
    if kind not in _MEDIA_TYPES:
        raise RequestRefused(
            f"{where}.source.base64.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'"
        )
    if not data:
        raise RequestRefused(f"{where}.source.base64: image cannot be empty")
    if len(data) > MAX_BASE64:
        raise RequestRefused(
            f"{where}.source.base64: image exceeds 5 MB maximum: {len(data)} bytes > {MAX_BASE64} bytes"
        )
    raw = _decode_base64(data)
    if raw is None:
        raise RequestRefused(f"{where}.source.base64.data: invalid base64 data")
    picture = _parse_image(raw)
    if picture is None:
        raise RequestRefused("Could not process image")
    if picture.media_type != kind:
        raise RequestRefused(
            f"{where}.source.base64.data: The image was specified using the {kind} media type, but the image appears "
            f"to be a {picture.media_type} image"
        )
    return picture


def check_sizes(pictures: list[tuple[str, ImageHeader]]) -> None:
    """Check the longest side, which is limited further if a request has many images."""
    many = len(pictures) > MANY_IMAGES
    most = MANY_PIXELS if many else MAX_PIXELS
    for where, picture in pictures:
        if max(picture.width, picture.height) > most:
            what = " for many-image requests" if many else ""
            raise RequestRefused(
                f"{where}.source.base64.data: At least one of the image dimensions exceed max allowed size{what}: "
                f"{most} pixels"
            )


# --- Gemini ---


def check_inline_data(value: Any, where: str) -> None:
    """Check the image in an inlineData part."""
    blob = as_object(value) or {}
    kind, data = blob.get("mimeType"), blob.get("data")
    if not isinstance(kind, str) or kind not in ("image/jpeg", "image/png", "image/webp"):
        raise RequestRefused(f"Unsupported MIME type: {kind}")
    raw = _decode_base64(data) if isinstance(data, str) else None
    if raw is None:
        raise RequestRefused(f"Invalid value at '{where}.inline_data.data' (TYPE_BYTES), Base64 decoding failed")
    picture = _parse_image(raw)
    if picture is None or picture.media_type != kind:
        raise RequestRefused("Unable to process input image. Please retry or report the problem.")


# --- OpenAI ---


def check_image_part(part: dict[str, Any], where: str, model: str) -> None:
    """Check an image part of a chat message."""
    image = as_object(part.get("image_url"))
    if image is None:
        raise make_refusal(f"Invalid type for '{where}': expected an object.", where, "invalid_type")
    check_keys(image, ("url", "detail"), f"{where}.")
    check_url(image.get("url"), f"{where}.url", model)


def check_url(url: Any, param: str, model: str) -> None:
    """Check an image URL of either OpenAI API: a web address or a data URL."""
    if _TEXT_ONLY_MODELS.search(model):
        raise make_refusal(
            "Invalid content type. image_url is only supported by certain models.", param, "invalid_value"
        )
    if not isinstance(url, str) or not url:
        raise make_missing_error(param)
    if url.startswith(("http://", "https://")):
        return
    found = _DATA_URL.fullmatch(url)
    if found is None:
        raise make_refusal(
            f"Invalid '{param}'. Expected a valid URL, but got a value with an invalid format.", param, "invalid_value"
        )
    if not found[1].startswith("image/"):
        raise make_refusal("Invalid MIME type. Only image types are supported.", param, "invalid_image_format")
    raw = _decode_base64(found[2])
    if not raw:
        raise make_refusal(
            f"Invalid '{param}'. Expected a base64-encoded data URL with an image MIME type.", param, "invalid_value"
        )
    if _parse_image(raw) is None or found[1] not in _MEDIA_TYPES:
        raise make_refusal(
            "You uploaded an unsupported image. Please make sure your image has of one the following formats: "
            "['png', 'jpeg', 'gif', 'webp'].",
            None,
            "invalid_image_format",
        )
