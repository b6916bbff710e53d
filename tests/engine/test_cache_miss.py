"""Why the provider's cache was missed: in the log, in `/usage` and in `odin usage`."""

import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from odin.app.usage import UsagePeriod, report_usage
from odin.commands.usage import format_csv, format_table
from odin.core import debug
from odin.core.call_events import CacheMiss, UsageRecorded
from odin.core.op import Rewind, SetEffort, SetModel, SetSystemPrompt, SetTools
from odin.core.timing import Timing
from odin.testing import ScriptedServer, call, say
from odin.ui.slash_commands.reports import format_stats, format_usage

from .conftest import Start, Talk

OPUS, SONNET, SOL = "anthropic/claude-opus-5-5", "anthropic/claude-sonnet-5-5", "openai/gpt-6-sol"
LONG = "Remember this. " * 300


class Clocks:
    """The time of the session and that of the server, whose cache may forget earlier."""

    def __init__(self) -> None:
        self.ours = self.theirs = 1_000_000.0

    def pass_seconds(self, ours: float, theirs: float) -> None:
        self.ours, self.theirs = self.ours + ours, self.theirs + theirs


async def open_talk(start: Start, clocks: Clocks, model: str, **options: Any) -> Talk:
    server = options.pop("server", None) or ScriptedServer(lambda _: say("Yes."), clock=lambda: clocks.theirs).start()
    api = model.partition("/")[0]
    return await start(None, api, server=server, model=model, timing=Timing(clock=lambda: clocks.ours), **options)


def list_misses(talk: Talk) -> list[CacheMiss | None]:
    return [event.cache_miss for event in talk.all(UsageRecorded) if event.purpose == "main"]


Step = Callable[[Talk, Clocks], Awaitable[object]]


async def wait(talk: Talk, clocks: Clocks, ours: float = 3600.0, theirs: float = 3600.0) -> None:
    clocks.pass_seconds(ours, theirs)


STEPS: dict[str, tuple[Step, str, str]] = {
    "nothing": (lambda talk, clocks: wait(talk, clocks, 60, 60), "", ""),
    "other tools": (lambda talk, _: talk.client.submit(SetTools(("Read",))), "tools", "other tools"),
    "another prompt": (
        lambda talk, _: talk.client.submit(SetSystemPrompt("Be brief.")),
        "system",
        "another system prompt",
    ),
    "effort": (lambda talk, _: talk.client.submit(SetEffort("low")), "settings", "another effort or way of thinking"),
    "model": (lambda talk, _: talk.client.submit(SetModel(OPUS)), "model", "another model"),
    "rewind": (lambda talk, _: talk.client.submit(Rewind("p2", files=False)), "history", "edited history"),
    "an hour": (wait, "expired", "expired"),
    "its end": (lambda talk, clocks: wait(talk, clocks, 60, 3600), "dropped", "dropped by the provider"),
}


@pytest.mark.parametrize(("model", "step"), [*((SONNET, name) for name in STEPS), (SOL, "effort"), (SOL, "an hour")])
async def test_each_cause_of_a_miss_is_named(start: Start, model: str, step: str) -> None:
    clocks = Clocks()
    talk = await open_talk(start, clocks, model)
    for prompt in ("Hello.", LONG, "Go on."):
        await talk.say(prompt)
    act, cause, words = STEPS[step]
    await act(talk, clocks)
    await talk.say(f"And {LONG}")
    assert list_misses(talk)[:3] == [None, None, None]
    found = list_misses(talk)[3]
    last, now = (event.usage for event in talk.all(UsageRecorded)[-2:])
    shot, info = await talk.client.snapshot(), await talk.client.get_info()
    if not cause:
        assert found is None
        assert "Missed" not in format_usage(shot, info, 80)
        return
    assert found is not None
    assert found.cause == cause
    assert found.tokens == min(last.cache_read + last.cache_write - now.cache_read, now.cache_write) > 900
    line = f"Missed in the provider's cache: {words}: {found.tokens:,} tokens."
    assert line in format_usage(shot, info, 80)
    report = report_usage(os.environ, cwd=info.cwd, period=UsagePeriod())
    assert line in format_table(report)
    assert line in format_stats(report, "overview", 80)
    assert format_csv(report).rstrip().endswith(f",{found.tokens}")


async def test_a_resumed_session_compares_with_what_its_log_says_was_sent(start: Start) -> None:
    clocks = Clocks()
    talk = await open_talk(start, clocks, SONNET)
    for prompt in (LONG, "Go on."):
        await talk.say(prompt)
    session = (await talk.client.get_info()).session
    await talk.client.close()
    again = await open_talk(start, clocks, SONNET, server=talk.server, resume=session)
    await again.say("Once more.")
    await again.client.close()
    last = await open_talk(start, clocks, SONNET, server=talk.server, resume=session, disallowed_tools=("Grep",))
    await last.say("And again.")
    assert list_misses(again) == [None]
    (miss,) = list_misses(last)
    assert miss is not None and miss.cause == "tools"


async def test_agents_are_compared_each_with_its_own_requests(start: Start) -> None:
    task = call("AgentTool", {"description": "look", "prompt": LONG})
    script = [say("Hello."), task, say("Nothing there."), say("It found nothing."), say("Yes.")]
    server = ScriptedServer(script).start()
    talk = await start(None, server=server, model=SONNET)
    for prompt in ("Hello.", LONG, "Go on."):
        await talk.say(prompt)
    assert {envelope.agent for envelope in talk.heard if isinstance(envelope.event, UsageRecorded)} == {"", "agent-1"}
    assert not any(list_misses(talk))


async def test_the_debug_log_has_the_cause(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    entries: list[Any] = []

    def write(kind: str, fields: dict[str, Any]) -> None:
        entries.append(fields.get("event"))

    monkeypatch.setattr(debug, "write", write)
    clocks = Clocks()
    talk = await open_talk(start, clocks, SONNET)
    await talk.say(LONG)
    clocks.pass_seconds(301, 301)
    await talk.say("Go on.")
    causes = [entry.cache_miss.cause for entry in entries if isinstance(entry, UsageRecorded) and entry.cache_miss]
    assert causes == ["expired"]
