"""One piece of work through every way to use a session: the logs say the same, and the model sees the same."""

import asyncio
import json
import os
import re
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, cast

import httpx2
import msgspec
import pytest
from playwright.async_api import async_playwright, expect

from odin.core.event import Envelope, TitleSet
from odin.core.op import Answer, Interrupt, Op, Prompt
from odin.host.manager import SessionManager
from odin.host.workspace_sessions import open_workspace_sessions
from odin.session.log import LOG_NAME, read_log
from odin.testing import ScriptedServer, SeenRequest, Turn, call, say
from odin.testing.script import get_content_text
from odin.ui.tui.dialogs.interaction import InteractionDialog
from redis import Redis
from tests.page.visit import Visit, launch_browser, require_chromium, use_token, visit
from tests.redis.conftest import module_server, read_stream
from tests.redis.test_commands import Sender
from tests.remote.served import make_options, serve
from tests.remote.test_remote_client import share
from tests.tui.conftest import Stage, paint_on_demand, run_app, use_utc, wait_for_idle_app
from tests.ui.test_jsonl import Program, connect
from tests.waiting import until

__all__ = ["module_server", "paint_on_demand", "use_utc", "wait_for_idle_app"]

QUESTION = {"header": "Way", "text": "Which way?", "options": [{"label": "left"}, {"label": "right"}]}
REPLIES: dict[str, Callable[[Path], Turn]] = {
    "edit": lambda at: call("WriteFile", {"file_path": str(at / "new.txt"), "content": "x"}, id="c1"),
    "run": lambda at: call("Bash", {"command": "echo made > made.txt", "description": "make it"}, id="c2"),
    "agent": lambda at: call("AgentTool", {"description": "look around", "prompt": "Sub-task: look."}, id="c3"),
    "ask": lambda at: call("Question", {"questions": [QUESTION]}, id="c4"),
}


class Model:
    """Replies to the last prompt by its first word. `busy` waits for the gate, `stall` for the interrupt."""

    def __init__(self, workspace: Path) -> None:
        self.gate = threading.Event()
        self._workspace = workspace

    def __call__(self, seen: SeenRequest) -> Turn:
        content = seen.messages[-1]["content"]
        if "tool_result" in str(content):
            return say("That is done.")
        text = get_content_text(content)
        words = {*re.findall(r"\w+", text)}
        if "busy" in words:
            return say("I was busy.").hold(self.gate, after=3)
        if "stall" in words:
            return say("Never complete.", chunk=100).stall(after=4)
        return next((make(self._workspace) for word, make in REPLIES.items() if word in words), say("Well."))


class Driver(Protocol):
    """One way to use a session. `answer` answers what is asked now: yes to a permission, else this label."""

    async def send_prompt(self, text: str) -> None: ...

    async def answer(self, label: str = "") -> None: ...

    async def interrupt(self) -> None: ...

    async def see(self, text: str) -> None:
        """Wait until this part of a reply has arrived."""
        ...


class AppDriver:
    """The keys of the app."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    async def send_prompt(self, text: str) -> None:
        await self._stage.send(text)

    async def answer(self, label: str = "") -> None:
        app = self._stage.app
        await self._stage.until(lambda: isinstance(app.screen, InteractionDialog) and app.screen.ready)
        asked = app.screen
        await self._stage.press("enter" if label else "y")
        await self._stage.until(lambda: app.screen is not asked)

    async def interrupt(self) -> None:
        await self._stage.press("escape")

    async def see(self, text: str) -> None:
        await self._stage.shows(text)


@asynccontextmanager
async def drive_app(model: ScriptedServer, workspace: Path, session: str) -> AsyncGenerator[Driver]:
    sessions = await open_workspace_sessions(make_options(model, workspace, resume=session))
    async with run_app(sessions) as stage:
        yield AppDriver(stage)
    await sessions.close()


@asynccontextmanager
async def drive_attached_app(model: ScriptedServer, workspace: Path, session: str) -> AsyncGenerator[Driver]:
    async with share(make_options(model, workspace, resume=session)) as (_, remote), run_app(remote) as stage:
        yield AppDriver(stage)


class JsonLinesDriver:
    def __init__(self, program: Program) -> None:
        self._program = program

    async def send_prompt(self, text: str) -> None:
        await self._program.ok("send", text=text)

    async def answer(self, label: str = "") -> None:
        if label:
            request = await self._program.wait_for("question_request")
            await self._program.ok("question", request=request["id"], answers=[label])
        else:
            request = await self._program.wait_for("confirm_request")
            await self._program.ok("confirm", request=request["id"], allow=True)

    async def interrupt(self) -> None:
        await self._program.ok("cancel")

    async def see(self, text: str) -> None:
        while text not in "".join(line["text"] for line in self._program.all("text_delta")):
            await self._program.wait_for("text_delta")


@asynccontextmanager
async def drive_json_lines(model: ScriptedServer, workspace: Path, session: str) -> AsyncGenerator[Driver]:
    client = await SessionManager().open(make_options(model, workspace, resume=session))
    async with connect(client) as program:
        await program.ok("subscribe", events=["*", "text_delta"])
        yield JsonLinesDriver(program)
    await client.close()


class HttpDriver:
    """Plain requests, as a program in another language makes them, and server-sent events."""

    def __init__(self, http: httpx2.AsyncClient, session: str, events: list[dict[str, Any]]) -> None:
        self._http = http
        self._session = session
        self._events = events
        self._count = 0
        self._answered = 0

    async def _submit(self, **op: Any) -> None:
        self._count += 1
        body = {"id": f"op{self._count}", "op": op}
        response = await self._http.post(f"/sessions/{self._session}/ops", json=body)
        assert response.status_code == 200 and response.json()["done"], response.text

    async def send_prompt(self, text: str) -> None:
        await self._submit(type="Prompt", id=os.urandom(6).hex(), text=text, mode="edit_mode")

    async def answer(self, label: str = "") -> None:
        def find() -> list[dict[str, Any]]:
            return [one["event"] for one in self._events if one["event"]["type"].endswith("Asked")][self._answered :]

        asked = (await until(find))[0]
        self._answered += 1
        choice = {"choice": "answer", "answers": [[label]]} if label else {"choice": "allow_once"}
        await self._submit(type="Answer", id=asked["ask_id"], **choice)

    async def interrupt(self) -> None:
        await self._submit(type="Interrupt")

    async def see(self, text: str) -> None:
        def read() -> str:
            return "".join(one["event"]["text"] for one in self._events if one["event"]["type"] == "TextStreamed")

        await until(lambda: text in read())


@asynccontextmanager
async def drive_http(model: ScriptedServer, workspace: Path, session: str) -> AsyncGenerator[Driver]:
    events: list[dict[str, Any]] = []
    async with AsyncExitStack() as stack:
        served = await stack.enter_async_context(serve(model, workspace))
        http = await stack.enter_async_context(
            httpx2.AsyncClient(
                base_url=f"http://127.0.0.1:{served.port}",
                headers={"authorization": "Bearer alice:approve"},
                verify=False,
            )
        )
        session = session or (await http.post("/sessions", json={})).json()["session"]
        is_open = asyncio.Event()

        async def follow() -> None:
            async with http.stream("GET", f"/sessions/{session}/events", timeout=None) as response:
                async for line in response.aiter_lines():
                    is_open.set()
                    if line.startswith("data: {") and "event" in (told := json.loads(line[6:])):
                        events.append(told)

        task = asyncio.create_task(follow())
        await is_open.wait()
        yield HttpDriver(http, session, events)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class RedisDriver:
    """Commands in a Redis stream; requests come from the stream of events, text from the live channel."""

    def __init__(self, redis: Any, key: str) -> None:
        self._sender = Sender(redis, key)
        self._redis = redis
        self._key = key
        self._live = redis.pubsub()
        self._live.subscribe(f"{key}:live")
        self._text = ""
        self._answered = 0

    async def _submit(self, op: Op) -> None:
        assert (await self._sender.send(op))["status"] == "ok"

    async def send_prompt(self, text: str) -> None:
        await self._submit(Prompt(os.urandom(6).hex(), text))

    async def answer(self, label: str = "") -> None:
        def find() -> list[dict[str, Any]]:
            events = [one["event"] for one in read_stream(self._redis, self._key)]
            return [event for event in events if event["type"].endswith("Asked")][self._answered :]

        asked = (await until(find))[0]
        self._answered += 1
        given = (
            Answer(asked["ask_id"], "answer", answers=((label,),)) if label else Answer(asked["ask_id"], "allow_once")
        )
        await self._submit(given)

    async def interrupt(self) -> None:
        await self._submit(Interrupt())

    async def see(self, text: str) -> None:
        def read() -> bool:
            while (message := self._live.get_message(timeout=0.0)) is not None:
                if message["type"] == "message":
                    event = json.loads(message["data"])["event"]
                    self._text += event["text"] if event["type"] == "TextStreamed" else ""
            return text in self._text

        await until(read)

    def close(self) -> None:
        self._live.close()


@asynccontextmanager
async def drive_redis(model: ScriptedServer, workspace: Path, session: str) -> AsyncGenerator[Driver]:
    url = json.loads((Path(os.environ["HOME"]) / ".config/odin/odinconfig.json").read_text())["redis"]["url"]
    client = await SessionManager().open(make_options(model, workspace, resume=session))
    redis: Any = Redis(unix_socket_path=url.removeprefix("unix://"), decode_responses=True, protocol=2)
    with redis:
        await until(lambda: any(one["cmd"] == "xread" for one in redis.client_list()))
        driver = RedisDriver(redis, f"odin:{client.session.id}")
        yield driver
        driver.close()
    await client.close()


class PageDriver:
    """The web page in a browser: its composer, its requests, its stop button."""

    def __init__(self, window: Visit) -> None:
        self._window = window

    async def send_prompt(self, text: str) -> None:
        await self._window.send(text)

    async def answer(self, label: str = "") -> None:
        request = self._window.request
        await expect(request).to_be_visible()
        if label:
            await request.get_by_role("radio", name=label).check()
        await request.get_by_role("button", name="Answer" if label else re.compile("^(Allow once|Keep)")).click()
        await expect(request).to_have_count(0)

    async def interrupt(self) -> None:
        await self._window.press("Stop")

    async def see(self, text: str) -> None:
        await self._window.shows(text)


@asynccontextmanager
async def drive_page(model: ScriptedServer, workspace: Path, session: str) -> AsyncGenerator[Driver]:
    async with serve(model, workspace) as served, async_playwright() as playwright:
        browser = await launch_browser(playwright, workspace.parent / "browser")
        async with visit(browser, f"http://127.0.0.1:{served.port}") as window:
            await use_token(window, "alice:approve")
            if session:
                await window.open(session)
            else:
                await window.page.goto(f"{window.url}/")
                await window.press("New session")
            yield PageDriver(window)
        await browser.close()


DRIVERS = {
    "app": drive_app,
    "attached app": drive_attached_app,
    "JSON lines": drive_json_lines,
    "HTTP": drive_http,
    "Redis": drive_redis,
    "page": drive_page,
}


async def work(name: str, folder: Path, home: Path) -> tuple[list[Any], list[Any]]:
    """Do the work with one driver. Return the events of the log and the requests to the model, made comparable."""
    workspace = folder / f"project{list(DRIVERS).index(name)}"  # of one length, as the model counts tokens
    workspace.mkdir()
    model = Model(workspace)
    known = {path.parent.name for path in home.glob(f".local/state/odin/sessions/*/*/{LOG_NAME}")}

    def read() -> list[Envelope]:
        logs = [
            path for path in home.glob(f".local/state/odin/sessions/*/*/{LOG_NAME}") if path.parent.name not in known
        ]
        return list(read_log(logs[0])) if logs else []

    def count(kind: str) -> int:
        return sum(type(one.event).__name__ == kind and not one.agent for one in read())

    with ScriptedServer(model) as server:
        async with DRIVERS[name](server, workspace, "") as driver:
            await driver.send_prompt("edit the file")
            await driver.answer()
            await until(lambda: count("TurnEnded") == 1)
            await driver.send_prompt("run the command")
            await driver.answer()
            await until(lambda: count("TurnEnded") == 2)
            await driver.send_prompt("be busy")
            await until(lambda: len(main_requests(server)) == 5)
            await driver.send_prompt("and then")
            await until(lambda: count("PromptQueued") == 1)
            model.gate.set()
            await until(lambda: count("TurnEnded") == 4)
            await driver.send_prompt("now stall")
            await driver.see("Never")
            await driver.interrupt()
            await until(lambda: count("TurnEnded") == 5)
            await driver.send_prompt("use an agent")
            await until(lambda: count("TurnEnded") == 6)
            await driver.send_prompt("ask me")
            await driver.answer("left")
            await until(lambda: count("TurnEnded") == 7)
            await until(lambda: count("TitleSet") == 1)  # a session that is closed before keeps its first line
        async with DRIVERS[name](server, workspace, read()[0].session) as driver:
            await driver.send_prompt("once more")
            await until(lambda: count("TurnEnded") == 8)
        assert (workspace / "made.txt").read_text() == "made\n" and (workspace / "new.txt").read_text() == "x"
        events = [one for one in read() if type(one.event).__name__ not in DIFFERENT]
        comparable = Comparable(str(workspace), events[0].session)
        return (
            [
                *(comparable.clean(msgspec.to_builtins(one)) for one in events),
                *(one.event.title for one in read() if isinstance(one.event, TitleSet)),
            ],
            [comparable.clean(one.json) for one in main_requests(server)],
        )


def main_requests(server: ScriptedServer) -> list[SeenRequest]:
    """Return the requests of agents: without titles and summaries."""
    return [one for one in list(server.requests) if one.json.get("tools")]


DIFFERENT = {
    "ReplyDrafted": "how much of a reply that streams is on the disk depends on the time",
    "TitleSet": "the title is written while the work goes on; it is compared on its own",
}
"""Events that differ by nature, and why."""

_VARYING = re.compile(
    r"ask-\d+-\d+|\b[0-9a-f]{12}(?:[0-9a-f]{4})?\b|\b\d{17}\b|\d\d:\d\d:\d\d|/\S*\.local/state/odin/views/\S+"
)
_LEFT_OUT = {"seq", "ts", "by", "client", "duration_ms", "api_ms", "cost_usd", "metadata", "cached_at", "mtime", "sent"}


class Comparable:
    """Replaces what differs from run to run: ids by their order, paths, times. `seq` follows from the order."""

    def __init__(self, workspace: str, session: str) -> None:
        self._workspace = workspace
        self._names: dict[str, str] = {session: "SESSION"}

    def clean(self, value: Any) -> Any:
        if isinstance(value, dict):
            fields = cast("dict[str, Any]", value)
            return {key: self.clean(item) for key, item in fields.items() if key not in _LEFT_OUT}
        if isinstance(value, list | tuple):
            return [self.clean(item) for item in cast("list[Any]", value)]
        if isinstance(value, str):
            return _VARYING.sub(self._name, value.replace(self._workspace, "WORKSPACE"))
        return value

    def _name(self, match: re.Match[str]) -> str:
        return self._names.setdefault(match[0], f"ID{len(self._names)}")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "page")) for name in DRIVERS if name != "app"]
)
async def test_the_same_work_gives_the_same_log_and_the_same_requests(
    name: str, tmp_path: Path, home: Path, request: pytest.FixtureRequest
) -> None:
    if name == "page":
        require_chromium()
    if name == "Redis":
        # Also for the app: the settings are in the log.
        url = request.getfixturevalue("module_server").url
        folder = home / ".config/odin"
        folder.mkdir(parents=True)
        (folder / "odinconfig.json").write_text(json.dumps({"redis": {"url": url, "accept": "approve"}}))
    expected, other = await work("app", tmp_path, home), await work(name, tmp_path, home)
    for mine, theirs in zip(expected, other, strict=True):
        assert [json.dumps(one, sort_keys=True) for one in theirs] == [json.dumps(one, sort_keys=True) for one in mine]
