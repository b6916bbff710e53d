"""Loop mode against the scripted model: it continues until the goal is reached, and every way to end it."""

import asyncio
import subprocess
import threading
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from odin.core.call_events import ActivityChanged, RequestStarted, ToolEnded
from odin.core.client import LoopStatus
from odin.core.errors import SessionBusy, UsageError
from odin.core.event import Envelope, LoopChanged, LoopPrompted, TurnEnded, TurnStarted
from odin.core.event_values import LoopState
from odin.core.op import Interrupt, Prompt, SetLoop, SetPermissionMode
from odin.engine.event_bus import EventBus
from odin.engine.loop_mode import DEFAULT_GOAL, LoopMode
from odin.engine.recorder import Recorder
from odin.session.state import LOOP_ENDED_BY_RESUME, SessionState
from odin.testing import ScriptedServer, call, fault, say
from tests.waiting import TimeLimit, until

from .conftest import Start, Talk
from .test_prompt_cache import assert_requests_extend
from .test_recovery import APIS, make_options

DONE = say("All is done.\n<done>the tests pass</done>")
FINAL = ("completed", "blocked", "budget_exhausted", "idle")


async def wait_for_loop_end(talk: Talk) -> LoopChanged:
    """Read events until the loop ends; return its last event."""
    async with TimeLimit():
        async for envelope in talk.remaining():
            talk.heard.append(envelope)
            if isinstance(envelope.event, LoopChanged) and envelope.event.state in FINAL:
                return envelope.event
    raise AssertionError("the events ended before the loop did")


def run_echo(workspace: Path, name: str) -> Any:
    """Return a command call whose output is new if `name` is new."""
    return call("ExecuteCommand", {"command": f"echo {name}"})


def edit(workspace: Path, text: str = "new\n") -> Any:
    return call("WriteFile", {"file_path": str(workspace / "made.txt"), "content": text})


def todos(*statuses: str) -> Any:
    items = [{"id": str(at), "content": f"task {at}", "status": status} for at, status in enumerate(statuses)]
    return call("TodoWrite", {"todos": items})


def list_loop_states(talk: Talk) -> list[LoopState]:
    return [event.state for event in talk.all(LoopChanged)]


@pytest.mark.parametrize("api", APIS)
async def test_loop_continues_until_everything_is_done(start: Start, workspace: Path, api: str) -> None:
    script = [
        todos("pending", "pending"),
        say("I wrote a plan."),
        run_echo(workspace, "one"),
        todos("completed", "pending"),
        say("Half of it is done. <done>I think</done>"),
        todos("completed", "completed"),
        DONE,
    ]
    talk = await start(script, **make_options(api))
    assert await talk.client.submit(SetLoop(True, "reach the moon"))
    over = await wait_for_loop_end(talk)
    assert (over.state, over.reason, over.iteration) == ("completed", "the tests pass", 3)
    texts = [event.text for event in talk.all(TurnStarted)]
    assert [event.text for event in talk.all(LoopPrompted)] == texts, "what is shown is what is sent"
    assert "Goal: reach the moon" in texts[0]
    assert "iteration 2 of 10" in texts[1]
    assert "2 to-dos are open: task 0, task 1" in texts[1]
    assert "1 to-do is open: task 1" in texts[2]
    assert talk.all(TurnStarted)[0].display_text == "/loop on reach the moon"
    for text, request in zip(texts, (talk.server.requests[at] for at in (0, 2, 5)), strict=True):
        assert text.split("\n")[0] in request.body.decode()
    assert not (await talk.client.snapshot()).executing
    assert talk.server.rejected == []
    assert_requests_extend(talk.server.requests)


async def test_loop_states_are_sent_as_events_and_restored_from_the_log(start: Start, workspace: Path) -> None:
    talk = await start([say("hm"), DONE])
    await talk.client.submit(SetLoop(True))
    await wait_for_loop_end(talk)
    assert list_loop_states(talk) == ["executing", "executing", "assessing", "executing", "assessing", "completed"]
    status = await talk.client.get_loop_status()
    assert (status.state, status.goal, status.iteration, status.limit) == ("completed", DEFAULT_GOAL, 2, 10)
    assert not status.is_active
    past = [envelope async for envelope in _read_log(talk)]
    assert SessionState.fold(past).loop.status == LoopStatus("completed", DEFAULT_GOAL, 2, 10, "the tests pass")


async def _read_log(talk: Talk) -> AsyncGenerator[Envelope]:
    last = (await talk.client.snapshot()).seq
    async for envelope in talk.client.stream_events(after=-1):
        yield envelope
        if envelope.seq >= last:
            return


async def test_loop_starts_after_the_running_turn(start: Start) -> None:
    gate = threading.Event()
    talk = await start([say("An answer.").hold(gate), DONE])
    prompt = await talk.submit("go")
    await talk.until_live(RequestStarted)
    await talk.client.submit(SetLoop(True, "all of it"))
    assert (await talk.client.get_loop_status()) == LoopStatus("executing", "all of it", 0, 10)
    gate.set()
    await talk.until_end(prompt)
    over = await wait_for_loop_end(talk)
    assert (over.state, over.iteration) == ("completed", 1)
    assert "The last reply did not say that everything is done." in talk.all(TurnStarted)[1].text


async def test_session_is_busy_between_two_iterations(start: Start) -> None:
    talk = await start([say("hm"), DONE])
    await talk.client.submit(SetLoop(True))
    busy: list[bool] = []
    activities: list[str] = []
    async with TimeLimit():
        async for envelope in talk.remaining():
            if isinstance(envelope.event, TurnEnded):
                busy.append((await talk.client.snapshot()).executing)
            if isinstance(envelope.event, ActivityChanged):
                activities.append(envelope.event.activity)
            if isinstance(envelope.event, LoopChanged) and envelope.event.state == "completed":
                break
    assert busy[0], "the first iteration is over and the second is about to start"
    assert activities.count("idle") == 0, "the activity is not idle between two iterations"
    await talk.until_live(ActivityChanged)
    assert talk.all(ActivityChanged)[-1].activity == "idle"
    assert not (await talk.client.snapshot()).executing


async def test_changes_are_verified_before_the_loop_ends(start: Start, workspace: Path) -> None:
    script = [edit(workspace), DONE, run_echo(workspace, "tested"), DONE]
    talk = await start(script)
    await talk.client.submit(SetLoop(True))
    over = await wait_for_loop_end(talk)
    assert (over.state, over.iteration) == ("completed", 2)
    assert list_loop_states(talk)[-3:] == ["verifying", "assessing", "completed"]
    assert ("verifying", "2 of 10") in [(event.activity, event.detail) for event in talk.all(ActivityChanged)]
    assert "Verify it now" in talk.all(LoopPrompted)[1].text


async def test_failed_command_is_no_verification(start: Start, workspace: Path) -> None:
    failing = call("ExecuteCommand", {"command": "echo broken; false"})
    script = [edit(workspace), failing, DONE, run_echo(workspace, "tested"), DONE]
    talk = await start(script)
    await talk.client.submit(SetLoop(True))
    over = await wait_for_loop_end(talk)
    assert (over.state, over.iteration) == ("completed", 2)
    assert "verifying" in list_loop_states(talk)


async def test_model_that_did_not_verify_is_asked_to_verify(start: Start) -> None:
    unverified = say("<done>x</done><verify-not-run>there are no tests</verify-not-run>")
    talk = await start([unverified, DONE])
    await talk.client.submit(SetLoop(True))
    assert (await wait_for_loop_end(talk)).state == "completed"
    assert "The work was not verified: there are no tests" in talk.all(LoopPrompted)[1].text


async def test_blocked_ends_the_loop(start: Start) -> None:
    talk = await start([say("<blocked>credential_or_permission_missing: no key for the API</blocked>")])
    await talk.client.submit(SetLoop(True))
    over = await wait_for_loop_end(talk)
    assert (over.state, over.reason) == ("blocked", "credential_or_permission_missing: no key for the API")
    assert len(talk.server.requests) == 1


async def test_replies_without_tool_calls_are_no_progress(start: Start) -> None:
    talk = await start([say("I am on it."), say("Nearly there!"), say("Any moment now.")])
    await talk.client.submit(SetLoop(True))
    over = await wait_for_loop_end(talk)
    assert (over.state, over.iteration) == ("budget_exhausted", 3)
    assert over.reason == "3 rounds in a row made no progress."
    notes = [event.text for event in talk.all(LoopPrompted)]
    assert ["rounds in a row" in text for text in notes] == [False, False, True]
    assert len(talk.server.requests) == 3


async def test_repeated_result_is_no_progress(start: Start, workspace: Path) -> None:
    rounds = [turn for _ in range(4) for turn in (run_echo(workspace, "same"), say("hm"))]
    talk = await start(rounds)
    await talk.client.submit(SetLoop(True))
    over = await wait_for_loop_end(talk)
    assert (over.state, over.iteration) == ("budget_exhausted", 4), "the first round was progress"


async def test_loop_ends_after_ten_iterations(start: Start, workspace: Path) -> None:
    rounds = [turn for number in range(10) for turn in (run_echo(workspace, f"round-{number}"), say("more to do"))]
    talk = await start(rounds)
    await talk.client.submit(SetLoop(True))
    over = await wait_for_loop_end(talk)
    assert (over.state, over.iteration, over.reason) == ("budget_exhausted", 10, "All 10 iterations are used.")
    assert len(talk.all(TurnStarted)) == 10
    assert len(talk.server.requests) == 20


async def test_second_loop_counts_its_iterations_from_one(start: Start) -> None:
    talk = await start([DONE, say("hm"), DONE])
    await talk.client.submit(SetLoop(True, "a"))
    await wait_for_loop_end(talk)
    await talk.client.submit(SetLoop(True, "b"))
    over = await wait_for_loop_end(talk)
    assert (over.goal, over.iteration) == ("b", 2)


async def test_switching_the_loop_off_lets_the_running_turn_end(start: Start) -> None:
    gate = threading.Event()
    talk = await start([say("An answer.").hold(gate), say("not asked for")])
    await talk.client.submit(SetLoop(True))
    await talk.until_live(RequestStarted)
    assert await talk.client.submit(SetLoop(False))
    assert not await talk.client.submit(SetLoop(False))
    assert (await talk.client.get_loop_status()) == LoopStatus()
    gate.set()
    assert (await talk.until_end(talk.all(TurnStarted)[0].id)).reason == "end_turn"
    assert not (await talk.client.snapshot()).executing
    assert len(talk.server.requests) == 1


async def test_an_interrupt_ends_the_iteration_and_the_loop(start: Start) -> None:
    talk = await start([say("An answer.").stall(), say("later")])
    await talk.client.submit(SetLoop(True))
    await until(lambda: talk.server.requests)
    assert await talk.client.submit(Interrupt())
    await talk.until_live(TurnEnded)
    assert talk.all(TurnEnded)[0].reason == "interrupted"
    assert not (await talk.client.snapshot()).executing
    status = await talk.client.get_loop_status()
    assert (status.state, status.reason) == ("idle", "You interrupted it.")
    await talk.say("go on by hand")
    assert len(talk.server.requests) == 2
    assert talk.server.rejected == []


@pytest.mark.parametrize("op", [Interrupt(), SetLoop(False)], ids=["interrupt", "off"])
async def test_interrupt_or_off_at_the_end_of_a_turn_prevents_the_next_iteration(
    start: Start, op: Interrupt | SetLoop
) -> None:
    """A listener that acts on the end of a turn does so before the next one starts."""
    talk = await start([say("hm"), say("never")])
    submitted = asyncio.create_task(_submit_at_turn_end(talk, op))
    await talk.client.submit(SetLoop(True))
    assert await submitted
    over = await wait_for_loop_end(talk)
    assert over.state == "idle"
    assert not (await talk.client.snapshot()).executing
    assert len(talk.all(TurnStarted)) == 1, "the second iteration never started"
    assert (await talk.say("by hand")).reason == "end_turn"
    assert len(talk.server.requests) == 2


async def _submit_at_turn_end(talk: Talk, op: Interrupt | SetLoop) -> bool:
    async with TimeLimit():
        async for envelope in talk.client.stream_events():
            if isinstance(envelope.event, TurnEnded):
                return await talk.client.submit(op)
    return False


async def test_error_ends_the_loop(start: Start) -> None:
    talk = await start([fault(400, message="no such thing")])
    await talk.client.submit(SetLoop(True))
    over = await wait_for_loop_end(talk)
    assert (over.state, over.reason) == ("idle", "The turn ended with an error.")
    assert not (await talk.client.snapshot()).executing


async def test_request_limit_ends_the_loop(start: Start, workspace: Path) -> None:
    talk = await start([run_echo(workspace, f"{number}") for number in range(3)], max_turns=2)
    await talk.client.submit(SetLoop(True))
    over = await wait_for_loop_end(talk)
    assert (over.state, over.reason) == (
        "budget_exhausted",
        "The limit of model requests per prompt was reached.",
    )
    assert len(talk.server.requests) == 2


async def test_budget_ends_the_loop(start: Start, workspace: Path) -> None:
    talk = await start([say("hm"), say("hm"), say("hm")], max_budget_usd=0.000001)
    await talk.client.submit(SetLoop(True))
    over = await wait_for_loop_end(talk)
    assert (over.state, over.reason) == ("budget_exhausted", "The budget is used up.")
    assert (await talk.client.get_loop_status()).cost_usd > 0


async def test_user_prompt_runs_before_the_next_iteration(start: Start) -> None:
    gate = threading.Event()
    talk = await start([say("hm").hold(gate), say("for you"), DONE])
    await talk.client.submit(SetLoop(True))
    await talk.until_live(RequestStarted)
    mine = await talk.submit("a question in between")
    gate.set()
    await talk.until_end(mine)
    over = await wait_for_loop_end(talk)
    assert (over.state, over.iteration) == ("completed", 2)
    assert [event.id for event in talk.all(TurnStarted)][1] == mine


async def test_loop_keeps_the_mode_it_started_in(start: Start) -> None:
    talk = await start([say("hm"), DONE])
    await talk.client.submit(SetLoop(True, mode="plan_mode"))
    await wait_for_loop_end(talk)
    assert [event.mode for event in talk.all(TurnStarted)] == ["plan_mode", "plan_mode"]


async def test_permission_mode_applies_in_loop_mode(start: Start, workspace: Path) -> None:
    talk = await start([edit(workspace), DONE], yes=False, can_ask=False)
    await talk.client.submit(SetPermissionMode("dontAsk"))
    await talk.client.submit(SetLoop(True))
    await wait_for_loop_end(talk)
    assert [event.status for event in talk.all(ToolEnded)] == ["denied"]


async def test_resumed_session_does_not_continue_the_loop(start: Start) -> None:
    gate = threading.Event()
    server = ScriptedServer([say("hm").hold(gate), say("by hand")]).start()
    talk = await start(None, server=server)
    await talk.client.submit(SetLoop(True, "the goal"))
    await until(lambda: server.requests)
    session = (await talk.client.get_info()).session
    await talk.client.close()
    gate.set()
    again = await start(None, server=server, resume=session)
    status = await again.client.get_loop_status()
    assert (status.state, status.goal, status.reason) == ("idle", "", "The session was closed.")
    await again.say("by hand")
    assert len(server.requests) == 2
    assert not (await again.client.snapshot()).executing
    assert server.rejected == []


def test_log_cut_off_in_a_loop_resumes_with_the_loop_off() -> None:
    opened: dict[str, Any] = {"type": "SessionOpened", "cwd": "/", "model": "m", "version": "1"}
    events: list[dict[str, Any]] = [
        opened,
        {"type": "LoopChanged", "state": "executing", "goal": "t", "iteration": 1, "limit": 10},
        {**opened, "resumed": True},
    ]
    folded = [SessionState.fold(_envelopes(events[:count])).loop.status for count in (1, 2, 3)]
    assert folded == [LoopStatus(), LoopStatus("executing", "t", 1, 10), LoopStatus(reason=LOOP_ENDED_BY_RESUME)]


def _envelopes(events: list[dict[str, Any]]) -> list[Envelope]:
    rows = [{"seq": at, "ts": 1.0, "session": "s", "event": event} for at, event in enumerate(events)]
    return [msgspec.convert(row, Envelope) for row in rows]


async def test_prompt_that_does_not_wait_is_refused_during_a_loop(start: Start) -> None:
    gate = threading.Event()
    talk = await start([say("hm").hold(gate), DONE])
    await talk.client.submit(SetLoop(True))
    await talk.until_live(RequestStarted)
    with pytest.raises(SessionBusy):
        await talk.client.submit(Prompt("x", "now", wait=False))
    gate.set()
    await wait_for_loop_end(talk)


def done(summary: str = "built and tested") -> Any:
    return call("Done", {"summary": summary})


def list_done_offers(talk: Talk) -> list[bool]:
    """Return for each request whether the Done tool was offered."""
    return ["Done" in request.tool_names for request in talk.server.requests]


async def test_done_tool_ends_the_loop_and_is_offered_only_in_loop_mode(start: Start, workspace: Path) -> None:
    script = [say("hello"), run_echo(workspace, "x"), done(), say("All is well."), say("bye")]
    talk = await start(script)
    await talk.say("hi")
    await talk.client.submit(SetLoop(True, "all of it"))
    over = await wait_for_loop_end(talk)
    assert (over.state, over.reason, over.iteration) == ("completed", "built and tested", 1)
    await talk.say("hi again")
    assert list_done_offers(talk) == [False, True, True, True, False]
    assert talk.server.rejected == []


async def test_done_tool_is_refused_while_work_is_open_or_unverified(start: Start, workspace: Path) -> None:
    script = [
        todos("pending"),
        done(),
        todos("completed"),
        edit(workspace),
        done(),
        run_echo(workspace, "tested"),
        done("it works"),
        say("There."),
    ]
    talk = await start(script)
    await talk.client.submit(SetLoop(True))
    over = await wait_for_loop_end(talk)
    assert (over.state, over.reason, over.iteration) == ("completed", "it works", 1)
    refused = [text for request in talk.server.requests for text in request.results.values() if "Not done yet" in text]
    assert "1 to-do is open: task 0" in refused[0]
    assert "nothing was run since to verify them" in refused[-1]


async def test_work_after_the_done_tool_is_assessed_too(start: Start, workspace: Path) -> None:
    talk = await start([done(), edit(workspace), say("One more thing."), run_echo(workspace, "tested"), DONE])
    await talk.client.submit(SetLoop(True))
    over = await wait_for_loop_end(talk)
    assert (over.state, over.iteration) == ("completed", 2)
    assert "Verify it now" in talk.all(LoopPrompted)[1].text


async def test_done_tool_says_if_loop_mode_is_off(start: Start) -> None:
    talk = await start([DONE, done(), say("ok")])
    await talk.client.submit(SetLoop(True))
    await wait_for_loop_end(talk)
    await talk.say("hi")
    assert "Loop mode is off" in "".join(talk.server.requests[2].results.values())


@pytest.mark.parametrize(("config", "limit", "most"), [({"loop": {"max_iterations": 2}}, 0, 2), ({}, 3, 3)])
async def test_iteration_limit_can_be_configured(
    start: Start, workspace: Path, config: dict[str, Any], limit: int, most: int
) -> None:
    rounds = [turn for number in range(5) for turn in (run_echo(workspace, f"round-{number}"), say("more"))]
    talk = await start(rounds, config=config)
    await talk.client.submit(SetLoop(True, limit=limit))
    over = await wait_for_loop_end(talk)
    assert (over.state, over.iteration, over.limit) == ("budget_exhausted", most, most)
    assert f"iteration 1 of {most}" in talk.all(LoopPrompted)[0].text


@pytest.mark.parametrize("op", [SetLoop(True, limit=-1), SetLoop(True, limit=1001), SetLoop(True, agent="nobody")])
async def test_invalid_limit_or_agent_is_refused(start: Start, op: SetLoop) -> None:
    talk = await start([])
    with pytest.raises(UsageError):
        await talk.client.submit(op)
    assert talk.server.requests == []


async def test_project_checks_are_named_and_failing_checks_continue_the_loop(start: Start, workspace: Path) -> None:
    (workspace / "Makefile").write_text("test:\n\t@sh check.sh\n")
    (workspace / "check.sh").write_text("exit 1\n")
    fix = call("WriteFile", {"file_path": str(workspace / "check.sh"), "content": "exit 0\n"})
    test = call("ExecuteCommand", {"command": "make test"})
    code = [call("WriteFile", {"file_path": str(workspace / name), "content": "x = 1\n"}) for name in ("a.py", "b.py")]
    talk = await start([code[0], DONE, code[1], test, DONE, fix, test, DONE])
    await talk.client.submit(SetLoop(True))
    over = await wait_for_loop_end(talk)
    assert (over.state, over.iteration) == ("completed", 3)
    texts = [event.text for event in talk.all(LoopPrompted)]
    assert "the project's checks were not run since: `make test`." in texts[1]
    assert "The project's checks did not pass: `make test`." in texts[2]
    assert len(talk.all(TurnStarted)) == 3, "the loop reminds the model, and nothing else does"


async def test_each_agent_has_its_own_loop() -> None:
    recorder = Recorder(None, SessionState("s"), EventBus())
    main, other = (LoopMode(recorder, lambda name: None, agent) for agent in ("", "agent-1"))
    other.switch_on("its part", None, limit=4)
    assert (main.is_active, other.is_active) == (False, True)
    recorder.emit(TurnStarted("t", "x", "edit_mode"))
    recorder.emit(ToolEnded("c1", "LS", "success", "main's"))
    recorder.emit(ToolEnded("c2", "LS", "success", "its own"), "agent-1")
    assert [call.fingerprint for call in recorder.state.get_loop("agent-1").calls] == [hash(("LS", "its own"))]
    prompt = other.make_next_prompt(TurnEnded("t", "end_turn", "hm"), has_due=False)
    assert prompt is not None
    assert "iteration 1 of 4" in prompt.text
    assert _list_states(recorder) == {"": "idle", "agent-1": "executing"}
    assert other.switch_off("enough")
    assert other.get_status() == LoopStatus(reason="enough")


def _list_states(recorder: Recorder) -> dict[str, str]:
    return {agent: recorder.state.get_loop(agent).status.state for agent in ("", "agent-1")}


async def test_export_contains_the_loop(
    start: Start, run_odin: Callable[..., "subprocess.CompletedProcess[str]"]
) -> None:
    talk = await start([say("hm"), DONE])
    await talk.client.submit(SetLoop(True, "the goal"))
    await wait_for_loop_end(talk)
    session = (await talk.client.get_info()).session
    await talk.client.close()
    exported = Path(run_odin("sessions", "export", session).stdout.strip()).read_text()
    assert "/loop on the goal" in exported
    assert "Loop mode, iteration 2 of 10" in exported
    assert "Loop mode: completed. the tests pass" in exported
