"""The call pipeline: parallel calls, permission requests, and results for the model and the user."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from odin.app import open_session
from odin.config import Options
from odin.core.call_events import PermissionAnswered, PermissionAsked, ToolEnded, ToolProgressed
from odin.core.event import AnyEvent
from odin.core.message import ToolCall
from odin.core.op import AnswerPermission
from odin.core.tool import Args, Registry, Target, Tool, ToolContext, ToolOutput
from odin.engine.call import AfterStep, BeforeStep, CallDeps, CallScope, CallSteps
from odin.engine.call_text import MAX_CHARS, MAX_LINES, bound_text
from odin.engine.event_bus import EventBus
from odin.engine.hooks import HookInbox
from odin.engine.interactions import Interactions
from odin.engine.limits import RepetitionGuard
from odin.engine.pipeline import CallPipeline
from odin.engine.recorder import Recorder
from odin.session.state import SessionState
from odin.testing import ScriptedServer, call, reply, say
from tests.policy.policies import make_policy
from tests.waiting import TimeLimit

from .conftest import Start, Talk
from .test_turn import list_tool_results


class ProbeArgs(Args, frozen=True):
    n: int = 0


Action = Callable[[int, ToolContext], Awaitable[ToolOutput]]


class Probe(Tool[ProbeArgs]):
    """A scripted tool."""

    name = "Probe"
    kind = "read"
    short = "Does what the test says."
    args: ClassVar[type[Args]] = ProbeArgs

    def __init__(self, action: Action) -> None:
        self._action = action

    async def run(self, args: ProbeArgs, ctx: ToolContext) -> ToolOutput:
        return await self._action(args.n, ctx)


class Work(Probe):
    """A scripted tool that may change things."""

    name = "Work"
    kind = "execute"


class Change(Probe):
    """A scripted tool that changes the file with the number `n % 10`."""

    name = "Change"
    kind = "edit"

    def get_target(self, args: ProbeArgs) -> Target:
        return Target(paths=(f"/tmp/file-{args.n % 10}",))


class Alone(Change):
    """A change that never runs beside another call."""

    name = "Alone"
    exclusive = True


def reply_with_probes(count: int, name: str = "Probe") -> Any:
    """Return one reply with `count` calls that differ in their number."""
    return reply(calls=[call(name, {"n": number}, id=f"id_{number}") for number in range(count)])


StartWith = Callable[..., Awaitable[Talk]]


@pytest.fixture
async def start_with(workspace: Path) -> AsyncIterator[StartWith]:
    """start_with(tool, script) opens a session with this tool and the standard ones."""
    talks: list[Talk] = []

    async def begin(tool: Tool[Any], script: Any) -> Talk:
        server = ScriptedServer(script).start()
        env = {**os.environ, **server.env("anthropic")}
        client = await open_session(Options(cwd=str(workspace), yes=True, env=env), tools=[tool])
        talks.append(Talk(client, server))
        return talks[-1]

    yield begin
    for talk in talks:
        await talk.client.close()
        talk.server.stop()


class TestOrder:
    async def test_calls_that_only_read_run_at_the_same_time(self, start_with: StartWith) -> None:
        together = asyncio.Barrier(3)

        async def meet(n: int, ctx: ToolContext) -> ToolOutput:
            async with TimeLimit():
                await together.wait()
            return ToolOutput(f"met {n}")

        talk = await start_with(Probe(meet), [reply_with_probes(3), say("ok")])
        assert (await talk.say("go")).text == "ok"
        assert list_tool_results(talk.server.requests[1].json) == [(f"id_{n}", f"met {n}", False) for n in range(3)]

    async def test_calls_that_may_change_things_run_one_after_the_other(self, start_with: StartWith) -> None:
        seen: list[str] = []

        async def work(n: int, ctx: ToolContext) -> ToolOutput:
            seen.append(f"begin {n}")
            await asyncio.sleep(0.01 * (3 - n))
            seen.append(f"end {n}")
            return ToolOutput("done")

        talk = await start_with(Work(work), [reply_with_probes(3, "Work"), say("ok")])
        await talk.say("go")
        assert seen == [f"{what} {n}" for n in range(3) for what in ("begin", "end")]

    async def test_changes_of_different_files_run_at_the_same_time(self, start_with: StartWith) -> None:
        together = asyncio.Barrier(3)

        async def meet(n: int, ctx: ToolContext) -> ToolOutput:
            async with TimeLimit():
                await together.wait()
            return ToolOutput(f"met {n}")

        talk = await start_with(Change(meet), [reply_with_probes(3, "Change"), say("ok")])
        await talk.say("go")
        assert list_tool_results(talk.server.requests[1].json) == [(f"id_{n}", f"met {n}", False) for n in range(3)]

    @pytest.mark.parametrize(("kind", "numbers"), [(Change, (0, 10, 20)), (Alone, (0, 1, 2))])
    async def test_changes_of_one_file_and_exclusive_calls_run_one_by_one(
        self, start_with: StartWith, kind: type[Change], numbers: tuple[int, ...]
    ) -> None:
        seen: list[str] = []

        async def work(n: int, ctx: ToolContext) -> ToolOutput:
            seen.append(f"begin {n}")
            await asyncio.sleep(0.01)
            seen.append(f"end {n}")
            return ToolOutput("done")

        calls = reply(calls=[call(kind.name, {"n": n}, id=f"id_{n}") for n in numbers])
        talk = await start_with(kind(work), [calls, say("ok")])
        await talk.say("go")
        assert seen == [f"{what} {n}" for n in numbers for what in ("begin", "end")]

    async def test_two_sub_agents_work_at_the_same_time(self, start_with: StartWith) -> None:
        together = asyncio.Barrier(2)

        async def meet(n: int, ctx: ToolContext) -> ToolOutput:
            async with TimeLimit():
                await together.wait()
            return ToolOutput("met")

        tasks = [call("AgentTool", {"description": f"task {n}", "prompt": "Probe."}, id=f"task_{n}") for n in range(2)]
        probe = call("Probe", {"n": 1})
        talk = await start_with(Probe(meet), [reply(calls=tasks), probe, probe, say("one"), say("two"), say("ok")])
        assert (await talk.say("go")).text == "ok"

    async def test_only_reads_run_after_a_failed_command(self, start_with: StartWith, workspace: Path) -> None:
        async def look(n: int, ctx: ToolContext) -> ToolOutput:
            return ToolOutput("looked")

        calls = [
            call("ExecuteCommand", {"command": "false"}, id="fails"),
            call("Probe", {"n": 1}, id="looks"),
            call("ExecuteCommand", {"command": "touch made"}, id="changes"),
            call("WriteFile", {"file_path": str(workspace / "made"), "content": "x"}, id="writes"),
        ]
        talk = await start_with(Probe(look), [reply(calls=calls), say("ok")])
        await talk.say("go")
        given_up = "Not run: the command before it in the same reply failed."
        assert list_tool_results(talk.server.requests[1].json)[1:] == [
            ("looks", "looked", False),
            ("changes", given_up, True),
            ("writes", given_up, True),
        ]
        assert [event.status for event in talk.all(ToolEnded)] == ["error", "success", "cancelled", "cancelled"]
        assert not (workspace / "made").exists()

    @pytest.mark.parametrize("order", [0, 1])
    async def test_refused_call_in_the_same_reply_does_not_hide_a_failed_command(
        self, start: Start, workspace: Path, order: int
    ) -> None:
        beside = [call("ExecuteCommand", {"command": "false"}, id="fails"), call("Nothing", {}, id="unknown")]
        write = call("WriteFile", {"file_path": str(workspace / "made"), "content": "x"}, id="writes")
        talk = await start([reply(calls=[*beside[:: -1 if order else 1], write]), say("ok")])
        await talk.say("go")
        assert [event.status for event in talk.all(ToolEnded)] == ["error", "error", "cancelled"]
        assert not (workspace / "made").exists()

    async def test_path_with_a_nul_byte_is_reported(self, start: Start) -> None:
        write = call("WriteFile", {"file_path": "/tmp/a\0b", "content": "x"}, id="writes")
        talk = await start([write, say("ok")])
        await talk.say("go")
        assert "contains a NUL byte" in talk.all(ToolEnded)[0].text

    async def test_deeply_nested_arguments_do_not_end_the_turn(self, start: Start) -> None:
        deep = '{"questions":' + "[" * 900 + "]" * 900 + "}"
        talk = await start([call("Question", deep, id="deep"), say("ok")])
        assert (await talk.say("go")).text == "ok"

    async def test_read_waits_for_the_change_before_it(self, start_with: StartWith, workspace: Path) -> None:
        write = call("ExecuteCommand", {"command": "sleep 0.1; echo new > a"}, id="write")
        talk = await start_with(
            Probe(lambda n, ctx: asyncio.to_thread(lambda: ToolOutput(Path(ctx.cwd, "a").read_text()))),
            [reply(calls=[write, call("Probe", {"n": 1}, id="read")]), say("ok")],
        )
        await talk.say("go")
        assert list_tool_results(talk.server.requests[1].json)[1] == ("read", "new\n", False)


class TestApprovals:
    async def test_second_permission_request_waits_for_the_first_answer(
        self, start: Start, tmp_path: Path, workspace: Path
    ) -> None:
        for name in "ab":
            (tmp_path / name).write_text(f"text of {name}\n")
        reads = [call("Read", {"file_path": str(tmp_path.resolve() / name)}, id=f"id_{name}") for name in "ab"]
        talk = await start([reply(calls=reads), say("ok")], yes=False, can_ask=True)
        talk.answers = [AnswerPermission("", True), AnswerPermission("", False)]
        await talk.say("go")
        said = [event for event in talk.events if isinstance(event, PermissionAsked | PermissionAnswered)]
        assert [(type(event), event.call_id) for event in said] == [
            (PermissionAsked, "id_a"),
            (PermissionAnswered, "id_a"),
            (PermissionAsked, "id_b"),
            (PermissionAnswered, "id_b"),
        ]
        assert [event.status for event in talk.all(ToolEnded)] == ["success", "denied"]

    async def test_rules_are_applied_again_to_edited_arguments(self, start: Start, workspace: Path) -> None:
        talk = await start(
            [call("ExecuteCommand", {"command": "mkdir made"}), say("ok")],
            config={"ForbiddenCommands": ["touch"]},
            yes=False,
            can_ask=True,
        )
        talk.answers = [AnswerPermission("", True, args={"command": "touch made"})]
        await talk.say("go")
        (ended,) = talk.all(ToolEnded)
        assert ended.status == "denied"
        assert "Bash(touch:*)" in ended.text
        assert "ForbiddenCommands" in ended.text
        assert not (workspace / "made").exists()


class TestSteps:
    async def run(
        self, root: Path, *, before: tuple[BeforeStep, ...] = (), after: tuple[AfterStep, ...] = ()
    ) -> list[Any]:
        """Run one call of a tool that returns "ran" through a pipeline with these steps; return its results."""
        recorder = Recorder(None, SessionState("s"), EventBus())
        events = recorder.bus.subscribe()

        async def ran(n: int, ctx: ToolContext) -> ToolOutput:
            (root / "ran").touch()
            return ToolOutput("ran")

        deps = CallDeps(
            registry=Registry([Probe(ran)]),
            policy=lambda: make_policy(root=str(root), yes=True),
            interactions=Interactions(recorder),
            recorder=recorder,
            hooks=HookInbox(recorder),
            steps=CallSteps(before=before, after=after),
        )
        scope = CallScope("", "edit_mode", str(root), str(root), RepetitionGuard())
        assert not await CallPipeline(deps).run_all([ToolCall("id", "Probe", {"n": 7})], scope)
        recorder.bus.close()
        heard: list[AnyEvent] = [envelope.event async for envelope in events]
        return [event for event in heard if isinstance(event, ToolEnded)]

    async def test_without_steps_the_tool_runs(self, workspace: Path) -> None:
        (ended,) = await self.run(workspace)
        assert (ended.status, ended.text) == ("success", "ran")

    async def test_output_of_a_before_step_stops_the_call(self, workspace: Path) -> None:
        async def pass_on(tool: Tool[Any], args: Any, ctx: ToolContext) -> ToolOutput | None:
            return None

        async def stop(tool: Tool[Any], args: Any, ctx: ToolContext) -> ToolOutput | None:
            return ToolOutput(f"no {tool.name} {args.n} for {ctx.call_id}", is_error=True)

        (ended,) = await self.run(workspace, before=(pass_on, stop))
        assert (ended.status, ended.text) == ("error", "no Probe 7 for id")
        assert not (workspace / "ran").exists()

    async def test_output_of_an_after_step_is_the_result(self, workspace: Path) -> None:
        async def praise(tool: Tool[Any], args: Any, output: ToolOutput, ctx: ToolContext) -> ToolOutput:
            return ToolOutput(f"{output.text} well")

        (ended,) = await self.run(workspace, after=(praise, praise))
        assert (ended.status, ended.text) == ("success", "ran well well")


class TestOutput:
    async def test_text_for_the_user_is_published_unless_silent(self, start_with: StartWith) -> None:
        async def tell(n: int, ctx: ToolContext) -> ToolOutput:
            return ToolOutput("for the model", for_user="look at this", silent=n == 1)

        talk = await start_with(Probe(tell), [reply_with_probes(2), say("ok")])
        await talk.say("go")
        assert [event.for_user for event in talk.all(ToolEnded)] == ["look at this", ""]
        assert b"look at this" not in talk.server.requests[1].body

    async def test_media_is_not_sent(self, start_with: StartWith) -> None:
        async def draw(n: int, ctx: ToolContext) -> ToolOutput:
            return ToolOutput("PNG bytes", media=True)

        talk = await start_with(Probe(draw), [reply_with_probes(1), say("ok")])
        await talk.say("go")
        assert list_tool_results(talk.server.requests[1].json) == [("id_0", "[Unsupported tool result type]", False)]

    async def test_tool_context_has_session_folder_agent_call_and_mode(
        self, start_with: StartWith, workspace: Path
    ) -> None:
        seen: list[ToolContext] = []

        async def look(n: int, ctx: ToolContext) -> ToolOutput:
            seen.append(ctx)
            return ToolOutput("ok")

        task = call("AgentTool", {"description": "probe it", "prompt": "Probe."})
        script = [
            call("Probe", {"n": 1}, id="mine"),
            task,
            call("Probe", {"n": 2}, id="theirs"),
            say("probed"),
            say("ok"),
        ]
        talk = await start_with(Probe(look), script)
        await talk.say("go", "plan_mode")
        session = (await talk.client.get_info()).session
        assert [(ctx.session, ctx.cwd, ctx.root, ctx.agent, ctx.call_id, ctx.mode) for ctx in seen] == [
            (session, str(workspace), str(workspace), "", "mine", "plan_mode"),
            (session, str(workspace), str(workspace), "agent-1", "theirs", "plan_mode"),
        ]

    async def test_progress_is_shown_while_the_tool_runs(self, start_with: StartWith) -> None:
        async def climb(n: int, ctx: ToolContext) -> ToolOutput:
            ctx.progress("half way")
            ctx.progress("nearly there")
            return ToolOutput("done")

        talk = await start_with(Probe(climb), [reply_with_probes(1), say("ok")])
        await talk.say("go")
        shown = [(event.call_id, event.name, event.text) for event in talk.all(ToolProgressed)]
        assert shown == [("id_0", "Probe", "half way"), ("id_0", "Probe", "nearly there")]
        kinds = [type(event).__name__ for event in talk.events]
        assert kinds.index("ToolStarted") < kinds.index("ToolProgressed") < kinds.index("ToolEnded")

    async def test_long_result_is_cut_in_the_middle_with_a_note(self, start_with: StartWith) -> None:
        async def flood(n: int, ctx: ToolContext) -> ToolOutput:
            return ToolOutput("a" * 60_000 + "b" * 60_000)

        talk = await start_with(Probe(flood), [reply_with_probes(1), say("ok")])
        await talk.say("go")
        ((_, text, _),) = list_tool_results(talk.server.requests[1].json)
        found = re.fullmatch(r"(a+)\n\n\[\.\.\. result cut: (.*); the full text: (.*) \.\.\.\]\n\n(b+)", text)
        assert found is not None
        assert (len(found[1]), len(found[4])) == (20_480, 30_720)
        assert found[2] == "the first 20480 and the last 30720 of 120000 characters (1 lines) are shown"
        assert Path(found[3]).read_text() == "a" * 60_000 + "b" * 60_000

    def test_result_at_the_limit_is_not_cut(self) -> None:
        for text in ("x" * MAX_CHARS, "x\n" * (MAX_LINES - 1)):
            assert bound_text(text) == text
        assert "result cut" in bound_text("x" * (MAX_CHARS + 1))

    def test_many_lines_are_cut_at_line_ends(self) -> None:
        text = "\n".join(f"line {number}" for number in range(5_000))
        head, note, tail = bound_text(text).split("\n\n")
        assert head.splitlines() == [f"line {number}" for number in range(799)]
        assert tail.splitlines() == [f"line {number}" for number in range(3_801, 5_000)]
        assert "(5000 lines)" in note

    def test_failure_to_save_the_full_text_is_reported(self) -> None:
        def refuse(text: str) -> str:
            raise OSError(28, "No space left on device")

        assert "the full text could not be saved (No space left on device)" in bound_text("x" * 60_000, refuse)

    async def test_exception_of_a_tool_is_its_result_and_the_turn_continues(self, start_with: StartWith) -> None:
        async def fail(n: int, ctx: ToolContext) -> ToolOutput:
            if n == 0:
                raise RuntimeError("the disk is gone")
            return ToolOutput("fine")

        talk = await start_with(Probe(fail), [reply_with_probes(2), say("ok")])
        ended = await talk.say("go")
        assert (ended.reason, ended.text) == ("end_turn", "ok")
        assert list_tool_results(talk.server.requests[1].json) == [
            ("id_0", "Probe failed: the disk is gone", True),
            ("id_1", "fine", False),
        ]

    @pytest.mark.parametrize("step", ["parse", "get_target", "get_title"])
    async def test_a_tool_that_fails_before_it_runs_does_not_end_the_turn(
        self, start_with: StartWith, step: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def look(n: int, ctx: ToolContext) -> ToolOutput:
            return ToolOutput("looked")

        def fail(self: Probe, args: Any) -> Any:
            raise ValueError("odd")

        monkeypatch.setattr(Probe, step, fail)
        talk = await start_with(Probe(look), [reply_with_probes(1), say("ok")])
        assert (await talk.say("go")).text == "ok"
        assert talk.all(ToolEnded)[0].text == ("looked" if step == "get_title" else "Probe failed: odd")

    async def test_long_result_with_lone_surrogates_is_cut_and_saved(self, start_with: StartWith) -> None:
        async def look(n: int, ctx: ToolContext) -> ToolOutput:
            return ToolOutput("\ud800x" * MAX_CHARS)

        talk = await start_with(Probe(look), [reply_with_probes(1), say("ok")])
        assert (await talk.say("go")).text == "ok"
        saved = re.search(r"the full text: (\S+)", talk.all(ToolEnded)[0].text)
        assert saved is not None
        assert Path(saved[1]).read_text() == "\ufffdx" * MAX_CHARS


class TestIds:
    async def test_calls_with_the_same_id_get_unique_ids(self, start_with: StartWith) -> None:
        async def count(n: int, ctx: ToolContext) -> ToolOutput:
            return ToolOutput(f"result {n}")

        script = [
            reply(calls=[call("Probe", {"n": n}, id="same") for n in (0, 1)]),
            call("Probe", {"n": 2}, id="same"),
            say("ok"),
        ]
        talk = await start_with(Probe(count), script)
        assert (await talk.say("go")).text == "ok"
        sent = list_tool_results(talk.server.requests[2].json)
        assert [text for _, text, _ in sent] == ["result 0", "result 1", "result 2"]
        ids = [call_id for call_id, _, _ in sent]
        assert ids == [event.call_id for event in talk.all(ToolEnded)], "the user and the model see the same ids"
        assert ids[0] == "same"
        assert len(set(ids)) == 3
        assert talk.server.rejected == []

    async def test_invalid_ids_are_sanitized_and_missing_ids_are_generated(self, start_with: StartWith) -> None:
        async def count(n: int, ctx: ToolContext) -> ToolOutput:
            return ToolOutput(f"result {n}")

        wanted = ["functions.Probe:0", "::", "…", "x" * 90]
        script = [
            reply(calls=[call("Probe", {"n": n}, id=given) for n, given in enumerate(wanted)]),
            say("ok"),
        ]
        talk = await start_with(Probe(count), script)
        assert (await talk.say("go")).text == "ok"
        sent = list_tool_results(talk.server.requests[1].json)
        ids = [call_id for call_id, _, _ in sent]
        assert [text for _, text, _ in sent] == [f"result {n}" for n in range(4)]
        assert (ids[0], ids[3]) == ("functionsProbe0", "x" * 40)
        assert all(ids)
        assert len(set(ids)) == 4
        assert talk.server.rejected == []
