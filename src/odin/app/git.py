"""Odin's own git. It always runs in the sandbox, because the files of a repository can make git start programs.

A repository configures filters, hooks, file system monitors, submodules and more, and a command can do so at any time,
so nothing that Odin checks beforehand would hold. Each call may write only what it names, and what Odin reads back is
in a folder that commands cannot reach. Where no sandbox works, git is not run.
"""

import os
import re
import weakref
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from pathlib import Path

from msgspec import Struct

from odin.app.sandbox import LazySandbox
from odin.config import Config
from odin.config.paths import SCRATCH_FOLDER
from odin.core.environment import ExecutionEnvironment
from odin.core.errors import OdinError
from odin.core.path_names import contains
from odin.core.private_folders import open_scratch
from odin.core.profile import ProcessProfile, ProfileName
from odin.core.text import to_valid_unicode
from odin.sandbox.protected_files import locate_git_folders
from odin.sandbox.runner import ProcessRunner, SandboxUnavailable

_TIMEOUT_S = 120.0
_CLONE_S = 1800.0
_MAX_BYTES = 256_000_000

_IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Odin"), ("EMAIL", "odin@localhost"))
}
"""Who commits what Odin stores in a repository."""


class GitPlace(Struct, frozen=True):
    """A working folder and its git folders, given to git by name so that files in the folder cannot redirect it."""

    folder: Path
    git_dir: str
    common: str


class GitOutput(Struct, frozen=True):
    """The output of git and its exit code. `is_cut`: there was more output, and git was killed."""

    code: int
    data: bytes
    errors: str = ""
    is_cut: bool = False


def find_repository(folder: str) -> GitPlace | None:
    """Return the repository around a folder, or None.

    Git itself is not asked: its answer depends on files that could name any other folder.
    """
    real = Path(os.path.realpath(folder))
    for top in (real, *real.parents):
        if os.path.lexists(top / ".git"):
            found = locate_git_folders(str(top))
            return GitPlace(top, *found) if found else None
    return None


class Git:
    """Runs git with the runner of a session, and keeps files for it below the state folder."""

    def __init__(self, runner: ProcessRunner, state_dir: Path, *, unsandboxed: bool = False) -> None:
        self._runner = runner
        self._unsandboxed = unsandboxed
        self._scratch = state_dir / SCRATCH_FOLDER / f"git-{os.getpid()}-{id(self):x}"
        weakref.finalize(self, _remove_empty, self._scratch)  # sandboxes that are kept for later have it mounted

    async def run(
        self,
        place: GitPlace,
        args: Sequence[str],
        *,
        cwd: str = "",
        writes: Sequence[str] = (),
        visible: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        max_bytes: int = _MAX_BYTES,
    ) -> GitOutput:
        """Return the output of git in this repository. Only the existing paths of `writes` are writable.

        Raise OdinError if git cannot be run or takes too long.
        """
        own = {
            **_IDENTITY,
            "GIT_DIR": place.git_dir,
            "GIT_COMMON_DIR": place.common,
            "GIT_WORK_TREE": str(place.folder),
        }
        argv = ["git", "--no-pager", *args]
        writes = (*writes, f"{place.common}/lfs")  # the filter of Git LFS stores files there
        return await self._run(argv, cwd or str(place.folder), writes, visible, {**own, **(env or {})}, max_bytes)

    async def clone(self, words: Sequence[str], source: str, target: Path, profile: ProfileName = "git") -> None:
        """Clone a repository into a new folder. As `git-remote`, git uses the network and the user's credentials; as
        `own` it needs no sandbox, which is for a source that git has made for Odin, and without a checkout.

        Nothing asks for a password. Raise OdinError if it fails.
        """
        argv = ["git", "clone", "--quiet", *words, "--", source, str(target)]
        folder = str(target.parent)
        env = {"GIT_TERMINAL_PROMPT": "0", "GIT_SSH_COMMAND": "ssh -oBatchMode=yes"}
        visible = (source,) if source.startswith("/") else ()
        done = await self._run(argv, folder, (folder,), visible, env, 10_000, name=profile, timeout=_CLONE_S)
        if done.code:
            message = done.errors.strip().removeprefix("fatal: ").replace("\n", " ")[:500]
            raise OdinError(f"Cannot clone {source}: {message or done.code}.")

    async def make_repository(self, target: Path, branch: str) -> None:
        """Make an empty repository in a new folder."""
        argv = ["git", "init", "--quiet", f"--initial-branch={branch}", str(target)]
        done = await self._run(argv, str(target.parent), (str(target.parent),), (), {}, 10_000)
        if done.code:
            raise OdinError(f"Cannot make a repository: {done.errors.strip()}.")

    async def copy_file(self, source: Path, target: Path) -> None:
        """Copy an index, if there is one, with its times, which tell git what to read again."""
        if source.is_file():
            await self.change_files(
                ["cp", "-p", "--", str(source), str(target)], str(target.parent), str(source.parent)
            )

    async def change_files(self, argv: Sequence[str], writes: str, visible: str = "/") -> None:
        """Run a program such as `cp` that may write only to one folder. Raise OdinError if it fails.

        Odin does not do it itself: a repository, or a command in it, could put a link in the place of any file.
        """
        done = await self._run(argv, "/", (writes,), (visible,), {}, 10_000)
        if done.code:
            raise OdinError(f"`{argv[0]}` failed: {done.errors.strip()}.")

    def open_scratch(self) -> AbstractContextManager[Path]:
        """Create a folder that no command can reach, and remove it at the end."""
        return open_scratch(self._scratch)

    async def _run(
        self,
        argv: Sequence[str],
        cwd: str,
        writes: Sequence[str],
        visible: Sequence[str],
        env: Mapping[str, str],
        max_bytes: int,
        *,
        name: ProfileName = "git",
        timeout: float = _TIMEOUT_S,
    ) -> GitOutput:
        # calls share one folder for their files, so that they have the same profile and can share a sandbox
        own = os.path.realpath(self._scratch)
        scope = dict.fromkeys(own if contains(own, path) else path for path in writes)
        name = "none" if self._unsandboxed else name
        profile = ProcessProfile(name, scope=tuple(scope), visible=(cwd, *visible))
        try:
            done = await self._runner.capture(
                argv, cwd=cwd, timeout=timeout, stop_after=max_bytes, profile=profile, env=env
            )
        except SandboxUnavailable as error:
            raise OdinError(
                f"Git was not run: {str(error)[:1].lower()}{str(error)[1:]}",
                "A repository can make git start programs, so Odin runs git only in a sandbox.",
            ) from error
        except FileNotFoundError as error:
            missing = f"{argv[0]} is not installed" if os.path.isdir(cwd) else f"{cwd} no longer exists"  # noqa: PTH112
            raise OdinError(f"Cannot run git: {missing}.") from error
        except OSError as error:
            raise OdinError(f"Cannot run git: {error.strerror or error}.") from error
        if done.timed_out:
            raise OdinError(f"`{argv[0]}` took longer than {timeout:g} s.")
        return GitOutput(done.code, done.data[:max_bytes], done.errors, done.stopped)


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


@asynccontextmanager
async def open_git(config: Config, environment: ExecutionEnvironment) -> AsyncGenerator[Git]:
    """Open what runs git for a folder outside of a session."""
    runner = ProcessRunner(environment, sandbox=LazySandbox(config, environment).get)
    try:
        yield Git(runner, Path(environment.state_dir))
    finally:
        await runner.close()


def decode_output(data: bytes) -> str:
    """Return git's output as text without control characters."""
    return re.sub("[\x00-\x08\x0b-\x1f\x7f]", "", to_valid_unicode(data.decode("utf-8", "replace")))
