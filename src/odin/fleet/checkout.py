"""The checkout of one task, and what is taken from it in the end.

Each repository is cloned once per run and machine. A task gets a clone that borrows the objects of that one and has
its own branches, settings and hooks, so that nothing in it can change another task's.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from odin.app.git import Git, find_repository
from odin.config.files import lock_file
from odin.core.errors import OdinError
from odin.core.private_folders import make_private_folder
from odin.core.text import to_valid_unicode
from odin.fleet.engine import FleetRun, name_session
from odin.fleet.eval_suite import EVAL_PREFIX, find_eval_task
from odin.fleet.task import FleetTask, is_local

_PATIENCE_S = 3600.0
_TITLE_CHARS = 72
_MAX_FILES_BYTES = 256_000_000


class CheckoutUnusable(OdinError):
    """The agent has left a checkout that nothing can be taken from."""


class Checkout:
    """The checkout of a task below the folder of its run. Each session starts with a new one.

    The commit that it starts from is noted beside it, where the agent cannot change it.
    """

    def __init__(self, folder: Path, run: FleetRun, task: FleetTask, retries: int, git: Git) -> None:
        self.path = folder / "work" / task.id
        self.branch = f"odin/{task.id}"
        self._ready = folder / "work" / f".{task.id}.ready"
        self._session = name_session(run, task.id, retries)
        self._run_created = run.created
        self._repositories = folder / "repositories"
        self._task = task
        self._git = git
        self._start = ""

    async def prepare(self) -> None:
        """Make the checkout, unless an earlier attempt did. Raise OdinError if that is not possible."""
        if self._ready.exists():
            session, _, self._start = self._ready.read_text().partition(" ")
            if session == self._session:
                return
        await self.remove()
        make_private_folder(self.path.parent)
        if self._task.repository.startswith(EVAL_PREFIX):
            await self._git.make_repository(self.path, self.branch)
            find_eval_task(self._task.repository).write_project(self.path)
            await self._run("add", "--all")
            await self._run("commit", "--quiet", "-m", "Start")
            self._start = await self._find_commit("HEAD")
        elif self._task.repository:
            source = await self._clone_once()
            await self._git.clone(("--shared", "--no-checkout"), str(source), self.path, "own")
            self._start = await self._find_commit(self._task.revision or "HEAD")
            await self._run("checkout", "--quiet", "--no-track", "-B", self.branch, self._start)
        else:
            await self._git.make_repository(self.path, self.branch)
            await self._run("commit", "--quiet", "--allow-empty", "-m", "Start")
            self._start = await self._find_commit("HEAD")
        self._ready.write_text(f"{self._session} {self._start}")

    async def remove(self) -> None:
        import shutil

        self._ready.unlink(missing_ok=True)
        await asyncio.to_thread(shutil.rmtree, self.path, ignore_errors=True)

    async def _find_commit(self, revision: str) -> str:
        for name in revision, f"origin/{revision}":
            if found := await self._run("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", fails=True):
                return found.decode().strip()
        raise OdinError(f"{self._task.repository} has no revision {revision}.", "Name a commit, a tag or a branch.")

    async def _clone_once(self) -> Path:
        """Return the clone that all tasks of the repository share. The others wait for the one that makes it."""
        import hashlib
        import shutil

        source = self._task.repository
        if is_local(source) and not Path(source).exists():
            raise OdinError(f"There is no repository {source}.")
        target = self._repositories / f"{hashlib.sha256(f'{self._run_created} {source}'.encode()).hexdigest()[:16]}.git"
        async with _hold_lock(target):
            if not target.exists():
                fresh = target.with_suffix(".new")
                await asyncio.to_thread(shutil.rmtree, fresh, ignore_errors=True)
                words = ("--mirror", "--no-hardlinks", "--config", "gc.auto=0")
                await self._git.clone(words, source, fresh, "git" if is_local(source) else "git-remote")
                fresh.rename(target)
        return target

    # --- results ---

    async def collect_patch(self) -> bytes:
        """Return what has changed since the start, commits included, as a patch that `git apply` takes.

        Repositories that the agent has made and files that cannot be read are not in it.
        """
        await self._add_all()
        return await self._run("diff", "--cached", "--binary", "--no-ext-diff", "--no-textconv", self._start)

    async def collect_branch(self) -> bytes:
        """Commit what is not committed, and return the commits since the start as a bundle; b"" if there are none."""
        await self._add_all()
        title = self._task.prompt.strip().splitlines()[0][:_TITLE_CHARS]
        await self._run("commit", "--quiet", "--no-verify", "-m", title, fails=True)
        commits = await self._run("rev-list", "--count", f"{self._start}..HEAD")
        if not int(commits):
            return b""
        await self._run("update-ref", f"refs/heads/{self.branch}", "HEAD")
        return await self._run("bundle", "create", "--quiet", "-", f"{self._start}..{self.branch}")

    async def _add_all(self) -> None:
        await self._run("add", "--all", "--ignore-errors", partial=1)  # a lock that was left, as 128, is a fault

    def read_files(self, patterns: Sequence[str]) -> dict[str, bytes]:
        """Return the files that match, by their names. Links are left out: they could lead anywhere.

        Raise CheckoutUnusable if they are too large together.
        """
        real = Path(os.path.realpath(self.path))
        found = (path.relative_to(self.path) for pattern in patterns for path in sorted(self.path.glob(pattern)))
        own = [name for name in found if (real / name).is_file() and Path(os.path.realpath(real / name)) == real / name]
        if sum((real / name).stat().st_size for name in own) > _MAX_FILES_BYTES:
            raise CheckoutUnusable(f"The files of the task are larger than {_MAX_FILES_BYTES // 1_000_000} MB.")
        return {to_valid_unicode(str(name)): (real / name).read_bytes() for name in dict.fromkeys(own)}

    async def _run(self, *words: str, fails: bool = False, partial: int = 0) -> bytes:
        """Return what git prints; b"" if it fails and may. `partial` is a code that is no failure."""
        place = find_repository(str(self.path))
        if place is None or place.folder != Path(os.path.realpath(self.path)):
            raise CheckoutUnusable(f"{self.path} is no repository any more.")
        visible = (str(self._repositories),)
        settings = ("-c", "core.hooksPath=/dev/null", "-c", "commit.gpgSign=false", "-c", "gc.auto=0")
        done = await self._git.run(place, (*settings, *words), writes=(str(self.path),), visible=visible)
        if done.is_cut:
            raise CheckoutUnusable(f"git {words[0]} printed more than {len(done.data) // 1_000_000} MB.")
        if done.code not in (0, partial) and not fails:
            message = done.errors.strip().removeprefix("fatal: ").replace("\n", " ")[:500]
            raise CheckoutUnusable(f"git {words[0]} failed: {message or done.code}.")
        return b"" if done.code else done.data


@asynccontextmanager
async def _hold_lock(path: Path) -> AsyncGenerator[None]:
    lock = lock_file(path, _PATIENCE_S)
    await asyncio.to_thread(lock.__enter__)
    try:
        yield
    finally:
        lock.__exit__(None, None, None)
