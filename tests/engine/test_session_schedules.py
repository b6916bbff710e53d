"""`/loop every` and `/at`: prompts of an open session at a time, which somebody can always end."""

import asyncio
from typing import Any, cast

import pytest

from odin.core.errors import UsageError
from odin.core.event import ScheduleChanged, SessionOpened, TurnStarted, Warned
from odin.core.op import AddSchedule, Interrupt, RemoveSchedule
from odin.core.schedule import SessionSchedule
from odin.core.timing import Timing
from odin.engine.client import LocalClient
from odin.testing import ScriptedServer, fault, say
from odin.ui.dangling_work import DanglingWork
from odin.ui.exit import suggest_next_step
from odin.ui.slash_commands.actions import ACTIONS, CommandContext
from tests.engine.conftest import Start, Talk
from tests.gateway.test_schedules import Clock
from tests.waiting import TimeLimit, until

HOUR = 3600.0


def use(clock: Clock) -> dict[str, Any]:
    return {"timing": Timing(clock=clock, schedule_tick_s=0.01)}


def get_schedules(talk: Talk) -> tuple[SessionSchedule, ...]:
    assert isinstance(talk.client, LocalClient)
    return talk.client.session.take_snapshot().schedules


async def wait_for_turns(talk: Talk, count: int) -> list[str]:
    """Return the prompts when there are so many, and all are answered."""
    async with TimeLimit():
        while True:
            shot = await talk.client.snapshot()
            if len(shot.messages) >= count and not shot.executing:
                return [turn.body for turn in shot.messages]
            await asyncio.sleep(0.01)


async def test_again_and_again_and_once(start: Start) -> None:
    clock = Clock()
    talk = await start([say("one"), say("two"), say("now")], **use(clock))
    await talk.client.submit(AddSchedule("check", every="10m", mode="ask_mode", limit=2))
    await talk.client.submit(AddSchedule("go home", at="in 2h", mode="ask_mode"))
    assert [item.id for item in (await talk.client.snapshot()).schedules] == ["1", "2"]
    clock.now += 600
    assert await wait_for_turns(talk, 1) == ["check"]
    clock.now += 2 * HOUR  # the computer slept: what was missed meanwhile comes once
    assert sorted(await wait_for_turns(talk, 3)) == ["check", "check", "go home"]
    await until(lambda: not get_schedules(talk))
    started = await talk.recorded_events(TurnStarted)
    assert {(turn.source, turn.mode) for turn in started} == {("schedule", "ask_mode")}
    ended = [event.reason for event in await talk.recorded_events(ScheduleChanged) if not event.is_on]
    assert sorted(ended) == ["", "It has run 2 times."]


async def test_an_interrupt_ends_it(start: Start) -> None:
    clock = Clock()
    talk = await start([say("slow").delay(20)], **use(clock))
    await talk.client.submit(AddSchedule("check", every="10m"))
    clock.now += 600
    await asyncio.to_thread(talk.server.wait_for, 1)
    clock.now += 600  # it is left out while the session is busy
    await talk.client.submit(Interrupt())
    await talk.until_live(Warned)
    assert talk.all(Warned)[-1].text == "/loop every 10m check has ended. You interrupted it."
    assert (await talk.client.snapshot()).schedules == () and len(talk.server.requests) == 1


async def test_a_resumed_session_asks_nothing(start: Start) -> None:
    """What was missed is said, and ended; a time that is ahead holds."""
    clock, server = Clock(), ScriptedServer([say("later"), say("hi")]).start()
    talk = await start(None, server=server, **use(clock))
    await talk.client.submit(AddSchedule("check", every="10m"))
    await talk.client.submit(AddSchedule("early", at="in 1h"))
    await talk.client.submit(AddSchedule("late", at="in 5h"))
    session = (await talk.client.snapshot()).session
    await talk.client.close()
    clock.now += 2 * HOUR
    again = await start(None, server=server, resume=session, **use(clock))
    assert [item.text for item in (await again.client.snapshot()).schedules] == ["late"]
    shown = DanglingWork()
    async for envelope in again.client.stream_events(after=-1):
        shown.apply(envelope)
        if envelope.seq >= (await again.client.snapshot()).seq:
            break
    assert len([event for event, _ in shown.make_end_events() if isinstance(event, Warned)]) == 1  # of the real clock
    assert server.requests == []
    clock.now += 3 * HOUR
    assert await wait_for_turns(again, 1) == ["late"]
    reasons = [event.reason for event in await again.recorded_events(ScheduleChanged) if not event.is_on]
    assert "`/loop every 10m check` was on when the session ended. It was due at " in reasons[0]
    assert reasons[1].endswith("early` was missed, because the session was closed.")
    assert len(await again.recorded_events(SessionOpened)) == 2


async def test_the_clock_is_set_back(start: Start) -> None:
    clock = Clock()
    talk = await start([say("one")], **use(clock))
    await talk.client.submit(AddSchedule("check", every="10m"))
    clock.now -= 24 * HOUR
    await until(lambda: get_schedules(talk)[0].due < clock.now + 700)
    clock.now += 600
    assert await wait_for_turns(talk, 1) == ["check"]


@pytest.mark.parametrize(
    ("op", "words"),
    [
        (AddSchedule("x", every="10s"), "too short"),
        (AddSchedule("x", at="yesterday"), "Invalid time"),
        (AddSchedule("x"), "one of"),
        (AddSchedule(" ", every="10m"), "needs a prompt"),
        (AddSchedule("x", every="10m", limit=5000), "from 1 to 1000"),
    ],
)
async def test_what_cannot_be_scheduled(start: Start, op: AddSchedule, words: str) -> None:
    talk = await start([])
    with pytest.raises(UsageError, match=words):
        await talk.client.submit(op)
    assert not await talk.client.submit(RemoveSchedule())


async def test_waiting_for_a_rate_limit_of_hours(start: Start) -> None:
    """The turn ends with the command that goes on when the limit is over."""
    clock = Clock()
    limited = fault(429, headers={"retry-after": "7000"}, message="You have used up your limit.")
    talk = await start([limited, say("going on")], **use(clock))
    advice = suggest_next_step(await talk.say("work"))
    assert advice.startswith("`/at in 1h58m continue` goes on when the limit is over. /continue tries again")
    await ACTIONS["at"](CommandContext(talk.client, "edit_mode", cast("Any", None)), "in 1h58m continue")
    clock.now += 7100
    assert await wait_for_turns(talk, 2) == ["work", "continue"]


async def test_the_slash_commands(start: Start) -> None:
    clock = Clock()
    talk = await start([], **use(clock))
    ctx = CommandContext(talk.client, "edit_mode", cast("Any", None))

    async def run(line: str) -> str:
        name, _, rest = line.removeprefix("/").partition(" ")
        return await ACTIONS[name](ctx, rest)

    assert "1. /loop every 10m check the build (next " in await run("/loop every 10m --limit 3 check the build")
    assert "3 to go" in await run("/loop")
    assert "2. /at " in await run("/at in 20m go home")
    assert "go home; 3. /at 2099-01-31 18:00 late" in await run("/at 2099-01-31 18:00 late")
    assert await run("/loop off 1") == "Ended 1 schedule."
    assert await run("/loop off") == "Loop mode is already off."
    assert await run("/at off 2") == "Ended 1 schedule."
    assert await run("/at off") == "Ended 1 schedule."
    assert await run("/at") == "Nothing is scheduled."
    for line, words in (
        ("/at 18:00", "needs a time"),
        ("/loop every 10m", "needs an interval"),
        ("/at off 9", "no schedule"),
    ):
        with pytest.raises(UsageError, match=words):
            await run(line)
