"""A worker: it starts a process for each task that an engine gives it, and owns them.

The processes are forked from one that has loaded Odin, which takes a fraction of a start.
"""

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import msgspec

from odin.app.reply_modules import REPLY_MODULES
from odin.core.private_folders import make_private_folder
from odin.fleet.engine import Attempt, Progress, TaskResult, WorkerLost
from odin.fleet.task_process import STOP, ProcessMessage, TaskOrder, TaskProgressed, run_task_process

_STOP_S = 30.0
_TASK_MODULES = (
    "odin.engine.pipeline",
    "odin.engine.command_effects",
    "odin.providers.http",
    "odin.providers.anthropic",
    "odin.providers.openai_chat",
    "odin.sandbox.views.applier",
    "odin.sandbox.secret_files",
    "odin.app.shared_copy",
)
"""What most tasks need besides: loaded once, and not in each process."""

_SILENCE_S = 300.0
"""A process that reports nothing for so long hangs."""


class Worker:
    """Performs tasks below a folder. `state_dir` has the sessions."""

    def __init__(self, folder: Path, state_dir: Path, env: Mapping[str, str]) -> None:
        import multiprocessing

        self._folder = folder
        self._state = state_dir
        self._env = dict(env)
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["odin.fleet.task_process", *REPLY_MODULES, *_TASK_MODULES])

    async def perform(self, attempt: Attempt) -> TaskResult:
        """Run or resume a task in a process of its own. Raise WorkerLost if that dies."""
        work = await asyncio.to_thread(make_private_folder, self._folder / "work")
        ours, theirs = self._context.Pipe()
        order = TaskOrder(
            attempt.run,
            attempt.task,
            attempt.retries,
            attempt.budget_usd,
            str(self._folder),
            str(self._state),
            str(work / f".{attempt.task.id}.log"),
            self._env,
        )
        process = self._context.Process(
            target=run_task_process, args=(theirs, msgspec.json.encode(order)), daemon=False
        )
        try:
            try:
                await asyncio.to_thread(process.start)
            except (OSError, EOFError) as error:  # the machine has too many processes
                raise WorkerLost(f"The process of {attempt.task.id} did not start.") from error
            theirs.close()
            return await self._watch(attempt, process, ours)
        finally:
            await asyncio.to_thread(_end, process)
            ours.close()

    async def _watch(self, attempt: Attempt, process: ForkServerProcess, pipe: Any) -> TaskResult:
        loop = asyncio.get_running_loop()
        messages: asyncio.Queue[ProcessMessage | None] = asyncio.Queue()

        def read() -> None:
            try:
                while pipe.poll():
                    messages.put_nowait(msgspec.json.decode(pipe.recv_bytes(), type=ProcessMessage))
            except (EOFError, OSError, msgspec.MsgspecError):
                loop.remove_reader(pipe.fileno())
                messages.put_nowait(None)

        loop.add_reader(pipe.fileno(), read)
        stopping = asyncio.create_task(attempt.stop.wait())
        patience = _SILENCE_S
        try:
            while True:
                getting = asyncio.create_task(messages.get())
                done, _ = await asyncio.wait(
                    {getting, stopping} if not stopping.done() else {getting},
                    timeout=patience,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if stopping in done and patience == _SILENCE_S:
                    patience = _STOP_S
                    with suppress(OSError):
                        pipe.send_bytes(STOP)
                if getting not in done:
                    getting.cancel()
                    if not done:
                        raise WorkerLost(f"The process of {attempt.task.id} does not answer.")
                    continue
                message = getting.result()
                if message is None:
                    raise WorkerLost(f"The process of {attempt.task.id} died.")
                if isinstance(message, TaskProgressed):
                    await attempt.report(message.progress)
                else:
                    last = message.result
                    await attempt.report(Progress(0, last.requests, last.tokens_in + last.tokens_out, last.usd))
                    return last
        finally:
            stopping.cancel()
            loop.remove_reader(pipe.fileno())


def _end(process: ForkServerProcess) -> None:
    """Wait for the end of a process that has nothing left to do, and kill it with its group if it goes on."""
    if process.pid is None:
        return
    process.join(2)
    if process.exitcode is None:
        for kill in (os.killpg, os.kill):
            with suppress(ProcessLookupError, PermissionError):
                kill(process.pid, signal.SIGKILL)
        process.join(5)
