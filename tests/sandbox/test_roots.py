"""Folders besides the project in real sandboxes: a writable one is like the project, a read-only one stays as it is."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from odin.core.profile import ProcessProfile, SandboxGrants
from odin.core.root import Root
from odin.sandbox.layout import SandboxSession
from tests.waiting import until

from .sandboxes import WRITE, SandboxedProject


class OpenFolders:
    def __init__(self, project: SandboxedProject) -> None:
        self.project, self.top = project, project.root.parent / "more"
        self.lib, self.docs = self.top / "lib", self.top / "docs"

    async def run(self, command: str, profile: ProcessProfile = WRITE) -> str:
        """Run a command and return which files of the two folders it has changed."""
        before = self._read()
        done = await self.project.run(command.format(lib=self.lib, docs=self.docs), profile)
        after = self._read()
        self.tampered, self.denial = done.tampered_files, done.denial
        return " ".join(name for name in sorted({*before, *after}) if before.get(name) != after.get(name))

    def _read(self) -> dict[str, bytes]:
        return {str(path.relative_to(self.top)): path.read_bytes() for path in self.top.rglob("*") if path.is_file()}


@pytest.fixture(params=["bubblewrap", "landlock"])
async def folders(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OpenFolders]:
    lib, docs = tmp_path.resolve() / "more/lib", tmp_path.resolve() / "more/docs"
    for folder in (lib, docs):
        (folder / ".git/hooks").mkdir(parents=True)
        (folder / ".git/HEAD").write_text("ref: refs/heads/main\n")
        (folder / ".git/config").write_text("")
        (folder / "a").write_text("a")
        (folder / "odinconfig.json").write_text("{}")
    roots = (Root(str(lib)), Root(str(docs), "read"))
    project = SandboxedProject(tmp_path.resolve(), request.param, roots=roots)
    yield OpenFolders(project.skip_if_unavailable())
    await project.close()


async def test_commands_write_only_the_writable_one(folders: OpenFolders) -> None:
    assert (
        await folders.run("echo x > {lib}/new; rm {lib}/a; echo x > {lib}/.git/index") == "lib/.git/index lib/a lib/new"
    )
    script = "sh -c 'echo x > {docs}/new'; echo x >> {docs}/a; rm -f {docs}/a; mv {docs} {docs}2; "
    script += "ln {docs}/a {lib}/hard && echo x > {lib}/hard"
    assert await folders.run(script) in ("", "lib/hard")
    assert (folders.docs / "a").read_text() == "a"


async def test_a_write_in_the_read_only_one_is_not_offered_without_a_sandbox(folders: OpenFolders) -> None:
    await folders.run("echo x > {docs}/new")
    assert folders.denial == ""
    await folders.run("echo x > {docs}/../new")
    assert folders.denial == f"writing {folders.top}/new"


async def test_no_grant_opens_the_read_only_one(folders: OpenFolders) -> None:
    for granted in (folders.docs, folders.docs / "a", folders.docs / "new", folders.top):
        profile = ProcessProfile("granted", grants=SandboxGrants((str(granted),), removes=True))
        assert await folders.run("echo x > {docs}/new; echo x > {docs}/a; rm -f {docs}/a", profile) == ""


async def test_protected_files_of_both_are_protected(folders: OpenFolders) -> None:
    command = "echo x > {lib}/odinconfig.json; echo x > {lib}/.git/config; echo x > {docs}/odinconfig.json"
    changed = await folders.run(command)
    if folders.project.sandbox.kind == "bubblewrap":
        assert changed == ""
    else:
        assert changed == "lib/.git/config lib/odinconfig.json"
        assert set(folders.tampered) == {f"{folders.lib}/.git/config", f"{folders.lib}/odinconfig.json"}


async def test_a_write_scope_closes_the_others(folders: OpenFolders) -> None:
    (folders.project.root / "src").mkdir()
    profile = ProcessProfile("project", scope=(f"{folders.project.root}/src",))
    assert await folders.run("echo x > {lib}/new; echo x > src/new", profile) == ""
    assert (folders.project.root / "src/new").exists()


async def test_later_commands_see_the_change_and_running_ones_do_not(folders: OpenFolders) -> None:
    project = folders.project
    waiting = "touch began; while ! [ -e go ]; do sleep 0.02; done; echo x > {0}/late; echo x > {1}/late"
    running = asyncio.create_task(project.run(waiting.format(folders.docs, folders.lib)))
    await until((project.root / "began").exists)
    session: SandboxSession = project.sandbox._session
    project.sandbox.change_session(replace(session, roots=(Root(str(folders.lib), "read"), Root(str(folders.docs)))))
    assert await folders.run("echo x > {docs}/new; echo x > {lib}/new") == "docs/new"
    (project.root / "go").touch()
    await running
    assert [(folder / "late").exists() for folder in (folders.docs, folders.lib)] == [False, True]
