"""Progress line, permission requests and escaped output of `odin -p` in a real terminal."""

import io
import shlex
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odin.core.event import AgentStarted, Envelope
from odin.testing import ScriptedServer, Turn, call, reply, say
from odin.ui.plain.agent_lines import AgentLines
from odin.ui.progress import ProgressLine
from odin.ui.terminal import escape_control, escape_hidden, shorten
from tests.ui.pseudo_terminal import ODIN, open_terminal


def make_write_call(path: Path, content: str = "x") -> Turn:
    return call("WriteFile", {"file_path": str(path), "content": content}, id="toolu_w")


@pytest.mark.usefixtures("without_views")
def test_progress_line_shows_the_running_call_and_is_erased(workspace: Path) -> None:
    go = workspace / "go"
    wait = f"while [ ! -e {go} ]; do sleep 0.05; done"
    with (
        ScriptedServer([call("ExecuteCommand", {"command": wait}), say("All done.")]) as server,
        open_terminal("-p", "Run it.", "--yes", cwd=workspace, env=server.env("anthropic")) as terminal,
    ):
        terminal.see("Bash while")
        terminal.match(r"Bash while.* [1-9]\d*s")
        go.touch()
        code, printed = terminal.wait_for_exit()
        shown = terminal.raw.decode()
    assert (code, printed) == (0, "All done.\n")
    assert "All done." not in shown
    assert shown.endswith("\r\x1b[K")
    assert "\n" not in shown
    assert "\x1b[2m" in shown


def test_no_color_prints_no_colors(workspace: Path) -> None:
    with (
        ScriptedServer([say("Hi.")]) as server,
        open_terminal("-p", "Hi.", cwd=workspace, env={**server.env("anthropic"), "NO_COLOR": "1"}) as terminal,
    ):
        terminal.wait_for_exit()
        assert b"\x1b[2m" not in terminal.raw
        assert terminal.raw.endswith(b"\r\x1b[K")


def test_a_dumb_terminal_gets_plain_lines(workspace: Path) -> None:
    with (
        ScriptedServer([call("LS", {"path": str(workspace)}), say("Hi.")]) as server,
        open_terminal("-p", "Hi.", cwd=workspace, env={**server.env("anthropic"), "TERM": "dumb"}) as terminal,
    ):
        terminal.wait_for_exit()
        assert terminal.shown == f"· LS {workspace}\r\n"


@pytest.mark.parametrize(
    ("typed", "made", "told"),
    [
        ("y\n", True, ""),
        ("YES\n", True, ""),
        ("n\n", False, "denied this tool call"),
        ("\n", False, "denied this tool call"),
        ("\x04", False, "denied this tool call"),
        ("use another name\n", False, "use another name"),
    ],
)
def test_permission_request_is_asked_and_answered(workspace: Path, typed: str, made: bool, told: str) -> None:
    target = workspace / "new.txt"
    with (
        ScriptedServer([make_write_call(target), say("So be it.")]) as server,
        open_terminal("-p", "Write.", cwd=workspace, env=server.env("anthropic")) as terminal,
    ):
        shown = terminal.see("say why not: ")
        terminal.type(typed)
        assert terminal.wait_for_exit() == (0 if made else 4, "So be it.\n")
        assert told in server.requests[1].results["toolu_w"]
    assert "Odin asks: Create file new.txt\r\n" in shown
    assert target.exists() is made


def test_permission_requests_come_one_at_a_time(workspace: Path) -> None:
    first, second = workspace / "first", workspace / "second"
    calls = [call("WriteFile", {"file_path": str(path), "content": "x"}) for path in (first, second)]
    with (
        ScriptedServer([reply("", calls), say("Done.")]) as server,
        open_terminal("-p", "Write.", cwd=workspace, env=server.env("anthropic")) as terminal,
    ):
        assert "Create file second" not in terminal.see("say why not: ")
        terminal.type("y\n")
        terminal.see("Create file second")
        terminal.type("n\n")
        terminal.wait_for_exit()
    assert (first.exists(), second.exists()) == (True, False)


def test_keys_typed_before_a_permission_request_are_ignored(workspace: Path) -> None:
    gate = threading.Event()
    target = workspace / "x"
    with (
        ScriptedServer([make_write_call(target).hold(gate), say("Done.")]) as server,
        open_terminal("-p", "Write.", cwd=workspace, env=server.env("anthropic")) as terminal,
    ):
        terminal.see("waiting for the model")
        terminal.type("y\n")
        gate.set()
        terminal.see("say why not: ")
        terminal.type("n\n")
        terminal.wait_for_exit()
    assert not target.exists()


def test_permission_request_shows_hidden_characters_of_a_command(workspace: Path) -> None:
    command = f"echo fine{' ' * 300}; rm -f x\x1b[2K\u202e # \u200b harmless\ntouch y"
    with (
        ScriptedServer([call("ExecuteCommand", {"command": command}), say("Done.")]) as server,
        open_terminal("-p", "Run.", cwd=workspace, env=server.env("anthropic")) as terminal,
    ):
        shown = terminal.see("say why not: ")
        terminal.type("n\n")
        terminal.wait_for_exit()
    assert "⟨300 spaces⟩; rm -f x\\x1b[2K\\u202e # \\u200b harmless" in shown
    assert "  | touch y" in shown


def test_ctrl_c_at_a_permission_request_ends_the_run(workspace: Path) -> None:
    target = workspace / "x"
    with (
        ScriptedServer([make_write_call(target), say("never")]) as server,
        open_terminal("-p", "Write.", cwd=workspace, env=server.env("anthropic")) as terminal,
    ):
        terminal.see("say why not: ")
        terminal.type("\x03")
        code, printed = terminal.wait_for_exit()
        assert len(server.requests) == 1
    assert (code, printed) == (130, "")
    assert not target.exists()
    assert "Interrupted." in terminal.shown


def test_a_run_in_the_background_does_not_ask(workspace: Path) -> None:
    """Reading the terminal in the background would stop the process for good."""
    target = workspace / "x"
    with (
        ScriptedServer([make_write_call(target), say("Fine.")]) as server,
        open_terminal(
            cwd=workspace, env=server.env("anthropic"), shell=f"set -m; {shlex.join(ODIN)} -p Write. & wait $!"
        ) as terminal,
    ):
        assert terminal.wait_for_exit() == (4, "Fine.\n")
        assert "in the background" in server.requests[1].results["toolu_w"]
    assert not target.exists()


def test_control_characters_of_an_answer_are_escaped(workspace: Path) -> None:
    with (
        ScriptedServer([say("Title: \x1b]0;owned\x07 end\n\tkept")]) as server,
        open_terminal("-p", "Hi.", cwd=workspace, env=server.env("anthropic"), with_stdout=True) as terminal,
    ):
        terminal.wait_for_exit()
        assert b"Title: \\x1b]0;owned\\x07 end\r\n\tkept" in terminal.raw


@given(st.text())
def test_no_hidden_character_remains_after_escaping(text: str) -> None:
    assert not any(
        ord(char) < 32 or 0x7F <= ord(char) < 0xA0 or char in "\u200b\u202e\ufeff\u3164\U000e0041"
        for char in escape_hidden(text)
    )
    assert "\x1b" not in escape_control(text)


@given(st.text(st.characters(exclude_categories=["Cs", "Cc", "Mn"])), st.integers(2, 40))
def test_shortened_text_fits_the_columns(text: str, room: int) -> None:
    from unicodedata import east_asian_width

    short = shorten(text, room)
    assert sum(2 if east_asian_width(char) in "WF" else 1 for char in short) <= room
    assert short == text or short.endswith("…")


@pytest.mark.parametrize("how", ["release", "close"])
def test_line_is_printed_after_a_question_releases_the_terminal(how: str) -> None:
    err = io.StringIO()
    progress = ProgressLine(err)
    progress.hold()
    progress.print_line("A hook failed.")
    assert err.getvalue() == ""
    getattr(progress, how)()
    assert err.getvalue() == "A hook failed.\n"


class _TerminalStream(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_agent_names_have_the_color_of_their_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    lines, out = AgentLines(), _TerminalStream()
    for name, color in (("a-1", "pink"), ("b-2", "#ff0000"), ("c-3", "")):
        event = AgentStarted(name, "look", "edit_mode", color=color)
        for line in lines.format_lines(Envelope(1, 0.0, "s", event), focus="", in_turn=False):
            lines.write(out, line)
    lines.write(out, "[a-1] · Read x")
    lines.write(out, "Prompts go to the main agent again.")
    assert out.getvalue().splitlines() == [
        "\x1b[38;5;212m[a-1]\x1b[0m started: look",
        "\x1b[38;5;196m[b-2]\x1b[0m started: look",
        "[c-3] started: look",
        "\x1b[38;5;212m[a-1]\x1b[0m\x1b[2m · Read x\x1b[0m",
        "Prompts go to the main agent again.",
    ]
