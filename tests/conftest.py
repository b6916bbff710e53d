"""Fixtures for all tests: a temporary HOME and workspace, and the `odin` command in this or in another process."""

import asyncio
import gc
import importlib
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from msgspec import convert, to_builtins
from msgspec.structs import force_setattr

from odin.core.timing import DEFAULT_TIMING
from tests import inprocess
from tests.soak import SOAK
from tests.unknown_keys import find_unknown_keys, record_unknown_keys
from tests.waiting import LIMIT_S, LONG_S, LongWait, record_wait, take_long_waits

for _name in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS"):  # a `make` that a test starts must not take part in `make test`
    os.environ.pop(_name, None)

hypothesis.settings.register_profile("sample", deadline=None, derandomize=True)
hypothesis.settings.register_profile("soak", deadline=None, max_examples=1_000, print_blob=True)
hypothesis.settings.load_profile("soak" if SOAK else "sample")
"""No deadline, because `make bench` measures time. Only `make soak` tries other examples every time."""

if len(tempfile.gettempdir()) > len("/private/tmp"):
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/tmp")
"""Screens and requests that the tests compare contain paths, so these must be short. On macOS $TMPDIR is not."""

_CLEARED = ("ODIN_", "ANTHROPIC_", "OPENAI_", "GEMINI_", "GOOGLE_", "XDG_", "OLLAMA_", "CLAUDE")


_homes = itertools.count()


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty HOME and a clean environment, which isolate the test from the machine.

    The folder gets its number here and is removed after the test: `mktemp` would search all earlier ones for the next.
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


@pytest.fixture
def no_network(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests to the APIs of the vendors fail at once: no test sends them a key."""
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")


@pytest.fixture(autouse=True)
def no_unknown_keys(request: pytest.FixtureRequest, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail a test that sets a configuration key which does not exist, unless it is marked `unknown_keys`."""
    if request.node.get_closest_marker("unknown_keys"):
        yield
        return
    unknown = record_unknown_keys(monkeypatch)
    project: list[Path] = [request.getfixturevalue("workspace")] if "workspace" in request.fixturenames else []
    yield
    unknown |= find_unknown_keys(*(folder / "odinconfig.json" for folder in (home / ".config" / "odin", *project)))
    assert not unknown, "the test sets configuration keys that do not exist; `unknown_keys` marks tests about them"


if os.environ.get("ODIN_REFEREE"):

    @pytest.fixture(autouse=True)
    def validate_requests(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """Fail a test in which Odin sends a request that the types of the vendor's SDK do not allow."""
        from tests.request_validation import find_invalid_requests, record_servers

        servers = record_servers(monkeypatch)
        yield
        assert find_invalid_requests(servers) == [], "the types of the vendor's SDK do not allow these requests"


@pytest.fixture(autouse=True, scope="session")
def no_fsync() -> Iterator[None]:
    """Replace `fsync` by a check of its descriptor, which is faster. Tests about power cuts replace it themselves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", _check_descriptor)
        yield


def _check_descriptor(fd: int) -> None:
    os.fstat(fd)


@pytest.fixture(autouse=True, scope="session")
def no_retry_pauses() -> Iterator[None]:
    """Connect an MCP server again at once, also in commands of the tests' own process, which take no `Timing`."""
    pauses = DEFAULT_TIMING.mcp_retry_pauses_s
    force_setattr(DEFAULT_TIMING, "mcp_retry_pauses_s", (0.0, 0.0))
    yield
    force_setattr(DEFAULT_TIMING, "mcp_retry_pauses_s", pauses)


@pytest.fixture(autouse=True, scope="session")
def no_early_end() -> Iterator[None]:
    """Give up a sandbox or a replay at the limit of every wait: a machine so busy is no defect of what is tested."""
    names = ("sandbox_start_s", "sandbox_answer_s", "replay_stall_s")
    usual = {name: getattr(DEFAULT_TIMING, name) for name in names}
    for name in names:
        force_setattr(DEFAULT_TIMING, name, LIMIT_S)
    yield
    for name, seconds in usual.items():
        force_setattr(DEFAULT_TIMING, name, seconds)


@pytest.fixture(autouse=True, scope="session")
def recorded_server_waits() -> Iterator[None]:
    """Record the waits of the scripted server like all others."""
    from odin.testing import ScriptedServer

    def record(wait: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(server: ScriptedServer, *args: Any, **options: Any) -> Any:
            with record_wait(f"requests of the scripted server: {wait.__name__}{args}"):
                return wait(server, *args, **options)

        return recorded

    with pytest.MonkeyPatch.context() as patch:
        for wait in (ScriptedServer.wait_for, ScriptedServer.wait_idle):
            patch.setattr(ScriptedServer, wait.__name__, record(wait))
        yield


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


@pytest.fixture
def without_views(home: Path) -> None:
    """Let commands change the project directly, for tests that look at it while one runs."""
    (home / ".config/odin").mkdir(parents=True)
    (home / ".config/odin/odinconfig.json").write_text('{"sandbox": {"backend": "landlock"}}')


Run = Callable[..., "subprocess.CompletedProcess[str]"]
RunHere = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run_odin(run_odin_process: Run, workspace: Path) -> Run:
    """Run `odin ARGS…` in the workspace: run_odin("-p", "hi", env={...}, input="...").

    It runs in this process, which is faster than starting one. In a thread or with a running event loop it starts one.
    """

    def run(
        *args: str,
        env: Mapping[str, str] | None = None,
        input: str | None = None,
        cwd: Path | None = None,
        timeout: float = LIMIT_S,
    ) -> "subprocess.CompletedProcess[str]":
        if threading.current_thread() is not threading.main_thread() or _is_loop_running():
            return run_odin_process(*args, env=env, input=input, cwd=cwd, timeout=timeout)
        return inprocess.run_odin(args, env or {}, input, cwd or workspace)

    return run


@pytest.fixture
def run_here(workspace: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> RunHere:
    """Run `odin ARGS…` in this process and the workspace. Return the exit code, stdout and stderr."""
    monkeypatch.chdir(workspace)

    def call_command(*args: str, env: Mapping[str, str] | None = None) -> tuple[int, str, str]:
        from odin.commands import run

        for name, value in (env or {}).items():
            monkeypatch.setenv(name, value)
        code = run([*args])
        stdout, stderr = capfd.readouterr()
        return code, stdout, stderr

    return call_command


@pytest.fixture
def run_odin_process(workspace: Path) -> Run:
    """Run `odin ARGS…` as a user does: in a new process."""

    def run(
        *args: str,
        env: Mapping[str, str] | None = None,
        input: str | None = None,
        cwd: Path | None = None,
        timeout: float = LIMIT_S,
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
    """Two workers for each core: tests wait for processes, threads and timers more than half of their time."""
    return 2 * (os.cpu_count() or 2)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect the tests without garbage collections, and rewrite the assertions of a module in one worker only.

    In a fresh clone nothing is cached yet, and all workers would rewrite all modules in the same order. Each starts
    with a different share, so that it finds the modules of the others in the cache.
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
    """Exclude the imported modules from garbage collection, and make collections rare."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the long waits of the test to its reports, which also a worker process sends."""
    item.user_properties.extend((_LONG_WAIT, to_builtins(wait)) for wait in take_long_waits())
    return (yield)


_LONG_WAIT = "long wait"
_long_waits: list[LongWait] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "teardown":  # the last report of a test has the properties of all
        _long_waits.extend(convert(value, LongWait) for name, value in report.user_properties if name == _LONG_WAIT)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the long waits, and the skipped tests with the reasons, so that none is skipped unseen."""
    if _long_waits:
        terminalreporter.section(f"waits of more than {LONG_S:g} s")
    for wait in sorted(_long_waits, key=lambda wait: -wait.seconds):
        terminalreporter.line(f"{wait.seconds:6.1f} s  {wait.test}: {wait.awaited}")
    skipped: list[pytest.TestReport] = terminalreporter.stats.get("skipped", [])
    names_by_reason: dict[str, list[str]] = {}
    for report in skipped:
        reason = report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else ""
        names_by_reason.setdefault(reason, []).append(report.nodeid)
    if names_by_reason:
        terminalreporter.section("skipped tests")
    for reason, names in sorted(names_by_reason.items()):
        terminalreporter.line(f"{reason}:")
        for name in sorted(names):
            terminalreporter.line(f"  {name}")


def _is_loop_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
