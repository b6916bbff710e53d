"""A temporary home and workspace for every test, and the `odin` command: in this process, or in one of its own."""

import asyncio
import gc
import importlib
import itertools
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests import inprocess
from tests.unknown_keys import find_unknown_keys, record_unknown_keys

for _name in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS"):  # a `make` that a test starts is not a part of `make test`
    os.environ.pop(_name, None)

hypothesis.settings.register_profile("odin", deadline=None, derandomize=bool(os.environ.get("CI")))
hypothesis.settings.load_profile("odin")
"""Time is measured by `make bench`, not here; and a check that gates others plays the same examples every time."""

_CLEARED = ("ODIN_", "ANTHROPIC_", "OPENAI_", "GEMINI_", "GOOGLE_", "XDG_", "OLLAMA_", "CLAUDE")


_homes = itertools.count()


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty HOME, so that nothing of the machine reaches a test and nothing of a test reaches the machine.

    It is numbered here and removed after the test: `mktemp` would look at all earlier ones for the next number.
    """
    folder = tmp_path_factory.getbasetemp() / f"home{next(_homes)}"
    folder.mkdir()
    for name in list(os.environ):
        if name.startswith(_CLEARED) or name.endswith(("_API_KEY", "_PROXY", "_proxy")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("ODIN_LOCAL_PORTS", "")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def no_unknown_keys(request: pytest.FixtureRequest, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail a test that sets a configuration key which does not exist, unless it is marked `unknown_keys`."""
    if request.node.get_closest_marker("unknown_keys"):
        yield
        return
    said = record_unknown_keys(monkeypatch)
    project: list[Path] = [request.getfixturevalue("workspace")] if "workspace" in request.fixturenames else []
    yield
    said |= find_unknown_keys(*(folder / "odinconfig.json" for folder in (home / ".config" / "odin", *project)))
    assert not said, "the test sets configuration keys that do not exist; `unknown_keys` marks tests about them"


if os.environ.get("ODIN_REFEREE"):

    @pytest.fixture(autouse=True)
    def referee(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """Fail a test in which Odin sends a request that is not what the SDK of the vendor declares."""
        from tests.referee import find_foul_requests, record_servers

        servers = record_servers(monkeypatch)
        yield
        assert find_foul_requests(servers) == [], "the SDK of the vendor has other types"


@pytest.fixture(autouse=True, scope="session")
def no_waiting_for_the_disk() -> Iterator[None]:
    """Nobody cuts the power during the tests; those about that put something else in the place of `fsync`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", _check_descriptor)
        yield


def _check_descriptor(fd: int) -> None:
    os.fstat(fd)


@pytest.fixture(autouse=True, scope="session")
def no_python_shim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let `python3` be the interpreter of the tests; the shim of a version manager takes longer than Python itself."""
    folder = tmp_path_factory.mktemp("bin")
    (folder / "python3").symlink_to(os.path.realpath(sys.executable))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(folder), prepend=os.pathsep)
        yield


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """An empty project folder, free of symbolic links in its path."""
    folder = tmp_path.resolve() / "project"
    folder.mkdir()
    return folder


Run = Callable[..., "subprocess.CompletedProcess[str]"]
Here = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run_odin(run_odin_process: Run, workspace: Path) -> Run:
    """Run `odin ARGS…` in the workspace: run_odin("-p", "hi", env={...}, input="...").

    It runs in this process, which is faster than one of its own. Beside a running event loop and in a thread it cannot,
    so there it gets a process.
    """

    def run(
        *args: str,
        env: Mapping[str, str] | None = None,
        input: str | None = None,
        cwd: Path | None = None,
        timeout: float = 60,
    ) -> "subprocess.CompletedProcess[str]":
        if threading.current_thread() is not threading.main_thread() or _loop_is_running():
            return run_odin_process(*args, env=env, input=input, cwd=cwd, timeout=timeout)
        return inprocess.run_odin(args, env or {}, input, cwd or workspace)

    return run


@pytest.fixture
def here(workspace: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Here:
    """`odin ARGS…` in this process and the workspace: the exit code, what was printed, and what was said."""
    monkeypatch.chdir(workspace)

    def run_here(*args: str, env: Mapping[str, str] | None = None) -> tuple[int, str, str]:
        from odin.commands import run

        for name, value in (env or {}).items():
            monkeypatch.setenv(name, value)
        code = run([*args])
        printed, said = capfd.readouterr()
        return code, printed, said

    return run_here


@pytest.fixture
def run_odin_process(workspace: Path) -> Run:
    """Run `odin ARGS…` as a user does: in a process of its own."""

    def run(
        *args: str,
        env: Mapping[str, str] | None = None,
        input: str | None = None,
        cwd: Path | None = None,
        timeout: float = 60,
    ) -> "subprocess.CompletedProcess[str]":
        streams: dict[str, Any] = {"input": input} if input is not None else {"stdin": subprocess.DEVNULL}
        return subprocess.run(
            [sys.executable, "-I", "-m", "odin", *args],
            capture_output=True,
            text=True,
            cwd=cwd or workspace,
            env={**os.environ, **(env or {})},
            timeout=timeout,
            check=False,
            **streams,
        )

    return run


def pytest_xdist_auto_num_workers() -> int:
    """Three workers for two cores: many tests wait for processes and timers."""
    cores = os.cpu_count() or 2
    return cores + cores // 2


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect the tests without garbage collections, and rewrite the assertions of a module in one worker only.

    In a fresh clone nothing is cached yet, and all workers would rewrite all modules in the same order. Each begins
    with a share of its own, so that it finds those of the others in the cache.
    """
    gc.disable()
    worker: dict[str, Any] | None = getattr(session.config, "workerinput", None)
    if worker is not None and session.config.args == session.config.getini("testpaths"):
        first, step = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
        for path in sorted(Path(__file__).parent.rglob("test_*.py"))[first::step]:
            name = ".".join(path.relative_to(session.config.rootpath).with_suffix("").parts)
            with suppress(Exception, pytest.skip.Exception):  # reported when the module is collected
                importlib.import_module(name)
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Keep the garbage collector from walking the imported modules again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which sandbox tests were skipped, and why: without them, nothing proves that the sandbox holds."""
    reports: list[pytest.TestReport] = terminalreporter.stats.get("skipped", [])
    names_by_reason: dict[str, list[str]] = {}
    for report in reports:
        reason = report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else ""
        if any(word in f"{report.nodeid} {reason}".lower() for word in ("sandbox", "bubblewrap", "landlock")):
            names_by_reason.setdefault(reason, []).append(report.nodeid)
    if names_by_reason:
        terminalreporter.section("skipped sandbox tests")
    for reason, names in sorted(names_by_reason.items()):
        terminalreporter.line(f"{reason}:")
        for name in sorted(names):
            terminalreporter.line(f"  {name}")


def _loop_is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
