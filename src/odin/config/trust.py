"""Which folders the user trusts, and with which content.

Trust belongs to the real folder and to the bytes that were there when it was given: everything in the project that
starts programs, redirects or allows. When a byte of it changes, the folder is a stranger's again. What lies inside a
folder never says which folder it is.
"""

import os
import stat
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct, field

from odin.config.pins import fingerprints, program_digest, programs
from odin.config.places import config_dir
from odin.config.writing import locked, put_file
from odin.core.errors import ConfigError

STORE_NAME = "trust.json"
MAX_STORE_BYTES = 10_000_000

_VERSION = 1


class Trust(Struct, frozen=True, kw_only=True):
    """How a folder stands: trusted or not, for this run only or until its content changes, and what has changed.

    `programs` are the files of a trusted folder that its hooks run, with their digests.
    """

    folder: str = ""
    trusted: bool = False
    once: bool = False
    changed: tuple[str, ...] = ()
    programs: dict[str, str] = field(default_factory=dict[str, str])
    warning: str = ""

    def swapped(self) -> tuple[str, ...]:
        """The programs of hooks that are not what they were when the folder was looked at."""
        return tuple(name for name, digest in self.programs.items() if _now(self.folder, name) != digest)


class Entry(Struct, frozen=True, kw_only=True):
    """One trusted folder: the digests of its files, and when trust was given."""

    files: dict[str, str]
    since: str = ""


class _Book(Struct, frozen=True, kw_only=True):
    version: int = _VERSION
    folders: dict[str, Entry] = field(default_factory=dict[str, Entry])


def standing(folder: str, env: Mapping[str, str], config_text: bytes | None, *, once: bool = False) -> Trust:
    """Whether a folder is trusted as it is now. `config_text` is its odinconfig.json, the bytes that will be used."""
    folder = os.path.realpath(folder)
    try:
        entry = None if once else read_store(env).get(folder)
    except ConfigError as error:
        return Trust(folder=folder, warning=f"No folder is trusted: {error.sentence()}")
    if entry is None and not once:
        return Trust(folder=folder)
    try:
        run = programs(folder, config_text)
        now = fingerprints(folder, config_text) if entry is not None else {}
    except ConfigError as error:
        return Trust(folder=folder, warning=f"This folder is not trusted: {error.sentence()}")
    then = entry.files if entry is not None else {}
    changed = tuple(sorted(name for name in {*then, *now} if then.get(name) != now.get(name)))
    return Trust(folder=folder, trusted=not changed, once=once, changed=changed, programs=run)


def _now(folder: str, name: str) -> str:
    try:
        return program_digest(Path(folder, name))
    except ConfigError:
        return "unreadable"


def store_path(env: Mapping[str, str]) -> Path:
    return config_dir(env) / STORE_NAME


def read_store(env: Mapping[str, str]) -> dict[str, Entry]:
    """The trusted folders. A store that is damaged, or that others could have written, is not believed."""
    path = store_path(env)
    hint = "Correct it, or move it away and trust your folders again."
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_STORE_BYTES:
            raise ConfigError(f"{path} is not a list of trusted folders.", hint)
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise ConfigError(f"{path} may be written by others.", "Look through it, then make it yours: chmod 600.")
        raw = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}.", hint) from error
    try:
        book = msgspec.json.decode(raw, type=_Book)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ConfigError(f"{path} is damaged ({error}).", hint) from error
    if book.version != _VERSION:
        raise ConfigError(f"{path} was written by another version of Odin (format {book.version}).", "Update Odin.")
    return book.folders


def remember(folder: str, files: Mapping[str, str], env: Mapping[str, str]) -> None:
    """Trust a folder with this content from now on."""
    since = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    with locked(store_path(env)):
        _write(env, {**read_store(env), os.path.realpath(folder): Entry(files=dict(files), since=since)})


def forget(folder: str, env: Mapping[str, str]) -> bool:
    """Trust a folder no longer. False when it was not trusted."""
    with locked(store_path(env)):
        known = read_store(env)
        found = known.pop(folder, None) or known.pop(os.path.realpath(folder), None)
        if found is not None:
            _write(env, known)
    return found is not None


def _write(env: Mapping[str, str], folders: Mapping[str, Entry]) -> None:
    book = _Book(folders=dict(sorted(folders.items())))
    put_file(store_path(env), msgspec.json.format(msgspec.json.encode(book), indent=2) + b"\n")
