"""The layout of a sandbox, the cached probe result, and the description of denials and sandboxes."""

import os
import socket
import time
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from odin.sandbox.backends import BUBBLEWRAP_VARIANTS, build_bubblewrap_argv, list_readable
from odin.sandbox.layout import (
    SandboxLayout,
    SandboxSession,
    SecretPaths,
    has_exposed_files,
    is_writable,
    plan_layout,
)
from odin.sandbox.probe import (
    ProbeResult,
    SandboxCandidate,
    SandboxOptions,
    compute_probe_key,
    describe_sandbox,
    load_probe,
    save_probe,
)
from odin.sandbox.protected_files import ProtectedFiles
from odin.sandbox.sandbox import describe_denial
from tests.table import each

EMPTY_LAYOUT = SandboxLayout(temporary=(), persistent=(), writable=(), pinned=(), protected=(), hidden=(), visible=())


def make_session(folder: Path, **more: object) -> SandboxSession:
    home, root = folder / "home", folder / "project"
    for path in (home, root):
        path.mkdir(exist_ok=True)
    return msgspec.convert({"root": str(root), "home": str(home), "env": {}, **more}, SandboxSession)


def test_read_only_layout_has_no_writable_path(tmp_path: Path) -> None:
    plan = plan_layout(make_session(tmp_path), writes=False)
    assert (plan.writable, plan.pinned) == ((), ())
    argv = build_bubblewrap_argv("bwrap", BUBBLEWRAP_VARIANTS[0], plan, "python", 9, network=False)
    assert {path for option, path in pairwise(argv) if option == "--bind"} == set(plan.temporary)
    assert "--unshare-net" in argv


def test_secret_folder_that_contains_the_project_is_not_hidden(tmp_path: Path) -> None:
    project = tmp_path / "home/.config/gh/project"
    project.mkdir(parents=True)
    (tmp_path / "home/.ssh").mkdir()
    plan = plan_layout(make_session(tmp_path, root=str(project)), writes=True)
    assert str(tmp_path / "home/.ssh") in plan.hidden
    assert str(tmp_path / "home/.config/gh") not in plan.hidden


def test_target_of_a_linked_secret_folder_is_hidden(tmp_path: Path) -> None:
    found = make_session(tmp_path)
    (tmp_path / "vault").mkdir()
    (tmp_path / "home/.ssh").symlink_to(tmp_path / "vault")
    assert str(tmp_path / "vault") in plan_layout(found, writes=True).hidden


def test_new_and_replaced_secrets_are_noticed(tmp_path: Path) -> None:
    session = make_session(tmp_path)
    home = Path(session.home)
    (home / ".config").mkdir()
    secrets = SecretPaths(session)
    for change in (
        lambda: (home / ".netrc").write_text("new"),
        lambda: (home / ".netrc").rename(home / "moved"),
        lambda: (home / ".netrc").symlink_to(home / "moved"),
        lambda: (home / "moved").rename(home / "again"),
        lambda: (home / ".config/gh").mkdir(),
        lambda: (home / ".config").rename(home / "config"),
        lambda: (home / ".config").symlink_to(home / "config"),
    ):
        time.sleep(0.06)  # what changed this recently is not remembered
        layout = plan_layout(session, writes=True)
        assert not has_exposed_files(layout, secrets)
        assert not has_exposed_files(layout, secrets)
        change()
        assert has_exposed_files(layout, secrets)


def test_sockets_in_the_temporary_folder_are_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If they can be seen there: beside the home or the project."""
    folder = tmp_path / "home/tmux-0"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("default")
        plan = plan_layout(make_session(tmp_path, env={"TMPDIR": str(tmp_path)}), writes=True)
    assert str(folder) in plan.sockets


def test_home_inside_the_temporary_folder_is_not_temporary(tmp_path: Path) -> None:
    plan = plan_layout(make_session(tmp_path, env={"TMPDIR": str(tmp_path)}), writes=True)
    assert str(tmp_path / "home") in plan.persistent


def test_the_innermost_folder_decides_what_is_temporary(tmp_path: Path) -> None:
    top, ci, inner = str(tmp_path), str(tmp_path / "ci"), str(tmp_path / "ci/tmp")
    Path(inner).mkdir(parents=True)
    nested = msgspec.structs.replace(EMPTY_LAYOUT, temporary=(inner, top), persistent=(ci,))
    paths = (f"{top}/x", ci, f"{ci}/home", inner, f"{inner}/x", "/etc")
    assert [path for path in paths if is_writable(path, nested)] == [f"{top}/x", inner, f"{inner}/x"]
    home = msgspec.structs.replace(EMPTY_LAYOUT, temporary=(ci,), persistent=(ci,))
    assert not is_writable(f"{ci}/x", home)
    for layout, mounts in ((nested, ["--bind", top, "--ro-bind", ci, "--bind", inner]), (home, ["--ro-bind", ci])):
        argv = build_bubblewrap_argv("bwrap", BUBBLEWRAP_VARIANTS[0], layout, "python", 3, network=False)
        pairs = [(flag, path) for flag, path in pairwise(argv) if flag in ("--bind", "--ro-bind")]
        found = [word for flag, path in pairs if path.startswith(top) for word in (flag, path)]
        assert found[-len(mounts) :] == mounts


def test_root_of_the_file_system_is_never_writable(tmp_path: Path) -> None:
    plan = plan_layout(make_session(tmp_path, root="/", writable=("/",)), writes=True)
    assert "/" not in plan.writable


def test_siblings_of_a_secret_are_readable_but_not_the_secret(tmp_path: Path) -> None:
    for name in ("secret", "plain"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to(tmp_path)
    found = list_readable([str(tmp_path / "secret")])
    assert str(tmp_path / "plain") in found
    assert str(tmp_path / "secret") not in found
    assert str(tmp_path / "link") not in found, "the link leads to the folder that contains the secret"
    assert not any(str(tmp_path).startswith(f"{path}/") or path == str(tmp_path) for path in found)


def test_files_that_control_other_programs_are_read_only(tmp_path: Path) -> None:
    for name in (".git/hooks", ".github/workflows", ".vscode", "src"):
        (tmp_path / name).mkdir(parents=True)
    for name in (".git/config", ".git/index", ".envrc", "README.md", ".github/CODEOWNERS"):
        (tmp_path / name).write_text("")
    found = {os.path.relpath(path, tmp_path) for path in ProtectedFiles(str(tmp_path)).list_read_only()}
    assert found == {".git/config", ".git/hooks", ".github/workflows", ".vscode", ".envrc"}


@each(
    ("line", "what"),
    [
        ("touch: cannot touch '/opt/x': Read-only file system", "writing /opt/x"),
        ("bash: line 1: /opt/x: Read-only file system", "writing /opt/x"),
        ("/bin/bash: line 1: out.txt: Read-only file system", "writing /srv/out.txt"),
        ("OSError: [Errno 30] Read-only file system: '/opt/x y'", "writing /opt/x y"),
        ("Error: EROFS: read-only file system, open '/opt/x'", "writing /opt/x"),
        ("Read-only file system (os error 30)", "writing outside the project and the temporary folders"),
        ("error: could not write config file .git/config: Device or resource busy", "changing /srv/.git/config"),
        ("curl: (6) Could not resolve host: example.org", "reaching the network"),
        ("ping: connect: Network is unreachable", "reaching the network"),
        ("getaddrinfo EAI_AGAIN registry.example.org", "reaching the network"),
        ("fatal: unable to access 'https://example.org/': Could not resolve host: example.org", "reaching the network"),
        ("socket.gaierror: [Errno -3] Temporary failure in name resolution", "reaching the network"),
        ("Cannot connect to the Docker daemon at unix:///var/run/docker.sock.", "reaching the container daemon"),
        ("cat: /home/u/.ssh/id: Permission denied", "reading /home/u/.ssh/id"),
        ("1 test failed: expected 3, got 4", ""),
        ("rm: cannot remove 'x': Device or resource busy", ""),
        ("cat: /proc/1/mem: Permission denied", ""),
        ("cat: /nowhere/at/all: Permission denied", ""),
        ("connect to 127.0.0.1 port 1: Connection refused", ""),
    ],
)
def test_denial_says_what_the_sandbox_prevented(line: str, what: str) -> None:
    plan = msgspec.structs.replace(EMPTY_LAYOUT, hidden=("/home/u/.ssh",), protected=("/srv/.git/config",))
    assert describe_denial(f"before\n{line}\nafter\n", 1, "/srv", plan, network=False) == what


def test_network_failure_is_not_a_denial_if_the_network_is_on() -> None:
    line = "curl: (6) Could not resolve host: example.org"
    assert describe_denial(line, 6, "/srv", EMPTY_LAYOUT, network=True) == ""


def test_running_a_file_that_is_not_executable_is_not_a_denial(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("")
    line = f"bash: {script}: Permission denied"
    assert describe_denial(line, 126, "/srv", EMPTY_LAYOUT, network=False) == ""
    assert describe_denial(line, 1, "/srv", EMPTY_LAYOUT, network=False) == f"writing {script}"


def test_cached_probe_is_valid_while_the_key_is_the_same(tmp_path: Path) -> None:
    file = tmp_path / "cache/sandbox.json"
    probe = ProbeResult("key", SandboxCandidate("landlock"), {"bubblewrap": "bwrap is not installed"})
    assert load_probe(file, lambda: "key") is None
    save_probe(file, probe)
    assert load_probe(file, lambda: "key") == probe
    assert load_probe(file, lambda: "another") is None
    file.write_text("{")
    assert load_probe(file, lambda: "key") is None
    assert file.parent.stat().st_mode & 0o077 == 0


def test_installing_bubblewrap_changes_the_probe_key(tmp_path: Path) -> None:
    without = compute_probe_key(SandboxOptions(), str(tmp_path))
    (tmp_path / "bwrap").write_text("")
    (tmp_path / "bwrap").chmod(0o755)
    assert compute_probe_key(SandboxOptions(), str(tmp_path)) != without
    assert compute_probe_key(SandboxOptions(), str(tmp_path)) == compute_probe_key(SandboxOptions(), str(tmp_path))


def test_sandbox_is_described_in_one_line() -> None:
    none = ProbeResult(
        "", SandboxCandidate("none"), {"bubblewrap": "bwrap is not installed", "landlock": "the kernel has none"}
    )
    assert (
        describe_sandbox(SandboxOptions(), ProbeResult("", SandboxCandidate("bubblewrap"))) == "bubblewrap, network off"
    )
    assert (
        describe_sandbox(SandboxOptions(network=True), ProbeResult("", SandboxCandidate("landlock")))
        == "landlock, network on, no views"
    )
    assert (
        describe_sandbox(SandboxOptions(), none)
        == "no sandbox (bubblewrap: bwrap is not installed; landlock: the kernel has none)"
    )
    assert describe_sandbox(SandboxOptions("landlock"), none) == "landlock does not work, commands are disabled"
    old = ProbeResult("", SandboxCandidate("landlock"), leaks=True)
    assert (
        describe_sandbox(SandboxOptions(), old) == "landlock, network cannot be switched off on this kernel, no views"
    )
