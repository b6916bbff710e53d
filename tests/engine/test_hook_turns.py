"""Hooks of the turn, in real sessions: the session, the prompt, each request, the end, and waiting for a person."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from odin.core.call_events import PermissionAnswered
from odin.core.errors import PromptBlocked, TurnHalted
from odin.core.event import TurnEnded
from odin.core.op import Interrupt
from odin.core.tool import Args, Subject, Tool, ToolContext, ToolOutput
from odin.engine.hooks import MAX_CONTINUES
from odin.testing import call, fault, say

from .conftest import Start, Talk
from .hookkit import HookKit, body, claude, hook, new_kit, result, warnings
from .test_job_notifications import WAIT, spawn
from .test_questions import DATABASE, ask, asked
from .test_sub_agents import TASK
from .test_web import begin, look


@pytest.fixture
def kit(tmp_path: Path) -> HookKit:
    return new_kit(tmp_path)


async def _until_told(kit: HookKit) -> None:
    async with asyncio.timeout(30):
        while not kit.told():
            await asyncio.sleep(0.01)


async def test_a_prompt_can_be_stopped_and_the_model_never_reads_it(start: Start, kit: HookKit) -> None:
    program = kit.script('case "$told" in *forbidden*) echo "not that word" >&2; exit 2;; esac')
    talk = await start([say("one"), say("two")], config={"hooks": {"UserPromptSubmit": [claude(program)]}})
    blocked = await talk.say("a forbidden thing")
    assert (blocked.reason, blocked.error_kind) == ("error", PromptBlocked.__name__)
    assert "not that word" in blocked.error
    assert talk.server.requests == []
    assert (await talk.say("hello")).reason == "end_turn"
    sent = body(talk, 0)
    assert "forbidden" not in sent
    assert "Date" in sent, "the first message still says where and when it is"
    assert kit.told()[0]["prompt"] == "a forbidden thing"
    assert [turn.body for turn in (await talk.client.snapshot()).messages] == ["hello"]


@pytest.mark.parametrize("api", ["anthropic", "openai"])
async def test_context_beside_a_prompt_and_at_the_start(start: Start, kit: HookKit, api: Any) -> None:
    talk = await start(
        [say("one"), say("two")],
        api,
        config={
            "hooks": {
                "SessionStart": [claude(kit.says("The build is red."))],
                "UserPromptSubmit": [claude(kit.says({"hookSpecificOutput": {"additionalContext": "It is noon."}}))],
            }
        },
    )
    await talk.say("hello")
    await talk.say("again")
    assert "The build is red." in body(talk, 0)
    assert body(talk, 0).count("It is noon.") == 1
    assert body(talk, 1).count("The build is red.") == 1
    assert body(talk, 1).count("It is noon.") == 2
    assert kit.events() == ["SessionStart", "UserPromptSubmit", "UserPromptSubmit"]
    assert kit.told()[0]["source"] == "startup"
    assert talk.server.rejected == []


async def test_a_session_tells_of_its_end_once_and_only_when_it_began(start: Start, kit: HookKit) -> None:
    settings = {"hooks": {"SessionEnd": [claude(kit.script(""))], "on_idle": [hook(kit.script(""))]}}
    untouched = await start([say("hi")], config=settings)
    await untouched.client.close()
    assert kit.told() == []
    talk = await start([say("hi")], config=settings)
    await talk.say("hello")
    await talk.client.close()
    await talk.client.close()
    assert kit.events() == ["on_idle", "SessionEnd"]
    assert kit.told()[0]["text"] == "hi"


async def test_around_each_request(start: Start, workspace: Path, kit: HookKit) -> None:
    talk = await start(
        [call("LS", {"path": str(workspace)}), say("done")],
        config={
            "hooks": {
                "on_before_llm_call": [hook(kit.says({"additionalContext": "Be brief."}))],
                "on_after_llm_call": [hook(kit.script(""))],
            }
        },
    )
    await talk.say("go")
    assert kit.events() == ["on_before_llm_call", "on_after_llm_call"] * 2
    assert [body(talk, number).count("Be brief.") for number in (0, 1)] == [1, 2]
    after = [item for item in kit.told() if item["point"] == "on_after_llm_call"]
    assert [(item["text"], item["tools"]) for item in after] == [("", ["LS"]), ("done", [])]
    assert talk.server.rejected == []


async def test_a_stop_hook_keeps_the_turn_going_until_it_is_content(start: Start, kit: HookKit) -> None:
    program = kit.script(
        'case "$told" in *\'"stop_hook_active":true\'*) exit 0;; esac\n'
        'echo \'{"decision":"block","reason":"Run the tests."}\''
    )
    talk = await start([say("done"), say("done, and tested")], config={"hooks": {"Stop": [claude(program)]}})
    ended = await talk.say("go")
    assert (ended.reason, ended.text, ended.steps) == ("end_turn", "done, and tested", 2)
    assert "Run the tests." in body(talk, 1)
    assert [item["stop_hook_active"] for item in kit.told()] == [False, True]
    assert [item["last_assistant_message"] for item in kit.told()] == ["done", "done, and tested"]
    assert talk.server.rejected == []


@pytest.mark.parametrize("api", ["anthropic", "openai"])
async def test_a_stop_hook_that_never_has_enough_is_stopped(start: Start, kit: HookKit, api: Any) -> None:
    answers = [say(f"answer {number}") for number in range(MAX_CONTINUES + 5)]
    talk = await start(answers, api, config={"hooks": {"Stop": [claude(kit.blocks("more"))]}})
    ended = await talk.say("go")
    assert (ended.reason, ended.steps) == ("end_turn", MAX_CONTINUES + 1)
    assert len(talk.server.requests) == MAX_CONTINUES + 1
    assert any("It ends now" in text for text in warnings(talk))
    assert talk.server.rejected == []


async def test_the_stop_of_a_sub_agent_is_told_apart(start: Start, kit: HookKit) -> None:
    talk = await start(
        [call("AgentTool", TASK), say("sub answer"), say("main answer")],
        config={
            "hooks": {
                "Stop": [claude(kit.script(""))],
                "SubagentStop": [claude(kit.script(""))],
                "UserPromptSubmit": [claude(kit.script(""))],
            }
        },
    )
    ended = await talk.say("go")
    assert ended.text == "main answer"
    assert kit.events() == ["UserPromptSubmit", "SubagentStop", "Stop"]
    assert kit.told()[1]["agent"] == kit.told()[1]["agent_id"] == "agent-1"
    assert kit.told()[1]["last_assistant_message"] == "sub answer"


@pytest.mark.parametrize("event", ["PreToolUse", "PostToolUse", "UserPromptSubmit"])
async def test_continue_false_ends_the_turn_with_the_reason(
    start: Start, workspace: Path, kit: HookKit, event: str
) -> None:
    program = kit.says({"continue": False, "stopReason": "The budget of today is spent."})
    talk = await start(
        [call("LS", {"path": str(workspace)}), say("never"), say("after")], config={"hooks": {event: [claude(program)]}}
    )
    ended = await talk.say("go")
    assert (ended.reason, ended.error_kind) == ("error", TurnHalted.__name__)
    assert "The budget of today is spent." in ended.error
    assert len(talk.server.requests) == (0 if event == "UserPromptSubmit" else 1)
    assert talk.server.rejected == []


async def test_an_error_of_the_turn_is_told(start: Start, kit: HookKit) -> None:
    talk = await start([fault(401)], config={"hooks": {"on_agent_error": [hook(kit.script(""))]}})
    ended = await talk.say("go")
    await talk.client.close()
    assert ended.reason == "error"
    (told,) = kit.told()
    assert (told["error"], told["error_kind"]) == (ended.error, ended.error_kind)


async def test_a_blocked_prompt_stays_out_of_a_resumed_conversation(start: Start, kit: HookKit) -> None:
    config = {"hooks": {"UserPromptSubmit": [claude(kit.script('case "$told" in *forbidden*) exit 2;; esac'))]}}
    talk = await start([say("one")], config=config)
    await talk.say("hello")
    await talk.say("a forbidden thing")
    session = (await talk.client.get_info()).session
    await talk.client.close()
    later = await start([say("two")], config=config, resume=session)
    assert (await later.say("again")).text == "two"
    assert "hello" in body(later, 0)
    assert "forbidden" not in body(later, 0)
    assert later.server.rejected == []


async def test_a_resumed_session_says_so(start: Start, kit: HookKit) -> None:
    config = {"hooks": {"SessionStart": [claude(kit.script(""), "resume")]}}
    talk = await start([say("one")], config=config)
    await talk.say("hello")
    session = (await talk.client.get_info()).session
    await talk.client.close()
    assert kit.told() == []
    later = await start([say("two")], config=config, resume=session)
    await later.say("again")
    assert [item["source"] for item in kit.told()] == ["resume"]


async def test_a_turn_that_the_agent_begins_by_itself_is_no_prompt(start: Start, workspace: Path, kit: HookKit) -> None:
    talk = await start(
        [spawn(f"{WAIT.format('go')}; exit 3"), say("Waiting."), say("I see.")],
        config={"hooks": {"UserPromptSubmit": [claude(kit.script(""))]}},
    )
    await talk.say("go")
    (workspace / "go").touch()
    await talk.until_end("spawn-1-ended")
    assert [item["prompt"] for item in kit.told()] == ["go"]


async def test_around_a_summary(start: Start, workspace: Path, kit: HookKit) -> None:
    looks = [look(workspace, name, f"{name} says hello\n" * 60) for name in ("one", "two", "three", "four")]
    talk, cast = await begin(
        start,
        [*looks, call("ContextSummarizer", {"focus": "greetings"}), say("done")],
        [say("they say hello.")],
        config={"hooks": {"PreCompact": [claude(kit.script(""))], "PostCompact": [claude(kit.script(""), "auto")]}},
    )
    await talk.say("go")
    before, after = kit.told()
    assert (before["trigger"], before["custom_instructions"]) == ("auto", "greetings")
    assert after["compact_summary"] == "they say hello."
    assert len(cast.jobs) == 1


async def test_a_summary_can_be_stopped(start: Start, workspace: Path, kit: HookKit) -> None:
    looks = [look(workspace, name, f"{name} says hello\n" * 60) for name in ("one", "two", "three", "four")]
    talk, cast = await begin(
        start,
        [*looks, call("ContextSummarizer", {}), say("done")],
        [],
        config={"hooks": {"PreCompact": [claude(kit.blocks("I need every word."))]}},
    )
    await talk.say("go")
    assert "A hook stopped the summary: I need every word. Nothing was replaced." in cast.plans[-1].body.decode()
    assert cast.jobs == []


# --- waiting for a person ---


@pytest.mark.parametrize(("behaviour", "status"), [("allow", "success"), ("deny", "denied")])
async def test_a_hook_may_answer_a_permission_question(
    start: Start, workspace: Path, kit: HookKit, behaviour: str, status: str
) -> None:
    file = workspace / "made.txt"
    decision = {"behavior": behaviour, "message": "the hook decides"}
    talk = await start(
        [call("WriteFile", {"file_path": str(file), "content": "x"}), say("ok")],
        yes=False,
        can_ask=True,
        config={"hooks": {"PermissionRequest": [claude(kit.says({"hookSpecificOutput": {"decision": decision}}))]}},
    )
    await _say_unanswered(talk, "go")
    assert result(talk).status == status
    (answered,) = talk.all(PermissionAnswered)
    assert (answered.by, answered.allowed) == ("hook", behaviour == "allow")
    assert kit.told()[0]["tool_name"] == "Write"


async def test_a_notification_tells_what_is_waited_for(start: Start, workspace: Path, kit: HookKit) -> None:
    talk = await start(
        [call("WriteFile", {"file_path": str(workspace / "made.txt"), "content": "x"}), say("ok")],
        yes=False,
        can_ask=True,
        config={"hooks": {"Notification": [claude(kit.script(""))]}},
    )
    await talk.submit("go")
    await _until_told(kit)
    (told,) = kit.told()
    assert told["notification_type"] == "permission_prompt"
    assert told["message"]


async def _say_unanswered(talk: Talk, text: str) -> TurnEnded:
    """Follow a prompt without answering its questions."""
    prompt_id = await talk.submit(text)
    async with asyncio.timeout(30):
        async for envelope in talk.remaining():
            talk.heard.append(envelope)
            if isinstance(envelope.event, TurnEnded) and envelope.event.id == prompt_id:
                return envelope.event
    raise AssertionError("the events ended before the turn did")


async def test_a_question_of_the_model_is_told_too(start: Start, kit: HookKit) -> None:
    talk = await start(
        [ask(DATABASE), say("Good.")], can_ask=True, config={"hooks": {"Notification": [claude(kit.script(""))]}}
    )
    await talk.submit("go")
    await asked(talk)
    await _until_told(kit)
    (told,) = kit.told()
    assert (told["notification_type"], told["message"]) == ("elicitation_dialog", "Which database?")


class StuckArgs(Args, frozen=True):
    pass


class Stuck(Tool[StuckArgs]):
    """A command that the sandbox keeps from something."""

    name = "Stuck"
    kind = "execute"
    short = "Be kept from something."
    args = StuckArgs

    def __init__(self) -> None:
        self.outside = 0

    def subject_of(self, args: StuckArgs) -> Subject:
        return Subject(command="ls")

    async def run(self, args: StuckArgs, ctx: ToolContext) -> ToolOutput:
        self.outside += ctx.sandbox_profile.unsandboxed
        return ToolOutput(text="kept", is_error=True, blocked="writing /elsewhere")


async def test_no_hook_leads_out_of_the_sandbox(start: Start, kit: HookKit) -> None:
    stuck = Stuck()
    allow = kit.says({"decision": "allow", "hookSpecificOutput": {"decision": {"behavior": "allow"}}})
    talk = await start(
        [call("Stuck", {}), say("ok")],
        can_ask=True,
        own_tools=[stuck],
        config={
            "confirm_timeout_s": 0.5,
            "hooks": {"PreToolUse": [claude(allow)], "PermissionRequest": [claude(allow)]},
        },
    )
    await _say_unanswered(talk, "go")
    (answered,) = talk.all(PermissionAnswered)
    assert (answered.by, answered.allowed) == ("timeout", False)
    assert stuck.outside == 0


async def test_a_turn_can_be_interrupted_while_a_hook_hangs(start: Start, workspace: Path, kit: HookKit) -> None:
    talk = await start([say("never")], config={"hooks": {"UserPromptSubmit": [claude(kit.script("sleep 600"))]}})
    prompt_id = await talk.submit("go")
    await _until_told(kit)
    await talk.client.submit(Interrupt())
    assert (await talk.until_end(prompt_id)).reason == "interrupted"
