"""Edit formats: models trained on apply_patch get it, others get EditTool, unless a setting says otherwise."""

from pathlib import Path
from typing import Any

import pytest

from odin.core.event import FilesChanged
from odin.core.op import Rewind, SetModel
from odin.testing import call, say

from .conftest import Start

CHANGES = '*** Update File: a.txt\n-one\n+two "quoted" \\ ü\n*** Add File: b/c.txt\n+new\n'
PATCH = f"*** Begin Patch\n{CHANGES}*** End Patch"
RESPONSES = {"providers": {"openai": {"type": "openai-responses"}}}
READ = call("Read", {"file_path": "a.txt"})


def list_call_types(messages: list[dict[str, Any]]) -> list[str]:
    return [message["type"] for message in messages if "call" in message.get("type", "")]


@pytest.mark.parametrize(
    ("model", "kind"), [("gpt-5.4", "custom_tool_call"), ("gpt-4.1", "function_call"), ("o3", "function_call")]
)
async def test_patch_is_a_custom_tool_call_or_a_function_call(
    start: Start, workspace: Path, model: str, kind: str
) -> None:
    (workspace / "a.txt").write_text("one\n")
    patch = call("apply_patch", {"input": PATCH})
    talk = await start([READ, patch, say("done")], "openai", model=f"openai/{model}", config=RESPONSES)
    await talk.say("go")
    assert talk.server.rejected == []
    last = talk.server.requests[-1]
    assert {"EditTool", "MultiEditTool", "Delete"}.isdisjoint(last.tool_names) and "apply_patch" in last.tool_names
    assert list_call_types(last.messages)[-2:] == [kind, f"{kind}_output"]
    assert (workspace / "a.txt").read_text() == 'two "quoted" \\ ü\n'
    assert (workspace / "b/c.txt").read_text() == "new\n"
    changed = [change.after.path for event in talk.all(FilesChanged) for change in event.changes]
    assert {str(workspace / "a.txt"), str(workspace / "b/c.txt")} <= set(changed)
    await talk.client.submit(Rewind("p1", chat=False))
    assert (workspace / "a.txt").read_text() == "one\n" and not (workspace / "b").exists()


FORMATS: list[tuple[str, dict[str, Any], str | None]] = [
    ("anthropic", {}, "EditTool"),
    ("openai", {"model": "openai/gpt-5.4", "config": {"edit_format": "replace"}}, "EditTool"),
    ("anthropic", {"config": {"edit_format": "patch"}}, "apply_patch"),
    ("openai", {"model": "openai/gpt-5.4", "disallowed_tools": ("apply_patch",)}, "EditTool"),
    ("openai", {"model": "openai/gpt-5.4", "disallowed_tools": ("Edit",)}, None),
    (
        "openai",
        {
            "model": "openai/gpt-5.4",
            "config": {"providers": {"openai": {"models": {"gpt-5.4": {"edit_format": "replace"}}}}},
        },
        "EditTool",
    ),
]


@pytest.mark.parametrize(("api", "options", "tool"), FORMATS)
async def test_edit_format_can_be_configured(start: Start, api: Any, options: dict[str, Any], tool: str | None) -> None:
    talk = await start([say("hello")], api, **options)
    await talk.say("hi")
    offered = set(talk.server.requests[-1].tool_names)
    assert offered & {"EditTool", "apply_patch"} == ({tool} if tool else set())


async def test_a_patch_in_the_history_is_valid_for_another_model(start: Start, workspace: Path) -> None:
    (workspace / "a.txt").write_text("one\n")
    patch = call("apply_patch", {"input": PATCH})
    talk = await start([READ, patch, say("done"), say("again")], "openai", model="openai/gpt-5.4", config=RESPONSES)
    await talk.say("go")
    await talk.client.submit(SetModel("openai/gpt-4.1"))
    await talk.say("more")
    assert talk.server.rejected == []
    assert list_call_types(talk.server.requests[-1].messages)[-2:] == ["function_call", "function_call_output"]
