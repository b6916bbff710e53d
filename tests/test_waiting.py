import asyncio
import re
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from odin.testing import ScriptedServer
from tests import waiting
from tests.waiting import TimeLimit, find_next, take_long_waits, until, wait_until, within_limit

TESTS = Path(__file__).parent


def test_waits_of_the_scripted_server_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "LONG_S", 0.01)
    with ScriptedServer([]) as server, pytest.raises(TimeoutError, match="Only 0 of 1"):
        server.wait_for(1, timeout=0.05)
    monkeypatch.undo()
    assert [wait.awaited for wait in take_long_waits()] == ["requests of the scripted server: wait_for(1,)"]


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "LIMIT_S", 0.05)


async def test_a_wait_returns_what_the_condition_returned() -> None:
    found: list[str] = []
    threading.Thread(target=found.append, args=("it",)).start()
    assert wait_until(lambda: found and found[0]) == "it"
    asyncio.get_running_loop().call_soon(found.append, "more")
    assert await until(lambda: found[1:]) == ["more"]
    assert await within_limit(asyncio.sleep(0, "result")) == "result"


def test_a_failed_wait_shows_its_condition_and_what_was_there_instead(limit: None) -> None:
    seen, wanted = ["a", "b"], 3
    line = sys._getframe().f_lineno + 2
    with pytest.raises(AssertionError) as failed:
        wait_until(lambda: len(seen) >= wanted and seen[0] == "a")
    assert str(failed.value).splitlines() == [
        f'waited 0.05 s for `len(seen) >= wanted and seen[0] == "a"` (tests/test_waiting.py:{line})',
        "  seen = ['a', 'b']",
        "  wanted = 3",
    ]
    with pytest.raises(AssertionError, match=r"^waited 0.05 s for a third letter, not \['a', 'b'\]$"):
        wait_until(lambda: len(seen) >= wanted, lambda: f"a third letter, not {seen}")
    with pytest.raises(AssertionError, match=r"built-in method is_set|Event.is_set"):
        wait_until(threading.Event().is_set)


async def test_a_failed_wait_of_a_task_says_where_it_waits(limit: None) -> None:
    with pytest.raises(AssertionError, match=r"^waited 0.05 s for `await asyncio.Event\(\).wait\(\)` \(tests/test_w"):
        async with TimeLimit():
            await asyncio.Event().wait()
    with pytest.raises(AssertionError, match=r"^waited 0.05 s for a bird$"):
        await within_limit(asyncio.Event().wait(), "a bird")
    with pytest.raises(AssertionError, match=r"^waited 0.05 s for `False` "):
        await until(lambda: False)


async def test_an_error_in_the_body_of_a_limit_stays_what_it_is() -> None:
    with pytest.raises(TimeoutError, match="of the product"):
        async with TimeLimit():
            raise TimeoutError("of the product")


async def test_the_next_item_of_a_kind_and_what_came_instead(limit: None) -> None:
    async def count() -> AsyncIterator[int]:
        for number in range(4):
            yield number
        await asyncio.Event().wait()

    numbers = count()
    assert await find_next(numbers, lambda number: number == 2) == 2
    with pytest.raises(AssertionError, match=r"(?s)waited 0.05 s for `number == 9` .*instead: \[3\]$"):
        await find_next(numbers, lambda number: number == 9)
    with pytest.raises(AssertionError, match=r"the stream ended before a five; these came instead: \[\]"):
        await find_next(count_to_none(), lambda number: number == 5, "a five")


async def count_to_none() -> AsyncIterator[int]:
    for number in ():
        yield number


async def test_a_wait_records_itself_when_it_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "LONG_S", 0.01)
    looks = iter([False] * 10 + [True])
    wait_until(lambda: next(looks), "the tenth look")
    async with TimeLimit():
        await asyncio.sleep(0.02)
    first, second = take_long_waits()
    monkeypatch.undo()
    assert first.awaited == "the tenth look"
    assert second.awaited.startswith("`async with TimeLimit():` (tests/test_waiting.py:")
    assert {first.test, second.test} == {"tests/test_waiting.py::test_a_wait_records_itself_when_it_is_long"}
    assert take_long_waits() == []


_LIMIT = re.compile(
    r"asyncio\.(?:timeout|wait_for)\((?:(?:(?!uniform).)*, )?([0-9.]+)\)|time\.monotonic\(\) \+ ([0-9.]+)\b(?! \+)"
)


def test_no_wait_has_a_limit_of_its_own() -> None:
    """Others are shorter than a second, which is no limit, or longer, for whole runs of a program."""
    found = [
        f"{path.relative_to(TESTS)}: {match[0]}"
        for path in TESTS.rglob("*.py")
        for match in _LIMIT.finditer(path.read_text())
        if 1 <= float(match[1] or match[2]) <= 60
    ]
    assert found == [], "use tests/waiting.py"
