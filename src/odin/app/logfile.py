"""`<state>/logs/odin.log`: what went wrong inside Odin, for a person to look at or to send us.

It is for nobody else's eyes, holds no secret that Odin knows, and never grows beyond two files of `MOST` bytes. That it
cannot be written is no reason for anything else to fail.
"""

import contextlib
import os
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odin import __version__
from odin.config import make_private, state_dir
from odin.core.errors import OdinError
from odin.core.text import mended

if TYPE_CHECKING:
    import asyncio

FOLDER = "logs"
NAME = "odin.log"
MOST = 1_000_000
_ENTRY = 50_000
"""Bytes of one entry at most; of a longer one the end is kept, which says what happened."""


def log_path(env: Mapping[str, str]) -> Path:
    return state_dir(env) / FOLDER / NAME


def note(text: str, env: Mapping[str, str]) -> Path | None:
    """Add an entry. Gives the file, or None when it could not be written."""
    path = log_path(env)
    with contextlib.suppress(OSError, OdinError):
        make_private(path.parent)
        said = without_secrets(text, env).encode()[-_ENTRY:]
        head = f"{time.strftime('%Y-%m-%d %H:%M:%S%z')} odin {__version__} pid {os.getpid()}\n".encode()
        with contextlib.suppress(FileNotFoundError):
            if path.lstat().st_size > MOST:
                path.replace(path.with_name(f"{NAME}.1"))
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.write(fd, head + said.rstrip() + b"\n\n")
        finally:
            os.close(fd)
        return path
    return None


def crashed(error: BaseException, env: Mapping[str, str]) -> Path | None:
    """Keep what is known about an error that nobody expected."""
    return note("".join(traceback.format_exception(error)), env)


def watch(loop: "asyncio.AbstractEventLoop", env: Mapping[str, str]) -> None:
    """Have failures that nobody waits for written down instead of printed across a screen."""

    def handle(_: "asyncio.AbstractEventLoop", context: dict[str, Any]) -> None:
        error = context.get("exception")
        text = "".join(traceback.format_exception(error)) if isinstance(error, BaseException) else ""
        note(f"{context.get('message', '')}\n{text}", env)

    loop.set_exception_handler(handle)


def without_secrets(text: str, env: Mapping[str, str]) -> str:
    from odin.policy.secrets import Redactor

    return mended(Redactor(env, _known(env))(text).text)


def _known(env: Mapping[str, str]) -> dict[str, str]:
    from odin.app.secrets import stored

    with contextlib.suppress(OdinError, OSError):
        return stored(env)
    return {}
