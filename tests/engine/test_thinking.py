"""Thinking: shown at a bounded rate, stored signed, sent back only where an API requires it (THINK1-5, C21, B6)."""

import asyncio
import itertools
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from odin.core.call_events import (
    Replied,
    ReplyRolledBack,
    TextStreamed,
    ThinkingEnded,
    ThinkingStarted,
    ThinkingStreamed,
    ToolStarted,
)
from odin.core.event import AnyEvent, Compacted, Warned
from odin.core.message import Thinking
from odin.core.op import Compact, Continue, Interrupt, RemoveLastMessage, Rewind, SetModel
from odin.core.provider import ThinkingChunk
from odin.engine.stream import ReasoningStream
from odin.testing import ScriptedServer, call, reply, say
from tests.waiting import TimeLimit

from .conftest import Start, Talk


class SteppedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock the test sets."""

    now = 1000.0

    def time(self) -> float:
        return self.now


THINKERS: dict[str, dict[str, Any]] = {
    "anthropic": {
        "api": "anthropic",
        "model": "anthropic/one",
        "config": {
            "thinking": 2000,
            "providers": {"anthropic": {"models": {name: {"thinking": True} for name in ("one", "two")}}},
        },
    },
    "adaptive": {
        "api": "anthropic",
        "model": "anthropic/anthropic.claude-opus-5-v1:0",
        "config": {},
    },
    "responses": {
        "api": "openai",
        "model": "openai/gpt-5-one",
        "config": {"thinking": 2000, "providers": {"openai": {"type": "openai-responses"}}},
    },
    "gemini": {"api": "google", "model": "google/gemini-3-one", "config": {"thinking": 2000}},
    "chat": {"api": "openai", "model": "openai/one", "config": {"thinking": 2000}},
}
"""Options of sessions with reasoning models, one for each way in which an API wants thinking back."""

OTHER = {
    "anthropic": "anthropic/two",
    "adaptive": "anthropic/anthropic.claude-sonnet-5-v1:0",
    "responses": "openai/gpt-5-two",
    "gemini": "google/gemini-3-two",
    "chat": "openai/two",
}

KINDS = tuple(THINKERS)


def reply_with_thinking(workspace: Path, number: int = 0, hidden: bool = False) -> Any:
    turn = reply(thinking=f"thought {number}", calls=[call("LS", {"path": str(workspace / f"d{number}")})])
    return turn.hiding(f"hidden {number}") if hidden else turn


class TestShown:
    @pytest.mark.parametrize("kind", KINDS)
    async def test_block_has_one_start_event_and_one_end_event_with_its_text(self, start: Start, kind: str) -> None:
        thought = "so it goes, " * 30
        talk = await start([say("4", thinking=thought, chunk=None)], **THINKERS[kind])
        await talk.say("2+2?")
        assert len(talk.all(ThinkingStarted)) == 1
        (ended,) = talk.all(ThinkingEnded)
        assert ended.text == thought
        assert ended.seconds >= 0
        assert "".join(event.text for event in talk.all(ThinkingStreamed)) == thought
        kinds = [type(event) for event in talk.events]
        order = [kinds.index(one) for one in (ThinkingStarted, ThinkingStreamed, ThinkingEnded, TextStreamed, Replied)]
        assert order == sorted(order)

    async def test_deltas_are_joined_and_shown_after_a_short_wait(self) -> None:
        emitted: list[AnyEvent] = []
        shown = asyncio.Event()

        def emit(event: AnyEvent) -> None:
            emitted.append(event)
            if isinstance(event, ThinkingStreamed):
                shown.set()

        thoughts = ReasoningStream(emit)
        for letter in "abcdef":
            thoughts.add_chunk(ThinkingChunk(letter))
        assert emitted == [ThinkingStarted()], "not every delta is shown"
        async with TimeLimit():
            await shown.wait()
        assert emitted[1:] == [ThinkingStreamed("abcdef")], "the text is shown without another delta"
        thoughts.add_chunk(ThinkingChunk("g"))
        thoughts.add_chunk(ThinkingChunk(signature="proof"))
        assert emitted[2] == ThinkingStreamed("g")
        assert isinstance(emitted[3], ThinkingEnded)
        assert emitted[3].text == "abcdefg"
        thoughts.end()
        assert len(emitted) == 4

    def test_thinking_is_shown_a_few_times_a_second_at_any_rate_of_deltas(self) -> None:
        """Three seconds on a clock that the test controls, with a delta every hundredth of a second."""
        emitted: list[tuple[float, AnyEvent]] = []
        loop = SteppedLoop()

        async def think() -> None:
            thoughts = ReasoningStream(lambda event: emitted.append((loop.now, event)))
            for _ in range(300):
                thoughts.add_chunk(ThinkingChunk("x"))
                loop.now += 0.01
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            thoughts.end()

        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(think())
        shown = [at for at, event in emitted if isinstance(event, ThinkingStreamed)]
        assert {round(later - at, 2) for at, later in itertools.pairwise(shown)} == {0.15}
        assert sum(len(event.text) for _, event in emitted if isinstance(event, ThinkingStreamed)) == 300

    async def test_final_text_replaces_the_deltas(self) -> None:
        emitted: list[AnyEvent] = []
        thoughts = ReasoningStream(emitted.append)
        thoughts.add_chunk(ThinkingChunk("abou"))
        thoughts.add_chunk(ThinkingChunk(final="all about it"))
        thoughts.end()
        (ended,) = [event for event in emitted if isinstance(event, ThinkingEnded)]
        assert ended.text == "all about it"

    async def test_thinking_of_a_retried_reply_is_rolled_back(self, start: Start) -> None:
        talk = await start(
            [say("half", thinking="first try", chunk=2).cut(events=6), say("4", thinking="second try")],
            **THINKERS["anthropic"],
        )
        await talk.say("2+2?")
        assert [event.text for event in talk.all(ThinkingEnded)] == ["second try"]
        assert len(talk.all(ReplyRolledBack)) == 1
        assert len(talk.all(ThinkingStarted)) == 2

    async def test_models_without_reasoning_have_no_thinking_events(self, start: Start) -> None:
        talk = await start([say("4")], model="anthropic/claude-3-5-haiku-20241022", config={"thinking": 2000})
        await talk.say("2+2?")
        assert not [event for event in talk.events if type(event).__name__.startswith("Thinking")]
        assert "thinking" not in talk.server.requests[0].json


class TestStored:
    @pytest.mark.parametrize("kind", ["anthropic", "responses"])
    async def test_thinking_is_stored_with_the_signature_of_the_provider(self, start: Start, kind: str) -> None:
        talk = await start([say("4", thinking="two and two")], **THINKERS[kind])
        await talk.say("2+2?")
        (message,) = [event.message for event in talk.all(Replied)]
        (thought,) = [part for part in message.parts if isinstance(part, Thinking)]
        assert thought.text == "two and two"
        assert thought.signature
        assert (message.provider, message.model) == tuple(THINKERS[kind]["model"].split("/"))


class TestSentBack:
    """The strict server rejects thinking of another model and thinking without the rest of its reply."""

    @pytest.mark.parametrize("hidden", [False, True])
    async def test_only_thinking_of_the_running_turn_is_sent_back(
        self, start: Start, workspace: Path, hidden: bool
    ) -> None:
        script = [*(reply_with_thinking(workspace, number, hidden) for number in range(3)), say("ok"), say("done")]
        talk = await start(script, **THINKERS["anthropic"])
        await talk.say("look")
        await talk.say("again")
        assert talk.server.rejected == []
        sent = [[f"thought {n}".encode() in request.body for n in range(3)] for request in talk.server.requests]
        assert sent == [
            [False, False, False],
            [True, False, False],
            [True, True, False],
            [True, True, True],
            [False, False, False],
        ]

    @pytest.mark.parametrize("kind", KINDS)
    async def test_requests_are_valid_after_a_change_of_the_model(
        self, start: Start, workspace: Path, kind: str
    ) -> None:
        numbers = itertools.count()

        def play(seen: Any) -> Any:
            number = next(numbers)
            return (
                say("ok", thinking="fine") if number % 4 == 3 else reply_with_thinking(workspace, number, hidden=True)
            )

        talk = await start(play, **THINKERS[kind])
        await talk.say("one")
        await talk.client.submit(SetModel(OTHER[kind]))
        await talk.say("two")
        await talk.client.submit(SetModel(THINKERS[kind]["model"]))
        await talk.say("three")
        assert talk.server.rejected == []
        assert {request.model for request in talk.server.requests} == {
            ref.partition("/")[2] for ref in (OTHER[kind], THINKERS[kind]["model"])
        }

    @pytest.mark.parametrize("kind", KINDS)
    async def test_requests_are_valid_after_a_change_of_the_model_during_a_turn(
        self, start: Start, workspace: Path, kind: str
    ) -> None:
        talk = await start([reply_with_thinking(workspace, n, True) for n in range(4)] + [say("ok")], **THINKERS[kind])
        models = itertools.cycle([OTHER[kind], THINKERS[kind]["model"]])
        prompt = await talk.submit("go")
        async with TimeLimit():
            async for envelope in talk.client.stream_events(after=-1):
                if isinstance(envelope.event, ToolStarted):
                    await talk.client.submit(SetModel(next(models)))
                if isinstance(envelope.event, Replied) and not envelope.event.message.calls:
                    break
        assert (await talk.until_end(prompt)).text == "ok"
        assert talk.server.rejected == []
        assert len({request.model for request in talk.server.requests}) == 2

    @pytest.mark.parametrize("kind", KINDS)
    async def test_requests_are_valid_after_interrupt_rewind_and_resume(
        self, start: Start, workspace: Path, kind: str
    ) -> None:
        slow = reply(thinking="wait for it", calls=[call("ExecuteCommand", {"command": "sleep 60"})])
        script = [
            reply_with_thinking(workspace, 0),
            slow,
            say("a", thinking="x"),
            reply_with_thinking(workspace, 1),
            slow,
            say("b"),
            say("c"),
        ]
        server = ScriptedServer(script).start()
        talk = await start(None, server=server, **THINKERS[kind])
        await interrupt_in_a_command(talk)
        assert (await talk.say("go on")).text == "a"
        await interrupt_in_a_command(talk)
        await talk.client.submit(Rewind("p2", files=False, chat=True))
        assert (await talk.say("anew")).text == "b"
        session = (await talk.client.get_info()).session
        await talk.client.close()
        again = await start(None, server=server, resume=session, **THINKERS[kind])
        assert (await again.say("and after")).text == "c"
        assert server.rejected == []

    @pytest.mark.parametrize("kind", KINDS)
    async def test_requests_are_valid_after_a_compaction(self, start: Start, workspace: Path, kind: str) -> None:
        numbers = itertools.count()

        def play(seen: Any) -> Any:
            if not seen.tool_names:
                return say("We looked at folders.")
            number = next(numbers)
            if number % 3 < 2:
                return reply_with_thinking(workspace, number, hidden=True)
            # What was said before is clearly longer than a summary of it.
            return say("ok" if number > 8 else "Nothing was there, in none of the folders. " * 40, thinking="fine")

        talk = await start(play, **THINKERS[kind])
        for text in ("one", "two", "three"):
            await talk.say(text)
        after_one = talk.server.requests[2].body.decode()
        await talk.client.submit(Compact())
        await talk.until(Compacted)
        before = len(talk.server.requests)
        assert (await talk.say("four")).text == "ok"
        first, second, _ = talk.server.requests[before:]
        assert b"# Summary of the conversation" in first.body
        if kind != "adaptive":  # it keeps the thinking of the turns that the summary leaves as they are
            assert b"thought" not in first.body, "no thought outlives the messages that the summary replaces"
        assert (b"thought 9" in second.body) is ("thought 1" in after_one), "a later turn keeps its own thinking"
        assert talk.server.rejected == []


async def interrupt_in_a_command(talk: Talk) -> None:
    """Send a prompt and interrupt it during its first command."""
    events = talk.client.stream_events()
    prompt = await talk.submit("look")
    async with TimeLimit():
        async for envelope in events:
            if isinstance(envelope.event, ToolStarted) and envelope.event.name == "ExecuteCommand":
                await talk.client.submit(Interrupt())
                break
    assert (await talk.until_end(prompt)).reason == "interrupted"


class TestThinkingWithoutText:
    @pytest.mark.parametrize("kind", KINDS)
    async def test_interrupted_thinking_leaves_no_message(self, start: Start, kind: str) -> None:
        gate = threading.Event()
        long = say("never", thinking="let me see " * 20).hold(gate, after=6)
        talk = await start([long, say("4"), say("5")], **THINKERS[kind])
        talk.interrupt_on = ThinkingStarted
        ended = await talk.say("2+2?")
        gate.set()
        assert ended.reason == "interrupted"
        assert talk.all(Replied) == []
        assert len(talk.all(ThinkingEnded)) == 1, "the block ends on the screen"
        assert (await talk.say("well?")).text == "4"
        assert b"let me see" not in talk.server.requests[1].body
        assert talk.server.rejected == []

    @pytest.mark.parametrize("kind", ["anthropic", "responses"])
    async def test_continue_works_after_interrupted_thinking(self, start: Start, workspace: Path, kind: str) -> None:
        gate = threading.Event()
        long = say("never", thinking="let me see " * 20).hold(gate, after=6)
        talk = await start([reply_with_thinking(workspace), long, say("4")], **THINKERS[kind])
        prompt = await talk.submit("2+2?")
        async with TimeLimit():
            async for envelope in talk.client.stream_events(after=-1):
                if isinstance(envelope.event, ThinkingStarted) and len(talk.server.requests) == 2:
                    break
        await talk.client.submit(Interrupt())
        await talk.until_end(prompt)
        gate.set()
        assert await talk.client.submit(Continue("c"))
        assert (await talk.until_end("c")).text == "4"
        assert talk.server.rejected == []

    @pytest.mark.parametrize("kind", KINDS)
    async def test_remove_last_message_skips_interrupted_thinking(self, start: Start, kind: str) -> None:
        """The interrupted thinking after `second` is no message, so `second` is the last message."""
        gate = threading.Event()
        long = say("never", thinking="let me see " * 20).hold(gate, after=6)
        talk = await start([say("one", thinking="mused"), long, say("three")], **THINKERS[kind])
        await talk.say("first")
        talk.interrupt_on = ThinkingStarted
        assert (await talk.say("second")).reason == "interrupted"
        gate.set()
        assert await talk.client.submit(RemoveLastMessage())
        assert (await talk.say("third")).text == "three"
        sent = json.dumps(talk.server.requests[-1].messages)
        assert all(word in sent for word in ("first", "one", "third"))
        assert "second" not in sent
        assert "let me see" not in sent
        assert talk.server.rejected == []


class TestCallsInThinking:
    """THINK4: a model that writes a tool call inside its thinking."""

    @staticmethod
    def reply_with_call_in_thinking(workspace: Path, text: str = "") -> Any:
        call = f'I look.\n<tool_call>\n{{"name": "LS", "arguments": {{"path": "{workspace}"}}}}\n</tool_call>'
        return reply(text, thinking=call, stop="end_turn")

    @staticmethod
    def model(**settings: Any) -> dict[str, Any]:
        return {"api": "openai", "model": "openai/m", "config": {"providers": {"openai": {"models": {"m": settings}}}}}

    async def test_call_in_thinking_runs_if_the_reply_has_nothing_else(self, start: Start, workspace: Path) -> None:
        talk = await start([self.reply_with_call_in_thinking(workspace), say("ok")], **self.model())
        assert (await talk.say("look")).text == "ok"
        (ran,) = talk.all(ToolStarted)
        assert (ran.name, ran.args) == ("LS", {"path": str(workspace)})
        assert list(talk.server.requests[1].results) == [ran.call_id]
        assert talk.server.rejected == []

    async def test_call_in_thinking_beside_an_answer_runs_only_if_enabled(self, start: Start, workspace: Path) -> None:
        talk = await start([self.reply_with_call_in_thinking(workspace, "Looking.")], **self.model())
        assert (await talk.say("look")).text == "Looking."
        assert talk.all(ToolStarted) == []
        known = self.model(calls_in_thinking=True, tools="native")
        other = await start([self.reply_with_call_in_thinking(workspace, "Looking."), say("ok")], **known)
        assert (await other.say("look")).text == "ok"
        assert len(other.all(ToolStarted)) == 1

    async def test_call_in_thinking_never_runs_if_disabled(self, start: Start, workspace: Path) -> None:
        talk = await start([self.reply_with_call_in_thinking(workspace)] * 2, **self.model(calls_in_thinking=False))
        await talk.say("look")
        assert talk.all(ToolStarted) == []

    async def test_structured_calls_win_over_calls_in_thinking(self, start: Start, workspace: Path) -> None:
        both = reply(
            thinking=self.reply_with_call_in_thinking(workspace).thinking, calls=[call("Glob", {"pattern": "*"})]
        )
        talk = await start([both, say("ok")], **self.model())
        await talk.say("look")
        assert [event.name for event in talk.all(ToolStarted)] == ["Glob"]

    async def test_malformed_call_in_thinking_is_reported_and_ends_the_turn(self, start: Start) -> None:
        broken = reply(thinking='<tool_call>{"name": "LS", "argum', stop="end_turn")
        talk = await start([broken] * 3, **self.model())
        ended = await talk.say("look")
        assert ended.reason == "end_turn"
        assert len(talk.server.requests) == 1
        (warning,) = talk.all(Warned)
        assert (warning.level, "reasoning" in warning.text) == ("info", True)
        assert not (await talk.client.snapshot()).executing
