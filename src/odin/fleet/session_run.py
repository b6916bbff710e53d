"""One prompt in one session, until its work has ended: what the tasks of a fleet, `odin best` and `odin eval` share."""

import asyncio
import time
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from odin.config import Options
from odin.core.call_events import ToolStarted, UsageRecorded
from odin.core.client import Client, QueuedPrompt
from odin.core.errors import OdinError, RetryableError, SessionLocked
from odin.core.event import Envelope, TurnEnded, TurnStarted
from odin.core.event_values import Mode
from odin.core.format import format_usd, pluralize
from odin.core.message import Usage
from odin.core.op import ChangePrompt, Interrupt, Prompt
from odin.core.profile import PROJECT
from odin.core.prompt_follower import PromptFollower
from odin.core.text import to_valid_unicode
from odin.core.tool import get_display_name
from odin.fleet.engine import Outcome, Progress, TaskResult
from odin.host.manager import SessionManager
from odin.sandbox.runner import ProcessRunner
from odin.ui.exit import describe_ending

_CHECK_S = 1800.0
_CLOSE_S = 10.0
_OUTPUT_CHARS = 2000
_LOCK_TRIES = 30
_RESUMED = "Odin was interrupted in the middle of this task. Look at what is done, and carry on with the rest."

_UNFINISHED = ("aborted", "interrupted")

T = TypeVar("T")


class RunStopped(Exception):
    """The work is to stop: its time is over, or `SessionRun.stop` is set."""


class SessionRun:
    """Gives a session one prompt and waits until nothing works on it any more. Make it in the event loop.

    `stop` ends it, as does the end of the `minutes` after this was made. `answer` is what the model said last, `ended`
    how its last turn ended, `model` which one worked.
    """

    def __init__(self, prompt: str, minutes: float, mode: Mode = "edit_mode") -> None:
        self.stop = asyncio.Event()
        self.progress = Progress()
        self.ended: TurnEnded | None = None
        self.session = ""
        self.model = ""
        self._prompt = to_valid_unicode(prompt)
        self._mode: Mode = mode
        self._minutes = minutes
        self._timed_out = False
        self._usage = Usage()
        self._began = time.monotonic()
        asyncio.get_running_loop().call_later(minutes * 60, self._time_out)

    def _time_out(self) -> None:
        self._timed_out = True
        self.stop.set()

    @property
    def seconds(self) -> float:
        """How long ago this was made."""
        return round(time.monotonic() - self._began, 2)

    async def unless_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what the work returns. Raise RunStopped if this is to stop before."""
        task, stopping = asyncio.create_task(work), asyncio.create_task(self.stop.wait())
        try:
            await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise RunStopped
            return task.result()
        finally:
            stopping.cancel()
            task.cancel()
            await asyncio.wait({task})

    async def run(self, manager: SessionManager, options: Options, name: str) -> TaskResult:
        """Return how it ended. A session of this name is resumed if there is one; a prompt is never sent twice."""
        self.session = name
        try:
            client = await self._open(manager, options, name)
        except OdinError as error:
            is_held = isinstance(error, SessionLocked)  # somebody looks at it who will leave
            return self.make_result("not_run", "session", error.describe(), is_transient=is_held)
        try:
            return await self.unless_stopped(self._follow(client))
        except RunStopped:
            await client.submit(Interrupt())
            return self.describe_stop("failed")
        except OdinError as error:
            return self.make_result("failed", type(error).__name__, error.describe())
        finally:
            await client.close(_CLOSE_S)

    async def _open(self, manager: SessionManager, options: Options, name: str) -> Client:
        from odin.app.workspace import make_workspace

        replace = msgspec.structs.replace
        for _ in range(_LOCK_TRIES):
            is_known = make_workspace(options).store.find_log(name) is not None
            try:
                return await manager.open(replace(options, **{"resume" if is_known else "session_id": name}))
            except SessionLocked:  # by the process of an earlier attempt, which is ending
                await asyncio.sleep(1)
        return await manager.open(replace(options, resume=name))

    async def _follow(self, client: Client) -> TaskResult:
        """Submit the prompt, unless the log has it, and wait for the end of the work."""
        shot = await client.snapshot()
        past_end = shot.seq
        events = client.stream_events(after=-1)
        turns = 0
        follower = PromptFollower()
        follower.is_working = shot.is_working
        submitted = shot.seq < 0
        if submitted:
            await self._submit(client, follower, (), 0)
        async for envelope in events:
            self._note(envelope)
            event = envelope.event
            if submitted:
                follower.apply(envelope)
            if not envelope.agent and isinstance(event, TurnStarted):
                self.ended, turns = None, turns + 1
            elif not envelope.agent and isinstance(event, TurnEnded):
                self.ended = event
            if not submitted and envelope.seq >= past_end:
                submitted = True
                if self.ended is None or self.ended.reason in _UNFINISHED or _is_transient(self.ended):
                    self.ended = None
                    await self._submit(client, follower, shot.queue, turns)
            if submitted and not follower.is_working and not follower.is_waiting:
                if self.ended is not None:
                    return self._judge(self.ended)
                return self.make_result("failed", "no_answer", *(one.loss for one in follower.prompts.values()))
        return self.make_result("failed", "closed", "The session was closed.")

    async def _submit(
        self, client: Client, follower: PromptFollower, queue: Sequence[QueuedPrompt], turns: int
    ) -> None:
        """Submit the prompt, or have the session go on where an earlier attempt left it after so many turns."""
        if queue:
            follower.follow(queue[0].id)
            await client.submit(ChangePrompt(queue[0].id, delivery="queue"))
            return
        prompt = Prompt(f"task.{turns}", _RESUMED if turns else self._prompt, self._mode)
        follower.follow(prompt.id)
        await client.submit(prompt)

    def _note(self, envelope: Envelope) -> None:
        event, now = envelope.event, self.progress
        if isinstance(event, UsageRecorded):
            self._usage += event.usage
            self.model = event.model if event.purpose == "main" else self.model
            now = msgspec.structs.replace(
                now, requests=now.requests + 1, tokens=self._usage.total, usd=now.usd + event.cost_usd
            )
        elif isinstance(event, ToolStarted):
            now = msgspec.structs.replace(now, activity=get_display_name(event.name))
        self.progress = msgspec.structs.replace(now, event=max(now.event, envelope.seq))

    def _judge(self, ended: TurnEnded) -> TaskResult:
        if ended.reason == "end_turn":
            return self.make_result("passed")
        if ended.reason == "max_turns":
            return self.make_result("failed", "calls", f"It needed more than {pluralize(ended.steps, 'model call')}.")
        if ended.reason == "error_max_budget_usd":
            return self.make_result("failed", "cost", f"It used up its budget: {format_usd(self.progress.usd)}.")
        never_ran = ended.reason == "error" and not self.progress.requests
        return self.make_result(
            "not_run" if never_ran else "failed",
            ended.error_kind or ended.reason,
            describe_ending(ended),
            is_transient=_is_transient(ended),
        )

    def make_result(
        self, outcome: Outcome, reason: str = "", detail: str = "", *, stopped: bool = False, is_transient: bool = False
    ) -> TaskResult:
        written = self._usage.output + self._usage.reasoning
        return TaskResult(
            outcome,
            reason,
            detail,
            self.session,
            self.progress.requests,
            self._usage.total - written,
            written,
            self.progress.usd,
            self.seconds,
            stopped=stopped,
            is_transient=is_transient,
            model=self.model,
        )

    def describe_stop(self, outcome: Outcome) -> TaskResult:
        if self._timed_out:
            return self.make_result(outcome, "time", f"It took longer than {self._minutes:g} min.")
        return self.make_result(outcome, stopped=True)


def _is_transient(ended: TurnEnded) -> bool:
    """True if the turn may end better when it is tried again."""
    from odin.core import errors

    kind = getattr(errors, ended.error_kind, OdinError) if ended.error_kind else OdinError
    return ended.reason == "error" and issubclass(kind, RetryableError)


async def find_failed_check(
    commands: Sequence[str], cwd: str, runner: ProcessRunner, env: Mapping[str, str] | None = None
) -> str:
    """Run commands in turn. Return which one failed with the end of its output; "" if all succeed."""
    for command in commands:
        done = await runner.run(command, cwd=cwd, timeout=_CHECK_S, env=env, profile=PROJECT)
        if done.code or done.timed_out:
            why = "took too long" if done.timed_out else f"exit code {done.code}"
            return f"`{command}`: {why}\n{done.output[-_OUTPUT_CHARS:]}"
    return ""
