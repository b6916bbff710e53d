"""`<state>/logs/odin.log`: internal errors of Odin, for bug reports.

The file is private, holds no secret that Odin knows, and is rotated at `MAX_LOG_BYTES`. Failing to write it is ignored.
"""

import contextlib
import os
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odin.app.policy import read_stored_keys
from odin.config.paths import crash_log_path
from odin.core.errors import OdinError
from odin.core.private_folders import append_to_log
from odin.core.text import to_valid_unicode
from odin.policy.secrets import Redactor
from odin.version import __version__

if TYPE_CHECKING:
    import asyncio

MAX_LOG_BYTES = 1_000_000
_MAX_ENTRY_BYTES = 50_000
"""Longer entries are cut at the start: the end of a traceback matters most."""


def append_entry(text: str, env: Mapping[str, str]) -> Path | None:
    """Append an entry. Return the file, or None if it cannot be written."""
    path = crash_log_path(env)
    with contextlib.suppress(OSError, OdinError):
        entry = redact_secrets(text, env).encode()[-_MAX_ENTRY_BYTES:]
        head = f"{time.strftime('%Y-%m-%d %H:%M:%S%z')} odin {__version__} pid {os.getpid()}\n".encode()
        append_to_log(path, head + entry.rstrip() + b"\n\n", MAX_LOG_BYTES)
        return path
    return None


def log_crash(error: BaseException, env: Mapping[str, str]) -> Path | None:
    """Append the traceback of an unexpected error."""
    return append_entry("".join(traceback.format_exception(error)), env)


def log_unhandled_errors(loop: "asyncio.AbstractEventLoop", env: Mapping[str, str]) -> None:
    """Write errors of unawaited tasks to the log instead of printing them over the screen.

    For the owner of the loop, with its environment: the loop may have several sessions.
    """

    def handle(_: "asyncio.AbstractEventLoop", context: dict[str, Any]) -> None:
        error = context.get("exception")
        text = "".join(traceback.format_exception(error)) if isinstance(error, BaseException) else ""
        append_entry(f"{context.get('message', '')}\n{text}", env)

    loop.set_exception_handler(handle)


def redact_secrets(text: str, env: Mapping[str, str]) -> str:
    return make_redactor(env)(text)


def make_redactor(env: Mapping[str, str], secrets: Mapping[str, str] | None = None) -> Callable[[str], str]:
    """Return a function that removes secrets from a text: keys of the user, these ones, and what looks like one."""
    redactor = Redactor(env, {**_load_known_secrets(env), **(secrets or {})})
    return lambda text: to_valid_unicode(redactor(text).text)


def _load_known_secrets(env: Mapping[str, str]) -> dict[str, str]:
    with contextlib.suppress(OdinError, OSError):
        return read_stored_keys(env)
    return {}
