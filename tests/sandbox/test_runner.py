"""The process runner with real processes: environment, time limits, output and child processes."""

import asyncio
import os
import threading
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from odin.config.paths import make_environment
from odin.core.profile import OWN, UNSANDBOXED
from odin.sandbox import output, process
from odin.sandbox.output import HeadTailBuffer
from odin.sandbox.process import SYSTEM_PATH, RunningProcess, build_command_environment, build_git_settings, run_own
from odin.sandbox.runner import ProcessRunner
from tests.waiting import LIMIT_S, TimeLimit, until

from .processes import list_open_files

IGNORE_SIGNALS = "trap '' TERM INT HUP"


@pytest.fixture
async def runner(tmp_path: Path) -> AsyncIterator[ProcessRunner]:
    runner = ProcessRunner(make_environment(cwd="/"), tmp_path / "spill", term_grace=0.2, cancel_grace=0.1, linger=0.1)
    yield runner
    await runner.close()


def is_alive(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


async def wait_for_pids(path: Path, count: int) -> list[int]:
    """Wait until commands wrote `count` process ids into a file, one per line, and return them."""
    await until(lambda: path.exists() and len(path.read_text().split()) >= count)
    return [int(word) for word in path.read_text().split()]


async def test_run_returns_exit_code_and_output(runner: ProcessRunner, tmp_path: Path) -> None:
    finished = await runner.run(
        "echo out; echo err >&2; exit 7", cwd=str(tmp_path), timeout=LIMIT_S, profile=UNSANDBOXED
    )
    assert (finished.code, finished.output, finished.timed_out) == (7, "out\nerr\n", False)
    assert not finished.has_survivors
    assert finished.spill_path == ""
    assert not (tmp_path / "spill").exists(), "the folder is made only when it is needed"


async def test_a_list_runs_a_program_without_a_shell(runner: ProcessRunner, tmp_path: Path) -> None:
    assert (
        await runner.run(["echo", "$HOME; ls"], cwd=str(tmp_path), timeout=LIMIT_S, profile=UNSANDBOXED)
    ).output == "$HOME; ls\n"


async def test_failed_start_raises_and_leaks_no_descriptors(runner: ProcessRunner, tmp_path: Path) -> None:
    before = list_open_files()
    with pytest.raises(FileNotFoundError):
        await runner.run("true", cwd=str(tmp_path / "no"), timeout=LIMIT_S, profile=UNSANDBOXED)
    with pytest.raises(FileNotFoundError):
        await runner.run(["/no/such/program"], cwd=str(tmp_path), timeout=LIMIT_S, profile=UNSANDBOXED)
    await runner.close()
    await until(lambda: not list_open_files() - before)


async def test_no_file_descriptor_is_left_after_many_runs(runner: ProcessRunner, tmp_path: Path) -> None:
    before = list_open_files()
    for _ in range(20):
        await runner.run("echo x", cwd=str(tmp_path), timeout=LIMIT_S, profile=UNSANDBOXED)
    await runner.close()
    await until(lambda: not list_open_files() - before)


async def test_without_a_pidfd_a_thread_waits(
    runner: ProcessRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(pid: int, flags: int = 0) -> int:
        raise OSError("not supported")

    monkeypatch.setattr(os, "pidfd_open", fail)
    finished = await runner.run("echo x; exit 2", cwd=str(tmp_path), timeout=LIMIT_S, profile=UNSANDBOXED)
    assert (finished.code, finished.output) == (2, "x\n")


async def test_timeout_ends_the_whole_process_group(runner: ProcessRunner, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"echo before; (sleep 1000 & echo $! >>{pids}; sleep 1000) & echo $! >>{pids}; wait"
    finished = await runner.run(script, cwd=str(tmp_path), timeout=1.5, profile=UNSANDBOXED)
    assert finished.timed_out
    assert finished.output == "before\n"
    assert not finished.has_survivors
    for pid in await wait_for_pids(pids, 2):
        await until(lambda pid=pid: not is_alive(pid))


async def test_processes_that_ignore_term_or_leave_the_group_are_killed(runner: ProcessRunner, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    child = f"{IGNORE_SIGNALS}; echo $$ >>{pids}; while :; do sleep 1; done"
    script = f"setsid bash -c '{child.replace(chr(39), chr(34))}' & {child}"
    finished = await runner.run(script, cwd=str(tmp_path), timeout=1.5, profile=UNSANDBOXED)
    assert finished.timed_out
    for pid in await wait_for_pids(pids, 2):
        await until(lambda pid=pid: not is_alive(pid))


async def test_cancel_kills_quickly_and_the_runner_stays_usable(runner: ProcessRunner, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"{IGNORE_SIGNALS}; echo $$ >>{pids}; sleep 1000 & echo $! >>{pids}; wait; sleep 1000"
    task = asyncio.create_task(runner.run(script, cwd=str(tmp_path), timeout=LIMIT_S, profile=UNSANDBOXED))
    found = await wait_for_pids(pids, 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with TimeLimit():
            await task
    for pid in found:
        await until(lambda pid=pid: not is_alive(pid))
    assert (await runner.run("echo on", cwd=str(tmp_path), timeout=LIMIT_S, profile=UNSANDBOXED)).output == "on\n"


async def test_timed_out_command_has_three_seconds_between_term_and_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EXEC2: the test records the time between TERM and KILL, and does not wait for it.

    An interrupt stops everything in less than a second, so its time is much shorter.
    """
    graces: list[float] = []
    terminate = RunningProcess.terminate

    async def terminate_at_once(self: RunningProcess, grace: float) -> None:
        graces.append(grace)
        await terminate(self, 0)

    monkeypatch.setattr(RunningProcess, "terminate", terminate_at_once)
    runner = ProcessRunner(make_environment(cwd="/"), tmp_path / "spill")
    finished = await runner.run(
        f"{IGNORE_SIGNALS}; while :; do sleep 0.05; done", cwd=str(tmp_path), timeout=0.1, profile=UNSANDBOXED
    )
    assert (finished.timed_out, graces) == (True, [3])
    task = asyncio.create_task(
        runner.run(f"{IGNORE_SIGNALS}; echo on; sleep 1000", cwd=str(tmp_path), timeout=LIMIT_S, profile=UNSANDBOXED)
    )
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert graces == [3, 0.3]
    await runner.close()


@pytest.mark.parametrize(
    "script",
    [
        "sleep 1000 & echo $!",
        "nohup sleep 1000 >/dev/null 2>&1 & echo $!",
        "(sleep 1000 & echo $!)",
        "env -i sleep 1000 & echo $!",
        "bash -c 'trap \"\" TERM; while :; do sleep 1; done' & echo $!",
    ],
)
async def test_a_background_child_lives_until_the_session_ends(
    runner: ProcessRunner, tmp_path: Path, script: str
) -> None:
    async with TimeLimit():
        finished = await runner.run(script, cwd=str(tmp_path), timeout=LIMIT_S, profile=UNSANDBOXED)
    pid = int(finished.output)
    assert finished.code == 0
    assert finished.has_survivors
    assert is_alive(pid)
    await runner.close()
    await until(lambda: not is_alive(pid))


async def test_child_in_its_own_session_is_killed_on_close(runner: ProcessRunner, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"setsid bash -c 'echo $$ >>{pids}; exec sleep 1000' >/dev/null 2>&1 & sleep 0.1"
    await runner.run(script, cwd=str(tmp_path), timeout=LIMIT_S, profile=UNSANDBOXED)
    (pid,) = await wait_for_pids(pids, 1)
    assert is_alive(pid)
    await runner.close()
    await until(lambda: not is_alive(pid))


async def test_what_commands_leave_behind_is_not_looked_for_on_the_event_loop(
    runner: ProcessRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the processes that are younger than the command are: to look at all of the machine takes too long."""
    looking: list[threading.Thread] = []
    list_all = process._list_pids  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(process, "_list_pids", lambda: looking.append(threading.current_thread()) or list_all())
    pids = tmp_path / "pids"
    left = f"setsid -f sh -c 'echo $$ >>{pids}; exec sleep 1000' >/dev/null 2>&1; until [ -s {pids} ]; do :; done"
    for command in ("true", left):
        await runner.capture(
            ["sh", "-c", command], cwd=str(tmp_path), timeout=LIMIT_S, stop_after=1_000, profile=UNSANDBOXED
        )
    (pid,) = await wait_for_pids(pids, 1)
    await until(lambda: not is_alive(pid))
    pids.unlink()
    await runner.run(left, cwd=str(tmp_path), timeout=LIMIT_S, profile=UNSANDBOXED)
    await runner.run("sleep 1000", cwd=str(tmp_path), timeout=0.1, profile=UNSANDBOXED)
    (pid,) = await wait_for_pids(pids, 1)
    await runner.close()
    await until(lambda: not is_alive(pid))
    assert looking
    assert threading.current_thread() not in looking


async def test_runner_does_not_kill_processes_of_another_runner(runner: ProcessRunner, tmp_path: Path) -> None:
    pid = int(
        (await runner.run("sleep 1000 & echo $!", cwd=str(tmp_path), timeout=LIMIT_S, profile=UNSANDBOXED)).output
    )
    other = ProcessRunner(make_environment(cwd="/"))
    await other.run("true", cwd=str(tmp_path), timeout=LIMIT_S, profile=UNSANDBOXED)
    await other.close()
    assert is_alive(pid)


async def test_later_output_of_a_background_child_goes_to_the_spill_file(runner: ProcessRunner, tmp_path: Path) -> None:
    script = f"echo first; (while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; echo second) &"
    finished = await runner.run(script, cwd=str(tmp_path), timeout=LIMIT_S, profile=UNSANDBOXED)
    assert finished.output == "first\n"
    assert finished.has_survivors
    (tmp_path / "go").touch()
    await until(lambda: Path(finished.spill_path).read_text() == "first\nsecond\n")


async def test_background_child_that_prints_forever_does_not_block_the_run(
    runner: ProcessRunner, tmp_path: Path
) -> None:
    async with TimeLimit():
        finished = await runner.run("yes & echo", cwd=str(tmp_path), timeout=LIMIT_S, profile=UNSANDBOXED)
    assert finished.has_survivors


async def test_large_output_is_not_kept_in_memory(runner: ProcessRunner, tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        finished = await runner.run(
            "head -c 50000000 /dev/zero | tr '\\0' x", cwd=str(tmp_path), timeout=LIMIT_S, profile=UNSANDBOXED
        )
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert finished.total == 50_000_000
    assert finished.truncated
    assert len(finished.output) < 31_000
    assert Path(finished.spill_path).stat().st_size == 50_000_000
    assert peak < 3_000_000


async def test_spill_file_has_a_size_limit(
    runner: ProcessRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "SPILL_LIMIT", 200_000)
    finished = await runner.run(
        "head -c 1000000 /dev/zero | tr '\\0' x", cwd=str(tmp_path), timeout=LIMIT_S, profile=UNSANDBOXED
    )
    assert Path(finished.spill_path).stat().st_size == 200_000
    assert "the first 200000 bytes: " in finished.output


async def test_unwritable_spill_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "spill").write_text("in the way")
    runner = ProcessRunner(make_environment(cwd="/"), tmp_path / "spill")
    finished = await runner.run("seq 1 100000", cwd=str(tmp_path), timeout=LIMIT_S, profile=UNSANDBOXED)
    assert "could not be saved" in finished.output
    assert finished.output.endswith("100000\n")


@pytest.mark.parametrize("shift", range(4))
@pytest.mark.parametrize("limit", [10, 11, 12, 13])
def test_truncation_never_splits_a_character(shift: int, limit: int, tmp_path: Path) -> None:
    sink = HeadTailBuffer(limit, lambda: str(tmp_path / f"{shift}-{limit}"))
    data = b"a" * shift + "😀é漢".encode() * 100
    for at in range(0, len(data), 7):
        sink.add(data[at : at + 7])
    text, cut = sink.render_text()
    sink.close()
    assert cut
    assert "\ufffd" not in text
    assert Path(sink.path).read_bytes() == data


def test_many_wide_characters_that_fit_are_not_cut() -> None:
    sink = HeadTailBuffer(1000)
    sink.add(("漢" * 1000).encode())
    assert sink.render_text() == ("漢" * 1000, False)


async def test_listener_receives_whole_characters(runner: ProcessRunner, tmp_path: Path) -> None:
    heard: list[str] = []
    await runner.run(
        r"printf '\xf0\x9f'; sleep 0.05; printf '\x98\x80\xff'",
        cwd=str(tmp_path),
        timeout=LIMIT_S,
        profile=UNSANDBOXED,
        on_output=heard.append,
    )
    assert "".join(heard) == "😀\ufffd"


async def test_capture_separates_standard_error_and_stops_excessive_output(
    runner: ProcessRunner, tmp_path: Path
) -> None:
    argv = ["sh", "-c", "echo out; echo err >&2; exit 2"]
    small = await runner.capture(argv, cwd=str(tmp_path), timeout=LIMIT_S, profile=UNSANDBOXED, stop_after=1000)
    assert (small.code, small.data, small.errors, small.stopped) == (2, b"out\n", "err\n", False)
    flood = await runner.capture(["yes"], cwd=str(tmp_path), timeout=LIMIT_S, profile=UNSANDBOXED, stop_after=100_000)
    assert flood.stopped
    assert 100_000 <= len(flood.data) < 2_000_000
    slow = await runner.capture(["sleep", "60"], cwd=str(tmp_path), timeout=0.1, profile=UNSANDBOXED, stop_after=1000)
    assert slow.timed_out


async def test_environment_disables_prompts_and_omits_secrets(tmp_path: Path) -> None:
    environ = {
        "PATH": os.environ["PATH"],
        "MY_API_KEY": "k",
        "GITHUB_TOKEN": "t",
        "AWS_SECRET_ACCESS_KEY": "s",
        "PLAIN": "p",
    }
    runner = ProcessRunner(make_environment(environ, "/"), env_passthrough=["GITHUB_TOKEN"])
    lines = (await runner.run("env", cwd=str(tmp_path), timeout=LIMIT_S, profile=UNSANDBOXED)).output.split("\n")
    for expected in ("PLAIN=p", "GITHUB_TOKEN=t", "GIT_TERMINAL_PROMPT=0", "PAGER=cat", "CI=1", "TERM=dumb"):
        assert expected in lines
    assert not [line for line in lines if line.startswith(("MY_API_KEY", "AWS_SECRET"))]
    await runner.close()


async def test_own_programs_get_a_minimal_environment_and_none_of_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "env"
    own.write_text(f"#!/bin/sh\ntouch {tmp_path}/hit\n")
    own.chmod(0o755)
    environ = {
        "HOME": "/h",
        "LANG": "C",
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "LD_PRELOAD": "",
        "GIT_DIR": "x",
        "A": "b",
    }
    runner = ProcessRunner(make_environment(environ, "/"))
    done = await runner.capture(["/usr/bin/env"], cwd="/", timeout=LIMIT_S, profile=OWN, stop_after=10_000)
    names = {line.partition("=")[0] for line in done.data.decode().splitlines()}
    assert names == {"HOME", "LANG", "PATH", "ODIN_COMMAND"}
    await runner.close()
    monkeypatch.setenv("PATH", environ["PATH"])
    assert run_own(["/usr/bin/env"], str(tmp_path), timeout=LIMIT_S)[:2] == (0, f"PATH={SYSTEM_PATH}\n".encode())
    assert run_own(["sh", "-c", "env"], str(tmp_path), timeout=LIMIT_S)[0] == 0
    assert not (tmp_path / "hit").exists()
    with pytest.raises(TimeoutError):
        run_own(["sleep", "600"], "/", timeout=0.05)


async def test_input_of_a_program_has_no_name(runner: ProcessRunner, tmp_path: Path) -> None:
    done = await runner.run_with_input(
        "readlink /proc/self/fd/0; cat; ls -A $TMPDIR",
        cwd="/",
        timeout=5,
        stdin=b"given",
        env={"TMPDIR": str(tmp_path)},
        stop_after=1000,
        profile=UNSANDBOXED,
    )
    assert done.data.decode() == "/memfd:odin (deleted)\ngiven"


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("OPENAI_API_KEY", True),
        ("api_key", True),
        ("DB_PASSWORD", True),
        ("NPM_TOKEN", True),
        ("TOKEN", True),
        ("GOOGLE_APPLICATION_CREDENTIALS", True),
        ("AWS_ACCESS_KEY_ID", True),
        ("AWS_PROFILE", True),
        ("AWS_REGION", False),
        ("STRIPE_KEY", True),
        ("PGPASSWORD", True),
        ("MYSQL_PWD", True),
        ("SENTRY_DSN", True),
        ("GITHUB_PAT", True),
        ("NPM_CONFIG__AUTH", True),
        ("DJANGO_SECRET_KEY_BASE", True),
        ("ODIN_MODEL", True),
        ("ODIN_COMMAND", False),
        ("PWD", False),
        ("OLDPWD", False),
        ("SSH_AUTH_SOCK", False),
        ("PATH", False),
        ("GIT_AUTHOR_NAME", False),
        ("XDG_CACHE_HOME", False),
        ("PYTHONPATH", False),
        ("TOKENIZERS_PARALLELISM", False),
        ("KEYBOARD", False),
        ("HOME", False),
    ],
)
def test_secret_variables_are_recognized_by_name(name: str, secret: bool) -> None:
    assert (name not in build_command_environment({name: "x"})) is secret


@pytest.mark.parametrize(
    ("value", "secret"),
    [
        ("postgres://user:word@localhost/db", True),
        ("https://user:word@example.org", True),
        ("redis://:word@localhost:6379", True),
        ("postgres://localhost/db", False),
        ("https://user@example.org:8080/x", False),
        ("http://127.0.0.1:3000/a@b", False),
        ("/usr/bin:/bin", False),
    ],
)
def test_url_with_a_password_is_a_secret(value: str, secret: bool) -> None:
    assert ("DATABASE_URL" not in build_command_environment({"DATABASE_URL": value})) is secret
    assert "DATABASE_URL" in build_command_environment({"DATABASE_URL": value}, keep=["DATABASE_URL"])


def test_git_settings_are_added_after_existing_ones() -> None:
    given = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "user.name", "GIT_CONFIG_VALUE_0": "a"}
    found = {**given, **build_git_settings(given, hooks=True)}
    count = int(found["GIT_CONFIG_COUNT"])
    settings = {found[f"GIT_CONFIG_KEY_{at}"]: found[f"GIT_CONFIG_VALUE_{at}"] for at in range(count)}
    assert settings["user.name"] == "a"
    assert settings["core.fsmonitor"] == "false"
    assert "core.hooksPath" not in settings
    assert "/dev/null" in build_git_settings({"GIT_CONFIG_COUNT": "nonsense"}, hooks=False).values()


async def test_git_does_not_wait_for_an_editor(runner: ProcessRunner, tmp_path: Path) -> None:
    script = (
        "git init -q . && git -c user.name=a -c user.email=a@b commit --allow-empty; echo code=$?; $EDITOR x; echo $?"
    )
    finished = await runner.run(script, cwd=str(tmp_path), timeout=LIMIT_S, profile=UNSANDBOXED)
    assert not finished.timed_out
    assert "empty commit message" in finished.output
    assert finished.output.endswith("code=1\n1\n")


async def test_closing_an_unused_runner_does_nothing() -> None:
    await ProcessRunner(make_environment(cwd="/")).close()
