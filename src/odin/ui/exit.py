"""How a run ends: the exit code and message of a finished turn, and signals that stop it.

The first signal interrupts the turn; the second one stops waiting for it.
"""

import asyncio
import math
import signal
from _signal import signal as set_signal_handler  # pyright: ignore  (no types; see `StopSignals.__enter__`)
from functools import partial
from types import FrameType, TracebackType
from typing import Any, Self, TextIO

from odin.core import errors
from odin.core.client import Client
from odin.core.event import Envelope, TurnEnded, TurnStarted
from odin.core.event_values import CheckOutcome, ExitReason, Verification
from odin.core.format import pluralize
from odin.core.op import Interrupt
from odin.core.schedule import format_interval
from odin.ui.terminal import write_line

EXIT_UNVERIFIED = 3
"""Exit code if the turn ended well, but the project's checks failed or were not run."""

EXIT_DENIED = 4
"""Exit code if the turn ended well, but every call that would have changed something was denied."""

EXIT_INTERRUPTED = 130
EXIT_READER_GONE = 141
"""Exit code if standard output was closed before everything was written: 128 + SIGPIPE, as usual."""

ALL_DENIED = "Nothing was changed: every call that would have changed something was denied."
OUTPUT_CLOSED = "Standard output is closed. Nothing was done."


def report_broken_output(error: OSError | None, err: TextIO | None) -> int:
    """Say why standard output could not be written, unless the reader has left. Return the exit code."""
    if error is None:
        return EXIT_READER_GONE
    failed = errors.OutputFailed.from_error(error)
    write_line(err, f"odin: {failed} The session has the answer: odin --continue")
    return failed.exit_code


_ENDING_SENTENCES: dict[ExitReason, str] = {
    "max_turns": "Stopped after {steps}, the limit of this run. Raise it with --max-turns, or resume with --continue.",
    "error_max_budget_usd": "Stopped: the budget is used up (this turn cost ${cost:.4f}). Raise it with "
    "--max-budget-usd and resume with --continue.",
    "error_max_structured_output_retries": "The answer does not match the JSON schema.",
    "interrupted": "Interrupted.",
    "max_tokens": "The model's reply was cut off by its token limit.",
    "aborted": "Aborted.",
    "error": "The turn failed.",
    "loop_detected": "Stopped: the model repeated the same calls without progress.",
}


def get_exit_code(ended: TurnEnded) -> int:
    """Return 0 for success, else the exit code of the error: 1, 2, 69, 75, or 130 if interrupted.

    A turn that ended well may still exit with 3 or 4.
    """
    if ended.reason == "end_turn":
        if ended.verification is not None and ended.verification.is_failed:
            return EXIT_UNVERIFIED
        return EXIT_DENIED if ended.all_denied else 0
    if ended.reason == "interrupted":
        return errors.Interrupted.exit_code
    kind = getattr(errors, ended.error_kind, None) if ended.error_kind else None
    if isinstance(kind, type) and issubclass(kind, errors.OdinError):
        return kind.exit_code
    return 1


def describe_ending(ended: TurnEnded) -> str:
    """Return why the turn failed and what to do about it; "" after a success."""
    if ended.reason == "end_turn":
        return ""
    message = f"{ended.error} {ended.hint}".strip() if ended.reason == "error" or ended.hint else ""
    return message or _ENDING_SENTENCES[ended.reason].format(
        steps=pluralize(ended.steps, "model call"), cost=ended.cost_usd
    )


_OUTCOME_WORDS: dict[CheckOutcome, str] = {
    "failed": "failed",
    "timed_out": "timed out",
    "not_run": "not run",
    "unknown": "ran with unknown result",
    "passed": "passed",
}


def describe_verification(verification: Verification | None) -> str:
    """Return one line: which checks ran after the changes of a turn, and their outcome; "" without verification."""
    if verification is None:
        return ""
    parts: list[str] = []
    for outcome, words in _OUTCOME_WORDS.items():
        found = [check for check in verification.checks if check.outcome == outcome]
        reason = next((f" ({check.detail.rstrip('.')})" for check in found if check.detail), "")
        parts += [f"{words}: {', '.join(check.command for check in found)}{reason}"] if found else []
    return f"Checks {'; '.join(parts)}."


_NEXT_STEPS = {
    "AuthFailed": "`odin auth` stores a key, /model switches the model, /continue tries again.",
    "NoUsableKeys": "`odin auth` stores a key, /model switches the model, /continue tries again.",
    "ModelNotFound": "/model switches the model, /continue tries again.",
    "QuotaExhausted": "/model switches the model, /continue tries again.",
    "NeedsModel": "/model chooses a model, `odin auth` stores a key.",
    "ContextOverflow": "/compact shortens the conversation, /new starts another, /model switches the model.",
}
_NEXT_STEP = "/continue tries again, /model switches the model."
_LONG_WAIT_S = 60.0
"""From here on, waiting for a rate limit is worth a command."""


def suggest_next_step(ended: TurnEnded) -> str:
    """Return the commands of a conversation that help after an error; "" if none does."""
    if ended.reason != "error" or not ended.error_kind or ended.is_blocked:
        return ""
    step = _NEXT_STEPS.get(ended.error_kind, _NEXT_STEP)
    if (wait := ended.retry_after_s or 0.0) < _LONG_WAIT_S:
        return step
    return f"`/at in {format_interval(60 * math.ceil(wait / 60 + 1))} continue` goes on when the limit is over. {step}"


def format_resume_hint(session: str, has_prompts: bool) -> str:
    return f"Resume this session with: odin --resume {session}\n" if session and has_prompts else ""


TURN_END_TIMEOUT_S = 10.0
"""How long an interrupted turn may take to end before Odin exits without it."""

_SIGNAL_EXIT_CODES = {signal.SIGINT: EXIT_INTERRUPTED, signal.SIGTERM: 143, signal.SIGHUP: 129}


class StopSignals:
    """A context manager in which SIGINT, SIGTERM and SIGHUP interrupt the session; `code` is then the exit code.

    Only the owner of the process, the command line, handles signals (`owns_process`): the process may have other
    sessions and other clients of this one. Another owner, plain mode, calls `stop`. Queued prompts are paused.

    `requested` is done at the first signal; `abandoned` when there is nothing left to wait for.
    """

    def __init__(self, client: Client, *, owns_process: bool) -> None:
        self._client = client
        self._owns_process = owns_process
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[bool]] = set()
        self._previous: dict[int, Any] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._running = False
        self.code = 0
        self.requested: asyncio.Future[None] = self._loop.create_future()
        self.abandoned: asyncio.Future[None] = self._loop.create_future()

    def __enter__(self) -> Self:
        """Install the handlers. `signal.signal` would format the old one, a task, with `inspect`: 7 ms of the start."""
        for number, code in _SIGNAL_EXIT_CODES.items() if self._owns_process else ():
            self._previous[number] = set_signal_handler(number, partial(self._handle_signal, code))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            set_signal_handler(number, signal.SIG_DFL if handler is None else handler)
        if self._timer is not None:
            self._timer.cancel()

    def _handle_signal(self, code: int, number: int, frame: FrameType | None) -> None:
        """Wake the loop. `add_signal_handler` would do the same, but loads the inspect module for it."""
        self._loop.call_soon_threadsafe(self.stop, code)

    def stop(self, code: int) -> None:
        if self.code:
            self._abandon()
            return
        self.code = code
        self.requested.set_result(None)
        self._timer = self._loop.call_later(TURN_END_TIMEOUT_S, self._abandon)
        if self._running:
            self._interrupt()

    def handle_event(self, envelope: Envelope) -> None:
        """Track the running turn. A turn that starts after the first signal is interrupted, too."""
        if envelope.agent:
            return
        if isinstance(envelope.event, TurnStarted):
            self._running = True
            if self.code:
                self._interrupt()
        elif isinstance(envelope.event, TurnEnded):
            self._running = False

    def _interrupt(self) -> None:
        task = self._loop.create_task(self._client.submit(Interrupt()))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _abandon(self) -> None:
        if not self.abandoned.done():
            self.abandoned.set_result(None)
