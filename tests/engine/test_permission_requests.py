"""Permission requests: who may answer, the effect of each answer, and what the model and the log get."""

import asyncio
import shutil
from pathlib import Path
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from odin.core.call_events import PermissionAnswered, PermissionAsked, RuleAdded, ToolEnded, ToolStarted
from odin.core.event import AnyEvent, Envelope, TurnEnded, Warned
from odin.core.op import AddRule, Answer, AnswerPermission, AnswerQuestions, Interrupt
from odin.core.timing import Timing
from odin.core.tool import Args, Target, Tool, ToolContext, ToolOutput
from odin.testing import call, reply, say
from tests.sandbox.sandboxes import explain_missing
from tests.waiting import TimeLimit

from .conftest import Start, Talk
from .test_questions import list_durable_events, wait_for_event

ASKING: dict[str, Any] = {"yes": False, "can_ask": True}


def write(path: Path, content: str = "x\n", id: str = "w") -> Any:
    return call("WriteFile", {"file_path": str(path), "content": content}, id=id)


def list_events(events: list[AnyEvent], *wanted: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, wanted)]


async def test_turn_duration_excludes_the_time_the_user_takes_to_answer(start: Start, workspace: Path) -> None:
    now = 1000.0
    script = [write(workspace / "a"), call("Question", {"questions": [{"header": "One", "text": "Which?"}]}), say("ok")]

    def play(request: object) -> Any:
        nonlocal now
        now += 2
        return script.pop(0)

    talk = await start(play, **ASKING, timing=Timing(monotonic=lambda: now))
    prompt = await talk.submit("go")
    question = await wait_for_event(talk, PermissionAsked)
    now += 60
    await talk.client.submit(AnswerPermission(question.ask_id, True))
    question = await wait_for_event(talk)
    now += 600
    await talk.client.submit(AnswerQuestions(question.ask_id, (("this",),)))
    async with TimeLimit():
        async for envelope in talk.client.stream_events(after=-1):
            if isinstance(envelope.event, TurnEnded):
                assert (envelope.event.id, envelope.event.duration_ms) == (prompt, 6000)
                break


class TestAnswers:
    async def test_approval_is_for_one_call(self, start: Start, workspace: Path) -> None:
        talk = await start([write(workspace / "a", id="1"), write(workspace / "b", id="2"), say("ok")], **ASKING)
        talk.answers = [AnswerPermission("", True), AnswerPermission("", False)]
        await talk.say("go")
        assert [event.status for event in talk.all(ToolEnded)] == ["success", "denied"]
        assert (workspace / "a").exists()
        assert not (workspace / "b").exists()

    async def test_request_describes_the_effect_of_the_call(self, start: Start, workspace: Path) -> None:
        command = call("ExecuteCommand", {"command": "rm -r build"})
        talk = await start([command, say("ok")], config={"sandbox": {"backend": "off"}}, **ASKING)
        talk.answers = [AnswerPermission("", False)]
        await talk.say("go")
        (question,) = talk.all(PermissionAsked)
        assert (question.danger, question.effect) == ("hard_to_undo", "Deletes build recursively.")

    async def test_reason_of_a_denial_reaches_the_model_unchanged(self, start: Start, workspace: Path) -> None:
        why = 'Use "b" instead:\n  it is  empty — already {made}'
        talk = await start([write(workspace / "a"), say("ok")], **ASKING)
        talk.answers = [AnswerPermission("", False, why)]
        await talk.say("go")
        assert talk.server.requests[1].results["w"] == f"The user denied this tool call: {why}\nIt was not run."
        (answered,) = talk.all(PermissionAnswered)
        assert (answered.allowed, answered.reason, answered.by) == (False, why, "user")

    async def test_offered_rule_is_saved_unchanged(self, start: Start, workspace: Path) -> None:
        (workspace / "src").mkdir()
        calls = [write(workspace / "src" / "a", id="1"), write(workspace / "src" / "a", "y\n", id="2")]
        talk = await start([*calls, write(workspace / "b", id="3"), say("ok")], **ASKING)
        prompt = await talk.submit("go")
        question = await wait_for_event(talk, PermissionAsked)
        assert question.rules
        rule = question.rules[0]
        talk.answers = [AnswerPermission("", True, rule=rule, remember="session"), AnswerPermission("", False)]
        await talk.until_end(prompt)
        assert [event.call_id for event in talk.all(PermissionAsked)] == ["1", "3"]
        assert [(event.text, event.action, event.scope) for event in talk.all(RuleAdded)] == [
            (rule, "allow", "session")
        ]
        first = talk.all(PermissionAnswered)[0]
        assert (first.rule, first.remember) == (rule, "session")
        assert not talk.all(Warned)

    @pytest.mark.parametrize(
        ("rule", "why"),
        [
            ("WriteFile(other/**)", "does not match this call"),
            ("Read", "does not match this call"),
            ("", "no rule was given"),
            ("((", "not a rule"),
        ],
    )
    async def test_rule_that_does_not_match_is_not_saved_and_causes_a_warning(
        self, start: Start, workspace: Path, rule: str, why: str
    ) -> None:
        calls = [write(workspace / "a", id="1"), write(workspace / "a", "y\n", id="2"), say("ok")]
        talk = await start(calls, **ASKING)
        talk.answers = [AnswerPermission("", True, rule=rule, remember="session"), AnswerPermission("", False)]
        await talk.say("go")
        assert [event.status for event in talk.all(ToolEnded)] == ["success", "denied"]
        assert talk.all(RuleAdded) == []
        (warning,) = talk.all(Warned)
        assert "was not saved as a rule" in warning.text
        assert why in warning.text
        assert [(event.rule, event.remember) for event in talk.all(PermissionAnswered)] == [("", None)] * 2

    async def test_remembered_denial_denies_the_next_call_without_a_request(
        self, start: Start, workspace: Path
    ) -> None:
        calls = [write(workspace / "a", id="1"), write(workspace / "a", "y\n", id="2"), say("ok")]
        talk = await start(calls, **ASKING)
        talk.answers = [AnswerPermission("", False, "never", rule="WriteFile(a)", remember="session")]
        await talk.say("go")
        assert [event.action for event in talk.all(RuleAdded)] == ["deny"]
        said = talk.server.requests[2].results
        assert said["1"].startswith("The user denied this tool call: never")
        assert said["2"] == "Denied by rule WriteFile(a) (session). Remove the rule to allow it."
        assert not (workspace / "a").exists()

    async def test_denial_with_interrupt_cancels_the_following_calls(self, start: Start, workspace: Path) -> None:
        calls = [write(workspace / name, id=name) for name in "ab"]
        talk = await start([reply(calls=calls), say("ok")], **ASKING)
        talk.answers = [AnswerPermission("", False, interrupt=True)]
        assert (await talk.say("go")).reason == "interrupted"
        assert [event.status for event in talk.all(ToolEnded)] == ["denied", "cancelled"]
        assert (await talk.say("again")).text == "ok"
        assert not talk.server.rejected

    async def test_denial_with_interrupt_pauses_the_queue(self, start: Start, workspace: Path) -> None:
        talk = await start([write(workspace / "a"), say("ok")], **ASKING)
        prompt = await talk.submit("go")
        question = await wait_for_event(talk, PermissionAsked)
        await talk.submit("next")
        assert await talk.client.submit(AnswerPermission(question.ask_id, False, interrupt=True))
        talk.answers = [AnswerPermission("", True)]
        assert (await talk.until_end(prompt)).reason == "interrupted"
        assert [item.paused for item in (await talk.client.snapshot()).queue] == [True]


class TestEditedArguments:
    async def test_edited_arguments_run_and_the_audit_has_the_original(self, start: Start, workspace: Path) -> None:
        talk = await start([write(workspace / "a"), say("ok")], **ASKING)
        args = {"file_path": str(workspace / "b"), "content": "x\n"}
        talk.answers = [AnswerPermission("", True, args=args, summary="another name")]
        await talk.say("go")
        assert (workspace / "b").read_text() == "x\n"
        assert not (workspace / "a").exists()
        (ended,) = talk.all(ToolEnded)
        assert ended.audit is not None
        assert (ended.audit.original["file_path"], ended.audit.effective) == (str(workspace / "a"), args)
        assert (ended.audit.by, ended.audit.summary) == ("user", "another name")
        assert talk.all(ToolStarted)[0].args == args
        result = talk.server.requests[1].results["w"]
        assert "[The user changed the arguments of this call (another name): file_path was" in result
        assert str(workspace / "a") in result
        assert (talk.all(PermissionAnswered)[0].args, talk.all(PermissionAnswered)[0].summary) == (args, "another name")

    async def test_unchanged_arguments_leave_no_audit(self, start: Start, workspace: Path) -> None:
        talk = await start([write(workspace / "a"), say("ok")], **ASKING)
        talk.answers = [AnswerPermission("", True, args={"file_path": str(workspace / "a"), "content": "x\n"})]
        await talk.say("go")
        assert talk.all(ToolEnded)[0].audit is None
        assert talk.all(PermissionAnswered)[0].args is None

    async def test_edited_path_outside_the_project_needs_no_second_request(
        self, start: Start, workspace: Path, tmp_path: Path
    ) -> None:
        outside = tmp_path.resolve() / "outside"
        talk = await start([write(workspace / "a"), say("ok")], **ASKING)
        talk.answers = [AnswerPermission("", True, args={"file_path": str(outside), "content": "x\n"})]
        await talk.say("go")
        assert len(talk.all(PermissionAsked)) == 1
        assert outside.exists()

    async def test_rule_denies_edited_arguments_and_the_audit_has_them(self, start: Start, workspace: Path) -> None:
        talk = await start(
            [write(workspace / "a"), say("ok")], config={"disallowed_tools": ["WriteFile(secret)"]}, **ASKING
        )
        args = {"file_path": str(workspace / "secret"), "content": "x\n"}
        talk.answers = [AnswerPermission("", True, args=args)]
        await talk.say("go")
        (ended,) = talk.all(ToolEnded)
        assert ended.status == "denied"
        assert ended.audit is not None
        assert ended.audit.effective == args
        assert ended.text.startswith("Denied by rule ")
        assert "The user changed the arguments" in ended.text
        assert talk.all(ToolStarted) == []
        assert list(workspace.iterdir()) == []
        assert not talk.server.rejected

    async def test_edited_arguments_that_do_not_fit_the_schema_are_refused(self, start: Start, workspace: Path) -> None:
        talk = await start([write(workspace / "a"), say("ok")], **ASKING)
        talk.answers = [AnswerPermission("", True, args={"file_path": 7})]
        await talk.say("go")
        (ended,) = talk.all(ToolEnded)
        assert ended.status == "error"
        assert "do not fit its schema" in ended.text
        assert ended.audit is not None

    async def test_edited_arguments_that_the_tool_refuses_do_not_run(self, start: Start) -> None:
        talk = await start([call("Picky", {"word": "fine"}, id="p"), say("ok")], own_tools=[Picky()], **ASKING)
        talk.answers = [AnswerPermission("", True, args={"word": "senseless"})]
        await talk.say("go")
        assert talk.server.requests[1].results["p"].startswith("senseless makes no sense")
        assert talk.all(ToolStarted) == []

    async def test_call_that_the_tool_refuses_causes_no_request(self, start: Start) -> None:
        talk = await start([call("Picky", {"word": "senseless"}), say("ok")], own_tools=[Picky()], **ASKING)
        await talk.say("go")
        assert talk.all(PermissionAsked) == []

    async def test_edited_long_text_reaches_the_model_as_a_diff(self, start: Start, workspace: Path) -> None:
        lines = [f"line {number}\n" for number in range(200)]
        changed = [*lines[:100], "inserted by hand\n", *lines[100:]]
        talk = await start([write(workspace / "a", "".join(lines)), say("ok")], **ASKING)
        talk.answers = [
            AnswerPermission("", True, args={"file_path": str(workspace / "a"), "content": "".join(changed)})
        ]
        await talk.say("go")
        result = talk.server.requests[1].results["w"]
        assert "+inserted by hand" in result
        assert "line 3\n" not in result


class PickyArgs(Args, frozen=True):
    word: str


class Picky(Tool[PickyArgs]):
    """A tool that refuses senseless arguments."""

    name = "Picky"
    kind = "execute"
    short = "Refuses what makes no sense."
    args: ClassVar[type[Args]] = PickyArgs

    def get_target(self, args: PickyArgs) -> Target:
        return Target(command=f"say {args.word}")

    def validate(self, args: PickyArgs) -> str:
        return "senseless makes no sense." if args.word == "senseless" else ""

    async def run(self, args: PickyArgs, ctx: ToolContext) -> ToolOutput:
        return ToolOutput(f"did {args.word}")


class TestAnswerSources:
    async def test_two_front_ends_answer_at_once_and_the_first_wins(self, start: Start, workspace: Path) -> None:
        talk = await start([write(workspace / "a"), say("ok")], **ASKING)
        prompt = await talk.submit("go")
        question = await wait_for_event(talk, PermissionAsked)
        answers = [
            AnswerPermission("ask-of-yesterday", False),
            AnswerPermission(question.ask_id, False, "no", by="desk"),
        ]
        answers += [
            AnswerPermission(question.ask_id, True, by="phone"),
            AnswerPermission(question.ask_id, True, by="web"),
        ]
        taken = await asyncio.gather(*(talk.client.submit(answer) for answer in answers))
        assert taken == [False, True, False, False]
        talk.answers = [AnswerPermission("", True)]
        assert (await talk.until_end(prompt)).text == "ok"
        assert [(event.allowed, event.by) for event in talk.all(PermissionAnswered)] == [(False, "desk")]
        assert not (workspace / "a").exists()
        assert not await talk.client.submit(AnswerPermission(question.ask_id, True))
        assert not (workspace / "a").exists()
        assert not talk.server.rejected

    async def test_call_is_denied_with_a_reason_when_no_user_can_be_asked(self, start: Start, workspace: Path) -> None:
        talk = await start([write(workspace / "a"), say("ok")], yes=False)
        await talk.say("go")
        result = talk.server.requests[1].results["w"]
        assert result.startswith("WriteFile requires confirmation: ")
        assert "No user can be asked here" in result
        assert talk.all(ToolEnded)[0].status == "denied"
        assert not (workspace / "a").exists()

    async def test_unanswered_request_times_out_as_a_denial(self, start: Start, workspace: Path) -> None:
        talk = await start([write(workspace / "a"), say("ok"), say("on")], config={"confirm_timeout_s": 0.05}, **ASKING)
        prompt = await talk.submit("go")
        question = await wait_for_event(talk, PermissionAsked)
        answered = await wait_for_event(talk, PermissionAnswered)
        assert (answered.allowed, answered.by) == (False, "timeout")
        await talk.client.submit(AnswerPermission(question.ask_id, True))
        talk.answers = [AnswerPermission("", True)]
        assert (await talk.until_end(prompt)).text == "ok"
        result = talk.server.requests[1].results["w"]
        assert result.startswith("Denied: the permission request timed out.")
        assert talk.all(ToolEnded)[0].status == "denied"
        assert answered.reason == "The user did not answer within 0.05 s."
        assert not (workspace / "a").exists()
        assert (await talk.say("and now")).text == "on"
        assert not talk.server.rejected

    async def test_interrupt_at_a_request_ends_the_turn_cleanly(self, start: Start, workspace: Path) -> None:
        talk = await start([write(workspace / "a"), say("on")], **ASKING)
        prompt = await talk.submit("go")
        question = await wait_for_event(talk, PermissionAsked)
        await talk.client.submit(Interrupt())
        talk.answers = [AnswerPermission("", True)]
        assert (await talk.until_end(prompt)).reason == "interrupted"
        assert [(event.allowed, event.by) for event in talk.all(PermissionAnswered)] == [(False, "interrupt")]
        await talk.client.submit(AnswerPermission(question.ask_id, True))
        assert (await talk.say("and now")).text == "on"
        assert not (workspace / "a").exists()
        assert not talk.server.rejected


async def remaining_events(talk: Talk) -> list[AnyEvent]:
    return [envelope.event async for envelope in talk.remaining()]


class TestShutdown:
    @pytest.mark.parametrize("command", ["true", "sleep 60"], ids=["over", "already running"])
    async def test_shutdown_denies_the_open_request_and_runs_nothing(
        self, start: Start, workspace: Path, command: str
    ) -> None:
        calls = [call("ExecuteCommand", {"command": command}, id="first"), write(workspace / "a", id="second")]
        talk = await start([reply(calls=calls).pace(0.02)], **ASKING)
        await talk.submit("go")
        await wait_for_event(talk, PermissionAsked)
        session = (await talk.client.get_info()).session
        async with TimeLimit():
            await talk.client.close()
        events = await remaining_events(talk)
        (answered,) = list_events(events, PermissionAnswered)
        assert (answered.allowed, answered.by, answered.reason) == (False, "shutdown", "Odin is shutting down.")
        ended = {event.call_id: event for event in list_events(events, ToolEnded)}
        assert ended["second"].status == "denied"
        assert ended["second"].text == "Denied: Odin is shutting down. Nothing was done."
        assert ended["first"].status == "cancelled"
        assert list_events(events, ToolStarted) == []
        (turn,) = list_events(events, TurnEnded)
        assert (turn.reason, turn.error_kind) == ("aborted", "AgentShutdown")
        assert list(workspace.iterdir()) == []
        later = await start([say("here again")], resume=session)
        assert (await later.say("and now")).text == "here again"
        assert "Odin is shutting down" in later.server.requests[0].results["second"]
        assert not later.server.rejected

    async def test_shutdown_releases_requests_that_wait_for_their_turn(self, start: Start, workspace: Path) -> None:
        tasks = [call("AgentTool", {"description": f"task {n}", "prompt": "Write."}, id=f"t{n}") for n in range(2)]
        talk = await start([reply(calls=tasks), write(workspace / "a"), write(workspace / "b")], **ASKING)
        await talk.submit("go")
        await wait_for_event(talk, PermissionAsked)
        async with TimeLimit():
            await talk.client.close()
        events = await remaining_events(talk)
        assert len(list_events(events, PermissionAsked)) == len(list_events(events, PermissionAnswered))
        assert {event.call_id for event in list_events(events, ToolStarted)} == {"t0", "t1"}
        assert list(workspace.iterdir()) == []


class TestSeveralAgents:
    async def test_new_rule_answers_a_waiting_request(self, start: Start, workspace: Path) -> None:
        tasks = [call("AgentTool", {"description": f"task {n}", "prompt": "Write."}, id=f"t{n}") for n in range(2)]
        (workspace / "src").mkdir()
        writes = [write(workspace / "src" / name, id=name) for name in "ab"]
        talk = await start([reply(calls=tasks), *writes, say("one"), say("two"), say("ok")], **ASKING)
        prompt = await talk.submit("go")
        await wait_for_event(talk, PermissionAsked)
        while len((await talk.client.snapshot()).interactions) < 2:
            await asyncio.sleep(0.01)
        first, second = [item.id for item in (await talk.client.snapshot()).interactions]
        await talk.client.submit(Answer(first, "allow_session", rule="WriteFile(src/**)"))
        while (await talk.client.snapshot()).interactions:
            await asyncio.sleep(0.01)
        talk.answers = [AnswerPermission("", False)] * 2  # both are answered already
        assert (await talk.until_end(prompt)).text == "ok"
        answered = {event.ask_id: (event.allowed, event.by) for event in talk.all(PermissionAnswered)}
        assert answered == {first: (True, "user"), second: (True, "rule")}
        assert {path.name for path in (workspace / "src").iterdir()} == {"a", "b"}
        assert not talk.server.rejected

    async def test_rule_from_another_front_end_denies_a_waiting_request(self, start: Start, workspace: Path) -> None:
        tasks = [call("AgentTool", {"description": f"task {n}", "prompt": "Write."}, id=f"t{n}") for n in range(2)]
        writes = [write(workspace / name, id=name) for name in "ab"]
        talk = await start([reply(calls=tasks), *writes, say("one"), say("two"), say("ok")], **ASKING)
        prompt = await talk.submit("go")
        await wait_for_event(talk, PermissionAsked)
        while len((await talk.client.snapshot()).interactions) < 2:
            await asyncio.sleep(0.01)
        await talk.client.submit(AddRule("WriteFile(**)", "deny"))
        talk.answers = [AnswerPermission("", True)] * 2
        await talk.until_end(prompt)
        assert [(event.allowed, event.by) for event in talk.all(PermissionAnswered)] == [(False, "rule")] * 2
        inner = [event for event in talk.all(ToolEnded) if event.call_id in "ab"]
        assert [event.status for event in inner] == ["denied", "denied"]
        assert "Denied by rule WriteFile(**)" in inner[0].text

    async def test_request_names_the_asking_agent(self, start: Start, workspace: Path) -> None:
        task = call("AgentTool", {"description": "task", "prompt": "Write."}, id="t")
        talk = await start([task, write(workspace / "a"), say("done"), say("ok")], **ASKING)
        talk.answers = [AnswerPermission("", False, "not there")]
        await talk.say("go")
        said: list[Envelope] = [
            item for item in talk.heard if isinstance(item.event, PermissionAsked | PermissionAnswered)
        ]
        assert [item.agent for item in said] == ["agent-1", "agent-1"]
        assert talk.server.requests[2].results["w"].startswith("The user denied this tool call: not there")
        assert not (workspace / "a").exists()

    async def test_call_of_a_sub_agent_is_denied_when_no_user_can_be_asked(self, start: Start, workspace: Path) -> None:
        task = call("AgentTool", {"description": "task", "prompt": "Write."}, id="t")
        talk = await start([task, write(workspace / "a"), say("done"), say("ok")], yes=False)
        await talk.say("go")
        assert "requires confirmation" in talk.server.requests[2].results["w"]
        assert not (workspace / "a").exists()


class TestSeveralPaths:
    async def test_request_tells_asked_paths_from_allowed_ones(self, start: Start, workspace: Path) -> None:
        for name in ("a", "b"):
            (workspace / name).write_text("x\n")
        paths = [str(workspace / name) for name in "ab"]
        talk = await start(
            [call("Delete", {"paths": paths, "reason": "old"}, id="d"), say("ok")],
            config={"allowed_tools": [f"Delete({paths[0]})"]},
            **ASKING,
        )
        talk.answers = [AnswerPermission("", True)]
        await talk.say("go")
        (question,) = talk.all(PermissionAsked)
        assert (question.asked_paths, question.allowed_paths) == ((paths[1],), (paths[0],))
        assert list(workspace.iterdir()) == []

    async def test_one_denied_path_denies_the_call(self, start: Start, workspace: Path) -> None:
        for name in ("a", "b"):
            (workspace / name).write_text("x\n")
        paths = [str(workspace / name) for name in "ab"]
        talk = await start(
            [call("Delete", {"paths": paths, "reason": "old"}, id="d"), say("ok")],
            config={"disallowed_tools": ["Delete(b)"]},
            **ASKING,
        )
        await talk.say("go")
        assert talk.all(PermissionAsked) == []
        assert talk.server.requests[1].results["d"].startswith("Denied by rule ")
        assert len(list(workspace.iterdir())) == 2


class TestRetry:
    async def test_command_without_network_may_run_again_with_it(self, start: Start, workspace: Path) -> None:
        if missing := "curl is not installed" if shutil.which("curl") is None else explain_missing("auto"):
            pytest.skip(missing)
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as web:
            command = f"curl -sS http://127.0.0.1:{web.sockets[0].getsockname()[1]}/"
            talk = await start([call("ExecuteCommand", {"command": command}, id="c"), say("ok")], can_ask=True)
            talk.answers = [AnswerPermission("", True)]
            await talk.say("go")
        assert [(event.granted_network, event.unsandboxed) for event in talk.all(PermissionAsked)] == [(True, False)], (
            "with --yes only more access needs approval"
        )
        result = talk.server.requests[1].results["c"]
        assert result.startswith("reached")
        assert "The user let it run again with network access" in result


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\nConnection: close\r\n\r\nreached\n")
    await writer.drain()
    writer.close()


class TestPreview:
    async def test_request_shows_a_preview_of_the_change(self, start: Start, workspace: Path) -> None:
        (workspace / "a").write_text("one\ntwo\n")
        talk = await start([write(workspace / "a", "one\nthree\n"), say("ok")], **ASKING)
        prompt = await talk.submit("go")
        question = await wait_for_event(talk, PermissionAsked)
        assert "-two\n+three" in question.preview
        assert (workspace / "a").read_text() == "one\ntwo\n", "the preview changed nothing"
        talk.answers = [AnswerPermission("", False)]
        await talk.until_end(prompt)

    async def test_request_for_a_command_has_no_preview(self, start: Start) -> None:
        talk = await start([call("Picky", {"word": "x"}), say("ok")], own_tools=[Picky()], **ASKING)
        talk.answers = [AnswerPermission("", True)]
        await talk.say("go")
        assert talk.all(PermissionAsked)[0].preview == ""


async def test_request_answer_and_audit_can_be_read_from_the_log(start: Start, workspace: Path) -> None:
    """Question, answer and audit can be read back from the log, for other front ends and later runs."""
    talk = await start([write(workspace / "a"), say("ok")], **ASKING)
    args = {"file_path": str(workspace / "b"), "content": "x\n"}
    talk.answers = [AnswerPermission("", True, args=args, by="phone", summary="elsewhere")]
    await talk.say("go")
    again = await list_durable_events(talk)
    assert list_events(again, PermissionAnswered) == [replace(talk.all(PermissionAnswered)[0])]
    (ended,) = list_events(again, ToolEnded)
    assert (ended.audit.by, ended.audit.summary, ended.audit.effective) == ("phone", "elsewhere", args)


class TestInvalidEdits:
    async def test_edit_that_cannot_apply_causes_no_request(self, start: Start, workspace: Path) -> None:
        file, unread = workspace / "a", workspace / "b"
        file.write_text("one\n")
        unread.write_text("one\n")
        edit = {"file_path": str(file), "old_string": "two", "new_string": "2"}
        script = [
            call("Read", {"file_path": str(file)}),
            call("EditTool", edit, id="missing"),
            call("EditTool", {**edit, "file_path": str(unread), "old_string": "one"}, id="unread"),
            call("WriteFile", {"file_path": str(file), "content": "one\n"}, id="same"),
            call("Delete", {"paths": [str(workspace)], "reason": "old"}, id="folder"),
            call("EditTool", {**edit, "old_string": "one"}, id="fits"),
            say("ok"),
        ]
        talk = await start(script, **ASKING)
        talk.answers = [AnswerPermission("", True)]
        await talk.say("go")
        assert [event.args["old_string"] for event in talk.all(PermissionAsked)] == ["one"]
        results = talk.server.requests[-1].results
        assert results["missing"].startswith("old_string was not found")
        assert results["unread"].startswith("Must read file first")
        assert "already has exactly this content" in results["same"]
        assert file.read_text() == "2\n" and unread.read_text() == "one\n"
        ended = {event.call_id: event for event in talk.all(ToolEnded)}
        assert (ended["unread"].status, ended["unread"].error_kind) == ("error", "UnreadFile")
        assert ended["folder"].status in ("error", "denied")
