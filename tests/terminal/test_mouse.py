"""Mouse events and pastes in a real terminal."""

import base64
import re
from pathlib import Path

import pytest

from odin.testing import ScriptedServer, call, say
from tests.terminal.emulator import Emulator, open_terminal
from tests.waiting import wait_until


def send_mouse_event(odin: Emulator, button: int, column: int, row: int, *, up: bool = False) -> None:
    odin.type(f"\x1b[<{button};{column + 1};{row + 1}{'m' if up else 'M'}")


def click(odin: Emulator, column: int, row: int) -> None:
    send_mouse_event(odin, 0, column, row)
    send_mouse_event(odin, 0, column, row, up=True)


def find_text(odin: Emulator, word: str) -> tuple[int, int]:
    for row, line in enumerate(odin.lines):
        if word in line:
            return line.index(word), row
    raise AssertionError(f"no {word!r} on the screen:\n{odin.text}")


@pytest.mark.slow
def test_selection_wheel_click_and_the_mouse_setting(workspace: Path) -> None:
    (workspace / "lines.txt").write_text("".join(f"row {number}\n" for number in range(40)))
    answer = "".join(f"Paragraph {number}.\n\n" for number in range(60)) + "Take me with you."
    script = [call("Bash", {"command": "cat lines.txt", "description": "show the lines"}), say(answer)]
    with ScriptedServer(script) as server, open_terminal("--yes", cwd=workspace, env=server.env("anthropic")) as odin:
        odin.see("edit")
        odin.type("Show me\r")
        odin.see("Take me with you.", "done")
        column, row = find_text(odin, "Take me with you.")
        send_mouse_event(odin, 0, column, row)
        send_mouse_event(odin, 32, column + 5, row)
        send_mouse_event(odin, 32, column + 7, row)
        send_mouse_event(odin, 0, column + 7, row, up=True)
        odin.type("\x03")
        odin.see("Copied.")
        copied = re.findall(rb"\x1b\]52;c;([^\x07]*)\x07", bytes(odin.bytes))
        assert base64.b64decode(copied[-1]).decode().strip() == "Take me"

        for _ in range(60):
            send_mouse_event(odin, 64, column, 5)
        odin.see("Show me", "cat lines.txt")
        odin.wait_until_gone("Take me")
        column, row = find_text(odin, "cat lines.txt")
        before = odin.text.count("row ")
        click(odin, column, row)
        wait_until(lambda: odin.text.count("row ") != before, lambda: f"another number of rows:\n{odin.text}")

        odin.type("please explain")
        odin.see("please explain")
        odin.type("\x15/mouse off\r")
        odin.see("Mouse support is off")
        assert not odin.modes & {1000, 1002, 1003, 1006}
        odin.type("/mouse on\r")
        odin.see("Mouse support is on")
        assert odin.modes & {1000, 1003}
        odin.type("\x04")
        odin.assert_exit_code(0)
        odin.assert_restored()


@pytest.mark.slow
def test_large_paste_is_folded_and_escape_sequences_have_no_effect(workspace: Path) -> None:
    with (
        ScriptedServer([say("Read."), say("Read again.")]) as server,
        open_terminal(cwd=workspace, env=server.env("anthropic")) as odin,
    ):
        odin.see("edit")
        odin.paste("".join(f"pasted {number}\r" for number in range(5000)))
        odin.see("5,000 lines")
        assert "pasted 4000" not in odin.text
        odin.type("\r")
        odin.see("Read.")
        text = str(server.requests[0].messages)
        assert r"pasted 0\npasted 1\n" in text
        assert "pasted 4999" in text

        odin.paste("be\x1b[31mgin \x1b]0;owned\x07\x1b[?1049l\x03 end")
        odin.see("end")
        odin.type("\r")
        odin.see("Read again.")
        assert b"\x1b]0;owned" not in odin.bytes
        assert odin.bytes.count(b"\x1b[?1049l") == 0
        odin.type("\x04")
        odin.assert_exit_code(0)
        odin.assert_restored()
