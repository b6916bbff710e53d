"""The conversation so far, as turns of a prompt and the calls made for it."""

import re
from collections.abc import Iterable

from msgspec import Struct, field

from odin.core.message import AssistantMessage, Message, ToolCall, ToolMessage, ToolResult, UserMessage
from odin.core.provider import Request

OWN = "offline-"
"""How the ids of this planner's calls begin. Calls of a model in the same turn are not part of its plan."""

_NOTE = "Cached files: "


class Step(Struct, frozen=True):
    """The calls of one reply, each with its result."""

    calls: tuple[ToolCall, ...]
    results: tuple[ToolResult, ...]

    @property
    def own(self) -> bool:
        return all(call.id.startswith(OWN) for call in self.calls)


class Turn(Struct):
    prompt: str
    steps: list[Step] = field(default_factory=list[Step])


def turns(messages: Iterable[Message]) -> list[Turn]:
    """The turns of a history. A call without a result counts as one that failed."""
    found: list[Turn] = []
    open_calls: tuple[ToolCall, ...] = ()
    for message in messages:
        if isinstance(message, UserMessage):
            if message.text.strip() and not message.text.startswith(_NOTE):
                found.append(Turn(message.text))
        elif not found:
            continue
        elif isinstance(message, AssistantMessage):
            open_calls = message.calls
        elif open_calls:
            found[-1].steps.append(_step(open_calls, message))
            open_calls = ()
    return found


def _step(calls: tuple[ToolCall, ...], message: ToolMessage) -> Step:
    by_id = {result.call_id: result for result in message.results}
    lost = "The call has no result."
    return Step(calls, tuple(by_id.get(call.id) or ToolResult(call.id, lost, True) for call in calls))


def working_directory(request: Request) -> str:
    """The folder the session works in, as the prompt tells the model; "." when it does not say."""
    return _told(request, r"^\W*(?:Working directory|cwd)\W*[:=]\s*`?(?P<value>[^`\n]+?)`?\s*$") or "."


def mode_of(request: Request) -> str:
    """ask, plan or edit, when the system prompt says which."""
    found = next(
        (match for block in request.system if (match := re.search(r"^# Mode: (\w+)", block, re.MULTILINE))), None
    )
    return found[1].removesuffix("_mode") if found else ""


def _told(request: Request, pattern: str) -> str:
    """The newest place where a line like this stands, in the notes beside the messages or in the system blocks."""
    notes = [
        note for message in request.messages if not isinstance(message, AssistantMessage) for note in message.notes
    ]
    for text in (*reversed(notes), *reversed(request.system)):
        found = re.search(pattern, text, re.MULTILINE | re.IGNORECASE)
        if found:
            return found["value"].strip()
    return ""


def call_ids(request: Request, count: int) -> list[str]:
    """New ids for calls, the same for the same history and none used in it before."""
    used = {call.id for message in request.messages if isinstance(message, AssistantMessage) for call in message.calls}
    ids: list[str] = []
    number = len(request.messages)
    while len(ids) < count:
        fresh = f"{OWN}{number}-{len(ids)}"
        if fresh in used:
            number += 1
        else:
            ids.append(fresh)
    return ids
