"""How the planner's JSON contract is put to a model: instructions, schema, and history as plain messages."""

import json
import re
from collections.abc import Iterable
from typing import Any, Literal

from odin.core.message import AssistantMessage, Message, Text, ToolMessage, UserMessage
from odin.core.provider import ToolSpec
from odin.providers.pictures import told

Strictness = Literal["exact", "loose", "none"]
"""How much of the contract the server enforces: each tool's own arguments, only the outer object, or nothing."""

# --- what the model is told ---

_CONTRACT = "Work in steps. Every reply is one JSON object with taskCompleted, explanation and executeTool, like these:"

_HINTS = {
    "EditTool": 'old_string is one line of the file, copied exactly, with each quote as \\". '
    "To add lines, repeat it in new_string and put the new lines below it.",
    "WriteFile": "To create a file, call WriteFile at once.",
}
"""What goes wrong most often, told when the tool is offered."""

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

_READING = (
    "What color is the door?",
    (("I read the file.", "Read", {"file_path": "door.py"}, '1 color = "red"'),),
    "The door is red.",
)
"""Stands in for the example that edits when nothing may be changed."""


def instructions(tools: Iterable[ToolSpec]) -> str:
    """The contract and the tools as text. Only tools that are offered appear in the examples."""
    tools = tuple(tools)
    offered = {tool.name for tool in tools}
    examples = _EXAMPLES if "EditTool" in offered else (_READING, *_EXAMPLES)
    shown = [_example(*example) for example in examples if all(step[1] in offered for step in example[1])]
    lines = [_CONTRACT, *(shown or [_generic(tools[0].name)])]
    lines += [hint for name, hint in _HINTS.items() if name in offered]
    return "\n".join([*lines, "", "Tools:", *(_describe(tool) for tool in tools)])


def _generic(name: str) -> str:
    acting = _reply("what you do", [{"toolName": name, "toolInput": {}}])
    return f"{acting}\n{_reply('the answer, when the task is done', [])}"


def _example(task: str, steps: tuple[_Step, ...], end: str) -> str:
    lines = [f"User: {task}"]
    for said, name, args, result in steps:
        lines.append(_reply(said, [{"toolName": name, "toolInput": args}]))
        lines.append(f"Result of {name}: {result}")
    return "\n".join([*lines, _reply(end, [])])


def _reply(said: str, entries: list[dict[str, Any]]) -> str:
    return dumps({"taskCompleted": not entries, "explanation": said, "executeTool": entries})


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
_LOOKING = ("LS", "Read", "Grep", "Glob")
_TOGETHER = 4
"""Calls that only look are independent of each other; what acts comes alone, so that its result is seen first."""
_NEVER_EMPTY = ("file_path", "path", "pattern", "command", "old_string")


def contract_schema(
    tools: Iterable[ToolSpec], strictness: Strictness = "exact", lines: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The JSON schema of one reply. Only keywords that every server's grammar knows are used.

    taskCompleted comes first, so that a model decides before it talks itself into having done it. The exact form also
    ties it to executeTool: a reply either acts or ends the task. `lines` are the only texts an edit may replace.
    """
    tools = tuple(tools)
    if strictness != "exact":
        entry = _entry({"type": "string", "enum": [tool.name for tool in tools]}, {"type": "object"})
        return _shape({"type": "boolean"}, {"type": "array", "items": entry})
    looking = [_exact(tool, lines) for tool in tools if tool.name in _LOOKING]
    acting = [_exact(tool, lines) for tool in tools if tool.name not in _LOOKING]
    calls = [_calls(entries, most) for entries, most in ((looking, _TOGETHER), (acting, 1)) if entries]
    ends = _shape({"const": True}, {"type": "array", "items": {"type": "object"}, "maxItems": 0})
    return {
        **_shape({"type": "boolean"}, {"type": "array"}),
        "anyOf": [*(_shape({"const": False}, some) for some in calls), ends],
    }


def _calls(entries: list[dict[str, Any]], most: int) -> dict[str, Any]:
    return {"type": "array", "items": {"anyOf": entries}, "minItems": 1, "maxItems": most}


def _exact(tool: ToolSpec, lines: tuple[str, ...]) -> dict[str, Any]:
    return _entry({"const": tool.name}, _plain(tool.schema, lines))


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
                f"{'Error' if one.is_error else 'Result'} of {names.get(one.call_id, 'the call')}:\n{told(one)}"
                for one in message.results
            )
            out.append(UserMessage(results, (*message.notes, f"The task is: {task}") if task else message.notes))
        else:
            task = message.text[:_REMINDED] or task
            out.append(message)
    return tuple(out)


def _as_object(message: AssistantMessage) -> AssistantMessage:
    text = _reply(message.text, [{"toolName": call.name, "toolInput": call.args} for call in message.calls])
    return AssistantMessage((Text(text),), message.provider, message.model, "end_turn", message.interrupted)


def dumps(value: Any) -> str:
    """JSON as it is shown to a model: in one line, with letters as they are."""
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
    """When the last edit of this turn failed: the lines of that file, for the model to choose from.

    Copying exactly, with every quote escaped, is what small models are worst at, and a grammar does it for them.
    """
    calls = {call.id: call.args for reply in _turn(messages) for call in reply.calls}
    results = [result for message in messages if isinstance(message, ToolMessage) for result in message.results]
    path, failed = None, False
    for result in results:
        if "old_string" in calls.get(result.call_id, {}):
            path, failed = calls[result.call_id].get("file_path"), result.is_error
    if not failed:
        return ()
    about = [result.text for result in results if calls.get(result.call_id, {}).get("file_path") == path]
    lines = dict.fromkeys(line for text in about for line in _NUMBERED.findall(text) if line.strip())
    return tuple(lines) if len(lines) <= _MOST_LINES else ()


def _turn(messages: tuple[Message, ...]) -> list[AssistantMessage]:
    """The replies since the last prompt."""
    replies: list[AssistantMessage] = []
    for message in reversed(messages):
        if isinstance(message, UserMessage) and message.text:
            break
        if isinstance(message, AssistantMessage):
            replies.append(message)
    return replies[::-1]
