"""What the model is told once, beside the first prompt of a session: the repository's state, a virtual environment.

Nothing is started before somebody has said something, and git only in a repository whose settings name no program.
The first request waits a moment for git; what takes longer is told with the next one.
"""

import asyncio
import os
import re
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from odin.core.text import mended

GRACE_S = 0.1
"""How long the first request waits for git."""

LIMIT_S = 1.0
"""How long git may take at all."""

_LINES = 30
_CHARS = 2000
_READ = 16_384
_ENVIRONMENTS = (".venv", "venv", "env")
_STATUS = ("status", "--porcelain", "--branch", "--untracked-files=normal", "--ignore-submodules=all")
_LOG = ("log", "-3", "--no-show-signature", "--no-color", "--format=%h %s")


class Surroundings:
    """Looks once. `tell` is given what was found, at once or a little later."""

    def __init__(self, root: str, env: Mapping[str, str], tell: Callable[[str], None], *, wanted: bool = True) -> None:
        self._root = root
        self._env = env
        self._tell = tell
        self._wanted = wanted
        self._looking: asyncio.Task[None] | None = None

    async def look(self) -> None:
        """Before the first prompt. It returns when everything is told, or has taken too long to be waited for."""
        if not self._wanted:
            return
        self._wanted = False
        if line := virtual_environment(self._root):
            self._tell(line)
        if os.path.lexists(Path(self._root, ".git")):
            self._looking = asyncio.create_task(self._look_at_repository())
            await asyncio.wait([self._looking], timeout=GRACE_S)

    async def _look_at_repository(self) -> None:
        if found := await repository(self._root, self._env):
            self._tell(found)

    async def close(self) -> None:
        if self._looking is not None and not self._looking.done():
            self._looking.cancel()
            await asyncio.wait([self._looking])


def virtual_environment(root: str) -> str:
    """One line for the first virtual environment in the root of the project."""
    for name in _ENVIRONMENTS:
        if Path(root, name, "pyvenv.cfg").is_file():
            return f"Python virtual environment: {name}"
    return ""


async def repository(root: str, env: Mapping[str, str]) -> str:
    """The branch, what is changed and the last commits, in a few lines; "" when git has nothing to say in time."""
    from odin.policy.command.gitconfig import tame

    if not tame(root, root):
        return "Git: not looked at, because the settings of this repository can start programs."
    try:
        async with asyncio.timeout(LIMIT_S):
            status, log = await asyncio.gather(_git(root, env, _STATUS), _git(root, env, _LOG))
    except (OSError, TimeoutError):
        return ""
    lines = status.splitlines()
    if not lines:
        return ""
    more = [f"... and more: {len(lines) - _LINES} lines left out"] if len(lines) > _LINES else []
    text = "\n".join(["Git status at the start of this session:", *lines[:_LINES], *more])
    if log.strip():
        text += f"\nLast commits:\n{log.strip()}"
    return text if len(text) <= _CHARS else f"{text[:_CHARS]}..."


async def _git(root: str, env: Mapping[str, str], args: tuple[str, ...]) -> str:
    """What git prints, as far as anybody would read it. It is ended as a group, also when nobody waits any more."""
    process = await asyncio.create_subprocess_exec(
        "git",
        "-C",
        root,
        "--no-pager",
        *args,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=git_environment(env),
        start_new_session=True,
    )
    said = bytearray()
    try:
        while process.stdout is not None and len(said) < _READ:
            piece = await process.stdout.read(_READ)
            if not piece:
                break
            said += piece
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.shield(process.wait())
    return _printable(said.decode("utf-8", "replace"))


def git_environment(env: Mapping[str, str]) -> dict[str, str]:
    """What git runs in when Odin itself calls it: no hooks, no prompts, nothing that names another repository."""
    from odin.policy.process.environment import SYSTEM_PATH, git_settings, quiet_environment

    kept = {name: value for name, value in quiet_environment(env).items() if not name.startswith("GIT_")}
    own = {name: env[name] for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM") if name in env}
    return {**kept, **own, **git_settings(own, hooks=False), "PATH": SYSTEM_PATH, "GIT_TERMINAL_PROMPT": "0"}


def _printable(text: str) -> str:
    return re.sub("[\x00-\x08\x0b-\x1f\x7f]", "", mended(text))
