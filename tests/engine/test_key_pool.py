"""Several stored keys of one provider: a key that cannot be used is replaced by the next one."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from odin.api import error_of
from odin.core import errors
from odin.core.call_events import ActivityChanged, RetryScheduled
from odin.core.event import Warned
from odin.core.provider import Chunk, Request, TextChunk
from odin.models.keys import KeyPool, KeyStates
from odin.testing import call, fault, say
from odin.testing.script import SeenRequest

from .conftest import Start, Talk

FIRST, SECOND, THIRD = (f"sk-ant-{name}-0123456789-{name}" for name in ("first", "second", "third"))


WAITS = {"first": "3600", "second": "2000", "third": "9000"}


@pytest.fixture
def stored(home: Path) -> None:
    folder = home / ".config" / "odin"
    folder.mkdir(parents=True)
    path = folder / "auth.json"
    path.write_text(json.dumps({"anthropic": [FIRST, SECOND, THIRD]}))
    path.chmod(0o600)


class Api:
    """Answers the first requests with each key as told, the others with `fine`. `used` are the keys of all."""

    def __init__(self, **answers: list[Any]) -> None:
        self._answers = answers
        self.used: list[str] = []

    def __call__(self, seen: SeenRequest) -> Any:
        key = seen.headers["x-api-key"].split("-")[2]
        self.used.append(key)
        told = self._answers.get(key)
        return told.pop(0) if told else say("fine")


async def begin(start: Start, api: Api, key: str = "") -> Talk:
    return await start(api, env={"ANTHROPIC_API_KEY": key}, model="anthropic/claude-sonnet-4-5")


def warned(talk: Talk) -> list[str]:
    return [event.text for event in talk.all(Warned)]


@pytest.mark.usefixtures("stored")
async def test_a_rejected_key_is_replaced_by_the_next_one_and_not_used_again(start: Start) -> None:
    api = Api(first=[fault(401)], second=[fault(403)])
    talk = await begin(start, api)
    assert (await talk.say("one")).text == "fine"
    assert api.used == ["first", "second", "third"]
    assert warned(talk) == [
        "The key sk-ant-…irst of anthropic was rejected. Using the next stored key, sk-ant-…cond.",
        "The key sk-ant-…cond of anthropic was rejected. Using the next stored key, sk-ant-…hird.",
    ]
    assert talk.all(RetryScheduled) == []
    assert (await talk.say("two")).text == "fine"
    assert api.used[3:] == ["third"]


@pytest.mark.usefixtures("stored")
async def test_when_all_keys_are_rejected_the_turn_ends_with_that_error(start: Start) -> None:
    api = Api(first=[fault(401)], second=[fault(401)], third=[fault(401)])
    talk = await begin(start, api)
    ended = await talk.say("one")
    assert (ended.reason, ended.error_kind) == ("error", "AuthFailed")
    assert api.used == ["first", "second", "third"]
    assert (await talk.say("two")).text == "fine", "the user has put it right"


@pytest.mark.usefixtures("stored")
async def test_a_rate_limited_key_rests_while_another_answers(start: Start, workspace: Path) -> None:
    api = Api(first=[fault(429, {"retry-after": "3600"})], second=[call("LS", {"path": str(workspace)})])
    talk = await begin(start, api)
    assert (await talk.say("one")).text == "fine"
    assert api.used == ["first", "second", "second"]
    assert warned(talk) == [
        "The key sk-ant-…irst of anthropic reached the rate limit. Using the next stored key, sk-ant-…cond."
    ]
    assert talk.all(RetryScheduled) == []


@pytest.mark.usefixtures("stored")
async def test_when_all_keys_rest_the_turn_waits_for_the_first_of_them(start: Start) -> None:
    limits = {name: [fault(429, {"retry-after": wait})] for name, wait in (("first", "9"), ("second", "0.05"))}
    api = Api(**limits, third=[fault(429, {"retry-after": "9"})])
    talk = await begin(start, api)
    assert (await talk.say("one")).text == "fine"
    assert api.used == ["first", "second", "third", "second"]
    (retry,) = talk.all(RetryScheduled)
    assert (retry.error_kind, retry.delay_s < 5) == ("AllKeysCooling", True)
    assert "All 3 stored keys of anthropic reached the rate limit." in retry.error
    assert "cooling" in [event.activity for event in talk.all(ActivityChanged)]


@pytest.mark.usefixtures("stored")
async def test_when_all_keys_rest_for_too_long_the_turn_ends_and_says_until_when(start: Start) -> None:
    api = Api(**{name: [fault(429, {"retry-after": wait})] for name, wait in WAITS.items()})
    talk = await begin(start, api)
    error = error_of(await talk.say("one"))
    assert isinstance(error, errors.AllKeysCooling)
    assert (error.status, error.exit_code) == (429, 75)
    assert error.retry_after is not None
    assert 1990 < error.retry_after <= 2000


async def test_a_key_in_the_environment_is_used_alone(start: Start, stored: None) -> None:
    api = Api(mine=[fault(401)])
    talk = await begin(start, api, "sk-ant-mine-0123456789")
    assert (await talk.say("one")).error_kind == "AuthFailed"
    assert api.used == ["mine"]


async def test_a_key_that_rests_is_used_again_afterwards() -> None:
    """By a clock that the test turns; a failure in the middle of a reply is not repeated with another key."""
    now = 100.0
    told: list[str] = []
    states = KeyStates(told.append, lambda: now)
    script: dict[str, list[Any]] = {"a": [errors.RateLimited("slow", retry_after=30), "text"], "b": ["text"] * 2}
    pool = KeyPool([(key, Played(key, script[key])) for key in "ab"], states)
    assert await answers(pool) == ["b"]
    assert await answers(pool) == ["b"]
    now += 31
    assert await answers(pool) == ["a"]
    assert len(told) == 1
    broken = KeyPool([("c", Played("c", ["text", errors.AuthFailed("gone")], together=True)), ("b", pool)], states)
    with pytest.raises(errors.AuthFailed, match="gone"):
        await answers(broken)


class Played:
    """A provider that answers with its name, or fails, one answer per request; `together`: all in one reply."""

    def __init__(self, name: str, script: list[Any], *, together: bool = False) -> None:
        self.name = name
        self._script = script
        self._together = together

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        for _ in range(len(self._script) if self._together else 1):
            told = self._script.pop(0)
            if isinstance(told, Exception):
                raise told
            yield TextChunk(self.name)

    async def close(self) -> None:
        return


async def answers(pool: KeyPool) -> list[str]:
    request = Request("m", ())
    return [chunk.text async for chunk in pool.stream(request) if isinstance(chunk, TextChunk)]
