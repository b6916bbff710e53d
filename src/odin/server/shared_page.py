"""What the page of a shared session shows: its copy, folded to the blocks of a transcript."""

import base64
import threading
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from odin.core.event import SessionOpened
from odin.core.message import Image
from odin.remote.protocol import SharedSession
from odin.server.page.blocks import encode_block
from odin.server.shares import OpenedShare, ShareRefused
from odin.session.export_html import MAX_IMAGE_BYTES, read_image
from odin.session.log import LOG_NAME, read_log
from odin.ui.transcript.blocks import TranscriptBlock
from odin.ui.transcript.model import TranscriptModels
from odin.ui.transcript.words import ShownFolders

_MAX_ENCODED = 4
"""Pages that are kept, so that many readers of one cost little."""

_encoding = threading.Lock()


def encode_shared_session(share: OpenedShare) -> bytes:
    """Return the `SharedSession` as JSON. Reading a long copy takes a while: use a thread.

    Raise ShareRefused if it was just removed.
    """
    log, record = share.folder / LOG_NAME, share.record
    try:
        with _encoding:
            return _encode(log, log.stat().st_mtime_ns, record.title, record.created, record.expires)
    except FileNotFoundError as error:
        raise ShareRefused from error


@lru_cache(maxsize=_MAX_ENCODED)
def _encode(log: Path, _: int, title: str, created: float, expires: float) -> bytes:
    cwd = model = ""
    models = TranscriptModels()
    for envelope in read_log(log):
        if isinstance(envelope.event, SessionOpened):
            cwd, model = envelope.event.cwd, envelope.event.model
        models.apply(envelope)
    shown = ShownFolders(cwd)
    blocks = tuple(_encode_with_images(block, shown, log.parent) for block in models[""].blocks)
    return msgspec.json.encode(SharedSession(title, created, expires, cwd, model, 0, blocks))


def _encode_with_images(block: TranscriptBlock, shown: ShownFolders, folder: Path) -> dict[str, Any]:
    """Return the block with its images in it: a reader has no token to fetch them with."""
    encoded = encode_block(block, shown)
    images: tuple[Image, ...] = getattr(block, "images", ())
    for image, about in zip(images, encoded.get("images", ()), strict=False):
        if (data := read_image(image, folder, MAX_IMAGE_BYTES)) is not None:
            about["data"] = base64.b64encode(data).decode()
    return encoded
