"""What the APIs refuse of images: each in its own words, by the bytes that were sent."""

import binascii
import re
from typing import Any

from odin.core.picture import BrokenImage, ImageHeader, read_image_header
from odin.testing.strict import RequestRefused, as_object, find_unknown_key

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
    """An image block of the Messages API. What it shows, or None when it is only named by an address."""
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
    """The longest side. With many images in a request it is shorter."""
    many = len(pictures) > MANY_IMAGES
    most = MANY_PIXELS if many else MAX_PIXELS
    for where, picture in pictures:
        if max(picture.width, picture.height) > most:
            what = " for many-image requests" if many else ""
            raise RequestRefused(
                f"{where}.source.base64.data: At least one of the image dimensions exceed max allowed size{what}: "
                f"{most} pixels"
            )


# --- OpenAI ---


def check_image_part(part: dict[str, Any], where: str, model: str) -> None:
    """A part of a chat message that holds an image."""
    image = as_object(part.get("image_url"))
    if image is None:
        raise _make_image_refusal(f"Invalid type for '{where}': expected an object.", where, "invalid_type")
    extra = find_unknown_key(image, ("url", "detail"), ())
    if extra:
        raise _make_image_refusal(f"Unknown parameter: '{where}.{extra}'.", f"{where}.{extra}", "unknown_parameter")
    check_url(image.get("url"), f"{where}.url", model)


def check_url(url: Any, param: str, model: str) -> None:
    """The address of an image in either OpenAI API: an address of the web, or the image itself."""
    if _TEXT_ONLY_MODELS.search(model):
        raise _make_image_refusal(
            "Invalid content type. image_url is only supported by certain models.", param, "invalid_value"
        )
    if not isinstance(url, str) or not url:
        raise _make_image_refusal(f"Missing required parameter: '{param}'.", param, "missing_required_parameter")
    if url.startswith(("http://", "https://")):
        return
    found = _DATA_URL.fullmatch(url)
    if found is None:
        raise _make_image_refusal(
            f"Invalid '{param}'. Expected a valid URL, but got a value with an invalid format.", param, "invalid_value"
        )
    if not found[1].startswith("image/"):
        raise _make_image_refusal("Invalid MIME type. Only image types are supported.", param, "invalid_image_format")
    raw = _decode_base64(found[2])
    if not raw:
        raise _make_image_refusal(
            f"Invalid '{param}'. Expected a base64-encoded data URL with an image MIME type.", param, "invalid_value"
        )
    if _parse_image(raw) is None or found[1] not in _MEDIA_TYPES:
        raise _make_image_refusal(
            "You uploaded an unsupported image. Please make sure your image has of one the following formats: "
            "['png', 'jpeg', 'gif', 'webp'].",
            None,
            "invalid_image_format",
        )


def _make_image_refusal(message: str, param: str | None, code: str) -> RequestRefused:
    return RequestRefused(message, type="invalid_request_error", code=code, param=param)
