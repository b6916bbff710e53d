"""The debug log of a run (`--debug FILE`): one JSON object per line, without secrets, in a private file."""

import os
import platform
import sys
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any, cast

import msgspec

from odin.app.policy import build_redactor
from odin.config import load
from odin.core import debug
from odin.core.errors import UsageError
from odin.core.path_names import is_secret_path
from odin.core.text import to_valid_unicode
from odin.policy.secrets import Redactor
from odin.version import __version__

_MAX_CHARS = 4_000
"""Longer texts are cut; the session has them."""

_SKIPPED_EVENTS = ("Streamed", "Progressed")
"""Ends of the names of events that come many times a second."""


@contextmanager
def open_debug_log(path: str, cwd: str, env: Mapping[str, str]) -> Generator[None]:
    """Append what the process does to the file meanwhile. Raise UsageError if it cannot be written."""
    redact = make_redactor(cwd, env)
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        os.fchmod(fd, 0o600)
    except OSError as error:
        raise UsageError(f"Cannot write the debug log {path}: {error.strerror}.") from error
    started = time.monotonic()

    def clean(value: Any) -> Any:
        if isinstance(value, str):
            text = redact(to_valid_unicode(value)).text
            more = len(text) - _MAX_CHARS
            return f"{text[:_MAX_CHARS]} … {more} more characters" if more > 0 else text
        if isinstance(value, dict):
            return {clean(key): clean(item) for key, item in cast("dict[Any, Any]", value).items()}
        return [clean(item) for item in cast("list[Any]", value)] if isinstance(value, list | tuple) else value

    def write(kind: str, fields: dict[str, Any]) -> None:
        if not type(fields.get("event")).__name__.endswith(_SKIPPED_EVENTS):
            entry = clean(msgspec.to_builtins(fields, enc_hook=repr))
            line = msgspec.json.encode({"seconds": round(time.monotonic() - started, 4), "kind": kind, **entry})
            with suppress(OSError):  # a full disk does not end the run
                os.write(fd, line + b"\n")

    debug.write = write
    write(
        "start",
        {
            "time": time.strftime("%Y-%m-%d %H:%M:%S%z"),
            "odin": __version__,
            "python": platform.python_version(),
            "system": platform.platform(),
            "arguments": sys.argv[1:],
            "cwd": cwd,
        },
    )
    try:
        yield
    finally:
        debug.write = None
        os.close(fd)


def make_redactor(cwd: str, env: Mapping[str, str], secrets: Iterable[str] = ()) -> Redactor:
    """Return a redactor that knows the secrets of the project and the user before a session has read them, and the
    variables of these names."""
    config = load(cwd, env)
    values = _read_env_files(config.root)
    redact = build_redactor(config, {**values, **env}, ())  # finds the passwords in URLs
    redact.add_secrets(values | {name: env[name] for name in secrets if env.get(name)})
    return redact


def _read_env_files(root: str) -> dict[str, str]:
    """Return the values in the project's `.env` files, which a session knows only once they are read, by name.

    Those of its packages are at most two folders below.
    """
    found: dict[str, str] = {}
    for path in chain.from_iterable(Path(root).glob(f"{above}.env*") for above in ("", "*/", "*/*/")):
        if is_secret_path(path.name) and path.is_file():
            with suppress(OSError):
                for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                    name, _, value = line.strip().removeprefix("export ").partition("=")
                    value = value.strip()
                    quote = value[:1] if value[:1] in ("'", '"') else ""
                    value = value[1:].partition(quote)[0] if quote else value.partition(" #")[0].rstrip()
                    found[f"{name.strip()} in {path.relative_to(root)}"] = value
    return found
