"""Whole sessions in the app: permission, queue, interrupt, exit, resume, and a restored terminal."""

import json
import re
from pathlib import Path
from threading import Event

import pytest

from odin.testing import ScriptedServer, call, say
from tests.terminal.emulator import ODIN, open_terminal


def test_a_whole_session(workspace: Path) -> None:
    """It starts `odin` as a user does; most other tests here use a faster start."""
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
        with open_terminal(cwd=workspace, env=env, command=ODIN) as odin:
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
            odin.assert_exit_code(0)
            odin.assert_restored()
            said = "\n".join(odin.scrollback)
        resume = re.search(r"odin --resume (\d+)", said)
        assert resume, said
        with open_terminal(cwd=workspace, env=env, command=[*ODIN, "--resume", resume[1]]) as odin:
            odin.see("You wanted a poem.")
            odin.type("What did we do?\r")
            odin.see("We fixed the greeting.")
            odin.type("\x04")
            odin.assert_exit_code(0)
        assert not server.rejected


def test_resume_without_an_id_opens_the_picker(workspace: Path) -> None:
    with ScriptedServer([say("Red ones."), say("Green ones."), say("And some are yellow.")]) as server:
        env = server.env("anthropic")
        for prompt in ("about apples", "about pears"):
            with open_terminal(prompt, cwd=workspace, env=env) as odin:
                odin.see("ones.", "done")
                odin.type("\x04")
                odin.assert_exit_code(0)
        with open_terminal("--resume", cwd=workspace, env=env) as odin:
            odin.see("type to filter", "bout apples", "bout pears", "Green ones.")
            odin.type("apples")
            odin.see("Red ones.")
            odin.type("\r\r")  # the second one must not close the screen below
            odin.see("› about apples", "Red ones.", "edit")
            odin.type("Any others?\r")
            odin.see("And some are yellow.")
        assert "Red ones." in str(server.requests[2].messages)
        with open_terminal("--resume", "--plain", cwd=workspace, env=env) as odin:
            odin.see("Number, words to filter the list, or Enter to cancel:")
            odin.type("\r")
            odin.assert_exit_code(0)


@pytest.mark.slow
def test_continue_resume_vim_keys_and_the_transcript_on_exit(workspace: Path, home: Path) -> None:
    """Covers `-c`, `/resume`, `q` in Vim mode, and a transcript that has every line once."""
    config = home / ".config" / "odin" / "odinconfig.json"
    config.write_text(json.dumps({"tui": {"vim": True, "transcript_on_exit": True, "bell": False}}))
    with ScriptedServer([say("The older one."), say("The newer one."), say("Gone on.")]) as server:
        env = {**server.env("anthropic"), "PAGER": "cat"}
        for prompt, answer in (("about apples", "The older one."), ("about pears", "The newer one.")):
            with open_terminal(cwd=workspace, env=env) as odin:
                odin.see("edit")
                odin.type(f"{prompt}\r")
                odin.see(answer, "done")
                odin.press_and_wait("\x1b[27u")  # Esc in the keyboard protocol, which cannot be taken for Alt
                odin.press_and_wait("q")
                odin.type("q")
                odin.assert_exit_code(0)
                odin.assert_restored()
                lines = odin.scrollback
                assert sum(prompt in line for line in lines) == 1
                assert sum(answer in line for line in lines) == 1
        with open_terminal("-c", cwd=workspace, env=env) as odin:
            odin.see("The newer one.")
            odin.type("/resume\r")
            odin.see("About apples")
            odin.type("apples")
            odin.wait_until_gone("About pears")
            odin.type("\r")
            odin.see("The older one.", "Ask, or type")
            odin.type("and further?\r")
            odin.see("Gone on.", "done")
            odin.type("/exit\r")
            odin.assert_exit_code(0)
            odin.assert_restored()
            for words in ("about apples", "The older one.", "and further?", "Gone on."):
                assert sum(words in line for line in odin.scrollback) == 1
            assert re.search(r"odin --resume \d+", "\n".join(odin.scrollback))
        assert not server.rejected
