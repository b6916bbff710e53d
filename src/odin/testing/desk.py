"""Decides the answer to one request: a page, a refusal, or the next turn of the script in the right wire format."""

import time
from collections.abc import Callable
from typing import Any, cast

import msgspec
from msgspec import Struct

from odin.testing import anthropic, anthropic_rules, chat, chat_rules, local, responses, responses_rules, strict
from odin.testing.delivery import ServerAnswer
from odin.testing.meter import CacheMeter, MeteredPrompt, prompt_of
from odin.testing.script import EmulatedServer, Script, Turn
from odin.testing.seen import Api, SeenRequest
from odin.testing.spoken import RenderedReply, render_reply, wants_contract
from odin.testing.strict import IssuedIds, RequestRefused

_WIRE_FORMATS: dict[Api, Any] = {"anthropic": anthropic, "chat": chat, "responses": responses, "other": chat}
_RULES = {
    "anthropic": anthropic_rules.check_request,
    "chat": chat_rules.check_request,
    "responses": responses_rules.check_request,
}
_STREAM_HEADERS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
_MAX_BODY = 32 * 1024 * 1024


class ServerBehavior(Struct, frozen=True):
    """What kind of server this is; `ScriptedServer` explains the fields."""

    models: tuple[str, ...] | None = None
    window: int | None = None
    trained: int = 131072
    local: EmulatedServer | None = None
    tools: bool = True
    strict: bool = True
    accepts: frozenset[str] = frozenset()


class Router:
    def __init__(self, script: Script, behavior: ServerBehavior, rejected: list[tuple[SeenRequest, str]]) -> None:
        self._script = script
        self._behavior = behavior
        self._rejected = rejected
        self._meter = CacheMeter()
        self._memory = IssuedIds()
        self._number = 0
        self._calls = 0

    def answer(self, seen: SeenRequest) -> tuple[ServerAnswer, Turn]:
        """The answer and the turn that says how it is to be delivered."""
        try:
            return self._decide(seen)
        except Exception as error:  # a defect here must not leave the client waiting for ever
            refused = RequestRefused(f"The scripted server failed: {type(error).__name__}: {error}", status=500)
            return _make_refusal(seen.api, refused), Turn()

    def _decide(self, seen: SeenRequest) -> tuple[ServerAnswer, Turn]:
        try:
            if seen.api == "other":
                return self._answer_page(seen), Turn()
            prompt = self._admit(seen)
        except RequestRefused as refused:
            if seen.api == "other":
                return _make_refusal(_guess_api(seen), refused), Turn()
            self._rejected.append((seen, str(refused)))
            return _make_refusal(seen.api, refused), Turn()
        turn = self._script.take_turn(seen)
        if turn.is_fault:
            return _make_fault(seen.api, turn), turn
        return self._answer_turn(seen, turn, prompt), turn

    def _answer_page(self, seen: SeenRequest) -> ServerAnswer:
        manners = self._behavior
        if manners.local is None and manners.strict:
            strict.check_key(_guess_api(seen), seen.headers)
        found = local.find_page(
            seen,
            manners.local,
            models=manners.models,
            window=manners.window,
            trained=manners.trained,
            tools=manners.tools,
        )
        return _make_json_answer(200, found) if isinstance(found, dict) else _make_text_answer(found)

    def _admit(self, seen: SeenRequest) -> MeteredPrompt:
        manners = self._behavior
        if manners.strict and manners.local is None:
            strict.check_headers(seen.api, seen.headers)
        if len(seen.body) > _MAX_BODY:
            raise RequestRefused("Request exceeds the maximum size", status=413)
        if not seen.json:
            strict.parse_body(seen.body)
        prompt = prompt_of(seen.api, seen.json)
        if manners.strict:
            _RULES[seen.api](seen.json, self._memory, None if manners.local else manners.accepts)
        strict.check_model(seen.api, seen.json, manners.models)
        strict.check_window(seen.api, seen.json, prompt.tokens, manners.window, manners.local)
        return prompt

    def _answer_turn(self, seen: SeenRequest, turn: Turn, prompt: MeteredPrompt) -> ServerAnswer:
        body = seen.json
        said = render_reply(
            turn,
            number=self._take_number(seen),
            model=seen.model,
            prompt=self._meter.measure(seen.api, seen.model, prompt),
            created=int(time.time()),
            new_id=self._make_id_source(seen),
            contract=wants_contract(body),
        )
        self._memory.learn(seen.api, said)
        wire = _WIRE_FORMATS[seen.api]
        if body.get("stream") is not True:
            return _make_json_answer(
                200, wire.build_reply(said, body) if seen.api == "responses" else wire.build_reply(said)
            )
        frames = _apply_faults(_encode_frames(seen.api, said, body), turn, wire)
        return ServerAnswer(200, dict(_STREAM_HEADERS), frames, is_stream=True, ping=wire.PING)

    def _take_number(self, seen: SeenRequest) -> int:
        """A number whose ids are not in the request yet: a resumed conversation may come from another server."""
        self._number += 1
        while f"_{self._number:06d}".encode() in seen.body:
            self._number += 1
        return self._number

    def _make_id_source(self, seen: SeenRequest) -> Callable[[], str]:
        prefix = "toolu" if seen.api == "anthropic" else "call"

        def new_id() -> str:
            self._calls += 1
            while f"{prefix}_{self._calls:04d}".encode() in seen.body:
                self._calls += 1
            return f"{prefix}_{self._calls:04d}"

        return new_id


def _encode_frames(api: Api, said: RenderedReply, body: dict[str, Any]) -> list[bytes]:
    if api == "anthropic":
        return anthropic.encode_frames(said)
    if api == "responses":
        return responses.encode_frames(said, body)
    options = cast("dict[str, Any]", body.get("stream_options") or {})
    return chat.encode_frames(said, options.get("include_usage") is True)


def _apply_faults(frames: list[bytes], turn: Turn, wire: Any) -> list[bytes]:
    """The events as the turn wants them: without an end, with a broken one among them, or ending in an error."""
    if turn.missing:
        frames = frames[: -turn.missing]
    if turn.garbled_after is not None:
        frames.insert(turn.garbled_after, wire.GARBLED)
    if turn.fails is not None:
        frames = [*frames[: turn.fails.after], *wire.encode_error_frames(turn.fails, turn.fails.after)]
    return frames


def _make_json_answer(status: int, value: dict[str, Any]) -> ServerAnswer:
    return ServerAnswer(status, {"content-type": "application/json"}, [msgspec.json.encode(value)])


def _make_text_answer(text: str) -> ServerAnswer:
    return ServerAnswer(200, {"content-type": "text/plain; charset=utf-8"}, [text.encode()])


def _make_refusal(api: Api, refused: RequestRefused) -> ServerAnswer:
    body = _WIRE_FORMATS[api].build_error_body(refused.status, str(refused), refused.type, refused.code, refused.param)
    return _make_json_answer(refused.status, body)


def _make_fault(api: Api, turn: Turn) -> ServerAnswer:
    body = turn.body
    if body is None:
        return _make_json_answer(
            turn.status, _WIRE_FORMATS[api].build_error_body(turn.status, turn.message, turn.type, turn.code, None)
        )
    if isinstance(body, bytes):
        raw, kind = body, "application/octet-stream"
    elif isinstance(body, str):
        raw, kind = body.encode(), "text/html" if body.lstrip().startswith("<") else "application/json"
    else:
        raw, kind = msgspec.json.encode(body), "application/json"
    return ServerAnswer(turn.status, {"content-type": kind}, [raw])


def _guess_api(seen: SeenRequest) -> Api:
    """Which API's manners a request without an API of its own expects."""
    return "anthropic" if "x-api-key" in seen.headers or "anthropic-version" in seen.headers else "chat"
