"""A day's work in the app: asked, allowed, queued, interrupted, left and resumed, and the terminal is as it was."""

import json
import re
from pathlib import Path
from threading import Event

import pytest

from odin.testing import ScriptedServer, call, say
from tests.terminal.emulator import ODIN, terminal


def test_a_whole_session(workspace: Path) -> None:
    """Started as a user starts it; most other tests here start faster."""
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
        with terminal(cwd=workspace, env=env, command=ODIN) as odin:
            odin.see("edit")
            odin.type("Mend the spelling in greet.py\r")
            odin.see("Edit", "greet.py", "hello")
            assert "helo" in target.read_text()
            odin.see("Esc denies and stops the work.")
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
            odin.see("again to exit")
            odin.type("\x03")
            odin.ends(0)
            odin.given_back()
            said = "\n".join(odin.scrollback)
        resume = re.search(r"odin --resume (\d+)", said)
        assert resume, said
        with terminal(cwd=workspace, env=env, command=[*ODIN, "--resume", resume[1]]) as odin:
            odin.see("You wanted a poem.")
            odin.type("What did we do?\r")
            odin.see("We fixed the greeting.")
            odin.type("\x04")
            odin.ends(0)
        assert not server.rejected


@pytest.mark.slow
def test_ways_back_into_a_conversation_and_the_transcript(workspace: Path, home: Path) -> None:
    """The last session, one that is picked inside, `q` with Vim's keys, and every line of the conversation once."""
    config = home / ".config" / "odin" / "odinconfig.json"
    config.write_text(json.dumps({"tui": {"vim": True, "transcript_on_exit": True, "bell": False}}))
    with ScriptedServer([say("The older one."), say("The newer one."), say("Gone on.")]) as server:
        env = {**server.env("anthropic"), "PAGER": "cat"}
        for prompt, answer in (("about apples", "The older one."), ("about pears", "The newer one.")):
            with terminal(cwd=workspace, env=env) as odin:
                odin.see("edit")
                odin.type(f"{prompt}\r")
                odin.see(answer, "done")
                odin.changes("\x1b[27u")  # Esc as terminals say it that can say it clearly: never taken for Alt
                odin.changes("q")
                odin.type("q")
                odin.ends(0)
                odin.given_back()
                lines = odin.scrollback
                assert sum(prompt in line for line in lines) == 1
                assert sum(answer in line for line in lines) == 1
        with terminal("-c", cwd=workspace, env=env) as odin:
            odin.see("The newer one.")
            odin.type("/resume\r")
            odin.see("About apples")
            odin.type("apples")
            odin.gone("About pears")
            odin.type("\r")
            odin.see("The older one.", "Ask, or type")
            odin.type("and further?\r")
            odin.see("Gone on.", "done")
            odin.type("/exit\r")
            odin.ends(0)
            odin.given_back()
            for words in ("about apples", "The older one.", "and further?", "Gone on."):
                assert sum(words in line for line in odin.scrollback) == 1
            assert re.search(r"odin --resume \d+", "\n".join(odin.scrollback))
        assert not server.rejected
