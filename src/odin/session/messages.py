"""The messages of a session as they stand in the conversation now, read from its log and written to it.

Conversations that other programs wrote down, or that Odin exported, as messages of a session.

Read are Odin's own JSON export and the JSON lines of agents that speak stream-json, in which a line is one message with
blocks of text, thinking, calls and results. What is something else is counted, so that nobody thinks it was taken over.
"""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal, cast

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


NO_PROMPT = "(The transcript begins without a prompt.)"
NO_RESULT = "(There is no result in the transcript.)"


class ImportedTranscript:
    """The messages so far, always such that every call has its result behind it. `skipped` counts what was not read."""

    def __init__(self) -> None:
        self.title = ""
        self.model = ""
        self.cwd = ""
        self.skipped: Counter[str] = Counter()
        self._messages: list[StoredMessage] = []
        self._reply = ""

    def add_prompt(self, text: str, ts: float = 0.0) -> None:
        if text.strip():
            self._reply = ""
            self._messages.append(StoredMessage("user", text, f"p{len(self._messages)}", created=ts))

    def add_reply(self, text: str, thinking: str, calls: Iterable[ToolCall], ts: float = 0.0, name: str = "") -> None:
        """What the model said. Parts of one reply, which have its name, and replies in a row become one message."""
        made = StoredMessage("assistant", text, "", thinking, tuple(calls), created=ts)
        if not (text or thinking or made.calls):
            return
        last = self._last
        if last is not None and last.role == "assistant" and (not last.calls or (name and name == self._reply)):
            self._messages[-1] = msgspec.structs.replace(
                last,
                content="\n\n".join(filter(None, (last.content, text))),
                reasoning="\n\n".join(filter(None, (last.reasoning, thinking))),
                calls=(*last.calls, *made.calls),
            )
        else:
            self._ensure_prompt_first(ts)
            self._messages.append(made)
        self._reply = name

    def add_result(self, result: ToolResult, ts: float = 0.0) -> None:
        """What came of a call of the last reply. A result of no call is counted and left out."""
        last = self._last
        if last is not None and last.role == "tool":
            asked, given = self._messages[-2], last.results
        else:
            asked, given = last, ()
        if asked is None or result.call_id not in {call.id for call in asked.calls} - {one.call_id for one in given}:
            self.skipped["results without a call"] += 1
        elif given:
            self._messages[-1] = msgspec.structs.replace(cast("StoredMessage", last), results=(*given, result))
        else:
            self._messages.append(StoredMessage("tool", results=(result,), created=ts))

    def add_call(self, call: ToolCall, result: ToolResult, ts: float = 0.0) -> None:
        """A call together with its result, as an export has them: it joins the reply before it."""
        last = self._last
        if last is not None and last.role == "tool":
            asked = self._messages[-2]
            self._messages[-2] = msgspec.structs.replace(asked, calls=(*asked.calls, call))
        elif last is not None and last.role == "assistant":
            self._messages[-1] = msgspec.structs.replace(last, calls=(*last.calls, call))
        else:
            self.add_reply("", "", [call], ts)
        self.add_result(result, ts)

    def build_messages(self) -> list[StoredMessage]:
        """All of them, with a word in the place of every result that is missing."""
        found: list[StoredMessage] = []
        for number, message in enumerate(self._messages):
            found.append(message)
            if message.role != "assistant" or not message.calls:
                continue
            after = self._messages[number + 1] if number + 1 < len(self._messages) else None
            answered = (
                {one.call_id for one in after.results} if after is not None and after.role == "tool" else set[str]()
            )
            lost = [ToolResult(call.id, NO_RESULT, True) for call in message.calls if call.id not in answered]
            if lost:
                found.append(StoredMessage("tool", results=tuple(lost), created=message.created))
        return found

    @property
    def _last(self) -> StoredMessage | None:
        return self._messages[-1] if self._messages else None

    def _ensure_prompt_first(self, ts: float) -> None:
        if not self._messages:
            self.add_prompt(NO_PROMPT, ts)


# --- Odin's own export ---


def read_export(document: dict[str, Any]) -> ImportedTranscript:
    found = ImportedTranscript()
    found.title, found.model, found.cwd = (_as_text(document.get(name)) for name in ("title", "model", "cwd"))
    taken_back = False
    for entry in _as_objects(document.get("messages")):
        kind, ts = _as_text(entry.get("type")), _as_number(entry.get("ts"))
        if kind == "prompt":
            taken_back = entry.get("taken_back") is True
        if taken_back:
            found.skipped["entries that were taken back"] += 1
        elif entry.get("agent"):
            found.skipped["entries of sub-agents"] += 1
        elif kind == "prompt":
            found.add_prompt(_as_text(entry.get("text")), ts)
        elif kind == "answer":
            found.add_reply(_as_text(entry.get("text")), _as_text(entry.get("thinking")), (), ts)
        elif kind == "call":
            name = _as_text(entry.get("id")) or f"call{found.skipped.total()}-{ts}"
            failed = entry.get("status") != "success"
            call = ToolCall(name, _as_text(entry.get("name")), _as_object(entry.get("args")))
            found.add_call(call, ToolResult(name, _as_text(entry.get("text")), failed), ts)
        elif kind not in ("todos", "remark", "end"):
            found.skipped["entries of an unknown kind"] += 1
    return found


# --- JSON lines ---


def read_json_lines(lines: Iterable[bytes]) -> ImportedTranscript:
    found = ImportedTranscript()
    for line in lines:
        if not line.strip():
            continue
        try:
            value = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            found.skipped["lines that are no JSON"] += 1
            continue
        _add_line(found, _as_object(value))
    return found


def _add_line(found: ImportedTranscript, line: dict[str, Any]) -> None:
    kind = _as_text(line.get("type")) or _as_text(line.get("role"))
    message = _as_object(line.get("message")) or (line if "content" in line else {})
    if line.get("isSidechain") is True or line.get("parent_tool_use_id"):
        found.skipped["lines of sub-agents"] += 1
    elif kind == "user" and message and line.get("isMeta") is not True:
        _add_user_line(found, message.get("content"), _parse_time(line.get("timestamp")))
    elif kind == "assistant" and message:
        _add_reply_line(found, message, _parse_time(line.get("timestamp")))
    elif kind == "summary":
        found.title = found.title or _as_text(line.get("summary"))
    elif kind == "system" and line.get("subtype") == "init":
        found.model, found.cwd = _as_text(line.get("model")), _as_text(line.get("cwd"))
    else:
        found.skipped[f"lines of the kind {kind[:40]!r}" if kind else "lines without a kind"] += 1


def _add_user_line(found: ImportedTranscript, content: Any, ts: float) -> None:
    texts = [content] if isinstance(content, str) else []
    for block in _as_objects(content):
        if block.get("type") == "tool_result":
            failed = block.get("is_error") is True
            found.add_result(
                ToolResult(_as_text(block.get("tool_use_id")), _block_text_of(found, block.get("content")), failed), ts
            )
        else:
            texts.append(_block_text_of(found, [block]))
    found.add_prompt("\n\n".join(filter(None, texts)), ts)


def _add_reply_line(found: ImportedTranscript, message: dict[str, Any], ts: float) -> None:
    content = message.get("content")
    texts = [content] if isinstance(content, str) else []
    thoughts: list[str] = []
    calls: list[ToolCall] = []
    for block in _as_objects(content):
        kind = block.get("type")
        if kind == "thinking":
            thoughts.append(_as_text(block.get("thinking")))
        elif kind == "tool_use":
            calls.append(
                ToolCall(_as_text(block.get("id")), _as_text(block.get("name")), _as_object(block.get("input")))
            )
        else:
            texts.append(_block_text_of(found, [block]))
    found.model = found.model or _as_text(message.get("model"))
    text, thinking = ("\n\n".join(filter(None, parts)) for parts in (texts, thoughts))
    found.add_reply(text, thinking, [call for call in calls if call.id and call.name], ts, _as_text(message.get("id")))


def _block_text_of(found: ImportedTranscript, content: Any) -> str:
    """The words of some blocks. What is no text is counted, and its place is marked."""
    if isinstance(content, str):
        return content
    texts: list[str] = []
    for block in _as_objects(content):
        if block.get("type") == "text":
            texts.append(_as_text(block.get("text")))
        else:
            kind = _as_text(block.get("type")) or "unknown"
            found.skipped[f"blocks of the kind {kind[:40]!r}"] += 1
            texts.append(f"[{kind[:40]}]")
    return "\n".join(texts)


# --- reading what may hold anything ---


def _as_object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _as_objects(value: Any) -> list[dict[str, Any]]:
    several = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", item) for item in several if isinstance(item, dict)]


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _as_number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and 0 < value < 1e11 else 0.0


def _parse_time(value: Any) -> float:
    try:
        return datetime.fromisoformat(_as_text(value).replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError, OSError):
        return 0.0
