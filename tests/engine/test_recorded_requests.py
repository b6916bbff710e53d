"""Requests to models that are not small equal the recorded ones, whatever is built for small models.

`ODIN_SNAPSHOTS=write` records them again, after a deliberate change of the prompt or the tools.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

from odin.testing import ScriptedServer, call, say
from tests.engine.conftest import Start

RECORDED = Path(__file__).with_name("recorded_requests.json")
IS_RECORDING = os.environ.get("ODIN_SNAPSHOTS") == "write"


async def test_requests_to_larger_models_equal_the_recorded_ones(start: Start, workspace: Path) -> None:
    (workspace / "a.py").write_text("def f():\n    return 1\n")
    seen = {"anthropic": await _ask(start, "anthropic"), "openai": await _ask(start, "openai")}
    for window in (8_192, 16_384, 32_768):
        with ScriptedServer(_script(), local="llamacpp", models=["big-70b"], window=window) as server:
            ports = {"ODIN_LOCAL_PORTS": server.openai_url.rpartition(":")[2].partition("/")[0]}
            seen[f"local {window}"] = await _ask(start, "openai", server=server, env=ports, model="llamacpp/big-70b")
    found = json.loads(_normalize(json.dumps(seen, ensure_ascii=False), workspace))
    if IS_RECORDING:
        RECORDED.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    recorded = json.loads(RECORDED.read_text())
    assert list(found) == list(recorded)
    for name, request in found.items():
        assert json.dumps(request, indent=1) == json.dumps(recorded[name], indent=1), name


def _script() -> list[Any]:
    return [call("Read", {"file_path": "a.py"}, id="c1"), say("It returns 1.")]


async def _ask(start: Start, api: str, server: Any = None, **options: Any) -> dict[str, Any]:
    talk = await start(_script(), api, server=server, **options)
    await talk.say("What does f return?")
    await talk.client.close()
    return json.loads(talk.server.requests[-1].body)


def _normalize(text: str, workspace: Path) -> str:
    """Replace everything that differs between machines and days."""
    text = text.replace(str(workspace), "/project")
    text = re.sub(r"Date: \d{4}-\d\d-\d\d", "Date: 2026-01-01", text)
    text = re.sub(r"Platform: \w+, shell: \w+", "Platform: linux, shell: sh", text)
    text = re.sub(r"cached \d\d:\d\d:\d\d", "cached 12:00:00", text)
    return re.sub(r'"(user_id|prompt_cache_key|session_id)": "[^"]*"', r'"\1": "x"', text)
