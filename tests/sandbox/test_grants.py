"""Commands that the user granted a path outside the project or the network, in real sandboxes."""

import os
import socket
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from odin.core.profile import ProcessProfile, SandboxGrants
from odin.sandbox.layout import SandboxLayout
from odin.sandbox.runner import SandboxUnavailable
from odin.sandbox.sandbox import Sandbox

from .sandboxes import WRITE, SandboxedProject

OpenProject = Callable[[str], SandboxedProject]


@pytest.fixture
async def open_project(tmp_path: Path) -> AsyncIterator[OpenProject]:
    opened: list[SandboxedProject] = []

    def open_one(backend: str) -> SandboxedProject:
        project = SandboxedProject(tmp_path, backend)
        opened.append(project)
        return project.skip_if_unavailable()

    yield open_one
    for project in opened:
        await project.close()


def profile_granting(*paths: Path, network: bool = False, removes: bool = False) -> ProcessProfile:
    return ProcessProfile("granted", grants=SandboxGrants(tuple(map(str, paths)), network, removes))


@pytest.fixture(params=["bubblewrap", "landlock"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


async def test_granted_folder_is_writable_but_not_its_siblings(open_project: OpenProject, backend: str) -> None:
    project = open_project(backend)
    folder, other = project.beside / "granted", project.beside / "other"
    folder.mkdir()
    other.mkdir()
    done = await project.run(
        f"touch made {folder}/new; touch {other}/new {project.beside}/new", profile_granting(folder)
    )
    assert os.listdir(folder) == ["new"]
    assert sorted(os.listdir(project.beside)) == ["granted", "other"]
    assert not os.listdir(other)
    assert (project.root / "made").exists()
    assert done.denial == f"writing {other}/new"
    again = await project.run(f"touch {folder}/again")
    assert again.code != 0, "the next command is granted nothing"
    assert os.listdir(folder) == ["new"]


@pytest.mark.parametrize(
    ("command", "name", "content"),
    [
        ("sed -i s/a/b/ {0}/file", "file", "b\n"),
        ("rm {0}/file", "file", None),
        ("echo c >{0}/new", "new", "c\n"),
        ("mkdir -p {0}/x/y && echo d >{0}/x/y/z", "x/y/z", "d\n"),
    ],
)
async def test_only_the_granted_path_can_change(
    open_project: OpenProject, command: str, name: str, content: str | None
) -> None:
    project = open_project("bubblewrap")
    place = project.beside
    for existing in ("file", "sibling"):
        (place / existing).write_text("a\n")
    (place / "folder").mkdir()
    done = await project.run(
        f"{command.format(place)} && ! echo b >{place}/sibling && ! rm {place}/sibling && ! touch {place}/folder/new",
        profile_granting(place / name),
    )
    assert done.code == 0, done.output
    assert (place / "sibling").read_text() == "a\n"
    assert not os.listdir(place / "folder")
    assert (place / name).exists() is (content is not None)
    if content is not None:
        assert (place / name).read_text() == content


async def test_a_granted_folder_can_be_removed(open_project: OpenProject) -> None:
    project = open_project("bubblewrap")
    for name in ("build", "kept"):
        (project.beside / name).mkdir()
        (project.beside / name / "file").write_text("x")
    done = await project.run(f"rm -rf {project.beside}/build", profile_granting(project.beside / "build", removes=True))
    assert done.code == 0, done.output
    assert os.listdir(project.beside) == ["kept"]


async def test_secrets_protected_files_and_broad_folders_are_never_granted(
    open_project: OpenProject, backend: str
) -> None:
    project = open_project(backend)
    key = project.home / ".ssh" / "id"
    hook = project.beside / "repository" / ".git" / "hooks"
    hook.mkdir(parents=True)
    for name in ("HEAD", "config"):
        (hook.parent / name).write_text("x")
    key.parent.mkdir()
    key.write_text("private")
    wide = profile_granting(Path("/"), project.home, project.home.parent, key, hook.parent.parent)
    done = await project.run(
        f"cat {key}; echo x >{hook}/pre-commit; echo y >{hook.parent}/config; touch {project.home}/.profile; echo done",
        wide,
    )
    assert "private" not in done.output
    assert done.output.endswith("done\n")
    assert os.listdir(hook) == []
    assert (hook.parent / "config").read_text() == "x"
    assert not (project.home / ".profile").exists()


@contextmanager
def listening_port() -> Generator[int]:
    """Listen on a port outside the sandbox and yield its number."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


async def test_the_network_is_granted_to_one_command(open_project: OpenProject, backend: str) -> None:
    project = open_project(backend)
    with listening_port() as port:
        connect = f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo reached"
        assert (await project.run(connect, profile_granting(network=True))).output == "reached\n"
        assert "reached" not in (await project.run(connect, WRITE)).output


async def test_sandbox_for_one_command_ends_with_the_command(open_project: OpenProject, backend: str) -> None:
    project = open_project(backend)
    granted = project.beside / "granted"
    granted.mkdir()
    ended: list[int] = []
    await project.run("true")
    project.sandbox.watch_groups(lambda group, alive: None if alive else ended.append(group))
    await project.run(f"touch {granted}/a", profile_granting(granted))
    assert len(ended) == 1


@pytest.mark.parametrize(
    ("line", "denial"),
    [
        ("git@github.com: Permission denied (publickey).", "using your keys and passwords"),
        ("fatal: could not read Username for https://x.org: No such device", "using your keys and passwords"),
        ("curl: (6) Could not resolve host: x.org", ""),
    ],
)
async def test_denial_distinguishes_missing_keys_from_a_missing_network(
    open_project: OpenProject, line: str, denial: str
) -> None:
    project = open_project("bubblewrap")
    done = await project.run(f"echo {line!r} >&2; exit 1", profile_granting(network=True))
    assert done.denial == denial


class RacingSandbox(Sandbox):
    """Removes this file, which is to be hidden, right after a sandbox of a single command was planned, `left` times."""

    secret = Path()
    left = 0

    def _plan_own_layout(self, profile: ProcessProfile) -> SandboxLayout:
        self.secret.touch()
        layout = super()._plan_own_layout(profile)
        assert str(self.secret) in layout.hidden
        if self.left:
            self.left -= 1
            self.secret.unlink()
        return layout


@pytest.mark.parametrize("kind", ["granted", "scoped"])
async def test_a_path_to_hide_that_vanishes_costs_a_command_neither_its_grant_nor_its_scope(
    open_project: OpenProject, kind: str
) -> None:
    project = open_project("bubblewrap")
    folder = project.beside if kind == "granted" else project.root / "part"
    folder.mkdir(exist_ok=True)
    profile = profile_granting(folder) if kind == "granted" else ProcessProfile(scope=(str(folder),))
    sandbox = RacingSandbox(project.sandbox._session, project.sandbox._options)
    project.sandbox.kill()
    project.sandbox, sandbox.secret = sandbox, project.home / ".netrc"
    sandbox.left = 2
    assert (await project.run(f"touch {folder}/one", profile)).code == 0
    sandbox.left = 100
    with pytest.raises(SandboxUnavailable, match="could not be created"):  # it is never run with less
        await project.run(f"touch {project.root}/other {folder}/other", profile)
    assert os.listdir(folder) == ["one"]
    assert not (project.root / "other").exists()
