"""Internal errors of the app: the terminal is restored, one sentence reports the error, and the session can resume."""

import re
import sys
from pathlib import Path

import pytest

from odin.testing import ScriptedServer, say
from tests.terminal.emulator import open_terminal

BEGIN = """
import sys
sys.argv = ["odin"]
KEY = "sk-ant-do-not-show-me"

def open_the_ground(*_, **__):
    hidden = KEY
    raise RuntimeError("the ground opened")

def when_asked(owner, name, word="tumble"):
    was = getattr(owner, name)
    def instead(self, *args, **named):
        if any(word in str(arg) for arg in args):
            open_the_ground()
        return was(self, *args, **named)
    setattr(owner, name, instead)

{fault}
from odin.entry import main
sys.exit(main())
"""

FAULTS = {
    "widget": "from odin.ui.tui.composer.composer import Composer\n"
    "was = Composer.action_send\n"
    "Composer.action_send = lambda self: open_the_ground() if 'tumble' in self.text else was(self)",
    "drawing": "from odin.ui.tui import transcript\n"
    "was = transcript.TranscriptView.sync\n"
    "def sync(self):\n"
    "    if self.app.transcripts[''].blocks:\n"
    "        open_the_ground()\n"
    "    was(self)\n"
    "transcript.TranscriptView.sync = sync",
    "worker": "from odin.ui.tui.app import OdinApp\n"
    "was = OdinApp.run_command\n"
    "async def run_command(self, *args):\n"
    "    open_the_ground()\n"
    "OdinApp.run_command = run_command",
    "watcher": "from odin.ui.notifications import Notifier; when_asked(Notifier, 'handle_event')",
    "writer": "from odin.ui.tui.terminal_driver import TerminalFile; when_asked(TerminalFile, '_write')",
    "reader": "from odin.ui.tui.terminal_input import ReplyParser; when_asked(ReplyParser, 'feed', '~')",
}


@pytest.mark.slow
@pytest.mark.parametrize("where", FAULTS)
def test_internal_error_is_reported_and_the_session_can_be_resumed(workspace: Path, home: Path, where: str) -> None:
    command = [sys.executable, "-c", BEGIN.replace("{fault}", FAULTS[where])]
    with (
        ScriptedServer([say("Hello."), say("There again.")]) as server,
        open_terminal(cwd=workspace, env=server.env("anthropic"), command=command) as odin,
    ):
        odin.see("edit")
        odin.type("hi\r")
        if where != "drawing":
            odin.see("Hello.")
            odin.type({"worker": "/stats\r", "reader": "~"}.get(where, "tumble\r"))
        odin.assert_exit_code(1)
        odin.assert_restored()
        said = "\n".join(odin.scrollback)
    assert "RuntimeError: the ground opened" in said
    assert "do-not-show-me" not in said
    log = home / ".local" / "state" / "odin" / "logs" / "odin.log"
    assert log.name in said
    assert "open_the_ground" in log.read_text()
    resume = re.search(r"odin --resume (\d+)", said)
    assert resume, said
    with open_terminal("--resume", resume[1], cwd=workspace, env=server.env("anthropic")) as odin:
        odin.see("hi")
        odin.type("\x04")
        odin.assert_exit_code(0)
