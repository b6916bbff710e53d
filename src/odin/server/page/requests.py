"""Requests to the user as the page gets them: in the words of the app, with everything hidden in them escaped."""

from collections.abc import Mapping
from typing import Any

import msgspec

from odin.core.interaction import Detail, FormField, Interaction
from odin.remote.protocol import EditedRequest
from odin.ui.clean_text import sanitize
from odin.ui.permission_text import (
    DANGER_WORDS,
    ArgumentForm,
    format_arguments,
    format_headline,
    list_offered_rules,
    name_path,
    replace_arguments,
    summarize_change,
)
from odin.ui.terminal import escape_hidden

_KEYS = {
    "allow_once": ("y",),
    "allow_session": ("s",),
    "allow_project": ("p",),
    "allow_everywhere": ("u",),
    "allow_mode": ("a",),
    "deny": ("n",),
    "deny_always": ("d",),
    "stop": ("Escape",),
    "approve": ("y",),
    "approve_edits": ("a",),
    "approve_new_session": ("s",),
    "revise": ("r", "c"),
    "keep_planning": ("n", "Escape"),
}
_TONES = {"allow_once": "primary", "approve": "primary", "stop": "danger"}


def encode_request(ask: Interaction, cwd: str = "") -> dict[str, Any]:
    """Return a request as JSON values. What an answer must repeat exactly is in fields named `value`."""
    request = _escape(msgspec.to_builtins(ask))
    choices = request.pop("choices")
    del request["facts"]
    request |= {
        "title": _make_title(ask, cwd),
        "details": [_encode_detail(detail) for detail in ask.details],
        "form": [_encode_field(field) for field in ask.form],
        "rules": list_offered_rules(ask),
        "danger_words": DANGER_WORDS[ask.danger] if ask.danger else "",
    }
    if ask.kind == "permission":
        request["args"] = _escape(format_arguments(ask.permission.args))
        request["has_run"] = ask.permission.effects is not None
    if ask.kind == "plan":
        request["path"] = ask.plan.path
    request["answers"] = _list_answers(ask, [one for one in choices if one.get("asks") != "rule" or request["rules"]])
    return request


def _list_answers(ask: Interaction, choices: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the buttons with their keys, first what can be chosen. `step` is what is filled in or shown before."""
    answers = [
        {"keys": _KEYS.get(one["key"], ()), "tone": _TONES.get(one["key"], ""), "step": one.get("asks", "")} | one
        for one in choices
    ]
    if ask.kind == "plan":
        answers.append({"keys": ("e",), "label": "Edit the plan", "step": "plan"})
    if ask.kind != "permission":
        return answers
    has_run = ask.permission.effects is not None
    known = {one["key"]: one for one in choices}
    if "deny" in known:
        label = "Discard and tell the model…" if has_run else "Deny with a reason"
        answers.append(known["deny"] | {"keys": ("r",), "label": label, "step": "text"})
    if any(field.name == "args" for field in ask.form):
        if not ask.agent:
            label = f"{'Keep' if has_run else 'Allow'} with a note"
            answers.append(known["allow_once"] | {"keys": ("w",), "label": label, "step": "note", "rare": True})
        label = "Edit and run again" if has_run else "Edit"
        answers.append({"keys": ("e",), "label": label, "step": "edit", "rare": True})
    return [*answers, {"keys": ("v",), "label": "Show all", "step": "all", "rare": True}]


def edit_request(ask: Interaction, texts: Mapping[str, str]) -> EditedRequest:
    """Return the arguments of a call as texts to edit, and with new texts the request as they change it.

    Raise UsageError if one of them is not valid.
    """
    before = ask.permission.args
    form = ArgumentForm(before)
    for name, text in texts.items():
        form.select(name)
        form.store(text)
    fields: list[tuple[str, str, str]] = []
    for number, path in enumerate(form.paths[:-1]):
        form.number = number
        fields.append((name_path(path), escape_hidden(name_path(path)), form.text))
    edited = ask if form.args == before else replace_arguments(ask, form.args)
    return EditedRequest(tuple(fields), form.args, summarize_change(before, form.args), encode_request(edited))


def _make_title(ask: Interaction, cwd: str) -> str:
    if ask.questions and not ask.agent:
        server = getattr(ask.facts, "server", "")
        return f"The MCP server {escape_hidden(server)} asks" if server else "Odin asks"
    return f"The sub-agent {escape_hidden(ask.agent)} asks" if ask.questions else format_headline(ask, cwd)


def _encode_detail(detail: Detail) -> dict[str, str]:
    show = sanitize if detail.kind in ("diff", "markdown") else _escape
    return {"kind": detail.kind, "heading": detail.heading, "text": show(detail.text)}


def _encode_field(field: FormField) -> dict[str, Any]:
    options = [{**_escape(msgspec.to_builtins(option)), "value": option.label} for option in field.options]
    value = field.value if field.name != "args" else None  # they are edited one by one
    return _escape(msgspec.to_builtins(field)) | {"options": options, "value": value, "limits": _describe_limits(field)}


def _describe_limits(field: FormField) -> str:
    is_length = field.type not in ("number", "integer") and not field.options
    unit = " options" if field.multiple else " characters" if is_length else ""
    least = field.minimum if field.minimum or not unit else None
    limits = ((least, "at least"), (field.maximum, "at most"))
    words = ", ".join(f"{word} {number:g}" for number, word in limits if number is not None)
    return f"{words[0].upper()}{words[1:]}{unit}." if words else ""


def _escape(value: Any) -> Any:
    match value:
        case str():
            return "\n".join(map(escape_hidden, value.split("\n")))
        case list() | tuple():
            return [_escape(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
        case dict():
            return {_escape(str(key)): _escape(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        case _:
            return value
