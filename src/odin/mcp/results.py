"""What a server returns, as Odin's tools return it: text, images, and files for what no model can read."""

import base64
import binascii
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import msgspec

from odin.core.image_header import BrokenImage
from odin.core.message import MAX_IMAGES, Image
from odin.core.tool import ToolOutput
from odin.tools.images import check_image, format_size, store_image

MAX_TEXT_CHARS = 1_000_000
"""Longer results are cut here; what is too long for the model is saved by the engine."""

MAX_FILE_BYTES = 20_000_000


class ResultReader:
    """Reads the content blocks of one result. Images and files are stored in the session's folder."""

    def __init__(self, folder: Path, server: str) -> None:
        self._folder = folder
        self._server = server
        self._parts: list[str] = []
        self._images: list[Image] = []

    def read_call(self, result: Any) -> ToolOutput:
        """Return the output of a tool call."""
        self._add_blocks(result.content)
        structured = result.structured_content
        if structured is not None and not _is_told(structured, self._parts):
            self._parts.append(msgspec.json.encode(structured).decode())
        return self._build(is_error=bool(result.is_error))

    def read_resource(self, result: Any) -> ToolOutput:
        for item in result.contents:
            self._add_resource(item)
        return self._build()

    def read_prompt(self, result: Any) -> ToolOutput:
        """Return the messages of a prompt as one text with images. Those of the assistant are marked."""
        for message in result.messages:
            if message.role == "assistant":
                self._parts.append("[assistant]")
            self._add_blocks([message.content])
        return self._build()

    def _build(self, *, is_error: bool = False) -> ToolOutput:
        text = "\n".join(self._parts) or "(empty)"
        if len(text) > MAX_TEXT_CHARS:
            text = (
                f"{text[:MAX_TEXT_CHARS]}\n[The result was cut after {MAX_TEXT_CHARS:,} of {len(text):,} characters.]"
            )
        return ToolOutput(text, is_error=is_error, images=tuple(self._images))

    def _add_blocks(self, blocks: Iterable[Any]) -> None:
        for block in blocks:
            if block.annotations is not None and block.annotations.audience == ["user"]:
                self._parts.append("[meant for the user]")
            if block.type == "text":
                self._parts.append(block.text)
            elif block.type in ("image", "audio"):
                self._add_data(block.data, block.mime_type, block.type)
            elif block.type == "resource":
                self._parts.append(f"[resource {block.resource.uri}]")
                self._add_resource(block.resource)
            elif block.type == "resource_link":
                about = "; ".join(filter(None, (block.title or block.name, block.mime_type, block.description)))
                self._parts.append(f"[resource {block.uri} ({about}): read it with ReadMcpResource]")
            else:
                self._parts.append(f"[content of the type {block.type!r} is not supported]")

    def _add_resource(self, item: Any) -> None:
        if getattr(item, "text", None) is not None:
            self._parts.append(item.text)
        elif getattr(item, "blob", None) is not None:
            self._add_data(item.blob, item.mime_type or "", "resource")

    def _add_data(self, encoded: str, media_type: str, kind: str) -> None:
        """Add an image, or save other data as a file."""
        if len(encoded) > MAX_FILE_BYTES * 4 // 3:
            self._parts.append(f"[{kind} left out: it has more than {format_size(MAX_FILE_BYTES)}]")
            return
        try:
            data = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            self._parts.append(f"[{kind} left out: it is not valid base64]")
            return
        if not self._add_image(data):
            import hashlib

            suffix = re.sub(r"[^a-z0-9]", "", media_type.rpartition("/")[2].lower())[:8] or "bin"
            folder = self._folder / "outputs"
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            path = folder / f"mcp-{hashlib.sha256(data).hexdigest()[:16]}.{suffix}"
            path.write_bytes(data)
            self._parts.append(f"[{kind} of {format_size(len(data))} ({media_type or 'unknown type'}) saved as {path}]")

    def _add_image(self, data: bytes) -> bool:
        """Add the data as an image. False if it is none that a model reads."""
        try:
            image = check_image(data)
        except BrokenImage as broken:
            self._parts.append(f"[image left out: {broken}]")
            return True
        if image is None:
            return False
        if len(self._images) >= MAX_IMAGES:
            self._parts.append(f"[image left out: a result has at most {MAX_IMAGES} images]")
        else:
            self._images.append(store_image(image, self._folder))
            self._parts.append(f"(image: {image.describe()})")
        return True


def _is_told(structured: Any, parts: list[str]) -> bool:
    """True if a text says the same, or several do, one for each item.

    Servers made with the official package wrap what is no object: `{"result": "text"}`.
    """
    fields = cast("dict[str, Any]", structured) if isinstance(structured, dict) else {}
    value: Any = fields["result"] if fields.keys() == {"result"} else cast("Any", structured)
    items = cast("list[Any]", value) if isinstance(value, list) else []
    if items and len(items) == len(parts) and all(map(_is_same, parts, items)):
        return True
    return any(_is_same(part, structured) or _is_same(part, value) for part in parts)


def _is_same(text: str, value: Any) -> bool:
    """True if this text, or what it is the JSON of, is the value."""
    if text == value:
        return True
    try:
        return msgspec.json.decode(text) == value
    except (msgspec.DecodeError, RecursionError):
        return False
