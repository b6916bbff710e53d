"""Waits for what other threads, tasks and processes do: with one limit, which only a defect reaches.

A wait ends with its event: await it within `TimeLimit`, or look at a condition again and again where nothing tells of
a change. A wait that reaches the limit fails and says what it waited for and what was there instead. Long waits are
listed at the end of the run (`tests/conftest.py`).
"""

import asyncio
import inspect
import linecache
import os
import select
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any, Self, TypeVar, overload

import msgspec

LIMIT_S = 60.0
"""The limit of every wait, also on a busy machine. It is no statement about how long something may take."""
LONG_S = 5.0
"""Waits that take longer are listed."""
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.001, 0.02
_MAX_VALUE_LENGTH = 2_000
_FOLDER = Path(__file__).parent

T = TypeVar("T")

Text = str | Callable[[], str]
"""What is awaited and what is there instead; a function says it when the limit is reached."""


def wait_until(condition: Callable[[], T], what: Text = "", *, pause: Callable[[float], object] = time.sleep) -> T:
    """Block until the condition holds and return its value.

    `pause` waits for a change, but no longer than it is told. Without `what`, a failure shows the condition itself.
    """
    awaited = what or (lambda: describe_condition(condition))
    with record_wait(awaited):
        began = time.monotonic()
        while not (value := condition()):
            pause(_choose_pause(time.monotonic() - began, awaited))
        return value


@overload
async def until(
    condition: Callable[[], Awaitable[T]], what: Text = "", *, pause: Callable[[float], Awaitable[object]] = ...
) -> T: ...
@overload
async def until(
    condition: Callable[[], T], what: Text = "", *, pause: Callable[[float], Awaitable[object]] = ...
) -> T: ...
async def until(
    condition: Callable[[], Any], what: Text = "", *, pause: Callable[[float], Awaitable[object]] = asyncio.sleep
) -> Any:
    """Wait like `wait_until`, while other tasks run. The condition may be asynchronous."""
    awaited = what or (lambda: describe_condition(condition))
    with record_wait(awaited):
        began = time.monotonic()
        while True:
            value = condition()
            if inspect.isawaitable(value):
                value = await value
            if value:
                return value
            await pause(_choose_pause(time.monotonic() - began, awaited))


def wait_for_end(pid: int) -> None:
    """Block until a process has ended, whoever its parent is. Raise ProcessLookupError if it does not exist."""
    pidfd = os.pidfd_open(pid)
    try:
        with record_wait(f"the end of process {pid}"):
            assert select.select([pidfd], [], [], LIMIT_S)[0], _explain(f"the end of process {pid}")
    finally:
        os.close(pidfd)


class TimeLimit:
    """`async with TimeLimit():` fails with `what`, or with the line that waits, when its body reaches the limit."""

    def __init__(self, what: Text = "") -> None:
        self._what = what
        self._scope = asyncio.timeout(LIMIT_S)
        self._line = ""
        self._began = 0.0

    async def __aenter__(self) -> Self:
        caller = sys._getframe(1)
        self._line = _quote_line(caller.f_code, caller.f_lineno)
        self._began = time.monotonic()
        await self._scope.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        line = _find_line(trace) or self._line
        _note_wait(self._what or self._line, self._began)
        try:
            await self._scope.__aexit__(kind, error, trace)
        except TimeoutError:
            raise AssertionError(_explain(self._what or line)) from error

    def extend(self) -> None:
        """Start the wait anew, because something happened."""
        _note_wait(self._what or self._line, self._began)
        self._began = time.monotonic()
        self._scope.reschedule(asyncio.get_running_loop().time() + LIMIT_S)


async def within_limit(awaitable: Awaitable[T], what: Text = "") -> T:
    """Return the result of the awaitable, and cancel it at the limit."""
    async with TimeLimit(what or (lambda: repr(awaitable))):
        return await awaitable


async def find_next(stream: AsyncIterator[Any], is_wanted: Callable[[Any], bool], what: Text = "") -> Any:
    """Return the next item of the stream that is wanted. The limit is for the time between two items."""
    seen: list[Any] = []

    def describe() -> str:
        awaited = what() if callable(what) else what or describe_condition(is_wanted)
        return f"{awaited}; these came instead: {_shorten(repr(seen))}"

    async with TimeLimit(describe) as limit:
        async for item in stream:
            if is_wanted(item):
                return item
            seen.append(item)
            limit.extend()
    raise AssertionError(f"the stream ended before {describe()}")


# --- long waits ---


class LongWait(msgspec.Struct, frozen=True):
    """A wait that took more than `LONG_S`, in the test with this id."""

    test: str
    awaited: str
    seconds: float


_long_waits: list[LongWait] = []


def take_long_waits() -> list[LongWait]:
    """Return the long waits that were not returned yet."""
    taken = _long_waits[:]
    del _long_waits[: len(taken)]
    return taken


@contextmanager
def record_wait(awaited: Text) -> Generator[None]:
    """Record the body as a wait."""
    began = time.monotonic()
    try:
        yield
    finally:
        _note_wait(awaited, began)


def _note_wait(awaited: Text, began: float) -> None:
    seconds = time.monotonic() - began
    if seconds > LONG_S:
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
        text = awaited() if callable(awaited) else awaited
        _long_waits.append(LongWait(test, _shorten(text.splitlines()[0] if text else "", 200), round(seconds, 1)))


# --- descriptions ---


def _choose_pause(waited: float, awaited: Text) -> float:
    """Return how long to pause: short at first, then longer, which leaves the processor to what is awaited."""
    if waited > LIMIT_S:
        raise AssertionError(_explain(awaited))
    return min(max(waited / 10, _FIRST_PAUSE_S), _LAST_PAUSE_S)


def _explain(awaited: Text) -> str:
    return f"waited {LIMIT_S:g} s for {awaited() if callable(awaited) else awaited}"


def describe_condition(condition: Callable[..., object]) -> str:
    """Return the source of the condition and the values of its variables."""
    if not inspect.isfunction(condition):
        return repr(condition)
    values = [
        f"{name} = {_shorten(repr(value))}" for name, value in inspect.getclosurevars(condition).nonlocals.items()
    ]
    return "\n  ".join([_quote_body(condition.__code__), *values])


def _quote_body(code: CodeType) -> str:
    """Return the source of a lambda, and of another function the name."""
    if code.co_name != "<lambda>":
        return f"`{code.co_name}` ({_format_place(code, code.co_firstlineno)})"
    starts: list[tuple[int, int]] = []
    ends: list[tuple[int, int]] = []
    for line, last_line, column, last_column in code.co_positions():
        if None not in (line, last_line, column, last_column) and (line, column) != (last_line, last_column):
            starts.append((line or 0, column or 0))
            ends.append((last_line or 0, last_column or 0))
    if not starts:
        return _quote_line(code, code.co_firstlineno)
    (first, start), (last, end) = min(starts), max(ends)
    lines = [linecache.getline(code.co_filename, number).encode() for number in range(first, last + 1)]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    return f"`{' '.join(line.decode().strip() for line in lines)}` ({_format_place(code, first)})"


def _find_line(trace: TracebackType | None) -> str:
    """Return the innermost line of a test in the traceback."""
    found = ""
    while trace is not None:
        code = trace.tb_frame.f_code
        if _FOLDER in Path(code.co_filename).parents and code.co_filename != __file__:
            found = _quote_line(code, trace.tb_lineno)
        trace = trace.tb_next
    return found


def _quote_line(code: CodeType, line: int) -> str:
    return f"`{linecache.getline(code.co_filename, line).strip()}` ({_format_place(code, line)})"


def _format_place(code: CodeType, line: int) -> str:
    return f"{os.path.relpath(code.co_filename, _FOLDER.parent)}:{line}"


def _shorten(text: str, length: int = _MAX_VALUE_LENGTH) -> str:
    return text if len(text) <= length else f"{text[:length]}…"
