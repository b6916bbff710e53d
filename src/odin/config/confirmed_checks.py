"""The checks that the user allowed or forbade Odin to run by itself, by folder."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from odin.config.files import lock_file, write_atomically
from odin.config.paths import get_config_dir

STORE_NAME = "checks.json"


class ConfirmedChecks(Struct, frozen=True):
    """An answer of the user. It holds as long as the folder has exactly these checks."""

    commands: tuple[str, ...]
    allowed: bool


def locate_confirmed_checks(env: Mapping[str, str]) -> Path:
    return get_config_dir(env) / STORE_NAME


def read_confirmation(folder: str, commands: Sequence[str], env: Mapping[str, str]) -> bool | None:
    """Return the user's answer about these checks; None if there is none, or the store cannot be read."""
    entry = _read_all(env).get(os.path.realpath(folder))
    return entry.allowed if entry is not None and entry.commands == tuple(commands) else None


def store_confirmation(folder: str, commands: Sequence[str], *, allowed: bool, env: Mapping[str, str]) -> None:
    path = locate_confirmed_checks(env)
    with lock_file(path):
        known = {**_read_all(env), os.path.realpath(folder): ConfirmedChecks(tuple(commands), allowed)}
        data = msgspec.json.encode(dict(sorted(known.items())))
        write_atomically(path, msgspec.json.format(data, indent=2) + b"\n")


def _read_all(env: Mapping[str, str]) -> dict[str, ConfirmedChecks]:
    try:
        return msgspec.json.decode(locate_confirmed_checks(env).read_bytes(), type=dict[str, ConfirmedChecks])
    except (OSError, msgspec.MsgspecError, UnicodeError):
        return {}
