"""The JSON contract: tool calls for models that cannot call tools natively, as a provider around a provider.

The model reads the tools as plain text and answers with one JSON object (`explanation`, `taskCompleted`, `executeTool`)
that the server is asked to enforce. History is sent as plain messages in the same format, so each request still extends
the previous one. `AdaptiveTools` in tool_adapters.py decides which models use it.
"""

import json
import os
import re
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Any, Literal, cast

from msgspec import Struct
from msgspec.structs import replace

from odin.core.errors import BadRequest
from odin.core.message import Message, PromptMessage, ReplyMessage, Text, ToolMessage, ToolResult
from odin.core.provider import (
    CallChunk,
    Chunk,
    Provider,
    Request,
    StopChunk,
    TextChunk,
    ToolSpec,
    WaitChunk,
    open_stream,
)
from odin.core.structured_output import STRUCTURED_OUTPUT
from odin.providers.payload import get_written_id_prefix, render_without_images
from odin.providers.text_calls import (
    TextCallFilter,
    find_calls,
    is_contract_reply,
    parse_arguments,
    parse_leading_object,
    split_call,
)

Strictness = Literal["exact", "loose", "none"]
"""How much of the contract the server enforces: each tool's arguments, only the outer object, or nothing."""

# --- instructions ---

_CONTRACT_INTRO = (
    "Work in steps. Every reply is one JSON object with taskCompleted, explanation and executeTool, like these:"
)

_HINTS = {
    "EditTool": 'old_string is one line of the file, copied exactly, with each quote as \\". '
    "To add lines, repeat it in new_string and put the new lines below it.",
    "WriteFile": "To create a file, call WriteFile at once.",
}
"""Hints on frequent mistakes, added when the tool is offered."""

_ExampleStep = tuple[str, str, dict[str, Any], str]

_EXAMPLES: tuple[tuple[str, tuple[_ExampleStep, ...], str], ...] = (
    (
        "Add a function ring(bell) to door.py.",
        (
            (
                "I read the file.",
                "Read",
                {"file_path": "door.py"},
                '1 def open(door):\n2     return door.key == "gold"',
            ),
            (
                'Line 2 is the last line. Below it I add ring(bell), which returns "ding".',
                "EditTool",
                {
                    "file_path": "door.py",
                    "old_string": '    return door.key == "gold"',
                    "new_string": '    return door.key == "gold"\n\n\n'
                    'def ring(bell):\n    """Ring it."""\n    return "ding"',
                },
                "Edited door.py.",
            ),
        ),
        "I added ring(bell) to door.py.",
    ),
    (
        "How many files open the door?",
        (("I search all files.", "Grep", {"pattern": "open_door"}, "a.py:3:open_door()\nsrc/b.py:7:open_door()"),),
        "Two files open the door: a.py and src/b.py.",
    ),
)
"""Examples of the moves a small model must see once: read, change, search, answer. It copies them closely."""

_READ_EXAMPLE = (
    "What color is the door?",
    (("I read the file.", "Read", {"file_path": "door.py"}, '1 color = "red"'),),
    "The door is red.",
)
"""Replaces the editing example if no tool can edit."""


def build_instructions(tools: Iterable[ToolSpec], *, numbered: bool = True) -> str:
    """Return the contract and the tools as text. The examples use only offered tools."""
    tools = tuple(tools)
    offered = {tool.name for tool in tools}
    examples = _EXAMPLES if "EditTool" in offered else (_READ_EXAMPLE, *_EXAMPLES)
    shown = [_format_example(*example) for example in examples if all(step[1] in offered for step in example[1])]
    if not numbered:
        shown = [re.sub(r"(Result of Read: |\\n|\n)\d+ ", r"\1", example) for example in shown]
    lines = [_CONTRACT_INTRO, *(shown or [_format_generic_example(tools[0].name)])]
    lines += [hint for name, hint in _HINTS.items() if name in offered]
    return "\n".join([*lines, "", "Tools:", *(_describe_tool(tool) for tool in tools)])


def _format_generic_example(name: str) -> str:
    acting = _format_reply("what you do", [{"toolName": name, "toolInput": {}}])
    return f"{acting}\n{_format_reply('the answer, when the task is done', [])}"


def _format_example(task: str, steps: tuple[_ExampleStep, ...], end: str) -> str:
    lines = [f"User: {task}"]
    for rendered, name, args, result in steps:
        lines.append(_format_reply(rendered, [{"toolName": name, "toolInput": args}]))
        lines.append(f"Result of {name}: {result}")
    return "\n".join([*lines, _format_reply(end, [])])


def _format_reply(rendered: str, entries: list[dict[str, Any]], *, completed: bool = True) -> str:
    return dump_json({"taskCompleted": completed and not entries, "explanation": rendered, "executeTool": entries})


def _describe_tool(tool: ToolSpec) -> str:
    properties: dict[str, Any] = tool.schema.get("properties", {})
    required: list[str] = tool.schema.get("required", [])
    signature = ", ".join(
        f"{name}{'' if name in required else '?'}: {_format_type(schema)}" for name, schema in properties.items()
    )
    notes = "".join(
        f"\n    {name}: {schema['description']}" for name, schema in properties.items() if schema.get("description")
    )
    return f"- {tool.name}({signature}): {tool.description}{notes}"


def _format_type(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return "|".join(json.dumps(value) for value in schema["enum"])
    kind = schema.get("type", "any")
    if kind == "array":
        return f"[{_format_type(schema.get('items', {}))}]"
    if kind == "object" and schema.get("properties"):
        inner = ", ".join(f"{name}: {_format_type(child)}" for name, child in schema["properties"].items())
        return f"{{{inner}}}"
    return str(kind)


# --- schema ---

_KEPT_SCHEMA_KEYS = ("type", "enum", "const", "required")
_READ_TOOLS = ("LS", "Read", "Grep", "Glob")
_MAX_PARALLEL_READS = 4
"""Read-only calls may come together; a call that acts comes alone, so its result is seen first."""
_NON_EMPTY_PARAMETERS = ("file_path", "path", "pattern", "command", "old_string")


def build_contract_schema(
    tools: Iterable[ToolSpec], strictness: Strictness = "exact", lines: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return the JSON schema of one reply, using only keywords every server's grammar knows.

    taskCompleted comes first, so that a model decides before it talks itself into being done. The exact form also ties
    it to executeTool: a reply either acts or ends the task. `lines` are the only texts an edit may replace.
    """
    tools = tuple(tools)
    if strictness != "exact":
        entry = _build_entry_schema({"type": "string", "enum": [tool.name for tool in tools]}, {"type": "object"})
        return _build_reply_schema({"type": "boolean"}, {"type": "array", "items": entry})
    looking = [_build_tool_schema(tool, lines) for tool in tools if tool.name in _READ_TOOLS]
    acting = [_build_tool_schema(tool, lines) for tool in tools if tool.name not in _READ_TOOLS]
    calls = [
        {"type": "array", "items": {"anyOf": entries}, "minItems": 1, "maxItems": max_items}
        for entries, max_items in ((looking, _MAX_PARALLEL_READS), (acting, 1))
        if entries
    ]
    ends = _build_reply_schema({"const": True}, {"type": "array", "items": {"type": "object"}, "maxItems": 0})
    return {
        **_build_reply_schema({"type": "boolean"}, {"type": "array"}),
        "anyOf": [*(_build_reply_schema({"const": False}, some) for some in calls), ends],
    }


def _build_tool_schema(tool: ToolSpec, lines: tuple[str, ...]) -> dict[str, Any]:
    return _build_entry_schema({"const": tool.name}, _strip_schema(tool.schema, lines))


def _build_reply_schema(completed: dict[str, Any], entries: dict[str, Any]) -> dict[str, Any]:
    return _build_object_schema({"taskCompleted": completed, "explanation": {"type": "string"}, "executeTool": entries})


def _build_entry_schema(name: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    return _build_object_schema({"toolName": name, "toolInput": arguments})


def _build_object_schema(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _strip_schema(schema: dict[str, Any], lines: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a tool's schema with structure only: types, names, choices."""
    out: dict[str, Any] = {key: schema[key] for key in _KEPT_SCHEMA_KEYS if key in schema}
    if "properties" in schema:
        out["properties"] = {
            name: _build_parameter_schema(name, child, lines) for name, child in schema["properties"].items()
        }
        out["additionalProperties"] = False
    if "items" in schema:
        out["items"] = _strip_schema(schema["items"])
    if "anyOf" in schema:
        out["anyOf"] = [_strip_schema(option) for option in schema["anyOf"]]
    return out


def _build_parameter_schema(name: str, schema: dict[str, Any], lines: tuple[str, ...]) -> dict[str, Any]:
    if name == "old_string" and lines:
        return {"type": "string", "enum": list(lines)}
    return _strip_schema(schema) | ({"minLength": 1} if name in _NON_EMPTY_PARAMETERS else {})


# --- history as plain messages ---

_REMINDER_CHARS = 300
"""Characters of the prompt repeated below each result."""


def flatten_messages(messages: Iterable[Message], *, numbered: bool = True) -> tuple[Message, ...]:
    """Return the conversation without native tool calls: replies as JSON objects, results as user messages.

    Each result is followed by the task, because small models lose sight of it. With `numbered=False` the lines of files
    have no numbers, which the smallest models copy into their edits.
    """
    names: dict[str, str] = {}
    task = ""
    out: list[Message] = []
    for message in messages:
        if isinstance(message, ReplyMessage):
            names.update((call.id, call.name) for call in message.calls)
            calls = [{"toolName": call.name, "toolInput": call.args} for call in message.calls]
            text = _format_reply(message.text, calls, completed=message.stop != "unfinished")
            out.append(ReplyMessage((Text(text),), message.provider, message.model, "end_turn", message.interrupted))
        elif isinstance(message, ToolMessage):
            results = "\n\n".join(_flatten_result(one, names, numbered=numbered) for one in message.results)
            out.append(PromptMessage(results, (*message.notes, f"The task is: {task}") if task else message.notes))
        else:
            task = message.text[:_REMINDER_CHARS] or task
            out.append(message)
    return tuple(out)


def _flatten_result(result: ToolResult, names: dict[str, str], *, numbered: bool) -> str:
    name, text = names.get(result.call_id, "the call"), render_without_images(result)
    if not numbered and name == "Read":
        text = _NUMBERED_LINE.sub(r"\1", text)
    return f"{'Error' if result.is_error else 'Result'} of {name}:\n{text}"


def dump_json(value: Any) -> str:
    """Return JSON for the model: one line, without escaping letters."""
    return json.dumps(value, ensure_ascii=False)


# --- help for a stuck model ---

_NUMBERED_LINE = re.compile(r"^ *\d+\t(.*)$", re.MULTILINE)
_MAX_EDITABLE_LINES = 200


def find_repeated_tools(messages: tuple[Message, ...]) -> set[str]:
    """Return the tools whose calls were made twice, if the newest reply repeats a call.

    A small model that starts repeating itself continues to. It cannot choose these tools for one reply.
    """
    calls = [(call.name, call.args) for reply in _list_turn_replies(messages) for call in reply.calls]
    twice = [made for at, made in enumerate(calls) if made in calls[:at]]
    newest = next(reversed(_list_turn_replies(messages)), ReplyMessage(()))
    stuck = any((call.name, call.args) in twice for call in newest.calls)
    return {name for name, _ in twice} - {STRUCTURED_OUTPUT} if stuck else set()


def list_editable_lines(messages: tuple[Message, ...]) -> tuple[str, ...]:
    """Return the lines of the file if the last edit of this turn failed, for the model to choose from.

    Exact copying with escaped quotes is what small models do worst, and a grammar does it for them.
    """
    calls = {call.id: call.args for reply in _list_turn_replies(messages) for call in reply.calls}
    results = [result for message in messages if isinstance(message, ToolMessage) for result in message.results]
    path, failed = None, False
    for result in results:
        if "old_string" in calls.get(result.call_id, {}):
            path, failed = calls[result.call_id].get("file_path"), result.is_error
    if not failed:
        return ()
    about = [result.text for result in results if calls.get(result.call_id, {}).get("file_path") == path]
    lines = dict.fromkeys(line for text in about for line in _NUMBERED_LINE.findall(text) if line.strip())
    return tuple(lines) if len(lines) <= _MAX_EDITABLE_LINES else ()


def _list_turn_replies(messages: tuple[Message, ...]) -> list[ReplyMessage]:
    """Return the replies since the last prompt."""
    replies: list[ReplyMessage] = []
    for message in reversed(messages):
        if isinstance(message, PromptMessage) and message.text:
            break
        if isinstance(message, ReplyMessage):
            replies.append(message)
    return replies[::-1]


_REPLY_START = re.compile(r'\s*\{\s*(?:"taskCompleted"\s*:\s*(?:true|false)\s*,\s*)?"explanation"\s*:\s*"')
_ESCAPE_VALUES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_PLAIN_TEXT = re.compile(r'[^"\\]+')
_SURROGATE = re.compile("[\ud800-\udfff]")
_TOOL_NAME = re.compile(r'"toolName"\s*:\s*"([\w.\-]+)"')
_ESCAPE = re.compile(r'\\(?:u([0-9a-fA-F]{4})(?:\\u([dD][c-fC-F][0-9a-fA-F]{2}))?|(["\\/bfnrt]))')


class ExplanationReader:
    """Extracts the explanation from the JSON of a reply while it streams in."""

    def __init__(self) -> None:
        self._buffer = ""
        self._at = -1
        self._closed = False
        self.shown_text = ""

    def feed(self, fragment: str) -> str:
        self._buffer += fragment
        if self._closed:
            return ""
        if self._at < 0:
            begins = _REPLY_START.match(self._buffer)
            if begins is None:
                return ""
            self._at = begins.end()
        text = "".join(self._decode_characters())
        self.shown_text += text
        return text

    @property
    def json(self) -> str:
        return self._buffer

    def _decode_characters(self) -> Iterable[str]:
        while self._at < len(self._buffer):
            plain = _PLAIN_TEXT.match(self._buffer, self._at)
            if plain:
                self._at = plain.end()
                yield plain[0]
                continue
            if self._buffer[self._at] == '"':
                self._closed = True
                return
            escape = _ESCAPE.match(self._buffer, self._at)
            if escape is None or self._is_incomplete(escape):
                return
            self._at = escape.end()
            yield _ESCAPE_VALUES[escape[3]] if escape[3] else _decode_unicode_escape(escape[1], escape[2])

    def _is_incomplete(self, escape: re.Match[str]) -> bool:
        """True if the second half of a surrogate pair may still arrive."""
        high = escape[1] and escape[1][:2].casefold() in ("d8", "d9", "da", "db")
        return bool(high and not escape[2] and len(self._buffer) - escape.end() < 6)


def _decode_unicode_escape(first: str, second: str | None) -> str:
    code = int(first, 16)
    if 0xD800 <= code <= 0xDBFF and second:
        return chr(0x10000 + ((code - 0xD800) << 10) + (int(second, 16) - 0xDC00))
    character = "\ufffd" if 0xD800 <= code <= 0xDFFF else chr(code)
    return character + (_decode_unicode_escape(second, None) if second else "")


def make_call_id(model: str) -> str:
    """Return a new id that names the model that wrote the call as text, so that a resumed session knows it."""
    return get_written_id_prefix(model) + os.urandom(6).hex()


class ContractReply(Struct, frozen=True):
    """A finished reply: the text not yet shown, and the tool calls with their arguments as JSON.

    `completed` is False if the model said that the task is not done.
    """

    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    completed: bool = True


def parse_prose_reply(held: str, tools: tuple[ToolSpec, ...]) -> ContractReply:
    """Parse the held-back end of a reply: the tool calls written in it, or plain text."""
    found = find_calls(held, tools)
    if not found.calls and not found.contract:
        return ContractReply(held)
    return ContractReply(found.text, tuple((name, dump_json(args)) for name, args in found.calls))


def _parse_entries(entries: Any) -> Iterable[tuple[str, str]]:
    """Yield the calls of `executeTool`: a list, one object, or nothing. Anything else becomes a malformed call."""
    if not entries:
        return
    for entry in cast("list[Any]", entries) if isinstance(entries, list) else [entries]:
        split = split_call(cast("dict[str, Any]", entry)) if isinstance(entry, dict) else None
        args = parse_arguments(split[1]) if split else None
        if split is None or args is None or not isinstance(split[0], str):
            yield "executeTool", f"not a call: {dump_json(entry)}"
        else:
            yield split[0], dump_json(args)


def finish_reply(outcome: ContractReply, stop: StopChunk, model: str) -> Iterable[Chunk]:
    """Yield the last chunks of a reply: remaining text, tool calls, and the stop reason."""
    if outcome.text:
        yield TextChunk(_SURROGATE.sub("\ufffd", outcome.text))
    for index, (name, arguments) in enumerate(outcome.calls):
        yield CallChunk(index, make_call_id(model), name, arguments, done=True)
    if outcome.calls:
        yield StopChunk("tool_use", stop.model)
    elif stop.reason in ("end_turn", "tool_use"):
        yield StopChunk("end_turn" if outcome.completed else "unfinished", stop.model)
    else:
        yield StopChunk(stop.reason, stop.model)


class ContractReplyReader:
    """Follows one reply. A server may ignore the schema, so prose and written calls are handled, too."""

    def __init__(self, tools: tuple[ToolSpec, ...]) -> None:
        self._tools = tools
        self._object = ExplanationReader()
        self._prose: TextCallFilter | None = None

    def feed(self, text: str) -> str:
        """Add a chunk of the reply and return what can be shown now."""
        if self._prose is not None:
            return self._prose.feed(text)
        shown = self._object.feed(text)
        start = self._object.json.lstrip()
        if start and not start.startswith("{"):
            self._prose = TextCallFilter(self._tools)
            return self._prose.feed(self._object.json)
        return shown

    def finish(self, truncated: bool) -> ContractReply:
        if self._prose is not None:
            return parse_prose_reply(self._prose.get_held_text(), self._tools)
        if not self._object.json.strip():
            return ContractReply()
        # Parse a reply that starts like a JSON object. `shown` is the explanation shown so far. `truncated`: the token
        # limit ended the reply, so broken JSON is not the model's mistake and nothing in it runs.
        value = parse_leading_object(self._object.json)
        if value is not None and is_contract_reply(value):
            calls = tuple(_parse_entries(value.get("executeTool")))
            rest = "" if self._object.shown_text else str(value.get("explanation") or "")
            completed = value.get("taskCompleted") is not False
            return ContractReply(rest if rest or self._object.shown_text or calls else "Done.", calls, completed)
        found = find_calls(self._object.json, self._tools)
        if found.calls:
            return ContractReply(found.text, tuple((name, dump_json(args)) for name, args in found.calls))
        if value is not None or truncated:
            return ContractReply("" if self._object.shown_text else self._object.json)
        named = _TOOL_NAME.search(self._object.json)
        return ContractReply("", ((named[1] if named else "executeTool", self._object.json),))


_STRICTNESS_LEVELS: tuple[Strictness, ...] = ("exact", "loose", "none")


class JsonContract:
    """Requests the JSON object from a model and yields its meaning as ordinary chunks."""

    def __init__(self, provider: Provider, *, temperature: float | None = 0.0, numbered: bool = True) -> None:
        """`numbered`: files are shown with line numbers."""
        self.name = provider.name
        self._provider = provider
        self._is_numbered = numbered
        self._temperature = temperature
        self._strictness = 0

    async def close(self) -> None:
        await self._provider.close()

    async def stream(self, request: Request) -> AsyncGenerator[Chunk]:
        """If the server rejects the schema, retry with a simpler one, then without one."""
        if not request.tools:
            async with open_stream(
                self._provider, replace(request, messages=flatten_messages(request.messages))
            ) as chunks:
                async for chunk in chunks:
                    yield chunk
            return
        for level in range(self._strictness, len(_STRICTNESS_LEVELS)):
            rendered = False
            try:
                async with aclosing(self._stream_once(request, _STRICTNESS_LEVELS[level])) as chunks:
                    async for chunk in chunks:
                        if not rendered and not isinstance(chunk, WaitChunk):
                            rendered = True
                            self._strictness = level
                        yield chunk
            except BadRequest:
                if rendered or level == len(_STRICTNESS_LEVELS) - 1:
                    raise
            else:
                return

    async def _stream_once(self, request: Request, strictness: Strictness) -> AsyncGenerator[Chunk]:
        reader = ContractReplyReader(request.tools)
        async with open_stream(self._provider, self._build_request(request, strictness)) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, TextChunk):
                    text = reader.feed(chunk.text)
                    if text:
                        yield TextChunk(text)
                elif isinstance(chunk, StopChunk):
                    for last in finish_reply(reader.finish(chunk.reason == "max_tokens"), chunk, request.model):
                        yield last
                else:
                    yield chunk

    def _build_request(self, request: Request, strictness: Strictness) -> Request:
        temperature = self._temperature if request.temperature is None else request.temperature
        stale, lines = find_repeated_tools(request.messages), list_editable_lines(request.messages)
        enforced = tuple(tool for tool in request.tools if tool.name not in stale) or request.tools
        return replace(
            request,
            messages=flatten_messages(request.messages, numbered=self._is_numbered),
            system=(*request.system, build_instructions(request.tools, numbered=self._is_numbered)),
            tools=(),
            temperature=temperature,
            schema=None if strictness == "none" else build_contract_schema(enforced, strictness, lines),
        )
