"""A day of work in the app: thirty prompts, edits, undo, agents, a server, MCP, a resume; then files, history, cost."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from msgspec.structs import replace

from odin.testing import ScriptedServer, SeenRequest, Turn, Usage, call, reply, say
from odin.testing.script import get_content_text
from tests.terminal.emulator import ODIN, Emulator, open_terminal
from tests.waiting import LIMIT_S

USAGE = Usage(input=1000, output=10)
PRICE = (1000 * 3 + 10 * 15) / 1e6
"""What one reply costs with the model of the test."""

CART = """def total(prices):
    return sum(prices)
"""
QUESTIONS = "ABCDEFGHIJKLMNOP"
ROUNDED = CART.replace("sum(prices)", "round(sum(prices), 2)")
SERVER = """import sys
from http.server import HTTPServer, SimpleHTTPRequestHandler

HTTPServer(("127.0.0.1", int(sys.argv[1])), SimpleHTTPRequestHandler).serve_forever()
"""
DISCOUNTED = ROUNDED + "\n\ndef discount(price):\n    return price * 0.9\n"


class ScriptedDay:
    """Answers each prompt with its turns, whichever agent sends it, and mail with one sentence."""

    def __init__(self, turns: dict[str, list[Turn]]) -> None:
        self._turns = turns

    def __call__(self, seen: SeenRequest) -> Turn:
        replies = 0
        for message in reversed(seen.messages):
            text = get_content_text(message.get("content"))
            if message["role"] == "assistant":
                replies += 1
            elif "[mail-" in text:
                return replace(say("I have read the reports."), usage=USAGE)
            elif prompt := next((prompt for prompt in self._turns if prompt in text), ""):
                return replace(self._turns[prompt][replies], usage=USAGE)
        raise ValueError("no known prompt")


def make_turns(project: Path, port: int, gate: Event, delegated: Event) -> dict[str, list[Turn]]:
    cart = str(project / "cart.py")

    def edit(old: str, new: str) -> list[Turn]:
        args = {"file_path": cart, "old_string": old, "new_string": new}
        return [call("Read", {"file_path": cart}), call("Edit", args)]

    def delegate(name: str) -> Turn:
        return call("Delegate", {"description": f"Check {name}.", "agent_type": "general"})

    slowly = "slowly " * 400
    return {
        "What is this project?": [say("A shop.")],
        "Where is total() defined?": [call("Grep", {"pattern": "def total", "path": str(project)}), say("In cart.py.")],
        "Show me cart.py": [call("Read", {"file_path": cart}), say("It adds prices.")],
        "Round the total": [*edit("sum(prices)", "round(sum(prices), 2)"), say("Rounded.")],
        "Run the checks": [call("Bash", {"command": f"{sys.executable} -m unittest -q"}), say("They pass.")],
        "Add a discount": [*edit(ROUNDED, DISCOUNTED), say("Added it.")],
        "Write a changelog": [
            call("Write", {"file_path": str(project / "CHANGES"), "content": "- rounded\n"}),
            say("Written."),
        ],
        "Remove the old notes": [call("Bash", {"command": "rm old-notes.txt"}), say("Removed.")],
        "Look at both modules": [
            reply(calls=[delegate("cart"), delegate("shop")]),
            say("Two agents look at them."),
        ],
        "Check cart.": [call("Complete", {"summary": "cart is fine"}).hold(delegated)],
        "Check shop.": [call("Complete", {"summary": "shop is fine"}).hold(delegated)],
        "Start the server": [
            call("Spawn", {"command": f"python3 serve.py {port}", "description": "serve"}),
            say("It serves."),
        ],
        "Ask the tiny server": [call("mcp__tiny__echo", {"text": "hello"}), say("It answered.")],
        "Count slowly": [say(f"Counting {slowly}").hold(gate, after=12)],
        "Then say goodbye": [say("Goodbye.")],
        "Count once more": [say(f"Counting once more {slowly}").stall(after=12)],
        **{f"Question {letter}": [say(f"Answer {letter}.")] for letter in QUESTIONS},
    }


def find_free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def approve(odin: Emulator) -> None:
    odin.see("stops the work.")
    time.sleep(1.1)  # the composer takes every key until the user has paused
    odin.type("y")
    odin.wait_until_gone("stops the work.")


def ask(odin: Emulator, prompt: str, *answers: str, approvals: int = 0) -> None:
    odin.type(f"{prompt}\r")
    for _ in range(approvals):
        approve(odin)
    odin.see(*answers, "Ask, or type")


def read_json(*args: str, cwd: Path, env: dict[str, str]) -> Any:
    done = subprocess.run([*ODIN, *args], cwd=cwd, env={**os.environ, **env}, capture_output=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.slow
def test_a_day_of_work(workspace: Path) -> None:
    cart = workspace / "cart.py"
    cart.write_text(CART)
    (workspace / "shop.py").write_text("import cart\n")
    (workspace / "serve.py").write_text(SERVER)
    (workspace / "old-notes.txt").write_text("notes\n")
    (workspace / "test_cart.py").write_text("import unittest\n\n\nclass Empty(unittest.TestCase):\n    pass\n")
    tiny = {"command": sys.executable, "args": [str(Path(__file__).parents[1] / "mcp_client" / "server.py")]}
    (workspace / ".mcp.json").write_text(json.dumps({"mcpServers": {"tiny": tiny}}))
    port, gate, delegated = find_free_port(), Event(), Event()
    with ScriptedServer(ScriptedDay(make_turns(workspace, port, gate, delegated))) as server:
        env = server.env("anthropic")
        with open_terminal(cwd=workspace, env=env, command=ODIN, rows=40) as odin:
            odin.see("y Trust this folder")
            odin.type("y")
            odin.see("Ask, or type")
            ask(odin, "What is this project?", "A shop.")
            ask(odin, "Where is total() defined?", "In cart.py.")
            ask(odin, "Show me cart.py", "It adds prices.")
            ask(odin, "Round the total", "Rounded.", approvals=1)
            ask(odin, "Run the checks", "They pass.")
            ask(odin, "Add a discount", "Added it.", approvals=1)
            assert cart.read_text() == DISCOUNTED
            odin.type("/undo\r")
            odin.see("1 file restored")
            assert cart.read_text() == ROUNDED
            odin.type("/redo\r")
            odin.see("The rewind was undone.")
            assert cart.read_text() == DISCOUNTED
            ask(odin, "Write a changelog", "Written.", approvals=1)
            ask(odin, "Remove the old notes", "Removed.", approvals=1)
            ask(odin, "Look at both modules", "Two agents look at them.", "   done")
            delegated.set()
            odin.see("[mail-3]", "[mail-4]")
            mails = odin.text.count("← [mail-")  # read in one turn, or in two
            odin.see_often("I have read the reports.", mails)
            odin.press_and_wait("/undo")
            odin.type("\r")
            odin.see("│ Look at both modules")
            odin.wait_until_gone("I have read the reports.")
            odin.type("/redo\r")
            odin.see_often("I have read the reports.", mails)
            ask(odin, "Question A", "Answer A.")
            odin.type("Start the server\r")
            approve(odin)
            odin.see("Keep it closed (default)", "2 ○ Open it")
            time.sleep(1.1)
            odin.type("2\r")
            url = f"http://127.0.0.2:{port}"
            odin.see("It serves.", url)
            with urllib.request.urlopen(f"{url}/CHANGES", timeout=LIMIT_S) as page:
                assert page.read() == b"- rounded\n"
            odin.type("/ps 1 stop\r")
            odin.see("Stopped spawn-1.")
            ask(odin, "Ask the tiny server", "It answered.", approvals=1)
            odin.type("Count slowly\r")
            odin.see("Counting slowly")
            odin.type("Then say goodbye\r")
            odin.see("Then say goodbye")
            gate.set()
            odin.see("Goodbye.", "Ask, or type")
            odin.type("Count once more\r")
            odin.see("Counting once more")
            odin.type("\x1b")
            odin.see("interrupted")
            for letter in QUESTIONS[1:12]:
                ask(odin, f"Question {letter}", f"Answer {letter}.")
            odin.type("/exit\r")
            odin.assert_exit_code(0)
            odin.assert_restored()
        with open_terminal(cwd=workspace, env=env, command=[*ODIN, "-c"], rows=40) as odin:
            odin.see("Answer L.", "Ask, or type")
            for letter in QUESTIONS[12:]:
                ask(odin, f"Question {letter}", f"Answer {letter}.")
            odin.type("\x1b[A")
            odin.see("│ Question P")
            odin.type("\x03/exit\r")
            odin.assert_exit_code(0)
            odin.assert_restored()
        assert not server.rejected
        assert {file.name: file.read_text() for file in (cart, workspace / "CHANGES")} == {
            "cart.py": DISCOUNTED,
            "CHANGES": "- rounded\n",
        }
        assert not (workspace / "old-notes.txt").exists()
        (session,) = read_json("sessions", "--json", cwd=workspace, env=env)
        assert session["turns"] == 30
        total = read_json("usage", "--all", "--json", cwd=workspace, env=env)["total"]
        assert total["calls"] == len(server.requests) == 44 + mails
        assert total["cost_usd"] == pytest.approx(session["cost_usd"])
        assert total["cost_usd"] == pytest.approx(
            (44 + mails) * PRICE, abs=0.002
        )  # the output of an interrupted one is estimated
