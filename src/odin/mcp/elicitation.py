"""Elicitation: what a server asks of the user becomes a question of Odin. A server that asks for a secret gets none."""

import re
from collections.abc import Callable
from typing import Any, cast

from odin.core.event_values import Option, Question
from odin.core.format import clip
from odin.core.tool import AskUser, ToolContext

_MAX_FIELDS = 20
_NUMBER = r"(?<![a-z])(?:pin|otp|cvv|cvc)(?![a-z])|one[_ -]?time|pass[_ -]?code|security[_ -]?code"
_SECRET_NUMBER = re.compile(_NUMBER, re.I)
_SECRET = re.compile(rf"pass(?:word|phrase|wd)|secret|api[_ -]?key|token|credential|private[_ -]?key|{_NUMBER}", re.I)
_WARNING = re.compile(r"\b(?:do not|don't|never)\b[^.;]*", re.I)
"""Asks for a number often warn: "do not enter your pin number"."""

_SKIP = "(leave empty)"
_ACCEPT, _DECLINE = "Accept", "Decline"


class Elicitation:
    """Answers the elicitations of servers. `ask` is None if no user can be asked; `warn` tells the user something."""

    def __init__(self, ask: "AskUser | None", warn: Callable[[str], None]) -> None:
        self._ask = ask
        self._warn = warn

    async def answer(self, server: str, params: Any, context: ToolContext | None) -> Any:
        from mcp_types import ElicitResult

        if self._ask is None:
            return ElicitResult(action="decline")
        call_id = context.call_id if context is not None else ""
        if params.mode == "url":
            question = Question(
                _header_of(server), clip(f"{params.message}\nOpen this address yourself: {params.url}", 2000), _CHOICES
            )
            answers = await self._ask(call_id, (question,))
            if answers is None:
                return ElicitResult(action="cancel")
            return ElicitResult(action="accept" if answers[0] == (_ACCEPT,) else "decline")
        fields = _fields_of(params.requested_schema)
        if secret := next((name for name, field in fields.items() if _is_secret(name, field, params.message)), ""):
            self._warn(
                f"The MCP server {server} asked for a secret ({clip(secret, 60)}), and Odin declined. "
                "Give secrets to a server in its configuration, with env or headers."
            )
            return ElicitResult(action="decline")
        if len(fields) > _MAX_FIELDS:
            self._warn(
                f"The MCP server {server} asked for {len(fields)} values at once, and Odin declined: "
                f"it asks for at most {_MAX_FIELDS}."
            )
            return ElicitResult(action="decline")
        return await self._ask_form(server, params.message, fields, call_id)

    async def _ask_form(self, server: str, message: str, fields: dict[str, dict[str, Any]], call_id: str) -> Any:
        from mcp_types import ElicitResult

        assert self._ask is not None
        text = clip(message, 2000)
        questions = tuple(_question_of(server, text, name, field) for name, field in fields.items())
        answers = await self._ask(call_id, questions or (Question(_header_of(server), text, _CHOICES),))
        if answers is None:
            return ElicitResult(action="cancel")
        if not fields:
            return ElicitResult(action="accept" if answers[0] == (_ACCEPT,) else "decline", content={})
        content: dict[str, Any] = {}
        for (name, field), answer in zip(fields.items(), answers, strict=True):
            try:
                value = _value_of(answer, field)
            except ValueError:
                self._warn(f"{answer[0]!r} is not a number, so the question of the MCP server {server} was declined.")
                return ElicitResult(action="decline")
            if value is not None:
                content[name] = value
        return ElicitResult(action="accept", content=content)


_CHOICES = (Option(_ACCEPT), Option(_DECLINE))


def _header_of(server: str) -> str:
    """Return who asks: a server must not pass for Odin."""
    return f"MCP server {clip(server, 30)}"


def _fields_of(schema: Any) -> dict[str, dict[str, Any]]:
    raw = cast("dict[str, Any]", schema if isinstance(schema, dict) else schema.model_dump(by_alias=True))
    required = cast("list[Any]", raw.get("required") or [])
    found: dict[str, dict[str, Any]] = {}
    for name, value in cast("dict[str, Any]", raw.get("properties") or {}).items():
        if isinstance(value, dict):
            found[name] = {**cast("dict[str, Any]", value), "required": name in required}
    return found


def _is_secret(name: str, field: dict[str, Any], message: str) -> bool:
    """True if a free text or number is asked for that sounds like a secret."""
    if field.get("type") not in ("string", "integer", "number", None) or "enum" in field or "oneOf" in field:
        return False
    words = " ".join(str(field.get(key, "")) for key in ("title", "description", "format"))
    secret = _SECRET
    if field.get("type") in ("integer", "number"):
        secret, words = _SECRET_NUMBER, _WARNING.sub("", words)
    return bool(secret.search(f"{name} {words}") or (secret.search(message) and field.get("required")))


def _question_of(server: str, message: str, name: str, field: dict[str, Any]) -> Question:
    label = str(field.get("title") or name)
    about = f": {field['description']}" if field.get("description") else ""
    options = [Option(text) for text in _choices_of(field)]
    if "default" in field and not options:
        options = [Option(str(field["default"]), "the default")]
    elif "default" in field:
        options.sort(key=lambda option: option.label != _label_of(field["default"]))
    if not field["required"]:
        options.append(Option(_SKIP))
    multiple = field.get("type") == "array"
    return Question(_header_of(server), clip(f"{message}\n{label}{about}", 2500), tuple(options), multiple)


def _choices_of(field: dict[str, Any]) -> list[str]:
    if field.get("type") == "boolean":
        return ["Yes", "No"]
    source = cast("dict[str, Any]", field.get("items") or {}) if field.get("type") == "array" else field
    if isinstance(source.get("oneOf") or source.get("anyOf"), list):
        items = cast("list[Any]", source.get("oneOf") or source.get("anyOf"))
        return [str(cast("dict[str, Any]", item).get("const", "")) for item in items if isinstance(item, dict)]
    return [str(item) for item in cast("list[Any]", source.get("enum") or [])]


def _label_of(value: Any) -> str:
    return "Yes" if value is True else "No" if value is False else str(value)


def _value_of(answer: tuple[str, ...], field: dict[str, Any]) -> Any:
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
