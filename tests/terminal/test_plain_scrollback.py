"""Long answers in plain mode: the terminal's scrollback contains every line once, in spite of typing and resizes."""

import re
import time
from pathlib import Path
from threading import Event

import pytest

from odin.testing import ScriptedServer, call, say
from tests.terminal.emulator import Emulator, open_terminal

LINES = 5000
CLEARS = (b"\x1b[2J", b"\x1b[3J", b"\x1b[H", b"\x1b[?1049h")
_NUMBERED = re.compile(r"^line (\d+) of many$")


def make_numbered_lines(first: int, last: int) -> str:
    return "".join(f"line {number} of many\n" for number in range(first, last))


def list_line_numbers(odin: Emulator) -> list[int]:
    return [int(seen[1]) for line in odin.scrollback if (seen := _NUMBERED.match(line))]


def exit_and_check(odin: Emulator) -> None:
    odin.type("\x04")
    assert odin.wait_for_exit() == 0
    assert odin.is_restored
    assert not any(clear in odin.bytes for clear in CLEARS)


@pytest.mark.slow
def test_scrollback_has_five_thousand_lines_once(workspace: Path) -> None:
    server = ScriptedServer([say(make_numbered_lines(0, LINES) + "THE END")])
    with server, open_terminal("--plain", cwd=workspace, env=server.env("anthropic")) as odin:
        odin.see("edit>")
        odin.type("tell me everything\r")
        odin.see("THE END", "edit>")
        exit_and_check(odin)
        assert list_line_numbers(odin) == list(range(LINES))


@pytest.mark.slow
def test_lines_appear_while_the_answer_streams(workspace: Path) -> None:
    gate = Event()
    answer = make_numbered_lines(0, 40) + "and then, after a while, THE END"
    server = ScriptedServer([say(answer, chunk=20).hold(gate, after=30)])
    with server, open_terminal("--plain", cwd=workspace, env=server.env("anthropic")) as odin:
        odin.see("edit>")
        odin.type("tell me\r")
        odin.see("line 20 of many")
        assert "THE END" not in odin.text
        gate.set()
        odin.see("THE END", "edit>")
        exit_and_check(odin)
        assert list_line_numbers(odin) == list(range(40))


@pytest.mark.slow
def test_typing_while_the_answer_streams(workspace: Path) -> None:
    server = ScriptedServer([say(make_numbered_lines(0, LINES) + "THE END"), say("Second answer.")])
    with server, open_terminal("--plain", cwd=workspace, env=server.env("anthropic")) as odin:
        odin.see("edit>")
        odin.type("tell me everything\r")
        odin.see("of many")
        for letter in "what about that":
            odin.type(letter)
            time.sleep(0.005)
        odin.see("THE END", "edit> what about that")
        odin.type("\r")
        odin.see("Second answer.")
        exit_and_check(odin)
        assert list_line_numbers(odin) == list(range(LINES))
        assert len(server.requests) == 2


@pytest.mark.slow
def test_resizes_while_the_answer_streams(workspace: Path) -> None:
    gate = Event()
    server = ScriptedServer([say(make_numbered_lines(0, 400) + "THE END").hold(gate, after=30)])
    with server, open_terminal("--plain", cwd=workspace, env=server.env("anthropic")) as odin:
        odin.see("edit>")
        odin.type("tell me everything\r")
        odin.see("of many")
        for columns, rows in ((60, 30), (120, 30), (31, 30), (100, 30)):
            odin.resize(columns, rows)
            time.sleep(0.05)
        gate.set()
        odin.see("THE END", "edit>")
        exit_and_check(odin)
        assert list_line_numbers(odin) == list(range(400))


@pytest.mark.slow
def test_wide_characters_in_chunks_are_kept_at_twenty_columns(workspace: Path) -> None:
    """The terminal wraps the lines, and a character that arrives in two chunks stays one character."""
    lines = ["日本語のテキスト" * 4, "e\u0301a\u0308" * 12, "👩‍💻 writes 🎉", "x" * 75]
    server = ScriptedServer([say("\n".join(lines) + "\nTHE END").trickle()])
    with server, open_terminal("--plain", cwd=workspace, env=server.env("anthropic"), columns=20) as odin:
        odin.see("edit>")
        odin.type("hi\r")
        odin.see("THE END", "edit>")
        exit_and_check(odin)
        sent = bytes(odin.bytes).replace(b"\r\n", b"\n").decode()
        assert "�" not in sent
        for line in lines:
            assert sent.count(f"{line}\n") == 1
        assert "".join(odin.scrollback).replace(" ", "").count("x" * 75) == 1


@pytest.mark.slow
def test_tool_calls_appear_between_the_texts(workspace: Path) -> None:
    (workspace / "a.txt").write_text("alpha\n")
    (workspace / "b.txt").write_text("beta\n")
    script = [
        call("Read", {"file_path": str(workspace / "a.txt")}, text=make_numbered_lines(0, 50)),
        call("Read", {"file_path": str(workspace / "b.txt")}, text=make_numbered_lines(50, 100)),
        say(make_numbered_lines(100, 150) + "THE END"),
    ]
    server = ScriptedServer(script)
    with server, open_terminal("--plain", cwd=workspace, env=server.env("anthropic")) as odin:
        odin.see("edit>")
        odin.type("read both\r")
        odin.see("THE END", "edit>")
        exit_and_check(odin)
        assert list_line_numbers(odin) == list(range(150))
        lines = odin.scrollback
        calls = [lines.index(line) for line in lines if line.startswith("· Read")]
        assert len(calls) == 2
        assert lines.index("line 49 of many") < calls[0] < lines.index("line 50 of many")
        assert lines.index("line 99 of many") < calls[1] < lines.index("line 100 of many")


@pytest.mark.slow
@pytest.mark.parametrize("term", ["dumb", "unknown", ""])
def test_dumb_terminal_gets_no_escape_sequences(workspace: Path, term: str) -> None:
    (workspace / "a.txt").write_text("alpha\n")
    script = [call("Read", {"file_path": str(workspace / "a.txt")}), say("It says alpha.")]
    with (
        ScriptedServer(script) as server,
        open_terminal(cwd=workspace, env={**server.env("anthropic"), "TERM": term}) as odin,
    ):
        odin.see("edit>")
        odin.type("read a.txt\n")
        odin.see("· Read", "It says alpha.")
        odin.type("/exit\n")
        assert odin.wait_for_exit() == 0
        assert b"\x1b" not in odin.bytes
        assert b"\a" not in odin.bytes


@pytest.mark.slow
def test_no_color_prints_no_colors(workspace: Path) -> None:
    with (
        ScriptedServer([say("Hello.")]) as server,
        open_terminal("--plain", cwd=workspace, env={**server.env("anthropic"), "NO_COLOR": "1"}) as odin,
    ):
        odin.see("edit>")
        odin.type("hi\r")
        odin.see("Hello.", "edit>")
        exit_and_check(odin)
        assert not re.search(rb"\x1b\[(?!0m)[0-9;]*m", bytes(odin.bytes))
