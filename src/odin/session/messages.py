"""The messages of a session as they stand in the conversation now, read from its log and written to it."""

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from odin.core.errors import PromptBlocked
from odin.core.event import (
    AnyEvent,
    Envelope,
    MessageRemoved,
    Mode,
    NoteAdded,
    PromptInjected,
    Redone,
    Replied,
    Rewound,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from odin.core.message import Image, ReplyMessage, Text, Thinking, ToolCall, ToolResult

StoredRole = Literal["user", "assistant", "system", "tool"]


class StoredMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message. `results` are those of a tool message, one for each call it answers; `images` those of a prompt."""

    role: StoredRole
    content: str = ""
    id: str = ""
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()
    created: float = 0.0
    images: tuple[Image, ...] = ()


def read_messages(envelopes: Iterable[Envelope]) -> list[StoredMessage]:
    """All of them, oldest first, without what was taken back. Summaries leave them as they were said."""
    found: list[StoredMessage] = []
    undone: list[list[StoredMessage]] = []
    for envelope in envelopes:
        event = envelope.event
        if envelope.agent:
            continue
        if isinstance(event, Rewound):
            undone.append(list(found))
            if event.chat:
                _cut_from_turn(found, event.turn)
        elif isinstance(event, Redone):
            found = undone.pop() if undone else found
        elif isinstance(event, TurnEnded):
            if event.error_kind == PromptBlocked.__name__:
                _cut_from_turn(found, event.id)
        elif isinstance(event, MessageRemoved):
            del found[-1:]
        else:
            if isinstance(event, TurnStarted):
                undone.clear()
            _add_message(found, event, envelope)
    return found


def _cut_from_turn(found: list[StoredMessage], turn: str) -> None:
    at = [number for number, item in enumerate(found) if item.role == "user" and item.id == turn]
    if at:
        del found[at[-1] :]


def _add_message(found: list[StoredMessage], event: AnyEvent, envelope: Envelope) -> None:
    name, ts = f"m{envelope.seq}", envelope.ts
    if isinstance(event, TurnStarted | PromptInjected):
        if not (isinstance(event, TurnStarted) and event.continues):
            found.append(StoredMessage("user", event.text, event.id, created=ts, images=event.images))
    elif isinstance(event, NoteAdded):
        found.append(StoredMessage("system", event.text, name, created=ts))
    elif isinstance(event, Replied):
        said = event.message
        found.append(StoredMessage("assistant", said.text, name, said.thinking, said.calls, created=ts))
    elif isinstance(event, ToolEnded):
        result = ToolResult(event.call_id, event.text, event.status != "success", event.images)
        if found and found[-1].role == "tool":
            found[-1] = msgspec.structs.replace(found[-1], results=(*found[-1].results, result))
        else:
            found.append(StoredMessage("tool", id=name, results=(result,), created=ts))


def events_of(message: StoredMessage, mode: Mode, turn: str, names: dict[str, str]) -> list[AnyEvent]:
    """What a message is in the log. `turn` is the prompt it belongs to, `names` the tools of the calls it answers."""
    if message.role == "user":
        return [TurnStarted(message.id, message.content, mode, images=message.images)]
    if message.role == "system":
        return [NoteAdded(message.content)]
    if message.role == "assistant":
        parts: list[Any] = [Thinking(message.reasoning)] if message.reasoning else []
        parts += [Text(message.content)] if message.content else []
        reply = Replied(ReplyMessage((*parts, *message.calls)))
        if not message.calls:
            return [reply, TurnEnded(turn, "end_turn", message.content)]
        return [reply, *(ToolStarted(call.id, call.name, call.args) for call in message.calls)]
    return [
        ToolEnded(
            result.call_id,
            names.get(result.call_id, ""),
            "error" if result.is_error else "success",
            result.text,
            images=result.images,
        )
        for result in message.results
    ]
