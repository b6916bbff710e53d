"""Elicitation: what a server asks of the user becomes a form, with one question for each field.

No list of words tells whether a server asks for a secret, so every question begins with a warning.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from odin.core.errors import NeedsConfirmation
from odin.core.event_values import AnswerType, Option, Question
from odin.core.format import clip
from odin.core.interaction import has_form, make_answer_field
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
        questions = tuple(
            _make_field_question(server, text, name, field, is_first=number == 0)
            for number, (name, field) in enumerate(fields.items())
        )
        questions = questions or (Question(*_introduce(server, text), (Option(_ACCEPT), Option(_DECLINE))),)
        call_id = context.call_id if context is not None else ""
        try:
            answers = await self._ask(call_id, questions)
        except NeedsConfirmation:  # nobody can be asked
            return ElicitResult(action="decline")
        if answers is None:
            return ElicitResult(action="cancel")
        if not fields:
            action = "accept" if answers[0] == (_ACCEPT,) else "decline"
            return ElicitResult(action=action, content=None if params.mode == "url" else {})
        content: dict[str, Any] = {}
        for (name, field), question, answer in zip(fields.items(), questions, answers, strict=True):
            choices = _list_choices(field)
            labels = {text.casefold(): label for label, value in choices.items() for text in (value, label)}
            words = [word if word in choices else labels.get(word.casefold(), word) for word in answer]
            if problem := make_answer_field(question).find_problem(words):
                return self._decline(server, problem)
            if not words and field["required"]:  # an empty answer is the first option
                words = [option.label for option in question.options[:1]]
            value = _parse_value(words, field)
            if value is not None:
                content[name] = value
        if problem := _find_fault(content, fields):
            return self._decline(server, problem)
        return ElicitResult(action="accept", content=content)

    def _decline(self, server: str, problem: str) -> Any:
        """Send nothing. The answer may be a secret and is not repeated; a front end that checks answers asks again."""
        from mcp_types import ElicitResult

        self._warn(f"An answer to the MCP server {server} is not valid, so it was declined: {problem}")
        return ElicitResult(action="decline")


def _introduce(server: str, text: str, label: str = "") -> tuple[str, str]:
    """Return the header and the text of a question that first says who asks: a server must not pass for Odin."""
    warning = (
        f"The MCP server {clip(server, 60)} asks this and gets your answer; Odin does not vouch for it. "
        "Never enter a password, key or token: give those to a server in its settings, with env or headers."
    )
    header = f"MCP server {clip(server, 30)}"
    return f"{header}: {clip(label, 40)}" if label else header, f"{warning}\n\n{text}"


def _get_fields(schema: Any) -> dict[str, dict[str, Any]]:
    raw = cast("dict[str, Any]", schema if isinstance(schema, dict) else schema.model_dump(by_alias=True))
    required = cast("list[Any]", raw.get("required") or [])
    found: dict[str, dict[str, Any]] = {}
    for name, value in cast("dict[str, Any]", raw.get("properties") or {}).items():
        if isinstance(value, dict):
            found[name] = {**cast("dict[str, Any]", value), "required": name in required}
    return found


_TYPES: dict[Any, tuple[AnswerType, Any, str, str]] = {
    "integer": ("integer", int, "minimum", "maximum"),
    "number": ("number", int | float, "minimum", "maximum"),
    "array": ("choice", list, "minItems", "maxItems"),
}
"""For a type of JSON: what can be typed, the type of its default, and the names of its limits."""


def _make_field_question(server: str, message: str, name: str, field: dict[str, Any], *, is_first: bool) -> Question:
    label, default = str(field.get("title") or name), field.get("default")
    kind, default_type, *limits = _TYPES.get(field.get("type"), ("text", str, "minLength", "maxLength"))
    if kind == "text" and field.get("format") in _FORMATS:
        kind = cast("AnswerType", field["format"])
    choices = _list_choices(field)
    first = str(default).lower() if isinstance(default, bool) else default
    options = [Option(label) for label in choices]
    options.sort(key=lambda option: first is not None and choices[option.label] != first)
    if options:
        kind = "choice"
    elif isinstance(default, default_type):
        options = [Option(str(default), "the default")]
    if options and not field["required"]:
        options.append(Option(_SKIP))
    about = f": {field['description']}" if field.get("description") else ""
    about += "" if field["required"] else " (optional)"
    least, most = (limit if isinstance(limit := field.get(name), int | float) else None for name in limits)
    header, warned = _introduce(server, clip(f"{message}\n{label}{about}", 2500), label)
    return Question(
        header,
        warned if is_first else clip(f"{label}{about}", 2500),  # the header of each names the server
        tuple(options),
        multiple=field.get("type") == "array",
        type=kind,
        required=field["required"],
        minimum=least if field["required"] or kind != "choice" else None,
        maximum=most,
    )


_FORMATS = ("email", "date", "date-time", "uri")
_CHECKED = ("type", "enum", "const", "oneOf", "anyOf", "format")
"""What the schema of a field may say besides its limits. Others are not checked: a pattern could take for ever."""


def _find_fault(content: dict[str, Any], fields: dict[str, dict[str, Any]]) -> str:
    """Return what the schema of the server does not allow, as a sentence, or "". This is the last look at an answer."""
    from jsonschema import Draft202012Validator, FormatChecker

    checker = FormatChecker(formats=())
    for kind in _FORMATS:
        checker.checks(kind)(partial(_is_of_format, kind))
    limits = [name for _, _, *names in (*_TYPES.values(), ("", "", "minLength", "maxLength")) for name in names]
    for name, field in fields.items():
        if name not in content:
            if field["required"]:
                return f"{clip(name, 80)!r} is required."
            continue
        schema = {key: value for key, value in field.items() if key in (*_CHECKED, *limits, "uniqueItems")}
        items: Any = field.get("items")
        if isinstance(items, dict):
            schema["items"] = {key: value for key, value in cast("dict[str, Any]", items).items() if key in _CHECKED}
        validator: Any = Draft202012Validator(schema, format_checker=checker)
        for error in validator.iter_errors(content[name]):
            return f"the value of {clip(name, 80)!r} breaks {str(error.validator)!r} of the form."
    return ""


def _is_of_format(kind: str, value: object) -> bool:
    return not isinstance(value, str) or has_form(value, kind)


def _list_choices(field: dict[str, Any]) -> dict[str, str]:
    """Return the values that a field allows by what the user sees, or nothing if it allows any."""
    if field.get("type") == "boolean":
        return {"Yes": "true", "No": "false"}
    source = cast("dict[str, Any]", field.get("items") or {}) if field.get("type") == "array" else field
    titled = source.get("oneOf") or source.get("anyOf")
    if isinstance(titled, list):
        items = [cast("dict[str, Any]", item) for item in cast("list[Any]", titled) if isinstance(item, dict)]
        values, titles = [str(item.get("const", "")) for item in items], [item.get("title") for item in items]
    else:
        values = [str(item) for item in cast("list[Any]", source.get("enum") or [])]
        titles = cast("list[Any]", source.get("enumNames") or [])
    labels = [str(title or value) for value, title in zip(values, titles, strict=False)]
    return dict(zip(labels if len(set(labels)) == len(values) else values, values, strict=True))


def _parse_value(answer: Sequence[str], field: dict[str, Any]) -> Any:
    """Return the value of a field, None to leave it out."""
    choices = _list_choices(field)
    words = [choices.get(word, word) for word in dict.fromkeys(answer) if word != _SKIP]
    if field.get("type") == "array":
        return words or None
    text = words[0].strip() if words else ""
    if not text:
        return None
    match field.get("type"):
        case "boolean":
            return text == "true"
        case "integer":
            return int(text)
        case "number":
            return float(text)
        case _:
            return text
