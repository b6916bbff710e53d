"""The configuration described for people and editors, from the code that reads it: a JSON schema and a table."""

import ast
import inspect
import textwrap
from typing import Any

import msgspec
from msgspec import Struct

from odin.config.keys import Keys, Retry
from odin.config.layers import FROM_ENVIRONMENT, MERGING, TIGHTER, USER_ONLY
from odin.providers.settings import ModelSettings, ProviderSettings

DRAFT = "https://json-schema.org/draft/2020-12/schema"


_NESTED = {
    "type": "The API it speaks. `openai` means Responses at api.openai.com and Chat Completions elsewhere.",
    "models": "What is known of its models, by their ids.",
    "price_output": "USD per million tokens of output.",
    "price_cache_read": "USD per million tokens read from the provider's cache.",
    "price_cache_write": "USD per million tokens written to the provider's cache.",
}
"""Texts for nested keys whose classes give none."""


def config_schema() -> dict[str, Any]:
    """The JSON schema of `odinconfig.json`, with a description for every key."""
    raw = msgspec.json.schema(Keys)
    defs: dict[str, Any] = raw["$defs"]
    for shape in (ProviderSettings, ModelSettings, Retry):
        _describe(defs[shape.__name__], shape)
    top: dict[str, Any] = defs.pop("Keys")
    properties = {"$schema": {"type": "string", "description": "Where editors find this schema."}, **top["properties"]}
    for definition in defs.values():
        definition["additionalProperties"] = False
    return {
        "$schema": DRAFT,
        "title": "odinconfig.json",
        "description": "The configuration of Odin. Text values may hold $NAME, ${NAME} and ${NAME:-default}.",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "$defs": dict(sorted(defs.items())),
    }


def _describe(definition: dict[str, Any], shape: type[Struct]) -> None:
    """Put the text under each field of the class into the schema."""
    texts = _field_texts(shape)
    for name, found in definition["properties"].items():
        if "description" not in found:
            found["description"] = texts.get(name) or _NESTED[name]


def _field_texts(shape: type[Struct]) -> dict[str, str]:
    """The string under each field of a class, which Python itself forgets."""
    body = ast.parse(textwrap.dedent(inspect.getsource(shape))).body[0]
    texts: dict[str, str] = {}
    name = ""
    for statement in body.body if isinstance(body, ast.ClassDef) else ():
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            name = statement.target.id
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant) and name:
            texts[name] = inspect.cleandoc(str(statement.value.value))
    return texts


def config_table() -> str:
    """The keys as a Markdown table."""
    schema = config_schema()
    rows = ["| key | type | default | environment | project file | meaning |", "|---|---|---|---|---|---|"]
    for key, found in schema["properties"].items():
        if key != "$schema":
            rows.extend(_rows(key, found, schema["$defs"], _environment(key), _project(key)))
    return "\n".join(rows) + "\n"


def _rows(key: str, found: dict[str, Any], defs: dict[str, Any], variable: str, project: str) -> list[str]:
    reference = _reference(found)
    inner = _reference(found.get("additionalProperties", {}))
    default = "" if reference or inner else _default(found)
    meaning = found["description"].replace("|", "\\|").replace("\n", " ")
    rows = [f"| `{key}` | {_type(found)} | {default} | {variable} | {project} | {meaning} |"]
    for name, child in defs[reference or inner]["properties"].items() if reference or inner else ():
        path = f"{key}.{name}" if reference else f"{key}.NAME.{name}"
        rows.extend(_rows(path, child, defs, "", project))
    return rows


def _reference(found: Any) -> str:
    if not isinstance(found, dict):
        return ""
    node: dict[str, Any] = found  # pyright: ignore[reportUnknownVariableType]
    return str(node.get("$ref", "")).rsplit("/", 1)[-1]


def _default(found: dict[str, Any]) -> str:
    value = found.get("default")
    if value is None or value in ("", [], {}, ()):
        return ""
    return f"`{msgspec.json.encode(value).decode()}`"


def _type(found: dict[str, Any]) -> str:
    if "anyOf" in found:
        return " or ".join(_type(option) for option in found["anyOf"] if option.get("type") != "null")
    if "enum" in found:
        values = [str(value) for value in found["enum"] if value is not None]
        return ", ".join(f"`{value}`" for value in values if not value.endswith("_mode"))
    names = {"string": "text", "integer": "number", "number": "number", "boolean": "true or false", "array": "list"}
    return names.get(found.get("type", ""), "object")


def _environment(key: str) -> str:
    return f"`ODIN_{key.upper()}`" if key in FROM_ENVIRONMENT else ""


def _project(key: str) -> str:
    """What a project's own file may do with a key."""
    if key in USER_ONLY:
        return "no"
    if key in ("model", "small_model", "fallback_model", "hooks"):
        return "when trusted"
    if key in TIGHTER:
        return "only stricter"
    return "adds" if key in MERGING and key != "retry" else "yes"
