"""Headless runs wait for delegated tasks."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from odin.testing import ScriptedServer, call, say
from tests.waiting import LIMIT_S

from .test_team import TeamScript, complete, delegate


def run_odin(server: ScriptedServer, cwd: Path, *args: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "odin", "-p", "--yes", "go", *args],
        capture_output=True,
        text=True,
        env={**os.environ, **server.env("anthropic")},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        timeout=LIMIT_S,
        check=False,
    )


def test_turn_that_reads_the_result_gives_the_structured_output(workspace: Path) -> None:
    schema = {"type": "object", "properties": {"answer": {"type": "integer", "minimum": 40}}, "required": ["answer"]}
    answers = [call("StructuredOutput", {"answer": number}) for number in (40, 42)]
    with ScriptedServer(TeamScript([delegate("a"), *answers], a=[complete("it is 42")])) as server:
        done = run_odin(server, workspace, "--json-schema", json.dumps(schema))
    assert (done.returncode, done.stdout) == (0, '{"answer":42}\n')


@pytest.mark.parametrize("form", ["text", "json", "stream-json"])
def test_answer_comes_from_the_turn_that_reads_the_result(workspace: Path, form: str) -> None:
    script = TeamScript([delegate("a"), say("I wait."), say("The answer is 42.")], a=[complete("it is 42")])
    with ScriptedServer(script) as server:
        more = ["--verbose"] if form == "stream-json" else []
        done = run_odin(server, workspace, "--output-format", form, *more)
    assert done.returncode == 0, done.stderr
    if form == "text":
        assert done.stdout == "The answer is 42.\n"
        return
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    results = [message for message in messages if message["type"] == "result"]
    assert results[-1]["result"] == "The answer is 42."
    if form == "stream-json":
        task_events = [
            (item["subtype"], item.get("event"), item.get("status")) for item in messages if "task_id" in item
        ]
        assert task_events == [
            ("task_started", "agent_started", None),
            ("task_notification", "agent_done", "completed"),
        ]
        assert [result["idle"] for result in results] == [False, True]
        assert not any(message.get("subtype") == "idle" for message in messages), "the last result has the field"
        assert messages[0]["agents"] == ["explore", "general"]
        parents = {message.get("parent_tool_use_id") for message in messages if message["type"] == "assistant"}
        assert parents == {None, "call-a"}
