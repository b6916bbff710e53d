"""A program that works with one session until it is killed: prompts, a queue, answers, interrupts, rewinds.

It is told what to do, and perhaps at which of its own steps to die, as JSON in a file. The program forks a worker for
every line of its input, which is faster than to start and load a new one each time (see nursery.py).
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

from odin.app.sessions import SessionSwitcher, open_switcher
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

OWN = "own.txt"
"""What the commands of the person write, which nobody records."""


class Death(msgspec.Struct, frozen=True):
    """`step`: at the nth thing done to files, processes or sockets. `torn`: in the nth write to the log, after `bytes`.

    `none`: somebody else sees to it, or nobody.
    """

    kind: Literal["step", "torn", "none"] = "none"
    at: int = 0
    bytes: int = 0


class Life(msgspec.Struct, frozen=True):
    session: str
    resume: bool
    cwd: str
    seed: int
    prompts: int
    death: Death = Death()
    lively: bool = True
    """Whether anything but plain prompts happens."""

    room: int = -1
    """How large files may become: a limit stands for the disk; -1 is as large as they like."""

    team: bool = False
    """Whether it goes on until the sub-agents have nothing more to do."""


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def prepare(death: Death) -> None:
    if death.kind == "step":
        _die_at_step(death.at)
    elif death.kind == "torn":
        _die_in_write(death.at, death.bytes)


def _die_at_step(at: int) -> None:
    left = at

    def step(event: str, args: tuple[Any, ...]) -> None:
        nonlocal left
        if event == "open" or event.startswith(("os.", "subprocess.", "fcntl.", "socket.")):
            left -= 1
            if left == 0:
                die()

    sys.addaudithook(step)


def _die_in_write(at: int, count: int) -> None:
    left, write = at, os.write

    def torn(fd: int, data: Any) -> int:
        nonlocal left
        if os.readlink(f"/proc/self/fd/{fd}").endswith("main.jsonl"):
            left -= 1
            if left == 0:
                write(fd, bytes(data)[:count])
                die()
        return write(fd, data)

    os.write = torn


class Worker:
    def __init__(self, host: SessionSwitcher, life: Life) -> None:
        self._host = host
        self._life = life
        self._random = random.Random(life.seed)
        self._count = 0
        self._ended = asyncio.Event()
        self._last = ""

    @property
    def _client(self) -> Client:
        return self._host.client

    def _listen(self) -> None:
        self._follower = asyncio.create_task(self._follow(self._client.stream_events()))

    async def work(self) -> None:
        self._listen()
        try:
            for _ in range(self._life.prompts):
                await self._prompt()
                if self._life.lively:
                    await self._something_else()
                async with asyncio.timeout(60):
                    await self._ended.wait()
                if self._life.lively and self._random.random() < 0.3:
                    await self._go_back()
                if self._life.team:
                    await self._wait_for_team()
        finally:
            self._follower.cancel()

    async def _wait_for_team(self) -> None:
        async with asyncio.timeout(60):
            while (shot := await self._client.snapshot()).executing or shot.team_working:
                await asyncio.sleep(0.005)

    def _name(self) -> str:
        self._count += 1
        return f"{os.getpid()}-{self._count}"

    async def _prompt(self) -> None:
        self._last = self._name()
        self._ended.clear()
        if not await self._submit(Prompt(self._last, f"prompt {self._last}")):
            self._ended.set()

    async def _submit(self, op: Op) -> bool:
        try:
            return await self._client.submit(op)
        except OdinError:
            return False

    async def _something_else(self) -> None:
        await asyncio.sleep(self._random.random() * 0.05)
        choice = self._random.randrange(13)
        if choice < 2:
            await self._prompt()
            await self._prompt()
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
            await self._submit(RunUserShell(self._name(), f"echo mine >>{OWN}"))
        elif choice == 9:
            await self._steer()

    async def _steer(self) -> None:
        """Into the running turn; and one that an earlier life left waiting is sent, too."""
        self._last = self._name()
        self._ended.clear()
        if not await self._submit(Prompt(self._last, f"steering {self._last}", delivery="steer")):
            self._ended.set()
        waiting = (await self._client.snapshot()).queue
        if waiting:
            await self._submit(ChangePrompt(waiting[0].id, text="changed", delivery="queue"))

    async def _go_back(self) -> None:
        choice = self._random.randrange(6)
        if choice == 0:
            await self._submit(RemoveLastMessage())
            return
        if choice > 3:
            await self._go_elsewhere(copy=choice == 4)
            return
        if choice == 1:
            self._last = self._name()
            self._ended.clear()
            if await self._submit(Continue(self._last)):
                async with asyncio.timeout(60):
                    await self._ended.wait()
            return
        turns = (await self._client.snapshot()).messages
        if turns:
            await self._submit(Rewind(turns[-1].id, chat=self._random.random() < 0.5))
            if self._random.random() < 0.5:
                await self._submit(Redo())

    async def _go_elsewhere(self, *, copy: bool) -> None:
        """To a copy or to a new session, and back, as a person in the chat does."""
        try:
            await (self._host.fork() if copy else self._host.open_new())
            await self._submit(SetTitle("elsewhere"))
            await self._host.resume(self._life.session)
        except OdinError:  # it is busy, or the disk is full: then there may be no way back
            if (await self._client.get_info()).session != self._life.session:
                die()
            return
        self._follower.cancel()
        self._listen()

    async def _follow(self, events: Any) -> None:
        async for envelope in events:
            await self._hear(envelope)

    async def _hear(self, envelope: Envelope) -> None:
        event = envelope.event
        if isinstance(event, PermissionAsked):
            await self._submit(AnswerPermission(event.ask_id, self._random.random() < 0.8, "perhaps"))
        elif isinstance(event, QuestionsAsked):
            await self._submit(AnswerQuestions(event.ask_id, cancelled=True))
        elif isinstance(event, PlanAsked):
            await self._submit(AnswerPlan(event.ask_id, "revise", "perhaps"))
        elif isinstance(event, TurnEnded | PromptInjected | PromptDropped) and event.id == self._last:
            self._ended.set()


async def live(life: Life) -> None:
    name: dict[str, Any] = {"resume": life.session} if life.resume else {"session_id": life.session}
    host = await open_switcher(Options(cwd=life.cwd, can_ask=True, thinking=2000, env=dict(os.environ), **name))
    try:
        sys.stdout.buffer.write(msgspec.json.encode(await host.client.snapshot()) + b"\n")
        await Worker(host, life).work()
    finally:
        await host.close()


def begin(path: str) -> None:
    """The whole life that is described in this file."""
    told = msgspec.json.decode(Path(path).read_bytes(), type=Life)
    prepare(told.death)
    if told.room >= 0:
        sys.dont_write_bytecode = True  # a limited file size would leave half a .pyc behind
        resource.setrlimit(resource.RLIMIT_FSIZE, (told.room, resource.RLIM_INFINITY))
    asyncio.run(live(told))


class Birth(msgspec.Struct, frozen=True):
    """A life to begin: the file that describes it, its surroundings, and where it prints to."""

    told: str
    env: dict[str, str]
    cwd: str
    out: str


def serve() -> None:
    """Begin one life after the other; report the id of each process when it begins and its exit code when it ends."""
    for line in sys.stdin:
        birth = msgspec.json.decode(line, type=Birth)
        pid = os.fork()
        if not pid:
            _begin_forked(birth)
        os.write(1, b"pid: %d\n" % pid)
        _, status = os.waitpid(pid, 0)
        os.write(1, b"exit code of %d: %d\n" % (pid, os.waitstatus_to_exitcode(status)))


def _begin_forked(birth: Birth) -> None:
    os.setsid()
    os.chdir(birth.cwd)
    os.environ.clear()
    os.environ.update(birth.env)
    nothing, out = os.open(os.devnull, os.O_RDONLY), os.open(birth.out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for fd, as_fd in ((nothing, 0), (out, 1), (out, 2)):
        os.dup2(fd, as_fd)
    code = 1
    try:
        begin(birth.told)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
