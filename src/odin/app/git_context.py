"""The git branch for the status line, and the git context that is sent with the first prompt of a session.

The branch is read from the files of git, without running it. For the context, git runs when the first prompt is sent,
and only if the repository's configuration starts no programs. The first request waits up to 0.1 s for it; a later
result goes with the next request.
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
    """Return the branch of the worktree around this folder, the short commit if HEAD is detached, or ""."""
    git = _find_git_folder(Path(folder))
    if git is None:
        return ""
    head = _read_start(git / "HEAD").strip()
    if head.startswith("ref:"):
        return head.removeprefix("ref:").strip().removeprefix(_BRANCH_PREFIX)
    return head[:8]


def _find_git_folder(folder: Path) -> Path | None:
    """Return the git directory of the folder or a parent. In worktrees and submodules `.git` is a file naming it."""
    for parent in (folder, *folder.parents):
        git = parent / ".git"
        if git.is_dir():
            return git
        if git.is_file():
            named = _read_start(git).strip().removeprefix("gitdir:").strip()
            return Path(os.path.normpath(parent / named)) if named else None
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
"""How long git may run."""

_MAX_LINES = 30
_MAX_CHARS = 2000
_MAX_BYTES = 16_384
_VENV_NAMES = (".venv", "venv", "env")
_STATUS_ARGS = ("status", "--porcelain", "--branch", "--untracked-files=normal", "--ignore-submodules=all")
_LOG_ARGS = ("log", "-3", "--no-show-signature", "--no-color", "--format=%h %s")


class GitContext:
    """Gathers the context once and passes it to `report`, at once or a little later."""

    def __init__(
        self, root: str, env: Mapping[str, str], report: Callable[[str], None], *, enabled: bool = True
    ) -> None:
        self._root = root
        self._env = env
        self._report = report
        self._enabled = enabled
        self._task: asyncio.Task[None] | None = None

    async def gather(self) -> None:
        """Gather the context before the first prompt. Return when it is complete or takes too long to wait for."""
        if not self._enabled:
            return
        self._enabled = False
        if line := describe_virtual_environment(self._root):
            self._report(line)
        if os.path.lexists(Path(self._root, ".git")):
            self._task = asyncio.create_task(self._gather_repository())
            await asyncio.wait([self._task], timeout=GRACE_S)

    async def _gather_repository(self) -> None:
        if text := await describe_repository(self._root, self._env):
            self._report(text)

    async def close(self) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])


def describe_virtual_environment(root: str) -> str:
    """Return a line naming the virtual environment in the project root, or ""."""
    for name in _VENV_NAMES:
        if Path(root, name, "pyvenv.cfg").is_file():
            return f"Python virtual environment: {name}"
    return ""


async def describe_repository(root: str, env: Mapping[str, str]) -> str:
    """Return the branch, changes and last commits in a few lines; "" if git fails or takes too long."""
    from odin.policy.commands.git_config import has_safe_git_config

    if not has_safe_git_config(root, root):
        return "Git: not inspected, because the settings of this repository can start programs."
    try:
        async with asyncio.timeout(LIMIT_S):
            status, log = await asyncio.gather(_run_git(root, env, _STATUS_ARGS), _run_git(root, env, _LOG_ARGS))
    except (OSError, TimeoutError):
        return ""
    lines = status.splitlines()
    if not lines:
        return ""
    more = [f"... {len(lines) - _MAX_LINES} more lines"] if len(lines) > _MAX_LINES else []
    text = "\n".join(["Git status at the start of this session:", *lines[:_MAX_LINES], *more])
    if log.strip():
        text += f"\nLast commits:\n{log.strip()}"
    return text if len(text) <= _MAX_CHARS else f"{text[:_MAX_CHARS]}..."


async def _run_git(root: str, env: Mapping[str, str], args: tuple[str, ...]) -> str:
    """Return the start of git's output. Its process group is always killed at the end, also on cancellation."""
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
    output = bytearray()
    try:
        while process.stdout is not None and len(output) < _MAX_BYTES:
            chunk = await process.stdout.read(_MAX_BYTES)
            if not chunk:
                break
            output += chunk
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.shield(process.wait())
    return _strip_control_characters(output.decode("utf-8", "replace"))


def build_git_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for git commands that Odin runs itself: no hooks, no prompts, no other repository."""
    from odin.sandbox.process import SYSTEM_PATH, build_command_environment, build_git_settings

    kept = {name: value for name, value in build_command_environment(env).items() if not name.startswith("GIT_")}
    own = {name: env[name] for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM") if name in env}
    return {**kept, **own, **build_git_settings(own, hooks=False), "PATH": SYSTEM_PATH, "GIT_TERMINAL_PROMPT": "0"}


def _strip_control_characters(text: str) -> str:
    return re.sub("[\x00-\x08\x0b-\x1f\x7f]", "", to_valid_unicode(text))
