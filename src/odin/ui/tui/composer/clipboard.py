"""What is in the clipboard of the machine in front of the person, asked of whatever program there is for it."""

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from odin.core.attachment import MAX_IMAGE_BYTES

PATIENCE_S = 3.0
"""How long one of the programs may take: the owner of a selection can be gone."""

_IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_MAX_BYTES = 2 * MAX_IMAGE_BYTES + 100_000
_MACOS_PNG = re.compile(rb"\xc2\xabdata PNGf([0-9A-Fa-f]+)\xc2\xbb")


class ClipboardContent(Struct, frozen=True):
    """A picture, or else a text; neither when nothing could be read."""

    image: bytes = b""
    text: str = ""


async def read_clipboard(env: Mapping[str, str] | None = None) -> ClipboardContent:
    environ = os.environ if env is None else env
    if environ.get("WAYLAND_DISPLAY") and (program := _find_program("wl-paste", environ)):
        kinds = await _run_program([program, "--list-types"])
        return await _read_offered(
            kinds, lambda kind: [program, "--no-newline", "--type", kind], [program, "--no-newline", "--type", "text"]
        )
    if environ.get("DISPLAY") and (program := _find_program("xclip", environ)):
        plain = [program, "-selection", "clipboard", "-o"]
        kinds = await _run_program([*plain, "-t", "TARGETS"])
        return await _read_offered(kinds, lambda kind: [*plain, "-t", kind], plain)
    if sys.platform == "darwin" or _find_program("pngpaste", environ):
        return await _read_macos(environ)
    return ClipboardContent()


async def _read_offered(
    kinds: bytes, image_command: Callable[[str], list[str]], text_command: Sequence[str]
) -> ClipboardContent:
    offered = kinds.decode("utf-8", "replace").split()
    kind = next((kind for kind in _IMAGE_TYPES if kind in offered), "")
    if kind and (data := await _run_program(image_command(kind))):
        return ClipboardContent(data)
    return ClipboardContent(text=(await _run_program(text_command)).decode("utf-8", "replace"))


async def _read_macos(environ: Mapping[str, str]) -> ClipboardContent:
    if (program := _find_program("pngpaste", environ)) and (data := await _run_program([program, "-"])):
        return ClipboardContent(data)
    if program := _find_program("osascript", environ):
        found = _MACOS_PNG.search(await _run_program([program, "-e", "the clipboard as «class PNGf»"]))
        if found is not None:
            return ClipboardContent(bytes.fromhex(found[1].decode()))
    if program := _find_program("pbpaste", environ):
        return ClipboardContent(text=(await _run_program([program])).decode("utf-8", "replace"))
    return ClipboardContent()


def _find_program(name: str, environ: Mapping[str, str]) -> str:
    import shutil

    return shutil.which(name, path=environ.get("PATH")) or ""


async def _run_program(command: Sequence[str]) -> bytes:
    """What it prints; nothing when it fails, prints too much or takes too long."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return b""
    try:
        async with asyncio.timeout(PATIENCE_S):
            data = await _read_bounded(process)
            return data if await process.wait() == 0 else b""
    except TimeoutError:
        return b""
    finally:
        if process.returncode is None:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


async def _read_bounded(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None
    parts: list[bytes] = []
    size = 0
    while part := await process.stdout.read(1 << 16):
        parts.append(part)
        size += len(part)
        if size > _MAX_BYTES:
            raise TimeoutError
    return b"".join(parts)
