"""Random failures of four models in four wire formats with eight keys: every prompt is answered.

The history has tool calls, images and thinking; some tests add an outage of all providers.

Everything runs in this process without sockets: the strict scripted server replaces the network. The event loop skips
time while everything waits, so that cooldowns and stalls take no real time.
"""

import asyncio
import json
import os
import random
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from odin.app import open_session
from odin.app.process_services import ProcessServices
from odin.config import Options
from odin.config.paths import locate_key_states
from odin.core.call_events import KeyPoolChanged, RetryScheduled, ToolEnded, UsageRecorded
from odin.core.errors import StreamCut, StreamStalled, Unreachable
from odin.core.event import AnyEvent, Envelope, ModelChanged, TurnEnded
from odin.core.message import Image
from odin.core.op import Prompt
from odin.core.tool import Args, Tool, ToolContext, ToolOutput
from odin.models.key_states import KeyStates
from odin.providers.http import HttpClients
from odin.testing import call, fault, reply, say
from odin.testing.script import Script, SeenRequest, Turn
from odin.testing.server import Router, ServerBehavior, read_request
from odin.testing.transport import RawRequest, ServerAnswer
from tests.pictures import png
from tests.soak import choose, list_seeds, soak

MODELS = {
    "a": ("anthropic", "claude-opus-5"),
    "b": ("openai-responses", "gpt-5"),
    "c": ("openai-chat", "gpt-5.1"),
    "d": ("gemini", "gemini-4-argon"),
}
PNG_START = b"iVBORw0KGgo"
KEYS = {name: [f"key-{name}-0123456789-{number}" for number in (1, 2)] for name in MODELS}

PER_SESSION = 25
"""Prompts in one session; all sessions share the states of the keys."""


class SkippingLoop(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to the next timer when there is nothing else to do."""

    def __init__(self) -> None:
        self._skipped = 0.0
        self._in_threads = 0
        super().__init__()

    def time(self) -> float:
        return super().time() + self._skipped

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        self._in_threads += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(lambda done: self._leave_thread())
        return future

    def _leave_thread(self) -> None:
        self._in_threads -= 1

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Wait for the threads in real time: skipped time would use up their timeout."""
        self._in_threads += 1
        await super().shutdown_default_executor()

    def _run_once(self) -> None:
        ready, timers = self._ready, self._scheduled  # type: ignore[attr-defined]  # pyright: ignore
        waiting = [timer._when for timer in timers if not timer._cancelled]  # pyright: ignore
        if not ready and waiting and not self._in_threads:
            self._skipped += max(0.0, min(waiting) - self.time())  # pyright: ignore
        super()._run_once()  # type: ignore[misc]  # pyright: ignore


class Chaos:
    """Decides at random how each request ends; `executed` lists the numbers of the calls that ran."""

    def __init__(self, seed: int, outage_s: float = 0.0) -> None:
        self.outage_s = outage_s
        self.chance = random.Random(seed)
        self.dead: set[str] = set()
        self.empty_until: dict[str, float] = {}
        self.down_until = 0.0
        self.number = 0
        self.executed: list[int] = []
        self.faults: dict[str, int] = {}
        self.apis: set[str] = set()

    def begin_outage(self) -> None:
        self.down_until = asyncio.get_running_loop().time() + self.outage_s

    def play(self, seen: SeenRequest) -> Any:
        headers = seen.headers
        self.apis.add(seen.api)
        key = headers.get("x-api-key") or headers.get("x-goog-api-key") or headers["authorization"][len("Bearer ") :]
        now = asyncio.get_running_loop().time()
        if now < self.down_until:
            return self._fail("outage", fault(self.chance.choice([500, 503, 529])))
        if key in self.dead:
            return self._fail("dead", fault(401, message="invalid x-api-key", type="authentication_error"))
        if now < self.empty_until.get(key, 0):
            return self._fail("quota", fault(402))
        kind = self.chance.choices(
            ["fine", "limited", "told", "busy", "stall", "cut", "error", "empty", "dies", "quota"],
            [55, 6, 6, 8, 4, 8, 4, 3, 1, 1],
        )[0]
        return self._fail(kind, self._answer(kind, key, seen))

    def _fail(self, kind: str, turn: Turn) -> Turn:
        self.faults[kind] = self.faults.get(kind, 0) + 1
        return turn

    def _answer(self, kind: str, key: str, seen: SeenRequest) -> Turn:
        match kind:
            case "limited":
                return fault(429)
            case "told":
                return fault(429, {"retry-after": self.chance.choice(["0.2", "1", "7", "40"])})
            case "busy":
                return fault(self.chance.choice([500, 502, 503, 529]))
            case "empty":
                return say("")
            case "dies" if not any(key[:5] == other[:5] for other in self.dead):
                self.dead.add(key)
                return fault(401, message="invalid x-api-key", type="authentication_error")
            case "quota":
                self.empty_until[key] = asyncio.get_running_loop().time() + 45
                return fault(402)
            case "stall":
                return self._speak(seen).stall(after=self.chance.randint(0, 6))
            case "cut":
                return self._speak(seen).cut(events=self.chance.randint(0, 6))
            case "error":
                return self._speak(seen).error(after=self.chance.randint(1, 6))
            case _:
                return self._speak(seen)

    def _speak(self, seen: SeenRequest) -> Turn:
        if self.chance.random() < 0.4:
            return say("The answer is complete.")
        calls: list[Turn] = []
        for _ in range(self.chance.randint(1, 3)):
            self.number += 1
            calls.append(call("Work", {"n": self.number}))
        thinking = f"a secret of {seen.api}" if self.chance.random() < 0.3 and seen.api != "chat" else ""
        return reply("Working.", calls, thinking)


class WorkArgs(Args, frozen=True):
    n: int


class Work(Tool[WorkArgs]):
    """Notes which of its calls ran."""

    name = "Work"
    kind = "execute"
    short = "Works."
    args = WorkArgs

    def __init__(self, chaos: Chaos, picture: Path) -> None:
        self._chaos = chaos
        self._picture = Image(str(picture), "image/png", 3, 2)

    async def run(self, args: WorkArgs, ctx: ToolContext) -> ToolOutput:
        self._chaos.executed.append(args.n)
        return ToolOutput(f"done {args.n}", images=(self._picture,) if args.n % 5 == 0 else ())


class _Response:
    """A response of the router, which may stall or break off as its scripted turn says."""

    def __init__(self, answer: ServerAnswer, turn: Turn) -> None:
        self.status = answer.status
        self.headers = {name.lower(): value for name, value in answer.headers.items()}
        self._frames = list(answer.frames)
        self._turn = turn
        self._sent = 0

    async def read(self, timeout: float) -> bytes:
        turn = self._turn
        if turn.stall_after is not None and self._sent >= turn.stall_after:
            await asyncio.sleep(timeout)
            raise StreamStalled("Nothing arrived.")
        if turn.cut_after is not None and self._sent >= turn.cut_after:
            raise StreamCut("The connection broke.")
        await asyncio.sleep(0)
        self._sent += 1
        return self._frames.pop(0) if self._frames else b""

    async def read_all(self, timeout: float, limit: int = 0) -> bytes:
        return b"".join(self._frames)

    def release(self) -> None:
        return

    discard = abort = release


class RoutedHttp:
    """Replaces the HTTP client: passes each request to one strict router, so that ids are unique."""

    def __init__(self, chaos: Chaos) -> None:
        self.rejected: list[tuple[SeenRequest, str]] = []
        self.seen: list[SeenRequest] = []
        self._router = Router(Script(chaos.play), ServerBehavior(), self.rejected)
        self._chance = chaos.chance

    async def preconnect(self, url: str) -> None:
        return

    async def acquire(self, address: Any) -> _Response:
        if self._chance.random() < 0.02:
            raise Unreachable("No connection.")
        return _Response(ServerAnswer(200, {}, []), Turn())

    async def send(
        self, wire: Any, method: str, address: Any, headers: Mapping[str, str], body: bytes, header_timeout: float
    ) -> _Response:
        seen = read_request(RawRequest(method, address.path, dict(headers), True, 0.0, len(body), body))
        self.seen.append(seen)
        return _Response(*self._router.answer(seen))

    async def close(self) -> None:
        return


class RoutedClients(HttpClients):
    def __init__(self, http: RoutedHttp) -> None:
        super().__init__()
        self._http = http

    def get(self, env: Mapping[str, str]) -> Any:
        return self._http


async def run_prompts(
    chaos: Chaos,
    prompts: int,
    http: RoutedHttp,
    workspace: Path,
    home: Path,
    outages: tuple[int, ...],
    attempts: int,
) -> list[Envelope]:
    providers = {
        name: {
            "type": api,
            "base_url": f"http://{name}.test/{'v1beta' if api == 'gemini' else 'v1'}",
            "api_keys": KEYS[name],
            "key_rotation": "per_request" if name == "b" else "on_failure",
            "models": {model: {"context": 1_000_000, "tools": "native", "thinking": True, "images": True}},
        }
        for name, (api, model) in MODELS.items()
    }
    pool = [f"{name}/{model}" for name, (_, model) in MODELS.items()]
    config = {
        "providers": providers,
        "model_pools": {"all": pool},
        "verify": {"mode": "off"},
        "checkpoints": {"enabled": False},
        "thinking": 2000,
        "retry": {"attempts": attempts},
    }
    path = home / ".config/odin/odinconfig.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(config))
    env = {**os.environ, "ODIN_MODEL": ""}
    states = KeyStates.get_shared(locate_key_states(env))  # the sessions share it while someone holds it
    states.clock = asyncio.get_running_loop().time
    heard: list[Envelope] = []
    for first in range(0, prompts, PER_SESSION):
        options = Options(env=env, cwd=str(workspace), yes=True, tools=("Work",))
        process = ProcessServices(http=RoutedClients(http))
        client = await open_session(options, tools=[Work(chaos, workspace / "a.png")], process=process)
        events = client.stream_events()
        for number in range(first, min(first + PER_SESSION, prompts)):
            if number in outages:
                chaos.begin_outage()
            await client.submit(Prompt(f"p{number}", f"Prompt {number}."))
            async for envelope in events:
                heard.append(envelope)
                if isinstance(envelope.event, TurnEnded) and envelope.event.id == f"p{number}":
                    break
        await client.close()
    return heard


Play = Callable[..., tuple[RoutedHttp, list[AnyEvent]]]


@pytest.fixture
def play(workspace: Path, home: Path) -> Play:
    """play(chaos, prompts, outages=(…), attempts=…) sends prompts and returns the HTTP client and the events.

    An outage starts with each of the numbered prompts.
    """

    def run(
        chaos: Chaos, prompts: int, outages: tuple[int, ...] = (), attempts: int = 6
    ) -> tuple[RoutedHttp, list[AnyEvent]]:
        http = RoutedHttp(chaos)
        (workspace / "a.png").write_bytes(png())
        with asyncio.Runner(loop_factory=SkippingLoop) as runner:
            heard = runner.run(run_prompts(chaos, prompts, http, workspace, home, outages, attempts))
        return http, [envelope.event for envelope in heard]

    return run


@soak
@pytest.mark.parametrize("seed", list_seeds(sample=1, full=3))
def test_every_prompt_is_answered(seed: int, play: Play) -> None:
    prompts = choose(sample=10, full=500)
    chaos = Chaos(seed)
    http, events = play(chaos, prompts)
    ends = [event for event in events if isinstance(event, TurnEnded)]
    assert [(end.id, end.reason, end.error) for end in ends if end.reason != "end_turn"] == []
    assert len(ends) == prompts
    assert [why for _, why in http.rejected] == [], "no invalid request"
    assert len(chaos.executed) == len(set(chaos.executed)), "no call ran twice"
    assert len(chaos.executed) == sum(isinstance(event, ToolEnded) for event in events), "one result per call"
    assert min(event.usage.total for event in events if isinstance(event, UsageRecorded)) > 0, "never 0 tokens"
    for seen in http.seen:
        owners = set(re.findall(rb"a secret of (\w+)", seen.body))
        assert owners <= {seen.api.encode()}, "no thinking crosses models"
    assert len({seen.api for seen in http.seen if PNG_START in seen.body}) >= min(len(MODELS), prompts // 5)
    assert {kind for kind, count in chaos.faults.items() if count} > {"fine", "limited", "busy", "cut"}
    assert len(chaos.apis) >= min(len(MODELS), prompts // 5), "the strict server took requests of all formats"
    for kind in (ModelChanged, KeyPoolChanged, RetryScheduled):
        assert any(isinstance(event, kind) for event in events)


def test_without_a_limit_prompts_wait_for_the_end_of_an_outage(play: Play) -> None:
    """With `retry.attempts` 0 every prompt is answered."""
    chaos = Chaos(4, outage_s=1800)
    http, events = play(chaos, 4, outages=(1,), attempts=0)
    ends = [event for event in events if isinstance(event, TurnEnded)]
    assert [end.reason for end in ends] == ["end_turn"] * 4
    waits = [event for event in events if isinstance(event, RetryScheduled)]
    assert sum(wait.delay_s for wait in waits) > chaos.outage_s / 2 and max(wait.delay_s for wait in waits) <= 60
    assert http.rejected == [] and len(chaos.executed) == len(set(chaos.executed))


def test_after_an_outage_that_ended_a_turn_the_next_prompt_is_answered(play: Play) -> None:
    chaos = Chaos(5, outage_s=60)
    http, events = play(chaos, 15, outages=(1,))
    ends = [event for event in events if isinstance(event, TurnEnded)]
    assert (ends[1].reason, ends[1].error_kind) == ("error", "Overloaded")
    assert ends[-1].reason == "end_turn" and http.rejected == []
    assert len(chaos.executed) == len(set(chaos.executed))
