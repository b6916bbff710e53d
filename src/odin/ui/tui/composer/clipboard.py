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

_KINDS = ("image/png", "image/jpeg", "image/gif", "image/webp")
_MOST_BYTES = 2 * MAX_IMAGE_BYTES + 100_000
_APPLE = re.compile(rb"\xc2\xabdata PNGf([0-9A-Fa-f]+)\xc2\xbb")


class Clipped(Struct, frozen=True):
    """A picture, or else a text; neither when nothing could be read."""

    picture: bytes = b""
    text: str = ""


async def read_clipboard(env: Mapping[str, str] | None = None) -> Clipped:
    environ = os.environ if env is None else env
    if environ.get("WAYLAND_DISPLAY") and (program := _found("wl-paste", environ)):
        kinds = await _run([program, "--list-types"])
        return await _typed(
            kinds, lambda kind: [program, "--no-newline", "--type", kind], [program, "--no-newline", "--type", "text"]
        )
    if environ.get("DISPLAY") and (program := _found("xclip", environ)):
        plain = [program, "-selection", "clipboard", "-o"]
        kinds = await _run([*plain, "-t", "TARGETS"])
        return await _typed(kinds, lambda kind: [*plain, "-t", kind], plain)
    if sys.platform == "darwin" or _found("pngpaste", environ):
        return await _apple(environ)
    return Clipped()


async def _typed(kinds: bytes, picture: Callable[[str], list[str]], text: Sequence[str]) -> Clipped:
    offered = kinds.decode("utf-8", "replace").split()
    kind = next((kind for kind in _KINDS if kind in offered), "")
    if kind and (data := await _run(picture(kind))):
        return Clipped(data)
    return Clipped(text=(await _run(text)).decode("utf-8", "replace"))


async def _apple(environ: Mapping[str, str]) -> Clipped:
    if (program := _found("pngpaste", environ)) and (data := await _run([program, "-"])):
        return Clipped(data)
    if program := _found("osascript", environ):
        found = _APPLE.search(await _run([program, "-e", "the clipboard as «class PNGf»"]))
        if found is not None:
            return Clipped(bytes.fromhex(found[1].decode()))
    if program := _found("pbpaste", environ):
        return Clipped(text=(await _run([program])).decode("utf-8", "replace"))
    return Clipped()


def _found(name: str, environ: Mapping[str, str]) -> str:
    import shutil

    return shutil.which(name, path=environ.get("PATH")) or ""


async def _run(command: Sequence[str]) -> bytes:
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
            data = await _bounded(process)
            return data if await process.wait() == 0 else b""
    except TimeoutError:
        return b""
    finally:
        if process.returncode is None:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


async def _bounded(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None
    parts: list[bytes] = []
    size = 0
    while part := await process.stdout.read(1 << 16):
        parts.append(part)
        size += len(part)
        if size > _MOST_BYTES:
            raise TimeoutError
    return b"".join(parts)
