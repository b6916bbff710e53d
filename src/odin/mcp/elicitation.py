"""Elicitation: what a server asks of the user becomes a question of Odin.

No list of words tells whether a server asks for a secret, so every question begins with a warning.
"""

from collections.abc import Callable
from typing import Any, cast

from odin.core.errors import NeedsConfirmation
from odin.core.event_values import Option, Question
from odin.core.format import clip
from odin.core.tool import AskUser, ToolContext

_MAX_FIELDS = 20
_SKIP = "(leave empty)"
_ACCEPT, _DECLINE = "Accept", "Decline"


class Elicitation:
    """Answers the elicitations of servers. `warn` tells the user something."""

    def __init__(self, ask: AskUser, warn: Callable[[str], None]) -> None:
        self._ask = ask
        self._warn = warn

    async def answer(self, server: str, params: Any, context: ToolContext | None) -> Any:
        from mcp_types import ElicitResult

        text, fields = clip(params.message, 2000), dict[str, dict[str, Any]]()
        if params.mode == "url":
            text += f"\nOpen this address yourself: {clip(params.url, 2000)}"
        else:
            fields = _get_fields(params.requested_schema)
        if len(fields) > _MAX_FIELDS:
            self._warn(
                f"The MCP server {server} asked for {len(fields)} values at once, and Odin declined: "
                f"it asks for at most {_MAX_FIELDS}."
            )
            return ElicitResult(action="decline")
        questions = tuple(_make_field_question(server, text, name, field) for name, field in fields.items())
        call_id = context.call_id if context is not None else ""
        try:
            answers = await self._ask(call_id, questions or (_make_question(server, text, _CHOICES),))
        except NeedsConfirmation:  # nobody can be asked
            return ElicitResult(action="decline")
        if answers is None:
            return ElicitResult(action="cancel")
        if not fields:
            action = "accept" if answers[0] == (_ACCEPT,) else "decline"
            return ElicitResult(action=action, content=None if params.mode == "url" else {})
        content: dict[str, Any] = {}
        for (name, field), answer in zip(fields.items(), answers, strict=True):
            try:
                value = _parse_value(answer, field)
            except ValueError:
                self._warn(f"The answer is not a number, so the question of the MCP server {server} was declined.")
                return ElicitResult(action="decline")
            if value is not None:
                content[name] = value
        return ElicitResult(action="accept", content=content)


_CHOICES = (Option(_ACCEPT), Option(_DECLINE))


def _make_question(server: str, text: str, options: tuple[Option, ...], multiple: bool = False) -> Question:
    """Return a question that first says who asks: a server must not pass for Odin."""
    warning = (
        f"The MCP server {clip(server, 60)} asks this and gets your answer; Odin does not vouch for it. "
        "Never enter a password, key or token: give those to a server in its settings, with env or headers."
    )
    return Question(f"MCP server {clip(server, 30)}", f"{warning}\n\n{text}", options, multiple)


def _get_fields(schema: Any) -> dict[str, dict[str, Any]]:
    raw = cast("dict[str, Any]", schema if isinstance(schema, dict) else schema.model_dump(by_alias=True))
    required = cast("list[Any]", raw.get("required") or [])
    found: dict[str, dict[str, Any]] = {}
    for name, value in cast("dict[str, Any]", raw.get("properties") or {}).items():
        if isinstance(value, dict):
            found[name] = {**cast("dict[str, Any]", value), "required": name in required}
    return found


def _make_field_question(server: str, message: str, name: str, field: dict[str, Any]) -> Question:
    label = str(field.get("title") or name)
    about = f": {field['description']}" if field.get("description") else ""
    options = [Option(text) for text in _list_choices(field)]
    if "default" in field and not options:
        options = [Option(str(field["default"]), "the default")]
    elif "default" in field:
        options.sort(key=lambda option: option.label != _format_label(field["default"]))
    if not field["required"]:
        options.append(Option(_SKIP))
    return _make_question(
        server, clip(f"{message}\n{label}{about}", 2500), tuple(options), field.get("type") == "array"
    )


def _list_choices(field: dict[str, Any]) -> list[str]:
    if field.get("type") == "boolean":
        return ["Yes", "No"]
    source = cast("dict[str, Any]", field.get("items") or {}) if field.get("type") == "array" else field
    if isinstance(source.get("oneOf") or source.get("anyOf"), list):
        items = cast("list[Any]", source.get("oneOf") or source.get("anyOf"))
        return [str(cast("dict[str, Any]", item).get("const", "")) for item in items if isinstance(item, dict)]
    return [str(item) for item in cast("list[Any]", source.get("enum") or [])]


def _format_label(value: Any) -> str:
    return "Yes" if value is True else "No" if value is False else str(value)


def _parse_value(answer: tuple[str, ...], field: dict[str, Any]) -> Any:
    """Return the value of a field, None to leave it out. Raise ValueError if it is no number."""
    words = [word for word in answer if word != _SKIP]
    if field.get("type") == "array":
        return words
    if not words:
        return None
    text = words[0].strip()
    match field.get("type"):
        case "boolean":
            return text.casefold() in ("yes", "y", "true", "1")
        case "integer":
            return int(text)
        case "number":
            return float(text)
        case _:
            return text
