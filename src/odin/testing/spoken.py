"""A scripted turn made definite for one request: ids, arguments as text, token counts, and the planner's contract."""

from base64 import b64decode, b64encode
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, cast

import msgspec
from msgspec import Struct

from odin.core.message import Usage
from odin.testing.meter import count_tokens
from odin.testing.script import Turn


class RenderedCall(Struct, frozen=True):
    id: str
    name: str
    args: dict[str, Any] | str
    json: str


class RenderedReply(Struct, frozen=True):
    """What the model says to one request, ready to be put into any wire format."""

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

    @property
    def signatures(self) -> list[str]:
        """What its blocks of thinking are known by, in their order."""
        shown = [compute_signature(self.model, self.thinking)] if self.thinking else []
        return [*shown, seal_reasoning(self.model, self.redacted)] if self.redacted else shown

    def split_chunks(self, text: str) -> list[str]:
        """The text in the parts that one delta each carries: of `chunk` characters, or at most 64 parts."""
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
    said = sum(count_tokens(len(call.json.encode()) + len(call.name)) for call in calls) + count_tokens(
        len(text.encode())
    )
    usage = turn.usage or Usage(
        prompt.input, max(1, said), prompt.cache_read, prompt.cache_write, count_tokens(len(turn.thinking.encode()))
    )
    return RenderedReply(number, model, text, turn.thinking, calls, usage, stop, turn.chunk, created, turn.redacted)


def format_arguments(args: dict[str, Any] | str) -> str:
    return args if isinstance(args, str) else msgspec.json.encode(args).decode()


def format_contract(turn: Turn) -> str:
    """The turn as the planner's JSON contract. Text that is a contract answer already stays as it is."""
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
    """Whether the request asks for the planner's contract: a JSON schema answer with an executeTool field."""
    for path in (
        ("response_format", "json_schema", "schema"),
        ("text", "format", "schema"),
        ("output_config", "format", "schema"),
        ("output_format", "schema"),
    ):
        node: Any = body
        for key in path:
            node = cast("dict[str, Any]", node).get(key) if isinstance(node, dict) else None
        if isinstance(node, dict) and "executeTool" in cast("dict[str, Any]", node).get("properties", {}):
            return True
    return False


def seal_reasoning(model: str, text: str) -> str:
    """Encrypted reasoning, as far as a client can tell: the text and the proof in one opaque string."""
    return f"{b64encode(text.encode()).decode()}.{compute_signature(model, text)}"


def is_sealed(model: str, value: str) -> bool:
    text, _, _ = value.partition(".")
    try:
        return value == seal_reasoning(model, b64decode(text, validate=True).decode())
    except ValueError:
        return False


def compute_signature(model: str, text: str) -> str:
    """The proof that this server let this model think this text. It needs no memory to be checked."""
    return "sig" + blake2b(f"{model}\0{text}".encode(), digest_size=24).hexdigest()


def list_item_ids(said: RenderedReply) -> tuple[str, list[str]]:
    """Return the id of the reasoning item, and of the one Responses item that may not be sent back without it."""
    followers = [f"msg_{said.number:06d}"] if said.text else []
    followers += [f"fc_{said.number:06d}_{number}" for number in range(len(said.calls))]
    return f"rs_{said.number:06d}", followers[:1]
