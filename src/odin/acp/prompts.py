"""A prompt of an editor as text and attachments, and images of a session as content."""

import base64
import binascii
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from odin.acp.protocol import (
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    PromptAudio,
    PromptImage,
    PromptText,
    ResourceLink,
)
from odin.core.errors import UsageError
from odin.core.message import Attachment, Image

_MAX_IMAGE_BYTES = 8 * 1024 * 1024


class PromptContent(Struct, frozen=True):
    """`typed` is what the user wrote; `text` also has the context that the editor sent with it."""

    typed: str
    text: str
    attachments: tuple[Attachment, ...]


def read_content(blocks: Sequence[ContentBlock]) -> PromptContent:
    """Return the prompt. Files are attached by their paths. Raise UsageError for what cannot be used."""
    typed: list[str] = []
    context: list[str] = []
    attached: list[Attachment] = []
    for block in blocks:
        match block:
            case PromptText():
                typed.append(block.text)
            case PromptImage():
                attached.append(_read_image(block.data, block.mime_type, f"image {len(attached) + 1}"))
            case PromptAudio():
                raise UsageError("Audio cannot be sent.", "Send text, images or files.")
            case ResourceLink():
                path = _find_path(block.uri)
                typed.append(path or block.uri)
                if path and os.path.isfile(path):  # noqa: PTH113
                    attached.append(Attachment(path))
            case EmbeddedResource(resource=resource):
                if resource.text is not None:
                    context.append(f"{_find_path(resource.uri) or resource.uri}:\n{resource.text}")
                elif resource.blob is not None and (resource.mime_type or "").startswith("image/"):
                    name = os.path.basename(urlsplit(resource.uri).path)  # noqa: PTH119
                    attached.append(_read_image(resource.blob, resource.mime_type or "", name))
                else:
                    raise UsageError(f"{resource.uri} is neither text nor an image.", "Name the file instead.")
    words = "".join(typed)
    return PromptContent(words, "\n\n".join((words, *context)), tuple(attached))


def _find_path(uri: str) -> str:
    """Return the path of a `file:` URI, or ""."""
    parts = urlsplit(uri)
    return unquote(parts.path) if parts.scheme == "file" else ""


def _read_image(data: str, kind: str, name: str) -> Attachment:
    try:
        raw = binascii.a2b_base64(data)
    except (binascii.Error, ValueError):
        raw = b""
    if not raw:
        raise UsageError(f"{name} is not valid base64.", "Attach it again.")
    return Attachment(name, data=raw, media_type=kind)


def show_images(images: Sequence[Image]) -> Iterator[ImageContent]:
    """Yield the images that can still be read and are not too large for a line."""
    for image in images:
        try:
            path = Path(image.path)
            if path.stat().st_size <= _MAX_IMAGE_BYTES:
                yield ImageContent(data=base64.b64encode(path.read_bytes()).decode(), mime_type=image.media_type)
        except OSError:
            continue
