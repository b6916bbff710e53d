"""Tools for models that cannot call them: the planner's JSON contract as a provider around a provider.

The model is told about the tools in plain text and answers with one JSON object (`explanation`, `taskCompleted`,
`executeTool`) that the server is asked to enforce. History goes out as plain messages in the same shape, so request
n+1 still starts with request n. `AdaptiveTools` decides by what a model does whether it is asked this way.
"""

import json
import os
import re
from binascii import crc32
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from typing import Any, Literal, cast

from msgspec import Struct
from msgspec.structs import replace

from odin.core.errors import BadRequest, ProviderError
from odin.core.message import AssistantMessage, Message, Text, ToolMessage, UserMessage
from odin.core.provider import (
    CallPiece,
    Piece,
    Provider,
    Request,
    StopPiece,
    StyleChoice,
    TextPiece,
    ToolSpec,
    ToolStyle,
    WaitPiece,
)
from odin.providers.textcalls import CallSieve, as_arguments, find_calls, is_contract, read_object, split_call

Strictness = Literal["exact", "loose", "none"]
"""How much of the contract the server enforces: each tool's own arguments, only the outer object, or nothing."""

_STRICTNESS: tuple[Strictness, ...] = ("exact", "loose", "none")

# --- what the model is told ---

_INSTRUCTIONS = """\
Work in steps. Every reply is one JSON object with taskCompleted, explanation and executeTool, as in these examples.
{examples}
old_string is one line of the file, copied exactly, with each quote as \\". To add lines, repeat it in new_string and put
the new lines below it. To create a file, call WriteFile at once.

Tools:
{tools}"""

_Step = tuple[str, str, dict[str, Any], str]

_EXAMPLES: tuple[tuple[str, tuple[_Step, ...], str], ...] = (
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
                    "new_string": '    return door.key == "gold"\n\n\ndef ring(bell):\n    return "ding"',
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
"""A task with each of the moves a small model has to see once: read, change, search, and end with the answer."""


def instructions(tools: Iterable[ToolSpec]) -> str:
    """The contract and the tools as text. Only tools that are offered appear in the examples."""
    tools = tuple(tools)
    offered = {tool.name for tool in tools}
    examples = [
        _example(task, steps, end) for task, steps, end in _EXAMPLES if all(step[1] in offered for step in steps)
    ]
    return _INSTRUCTIONS.format(examples="\n".join(examples), tools="\n".join(_describe(tool) for tool in tools))


def _example(task: str, steps: tuple[_Step, ...], end: str) -> str:
    lines = [f"User: {task}"]
    for said, name, args, result in steps:
        lines.append(_reply(said, [{"toolName": name, "toolInput": args}]))
        lines.append(f"Result of {name}: {result}")
    return "\n".join([*lines, _reply(end, [])])


def _reply(said: str, entries: list[dict[str, Any]]) -> str:
    return _dumps({"taskCompleted": not entries, "explanation": said, "executeTool": entries})


def _describe(tool: ToolSpec) -> str:
    properties: dict[str, Any] = tool.schema.get("properties", {})
    required: list[str] = tool.schema.get("required", [])
    signature = ", ".join(
        f"{name}{'' if name in required else '?'}: {_type(schema)}" for name, schema in properties.items()
    )
    notes = "".join(
        f"\n    {name}: {schema['description']}" for name, schema in properties.items() if schema.get("description")
    )
    return f"- {tool.name}({signature}): {tool.description}{notes}"


def _type(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return "|".join(json.dumps(value) for value in schema["enum"])
    kind = schema.get("type", "any")
    if kind == "array":
        return f"[{_type(schema.get('items', {}))}]"
    if kind == "object" and schema.get("properties"):
        inner = ", ".join(f"{name}: {_type(child)}" for name, child in schema["properties"].items())
        return f"{{{inner}}}"
    return str(kind)


# --- what the server is asked to enforce ---

_KEPT = ("type", "enum", "const", "required")
_PATHS = ("file_path", "path")
_NEVER_EMPTY = ("file_path", "path", "pattern", "command", "old_string")


def contract_schema(
    tools: Iterable[ToolSpec], strictness: Strictness = "exact", lines: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The JSON schema of one reply. Only keywords that every server's grammar knows are used.

    taskCompleted comes first, so that a model decides before it talks itself into having done it. The exact form also
    ties it to executeTool: a reply either acts or ends the task. `lines` are the only texts an edit may replace.
    """
    tools = tuple(tools)
    if strictness == "exact":
        items: dict[str, Any] = {"anyOf": [_entry({"const": tool.name}, _plain(tool.schema, lines)) for tool in tools]}
    else:
        items = _entry({"type": "string", "enum": [tool.name for tool in tools]}, {"type": "object"})
    if strictness != "exact":
        return _shape({"type": "boolean"}, {"type": "array", "items": items})
    acts = _shape({"const": False}, {"type": "array", "items": items, "minItems": 1})
    ends = _shape({"const": True}, {"type": "array", "items": items, "maxItems": 0})
    return {**_shape({"type": "boolean"}, {"type": "array"}), "anyOf": [acts, ends]}


def _shape(completed: dict[str, Any], entries: dict[str, Any]) -> dict[str, Any]:
    return _object({"taskCompleted": completed, "explanation": {"type": "string"}, "executeTool": entries})


def _entry(name: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    return _object({"toolName": name, "toolInput": arguments})


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _plain(schema: dict[str, Any], lines: tuple[str, ...] = ()) -> dict[str, Any]:
    """A tool's schema with its structure only: types, names, choices."""
    out: dict[str, Any] = {key: schema[key] for key in _KEPT if key in schema}
    if "properties" in schema:
        out["properties"] = {name: _parameter(name, child, lines) for name, child in schema["properties"].items()}
        out["additionalProperties"] = False
    if "items" in schema:
        out["items"] = _plain(schema["items"])
    if "anyOf" in schema:
        out["anyOf"] = [_plain(option) for option in schema["anyOf"]]
    return out


def _parameter(name: str, schema: dict[str, Any], lines: tuple[str, ...]) -> dict[str, Any]:
    if name == "old_string" and lines:
        return {"type": "string", "enum": list(lines)}
    return _plain(schema) | ({"minLength": 1} if name in _NEVER_EMPTY else {})


# --- history as plain messages ---

_REMINDED = 300
"""Characters of the prompt that are repeated below each result."""


def flatten(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The same conversation without tool calls: replies as the contract's object, results as what the user says.

    Each result is followed by the task it serves, because small models lose sight of it.
    """
    names: dict[str, str] = {}
    task = ""
    out: list[Message] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            names.update((call.id, call.name) for call in message.calls)
            out.append(_as_object(message))
        elif isinstance(message, ToolMessage):
            results = "\n\n".join(
                f"{'Error' if result.is_error else 'Result'} of {names.get(result.call_id, 'the call')}:\n{result.text}"
                for result in message.results
            )
            out.append(UserMessage(results, (*message.notes, f"The task is: {task}") if task else message.notes))
        else:
            task = message.text[:_REMINDED]
            out.append(message)
    return tuple(out)


def _as_object(message: AssistantMessage) -> AssistantMessage:
    text = _reply(message.text, [{"toolName": call.name, "toolInput": call.args} for call in message.calls])
    return AssistantMessage((Text(text),), message.provider, message.model, "end_turn", message.interrupted)


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


# --- help for a model that is stuck ---

_NUMBERED = re.compile(r"^ *\d+\t(.*)$", re.MULTILINE)
_MOST_LINES = 200


def repeated(messages: tuple[Message, ...]) -> set[str]:
    """The tools that brought nothing new: when the newest reply makes a call again, all whose calls were made twice.

    A small model that has begun to repeat itself goes on. It cannot choose these tools for one reply.
    """
    calls = [(call.name, call.args) for reply in _turn(messages) for call in reply.calls]
    twice = [made for at, made in enumerate(calls) if made in calls[:at]]
    newest = next(reversed(_turn(messages)), AssistantMessage(()))
    stuck = any((call.name, call.args) in twice for call in newest.calls)
    return {name for name, _ in twice} if stuck else set()


def editable_lines(messages: tuple[Message, ...]) -> tuple[str, ...]:
    """After an edit whose old text was not found: the lines of that file, for the model to choose from.

    Copying exactly, with every quote escaped, is what small models are worst at, and a grammar does it for them.
    """
    newest = messages[-1] if messages else None
    failed = {result.call_id for result in newest.results if result.is_error} if isinstance(newest, ToolMessage) else ()
    calls = {call.id: call for reply in _turn(messages) for call in reply.calls}
    paths = {str(calls[id].args.get("file_path")) for id in failed if id in calls and "old_string" in calls[id].args}
    lines: dict[str, None] = {}
    for message in messages:
        for result in message.results if isinstance(message, ToolMessage) else ():
            if result.call_id in calls and str(calls[result.call_id].args.get("file_path")) in paths:
                lines.update(dict.fromkeys(line for line in _NUMBERED.findall(result.text) if line.strip()))
    return tuple(lines) if len(lines) <= _MOST_LINES else ()


def _turn(messages: tuple[Message, ...]) -> list[AssistantMessage]:
    """The replies since the last prompt."""
    replies: list[AssistantMessage] = []
    for message in reversed(messages):
        if isinstance(message, UserMessage):
            break
        if isinstance(message, AssistantMessage):
            replies.append(message)
    return replies[::-1]


# --- reading the reply while it comes in ---

_BEGINS = re.compile(r'\s*\{\s*(?:"taskCompleted"\s*:\s*(?:true|false)\s*,\s*)?"explanation"\s*:\s*"')
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_PLAIN = re.compile(r'[^"\\]+')
_TOOL_NAME = re.compile(r'"toolName"\s*:\s*"([\w.\-]+)"')
_ESCAPE = re.compile(r'\\(?:u([0-9a-fA-F]{4})(?:\\u([dD][c-fC-F][0-9a-fA-F]{2}))?|(["\\/bfnrt]))')


class ExplanationReader:
    """Takes the JSON of a reply piece by piece and gives out its explanation as it becomes readable."""

    def __init__(self) -> None:
        self._buffer = ""
        self._at = -1
        self._closed = False
        self.given = ""

    def feed(self, fragment: str) -> str:
        self._buffer += fragment
        if self._closed:
            return ""
        if self._at < 0:
            begins = _BEGINS.match(self._buffer)
            if begins is None:
                return ""
            self._at = begins.end()
        text = "".join(self._characters())
        self.given += text
        return text

    @property
    def json(self) -> str:
        return self._buffer

    def _characters(self) -> Iterable[str]:
        while self._at < len(self._buffer):
            plain = _PLAIN.match(self._buffer, self._at)
            if plain:
                self._at = plain.end()
                yield plain[0]
                continue
            if self._buffer[self._at] == '"':
                self._closed = True
                return
            escape = _ESCAPE.match(self._buffer, self._at)
            if escape is None or self._incomplete(escape):
                return
            self._at = escape.end()
            yield _ESCAPES[escape[3]] if escape[3] else _unicode(escape[1], escape[2])

    def _incomplete(self, escape: re.Match[str]) -> bool:
        """Whether the second half of a surrogate pair may still be on its way."""
        high = escape[1] and escape[1][:2].casefold() in ("d8", "d9", "da", "db")
        return bool(high and not escape[2] and len(self._buffer) - escape.end() < 6)


def _unicode(first: str, second: str | None) -> str:
    code = int(first, 16)
    if 0xD800 <= code <= 0xDBFF and second:
        return chr(0x10000 + ((code - 0xD800) << 10) + (int(second, 16) - 0xDC00))
    character = "\ufffd" if 0xD800 <= code <= 0xDFFF else chr(code)
    return character + (_unicode(second, None) if second else "")


_ID_PREFIX = "json_"


def call_id(model: str) -> str:
    """A fresh id that also says by which model the call was written as text, so that a resumed session knows it."""
    return f"{_ID_PREFIX}{crc32(model.encode()):08x}_{os.urandom(6).hex()}"


def _wrote_calls(request: Request) -> bool:
    """Whether this model wrote a call as text earlier in the conversation."""
    prefix = call_id(request.model)[: len(_ID_PREFIX) + 9]
    calls = (call for message in request.messages if isinstance(message, AssistantMessage) for call in message.calls)
    return any(call.id.startswith(prefix) for call in calls)


class _Outcome(Struct, frozen=True):
    """A finished reply: what is still to be said, and the calls with their arguments as JSON."""

    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()


def _of_object(raw: str, given: str, tools: tuple[ToolSpec, ...], cut: bool, cwd: str) -> _Outcome:
    """What a reply that began like a JSON object comes to.

    `given` is the explanation already shown. `cut` means that the token limit ended the reply: what is broken then is
    no mistake of the model's, and no part of it is run.
    """
    value = read_object(raw)
    if value is not None and is_contract(value):
        calls = tuple(_entries(value.get("executeTool"), cwd))
        rest = "" if given else str(value.get("explanation") or "")
        return _Outcome(rest if rest or given or calls else "Done.", calls)
    found = find_calls(raw, tools)
    if found.calls:
        return _Outcome(found.text, tuple((name, _arguments(args, cwd)) for name, args in found.calls))
    if value is not None or cut:
        return _Outcome("" if given else raw)
    named = _TOOL_NAME.search(raw)
    return _Outcome("", ((named[1] if named else "executeTool", raw),))


def _of_prose(held: str, tools: tuple[ToolSpec, ...], cwd: str) -> _Outcome:
    """What the held-back end of a reply comes to: the calls written in it, or the text it is."""
    found = find_calls(held, tools)
    if not found.calls and not found.contract:
        return _Outcome(held)
    return _Outcome(found.text, tuple((name, _arguments(args, cwd)) for name, args in found.calls))


def _arguments(args: dict[str, Any], cwd: str) -> str:
    """Arguments as JSON, with relative paths made absolute: a model this small names files as the user does."""
    if cwd:
        args = {name: _absolute(value, cwd) if name in _PATHS else value for name, value in args.items()}
    return _dumps(args)


def _absolute(value: Any, cwd: str) -> Any:
    if not isinstance(value, str) or not value or os.path.isabs(value) or value.startswith("~"):  # noqa: PTH117
        return value
    return os.path.normpath(f"{cwd}/{value}")


def _entries(entries: Any, cwd: str) -> Iterable[tuple[str, str]]:
    """The calls of `executeTool`: a list, one object, or nothing. What is no call is passed on as a broken one."""
    if not entries:
        return
    for entry in cast("list[Any]", entries) if isinstance(entries, list) else [entries]:
        split = split_call(cast("dict[str, Any]", entry)) if isinstance(entry, dict) else None
        args = as_arguments(split[1]) if split else None
        if split is None or args is None or not isinstance(split[0], str):
            yield "executeTool", f"not a call: {_dumps(entry)}"
        else:
            yield split[0], _arguments(args, cwd)


def _finish(outcome: _Outcome, stop: StopPiece, model: str) -> Iterable[Piece]:
    if outcome.text:
        yield TextPiece(outcome.text)
    for index, (name, arguments) in enumerate(outcome.calls):
        yield CallPiece(index, call_id(model), name, arguments, done=True)
    if outcome.calls:
        yield StopPiece("tool_use", stop.model)
    else:
        yield StopPiece("end_turn" if stop.reason == "tool_use" else stop.reason, stop.model)


def _open(provider: Provider, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Piece]]:
    """A provider's stream that is closed together with ours, so that an interrupt reaches the connection."""
    stream = provider.stream(request)
    if hasattr(stream, "aclose"):
        return aclosing(cast("AsyncGenerator[Piece]", stream))
    return nullcontext(stream)


# --- the providers ---


class JsonContract:
    """Asks a model for the planner's JSON object and gives out what it means as ordinary pieces."""

    def __init__(self, provider: Provider, *, cwd: str = "", temperature: float | None = 0.0) -> None:
        self.name = provider.name
        self._provider = provider
        self._cwd = cwd
        self._temperature = temperature
        self._strictness = 0

    async def close(self) -> None:
        await self._provider.close()

    async def stream(self, request: Request) -> AsyncGenerator[Piece]:
        """A server that refuses the schema is asked again with a simpler one, and at last with none."""
        if not request.tools:
            async with _open(self._provider, replace(request, messages=flatten(request.messages))) as pieces:
                async for piece in pieces:
                    yield piece
            return
        for level in range(self._strictness, len(_STRICTNESS)):
            said = False
            try:
                async with aclosing(self._ask(request, _STRICTNESS[level])) as pieces:
                    async for piece in pieces:
                        if not said and not isinstance(piece, WaitPiece):
                            said = True
                            self._strictness = level
                        yield piece
            except BadRequest:
                if said or level == len(_STRICTNESS) - 1:
                    raise
            else:
                return

    async def _ask(self, request: Request, strictness: Strictness) -> AsyncGenerator[Piece]:
        reader = ReplyReader(request.tools, self._cwd)
        async with _open(self._provider, self._plain(request, strictness)) as pieces:
            async for piece in pieces:
                if isinstance(piece, TextPiece):
                    text = reader.feed(piece.text)
                    if text:
                        yield TextPiece(text)
                elif isinstance(piece, StopPiece):
                    for last in _finish(reader.finish(piece.reason == "max_tokens"), piece, request.model):
                        yield last
                else:
                    yield piece

    def _plain(self, request: Request, strictness: Strictness) -> Request:
        temperature = self._temperature if request.temperature is None else request.temperature
        stale, lines = repeated(request.messages), editable_lines(request.messages)
        enforced = tuple(tool for tool in request.tools if tool.name not in stale) or request.tools
        return replace(
            request,
            messages=flatten(request.messages),
            system=(*request.system, instructions(request.tools)),
            tools=(),
            temperature=temperature,
            schema=None if strictness == "none" else contract_schema(enforced, strictness, lines),
        )


class ReplyReader:
    """Follows one reply by the contract. A server may ignore the schema, so prose and written calls may come too."""

    def __init__(self, tools: tuple[ToolSpec, ...], cwd: str = "") -> None:
        self._tools = tools
        self._cwd = cwd
        self._object = ExplanationReader()
        self._prose: CallSieve | None = None

    def feed(self, text: str) -> str:
        """Add a piece of the reply; returns what may be shown now."""
        if self._prose is not None:
            return self._prose.feed(text)
        shown = self._object.feed(text)
        begun = self._object.json.lstrip()
        if begun and not begun.startswith("{"):
            self._prose = CallSieve(self._tools)
            return self._prose.feed(self._object.json)
        return shown

    def finish(self, cut: bool) -> _Outcome:
        if self._prose is not None:
            return _of_prose(self._prose.rest(), self._tools, self._cwd)
        if not self._object.json.strip():
            return _Outcome()
        return _of_object(self._object.json, self._object.given, self._tools, cut, self._cwd)


_NO_TOOLS = re.compile(
    r"(not|n't) support\w* .*\b(tool|function)|\b(tool|function)\w*( \w+)? (is|are) not (support|enabled|available)"
    r"|requires? --jinja|--enable-auto-tool-choice|support tool use",
    re.IGNORECASE,
)


class AdaptiveTools:
    """Asks a model in the way it understands.

    `native` and `json` are fixed. With `auto` a model is asked by the API's own tools until the server says that it has
    none, or the model writes a call as text; that call is recognised, and from then on the contract is used.
    """

    def __init__(
        self,
        provider: Provider,
        style: StyleChoice = "auto",
        *,
        cwd: str = "",
        on_style: Callable[[str, ToolStyle], None] = lambda model, style: None,
        temperature: float | None = 0.0,
    ) -> None:
        self.name = provider.name
        self._provider = provider
        self._style: StyleChoice = style
        self._on_style = on_style
        self._cwd = cwd
        self._contract = JsonContract(provider, cwd=cwd, temperature=temperature)
        self._by_contract: set[str] = set()

    async def close(self) -> None:
        await self._provider.close()

    def style_for(self, request: Request) -> ToolStyle:
        """How this request will be asked, by what is known of the model and what it did earlier in the conversation."""
        if self._style != "auto":
            return self._style
        return "json" if request.model in self._by_contract or _wrote_calls(request) else "native"

    async def stream(self, request: Request) -> AsyncGenerator[Piece]:
        if self.style_for(request) == "native":
            watched = self._style == "auto" and bool(request.tools)
            said = False
            try:
                async with aclosing(self._watch(request)) if watched else _open(self._provider, request) as pieces:
                    async for piece in pieces:
                        said = said or not isinstance(piece, WaitPiece)
                        yield piece
            except ProviderError as error:
                if said or not watched or not _NO_TOOLS.search(str(error)):
                    raise
                self._switch(request.model)
            else:
                return
        async with aclosing(self._contract.stream(request)) as pieces:
            async for piece in pieces:
                yield piece

    def _switch(self, model: str) -> None:
        if model not in self._by_contract:
            self._by_contract.add(model)
            self._on_style(model, "json")

    async def _watch(self, request: Request) -> AsyncGenerator[Piece]:
        """Pass a native reply through, taking out the calls that are written in its text."""
        sieve = CallSieve(request.tools)
        native = False
        async with _open(self._provider, request) as pieces:
            async for piece in pieces:
                if isinstance(piece, TextPiece) and not native:
                    text = sieve.feed(piece.text)
                    if text:
                        yield TextPiece(text)
                elif isinstance(piece, CallPiece) and not native:
                    native = True
                    if sieve.rest():
                        yield TextPiece(sieve.rest())
                    yield piece
                elif isinstance(piece, StopPiece) and not native:
                    outcome = _of_prose(sieve.rest(), request.tools, self._cwd)
                    if outcome.calls:
                        self._switch(request.model)
                    for last in _finish(outcome, piece, request.model):
                        yield last
                else:
                    yield piece


# --- few and short tools for small windows ---

SMALL_WINDOW = 16_384
MIDDLE_WINDOW = 32_768

_FEW: dict[str, tuple[str, ...]] = {
    "LS": ("path",),
    "Read": ("file_path", "offset", "limit"),
    "Grep": ("pattern", "path"),
    "ExecuteCommand": ("command",),
    "WriteFile": ("file_path", "content"),
    "EditTool": ("file_path", "old_string", "new_string", "replace_all"),
}
"""The tools a small model works with, and those of their parameters that it needs."""


def for_window(tools: tuple[ToolSpec, ...], brief: tuple[ToolSpec, ...], context: int) -> tuple[ToolSpec, ...]:
    """The tools to offer to a model with this many tokens of context, 0 when that is unknown.

    A small window gets the six tools of everyday work with few parameters, a middling one all tools in one sentence
    each. `brief` are the same tools as `tools`, described shortly.
    """
    if not 0 < context <= MIDDLE_WINDOW:
        return tools
    if context > SMALL_WINDOW:
        return brief
    few = tuple(_narrow(tool, _FEW[tool.name]) for tool in brief if tool.name in _FEW)
    return few or brief


def _narrow(tool: ToolSpec, parameters: tuple[str, ...]) -> ToolSpec:
    properties: dict[str, Any] = tool.schema.get("properties", {})
    required: list[str] = tool.schema.get("required", [])
    kept = {name: child for name, child in properties.items() if name in parameters or name in required}
    return replace(tool, schema={**tool.schema, "properties": kept})
