"""One turn, from the prompt to the answer, as the user and the model see it."""

import asyncio
import itertools
import json
import os
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from odin.core.call_events import (
    ActivityChanged,
    CallStreamed,
    FileCached,
    PermissionAnswered,
    PermissionAsked,
    Replied,
    ReplyDiscarded,
    ReplyDrafted,
    ReplyRolledBack,
    RetryScheduled,
    TextStreamed,
    ThinkingStreamed,
    ToolEnded,
    ToolStarted,
    UsageRecorded,
)
from odin.core.errors import EmptyPrompt, SessionBusy
from odin.core.event import PromptDropped, TurnEnded
from odin.core.message import Usage
from odin.core.op import AddContext, AnswerPermission, DropPrompt, Interrupt, Prompt
from odin.engine import stream
from odin.testing import call, fault, reply, say

from .conftest import Start
from .test_team import TeamScript, complete, delegate, settle

APIS = ("anthropic", "openai")


def list_tool_results(body: dict[str, Any]) -> list[tuple[str, str, bool]]:
    """Return the tool results of an Anthropic request: (call id, text, is error)."""
    found: list[tuple[str, str, bool]] = []
    for message in body["messages"]:
        for block in message["content"] if isinstance(message["content"], list) else ():
            if block["type"] == "tool_result":
                content = block["content"]
                text = content if isinstance(content, str) else "".join(part["text"] for part in content)
                found.append((block["tool_use_id"], text, bool(block.get("is_error"))))
    return found


@pytest.mark.parametrize("api", APIS)
async def test_a_prompt_reads_edits_and_answers(start: Start, workspace: Path, api: str) -> None:
    file = workspace / "a.txt"
    file.write_text("one\ntwo\n")
    talk = await start(
        [
            call("Read", {"file_path": str(file)}),
            call("EditTool", {"file_path": str(file), "old_string": "two", "new_string": "three"}),
            say("Changed two to three."),
        ],
        api,
    )
    ended = await talk.say("change two to three")
    assert (ended.reason, ended.text, ended.steps) == ("end_turn", "Changed two to three.", 3)
    assert file.read_text() == "one\nthree\n"
    assert talk.server.rejected == []
    assert [event.name for event in talk.all(ToolStarted)] == ["Read", "EditTool"]
    assert {event.file.path: event.file.modified for event in talk.all(FileCached)} == {str(file): True}


async def test_three_calls_in_one_reply_give_three_results_in_call_order(start: Start, workspace: Path) -> None:
    for name in "abc":
        (workspace / name).write_text(f"text of {name}\n")
    calls = [call("Read", {"file_path": str(workspace / name)}, id=f"id_{name}") for name in "abc"]
    talk = await start([reply(calls=calls), say("ok")])
    await talk.say("read all")
    second = talk.server.requests[1].json
    assert [item[0] for item in list_tool_results(second)] == ["id_a", "id_b", "id_c"]
    assert all(f"text of {name}" in item[1] for name, item in zip("abc", list_tool_results(second), strict=True))


async def test_text_and_calls_stream_as_events_before_the_reply_is_final(start: Start, workspace: Path) -> None:
    talk = await start([call("LS", {"path": str(workspace)}, text="Looking."), say("Empty.", chunk=2)])
    await talk.say("what is here?")
    assert "".join(event.text for event in talk.all(TextStreamed)) == "Looking.Empty."
    done = [event for event in talk.all(CallStreamed) if event.done]
    assert [(event.name, event.args, event.chars) for event in done] == [("LS", {"path": str(workspace)}, 0)]
    kinds = [type(event).__name__ for event in talk.events]
    assert kinds.index("TextStreamed") < kinds.index("Replied") < kinds.index("ToolStarted") < kinds.index("ToolEnded")
    activities = [event.activity for event in talk.all(ActivityChanged)]
    assert activities[0] == "connecting"
    assert {"waiting_headers", "streaming", "executing"} <= set(activities)


async def test_text_that_streams_for_long_is_recorded(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    assert stream.DRAFT_EVERY_S == 2.0
    for name in ("DRAFT_EVERY_S", "PROGRESS_EVERY_S"):
        monkeypatch.setattr(stream, name, 0.0)
    talk = await start([say("It is lost.", chunk=4).cut(events=4), say("All of this is kept.", chunk=4)])
    await talk.say("go")
    drafts = await talk.recorded_events(ReplyDrafted)
    begin = [draft.start for draft in drafts].index(0, 1)
    assert "".join(draft.text for draft in drafts[begin:]) == "All of this is kept."
    assert [draft.start for draft in drafts[begin:]] == [0, 4, 8, 12, 16]


async def test_every_event_names_its_agent_and_durable_ones_are_numbered(start: Start) -> None:
    talk = await start([say("hi")])
    await talk.say("hello")
    durable = [envelope.seq for envelope in talk.heard if envelope.event.durable]
    assert durable == list(range(len(durable)))
    assert {envelope.agent for envelope in talk.heard} == {""}


async def test_thinking_is_kept_but_not_sent_back(start: Start) -> None:
    talk = await start([say("4", thinking="two and two"), say("8")])
    await talk.say("2+2?")
    await talk.say("times two?")
    assert "".join(event.text for event in talk.all(ThinkingStreamed)) == "two and two"
    assert talk.all(Replied)[0].message.thinking == "two and two"
    assert b"two and two" not in talk.server.requests[1].body


async def test_thinking_is_replayed_only_within_the_tool_loop(start: Start, workspace: Path) -> None:
    talk = await start(
        [reply(thinking="look first", calls=[call("LS", {"path": str(workspace)})]), say("ok"), say("done")],
        config={"thinking": 2000, "providers": {"anthropic": {"models": {"scripted-model": {"thinking": True}}}}},
    )
    await talk.say("look")
    await talk.say("again")
    assert talk.server.rejected == []
    sent = [b"look first" in request.body for request in talk.server.requests]
    assert sent == [False, True, False]


@pytest.mark.parametrize("api", APIS)
async def test_each_request_begins_with_the_bytes_of_the_one_before(start: Start, workspace: Path, api: str) -> None:
    (workspace / "a").write_text("x\n")
    script = [
        call("Read", {"file_path": str(workspace / "a")}),
        call("LS", {"path": str(workspace)}),
        say("first"),
        call("Nonsense", {}),
        say("second"),
    ]
    talk = await start(script, api)
    await talk.say("one")
    await talk.say("two")
    bodies = [request.body for request in talk.server.requests]
    assert len(bodies) == 5
    for earlier, later in itertools.pairwise(bodies):
        assert later.startswith(earlier.rstrip(b"]}")), "earlier bytes have changed"


async def test_request_after_a_resume_begins_with_the_bytes_of_the_one_before(start: Start) -> None:
    talk = await start([say("one"), say("two")])
    await talk.say("first")
    session = (await talk.client.get_info()).session
    await talk.client.close()
    again = await start(None, server=talk.server, resume=session)
    await again.say("second")
    first, second = (request.body for request in talk.server.requests)
    assert second.startswith(first.rstrip(b"]}"))


async def test_cached_files_are_listed_once_in_the_newest_message(start: Start, workspace: Path) -> None:
    file = workspace / "a.txt"
    file.write_text("x\n")
    talk = await start([call("Read", {"file_path": str(file)}), say("ok"), say("ok")])
    await talk.say("read")
    await talk.say("again")
    counts = [request.body.count(b"Cached files: ") for request in talk.server.requests]
    assert counts == [0, 1, 1]
    assert f"{file} (2 bytes, cached ".encode() in talk.server.requests[1].body


async def test_unknown_tool_and_invalid_arguments_return_error_results(start: Start) -> None:
    script = [
        reply(
            calls=[
                call("Frobnicate", {"a": 1}, id="a"),
                call("Read", {"file": "x"}, id="b"),
                call("LS", {"path": 3}, id="c"),
            ]
        ),
        say("sorry"),
    ]
    talk = await start(script)
    ended = await talk.say("go")
    assert ended.text == "sorry"
    texts = {item[0]: item for item in list_tool_results(talk.server.requests[1].json)}
    assert all(item[2] for item in texts.values())
    assert "no tool 'Frobnicate'" in texts["a"][1]
    assert "file" in texts["b"][1]
    assert "path" in texts["c"][1]


async def test_tool_names_of_other_agents_work(start: Start, workspace: Path) -> None:
    talk = await start([call("Bash", {"command": "echo hello"}), say("ok")])
    await talk.say("go")
    (ended,) = talk.all(ToolEnded)
    assert (ended.name, ended.status, ended.text.strip()) == ("ExecuteCommand", "success", "hello")


@pytest.mark.parametrize("mode", ["ask_mode", "plan_mode"])
async def test_ask_and_plan_mode_neither_offer_nor_run_writing_tools(start: Start, workspace: Path, mode: Any) -> None:
    target = workspace / "new.txt"
    talk = await start([call("WriteFile", {"file_path": str(target), "content": "x"}), say("ok")])
    await talk.say("write it", mode)
    offered = {tool["name"] for tool in talk.server.requests[0].json["tools"]}
    assert not offered & {"WriteFile", "EditTool", "MultiEditTool"}
    assert {"LS", "Read", "Grep", "Glob", "ExecuteCommand", "TodoWrite"} <= offered
    ((_, text, is_error),) = list_tool_results(talk.server.requests[1].json)
    assert is_error
    assert mode in text
    assert not target.exists()


async def test_each_mode_has_its_own_prompt_and_applies_to_one_message(start: Start) -> None:
    talk = await start([say("1"), say("2"), say("3")])
    for mode in ("ask_mode", "plan_mode", "edit_mode"):
        await talk.say("hi", mode)
        assert (await talk.client.snapshot()).agent_mode == mode
    systems = [json.dumps(request.json["system"]) for request in talk.server.requests]
    assert len(set(systems)) == 3
    assert len({len(request.json["tools"]) for request in talk.server.requests}) == 3


async def test_the_first_request_in_edit_mode_is_small(start: Start) -> None:
    talk = await start([say("hi")])
    await talk.say("hello")
    assert len(talk.server.requests[0].body) <= 10_000


async def test_max_turns_ends_the_turn(start: Start, workspace: Path) -> None:
    for number in range(5):
        (workspace / str(number)).write_text("x")
    script = [call("Read", {"file_path": str(workspace / str(number))}) for number in range(5)]
    talk = await start(script, max_turns=3)
    ended = await talk.say("go")
    assert (ended.reason, ended.steps) == ("max_turns", 3)
    assert len(talk.server.requests) == 3


async def test_budget_is_checked_before_each_request(start: Start, workspace: Path) -> None:
    prices = {"providers": {"anthropic": {"models": {"m": {"price_input": 1_000_000.0, "price_output": 0.0}}}}}
    talk = await start(
        [reply(calls=[call("LS", {"path": str(workspace)})], usage=Usage(input=2)), say("never")],
        config=prices,
        model="anthropic/m",
        max_budget_usd=1.5,
    )
    ended = await talk.say("go")
    assert (ended.reason, ended.cost_usd, len(talk.server.requests)) == ("error_max_budget_usd", 2.0, 1)
    again = await talk.say("more")
    assert (again.reason, len(talk.server.requests)) == ("error_max_budget_usd", 1)


async def test_usage_is_recorded_after_every_round(start: Start, workspace: Path) -> None:
    used = [Usage(10, 5, 3, 2), Usage(20, 6, 30, 4)]
    talk = await start([reply(calls=[call("LS", {"path": str(workspace)})], usage=used[0]), reply("ok", usage=used[1])])
    ended = await talk.say("go")
    assert [event.usage for event in talk.all(UsageRecorded)] == used
    assert ended.usage == used[0] + used[1]
    snapshot = await talk.client.snapshot()
    assert snapshot.context_tokens == used[1].total


async def test_text_cut_off_by_max_tokens_is_kept(start: Start) -> None:
    talk = await start([say("half an ans", stop="max_tokens"), say("more")])
    ended = await talk.say("go")
    assert (ended.reason, ended.text) == ("max_tokens", "half an ans")
    assert (await talk.say("continue")).text == "more"
    assert talk.server.rejected == []


async def test_call_cut_off_by_max_tokens_is_discarded_and_a_smaller_step_requested(
    start: Start, workspace: Path
) -> None:
    broken = reply(calls=[call("LS", '{"path": "/tm')], stop="max_tokens")
    two = reply(calls=[call("LS", {"path": str(workspace)}, id="a"), call("LS", {"path": "/"}, id="b")])
    talk = await start([broken, two, say("ok")])
    ended = await talk.say("go")
    assert ended.text == "ok"
    assert len(talk.all(ReplyDiscarded)) == 1
    assert b"one small step" in talk.server.requests[1].body
    assert [event.call_id for event in talk.all(ToolEnded)] == ["a"]
    assert talk.server.rejected == []


async def test_length_recovery_gives_up_after_two_tries(start: Start) -> None:
    broken = reply(calls=[call("LS", '{"path": "/tm')], stop="max_tokens")
    talk = await start([broken] * 5)
    ended = await talk.say("go")
    assert (ended.reason, len(talk.server.requests)) == ("max_tokens", 3)
    assert talk.all(Replied) == []


async def test_three_unreadable_calls_in_a_row_end_the_turn_with_advice(start: Start) -> None:
    talk = await start([call("LS", "{oops"), call("LS", {}), call("LS", "[1]"), say("never")])
    ended = await talk.say("go")
    assert (ended.reason, len(talk.server.requests)) == ("error", 3)
    assert "without a valid tool call" in ended.error
    assert ended.hint


async def test_valid_round_resets_the_count_of_malformed_rounds(start: Start, workspace: Path) -> None:
    good = call("LS", {"path": str(workspace)})
    talk = await start([call("LS", "{"), call("LS", "{"), good, call("LS", "{"), call("LS", "{"), say("ok")])
    assert (await talk.say("go")).text == "ok"
    assert talk.server.rejected == []


async def test_valid_calls_of_a_mixed_round_run_and_malformed_ones_are_dropped(start: Start, workspace: Path) -> None:
    mixed = reply(calls=[call("LS", {"path": str(workspace)}, id="good"), call("Read", "{nope", id="bad")])
    talk = await start([mixed, say("ok")])
    assert (await talk.say("go")).text == "ok"
    assert [item[0] for item in list_tool_results(talk.server.requests[1].json)] == ["good"]
    assert b"nope" not in talk.server.requests[1].body


async def test_empty_reply_is_retried(start: Start) -> None:
    talk = await start([say(""), say("there")])
    assert (await talk.say("go")).text == "there"
    assert [event.error_kind for event in talk.all(RetryScheduled)] == ["EmptyReply"]


async def test_only_empty_replies_give_the_default_response(start: Start) -> None:
    talk = await start([say("")] * 3)
    ended = await talk.say("go")
    assert (ended.reason, ended.text) == ("end_turn", "Completed processing; there is no response to show.")


async def test_an_empty_answer_to_mail_gives_the_background_response(start: Start) -> None:
    silent = [say("")] * 3
    talk = await start(TeamScript([delegate("a"), say("ok"), *silent, *silent], a=[complete("found it")]))
    await talk.say("go")
    await settle(talk.client)
    to_mail = (await talk.recorded_events(TurnEnded))[-1]
    assert to_mail.text == "Completed background work; there is no response to show."
    assert (await talk.say("and now?")).text == "Completed processing; there is no response to show."


async def test_stop_reason_tool_use_without_a_call_ends_the_turn(start: Start) -> None:
    talk = await start([say("that is all", stop="tool_use")])
    ended = await talk.say("go")
    assert (ended.reason, ended.text) == ("end_turn", "that is all")


@pytest.mark.parametrize(
    ("broken", "kind"),
    [
        (fault(429, {"retry-after": "0"}), "RateLimited"),
        (fault(529), "Overloaded"),
        (fault(503), "Overloaded"),
        (say("half").cut(events=3), "StreamCut"),
        (say("half").error(after=3), "Overloaded"),
        (say("half").unfinished(2), "StreamCut"),
    ],
    ids=["429", "529", "503", "cut", "error event", "unfinished"],
)
async def test_temporary_failures_are_retried_with_an_event(start: Start, broken: Any, kind: str) -> None:
    talk = await start([broken, say("fine")])
    ended = await talk.say("go")
    assert (ended.reason, ended.text) == ("end_turn", "fine")
    (retry,) = talk.all(RetryScheduled)
    assert (retry.error_kind, retry.attempt) == (kind, 1)
    assert ("half" in "".join(event.text for event in talk.all(TextStreamed))) == bool(talk.all(ReplyRolledBack))
    assert len(talk.all(Replied)) == 1
    assert talk.server.rejected == []


async def test_a_retry_never_runs_a_tool_twice(start: Start, workspace: Path) -> None:
    append = call("ExecuteCommand", {"command": "echo x >> log"})
    talk = await start([append, fault(500), fault(500), say("ok")])
    await talk.say("go")
    assert (workspace / "log").read_text() == "x\n"


async def test_incomplete_call_never_runs(start: Start, workspace: Path) -> None:
    cut = call("ExecuteCommand", {"command": "touch made"}).cut(events=4)
    talk = await start([cut, say("ok")])
    await talk.say("go")
    assert not (workspace / "made").exists()
    assert talk.all(ToolStarted) == []


async def test_stalled_stream_is_retried(start: Start) -> None:
    talk = await start(
        [say("half").stall(after=3), say("fine")], config={"providers": {"anthropic": {"idle_timeout": 0.2}}}
    )
    assert (await talk.say("go")).text == "fine"
    assert [event.error_kind for event in talk.all(RetryScheduled)] == ["StreamStalled"]


async def test_turn_ends_with_the_error_after_the_last_retry(start: Start) -> None:
    talk = await start([fault(503)] * 9, config={"retry": {"base_s": 0.001, "attempts": 3}})
    ended = await talk.say("go")
    assert (ended.reason, ended.error_kind, len(talk.server.requests)) == ("error", "Overloaded", 3)
    assert not (await talk.client.snapshot()).executing


async def test_long_retry_after_ends_the_turn(start: Start) -> None:
    talk = await start([fault(429, {"retry-after": "3600"})])
    ended = await talk.say("go")
    assert (ended.reason, ended.error_kind) == ("error", "RateLimited")


@pytest.mark.parametrize(("status", "kind"), [(401, "AuthFailed"), (404, "ModelNotFound"), (400, "BadRequest")])
async def test_permanent_failures_are_not_retried(start: Start, status: int, kind: str) -> None:
    talk = await start([fault(status), say("never")])
    ended = await talk.say("go")
    assert (ended.error_kind, len(talk.server.requests)) == (kind, 1)
    assert ended.error
    assert ended.hint


async def test_after_a_failure_the_next_prompt_works(start: Start) -> None:
    talk = await start([fault(400), say("fine")])
    await talk.say("one")
    assert (await talk.say("two")).text == "fine"
    assert talk.server.rejected == []


class TestInterrupt:
    async def test_interrupt_in_the_stream_keeps_the_text(self, start: Start) -> None:
        talk = await start([say("a long answer", chunk=3).hold(threading.Event(), after=4), say("fine")])
        talk.interrupt_on = TextStreamed
        ended = await talk.say("go")
        assert ended.reason == "interrupted"
        (partial,) = talk.all(Replied)
        assert partial.message.interrupted
        assert "a long answer".startswith(partial.message.text)
        assert (await talk.say("next")).text == "fine"
        assert talk.server.rejected == []

    async def test_interrupt_in_a_tool_stops_it_and_every_call_has_a_result(
        self, start: Start, workspace: Path
    ) -> None:
        calls = [
            call("ExecuteCommand", {"command": "sleep 60; touch late"}, id="a"),
            call("LS", {"path": str(workspace)}, id="b"),
        ]
        talk = await start([reply(calls=calls), say("fine")])
        talk.interrupt_on = ToolStarted
        assert (await talk.say("go")).reason == "interrupted"
        assert {event.call_id: event.status for event in talk.all(ToolEnded)} == {"a": "cancelled", "b": "cancelled"}
        assert (await talk.say("next")).text == "fine"
        assert talk.server.rejected == []
        assert not (workspace / "late").exists()

    async def test_interrupt_during_the_wait_before_a_retry_ends_the_turn(self, start: Start) -> None:
        talk = await start([fault(503), say("fine")], config={"retry": {"base_s": 30}})
        talk.interrupt_on = RetryScheduled
        assert (await talk.say("go")).reason == "interrupted"

    async def test_closing_the_session_aborts_the_turn_and_records_it(self, start: Start, home: Path) -> None:
        talk = await start([say("x").stall(after=0)])
        await talk.submit("go")
        await asyncio.to_thread(talk.server.wait_for, 1)
        await talk.client.close()
        (log,) = home.rglob("main.jsonl")
        last = msgspec.json.decode(log.read_bytes().splitlines()[-1])
        assert (last["event"]["type"], last["event"]["reason"]) == ("TurnEnded", "aborted")


async def test_queued_prompts_run_in_order_each_in_its_own_mode(start: Start) -> None:
    gate = threading.Event()
    talk = await start([say("one").hold(gate), say("two"), say("three")])
    first = await talk.submit("a", "ask_mode")
    await talk.submit("b", "plan_mode")
    last = await talk.submit("c", "edit_mode")
    snapshot = await talk.client.snapshot()
    assert [(item.body, item.mode) for item in snapshot.queue] == [("b", "plan_mode"), ("c", "edit_mode")]
    gate.set()
    await talk.until_end(first)
    await talk.until_end(last)
    turns = (await talk.client.snapshot()).messages
    assert [(turn.body, turn.mode, turn.answer_summary) for turn in turns] == [
        ("a", "ask_mode", "one"),
        ("b", "plan_mode", "two"),
        ("c", "edit_mode", "three"),
    ]
    assert [event.id for event in talk.all(TurnEnded)] == ["p1", "p2", "p3"]


async def test_snapshots_are_pushed_as_the_state_changes(start: Start) -> None:
    talk = await start([say("hello")])
    shots: list[Any] = []

    async def watch() -> None:
        async for shot in talk.client.stream_snapshots():
            shots.append(shot)

    watcher = asyncio.create_task(watch())
    await asyncio.sleep(0)
    await talk.say("hi")
    await asyncio.sleep(0.01)
    watcher.cancel()
    assert (shots[0].executing, shots[0].messages) == (False, ())
    assert any(shot.executing for shot in shots)
    assert (shots[-1].executing, shots[-1].messages[0].answer_summary) == (False, "hello")


@pytest.mark.parametrize("required", [True, False])
async def test_reading_before_editing_can_be_switched_off(start: Start, workspace: Path, required: bool) -> None:
    file = workspace / "a.txt"
    file.write_text("one\n")
    edit = call("EditTool", {"file_path": str(file), "old_string": "one", "new_string": "two"})
    talk = await start([edit, say("ok")], config={"read_before_edit": required})
    await talk.say("go")
    assert file.read_text() == ("one\n" if required else "two\n")


async def test_a_log_that_cannot_be_written_ends_the_turn_with_the_reason(start: Start, home: Path) -> None:
    talk = await start([say("one"), say("two")])
    await talk.say("first")
    (log,) = home.rglob("main.jsonl")
    kept = log.read_bytes()
    recorder = talk.client._recorder  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
    with Path("/dev/full").open("wb") as full:
        os.dup2(full.fileno(), recorder._log._fd)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    ended = await talk.say("second")
    assert (ended.reason, ended.error_kind) == ("error", "StateUnwritable")
    assert "No space left" in ended.error
    assert log.read_bytes() == kept


async def test_prompt_that_does_not_wait_is_refused_by_a_busy_session(start: Start) -> None:
    gate = threading.Event()
    talk = await start([say("one").hold(gate)])
    first = await talk.submit("a")
    with pytest.raises(SessionBusy):
        await talk.client.submit(Prompt("x", "b", wait=False))
    with pytest.raises(EmptyPrompt):
        await talk.client.submit(Prompt("y", "  "))
    gate.set()
    assert (await talk.until_end(first)).text == "one"


async def test_queued_prompt_can_be_dropped(start: Start) -> None:
    gate = threading.Event()
    talk = await start([say("one").hold(gate), say("three")])
    first = await talk.submit("a")
    second = await talk.submit("b")
    third = await talk.submit("c")
    await talk.client.submit(DropPrompt(second))
    gate.set()
    await talk.until_end(first)
    assert (await talk.until_end(third)).text == "three"
    assert [turn.body for turn in (await talk.client.snapshot()).messages] == ["a", "c"]


class TestApprovals:
    async def test_approved_call_runs_and_a_denial_reason_reaches_the_model(
        self, start: Start, workspace: Path
    ) -> None:
        writes = [call("WriteFile", {"file_path": str(workspace / name), "content": "x"}) for name in "ab"]
        talk = await start([*writes, say("ok")], yes=False, can_ask=True)
        talk.answers = [AnswerPermission("", True), AnswerPermission("", False, "use another name")]
        await talk.say("go")
        assert ((workspace / "a").exists(), (workspace / "b").exists()) == (True, False)
        assert b"use another name" in talk.server.requests[2].body
        assert [event.status for event in talk.all(ToolEnded)] == ["success", "denied"]

    async def test_edited_arguments_are_used_and_recorded(self, start: Start, workspace: Path) -> None:
        write = call("WriteFile", {"file_path": str(workspace / "a"), "content": "x"})
        talk = await start([write, say("ok")], yes=False, can_ask=True)
        talk.answers = [AnswerPermission("", True, args={"file_path": str(workspace / "b"), "content": "y"})]
        await talk.say("go")
        assert ((workspace / "a").exists(), (workspace / "b").read_text()) == (False, "y")
        (answered,) = talk.all(PermissionAnswered)
        assert answered.args == {"file_path": str(workspace / "b"), "content": "y"}
        assert talk.all(ToolStarted)[0].args == answered.args

    async def test_invalid_edited_arguments_are_refused(self, start: Start, workspace: Path) -> None:
        write = call("WriteFile", {"file_path": str(workspace / "a"), "content": "x"})
        talk = await start([write, say("ok")], yes=False, can_ask=True)
        talk.answers = [AnswerPermission("", True, args={"file_path": 3})]
        await talk.say("go")
        assert talk.all(ToolEnded)[0].status == "error"
        assert list(workspace.iterdir()) == []

    async def test_denial_with_an_interrupt_ends_the_turn(self, start: Start, workspace: Path) -> None:
        calls = [call("WriteFile", {"file_path": str(workspace / name), "content": "x"}) for name in "ab"]
        talk = await start([reply(calls=calls), say("next")], yes=False, can_ask=True)
        talk.answers = [AnswerPermission("", False, interrupt=True)]
        assert (await talk.say("go")).reason == "interrupted"
        assert [event.status for event in talk.all(ToolEnded)] == ["denied", "cancelled"]
        assert (await talk.say("and now")).text == "next"
        assert talk.server.rejected == []


class TestEarlyEnd:
    @pytest.mark.parametrize("steps", [0, 1, 2, 3])
    async def test_an_interrupt_right_after_the_prompt_ends_its_turn(self, start: Start, steps: int) -> None:
        talk = await start([say("late").delay(5)])
        prompt = await talk.submit("go")
        for _ in range(steps):
            await asyncio.sleep(0)
        await talk.client.submit(Interrupt())
        assert (await talk.until_end(prompt)).reason == "interrupted"

    @pytest.mark.parametrize("steps", [0, 1, 2, 3])
    async def test_a_close_right_after_the_prompt_leaves_nothing_open(self, start: Start, steps: int) -> None:
        talk = await start([say("late").delay(5)])
        await talk.submit("go")
        for _ in range(steps):
            await asyncio.sleep(0)
        await talk.client.close()
        heard = [envelope.event async for envelope in talk.remaining()]
        assert any(isinstance(event, PromptDropped | TurnEnded) for event in heard)
        assert not (await talk.client.snapshot()).executing


async def test_added_context_is_sent_once_with_the_next_prompt(start: Start) -> None:
    talk = await start([say("one"), say("two")])
    await talk.client.submit(AddContext("42 errors", command="make test"))
    assert talk.server.requests == []
    assert (await talk.client.snapshot()).context[0].command == "make test"
    await talk.say("what does that mean?")
    await talk.say("and now?")
    counts = [request.body.count(b"Context from `make test`") for request in talk.server.requests]
    assert counts == [1, 1]


@pytest.mark.parametrize("ends", ["asked again", "same as shown"])
async def test_file_that_changes_while_the_user_is_asked_is_shown_again(
    start: Start, workspace: Path, ends: str
) -> None:
    file = workspace / "two.txt"
    script = [call("WriteFile", {"file_path": str(file), "content": "two\n"}), say("Done.")]
    talk = await start(script, yes=False, can_ask=True)
    prompt = await talk.submit("go")
    await talk.until_live(PermissionAsked)
    if ends == "asked again":
        file.write_text("mine\n")
    await talk.client.submit(AnswerPermission(talk.all(PermissionAsked)[0].ask_id, True))
    if ends == "asked again":
        await talk.until_live(PermissionAsked)
        asked = talk.all(PermissionAsked)[1]
        assert "-mine\n+two" in asked.preview
        await talk.client.submit(AnswerPermission(asked.ask_id, False))
    await talk.until_end(prompt)
    assert file.read_text() == ("mine\n" if ends == "asked again" else "two\n")
    assert len(talk.all(PermissionAsked)) == (2 if ends == "asked again" else 1)
