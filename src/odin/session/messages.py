"""The messages of a session in an exchange format: read from its log, written to a log, and imported from files.

Imports accept Odin's JSON export and the JSON lines of agents that speak stream-json (one message per line, with text,
thinking, tool_use and tool_result blocks), the transcripts of Codex and Gemini CLI, and the export of OpenCode.
Everything else is counted in `skipped`, so that the user sees what was not imported.
"""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal, cast

import msgspec

from odin.core.call_events import Replied, ToolEnded, ToolStarted
from odin.core.event import (
    AnyEvent,
    Envelope,
    MessageRemoved,
    NoteAdded,
    PromptInjected,
    TurnEnded,
    TurnStarted,
)
from odin.core.event_values import Mode
from odin.core.lazy_pattern import compile_lazily
from odin.core.message import Image, ReplyMessage, Text, Thinking, ToolCall, ToolResult
from odin.core.timeline import TurnItems

StoredRole = Literal["user", "assistant", "system", "tool"]


class StoredMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message. Only tool messages have `results`, one per call; only prompts have `images`."""

    role: StoredRole
    content: str = ""
    id: str = ""
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()
    created: float = 0.0
    images: tuple[Image, ...] = ()


def read_messages(envelopes: Iterable[Envelope]) -> list[StoredMessage]:
    """All messages, oldest first, without rewound ones. Summarized messages are returned in their original form."""
    collected = TurnItems[StoredMessage]()
    for envelope in envelopes:
        event = envelope.event
        if envelope.agent:
            continue
        collected.timeline.apply(envelope)
        messages, name, ts = collected.items, f"m{envelope.seq}", envelope.ts
        if isinstance(event, MessageRemoved):
            del messages[-1:]
        elif isinstance(event, TurnStarted | PromptInjected):
            if not (isinstance(event, TurnStarted) and event.continues):
                messages.append(StoredMessage("user", event.text, event.id, created=ts, images=event.images))
        elif isinstance(event, NoteAdded):
            messages.append(StoredMessage("system", event.text, name, created=ts))
        elif isinstance(event, Replied):
            reply = event.message
            messages.append(StoredMessage("assistant", reply.text, name, reply.thinking, reply.calls, created=ts))
        elif isinstance(event, ToolEnded) and _is_called(messages, event.call_id):
            result = ToolResult(event.call_id, event.text, event.status != "success", event.images)
            if messages and messages[-1].role == "tool":
                messages[-1] = msgspec.structs.replace(messages[-1], results=(*messages[-1].results, result))
            else:
                messages.append(StoredMessage("tool", id=name, results=(result,), created=ts))
    return collected.items


def _is_called(messages: list[StoredMessage], call_id: str) -> bool:
    """True if the latest reply made this call. Odin's own checks are no part of the conversation."""
    reply = next((message for message in reversed(messages) if message.role == "assistant"), None)
    return reply is not None and any(call.id == call_id for call in reply.calls)


def make_events(message: StoredMessage, mode: Mode, turn: str, names: dict[str, str]) -> list[AnyEvent]:
    """The log events of a message. `turn` is the turn it belongs to; `names` maps call ids to tool names."""
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
NO_RESULT = "(The transcript has no result for this call.)"


class ImportedTranscript:
    """Collects imported messages. `skipped` counts everything that was not imported, by kind."""

    def __init__(self) -> None:
        self.title = ""
        self.model = ""
        self.cwd = ""
        self.skipped: Counter[str] = Counter()
        self._messages: list[StoredMessage] = []
        self.last_reply = ""

    def add_prompt(self, text: str, ts: float = 0.0) -> None:
        if text.strip():
            self.last_reply = ""
            self._messages.append(StoredMessage("user", text, f"p{len(self._messages)}", created=ts))

    def add_reply(self, text: str, thinking: str, calls: Iterable[ToolCall], ts: float = 0.0, name: str = "") -> None:
        """Add a reply. Consecutive replies, and parts of a reply that share its `name`, become one message."""
        named = tuple(call for call in calls if call.id and call.name)
        message = StoredMessage("assistant", text, "", thinking, named, created=ts)
        if not (text or thinking or message.calls):
            return
        last = self._last
        if last is not None and last.role == "assistant" and (not last.calls or (name and name == self.last_reply)):
            self._messages[-1] = msgspec.structs.replace(
                last,
                content="\n\n".join(filter(None, (last.content, text))),
                reasoning="\n\n".join(filter(None, (last.reasoning, thinking))),
                calls=(*last.calls, *message.calls),
            )
        else:
            if not self._messages:
                self.add_prompt(NO_PROMPT, ts)
            self._messages.append(message)
        self.last_reply = name

    def add_result(self, result: ToolResult, ts: float = 0.0) -> None:
        """Add the result of a call of the last reply. A result without a call is skipped."""
        last = self._last
        if last is not None and last.role == "tool":
            reply, given = self._messages[-2], last.results
        else:
            reply, given = last, ()
        if reply is None or result.call_id not in {call.id for call in reply.calls} - {one.call_id for one in given}:
            self.skipped["results without a call"] += 1
        elif given:
            self._messages[-1] = msgspec.structs.replace(cast("StoredMessage", last), results=(*given, result))
        else:
            self._messages.append(StoredMessage("tool", results=(result,), created=ts))

    def add_call(self, call: ToolCall, result: ToolResult, ts: float = 0.0) -> None:
        """Add a call with its result, as in Odin's export, to the reply before it, unless it is there."""
        last = self._last
        if not (call.id and call.name):
            self.skipped["calls without a name"] += 1
            return
        if last is not None and last.role == "tool":
            reply = self._messages[-2]
            if any(known.id == call.id for known in reply.calls):
                return
            self._messages[-2] = msgspec.structs.replace(reply, calls=(*reply.calls, call))
        elif last is not None and last.role == "assistant":
            self._messages[-1] = msgspec.structs.replace(last, calls=(*last.calls, call))
        else:
            self.add_reply("", "", [call], ts)
        self.add_result(result, ts)

    def build_messages(self) -> list[StoredMessage]:
        """All messages, with a placeholder for every missing result, so that each call has exactly one."""
        messages: list[StoredMessage] = []
        for index, message in enumerate(self._messages):
            messages.append(message)
            if message.role != "assistant" or not message.calls:
                continue
            after = self._messages[index + 1] if index + 1 < len(self._messages) else None
            answered = (
                {one.call_id for one in after.results} if after is not None and after.role == "tool" else set[str]()
            )
            missing = [ToolResult(call.id, NO_RESULT, True) for call in message.calls if call.id not in answered]
            if missing:
                messages.append(StoredMessage("tool", results=tuple(missing), created=message.created))
        return messages

    @property
    def _last(self) -> StoredMessage | None:
        return self._messages[-1] if self._messages else None


def read_export(document: dict[str, Any]) -> ImportedTranscript:
    if "info" in document:
        return _read_opencode_export(document)
    transcript = ImportedTranscript()
    fields = (_as_text(document.get(name)) for name in ("title", "model", "cwd"))
    transcript.title, transcript.model, transcript.cwd = fields
    is_rewound = False
    for entry in _as_objects(document.get("messages")):
        kind, ts = _as_text(entry.get("type")), _as_number(entry.get("ts"))
        if kind == "prompt":
            is_rewound = True in (entry.get("rewound"), entry.get("taken_back"))  # the old name
        if is_rewound:
            transcript.skipped["rewound entries"] += 1
        elif entry.get("agent"):
            transcript.skipped["entries of sub-agents"] += 1
        elif kind == "prompt":
            transcript.add_prompt(_as_text(entry.get("text")), ts)
        elif kind == "answer":
            transcript.add_reply(_as_text(entry.get("text")), _as_text(entry.get("thinking")), (), ts)
        elif kind == "call":
            name = _as_text(entry.get("id")) or f"call{transcript.skipped.total()}-{ts}"
            failed = entry.get("status") != "success"
            call = ToolCall(name, _as_text(entry.get("name")), _as_object(entry.get("args")))
            transcript.add_call(call, ToolResult(name, _as_text(entry.get("text")), failed), ts)
        elif kind not in ("todos", "remark", "end"):
            transcript.skipped["entries of unknown type"] += 1
    return transcript


def _read_opencode_export(document: dict[str, Any]) -> ImportedTranscript:
    transcript = ImportedTranscript()
    transcript.title = _as_text(_as_object(document["info"]).get("title"))
    for message in _as_objects(document.get("messages")):
        info = _as_object(message.get("info"))
        created = _as_object(info.get("time")).get("created")
        ts = _as_number(created / 1000) if isinstance(created, int) else 0.0
        for part in _as_objects(message.get("parts")):
            kind, text = part.get("type"), _as_text(part.get("text"))
            if kind == "text" and info.get("role") == "user":
                transcript.add_prompt(text, ts)
            elif kind in ("text", "reasoning"):
                transcript.add_reply(*((text, "") if kind == "text" else ("", text)), (), ts)
            elif kind == "tool":
                state, name = _as_object(part.get("state")), _as_text(part.get("callID"))
                call = ToolCall(name, _as_text(part.get("tool")), _as_object(state.get("input")))
                failed = state.get("status") != "completed"
                result = _as_text(state.get("output")) or _as_text(state.get("error"))
                transcript.add_call(call, ToolResult(name, result, failed), ts)
            elif kind not in ("step-start", "step-finish"):
                transcript.skipped[f"parts of type {str(kind)[:40]!r}"] += 1
    return transcript


def read_json_lines(lines: Iterable[bytes]) -> ImportedTranscript:
    transcript = ImportedTranscript()
    for line in lines:
        if not line.strip():
            continue
        try:
            value = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            transcript.skipped["lines that are not JSON"] += 1
            continue
        _add_line(transcript, _as_object(value))
    return transcript


def _add_line(transcript: ImportedTranscript, line: dict[str, Any]) -> None:
    kind = _as_text(line.get("type")) or _as_text(line.get("role"))
    message = _as_object(line.get("message")) or (line if "content" in line else {})
    if line.get("isSidechain") is True or line.get("parent_tool_use_id"):
        transcript.skipped["lines of sub-agents"] += 1
    elif kind == "user" and message and line.get("isMeta") is not True:
        _add_user_line(transcript, message.get("content"), _parse_time(line.get("timestamp")))
    elif kind == "assistant" and message:
        _add_reply_line(transcript, message, _parse_time(line.get("timestamp")))
    elif kind == "gemini":
        _add_gemini_line(transcript, line, _parse_time(line.get("timestamp")))
    elif kind == "response_item":
        _add_codex_item(transcript, _as_object(line.get("payload")), _parse_time(line.get("timestamp")))
    elif kind == "summary":
        transcript.title = transcript.title or _as_text(line.get("summary"))
    elif kind == "system" and line.get("subtype") == "init":
        transcript.model, transcript.cwd = _as_text(line.get("model")), _as_text(line.get("cwd"))
    else:
        transcript.skipped[f"lines of type {kind[:40]!r}" if kind else "lines without a type"] += 1


def _add_user_line(transcript: ImportedTranscript, content: Any, ts: float) -> None:
    texts = [content] if isinstance(content, str) else []
    for block in _as_objects(content):
        if block.get("type") == "tool_result":
            failed = block.get("is_error") is True
            text = _extract_block_text(transcript, block.get("content"))
            transcript.add_result(ToolResult(_as_text(block.get("tool_use_id")), text, failed), ts)
        elif "functionResponse" not in block:  # Gemini CLI repeats the result of a call
            texts.append(_extract_block_text(transcript, [block]))
    transcript.add_prompt("\n\n".join(filter(None, texts)), ts)


def _add_reply_line(transcript: ImportedTranscript, message: dict[str, Any], ts: float) -> None:
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
            texts.append(_extract_block_text(transcript, [block]))
    transcript.model = transcript.model or _as_text(message.get("model"))
    text, thinking = ("\n\n".join(filter(None, parts)) for parts in (texts, thoughts))
    transcript.add_reply(text, thinking, calls, ts, _as_text(message.get("id")))


def _add_gemini_line(transcript: ImportedTranscript, line: dict[str, Any], ts: float) -> None:
    """Add a reply of Gemini CLI. Its line is repeated with the calls when they have ended."""
    name, calls = _as_text(line.get("id")), _as_objects(line.get("toolCalls"))
    if name != transcript.last_reply:
        thoughts = (_as_text(thought.get("description")) for thought in _as_objects(line.get("thoughts")))
        text = _extract_block_text(transcript, line.get("content"))
        transcript.add_reply(text, "\n\n".join(filter(None, thoughts)), (), ts, name)
    for call in calls:
        call_id, results = _as_text(call.get("id")), _as_objects(call.get("result"))
        responses = (_as_object(_as_object(result.get("functionResponse")).get("response")) for result in results)
        text = "\n".join(_as_text(one.get("output")) or _as_text(one.get("error")) for one in responses)
        made = ToolCall(call_id, _as_text(call.get("name")), _as_object(call.get("args")))
        transcript.add_call(made, ToolResult(call_id, text, call.get("status") != "success"), ts)


_CONTEXT = compile_lazily(r"<[a-z_]+>|# AGENTS\.md instructions")
"""How the texts begin that Codex adds to the prompts of the user."""


def _add_codex_item(transcript: ImportedTranscript, item: dict[str, Any], ts: float) -> None:
    kind, role, call_id = item.get("type"), item.get("role"), _as_text(item.get("call_id"))
    text = _extract_block_text(transcript, item.get("content"))
    if kind == "message" and role == "user" and not _CONTEXT.match(text):
        transcript.add_prompt(text, ts)
    elif kind == "message" and role == "assistant":
        transcript.add_reply(text, "", (), ts, "codex")
    elif kind == "reasoning":
        transcript.add_reply("", _extract_block_text(transcript, item.get("summary")), (), ts, "codex")
    elif kind in ("function_call", "custom_tool_call"):
        try:
            args = _as_object(msgspec.json.decode(_as_text(item.get("arguments"))))
        except (msgspec.DecodeError, RecursionError):
            args = {"input": _as_text(item.get("input")) or _as_text(item.get("arguments"))}
        transcript.add_reply("", "", [ToolCall(call_id, _as_text(item.get("name")), args)], ts, "codex")
    elif kind in ("function_call_output", "custom_tool_call_output"):
        transcript.add_result(ToolResult(call_id, _extract_block_text(transcript, item.get("output"))), ts)
    else:
        transcript.skipped[f"items of type {str(kind)[:40]!r}"] += 1


def _extract_block_text(transcript: ImportedTranscript, content: Any) -> str:
    """The text of some blocks. Other blocks are counted and leave a mark such as `[image]`."""
    if isinstance(content, str):
        return content
    texts: list[str] = []
    for block in _as_objects(content):
        kind = _as_text(block.get("type")) or ("text" if "text" in block else "unknown")
        if kind in ("text", "input_text", "output_text", "summary_text"):
            texts.append(_as_text(block.get("text")))
        else:
            transcript.skipped[f"blocks of type {kind[:40]!r}"] += 1
            texts.append(f"[{kind[:40]}]")
    return "\n".join(texts)


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
