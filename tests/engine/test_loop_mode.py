"""Loop mode against the scripted model: it goes on until the goal is reached, and ends whenever it should."""

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

from .conftest import Start, Talk
from .test_prefix import assert_grows
from .test_recovery import APIS, told

DONE = say("All is done.\n<done>the tests pass</done>")
FINAL = ("completed", "blocked", "budget_exhausted", "idle")


async def until_over(talk: Talk) -> LoopChanged:
    """Follow the loop to its end."""
    async with asyncio.timeout(60):
        async for envelope in talk.remaining():
            talk.heard.append(envelope)
            if isinstance(envelope.event, LoopChanged) and envelope.event.state in FINAL:
                return envelope.event
    raise AssertionError("the events ended before the loop did")


async def asked(server: ScriptedServer, count: int = 1) -> None:
    """Wait until the model was asked so many times."""
    async with asyncio.timeout(30):
        while len(server.requests) < count:
            await asyncio.sleep(0.01)


def look(workspace: Path, name: str) -> Any:
    """A call that brings something new, when `name` does."""
    return call("ExecuteCommand", {"command": f"echo {name}"})


def edit(workspace: Path, text: str = "new\n") -> Any:
    return call("WriteFile", {"file_path": str(workspace / "made.txt"), "content": text})


def todos(*statuses: str) -> Any:
    items = [{"id": str(at), "content": f"task {at}", "status": status} for at, status in enumerate(statuses)]
    return call("TodoWrite", {"todos": items})


def states(talk: Talk) -> list[LoopState]:
    return [event.state for event in talk.all(LoopChanged)]


@pytest.mark.parametrize("api", APIS)
async def test_it_goes_on_until_everything_is_done(start: Start, workspace: Path, api: str) -> None:
    script = [
        todos("pending", "pending"),
        say("I wrote a plan."),
        look(workspace, "one"),
        todos("completed", "pending"),
        say("Half of it is done. <done>I think</done>"),
        todos("completed", "completed"),
        DONE,
    ]
    talk = await start(script, **told(api))
    assert await talk.client.submit(SetLoop(True, "reach the moon"))
    over = await until_over(talk)
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
    assert_grows(talk.server.requests)


async def test_the_states_are_told_and_lasting(start: Start, workspace: Path) -> None:
    talk = await start([say("hm"), DONE])
    await talk.client.submit(SetLoop(True))
    await until_over(talk)
    assert states(talk) == ["executing", "executing", "assessing", "executing", "assessing", "completed"]
    status = await talk.client.get_loop_status()
    assert (status.state, status.goal, status.iteration, status.limit) == ("completed", DEFAULT_GOAL, 2, 10)
    assert not status.is_active
    past = [envelope async for envelope in _past(talk)]
    assert SessionState.fold(past).loop.status == LoopStatus("completed", DEFAULT_GOAL, 2, 10, "the tests pass")


async def _past(talk: Talk) -> AsyncGenerator[Envelope]:
    last = (await talk.client.snapshot()).seq
    async for envelope in talk.client.stream_events(after=-1):
        yield envelope
        if envelope.seq >= last:
            return


async def test_it_begins_after_the_turn_that_runs(start: Start) -> None:
    gate = threading.Event()
    talk = await start([say("An answer.").hold(gate), DONE])
    prompt = await talk.submit("go")
    await talk.until_live(RequestStarted)
    await talk.client.submit(SetLoop(True, "all of it"))
    assert (await talk.client.get_loop_status()) == LoopStatus("executing", "all of it", 0, 10)
    gate.set()
    await talk.until_end(prompt)
    over = await until_over(talk)
    assert (over.state, over.iteration) == ("completed", 1)
    assert "The last reply did not say that everything is done." in talk.all(TurnStarted)[1].text


async def test_between_two_turns_it_is_busy(start: Start) -> None:
    talk = await start([say("hm"), DONE])
    await talk.client.submit(SetLoop(True))
    busy: list[bool] = []
    activities: list[str] = []
    async with asyncio.timeout(30):
        async for envelope in talk.remaining():
            if isinstance(envelope.event, TurnEnded):
                busy.append((await talk.client.snapshot()).executing)
            if isinstance(envelope.event, ActivityChanged):
                activities.append(envelope.event.activity)
            if isinstance(envelope.event, LoopChanged) and envelope.event.state == "completed":
                break
    assert busy[0], "the first iteration is over and the second is about to begin"
    assert activities.count("idle") == 0, "it is not told to rest between two of them"
    await talk.until_live(ActivityChanged)
    assert talk.all(ActivityChanged)[-1].activity == "idle"
    assert not (await talk.client.snapshot()).executing


async def test_what_was_changed_is_verified(start: Start, workspace: Path) -> None:
    script = [edit(workspace), DONE, look(workspace, "tested"), DONE]
    talk = await start(script)
    await talk.client.submit(SetLoop(True))
    over = await until_over(talk)
    assert (over.state, over.iteration) == ("completed", 2)
    assert states(talk)[-3:] == ["verifying", "assessing", "completed"]
    assert ("verifying", "2 of 10") in [(event.activity, event.detail) for event in talk.all(ActivityChanged)]
    assert "Verify it now" in talk.all(LoopPrompted)[1].text


async def test_a_command_that_fails_verifies_nothing(start: Start, workspace: Path) -> None:
    failing = call("ExecuteCommand", {"command": "echo broken; false"})
    script = [edit(workspace), failing, DONE, look(workspace, "tested"), DONE]
    talk = await start(script)
    await talk.client.submit(SetLoop(True))
    over = await until_over(talk)
    assert (over.state, over.iteration) == ("completed", 2)
    assert "verifying" in states(talk)


async def test_a_model_that_says_it_did_not_verify_is_asked_to(start: Start) -> None:
    unverified = say("<done>x</done><verify-not-run>there are no tests</verify-not-run>")
    talk = await start([unverified, DONE])
    await talk.client.submit(SetLoop(True))
    assert (await until_over(talk)).state == "completed"
    assert "The work was not verified: there are no tests" in talk.all(LoopPrompted)[1].text


async def test_blocked_ends_it(start: Start) -> None:
    talk = await start([say("<blocked>credential_or_permission_missing: no key for the API</blocked>")])
    await talk.client.submit(SetLoop(True))
    over = await until_over(talk)
    assert (over.state, over.reason) == ("blocked", "credential_or_permission_missing: no key for the API")
    assert len(talk.server.requests) == 1


async def test_words_alone_are_no_progress(start: Start) -> None:
    talk = await start([say("I am on it."), say("Nearly there!"), say("Any moment now.")])
    await talk.client.submit(SetLoop(True))
    over = await until_over(talk)
    assert (over.state, over.iteration) == ("budget_exhausted", 3)
    assert over.reason == "3 rounds in a row made no progress."
    notes = [event.text for event in talk.all(LoopPrompted)]
    assert ["rounds in a row" in text for text in notes] == [False, False, True]
    assert len(talk.server.requests) == 3


async def test_the_same_result_again_is_no_progress(start: Start, workspace: Path) -> None:
    rounds = [turn for _ in range(4) for turn in (look(workspace, "same"), say("hm"))]
    talk = await start(rounds)
    await talk.client.submit(SetLoop(True))
    over = await until_over(talk)
    assert (over.state, over.iteration) == ("budget_exhausted", 4), "the first round was something new"


async def test_ten_iterations_are_all(start: Start, workspace: Path) -> None:
    rounds = [turn for number in range(10) for turn in (look(workspace, f"round-{number}"), say("more to do"))]
    talk = await start(rounds)
    await talk.client.submit(SetLoop(True))
    over = await until_over(talk)
    assert (over.state, over.iteration, over.reason) == ("budget_exhausted", 10, "All 10 iterations are used.")
    assert len(talk.all(TurnStarted)) == 10
    assert len(talk.server.requests) == 20


async def test_switching_it_on_again_gives_ten_more(start: Start) -> None:
    talk = await start([DONE, say("hm"), DONE])
    await talk.client.submit(SetLoop(True, "a"))
    await until_over(talk)
    await talk.client.submit(SetLoop(True, "b"))
    over = await until_over(talk)
    assert (over.goal, over.iteration) == ("b", 2)


async def test_off_lets_the_turn_end_and_nothing_follows(start: Start) -> None:
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
    await asked(talk.server)
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
async def test_what_was_not_begun_yet_is_not_begun(start: Start, op: Interrupt | SetLoop) -> None:
    """A listener that acts on the end of a turn does so before the next one starts."""
    talk = await start([say("hm"), say("never")])
    told = asyncio.create_task(_at_the_end(talk, op))
    await talk.client.submit(SetLoop(True))
    assert await told
    over = await until_over(talk)
    assert over.state == "idle"
    assert not (await talk.client.snapshot()).executing
    assert len(talk.all(TurnStarted)) == 1, "the second iteration was never begun"
    assert (await talk.say("by hand")).reason == "end_turn"
    assert len(talk.server.requests) == 2


async def _at_the_end(talk: Talk, op: Interrupt | SetLoop) -> bool:
    async with asyncio.timeout(30):
        async for envelope in talk.client.stream_events():
            if isinstance(envelope.event, TurnEnded):
                return await talk.client.submit(op)
    return False


async def test_an_error_ends_it(start: Start) -> None:
    talk = await start([fault(400, message="no such thing")])
    await talk.client.submit(SetLoop(True))
    over = await until_over(talk)
    assert (over.state, over.reason) == ("idle", "The turn ended with an error.")
    assert not (await talk.client.snapshot()).executing


async def test_the_limit_of_calls_holds(start: Start, workspace: Path) -> None:
    talk = await start([look(workspace, f"{number}") for number in range(3)], max_turns=2)
    await talk.client.submit(SetLoop(True))
    over = await until_over(talk)
    assert (over.state, over.reason) == (
        "budget_exhausted",
        "The limit of model requests per prompt was reached.",
    )
    assert len(talk.server.requests) == 2


async def test_the_budget_holds(start: Start, workspace: Path) -> None:
    talk = await start([say("hm"), say("hm"), say("hm")], max_budget_usd=0.000001)
    await talk.client.submit(SetLoop(True))
    over = await until_over(talk)
    assert (over.state, over.reason) == ("budget_exhausted", "The budget is used up.")
    assert (await talk.client.get_loop_status()).cost_usd > 0


async def test_somebodys_own_prompt_goes_first(start: Start) -> None:
    gate = threading.Event()
    talk = await start([say("hm").hold(gate), say("for you"), DONE])
    await talk.client.submit(SetLoop(True))
    await talk.until_live(RequestStarted)
    mine = await talk.submit("a question in between")
    gate.set()
    await talk.until_end(mine)
    over = await until_over(talk)
    assert (over.state, over.iteration) == ("completed", 2)
    assert [event.id for event in talk.all(TurnStarted)][1] == mine


async def test_it_keeps_the_mode_it_was_begun_in(start: Start) -> None:
    talk = await start([say("hm"), DONE])
    await talk.client.submit(SetLoop(True, mode="plan_mode"))
    await until_over(talk)
    assert [event.mode for event in talk.all(TurnStarted)] == ["plan_mode", "plan_mode"]


async def test_permissions_hold(start: Start, workspace: Path) -> None:
    talk = await start([look(workspace, "x"), DONE], yes=False, can_ask=False)
    await talk.client.submit(SetPermissionMode("dontAsk"))
    await talk.client.submit(SetLoop(True))
    await until_over(talk)
    assert "x\n" not in [result for request in talk.server.requests for result in request.results.values()]


async def test_a_resume_does_not_go_on_by_itself(start: Start) -> None:
    gate = threading.Event()
    server = ScriptedServer([say("hm").hold(gate), say("by hand")]).start()
    talk = await start(None, server=server)
    await talk.client.submit(SetLoop(True, "the goal"))
    await asked(server)
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


def test_a_log_that_breaks_off_in_a_loop_folds_to_one_that_is_off() -> None:
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


async def test_a_busy_session_takes_it_and_a_prompt_refused_as_busy_stays_refused(start: Start) -> None:
    gate = threading.Event()
    talk = await start([say("hm").hold(gate), DONE])
    await talk.client.submit(SetLoop(True))
    await talk.until_live(RequestStarted)
    with pytest.raises(SessionBusy):
        await talk.client.submit(Prompt("x", "now", wait=False))
    gate.set()
    await until_over(talk)


def done(summary: str = "built and tested") -> Any:
    return call("Done", {"summary": summary})


def offered(talk: Talk) -> list[bool]:
    """Whether the Done tool was offered, by request."""
    return ["Done" in request.tool_names for request in talk.server.requests]


async def test_the_done_tool_ends_it_and_is_offered_only_in_loop_mode(start: Start, workspace: Path) -> None:
    script = [say("hello"), look(workspace, "x"), done(), say("All is well."), say("bye")]
    talk = await start(script)
    await talk.say("hi")
    await talk.client.submit(SetLoop(True, "all of it"))
    over = await until_over(talk)
    assert (over.state, over.reason, over.iteration) == ("completed", "built and tested", 1)
    await talk.say("hi again")
    assert offered(talk) == [False, True, True, True, False]
    assert talk.server.rejected == []


async def test_the_done_tool_passes_the_same_gate(start: Start, workspace: Path) -> None:
    script = [
        todos("pending"),
        done(),
        todos("completed"),
        edit(workspace),
        done(),
        look(workspace, "tested"),
        done("it works"),
        say("There."),
    ]
    talk = await start(script)
    await talk.client.submit(SetLoop(True))
    over = await until_over(talk)
    assert (over.state, over.reason, over.iteration) == ("completed", "it works", 1)
    refused = [text for request in talk.server.requests for text in request.results.values() if "Not done yet" in text]
    assert "1 to-do is open: task 0" in refused[0]
    assert "nothing was run since to verify them" in refused[-1]


async def test_work_after_the_done_tool_is_assessed_too(start: Start, workspace: Path) -> None:
    talk = await start([done(), edit(workspace), say("One more thing."), look(workspace, "tested"), DONE])
    await talk.client.submit(SetLoop(True))
    over = await until_over(talk)
    assert (over.state, over.iteration) == ("completed", 2)
    assert "Verify it now" in talk.all(LoopPrompted)[1].text


async def test_without_loop_mode_the_done_tool_says_so(start: Start) -> None:
    talk = await start([DONE, done(), say("ok")])
    await talk.client.submit(SetLoop(True))
    await until_over(talk)
    await talk.say("hi")
    assert "Loop mode is off" in "".join(talk.server.requests[2].results.values())


@pytest.mark.parametrize(("config", "limit", "most"), [({"loop": {"max_iterations": 2}}, 0, 2), ({}, 3, 3)])
async def test_the_limit_can_be_chosen(
    start: Start, workspace: Path, config: dict[str, Any], limit: int, most: int
) -> None:
    rounds = [turn for number in range(5) for turn in (look(workspace, f"round-{number}"), say("more"))]
    talk = await start(rounds, config=config)
    await talk.client.submit(SetLoop(True, limit=limit))
    over = await until_over(talk)
    assert (over.state, over.iteration, over.limit) == ("budget_exhausted", most, most)
    assert f"iteration 1 of {most}" in talk.all(LoopPrompted)[0].text


@pytest.mark.parametrize("op", [SetLoop(True, limit=-1), SetLoop(True, limit=1001), SetLoop(True, agent="nobody")])
async def test_what_cannot_be_is_refused(start: Start, op: SetLoop) -> None:
    talk = await start([])
    with pytest.raises(UsageError):
        await talk.client.submit(op)
    assert talk.server.requests == []


async def test_known_checks_are_named_and_failing_ones_keep_it_going(start: Start, workspace: Path) -> None:
    (workspace / "Makefile").write_text("test:\n\t@sh check.sh\n")
    (workspace / "check.sh").write_text("exit 1\n")
    fix = call("WriteFile", {"file_path": str(workspace / "check.sh"), "content": "exit 0\n"})
    test = call("ExecuteCommand", {"command": "make test"})
    code = [call("WriteFile", {"file_path": str(workspace / name), "content": "x = 1\n"}) for name in ("a.py", "b.py")]
    talk = await start([code[0], DONE, code[1], test, DONE, fix, test, DONE])
    await talk.client.submit(SetLoop(True))
    over = await until_over(talk)
    assert (over.state, over.iteration) == ("completed", 3)
    texts = [event.text for event in talk.all(LoopPrompted)]
    assert "the project's checks were not run since: `make test`." in texts[1]
    assert "The project's checks did not pass: `make test`." in texts[2]
    assert len(talk.all(TurnStarted)) == 3, "the loop reminds the model, and nothing else does"


async def test_each_agent_has_a_loop_of_its_own() -> None:
    recorder = Recorder(None, SessionState("s"), EventBus())
    main, other = (LoopMode(recorder, lambda name: None, agent) for agent in ("", "agent-1"))
    other.switch_on("its part", None, limit=4)
    assert (main.is_active, other.is_active) == (False, True)
    recorder.emit(TurnStarted("t", "x", "edit_mode"))
    recorder.emit(ToolEnded("c1", "LS", "success", "main's"))
    recorder.emit(ToolEnded("c2", "LS", "success", "its own"), "agent-1")
    assert [call.fingerprint for call in recorder.state.loop_of("agent-1").calls] == [hash(("LS", "its own"))]
    prompt = other.make_next_prompt(TurnEnded("t", "end_turn", "hm"), has_due=False)
    assert prompt is not None
    assert "iteration 1 of 4" in prompt.text
    assert _states_of(recorder) == {"": "idle", "agent-1": "executing"}
    assert other.switch_off("enough")
    assert other.get_status() == LoopStatus(reason="enough")


def _states_of(recorder: Recorder) -> dict[str, str]:
    return {agent: recorder.state.loop_of(agent).status.state for agent in ("", "agent-1")}


async def test_an_export_tells_of_it(start: Start, run_odin: Callable[..., "subprocess.CompletedProcess[str]"]) -> None:
    talk = await start([say("hm"), DONE])
    await talk.client.submit(SetLoop(True, "the goal"))
    await until_over(talk)
    session = (await talk.client.get_info()).session
    await talk.client.close()
    exported = Path(run_odin("sessions", "export", session).stdout.strip()).read_text()
    assert "/loop on the goal" in exported
    assert "Loop mode, iteration 2 of 10" in exported
    assert "Loop mode: completed. the tests pass" in exported
