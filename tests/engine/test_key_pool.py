"""Key pools: when a key of a provider cannot be used, the next key replaces it."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from odin.api import make_error
from odin.config.files import lock_file
from odin.core import errors
from odin.core.call_events import (
    ActivityChanged,
    KeyPoolChanged,
    RateLimitUpdated,
    ReplyRolledBack,
    RetryScheduled,
    UsageRecorded,
)
from odin.core.event import Warned
from odin.core.provider import RateLimitChunk
from odin.models.key_pool import KeyPool
from odin.models.key_states import KeyState, KeyStates, make_fingerprint
from odin.providers.settings import KeyRotation
from odin.providers.wire import ApiKey, KeyAttempts
from odin.testing import call, fault, say
from odin.testing.script import SeenRequest
from odin.ui.slash_commands.reports import gather_status
from tests.table import each

from .conftest import Start, Talk

FIRST, SECOND, THIRD = (f"sk-ant-{name}-0123456789-{name}" for name in ("first", "second", "third"))


WAITS = {"first": "3600", "second": "2000", "third": "9000"}


@pytest.fixture
def stored_keys(home: Path) -> None:
    folder = home / ".config" / "odin"
    folder.mkdir(parents=True)
    path = folder / "auth.json"
    path.write_text(json.dumps({"anthropic": [FIRST, SECOND, THIRD]}))
    path.chmod(0o600)


class Api:
    """Answers the first requests with a key from `answers`, all others with `fine`; `used` lists the keys."""

    def __init__(self, **answers: list[Any]) -> None:
        self._answers = answers
        self.used: list[str] = []

    def __call__(self, seen: SeenRequest) -> Any:
        key = seen.headers["x-api-key"].split("-")[2]
        self.used.append(key)
        answers = self._answers.get(key)
        return answers.pop(0) if answers else say("fine")


async def begin(start: Start, api: Api, key: str = "") -> Talk:
    return await start(api, env={"ANTHROPIC_API_KEY": key}, model="anthropic/claude-sonnet-4-5")


def list_warnings(talk: Talk) -> list[str]:
    return [event.text for event in talk.all(Warned)]


@pytest.mark.usefixtures("stored_keys")
async def test_a_rejected_key_is_replaced_by_the_next_one_and_not_used_again(start: Start) -> None:
    api = Api(first=[fault(401)], second=[fault(403)])
    talk = await begin(start, api)
    assert (await talk.say("one")).text == "fine"
    assert api.used == ["first", "second", "third"]
    assert list_warnings(talk) == [
        "The key sk-ant-…irst of anthropic was rejected. Using the next key, sk-ant-…cond.",
        "The key sk-ant-…cond of anthropic was refused. Using the next key, sk-ant-…hird.",
    ]
    assert talk.all(RetryScheduled) == []
    assert [event.activity for event in talk.all(ActivityChanged)].count("retrying_key") == 2
    assert (await talk.say("two")).text == "fine"
    assert api.used[3:] == ["third"]


async def test_a_key_that_google_rejects_is_replaced(start: Start) -> None:
    """Google answers a wrong key with status 400."""
    used: list[str] = []

    def play(seen: SeenRequest) -> Any:
        used.append(seen.headers["x-goog-api-key"][-3:])
        return fault(401) if used[-1] == "one" else say("fine")

    keys = "AIzaSy-0123456789-one,AIzaSy-0123456789-two"
    talk = await start(play, "google", env={"GEMINI_API_KEY": keys}, model="google/gemini-3.8-flash")
    assert (await talk.say("one")).text == (await talk.say("two")).text == "fine"
    assert used == ["one", "two", "two"]
    assert [why for _, why in talk.server.rejected] == []


@pytest.mark.usefixtures("stored_keys")
async def test_when_all_keys_are_rejected_the_turn_ends_with_that_error(start: Start) -> None:
    api = Api(first=[fault(401)], second=[fault(401)], third=[fault(401)])
    talk = await begin(start, api)
    ended = await talk.say("one")
    assert (ended.reason, ended.error_kind) == ("error", "NoUsableKeys")
    assert ended.error.startswith("All 3 keys of anthropic were rejected, the last one because: ")
    assert api.used == ["first", "second", "third"]
    assert (await talk.say("two")).text == "fine", "the user fixed the keys"


@pytest.mark.usefixtures("stored_keys")
async def test_rate_limited_key_cools_down_while_another_key_answers(start: Start, workspace: Path) -> None:
    api = Api(first=[fault(429, {"retry-after": "3600"})], second=[call("LS", {"path": str(workspace)})])
    talk = await begin(start, api)
    assert (await talk.say("one")).text == "fine"
    assert api.used == ["first", "second", "second"]
    assert list_warnings(talk) == [
        "The key sk-ant-…irst of anthropic reached the rate limit. Using the next key, sk-ant-…cond."
    ]
    assert talk.all(RetryScheduled) == []


@pytest.mark.usefixtures("stored_keys")
async def test_turn_waits_for_the_first_usable_key_when_all_keys_cool_down(start: Start) -> None:
    limits = {name: [fault(429, {"retry-after": wait})] for name, wait in (("first", "9"), ("second", "0.05"))}
    api = Api(**limits, third=[fault(429, {"retry-after": "9"})])
    talk = await begin(start, api)
    assert (await talk.say("one")).text == "fine"
    assert api.used == ["first", "second", "third", "second"]
    (retry,) = talk.all(RetryScheduled)
    assert (retry.error_kind, retry.delay_s < 5) == ("AllKeysCooling", True)
    assert "All 3 usable keys of anthropic are in cooldown after a rate limit or a refusal." in retry.error
    assert "cooling" in [event.activity for event in talk.all(ActivityChanged)]


@pytest.mark.usefixtures("stored_keys")
async def test_the_wait_for_a_key_can_be_interrupted(start: Start) -> None:
    api = Api(**{name: [fault(429, {"retry-after": "50"})] for name in WAITS})
    talk = await begin(start, api)
    talk.interrupt_on = RetryScheduled
    ended = await talk.say("one")
    assert (ended.reason, len(api.used)) == ("interrupted", 3)
    assert (await talk.client.get_info()).keys[0].next_s > 40


@pytest.mark.usefixtures("stored_keys")
async def test_turn_ends_with_the_retry_time_when_all_keys_cool_down_for_too_long(start: Start) -> None:
    api = Api(**{name: [fault(429, {"retry-after": wait})] for name, wait in WAITS.items()})
    talk = await begin(start, api)
    error = make_error(await talk.say("one"))
    assert isinstance(error, errors.AllKeysCooling)
    assert (error.status, error.exit_code) == (429, 75)
    assert error.retry_after is not None
    assert 1990 < error.retry_after <= 2000


@pytest.mark.usefixtures("stored_keys")
async def test_a_key_in_the_environment_comes_first_and_the_stored_ones_follow(start: Start) -> None:
    api = Api(mine=[fault(401)])
    talk = await begin(start, api, "sk-ant-mine-0123456789")
    assert (await talk.say("one")).text == "fine"
    assert api.used == ["mine", "first"]
    assert talk.all(KeyPoolChanged)[0] == KeyPoolChanged("anthropic", 3, 4, "irst"), "the key that is used next"


@pytest.mark.usefixtures("stored_keys")
async def test_a_key_that_fails_within_a_reply_is_replaced_and_the_text_rolled_back(start: Start) -> None:
    """The reply starts again with the next key; its tokens count as an estimate."""
    broken = say("half of it").error(type="authentication_error", message="invalid x-api-key", after=4)
    api = Api(first=[broken])
    talk = await begin(start, api)
    assert (await talk.say("one")).text == "fine"
    assert api.used == ["first", "second"]
    assert talk.all(ReplyRolledBack) == [ReplyRolledBack("AuthFailed")]
    assert [event.estimated for event in talk.all(UsageRecorded)] == [True, False]


@pytest.mark.usefixtures("stored_keys")
async def test_key_states_are_shared_by_all_sessions_and_later_runs(start: Start, home: Path) -> None:
    api = Api(first=[fault(401)], second=[fault(429, {"retry-after": "3600"})])
    one, two = await begin(start, api), await begin(start, api)
    await one.say("one")
    await two.say("two")
    assert api.used == ["first", "second", "third", "third"]
    (talk_of_two, _) = [event.healthy for event in two.all(KeyPoolChanged)][-2:]
    assert talk_of_two == 2, "the other session's display follows"
    await one.client.close()
    written = (home / ".local/state/odin/key-states.json").read_text()
    assert not any(key in written for key in (FIRST, SECOND, THIRD))
    later = KeyStates(home / ".local/state/odin/key-states.json")
    later.refresh()
    pool = KeyPool("anthropic", [ApiKey(key) for key in (FIRST, SECOND, THIRD)], later)
    assert pool.choose() == ApiKey(THIRD)
    assert pool.count().healthy == 1
    assert pool.count().next_s > 3000


def make_failure(status: int, message: str = "", wait: float | None = None, **more: str) -> errors.ProviderError:
    kinds = {401: errors.AuthFailed, 403: errors.AuthFailed, 402: errors.QuotaExhausted, 429: errors.RateLimited}
    return kinds.get(status, errors.Overloaded)(message, status=status, retry_after=wait, **more)


@each(
    ("error", "rest", "rejected"),
    [
        (make_failure(429), 1, False),
        (make_failure(429, wait=30), 30, False),
        (make_failure(429, wait=7200), 7200, False),
        (make_failure(402), 60, False),
        (make_failure(402, wait=900), 900, False),
        (make_failure(429, wait=1e12), 86_400, False),
        (make_failure(402, wait=1e12), 7 * 86_400, False),
        (make_failure(401, "invalid x-api-key"), 0, True),
        (errors.AuthFailed("refused", status=400, code="API_KEY_INVALID"), 0, True),
        (errors.AuthFailed("xai refused the key: Incorrect API key provided", status=400), 0, True),
        (make_failure(403, "google refused the key: Your API key was reported as leaked."), 0, True),
        (make_failure(403, "google refused the key: The API was never used, or it is disabled."), 60, False),
        (make_failure(401, code="account_deactivated"), 0, True),
        (make_failure(401, "try later"), 60, False),
        (make_failure(403, "not in your region", type="authentication_error"), 60, False),
        (make_failure(403, "this key was revoked"), 0, True),
        (errors.AuthFailed("the proxy wants a login", status=407), None, False),
        (make_failure(529), None, False),
        (errors.StreamCut("cut"), None, False),
    ],
)
def test_failure_sets_the_cooldown_or_rejection_of_its_key(
    error: errors.ProviderError, rest: float | None, rejected: bool
) -> None:
    """A `rest` of None means that the failure says nothing about the key, and the error is raised."""
    states = KeyStates(clock=lambda: 1000.0)
    pool = KeyPool("p", KEYS[:2], states)
    assert record(pool, pool.choose(), error) == (rest is not None)
    name = make_fingerprint("p", KEYS[0].value)
    assert (states.get_cooling_time(name), states.is_rejected(name)) == (rest or 0, rejected)
    assert pool.choose() == KEYS[0 if rest is None else 1]


KEYS = [ApiKey(f"key-of-the-test-{number}") for number in range(4)]


def record(pool: KeyPool, key: ApiKey, error: errors.ProviderError | None) -> bool:
    """Record the end of a request that no other request overtook."""
    return pool.record(key, error, KeyAttempts())


def test_cooldown_without_a_hint_doubles_up_to_a_minute_and_a_success_ends_it() -> None:
    now = 0.0
    states = KeyStates(clock=lambda: now)
    pool = KeyPool("p", KEYS[:2], states)
    cooldowns: list[float] = []
    for _ in range(8):
        record(pool, KEYS[0], make_failure(429))
        cooldowns.append(states.get_cooling_time(make_fingerprint("p", KEYS[0].value)))
        now += cooldowns[-1]
    assert cooldowns == [1, 2, 4, 8, 16, 32, 60, 60]
    record(pool, KEYS[0], make_failure(429, wait=3))
    assert states.get_cooling_time(make_fingerprint("p", KEYS[0].value)) == 60, "a short wait does not help any more"
    now += 60
    assert pool.count().healthy == 1, "usable again, but not proven"
    record(pool, KEYS[0], None)
    assert pool.count() == KeyPoolChanged("p", 2, 2, "st-0")


@each(
    ("settings", "used"),
    [
        ({}, "0 0 0 1 1 0"),
        ({"rotation": "per_request"}, "0 1 2 3 1 2"),
        ({"order": "smart"}, "0 0 0 2 2 2"),
        ({"order": "smart", "rotation": "per_request"}, "0 0 0 2 2 0"),
    ],
)
def test_rotation_and_order_choose_the_next_key(settings: dict[str, Any], used: str) -> None:
    """Key 0 cools down during the fourth and fifth request; of the other keys, key 2 has most of its limit left."""
    now = 0.0
    pool = KeyPool("p", KEYS, KeyStates(clock=lambda: now), **settings)
    for number, left in enumerate((90, 10, 50, 20)):
        pool.record_limits(KEYS[number], RateLimitChunk(requests_left=left, requests_limit=100))
    chosen: list[ApiKey] = []
    for turn in range(6):
        if turn == 3:
            record(pool, KEYS[0], make_failure(429, wait=10))
        now += 20 if turn == 5 else 0
        chosen.append(pool.choose())
    assert " ".join(str(KEYS.index(key)) for key in chosen) == used


def test_rate_limits_are_shared_between_sessions_and_expire_after_a_minute() -> None:
    """After a minute the limits are unknown again, and the keys take turns."""
    now = 0.0
    states = KeyStates(clock=lambda: now)
    for number, left in enumerate((10, 90, 50)):
        KeyPool("p", KEYS, states).record_limits(KEYS[number], RateLimitChunk(requests_left=left, requests_limit=100))
    pool = KeyPool("p", KEYS[:3], states, rotation="per_request", order="smart")
    assert [pool.choose(), pool.choose()] == [KEYS[1], KEYS[1]]
    now = 61.0
    assert [pool.choose(), pool.choose()] == [KEYS[2], KEYS[0]]


def test_request_uses_each_key_once_even_if_cooldowns_end() -> None:
    """Each answer takes half a second, and each of the five keys cools down for two seconds."""
    now = 0.0
    keys = [ApiKey(f"key-of-an-organization-{number}") for number in range(5)]
    pool, attempts = KeyPool("p", keys, KeyStates(clock=lambda: now)), KeyAttempts()
    used: list[ApiKey] = []
    with pytest.raises(errors.AllKeysCooling) as raised:
        while len(used) < 50:
            used.append(pool.choose(attempts))
            now += 0.5
            pool.record(used[-1], make_failure(429, wait=2), attempts)
    assert used == keys
    assert raised.value.retry_after == 0, "the retry waits at least as long as after other errors"
    with pytest.raises(errors.AllKeysCooling):
        pool.choose(attempts)
    assert pool.choose(KeyAttempts()) == keys[0]


@each(
    ("later", "chosen"),
    [(None, 1), (make_failure(429, wait=2), 1), (make_failure(401, "invalid key"), 1)],
)
def test_older_request_does_not_override_a_newer_failure(later: errors.ProviderError | None, chosen: int) -> None:
    """Two agents use the first key: one must wait for ten minutes, then the request of the other ends with `later`."""
    now = 0.0
    states = KeyStates(clock=lambda: now)
    pool, one, other = KeyPool("p", KEYS[:2], states), KeyAttempts(), KeyAttempts()
    assert pool.choose(one) == pool.choose(other) == KEYS[0]
    pool.record(KEYS[0], make_failure(429, wait=600), one)
    pool.record(KEYS[0], later, other)
    state = states.find(make_fingerprint("p", KEYS[0].value))
    assert state is not None and state.failures == 1 and state.until >= 600
    now = 599.0
    assert pool.choose() == KEYS[chosen]
    now = 86_401.0
    assert pool.choose() == KEYS[0], "a rejected key gets another chance after a day"


def test_cooldown_too_far_in_the_future_is_ignored() -> None:
    states = KeyStates(clock=lambda: 1000.0)
    for number, rejected in enumerate(("", "invalid")):
        name = make_fingerprint("p", KEYS[number].value)
        states.set(name, KeyState("p", until=1000.0 + 8 * 86_400, failures=1, rejected=rejected))
    pool = KeyPool("p", KEYS[:2], states, rotation="per_request")
    assert {pool.choose(), pool.choose()} == set(KEYS[:2])


def test_the_key_in_use_is_shown() -> None:
    """After a failure the next key is shown; with `per_request` it changes with each request."""
    expected: tuple[tuple[KeyRotation, list[str]], ...] = (
        ("on_failure", ["st-1"]),
        ("per_request", ["st-1", "st-2", "st-1"]),
    )
    for rotation, shown in expected:
        states, seen = KeyStates(), list[str]()
        pool = KeyPool("p", KEYS[:3], states, rotation=rotation)
        states.listen(lambda provider, pool=pool, seen=seen: seen.append(pool.count().key))
        pool.on_chosen = lambda pool=pool, seen=seen: seen.append(pool.count().key)
        record(pool, pool.choose(), make_failure(429, wait=60))
        assert pool.choose() == KEYS[1]
        assert (pool.choose(), pool.choose()) == ((KEYS[1],) * 2 if rotation == "on_failure" else (KEYS[2], KEYS[1]))
        assert seen == shown


def test_limits_of_one_process_do_not_hide_a_failure_in_another(tmp_path: Path) -> None:
    path = tmp_path / "states.json"
    here, there = KeyStates(path), KeyStates(path)
    ours, theirs = (KeyPool("p", KEYS[:2], states) for states in (here, there))
    ours.record_limits(ours.choose(), RateLimitChunk(requests_left=1, requests_limit=2))
    record(theirs, theirs.choose(), make_failure(401, "invalid key"))
    assert ours.choose() == KEYS[1]
    here.save()
    later = KeyStates(path)
    pool = KeyPool("p", KEYS[:2], later)
    assert (pool.choose(), pool.count().healthy) == (KEYS[1], 1)
    state = later.find(make_fingerprint("p", KEYS[0].value))
    assert state is not None and state.limits is not None and state.limits.requests_left == 1


def test_after_an_empty_reply_another_key_is_tried() -> None:
    pool = KeyPool("p", KEYS[:2], KeyStates())
    assert record(pool, pool.choose(), errors.EmptyReply("nothing")) is False
    assert (pool.choose(), pool.choose()) == (KEYS[1], KEYS[0])


def test_a_random_order_has_every_key() -> None:
    keys = [ApiKey(f"key-of-an-organization-{number}") for number in range(50)]
    pool = KeyPool("p", keys, KeyStates(), rotation="per_request", order="random")
    chosen = [pool.choose() for _ in keys]
    assert chosen != keys and sorted(chosen, key=keys.index) == keys


def test_single_key_is_used_even_after_a_rejection() -> None:
    states = KeyStates()
    pool = KeyPool("p", KEYS[:1], states)
    assert record(pool, pool.choose(), make_failure(401, "invalid key")) is False
    assert pool.choose() == KEYS[0]
    assert pool.count() == KeyPoolChanged("p", 0, 1, "st-0")


@each("content", ["", "[", "[]", '{"a": 1}', "\0\xff"])
def test_damaged_key_state_file_is_replaced(tmp_path: Path, content: str) -> None:
    path = tmp_path / "states.json"
    path.write_text(content, "latin-1")
    states = KeyStates(path)
    states.refresh()
    states.set("f", KeyState("p", "tail", failures=1))
    other = KeyStates(path)
    other.refresh()
    assert other.find("f") == KeyState("p", "tail", failures=1)


def test_listener_runs_in_its_own_loop_after_a_change_in_another_thread() -> None:
    states, heard = KeyStates(), list[tuple[str, bool]]()

    async def listen() -> None:
        noticed = asyncio.Event()
        loop = asyncio.get_running_loop()

        def note(provider: str) -> None:
            heard.append((provider, asyncio.get_running_loop() is loop))
            noticed.set()

        stop = states.listen(note)
        await asyncio.to_thread(lambda: asyncio.run(change("a")))
        await noticed.wait()
        stop()
        stop()

    async def change(name: str) -> None:
        states.set(name, KeyState("p", failures=1))

    asyncio.run(listen())
    asyncio.run(change("b"))
    assert heard == [("p", True)]


async def test_saving_does_not_block_the_loop_while_another_process_locks_the_file(tmp_path: Path) -> None:
    path = tmp_path / "states.json"
    states = KeyStates(path)
    with lock_file(path):
        states.set("a", KeyState("p", failures=1))
        saving = asyncio.create_task(states.flush())
        await asyncio.sleep(0.03)
        assert not saving.done()
        states.set("b", KeyState("p", failures=2))
        states.set("a", None)
    await saving
    states.save()
    other = KeyStates(path)
    other.refresh()
    assert (other.find("a"), other.find("b")) == (None, KeyState("p", failures=2))


@pytest.mark.usefixtures("stored_keys")
async def test_rate_limits_of_each_key_are_shown_and_saved(start: Start, home: Path) -> None:
    limits = {"anthropic-ratelimit-requests-limit": "50", "anthropic-ratelimit-requests-remaining": "40"}
    reset = {"anthropic-ratelimit-requests-reset": "2099-01-01T00:00:00Z"}
    api = Api(first=[say("ok").with_headers({**limits, **reset}), fault(401)], second=[say("ok").with_headers(limits)])
    talk = await begin(start, api)
    await talk.say("one")
    (shown,) = (await talk.client.get_info()).rate_limits
    assert (shown.provider, shown.key, shown.requests_left, shown.reset_s > 10_000) == ("anthropic", "irst", 40, True)
    status = dict(await gather_status(talk.client))
    assert status["rate limit of anthropic"].startswith("…irst: 40 of 50 requests left, reset in ")
    await talk.say("two")
    assert [event.key for event in talk.all(RateLimitUpdated)] == ["irst", "cond"]
    assert dict(await gather_status(talk.client))["rate limit of anthropic"] == "…cond: 40 of 50 requests left"
    await talk.client.close()
    new = await begin(start, api)
    (known,) = (await new.client.get_info()).rate_limits
    assert (known.key, known.requests_left, known.requests_limit) == ("cond", 40, 50), (
        "what is saved about the key in use"
    )
    await new.client.close()
    later = KeyStates(home / ".local/state/odin/key-states.json")
    later.refresh()
    first, second = (later.find(make_fingerprint("anthropic", key)) for key in (FIRST, SECOND))
    assert first is not None and first.rejected and first.limits is not None and first.limits.requests_left == 40
    assert second is not None and second.limits is not None and later.is_healthy(make_fingerprint("anthropic", SECOND))
