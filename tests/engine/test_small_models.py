"""The strategy for small models in a session: the model sees whole files and writes whole files."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from odin.core.call_events import ToolEnded
from odin.core.event import TurnEnded, Warned
from odin.core.op import Rewind
from odin.testing import ScriptedServer, say
from tests.engine.conftest import Start, Talk

CALC = "def add(a, b):\n    return a - b\n\n\ndef twice(n):\n    return n * 2\n"
FIXED = CALC.replace("a - b", "a + b")


@pytest.fixture
async def small(start: Start, workspace: Path) -> AsyncIterator[Any]:
    """small(replies, **options) opens a session with a model of 1.5 billion parameters that gives these replies."""
    servers: list[ScriptedServer] = []

    async def begin(*replies: str, window: int = 16_384, settings: Any = None, **options: Any) -> Talk:
        name = "qwen2.5-coder-1.5b"
        server = ScriptedServer(
            [say(text, chunk=24) for text in replies], local="llamacpp", models=[name], window=window
        )
        server.start()
        servers.append(server)
        own: dict[str, Any] = {"base_url": server.openai_url, "type": "openai-chat", "models": {name: settings or {}}}
        config = {"providers": {"llamacpp": own}}
        return await start([], "openai", server=server, config=config, model=f"llamacpp/{name}", **options)

    (workspace / "calc.py").write_text(CALC)
    yield begin
    for server in servers:
        server.stop()


def list_messages(talk: Talk, number: int = -1) -> list[dict[str, Any]]:
    return json.loads(talk.server.requests[number].body)["messages"]


def block(path: str, text: str) -> str:
    return f"{path}\n```python\n{text}```"


async def test_one_request_with_the_files_becomes_a_minimal_edit_that_can_be_undone(
    small: Any, workspace: Path
) -> None:
    talk = await small(f"The sign was wrong.\n\n{block('calc.py', FIXED)}")
    ended: TurnEnded = await talk.say("add in calc.py subtracts. Fix it.")
    assert (ended.reason, ended.text) == ("end_turn", "The sign was wrong.\n\nChanged calc.py.")
    assert (workspace / "calc.py").read_text() == FIXED
    assert len(talk.server.requests) == 1
    task = list_messages(talk)[-1]["content"]
    assert CALC in task
    assert task.endswith("Task: add in calc.py subtracts. Fix it.")
    assert "tools" not in json.loads(talk.server.requests[0].body)
    edit = next(event for event in talk.all(ToolEnded) if event.name == "EditTool")
    assert edit.status == "success"
    await talk.client.submit(Rewind("p1"))
    assert (workspace / "calc.py").read_text() == CALC


async def test_the_first_request_is_short_and_a_correction_shows_the_files_again(small: Any) -> None:
    talk = await small(block("calc.py", CALC), block("calc.py", FIXED))
    ended = await talk.say("Fix add in calc.py, then run python3 calc.py.")
    assert ended.reason == "end_turn"
    first, second = list_messages(talk, 0), list_messages(talk, 1)
    assert second[:-1] == first[:-1], "the server's prompt cache holds the examples"
    assert CALC in second[-1]["content"]
    assert "\n\ncalc.py would stay exactly as it is. A line of it must change." in second[-1]["content"]
    without_files = sum(len(message["content"]) for message in first) - len(CALC)
    assert without_files < 900 * 3.2


async def test_output_of_a_command_is_sent_to_the_model(small: Any) -> None:
    talk = await small("RUN python3 -c 'from calc import twice; print(twice(21))'", "twice(21) returns 42.")
    ended = await talk.say("What does twice(21) return?")
    assert (ended.text, ended.reason) == ("twice(21) returns 42.", "end_turn")
    assert "Output of python3 -c 'from calc import twice; print(twice(21))':\n42" in list_messages(talk)[-1]["content"]


async def test_files_are_created_and_deleted_and_the_answer_says_so(small: Any, workspace: Path) -> None:
    (workspace / "old.txt").write_text("x\n")
    talk = await small("DELETE old.txt\n\n" + block("new/hello.py", 'print("hi")\n'))
    ended = await talk.say("Replace old.txt by new/hello.py, which prints hi.")
    assert ended.text == "Created new/hello.py. Deleted old.txt."
    assert not (workspace / "old.txt").exists()
    assert (workspace / "new/hello.py").read_text() == 'print("hi")\n'


async def test_a_file_that_would_not_parse_is_not_written(small: Any, workspace: Path) -> None:
    talk = await small(block("calc.py", FIXED.replace("(a, b):", "(a, b)")), block("calc.py", FIXED))
    await talk.say("Fix add in calc.py.")
    assert (workspace / "calc.py").read_text() == FIXED
    assert "calc.py would not be valid: line 1" in list_messages(talk)[-1]["content"]
    assert [event.name for event in talk.all(ToolEnded)].count("EditTool") == 1


@pytest.mark.slow
async def test_project_tests_run_after_a_change_and_failures_are_sent_to_the_model(small: Any, workspace: Path) -> None:
    test = "import unittest\n\nfrom calc import add\n\n\nclass TestAdd(unittest.TestCase):\n"
    (workspace / "test_calc.py").write_text(test + "    def test_add(self):\n        self.assertEqual(add(2, 3), 5)\n")
    talk = await small(block("calc.py", CALC.replace("a - b", "a * b")), block("calc.py", FIXED))
    ended = await talk.say("The test of add fails. Fix calc.py.")
    assert ended.reason == "end_turn"
    assert "FAILED" in list_messages(talk, 0)[-1]["content"], "the prompt is about a test, so it runs first"
    assert "\n\npython3 -B -m unittest discover fails:\n" in list_messages(talk, 1)[-1]["content"]
    assert (workspace / "calc.py").read_text() == FIXED


async def test_two_identical_failures_end_the_turn_and_say_what_to_try(small: Any, workspace: Path) -> None:
    invalid = block("calc.py", "def add(:\n")
    talk = await small(invalid, invalid, "never asked")
    ended: TurnEnded = await talk.say("Fix add in calc.py.")
    assert (ended.reason, ended.error_kind) == ("error", "NoProgress")
    assert "calc.py would" in ended.error
    assert "Try a smaller step" in ended.hint
    assert len(talk.server.requests) == 2
    assert (workspace / "calc.py").read_text() == CALC


async def test_unapproved_change_ends_the_turn_with_an_error(small: Any, workspace: Path) -> None:
    talk = await small(block("calc.py", FIXED), yes=False)
    ended: TurnEnded = await talk.say("Fix add in calc.py.")
    assert (ended.reason, ended.error_kind) == ("error", "NoProgress")
    assert "requires confirmation" in ended.error
    assert (workspace / "calc.py").read_text() == CALC


async def test_ask_mode_changes_nothing(small: Any, workspace: Path) -> None:
    talk = await small(block("calc.py", FIXED))
    ended = await talk.say("Fix add in calc.py.", mode="ask_mode")
    assert "a + b" in ended.text
    assert (workspace / "calc.py").read_text() == CALC
    assert "code block" not in list_messages(talk)[0]["content"]


@pytest.mark.parametrize("window", [8_192, 16_384, 32_768])
async def test_shown_files_fit_the_context_window(small: Any, workspace: Path, window: int) -> None:
    for number in range(60):
        (workspace / f"part{number}.py").write_text(f"PART_{number} = {number}\n" * 40)
    talk = await small("PART_7 is 7.", window=window)
    ended = await talk.say("What is the value of PART_7?")
    assert ended.reason == "end_turn"
    task = list_messages(talk)[-1]["content"]
    assert "part7.py\n```python" in task
    assert len(task) // 3 < window // 2
    assert "Other files: " in task
    assert talk.all(Warned) == []


async def test_the_setting_chooses_the_strategy(small: Any, workspace: Path) -> None:
    """A small model that calls tools gets few of them in any window, and files without line numbers."""
    look = [{"toolName": "Read", "toolInput": {"file_path": "calc.py"}}]
    read = {"taskCompleted": False, "explanation": "", "executeTool": look}
    done: dict[str, Any] = {"taskCompleted": True, "explanation": "It adds.", "executeTool": []}
    talk = await small(json.dumps(read), json.dumps(done), settings={"strategy": "tools", "context": 32_768})
    ended = await talk.say("What does add do?")
    assert ended.text == "It adds."
    system = list_messages(talk)[0]["content"]
    assert "- EditTool(" in system
    assert "WebFetch" not in system
    assert f"Result of Read:\n{CALC.rstrip()}" in list_messages(talk)[-1]["content"]


async def test_missing_test_program_is_ignored(small: Any, workspace: Path) -> None:
    (workspace / "test_calc.py").write_text("from calc import add\n\n\ndef test_add():\n    assert add(2, 3) == 5\n")
    (workspace / "pytest.py").write_text("raise ModuleNotFoundError(\"No module named 'pytest'\")\n")
    talk = await small(block("calc.py", FIXED))
    ended = await talk.say("add in calc.py subtracts. Fix it.")
    assert (ended.reason, ended.text) == ("end_turn", "Changed calc.py.")


@pytest.mark.parametrize(("prompt", "requests"), [("Fix add in calc.py.", 2), ("What does add do?", 2)])
async def test_empty_replies_end_the_turn_with_an_error(small: Any, prompt: str, requests: int) -> None:
    talk = await small(" ", " ", " ", " ", " ", " ")
    ended: TurnEnded = await talk.say(prompt)
    assert (ended.reason, ended.error_kind) == ("error", "NoProgress")
    assert len(talk.server.requests) == requests


async def test_a_repeated_command_is_answered_with_its_output(small: Any) -> None:
    run = "Let me see.\n\nRUN python3 -c 'print(6 * 7)'"
    talk = await small(run, run)
    ended = await talk.say("What is 6 * 7?")
    assert ended.reason == "end_turn"
    assert ended.text.endswith("`python3 -c 'print(6 * 7)'`:\n42")


async def test_repetitive_reply_is_not_read_to_its_end(small: Any, workspace: Path) -> None:
    other = "def half(n):\n    return n / 2\n"
    for name in ("a.py", "b.py"):
        (workspace / name).write_text(other)
    worse = block("calc.py", FIXED.replace("a + b", "a * b"))
    loops = (
        [block("calc.py", FIXED), block("a.py", other), block("calc.py", FIXED), worse],
        [block("calc.py", FIXED), block("a.py", other), block("b.py", other), worse],
        [block("calc.py", FIXED), *["I have fixed it."] * 30, worse],
    )
    for blocks in loops:
        (workspace / "calc.py").write_text(CALC)
        talk = await small("\n\n".join(blocks))
        ended: TurnEnded = await talk.say("add in calc.py subtracts. Fix it. half is fine.")
        assert ended.reason == "end_turn"
        assert (workspace / "calc.py").read_text() == FIXED
        assert len(talk.server.requests) == 1
