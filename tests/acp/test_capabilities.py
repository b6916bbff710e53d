"""Every capability that Odin advertises, driven by the official client library, and as a recorded conversation.

`ODIN_RECORD=1 pytest tests/acp/test_capabilities.py` writes the recordings again.
"""

import json
import os
from pathlib import Path

import pytest

from odin.testing import ScriptedServer
from tests.acp.conversation import read, write, normalize
from tests.acp.editor import open_editor
from tests.acp.scenarios import SCENARIOS

RECORDS = bool(os.environ.get("ODIN_RECORD"))  # the fixtures clear it


def prepare(workspace: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (workspace / name).write_text(text)


@pytest.mark.parametrize("name", SCENARIOS)
async def test_capability(name: str, workspace: Path) -> None:
    one = SCENARIOS[name]
    prepare(workspace, one.files)
    with ScriptedServer(one.script) as model:
        async with open_editor(model, answers=one.answers, capabilities=one.capabilities, cwd=str(workspace)) as editor:
            try:
                await one.play(editor, workspace)
            except BaseException:
                for m in editor.messages:
                    if 'configOpt' not in str(m) and 'availableCom' not in str(m): print(m)
                raise
    found = normalize(editor.messages, workspace)
    if RECORDS:
        write(name, found)
    known = read(name)
    assert [json.dumps(line) for line in found] == [json.dumps(line) for line in known]
