"""Repositories that try to run a program through Odin's own git, and what Odin does with git, for any user.

As a program, it prints what Odin answered, as JSON, for the repositories made in the folders of its arguments.
"""

import asyncio
import json
import os
import struct
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from odin.app.agent_worktree import AgentWorktrees
from odin.app.git import open_git
from odin.app.git_diff import list_changed_files
from odin.app.workspace import describe_repository
from odin.app.worktrees import Worktrees
from odin.checkpoints.rewind import RestoreOutcome, RestorePlan, write_planned_files
from odin.checkpoints.store import CheckpointStore
from odin.config import load
from odin.config.paths import make_environment
from odin.core.errors import OdinError

SECRET = "the private key of the user"


class HostileRepository:
    """A repository with one commit, a changed and a new file, and a program `evil` that tries to leave the sandbox."""

    def __init__(self, folder: Path) -> None:
        self.root, self.home, self.beside = folder / "project", folder / "home", folder / "beside"
        for path in (self.root, self.home / ".ssh", self.beside):
            path.mkdir(parents=True)
        (self.home / ".ssh/id_rsa").write_text(SECRET)
        self.evil = self.root / "evil"
        places = f"'{self.beside}/ran' '{self.home}/ran' '{self.root}/ran' '{self.root}/.git/hooks/ran'"
        self.evil.write_text(
            f"#!/bin/sh\n(cat '{self.home}/.ssh/id_rsa' > '{self.beside}/leak'; for mark in {places}; do\n"
            'echo ran > "$mark"; done; echo "[alias]" >> .git/config) >/dev/null 2>&1\nexec cat\n'
        )
        self.evil.chmod(0o755)
        self.git("init", "-q", "-b", "main")
        (self.root / "a.txt").write_text("a\n")
        self.git("add", "-A")
        self.git("commit", "-qm", "first")
        (self.root / "a.txt").write_text("b\n")
        (self.root / "new.txt").write_text("new\n")
        self.clear()

    def git(self, *words: str, cwd: Path | None = None) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "protocol.file.allow=always")
        argv = ["git", *who, *words]
        env = {**os.environ, "HOME": str(self.home), "GIT_CONFIG_NOSYSTEM": "1"}
        return subprocess.run(argv, cwd=cwd or self.root, check=True, capture_output=True, text=True, env=env).stdout

    def set(self, key: str, value: str = "", cwd: Path | None = None) -> None:
        self.git("config", key, value or str(self.evil), cwd=cwd)

    def write(self, name: str, text: str, *, mode: int = 0o644) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)

    def list_traces(self) -> list[str]:
        """Return what the program could write, although it must not."""
        marks = [self.beside / "leak", *(folder / "ran" for folder in (self.beside, self.home, self.root))]
        return [str(path) for path in (*marks, self.root / ".git/hooks/ran") if os.path.lexists(path)]

    def clear(self) -> None:
        for path in self.list_traces():
            os.unlink(path)


def set_filter(repo: HostileRepository) -> None:
    for name in ("clean", "smudge"):
        repo.set(f"filter.evil.{name}")
    repo.write(".gitattributes", "* filter=evil\n")


def set_filter_process(repo: HostileRepository) -> None:
    repo.set("filter.evil.process")
    repo.write(".gitattributes", "* filter=evil\n")


def set_attributes_in_the_git_folder(repo: HostileRepository) -> None:
    repo.set("filter.evil.clean")
    repo.write(".git/info/attributes", "* filter=evil diff=evil\n")
    repo.set("diff.evil.textconv")
    repo.set("diff.evil.command")


def include_a_file(repo: HostileRepository) -> None:
    repo.write("settings", f'[filter "evil"]\n\tclean = {repo.evil}\n[core]\n\tfsmonitor = {repo.evil}\n')
    repo.set("include.path", "../settings")
    repo.set("includeIf.onbranch:**.path", "../settings")
    repo.write(".gitattributes", "* filter=evil\n")


def set_config_of_the_worktree(repo: HostileRepository) -> None:
    repo.git("config", "core.repositoryformatversion", "1")
    repo.git("config", "extensions.worktreeConfig", "true")
    repo.git("config", "--worktree", "filter.evil.clean", str(repo.evil))
    repo.write(".gitattributes", "* filter=evil\n")


def set_monitor(repo: HostileRepository) -> None:
    repo.set("core.fsmonitor")
    repo.set("core.untrackedCache", "true")


def set_hooks(repo: HostileRepository) -> None:
    names = "post-checkout post-index-change reference-transaction pre-commit pre-auto-gc fsmonitor-watchman"
    for name in names.split():
        repo.write(f".git/hooks/{name}", repo.evil.read_text(), mode=0o755)
        repo.write(f"hooks/{name}", repo.evil.read_text(), mode=0o755)
    repo.set("core.hooksPath", "hooks")


def set_programs(repo: HostileRepository) -> None:
    keys = "core.pager core.editor core.askPass core.sshCommand core.gitProxy core.alternateRefsCommand diff.external"
    keys += " gpg.program gpg.ssh.program credential.helper sequence.editor interactive.diffFilter trailer.x.command"
    keys += " merge.evil.driver pager.status pager.log pager.diff alias.status alias.add uploadpack.packObjectsHook"
    for key in keys.split():
        repo.set(key)
    for key in ("log.showSignature", "commit.gpgSign", "tag.gpgSign", "status.submoduleSummary", "submodule.recurse"):
        repo.set(key, "true")


def add_repository(repo: HostileRepository, name: str = "sub") -> Path:
    """Create a repository with a filter of its own in the work tree."""
    inner = repo.root / name
    inner.mkdir()
    repo.git("init", "-q", cwd=inner)
    (inner / "f").write_text("f\n")
    repo.git("add", "f", cwd=inner)
    repo.git("commit", "-qm", "inner", cwd=inner)
    repo.set("filter.evil.clean", cwd=inner)
    repo.set("core.fsmonitor", cwd=inner)
    (inner / ".gitattributes").write_text("* filter=evil\n")
    (inner / "f").write_text("changed\n")
    return inner


def nest_a_repository(repo: HostileRepository) -> None:
    add_repository(repo)


def add_a_gitlink(repo: HostileRepository) -> None:
    inner = add_repository(repo)
    head = repo.git("rev-parse", "HEAD", cwd=inner).strip()
    repo.git("update-index", "--add", "--cacheinfo", f"160000,{head},sub")


def add_a_submodule(repo: HostileRepository) -> None:
    add_a_gitlink(repo)
    repo.write(
        ".gitmodules", f'[submodule "sub"]\n\tpath = sub\n\turl = ./sub\n\tupdate = !{repo.evil}\n\tignore = none\n'
    )
    (repo.root / ".git/modules").mkdir()
    (repo.root / "sub/.git").rename(repo.root / ".git/modules/sub")
    (repo.root / "sub/.git").write_text("gitdir: ../.git/modules/sub\n")
    repo.git("config", "--file", str(repo.root / ".git/modules/sub/config"), "core.worktree", "../../../sub")
    repo.set("submodule.sub.update", f"!{repo.evil}")
    repo.set("submodule.recurse", "true")
    repo.set("diff.submodule", "diff")


def promise_missing_objects(repo: HostileRepository) -> None:
    """A partial clone fetches what is missing, with a program that its settings name."""
    repo.set("remote.origin.url", f"ext::{repo.evil} %S")
    repo.set("remote.origin.uploadpack")
    repo.set("remote.origin.promisor", "true")
    repo.set("protocol.ext.allow", "always")
    repo.set("extensions.partialClone", "origin")
    repo.set("core.repositoryformatversion", "1")
    blob = repo.git("rev-parse", "HEAD:a.txt").strip()
    (repo.root / ".git/objects" / blob[:2] / blob[2:]).unlink()


def borrow_objects(repo: HostileRepository) -> None:
    repo.write(".git/objects/info/alternates", f"{repo.home}/.ssh\n{repo.beside}\n/proc/self/root\n")
    set_filter(repo)


def sign_the_last_commit(repo: HostileRepository) -> None:
    raw = repo.git("cat-file", "commit", "HEAD").replace("\n\n", "\ngpgsig -----BEGIN PGP SIGNATURE-----\n x\n\n", 1)
    repo.write("../commit", raw)
    made = repo.git("hash-object", "-t", "commit", "-w", "--literally", str(repo.root.parent / "commit")).strip()
    repo.git("update-ref", "HEAD", made)
    set_programs(repo)


def name_another_folder(repo: HostileRepository) -> None:
    """The work tree is the home; its files must not be read or changed."""
    repo.set("core.worktree", str(repo.home))
    set_filter(repo)


def replace_git_by_a_file(repo: HostileRepository) -> None:
    (repo.root / ".git").rename(repo.root / "data")
    repo.write(".git", "gitdir: data\n")
    (repo.root / "data/config").write_text(
        (repo.root / "data/config").read_text() + f"[core]\n\tfsmonitor = {repo.evil}\n"
    )


def replace_git_by_a_link(repo: HostileRepository) -> None:
    set_filter(repo)
    (repo.root / ".git").rename(repo.root / "data")
    (repo.root / ".git").symlink_to("data")


def replace_git_by_a_pipe(repo: HostileRepository) -> None:
    (repo.root / ".git").rename(repo.root / "data")
    os.mkfifo(repo.root / ".git")


def claim_to_be_a_worktree(repo: HostileRepository) -> None:
    set_filter(repo)
    folder = repo.root / "data/worktrees/x"
    (repo.root / "data").mkdir()
    folder.mkdir(parents=True)
    (repo.root / ".git").rename(repo.root / "real")
    for path in (repo.root / "real").iterdir():
        path.rename(repo.root / "data" / path.name)
    for name, text in (("HEAD", "ref: refs/heads/main\n"), ("commondir", "../..\n"), ("gitdir", f"{repo.root}/.git\n")):
        (folder / name).write_text(text)
    (repo.root / ".git").write_text(f"gitdir: {folder}\n")


def redirect_the_common_folder(repo: HostileRepository) -> None:
    other = repo.root / "other"
    repo.git("clone", "-q", ".", str(other))
    repo.set("filter.evil.clean", cwd=other)
    repo.set("core.fsmonitor", cwd=other)
    repo.write(".git/commondir", "../other/.git\n")
    repo.write(".gitattributes", "* filter=evil\n")


def link_folders_out(repo: HostileRepository) -> None:
    """Where git would write, there are links to folders of the user."""
    set_filter(repo)
    for name, target in (("refs", repo.home), ("worktrees", repo.home / ".ssh"), ("logs", repo.beside)):
        path = repo.root / ".git" / name
        if path.exists():
            path.rename(repo.root / f"real-{name}")
        path.symlink_to(target)


def link_objects_out(repo: HostileRepository) -> None:
    set_filter(repo)
    (repo.root / ".git/objects").rename(repo.beside / "objects")
    (repo.root / ".git/objects").symlink_to(repo.beside / "objects")


def link_the_index_to_a_secret(repo: HostileRepository) -> None:
    set_filter(repo)
    (repo.root / ".git/index").unlink()
    (repo.root / ".git/index").symlink_to(repo.home / ".ssh/id_rsa")


def replace_the_index_by_a_pipe(repo: HostileRepository) -> None:
    set_filter(repo)
    (repo.root / ".git/index").unlink()
    os.mkfifo(repo.root / ".git/index")


def split_the_index(repo: HostileRepository) -> None:
    set_filter(repo)
    repo.git("update-index", "--split-index")
    repo.git("update-index", "--index-version", "4")


def name_a_monitor_in_the_index(repo: HostileRepository) -> None:
    """The index has an extension of the file system monitor."""
    set_monitor(repo)
    index = (repo.root / ".git/index").read_bytes()[:-20]
    body = struct.pack(">IQI", 1, 0, 0)
    import hashlib

    data = index + b"FSMN" + struct.pack(">I", len(body)) + body
    (repo.root / ".git/index").write_bytes(data + hashlib.sha1(data).digest())


def break_the_index(repo: HostileRepository) -> None:
    set_filter(repo)
    (repo.root / ".git/index").write_bytes(b"DIRC" + b"\xff" * 200)


TRICKS: dict[Callable[[HostileRepository], None], bool] = {
    set_filter: True,
    set_filter_process: True,
    set_attributes_in_the_git_folder: True,
    include_a_file: True,
    set_config_of_the_worktree: True,
    set_monitor: True,
    set_hooks: True,
    set_programs: False,
    nest_a_repository: False,
    add_a_gitlink: True,
    add_a_submodule: True,
    promise_missing_objects: False,
    borrow_objects: True,
    sign_the_last_commit: True,
    name_another_folder: False,
    replace_git_by_a_file: True,
    replace_git_by_a_link: True,
    replace_git_by_a_pipe: False,
    claim_to_be_a_worktree: True,
    redirect_the_common_folder: True,
    link_folders_out: False,
    link_objects_out: True,
    link_the_index_to_a_secret: False,
    replace_the_index_by_a_pipe: False,
    split_the_index: True,
    name_a_monitor_in_the_index: True,
    break_the_index: False,
}
"""Each trick, and whether plain `git status`, `git log` and `git add` outside of the sandbox run the program."""


STEP_S = 20.0
"""What git does for ever ends after this time, where the kernel does not say what it waits for."""


@asynccontextmanager
async def limit_step(root: str) -> AsyncGenerator[None]:
    """End a step when git waits for a writer of the index that is a pipe, which it does for ever."""
    async with asyncio.timeout(STEP_S) as limit:

        async def end_at_the_pipe() -> None:
            while not is_at_a_pipe(f"{Path(root).parent}/"):
                await asyncio.sleep(0.02)
            limit.reschedule(0)

        watcher = asyncio.create_task(end_at_the_pipe()) if Path(root, ".git/index").is_fifo() else None
        try:
            yield
        finally:
            if watcher is not None:
                watcher.cancel()


def is_at_a_pipe(folder: str) -> bool:
    """Return whether a program that runs below this folder waits until another one opens its pipe."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            waits = (process / "wchan").read_text() == "wait_for_partner"
            if waits and str((process / "cwd").readlink()).startswith(folder):
                return True
    return False


async def use_git(root: str, home: str) -> dict[str, str]:
    """Do everything for which Odin runs git. Return the answers and errors by step."""
    env = {**{name: os.environ[name] for name in ("PATH",)}, "HOME": home}
    config = load(root, env)
    answers: dict[str, str] = {}
    environment = make_environment(env, root)
    async with open_git(config, environment) as git:
        trees = Worktrees(git, config, environment)
        store = CheckpointStore(Path(home, ".local/state/odin/store"))

        async def write(plan: RestorePlan) -> RestoreOutcome:
            return write_planned_files(plan, store)

        async def work_apart() -> str:
            tree = await AgentWorktrees(trees).create("agent")
            Path(tree.root, "a.txt").write_text("by the agent\n")
            diff = await tree.collect_diff()
            applied = await tree.apply(write, store)
            return f"{diff.describe()} {applied.describe()} {(await tree.finish()).describe()}"

        async def list_all() -> str:
            return str(await trees.list_worktrees())

        async def add_and_remove() -> str:
            await trees.add("plain")
            return str(await trees.remove("plain", force=True))

        async def show_changes() -> str:
            return str(await list_changed_files(git, root))

        steps = (describe_repository(root, git, 20.0), show_changes(), work_apart(), add_and_remove(), list_all())
        for step in steps:
            try:
                async with limit_step(root):
                    answers[step.__name__] = await step
            except (OdinError, TimeoutError) as error:
                answers[step.__name__] = f"{type(error).__name__}: {error}"
    return answers


if __name__ == "__main__":
    found = {folder: asyncio.run(use_git(f"{folder}/project", f"{folder}/home")) for folder in sys.argv[1:]}
    sys.stdout.write(json.dumps(found))
