"""Hooks at the start and end of a session, a turn, a request and a summary, and while the user is asked."""

from pathlib import Path
from typing import Any

import pytest

from odin.core.call_events import PermissionAnswered
from odin.core.errors import PromptBlocked, TurnHalted
from odin.core.event import TurnEnded
from odin.core.op import Interrupt
from odin.core.tool import Args, Target, Tool, ToolContext, ToolOutput
from odin.engine.hooks import MAX_CONTINUES
from odin.testing import call, fault, say
from odin.ui.exit import suggest_next_step
from tests.waiting import TimeLimit, until

from .conftest import Start, Talk
from .hook_programs import HookKit, claude_hook, hook, new_kit, request_text, result, warnings
from .test_job_notifications import WAIT, spawn
from .test_questions import DATABASE, ask, wait_for_event
from .test_sub_agents import TASK
from .test_web import begin, read_new_file


@pytest.fixture
def kit(tmp_path: Path) -> HookKit:
    return new_kit(tmp_path)


async def _wait_for_hook(kit: HookKit) -> None:
    await until(kit.inputs)


async def test_hook_can_block_a_prompt_before_the_model_reads_it(start: Start, kit: HookKit) -> None:
    program = kit.script('case "$told" in *forbidden*) echo "not that word" >&2; exit 2;; esac')
    talk = await start([say("one"), say("two")], config={"hooks": {"UserPromptSubmit": [claude_hook(program)]}})
    blocked = await talk.say("a forbidden thing")
    assert (blocked.reason, blocked.error_kind) == ("error", PromptBlocked.__name__)
    assert suggest_next_step(blocked) == "", "to continue would not send it"
    assert "not that word" in blocked.error
    assert talk.server.requests == []
    assert (await talk.say("hello")).reason == "end_turn"
    sent = request_text(talk, 0)
    assert "forbidden" not in sent
    assert "Date" in sent, "the first message still has the date"
    assert kit.inputs()[0]["prompt"] == "a forbidden thing"
    assert [turn.body for turn in (await talk.client.snapshot()).messages] == ["hello"]


@pytest.mark.parametrize("api", ["anthropic", "openai"])
async def test_hooks_add_context_at_session_start_and_to_prompts(start: Start, kit: HookKit, api: Any) -> None:
    talk = await start(
        [say("one"), say("two")],
        api,
        config={
            "hooks": {
                "SessionStart": [claude_hook(kit.script_printing("The build is red."))],
                "UserPromptSubmit": [
                    claude_hook(kit.script_printing({"hookSpecificOutput": {"additionalContext": "It is noon."}}))
                ],
            }
        },
    )
    await talk.say("hello")
    await talk.say("again")
    assert "The build is red." in request_text(talk, 0)
    assert request_text(talk, 0).count("It is noon.") == 1
    assert request_text(talk, 1).count("The build is red.") == 1
    assert request_text(talk, 1).count("It is noon.") == 2
    assert kit.event_names() == ["SessionStart", "UserPromptSubmit", "UserPromptSubmit"]
    assert kit.inputs()[0]["source"] == "startup"
    assert talk.server.rejected == []


async def test_session_end_hook_runs_once_and_only_after_a_turn(start: Start, kit: HookKit) -> None:
    settings = {"hooks": {"SessionEnd": [claude_hook(kit.script(""))], "on_idle": [hook(kit.script(""))]}}
    untouched = await start([say("hi")], config=settings)
    await untouched.client.close()
    assert kit.inputs() == []
    talk = await start([say("hi")], config=settings)
    await talk.say("hello")
    await talk.client.close()
    await talk.client.close()
    assert kit.event_names() == ["on_idle", "SessionEnd"]
    assert kit.inputs()[0]["text"] == "hi"


async def test_request_hooks_run_before_and_after_each_request(start: Start, workspace: Path, kit: HookKit) -> None:
    talk = await start(
        [call("LS", {"path": str(workspace)}), say("done")],
        config={
            "hooks": {
                "on_before_llm_call": [hook(kit.script_printing({"additionalContext": "Be brief."}))],
                "on_after_llm_call": [hook(kit.script(""))],
            }
        },
    )
    await talk.say("go")
    assert kit.event_names() == ["on_before_llm_call", "on_after_llm_call"] * 2
    assert [request_text(talk, number).count("Be brief.") for number in (0, 1)] == [1, 2]
    after = [item for item in kit.inputs() if item["point"] == "on_after_llm_call"]
    assert [(item["text"], item["tools"]) for item in after] == [("", ["LS"]), ("done", [])]
    assert talk.server.rejected == []


async def test_stop_hook_continues_the_turn_until_it_accepts_the_end(start: Start, kit: HookKit) -> None:
    program = kit.script(
        'case "$told" in *\'"stop_hook_active":true\'*) exit 0;; esac\n'
        'echo \'{"decision":"block","reason":"Run the tests."}\''
    )
    talk = await start([say("done"), say("done, and tested")], config={"hooks": {"Stop": [claude_hook(program)]}})
    ended = await talk.say("go")
    assert (ended.reason, ended.text, ended.steps) == ("end_turn", "done, and tested", 2)
    assert "Run the tests." in request_text(talk, 1)
    assert [item["stop_hook_active"] for item in kit.inputs()] == [False, True]
    assert [item["last_assistant_message"] for item in kit.inputs()] == ["done", "done, and tested"]
    assert talk.server.rejected == []


@pytest.mark.parametrize("api", ["anthropic", "openai"])
async def test_stop_hook_cannot_continue_a_turn_forever(start: Start, kit: HookKit, api: Any) -> None:
    answers = [say(f"answer {number}") for number in range(MAX_CONTINUES + 5)]
    talk = await start(answers, api, config={"hooks": {"Stop": [claude_hook(kit.script_blocking("more"))]}})
    ended = await talk.say("go")
    assert (ended.reason, ended.steps) == ("end_turn", MAX_CONTINUES + 1)
    assert len(talk.server.requests) == MAX_CONTINUES + 1
    assert any("It ends now" in text for text in warnings(talk))
    assert talk.server.rejected == []


async def test_sub_agent_has_its_own_stop_event(start: Start, kit: HookKit) -> None:
    talk = await start(
        [call("AgentTool", TASK), say("sub answer"), say("main answer")],
        config={
            "hooks": {
                "Stop": [claude_hook(kit.script(""))],
                "SubagentStop": [claude_hook(kit.script(""))],
                "UserPromptSubmit": [claude_hook(kit.script(""))],
            }
        },
    )
    ended = await talk.say("go")
    assert ended.text == "main answer"
    assert kit.event_names() == ["UserPromptSubmit", "SubagentStop", "Stop"]
    assert kit.inputs()[1]["agent"] == kit.inputs()[1]["agent_id"] == "agent-1"
    assert kit.inputs()[1]["last_assistant_message"] == "sub answer"


@pytest.mark.parametrize("event", ["PreToolUse", "PostToolUse", "UserPromptSubmit"])
async def test_continue_false_ends_the_turn_with_the_reason(
    start: Start, workspace: Path, kit: HookKit, event: str
) -> None:
    program = kit.script_printing({"continue": False, "stopReason": "The budget of today is spent."})
    talk = await start(
        [call("LS", {"path": str(workspace)}), say("never"), say("after")],
        config={"hooks": {event: [claude_hook(program)]}},
    )
    ended = await talk.say("go")
    assert (ended.reason, ended.error_kind) == ("error", TurnHalted.__name__)
    assert "The budget of today is spent." in ended.error
    assert len(talk.server.requests) == (0 if event == "UserPromptSubmit" else 1)
    assert talk.server.rejected == []


async def test_error_hook_gets_the_error_of_the_turn(start: Start, kit: HookKit) -> None:
    talk = await start([fault(401)], config={"hooks": {"on_agent_error": [hook(kit.script(""))]}})
    ended = await talk.say("go")
    await talk.client.close()
    assert ended.reason == "error"
    (received,) = kit.inputs()
    assert (received["error"], received["error_kind"]) == (ended.error, ended.error_kind)


async def test_a_blocked_prompt_stays_out_of_a_resumed_conversation(start: Start, kit: HookKit) -> None:
    config = {"hooks": {"UserPromptSubmit": [claude_hook(kit.script('case "$told" in *forbidden*) exit 2;; esac'))]}}
    talk = await start([say("one")], config=config)
    await talk.say("hello")
    await talk.say("a forbidden thing")
    session = (await talk.client.get_info()).session
    await talk.client.close()
    later = await start([say("two")], config=config, resume=session)
    assert (await later.say("again")).text == "two"
    assert "hello" in request_text(later, 0)
    assert "forbidden" not in request_text(later, 0)
    assert later.server.rejected == []


async def test_session_start_hook_can_match_a_resume(start: Start, kit: HookKit) -> None:
    config = {"hooks": {"SessionStart": [claude_hook(kit.script(""), "resume")]}}
    talk = await start([say("one")], config=config)
    await talk.say("hello")
    session = (await talk.client.get_info()).session
    await talk.client.close()
    assert kit.inputs() == []
    later = await start([say("two")], config=config, resume=session)
    await later.say("again")
    assert [item["source"] for item in kit.inputs()] == ["resume"]


async def test_self_started_turn_does_not_fire_the_prompt_hook(start: Start, workspace: Path, kit: HookKit) -> None:
    talk = await start(
        [spawn(f"{WAIT.format('go')}; exit 3"), say("Waiting."), say("I see.")],
        config={"hooks": {"UserPromptSubmit": [claude_hook(kit.script(""))]}},
    )
    await talk.say("go")
    (workspace / "go").touch()
    await talk.until_end("spawn-1-ended")
    assert [item["prompt"] for item in kit.inputs()] == ["go"]


async def test_compaction_hooks_run_before_and_after_a_summary(start: Start, workspace: Path, kit: HookKit) -> None:
    looks = [read_new_file(workspace, name, f"{name} says hello\n" * 60) for name in ("one", "two", "three", "four")]
    talk, cast = await begin(
        start,
        [*looks, call("ContextSummarizer", {"focus": "greetings"}), say("done")],
        [say("they say hello.")],
        config={
            "hooks": {"PreCompact": [claude_hook(kit.script(""))], "PostCompact": [claude_hook(kit.script(""), "auto")]}
        },
    )
    await talk.say("go")
    before, after = kit.inputs()
    assert (before["trigger"], before["custom_instructions"]) == ("auto", "greetings")
    assert after["compact_summary"] == "they say hello."
    assert len(cast.jobs) == 1


async def test_hook_can_block_a_summary(start: Start, workspace: Path, kit: HookKit) -> None:
    looks = [read_new_file(workspace, name, f"{name} says hello\n" * 60) for name in ("one", "two", "three", "four")]
    talk, cast = await begin(
        start,
        [*looks, call("ContextSummarizer", {}), say("done")],
        [],
        config={"hooks": {"PreCompact": [claude_hook(kit.script_blocking("I need every word."))]}},
    )
    await talk.say("go")
    assert "A hook stopped the summary: I need every word. Nothing was replaced." in cast.plans[-1].body.decode()
    assert cast.jobs == []


# --- waiting for the user ---


@pytest.mark.parametrize(("behaviour", "status"), [("allow", "success"), ("deny", "denied")])
async def test_hook_can_answer_a_permission_request(
    start: Start, workspace: Path, kit: HookKit, behaviour: str, status: str
) -> None:
    file = workspace / "made.txt"
    decision = {"behavior": behaviour, "message": "the hook decides"}
    talk = await start(
        [call("WriteFile", {"file_path": str(file), "content": "x"}), say("ok")],
        yes=False,
        can_ask=True,
        config={
            "hooks": {
                "PermissionRequest": [claude_hook(kit.script_printing({"hookSpecificOutput": {"decision": decision}}))]
            }
        },
    )
    await _say_unanswered(talk, "go")
    assert result(talk).status == status
    (answered,) = talk.all(PermissionAnswered)
    assert (answered.by, answered.allowed) == ("hook", behaviour == "allow")
    assert kit.inputs()[0]["tool_name"] == "Write"


async def test_notification_hook_fires_for_a_permission_request(start: Start, workspace: Path, kit: HookKit) -> None:
    talk = await start(
        [call("WriteFile", {"file_path": str(workspace / "made.txt"), "content": "x"}), say("ok")],
        yes=False,
        can_ask=True,
        config={"hooks": {"Notification": [claude_hook(kit.script(""))]}},
    )
    await talk.submit("go")
    await _wait_for_hook(kit)
    (received,) = kit.inputs()
    assert received["notification_type"] == "permission_prompt"
    assert received["message"]


async def _say_unanswered(talk: Talk, text: str) -> TurnEnded:
    """Follow a prompt without answering its questions."""
    prompt_id = await talk.submit(text)
    async with TimeLimit():
        async for envelope in talk.remaining():
            talk.heard.append(envelope)
            if isinstance(envelope.event, TurnEnded) and envelope.event.id == prompt_id:
                return envelope.event
    raise AssertionError("the events ended before the turn did")


async def test_notification_hook_fires_for_a_question_of_the_model(start: Start, kit: HookKit) -> None:
    talk = await start(
        [ask(DATABASE), say("Good.")], can_ask=True, config={"hooks": {"Notification": [claude_hook(kit.script(""))]}}
    )
    await talk.submit("go")
    await wait_for_event(talk)
    await _wait_for_hook(kit)
    (received,) = kit.inputs()
    assert (received["notification_type"], received["message"]) == ("elicitation_dialog", "Which database?")


class StuckArgs(Args, frozen=True):
    pass


class Stuck(Tool[StuckArgs]):
    """Pretends to be a command that the sandbox blocked."""

    name = "Stuck"
    kind = "execute"
    short = "Be kept from something."
    args = StuckArgs

    def __init__(self) -> None:
        self.outside = 0

    def get_target(self, args: StuckArgs) -> Target:
        return Target(command="make")

    async def run(self, args: StuckArgs, ctx: ToolContext) -> ToolOutput:
        self.outside += ctx.profile.name == "none"
        return ToolOutput(text="kept", is_error=True, blocked="writing /elsewhere")


async def test_hook_cannot_allow_an_unsandboxed_retry(start: Start, kit: HookKit) -> None:
    stuck = Stuck()
    allow = kit.script_printing({"decision": "allow", "hookSpecificOutput": {"decision": {"behavior": "allow"}}})
    talk = await start(
        [call("Stuck", {}), say("ok")],
        can_ask=True,
        own_tools=[stuck],
        config={
            "confirm_timeout_s": 0.5,
            "hooks": {"PreToolUse": [claude_hook(allow)], "PermissionRequest": [claude_hook(allow)]},
        },
    )
    await _say_unanswered(talk, "go")
    (answered,) = talk.all(PermissionAnswered)
    assert (answered.by, answered.allowed) == ("timeout", False)
    assert stuck.outside == 0


async def test_a_turn_can_be_interrupted_while_a_hook_hangs(start: Start, workspace: Path, kit: HookKit) -> None:
    talk = await start([say("never")], config={"hooks": {"UserPromptSubmit": [claude_hook(kit.script("sleep 600"))]}})
    prompt_id = await talk.submit("go")
    await _wait_for_hook(kit)
    await talk.client.submit(Interrupt())
    assert (await talk.until_end(prompt_id)).reason == "interrupted"
