"""What a client sent, as the server received it."""

from collections.abc import Iterator
from typing import Any, Literal, cast

from msgspec import Struct

Api = Literal["anthropic", "chat", "responses", "other"]


class SeenRequest(Struct):
    """One request. Times are of the monotonic clock, which all processes of a machine share.

    `at` is when its headers had arrived, `finished_at` when the last byte of the answer was written (0 until then).
    `hung_up` says that the client closed the connection before the answer was complete.
    """

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    json: dict[str, Any]
    api: Api
    at: float
    finished_at: float = 0.0
    status: int = 0
    hung_up: bool = False

    @property
    def model(self) -> str:
        return str(self.json.get("model", ""))

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation: `messages`, or the `input` of the Responses API."""
        found = self.json.get("input" if self.api == "responses" else "messages")
        return cast("list[dict[str, Any]]", found) if isinstance(found, list) else []

    @property
    def tool_names(self) -> list[str]:
        """The tools that were offered, in their order."""
        tools = cast("list[dict[str, Any]]", self.json.get("tools") or [])
        return [str((tool.get("function") or tool).get("name", "")) for tool in tools]

    @property
    def results(self) -> dict[str, str]:
        """The text of every tool result in the request, by the id of its call, whatever the wire format."""
        return dict(_list_results(self.api, self.messages))


def _list_results(api: Api, messages: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for message in messages:
        if api == "chat" and message.get("role") == "tool":
            yield str(message.get("tool_call_id")), text_of_content(message.get("content"))
        elif api == "responses" and message.get("type") == "function_call_output":
            yield str(message.get("call_id")), text_of_content(message.get("output"))
        elif api == "anthropic" and isinstance(message.get("content"), list):
            for block in message["content"]:
                if block.get("type") == "tool_result":
                    yield str(block.get("tool_use_id")), text_of_content(block.get("content"))


def text_of_content(content: Any) -> str:
    """The text of a content field, which is text or a list of parts."""
    if isinstance(content, list):
        parts = cast("list[dict[str, Any]]", content)
        return "".join(str(part.get("text", "")) for part in parts)
    return content if isinstance(content, str) else ""
