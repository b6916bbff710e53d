"""Long conversations against a server that rejects requests above its context window: the session continues."""

import asyncio
import re
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from odin.core.call_events import RequestStarted, UsageRecorded
from odin.core.event import Compacted, CompactionChanged, ResultsPruned, TurnStarted, Warned
from odin.core.event_values import CompactionProfile
from odin.core.op import CancelCompaction, Compact
from odin.testing import ScriptedServer, call, fault, say
from odin.testing.script import SeenRequest, Turn
from odin.ui.slash_commands.reports import format_context
from tests.waiting import TimeLimit

from .conftest import Start, Talk

WINDOW = 20_000
GOOD_SUMMARY = "\n".join(
    f"## {name}\nsomething about it"
    for name in (
        "Goal",
        "User Constraints",
        "Progress",
        "Key Decisions",
        "Files and Evidence",
        "Todo State",
        "SubAgent State",
        "Open Problems",
        "Next Step",
    )
)
MODEL = "claude-sonnet-4-5"


def is_summary(seen: SeenRequest) -> bool:
    return b"odin-job: compaction" in seen.body


def make_config(window: int = WINDOW, **compaction: Any) -> dict[str, Any]:
    models = {MODEL: {"context": window}}
    return {"providers": {"anthropic": {"models": models}}, "compaction": compaction, "max_turns": 0}


Answer = Callable[[SeenRequest, int], Turn]


class ScriptedModel:
    """Answers prompts with `answer`, and requests for a summary with `summary`."""

    def __init__(self, answer: Answer, summary: Turn | None = None) -> None:
        self.answer = answer
        self.summary = summary or say(GOOD_SUMMARY)
        self.asked = 0
        self.summaries = 0

    def __call__(self, seen: SeenRequest) -> Turn:
        if is_summary(seen):
            self.summaries += 1
            return self.summary
        self.asked += 1
        turn = self.answer(seen, self.asked)
        return replace(turn, chunk=turn.chunk or 500)  # few chunks for long answers


def prompt_requests(talk: Talk) -> list[SeenRequest]:
    return [seen for seen in talk.server.requests if not is_summary(seen)]


@pytest.mark.slow
async def test_four_hundred_turns_in_a_small_window(start: Start) -> None:
    """COMP6, B7: the server refuses no request, and each request has the newest prompt word for word."""
    filler = "The build of this module went well and nothing else has to be said about it. " * 8
    model = ScriptedModel(lambda seen, number: say(f"{number}: {filler}"))
    server = ScriptedServer(model, window=WINDOW).start()
    talk = await start(None, server=server, config=make_config())
    for number in range(400):
        ended = await talk.say(f"Prompt number {number}: go on with module {number}.")
        assert ended.reason == "end_turn", ended
    assert server.rejected == []
    assert len(talk.all(Compacted)) >= 3
    for number, seen in enumerate(prompt_requests(talk)):
        assert f"Prompt number {number}: go on" in msgspec.json.encode(seen.messages[-1]).decode()
    last = prompt_requests(talk)[-1].json["system"][-1]["text"]
    assert "## Goal" in last
    assert "history-" in last
    server.stop()


def get_text(seen: SeenRequest) -> str:
    return msgspec.json.encode(seen.messages).decode()


@pytest.mark.slow
async def test_two_hundred_calls_in_one_turn(start: Start, workspace: Path) -> None:
    """B9: the window is checked within a turn. Older results are pruned first; the prompt stays."""
    for number in range(200):
        (workspace / f"f{number}.txt").write_text(f"line {number} of this file says hello\n" * 110)

    def answer(seen: SeenRequest, number: int) -> Turn:
        if number > 200:
            return say("All read.")
        return call("Read", {"file_path": str(workspace / f"f{number - 1}.txt")})

    server = ScriptedServer(ScriptedModel(answer), window=50_000).start()
    talk = await start(None, server=server, config=make_config(50_000))
    ended = await talk.say("Read every one of the files.")
    assert (ended.reason, ended.text) == ("end_turn", "All read.")
    assert server.rejected == []
    assert talk.all(ResultsPruned)
    assert all("Read every one of the files." in get_text(seen) for seen in prompt_requests(talk))
    pruned = talk.all(ResultsPruned)[0]
    assert "line 0 of this file" in Path(pruned.archive).read_text()
    changes = sum(not b.startswith(a[:-400]) for a, b in _consecutive_texts(talk))
    assert changes <= 20, "the prompt cache must not be broken at every step"
    server.stop()


def _consecutive_texts(talk: Talk) -> list[tuple[str, str]]:
    texts = [get_text(seen) for seen in prompt_requests(talk)]
    return list(pairwise(texts))


async def test_result_larger_than_the_window_is_saved_to_a_file(start: Start, workspace: Path) -> None:
    """B7: the result is saved to a file that the model can read in parts, and the model gets its path."""
    (workspace / "big.txt").write_text("".join(f"row {number} of a very long table\n" for number in range(1900)))
    script = iter([call("Read", {"file_path": str(workspace / "big.txt")}), say("I see.")])
    server = ScriptedServer(ScriptedModel(lambda seen, number: next(script)), window=4_500).start()
    talk = await start(None, server=server, config=make_config(4_500))
    ended = await talk.say("What is in the table?")
    assert (ended.reason, ended.text) == ("end_turn", "I see.")
    assert server.rejected == []
    found = re.search(r"removed to save room .*? is in (\S+) under", get_text(prompt_requests(talk)[-1]))
    assert found is not None
    assert "row 1300 of a very long table" in Path(found[1]).read_text()
    server.stop()


async def test_model_may_read_an_archived_result(start: Start, workspace: Path) -> None:
    """The archive is outside the project and no user can be asked; other paths outside stay denied."""
    (workspace / "big.txt").write_text("".join(f"row {number} of a very long table\n" for number in range(1900)))

    def answer(seen: SeenRequest, number: int) -> Turn:
        if number == 1:
            return call("Read", {"file_path": str(workspace / "big.txt")})
        if number == 2:
            found = re.search(r" is in (\S+) under", get_text(seen))
            return call("Read", {"file_path": found[1] if found else "?", "offset": 5, "limit": 3})
        if number == 3:
            return call("Read", {"file_path": "/etc/hostname"})
        return say("Done.")

    server = ScriptedServer(ScriptedModel(answer), window=4_500).start()
    talk = await start(None, server=server, config=make_config(4_500), yes=False)
    await talk.say("What is in the table?")
    results = list(prompt_requests(talk)[-1].results.values())
    assert "row 0 of a very long table" in results[1]
    assert "outside the project" in results[2]
    server.stop()


@pytest.mark.slow
async def test_thirty_images_fit_in_a_small_window(start: Start, workspace: Path) -> None:
    from tests import pictures

    files = [workspace / f"{number}.png" for number in range(30)]
    for number, file in enumerate(files):
        file.write_bytes(pictures.png(400, 300, shade=number, noise=b"%d" % number * 9000))

    def answer(seen: SeenRequest, number: int) -> Turn:
        return call("Read", {"file_path": str(files[number - 1])}) if number <= 30 else say("Seen.")

    server = ScriptedServer(ScriptedModel(answer), window=WINDOW).start()
    talk = await start(None, server=server, config=make_config())
    assert (await talk.say("look at all of them")).text == "Seen."
    assert (await talk.say("and now?")).reason == "end_turn"
    assert server.rejected == []
    server.stop()


BAD_SUMMARIES = {
    "400": fault(400, message="no"),
    "429": fault(429, message="slow down"),
    "500": fault(500, message="down"),
    "empty": say(""),
    "garbage": say("Sure! I would be happy to help you with that."),
    "too long": say(GOOD_SUMMARY + "x " * 30_000),
}


async def test_two_failed_summaries_pause_compaction_for_three_turns(start: Start) -> None:
    """COMP10: the user is warned once; the conversation stays as it is, and compaction is tried again later."""
    large = "The build of this module went well and nothing else has to be said about it. " * 40
    model = ScriptedModel(lambda seen, number: say(large[:500] if model.summaries else large), fault(400))
    server = ScriptedServer(model, window=WINDOW).start()
    talk = await start(None, server=server, config=make_config())

    for _ in range(60):
        await talk.say("Go on.")
        if model.summaries > 2:
            break
    turn, asked, warned = 0, list[int](), list[int]()
    for event in talk.events:
        turn += isinstance(event, TurnStarted)
        if isinstance(event, CompactionChanged) and event.status == "started":
            asked.append(turn)
        if isinstance(event, Warned) and "Summaries failed 2 times" in event.text:
            warned.append(turn)
    assert asked[1] <= warned[0] == asked[2] - 4
    server.stop()


@pytest.mark.slow
@pytest.mark.parametrize("summary", BAD_SUMMARIES.values(), ids=BAD_SUMMARIES.keys())
async def test_failing_summary_model_does_not_stop_the_session(start: Start, summary: Turn) -> None:
    """COMP8, B7: the local summary uses the same headings."""
    filler = "All of this is said in many words that fill the window. " * 20
    model = ScriptedModel(lambda seen, number: say(f"Answer {number}. {filler}"), summary)
    server = ScriptedServer(model, window=WINDOW).start()
    talk = await start(None, server=server, config=make_config())
    for number in range(120):
        assert (await talk.say(f"Prompt number {number}.")).reason == "end_turn"
    assert server.rejected == []
    compacted = talk.all(Compacted)
    assert compacted
    for heading in ("Goal", "User Constraints", "Progress", "Todo State", "SubAgent State", "Next Step"):
        assert f"## {heading}\n" in compacted[-1].text
    assert "Prompt number 0." in compacted[0].text
    failures = [event for event in talk.all(CompactionChanged) if event.status == "failed"]
    assert failures
    assert any("the model is not asked again for 3 turns" in event.text for event in talk.all(Warned))
    server.stop()


async def test_tools_larger_than_the_window_cause_one_clear_error(start: Start) -> None:
    """B8: the error is reported once, and Odin does not try forever."""
    model = ScriptedModel(lambda seen, number: say("never"))
    server = ScriptedServer(model, window=600).start()
    talk = await start(None, server=server, config=make_config(600))
    ended = await talk.say("hello")
    assert (ended.reason, ended.error_kind) == ("error", "CompactionFailed")
    assert re.search(r"system prompt and the tools alone take about [\d,]+ of 600 tokens", ended.error)
    assert len(talk.all(Compacted)) <= 3
    assert len(server.requests) <= 3
    server.stop()


async def test_error_names_a_prompt_that_is_too_long(start: Start) -> None:
    server = ScriptedServer(ScriptedModel(lambda seen, number: say("never")), window=WINDOW).start()
    talk = await start(None, server=server, config=make_config())
    ended = await talk.say("word " * 30_000)
    assert ended.error_kind == "CompactionFailed"
    assert "the last prompt takes about" in ended.error
    assert (await talk.say("something short")).reason == "end_turn"
    server.stop()


async def test_context_limit_of_the_user_beats_catalog_and_server(start: Start) -> None:
    """B10: the user sets 6k, the server has 8k, the catalog says 200k: no request is larger than 6k."""
    filler = "Some more words to fill the window a little. " * 15
    server = ScriptedServer(ScriptedModel(lambda seen, number: say(filler)), window=8_000).start()
    talk = await start(None, server=server, config=make_config(6_000))
    for number in range(60):
        assert (await talk.say(f"Prompt {number}.")).reason == "end_turn"
    assert server.rejected == []
    sizes = [event.usage.input + event.usage.cache_read + event.usage.cache_write for event in talk.all(UsageRecorded)]
    assert max(sizes) <= 6_000
    assert talk.all(Compacted)
    server.stop()


@pytest.mark.parametrize(
    ("settings", "budget", "threshold"),
    [
        ({}, 20_000 - 5_000, 12_000),
        ({"reserved": 5_000}, 10_000, 8_000),
        ({"reserved": 90_000}, 7_500, 6_000),
        ({"threshold": 0}, 15_000, 0),
        ({"threshold": 0.1}, 15_000, 1_500),
    ],
)
async def test_settings_say_when_compaction_starts_and_the_report_shows_the_share_of_the_same_budget(
    start: Start, settings: dict[str, Any], budget: int, threshold: int
) -> None:
    """U8. A quarter of a window of 20,000 tokens is kept for the reply."""
    server = ScriptedServer(ScriptedModel(lambda seen, number: say("word " * 3_000))).start()
    talk = await start(None, server=server, config=make_config(20_000, **settings))
    for number in range(8):
        await talk.say(f"Prompt {number}.")
    report = await talk.client.report_context()
    assert (report.limit, report.budget, report.threshold) == (20_000, budget, threshold)
    assert report.fullness == report.used / budget
    assert f"tokens of {budget:,} (" in format_context(report)
    assert bool(talk.all(Compacted)) == bool(threshold)
    server.stop()


async def test_user_can_set_a_smaller_window_than_a_local_server(start: Start) -> None:
    filler = "Some more words to fill the window a little. " * 15
    model = ScriptedModel(lambda seen, number: say(filler))
    server = ScriptedServer(model, window=8_000, local="llamacpp", models=["qwen3-coder-30b"]).start()
    models = {"qwen3-coder-30b": {"tools": "native", "context": 6_000}}
    config = {"providers": {"house": {"base_url": server.openai_url, "models": models}}}
    talk = await start(None, server=server, config=config, env={"ODIN_MODEL": "house/qwen3-coder-30b"})
    for number in range(40):
        assert (await talk.say(f"Prompt {number}.")).reason == "end_turn"
    assert server.rejected == []
    sizes = [event.usage.input + event.usage.cache_read for event in talk.all(UsageRecorded)]
    assert max(sizes) <= 6_000
    server.stop()


async def test_max_context_applies_to_every_model(start: Start) -> None:
    filler = "Some more words to fill the window a little. " * 15
    server = ScriptedServer(ScriptedModel(lambda seen, number: say(filler)), window=8_000).start()
    talk = await start(None, server=server, config={"max_context": 6_000})
    for number in range(40):
        assert (await talk.say(f"Prompt {number}.")).reason == "end_turn"
    assert server.rejected == []
    assert max(event.usage.input for event in talk.all(UsageRecorded)) <= 6_000
    server.stop()


@pytest.mark.parametrize("kind", ["ollama", "llamacpp", "lmstudio", "vllm"])
async def test_a_configured_local_server_is_asked_for_its_window(start: Start, kind: Any) -> None:
    """B10: address and model are configured, but only the server knows the window."""
    filler = "Some more words to fill the window a little. " * 15
    server = ScriptedServer(
        ScriptedModel(lambda seen, number: say(filler)), window=8_000, local=kind, models=["qwen3-coder-30b"]
    ).start()
    provider = {"base_url": server.openai_url, "models": {"qwen3-coder-30b": {"tools": "native"}}}
    talk = await start(
        None,
        server=server,
        config={"providers": {"house": provider}},
        env={"ODIN_MODEL": "house/qwen3-coder-30b"},
    )
    for number in range(40):
        ended = await talk.say(f"Prompt {number}.")
        assert ended.reason == "end_turn", ended.error
    assert server.rejected == []
    assert talk.all(Compacted)
    server.stop()


@pytest.mark.slow
@pytest.mark.parametrize("api", ["anthropic", "chat", "responses", "gemini"])
async def test_an_unknown_window_is_learned_from_the_refusal(start: Start, api: str) -> None:
    """RECOV6: no window is assumed; the first refusal tells how much fits, and the turn goes on."""
    filler = "Some more words to fill the window a little. " * 40
    server = ScriptedServer(ScriptedModel(lambda seen, number: say(filler)), window=9_000).start()
    name = {"anthropic": "anthropic", "gemini": "google"}.get(api, "openai")
    kind = {"type": f"openai-{api}"} if name == "openai" else {}
    models = {"new-model": {"context": 0, "tools": "native"}}
    talk = await start(
        None,
        api=name,
        server=server,
        config={"providers": {name: {**kind, "models": models}}},
        env={"ODIN_MODEL": f"{name}/new-model"},
    )
    for number in range(60):
        ended = await talk.say(f"Prompt {number}.")
        assert ended.reason == "end_turn", ended.error
    assert 1 <= len(server.rejected) <= 3
    assert all("too long" in why or "context" in why or "token count" in why for _, why in server.rejected)
    assert talk.all(Compacted)[0].trigger == "overflow"
    server.stop()


async def test_turn_ends_after_two_shorter_requests_that_the_server_still_refuses(start: Start) -> None:
    """RECOV6"""
    filler = "Some more words to fill the window a little. " * 40
    too_long = fault(400, message="prompt is too long: 8001 tokens > 8000 maximum", type="invalid_request_error")
    model = ScriptedModel(lambda seen, number: say(filler) if number <= 12 else too_long)
    server = ScriptedServer(model).start()
    talk = await start(None, server=server, config={**make_config(), "max_tokens": 500})
    for _ in range(12):
        assert (await talk.say("Go on.")).reason == "end_turn"
    ended = await talk.say("And now?")
    assert (ended.reason, ended.error_kind) == ("error", "CompactionFailed")
    sizes = [len(seen.body) for seen in prompt_requests(talk)[12:]]
    assert len(sizes) == 3 and sizes == sorted(sizes, reverse=True)
    server.stop()


@pytest.mark.parametrize("summary", [say(GOOD_SUMMARY), fault(500, message="down")], ids=["summaries", "none"])
async def test_number_of_messages_is_limited_for_any_window(start: Start, summary: Turn) -> None:
    """C22: the window is unknown and the server refuses nothing; still the size of requests is limited."""
    models = {"new-model": {"context": 0, "tools": "native"}}
    server = ScriptedServer(ScriptedModel(lambda seen, number: say(f"Answer {number}."), summary)).start()
    talk = await start(
        None,
        server=server,
        config={"providers": {"anthropic": {"models": models}}, "compaction": {"max_messages": 20}},
        env={"ODIN_MODEL": "anthropic/new-model"},
    )
    for number in range(60):
        assert (await talk.say(f"Prompt {number}, with enough words that a summary of many is shorter.")).text
    assert talk.all(Compacted)
    assert max(len(seen.messages) for seen in prompt_requests(talk)) <= 44
    server.stop()


async def test_server_that_truncates_requests_causes_a_warning(start: Start) -> None:
    from odin.core.message import Usage

    filler = "Some more words to fill the window a little. " * 100
    cut = Usage(input=4_096, output=10)
    model = ScriptedModel(lambda seen, number: say(filler, usage=cut if number > 3 else None))
    server = ScriptedServer(model).start()
    talk = await start(None, server=server, config=make_config(100_000))
    for number in range(15):
        await talk.say(f"Prompt {number}.")
    warnings = [event.text for event in talk.all(Warned) if "seems to truncate requests" in event.text]
    assert len(warnings) == 1
    assert "4,096" in warnings[0]
    server.stop()


async def test_request_after_a_manual_compaction_has_the_summary(start: Start) -> None:
    """COMP7, COMP4, COMP9: the summary is in the system prompt, the last exchange is kept, the rest is archived."""
    model = ScriptedModel(lambda seen, number: say(f"Answer {number}. " + "And more words. " * 80))
    server = ScriptedServer(model).start()
    talk = await start(None, server=server, config=make_config(100_000))
    for number in range(6):
        await talk.say(f"Prompt number {number}.")
    assert await talk.client.submit(CancelCompaction()) is False
    assert await talk.client.submit(Compact("the ports"))
    await talk.until(Compacted)
    (question,) = [seen for seen in server.requests if is_summary(seen)]
    assert "Focus on: the ports" in get_text(question)
    await talk.say("And now?")
    last = prompt_requests(talk)[-1]
    assert "## Goal" in last.json["system"][-1]["text"]
    assert "Prompt number 0." not in get_text(last)
    assert "Prompt number 5." in get_text(last)
    (event,) = talk.all(Compacted)
    assert (event.trigger, event.profile) == ("manual", "archival")
    assert event.tokens_after < event.tokens_before
    archive = Path(event.archive).read_text()
    assert "Prompt number 0." in archive
    assert "Answer 3." in archive
    assert server.rejected == []
    server.stop()


@pytest.mark.parametrize(
    ("wanted", "busy", "profile", "kept", "setting"),
    [
        ("auto", False, "archival", [5], "auto"),
        ("auto", True, "continuation", [5, 6], "auto"),
        ("archival", True, "archival", [6], "auto"),
        ("continuation", False, "continuation", [4, 5], "archival"),
        ("auto", False, "continuation", [4, 5], "continuation"),
    ],
)
async def test_profile_sets_the_number_of_kept_turns(
    start: Start, wanted: CompactionProfile, busy: bool, profile: str, kept: list[int], setting: str
) -> None:
    """COMP11: `auto` keeps one turn of an idle session, and `keep_turns` (2) of one that is at work."""
    gate = threading.Event()
    long = "And more words. " * 80
    model = ScriptedModel(
        lambda seen, number: say(long).hold(gate) if "Prompt number 6." in get_text(seen) else say(long)
    )
    server = ScriptedServer(model).start()
    talk = await start(None, server=server, config=make_config(100_000, profile=setting))
    for number in range(6):
        await talk.say(f"Prompt number {number}.")
    if busy:
        await talk.submit("Prompt number 6.")
        await talk.until_live(RequestStarted)
    assert await talk.client.submit(Compact(profile=wanted))
    await asyncio.to_thread(server.wait_for, 7 + busy)
    gate.set()
    await talk.until(Compacted) if not busy else await talk.until_end("p7")
    await talk.say("And now?")
    (event,) = talk.all(Compacted)
    assert (event.trigger, event.profile) == ("manual", profile)
    shown = get_text(prompt_requests(talk)[-1])
    assert [number for number in range(7) if f"Prompt number {number}." in shown] == kept
    server.stop()


async def test_compaction_of_an_empty_session_returns_false(start: Start) -> None:
    talk = await start([say("hi")])
    assert await talk.client.submit(Compact()) is False
    assert not (await talk.client.snapshot()).messages


@pytest.mark.slow
async def test_a_summary_that_would_not_be_shorter_is_not_used(start: Start) -> None:
    """A summary may be longer only because it names its archive, so many lengths are tried."""
    ended = dict[str, int](shorter=0, left=0)
    for words in range(10, 200, 10):
        server = ScriptedServer(ScriptedModel(lambda seen, number, words=words: say("word " * words))).start()
        talk = await start(None, server=server, config=make_config(100_000))
        await talk.say("One.")
        await talk.say("Two.")
        live = talk.client.stream_events()
        assert await talk.client.submit(Compact())
        async with TimeLimit():
            async for envelope in live:
                event = envelope.event
                if isinstance(event, Compacted):
                    assert event.tokens_after < event.tokens_before
                    ended["shorter"] += 1
                    break
                if isinstance(event, CompactionChanged) and event.status == "failed":
                    assert event.detail == "The summary is not shorter."
                    ended["left"] += 1
                    break
        await talk.client.close()
        server.stop()
    assert min(ended.values()) > 0, ended


async def test_running_compaction_can_be_cancelled(start: Start) -> None:
    model = ScriptedModel(
        lambda seen, number: say(f"Answer {number}. " + "More words. " * 80), say(GOOD_SUMMARY).stall()
    )
    server = ScriptedServer(model).start()
    talk = await start(None, server=server, config=make_config(100_000))
    for number in range(4):
        await talk.say(f"Prompt number {number}.")
    assert await talk.client.submit(Compact())
    assert await talk.client.submit(Compact()) is False, "one at a time"
    assert await talk.client.submit(CancelCompaction())
    assert await talk.client.submit(CancelCompaction()) is False
    await talk.say("go on")
    assert talk.all(Compacted) == []
    assert "Prompt number 0." in get_text(prompt_requests(talk)[-1])
    server.stop()
