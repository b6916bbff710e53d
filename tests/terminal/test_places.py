"""Odin in unusual places: terminals that say little, other locales, streams that lead elsewhere, a full disk."""

import re
import resource
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from odin.testing import ScriptedServer, say
from tests.terminal.emulator import ODIN, terminal


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
def test_the_app_works_in(workspace: Path, env: Mapping[str, str]) -> None:
    with (
        ScriptedServer([say("Grüße — ¡hola! 你好")]) as server,
        terminal(cwd=workspace, env={**server.env("anthropic"), **env}) as odin,
    ):
        odin.see("edit", "Ask, or type")
        odin.type("Grüß dich\r")
        odin.see("Grüß dich", "Grüße — ¡hola!")
        assert "Grüß dich" in str(server.requests[0].messages)
        odin.type("\x04")
        odin.ends(0)
        odin.given_back()


@pytest.mark.slow
def test_keys_that_are_no_utf8(workspace: Path) -> None:
    with terminal(cwd=workspace, env={"ANTHROPIC_API_KEY": "k"}) as odin:
        odin.see("edit")
        odin.send(b"caf\xe9 \xff\xfe ol\xc3\xa9")
        odin.see("olé")
        odin.type("\x03")
        odin.gone("olé")
        odin.type("\x04")
        odin.ends(0)
        odin.given_back()


@pytest.mark.slow
@pytest.mark.parametrize("term", ["dumb", "unknown", ""])
def test_terminals_that_understand_nothing_get_lines(workspace: Path, term: str) -> None:
    with terminal(cwd=workspace, env={"ANTHROPIC_API_KEY": "k", "TERM": term}) as odin:
        odin.see("edit>")
        assert b"\x1b" not in odin.bytes
        odin.type("/exit\r")
        odin.ends(0)
        odin.given_back()


@pytest.mark.slow
def test_answers_into_a_file(workspace: Path) -> None:
    command = ["/bin/sh", "-c", " ".join([*ODIN, "> answers.txt"])]
    with (
        ScriptedServer([say("Into the file.")]) as server,
        terminal(cwd=workspace, env=server.env("anthropic"), command=command) as odin,
    ):
        odin.see("edit>")
        odin.type("where to?\r")
        odin.drawn(b"edit>", times=2)
        odin.type("\x04")
        odin.ends(0)
        odin.given_back()
    written = (workspace / "answers.txt").read_text()
    assert "Into the file." in written
    assert "\x1b" not in written


@pytest.mark.slow
def test_without_a_controlling_terminal(workspace: Path) -> None:
    """As under some supervisors and containers: the streams are a terminal, but /dev/tty is not there."""
    launch = "import os, sys\nif os.fork():\n    sys.exit(os.WEXITSTATUS(os.wait()[1]))\nos.setsid()\n"
    launch += f"os.execv(sys.executable, {[sys.executable, '-I', '-m', 'odin']!r})"
    with (
        ScriptedServer([say("Seen.")]) as server,
        terminal(cwd=workspace, env=server.env("anthropic"), command=[sys.executable, "-c", launch]) as odin,
    ):
        odin.see("edit", "Ask, or type")
        odin.type("look\r")
        odin.see("Seen.")
        odin.type("\x04")
        odin.ends(0)
        odin.given_back()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("script") is None or sys.platform != "linux", reason="script(1) of Linux")
def test_under_script(workspace: Path) -> None:
    command = ["script", "-qec", " ".join(ODIN), "record"]
    with (
        ScriptedServer([say("Recorded.")]) as server,
        terminal(cwd=workspace, env=server.env("anthropic"), command=command) as odin,
    ):
        odin.see("edit", "Ask, or type")
        odin.type("look\r")
        odin.see("Recorded.")
        odin.type("\x04")
        odin.ends(0)
        odin.given_back()
    assert b"Recorded." in (workspace / "record").read_bytes()


@pytest.mark.slow
def test_under_nohup_there_is_nobody_to_type(workspace: Path) -> None:
    """nohup takes the keyboard away, so it is one prompt without a word, and an end."""
    with terminal(cwd=workspace, env={"ANTHROPIC_API_KEY": "k"}, command=["nohup", *ODIN]) as odin:
        odin.ends(1, 2)
        odin.given_back()
    assert "prompt" in (workspace / "nohup.out").read_text()


@pytest.mark.slow
def test_two_in_one_project_and_one_session_for_one(workspace: Path) -> None:
    with ScriptedServer([say("First here."), say("Second here.")]) as server:
        env = server.env("anthropic")
        with terminal(cwd=workspace, env=env) as one, terminal(cwd=workspace, env=env) as two:
            one.see("edit")
            two.see("edit")
            one.type("one\r")
            one.see("First here.")
            two.type("two\r")
            two.see("Second here.")
            two.type("\x04")
            two.ends(0)
            two.given_back()
            with terminal("-c", cwd=workspace, env=env) as again:
                again.see("Second here.")
                again.type("\x04")
                again.ends(0)
            one.type("\x04")
            one.ends(0)
            number = re.search(r"--resume (\d+)", "\n".join(one.scrollback))
            assert number
        with terminal("--resume", number[1], cwd=workspace, env=env) as holder:
            holder.see("First here.")
            with terminal("--resume", number[1], cwd=workspace, env=env) as late:
                late.see("already open in another process")
                late.ends(1, 75)
                late.given_back()
            holder.signal(signal.SIGTERM)
            holder.ends(143)


@pytest.mark.slow
def test_a_disk_that_is_full(workspace: Path) -> None:
    """No file may grow beyond a few kilobytes: the log cannot be written on, and that is said, not died of."""
    with (
        ScriptedServer([say("word " * 8000), say("Not to be kept.")]) as server,
        terminal(cwd=workspace, env=server.env("anthropic"), limit=(resource.RLIMIT_FSIZE, 24_000)) as odin,
    ):
        odin.see("edit")
        odin.type("tell me\r")
        odin.see("cannot be written")
        odin.type("\x03")
        odin.type("\x04")
        odin.ends(0, 1)
        odin.given_back()
