"""One-line messages for session events that the user should see besides the answer."""

from odin.core.event import (
    Envelope,
    Event,
    HookRan,
    ModelChanged,
    PermissionAnswered,
    RetryScheduled,
    RuleAdded,
    RuleRemoved,
    ToolEnded,
    Warned,
)
from odin.core.policy import RememberScope
from odin.ui.terminal import shorten

SCOPE_WORDS: dict[RememberScope, str] = {
    "session": "for this session",
    "project": "for this project",
    "user": "for all projects",
}

_HOOK_SENTENCES = {
    "denied": "Hook {hook} ({point}) denied it: {detail}",
    "halted": "Hook {hook} ({point}) ended the turn: {detail}",
    "modified": "Hook {hook} ({point}) changed it. {detail}",
}

_PRE_CALL_POINTS = ("tool_call", "wait_confirm")
"""Hook points before a call. A denial there is reported with the end of the call."""

_MAX_CHARS = 200
"""Maximum length of the error of a failed call. The model reads all of it."""

_NOTHING_DONE = "Nothing was done."
"""Part of the model's text that the user does not need: the line says that the call was not run."""


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
                return self._format_hook(event)
            case PermissionAnswered(allowed=False, by="user"):
                self._denied[event.call_id] = f"You denied it: {event.reason}" if event.reason else "You denied it."
                return ""
            case ToolEnded():
                return self._format_tool_end(event)
            case RuleAdded():
                return f"Rule added {SCOPE_WORDS[event.scope]}: {event.action} {event.text}"
            case RuleRemoved():
                return f"Rule removed {SCOPE_WORDS[event.scope]}: {event.action} {event.text}"
            case _:
                return ""

    def _format_hook(self, event: HookRan) -> str:
        form = _HOOK_SENTENCES.get(event.outcome, "")
        line = form.format(hook=event.hook, point=event.point, detail=event.detail).rstrip(" :")
        if event.outcome == "denied" and event.call_id and event.point in _PRE_CALL_POINTS:
            self._denied[event.call_id] = line
            return ""
        return line

    def _format_tool_end(self, event: ToolEnded) -> str:
        """Report a denied call with who denied it, secrets removed from the result, or a failure."""
        denied = self._denied.pop(event.call_id, "")
        if event.status == "denied":
            return f"{event.name} was not run. {denied or _reason_of(event)}"
        if event.redacted:
            return f"Redacted from the result of {event.name}: {', '.join(event.redacted)}."
        return (
            f"{event.name} failed: {_first_line_of(event.text)}" if self._failures and event.status == "error" else ""
        )


def _first_line_of(text: str) -> str:
    return shorten(next((line.strip() for line in text.splitlines() if line.strip()), "no output"), _MAX_CHARS)


def _reason_of(event: ToolEnded) -> str:
    """Return the reason the model reads, without the words that the line already has."""
    text = " ".join(event.text.split()).removesuffix(_NOTHING_DONE).rstrip()
    own = f"{event.name} "
    return f"It {text.removeprefix(own)}" if text.startswith(own) else text


def format_retry(event: RetryScheduled) -> str:
    return f"Attempt {event.attempt} of {event.attempts} failed: {event.error} Retrying in {event.delay_s:.1f} s."
