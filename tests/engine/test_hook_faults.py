"""Hooks that fail, hooks of untrusted projects, and callback hooks."""

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
from .hook_programs import HookKit, claude_hook, hook, new_kit, request_text, result, warnings


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
        config={"hooks": {"PreToolUse": [claude_hook(kit.script(text), timeout=limit)]}},
    )
    ended = await talk.say("go")
    assert (ended.reason, result(talk).status) == ("end_turn", "success")
    (ran,) = talk.all(HookRan)
    assert ran.outcome == outcome
    assert words in ran.detail
    (warning,) = warnings(talk)
    assert words in warning


async def test_missing_hook_program_is_reported(start: Start, workspace: Path) -> None:
    talk = await start(
        [call("LS", {"path": str(workspace)}), say("ok")],
        config={"hooks": {"on_tool_call": [hook(["/nowhere/at-all"])]}},
    )
    assert (await talk.say("go")).reason == "end_turn"
    assert any("cannot be started: No such file or directory" in text for text in warnings(talk))


async def test_processes_left_by_a_hook_are_killed(start: Start, workspace: Path, kit: HookKit, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    left = f'sleep 600 & echo $! >> "{pids}"; setsid sleep 600 & echo $! >> "{pids}"'
    talk = await start(
        [call("LS", {"path": str(workspace)}), say("ok")], config={"hooks": {"on_tool_call": [hook(kit.script(left))]}}
    )
    assert (await talk.say("go")).reason == "end_turn"
    for pid in pids.read_text().split():
        assert not _is_running(int(pid))


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.unknown_keys
async def test_invalid_declarations_are_reported_and_valid_ones_work(
    start: Start, workspace: Path, kit: HookKit
) -> None:
    talk = await start(
        [call("LS", {"path": str(workspace)}), say("ok")],
        config={
            "hooks": {"PreTolUse": [claude_hook("x")], "PreToolUse": [{"hooks": [{}]}, claude_hook(kit.script(""))]}
        },
    )
    reported = (await talk.client.get_info()).warnings
    assert any('unknown hook event "PreTolUse"' in text and "odinconfig.json" in text for text in reported)
    assert any("hooks.PreToolUse[0].hooks[0] has no command" in text for text in reported)
    await talk.say("go")
    assert kit.event_names() == ["PreToolUse"]


# --- hooks of the project and of the user ---


async def test_hooks_of_an_untrusted_folder_never_run(start: Start, workspace: Path) -> None:
    kit = new_kit(workspace)  # in the sandbox, the project's hooks write only there
    theirs, ours = kit.script(""), kit.script("")
    every = {name: [hook(theirs)] for name in ("SessionStart", "UserPromptSubmit", "PreToolUse", "Stop", "SessionEnd")}
    _write_project_hooks(workspace, every)
    config = {"hooks": {"PreToolUse": [hook(ours, name="ours")]}}
    talk = await start([call("LS", {"path": str(workspace)}), say("ok")], config=config)
    await talk.say("go")
    await talk.client.close()
    assert kit.event_names() == ["PreToolUse"]
    trusting = await start([call("LS", {"path": str(workspace)}), say("ok")], config=config, trust=True)
    await trusting.say("go")
    await trusting.client.close()
    assert kit.event_names()[1:] == [
        "SessionStart",
        "UserPromptSubmit",
        "PreToolUse",
        "PreToolUse",
        "Stop",
        "SessionEnd",
    ]


async def test_project_hooks_run_after_user_hooks(start: Start, workspace: Path) -> None:
    kit = new_kit(workspace)
    _write_project_hooks(
        workspace, {"on_tool_call": [hook(kit.script_printing({"args": {"command": "echo project"}}))]}
    )
    talk = await start(
        [call("ExecuteCommand", {"command": "echo model"}), say("ok")],
        trust=True,
        config={"hooks": {"on_tool_call": [hook(kit.script_printing({"args": {"command": "echo user"}}))]}},
    )
    await talk.say("go")
    assert [item["tool_input"]["command"] for item in kit.inputs()] == ["echo model", "echo user"]
    assert [event.args for event in talk.all(ToolStarted)] == [{"command": "echo project"}]


def _write_project_hooks(workspace: Path, hooks: dict[str, Any]) -> None:
    (workspace / "odinconfig.json").write_text(json.dumps({"hooks": hooks}))


# --- callbacks ---


async def test_callback_hook_can_deny_a_call(start: Start, workspace: Path) -> None:
    received: list[dict[str, Any]] = []

    async def refuse(envelope: dict[str, Any]) -> dict[str, Any]:
        received.append(envelope)
        return {"hookSpecificOutput": {"permissionDecision": "deny", "permissionDecisionReason": "not in here"}}

    talk = await start([call("LS", {"path": str(workspace)}, id="c9"), say("ok")])
    talk.client.add_hook(CallbackHook("mine", "PreToolUse", refuse, "LS"))
    await talk.say("go")
    assert result(talk).status == "denied"
    assert "not in here" in request_text(talk, 1)
    assert (received[0]["tool_name"], received[0]["tool_use_id"]) == ("LS", "c9")


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


async def test_secret_in_the_output_of_a_hook_is_redacted(start: Start, workspace: Path, kit: HookKit) -> None:
    secret = "correct-horse-battery-staple"
    more = {"systemMessage": f"I saw {secret} there.", "additionalContext": f"It is {secret}."}
    talk = await start(
        [call("LS", {"path": str(workspace)}), say("ok")],
        env={"MY_API_KEY": secret},
        config={"hooks": {"PostToolUse": [claude_hook(kit.script_printing(more))]}},
    )
    await talk.say("go")
    assert "I saw" in request_text(talk, 1)
    assert secret not in request_text(talk, 1)
    assert not any(secret in str(event) for event in talk.events)


def test_a_blocked_prompt_ends_a_headless_run_with_its_reason(run_odin: Run, home: Path, kit: HookKit) -> None:
    folder = home / ".config" / "odin"
    folder.mkdir(parents=True)
    hooks = {"UserPromptSubmit": [claude_hook(kit.script_blocking("not on Fridays"))]}
    (folder / "odinconfig.json").write_text(json.dumps({"hooks": hooks}))
    with ScriptedServer([say("never")]) as server:
        done = run_odin("-p", "deploy", env=server.env("anthropic"))
        assert server.requests == []
    assert done.returncode == 1
    assert "A hook blocked this prompt: not on Fridays" in done.stderr
    assert done.stdout == ""
