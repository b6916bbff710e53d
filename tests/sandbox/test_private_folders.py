"""What only the sandboxes of one session use: the temporary folders of commands and the layers of views; levels."""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from odin.app.sandbox import LazySandbox
from odin.config import load
from odin.config.paths import make_environment
from odin.core.profile import ProcessProfile, SandboxGrants
from odin.sandbox.output import HeadTailBuffer
from odin.sandbox.probe import SandboxOptions, describe_remedy
from odin.sandbox.sandbox import Sandbox
from odin.sandbox.views.open_tree import EXCHANGE, NOREPLACE, rename_simply
from odin.sandbox.views.store import PrivateFolder, keep_layer, list_unfinished, recover_folders
from tests.waiting import wait_until

from .sandboxes import READ_ONLY, WRITE, SandboxedProject, explain_missing_view

VIEW = ProcessProfile("project", view=True)
OpenProject = Callable[..., SandboxedProject]


@pytest.fixture
async def open_project(tmp_path: Path) -> AsyncIterator[OpenProject]:
    opened: list[SandboxedProject] = []

    def open_one(backend: str = "bubblewrap", root: str = "", **more: Any) -> SandboxedProject:
        project = SandboxedProject(tmp_path, backend, views=f"{tmp_path}/state/views", **more)
        if root:
            session = replace(project.sandbox._session, root=root)  # pyright: ignore[reportPrivateUsage]
            project.sandbox = Sandbox(session, SandboxOptions(backend))
            project.root = Path(root)
        opened.append(project)
        return project.skip_if_unavailable()

    yield open_one
    for project in opened:
        await project.close()


def list_profiles(project: SandboxedProject) -> list[ProcessProfile]:
    """Return a profile for every kind of sandbox that commands get here."""
    views = [] if explain_missing_view(project.root) else [VIEW]
    own = ProcessProfile("granted", SandboxGrants(network=True))
    return [WRITE, READ_ONLY, own, ProcessProfile("project", scope=(str(project.root),)), *views]


@pytest.mark.parametrize("place", ["/tmp", "/var/tmp", "$TMPDIR"])
async def test_temporary_folders_are_those_of_the_session(
    open_project: OpenProject, tmp_path: Path, place: str
) -> None:
    (tmp_path / "own").mkdir()
    project = open_project(environ={"TMPDIR": str(tmp_path / "own")})
    real = Path(str(tmp_path / "own") if place == "$TMPDIR" else place)
    profiles = list_profiles(project)
    with tempfile.NamedTemporaryFile(dir=real, prefix="odin-outside-") as outside:
        for number, profile in enumerate(profiles):
            done = await project.run(f"cat {outside.name}; rm {outside.name}; echo {number} >>{place}/made", profile)
            assert "No such file" in done.output
        assert Path(outside.name).exists()
    background = HeadTailBuffer(1000)
    running = await project.runner.start_detached(
        f"cat {place}/made; stat -c %a {place}", cwd=str(project.root), sink=background, profile=WRITE
    )
    await running.done
    assert background.render_text()[0].split() == [*map(str, range(len(profiles))), "1777"]
    assert not (real / "made").exists()
    await project.close()
    assert os.listdir(tmp_path / "state/views") == []


async def test_with_landlock_only_tmpdir_is_that_of_the_session(open_project: OpenProject) -> None:
    project = open_project("landlock")
    with tempfile.NamedTemporaryFile(prefix="odin-outside-") as outside:
        outside.write(b"secret")
        outside.flush()
        done = await project.run(f"echo 1 >$TMPDIR/made; cat {outside.name}; echo x >{outside.name}")
        assert (done.code, "secret" in done.output) == (1, False)
        assert outside.seek(0) or outside.read() == b"secret"
    assert (await project.run("cat $TMPDIR/made", READ_ONLY)).output == "1\n"


async def test_project_in_a_temporary_folder_cannot_be_moved_away(open_project: OpenProject) -> None:
    """A view would be mounted in its old place, and the real one would be writable in the new one."""
    with tempfile.TemporaryDirectory(prefix="odin-project-") as folder:
        root = Path(folder).resolve() / "inner/project"
        root.mkdir(parents=True)
        (root / "file").write_text("1\n")
        project = open_project(root=str(root))
        for profile in list_profiles(project):
            done = await project.run(f"mv {folder} /tmp/moved; echo x >{folder}/x; ls /tmp; cat file", profile)
            assert done.output.splitlines()[-1] == "1"
            assert "moved" not in done.output.splitlines()
            assert os.listdir(folder) == ["inner"]


async def test_level_is_tried_once_and_remembered(open_project: OpenProject, tmp_path: Path) -> None:
    project = open_project()
    project.skip_without_views()
    session = project.sandbox._session  # pyright: ignore[reportPrivateUsage]
    file = tmp_path / "probe.json"
    options = SandboxOptions("bubblewrap", unsandboxed_commands=("docker",))
    first = Sandbox(session, options, file)
    assert first.find_level() == "none", "it was not tried yet"
    await first.examine()
    assert (first.find_level(), first.explain_level()) == ("view", "")
    first.kill()
    later = Sandbox(session, options, file)
    assert [later.find_level(command) for command in ("ls", "docker ps", "docker ps; ls")] == ["view", "none", "view"]
    assert not later._supervisors, "nothing was started"  # pyright: ignore[reportPrivateUsage]
    kernel = Sandbox(session, SandboxOptions("landlock"))
    await kernel.examine()
    if not kernel.problem:
        assert kernel.find_level() == "kernel"
        assert "only bubblewrap can mount views" in kernel.explain_level().lower()
        assert kernel.describe().endswith(", no views")
    kernel.kill()
    assert Sandbox(session, SandboxOptions("off")).find_level() == "none"


SECRETS = (".env", "sub/deep/service.key", ".aws/credentials", "linked", "sub/credentials/.env.local")
NO_SECRETS = ("code.py", ".env.example", "node_modules/x/.env", "tests/fixtures/test.pem", "sub/credentials/code.py")


def make_secrets(project: SandboxedProject) -> tuple[str, ...]:
    for name in (*SECRETS, *NO_SECRETS):
        path = project.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content of {name}\n")
    (project.root / "linked").rename(project.beside / "linked")
    (project.root / "linked.env").symlink_to(project.beside / "linked")
    return project.sandbox.find_secret_files()


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
async def test_secret_files_are_hidden_from_commands_that_nobody_approved(
    open_project: OpenProject, backend: str
) -> None:
    project = open_project(backend)
    hidden = make_secrets(project)
    root = project.root
    expected = [root / ".aws", root / ".env", project.beside / "linked", root / "sub/credentials/.env.local"]
    assert sorted(hidden) == sorted(map(str, [*expected, root / "sub/deep/service.key"]))
    profiles = [replace(READ_ONLY, hidden=hidden), replace(VIEW, hidden=hidden)]
    names = " ".join((*SECRETS, *NO_SECRETS)).replace("linked", "linked.env")
    if backend == "landlock" or explain_missing_view(project.root):
        profiles.pop()
    for profile in profiles:
        done = await project.run(f"cat {names}; ls; git init -q other; true", profile)
        shown = [line.removeprefix("content of ") for line in done.output.splitlines() if "content" in line]
        assert shown == list(NO_SECRETS)
        assert "sub" in done.output.splitlines()
        assert ("Permission denied" in done.output) == (backend == "landlock"), "it would disturb `grep -r`"
    plain = await project.run(f"cat {names}", READ_ONLY)
    assert plain.output.count("content of") == len(SECRETS) + len(NO_SECRETS)
    (root / ".env").unlink()  # as an editor does
    (root / ".env").write_text("content again")
    (root / "new.pem").write_text("content of a key")
    assert (await project.run("cat .env", profiles[0])).output.count("content") == 0
    found = project.sandbox._secret_files  # pyright: ignore[reportPrivateUsage]
    found._valid_until = 0.0  # pyright: ignore[reportPrivateUsage]
    assert str(root / "new.pem") in found.find()
    done = await project.run("cat new.pem code.py", replace(profiles[0], hidden=found.find()))
    assert "content of a key" not in done.output
    assert "content of code.py" in done.output
    assert len(project.sandbox._supervisors) <= 3  # pyright: ignore[reportPrivateUsage]


async def test_session_of_the_app_has_views_and_limits(workspace: Path, home: Path) -> None:
    env = dict(os.environ)
    sandbox = LazySandbox(load(str(workspace), env), make_environment(env, str(workspace)))
    session = sandbox.get()._session  # pyright: ignore[reportPrivateUsage]
    assert session.views == f"{home}/.local/state/odin/views"
    assert sandbox.get()._options.limits.memory > 0  # pyright: ignore[reportPrivateUsage]
    await sandbox.examine()
    assert sandbox.find_level() == sandbox.get().find_level()
    assert bool(sandbox.explain_level()) == (sandbox.find_level() != "view")
    await sandbox.close()


def test_remedy_says_what_to_do() -> None:
    def describe(reason: str, bwrap: str = "/usr/bin/bwrap", **failures: str) -> str:
        return describe_remedy(reason, failures, bwrap, needs_profile=True)

    assert "Install bubblewrap" in describe("only bubblewrap can mount views", "")
    assert "volume" in describe("/p lies on an overlay itself, as in a container")
    assert describe("the sandbox is off (sandbox.backend)") == ""
    failure = "bwrap: setting up uid map: Permission denied"
    for profile in (describe("only bubblewrap can mount views", bubblewrap=failure), describe("may not mount")):
        assert "profile bwrap /usr/bin/bwrap flags=(unconfined) {\n  userns,\n}\nEND\n" in profile
        assert profile.endswith("sudo apparmor_parser -r /etc/apparmor.d/bwrap")


DIE = """
import os, sys
from odin.sandbox.views.store import PrivateFolder
print(PrivateFolder(sys.argv[1]).open(), flush=True)
os.kill(os.getpid(), 9)
"""


def test_folder_of_a_killed_process_is_removed_by_the_next(tmp_path: Path) -> None:
    place = tmp_path / "views"
    done = subprocess.run([sys.executable, "-c", DIE, str(place)], capture_output=True, text=True, check=False)
    left = Path(done.stdout.strip())
    (left / "layers/x/0/w/work").mkdir(parents=True)
    (left / "layers/x/0/w/work").chmod(0)
    folder = PrivateFolder(str(place))
    assert sorted(os.listdir(folder.open())) == ["layers", "lock", "temporary"]
    wait_until(lambda: not left.exists())
    recover_folders(str(place))
    assert os.listdir(place) == [os.path.basename(folder.open())]
    folder.remove()
    assert os.listdir(place) == []


async def test_layer_that_was_not_applied_can_be_kept(open_project: OpenProject, tmp_path: Path) -> None:
    project = open_project()
    project.skip_without_views()
    kept: list[str] = []
    for number in range(7):
        done = await project.run(f"mkdir -p a/b; echo {number} >a/b/c; chmod 500 a/b a", VIEW)
        assert done.view is not None
        kept.append(keep_layer(done.view, f"{tmp_path}/session/layers"))
        await asyncio.sleep(0.01)
    assert sorted(os.listdir(tmp_path / "session/layers")) == sorted(os.path.basename(path) for path in kept[2:])
    assert Path(kept[6], "0/u/a/b/c").read_text() == "6\n"
    await project.close()
    subprocess.run(["rm", "-r", str(tmp_path / "session")], check=True)


APPLY = """
import os, signal, sys
from pathlib import Path
from odin.sandbox.views.applier import apply_effects
from odin.sandbox.views.effects import read_effects
from odin.sandbox.views.layer import begin_layer, make_layer
from odin.sandbox.views.store import PrivateFolder

folder, root, left = PrivateFolder(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
layer = begin_layer(make_layer(f"{folder.layers}/one", [str(root)], "user"))
for name in ("a", "b", "c", "new/d"):
    path = Path(layer.roots[0].upper, name)
    path.parent.mkdir(exist_ok=True)
    path.write_text("after")
effects = read_effects(layer)

def trace(frame, event, argument):
    global left
    left -= frame.f_code.co_filename.endswith("applier.py")
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return trace

sys.settrace(trace)
apply_effects(layer, effects, layer.stage)
folder.remove()
"""


@pytest.mark.parametrize("line", [1, 150, 300, 400, 450, 500, 550, 600, 650, 700, 1_000_000])
def test_interrupted_apply_is_completed_by_the_next_process(tmp_path: Path, line: int) -> None:
    """Killed at any line, nothing was applied or all of it is then."""
    root, place = tmp_path / "project", tmp_path / "views"
    root.mkdir()
    for name in "abc":
        (root / name).write_text("before")
    time.sleep(0.02)
    subprocess.run([sys.executable, "-c", APPLY, str(place), str(root), str(line)], check=False)
    is_unfinished = any(list_unfinished(str(path)) for path in place.iterdir())
    results = recover_folders(str(place))
    assert [bool(result.applied) for result in results] == [True] * is_unfinished
    texts = [path.read_text() for path in sorted(root.rglob("*")) if path.is_file()]
    assert texts in (["before"] * 3, ["after"] * 4)
    assert line > 1 or texts == ["before"] * 3
    assert line < 1_000_000 or texts == ["after"] * 4
    journals = list(place.glob("*/layers/one/stage/journal"))
    assert bool(journals) == (texts[0] == "after"), "its session records the changes later"
    for journal in journals:
        os.utime(journal, (1, 1))
    wait_until(lambda: recover_folders(str(place)) == () and not os.listdir(place))


def test_session_tells_that_an_apply_was_completed(workspace: Path, home: Path) -> None:
    env = dict(os.environ)
    sandbox = LazySandbox(load(str(workspace), env), make_environment(env, str(workspace)))
    assert sandbox.recover() == ""
    place = home / ".local/state/odin/views"
    (workspace / "a").write_text("before")
    time.sleep(0.02)
    subprocess.run([sys.executable, "-c", APPLY, str(place), str(workspace), "500"], check=False)
    assert "They are complete now" in sandbox.recover()
    assert sandbox.recover() == ""


def test_folder_is_kept_while_a_layer_of_it_is_applied(tmp_path: Path) -> None:
    folder = PrivateFolder(str(tmp_path / "views"))
    stage = Path(folder.layers, "one/stage")
    stage.mkdir(parents=True)
    (stage / "journal").write_text("")
    folder.remove()
    assert (stage / "journal").exists()
    assert recover_folders(str(tmp_path / "views")) == (), "this process may still be applying it"


def test_renaming_without_flags(tmp_path: Path) -> None:
    """As on NFS."""
    fd = os.open(tmp_path, os.O_RDONLY)
    for name in ("old", "new"):
        (tmp_path / name).write_text(name)
    rename_simply((fd, "new"), (fd, "old"), EXCHANGE)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"old": "new", "new": "old"}
    with pytest.raises(FileExistsError):
        rename_simply((fd, "new"), (fd, "old"), NOREPLACE)
    rename_simply((fd, "new"), (fd, "third"), NOREPLACE)
    assert sorted(os.listdir(tmp_path)) == ["old", "third"]
    os.close(fd)
