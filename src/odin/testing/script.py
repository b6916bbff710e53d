"""Scripted turns, the faults applied to them, and the requests the server received.

A `Turn` is one response of the server. Normal turns come from `say`, `call` and `reply`, errors from `fault`. The
methods of a turn return a changed copy, so `say("done").stall(after=2)` reads as what happens.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from threading import Event, Lock
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct, field, structs

from odin.core.message import Usage

Api = Literal["anthropic", "chat", "responses", "gemini", "other"]


class SeenRequest(Struct):
    """One request. Times are of the monotonic clock, which all processes of a machine share.

    `at` is when its headers arrived, `finished_at` when the last byte of the response was written (0 until then).
    `hung_up`: the client closed the connection before the response was complete. `json` is the body as an object; for
    Gemini, whose URL names the model, also the `model`.
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
        """The conversation: `messages`, the `input` of the Responses API, or the `contents` of Gemini."""
        found = self.json.get({"responses": "input", "gemini": "contents"}.get(self.api, "messages"))
        return cast("list[dict[str, Any]]", found) if isinstance(found, list) else []

    @property
    def tool_names(self) -> list[str]:
        """The offered tools, in order."""
        tools = cast("list[dict[str, Any]]", self.json.get("tools") or [])
        if self.api == "gemini":
            tools = [function for tool in tools for function in tool.get("functionDeclarations", ())]
        return [str((tool.get("function") or tool).get("name", "")) for tool in tools]

    @property
    def results(self) -> dict[str, str]:
        """The text of every tool result in the request by call id, for any wire format."""
        return dict(_list_results(self.api, self.messages))


def _list_results(api: Api, messages: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for message in messages:
        if api == "chat" and message.get("role") == "tool":
            yield str(message.get("tool_call_id")), get_content_text(message.get("content"))
        elif api == "responses" and message.get("type") in ("function_call_output", "custom_tool_call_output"):
            yield str(message.get("call_id")), get_content_text(message.get("output"))
        elif api == "anthropic" and isinstance(message.get("content"), list):
            for block in message["content"]:
                if block.get("type") == "tool_result":
                    yield str(block.get("tool_use_id")), get_content_text(block.get("content"))
        elif api == "gemini":
            answers = [part["functionResponse"] for part in message.get("parts", ()) if "functionResponse" in part]
            for answer in answers:
                told: dict[str, Any] = answer.get("response", {})
                yield str(answer.get("id")), str(told.get("output", told.get("error", "")))


def get_content_text(content: Any) -> str:
    """Return the text of a content field, which is a string or a list of parts."""
    if isinstance(content, list):
        parts = cast("list[dict[str, Any]]", content)
        return "".join(str(part.get("text", "")) for part in parts)
    return content if isinstance(content, str) else ""


RetryForm = Literal["seconds", "decimal", "date", "ms", "reset"]


class ScriptedCall(Struct, frozen=True, forbid_unknown_fields=True):
    """One tool call. `args` given as a string is sent verbatim, to play malformed arguments."""

    name: str
    args: dict[str, Any] | str = field(default_factory=dict[str, Any])
    id: str | None = None


class StreamError(Struct, frozen=True, forbid_unknown_fields=True):
    """An error event in the middle of a stream."""

    after: int = 1
    type: str = "overloaded_error"
    message: str = "Overloaded"
    code: str | None = None


class Turn(Struct, frozen=True, forbid_unknown_fields=True):
    """One response. The fields are also the keys of a turn in a JSON script.

    Counts named `…_after` are the stream events that still arrive: 0 means only the headers do.
    """

    text: str = ""
    thinking: str = ""
    redacted: str = ""
    update: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    usage: Usage | None = None
    stop: str | None = None
    chunk: int | None = None

    status: int = 200
    headers: dict[str, str | None] = field(default_factory=dict[str, str | None])
    body: Any = None
    message: str = ""
    type: str | None = None
    code: str | None = None

    delay_s: float = 0.0
    pace_s: float = 0.0
    stall_after: int | None = None
    ping_after: int | None = None
    ping_every: float = 0.05
    drop: bool = False
    cut_after: int | None = None
    cut_bytes: int | None = None
    rst: bool = False
    trickled: bool = False
    garbled_after: int | None = None
    missing: int = 0
    fails: StreamError | None = None
    gzipped: bool = False
    gate: Any = None
    gate_after: int = 0

    @property
    def is_fault(self) -> bool:
        """True if the response is raw: a status or body instead of a model's reply."""
        return self.status != 200 or self.body is not None

    def delay(self, seconds: float) -> "Turn":
        """Wait before the headers."""
        return structs.replace(self, delay_s=seconds)

    def pace(self, seconds: float) -> "Turn":
        """Wait between stream events."""
        return structs.replace(self, pace_s=seconds)

    def hold(self, gate: Event, after: int = 0) -> "Turn":
        """Wait, after this many events, until the test sets the gate."""
        return structs.replace(self, gate=gate, gate_after=after)

    def stall(self, after: int = 0) -> "Turn":
        """Go silent after this many events and keep the connection open until the client closes it."""
        return structs.replace(self, stall_after=after)

    def pings(self, after: int = 0, every: float = 0.05) -> "Turn":
        """After this many events, send only keep-alive pings until the client closes the connection."""
        return structs.replace(self, ping_after=after, ping_every=every)

    def cut(self, *, events: int | None = None, bytes: int | None = None, reset: bool = False) -> "Turn":
        """Close the connection after this many events, or bytes of the body; with neither, before the response.

        With `reset` the client sees a connection reset instead of an end of file.
        """
        return structs.replace(
            self, cut_after=events, cut_bytes=bytes, drop=events is None and bytes is None, rst=reset
        )

    def trickle(self) -> "Turn":
        """Send one byte at a time, headers included."""
        return structs.replace(self, trickled=True)

    def garble(self, after: int = 1) -> "Turn":
        """Insert an event whose data is not JSON after this many events."""
        return structs.replace(self, garbled_after=after)

    def unfinished(self, missing: int = 1) -> "Turn":
        """Omit the last events (message_stop, [DONE], response.completed) but end the body properly."""
        return structs.replace(self, missing=missing)

    def error(
        self, after: int = 1, type: str = "overloaded_error", message: str = "Overloaded", code: str | None = None
    ) -> "Turn":
        """Send the API's own error event after this many events, and stop."""
        return structs.replace(self, fails=StreamError(after, type, message, code))

    def gzip(self) -> "Turn":
        """Compress the body, whatever the client accepts."""
        return structs.replace(self, gzipped=True)

    def hiding(self, thought: str) -> "Turn":
        """Add hidden thinking: the Anthropic API sends it as an encrypted block after the visible one."""
        return structs.replace(self, redacted=thought)

    def updating(self, note: str) -> "Turn":
        """Add what the model says before its calls: since the 5.5 models, the Anthropic API sends it as thinking."""
        return structs.replace(self, update=note)

    def with_headers(self, headers: Mapping[str, str | None]) -> "Turn":
        """Add headers, or remove one with None."""
        return structs.replace(self, headers={**self.headers, **headers})


def say(
    text: str,
    *,
    thinking: str = "",
    usage: Usage | None = None,
    stop: str | None = "end_turn",
    chunk: int | None = None,
) -> Turn:
    """Return a turn with a text answer. `chunk` is the number of characters per delta."""
    return Turn(text=text, thinking=thinking, usage=usage, stop=stop, chunk=chunk)


def call(name: str, args: Mapping[str, Any] | str | None = None, *, id: str | None = None, text: str = "") -> Turn:
    """Return a turn with one tool call, optionally after text. `args` as a string is sent verbatim, valid or not."""
    given = args if isinstance(args, str) else dict(args or {})
    return Turn(text=text, calls=(ScriptedCall(name, given, id),))


def reply(
    text: str = "",
    calls: Iterable[Turn | ScriptedCall] = (),
    thinking: str = "",
    usage: Usage | None = None,
    stop: str | None = None,
    chunk: int | None = None,
) -> Turn:
    """Return a turn with text, thinking and any number of tool calls."""
    flat: list[ScriptedCall] = []
    for item in calls:
        flat.extend(item.calls if isinstance(item, Turn) else (item,))
    return Turn(text=text, thinking=thinking, calls=tuple(flat), usage=usage, stop=stop, chunk=chunk)


def fault(
    status: int = 500,
    headers: Mapping[str, str | None] | None = None,
    body: Any = None,
    *,
    message: str = "",
    type: str | None = None,
    code: str | None = None,
) -> Turn:
    """Return an error response. Without a body, the API's own error format with `message`, `type` and `code` is sent.

    The body may be bytes, text (HTML is recognized) or any JSON value.
    """
    if status == 200 and body is None:
        body = b""
    return Turn(status=status, headers=dict(headers or {}), body=body, message=message, type=type, code=code)


def retry_after(seconds: float, form: RetryForm = "seconds") -> dict[str, str | None]:
    """Return the headers that ask a client to retry later, in each form servers use."""
    if form == "ms":
        return {"retry-after-ms": str(round(seconds * 1000))}
    if form == "decimal":
        return {"retry-after": f"{seconds:.3f}"}
    if form == "seconds":
        return {"retry-after": str(max(0, round(seconds)))}
    from email.utils import format_datetime

    moment = datetime.now(UTC) + timedelta(seconds=seconds)
    if form == "date":
        return {"retry-after": format_datetime(moment, usegmt=True)}
    return {
        "anthropic-ratelimit-requests-reset": moment.isoformat(timespec="seconds").replace("+00:00", "Z"),
        "x-ratelimit-reset-requests": f"{seconds:g}s",
    }


Oddity = Literal[
    "no_responses",
    "no_usage",
    "no_finish_reason",
    "no_call_index",
    "null_call_index",
    "needs_content",
    "needs_null_content",
    "no_cache_key",
    "comments",
    "cr_lines",
    "not_streamed",
]
"""What a server does otherwise than OpenAI; `odd_servers` says where each was seen."""

Player = Callable[[SeenRequest], Turn]
EmulatedServer = Literal["ollama", "llamacpp", "lmstudio", "vllm"]


class EmulatedLocal(Struct, frozen=True, forbid_unknown_fields=True):
    """A local server whose models were `trained` for this context window and can call `tools` or not."""

    kind: EmulatedServer
    trained: int = 131072
    tools: bool = True


class Script:
    """Returns the turns in order, or as a function decides."""

    def __init__(self, turns: Iterable[Turn] | Player, repeat: bool = False) -> None:
        self._player = turns if callable(turns) else None
        self._turns = () if callable(turns) else tuple(turns)
        self._repeat = repeat
        self._played = 0
        self._lock = Lock()

    @property
    def left(self) -> int:
        """The number of turns that have not been played."""
        return max(0, len(self._turns) - self._played)

    def take_turn(self, seen: SeenRequest) -> Turn:
        if self._player is not None:
            return self._ask(self._player, seen)
        with self._lock:
            if self._repeat and self._turns:
                self._played %= len(self._turns)
            if self._played >= len(self._turns):
                count = len(self._turns)
                return _make_script_error(
                    f"The script is used up: it has {count} turns and this request asks for one more."
                )
            self._played += 1
            return self._turns[self._played - 1]

    def _ask(self, player: Player, seen: SeenRequest) -> Turn:
        try:
            turn = cast("object", player(seen))
        except Exception as error:  # user code: report whatever it raises to the client
            return _make_script_error(f"The script failed: {type(error).__name__}: {error}")
        return turn if isinstance(turn, Turn) else _make_script_error(f"The script gave {turn!r}, which is not a turn.")


def _make_script_error(sentence: str) -> Turn:
    return fault(500, {"x-should-retry": "false"}, message=sentence)


class ScriptFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A script as JSON: the turns and the server options."""

    turns: tuple[Turn, ...]
    repeat: bool = False
    models: tuple[str, ...] | None = None
    window: int | None = None
    local: EmulatedServer | EmulatedLocal | None = None
    strict: bool = True
    odd: tuple[Oddity, ...] = ()


def read_script(text: str | bytes) -> ScriptFile:
    """Parse a JSON list of turns, or an object with `turns` and options. Raise msgspec.ValidationError naming the
    place."""
    raw: Any = msgspec.json.decode(text)
    return msgspec.convert({"turns": raw} if isinstance(raw, list) else raw, ScriptFile)
