"""What the content of a user message says: its words, and the pictures that come with them."""

import binascii
from typing import Any, cast

from msgspec import Struct

from odin.core.attachment import Attachment


class UserContent(Struct, frozen=True):
    """`left_out` are the kinds of blocks that no prompt can hold."""

    text: str
    attached: tuple[Attachment, ...] = ()
    left_out: tuple[str, ...] = ()


def parse_content(content: str | list[dict[str, Any]]) -> UserContent:
    if isinstance(content, str):
        return UserContent(content)
    texts: list[str] = []
    attached: list[Attachment] = []
    left_out: list[str] = []
    for block in content:
        if block.get("type") == "text":
            texts.append(str(block.get("text", "")))
        elif (image := _parse_image(block, len(attached) + 1)) is not None:
            attached.append(image)
        else:
            left_out.append(str(block.get("type")))
    return UserContent("\n".join(texts), tuple(attached), tuple(left_out))


def _parse_image(block: dict[str, Any], number: int) -> Attachment | None:
    """The picture in a block that brings its bytes along; one that is only named by an address is not fetched."""
    source = block.get("source")
    if block.get("type") != "image" or not isinstance(source, dict):
        return None
    found = cast("dict[str, Any]", source)
    data, kind = found.get("data"), found.get("media_type")
    if found.get("type") != "base64" or not isinstance(data, str) or not isinstance(kind, str):
        return None
    try:
        raw = binascii.a2b_base64(data, strict_mode=True)
    except (binascii.Error, ValueError):
        return None
    return Attachment(f"image {number}", data=raw, media_type=kind) if raw and kind.startswith("image/") else None
