"""Every capability that Odin advertises, driven by the official client library, and as a recorded conversation.

`ODIN_RECORD=1 pytest tests/acp/test_capabilities.py` writes the recordings again.
"""

import json
import os
from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path

import pytest

from odin.testing import ScriptedServer
from tests.acp.conversation import FOLDER, Line, drop_facts, list_names, normalize, read, write
from tests.acp.editor import open_editor, open_server
from tests.acp.scenarios import SCENARIOS, Scenario
from tests.waiting import TimeLimit

RECORDS = bool(os.environ.get("ODIN_RECORD"))  # the fixtures clear it


def prepare(scenario: Scenario, workspace: Path) -> ScriptedServer:
    (workspace.parent / "lib").mkdir()
    for name, text in scenario.files.items():
        (workspace / name).write_text(text)
    return ScriptedServer(scenario.script)


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_capability(name: str, workspace: Path) -> None:
    scenario = SCENARIOS[name]
    with prepare(scenario, workspace) as model:
        async with open_editor(
            model, answers=scenario.answers, capabilities=scenario.capabilities, cwd=str(workspace)
        ) as editor:
            await scenario.play(editor, workspace)
    found = normalize(editor.messages, workspace)
    if RECORDS:
        write(name, found)
    assert found == read(name)


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_recorded_conversation(name: str, workspace: Path) -> None:
    """The lines of the editor as they were recorded get the same answers."""
    known = read(name)
    with prepare(SCENARIOS[name], workspace) as model:
        async with open_server(model, cwd=str(workspace)) as (reader, writer):
            heard: list[Line] = []

            async def wait_for(expected: list[Line], shown: Callable[[list[Line]], list[Line]]) -> None:
                def describe() -> str:
                    seen = shown(normalize(heard, workspace))
                    pairs = ((one, other) for one, other in zip_longest(seen, expected) if one != other)
                    return "the line {1}, not {0}".format(*next(pairs))

                async with TimeLimit(describe):
                    while shown(normalize(heard, workspace)) != expected:
                        heard.append(("<", json.loads(await reader.readline())))

            for number, (way, line) in enumerate(known):
                if way == ">":
                    await wait_for(drop_facts(known[:number]), drop_facts)
                    text = json.dumps(line)
                    for value, placeholder in list_names(heard, workspace).items():
                        text = text.replace(placeholder, value)
                    writer.write(text.encode() + b"\n")
                    heard.append((way, json.loads(text)))
            await wait_for(known, list)


def test_each_recording_has_a_scenario() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == {*SCENARIOS}
