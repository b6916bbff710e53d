"""What a folder asks to be trusted with, and giving and taking back that trust."""

import asyncio
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from odin.config import CONFIG_NAME, Config, current_folder, load, project_root
from odin.config.pins import fingerprints
from odin.config.read import read_file
from odin.config.trust import Entry, forget, read_store, remember
from odin.core.errors import OdinError, UsageError
from odin.core.trust import Wish
from odin.policy.hook.declared import declared
from odin.policy.rule.shapes import Shapes


class Demand(Struct, frozen=True, kw_only=True):
    """What counts in a folder only when it is trusted: the programs that start, and what else is allowed or set.

    `pins` are the digests of what was looked at, so that trust is given to that and to nothing that came later.
    """

    folder: str
    trusted: bool
    changed: tuple[str, ...]
    starts: tuple[str, ...]
    allows: tuple[str, ...]
    warning: str = ""
    pins: dict[str, str]

    @property
    def empty(self) -> bool:
        return not self.starts and not self.allows


def demand(cwd: str, env: Mapping[str, str]) -> Demand:
    """What the project around a folder asks for. Nothing of it is run or used by looking."""
    where = os.path.realpath(cwd or current_folder())
    if not Path(where).is_dir():
        raise UsageError(f"There is no folder {where}.", "Name an existing one.")
    root = os.path.realpath(project_root(where, env))
    pins = _pins(root)
    config = load(where, env)
    if _pins(root) != pins:
        raise UsageError(f"The files of {root} are being changed right now.", "Look again when nobody writes to them.")
    return Demand(
        folder=root,
        trusted=config.trust.trusted,
        changed=config.trust.changed,
        starts=tuple(dict.fromkeys(_starts(config))),
        allows=tuple(_allows(config)),
        warning=config.trust.warning,
        pins=pins,
    )


def _pins(root: str) -> dict[str, str]:
    return fingerprints(root, read_file(Path(root, CONFIG_NAME)))


def give(wish: Demand, env: Mapping[str, str]) -> None:
    """Trust the folder with the content that was looked at."""
    remember(wish.folder, wish.pins, env)


def wanted(cwd: str, env: Mapping[str, str]) -> "FolderTrust | None":
    """The folder's wish, when it has one and is not trusted.

    What cannot be looked at is not asked about; opening the session says what is wrong with it.
    """
    try:
        wish = demand(cwd, env)
    except OdinError:
        return None
    return None if wish.trusted or wish.empty else FolderTrust(wish, env)


class FolderTrust:
    """For a front end that asks."""

    def __init__(self, wish: Demand, env: Mapping[str, str]) -> None:
        self._wish = wish
        self._env = env

    @property
    def wish(self) -> Wish:
        wish = self._wish
        return Wish(wish.folder, wish.changed, wish.starts, wish.allows)

    async def give(self) -> None:
        await asyncio.to_thread(give, self._wish, self._env)


def take_back(cwd: str, env: Mapping[str, str]) -> tuple[str, bool]:
    """The folder that is not trusted any more, and whether it was. It need not exist any more."""
    where = os.path.realpath(cwd or current_folder())
    for folder in dict.fromkeys((where, os.path.realpath(project_root(where, env)))):
        if forget(folder, env):
            return folder, True
    return where, False


def trusted_folders(env: Mapping[str, str]) -> dict[str, Entry]:
    return read_store(env)


def _starts(config: Config) -> Iterator[str]:
    """Every program that would start by itself, with what makes it start."""
    for hook in declared(config.wanted.get("hooks", {}), "").hooks:
        yield f"{hook.event}: {hook.text}"


def _allows(config: Config) -> Iterator[str]:
    """Everything that would be allowed or set."""
    for key, value in config.wanted.items():
        if key != "hooks":
            yield from (f"{key}: {item}" for item in (cast("list[Any]", value) if isinstance(value, list) else [value]))
    for said in config.declared.get("rules", ()):
        if said.layer == "project":
            rules = Shapes(said.layer, said.source).read(said.value).rules
            yield from (f"rules: {rule.action} {rule.text}" for rule in rules if rule.action == "allow")
