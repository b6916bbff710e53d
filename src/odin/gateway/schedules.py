"""Starts what is due: prompts, messages, commands and the heartbeat.

It looks at the clock and at the store every second. So it needs no timers that a change of the clock, a computer that
sleeps or another process that adds a job could make wrong; what is due is in the store.
"""

import asyncio
import time
from pathlib import Path

from odin.app.sandbox import LazySandbox
from odin.config import load
from odin.config.paths import make_environment
from odin.core.errors import OdinError
from odin.core.format import clip, format_usd
from odin.core.profile import ProcessProfile
from odin.gateway.chats import Chats
from odin.gateway.heartbeat import is_active, is_new_finding, make_beat, make_heartbeat_job, read_heartbeat_file
from odin.gateway.jobs import (
    HEARTBEAT,
    DueRun,
    RunState,
    end_run,
    forget_job,
    get_run_cost_today,
    keep_job,
    recompute,
    recover_runs,
    take_due,
)
from odin.gateway.outbox import describe_error
from odin.gateway.session import ChatServices
from odin.gateway.store import Chat, GatewayStore
from odin.sandbox.process import describe_exit
from odin.sandbox.runner import CommandResult, ProcessRunner

TICK_S = 1.0
JUMP_S = 5.0
"""A clock that goes back by more than this was set."""

COMMAND_S = 600.0
PROBE_S = 60.0
_MAX_OUTPUT_CHARS = 3000
_PAUSE_S = 10.0


class Scheduler:
    """Starts what is due in the store of a gateway."""

    def __init__(self, services: ChatServices, chats: Chats, *, tick_s: float = TICK_S) -> None:
        self._services = services
        self._chats = chats
        self._db = services.db
        self._clock = services.environment.timing.clock
        self._tick_s = tick_s
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Start what is due until it is cancelled. After an error, such as a full disk, it goes on later."""
        try:
            before, changes = self._clock(), -1
            while True:
                try:
                    now = self._clock()
                    if now < before - JUMP_S:
                        await self._db.run(recompute, now)
                        self._services.log.write("clock", "gateway", note=f"set back by {before - now:.0f} s")
                        self._services.outbox.wake()
                    before = now
                    if (seen := await self._db.run(GatewayStore.count_changes)) != changes:
                        changes = seen
                        await self._look_around()
                    for run in await self._db.run(take_due, now):
                        self._start(run)
                    pause = self._tick_s
                except Exception as error:
                    self._services.log.write("failed", "schedules", note=describe_error(error))
                    pause = _PAUSE_S
                await asyncio.sleep(pause)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def recover(self) -> None:
        """Report what an earlier gateway has left behind, and store what the settings say. To be called first."""
        now, heartbeat = self._clock(), self._services.settings.heartbeat
        for run in await self._db.run(recover_runs, now):
            self._services.log.write("unsure", run.channel, run.chat, run.key, run.job)
        if heartbeat.enabled:
            await self._db.run(keep_job, make_heartbeat_job(heartbeat), now)
        else:
            await self._db.run(forget_job, HEARTBEAT)
        await self._db.run(recompute, now)

    async def _look_around(self) -> None:
        """Another process has changed the store: it may have added messages, or parts to send."""
        self._services.outbox.wake()
        for channel, chat in await self._db.run(GatewayStore.list_waiting):
            self._wake(channel, chat)

    def _wake(self, channel: str, chat: str) -> None:
        if channel in self._services.channels:
            self._chats.get(channel, chat).wake()

    def _start(self, run: DueRun) -> None:
        job = run.job
        event = "scheduled" if run.is_run else "missed"
        self._services.log.write(event, job.channel, job.chat, run.key, f"{job.name} {run.note}".strip())
        self._services.outbox.wake()
        if run.is_run and job.action == "prompt":
            self._wake(job.channel, job.chat)
        elif run.is_run and job.action in ("command", "heartbeat"):
            task = asyncio.create_task(self._run_command(run) if job.action == "command" else self._beat(run))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    # --- commands ---

    async def _run_command(self, run: DueRun) -> None:
        state: RunState = "failed"
        said = note = "The gateway was stopped while it ran."
        try:
            chat = await self._db.run(GatewayStore.get_chat, run.job.channel, run.job.chat)
            done = await self._run(run.job.text, chat.folder or self._services.workspace, COMMAND_S)
            note = "" if done.code == 0 and not done.timed_out else _describe_end(done)
            state = "failed" if note else "done"
            output = clip(done.output.strip(), _MAX_OUTPUT_CHARS)
            said = "\n\n".join(filter(None, (note, f"```\n{output}\n```" if output else "")))
        except Exception as error:  # whatever it is, it is this run that has failed
            said = note = describe_error(error)
        finally:
            note = self._services.log.redact(note)
            text = self._services.log.redact(f"The schedule {run.job.name}: {said}") if said else ""
            parts = self._services.make_parts(Chat(channel=run.job.channel, chat=run.job.chat), run.key, text)
            self._services.log.write("ended", run.job.channel, run.job.chat, run.key, f"{run.job.name} {note}".strip())
            ending = self._db.run(end_run, run.key, self._clock(), note=note, state=state, parts=parts)
            await asyncio.shield(asyncio.ensure_future(ending))
            self._services.outbox.wake()

    async def _run(self, command: str, folder: str, limit_s: float) -> CommandResult:
        """Run a command in the sandbox. Without one it is not run."""
        state = self._services.environment.state_dir
        env = self._services.environment.variables
        environment = make_environment(env, folder, state, self._services.environment.timing)
        runner = ProcessRunner(
            environment, Path(state) / "outputs", sandbox=LazySandbox(load(folder, env), environment).get
        )
        try:
            profile = ProcessProfile("project", confined=True)
            return await runner.run(command, cwd=folder, timeout=limit_s, limit=_MAX_OUTPUT_CHARS, profile=profile)
        finally:
            await runner.close()

    # --- the heartbeat ---

    async def _beat(self, run: DueRun) -> None:
        state: RunState = "skipped"
        why = "The gateway was stopped."
        try:
            why = await self._start_beat(run)
        except Exception as error:
            state, why = "failed", self._services.log.redact(describe_error(error))
        finally:
            if why:
                self._services.log.write("heartbeat", HEARTBEAT, run.job.chat, run.key, why)
                ending = self._db.run(end_run, run.key, self._clock(), note=why, state=state)
                await asyncio.shield(asyncio.ensure_future(ending))

    async def _start_beat(self, run: DueRun) -> str:
        """Ask the model if there is a reason to. Return why not, or ""."""
        settings, workspace = self._services.settings.heartbeat, self._services.workspace
        now = self._clock()
        if not is_active(settings, now):
            return "It is outside of the active hours."
        if any(channel != HEARTBEAT for channel, _ in await self._db.run(GatewayStore.list_waiting)):
            return "A chat is being answered."
        midnight = time.mktime((*time.localtime(now)[:3], 0, 0, 0, 0, 0, -1))
        limit = settings.max_budget_usd_per_day
        if limit and await self._db.run(get_run_cost_today, HEARTBEAT, midnight) >= limit:
            return f"The budget for today, {format_usd(limit)}, is used up."
        asked = await asyncio.to_thread(read_heartbeat_file, workspace)
        found = ""
        if settings.command:
            done = await self._run(settings.command, workspace, PROBE_S)
            if done.timed_out or done.code in (126, 127):
                raise OdinError(f"The probe {_describe_end(done)}")
            found = clip(done.output.strip(), _MAX_OUTPUT_CHARS)
            if not await is_new_finding(self._db, done.code, found):
                return "The probe has found nothing new."
        elif not asked:
            return "HEARTBEAT.md asks for nothing." if asked == "" else "HEARTBEAT.md was made."
        await self._db.run(GatewayStore.add_message, make_beat(run, asked or "", found), "prompt")
        self._wake(HEARTBEAT, run.job.chat)
        return ""


def _describe_end(done: CommandResult) -> str:
    return "took too long, and was stopped." if done.timed_out else f"ended with {describe_exit(done.code)}."
