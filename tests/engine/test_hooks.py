"""Hooks before and after tool calls, in real sessions: the input of the programs and the effect of their output."""

from pathlib import Path
from typing import Any

import pytest

from odin.core.call_events import HookRan, PermissionAnswered, ToolEnded, ToolStarted
from odin.core.op import AnswerPermission, Rewind
from odin.testing import call, reply, say

from .conftest import Start
from .hook_programs import HookKit, claude_hook, hook, new_kit, request_text, result, warnings


@pytest.fixture
def kit(tmp_path: Path) -> HookKit:
    return new_kit(tmp_path)


async def test_hook_input_uses_the_field_names_of_claude_code(start: Start, workspace: Path, kit: HookKit) -> None:
    talk = await start(
        [call("ExecuteCommand", {"command": "echo hi"}, id="c1"), say("ok")],
        config={"hooks": {"PreToolUse": [claude_hook(kit.script(""), "Bash")]}},
    )
    await talk.say("go")
    (received,) = kit.inputs()
    info = await talk.client.get_info()
    assert received["session_id"] == info.session
    assert received["transcript_path"].endswith(".jsonl")
    assert (received["cwd"], received["permission_mode"], received["mode"]) == (
        str(workspace),
        info.permission_mode,
        "edit_mode",
    )
    assert (received["hook_event_name"], received["point"], received["agent"]) == ("PreToolUse", "on_tool_call", "main")
    assert (received["tool_name"], received["odin_tool"], received["tool_use_id"]) == ("Bash", "ExecuteCommand", "c1")
    assert received["tool_input"] == {"command": "echo hi"}
    assert received["model"] == info.model
    assert result(talk).status == "success"
    assert talk.all(HookRan) == []


async def test_a_hook_runs_in_the_project_with_variables_and_without_secrets(
    start: Start, workspace: Path, kit: HookKit, tmp_path: Path
) -> None:
    out = tmp_path / "env.txt"
    below = workspace / "below"
    below.mkdir()
    (workspace / "odinconfig.json").write_text("{}")
    line = 'echo "$PWD|$ODIN_HOOK_POINT|$ODIN_PROJECT_DIR|$CLAUDE_PROJECT_DIR|$ODIN_TOOL|$MY_API_KEY|$PLAIN"'
    talk = await start(
        [call("LS", {"path": str(workspace)}), say("ok")],
        cwd=str(below),
        env={"MY_API_KEY": "hush", "PLAIN": "seen"},
        config={"hooks": {"on_tool_call": [hook(kit.script(f'{line} > "{out}"'))]}},
    )
    await talk.say("go")
    info = await talk.client.get_info()
    assert info.cwd == str(below)
    root = str(workspace)
    assert out.read_text().strip() == f"{root}|on_tool_call|{root}|{root}|LS||seen"


@pytest.mark.parametrize("form", ["json", "exit"])
async def test_a_hook_denies_a_call_and_the_model_reads_why(
    start: Start, workspace: Path, kit: HookKit, form: str
) -> None:
    file = workspace / "made.txt"
    program = (
        kit.script_blocking("no new files")
        if form == "exit"
        else kit.script_printing({"decision": "deny", "message": "no new files"})
    )
    talk = await start(
        [call("WriteFile", {"file_path": str(file), "content": "x"}), say("ok")],
        config={"hooks": {"PreToolUse": [claude_hook(program, "Write|Edit")]}},
    )
    await talk.say("go")
    assert not file.exists()
    assert talk.all(ToolStarted) == []
    assert result(talk).status == "denied"
    assert "no new files" in result(talk).text
    assert "no new files" in request_text(talk, 1)
    (ran,) = talk.all(HookRan)
    assert (ran.point, ran.outcome, ran.detail) == ("tool_call", "denied", "no new files")


async def test_a_hook_for_another_tool_is_not_asked(start: Start, workspace: Path, kit: HookKit) -> None:
    talk = await start(
        [call("LS", {"path": str(workspace)}), say("ok")],
        config={"hooks": {"PreToolUse": [claude_hook(kit.script_blocking("no"), "Bash")]}},
    )
    await talk.say("go")
    assert result(talk).status == "success"
    assert kit.inputs() == []


async def test_hook_changes_arguments_once_and_the_audit_has_both(start: Start, workspace: Path, kit: HookKit) -> None:
    changed = {"hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": {"command": "echo safe"}}}
    talk = await start(
        [call("ExecuteCommand", {"command": "echo risky"}), say("ok")],
        config={"hooks": {"PreToolUse": [claude_hook(kit.script_printing(changed), "Bash")]}},
    )
    await talk.say("go")
    assert [event.args for event in talk.all(ToolStarted)] == [{"command": "echo safe"}]
    ended = result(talk)
    assert "safe" in ended.text
    assert ended.audit is not None
    assert (ended.audit.original, ended.audit.effective) == ({"command": "echo risky"}, {"command": "echo safe"})
    assert ended.audit.by == "hook"
    assert kit.event_names() == ["PreToolUse"]


async def test_later_hook_gets_the_arguments_changed_by_an_earlier_one(
    start: Start, workspace: Path, kit: HookKit
) -> None:
    first = kit.script_printing({"args": {"command": "echo one"}})
    second = kit.script_printing({"args": {"command": "echo two"}})
    talk = await start(
        [call("ExecuteCommand", {"command": "echo zero"}), say("ok")],
        config={"hooks": {"on_tool_call": [hook(first), hook(second)]}},
    )
    await talk.say("go")
    assert [item["tool_input"]["command"] for item in kit.inputs()] == ["echo zero", "echo one"]
    assert [event.args for event in talk.all(ToolStarted)] == [{"command": "echo two"}]


async def test_rules_apply_to_arguments_changed_by_a_hook(start: Start, workspace: Path, kit: HookKit) -> None:
    talk = await start(
        [call("ExecuteCommand", {"command": "echo fine"}), say("ok")],
        config={
            "ForbiddenCommands": ["touch"],
            "hooks": {
                "PreToolUse": [
                    claude_hook(kit.script_printing({"decision": "allow", "args": {"command": "touch made"}}))
                ]
            },
        },
    )
    await talk.say("go")
    assert result(talk).status == "denied"
    assert not (workspace / "made").exists()
    assert talk.all(ToolStarted) == []


async def test_changed_arguments_that_do_not_fit_the_schema_do_not_run(
    start: Start, workspace: Path, kit: HookKit
) -> None:
    talk = await start(
        [call("ExecuteCommand", {"command": "echo fine"}), say("ok")],
        config={"hooks": {"PreToolUse": [claude_hook(kit.script_printing({"args": {"comand": "echo"}}))]}},
    )
    await talk.say("go")
    assert talk.all(ToolStarted) == []
    assert "do not fit its schema" in result(talk).text


async def test_call_denied_by_a_rule_never_reaches_the_hook(start: Start, workspace: Path, kit: HookKit) -> None:
    talk = await start(
        [call("ExecuteCommand", {"command": "touch made"}), say("ok")],
        config={
            "ForbiddenCommands": ["touch"],
            "hooks": {"PreToolUse": [claude_hook(kit.script_printing({"decision": "allow"}))]},
        },
    )
    await talk.say("go")
    assert result(talk).status == "denied"
    assert not (workspace / "made").exists()
    assert kit.inputs() == []


async def test_hook_can_allow_a_call_without_a_permission_request(start: Start, workspace: Path, kit: HookKit) -> None:
    file = workspace / "made.txt"
    talk = await start(
        [call("WriteFile", {"file_path": str(file), "content": "x"}), say("ok")],
        yes=False,
        can_ask=True,
        config={"hooks": {"PreToolUse": [claude_hook(kit.script_printing({"decision": "approve"}), "Write")]}},
    )
    await talk.say("go")
    assert file.read_text() == "x"
    assert talk.all(PermissionAnswered) == []


async def test_hook_cannot_allow_a_call_that_a_rule_might_deny(start: Start, workspace: Path, kit: HookKit) -> None:
    talk = await start(
        [call("ExecuteCommand", {"command": "touch $(echo made)"}), say("ok")],
        yes=False,
        can_ask=True,
        config={
            "ForbiddenCommands": ["touch made"],
            "hooks": {"PreToolUse": [claude_hook(kit.script_printing({"decision": "allow"}))]},
        },
    )
    talk.answers = [AnswerPermission("", False)]
    await talk.say("go")
    assert len(talk.all(PermissionAnswered)) == 1
    assert not (workspace / "made").exists()


async def test_hook_can_make_odin_ask_the_user(start: Start, workspace: Path, kit: HookKit) -> None:
    ask = {"hookSpecificOutput": {"permissionDecision": "ask", "permissionDecisionReason": "Really look?"}}
    talk = await start(
        [call("LS", {"path": str(workspace)}), say("ok")],
        can_ask=True,
        config={"hooks": {"PreToolUse": [claude_hook(kit.script_printing(ask))]}},
    )
    talk.answers = [AnswerPermission("", False, "rather not")]
    await talk.say("go")
    assert result(talk).status == "denied"
    assert "rather not" in request_text(talk, 1)


async def test_successful_and_failed_results_have_separate_hook_events(
    start: Start, workspace: Path, kit: HookKit
) -> None:
    missing = str(workspace / "missing")
    talk = await start(
        [reply(calls=[call("LS", {"path": str(workspace)}), call("Read", {"file_path": missing})]), say("ok")],
        config={
            "hooks": {
                "PostToolUse": [claude_hook(kit.script(""))],
                "PostToolUseFailure": [claude_hook(kit.script(""))],
            }
        },
    )
    await talk.say("go")
    by_event = {item["hook_event_name"]: item for item in kit.inputs()}
    assert by_event["PostToolUse"]["tool_name"] == "LS"
    assert by_event["PostToolUse"]["tool_response"]["is_error"] is False
    assert by_event["PostToolUseFailure"]["tool_name"] == "Read"
    assert missing in by_event["PostToolUseFailure"]["error"]
    assert len(kit.inputs()) == 2


@pytest.mark.parametrize("api", ["anthropic", "openai"])
async def test_objection_and_context_of_result_hooks_reach_the_model(
    start: Start, workspace: Path, kit: HookKit, api: Any
) -> None:
    more = {"hookSpecificOutput": {"additionalContext": "The folder is generated."}, "systemMessage": "Mind the gap."}
    talk = await start(
        [reply(calls=[call("LS", {"path": str(workspace)}), call("Glob", {"pattern": "*"})]), say("ok")],
        api,
        config={
            "hooks": {
                "PostToolUse": [
                    claude_hook(kit.script_printing({"decision": "block", "reason": "Look elsewhere."}), "LS"),
                    claude_hook(kit.script_printing(more), "Glob"),
                ]
            }
        },
    )
    ended = await talk.say("go")
    assert ended.reason == "end_turn"
    assert talk.server.rejected == []
    assert all(event.status == "success" for event in talk.all(ToolEnded))
    sent = request_text(talk, 1)
    assert "Look elsewhere." in sent
    assert "The folder is generated." in sent
    assert "Mind the gap." in sent
    assert "Mind the gap." in warnings(talk)


async def test_hook_can_replace_a_result_before_it_is_recorded(start: Start, workspace: Path, kit: HookKit) -> None:
    (workspace / "name.txt").write_text("the word is hunter2\n")
    talk = await start(
        [call("Read", {"file_path": str(workspace / "name.txt")}), say("ok")],
        config={
            "hooks": {"on_tool_result": [hook(kit.script_printing({"action": "modify", "output": "the word is gone"}))]}
        },
    )
    await talk.say("go")
    assert "the word is gone" in result(talk).text
    assert "hunter2" not in request_text(talk, 1)
    assert not any("hunter2" in str(event) for event in talk.events)


async def test_hook_before_append_can_withhold_a_result(start: Start, workspace: Path, kit: HookKit) -> None:
    (workspace / "name.txt").write_text("the word is hunter2\n")
    talk = await start(
        [call("Read", {"file_path": str(workspace / "name.txt")}), say("ok")],
        config={"hooks": {"on_before_tool_result_append": [hook(kit.script_blocking("too secret"), paths=["*.txt"])]}},
    )
    await talk.say("go")
    assert "A hook withheld this result: too secret" in request_text(talk, 1)
    assert "hunter2" not in request_text(talk, 1)


async def test_output_of_a_batch_hook_reaches_the_model_or_the_user(
    start: Start, workspace: Path, kit: HookKit
) -> None:
    files = [str(workspace / name) for name in ("a.py", "b.py")]
    writes = [call("WriteFile", {"file_path": path, "content": "x"}) for path in files]
    talk = await start(
        [reply(calls=writes), call("LS", {"path": str(workspace)}), say("ok")],
        config={
            "hooks": {
                "on_tool_batch_complete": [
                    hook(
                        kit.script_printing("2 files are not formatted"),
                        append="context",
                        min_changed_files=2,
                        paths=["*.py"],
                    ),
                    hook(kit.script_printing("shown only"), append="toast", tools=["LS"]),
                    hook(kit.script("exit 0"), min_changed_files=3),
                ]
            }
        },
    )
    await talk.say("go")
    batch, listing = kit.inputs()
    assert (batch["tools"], batch["changed_files"], batch["is_error"]) == (["WriteFile"], files, False)
    assert listing["tools"] == ["LS"]
    assert listing["changed_files"] == []
    assert "2 files are not formatted" in request_text(talk, 1)
    assert "shown only" not in request_text(talk, 2)
    assert "shown only" in warnings(talk)
    assert talk.server.rejected == []


async def test_batch_hook_counts_files_changed_by_a_command(start: Start, workspace: Path, kit: HookKit) -> None:
    (workspace / "a.txt").write_text("one")
    talk = await start(
        [call("ExecuteCommand", {"command": "echo two > a.txt"}), say("ok")],
        config={"hooks": {"on_tool_batch_complete": [hook(kit.script(""), min_changed_files=1)]}},
    )
    await talk.say("go")
    assert [item["changed_files"] for item in kit.inputs()] == [[str(workspace / "a.txt")]]


async def test_hook_input_has_the_standard_argument_names(start: Start, workspace: Path, kit: HookKit) -> None:
    file = workspace / "made.txt"
    talk = await start(
        [call("append_file", {"path": "./made.txt", "content": "x"}), say("ok")],
        config={"hooks": {"PreToolUse": [claude_hook(kit.script(""), "Write")]}},
    )
    await talk.say("go")
    assert file.read_text() == "x"
    (received,) = kit.inputs()
    assert received["tool_input"] == {"file_path": str(file), "content": "x"}
    assert (received["tool_name"], received["odin_tool"], received["paths"]) == ("Write", "AppendFile", [str(file)])
    assert result(talk).audit is None


async def test_what_a_formatter_changes_belongs_to_the_edit(start: Start, workspace: Path, kit: HookKit) -> None:
    """The model is told and may edit the file again without reading it, and an undo takes it back, too."""
    file = workspace / "a.py"
    edits = [
        call("WriteFile", {"file_path": "a.py", "content": "x=1\ny=2\n"}),
        call("EditTool", {"file_path": "a.py", "old_string": "x = 1\ny=2", "new_string": "x=1\ny=3"}),
    ]
    talk = await start(
        [*edits, say("ok"), say("ok")],
        config={"hooks": {"PostToolUse": [claude_hook(kit.script('sed -i "s/x=1/x = 1/" a.py'), "Edit|Write")]}},
        yes=True,
    )
    await talk.say("go")
    assert file.read_text() == "x = 1\ny=3\n"
    for request in talk.server.requests[1:3]:
        assert f"[A hook changed {file}. The difference:" in str(request.json["messages"][-1])
    assert await talk.client.submit(Rewind((await talk.client.snapshot()).prompts[-1].id))
    assert not file.exists()


@pytest.mark.parametrize("guarded", ["", "second.txt"])
async def test_a_guard_sees_the_path_of_every_change(start: Start, workspace: Path, kit: HookKit, guarded: str) -> None:
    """Claude Code changes one file with a call, so a guard looks at `file_path`; it may also echo its input."""
    files = [workspace / "first.txt", workspace / "second.txt"]
    for file in files:
        file.write_text("x")
    guard = (
        "import json, sys; given = json.load(sys.stdin)['tool_input']; "
        f"sys.exit('{guarded}' and given['file_path'].endswith('{guarded}') and 2 or "
        "print(json.dumps({'hookSpecificOutput': {'permissionDecision': 'allow', 'updatedInput': given}})))"
    )
    script = kit.script(f'printf "%s" "$told" | python3 -c "{guard}"')
    talk = await start(
        [call("Delete", {"paths": ["first.txt", "second.txt"], "reason": "unused"}), say("ok")],
        config={"hooks": {"PreToolUse": [claude_hook(script, "Write")]}},
    )
    await talk.say("go")
    assert [received["tool_input"]["file_path"] for received in kit.inputs()] == [str(file) for file in files]
    assert [file.exists() for file in files] == [bool(guarded)] * 2, result(talk)


async def test_a_hook_in_the_background_is_not_awaited_and_its_result_is_in_a_later_request(
    start: Start, workspace: Path, kit: HookKit, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    slow = kit.script(f'while [ ! -e "{gate}" ]; do sleep 0.02; done; echo "lint is $COLOR"')
    declared = hook(slow, join="background", result="always_append", environment={"COLOR": "red"}, min_changed_files=1)
    wait = call("ExecuteCommand", {"command": "true"}, id="c2")
    write = call("WriteFile", {"file_path": str(workspace / "a.txt"), "content": "x"}, id="c1")
    talk = await start([write, wait, say("one"), say("two")], config={"hooks": {"on_tool_batch_complete": [declared]}})
    await talk.say("go")
    gate.touch()
    await talk.until(HookRan)
    await talk.say("again")
    assert ["lint is red" in request_text(talk, number) for number in range(4)] == [False, False, False, True]


async def test_a_hook_in_the_background_decides_nothing(start: Start, workspace: Path, kit: HookKit) -> None:
    answer = {"decision": "deny", "reason": "no", "additionalContext": "seen by the hook"}
    declared = hook(kit.script_printing(answer), join="background")
    look = call("LS", {"path": str(workspace)})
    talk = await start([look, say("one"), say("two")], config={"hooks": {"PreToolUse": [declared]}})
    await talk.say("go")
    await talk.until(HookRan)
    await talk.say("again")
    assert result(talk).status == "success"
    assert [event.outcome for event in talk.all(HookRan)] == ["context"]
    assert "seen by the hook" in request_text(talk, 2)


@pytest.mark.parametrize("value", ["", "1"])
async def test_runs_without_effect_are_recorded_for_debugging(
    start: Start, workspace: Path, kit: HookKit, value: str
) -> None:
    talk = await start(
        [call("LS", {"path": str(workspace)}), say("ok")],
        env={"ODIN_HOOK_DEBUG": value},
        config={"hooks": {"on_tool_call": [hook(kit.script(""), name="quiet")]}},
    )
    await talk.say("go")
    assert [(event.hook, event.outcome) for event in talk.all(HookRan)] == ([("quiet", "silent")] if value else [])
