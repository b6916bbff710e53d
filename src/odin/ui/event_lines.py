"""What happens beside the answer and a person should know, in one calm line each."""

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
    "project": "in this project",
    "user": "everywhere",
}

_HOOK_SENTENCES = {
    "denied": "The hook {hook} ({point}) said no: {detail}",
    "halted": "The hook {hook} ({point}) ended the turn: {detail}",
    "modified": "The hook {hook} ({point}) changed it. {detail}",
}

_PRE_CALL_POINTS = ("tool_call", "wait_confirm")
"""Where the no of a hook is the end of a call, which is told with the call."""

_MAX_CHARS = 200
"""Characters of what a failed call said; the model reads all of it."""

_NOTHING_DONE = "Nothing was done."
"""The model is told so; a person reads that the call was not run."""


class EventLines:
    """Remembers who said no to a call until the call ends, so that both are told in one line.

    With `failures`, calls that failed are told, too.
    """

    def __init__(self, *, failures: bool = False) -> None:
        self._failures = failures
        self._denied: dict[str, str] = {}

    def format_line(self, envelope: Envelope) -> str:
        """The line for an event, or ""."""
        line = self._format_event(envelope.event)
        return f"[{envelope.agent}] {line}" if line and envelope.agent else line

    def _format_event(self, event: Event) -> str:
        match event:
            case Warned():
                return event.text
            case RetryScheduled():
                return format_retry(event)
            case ModelChanged(reason=reason) if reason:
                return f"Going on with {event.model}: {reason}"
            case HookRan():
                return self._format_hook(event)
            case PermissionAnswered(allowed=False, by="user"):
                self._denied[event.call_id] = f"You said no: {event.reason}" if event.reason else "You said no."
                return ""
            case ToolEnded():
                return self._format_tool_end(event)
            case RuleAdded():
                return f"Remembered {SCOPE_WORDS[event.scope]}: {event.action} {event.text}"
            case RuleRemoved():
                return f"No longer remembered {SCOPE_WORDS[event.scope]}: {event.action} {event.text}"
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
        """A call that was denied, with the sentence that says who denied it; else what was taken out of its result."""
        denied = self._denied.pop(event.call_id, "")
        if event.status == "denied":
            return f"{event.name} was not run. {denied or _reason_of(event)}"
        if event.redacted:
            return f"Taken out of the result of {event.name}: {', '.join(event.redacted)}."
        return (
            f"{event.name} failed: {_first_line_of(event.text)}" if self._failures and event.status == "error" else ""
        )


def _first_line_of(text: str) -> str:
    """The first line that says something."""
    return shorten(next((line.strip() for line in text.splitlines() if line.strip()), "it says nothing"), _MAX_CHARS)


def _reason_of(event: ToolEnded) -> str:
    """What the model reads, without what was said already."""
    text = " ".join(event.text.split()).removesuffix(_NOTHING_DONE).rstrip()
    own = f"{event.name} "
    return f"It {text.removeprefix(own)}" if text.startswith(own) else text


def format_retry(event: RetryScheduled) -> str:
    return f"Attempt {event.attempt} of {event.attempts} failed: {event.error} Trying again in {event.delay_s:.1f} s."
