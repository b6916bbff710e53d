"""Turns a scripted turn into a reply to one request: ids, arguments, token counts, and the JSON contract."""

from base64 import b64decode, b64encode
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, cast

import msgspec
from msgspec import Struct

from odin.core.message import Usage
from odin.testing.script import Turn


def count_tokens(size: int) -> int:
    """Return an estimate: four bytes per token."""
    return (size + 3) // 4


class RenderedCall(Struct, frozen=True):
    id: str
    name: str
    args: dict[str, Any] | str
    json: str


class RenderedReply(Struct, frozen=True):
    """The reply to one request, independent of the wire format."""

    number: int
    model: str
    text: str
    thinking: str
    calls: tuple[RenderedCall, ...]
    usage: Usage
    stop: str
    chunk: int | None
    created: int
    redacted: str = ""
    update: str = ""
    binding: str = ""
    """What the Anthropic API binds its thinking to."""
    hidden: bool = False
    hides_update: bool = False
    """The Anthropic API sends the thinking, or the update, without its text."""
    dropped: tuple[dict[str, str], ...] | None = None
    """The blocks of thinking that the model was not shown; None if the request does not ask for them."""

    @property
    def thoughts(self) -> list[tuple[str | None, str]]:
        """Its thinking blocks for the Anthropic API, in order: the text as shown, None if sealed, and the signature."""
        found: list[tuple[str | None, str]] = []
        if self.thinking:
            shown = "" if self.hidden else self.thinking
            found.append((shown, sign_thought(self.model, shown, self.binding)))
        if self.redacted:
            found.append((None, seal_thought(self.model, self.redacted, self.binding)))
        if self.update:
            shown = "" if self.hides_update else self.update
            found.append((shown, sign_thought(self.model, shown, self.binding)))
        return found

    def split_chunks(self, text: str) -> list[str]:
        """Return the text split into deltas: of `chunk` characters, or at most 64 parts."""
        size = self.chunk or max(20, -(-len(text) // 64))
        return [text[at : at + size] for at in range(0, len(text), size)]


def render_reply(
    turn: Turn, *, number: int, model: str, prompt: Usage, created: int, new_id: Callable[[], str], contract: bool
) -> RenderedReply:
    calls = tuple(
        RenderedCall(item.id or new_id(), item.name, item.args, format_arguments(item.args)) for item in turn.calls
    )
    text = turn.text
    stop = turn.stop or ("tool_use" if calls else "end_turn")
    if contract:
        text, calls, stop = format_contract(turn), (), "end_turn" if stop == "tool_use" else stop
    rendered = sum(count_tokens(len(call.json.encode()) + len(call.name)) for call in calls) + count_tokens(
        len(text.encode())
    )
    usage = turn.usage or Usage(
        prompt.input, max(1, rendered), prompt.cache_read, prompt.cache_write, count_tokens(len(turn.thinking.encode()))
    )
    return RenderedReply(
        number, model, text, turn.thinking, calls, usage, stop, turn.chunk, created, turn.redacted, turn.update
    )


def format_arguments(args: dict[str, Any] | str) -> str:
    return args if isinstance(args, str) else msgspec.json.encode(args).decode()


def format_contract(turn: Turn) -> str:
    """Return the turn as a JSON contract reply. Text that already is one stays as it is."""
    if not turn.calls and _is_contract_answer(turn.text):
        return turn.text
    tools = [{"toolName": item.name, "toolInput": item.args} for item in turn.calls]
    answer = {"explanation": turn.text, "taskCompleted": not tools, "executeTool": tools}
    return msgspec.json.encode(answer).decode()


def _is_contract_answer(text: str) -> bool:
    if not text.lstrip().startswith("{"):
        return False
    try:
        value: Any = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return False
    return "executeTool" in value


def wants_contract(body: dict[str, Any]) -> bool:
    """True if the request asks for the JSON contract: a schema with an executeTool field."""
    for path in (
        ("response_format", "json_schema", "schema"),
        ("text", "format", "schema"),
        ("output_config", "format", "schema"),
        ("output_format", "schema"),
        ("generationConfig", "responseJsonSchema"),
    ):
        node: Any = body
        for key in path:
            node = cast("dict[str, Any]", node).get(key) if isinstance(node, dict) else None
        if isinstance(node, dict) and "executeTool" in cast("dict[str, Any]", node).get("properties", {}):
            return True
    return False


def seal_reasoning(model: str, text: str) -> str:
    """Return opaque "encrypted" reasoning that contains the text and its signature."""
    return f"{b64encode(text.encode()).decode()}.{compute_signature(model, text)}"


def is_sealed(model: str, value: str) -> bool:
    text, _, _ = value.partition(".")
    try:
        return value == seal_reasoning(model, b64decode(text, validate=True).decode())
    except ValueError:
        return False


def compute_signature(model: str, text: str) -> str:
    """Return the signature that proves that this model produced this text. It can be verified without state."""
    return "sig" + blake2b(f"{model}\0{text}".encode(), digest_size=24).hexdigest()


def sign_thought(model: str, text: str, binding: str) -> str:
    """Return the signature of a thinking block: who produced it, and what it is bound to."""
    return f"{compute_signature(f'{model}|{binding}', text)}|{model}|{binding}"


def seal_thought(model: str, text: str, binding: str) -> str:
    """Return the data of a redacted block: its hidden text and the signature."""
    return f"{b64encode(text.encode()).decode()}|{sign_thought(model, text, binding)}"


def parse_thought(value: str, text: str | None = None) -> tuple[str, str] | None:
    """Return the model and the binding of a signature of this text, or of sealed data; None if it was not made here."""
    if text is None:
        sealed, _, value = value.partition("|")
        try:
            text = b64decode(sealed, validate=True).decode()
        except ValueError:
            return None
    parts = value.split("|")
    return (parts[1], parts[2]) if len(parts) == 3 and value == sign_thought(parts[1], text, parts[2]) else None


def list_item_ids(rendered: RenderedReply) -> tuple[str, list[str]]:
    """Return the id of the reasoning item, and of the one Responses item that may not be sent back without it."""
    followers = [f"msg_{rendered.number:06d}"] if rendered.text else []
    followers += [f"fc_{rendered.number:06d}_{number}" for number in range(len(rendered.calls))]
    return f"rs_{rendered.number:06d}", followers[:1]
