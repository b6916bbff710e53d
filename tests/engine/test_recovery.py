"""Replies that are cut off, malformed or empty: discarded, retried, and at last given up (RECOV1-4, RECOV7)."""

from pathlib import Path
from typing import Any, Literal

import pytest

from odin.core.call_events import (
    Replied,
    ReplyDiscarded,
    ReplyRolledBack,
    RetryScheduled,
    TextStreamed,
    ToolEnded,
    ToolStarted,
    UsageRecorded,
)
from odin.core.event import ModelChanged, Warned
from odin.core.message import Usage
from odin.testing import ScriptedServer, call, fault, reply, say
from odin.testing.script import SeenRequest

from .conftest import Start, Talk

CUT = '{"file_path": "/nowhere/x", "content": "abc'
"""Arguments that the length limit cut off."""

APIS = ("anthropic", "openai", "responses")


def make_options(api: str) -> dict[str, Any]:
    """Return the options that start a session with one of the three wire formats."""
    if api == "responses":
        return {"api": "openai", "config": {"providers": {"openai": {"type": "openai-responses"}}}}
    return {"api": api}


def cut(*calls: Any, text: str = "") -> Any:
    return reply(text, calls, stop="max_tokens")


class TestCutOff:
    @pytest.mark.parametrize("api", APIS)
    async def test_cut_off_reply_is_discarded_and_one_small_step_is_requested(
        self, start: Start, workspace: Path, api: str
    ) -> None:
        talk = await start([cut(call("WriteFile", CUT), text="Writing."), say("ok")], **make_options(api))
        assert (await talk.say("go")).text == "ok"
        first, second = talk.server.requests
        assert b"one tool call with short arguments" in second.body
        assert b"Writing." not in second.body
        assert len(second.messages) == len(first.messages) + 1
        assert [event.message.text for event in talk.all(Replied)] == ["ok"]
        assert talk.all(ToolStarted) == []
        assert talk.server.rejected == []

    async def test_turn_ends_after_two_more_cut_off_replies(self, start: Start) -> None:
        talk = await start([cut(call("WriteFile", CUT))] * 9, config={"compaction": {"enabled": False}})
        ended = await talk.say("go")
        assert ended.reason == "max_tokens"
        assert len(talk.server.requests) == 3
        assert [b"one small step" in request.body for request in talk.server.requests] == [False, True, True]
        assert len(talk.all(ReplyDiscarded)) == 3
        assert (await talk.client.snapshot()).messages[-1].reason == "max_tokens"

    async def test_only_the_first_call_of_the_next_reply_runs(self, start: Start, workspace: Path) -> None:
        three = reply("", [call("ExecuteCommand", {"command": f"touch {name}"}) for name in "abc"])
        talk = await start([cut(call("WriteFile", CUT)), three, three, say("ok")])
        assert (await talk.say("go")).text == "ok"
        ran = [event.args["command"] for event in talk.all(ToolStarted)]
        assert ran == ["touch a", "touch a", "touch b", "touch c"], "recovery is over after one good step"
        first_step = talk.all(Replied)[0].message
        assert [one.args["command"] for one in first_step.calls] == ["touch a"]
        assert talk.server.rejected == []

    @pytest.mark.parametrize("api", APIS)
    async def test_call_cut_off_after_its_name_does_not_run(self, start: Start, api: str) -> None:
        """SpawnStatus needs no arguments, so the call itself does not show that it is incomplete."""
        talk = await start([cut(call("SpawnStatus", "")), say("ok")], **make_options(api))
        assert (await talk.say("go")).text == "ok"
        assert talk.all(ToolStarted) == []

    async def test_complete_calls_before_the_limit_run(self, start: Start, workspace: Path) -> None:
        talk = await start([cut(call("ExecuteCommand", {"command": "touch made"})), say("ok")])
        await talk.say("go")
        assert (workspace / "made").exists()
        assert talk.all(ReplyDiscarded) == []


class TestMalformed:
    @pytest.mark.parametrize("bad", ['{"file_path": ', "[1]", "{}", ""], ids=["broken", "a list", "nothing", "empty"])
    async def test_three_malformed_rounds_in_a_row_end_the_turn_with_advice(self, start: Start, bad: str) -> None:
        talk = await start([call("WriteFile", bad)] * 9)
        ended = await talk.say("go")
        assert (ended.reason, ended.error_kind) == ("error", "MalformedCalls")
        assert "stronger model" in ended.hint
        assert len(talk.server.requests) == 3
        assert talk.all(Replied) == []
        assert talk.all(ToolStarted) == []

    async def test_no_arguments_are_fine_for_a_tool_that_needs_none(self, start: Start) -> None:
        talk = await start([call("SpawnStatus", "{}"), say("ok")])
        await talk.say("go")
        assert [event.name for event in talk.all(ToolStarted)] == ["SpawnStatus"]

    async def test_valid_round_in_between_resets_the_count(self, start: Start, workspace: Path) -> None:
        bad, good = call("WriteFile", "{"), call("LS", {"path": str(workspace)})
        talk = await start([bad, bad, good, bad, bad, say("ok")])
        assert (await talk.say("go")).text == "ok"

    async def test_valid_calls_of_a_mixed_round_run_and_malformed_ones_are_dropped(
        self, start: Start, workspace: Path
    ) -> None:
        mixed = reply("", [call("WriteFile", "{"), call("ExecuteCommand", {"command": "touch made"})])
        talk = await start([mixed, say("ok")])
        await talk.say("go")
        assert (workspace / "made").exists()
        assert b"WriteFile" not in talk.server.requests[1].body.split(b'"messages"')[1]
        assert talk.server.rejected == []

    async def test_mixed_rounds_count_as_malformed(self, start: Start, workspace: Path) -> None:
        def play(seen: Any) -> Any:
            number = len(seen.messages)
            return reply("", [call("WriteFile", "{"), call("LS", {"path": str(workspace / str(number))})])

        talk = await start(play)
        ended = await talk.say("go")
        assert (ended.error_kind, len(talk.server.requests)) == ("MalformedCalls", 3)
        assert len(talk.all(ToolEnded)) == 3


class TestUnfinished:
    """The JSON contract: `taskCompleted` false without a tool call is no answer."""

    UNFINISHED = say('{"taskCompleted": false, "explanation": "First I will read the file.", "executeTool": []}')

    async def start_contract(self, start: Start, script: Any) -> Talk:
        models = {"m": {"tools": "json"}}
        return await start(script, "openai", config={"providers": {"openai": {"models": models}}}, model="openai/m")

    async def test_model_is_asked_to_continue_and_its_reply_stays_in_the_history(
        self, start: Start, workspace: Path
    ) -> None:
        look = call("LS", {"path": str(workspace)})
        talk = await self.start_contract(start, [self.UNFINISHED, look, self.UNFINISHED, say("Done.")])
        ended = await talk.say("go")
        assert (ended.reason, ended.text) == ("end_turn", "Done.")
        second = talk.server.requests[1].body.decode()
        assert "called no tool" in second
        assert '\\"taskCompleted\\": false, \\"explanation\\": \\"First I will read' in second
        assert talk.server.rejected == []

    async def test_third_unfinished_reply_in_a_row_is_an_error(self, start: Start) -> None:
        talk = await self.start_contract(start, [self.UNFINISHED] * 9)
        ended = await talk.say("go")
        assert (ended.reason, ended.error_kind, len(talk.server.requests)) == ("error", "MalformedCalls", 3)


class TestEmpty:
    @pytest.mark.parametrize("nothing", [say(""), say(" \n"), reply(thinking="hm", stop="end_turn")])
    async def test_empty_reply_is_retried_and_then_replaced_by_the_default(self, start: Start, nothing: Any) -> None:
        talk = await start([nothing, nothing, say("never")], config={"default_response": "Nothing."})
        ended = await talk.say("go")
        assert (ended.reason, ended.text) == ("end_turn", "Nothing.")
        assert [event.error_kind for event in talk.all(RetryScheduled)] == ["EmptyReply"]
        assert talk.all(Replied) == []

    async def test_reply_cut_off_before_any_text_is_an_empty_truncation(self, start: Start) -> None:
        talk = await start([say("", stop="max_tokens")] * 2)
        ended = await talk.say("go")
        assert ended.reason == "max_tokens"
        assert [event.error_kind for event in talk.all(RetryScheduled)] == ["EmptyTruncation"]


def answer_only_as_second(seen: SeenRequest) -> Any:
    return say("ok") if seen.model == "second" else fault(529)


class TestFallbackModel:
    """`fallback_model`: the model that answers while the selected one cannot."""

    @staticmethod
    def config(**more: Any) -> dict[str, Any]:
        return {"retry": {"base_s": 0.001, "attempts": 2}, "fallback_model": ["anthropic/second"], **more}

    @pytest.mark.parametrize(
        "broken", [fault(529), fault(429), say("half").cut(events=4), say(""), fault(402)], ids=str
    )
    async def test_fallback_answers_when_retries_fail(self, start: Start, broken: Any) -> None:
        def play(seen: Any) -> Any:
            return say("from the second") if seen.model == "second" else broken

        talk = await start(play, config=self.config())
        ended = await talk.say("go")
        assert (ended.reason, ended.text) == ("end_turn", "from the second")
        (changed,) = talk.all(ModelChanged)
        assert changed.model == "anthropic/second"
        assert changed.reason.startswith("anthropic/")
        shown = talk.events.index(changed)
        screen = ""
        for event in talk.events:
            screen += event.text if isinstance(event, TextStreamed) else ""
            screen = "" if isinstance(event, ReplyRolledBack) else screen
        assert screen == "from the second", "the partial text of the first model is removed from the screen"
        back = [at for at, event in enumerate(talk.events) if isinstance(event, ReplyRolledBack)]
        assert all(at < shown or at == back[-1] for at in back)
        assert [event.message.model for event in talk.all(Replied)] == ["second"]

    async def test_usage_of_the_fallback_is_recorded_for_its_own_model(self, start: Start) -> None:
        def play(seen: Any) -> Any:
            used = Usage(input=100, output=5)
            return say("hi", usage=used) if seen.model == "second" else say("half", usage=used).cut(events=3)

        talk = await start(play, config=self.config())
        await talk.say("go")
        spent: dict[str, int] = {}
        for event in talk.all(UsageRecorded):
            spent[event.model] = spent.get(event.model, 0) + event.usage.input
        assert spent == {"anthropic/claude-sonnet-4-5": 200, "anthropic/second": 100}, (
            "two tries of the first model, one of the fallback"
        )

    async def test_fallback_answers_the_next_prompt_without_another_failure(self, start: Start) -> None:
        talk = await start(answer_only_as_second, config=self.config())
        await talk.say("one")
        asked = len(talk.server.requests)
        await talk.say("two")
        assert len(talk.server.requests) == asked + 1

    async def test_turn_ends_with_the_error_after_the_last_fallback(self, start: Start) -> None:
        talk = await start([fault(529)] * 9, config=self.config(fallback_model=["openai/gpt-5", "anthropic/second"]))
        ended = await talk.say("go")
        assert (ended.reason, ended.error_kind) == ("error", "Overloaded")
        assert {request.model for request in talk.server.requests} > {"second"}
        assert len(talk.server.requests) == 4
        assert any("openai/gpt-5" in event.text for event in talk.all(Warned))

    async def test_bad_request_does_not_use_the_fallback(self, start: Start) -> None:
        talk = await start([fault(400)] * 9, config=self.config())
        assert (await talk.say("go")).error_kind == "BadRequest"
        assert len(talk.server.requests) == 1

    @pytest.mark.parametrize("api", ["anthropic", "google"])
    async def test_a_blocked_reply_is_not_tried_again(self, start: Start, api: Literal["anthropic", "google"]) -> None:
        talk = await start([say("", stop="refusal"), say("Up to here", stop="refusal")], api)
        ended = await talk.say("go")
        assert (ended.reason, ended.error_kind, len(talk.server.requests)) == ("error", "ReplyBlocked", 1)
        assert "another model" in ended.hint
        assert (await talk.say("go on")).text == "Up to here"
        said = [event.text for event in talk.all(Warned) if "ended the reply early" in event.text]
        assert len(said) == (api == "google")

    @pytest.mark.parametrize(("api", "stop"), [("anthropic", "refusal"), ("openai", "content_filter")])
    async def test_the_calls_of_a_blocked_reply_do_not_run(
        self, start: Start, workspace: Path, api: Literal["anthropic", "openai"], stop: str
    ) -> None:
        write = call("WriteTool", {"file_path": str(workspace / "new.txt"), "content": "x"})
        talk = await start([reply("I write.", [write], stop=stop), say("ok")], api)
        ended = await talk.say("go")
        assert (ended.reason, ended.error_kind, (workspace / "new.txt").exists()) == ("error", "ReplyBlocked", False)
        assert (await talk.say("go on")).text == "ok" and talk.server.rejected == []

    async def test_fallback_may_use_another_api(self, start: Start, workspace: Path) -> None:
        with ScriptedServer([call("LS", {"path": str(workspace)}), say("done")]) as other:
            env = {key: value for key, value in other.env("openai").items() if key != "ODIN_MODEL"}
            talk = await start([fault(529)] * 9, config=self.config(fallback_model=["openai/gpt-x"]), env=env)
            assert (await talk.say("go")).text == "done"
            assert other.rejected == []
