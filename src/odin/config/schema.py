"""Builds the JSON schema of `odinconfig.json` and the table in the documentation from the settings classes."""

import ast
import inspect
import textwrap
from typing import Any

import msgspec
from msgspec import Struct

from odin.config.gateway_settings import GatewaySettings
from odin.config.layers import ENVIRONMENT_KEYS, MERGE_FUNCTIONS, REDIS_VARIABLE, TIGHTNESS_CHECKS, USER_ONLY_KEYS
from odin.config.settings import ConfigKeys, RetrySettings
from odin.core.provider import PriceStep
from odin.providers.settings import ModelSettings, ProviderSettings, VariantSettings

JSON_SCHEMA_DRAFT = "https://json-schema.org/draft/2020-12/schema"


_NESTED_TEXTS = {
    "type": "The API type. `openai` means Responses at api.openai.com and Chat Completions elsewhere.",
    "models": "Properties of its models, by id.",
    "above": "The length of a prompt, in tokens, from which on these prices hold.",
    "price_input": "USD per million tokens of input.",
    "price_output": "USD per million tokens of output.",
    "price_cache_read": "USD per million tokens read from the provider's cache.",
    "price_cache_write": "USD per million tokens written to the provider's cache.",
}
"""Descriptions for nested keys whose classes have none."""


def build_schema() -> dict[str, Any]:
    """Return the JSON schema of `odinconfig.json`, with a description for every key."""
    raw = msgspec.json.schema(ConfigKeys)
    defs: dict[str, Any] = raw["$defs"]
    for shape in (ProviderSettings, ModelSettings, VariantSettings, RetrySettings, PriceStep):
        # Add each field's docstring to the schema.
        texts = _read_field_texts(shape)
        for name, found in defs[shape.__name__]["properties"].items():
            if "description" not in found:
                found["description"] = texts.get(name) or _NESTED_TEXTS[name]
    top: dict[str, Any] = defs.pop("ConfigKeys")
    late = msgspec.json.schema(GatewaySettings)
    defs |= late["$defs"]
    gateway = {"$ref": late["$ref"], "default": msgspec.to_builtins(GatewaySettings())}
    top["properties"]["gateway"] = {"description": top["properties"]["gateway"]["description"], **gateway}
    properties = {
        "$schema": {"type": "string", "description": "The URL of this schema, for editors."},
        **top["properties"],
    }
    for definition in defs.values():
        definition["additionalProperties"] = False
    return {
        "$schema": JSON_SCHEMA_DRAFT,
        "title": "odinconfig.json",
        "description": "Odin's configuration. String values may contain $NAME, ${NAME} and ${NAME:-default}.",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "$defs": dict(sorted(defs.items())),
    }


def _read_field_texts(shape: type[Struct]) -> dict[str, str]:
    """Return the docstring below each field of a class, which Python does not keep."""
    body = ast.parse(textwrap.dedent(inspect.getsource(shape))).body[0]
    texts: dict[str, str] = {}
    name = ""
    for statement in body.body if isinstance(body, ast.ClassDef) else ():
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            name = statement.target.id
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant) and name:
            texts[name] = inspect.cleandoc(str(statement.value.value))
    return texts


def build_table() -> str:
    """Return the keys as a Markdown table."""
    schema = build_schema()
    rows = ["| key | type | default | environment | project file | meaning |", "|---|---|---|---|---|---|"]
    for key, found in schema["properties"].items():
        if key != "$schema":
            rows.extend(_format_rows(key, found, schema["$defs"], _format_variable(key), _get_project_access(key)))
    return "\n".join(rows) + "\n"


def _format_rows(key: str, found: dict[str, Any], defs: dict[str, Any], variable: str, project: str) -> list[str]:
    reference = _get_reference(found)
    inner = _get_reference(found.get("additionalProperties", {}))
    default = "" if reference or inner else _format_default(found)
    meaning = found["description"].replace("|", "\\|").replace("\n", " ")
    rows = [f"| `{key}` | {_format_type(found)} | {default} | {variable} | {project} | {meaning} |"]
    for name, child in defs[reference or inner]["properties"].items() if reference or inner else ():
        path = f"{key}.{name}" if reference else f"{key}.NAME.{name}"
        variable = f"`{REDIS_VARIABLE}`" if path == "redis.url" else ""
        if path.startswith("gateway.") and not (_get_reference(child) or child.get("type") == "object"):
            variable = f"`ODIN_{path.upper().replace('.', '_')}`"
        rows.extend(_format_rows(path, child, defs, variable, ""))
    return rows


def _get_reference(found: Any) -> str:
    if not isinstance(found, dict):
        return ""
    node: dict[str, Any] = found  # pyright: ignore[reportUnknownVariableType]
    return str(node.get("$ref", "")).rsplit("/", 1)[-1]


def _format_default(found: dict[str, Any]) -> str:
    value = found.get("default")
    if value is None or value in ("", [], {}, ()):
        return ""
    if isinstance(value, str) and "enum" in found:
        return f'`"{value.removesuffix("_mode")}"`'
    return f"`{msgspec.json.encode(value).decode()}`"


def _format_type(found: dict[str, Any]) -> str:
    if "anyOf" in found:
        return " or ".join(_format_type(option) for option in found["anyOf"] if option.get("type") != "null")
    if "enum" in found:
        values = [str(value) for value in found["enum"] if value is not None]
        return ", ".join(f"`{value}`" for value in values if not value.endswith("_mode"))
    names = {"string": "text", "integer": "number", "number": "number", "boolean": "true or false", "array": "list"}
    return names.get(found.get("type", ""), "object")


def _format_variable(key: str) -> str:
    return f"`ODIN_{key.upper()}`" if key in ENVIRONMENT_KEYS else ""


def _get_project_access(key: str) -> str:
    """Return what a project's own file may do with a key."""
    if key in USER_ONLY_KEYS:
        return "no"
    if key in ("model", "small_model", "fallback_model", "model_pools", "hooks", "mcp", "lsp_servers"):
        return "when trusted"
    if key in TIGHTNESS_CHECKS:
        return "only stricter"
    return "adds" if key in MERGE_FUNCTIONS and key != "retry" else "yes"
