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

from odin.config.pins import hash_hook_programs, hash_pinned_files, hash_program
from odin.config.places import get_config_dir
from odin.config.writing import lock_file, write_atomically
from odin.core.errors import ConfigError

STORE_NAME = "trust.json"
MAX_STORE_BYTES = 10_000_000

_STORE_VERSION = 1


class TrustStatus(Struct, frozen=True, kw_only=True):
    """How a folder stands: trusted or not, for this run only or until its content changes, and what has changed.

    `programs` are the files of a trusted folder that its hooks run, with their digests.
    """

    folder: str = ""
    trusted: bool = False
    once: bool = False
    changed: tuple[str, ...] = ()
    programs: dict[str, str] = field(default_factory=dict[str, str])
    warning: str = ""

    def find_changed_programs(self) -> tuple[str, ...]:
        """The programs of hooks that are not what they were when the folder was looked at."""
        return tuple(name for name, digest in self.programs.items() if _hash_program_now(self.folder, name) != digest)


class TrustedFolder(Struct, frozen=True, kw_only=True):
    """One trusted folder: the digests of its files, and when trust was given."""

    files: dict[str, str]
    since: str = ""


class _TrustStore(Struct, frozen=True, kw_only=True):
    version: int = _STORE_VERSION
    folders: dict[str, TrustedFolder] = field(default_factory=dict[str, TrustedFolder])


def evaluate_trust(
    folder: str, env: Mapping[str, str], config_text: bytes | None, *, once: bool = False
) -> TrustStatus:
    """Whether a folder is trusted as it is now. `config_text` is its odinconfig.json, the bytes that will be used."""
    folder = os.path.realpath(folder)
    try:
        entry = None if once else read_trusted_folders(env).get(folder)
    except ConfigError as error:
        return TrustStatus(folder=folder, warning=f"No folder is trusted: {error.describe()}")
    if entry is None and not once:
        return TrustStatus(folder=folder)
    try:
        run = hash_hook_programs(folder, config_text)
        now = hash_pinned_files(folder, config_text) if entry is not None else {}
    except ConfigError as error:
        return TrustStatus(folder=folder, warning=f"This folder is not trusted: {error.describe()}")
    then = entry.files if entry is not None else {}
    changed = tuple(sorted(name for name in {*then, *now} if then.get(name) != now.get(name)))
    return TrustStatus(folder=folder, trusted=not changed, once=once, changed=changed, programs=run)


def _hash_program_now(folder: str, name: str) -> str:
    try:
        return hash_program(Path(folder, name))
    except ConfigError:
        return "unreadable"


def locate_trust_store(env: Mapping[str, str]) -> Path:
    return get_config_dir(env) / STORE_NAME


def read_trusted_folders(env: Mapping[str, str]) -> dict[str, TrustedFolder]:
    """The trusted folders. A store that is damaged, or that others could have written, is not believed."""
    path = locate_trust_store(env)
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
        book = msgspec.json.decode(raw, type=_TrustStore)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ConfigError(f"{path} is damaged ({error}).", hint) from error
    if book.version != _STORE_VERSION:
        raise ConfigError(f"{path} was written by another version of Odin (format {book.version}).", "Update Odin.")
    return book.folders


def add_trusted_folder(folder: str, files: Mapping[str, str], env: Mapping[str, str]) -> None:
    """Trust a folder with this content from now on."""
    since = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    with lock_file(locate_trust_store(env)):
        _write_trust_store(
            env, {**read_trusted_folders(env), os.path.realpath(folder): TrustedFolder(files=dict(files), since=since)}
        )


def remove_trusted_folder(folder: str, env: Mapping[str, str]) -> bool:
    """Trust a folder no longer. False when it was not trusted."""
    with lock_file(locate_trust_store(env)):
        known = read_trusted_folders(env)
        found = known.pop(folder, None) or known.pop(os.path.realpath(folder), None)
        if found is not None:
            _write_trust_store(env, known)
    return found is not None


def _write_trust_store(env: Mapping[str, str], folders: Mapping[str, TrustedFolder]) -> None:
    book = _TrustStore(folders=dict(sorted(folders.items())))
    write_atomically(locate_trust_store(env), msgspec.json.format(msgspec.json.encode(book), indent=2) + b"\n")
