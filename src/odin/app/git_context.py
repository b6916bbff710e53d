"""The branch that is checked out, read from the files of git: nothing is run for a line at the bottom of a screen.

What the model is told once, beside the first prompt of a session: the repository's state, a virtual environment.

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

from odin.core.text import to_valid_unicode

_MAX_HEAD_CHARS = 1024
_BRANCH_PREFIX = "refs/heads/"


def branch_of(folder: str) -> str:
    """The branch of the work tree around this folder, the beginning of the commit when HEAD is detached, or ""."""
    git = _find_git_folder(Path(folder))
    if git is None:
        return ""
    head = _read_start(git / "HEAD").strip()
    if head.startswith("ref:"):
        return head.removeprefix("ref:").strip().removeprefix(_BRANCH_PREFIX)
    return head[:8]


def _find_git_folder(folder: Path) -> Path | None:
    """`.git` here or above. In a linked work tree and in a submodule it is a file that says where the folder is."""
    for place in (folder, *folder.parents):
        git = place / ".git"
        if git.is_dir():
            return git
        if git.is_file():
            named = _read_start(git).strip().removeprefix("gitdir:").strip()
            return Path(os.path.normpath(place / named)) if named else None
    return None


def _read_start(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(_MAX_HEAD_CHARS)
    except OSError:
        return ""


GRACE_S = 0.1
"""How long the first request waits for git."""

LIMIT_S = 1.0
"""How long git may take at all."""

_MAX_LINES = 30
_MAX_CHARS = 2000
_MAX_BYTES = 16_384
_VENV_NAMES = (".venv", "venv", "env")
_STATUS_ARGS = ("status", "--porcelain", "--branch", "--untracked-files=normal", "--ignore-submodules=all")
_LOG_ARGS = ("log", "-3", "--no-show-signature", "--no-color", "--format=%h %s")


class GitContext:
    """Looks once. `tell` is given what was found, at once or a little later."""

    def __init__(self, root: str, env: Mapping[str, str], tell: Callable[[str], None], *, enabled: bool = True) -> None:
        self._root = root
        self._env = env
        self._tell = tell
        self._enabled = enabled
        self._task: asyncio.Task[None] | None = None

    async def gather(self) -> None:
        """Before the first prompt. It returns when everything is told, or has taken too long to be waited for."""
        if not self._enabled:
            return
        self._enabled = False
        if line := describe_virtual_environment(self._root):
            self._tell(line)
        if os.path.lexists(Path(self._root, ".git")):
            self._task = asyncio.create_task(self._gather_repository())
            await asyncio.wait([self._task], timeout=GRACE_S)

    async def _gather_repository(self) -> None:
        if found := await describe_repository(self._root, self._env):
            self._tell(found)

    async def close(self) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])


def describe_virtual_environment(root: str) -> str:
    """One line for the first virtual environment in the root of the project."""
    for name in _VENV_NAMES:
        if Path(root, name, "pyvenv.cfg").is_file():
            return f"Python virtual environment: {name}"
    return ""


async def describe_repository(root: str, env: Mapping[str, str]) -> str:
    """The branch, what is changed and the last commits, in a few lines; "" when git has nothing to say in time."""
    from odin.policy.commands.git_config import has_safe_git_config

    if not has_safe_git_config(root, root):
        return "Git: not looked at, because the settings of this repository can start programs."
    try:
        async with asyncio.timeout(LIMIT_S):
            status, log = await asyncio.gather(_run_git(root, env, _STATUS_ARGS), _run_git(root, env, _LOG_ARGS))
    except (OSError, TimeoutError):
        return ""
    lines = status.splitlines()
    if not lines:
        return ""
    more = [f"... and more: {len(lines) - _MAX_LINES} lines left out"] if len(lines) > _MAX_LINES else []
    text = "\n".join(["Git status at the start of this session:", *lines[:_MAX_LINES], *more])
    if log.strip():
        text += f"\nLast commits:\n{log.strip()}"
    return text if len(text) <= _MAX_CHARS else f"{text[:_MAX_CHARS]}..."


async def _run_git(root: str, env: Mapping[str, str], args: tuple[str, ...]) -> str:
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
        env=build_git_environment(env),
        start_new_session=True,
    )
    said = bytearray()
    try:
        while process.stdout is not None and len(said) < _MAX_BYTES:
            piece = await process.stdout.read(_MAX_BYTES)
            if not piece:
                break
            said += piece
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.shield(process.wait())
    return _strip_control_characters(said.decode("utf-8", "replace"))


def build_git_environment(env: Mapping[str, str]) -> dict[str, str]:
    """What git runs in when Odin itself calls it: no hooks, no prompts, nothing that names another repository."""
    from odin.sandbox.environment import SYSTEM_PATH, build_command_environment, build_git_settings

    kept = {name: value for name, value in build_command_environment(env).items() if not name.startswith("GIT_")}
    own = {name: env[name] for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM") if name in env}
    return {**kept, **own, **build_git_settings(own, hooks=False), "PATH": SYSTEM_PATH, "GIT_TERMINAL_PROMPT": "0"}


def _strip_control_characters(text: str) -> str:
    return re.sub("[\x00-\x08\x0b-\x1f\x7f]", "", to_valid_unicode(text))
