"""Each request repeats the bytes of the request before it, so that prompt caches of providers work (B30)."""

import itertools
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from odin.core.call_events import ReplyDiscarded, RetryScheduled, TextStreamed, ToolStarted
from odin.core.op import AddContext
from odin.core.timing import Timing
from odin.testing import ScriptedServer, call, fault, reply, say
from odin.testing.script import SeenRequest

from .conftest import Start
from .test_recovery import APIS, make_options


def split_request(seen: SeenRequest) -> tuple[str, list[str]]:
    """Return the head (tools and system prompt) and the conversation, one string per message."""
    body = dict(seen.json)
    talk = body.pop("messages", None) or body.pop("input")
    head = {key: body[key] for key in ("tools", "system", "instructions") if key in body}
    if talk[0]["role"] == "system":
        head["system"], *talk = talk
    return json.dumps(head), [json.dumps(message) for message in talk]


def assert_requests_extend(requests: Sequence[SeenRequest], *, same_head: bool = True) -> None:
    assert len(requests) > 1
    for earlier, later in itertools.pairwise(requests):
        (head, talk), (next_head, next_talk) = split_request(earlier), split_request(later)
        assert next_talk[: len(talk)] == talk, "an earlier message has changed"
        assert not same_head or head == next_head, "the tools or the system prompt have changed"
        if same_head:
            assert later.body.startswith(earlier.body.rstrip(b"]}")), "earlier bytes have changed"


@pytest.mark.parametrize("api", APIS)
class TestRequestPrefix:
    async def test_prefix_is_kept_within_a_turn_and_between_turns(
        self, start: Start, workspace: Path, api: str
    ) -> None:
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
        talk = await start(script, **make_options(api))
        await talk.say("one")
        await talk.client.submit(AddContext("something to know", path="notes.md"))
        await talk.say("two")
        assert talk.server.rejected == []
        assert_requests_extend(talk.server.requests)

    async def test_prefix_is_kept_after_resuming_a_cut_off_turn(self, start: Start, workspace: Path, api: str) -> None:
        (workspace / "a").write_text("x\n")
        look = call("Read", {"file_path": str(workspace / "a")})
        server = ScriptedServer([look, call("ExecuteCommand", {"command": "sleep 60"}), say("on"), say("end")]).start()
        talk = await start(None, server=server, **make_options(api))
        await talk.submit("one")
        async for envelope in talk.client.stream_events(after=-1):
            if isinstance(envelope.event, ToolStarted) and envelope.event.name == "ExecuteCommand":
                break
        session = (await talk.client.get_info()).session
        await talk.client.close()
        again = await start(None, server=server, resume=session, **make_options(api))
        await again.say("two")
        await again.say("three")
        assert server.rejected == []
        assert_requests_extend(server.requests)

    async def test_prefix_is_kept_after_interrupt_retry_and_discarded_reply(
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
        talk = await start(script, **make_options(api))
        await talk.say("one")
        assert len(talk.all(RetryScheduled)) == 2
        assert len(talk.all(ReplyDiscarded)) == 2
        talk.interrupt_on = TextStreamed
        assert (await talk.say("two")).reason == "interrupted"
        await talk.say("three")
        assert talk.server.rejected == []
        assert_requests_extend(talk.server.requests)

    async def test_prefix_is_kept_when_the_date_changes(self, start: Start, api: str) -> None:
        now = time.mktime((2030, 12, 31, 12, 0, 0, 0, 0, -1))
        script = [say("one"), say("two"), say("three")]
        talk = await start(script, **make_options(api), timing=Timing(clock=lambda: now))
        await talk.say("one")
        now += 86_400
        await talk.say("two")
        await talk.say("three")
        assert_requests_extend(talk.server.requests)
        assert [b"2031-01-01" in request.body for request in talk.server.requests] == [False, True, True]

    async def test_each_mode_keeps_its_head_and_all_modes_share_the_conversation(self, start: Start, api: str) -> None:
        """Each mode has its own tools and prompt, so the head changes only with the mode."""
        talk = await start([say(text) for text in ("one", "two", "three", "four")], **make_options(api))
        for mode in ("edit_mode", "plan_mode", "edit_mode", "plan_mode"):
            await talk.say("go", mode)  # pyright: ignore[reportArgumentType]
        assert_requests_extend(talk.server.requests, same_head=False)
        heads = [split_request(request)[0] for request in talk.server.requests]
        assert heads[0] == heads[2]
        assert heads[1] == heads[3]


async def test_the_order_of_tools_is_the_same_in_every_session(start: Start) -> None:
    names: list[Any] = []
    for _ in range(2):
        talk = await start([say("hi")])
        await talk.say("hello")
        names.append(talk.server.requests[0].tool_names)
    assert names[0] == names[1]
