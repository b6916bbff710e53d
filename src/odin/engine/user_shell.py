"""The user shell: commands the user types, such as `!make test`.

They run at once, also while the session is busy. The model reads their output with its next request.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from odin.core.call_events import ToolProgressed
from odin.core.errors import OdinError, UsageError
from odin.core.event import ContextAdded
from odin.core.op import RunUserShell
from odin.core.policy import Redact
from odin.core.profile import UNSANDBOXED
from odin.core.text import to_valid_unicode
from odin.engine.recorder import Recorder
from odin.sandbox.background import BackgroundProcesses, SpawnRequest
from odin.sandbox.output import decode_output, strip_ansi
from odin.sandbox.process import describe_exit
from odin.sandbox.runner import CommandReleased, CommandResult, ProcessRunner

MAX_SECONDS = 3600.0
MAX_AT_ONCE = 20
SHELL_TOOL_NAME = "!"
"""The tool name in the progress events of such a command."""

_TAIL_CHARS = 4_000


class UserShell:
    """Runs the user's commands without rules and sandbox, because the user typed them.

    Secrets stay out of their environment, as for every command, and are redacted from the output. `add_context`
    records the output for the model.
    """

    def __init__(
        self,
        runner: ProcessRunner,
        recorder: Recorder,
        redact: Redact,
        cwd: str,
        add_context: Callable[[ContextAdded, str], None],
        background: BackgroundProcesses,
    ) -> None:
        self._runner = runner
        self._background = background
        self._recorder = recorder
        self._redact = redact
        self._cwd = cwd
        self._add_context = add_context
        self._running: dict[str, tuple[RunUserShell, asyncio.Task[None]]] = {}

    def start_command(self, op: RunUserShell) -> None:
        if not op.command.strip():
            raise UsageError("No command given.", "Usage: !COMMAND")
        if op.id in self._running:
            raise UsageError(f"Command id {op.id!r} is already running.", "Give every command its own id.")
        if len(self._running) >= MAX_AT_ONCE:
            raise UsageError(f"{MAX_AT_ONCE} commands are already running.", "Wait for one to end, or interrupt them.")
        task = asyncio.create_task(self._run_command(op))
        self._running[op.id] = op, task
        task.add_done_callback(lambda task: self._on_done(op, task))

    def _on_done(self, op: RunUserShell, task: "asyncio.Task[None]") -> None:
        del self._running[op.id]
        if task.cancelled():
            self._add_output(op, "(interrupted by the user before it began)")

    def interrupt(self, agent: str = "", *, alone: bool = False) -> bool:
        """Stop the running commands for this agent; False if there are none.

        For the main agent all commands are stopped, or with `alone` its own.
        """
        is_all = not agent and not alone
        stopped = [task for op, task in self._running.values() if is_all or agent == op.agent]
        for task in stopped:
            task.cancel()
        return bool(stopped)

    async def close(self) -> None:
        running = [task for _, task in self._running.values()]
        self.interrupt()
        if running:
            await asyncio.wait(running)

    async def _run_command(self, op: RunUserShell) -> None:
        shown = _LiveOutput(op, self._recorder, self._redact)
        stopped: list[CommandResult] = []
        try:
            with self._background.offer(op.agent) as released:
                finished = await self._runner.run(
                    op.command,
                    cwd=self._cwd,
                    timeout=MAX_SECONDS,
                    on_output=shown.add,
                    on_cancelled=stopped.append,
                    limit=_OUTPUT_CHARS,
                    profile=UNSANDBOXED,
                    released=released,
                )
            lines = [finished.output.rstrip("\n") or "(no output)"]
            if finished.timed_out:
                lines.append(f"(timed out after {MAX_SECONDS:g} s and was stopped with everything it had started)")
            elif finished.code:
                lines.append(f"({describe_exit(finished.code)})")
            if finished.has_survivors:
                lines.append("(a process it started still runs in the background until the session ends)")
            text = "\n".join(lines)
        except CommandReleased as command:
            request = SpawnRequest(op.command, self._cwd, agent=op.agent)
            spawned = self._background.adopt(request, command, self._runner)
            text = f"{command.printed.rstrip()}\n(sent to the background as {spawned.id}, where it goes on)".lstrip(
                "\n"
            )
        except asyncio.CancelledError:
            output = "".join(part.output for part in stopped).rstrip("\n")
            text = f"{output}\n(interrupted by the user and stopped with everything it had started)".lstrip("\n")
        except OSError as error:
            text = f"(it could not be started: {error.strerror or error})"
        finally:
            shown.close()
        self._add_output(op, text)

    def _add_output(self, op: RunUserShell, text: str) -> None:
        command, content = self._redact(op.command).text, self._redact(text).text
        with suppress(OdinError):  # the turn that needs the log reports that it cannot be written
            added = ContextAdded(to_valid_unicode(content), command=to_valid_unicode(command), id=op.id)
            self._add_context(added, op.agent)


_OUTPUT_CHARS = 20_000
"""Characters of the output the model reads. Longer output is saved in a file."""


class _LiveOutput:
    """Publishes the output of a running command a few times a second."""

    def __init__(self, op: RunUserShell, recorder: Recorder, redact: Redact) -> None:
        self._op = op
        self._recorder = recorder
        self._redact = redact
        self._started_at = time.monotonic()
        self._loop = asyncio.get_running_loop()
        self._new = ""
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def add(self, text: str) -> None:
        if self._closed:
            return
        self._new = (self._new + text)[-_TAIL_CHARS:]
        if self._timer is None:
            self._timer = self._loop.call_later(0.1, self._emit_progress)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._closed = True

    def _emit_progress(self) -> None:
        """Publish whole lines only, so that redaction sees a secret in one piece."""
        self._timer = None
        lines, newline, self._new = self._new.rpartition("\n")
        if newline:
            elapsed = round(time.monotonic() - self._started_at, 3)
            shown = to_valid_unicode(self._redact(decode_output(strip_ansi(lines.encode("utf-8", "replace")))).text)
            self._recorder.emit(ToolProgressed(self._op.id, SHELL_TOOL_NAME, shown, elapsed), self._op.agent)
