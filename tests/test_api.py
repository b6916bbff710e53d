"""`odin.query` and its friends, against the scripted server."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import pytest

import odin
from odin.core.errors import AuthFailed, Interrupted, RateLimited, UnknownMode, UsageError
from odin.core.provider import Chunk, Request, StopChunk, TextChunk, UsageChunk
from odin.core.tool import ToolContext
from odin.engine.client import LocalClient
from odin.testing import ScriptedServer, call, fault, reply, say
from odin.testing import Usage as Tokens

Configure = Callable[..., odin.Options]


@pytest.fixture
def configure(workspace: Path) -> Configure:
    def make(server: ScriptedServer, **more: Any) -> odin.Options:
        env = {**os.environ, **server.env("anthropic")}
        return odin.Options(cwd=str(workspace), env=env, **more)

    return make


async def done(query: odin.Query) -> odin.ResultMessage:
    return await asyncio.wait_for(query.wait(), 30)


def write(path: Path, content: str = "x") -> Any:
    return call("WriteFile", {"file_path": str(path), "content": content}, id="toolu_w")


async def test_the_messages_of_a_run(configure: Configure, workspace: Path) -> None:
    (workspace / "a.txt").write_text("alpha\n")
    script = [reply("Looking.", [call("Read", {"file_path": str(workspace / "a.txt")})], "hm"), say("It says alpha.")]
    with ScriptedServer(script) as server:
        query = odin.query("What does a.txt say?", configure(server))
        assert query.exit_reason is None
        messages = [message async for message in query]
    init, first, started, ended, told, last, result = messages
    assert isinstance(init, odin.SystemMessage)
    assert (init.subtype, init.raw["cwd"]) == ("init", str(workspace))
    assert init.raw["agents"] == ["explore", "general"]
    assert isinstance(first, odin.AssistantMessage)
    assert isinstance(first.content[0], odin.ThinkingBlock)
    assert (first.text, [use.name for use in first.tool_uses]) == ("Looking.", ["Read"])
    assert isinstance(started, odin.ToolProgress)
    assert isinstance(ended, odin.ToolProgress)
    assert (started.status, ended.status, ended.tool_name) == ("started", "success", "Read")
    assert isinstance(told, odin.UserMessage)
    assert "alpha" in told.content[0].content
    assert isinstance(last, odin.AssistantMessage)
    assert isinstance(result, odin.ResultMessage)
    assert (result.subtype, result.result, result.num_turns) == ("success", "It says alpha.", 2)
    assert query.result is result
    assert query.session_id == result.session_id != ""
    assert (query.exit_reason, query.turn_count, query.last_error) == ("end_turn", 2, None)
    assert query.total_usage.output > 0
    assert query.total_cost_usd == result.total_cost_usd > 0
    assert [message async for message in query.messages()] == []


async def test_nobody_has_to_read(configure: Configure, workspace: Path) -> None:
    with ScriptedServer([call("LS", {"path": str(workspace)}), say("word " * 5000, chunk=5)]) as server:
        query = odin.query("List.", configure(server, include_partial=True))
        assert (await done(query)).result.startswith("word")
        late = [message async for message in query]
    text = "".join(message.text for message in late if isinstance(message, odin.StreamEvent))
    assert text == "word " * 5000
    assert isinstance(late[-1], odin.ResultMessage)


async def test_an_interrupt_that_nobody_reads(configure: Configure) -> None:
    with ScriptedServer([say("A long story", chunk=2).stall(after=4)]) as server:
        query = odin.query("Tell.", configure(server))
        async with asyncio.timeout(20):
            while not server.requests:
                await asyncio.sleep(0.01)
        await query.interrupt()
        result = await done(query)
    assert (result.exit_reason, result.subtype, result.is_error) == ("interrupted", "error_during_execution", True)
    assert query.exit_reason == "interrupted"
    assert isinstance(query.last_error, Interrupted)


class Thinker:
    """A model in this process that never comes to an end."""

    name = "thinker"

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        yield TextChunk("Let me see")
        await asyncio.sleep(600)

    async def close(self) -> None:
        return


async def test_an_interrupt_before_it_even_began(workspace: Path) -> None:
    query = odin.query("Tell.", odin.Options(cwd=str(workspace)), provider=Thinker())
    await query.interrupt()
    assert (await done(query)).exit_reason == "interrupted"


@pytest.mark.parametrize("where", ["waiting", "reading", "elsewhere"])
async def test_a_cancelled_parent_aborts_the_run(configure: Configure, where: str) -> None:
    queries: list[odin.Query] = []

    async def parent(server: ScriptedServer) -> None:
        query = odin.query("Tell.", configure(server))
        queries.append(query)
        if where == "waiting":
            await query.wait()
        elif where == "reading":
            async for _ in query:
                continue
        await asyncio.sleep(60)

    with ScriptedServer([say("Never.").stall()]) as server:
        task = asyncio.create_task(parent(server))
        async with asyncio.timeout(20):
            while not server.requests:
                await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        (query,) = queries
        result = await done(query)
    assert (result.exit_reason, query.exit_reason) == ("aborted", "aborted")
    assert isinstance([message async for message in query][-1], odin.ResultMessage)


async def test_a_run_that_was_given_up_at_once_has_a_result_too(configure: Configure) -> None:
    with ScriptedServer([say("Never.")]) as server:
        query = odin.query("Tell.", configure(server))
        await query.abort()
        assert (await done(query)).exit_reason == "aborted"


async def test_leaving_a_query_aborts_it(workspace: Path) -> None:
    async with odin.query("Tell.", odin.Options(cwd=str(workspace)), provider=Thinker()) as query:
        async for _ in query:
            break
    assert query.exit_reason == "aborted"


async def test_giving_up_a_prompt_leaves_its_session_alone(configure: Configure) -> None:
    with ScriptedServer([say("Never.").stall(), say("Here.")]) as server:
        async with odin.new(options=configure(server)) as session:
            running, waiting = session.query("1"), session.query("2")
            async with asyncio.timeout(20):
                while not server.requests:
                    await asyncio.sleep(0.01)
            await waiting.abort()
            await running.abort()
            assert (running.exit_reason, waiting.exit_reason) == ("interrupted", "aborted")
            assert (await done(session.query("3"))).result == "Here."


async def test_an_error_of_the_model_is_a_result(configure: Configure) -> None:
    with ScriptedServer([fault(401, message="invalid x-api-key")]) as server:
        query = odin.query("Hello.", configure(server))
        result = await done(query)
    assert (result.subtype, result.exit_reason, result.error_kind) == ("error_during_execution", "error", "AuthFailed")
    assert result.errors
    assert isinstance(query.last_error, AuthFailed)


async def test_an_error_before_the_run_is_raised(workspace: Path) -> None:
    heard: list[object] = []
    options = odin.Options(cwd=str(workspace), resume="no-such-session")
    query = odin.query("Hello.", options, callbacks=odin.Callbacks(on_error=heard.append))
    with pytest.raises(odin.OdinError, match="no-such-session"):
        await done(query)
    with pytest.raises(odin.OdinError, match="no-such-session"):
        assert [message async for message in query]
    assert heard == [query.last_error]
    with pytest.raises(odin.OdinError, match="empty"):
        await done(odin.query("  ", odin.Options(cwd=str(workspace))))
    with pytest.raises(UnknownMode):
        odin.new().query("Hello.", mode="fly")


def test_a_query_needs_a_loop() -> None:
    with pytest.raises(UsageError, match="event loop"):
        odin.query("Hello.")


async def test_callbacks_come_in_the_order_of_the_stream(configure: Configure, workspace: Path) -> None:
    heard: list[str] = []

    async def result(ended: Any) -> None:
        await asyncio.sleep(0)
        heard.append(f"result {ended.name} {ended.status}")

    callbacks = odin.Callbacks(
        on_text_delta=lambda text: heard.append(f"text {text}"),
        on_tool_call=lambda use: heard.append(f"call {use.name}"),
        on_tool_result=result,
        on_complete=lambda result: heard.append(f"complete {result.result}"),
        on_error=lambda error: heard.append("error"),
    )
    list_it = call("LS", {"path": str(workspace)})
    with ScriptedServer([reply("Look", [list_it, call("Glob", {"pattern": "*"})]), say("Done", chunk=2)]) as server:
        await done(odin.query("List.", configure(server), callbacks=callbacks))
    assert heard == [
        "text Look",
        "call LS",
        "call Glob",
        "result LS success",
        "result Glob success",
        "text Do",
        "text ne",
        "complete Done",
    ]


async def test_an_error_is_called_back_once_and_nothing_else(configure: Configure) -> None:
    heard: list[object] = []
    callbacks = odin.Callbacks(on_complete=heard.append, on_error=heard.append)
    with ScriptedServer([fault(429, {"retry-after": "3600"})]) as server:
        await done(odin.query("Hello.", configure(server), callbacks=callbacks))
    (error,) = heard
    assert isinstance(error, RateLimited)


async def test_a_callback_that_fails_is_not_hidden(configure: Configure) -> None:
    def broken(text: str) -> None:
        raise ZeroDivisionError("my own fault")

    with ScriptedServer([say("Hi.")]) as server:
        query = odin.query("Hello.", configure(server), callbacks=odin.Callbacks(on_text_delta=broken))
        with pytest.raises(ZeroDivisionError, match="my own fault"):
            await done(query)


async def test_everything_is_allowed_by_default(configure: Configure, workspace: Path) -> None:
    with ScriptedServer([write(workspace / "x", "made"), say("Done.")]) as server:
        await done(odin.query("Write.", configure(server)))
    assert (workspace / "x").read_text() == "made"


async def test_a_permission_mode_that_was_named_holds(configure: Configure, workspace: Path) -> None:
    with ScriptedServer([write(workspace / "x"), say("I may not.")]) as server:
        result = await done(odin.query("Write.", configure(server, permission_mode="default")))
    assert not (workspace / "x").exists()
    assert [denial["tool_name"] for denial in result.permission_denials] == ["WriteFile"]


async def say_yes(name: str, args: dict[str, Any]) -> bool:
    return True


def change_it(name: str, args: dict[str, Any]) -> odin.Allow:
    return odin.Allow({**args, "content": f"{name} changed"})


@pytest.mark.parametrize(("checker", "content"), [(say_yes, "asked for"), (change_it, "WriteFile changed")])
async def test_a_checker_that_allows(configure: Configure, workspace: Path, checker: Any, content: str) -> None:
    with ScriptedServer([write(workspace / "x", "asked for"), say("Done.")]) as server:
        await done(odin.query("Write.", configure(server), can_use_tool=checker))
    assert (workspace / "x").read_text() == content


def refuse(name: str, args: dict[str, Any]) -> odin.Deny:
    return odin.Deny("not today")


def fail(name: str, args: dict[str, Any]) -> bool:
    raise ValueError("cannot decide")


@pytest.mark.parametrize(("checker", "told"), [(refuse, "not today"), (fail, "cannot decide")])
async def test_a_checker_that_refuses(configure: Configure, workspace: Path, checker: Any, told: str) -> None:
    with ScriptedServer([write(workspace / "x"), say("Understood.")]) as server:
        result = await done(odin.query("Write.", configure(server), can_use_tool=checker))
        assert told in server.requests[1].results["toolu_w"]
    assert not (workspace / "x").exists()
    assert result.result == "Understood."


@pytest.mark.parametrize(
    ("verdict", "told"),
    [
        (odin.Allow({"answers": {"Which?": "Blue"}}), "Colour: Blue"),
        (odin.Allow(), "Colour: Red"),
        (True, "Colour: Red"),
        (odin.Deny("no"), "cancelled by user"),
        (False, "cancelled by user"),
    ],
)
async def test_a_question_of_the_model_goes_to_the_checker(configure: Configure, verdict: Any, told: str) -> None:
    asked: list[tuple[str, dict[str, Any]]] = []

    def answer(name: str, args: dict[str, Any]) -> Any:
        asked.append((name, args))
        return verdict

    question = {"header": "Colour", "text": "Which?", "options": [{"label": "Red"}, {"label": "Blue"}]}
    with ScriptedServer([call("Question", {"questions": [question]}, id="toolu_q"), say("Done.")]) as server:
        await done(odin.query("Paint it.", configure(server), can_use_tool=answer))
        assert told in server.requests[1].results["toolu_q"]
    ((name, args),) = asked
    assert (name, args["questions"][0]["question"]) == ("AskUserQuestion", "Which?")


@pytest.mark.parametrize(
    ("verdict", "told"),
    [
        (True, "The user approved the plan"),
        (odin.Allow({"plan": "2. Half."}), "It now reads:\n\n2. Half."),
        (odin.Deny("too long"), "The user says: too long"),
        (False, "The user wants changes"),
    ],
)
async def test_a_plan_of_the_model_goes_to_the_checker(configure: Configure, verdict: Any, told: str) -> None:
    asked: list[tuple[str, dict[str, Any]]] = []

    def answer(name: str, args: dict[str, Any]) -> Any:
        asked.append((name, args))
        return verdict

    with ScriptedServer([call("Handoff", {"plan": "1. All."}, id="toolu_p"), say("Done.")]) as server:
        await done(odin.query("Plan it.", configure(server, permission_mode="plan"), can_use_tool=answer))
        assert told in server.requests[1].results["toolu_p"]
    ((name, args),) = asked
    assert (name, args["plan"]) == ("ExitPlanMode", "1. All.")


async def test_a_checker_that_stops_everything(configure: Configure, workspace: Path) -> None:
    def stop(name: str, args: dict[str, Any]) -> odin.Deny:
        return odin.Deny("stop", interrupt=True)

    with ScriptedServer([write(workspace / "x"), say("never")]) as server:
        result = await done(odin.query("Write.", configure(server), can_use_tool=stop))
        assert len(server.requests) == 1
    assert result.exit_reason == "interrupted"


@pytest.mark.parametrize(
    ("limit", "subtype"), [({"max_turns": 1}, "error_max_turns"), ({"max_budget_usd": 0.001}, "error_max_budget_usd")]
)
async def test_limits(configure: Configure, workspace: Path, limit: dict[str, Any], subtype: str) -> None:
    look = reply("Look.", [call("LS", {"path": str(workspace)})], usage=Tokens(input=100_000, output=10))
    with ScriptedServer([look, say("never")]) as server:
        query = odin.query("List.", configure(server, **limit))
        result = await done(query)
        assert len(server.requests) == 1
    assert (result.subtype, query.turn_count) == (subtype, 1)
    assert query.last_error is not None


class Add(odin.Tool["AddArgs"]):
    """Adds two numbers."""

    name = "Add"
    kind = "read"
    short = "Adds two numbers."

    async def run(self, args: "AddArgs", ctx: odin.ToolContext) -> odin.ToolOutput:
        return odin.ToolOutput(text=str(args.left + args.right))


class AddArgs(odin.Args, frozen=True):
    left: int
    right: int


Add.args = AddArgs


async def test_a_tool_of_ones_own(configure: Configure) -> None:
    with ScriptedServer([call("Add", {"left": 2, "right": 3}, id="toolu_a"), say("5")]) as server:
        result = await done(odin.query("2 + 3?", configure(server), tools=[Add()]))
        assert server.requests[1].results["toolu_a"] == "5"
        assert "Add" in server.requests[0].tool_names
    assert result.result == "5"


class Parrot:
    """A model in this process that repeats the last prompt."""

    name = "parrot"

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        yield TextChunk(f"{len(request.messages)} {request.model}")
        yield UsageChunk(Tokens(input=5, output=7))
        yield StopChunk("end_turn")

    async def close(self) -> None:
        return


async def test_a_model_of_ones_own(workspace: Path) -> None:
    async with odin.new(Parrot(), odin.Options(cwd=str(workspace), model="polly")) as session:
        first = await done(session.query("Hello."))
        query = session.query("Again.", mode="ask")
        second = await done(query)
        assert not cast("LocalClient", await session.open())._recorder.bus._subscriptions
    assert (first.result, second.result) == ("1 polly", "3 polly")
    assert first.session_id == second.session_id
    assert query.total_usage == Tokens(input=5, output=7)


async def test_prompts_of_one_session_wait_for_each_other(configure: Configure) -> None:
    gate = threading.Event()
    with ScriptedServer([say("One.").hold(gate, after=2), say("Two.")]) as server:
        async with odin.new(options=configure(server)) as session:
            first, second = session.query("1"), session.query("2")
            gate.set()
            assert [(await done(second)).result, (await done(first)).result] == ["Two.", "One."]
            read = [message async for message in second]
    assert [message.text for message in read if isinstance(message, odin.AssistantMessage)] == ["Two."]


async def test_a_session_that_closes_aborts_what_waits(configure: Configure) -> None:
    with ScriptedServer([say("Never.").stall()]) as server:
        session = odin.new(options=configure(server))
        running, waiting = session.query("1"), session.query("2")
        async with asyncio.timeout(20):
            while not server.requests:
                await asyncio.sleep(0.01)
        await session.close()
        assert [(await done(running)).exit_reason, (await done(waiting)).exit_reason] == ["aborted", "aborted"]


def test_the_default_registry_knows_the_usual_names(workspace: Path) -> None:
    registry = odin.default_registry(str(workspace))
    found = [registry.get(name) for name in ("Bash", "FileRead", "FileWrite", "FileEdit", "Glob", "Grep")]
    assert [tool.name for tool in found if tool] == ["ExecuteCommand", "Read", "WriteFile", "EditTool", "Glob", "Grep"]


@pytest.mark.parametrize("read_before_edit", [True, False])
async def test_a_program_may_edit_without_reading_first(workspace: Path, read_before_edit: bool) -> None:
    (workspace / "a").write_text("x\n")
    tool = odin.default_registry(str(workspace), read_before_edit=read_before_edit).get("EditTool")
    assert tool is not None
    args = tool.parse({"file_path": str(workspace / "a"), "old_string": "x", "new_string": "y"})
    context = ToolContext(str(workspace), str(workspace), "s", "", "c", "edit_mode", lambda line: None)
    output = await tool.run(args, context)
    assert output.is_error is read_before_edit
    assert (workspace / "a").read_text() == ("x\n" if read_before_edit else "y\n")


@pytest.mark.parametrize(("limit", "steps"), [({}, 100), ({"max_turns": 0}, 130), ({"max_turns": 3}, 3)])
async def test_a_program_has_a_limit_of_model_calls_unless_it_says_otherwise(
    configure: Configure, workspace: Path, limit: dict[str, Any], steps: int
) -> None:
    for number in range(129):
        (workspace / str(number)).write_text(f"text {number}\n")
    looks = [call("Read", {"file_path": str(workspace / str(number))}) for number in range(129)]
    with ScriptedServer([*looks, say("done")]) as server:
        ended = await done(odin.query("go", options=configure(server, **limit)))
        assert len(server.requests) == steps
        assert ended.exit_reason == ("end_turn" if steps == 130 else "max_turns")


def test_importing_odin_costs_nothing() -> None:
    code = "import sys; before = set(sys.modules); import odin; print(*sorted(set(sys.modules) - before))"
    ran = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["odin"]


def test_every_name_of_the_package_is_there() -> None:
    assert all(getattr(odin, name) for name in odin.__all__)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = odin.nonsense


async def test_usage_reaches_its_callback_after_every_model_call(configure: Configure) -> None:
    used = Tokens(input=7, output=3)
    seen: list[Tokens] = []
    helped = Tokens(input=5, output=2)
    task = call("AgentTool", {"description": "help", "prompt": "Help."})
    script = [reply(calls=[task], usage=used), reply("helped", usage=helped), reply("done", usage=used)]
    with ScriptedServer(script) as server:
        run = odin.query(
            "Go.", configure(server), callbacks=odin.Callbacks(on_usage=lambda event: seen.append(event.usage))
        )
        await run.wait()
    assert seen == [used, helped, used]
    assert run.total_usage == used + helped + used
