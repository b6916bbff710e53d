"""Writes the user's own files atomically, one process at a time, readable only by the user.

`set_key` changes one key in odinconfig.json and leaves every other byte as it is.
"""

import json
import os
import re
import stat
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from odin.config.paths import CONFIG_NAME, get_config_dir, make_private_folder
from odin.config.reader import parse_json_object, read_config_file
from odin.core.errors import ConfigError

PRIVATE_MODE = 0o600


@contextmanager
def lock_file(path: Path, patience: float = 10.0) -> Generator[None]:
    """Hold the lock of this file, so that each writer reads what the previous one wrote."""
    beside = make_private_folder(path.parent) / f"{path.name}.lock"
    try:
        fd = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE_MODE)
    except OSError as error:
        raise make_write_error(beside, error) from error
    try:
        _wait_for_lock(fd, beside, patience)
        yield
    finally:
        os.close(fd)


def _wait_for_lock(fd: int, path: Path, patience: float) -> None:
    try:
        import fcntl
    except ImportError:  # Windows has no flock; there the last writer wins.
        return
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise ConfigError(f"{path} is held by another process.", "Try again when it has ended.") from error
            time.sleep(0.02)
        else:
            return


def write_atomically(path: Path, data: bytes, mode: int = PRIVATE_MODE) -> None:
    """Replace the file's content. A link is followed, so a file stored elsewhere stays there."""
    target = Path(os.path.realpath(path))
    fresh = target.with_name(f".{target.name}.{os.getpid()}.{time.monotonic_ns():x}")
    try:
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE_MODE)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if mode != PRIVATE_MODE:
            fresh.chmod(mode)
        fresh.replace(target)
    except BaseException as error:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise make_write_error(path, error) from error
        raise


def make_write_error(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"{path} cannot be written: {error.strerror or error}.", "Make its folder writable.")


_BOM = "\ufeff"
_BLANK = re.compile(r"[ \t\r\n]*")


class KeyPosition(Struct, frozen=True):
    """Where a key and its value are in the text of an object."""

    key: str
    key_at: int
    value_at: int
    end: int


def set_key(key: str, value: Any, env: Mapping[str, str]) -> Path:
    """Write a key into the user's file, creating it if needed, and return the file.

    Raise ConfigError, without touching the file, if it is not valid JSON.
    """
    path = get_config_dir(env) / CONFIG_NAME
    with lock_file(path):
        raw = read_config_file(path)
        text = insert_key(raw, path, key, value)
        mode = stat.S_IMODE(path.stat().st_mode) if raw is not None else PRIVATE_MODE
        write_atomically(path, text.encode(), mode)
    return path


def insert_key(raw: bytes | None, path: Path, key: str, value: Any) -> str:
    """Return the file's text with this key set."""
    said = json.dumps(value, ensure_ascii=False)
    if raw is None or not raw.strip():
        return f"{{\n  {json.dumps(key)}: {said}\n}}\n"
    parse_json_object(raw, path)
    text = raw.decode("utf-8")
    found = [entry for entry in scan_keys(text) if entry.key == key]
    if found:
        last = found[-1]  # of duplicate keys the last one counts
        return f"{text[: last.value_at]}{said}{text[last.end :]}"
    return _insert_first(text, f"{json.dumps(key)}: {said}")


def scan_keys(text: str) -> Iterator[KeyPosition]:
    """Yield the keys of the object in a valid text, in order, with their positions."""
    decoder = json.JSONDecoder()
    at = _skip_blank(text, _find_opening(text) + 1)
    while text[at] == '"':
        key, after = decoder.raw_decode(text, at)
        value_at = _skip_blank(text, _skip_blank(text, after) + 1)
        _, end = decoder.raw_decode(text, value_at)
        yield KeyPosition(key, at, value_at, end)
        at = _skip_blank(text, end)
        if text[at] != ",":
            return
        at = _skip_blank(text, at + 1)


def _find_opening(text: str) -> int:
    return _skip_blank(text, len(_BOM) if text.startswith(_BOM) else 0)


def _skip_blank(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at


def _insert_first(text: str, line: str) -> str:
    """Insert the line as the first key, formatted like the previous first key."""
    opening = _find_opening(text) + 1
    first = _skip_blank(text, opening)
    blank = text[opening:first]
    if text[first] != "}":
        return f"{text[:opening]}{blank}{line},{blank or ' '}{text[first:]}"
    newline = "\r\n" if "\r\n" in text else "\n"
    return f"{text[:opening]}{newline}  {line}{newline}{text[first:]}"
