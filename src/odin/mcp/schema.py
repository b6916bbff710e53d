"""Schemas of tools as the model APIs accept them.

A server may offer tools whose schemas an API rejects, and one such tool would make every request fail. Schemas are
repaired; a tool that cannot be repaired is left out.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

MAX_SCHEMA_BYTES = 30_000
"""Of one tool. A larger schema would take a large part of the context window."""

MAX_DESCRIPTION_CHARS = 2_000
_MAX_DEPTH = 16
_MAX_PATTERN_CHARS = 500
_MAX_NUMBER = 2**63
_DROPPED = frozenset(
    ("$schema", "$id", "$comment", "$defs", "definitions", "title", "default", "examples", "example", "deprecated")
)
_LISTS = ("anyOf", "oneOf", "allOf")
_PROPERTY_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_TYPES = frozenset(("string", "number", "integer", "boolean", "object", "array", "null"))

WRITTEN = "x-odin-written"
"""A key of a schema that stands for one which breaks the protocol: what the server wrote."""


class SchemaRejected(Exception):
    """The schema of a tool cannot be repaired; the text says why."""


def repair_schema(schema: Any) -> dict[str, Any]:
    """Return the schema of a tool's arguments with everything replaced that APIs reject. Raise SchemaRejected."""
    if isinstance(schema, dict) and WRITTEN in schema:
        schema = cast("dict[str, Any]", schema)[WRITTEN]
    if schema is None:
        raise SchemaRejected("it has no input schema")
    if not isinstance(schema, dict):
        raise SchemaRejected("its input schema is not an object")
    found = cast("dict[str, Any]", schema)
    # A list of types counts if `object` is the only one besides `null`.
    if _repair_type(found.get("type", "object")) != "object":
        raise SchemaRejected(f"its input schema is of the type {found.get('type')!r}, not an object")
    flat = _merge_alternatives(_Repair(found).repair(found))
    properties = cast("dict[str, Any]", flat.get("properties") or {})
    bad = [name for name in properties if not _PROPERTY_NAME.fullmatch(name)]
    required = [name for name in cast("list[Any]", flat.get("required") or []) if name in properties]
    if unusable := [name for name in required if name in bad]:
        raise SchemaRejected(f"it requires an argument with the invalid name {unusable[0][:80]!r}")
    repaired: dict[str, Any] = {
        "type": "object",
        "properties": {name: value for name, value in properties.items() if name not in bad},
    }
    if required:
        repaired["required"] = list(dict.fromkeys(required))
    if flat.get("additionalProperties") is False:
        repaired["additionalProperties"] = False
    size = len(msgspec.json.encode(repaired))
    if size > MAX_SCHEMA_BYTES:
        raise SchemaRejected(f"its input schema has {size:,} bytes; at most {MAX_SCHEMA_BYTES:,} are allowed")
    return repaired


def _merge_alternatives(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema without anyOf, oneOf and allOf at the top, which APIs reject: with the arguments of all."""
    merged = {key: value for key, value in schema.items() if key not in _LISTS}
    properties: dict[str, Any] = {}
    required = list(cast("list[Any]", merged.get("required") or []))
    for key in _LISTS:
        for part in cast("list[Any]", schema.get(key) or []):
            if isinstance(part, dict):
                fields = cast("dict[str, Any]", part)
                properties |= cast("dict[str, Any]", fields.get("properties") or {})
                required += cast("list[Any]", fields.get("required") or []) if key == "allOf" else []
    merged["properties"] = properties | cast("dict[str, Any]", merged.get("properties") or {})
    merged["required"] = required
    return merged


_CONDITIONS = ("if", "then", "else", "dependentRequired", "dependentSchemas", *_LISTS)
_MAX_CONDITION_CHARS = 1_000


def describe_conditions(schema: Any) -> str:
    """Return what a repaired schema does not say any more about which arguments go together, for the model, or ""."""
    found = cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}
    lost = {key: found[key] for key in _CONDITIONS if found.get(key)}
    if not lost:
        return ""
    text = msgspec.json.encode(lost).decode()
    is_short = len(text) <= _MAX_CONDITION_CHARS
    return f"Conditions of the arguments (JSON Schema): {text}" if is_short else "Not all arguments go together."


class _Repair:
    """Repairs one schema. References inside of it are inlined."""

    def __init__(self, whole: Mapping[str, Any]) -> None:
        self._whole = whole
        self._count = 0

    def repair(self, node: Any, depth: int = 0) -> Any:
        self._count += 1
        if self._count > 5_000:
            raise SchemaRejected("its input schema is too large")
        if not isinstance(node, dict) or depth > _MAX_DEPTH:
            return {}
        found = cast("dict[str, Any]", node)
        if "$ref" in found:
            # What `#/$defs/Name` refers to; nothing for anything else.
            reference = found["$ref"]
            target: Any = self._whole
            for part in str(reference).split("/")[1:] if str(reference).startswith("#/") else [""]:
                target = cast("dict[str, Any]", target).get(part) if isinstance(target, dict) else None
            target = cast("dict[str, Any]", target) if isinstance(target, dict) else {}
            own = {key: value for key, value in found.items() if key != "$ref"}
            return self.repair({**target, **own}, depth + 1)
        repaired = {key: self._repair_value(key, value, depth) for key, value in found.items() if key not in _DROPPED}
        return {key: value for key, value in repaired.items() if value is not None}

    def _repair_value(self, key: str, value: Any, depth: int) -> Any:
        """Return the repaired value of a keyword, or None to leave it out."""
        if key == "properties":
            items = cast("dict[str, Any]", value).items() if isinstance(value, dict) else ()
            return {name: self.repair(item, depth + 1) for name, item in items}
        if key in ("items", "additionalProperties"):
            return value if isinstance(value, bool) else self.repair(value, depth + 1)
        if key == "not":
            return self.repair(value, depth + 1) if isinstance(value, dict) else None
        if key in _LISTS:
            parts = cast("list[Any]", value) if isinstance(value, list) else []
            return [self.repair(item, depth + 1) for item in parts] or None
        if key == "description":
            return str(value)[:MAX_DESCRIPTION_CHARS]
        repair = _KEYWORDS.get(key)
        return None if repair is None else repair(value)


# --- the values of keywords: each function returns the repaired value, None to leave the keyword out ---


def _repair_type(value: Any) -> Any:
    """Return one type: an optional value may be left out, so `null` says nothing."""
    if isinstance(value, list):
        known = [item for item in cast("list[Any]", value) if _is_type(item) and item != "null"]
        return known[0] if len(known) == 1 else None
    return value if _is_type(value) else None


def _is_type(value: Any) -> bool:
    return isinstance(value, str) and value in _TYPES


def _repair_names(value: Any) -> Any:
    names = cast("list[Any]", value) if isinstance(value, list) else []
    return list(dict.fromkeys(name for name in names if isinstance(name, str))) or None


def _repair_choices(value: Any) -> Any:
    """Return a list of different values. As in JSON, 1 and true differ."""
    found = {repr(item): item for item in cast("list[Any]", value)} if isinstance(value, list) else {}
    return [*found.values()] or None


def _repair_pattern(value: Any) -> Any:
    try:
        re.compile(value)
    except (re.error, TypeError, RecursionError, OverflowError):
        return None
    return value if isinstance(value, str) and len(value) <= _MAX_PATTERN_CHARS else None


def _repair_number(value: Any) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and abs(value) < _MAX_NUMBER else None  # also false for a number that is none


def _repair_step(value: Any) -> Any:
    number = _repair_number(value)
    return number if number is not None and number > 0 else None


def _repair_count(value: Any) -> Any:
    number = _repair_number(value)
    return int(number) if number is not None and number >= 0 and number == int(number) else None


_KEYWORDS: dict[str, Callable[[Any], Any]] = {
    "type": _repair_type,
    "required": _repair_names,
    "enum": _repair_choices,
    "const": lambda value: value,
    "format": lambda value: value if isinstance(value, str) else None,
    "pattern": _repair_pattern,
    "multipleOf": _repair_step,
    "uniqueItems": lambda value: value if isinstance(value, bool) else None,
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _repair_number),
    **dict.fromkeys(
        ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _repair_count
    ),
}
"""The keywords that are kept, besides those that contain schemas. APIs reject a request with an invalid value."""
