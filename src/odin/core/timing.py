"""The waits and clocks of a session, as values: a test passes its own instead of patching constants.

Work that would block the event loop, and with it the other sessions of the process, is done with `run_in_thread`.
"""

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct

T = TypeVar("T")


async def run_in_thread(work: Callable[[Callable[[], bool]], T], undo: Callable[[T], object] = lambda _: None) -> T:
    """Run slow file work in a thread.

    On cancellation, its `stopped` function returns True, the work is awaited, and `undo` called with its result; also
    if this wait is cancelled in turn.
    """
    stop = threading.Event()
    context = contextvars.copy_context()
    # No task: a loop that ends cancels all of them.
    future = asyncio.get_running_loop().run_in_executor(None, lambda: context.run(work, stop.is_set))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        stop.set()
        future.add_done_callback(lambda done: None if done.exception() else undo(done.result()))
        await asyncio.wait([future])
        raise


class Timing(Struct, frozen=True, kw_only=True):
    """The waits that are no settings, in seconds. Every session uses the defaults; a test passes its own."""

    clock: Callable[[], float] = time.time
    """Returns the time of day."""

    monotonic: Callable[[], float] = time.monotonic
    """Measures how long something takes."""

    git_grace_s: float = 0.1
    """How long the first request waits for the git status."""

    git_limit_s: float = 1.0
    """How long git may run for it."""

    search_s: float = 60.0
    """How long Grep and Glob may search."""

    command_output_s: float = 0.5
    """Between two lines that show what a command prints."""

    command_turn_s: float = 15.0
    """How long a command waits for the commands of other agents in its folder, before it runs beside them."""

    sandbox_idle_s: float = 60.0
    """How long a sandbox in which nothing runs is kept for the next command."""

    sandbox_start_s: float = 10.0
    """How long a sandbox may take to start or to exit."""

    sandbox_answer_s: float = 10.0
    """How long a sandbox may take to start a command. Then the command fails, and the next one gets a new sandbox."""

    replay_stall_s: float = 20.0
    """A replay is given up after this long without an event, in addition to the longest pause of the recording."""

    mcp_retry_pauses_s: tuple[float, float] = (0.5, 1.5)
    """Before the second and the third attempt to connect an MCP server."""

    mcp_refresh_s: float = 0.05
    """Before a list is fetched again: several notifications come together."""

    mcp_prompt_s: float = 20.0
    """How long a slash command waits for the prompt of its server, which may have to be started for it."""

    mcp_waiting_note_s: float = 1.0
    """How long a slash command waits for a server before the user is told."""

    mcp_goodbye_s: float = 1.0
    """How long a server with a URL may take to end its session."""

    lsp_cold_s: float = 1.5
    """How long an edit waits for the errors of a language server that has not answered yet."""

    lsp_warm_s: float = 0.28
    """The same for one that has. With the work on both sides of the wait, an edit takes at most 0.3 s longer."""

    lsp_settle_s: float = 10.0
    """How long a question waits for a language server that loads the project."""

    lsp_idle_s: float = 0.1
    """How long clangd must be idle until its errors are final."""

    lsp_refresh_s: float = 0.3
    """Before documents are reviewed again because a language server said so."""

    lsp_unused_s: float = 600.0
    """How long a language server that is asked nothing is kept. The next question starts it again."""

    lsp_exit_s: float = 0.3
    """How long the end of a process that reads no input may take to be noticed."""

    schedule_tick_s: float = 5.0
    """How often a session looks whether one of its schedules is due."""

    redis_answer_s: float = 5.0
    """How long Redis may take to answer."""

    redis_batch_s: float = 0.03
    """How long events are collected that go to Redis together."""

    redis_snapshot_s: float = 0.5
    """Between two snapshots of a session in Redis, at least; ten times what making one takes, if that is longer."""

    redis_beat_s: float = 10.0
    """Between two signs of life of a session. Redis forgets it after three of them."""

    redis_pauses_s: tuple[float, float] = (0.1, 30.0)
    """Before the second attempt to reach Redis, and the longest pause: each is twice the one before."""

    redis_absent_s: float = 30.0
    """How long Redis is away until nobody there can be asked any more."""

    redis_end_s: float = 1.0
    """How long a session that is closed waits for its last events to reach Redis."""


DEFAULT_TIMING = Timing()
