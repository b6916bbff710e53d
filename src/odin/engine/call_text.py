"""What the model reads about a call besides the output of its tool.

Refusals say who refused; changed arguments are told with the old and the new values; a long output is cut.
"""

from collections.abc import Callable
from typing import Any

from odin.core.event_values import CallAudit
from odin.core.op import Answer
from odin.core.tool import Tool
from odin.engine.call import Call
from odin.policy.decision import Decision


def describe_tool_error(tool: Tool[Any], error: Exception) -> str:
    """Return the result the model reads when a tool raised."""
    return f"{tool.name} failed: {str(error) or type(error).__name__}"


def format_denial(decision: Decision) -> str:
    """Return the rule and how to allow the call.

    A certain deny rule needs no reason; other denials give theirs.
    """
    by = f"Denied by rule {decision.rule.removeprefix('deny ')}" if decision.rule else "Denied"
    is_certain = decision.rule.startswith("deny ") and not decision.may_be_denied
    return f"{by}. {decision.hint}".rstrip() if is_certain else f"{by}: {decision.reason} {decision.hint}".rstrip()


def format_hook_denial(message: str) -> str:
    return f"Denied by a hook: {message or 'it gave no reason.'}"


def format_unaskable(call: Call) -> str:
    decision = call.decision
    return (
        f"{call.tool.name} requires confirmation: {decision.reason} No user can be asked here, so nothing was done. "
        f"{decision.hint}".rstrip()
    )


def format_rejection(answer: Answer) -> str:
    if answer.by == "timeout":
        return f"Denied: the permission request timed out. {answer.text} Nothing was done."
    if answer.by == "hook":
        return format_hook_denial(answer.text)
    if answer.by in ("shutdown", "nobody"):
        return f"Denied: {answer.text} Nothing was done."
    return (
        f"The user denied this tool call: {answer.text}\nIt was not run."
        if answer.text
        else "The user denied this tool call. It was not run."
    )


_SHORT_CHARS = 300
_DIFF_LINES = 60
_DIFF_CHARS = 4_000
_MAX_COMPARED_CHARS = 100_000
"""Two texts that are longer together are not compared line by line."""


def describe_change(audit: CallAudit) -> str:
    """Tell the model who changed the arguments, with the old and the new values."""
    who = "A hook" if audit.by == "hook" else "The user"
    why = f" ({audit.summary})" if audit.summary else ""
    names = dict.fromkeys((*audit.original, *audit.effective))
    both = audit.original.keys() & audit.effective.keys()
    changed = [name for name in names if name not in both or audit.original[name] != audit.effective[name]]
    changes = [_describe_field(name, audit) for name in changed]
    return f"[{who} changed the arguments of this call{why}: {'; '.join(changes)}.]"


def _describe_field(name: str, audit: CallAudit) -> str:
    if name not in audit.effective:
        return f"{name} was left out"
    new = audit.effective[name]
    if name not in audit.original:
        return f"{name} = {_shorten_value(new)} was added"
    old = audit.original[name]
    if isinstance(old, str) and isinstance(new, str) and max(len(old), len(new)) > _SHORT_CHARS:
        return f"{name} was changed as follows:\n{_diff_texts(old, new)}\n"
    return f"{name} was {_shorten_value(old)} and is {_shorten_value(new)}"


def _shorten_value(value: Any) -> str:
    import json

    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHORT_CHARS else f"{text[:_SHORT_CHARS]}… ({len(text)} characters)"


def _diff_texts(old: str, new: str) -> str:
    if len(old) + len(new) > _MAX_COMPARED_CHARS:
        return f"({len(old)} characters before, {len(new)} now)"
    import difflib

    lines = list(difflib.unified_diff(old.splitlines(), new.splitlines(), "asked", "ran", lineterm="", n=1))
    text = "\n".join(lines[:_DIFF_LINES])[:_DIFF_CHARS]
    return f"{text}\n… (the rest of the change is not shown)" if len(text) < len("\n".join(lines)) else text


MAX_CHARS = 51_200
MAX_LINES = 2_000
_HEAD_SHARE = 0.4
_LINE_BREAK_SHARE = 0.8
_EXTRA_LINES = 10
"""Lines a tool may add to a full page to say what it left out."""


def bound_text(text: str, save: Callable[[str], str] | None = None) -> str:
    """Return a long text as head and tail, with a line that says what is missing. `save` stores the whole text."""
    lines = text.count("\n") + 1
    if len(text) <= MAX_CHARS and lines <= MAX_LINES + _EXTRA_LINES:
        return text
    # Head and tail, cut at a line end unless that would lose much of them.
    part = "\n".join(text[: int(MAX_CHARS * _HEAD_SHARE)].split("\n")[: int(MAX_LINES * _HEAD_SHARE)])
    end = part.rfind("\n")
    head = part[:end] if end > len(part) * _LINE_BREAK_SHARE else part
    part = "\n".join(text[-int(MAX_CHARS * (1 - _HEAD_SHARE)) :].split("\n")[-int(MAX_LINES * (1 - _HEAD_SHARE)) :])
    start = part.find("\n") + 1
    tail = part[start:] if 0 < start < len(part) * (1 - _LINE_BREAK_SHARE) else part
    saved = ""
    if save is not None:
        try:
            saved = f"; the full text: {save(text)}"
        except OSError as error:
            saved = f"; the full text could not be saved ({error.strerror or error})"
    shown = f"the first {len(head)} and the last {len(tail)} of {len(text)} characters ({lines} lines) are shown{saved}"
    return f"{head}\n\n[... result cut: {shown} ...]\n\n{tail}"
