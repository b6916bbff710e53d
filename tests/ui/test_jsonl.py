"""JSON lines (`odin headless --format jsonl`): what a program reads and what it may write."""

import asyncio
import json
import os
import random
import re
import signal
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from odin.config import Options
from odin.core.client import AvailableModel, Client, ServerScope
from odin.core.errors import UsageError
from odin.core.event import TurnEnded, TurnStarted, WorkEnded
from odin.core.op import AnswerPermission
from odin.engine.client import LocalClient
from odin.host.manager import SessionManager
from odin.testing import ScriptedServer, SeenRequest, Turn, call, fault, reply, say
from odin.ui.jsonl.commands import COMMANDS, MAX_DEPTH, MAX_LINE_BYTES
from odin.ui.jsonl.payloads import ANSWERS, DEFAULT_TYPES, EVENT_TYPES
from odin.ui.jsonl.server import run_jsonl
from odin.ui.pipes import read_lines
from tests.conftest import Run
from tests.engine.test_team import TeamScript, complete, delegate
from tests.soak import list_seeds, soak
from tests.tui.fake_sessions import FakeClient
from tests.ui.test_stream_json import StreamClient
from tests.waiting import LIMIT_S, TimeLimit

Line = dict[str, Any]


class Program:
    """A program at the other end of the pipes. `heard` are all lines; `wait_for` looks only at those after the last."""

    def __init__(self, reading: int, writing: int, code: "asyncio.Task[int]") -> None:
        self.heard: list[Line] = []
        self.code = code
        self._writing = writing
        self._lines = read_lines(reading)
        self._at = 0
        self._count = 0

    def write(self, data: bytes) -> None:
        os.write(self._writing, data)

    def send(self, type: str, **fields: Any) -> str:
        self._count += 1
        mark = f"c{self._count}"
        self.write(json.dumps({"type": type, "id": mark, **fields}).encode() + b"\n")
        return mark

    async def ask(self, type: str, **fields: Any) -> Line:
        """Send a command and return its answer."""
        mark = self.send(type, **fields)
        at = await self._find(0, lambda line: line["payload"].get("id") == mark and "command" in line["payload"])
        return self.heard[at]

    async def ok(self, type: str, **fields: Any) -> dict[str, Any]:
        answer = await self.ask(type, **fields)
        assert answer["type"] == "ok", answer
        return answer["payload"]

    async def refused(self, type: str, **fields: Any) -> str:
        answer = await self.ask(type, **fields)
        assert answer["type"] == "error", answer
        return answer["payload"]["message"]

    async def wait_for(self, type: str, **fields: Any) -> dict[str, Any]:
        """Return the payload of the next line of this type with these fields."""
        at = await self._find(
            self._at,
            lambda line: line["type"] == type and {**line["payload"], **fields} == line["payload"],
        )
        self._at = at + 1
        return self.heard[at]["payload"]

    def all(self, type: str) -> list[dict[str, Any]]:
        return [line["payload"] for line in self.heard if line["type"] == type]

    async def _find(self, at: int, matches: Callable[[Line], bool]) -> int:
        """Return the place of the first such line from `at` on."""
        async with TimeLimit(lambda: f"a line; the last ones are {self.heard[-4:]}"):
            while True:
                while at < len(self.heard):
                    if matches(self.heard[at]):
                        return at
                    at += 1
                self.heard.append(json.loads(await anext(self._lines)))

    async def end(self) -> int:
        """Close the input, read the rest and return the exit code."""
        if self._writing >= 0:
            os.close(self._writing)
            self._writing = -1
        async with TimeLimit():
            async for line in self._lines:
                self.heard.append(json.loads(line))
            return await self.code


class Deaf:
    """A client that does not know some methods, as one of a session elsewhere may be."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def list_models(self, servers: ServerScope = "none") -> tuple[AvailableModel, ...]:
        raise UsageError("This session cannot list its models.", "Ask on its machine.")


@asynccontextmanager
async def connect(client: Client) -> AsyncGenerator[Program]:
    """Run JSON lines for a client until the program ends."""
    to_odin, from_odin = os.pipe(), os.pipe()

    async def run() -> int:
        with os.fdopen(from_odin[1], "w") as out:
            return await run_jsonl(client, out=out, lines_in=read_lines(to_odin[0], MAX_LINE_BYTES))

    program = Program(from_odin[0], to_odin[1], asyncio.create_task(run()))
    try:
        yield program
        await program.end()
    finally:
        program.code.cancel()
        os.close(to_odin[0])
        os.close(from_odin[0])


@asynccontextmanager
async def open_client(
    workspace: Path, script: Any, **options: Any
) -> AsyncGenerator[tuple[LocalClient, ScriptedServer]]:
    with ScriptedServer(script) as server:
        env = {**os.environ, **server.env("anthropic")}
        settings = Options(cwd=str(workspace), env=env, can_ask=True, headless=True, **options)
        client = await SessionManager().open(settings)
        try:
            yield client, server
        finally:
            await client.close()


@asynccontextmanager
async def start(workspace: Path, script: Any = (), **options: Any) -> AsyncGenerator[tuple[Program, ScriptedServer]]:
    async with open_client(workspace, script, **options) as (client, server), connect(client) as program:
        yield program, server


def write_file(path: Path, id: str = "w") -> Any:
    return call("WriteFile", {"file_path": str(path), "content": "x"}, id=id)


# --- what is told ---


async def test_the_lines_of_a_turn(workspace: Path) -> None:
    todo = {"id": "1", "content": "look", "status": "in_progress"}
    script = [reply("First.", [call("TodoWrite", {"todos": [todo]}), call("LS", {"path": "."}, id="ls")]), say("Done.")]
    async with start(workspace, script) as (program, server):
        sent = await program.ok("send", text="Look.", mode="ask")
        await program.wait_for("idle")
    first, *others = program.heard
    assert first["type"] == "ready"
    ready = first["payload"]
    assert (ready["protocol"], ready["cwd"], ready["roles"]) == (1, str(workspace), ["builder", "planner"])
    assert (ready["mode"], ready["permission_mode"], ready["working"]) == ("edit_mode", "default", False)
    assert tuple(ready["commands"]) == tuple(COMMANDS) and tuple(ready["events"]) == EVENT_TYPES
    told = [line for line in others if line["type"] not in ("activity", "ok")]
    kinds = ["user_message", "context_usage", "assistant_message", "tool_result", "todos", "tool_result"]
    assert [line["type"] for line in told] == [*kinds, "context_usage", "assistant_message", "done_completion", "idle"]
    assert {line["payload"]["session"] for line in program.heard} == {ready["session"]}
    assert {line["payload"]["agent"] for line in program.heard} == {""}
    durable = [line["payload"]["seq"] for line in told if line["type"] != "idle"]
    assert durable == sorted(set(durable))
    assert all("seq" not in payload for payload in (*program.all("activity"), *program.all("idle")))
    (message,) = program.all("user_message")
    assert (message["id"], message["text"], message["mode"]) == (sent["prompt"], "Look.", "ask_mode")
    replied, last = program.all("assistant_message")
    assert (replied["text"], replied["calls"][1]["name"], last["text"]) == ("First.", "LS", "Done.")
    assert [item["content"] for item in program.all("todos")[0]["todos"]] == ["look"]
    assert [item["status"] for item in program.all("tool_result")] == ["success", "success"]
    assert program.all("context_usage")[1]["used"] > 0 and program.all("context_usage")[1]["limit"] > 0
    (done,) = program.all("done_completion")
    assert (done["turn"], done["outcome"], done["text"], done["steps"]) == (sent["prompt"], "completed", "Done.", 2)
    assert program.all("idle") == [{"session": ready["session"], "agent": "", "last_outcome": "completed"}]
    assert {"streaming", "executing", "idle"} <= {payload["activity"] for payload in program.all("activity")}
    assert program.code.result() == 0
    assert "WriteFile" not in server.requests[0].tool_names


async def test_deltas_come_only_if_subscribed_and_can_be_all(workspace: Path) -> None:
    async with start(workspace, [say("One two."), say("Three four."), say("Five.")]) as (program, _):
        await program.ok("send", text="a")
        await program.wait_for("idle")
        assert program.all("text_delta") == []
        assert (await program.ok("subscribe", events=["text_delta", "idle"]))["events"] == ["text_delta", "idle"]
        await program.ok("send", text="b")
        await program.wait_for("idle")
        assert len(program.all("done_completion")) == 1
        assert "".join(payload["text"] for payload in program.all("text_delta")) == "Three four."
        assert (await program.ok("subscribe"))["events"] == list(DEFAULT_TYPES)
        assert (await program.ok("subscribe", events=["*", "text_delta"]))["events"] == list(EVENT_TYPES)
        assert "Did you mean idle?" in await program.refused("subscribe", events=["idel"])


async def test_a_failed_turn_and_a_reply_that_starts_again(workspace: Path) -> None:
    script = [say("Half an answer.").cut(events=4), fault(529, {"retry-after": "0"}), say("Whole."), fault(400)]
    async with start(workspace, script) as (program, _):
        await program.ok("send", text="a")
        assert (await program.wait_for("assistant_rollback"))["turn"] == ""
        assert "Attempt" in (await program.wait_for("info"))["text"]
        assert (await program.wait_for("done_completion"))["text"] == "Whole."
        failing = await program.ok("send", text="b")
        failed = await program.wait_for("error")
        assert (failed["turn"], failed["kind"]) == (failing["prompt"], "BadRequest")
        assert (await program.wait_for("idle"))["last_outcome"] == "error"
        undone = await program.ok("send", text="/undo")
        assert undone["done"] is True and "prompt" not in undone
        assert (await program.wait_for("assistant_rollback", reason="rewound"))["turn"] == failing["prompt"]
        assert await program.end() == 1


async def test_agents_and_idle_after_them(workspace: Path) -> None:
    """Two agents work in the background; one reports something. `idle` comes when the main agent has read both."""
    hold = threading.Event()
    report = call("Report", {"message": "half done", "kind": "risk_alert"})
    script = TeamScript(
        [reply("", [delegate("a").calls[0], delegate("b").calls[0]]), say("I wait."), *[say("I see.")] * 4],
        a=[report, complete("a is done")],
        b=[complete("b is done").hold(hold)],
    )
    async with start(workspace, script, yes=True) as (program, _):
        await program.ok("send", text="go")
        started = await program.wait_for("agent_started")
        assert (started["agent"], started["task_id"], started["call_id"]) == ("general-1", "adhoc-1", "call-a")
        told = await program.wait_for("agent_notify")
        assert (told["agent"], told["kind"], told["priority"]) == ("general-1", "risk_alert", "urgent")
        done = await program.wait_for("agent_done")
        assert (done["agent"], done["status"], done["state"]) == ("general-1", "completed", "completed")
        status = (await program.ask("status"))["payload"]
        assert status["working"] and [agent["id"] for agent in status["agents"]] == ["general-2"]
        assert program.all("idle") == []
        hold.set()
        await program.wait_for("idle")
        ends = [line["type"] for line in program.heard if line["type"] in ("agent_done", "done_completion")]
        assert ends.count("agent_done") == 2 and ends[-1] == "done_completion"
        assert {"general-1", "general-2"} <= {payload["agent"] for payload in program.all("assistant_message")}
        assert len(program.all("idle")) == 1


async def test_a_sub_agent_is_stopped_and_prompted(workspace: Path) -> None:
    script = TeamScript([delegate("a"), say("I wait."), say("I see.")], a=[say("hm").stall(), complete("a is done")])
    async with start(workspace, script, yes=True) as (program, server):
        await program.ok("send", text="go")
        await program.wait_for("activity", agent="general-1", activity="waiting_token")
        assert (await program.ok("cancel", agent="general-1"))["done"]
        assert (await program.wait_for("done_completion", agent="general-1"))["outcome"] == "cancelled"
        sent = await program.ok("send", text="go on", agent="general-1")
        assert (await program.wait_for("user_message"))["agent"] == "general-1"
        assert (await program.wait_for("done_completion", turn=sent["prompt"]))["text"] == "a is done"
        await program.wait_for("done_completion", agent="")
        await program.wait_for("idle")
        assert "no running agent 'nobody'" in await program.refused("send", text="x", agent="nobody")
        assert server.rejected == []


async def test_shell_commands_and_notices(workspace: Path) -> None:
    async with start(workspace, [say("I see.")]) as (program, server):
        shell = await program.ok("local_shell", command="echo one && exit 3")
        result = await program.wait_for("local_shell_result")
        assert (result["shell"], result["command"]) == (shell["shell"], "echo one && exit 3")
        assert result["output"].startswith("one\n") and "3" in result["output"]
        (workspace / "notes.md").write_text("seven dwarfs")
        await program.ok("send", text="Look.", attachments=["notes.md", "gone.txt", "x" * 10_000])
        assert "gone.txt was not attached" in (await program.wait_for("toast", level="warn"))["text"]
        assert "x was not attached: File name too long." in (await program.wait_for("toast"))["text"]
        await program.wait_for("idle")
        assert all(text in server.requests[0].body.decode() for text in ("exit 3", "seven dwarfs"))
        await program.ok("send", text="/rules add Bash(make:*)")
        assert "Rule added" in (await program.wait_for("info"))["text"]


# --- what is asked ---


@pytest.mark.parametrize(
    ("answer", "exists", "seen"),
    [
        ({"allow": True}, True, "Created"),
        ({"choice": "allow_session", "rule": "WriteFile(x)"}, True, "Created"),
        ({"allow": False, "reason": "not that file"}, False, "not that file"),
        ({"choice": "stop"}, False, ""),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else "",
)
async def test_confirm(workspace: Path, answer: dict[str, Any], exists: bool, seen: str) -> None:
    async with start(workspace, [write_file(workspace / "x"), say("Done.")]) as (program, server):
        await program.ok("send", text="Write.")
        asked = await program.wait_for("confirm_request")
        request = asked["request"]
        assert (asked["id"], request["title"], request["facts"]["name"]) == (
            request["id"],
            "Create file x",
            "WriteFile",
        )
        assert (await program.ask("status"))["payload"]["requests"] == [request]
        for wrong, problem in (
            ({}, "either a choice or allow"),
            ({"allow": True, "choice": "deny"}, "either a choice or allow"),
            ({"choice": "sure"}, "'sure' is not an answer to this."),
            ({"allow": True, "rule": "WriteFile"}, "The choice allow_once saves no rule. Use allow_session,"),
            ({"allow": 1}, "allow must be true or false, not 1."),
        ):
            assert problem in await program.refused("confirm", request=asked["id"], **wrong)
        assert "Use confirm." in await program.refused("question", request=asked["id"], cancel=True)
        assert "No request 'x'" in await program.refused("confirm", request="x", allow=True)
        assert (await program.ok("confirm", request=asked["id"], **answer))["done"]
        told = await program.wait_for("request_answered", id=asked["id"])
        assert (told["choice"] == "deny", told["by"]) == (not exists, "user")
        await program.wait_for("idle")
        assert "No request" in await program.refused("confirm", request=asked["id"], allow=True)
    assert (workspace / "x").exists() is exists
    assert not seen or seen in server.requests[1].results["w"]


async def test_confirm_with_edited_arguments(workspace: Path) -> None:
    async with start(workspace, [write_file(workspace / "x"), say("Done.")]) as (program, _):
        await program.ok("send", text="Write.")
        asked = await program.wait_for("confirm_request")
        args = {**asked["request"]["facts"]["args"], "file_path": str(workspace / "y")}
        await program.ok("confirm", request=asked["id"], allow=True, args=args)
        await program.wait_for("idle")
    assert [path.name for path in workspace.iterdir()] == ["y"]


@pytest.mark.parametrize("delivery", [None, "queue"])
async def test_a_plain_send_dismisses_a_permission_request_and_dismissing_denies(
    workspace: Path, delivery: str | None
) -> None:
    script = [write_file(workspace / "x"), say("Not written."), say("Answered.")]
    async with start(workspace, script) as (program, server):
        await program.ok("send", text="Write.")
        asked = await program.wait_for("confirm_request")
        sent = await program.ok("send", text="What is it for?", **({"delivery": delivery} if delivery else {}))
        if delivery:
            assert "denied" not in sent
            assert len((await program.ask("status"))["payload"]["requests"]) == 1
            await program.ok("confirm", request=asked["id"], allow=True)
        else:
            assert sent["denied"] == [asked["id"]]
            assert (await program.wait_for("request_answered"))["choice"] == "deny"
        await program.wait_for("done_completion", turn=sent["prompt"])
        denial = "The user did not answer this, but wrote a message instead."
        assert (denial in server.requests[1].results["w"]) is (delivery is None)
    assert (workspace / "x").exists() is (delivery is not None)


async def test_a_send_that_is_refused_dismisses_nothing(workspace: Path) -> None:
    async with start(workspace, [write_file(workspace / "x"), say("Done.")]) as (program, _):
        await program.ok("send", text="Write.")
        asked = await program.wait_for("confirm_request")
        for wrong in ({"text": " "}, {"text": "/comit"}, {"text": "a", "mode": "fly"}, {"text": "a", "agent": "no"}):
            await program.refused("send", **wrong)
        assert [item["id"] for item in (await program.ask("status"))["payload"]["requests"]] == [asked["id"]]
        await program.ok("confirm", request=asked["id"], allow=True)
        await program.wait_for("idle")


async def test_two_clients_and_the_first_answer_counts(workspace: Path) -> None:
    """A client that comes later is told what waits, and after the answer of the other one that it is answered."""
    async with (
        open_client(workspace, [write_file(workspace / "x"), say("Done.")]) as (client, _),
        connect(client) as first,
    ):
        await first.ok("send", text="Write.")
        asked = await first.wait_for("confirm_request")
        other = client.session.attach(answers=True)
        async with connect(other) as second:
            assert (await second.wait_for("ready"))["working"] is True
            assert (await second.wait_for("confirm_request"))["id"] == asked["id"]
            status = await second.ask("status")
            assert status["payload"]["turn"] == (await client.snapshot()).messages[-1].id
            await client.submit(AnswerPermission(asked["id"], allow=True, by="phone"))
            for program in (first, second):
                assert (await program.wait_for("request_answered", id=asked["id"]))["by"] == "phone"
                await program.wait_for("done_completion")
                await program.wait_for("idle")
            assert [len(program.all("confirm_request")) for program in (first, second)] == [1, 1]
        await other.close()


async def test_a_program_that_joins_a_turn_is_told_its_end_before_idle() -> None:
    """However long the events take to reach it: the session is at rest long before."""
    client = FakeClient([TurnStarted("t1", "Write.", "edit_mode")])
    async with connect(cast("Any", client)) as program:
        assert (await program.wait_for("ready"))["working"] is True
        client.emit(TurnEnded("t1", "end_turn", text="Done."), WorkEnded())
        await program.wait_for("done_completion")
        await program.wait_for("idle")
        assert len(program.all("idle")) == 1


QUESTIONS = [
    {
        "header": "Color",
        "question": "Which color?",
        "options": [{"label": "Red"}, {"label": "Blue"}],
        "multiSelect": True,
    },
    {"header": "Name", "question": "Which name?", "options": [{"label": "Ada"}, {"label": "Bob"}]},
]


async def test_questions(workspace: Path) -> None:
    script = [call("Question", {"questions": QUESTIONS}, id=f"q{number}") for number in range(2)]
    async with start(workspace, [*script, say("Done.")]) as (program, server):
        await program.ok("send", text="Ask me.")
        asked = await program.wait_for("question_request")
        assert [item["text"] for item in asked["request"]["facts"]["questions"]] == ["Which color?", "Which name?"]
        assert "There are 2 questions, not 1." in await program.refused(
            "question", request=asked["id"], answers=["Red"]
        )
        await program.ok("question", request=asked["id"], answers=[["Red", "Blue"], "Zoe"])
        again = await program.wait_for("question_request")
        await program.ok("question", request=again["id"], cancel=True)
        await program.wait_for("idle")
        first, second = server.requests[1].results["q0"], server.requests[2].results["q1"]
        assert all(word in first for word in ("Red", "Blue", "Zoe")) and "Zoe" not in second


@pytest.mark.parametrize("choice", ["approve", "keep_planning"])
async def test_handoff(workspace: Path, choice: str) -> None:
    script = [call("Handoff", {"plan": "1. Do it.", "title": "It"}, id="h"), say("Done.")]
    async with start(workspace, script) as (program, server):
        await program.ok("send", text="Plan.", mode="plan")
        asked = await program.wait_for("handoff_request")
        keys = [item["key"] for item in asked["request"]["choices"]]
        assert "approve" in keys and not any("new_session" in key for key in keys)
        refused = await program.refused("handoff", request=asked["id"], choice="approve_new_session")
        assert "Use approve, approve_edits, revise or keep_planning." in refused
        assert "cannot carry out" in await program.refused("handoff", request=asked["id"], choice="approve", role="x")
        await program.ok("handoff", request=asked["id"], choice=choice, comment="gladly", role="builder")
        await program.wait_for("idle")
        offered = [("WriteFile" in request.tool_names) for request in server.requests]
        assert offered == ([False, True] if choice == "approve" else [False])


# --- commands ---


async def test_models_sessions_and_status(workspace: Path) -> None:
    async with start(workspace, [say("Hi.")]) as (program, server):
        listed = await program.ask("models")
        assert listed["type"] == "models" and listed["payload"]["model"].startswith("anthropic/")
        assert "does not" in (refused := await program.refused("models", model="anthropic/nothing")) or refused
        assert (await program.ok("models", model="offline/planner"))["model"] == "offline/planner"
        assert (await program.ask("status"))["payload"]["model"] == "offline/planner"
        assert (await program.ok("send", text=f"/model {listed['payload']['model']}"))["text"].startswith(
            "Model set to"
        )
        await program.ok("send", text="Hi")
        await program.wait_for("idle")
        assert "`odin sessions` lists them." in await program.refused("sessions")
        status = (await program.ask("status"))["payload"]
        assert status["context_used"] > 0 and status["turn"] == "" and not status["working"]
        assert server.rejected == []


async def test_what_the_session_cannot_do_is_an_error(workspace: Path) -> None:
    async with open_client(workspace, [say("Hi.")]) as (client, _), connect(cast("Client", Deaf(client))) as program:
        assert await program.refused("models") == "This session cannot list its models. Ask on its machine."
        await program.ok("send", text="Hi")
        await program.wait_for("idle")


async def test_queue_and_cancel(workspace: Path) -> None:
    """Cancelling pauses what is queued, unless the policy says otherwise; deliveries are those of prompts."""
    script = [say("Long.").stall(), say("Two."), say("Long.").stall(), say("Four."), say("Long.").stall()]
    async with start(workspace, script) as (program, server):
        await program.ok("send", text="one")
        await program.wait_for("activity", activity="waiting_token")
        second = await program.ok("send", text="two", delivery="queue")
        assert (await program.ok("cancel"))["done"]
        assert (await program.wait_for("idle"))["last_outcome"] == "cancelled"
        (waiting,) = (await program.ask("status"))["payload"]["queue"]
        assert (waiting["id"], waiting["paused"]) == (second["prompt"], True)
        assert (await program.ok("send", text="/queue send 1"))["text"] == "Sent: two"
        assert (await program.wait_for("done_completion", turn=second["prompt"]))["text"] == "Two."
        await program.ok("send", text="three")
        await program.wait_for("activity", activity="waiting_token")
        await program.ok("send", text="four", delivery="queue")
        await program.ok("cancel", queue="keep")
        assert (await program.wait_for("done_completion", outcome="completed"))["text"] == "Four."
        await program.ok("send", text="five")
        await program.wait_for("activity", activity="waiting_token")
        sixth = await program.ok("send", text="six", delivery="queue")
        await program.ok("cancel", queue="drop")
        assert (await program.wait_for("error"))["turn"] == sixth["prompt"]
        await program.wait_for("idle")
        assert (await program.ok("cancel"))["done"] is False
        assert len(server.requests) == 5
        assert await program.end() == 0


async def test_cancel_right_after_a_prompt(workspace: Path) -> None:
    async with start(workspace, [say("Never.").stall()]) as (program, _):
        program.send("send", text="Tell.")
        await program.ok("cancel")
        assert (await program.wait_for("done_completion"))["outcome"] == "cancelled"


async def test_slash_commands(workspace: Path) -> None:
    folder = workspace / ".odin/commands"
    folder.mkdir(parents=True)
    (folder / "greet.md").write_text("Say hello to $1.")
    async with start(workspace, [say("Hello."), say("A path.")]) as (program, server):
        assert "greet" in (await program.wait_for("ready"))["slash_commands"]
        await program.ok("send", text="/greet Ada")
        assert (await program.wait_for("user_message"))["text"] == "/greet Ada"
        await program.wait_for("idle")
        assert "Say hello to Ada." in server.requests[0].body.decode()
        for text, found in (
            ("/model", "Use `/model NAME` or the command `models`."),
            ("/resume", "--resume ID"),
            ("/sessions", "Use the command `sessions`."),
            ("/new", "Start another `odin headless`."),
            ("/plan do it", "Use the field `mode` of `send`."),
            ("/queue", "Use the command `status`."),
            ("/theme dark", "works only in the app and in plain mode"),
            ("/rename Other", "works only in the app and in plain mode"),
            ("/gret Ada", "Did you mean /greet?"),
            ("/permissions fly", "fly"),
        ):
            assert found in await program.refused("send", text=text)
        assert (await program.ok("send", text="/permissions acceptEdits"))["text"] == "Permission mode: acceptEdits"
        assert (await program.ask("status"))["payload"]["permission_mode"] == "acceptEdits"
        await program.ok("send", text=f"{workspace} is what?")
        await program.wait_for("idle")
        assert len(server.requests) == 2


def test_every_command_and_event_has_a_test_and_a_type() -> None:
    tests = Path(__file__).read_text(encoding="utf-8")
    names = {*COMMANDS, *EVENT_TYPES, *(kind.get_type() for kind in ANSWERS)}
    assert {name for name in names if f'"{name}"' not in tests} == set()
    assert all(re.fullmatch("[a-z_]+", name) for name in names)


# --- bad lines ---

BAD_LINES: dict[str, tuple[bytes, str]] = {
    "no JSON": (b"hello", "not valid JSON"),
    "half of an object": (b'{"type": "send"', "not valid JSON"),
    "a list": (b"[]", "not a JSON object"),
    "null": (b"null", "not a JSON object"),
    "a byte order mark": (b'\xef\xbb\xbf{"type": "status"}', "not valid JSON"),
    "no type": (b"{}", "names no command"),
    "another type": (b'{"type": 7}', "Unknown command 7."),
    "a typo": (b'{"type": "sned"}', "Did you mean send?"),
    "no text": (b'{"type": "send"}', "missing required field `text`"),
    "a number for a text": (b'{"type": "send", "text": 7}', "text must be text, not a number."),
    "an unknown field": (b'{"type": "send", "text": "a", "moed": "ask"}', "unknown field `moed`"),
    "a payload": (b'{"type": "send", "payload": {"text": "a"}}', "Its fields are id, text,"),
    "a list as id": (b'{"type": "status", "id": []}', "Expected `int | str | null`, got `array`"),
    "an unknown choice": (b'{"type": "cancel", "queue": "burn"}', "queue must be drop, inject, keep or pause"),
    "invalid UTF-8": (b'{"type": "send", "text": "\xff"}', "not valid JSON in UTF-8"),
    "half a surrogate pair": (b'{"type": "send", "text": "\\ud800"}', "not valid JSON"),
    "an encoded surrogate": (b'{"type": "send", "text": "\xed\xa0\x80"}', "not valid JSON"),
    "a NUL": (b'{"type": "local_shell", "command": "echo \x00"}', "not valid JSON"),
    "an escaped NUL": (b'{"type": "local_shell", "command": "echo \\u0000"}', "a NUL character"),
    "a NUL in a path": (b'{"type": "send", "text": "a", "attachments": ["\\u0000"]}', "a NUL character"),
    "a huge number": (b'{"type": "status", "id": 1e999}', "not valid JSON"),
    "deep lists": (b"[" * 100_000, "nested deeper"),
    "deep arguments": (
        b'{"type": "confirm", "request": "r", "args": ' + b'{"a":' * MAX_DEPTH + b"1" + b"}" * (MAX_DEPTH + 1),
        "nested deeper",
    ),
    "a long line": (b'{"type": "send", "text": "' + b"x" * MAX_LINE_BYTES + b'"}', "longer than 8 MiB"),
    "no command": (b'{"type": "local_shell", "command": " "}', "No command given."),
}


async def test_bad_lines_are_errors_and_a_prompt_works_after_them(workspace: Path) -> None:
    async with start(workspace, [say("Still here.")]) as (program, server):
        for number, (line, _) in enumerate(BAD_LINES.values(), 1):
            await asyncio.to_thread(program.write, line + b"\n")
            await program.wait_for("error", line=number)
        told = {name: payload["message"] for name, payload in zip(BAD_LINES, program.all("error"), strict=True)}
        assert {name: told[name] for name, (_, found) in BAD_LINES.items() if found not in told[name]} == {}
        assert all(len(message) < 400 for message in told.values())
        program.write(b"\n \r\n")
        await program.ok("send", text="hello")
        assert (await program.wait_for("done_completion"))["text"] == "Still here."
        assert len(server.requests) == 1


async def test_a_line_over_the_limit_is_not_kept_in_memory() -> None:
    reading, writing = os.pipe()

    def feed() -> None:
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(b"a" * 300_000 + b"\nbc\n" + b"d" * 99)

    feeder = threading.Thread(target=feed)
    feeder.start()
    assert [len(line) async for line in read_lines(reading, 10)] == [11, 2, 11]
    feeder.join()
    os.close(reading)


def _make_random_line(rng: random.Random) -> bytes:
    """Return a line that is nearly a command: fields of all commands with values of all kinds, some bytes changed."""
    names = [*COMMANDS, "ready", "", "x" * 300]
    fields = sorted({field for kind in COMMANDS.values() for field in kind.__struct_fields__} - {"command"})
    values: list[Any] = [None, True, 0, -1, 2**70, 1.5, "", "ask-1-1", "a", "keep", "steer", "/undo", "/model", "~"]
    values += [
        "/redo x",
        "/queue drop 1",
        "/loop off",
        "../..",
        "@x",
        "\ud83d",
        "\u202e",
        [],
        ["a"],
        [["a"]],
        {"a": []},
    ]
    line: dict[str, Any] = {"type": rng.choice(names), "id": rng.randrange(9)}
    line |= {name: rng.choice(values) for name in rng.sample(fields, rng.randrange(4))}
    data = bytearray(json.dumps(line).encode())
    for _ in range(rng.choice((0, 0, 0, 1, 3))):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data).replace(b"\n", b" ").replace(b"\r", b" ")


def _say_yes(seen: SeenRequest) -> Turn:
    return say("Yes.")


@soak
@pytest.mark.parametrize("seed", list_seeds(sample=3, full=60))
async def test_random_lines_are_all_answered(workspace: Path, seed: int) -> None:
    rng = random.Random(seed)
    lines = [line for _ in range(150) if (line := _make_random_line(rng)).strip()]
    async with start(workspace, _say_yes) as (program, _):
        await program.wait_for("ready")
        await asyncio.to_thread(program.write, b"\n".join(lines) + b"\n")
        await program.ok("cancel", queue="drop")
        await program.ok("send", text="still there?")
        await program.ok("subscribe")
        await program.end()
        told = [line["payload"] for line in program.heard if line["type"] in {kind.get_type() for kind in ANSWERS}]
        told = [payload for payload in told if "command" in payload or "line" in payload]
        assert len(told) == len(lines) + 3
        assert program.code.result() in (0, 1, 69)


# --- the end ---


async def test_the_end_of_the_input_denies_and_waits_for_the_work(workspace: Path) -> None:
    async with start(workspace, [write_file(workspace / "x"), say("Not written.")]) as (program, server):
        await program.ok("local_shell", command="sleep 0.3; echo late")
        await program.ok("send", text="Write.")
        await program.wait_for("confirm_request")
        assert await program.end() == 0
        assert "the input was closed" in server.requests[1].results["w"]
        assert program.all("done_completion")[0]["text"] == "Not written."
        assert program.all("local_shell_result")[0]["output"] == "late"
        assert program.heard[-1]["type"] in ("idle", "local_shell_result")
    assert not (workspace / "x").exists()


async def test_a_paused_prompt_does_not_keep_the_process(workspace: Path) -> None:
    async with start(workspace, [say("Long.").stall()]) as (program, _):
        await program.ok("send", text="one")
        await program.wait_for("activity", activity="waiting_token")
        await program.ok("send", text="two", delivery="queue")
        await program.ok("cancel", queue="pause")
        assert await program.end() == 0


def test_the_command_line(run_odin: Run, workspace: Path) -> None:
    lines = '{"type": "sessions", "id": "s"}\n{"type": "send", "text": "b"}\n'
    with ScriptedServer([say("1"), say("2")]) as server:
        ran = run_odin("headless", "--format", "jsonl", "--mode", "ask", "a", input=lines, env=server.env("anthropic"))
        told = [json.loads(line) for line in ran.stdout.splitlines()]
        assert told[0]["type"] == "ready" and told[0]["payload"]["mode"] == "ask_mode"
        done = [line["payload"]["text"] for line in told if line["type"] == "done_completion"]
        assert (done, ran.returncode, ran.stderr) == (["1", "2"], 0, "")
        (listed,) = [line["payload"] for line in told if line["type"] == "session_list"]
        assert listed["id"] == "s" and listed["sessions"][0]["id"] == listed["session"]
        again = run_odin("headless", "--format=jsonl", "--resume", listed["session"], input='{"type": "status"}\n')
        assert json.loads(again.stdout.splitlines()[0])["payload"]["session"] == listed["session"]
        other = run_odin("headless", "--format", "stream-json", input="")
        assert (other.returncode, other.stdout) == (0, "")
    for args, problem in (
        (("headless", "--format", "xml"), "Unknown value 'xml' for --format. Use stream-json or jsonl."),
        (("--format", "jsonl"), "--format requires `odin headless`."),
    ):
        ran = run_odin(*args, input="")
        assert ran.returncode == 2 and problem in ran.stderr


def open_process(workspace: Path, server: ScriptedServer) -> StreamClient:
    return StreamClient(cwd=workspace, env=server.env("anthropic"), command=["headless", "--format", "jsonl"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_interrupts_the_turn_and_exits(workspace: Path, number: signal.Signals) -> None:
    with ScriptedServer([say("Long.").stall(after=4)]) as server, open_process(workspace, server) as odin:
        odin.send('{"type": "send", "text": "Tell."}\n')
        odin.read_until("user_message")
        odin.process.send_signal(number)
        assert odin.read_until("done_completion")["payload"]["outcome"] == "cancelled"
        assert odin.process.wait(LIMIT_S) == {signal.SIGTERM: 143, signal.SIGINT: 130}[number]


def test_a_reader_that_is_gone_ends_the_process_quietly(workspace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with ScriptedServer([say("Long.").stall(after=4)]) as server, open_process(workspace, server) as odin:
        odin.read_until("ready")
        assert odin.process.stdout is not None
        odin.process.stdout.close()
        odin.send('{"type": "status"}\n')
        assert odin.process.wait(LIMIT_S) == 141
    assert capfd.readouterr() == ("", "")
