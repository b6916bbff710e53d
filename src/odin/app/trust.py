"""What a folder asks to be trusted with, and giving and taking back that trust."""

import asyncio
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from odin.config import CONFIG_NAME, Config, find_project_root, get_current_folder, load
from odin.config.pins import hash_pinned_files
from odin.config.read import read_config_file
from odin.config.trust import TrustedFolder, add_trusted_folder, read_trusted_folders, remove_trusted_folder
from odin.core.errors import OdinError, UsageError
from odin.core.trust import TrustRequest
from odin.policy.hook.declared import parse_hooks
from odin.policy.rule.shapes import RuleReader


class TrustCandidate(Struct, frozen=True, kw_only=True):
    """What counts in a folder only when it is trusted: the programs that start, and what else is allowed or set.

    `pins` are the digests of what was looked at, so that trust is given to that and to nothing that came later.
    """

    folder: str
    trusted: bool
    changed: tuple[str, ...]
    starts: tuple[str, ...]
    allows: tuple[str, ...]
    warning: str = ""
    hashes: dict[str, str]

    @property
    def is_empty(self) -> bool:
        return not self.starts and not self.allows


def inspect_folder(cwd: str, env: Mapping[str, str]) -> TrustCandidate:
    """What the project around a folder asks for. Nothing of it is run or used by looking."""
    where = os.path.realpath(cwd or get_current_folder())
    if not Path(where).is_dir():
        raise UsageError(f"There is no folder {where}.", "Name an existing one.")
    root = os.path.realpath(find_project_root(where, env))
    pins = _hash_files(root)
    config = load(where, env)
    if _hash_files(root) != pins:
        raise UsageError(f"The files of {root} are being changed right now.", "Look again when nobody writes to them.")
    return TrustCandidate(
        folder=root,
        trusted=config.trust.trusted,
        changed=config.trust.changed,
        starts=tuple(dict.fromkeys(_list_started_programs(config))),
        allows=tuple(_list_allowed_settings(config)),
        warning=config.trust.warning,
        hashes=pins,
    )


def _hash_files(root: str) -> dict[str, str]:
    return hash_pinned_files(root, read_config_file(Path(root, CONFIG_NAME)))


def grant_trust(candidate: TrustCandidate, env: Mapping[str, str]) -> None:
    """Trust the folder with the content that was looked at."""
    add_trusted_folder(candidate.folder, candidate.hashes, env)


def find_pending_trust(cwd: str, env: Mapping[str, str]) -> "FolderTrust | None":
    """The folder's wish, when it has one and is not trusted.

    What cannot be looked at is not asked about; opening the session says what is wrong with it.
    """
    try:
        wish = inspect_folder(cwd, env)
    except OdinError:
        return None
    return None if wish.trusted or wish.is_empty else FolderTrust(wish, env)


class FolderTrust:
    """For a front end that asks."""

    def __init__(self, candidate: TrustCandidate, env: Mapping[str, str]) -> None:
        self._candidate = candidate
        self._env = env

    @property
    def request(self) -> TrustRequest:
        wish = self._candidate
        return TrustRequest(wish.folder, wish.changed, wish.starts, wish.allows)

    async def grant(self) -> None:
        await asyncio.to_thread(grant_trust, self._candidate, self._env)


def revoke_trust(cwd: str, env: Mapping[str, str]) -> tuple[str, bool]:
    """The folder that is not trusted any more, and whether it was. It need not exist any more."""
    where = os.path.realpath(cwd or get_current_folder())
    for folder in dict.fromkeys((where, os.path.realpath(find_project_root(where, env)))):
        if remove_trusted_folder(folder, env):
            return folder, True
    return where, False


def list_trusted_folders(env: Mapping[str, str]) -> dict[str, TrustedFolder]:
    return read_trusted_folders(env)


def _list_started_programs(config: Config) -> Iterator[str]:
    """Every program that would start by itself, with what makes it start."""
    for hook in parse_hooks(config.wanted.get("hooks", {}), "").hooks:
        yield f"{hook.event}: {hook.text}"


def _list_allowed_settings(config: Config) -> Iterator[str]:
    """Everything that would be allowed or set."""
    for key, value in config.wanted.items():
        if key != "hooks":
            yield from (f"{key}: {item}" for item in (cast("list[Any]", value) if isinstance(value, list) else [value]))
    for said in config.declared.get("rules", ()):
        if said.layer == "project":
            rules = RuleReader(said.layer, said.source).read(said.value).rules
            yield from (f"rules: {rule.action} {rule.text}" for rule in rules if rule.action == "allow")
