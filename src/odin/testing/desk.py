"""Decides the answer to one request: a page, a refusal, or the next turn of the script in the right wire format."""

import time
from collections.abc import Callable
from typing import Any, cast

import msgspec
from msgspec import Struct

from odin.testing import anthropic, anthropic_rules, chat, chat_rules, local, responses, responses_rules, strict
from odin.testing.delivery import Answer
from odin.testing.meter import Meter, Prompt, prompt_of
from odin.testing.script import LocalServer, Script, Turn
from odin.testing.seen import Api, SeenRequest
from odin.testing.spoken import Spoken, spoken, wants_contract
from odin.testing.strict import Memory, Refused

_WIRES: dict[Api, Any] = {"anthropic": anthropic, "chat": chat, "responses": responses, "other": chat}
_RULES = {"anthropic": anthropic_rules.check, "chat": chat_rules.check, "responses": responses_rules.check}
_STREAM_HEADERS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
_MAX_BODY = 32 * 1024 * 1024


class Manners(Struct, frozen=True):
    """What kind of server this is; `ScriptedServer` explains the fields."""

    models: tuple[str, ...] | None = None
    window: int | None = None
    trained: int = 131072
    local: LocalServer | None = None
    tools: bool = True
    strict: bool = True
    accepts: frozenset[str] = frozenset()


class Desk:
    def __init__(self, script: Script, manners: Manners, rejected: list[tuple[SeenRequest, str]]) -> None:
        self._script = script
        self._manners = manners
        self._rejected = rejected
        self._meter = Meter()
        self._memory = Memory()
        self._number = 0
        self._calls = 0

    def answer(self, seen: SeenRequest) -> tuple[Answer, Turn]:
        """The answer and the turn that says how it is to be delivered."""
        try:
            return self._decide(seen)
        except Exception as error:  # a defect here must not leave the client waiting for ever
            refused = Refused(f"The scripted server failed: {type(error).__name__}: {error}", status=500)
            return _refusal(seen.api, refused), Turn()

    def _decide(self, seen: SeenRequest) -> tuple[Answer, Turn]:
        try:
            if seen.api == "other":
                return self._page(seen), Turn()
            prompt = self._admit(seen)
        except Refused as refused:
            if seen.api == "other":
                return _refusal(_guess(seen), refused), Turn()
            self._rejected.append((seen, str(refused)))
            return _refusal(seen.api, refused), Turn()
        turn = self._script.next(seen)
        if turn.is_fault:
            return _fault(seen.api, turn), turn
        return self._reply(seen, turn, prompt), turn

    def _page(self, seen: SeenRequest) -> Answer:
        manners = self._manners
        if manners.local is None and manners.strict:
            strict.check_key(_guess(seen), seen.headers)
        found = local.page(
            seen,
            manners.local,
            models=manners.models,
            window=manners.window,
            trained=manners.trained,
            tools=manners.tools,
        )
        return _json(200, found) if isinstance(found, dict) else _plain(found)

    def _admit(self, seen: SeenRequest) -> Prompt:
        manners = self._manners
        if manners.strict and manners.local is None:
            strict.check_headers(seen.api, seen.headers)
        if len(seen.body) > _MAX_BODY:
            raise Refused("Request exceeds the maximum size", status=413)
        if not seen.json:
            strict.parse(seen.body)
        prompt = prompt_of(seen.api, seen.json)
        if manners.strict:
            _RULES[seen.api](seen.json, self._memory, None if manners.local else manners.accepts)
        strict.check_model(seen.api, seen.json, manners.models)
        strict.check_window(seen.api, seen.json, prompt.tokens, manners.window, manners.local)
        return prompt

    def _reply(self, seen: SeenRequest, turn: Turn, prompt: Prompt) -> Answer:
        body = seen.json
        said = spoken(
            turn,
            number=self._fresh_number(seen),
            model=seen.model,
            prompt=self._meter.measure(seen.api, seen.model, prompt),
            created=int(time.time()),
            new_id=self._id_maker(seen),
            contract=wants_contract(body),
        )
        self._memory.learn(seen.api, said)
        wire = _WIRES[seen.api]
        if body.get("stream") is not True:
            return _json(200, wire.whole(said, body) if seen.api == "responses" else wire.whole(said))
        frames = _spoiled(_frames(seen.api, said, body), turn, wire)
        return Answer(200, dict(_STREAM_HEADERS), frames, streamed=True, ping=wire.PING)

    def _fresh_number(self, seen: SeenRequest) -> int:
        """A number whose ids are not in the request yet: a resumed conversation may come from another server."""
        self._number += 1
        while f"_{self._number:06d}".encode() in seen.body:
            self._number += 1
        return self._number

    def _id_maker(self, seen: SeenRequest) -> Callable[[], str]:
        prefix = "toolu" if seen.api == "anthropic" else "call"

        def new_id() -> str:
            self._calls += 1
            while f"{prefix}_{self._calls:04d}".encode() in seen.body:
                self._calls += 1
            return f"{prefix}_{self._calls:04d}"

        return new_id


def _frames(api: Api, said: Spoken, body: dict[str, Any]) -> list[bytes]:
    if api == "anthropic":
        return anthropic.frames(said)
    if api == "responses":
        return responses.frames(said, body)
    options = cast("dict[str, Any]", body.get("stream_options") or {})
    return chat.frames(said, options.get("include_usage") is True)


def _spoiled(frames: list[bytes], turn: Turn, wire: Any) -> list[bytes]:
    """The events as the turn wants them: without an end, with a broken one among them, or ending in an error."""
    if turn.missing:
        frames = frames[: -turn.missing]
    if turn.garbled_after is not None:
        frames.insert(turn.garbled_after, wire.GARBLED)
    if turn.fails is not None:
        frames = [*frames[: turn.fails.after], *wire.error_frames(turn.fails, turn.fails.after)]
    return frames


def _json(status: int, value: dict[str, Any]) -> Answer:
    return Answer(status, {"content-type": "application/json"}, [msgspec.json.encode(value)])


def _plain(text: str) -> Answer:
    return Answer(200, {"content-type": "text/plain; charset=utf-8"}, [text.encode()])


def _refusal(api: Api, refused: Refused) -> Answer:
    body = _WIRES[api].error_body(refused.status, str(refused), refused.type, refused.code, refused.param)
    return _json(refused.status, body)


def _fault(api: Api, turn: Turn) -> Answer:
    body = turn.body
    if body is None:
        return _json(turn.status, _WIRES[api].error_body(turn.status, turn.message, turn.type, turn.code, None))
    if isinstance(body, bytes):
        raw, kind = body, "application/octet-stream"
    elif isinstance(body, str):
        raw, kind = body.encode(), "text/html" if body.lstrip().startswith("<") else "application/json"
    else:
        raw, kind = msgspec.json.encode(body), "application/json"
    return Answer(turn.status, {"content-type": kind}, [raw])


def _guess(seen: SeenRequest) -> Api:
    """Which API's manners a request without an API of its own expects."""
    return "anthropic" if "x-api-key" in seen.headers or "anthropic-version" in seen.headers else "chat"
