"""Speculative calls: which calls start before the reply ends, in which order, and with which result."""

import asyncio
from pathlib import Path
from threading import Event as Gate
from typing import Any, ClassVar

import pytest

from odin.core.call_events import (
    CallDiscarded,
    CallQueued,
    CallSpeculated,
    Replied,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
)
from odin.core.event import CheckpointSaved, FilesChanged
from odin.core.op import Interrupt
from odin.core.tool import Args, Tool, ToolContext, ToolOutput
from odin.testing import call, reply, say
from tests.waiting import TimeLimit, until

from .conftest import Start
from .speculation import (
    ONE_PIECE,
    describe_events,
    finish_turn,
    hold_after_calls,
    is_running,
    list_discard_reasons,
    read,
    reply_with_calls,
    run,
    write,
)
from .test_turn import list_tool_results

_CALL_EVENTS = (CallSpeculated, CallDiscarded, CheckpointSaved, FilesChanged, Replied, ToolStarted, ToolEnded)


class TestStart:
    async def test_a_file_is_written_before_the_reply_ends(self, start: Start, workspace: Path) -> None:
        gate = Gate()
        talk = await start(
            [hold_after_calls(reply_with_calls(write(workspace / "new.txt", "hello\n")), gate), say("ok")]
        )
        prompt = await talk.submit("go")
        await talk.until(FilesChanged)
        assert (workspace / "new.txt").read_text() == "hello\n"
        ended = await finish_turn(talk, prompt, gate)
        assert ended.text == "ok"
        assert describe_events(talk, _CALL_EVENTS) == [
            "CallSpeculated w",
            "CheckpointSaved w",
            "FilesChanged w",
            "Replied",
            "ToolStarted w",
            "ToolEnded w",
            "Replied",
        ]
        assert talk.all(CallDiscarded) == []
        ((_, text, is_error),) = list_tool_results(talk.server.requests[1].json)
        assert "Created" in text and not is_error

    @pytest.mark.parametrize("api", ["anthropic", "openai", "responses"])
    async def test_call_starts_with_every_api_when_its_arguments_are_complete(
        self, start: Start, workspace: Path, api: str
    ) -> None:
        """In Chat Completions the arguments of a call are complete when the next call starts."""
        gate = Gate()
        (workspace / "a.txt").write_text("from a\n")
        turn = reply(calls=[run("cat a.txt", "c1"), run("pwd", "c2")], chunk=ONE_PIECE)
        after = {"anthropic": 10, "openai": 4, "responses": 6}[api]
        env = {"ODIN_MODEL": "openai/gpt-5"} if api == "responses" else {}
        config = {"providers": {"openai": {"type": "openai-responses"}}} if api == "responses" else {}
        wire: Any = "anthropic" if api == "anthropic" else "openai"
        talk = await start([turn.hold(gate, after=after), say("ok")], wire, env=env, config=config)
        prompt = await talk.submit("go")
        await talk.until(CallSpeculated)
        await finish_turn(talk, prompt, gate)
        assert talk.all(CallSpeculated)[0] == CallSpeculated("c1", "ExecuteCommand", {"command": "cat a.txt"})
        assert [event.call_id for event in talk.all(ToolEnded)] == ["c1", "c2"]
        assert "from a" in talk.all(ToolEnded)[0].text
        assert {request.api for request in talk.server.requests} == {{"openai": "chat"}.get(api, api)}
        assert talk.server.rejected == []

    async def test_read_only_commands_run_in_parallel(self, start: Start, workspace: Path) -> None:
        looking = [run(f"sleep 41.{n}", f"c{n}") for n in range(3)]
        talk = await start([hold_after_calls(reply_with_calls(*looking), Gate())])
        prompt = await talk.submit("go")
        await until(lambda: all(is_running(f"41.{n}") for n in range(3)))
        await talk.client.submit(Interrupt())
        await talk.until_end(prompt)
        assert not any(is_running(f"41.{n}") for n in range(3))

    async def test_at_most_four_speculative_calls_run_at_once(self, start: Start, workspace: Path) -> None:
        gate = Gate()
        looking = [run(f"sleep 30 && echo {n}", f"c{n}") for n in range(6)]
        talk = await start([hold_after_calls(reply_with_calls(*looking), gate), say("ok")])
        prompt = await talk.submit("go")
        started: set[str] = set()
        async with TimeLimit():
            async for envelope in talk.client.stream_events(after=-1):
                if isinstance(envelope.event, CallSpeculated):
                    started.add(envelope.event.call_id)
                if len(started) == 4:
                    break
        for _ in range(100):
            await asyncio.sleep(0)
        talk.interrupt_on = Replied
        await finish_turn(talk, prompt, gate)
        assert len(talk.all(CallSpeculated)) == 4
        assert {event.call_id for event in talk.all(CallDiscarded)} == started

    async def test_no_call_is_speculated_if_speculation_is_switched_off(self, start: Start, workspace: Path) -> None:
        gate = Gate()
        script = [hold_after_calls(reply_with_calls(read(workspace / "a"), run("pwd")), gate), say("ok")]
        talk = await start(script, config={"speculate": False})
        (workspace / "a").write_text("x\n")
        await finish_turn(talk, await talk.submit("go"), gate)
        assert talk.all(CallSpeculated) == []
        assert len(talk.all(ToolEnded)) == 2

    async def test_progress_of_a_speculative_call_is_not_shown_before_its_start_event(
        self, start: Start, workspace: Path
    ) -> None:
        gate = Gate()
        talk = await start([hold_after_calls(reply_with_calls(run("echo one; sleep 0.3; echo two")), gate), say("ok")])
        prompt = await talk.submit("go")
        await talk.until(CallSpeculated)
        await finish_turn(talk, prompt, gate)
        kinds = [type(event) for event in talk.events if isinstance(event, ToolStarted | ToolProgressed)]
        assert kinds[0] is ToolStarted


class Curious(Tool[Args]):
    """A custom tool of kind `read`."""

    name = "Curious"
    kind = "read"
    short = "Reads."
    args: ClassVar[type[Args]] = Args

    async def run(self, args: Args, ctx: ToolContext) -> ToolOutput:
        return ToolOutput("seen")


class Harmless(Curious):
    """A custom tool that declares that it may be speculated."""

    name = "Harmless"

    def can_speculate(self, args: Args) -> bool:
        return True


class TestEligibility:
    async def find_speculated(self, start: Start, turn: Any, after: int, **options: Any) -> list[str]:
        """Return the calls that start before their reply ends; wrong ones have time to start after the first."""
        gate = Gate()
        talk = await start([turn.hold(gate, after=after), say("ok")], **options)
        prompt = await talk.submit("go")
        await talk.until(CallSpeculated)
        for _ in range(200):
            await asyncio.sleep(0.001)
        await finish_turn(talk, prompt, gate)
        assert talk.server.rejected == []
        return [event.call_id for event in talk.all(CallSpeculated)]

    @pytest.mark.parametrize(
        ("name", "args"),
        [
            ("ExecuteCommand", {"command": "touch made", "run_in_background": True}),
            ("ExecuteCommand", {"command": "pwd", "run_in_background": True}),
            ("Spawn", {"command": "sleep 5"}),
            ("TodoWrite", {"todos": [{"id": "1", "content": "x", "status": "pending"}]}),
            ("Question", {"questions": [{"question": "?", "header": "h", "options": [{"label": "a"}]}]}),
            ("AgentTool", {"description": "look", "prompt": "Look around."}),
            ("SaveArtifact", {"name": "n", "content": "c"}),
            ("WebFetch", {"url": "http://127.0.0.1:9/", "prompt": "p"}),
            ("NoSuchTool", {"x": 1}),
            ("Read", {"nothing": "fits"}),
            ("Curious", {}),
        ],
    )
    async def test_ineligible_calls_are_not_speculated(
        self, start: Start, workspace: Path, name: str, args: dict[str, Any]
    ) -> None:
        turn = reply_with_calls(run("pwd", "first"), call(name, args, id="second"), run("pwd", "third"))
        options = {"own_tools": [Curious()], "allowed_tools": ("WebFetch(domain:127.0.0.1)",)}
        speculated = await self.find_speculated(start, turn, 14, **options)
        assert speculated == ["first"], "no call is speculated after one that was not"

    async def test_custom_tool_can_declare_that_it_may_be_speculated(self, start: Start) -> None:
        turn = reply_with_calls(run("pwd", "first"), call("Harmless", {}, id="second"), run("pwd", "third"))
        assert await self.find_speculated(start, turn, 13, own_tools=[Harmless()]) == ["first", "second", "third"]

    async def test_call_that_needs_approval_is_not_speculated(self, start: Start, workspace: Path) -> None:
        turn = reply_with_calls(run("pwd", "first"), write(workspace / "new", "x"))
        assert await self.find_speculated(start, turn, 10, yes=False) == ["first"]
        assert not (workspace / "new").exists()

    async def test_denied_call_is_not_speculated(self, start: Start, workspace: Path) -> None:
        turn = reply_with_calls(run("pwd", "first"), read(workspace / "secret"))
        options = {"config": {"rules": [{"action": "deny", "tool": "Read", "pattern": "**/secret"}]}}
        (workspace / "secret").write_text("x\n")
        assert await self.find_speculated(start, turn, 10, **options) == ["first"]

    async def test_command_is_speculated_in_a_view_and_none_after_it(self, start: Start, workspace: Path) -> None:
        turn = reply_with_calls(run("pwd", "first"), run("echo x >made", "second"), run("cat made", "third"))
        assert await self.find_speculated(start, turn, 14) == ["first", "second"]
        assert (workspace / "made").read_text() == "x\n"

    async def test_command_that_is_asked_about_is_not_speculated(self, start: Start, workspace: Path) -> None:
        turn = reply_with_calls(run("pwd", "first"), run("echo x >made", "second"))
        assert await self.find_speculated(start, turn, 10, yes=False) == ["first"]
        assert not (workspace / "made").exists()

    async def test_no_call_is_speculated_after_a_change(self, start: Start, workspace: Path) -> None:
        turn = reply_with_calls(
            write(workspace / "a", "x", "a"), read(workspace / "b", "b"), write(workspace / "c", "x", "c")
        )
        (workspace / "b").write_text("x\n")
        assert await self.find_speculated(start, turn, 14) == ["a"]

    async def test_second_call_about_the_same_file_is_not_speculated(self, start: Start, workspace: Path) -> None:
        (workspace / "a").write_text("x\n")
        (workspace / "link").symlink_to("a")
        turn = reply_with_calls(read(workspace / "a", "one"), read(workspace / "link", "two"))
        assert await self.find_speculated(start, turn, 10) == ["one"]

    async def test_change_after_a_failed_command_is_not_speculated(self, start: Start, workspace: Path) -> None:
        turn = reply_with_calls(run("ls nothing-there", "fails"), write(workspace / "new", "x"))
        assert await self.find_speculated(start, turn, 10) == ["fails"]
        assert not (workspace / "new").exists()

    async def test_change_is_not_speculated_without_checkpoints(self, start: Start, workspace: Path) -> None:
        turn = reply_with_calls(run("pwd", "first"), write(workspace / "new", "x"))
        options = {"config": {"checkpoints": {"enabled": False}}}
        assert await self.find_speculated(start, turn, 10, **options) == ["first"]

    async def test_change_of_a_large_file_is_not_speculated(self, start: Start, workspace: Path) -> None:
        (workspace / "big").write_bytes(b"x" * 4_000_001)
        turn = reply_with_calls(
            run("pwd", "first"), call("Delete", {"paths": [str(workspace / "big")], "reason": "r"}, id="d")
        )
        assert await self.find_speculated(start, turn, 10) == ["first"]


class TestOrder:
    async def test_change_waits_for_the_reads_before_it(self, start: Start, workspace: Path) -> None:
        """The command reads the file late and must not see the change of the next call."""
        gate = Gate()
        (workspace / "a.txt").write_text("old\n")
        turn = reply_with_calls(
            read(workspace / "b.txt", "r"), run("sleep 0.3; cat a.txt", "c"), write(workspace / "a.txt", "new\n")
        )
        (workspace / "b.txt").write_text("b\n")
        talk = await start([hold_after_calls(turn, gate), say("ok")], config={"read_before_edit": False})
        prompt = await talk.submit("go")
        await talk.until(FilesChanged)
        assert (workspace / "a.txt").read_text() == "new\n"
        await finish_turn(talk, prompt, gate)
        assert [event.call_id for event in talk.all(ToolEnded)] == ["r", "c", "w"]
        assert "old" in talk.all(ToolEnded)[1].text
        assert talk.all(CallDiscarded) == []

    async def test_the_model_reads_each_result_once(self, start: Start, workspace: Path) -> None:
        gate = Gate()
        (workspace / "a").write_text("of a\n")
        turn = reply_with_calls(read(workspace / "a"), run("pwd"), write(workspace / "b", "x\n"))
        talk = await start([hold_after_calls(turn, gate), say("ok")])
        prompt = await talk.submit("go")
        await talk.until(FilesChanged)
        await finish_turn(talk, prompt, gate)
        assert [found[0] for found in list_tool_results(talk.server.requests[1].json)] == ["r", "c", "w"]
        assert talk.server.rejected == []

    async def test_read_only_calls_of_a_complete_reply_run_in_parallel(self, start: Start, workspace: Path) -> None:
        """Four calls run at a time; the others are reported as queued."""
        looking = [run(f"sleep 42.{n}", f"c{n}") for n in range(6)]
        talk = await start([reply_with_calls(*looking)], config={"speculate": False})
        prompt = await talk.submit("go")
        await until(lambda: all(is_running(f"42.{n}") for n in range(4)))
        assert not is_running("42.4") and not is_running("42.5")
        await talk.client.submit(Interrupt())
        await talk.until_end(prompt)
        assert [event.call_id for event in talk.all(CallQueued)] == ["c4", "c5"]

    async def test_waiting_call_is_reported_as_queued(self, start: Start, workspace: Path) -> None:
        talk = await start([reply_with_calls(run("touch a", "one"), run("touch b", "two")), say("ok")])
        await talk.say("go")
        kinds = (CallQueued, ToolStarted, ToolEnded)
        assert describe_events(talk, kinds) == [
            "CallQueued two",
            "ToolStarted one",
            "ToolEnded one",
            "ToolStarted two",
            "ToolEnded two",
        ]

    async def test_read_only_calls_after_a_failed_command_run(self, start: Start, workspace: Path) -> None:
        talk = await start([reply_with_calls(run("ls nowhere", "a"), run("pwd", "b"), run("touch c", "c")), say("ok")])
        await talk.say("go")
        assert [event.status for event in talk.all(ToolEnded)] == ["error", "success", "cancelled"]

    async def test_repetition_guard_counts_a_call_once_and_discards_the_fifth(
        self, start: Start, workspace: Path
    ) -> None:
        """Four identical calls are in one reply; the fifth, in the next reply, is speculated and then refused."""
        gate = Gate()
        four = reply_with_calls(*(run("pwd", f"c{number}") for number in range(4)))
        talk = await start([four, hold_after_calls(reply_with_calls(run("pwd", "again")), gate), say("ok")])
        prompt = await talk.submit("go")
        async with TimeLimit():
            async for envelope in talk.client.stream_events(after=-1):
                if isinstance(envelope.event, CallSpeculated) and envelope.event.call_id == "again":
                    break
        await finish_turn(talk, prompt, gate)
        assert [event.status for event in talk.all(ToolEnded)] == ["success"] * 4 + ["error"]
        assert "loop detected" in talk.all(ToolEnded)[4].text
        assert list_discard_reasons(talk) == [("again", "repetition")]
        assert "again" not in [event.call_id for event in talk.all(ToolStarted)]

    async def test_file_read_by_a_speculative_call_may_be_edited(self, start: Start, workspace: Path) -> None:
        gate = Gate()
        (workspace / "a").write_text("one\n")
        edit = call("EditTool", {"file_path": str(workspace / "a"), "old_string": "one", "new_string": "two"}, id="e")
        talk = await start(
            [hold_after_calls(reply_with_calls(read(workspace / "a")), gate), reply_with_calls(edit), say("ok")]
        )
        prompt = await talk.submit("go")
        await talk.until(CallSpeculated)
        await finish_turn(talk, prompt, gate)
        assert (workspace / "a").read_text() == "two\n"
        assert list_discard_reasons(talk) == []
