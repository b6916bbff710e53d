"""What happens beside the answer and a person should know, in one calm line each."""

from odin.core.event import Envelope, Event, HookRan, RetryScheduled, RuleAdded, RuleRemoved, ToolEnded, Warned
from odin.core.rule import RememberScope

_SCOPES: dict[RememberScope, str] = {"session": "for this session", "project": "in this project", "user": "everywhere"}

_HOOKS = {
    "failed": "The hook {hook} ({point}) failed and was left out: {detail}",
    "timed_out": "The hook {hook} ({point}) took too long and was left out.",
    "denied": "The hook {hook} ({point}) said no: {detail}",
    "halted": "The hook {hook} ({point}) ended the turn: {detail}",
    "modified": "The hook {hook} ({point}) changed it. {detail}",
}


def told(envelope: Envelope) -> str:
    """The line for an event, or ""."""
    line = _line(envelope.event)
    return f"[{envelope.agent}] {line}" if line and envelope.agent else line


def _line(event: Event) -> str:
    match event:
        case Warned():
            return event.text
        case RetryScheduled():
            return retry_line(event)
        case HookRan():
            form = _HOOKS.get(event.outcome, "")
            return form.format(hook=event.hook, point=event.point, detail=event.detail).rstrip(" :")
        case ToolEnded():
            return _ended(event)
        case RuleAdded():
            return f"Remembered {_SCOPES[event.scope]}: {event.action} {event.text}"
        case RuleRemoved():
            return f"No longer remembered {_SCOPES[event.scope]}: {event.action} {event.text}"
        case _:
            return ""


def _ended(event: ToolEnded) -> str:
    """A call that was denied, with the sentence that says who denied it; else what was taken out of its result."""
    if event.status == "denied":
        return f"{event.name} was not run. {' '.join(event.text.split())}"
    if event.redacted:
        return f"Taken out of the result of {event.name}: {', '.join(event.redacted)}."
    return ""


def retry_line(event: RetryScheduled) -> str:
    return f"Attempt {event.attempt} of {event.attempts} failed: {event.error} Trying again in {event.delay_s:.1f} s."
