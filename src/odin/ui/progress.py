"""Progress for terminals: one-line messages for session events, and the line that says what is running and for how
long."""

import asyncio
import math
import os
import re
import time
from collections.abc import Callable, Mapping
from typing import TextIO

from odin.core.call_events import (
    ActivityChanged,
    HookRan,
    PermissionAnswered,
    RetryScheduled,
    RuleAdded,
    RuleRemoved,
    StatusUpdated,
    ThinkingEnded,
    ThinkingStarted,
    ToolEnded,
    ToolStarted,
)
from odin.core.event import Envelope, ModelChanged, RootAdded, RootRemoved, Warned
from odin.core.event_values import DEFAULT_ROLE, Event
from odin.core.lazy_pattern import compile_lazily
from odin.core.policy import RememberScope
from odin.core.tool import get_display_name
from odin.ui.terminal import TextPainter, escape_hidden, get_terminal_size, is_dumb, shorten, write_line, write_text

SCOPE_WORDS: dict[RememberScope, str] = {
    "session": "for this session",
    "project": "for this project",
    "user": "for all projects",
}

_HOOK_SENTENCES = {
    "denied": "Hook {hook} ({point}) denied it: {detail}",
    "halted": "Hook {hook} ({point}) ended the turn: {detail}",
    "modified": "Hook {hook} ({point}) changed it. {detail}",
    "silent": "Hook {hook} ({point}) had no effect.",
}

_PRE_CALL_POINTS = ("tool_call", "wait_confirm")
"""Hook points before a call. A denial there is reported with the end of the call."""

_MAX_CHARS = 200
"""Maximum length of the error of a failed call. The model reads all of it."""

_NOT_RUN = compile_lazily(r" (?:Nothing was done|It was not run)\.$")
"""The end of the model's text, which the user does not need: the line says that the call was not run."""

_UNKEPT = ("Rejected", "NeedsConfirmation", "ExternalModification")
"""Errors of commands that have run, but what they changed was not kept. Their result ends with a sentence about it."""


class EventLines:
    """Formats events as lines. A denial is kept until the call ends, so that one line reports both.

    With `failures`, failed calls are reported, too.
    """

    def __init__(self, *, failures: bool = False) -> None:
        self._failures = failures
        self._denied: dict[str, str] = {}

    def format_line(self, envelope: Envelope) -> str:
        """Return the line for an event, or ""."""
        line = self._format_event(envelope.event)
        return f"[{envelope.agent}] {line}" if line and envelope.agent else line

    def _format_event(self, event: Event) -> str:
        match event:
            case Warned():
                return event.text
            case RetryScheduled():
                return format_retry(event)
            case ModelChanged(reason=reason) if reason:
                return f"Switched to {event.model}: {reason}"
            case HookRan():
                form = _HOOK_SENTENCES.get(event.outcome, "")
                line = form.format(hook=event.hook, point=event.point, detail=event.detail).rstrip(" :")
                if event.outcome == "denied" and event.call_id and event.point in _PRE_CALL_POINTS:
                    self._denied[event.call_id] = line
                    return ""
                return line
            case PermissionAnswered(allowed=False, by="user"):
                self._denied[event.call_id] = f"You denied it: {event.reason}" if event.reason else "You denied it."
                return ""
            case ToolEnded():
                # Report a denied call and who denied it; else the text for the user, secrets removed, or a failure.
                denied = self._denied.pop(event.call_id, "")
                if event.status == "denied":
                    return f"{get_display_name(event.name)} was not run. {denied or get_denial_reason(event)}"
                sentences = [event.for_user] if event.for_user else []
                if event.redacted:
                    sentences.append(
                        f"Redacted from the result of {get_display_name(event.name)}: {', '.join(event.redacted)}."
                    )
                elif event.status == "error" and event.error_kind in _UNKEPT and event.text.endswith("]"):
                    told = re.sub("^The user discarded:", "You discarded:", event.text.rpartition("\n\n[")[2])
                    sentences.append(told.removesuffix("]").replace("\nThe user says:", " You said:", 1))
                elif self._failures and event.status == "error":
                    sentences.append(f"{get_display_name(event.name)} failed: {_get_first_line(event.text)}")
                return " ".join(sentences)
            case RuleAdded():
                return f"Rule added {_describe_range(event)}: {event.action} {event.text}"
            case RuleRemoved():
                return f"Rule removed {_describe_range(event)}: {event.action} {event.text}"
            case RootAdded():
                return f"Folder {event.root.path}: {event.root.describe()}"
            case RootRemoved():
                return f"Folder removed: {event.path}"
            case _:
                return ""


def _describe_range(event: RuleAdded | RuleRemoved) -> str:
    role = "" if event.role in ("", DEFAULT_ROLE) else f" in the role {event.role}"
    return f"{SCOPE_WORDS[event.scope]}{role}"


def _get_first_line(text: str) -> str:
    return shorten(next((line.strip() for line in text.splitlines() if line.strip()), "no output"), _MAX_CHARS)


def get_denial_reason(event: ToolEnded) -> str:
    """Return the reason the model reads, without the words that the line already has."""
    text = _NOT_RUN.sub("", " ".join(event.text.split()))
    own = f"{event.name} "
    return f"It {text.removeprefix(own)}" if text.startswith(own) else text


def format_retry(event: RetryScheduled) -> str:
    return f"Attempt {event.number} failed: {event.error} Retrying in {event.delay_s:.1f} s."


ACTIVITY_WORDS: Mapping[str, str] = {
    "connecting": "connecting to the model",
    "waiting_headers": "waiting for the model",
    "waiting_token": "waiting for the model",
    "streaming": "the model is answering",
    "compacting": "compacting the conversation",
    "retrying": "waiting to retry",
    "retrying_key": "trying another key",
    "cooling": "rate limited, waiting",
    "verifying": "checking the work",
}
TIMED_ACTIVITIES = ("retrying", "cooling")
"""Activities with a known end; the line counts down."""


def describe_activity(event: ActivityChanged) -> str:
    """Return what is done, as a clause; "" for an activity that the user is not shown."""
    waits = event.activity == "connecting" and event.detail
    return f"connecting to {event.detail}" if waits else ACTIVITY_WORDS.get(event.activity, "")


class ProgressLine:
    """Draws the current activity on the last line of a terminal, and nothing if `err` is no terminal.

    With `show`, that draws it instead ("" removes it), and every tool call also leaves a line, as on a dumb terminal,
    where nothing can be redrawn.
    """

    def __init__(
        self,
        err: TextIO | None,
        *,
        show: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._err = err
        self._clock = clock
        terminal = err is not None and err.isatty()
        self._live = terminal and not is_dumb(os.environ)
        self._lines = terminal and (show is not None or not self._live)
        self._show = show or self._write_row
        self._tools: dict[str, tuple[str, float]] = {}
        self._what = "starting"
        self._since = self._clock()
        self._until = 0.0
        self._drawn = False
        self._held = 0
        self._deferred: list[str] = []
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        if self._live:
            self._tick()

    def handle_event(self, envelope: Envelope) -> None:
        """Update the line. Must not be called after `close`."""
        event = envelope.event
        if isinstance(event, ToolStarted):
            what = f"{get_display_name(event.name)} {event.description}".strip()
            self._tools[event.call_id] = (what, self._clock())
            if self._lines:
                self.print_line(f"· [{envelope.agent}] {what}" if envelope.agent else f"· {what}")
        elif isinstance(event, ToolEnded):
            self._tools.pop(event.call_id, None)
        elif isinstance(event, ActivityChanged) and (what := describe_activity(event)):
            self._until = self._until if event.activity in TIMED_ACTIVITIES else 0.0
            self._set_activity(what)
        elif isinstance(event, RetryScheduled):
            self._until = self._clock() + event.delay_s
        elif isinstance(event, ThinkingStarted | ThinkingEnded):
            self._set_activity("thinking" if isinstance(event, ThinkingStarted) else ACTIVITY_WORDS["streaming"])
        elif isinstance(event, StatusUpdated):
            self._set_activity(event.text)
        else:
            return
        self._draw()

    def print_line(self, text: str) -> None:
        """Print a permanent line above the progress line. While the line is held, it is deferred."""
        if self._held:
            self._deferred.append(text)
            return
        self._clear()
        write_line(self._err, text, "dim" if text.startswith("· ") else None)
        self._draw()

    def hold(self) -> None:
        """Stop drawing until `release`: something else uses the terminal."""
        self._clear()
        self._held += 1

    def release(self) -> None:
        self._held -= 1
        self._print_deferred()
        self._draw()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._clear()
        self._held = 0
        self._live = False
        self._print_deferred()

    def _print_deferred(self) -> None:
        if not self._held:
            deferred, self._deferred = self._deferred, []
            for text in deferred:
                self.print_line(text)

    def _set_activity(self, what: str) -> None:
        if what != self._what:
            self._what, self._since = what, self._clock()

    def _tick(self) -> None:
        self._draw()
        self._timer = asyncio.get_running_loop().call_later(1.0, self._tick)

    def _draw(self) -> None:
        if not self._live or self._held:
            return
        now = self._clock()
        what, since = next(reversed(self._tools.values()), (self._what, self._since))
        more = f" (+{len(self._tools) - 1})" if len(self._tools) > 1 else ""
        left = math.ceil(self._until - now)
        time_spent = f", {left}s left" if left > 0 and not self._tools else f" {int(now - since)}s"
        room = max(get_terminal_size(self._err)[0] - len(more) - len(time_spent) - 1, 8)
        shown = shorten(escape_hidden(what), room)
        self._show(f"{shown}{more}{time_spent}")
        self._drawn = True

    def _clear(self) -> None:
        if self._drawn:
            self._show("")
            self._drawn = False

    def _write_row(self, text: str) -> None:
        write_text(self._err, f"\r\x1b[K{TextPainter(self._err).paint(text, 'dim')}")
