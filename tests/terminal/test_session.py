"""A day's work in the app: asked, allowed, queued, interrupted, left and resumed, and the terminal is as it was."""

import re
import time
from pathlib import Path
from threading import Event

from odin.testing import ScriptedServer, call, say
from tests.terminal.emulator import terminal


def test_a_whole_session(workspace: Path) -> None:
    target = workspace / "greet.py"
    target.write_text("def greet():\n    return 'helo'\n")
    gate = Event()
    script = [
        call("Read", {"file_path": str(target)}),
        call("Edit", {"file_path": str(target), "old_string": "helo", "new_string": "hello"}),
        say("The greeting is spelled right now."),
        say("Counting " + "slowly " * 400).hold(gate, after=12),
        say("You wanted a poem."),
        say("We fixed the greeting."),
    ]
    with ScriptedServer(script) as server:
        env = server.env("anthropic")
        with terminal(cwd=workspace, env=env) as odin:
            odin.see("edit")
            odin.type("Mend the spelling in greet.py\r")
            odin.see("Edit", "greet.py", "hello")
            assert "helo" in target.read_text()
            time.sleep(0.8)
            odin.type("y")
            odin.see("The greeting is spelled right now.")
            assert "hello" in target.read_text()

            odin.type("Count slowly\r")
            odin.see("Counting")
            odin.type("Write a poem\r")
            odin.see("Write a poem")
            odin.type("\x1b")
            odin.see("interrupted")
            gate.set()
            odin.type("Now the poem\r")
            odin.see("You wanted a poem.")
            odin.type("\x03")
            odin.see("once more")
            odin.type("\x03")
            odin.ends(0)
            assert odin.as_it_was
            assert not odin.modes - {7, 25}
            said = "\n".join(odin.scrollback)
        resume = re.search(r"odin --resume (\d+)", said)
        assert resume, said
        with terminal("--resume", resume[1], cwd=workspace, env=env) as odin:
            odin.see("You wanted a poem.")
            odin.type("What did we do?\r")
            odin.see("We fixed the greeting.")
            odin.type("\x04")
            odin.ends(0)
        assert not server.rejected
