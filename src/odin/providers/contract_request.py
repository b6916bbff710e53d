"""How the planner's JSON contract is put to a model: instructions, schema, and history as plain messages."""

import json
import re
from collections.abc import Iterable
from typing import Any, Literal

from odin.core.message import Message, PromptMessage, ReplyMessage, Text, ToolMessage
from odin.core.provider import ToolSpec
from odin.providers.pictures import render_without_images

Strictness = Literal["exact", "loose", "none"]
"""How much of the contract the server enforces: each tool's own arguments, only the outer object, or nothing."""

# --- what the model is told ---

_CONTRACT_INTRO = (
    "Work in steps. Every reply is one JSON object with taskCompleted, explanation and executeTool, like these:"
)

_HINTS = {
    "EditTool": 'old_string is one line of the file, copied exactly, with each quote as \\". '
    "To add lines, repeat it in new_string and put the new lines below it.",
    "WriteFile": "To create a file, call WriteFile at once.",
}
"""What goes wrong most often, told when the tool is offered."""

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
"""The moves a small model has to see once: read, change, search, and end with the answer. It copies them closely."""

_READ_EXAMPLE = (
    "What color is the door?",
    (("I read the file.", "Read", {"file_path": "door.py"}, '1 color = "red"'),),
    "The door is red.",
)
"""Stands in for the example that edits when nothing may be changed."""


def build_instructions(tools: Iterable[ToolSpec]) -> str:
    """The contract and the tools as text. Only tools that are offered appear in the examples."""
    tools = tuple(tools)
    offered = {tool.name for tool in tools}
    examples = _EXAMPLES if "EditTool" in offered else (_READ_EXAMPLE, *_EXAMPLES)
    shown = [_format_example(*example) for example in examples if all(step[1] in offered for step in example[1])]
    lines = [_CONTRACT_INTRO, *(shown or [_format_generic_example(tools[0].name)])]
    lines += [hint for name, hint in _HINTS.items() if name in offered]
    return "\n".join([*lines, "", "Tools:", *(_describe_tool(tool) for tool in tools)])


def _format_generic_example(name: str) -> str:
    acting = _format_reply("what you do", [{"toolName": name, "toolInput": {}}])
    return f"{acting}\n{_format_reply('the answer, when the task is done', [])}"


def _format_example(task: str, steps: tuple[_ExampleStep, ...], end: str) -> str:
    lines = [f"User: {task}"]
    for said, name, args, result in steps:
        lines.append(_format_reply(said, [{"toolName": name, "toolInput": args}]))
        lines.append(f"Result of {name}: {result}")
    return "\n".join([*lines, _format_reply(end, [])])


def _format_reply(said: str, entries: list[dict[str, Any]]) -> str:
    return dump_json({"taskCompleted": not entries, "explanation": said, "executeTool": entries})


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


# --- what the server is asked to enforce ---

_KEPT_SCHEMA_KEYS = ("type", "enum", "const", "required")
_READ_TOOLS = ("LS", "Read", "Grep", "Glob")
_MAX_PARALLEL_READS = 4
"""Calls that only look are independent of each other; what acts comes alone, so that its result is seen first."""
_NON_EMPTY_PARAMETERS = ("file_path", "path", "pattern", "command", "old_string")


def build_contract_schema(
    tools: Iterable[ToolSpec], strictness: Strictness = "exact", lines: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The JSON schema of one reply. Only keywords that every server's grammar knows are used.

    taskCompleted comes first, so that a model decides before it talks itself into having done it. The exact form also
    ties it to executeTool: a reply either acts or ends the task. `lines` are the only texts an edit may replace.
    """
    tools = tuple(tools)
    if strictness != "exact":
        entry = _build_entry_schema({"type": "string", "enum": [tool.name for tool in tools]}, {"type": "object"})
        return _build_reply_schema({"type": "boolean"}, {"type": "array", "items": entry})
    looking = [_build_tool_schema(tool, lines) for tool in tools if tool.name in _READ_TOOLS]
    acting = [_build_tool_schema(tool, lines) for tool in tools if tool.name not in _READ_TOOLS]
    calls = [
        _build_calls_schema(entries, most) for entries, most in ((looking, _MAX_PARALLEL_READS), (acting, 1)) if entries
    ]
    ends = _build_reply_schema({"const": True}, {"type": "array", "items": {"type": "object"}, "maxItems": 0})
    return {
        **_build_reply_schema({"type": "boolean"}, {"type": "array"}),
        "anyOf": [*(_build_reply_schema({"const": False}, some) for some in calls), ends],
    }


def _build_calls_schema(entries: list[dict[str, Any]], most: int) -> dict[str, Any]:
    return {"type": "array", "items": {"anyOf": entries}, "minItems": 1, "maxItems": most}


def _build_tool_schema(tool: ToolSpec, lines: tuple[str, ...]) -> dict[str, Any]:
    return _build_entry_schema({"const": tool.name}, _strip_schema(tool.schema, lines))


def _build_reply_schema(completed: dict[str, Any], entries: dict[str, Any]) -> dict[str, Any]:
    return _build_object_schema({"taskCompleted": completed, "explanation": {"type": "string"}, "executeTool": entries})


def _build_entry_schema(name: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    return _build_object_schema({"toolName": name, "toolInput": arguments})


def _build_object_schema(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _strip_schema(schema: dict[str, Any], lines: tuple[str, ...] = ()) -> dict[str, Any]:
    """A tool's schema with its structure only: types, names, choices."""
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
"""Characters of the prompt that are repeated below each result."""


def flatten_messages(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The same conversation without tool calls: replies as the contract's object, results as what the user says.

    Each result is followed by the task it serves, because small models lose sight of it.
    """
    names: dict[str, str] = {}
    task = ""
    out: list[Message] = []
    for message in messages:
        if isinstance(message, ReplyMessage):
            names.update((call.id, call.name) for call in message.calls)
            out.append(_flatten_assistant(message))
        elif isinstance(message, ToolMessage):
            results = "\n\n".join(
                f"{'Error' if one.is_error else 'Result'} of {names.get(one.call_id, 'the call')}:\n{render_without_images(one)}"
                for one in message.results
            )
            out.append(PromptMessage(results, (*message.notes, f"The task is: {task}") if task else message.notes))
        else:
            task = message.text[:_REMINDER_CHARS] or task
            out.append(message)
    return tuple(out)


def _flatten_assistant(message: ReplyMessage) -> ReplyMessage:
    text = _format_reply(message.text, [{"toolName": call.name, "toolInput": call.args} for call in message.calls])
    return ReplyMessage((Text(text),), message.provider, message.model, "end_turn", message.interrupted)


def dump_json(value: Any) -> str:
    """JSON as it is shown to a model: in one line, with letters as they are."""
    return json.dumps(value, ensure_ascii=False)


# --- help for a model that is stuck ---

_NUMBERED_LINE = re.compile(r"^ *\d+\t(.*)$", re.MULTILINE)
_MAX_EDITABLE_LINES = 200


def find_repeated_tools(messages: tuple[Message, ...]) -> set[str]:
    """The tools that brought nothing new: when the newest reply makes a call again, all whose calls were made twice.

    A small model that has begun to repeat itself goes on. It cannot choose these tools for one reply.
    """
    calls = [(call.name, call.args) for reply in _replies_of_turn(messages) for call in reply.calls]
    twice = [made for at, made in enumerate(calls) if made in calls[:at]]
    newest = next(reversed(_replies_of_turn(messages)), ReplyMessage(()))
    stuck = any((call.name, call.args) in twice for call in newest.calls)
    return {name for name, _ in twice} if stuck else set()


def list_editable_lines(messages: tuple[Message, ...]) -> tuple[str, ...]:
    """When the last edit of this turn failed: the lines of that file, for the model to choose from.

    Copying exactly, with every quote escaped, is what small models are worst at, and a grammar does it for them.
    """
    calls = {call.id: call.args for reply in _replies_of_turn(messages) for call in reply.calls}
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


def _replies_of_turn(messages: tuple[Message, ...]) -> list[ReplyMessage]:
    """The replies since the last prompt."""
    replies: list[ReplyMessage] = []
    for message in reversed(messages):
        if isinstance(message, PromptMessage) and message.text:
            break
        if isinstance(message, ReplyMessage):
            replies.append(message)
    return replies[::-1]
