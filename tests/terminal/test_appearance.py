"""Window title, notifications, colors and resizes in a real terminal."""

import json
import random
import re
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest

from odin.testing import ScriptedServer, say
from tests.terminal.emulator import Emulator, open_terminal

LIGHT_BACKGROUND, LIGHT_SURFACE = b"48;2;251;250;247", b"48;2;243;241;236"
DARK_BACKGROUND = b"48;2;20;23;28"


def list_titles(odin: Emulator) -> list[str]:
    return [found.decode() for found in re.findall(rb"\x1b\]0;([^\x07]*)\x07", bytes(odin.bytes))]


def exit_with_ctrl_c(odin: Emulator) -> None:
    odin.type("\x03")
    odin.see("again to exit")
    odin.type("\x03")
    odin.wait_for_exit()


@pytest.mark.slow
def test_title_shows_the_activity_and_is_restored(workspace: Path) -> None:
    with (
        ScriptedServer([say("Hello there.").delay(1.0)]) as server,
        open_terminal(cwd=workspace, env=server.env("anthropic")) as odin,
    ):
        odin.see("edit")
        odin.type("hello\r")
        odin.see("Hello there.", "done")
        odin.wait_for_bytes(f"\x1b]0;{workspace.name}\a".encode())
        exit_with_ctrl_c(odin)
        assert f"✳ working — {workspace.name}" in list_titles(odin)
        assert list_titles(odin)[-1] == workspace.name
        assert bytes(odin.bytes).count(b"\x1b[22;0t") == bytes(odin.bytes).count(b"\x1b[23;0t") == 1


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_title_is_restored_after_a_signal(workspace: Path, number: signal.Signals) -> None:
    with open_terminal(cwd=workspace, env={"ANTHROPIC_API_KEY": "k"}) as odin:
        odin.see("edit")
        odin.wait_for_bytes(b"\x1b[22;0t")
        odin.signal(number)
        odin.wait_for_exit()
        assert b"\x1b[23;0t" in odin.bytes


@pytest.mark.slow
def test_bell_and_notification_are_sent_without_focus(workspace: Path, home: Path) -> None:
    (home / ".config" / "odin" / "odinconfig.json").write_text(json.dumps({"tui": {"title": False}}))
    with (
        ScriptedServer([say("Hello there.")]) as server,
        open_terminal(cwd=workspace, env=server.env("anthropic")) as odin,
    ):
        odin.see("edit")
        odin.type("\x1b[O")
        odin.type("hello\r")
        odin.see("Hello there.")
        odin.wait_for_bytes(f"\a\x1b]9;Odin in {workspace.name}: finished\x1b\\".encode())
        assert b"\x1b]0;" not in odin.bytes


@pytest.mark.slow
def test_reported_light_background_selects_the_light_theme(workspace: Path) -> None:
    with open_terminal(cwd=workspace, env={"ANTHROPIC_API_KEY": "k"}) as odin:
        odin.see("edit")
        odin.wait_for_bytes(b"\x1b]11;?\x1b\\")
        odin.type("he")
        odin.type("\x1b]11;rgb:ffff/ffff/ffff\x1b\\")
        assert DARK_BACKGROUND in odin.bytes
        odin.type("llo")
        odin.wait_for_bytes(LIGHT_SURFACE)
        odin.see("hello")
        assert LIGHT_BACKGROUND not in odin.bytes, "the terminal paints a background that it has reported"
        assert "rgb" not in odin.text


@pytest.mark.slow
def test_colorfgbg_selects_the_light_theme(workspace: Path) -> None:
    with open_terminal(cwd=workspace, env={"ANTHROPIC_API_KEY": "k", "COLORFGBG": "0;15"}) as odin:
        odin.see("edit")
        assert LIGHT_SURFACE in odin.bytes
        assert LIGHT_BACKGROUND not in odin.bytes
        assert DARK_BACKGROUND not in odin.bytes
        assert b"\x1b]11;?" not in odin.bytes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "forbidden"),
    [
        pytest.param({"NO_COLOR": "1"}, rb"\x1b\[(?:[\d;]*;)?(?:[34][0-8]|9[0-7]|10[0-7])(?:;[\d;]*)?m", id="no-color"),
        pytest.param({"COLORTERM": "", "TERM": "xterm-256color"}, rb"[34]8;2;", id="256"),
        pytest.param({"COLORTERM": "", "TERM": "xterm"}, rb"[34]8;[25];", id="16"),
        pytest.param({"COLORTERM": "", "TERM": "linux"}, rb"[34]8;[25];|\x1b\](?:0|9|11);", id="linux-console"),
    ],
)
def test_only_supported_colors_are_sent(workspace: Path, env: Mapping[str, str], forbidden: bytes) -> None:
    with (
        ScriptedServer([say("Some `code` and **more**.")]) as server,
        open_terminal(cwd=workspace, env={**server.env("anthropic"), **env}) as odin,
    ):
        odin.see("edit")
        odin.type("hello\r")
        odin.see("Some code and more.", "done")
        assert not re.search(forbidden, bytes(odin.bytes))


@pytest.mark.slow
def test_many_resizes_keep_the_text(workspace: Path) -> None:
    chance = random.Random(5)
    with (
        ScriptedServer([say("An answer that stays.")]) as server,
        open_terminal(cwd=workspace, env=server.env("anthropic")) as odin,
    ):
        odin.see("edit")
        odin.type("hello\r")
        odin.see("An answer that stays.", "done")
        odin.type("half a thought")
        for _ in range(100):
            odin.resize(chance.randint(1, 200), chance.randint(1, 60))
        odin.resize(100, 30)
        odin.see("An answer that stays.", "half a thought", "edit")
        assert odin.process.poll() is None
