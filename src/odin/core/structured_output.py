"""Structured output: a final answer that is one JSON object, of the shape that a JSON schema gives.

The schema reaches the model as the arguments of one more tool, which ends the turn. An API with strict schemas is given
it as the form of the answer instead (`providers/wire.py`). What comes back is validated either way.
"""

import re
from contextlib import suppress
from typing import Any, cast

import msgspec

from odin.core.errors import UsageError
from odin.core.message import PromptMessage, ReplyMessage
from odin.core.provider import Request, ToolSpec, parse_arguments

STRUCTURED_OUTPUT = "StructuredOutput"
MAX_CORRECTIONS = 2
"""How often a model is told what is wrong with its answer."""

_MAX_SCHEMA_BYTES = 100_000
_MAX_DEPTH = 60
_MAX_FLAWS = 5
_MAX_FLAW_CHARS = 300
_UNUSABLE_AT_TOP = ("$ref", "anyOf", "oneOf", "allOf", "not", "enum")
"""Keywords that APIs reject at the top of the arguments of a tool."""


def make_output_tool(schema: dict[str, Any]) -> ToolSpec:
    """Return the tool with which a model gives its final answer."""
    return ToolSpec(
        STRUCTURED_OUTPUT,
        "Gives the final answer in the form that the user's program reads; its arguments are the answer. Call it "
        "exactly once, alone, when everything else is done: it ends the task. An answer in any other form is lost.",
        {key: value for key, value in schema.items() if key not in ("$schema", "$id", "$comment")},
    )


def get_output_tool(request: Request) -> ToolSpec | None:
    """Return the tool for the final answer, which is the last one, if the request has it."""
    tool = request.tools[-1] if request.tools else None
    return tool if tool is not None and tool.name == STRUCTURED_OUTPUT else None


def is_correction(request: Request) -> bool:
    """True if the model has already answered, in the wrong form, and was told to call the tool."""
    if len(request.messages) < 2:
        return False
    before, last = request.messages[-2:]
    reply = before if isinstance(before, ReplyMessage) else ReplyMessage(())
    if isinstance(last, PromptMessage):
        return last.origin == "odin" and reply.stop != "unfinished"
    return any(call.name == STRUCTURED_OUTPUT for call in reply.calls)


def check_schema(schema: Any) -> dict[str, Any]:
    """Return a schema as plain JSON. Raise UsageError if models cannot get it or answers cannot be validated with it.

    Nothing is ever fetched.
    """
    try:
        references = _list_references(schema)
        data = msgspec.json.encode(schema)
    except (TypeError, UnicodeError) as error:
        raise UsageError(f"The JSON schema cannot be written as JSON: {error}.", _HINT) from error
    if len(data) > _MAX_SCHEMA_BYTES:
        raise UsageError(f"The JSON schema has {len(data):,} bytes; at most {_MAX_SCHEMA_BYTES:,} are possible.")
    found: Any = msgspec.json.decode(data)
    if not isinstance(found, dict):
        raise UsageError("The JSON schema must be a JSON object.", _HINT)
    checked = cast("dict[str, Any]", found)
    if checked.get("type") != "object" or any(key in checked for key in _UNUSABLE_AT_TOP):
        names = ", ".join(_UNUSABLE_AT_TOP)
        raise UsageError(f'The JSON schema must have "type": "object" at its top, and none of {names}.', _HINT)
    from jsonschema.exceptions import SchemaError
    from referencing import Registry, Resource
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    try:
        _make_validator(checked).check_schema(checked)
        resource = Resource[Any].from_contents(checked, default_specification=DRAFT202012)
        resolver = Registry[Any]().with_resource("", resource).resolver()
        for reference in references:
            with suppress(Unresolvable):
                if reference.startswith("#") and resolver.lookup(reference):
                    continue
            raise UsageError(
                f"The JSON schema refers to {reference!r}, which is not part of it.",
                "Put it under $defs; other files and addresses are not read.",
            )
    except SchemaError as error:
        raise UsageError(f"The JSON schema is invalid at {error.json_path}: {_clip(error.message)}.") from error
    return checked


_HINT = 'For example: {"type": "object", "properties": {"summary": {"type": "string"}}, "required": ["summary"]}'


def _make_validator(schema: dict[str, Any]) -> Any:
    """Return the validator of the draft that the schema names. It fetches nothing."""
    from jsonschema.validators import Draft202012Validator, validator_for
    from referencing import Registry

    draft: Any = validator_for(schema, default=cast("Any", None) if "$schema" in schema else Draft202012Validator)
    if draft is None:
        raise UsageError(f"The JSON schema is of an unknown draft, {schema['$schema']!r}.", "Use draft 2020-12.")
    return draft(schema, registry=Registry[Any]())


def _list_references(node: Any, depth: int = 0) -> list[str]:
    if depth > _MAX_DEPTH:
        raise UsageError(f"The JSON schema is nested more than {_MAX_DEPTH} levels deep.")
    if isinstance(node, list | tuple):
        return [found for item in cast("list[Any]", node) for found in _list_references(item, depth + 1)]
    if not isinstance(node, dict):
        return []
    fields = cast("dict[str, Any]", node)
    own = [value for key in ("$ref", "$dynamicRef") if isinstance(value := fields.get(key), str)]
    return own + [found for item in fields.values() for found in _list_references(item, depth + 1)]


def parse_answer(text: str) -> dict[str, Any] | None:
    """Return the JSON object that an answer consists of, or that is its last code block; None if there is none."""
    blocks = re.findall(r"```(?:json)?\s*\n(.*?)```", text, re.DOTALL)
    found = (parse_arguments(part) for part in (text, *blocks[-1:]) if part.strip())
    return next((value for value in found if value is not None), None)


def find_flaws(schema: dict[str, Any], value: dict[str, Any] | None) -> str:
    """Return where and why a value does not match the schema; "" if it does."""
    if value is None:
        return "it is not a JSON object"
    try:
        errors = sorted(_make_validator(schema).iter_errors(value), key=lambda error: error.json_path)
    except RecursionError:
        return "it is nested too deep"
    flaws = [f"{error.json_path}: {_clip(error.message)}" for error in errors[:_MAX_FLAWS]]
    return "; ".join([*flaws, f"and {len(errors) - _MAX_FLAWS} more"] if len(errors) > _MAX_FLAWS else flaws)


def _clip(message: str) -> str:
    return message if len(message) <= _MAX_FLAW_CHARS else f"{message[:_MAX_FLAW_CHARS]}…"
