"""A program that works with one session until it is killed: prompts, a queue, answers, interrupts, rewinds.

A JSON file says what a worker does and at which of its own steps it kills itself. The program forks a worker for every
line of its input, which is faster than starting Python and loading Odin each time (see worker_server.py).
"""

import asyncio
import os
import random
import resource
import signal
import sys
import traceback
from pathlib import Path
from typing import Any, Literal

import msgspec

from odin.config import Options
from odin.core.call_events import PermissionAsked, PlanAsked, QuestionsAsked
from odin.core.client import Client
from odin.core.errors import OdinError
from odin.core.event import Envelope, PromptDropped, PromptInjected, TurnEnded
from odin.core.op import (
    AddContext,
    AddRule,
    AnswerPermission,
    AnswerPlan,
    AnswerQuestions,
    ChangePrompt,
    Compact,
    Continue,
    Interrupt,
    Op,
    Prompt,
    Redo,
    RemoveLastMessage,
    Rewind,
    RunUserShell,
    SetPermissionMode,
    SetTitle,
)
from odin.host.workspace_sessions import WorkspaceSessions, open_workspace_sessions
from tests.waiting import TimeLimit

USER_FILE = "own.txt"
"""The file that shell commands of the user write. No log records these changes."""


class KillPoint(msgspec.Struct, frozen=True):
    """Where a worker kills itself.

    `step`: at the nth operation on files, processes or sockets. `torn`: in the nth write to the log, after `bytes`.
    `none`: nowhere. The test may kill it.
    """

    kind: Literal["step", "torn", "none"] = "none"
    at: int = 0
    bytes: int = 0


class WorkPlan(msgspec.Struct, frozen=True):
    session: str
    resume: bool
    cwd: str
    seed: int
    prompts: int
    kill_point: KillPoint = KillPoint()
    random_ops: bool = True
    """Whether the worker also submits random operations besides prompts."""

    max_file_size: int = -1
    """A limit on the file size that simulates a full disk; -1 is no limit."""

    team: bool = False
    """Whether the worker waits until the sub-agents have finished."""


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm_kill_point(kill_point: KillPoint) -> None:
    if kill_point.kind == "step":
        _kill_at_step(kill_point.at)
    elif kill_point.kind == "torn":
        _kill_in_write(kill_point.at, kill_point.bytes)


def _kill_at_step(at: int) -> None:
    left = at

    def step(event: str, args: tuple[Any, ...]) -> None:
        nonlocal left
        if event == "open" or event.startswith(("os.", "subprocess.", "fcntl.", "socket.")):
            left -= 1
            if left == 0:
                kill_self()

    sys.addaudithook(step)


def _kill_in_write(at: int, count: int) -> None:
    left, write = at, os.write

    def write_and_kill(fd: int, data: Any) -> int:
        nonlocal left
        if os.readlink(f"/proc/self/fd/{fd}").endswith("main.jsonl"):
            left -= 1
            if left == 0:
                write(fd, bytes(data)[:count])
                kill_self()
        return write(fd, data)

    os.write = write_and_kill


class Worker:
    def __init__(self, switcher: WorkspaceSessions, plan: WorkPlan) -> None:
        self._switcher = switcher
        self._plan = plan
        self._random = random.Random(plan.seed)
        self._count = 0
        self._ended = asyncio.Event()
        self._last = ""

    @property
    def _client(self) -> Client:
        return self._switcher.client

    def _subscribe(self) -> None:
        self._follower = asyncio.create_task(self._follow(self._client.stream_events()))

    async def work(self) -> None:
        self._subscribe()
        try:
            for _ in range(self._plan.prompts):
                await self._send_prompt()
                if self._plan.random_ops:
                    await self._submit_random_op()
                async with TimeLimit():
                    await self._ended.wait()
                if self._plan.random_ops and self._random.random() < 0.3:
                    await self._submit_random_rewind()
                if self._plan.team:
                    await self._wait_for_team()
        finally:
            self._follower.cancel()

    async def _wait_for_team(self) -> None:
        async with TimeLimit():
            while (shot := await self._client.snapshot()).executing or shot.team_working:
                await asyncio.sleep(0.005)

    def _make_id(self) -> str:
        self._count += 1
        return f"{os.getpid()}-{self._count}"

    async def _send_prompt(self) -> None:
        self._last = self._make_id()
        self._ended.clear()
        if not await self._submit(Prompt(self._last, f"prompt {self._last}")):
            self._ended.set()

    async def _submit(self, op: Op) -> bool:
        try:
            return await self._client.submit(op)
        except OdinError:
            return False

    async def _submit_random_op(self) -> None:
        await asyncio.sleep(self._random.random() * 0.05)
        choice = self._random.randrange(13)
        if choice < 2:
            await self._send_prompt()
            await self._send_prompt()
        elif choice == 2:
            await self._submit(AddContext("some context", command="date"))
        elif choice == 3:
            await self._submit(SetTitle(f"title {self._count}"))
        elif choice == 4:
            await self._submit(AddRule(f"ExecuteCommand(echo {self._count}:*)"))
        elif choice == 5:
            await self._submit(Interrupt())
            self._ended.set()
        elif choice == 6:
            await self._submit(SetPermissionMode(self._random.choice(["default", "acceptEdits"])))
        elif choice == 7:
            await self._submit(Compact())
        elif choice == 8:
            await self._submit(RunUserShell(self._make_id(), f"echo mine >>{USER_FILE}"))
        elif choice == 9:
            await self._steer()

    async def _steer(self) -> None:
        """Steer the running turn, and send a prompt that is still queued from an earlier run."""
        self._last = self._make_id()
        self._ended.clear()
        if not await self._submit(Prompt(self._last, f"steering {self._last}", delivery="steer")):
            self._ended.set()
        waiting = (await self._client.snapshot()).queue
        if waiting:
            await self._submit(ChangePrompt(waiting[0].id, text="changed", delivery="queue"))

    async def _submit_random_rewind(self) -> None:
        choice = self._random.randrange(6)
        if choice == 0:
            await self._submit(RemoveLastMessage())
            return
        if choice > 3:
            await self._switch_and_return(fork=choice == 4)
            return
        if choice == 1:
            self._last = self._make_id()
            self._ended.clear()
            if await self._submit(Continue(self._last)):
                async with TimeLimit():
                    await self._ended.wait()
            return
        turns = (await self._client.snapshot()).messages
        if turns:
            await self._submit(Rewind(turns[-1].id, chat=self._random.random() < 0.5))
            if self._random.random() < 0.5:
                await self._submit(Redo())

    async def _switch_and_return(self, *, fork: bool) -> None:
        """Switch to a fork or to a new session and back, as a user of the chat does."""
        try:
            await (self._switcher.fork() if fork else self._switcher.open_new())
            await self._submit(SetTitle("elsewhere"))
            await self._switcher.resume(self._plan.session)
        except OdinError:  # the session is busy, or the disk is full, and then the switch back may fail
            if (await self._client.get_info()).session != self._plan.session:
                kill_self()
            return
        self._follower.cancel()
        self._subscribe()

    async def _follow(self, events: Any) -> None:
        async for envelope in events:
            await self._handle_event(envelope)

    async def _handle_event(self, envelope: Envelope) -> None:
        event = envelope.event
        if isinstance(event, PermissionAsked):
            await self._submit(AnswerPermission(event.ask_id, self._random.random() < 0.8, "perhaps"))
        elif isinstance(event, QuestionsAsked):
            await self._submit(AnswerQuestions(event.ask_id, cancelled=True))
        elif isinstance(event, PlanAsked):
            await self._submit(AnswerPlan(event.ask_id, "revise", "perhaps"))
        elif isinstance(event, TurnEnded | PromptInjected | PromptDropped) and event.id == self._last:
            self._ended.set()


async def run_session(plan: WorkPlan) -> None:
    name: dict[str, Any] = {"resume": plan.session} if plan.resume else {"session_id": plan.session}
    switcher = await open_workspace_sessions(
        Options(cwd=plan.cwd, can_ask=True, thinking=2000, env=dict(os.environ), **name)
    )
    try:
        sys.stdout.buffer.write(msgspec.json.encode(await switcher.client.snapshot()) + b"\n")
        await Worker(switcher, plan).work()
    finally:
        await switcher.close()


def run_plan(path: str) -> None:
    """Carry out the plan in this file."""
    plan = msgspec.json.decode(Path(path).read_bytes(), type=WorkPlan)
    arm_kill_point(plan.kill_point)
    if plan.max_file_size >= 0:
        sys.dont_write_bytecode = True  # a limited file size would leave half a .pyc behind
        resource.setrlimit(resource.RLIMIT_FSIZE, (plan.max_file_size, resource.RLIM_INFINITY))
    asyncio.run(run_session(plan))


class ForkRequest(msgspec.Struct, frozen=True):
    """A worker to start: the file with its plan, its environment and folder, and the file it prints to."""

    plan: str
    env: dict[str, str]
    cwd: str
    out: str


def serve() -> None:
    """Run one worker after the other. Report the process id of each when it starts and its exit code when it ends."""
    for line in sys.stdin:
        request = msgspec.json.decode(line, type=ForkRequest)
        pid = os.fork()
        if not pid:
            _run_forked(request)
        os.write(1, b"pid: %d\n" % pid)
        _, status = os.waitpid(pid, 0)
        os.write(1, b"exit code of %d: %d\n" % (pid, os.waitstatus_to_exitcode(status)))


def _run_forked(request: ForkRequest) -> None:
    os.setsid()
    os.chdir(request.cwd)
    os.environ.clear()
    os.environ.update(request.env)
    nothing, out = os.open(os.devnull, os.O_RDONLY), os.open(request.out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for fd, as_fd in ((nothing, 0), (out, 1), (out, 2)):
        os.dup2(fd, as_fd)
    code = 1
    try:
        run_plan(request.plan)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
