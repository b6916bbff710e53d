"""Compaction with different modes, models and servers, and while the user interrupts, rewinds or cancels."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from odin.compaction import worker
from odin.compaction.worker import make_compacted_event
from odin.core.call_events import RequestStarted, ToolEnded, ToolStarted, UsageRecorded
from odin.core.event import Compacted, CompactionChanged, ResultsPruned
from odin.core.event_values import Mode
from odin.core.message import Usage
from odin.core.op import CancelCompaction, Compact, Interrupt, Rewind
from odin.testing import EmulatedLocal, ScriptedServer, call, reply, say
from odin.testing.script import SeenRequest, Turn

from .conftest import Start
from .test_compaction import GOOD_SUMMARY, WINDOW, ScriptedModel, get_text, is_summary, make_config, prompt_requests

FILLER = "All of this is said in many words that fill the window. " * 20
MODES: tuple[Mode, ...] = ("ask_mode", "plan_mode", "edit_mode")


def make_reader(file: Path, **answers: Any) -> ScriptedModel:
    """Return a model that reads a part of the file twice for each prompt, then answers at length."""
    file.write_text("some words in a long file\n" * 100)

    def answer(seen: SeenRequest, number: int) -> Turn:
        if number % 3 == 0:
            return say(f"Answer {number}. {FILLER}", **answers)
        return reply("", [call("Read", {"file_path": str(file), "offset": 1 + number % 50})], **answers)

    return ScriptedModel(answer)


@pytest.mark.slow
async def test_system_prompt_after_a_summary_names_only_the_current_mode(start: Start) -> None:
    """A summary made in one mode must not name that mode in another."""
    server = ScriptedServer(
        ScriptedModel(lambda seen, number: say(f"Answer {number}. {FILLER}")), window=WINDOW
    ).start()
    talk = await start(None, server=server, config=make_config())
    for number in range(60):
        assert (await talk.say(f"Prompt number {number}.", MODES[number % 3])).reason == "end_turn"
    assert server.rejected == []
    assert talk.all(Compacted)
    for number, seen in enumerate(prompt_requests(talk)):
        system = str(seen.json["system"])
        assert re.findall(r"# Mode: (\w+)", system) == [MODES[number % 3].removesuffix("_mode")]
    server.stop()


@pytest.mark.slow
@pytest.mark.parametrize("window", [9_000, 60_000])
@pytest.mark.parametrize("kind", ["anthropic", "vllm"])
async def test_request_and_longest_reply_fit_in_the_window_together(
    start: Start, workspace: Path, kind: str, window: int
) -> None:
    """Some servers refuse a request if it and the longest reply it allows exceed the window together."""
    model = make_reader(workspace / "f.txt", thinking="let me see " * 100)
    models = {"m": {"context": window, "thinking": True, "tools": "native"}}
    if kind == "vllm":
        server = ScriptedServer(model, window=window, local="vllm", models=["m"]).start()
        providers: dict[str, Any] = {"house": {"base_url": server.openai_url, "models": models}}
    else:
        server = ScriptedServer(model, window=window).start()
        providers = {"anthropic": {"models": models}}
    name = next(iter(providers))
    config = {"providers": providers, "thinking": 40_000}
    talk = await start(None, server=server, config=config, env={"ODIN_MODEL": f"{name}/m"})
    for number in range(30):
        ended = await talk.say(f"Prompt number {number}.")
        assert ended.reason == "end_turn", ended.error
    assert server.rejected == []
    assert talk.all(Compacted) or talk.all(ResultsPruned)
    used = [event.usage for event in talk.all(UsageRecorded) if event.purpose == "main"]
    for usage, seen in zip(used, prompt_requests(talk), strict=True):
        assert usage.input + usage.cache_read + usage.cache_write + seen.json["max_tokens"] <= window
        assert seen.json["max_tokens"] >= min(8_192, window // 5)
    server.stop()


@pytest.mark.parametrize("api", ["anthropic", "chat"])
async def test_window_holds_for_a_server_that_reports_no_usage(start: Start, api: str) -> None:
    """Without usage the sizes are estimates."""
    model = ScriptedModel(
        lambda seen, number: say(f"Answer {number}. {FILLER}", usage=Usage()), say(GOOD_SUMMARY, usage=Usage())
    )
    server = ScriptedServer(model, window=WINDOW).start()
    name = "anthropic" if api == "anthropic" else "openai"
    provider: dict[str, Any] = {"models": {"m": {"context": WINDOW, "tools": "native"}}}
    if api != "anthropic":
        provider["type"] = f"openai-{api}"
    talk = await start(
        None, api=name, server=server, config={"providers": {name: provider}}, env={"ODIN_MODEL": f"{name}/m"}
    )
    for number in range(60):
        assert (await talk.say(f"Prompt number {number}.")).reason == "end_turn"
    assert server.rejected == []
    assert talk.all(Compacted)
    assert all(event.estimated for event in talk.all(UsageRecorded)), "the usage is recorded as an estimate"
    report = await talk.client.report_context()
    assert (report.measured, 0 < report.used <= WINDOW) == (False, True)
    assert talk.all(RequestStarted)[-1].tokens > 2_000
    server.stop()


@pytest.mark.slow
async def test_json_tool_calls_in_a_small_window(start: Start, workspace: Path) -> None:
    """A local model without native tool calls, whose server reports its small window."""
    server = ScriptedServer(
        make_reader(workspace / "f.txt"), window=8_192, local=EmulatedLocal("ollama", tools=False), models=["tiny"]
    ).start()
    provider = {"base_url": server.openai_url, "models": {"tiny": {"tools": "json"}}}
    talk = await start(None, server=server, config={"providers": {"house": provider}}, env={"ODIN_MODEL": "house/tiny"})
    for number in range(30):
        ended = await talk.say(f"Prompt number {number}.")
        assert ended.reason == "end_turn", ended.error
        assert f"Prompt number {number}." in get_text(prompt_requests(talk)[-1])
    assert server.rejected == []
    assert talk.all(Compacted)
    assert talk.all(ResultsPruned)
    server.stop()


async def test_finished_summary_can_be_cancelled_before_it_is_applied(start: Start) -> None:
    """COMP7: the summary is made while a command runs, and can be cancelled until it is applied."""
    answers = [say(f"Answer {number}. {FILLER}") for number in range(4)]
    script = iter([*answers, call("ExecuteCommand", {"command": "sleep 60"}), say("Done.")])
    server = ScriptedServer(ScriptedModel(lambda seen, number: next(script))).start()
    talk = await start(None, server=server, config=make_config(100_000))
    for number in range(4):
        await talk.say(f"Prompt number {number}.")
    assert (await talk.client.report_context()).compacting is False
    turn = await talk.submit("wait")
    await talk.until_live(ToolStarted)
    assert await talk.client.submit(Compact())
    await talk.until_live(UsageRecorded)
    await asyncio.sleep(0.1)
    assert (await talk.client.report_context()).compacting is True, "the summary is made, but not applied"
    assert await talk.client.submit(CancelCompaction()) is True
    assert (await talk.client.report_context()).compacting is False
    assert await talk.client.submit(CancelCompaction()) is False
    await talk.client.submit(Interrupt())
    await talk.until_end(turn)
    await talk.say("go on")
    assert talk.all(Compacted) == []
    assert "Prompt number 0." in get_text(prompt_requests(talk)[-1])
    assert [event.status for event in talk.all(CompactionChanged)] == ["started", "cancelled"]
    server.stop()


async def test_summary_of_rewound_turns_is_not_applied(start: Start) -> None:
    """The summary is made while a command runs; then the turn is interrupted and the session is rewound."""
    answers = [say(f"Answer {number}. {FILLER}") for number in range(6)]
    script = iter([*answers[:5], call("ExecuteCommand", {"command": "sleep 60"}), *answers, say("Done.")])
    server = ScriptedServer(ScriptedModel(lambda seen, number: next(script))).start()
    talk = await start(None, server=server, config=make_config(100_000))
    for number in range(5):
        await talk.say(f"Prompt number {number}.")
    turn = await talk.submit("wait")
    await talk.until_live(ToolStarted)
    assert await talk.client.submit(Compact())
    await talk.until_live(UsageRecorded)
    await talk.client.submit(Interrupt())
    await talk.until_end(turn)
    last = (await talk.client.snapshot()).messages[4].id
    await talk.client.submit(Rewind(last))
    for number in range(4):
        await talk.say(f"Another prompt {number}.")
    assert talk.all(Compacted) == []
    assert "Another prompt 0." in get_text(prompt_requests(talk)[-1])
    server.stop()


async def test_pruned_file_must_be_read_again_before_an_edit(start: Start, workspace: Path) -> None:
    for number in range(12):
        (workspace / f"f{number}.txt").write_text(f"line {number} of this file says hello\n" * 160)
    reads = [call("Read", {"file_path": str(workspace / f"f{number}.txt")}) for number in range(12)]
    edit = {"file_path": str(workspace / "f0.txt"), "old_string": "line", "new_string": "row", "replace_all": True}
    script = iter([*reads, call("EditTool", edit), say("Not yet.")])
    server = ScriptedServer(ScriptedModel(lambda seen, number: next(script)), window=WINDOW).start()
    talk = await start(None, server=server, config=make_config())
    await talk.say("go")
    assert talk.all(ResultsPruned)
    assert talk.all(ToolEnded)[-1].status == "error"
    assert (workspace / "f0.txt").read_text().startswith("line 0")
    assert talk.all(Compacted) == []
    server.stop()


async def test_summary_for_an_unknown_window_takes_one_request(start: Start) -> None:
    """A usual window is assumed for an unknown model, not a tiny one."""
    model = ScriptedModel(lambda seen, number: say(f"Answer {number}. {FILLER}"))
    server = ScriptedServer(model).start()
    config = {"providers": {"anthropic": {"models": {"new-model": {"context": 0, "tools": "native"}}}}}
    talk = await start(None, server=server, config=config, env={"ODIN_MODEL": "anthropic/new-model"})
    for number in range(8):
        await talk.say(f"Prompt number {number}.")
    assert await talk.client.submit(Compact())
    await talk.until(Compacted)
    (asked,) = [seen for seen in server.requests if is_summary(seen)]
    assert "Answer 1." in get_text(asked) and "Answer 5." in get_text(asked)
    assert asked.json["max_tokens"] > 2_000
    server.stop()


async def test_summary_of_equal_length_is_not_used(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    def as_long(*args: Any) -> Compacted:
        event = make_compacted_event(*args)
        return replace(event, tokens_after=event.tokens_before)

    monkeypatch.setattr(worker, "make_compacted_event", as_long)
    server = ScriptedServer(ScriptedModel(lambda seen, number: say(f"Answer {number}. {FILLER}"))).start()
    talk = await start(None, server=server, config=make_config(100_000))
    for number in range(3):
        await talk.say(f"Prompt number {number}.")
    assert await talk.client.submit(Compact())
    await talk.until_live(CompactionChanged)
    await talk.until_live(CompactionChanged)
    assert [event.status for event in talk.all(CompactionChanged)] == ["started", "failed"]
    assert talk.all(Compacted) == []
    server.stop()
