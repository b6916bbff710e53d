"""The paths of a project as a few large texts: three hundred thousand names are no three hundred thousand objects."""

import asyncio
import os
import re
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice

from odin.tools.files.path import Refusal
from odin.tools.searching.ripgrep import base_arguments, find_ripgrep
from odin.tools.searching.walk import walk

MOST_PATHS = 600_000
MOST_CHARS = 80_000_000
WALK_S = 30.0
_CHUNK = 48_000
_BLOCK = 65_536
_TOPS = 1000
_BATCH = 1000
_TURN_S = 0.5
_FOLDERS = re.compile(r"^(.+)/[^/\n]*$", re.MULTILINE)
_AT_TOP = re.compile(r"^[^/\n]+$", re.MULTILINE)
_KEPT = ("HOME", "XDG_CONFIG_HOME", "LANG", "LC_ALL", "SYSTEMROOT")


class Catalogue:
    """Paths below one folder, in no order. Each of `chunks` begins and ends with a line feed and never changes."""

    def __init__(self) -> None:
        self.chunks: list[str] = []
        self.tops: list[str] = []
        self.count = 0
        self.complete = False
        self._chars = 0
        self._pending: list[str] = []
        self._pending_chars = 0
        self._folders: set[str] = {""}

    @property
    def full(self) -> bool:
        return self.count >= MOST_PATHS or self._chars >= MOST_CHARS

    def add(self, lines: str) -> None:
        """Paths of files, one in a line, without a line feed at the end. Their folders are found with them."""
        new = self._new_folders(lines)
        text = f"{lines}\n{new}" if new else lines
        if len(self.tops) < _TOPS:
            self.tops += _AT_TOP.findall(lines)
            self.tops += [folder for folder in new.split("\n") if folder.find("/") == len(folder) - 1 >= 1]
        self.count += text.count("\n") + 1
        self._chars += len(text)
        self._pending.append(text)
        self._pending_chars += len(text)
        if self._pending_chars >= _CHUNK:
            self.flush()

    def _new_folders(self, lines: str) -> str:
        found: list[str] = []
        for folder in set(_FOLDERS.findall(lines)) - self._folders:
            while folder not in self._folders:
                self._folders.add(folder)
                found.append(f"{folder}/")
                folder = folder.rpartition("/")[0]
        return "\n".join(found)

    def flush(self) -> None:
        """What is known so far can be searched."""
        if self._pending:
            self.chunks.append("\n" + "\n".join(self._pending) + "\n")
            self._pending, self._pending_chars = [], 0

    def finish(self) -> None:
        self.flush()
        self._folders = {""}
        self.complete = True


async def fill(catalogue: Catalogue, folder: str, env: Mapping[str, str]) -> None:
    """Look through the folder once: what git ignores is left out, no link is followed, and it ends after a while."""
    rg = find_ripgrep()
    with suppress(TimeoutError, OSError):
        async with asyncio.timeout(WALK_S):
            await (_by_ripgrep(rg, catalogue, folder, env) if rg else _by_hand(catalogue, folder))
    catalogue.finish()


def _arguments(rg: str, folder: str, home: str) -> list[str]:
    """A home is full of hidden folders that belong to programs; a project has few, and people name them."""
    hidden = [] if os.path.realpath(folder) == os.path.realpath(home or "/") else ["--hidden"]
    skipped = [f"--glob=!{name}" for name in (".git", ".hg", ".svn")]
    return [*base_arguments(rg, folder), "--files", "--null", "--threads=2", *hidden, *skipped]


async def _by_ripgrep(rg: str, catalogue: Catalogue, folder: str, env: Mapping[str, str]) -> None:
    process = await asyncio.create_subprocess_exec(
        *_arguments(rg, folder, env.get("HOME", "")),
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={name: env[name] for name in _KEPT if name in env},
        start_new_session=True,
    )
    rest = b""
    try:
        while process.stdout is not None and not catalogue.full:
            piece = await process.stdout.read(_BLOCK)
            if not piece:
                break
            whole, _, rest = (rest + piece).rpartition(b"\0")
            if whole:
                catalogue.add(_text(whole))
            await asyncio.sleep(0)
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.shield(process.wait())


def _text(names: bytes) -> str:
    """One name in a line. A name with a line feed in it cannot be one."""
    if b"\n" in names:
        names = b"\0".join(name for name in names.split(b"\0") if b"\n" not in name)
    return names.replace(b"\0", b"\n").decode("utf-8", "surrogateescape")


async def _by_hand(catalogue: Catalogue, folder: str) -> None:
    """For machines without ripgrep: the same files, in a thread."""
    start = len(folder.rstrip("/")) + 1
    found = walk(folder, hidden=True, seconds=WALK_S)
    while not catalogue.full:
        names = await asyncio.to_thread(_batch, found, start)
        if names is None:
            return
        if names:
            catalogue.add("\n".join(names))


def _batch(found: Iterator[str], start: int) -> list[str] | None:
    """The next of them; None when there are no more."""
    began = time.monotonic()
    names: list[str] = []
    try:
        for path in islice(found, _BATCH):
            if "\n" not in path:
                names.append(path[start:])
            if time.monotonic() - began > _TURN_S:
                return names
    except Refusal:
        return None
    return names or None
