"""Hooks that fail, hooks of strangers, and callbacks in the place of programs."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from odin.core.call_events import HookRan, ToolStarted
from odin.core.policy import CallbackHook
from odin.testing import ScriptedServer, call, say
from tests.conftest import Run

from .conftest import Start
from .hookkit import HookKit, body, claude, hook, new_kit, result, warnings


@pytest.fixture
def kit(tmp_path: Path) -> HookKit:
    return new_kit(tmp_path)


@pytest.mark.parametrize(
    ("text", "outcome", "words"),
    [
        ("echo oops >&2; exit 1", "failed", "exit code 1. oops"),
        ("echo '{\"decision\": '", "failed", "invalid JSON"),
        ('echo \'{"decision": "perhaps"}\'', "failed", "'perhaps' is not a decision"),
        ("sleep 600", "timed_out", "did not finish within 0.3 s"),
        ("exec 2>/dev/null; yes", "failed", "printed more than 1,000,000 bytes"),
        ("kill -9 $$", "failed", "killed by signal 9"),
    ],
)
async def test_a_faulty_hook_is_reported_and_changes_nothing(
    start: Start, workspace: Path, kit: HookKit, text: str, outcome: str, words: str
) -> None:
    limit = 0.3 if outcome == "timed_out" else 30
    talk = await start(
        [call("LS", {"path": str(workspace)}), say("ok")],
        config={"hooks": {"PreToolUse": [claude(kit.script(text), timeout=limit)]}},
    )
    ended = await talk.say("go")
    assert (ended.reason, result(talk).status) == ("end_turn", "success")
    (ran,) = talk.all(HookRan)
    assert ran.outcome == outcome
    assert words in ran.detail
    (warning,) = warnings(talk)
    assert words in warning


async def test_a_program_that_is_not_there_is_reported(start: Start, workspace: Path) -> None:
    talk = await start(
        [call("LS", {"path": str(workspace)}), say("ok")],
        config={"hooks": {"on_tool_call": [hook(["/nowhere/at-all"])]}},
    )
    assert (await talk.say("go")).reason == "end_turn"
    assert any("cannot be started: No such file or directory" in text for text in warnings(talk))


async def test_what_a_hook_leaves_running_is_ended(start: Start, workspace: Path, kit: HookKit, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    left = f'sleep 600 & echo $! >> "{pids}"; setsid sleep 600 & echo $! >> "{pids}"'
    talk = await start(
        [call("LS", {"path": str(workspace)}), say("ok")], config={"hooks": {"on_tool_call": [hook(kit.script(left))]}}
    )
    assert (await talk.say("go")).reason == "end_turn"
    for pid in pids.read_text().split():
        assert not _runs(int(pid))


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.unknown_keys
async def test_bad_declarations_are_told_and_the_good_ones_hold(start: Start, workspace: Path, kit: HookKit) -> None:
    talk = await start(
        [call("LS", {"path": str(workspace)}), say("ok")],
        config={"hooks": {"PreTolUse": [claude("x")], "PreToolUse": [{"hooks": [{}]}, claude(kit.script(""))]}},
    )
    said = (await talk.client.get_info()).warnings
    assert any('unknown hook event "PreTolUse"' in text and "odinconfig.json" in text for text in said)
    assert any("hooks.PreToolUse[0].hooks[0] has no command" in text for text in said)
    await talk.say("go")
    assert kit.events() == ["PreToolUse"]


# --- whose hooks ---


async def test_hooks_of_a_folder_that_is_not_trusted_never_run(start: Start, workspace: Path, kit: HookKit) -> None:
    theirs, ours = kit.script(""), kit.script("")
    every = {name: [hook(theirs)] for name in ("SessionStart", "UserPromptSubmit", "PreToolUse", "Stop", "SessionEnd")}
    _project(workspace, every)
    config = {"hooks": {"PreToolUse": [hook(ours, name="ours")]}}
    talk = await start([call("LS", {"path": str(workspace)}), say("ok")], config=config)
    await talk.say("go")
    await talk.client.close()
    assert kit.events() == ["PreToolUse"]
    trusting = await start([call("LS", {"path": str(workspace)}), say("ok")], config=config, trust=True)
    await trusting.say("go")
    await trusting.client.close()
    assert kit.events()[1:] == ["SessionStart", "UserPromptSubmit", "PreToolUse", "PreToolUse", "Stop", "SessionEnd"]


async def test_the_projects_hooks_come_after_the_users(start: Start, workspace: Path, kit: HookKit) -> None:
    _project(workspace, {"on_tool_call": [hook(kit.says({"args": {"command": "echo project"}}))]})
    talk = await start(
        [call("ExecuteCommand", {"command": "echo model"}), say("ok")],
        trust=True,
        config={"hooks": {"on_tool_call": [hook(kit.says({"args": {"command": "echo user"}}))]}},
    )
    await talk.say("go")
    assert [item["tool_input"]["command"] for item in kit.told()] == ["echo model", "echo user"]
    assert [event.args for event in talk.all(ToolStarted)] == [{"command": "echo project"}]


def _project(workspace: Path, hooks: dict[str, Any]) -> None:
    (workspace / "odinconfig.json").write_text(json.dumps({"hooks": hooks}))


# --- callbacks ---


async def test_a_callback_is_a_hook_too(start: Start, workspace: Path) -> None:
    told: list[dict[str, Any]] = []

    async def refuse(envelope: dict[str, Any]) -> dict[str, Any]:
        told.append(envelope)
        return {"hookSpecificOutput": {"permissionDecision": "deny", "permissionDecisionReason": "not in here"}}

    talk = await start([call("LS", {"path": str(workspace)}, id="c9"), say("ok")])
    talk.client.add_hook(CallbackHook("mine", "PreToolUse", refuse, "LS"))
    await talk.say("go")
    assert result(talk).status == "denied"
    assert "not in here" in body(talk, 1)
    assert (told[0]["tool_name"], told[0]["tool_use_id"]) == ("LS", "c9")


async def test_a_callback_that_raises_or_hangs_changes_nothing(start: Start, workspace: Path) -> None:
    async def raises(envelope: dict[str, Any]) -> None:
        raise KeyError("nothing here")

    async def hangs(envelope: dict[str, Any]) -> None:
        await asyncio.Event().wait()

    talk = await start([call("LS", {"path": str(workspace)}), say("ok")])
    talk.client.add_hook(CallbackHook("raises", "PreToolUse", raises))
    talk.client.add_hook(CallbackHook("hangs", "PreToolUse", hangs, timeout=0.05))
    await talk.say("go")
    assert result(talk).status == "success"
    assert [event.outcome for event in talk.all(HookRan)] == ["failed", "timed_out"]


async def test_what_a_hook_repeats_of_a_secret_is_taken_out(start: Start, workspace: Path, kit: HookKit) -> None:
    secret = "correct-horse-battery-staple"
    more = {"systemMessage": f"I saw {secret} there.", "additionalContext": f"It is {secret}."}
    talk = await start(
        [call("LS", {"path": str(workspace)}), say("ok")],
        env={"MY_API_KEY": secret},
        config={"hooks": {"PostToolUse": [claude(kit.says(more))]}},
    )
    await talk.say("go")
    assert "I saw" in body(talk, 1)
    assert secret not in body(talk, 1)
    assert not any(secret in str(event) for event in talk.events)


def test_a_blocked_prompt_ends_a_headless_run_with_its_reason(run_odin: Run, home: Path, kit: HookKit) -> None:
    place = home / ".config" / "odin"
    place.mkdir(parents=True)
    hooks = {"UserPromptSubmit": [claude(kit.blocks("not on Fridays"))]}
    (place / "odinconfig.json").write_text(json.dumps({"hooks": hooks}))
    with ScriptedServer([say("never")]) as server:
        done = run_odin("-p", "deploy", env=server.env("anthropic"))
        assert server.requests == []
    assert done.returncode == 1
    assert "A hook blocked this prompt: not on Fridays" in done.stderr
    assert done.stdout == ""
