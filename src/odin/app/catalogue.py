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
from odin.tools.searching.ripgrep import build_base_argv, find_ripgrep
from odin.tools.searching.walk import walk_files

MAX_PATHS = 600_000
MAX_CHARS = 80_000_000
WALK_TIMEOUT_S = 30.0
_CHUNK_CHARS = 48_000
_READ_BYTES = 65_536
_MAX_TOP_LEVEL = 1000
_BATCH_SIZE = 1000
_BATCH_S = 0.5
_FOLDER_PATTERN = re.compile(r"^(.+)/[^/\n]*$", re.MULTILINE)
_TOP_LEVEL_PATTERN = re.compile(r"^[^/\n]+$", re.MULTILINE)
_KEPT_VARIABLES = ("HOME", "XDG_CONFIG_HOME", "LANG", "LC_ALL", "SYSTEMROOT")


class PathIndex:
    """Paths below one folder, in no order. Each of `chunks` begins and ends with a line feed and never changes."""

    def __init__(self) -> None:
        self.chunks: list[str] = []
        self.top_level: list[str] = []
        self.count = 0
        self.is_complete = False
        self._chars = 0
        self._pending: list[str] = []
        self._pending_chars = 0
        self._folders: set[str] = {""}

    @property
    def is_full(self) -> bool:
        return self.count >= MAX_PATHS or self._chars >= MAX_CHARS

    def add(self, lines: str) -> None:
        """Paths of files, one in a line, without a line feed at the end. Their folders are found with them."""
        new = self._collect_new_folders(lines)
        text = f"{lines}\n{new}" if new else lines
        if len(self.top_level) < _MAX_TOP_LEVEL:
            self.top_level += _TOP_LEVEL_PATTERN.findall(lines)
            self.top_level += [folder for folder in new.split("\n") if folder.find("/") == len(folder) - 1 >= 1]
        self.count += text.count("\n") + 1
        self._chars += len(text)
        self._pending.append(text)
        self._pending_chars += len(text)
        if self._pending_chars >= _CHUNK_CHARS:
            self.flush()

    def _collect_new_folders(self, lines: str) -> str:
        found: list[str] = []
        for folder in set(_FOLDER_PATTERN.findall(lines)) - self._folders:
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
        self.is_complete = True


async def fill_index(index: PathIndex, folder: str, env: Mapping[str, str]) -> None:
    """Look through the folder once: what git ignores is left out, no link is followed, and it ends after a while."""
    rg = find_ripgrep()
    with suppress(TimeoutError, OSError):
        async with asyncio.timeout(WALK_TIMEOUT_S):
            await (_fill_by_ripgrep(rg, index, folder, env) if rg else _fill_by_walk(index, folder))
    index.finish()


def _build_arguments(rg: str, folder: str, home: str) -> list[str]:
    """A home is full of hidden folders that belong to programs; a project has few, and people name them."""
    hidden = [] if os.path.realpath(folder) == os.path.realpath(home or "/") else ["--hidden"]
    skipped = [f"--glob=!{name}" for name in (".git", ".hg", ".svn")]
    return [*build_base_argv(rg, folder), "--files", "--null", "--threads=2", *hidden, *skipped]


async def _fill_by_ripgrep(rg: str, index: PathIndex, folder: str, env: Mapping[str, str]) -> None:
    process = await asyncio.create_subprocess_exec(
        *_build_arguments(rg, folder, env.get("HOME", "")),
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={name: env[name] for name in _KEPT_VARIABLES if name in env},
        start_new_session=True,
    )
    rest = b""
    try:
        while process.stdout is not None and not index.is_full:
            piece = await process.stdout.read(_READ_BYTES)
            if not piece:
                break
            whole, _, rest = (rest + piece).rpartition(b"\0")
            if whole:
                index.add(_decode_names(whole))
            await asyncio.sleep(0)
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.shield(process.wait())


def _decode_names(names: bytes) -> str:
    """One name in a line. A name with a line feed in it cannot be one."""
    if b"\n" in names:
        names = b"\0".join(name for name in names.split(b"\0") if b"\n" not in name)
    return names.replace(b"\0", b"\n").decode("utf-8", "surrogateescape")


async def _fill_by_walk(index: PathIndex, folder: str) -> None:
    """For machines without ripgrep: the same files, in a thread."""
    start = len(folder.rstrip("/")) + 1
    found = walk_files(folder, hidden=True, seconds=WALK_TIMEOUT_S)
    while not index.is_full:
        names = await asyncio.to_thread(_take_batch, found, start)
        if names is None:
            return
        if names:
            index.add("\n".join(names))


def _take_batch(found: Iterator[str], start: int) -> list[str] | None:
    """The next of them; None when there are no more."""
    began = time.monotonic()
    names: list[str] = []
    try:
        for path in islice(found, _BATCH_SIZE):
            if "\n" not in path:
                names.append(path[start:])
            if time.monotonic() - began > _BATCH_S:
                return names
    except Refusal:
        return None
    return names or None
