"""Drawing of a long answer: no clearing, whole frames of bounded size, safe resizes."""

import re
import time
from pathlib import Path
from threading import Event

import pytest

from odin.testing import ScriptedServer, say
from tests.terminal.emulator import open_terminal

LINES = 5000


def make_long_answer() -> str:
    return "".join(f"line {number} of many\n\n" for number in range(LINES)) + "THE END"


@pytest.mark.slow
def test_nothing_flickers_while_five_thousand_lines_stream(workspace: Path) -> None:
    server = ScriptedServer([say(make_long_answer()).pace(0.0005)])
    with server, open_terminal(cwd=workspace, env=server.env("anthropic")) as odin:
        odin.see("edit")
        before = len(odin.bytes)
        odin.type("tell me everything\r")
        odin.see("THE END")
        drawn = bytes(odin.bytes)
        drawn = drawn[drawn.index(b"\x1b[?2026h", before) : drawn.rindex(b"\x1b[?2026l") + len(b"\x1b[?2026l")]
        odin.type("\x04")
        odin.assert_exit_code(0)
    assert b"\x1b[2J" not in drawn
    assert b"\x1b[3J" not in drawn
    brackets = re.findall(rb"\x1b\[\?2026([hl])", drawn)
    assert brackets == [b"h", b"l"] * (len(brackets) // 2)
    frames = re.findall(rb"\x1b\[\?2026h(.*?)\x1b\[\?2026l", drawn, re.DOTALL)
    assert len(frames) > 3
    assert max(map(len, frames)) < 60_000, "one frame draws more than the screen holds"


@pytest.mark.parametrize("rows", [1, 2, 30])
@pytest.mark.slow
def test_many_resizes_while_the_answer_streams(workspace: Path, rows: int) -> None:
    gate = Event()
    answer = "begin " + "and so on " * 500
    server = ScriptedServer([say(answer + "THE END").hold(gate, after=12), say("Still here.")])
    with server, open_terminal(cwd=workspace, env=server.env("anthropic")) as odin:
        odin.see("edit")
        odin.type("tell me\r")
        odin.see("begin")
        for step in range(40):
            odin.resize(1 + (step * 37) % 200, max(1, (rows + step * 7) % 50))
            time.sleep(0.01)
        odin.resize(300, rows)
        odin.resize(100, 30)
        gate.set()
        odin.see("THE END")
        odin.type("are you there?\r")
        odin.see("Still here.")
        odin.type("\x04")
        odin.assert_exit_code(0)
        assert "Traceback" not in "\n".join(odin.scrollback)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("columns", "rows"),
    [(80, 1), (1, 24), (40, 12), (300, 60)],
)
def test_app_starts_at_any_size(workspace: Path, columns: int, rows: int) -> None:
    server = ScriptedServer([say("Hello.")])
    with server, open_terminal(cwd=workspace, env=server.env("anthropic"), columns=columns, rows=rows) as odin:
        odin.wait_for_bytes(b"\x1b[?1049h")
        time.sleep(1.0)
        odin.type("hi\r")
        server.wait_for(1)
        odin.type("\x04")
        odin.assert_exit_code(0)
        assert odin.is_restored
