"""Requests repeat earlier bytes exactly, so that every provider finds them in its cache (B30)."""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from odin.core.call_events import ReplyDiscarded, RetryScheduled, TextStreamed, ToolStarted
from odin.core.op import AddContext
from odin.engine import agent
from odin.testing import ScriptedServer, call, fault, reply, say
from odin.testing.script import SeenRequest

from .conftest import Start
from .test_recovery import APIS, told


def parts(seen: SeenRequest) -> tuple[str, list[str]]:
    """The start of every request and the conversation, one string per message."""
    body = dict(seen.json)
    talk = body.pop("messages", None) or body.pop("input")
    head = {key: body[key] for key in ("tools", "system", "instructions") if key in body}
    if talk[0]["role"] == "system":
        head["system"], *talk = talk
    return json.dumps(head), [json.dumps(message) for message in talk]


def assert_grows(requests: Sequence[SeenRequest], *, same_head: bool = True) -> None:
    assert len(requests) > 1
    for earlier, later in itertools.pairwise(requests):
        (head, talk), (next_head, next_talk) = parts(earlier), parts(later)
        assert next_talk[: len(talk)] == talk, "what was said before has changed"
        assert not same_head or head == next_head, "the tools or the system prompt have changed"
        if same_head:
            assert later.body.startswith(earlier.body.rstrip(b"]}")), "the bytes before have changed"


@pytest.mark.parametrize("api", APIS)
class TestBytes:
    async def test_within_a_turn_and_from_turn_to_turn(self, start: Start, workspace: Path, api: str) -> None:
        (workspace / "a").write_text("x\n")
        script = [
            reply(
                "Looking.", [call("Read", {"file_path": str(workspace / "a")}), call("LS", {"path": str(workspace)})]
            ),
            call("EditTool", {"file_path": str(workspace / "a"), "old_string": "x", "new_string": "y"}),
            call("Nonsense", {"x": 1}),
            call("ExecuteCommand", {"command": "echo hi; false"}),
            say("first"),
            call("TodoWrite", {"todos": [{"id": "1", "content": "do it", "status": "pending"}]}),
            say("second"),
        ]
        talk = await start(script, **told(api))
        await talk.say("one")
        await talk.client.submit(AddContext("something to know", path="notes.md"))
        await talk.say("two")
        assert talk.server.rejected == []
        assert_grows(talk.server.requests)

    async def test_after_a_resume_also_of_a_cut_loop(self, start: Start, workspace: Path, api: str) -> None:
        (workspace / "a").write_text("x\n")
        look = call("Read", {"file_path": str(workspace / "a")})
        server = ScriptedServer([look, call("ExecuteCommand", {"command": "sleep 60"}), say("on"), say("end")]).start()
        talk = await start(None, server=server, **told(api))
        prompt = await talk.submit("one")
        async for envelope in talk.client.stream_events(after=-1):
            if isinstance(envelope.event, ToolStarted) and envelope.event.name == "ExecuteCommand":
                break
        session = (await talk.client.get_info()).session
        await talk.client.close()
        assert prompt
        again = await start(None, server=server, resume=session, **told(api))
        await again.say("two")
        await again.say("three")
        assert server.rejected == []
        assert_grows(server.requests)

    async def test_after_an_interrupt_a_retry_and_a_discarded_reply(
        self, start: Start, workspace: Path, api: str
    ) -> None:
        script = [
            say("half of it", chunk=2).cut(events=5),
            fault(503),
            call("WriteFile", '{"file_path": "/x'),
            reply("", [call("WriteFile", '{"file_path": "/x')], stop="max_tokens"),
            call("LS", {"path": str(workspace)}),
            say("one"),
            say("a long story " * 40, chunk=5).pace(0.01),
            say("three"),
        ]
        talk = await start(script, **told(api))
        await talk.say("one")
        assert len(talk.all(RetryScheduled)) == 2
        assert len(talk.all(ReplyDiscarded)) == 2
        talk.interrupt_on = TextStreamed
        assert (await talk.say("two")).reason == "interrupted"
        await talk.say("three")
        assert talk.server.rejected == []
        assert_grows(talk.server.requests)

    async def test_when_the_day_changes(self, start: Start, api: str, monkeypatch: pytest.MonkeyPatch) -> None:
        talk = await start([say("one"), say("two"), say("three")], **told(api))
        await talk.say("one")
        monkeypatch.setattr(agent, "format_today", lambda: "2031-01-01")
        await talk.say("two")
        await talk.say("three")
        assert_grows(talk.server.requests)
        assert [b"2031-01-01" in request.body for request in talk.server.requests] == [False, True, True]

    async def test_in_another_mode_the_conversation_stays_and_the_old_head_comes_back(
        self, start: Start, api: str
    ) -> None:
        """Each mode has tools and a prompt of its own, so the head changes with it, and only then."""
        talk = await start([say(text) for text in ("one", "two", "three", "four")], **told(api))
        for mode in ("edit_mode", "plan_mode", "edit_mode", "plan_mode"):
            await talk.say("go", mode)  # pyright: ignore[reportArgumentType]
        assert_grows(talk.server.requests, same_head=False)
        heads = [parts(request)[0] for request in talk.server.requests]
        assert heads[0] == heads[2]
        assert heads[1] == heads[3]


async def test_the_order_of_tools_is_the_same_in_every_session(start: Start) -> None:
    names: list[Any] = []
    for _ in range(2):
        talk = await start([say("hi")])
        await talk.say("hello")
        names.append(talk.server.requests[0].tool_names)
    assert names[0] == names[1]
