"""What `odin headless --format jsonl` reads: lines `{"type": …, "id": …, …}`. The docs are made of these structs.

The type is the name of the struct, `local_shell` for `LocalShellCommand`.
"""

from typing import Any, cast

import msgspec
from msgspec import UNSET, Struct, UnsetType

from odin.core.client import ServerScope
from odin.core.errors import UsageError
from odin.core.event_values import Delivery
from odin.core.op import QueuePolicy
from odin.core.text import describe_mismatch, suggest_similar
from odin.ui.jsonl.payloads import make_type

MAX_LINE_BYTES = 8 * 1024 * 1024
MAX_DEPTH = 64
"""How deep the objects and lists of a line may be nested."""


class ClientCommand(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=make_type):
    """`id` is repeated in the answer."""

    id: str | int | None = None

    @classmethod
    def get_type(cls) -> str:
        return cast("str", cls.__struct_config__.tag)


class SubscribeCommand(ClientCommand, frozen=True, kw_only=True):
    """Send only these `events` from now on; `*` stands for all but `text_delta`, and so does no list."""

    events: tuple[str, ...] = ("*",)


class StatusCommand(ClientCommand, frozen=True, kw_only=True):
    """Return the state of the session."""


class SendCommand(ClientCommand, frozen=True, kw_only=True):
    """Send a prompt or a slash command. `attachments` are paths; `mode` is ask, plan or edit.

    `delivery` is how it reaches a busy agent: `queue`, `merge` or `steer`. Without it, waiting permission requests are
    denied.
    """

    text: str
    mode: str = ""
    delivery: Delivery | None = None
    attachments: tuple[str, ...] = ()
    agent: str = ""


class ConfirmCommand(ClientCommand, frozen=True, kw_only=True):
    """Answer a permission request, with the key of a `choice` or with `allow`.

    `args` replace those of the call, `reason` is for the model, `rule` is saved by a choice with a scope.
    """

    request: str
    choice: str = ""
    allow: bool | None = None
    args: dict[str, Any] | None = None
    reason: str = ""
    rule: str = ""


class QuestionCommand(ClientCommand, frozen=True, kw_only=True):
    """Answer questions, each with a text or a list of labels, or `cancel` them.

    An empty list means the first option.
    """

    request: str
    answers: tuple[str | tuple[str, ...], ...] = ()
    cancel: bool = False


class HandoffCommand(ClientCommand, frozen=True, kw_only=True):
    """Decide about a plan, with the key of a `choice`. `plan` replaces its text, `role` carries it out.

    `comment` is for the model.
    """

    request: str
    choice: str
    comment: str = ""
    plan: str = ""
    role: str = ""


class ModelsCommand(ClientCommand, frozen=True, kw_only=True):
    """List the models, with those of the `servers` that are asked, or switch to `model` for this session.

    `servers` is `none`, `configured` or `all`, which also asks servers on this machine.
    """

    model: str = ""
    servers: ServerScope = "none"
    agent: str = ""


class SessionsCommand(ClientCommand, frozen=True, kw_only=True):
    """List the sessions of the project."""


class LocalShellCommand(ClientCommand, frozen=True, kw_only=True):
    """Run a shell command as you, without rules and sandbox, also while the agent works."""

    command: str
    agent: str = ""


class CancelCommand(ClientCommand, frozen=True, kw_only=True):
    """Interrupt the work of the main agent and all others, or of one `agent`.

    `queue` is what happens to queued prompts: `pause`, `keep`, `inject` or `drop` them.
    """

    queue: QueuePolicy = "pause"
    agent: str = ""


COMMANDS: dict[str, type[ClientCommand]] = {
    kind.get_type(): kind
    for kind in (
        SubscribeCommand,
        StatusCommand,
        SendCommand,
        ConfirmCommand,
        QuestionCommand,
        HandoffCommand,
        ModelsCommand,
        SessionsCommand,
        LocalShellCommand,
        CancelCommand,
    )
}


class ParsedLine(Struct, frozen=True):
    """An input line: the command, or why it is none. `id` and `type` are what could be read of it."""

    command: ClientCommand | None = None
    error: UsageError | None = None
    id: str | int | UnsetType = UNSET
    type: str | UnsetType = UNSET


def parse_line(line: bytes) -> ParsedLine:
    if len(line) > MAX_LINE_BYTES:
        limit = MAX_LINE_BYTES // 1024**2
        return ParsedLine(error=UsageError(f"The line is longer than {limit} MiB.", "Put large content in a file."))
    try:
        raw: Any = msgspec.json.decode(line)
        _check_value(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return ParsedLine(error=UsageError(f"The line is not valid JSON in UTF-8: {error}."))
    except RecursionError:
        return ParsedLine(error=UsageError(f"The line is nested deeper than {MAX_DEPTH} levels."))
    except UsageError as error:
        return ParsedLine(error=error)
    if not isinstance(raw, dict):
        return ParsedLine(error=UsageError("The line is not a JSON object.", 'Write {"type": COMMAND, …}.'))
    fields = cast("dict[str, Any]", raw)
    given, name = fields.get("id"), fields.get("type")
    mark = given if isinstance(given, str | int) and not isinstance(given, bool) else UNSET
    if not isinstance(name, str) or name not in COMMANDS:
        suggestion = suggest_similar(name, COMMANDS) if isinstance(name, str) else ""
        found = "The line names no command" if name is None else f"Unknown command {_show(name)}"
        return ParsedLine(
            error=UsageError(f"{found}.{suggestion}", f"The commands are {', '.join(COMMANDS)}."), id=mark
        )
    try:
        return ParsedLine(msgspec.convert(fields, COMMANDS[name]), id=mark, type=name)
    except msgspec.ValidationError as error:
        known = ", ".join(COMMANDS[name].__struct_fields__)
        problem = UsageError(f"{name}: {_explain(COMMANDS[name], fields) or error}.", f"Its fields are {known}.")
        return ParsedLine(error=problem, id=mark, type=name)


def _explain(kind: type[ClientCommand], fields: dict[str, Any]) -> str:
    """Return which field has a wrong value and what it can be, or ""."""
    for field in msgspec.structs.fields(kind):
        value = fields.get(field.name)
        try:
            msgspec.convert(value, field.type)
        except msgspec.ValidationError:
            if field.name in fields and not isinstance(value, list):
                return f"{field.name} {describe_mismatch(value, field.type).rstrip('.')}"
    return ""


_MAX_SHOWN = 40


def _show(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}…"


def _check_value(value: Any, depth: int = 0) -> None:
    """Raise UsageError for a NUL, which no path, command or prompt can contain, and RecursionError for deep nesting."""
    if depth > MAX_DEPTH:
        raise RecursionError
    if isinstance(value, str):
        if "\0" in value:
            raise UsageError("The line contains a NUL character.", "Leave it out.")
    elif isinstance(value, dict):
        for key, item in cast("dict[str, Any]", value).items():
            _check_value(key, depth + 1)
            _check_value(item, depth + 1)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            _check_value(item, depth + 1)
