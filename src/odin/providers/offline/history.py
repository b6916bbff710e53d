"""The conversation so far, as turns of a prompt and the calls made for it."""

import re
from collections.abc import Iterable

from msgspec import Struct, field

from odin.core.message import Message, PromptMessage, ReplyMessage, ToolCall, ToolMessage, ToolResult
from odin.core.provider import Request

CALL_ID_PREFIX = "offline-"
"""How the ids of this planner's calls begin. Calls of a model in the same turn are not part of its plan."""

_CACHE_NOTE = "Cached files: "


class PlannerStep(Struct, frozen=True):
    """The calls of one reply, each with its result."""

    calls: tuple[ToolCall, ...]
    results: tuple[ToolResult, ...]

    @property
    def is_own(self) -> bool:
        return all(call.id.startswith(CALL_ID_PREFIX) for call in self.calls)


class PlannerTurn(Struct):
    prompt: str
    steps: list[PlannerStep] = field(default_factory=list[PlannerStep])


def collect_turns(messages: Iterable[Message]) -> list[PlannerTurn]:
    """The turns of a history. A call without a result counts as one that failed."""
    found: list[PlannerTurn] = []
    open_calls: tuple[ToolCall, ...] = ()
    for message in messages:
        if isinstance(message, PromptMessage):
            if message.text.strip() and not message.text.startswith(_CACHE_NOTE):
                found.append(PlannerTurn(message.text))
        elif not found:
            continue
        elif isinstance(message, ReplyMessage):
            open_calls = message.calls
        elif open_calls:
            found[-1].steps.append(_make_step(open_calls, message))
            open_calls = ()
    return found


def _make_step(calls: tuple[ToolCall, ...], message: ToolMessage) -> PlannerStep:
    by_id = {result.call_id: result for result in message.results}
    lost = "The call has no result."
    return PlannerStep(calls, tuple(by_id.get(call.id) or ToolResult(call.id, lost, True) for call in calls))


def find_working_directory(request: Request) -> str:
    """The folder the session works in, as the prompt tells the model; "." when it does not say."""
    return _find_line(request, r"^\W*(?:Working directory|cwd)\W*[:=]\s*`?(?P<value>[^`\n]+?)`?\s*$") or "."


def mode_of(request: Request) -> str:
    """ask, plan or edit, when the system prompt says which."""
    found = next(
        (match for block in request.system if (match := re.search(r"^# Mode: (\w+)", block, re.MULTILINE))), None
    )
    return found[1].removesuffix("_mode") if found else ""


def _find_line(request: Request, pattern: str) -> str:
    """The newest place where a line like this stands, in the notes beside the messages or in the system blocks."""
    notes = [note for message in request.messages if not isinstance(message, ReplyMessage) for note in message.notes]
    for text in (*reversed(notes), *reversed(request.system)):
        found = re.search(pattern, text, re.MULTILINE | re.IGNORECASE)
        if found:
            return found["value"].strip()
    return ""


def make_call_ids(request: Request, count: int) -> list[str]:
    """New ids for calls, the same for the same history and none used in it before."""
    used = {call.id for message in request.messages if isinstance(message, ReplyMessage) for call in message.calls}
    ids: list[str] = []
    number = len(request.messages)
    while len(ids) < count:
        fresh = f"{CALL_ID_PREFIX}{number}-{len(ids)}"
        if fresh in used:
            number += 1
        else:
            ids.append(fresh)
    return ids
