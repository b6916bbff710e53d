"""Odin in unusual environments: limited terminals, other locales, redirected streams, a full disk."""

import re
import resource
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from odin.testing import ScriptedServer, say
from tests.terminal.emulator import ODIN, open_terminal


@pytest.mark.slow
@pytest.mark.parametrize(
    "env",
    [
        pytest.param(
            {"TERM": "screen", "LANG": "C", "LC_ALL": "C", "COLUMNS": "17", "LINES": "5"},
            id="screen, C, sizes of another window",
        ),
        pytest.param(
            {"TERM": "never-heard-of-it", "COLORTERM": "", "NO_COLOR": "1", "LC_ALL": "POSIX"},
            id="unheard of, no colour",
        ),
    ],
)
def test_app_works_with_unusual_terminals_and_locales(workspace: Path, env: Mapping[str, str]) -> None:
    with (
        ScriptedServer([say("Grüße — ¡hola! 你好")]) as server,
        open_terminal(cwd=workspace, env={**server.env("anthropic"), **env}) as odin,
    ):
        odin.see("edit", "Ask, or type")
        odin.type("Grüß dich\r")
        odin.see("Grüß dich", "Grüße — ¡hola!")
        assert "Grüß dich" in str(server.requests[0].messages)
        odin.type("\x04")
        odin.assert_exit_code(0)
        odin.assert_restored()


@pytest.mark.slow
def test_input_that_is_not_utf8_is_tolerated(workspace: Path) -> None:
    with open_terminal(cwd=workspace, env={"ANTHROPIC_API_KEY": "k"}) as odin:
        odin.see("edit")
        odin.send(b"caf\xe9 \xff\xfe ol\xc3\xa9")
        odin.see("olé")
        odin.type("\x03")
        odin.wait_until_gone("olé")
        odin.type("\x04")
        odin.assert_exit_code(0)
        odin.assert_restored()


@pytest.mark.slow
@pytest.mark.parametrize("term", ["dumb", "unknown", ""])
def test_dumb_terminal_gets_plain_mode(workspace: Path, term: str) -> None:
    with open_terminal(cwd=workspace, env={"ANTHROPIC_API_KEY": "k", "TERM": term}) as odin:
        odin.see("edit>")
        assert b"\x1b" not in odin.bytes
        odin.type("/exit\r")
        odin.assert_exit_code(0)
        odin.assert_restored()


@pytest.mark.slow
def test_answers_are_written_to_a_redirected_stdout(workspace: Path) -> None:
    command = ["/bin/sh", "-c", " ".join([*ODIN, "> answers.txt"])]
    with (
        ScriptedServer([say("Into the file.")]) as server,
        open_terminal(cwd=workspace, env=server.env("anthropic"), command=command) as odin,
    ):
        odin.see("edit>")
        odin.type("where to?\r")
        odin.wait_for_bytes(b"edit>", times=2)
        odin.type("\x04")
        odin.assert_exit_code(0)
        odin.assert_restored()
    written = (workspace / "answers.txt").read_text()
    assert "Into the file." in written
    assert "\x1b" not in written


@pytest.mark.slow
def test_app_works_without_a_controlling_terminal(workspace: Path) -> None:
    """As under some supervisors and in containers: the streams are a terminal, but /dev/tty cannot be opened."""
    launch = "import os, sys\nif os.fork():\n    sys.exit(os.WEXITSTATUS(os.wait()[1]))\nos.setsid()\n"
    launch += f"os.execv(sys.executable, {[sys.executable, '-I', '-m', 'odin']!r})"
    with (
        ScriptedServer([say("Seen.")]) as server,
        open_terminal(cwd=workspace, env=server.env("anthropic"), command=[sys.executable, "-c", launch]) as odin,
    ):
        odin.see("edit", "Ask, or type")
        odin.type("look\r")
        odin.see("Seen.")
        odin.type("\x04")
        odin.assert_exit_code(0)
        odin.assert_restored()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("script") is None or sys.platform != "linux", reason="script(1) of Linux")
def test_app_works_under_script(workspace: Path) -> None:
    command = ["script", "-qec", " ".join(ODIN), "record"]
    with (
        ScriptedServer([say("Recorded.")]) as server,
        open_terminal(cwd=workspace, env=server.env("anthropic"), command=command) as odin,
    ):
        odin.see("edit", "Ask, or type")
        odin.type("look\r")
        odin.see("Recorded.")
        odin.type("\x04")
        odin.assert_exit_code(0)
        odin.assert_restored()
    assert b"Recorded." in (workspace / "record").read_bytes()


@pytest.mark.slow
def test_nohup_without_a_prompt_is_an_error(workspace: Path) -> None:
    """nohup replaces the keyboard by an unreadable input, so the prompt is empty."""
    with open_terminal(cwd=workspace, env={"ANTHROPIC_API_KEY": "k"}, command=["nohup", *ODIN]) as odin:
        odin.assert_exit_code(1, 2)
        odin.assert_restored()
    assert "prompt" in (workspace / "nohup.out").read_text()


@pytest.mark.slow
def test_two_processes_share_a_project_but_not_a_session(workspace: Path) -> None:
    with ScriptedServer([say("First here."), say("Second here.")]) as server:
        env = server.env("anthropic")
        with open_terminal(cwd=workspace, env=env) as one, open_terminal(cwd=workspace, env=env) as two:
            one.see("edit")
            two.see("edit")
            one.type("one\r")
            one.see("First here.")
            two.type("two\r")
            two.see("Second here.")
            two.type("\x04")
            two.assert_exit_code(0)
            two.assert_restored()
            with open_terminal("-c", "--no-attach", cwd=workspace, env=env) as again:
                again.see("Second here.")
                again.type("\x04")
                again.assert_exit_code(0)
            one.type("\x04")
            one.assert_exit_code(0)
            number = re.search(r"--resume (\d+)", "\n".join(one.scrollback))
            assert number
        with open_terminal("--resume", number[1], cwd=workspace, env=env) as holder:
            holder.see("First here.")
            with open_terminal("--resume", number[1], "--no-attach", cwd=workspace, env=env) as late:
                late.see("already open in another process")
                late.assert_exit_code(1, 75)
                late.assert_restored()
            holder.signal(signal.SIGTERM)
            holder.assert_exit_code(143)


@pytest.mark.slow
def test_full_disk_is_reported_without_a_crash(workspace: Path) -> None:
    """No file may exceed a few kilobytes, so the session log cannot be written."""
    with (
        ScriptedServer([say("word " * 8000), say("Not to be kept.")]) as server,
        open_terminal(cwd=workspace, env=server.env("anthropic"), limit=(resource.RLIMIT_FSIZE, 24_000)) as odin,
    ):
        odin.see("edit")
        odin.type("tell me\r")
        odin.see("cannot be written")
        odin.type("\x03")
        odin.type("\x04")
        odin.assert_exit_code(0, 1)
        odin.assert_restored()
