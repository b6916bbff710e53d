"""Check request bodies against the types of the vendors' SDKs, and list the fields of those types.

The SDKs are imported only when needed: together they take seconds.
"""

import enum
import importlib
import importlib.metadata
import inspect
import types
import typing
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from functools import cache
from typing import Any, cast

REQUESTS: dict[str, dict[str, tuple[str, str]]] = {
    "anthropic": {"": ("anthropic.types.beta.message_create_params", "MessageCreateParams")},
    "chat": {"": ("openai.types.chat.completion_create_params", "CompletionCreateParams")},
    "responses": {"": ("openai.types.responses.response_create_params", "ResponseCreateParams")},
    "gemini": {
        "contents": ("google.genai.types", "Content"),
        "systemInstruction": ("google.genai.types", "Content"),
        "tools": ("google.genai.types", "Tool"),
        "toolConfig": ("google.genai.types", "ToolConfig"),
        "generationConfig": ("google.genai.types", "GenerationConfig"),
        "safetySettings": ("google.genai.types", "SafetySetting"),
    },
}
"""The type of a body, or of its top-level fields: the Gemini SDK has no type for the whole body."""

RESPONSES: dict[str, tuple[str, str]] = {
    "anthropic": ("anthropic.types.beta", "BetaRawMessageStreamEvent"),
    "chat": ("openai.types.chat", "ChatCompletionChunk"),
    "responses": ("openai.types.responses", "ResponseStreamEvent"),
    "gemini": ("google.genai.types", "GenerateContentResponse"),
}

EXCEPTIONS = {"anthropic": ".temperature: unknown field of MessageCreateParams"}
"""Odin sends `anthropic-version: 2023-06-01`, which other servers know, too. The SDK has the types of 2026-10-21,
without `temperature`."""

PACKAGES = ("anthropic", "openai", "google-genai")


NAMES: dict[str, dict[str, tuple[str, str, str]]] = {
    "anthropic names": {
        "thinking": ("anthropic.types.beta", "BetaThinkingConfigParam", "type"),
        "display": ("anthropic.types.beta", "BetaThinkingConfigAdaptiveParam", "display"),
        "effort": ("anthropic.types.beta", "BetaOutputConfigParam", "effort"),
    }
}
"""The fields whose values the table of contracts names: module, type or union of types, and field."""


def list_names(api: str) -> dict[str, list[str]]:
    """Return the values that the SDK has for these fields."""
    found: dict[str, list[str]] = {}
    for what, (module, kind, field) in NAMES[api].items():
        shape = load((module, kind))
        hints = [typing.get_type_hints(one)[field] for one in typing.get_args(shape) or (shape,)]
        found[what] = sorted(name for hint in hints for name in _list_literals(hint))
    return found


def _list_literals(hint: Any) -> Iterator[str]:
    for one in typing.get_args(hint):
        if isinstance(one, str):
            yield one
        else:
            yield from _list_literals(one)


def load(place: tuple[str, str]) -> Any:
    return getattr(importlib.import_module(place[0]), place[1])


def find_problems(api: str, body: dict[str, Any]) -> list[str]:
    """Return where a request body violates the types of the API's SDK."""
    kinds = REQUESTS[api]
    if "" in kinds:
        return [one for one in _check(body, load(kinds[""]), "") if not one.startswith(EXCEPTIONS.get(api, "\0"))]
    found = [f"{key}: unknown field" for key in body if key not in kinds]
    for key, place in kinds.items():
        value = body.get(key)
        for at, item in enumerate(cast("list[Any]", value) if isinstance(value, list) else [value]):
            if item is not None:
                found += _check(item, load(place), f"{key}.{at}" if isinstance(value, list) else key)
    return found


def list_fields(hint: Any) -> dict[str, list[str]]:
    """Return the fields of every type that can occur in a value of this type, by type."""
    found: dict[str, list[str]] = {}
    waiting, seen = [hint], set[int]()
    while waiting:
        one = _strip(waiting.pop())
        if id(one) in seen:
            continue
        seen.add(id(one))
        if _is_record(one):
            fields = _list_fields(one)
            found.setdefault(one.__name__, [])
            found[one.__name__] = sorted({*found[one.__name__], *fields})
            waiting += [kind for kind, _ in fields.values()]
        elif typing.get_origin(one) is not typing.Literal:
            waiting += typing.get_args(one)
    return dict(sorted(found.items()))


def list_versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in PACKAGES}


# --- reading types ---


def _strip(hint: Any) -> Any:
    """Return a type without its wrappers: Annotated, Required, an alias."""
    while True:
        origin = typing.get_origin(hint)
        if origin in (typing.Annotated, typing.Required, typing.NotRequired) or str(origin).endswith("Required"):
            hint = typing.get_args(hint)[0]
        elif hasattr(hint, "__value__"):
            hint = hint.__value__
        else:
            return hint


def _is_record(hint: Any) -> bool:
    return inspect.isclass(hint) and (_is_dict_type(hint) or hasattr(hint, "model_fields"))


def _is_dict_type(hint: Any) -> bool:
    return hasattr(hint, "__required_keys__")


@cache
def _list_fields(record: Any) -> dict[str, tuple[Any, bool]]:
    """Return the fields of a record by their names in JSON: type, and whether it is required."""
    if not _is_dict_type(record):
        fields: dict[str, Any] = record.model_fields
        return {field.alias or name: (field.annotation, field.is_required()) for name, field in fields.items()}
    hints = typing.get_type_hints(record, include_extras=True)
    return {name: (hint, _is_required(record, name, hint)) for name, hint in hints.items()}


def _is_required(record: Any, name: str, hint: Any) -> bool:
    """True if a dict must have the key. If annotations are text, only the type itself tells."""
    said = str(typing.get_origin(hint))
    if said.endswith("NotRequired"):
        return False
    return said.endswith("Required") or name in record.__required_keys__


# --- checking values ---

_PLAIN: dict[Any, tuple[type, ...]] = {
    str: (str,),
    int: (int,),
    float: (int, float),
    bool: (bool,),
    dict: (dict,),
    types.NoneType: (types.NoneType,),
}


def _check(value: Any, hint: Any, where: str) -> Iterator[str]:
    hint = _strip(hint)
    origin = typing.get_origin(hint)
    if hint in (Any, object):
        return
    if origin in (typing.Union, types.UnionType):
        yield from _check_union(value, typing.get_args(hint), where)
    elif origin is typing.Literal:
        if value not in typing.get_args(hint):
            yield f"{where}: {_get_name(value)} is not one of {typing.get_args(hint)}"
    elif _is_record(hint):
        yield from _check_record(value, hint, where)
    elif origin in (dict, typing.get_origin(typing.Mapping[str, str])):
        yield from _check_map(value, typing.get_args(hint)[1], where)
    elif origin is not None:
        yield from _check_list(value, typing.get_args(hint)[0], where)
    elif inspect.isclass(hint):
        yield from _check_plain(value, hint, where)


def _check_plain(value: Any, hint: type, where: str) -> Iterator[str]:
    if issubclass(hint, enum.Enum):
        if str(value).upper() not in {str(one.value).upper() for one in hint}:
            yield f"{where}: {_get_name(value)} is not a {hint.__name__}"
    elif hint is bytes:
        try:
            urlsafe_b64decode(str(value).replace("+", "-").replace("/", "_"))
        except ValueError:
            yield f"{where}: not base64"
    elif hint in _PLAIN and (not isinstance(value, _PLAIN[hint]) or (isinstance(value, bool) and hint in (int, float))):
        yield f"{where}: {_get_name(value)} is no {hint.__name__}"


def _check_record(value: Any, record: Any, where: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{where}: {_get_name(value)} is no {record.__name__}"
        return
    fields, given = _list_fields(record), cast("dict[str, Any]", value)
    for name, (_, required) in fields.items():
        if required and name not in given:
            yield f"{where}.{name}: missing in {record.__name__}"
    for name, item in given.items():
        if name not in fields:
            yield f"{where}.{name}: unknown field of {record.__name__}"
        else:
            yield from _check(item, fields[name][0], f"{where}.{name}")


def _check_map(value: Any, kind: Any, where: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{where}: {_get_name(value)} is no object"
        return
    for name, item in cast("dict[str, Any]", value).items():
        yield from _check(item, kind, f"{where}.{name}")


def _check_list(value: Any, kind: Any, where: str) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"{where}: {_get_name(value)} is no list"
        return
    for at, item in enumerate(cast("list[Any]", value)):
        yield from _check(item, kind, f"{where}.{at}")


def _check_union(value: Any, kinds: tuple[Any, ...], where: str) -> Iterator[str]:
    """Yield the problems of the type that fits best; none if one fits."""
    best: list[str] | None = None
    for kind in _pick_by_tag(value, kinds):
        problems = list(_check(value, kind, where))
        if not problems:
            return
        if best is None or _get_depth(problems) > _get_depth(best):
            best = problems
    yield from best or ()


def _pick_by_tag(value: Any, kinds: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the types whose tags match those of the value, or all if none does."""
    given = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    tags = {name: given[name] for name in ("type", "role", "stream") if name in given}
    named = [kind for kind in kinds if tags and all(tags.get(*one) in some for one, some in _list_tags(_strip(kind)))]
    return tuple(named) or kinds


@cache
def _list_tags(kind: Any) -> tuple[tuple[tuple[str, Any], tuple[Any, ...]], ...]:
    """Return the fields that distinguish types, each with its default if it is missing, and their values."""
    fields = _list_fields(kind) if _is_record(kind) else {}
    found: list[tuple[tuple[str, Any], tuple[Any, ...]]] = []
    for name in ("type", "role", "stream"):
        hint, required = fields.get(name, (None, False))
        values = [some for one in _list_options(_strip(hint)) for some in typing.get_args(one)]
        if values:
            found.append(((name, None if required else values[0]), tuple(values)))
    return tuple(found)


def _list_options(hint: Any) -> list[Any]:
    """Return the literals of a type that is one, or a union of nothing but literals and None."""
    parts = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    literals = [part for part in map(_strip, parts) if typing.get_origin(part) is typing.Literal]
    return literals if len(literals) == len([part for part in parts if part is not types.NoneType]) else []


def _get_depth(problems: list[str]) -> int:
    return max(problem.partition(":")[0].count(".") for problem in problems)


def _get_name(value: Any) -> str:
    return repr(value) if isinstance(value, str | int | float | None) else type(value).__name__
