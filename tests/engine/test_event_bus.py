"""EventBus: the order of events, dropped events, and subscriptions by broker and by name."""

import asyncio
import re
from pathlib import Path

from odin.core import errors
from odin.core.call_events import (
    ActivityChanged,
    CallStreamed,
    PermissionAsked,
    QuestionsAsked,
    TextStreamed,
    ToolEnded,
    ToolStarted,
)
from odin.core.event import AnyEvent, Envelope, TurnEnded, TurnStarted
from odin.core.event_values import Question
from odin.core.op import Op
from odin.engine.event_bus import EventBus
from tests.waiting import within_limit


def envelope(event: AnyEvent, seq: int = 0) -> Envelope:
    return Envelope(seq, 0.0, "s", event)


async def test_every_subscriber_gets_all_events_in_order() -> None:
    bus = EventBus()
    one, two = bus.subscribe(), bus.subscribe()
    for text in "abc":
        bus.publish(envelope(TextStreamed(text)))
    bus.close()
    for subscription in (one, two):
        heard = [item.event async for item in subscription]
        assert heard == [TextStreamed("a"), TextStreamed("b"), TextStreamed("c")]


async def test_a_waiting_reader_is_woken() -> None:
    bus = EventBus()
    subscription = bus.subscribe()
    reader = asyncio.create_task(anext(subscription))
    await asyncio.sleep(0)
    bus.publish(envelope(TextStreamed("x")))
    assert (await within_limit(reader)).event == TextStreamed("x")


async def test_slow_reader_drops_and_counts_the_overflow() -> None:
    bus = EventBus()
    slow = bus.subscribe()
    for number in range(100):
        bus.publish(envelope(TextStreamed(str(number))))
    assert slow.dropped == 36
    bus.close()
    assert [item.event async for item in slow] == [TextStreamed(str(number)) for number in range(64)]


async def test_turn_ends_and_requests_to_the_user_are_never_dropped() -> None:
    bus = EventBus()
    slow = bus.subscribe()
    for number in range(64):
        bus.publish(envelope(TextStreamed(str(number))))
    kept = [
        PermissionAsked("a", "c", "Edit", {}, "why"),
        QuestionsAsked("q", "c", (Question("h", "which?"),)),
        TurnEnded("t", "end_turn"),
    ]
    for event in kept:
        bus.publish(envelope(event))
    bus.close()
    heard = [item.event async for item in slow]
    assert heard[-3:] == kept
    assert slow.dropped == 3


async def test_durable_reader_drops_only_events_that_are_not_logged() -> None:
    bus = EventBus()
    reader = bus.subscribe(size=4, durable=True)
    for number in range(10):
        bus.publish(envelope(TextStreamed(str(number))))
        bus.publish(envelope(TurnStarted(str(number), "x", "ask_mode"), number))
    bus.close()
    heard = [item.event async for item in reader]
    assert [event.id for event in heard if isinstance(event, TurnStarted)] == [str(number) for number in range(10)]
    assert reader.dropped > 0


async def test_durable_reader_gets_a_whole_text_in_fewer_chunks() -> None:
    bus = EventBus()
    reader = bus.subscribe(size=4, durable=True)
    for number in range(50):
        bus.publish(envelope(TextStreamed(f"{number} ")))
    bus.publish(envelope(TurnEnded("t", "end_turn")))
    bus.close()
    heard = [item.event async for item in reader]
    text = "".join(event.text for event in heard if isinstance(event, TextStreamed))
    assert text.split() == [str(number) for number in range(50)]
    assert len(heard) <= 5


async def test_durable_reader_gets_all_call_arguments_in_fewer_chunks() -> None:
    bus = EventBus()
    reader = bus.subscribe(size=4, durable=True)
    for number in range(50):
        bus.publish(envelope(CallStreamed("c", "Write", f"{number} ")))
    bus.close()
    heard = [item.event async for item in reader]
    json = "".join(event.json_delta for event in heard if isinstance(event, CallStreamed))
    assert json.split() == [str(number) for number in range(50)]
    assert len(heard) <= 4


async def test_subscription_can_select_tool_or_agent_events() -> None:
    bus = EventBus()
    tools, agent = bus.subscribe("tool"), bus.subscribe("agent")
    started, ended = ToolStarted("c", "Read", {}), ToolEnded("c", "Read", "success", "x")
    for event in (TextStreamed("hi"), started, ended):
        bus.publish(envelope(event))
    bus.close()
    assert [item.event async for item in tools] == [started, ended]
    assert [item.event async for item in agent] == [TextStreamed("hi")]


def test_activity_goes_to_all_observers_at_once() -> None:
    bus = EventBus()
    one, two = ActivityChanged("connecting"), ActivityChanged("streaming")
    heard: list[list[ActivityChanged]] = [[], [], []]
    first, second, third = (to.append for to in heard)
    bus.replace_observer(None, first)
    bus.replace_observer(None, second)
    bus.publish(envelope(one))
    bus.replace_observer(first, third)
    bus.publish(envelope(two))
    assert [[event.activity for event in to] for to in heard] == [
        ["connecting"],
        ["connecting", "streaming"],
        ["streaming"],
    ]


async def test_subscription_can_select_event_names() -> None:
    bus = EventBus()
    some = bus.subscribe(names=("tool_result", "agent_idle"))
    for event in (ToolStarted("c", "LS", {}), ToolEnded("c", "LS", "success", "x"), ActivityChanged("idle")):
        bus.publish(envelope(event))
    bus.close()
    heard = [item.event async for item in some]
    assert heard == [ToolEnded("c", "LS", "success", "x"), ActivityChanged("idle")]


def test_events_page_names_only_existing_events() -> None:
    page = (Path(__file__).parents[2] / "docs" / "events.md").read_text(encoding="utf-8")
    documented = {
        name
        for line in page.splitlines()
        if line.startswith("| ") and " | " in line
        for name in re.findall(r"`([A-Z]\w+)`", line.split(" | ", 1)[1])
    }
    known = {kind.__name__ for kind in (*AnyEvent.__args__, *Op.__args__)} | set(vars(errors))
    assert len(documented) > 60
    assert documented <= known
