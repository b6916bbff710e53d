"""Secrets in tool results reach neither the user, nor the log, nor the model."""

import json
from pathlib import Path
from typing import Any

from odin.core.call_events import SpawnFinished, ToolEnded, ToolProgressed
from odin.core.event import ContextAdded
from odin.core.op import AddContext
from odin.testing import call, say
from tests.engine.conftest import Start

KEY = "ghp_" + "aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0zA1234"
PLACEHOLDER = "[redacted: {}]".format("GitHub token")
"""Not written in one piece: Odin itself would refuse to copy this file, because it could stand for a secret."""
PASSWORD = "tr0ub4dor&3 with spaces"
SECRETS = {"SHOP_PASSWORD": PASSWORD}


def find_log(home: Path) -> str:
    (path,) = (home / ".local" / "state" / "odin").rglob("*.jsonl")
    return path.read_text()


def list_all_texts(talk: Any, home: Path) -> str:
    """Return the text sent to the model, written to the log, and shown."""
    sent = "".join(request.body.decode() for request in talk.server.requests)
    return sent + find_log(home) + repr(talk.events)


async def test_secrets_in_command_output_are_redacted(start: Start, workspace: Path, home: Path):
    (workspace / "notes.txt").write_text(f"the key is {KEY}\nand {PASSWORD}\n")
    talk = await start([call("ExecuteCommand", {"command": "cat notes.txt"}), say("done")], env=SECRETS)
    await talk.say("go")
    (ended,) = talk.all(ToolEnded)
    assert ended.redacted == ("GitHub token", "SHOP_PASSWORD")
    assert f"the key is {PLACEHOLDER}\nand [redacted: SHOP_PASSWORD]" in ended.text
    assert PLACEHOLDER in talk.server.requests[1].body.decode()
    seen = list_all_texts(talk, home)
    assert KEY not in seen
    assert KEY[4:] not in seen
    assert PASSWORD not in seen
    assert not any(KEY in event.text for event in talk.all(ToolProgressed))


async def test_secrets_in_read_and_grep_results_are_redacted(start: Start, workspace: Path, home: Path):
    path = workspace / "settings.py"
    path.write_text(f'TOKEN = "{KEY}"\n')
    script = [call("Read", {"file_path": str(path)}), call("Grep", {"pattern": "TOKEN"}), say("done")]
    talk = await start(script, env=SECRETS)
    await talk.say("go")
    assert [event.redacted for event in talk.all(ToolEnded)] == [("GitHub token",), ("GitHub token",)]
    assert KEY not in list_all_texts(talk, home)


async def test_secrets_in_background_output_are_redacted(start: Start, workspace: Path, home: Path):
    (workspace / "key").write_text(KEY)
    command = "until [ -e go ]; do sleep 0.02; done; cat key; exit 3"
    script = [call("Spawn", {"command": command}), call("ExecuteCommand", {"command": "touch go"})]
    talk = await start([*script, call("SpawnStatus", {"id": "spawn-1"}), say("done"), say("seen")])
    await talk.say("go")
    await talk.until(SpawnFinished)
    await talk.say("and now?")
    (finished,) = talk.all(SpawnFinished)
    assert PLACEHOLDER in finished.output
    assert KEY not in list_all_texts(talk, home)


async def test_secrets_in_added_context_are_redacted(start: Start, home: Path):
    talk = await start([say("done")])
    await talk.client.submit(AddContext(f"export T={KEY}", command="env"))
    await talk.say("go")
    assert [event.content for event in talk.all(ContextAdded)] == [f"export T={PLACEHOLDER}"]
    assert KEY not in list_all_texts(talk, home)


async def test_keys_of_the_configuration_are_redacted(start: Start, workspace: Path, home: Path):
    (workspace / "x").write_text("my-w0rk-key and Tok3n-in-a-header")
    provider = {"api_key": "my-w0rk-key", "headers": {"X-Auth": "Tok3n-in-a-header"}, "base_url": "http://127.0.0.1:1"}
    talk = await start(
        [call("Read", {"file_path": str(workspace / "x")}), say("done")],
        config={"providers": {"work": {**provider, "type": "openai-chat"}}},
    )
    await talk.say("go")
    (ended,) = talk.all(ToolEnded)
    assert ended.redacted == ("key of work", "X-Auth of work")
    assert "my-w0rk-key" not in list_all_texts(talk, home)
    assert "Tok3n-in-a-header" not in list_all_texts(talk, home)


async def test_placeholder_is_not_written_over_a_secret(start: Start, workspace: Path):
    path = workspace / "settings.py"
    path.write_text(f'TOKEN = "{KEY}"\nNAME = "a"\n')
    shown = f'TOKEN = "{PLACEHOLDER}"'
    script = [
        call("Read", {"file_path": str(path)}),
        call("WriteFile", {"file_path": str(path), "content": f'{shown}\nNAME = "b"\n'}),
        call("EditTool", {"file_path": str(path), "old_string": shown, "new_string": f"{shown} #"}),
        call("AppendFile", {"file_path": str(workspace / "new.py"), "content": shown}),
        call("EditTool", {"file_path": str(path), "old_string": 'NAME = "a"', "new_string": 'NAME = "b"'}),
        say("done"),
    ]
    talk = await start(script)
    await talk.say("go")
    _, *refused, edited = talk.all(ToolEnded)
    assert [event.status for event in refused] == ["error"] * 3
    for event in refused:
        assert f"{PLACEHOLDER} stands for a secret" in event.text
    assert edited.status == "success"
    assert path.read_text() == f'TOKEN = "{KEY}"\nNAME = "b"\n'
    assert not (workspace / "new.py").exists()


async def test_file_that_contains_placeholder_text_can_be_edited(start: Start, workspace: Path):
    path = workspace / "guide.md"
    path.write_text(f"Keys are shown as {PLACEHOLDER}. Not {KEY}.\n")
    change = {"old_string": f"shown as {PLACEHOLDER}", "new_string": PLACEHOLDER}
    script = [
        call("Read", {"file_path": str(path)}),
        call("EditTool", {"file_path": str(path), **change}),
        call("WriteFile", {"file_path": str(workspace / "other.md"), "content": "[redacted: something else]"}),
        say("done"),
    ]
    talk = await start(script)
    await talk.say("go")
    assert [event.status for event in talk.all(ToolEnded)] == ["success"] * 3
    assert path.read_text() == f"Keys are {PLACEHOLDER}. Not {KEY}.\n"


async def test_placeholder_is_refused_after_a_resume(start: Start, workspace: Path, home: Path):
    path = workspace / "settings.py"
    path.write_text(f'TOKEN = "{KEY}"\n')
    first = await start([call("Read", {"file_path": str(path)}), say("done")])
    await first.say("go")
    await first.client.close()
    again = await start(
        [call("WriteFile", {"file_path": str(path), "content": PLACEHOLDER}), say("done")],
        resume=json.loads(find_log(home).splitlines()[0])["session"],
    )
    await again.say("write it")
    assert "stands for a secret" in again.all(ToolEnded)[-1].text
    assert KEY in path.read_text()


async def test_small_model_does_not_see_secrets(start: Start, workspace: Path, home: Path):
    path = workspace / "long.py"
    path.write_text(f'KEY = "{KEY}"\n' + "".join(f"line{n}\n" for n in range(100)))
    planner = iter(
        [
            call("Read", {"file_path": str(path), "offset": 1, "limit": 20}),
            call("EditTool", {"file_path": str(path), "old_string": "line5\n", "new_string": "line five\n"}),
            say("done"),
        ]
    )

    def models(seen: Any) -> Any:
        return next(planner) if seen.json["model"] != "small" else say('{"sufficient": true}')

    talk = await start(models, config={"small_model": "anthropic/small"})
    await talk.say("go")
    asked = [request.body.decode() for request in talk.server.requests if "edit-sufficiency" in request.body.decode()]
    assert len(asked) == 1
    assert PLACEHOLDER in asked[0]
    assert KEY not in list_all_texts(talk, home)
    assert "line five" in path.read_text()
