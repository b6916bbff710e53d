"""Prompts of an open session that are due again and again (`/loop every`), or once (`/at`).

They belong to the session and end with its process: a resumed one says what was missed and asks nothing, and only a
time that is still ahead holds. What they cost is bounded by the number of runs, and by the budget of the session. The
clock is looked at every few seconds, so that a clock that is set and a computer that sleeps make nothing wrong.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from msgspec.structs import replace

from odin.core.errors import OdinError, UsageError
from odin.core.event import ScheduleChanged, Warned
from odin.core.op import AddSchedule, Prompt
from odin.core.schedule import SessionSchedule, find_next, make_schedule
from odin.core.timing import Timing
from odin.engine.recorder import Recorder

USUAL_RUNS = 50
MAX_RUNS = 1000
MAX_SCHEDULES = 20

_ENDING_REASONS = {
    "interrupted": "You interrupted it.",
    "error_max_budget_usd": "The budget of the session is used up.",
}
"""What ends a schedule, by how its last turn has ended."""


class SessionSchedules:
    """The schedules of a session. While it `is_busy`, runs of an interval are left out.

    `is_lost` is True for one of an earlier run that will be ended with the first op.
    """

    def __init__(
        self,
        recorder: Recorder,
        timing: Timing,
        submit: Callable[[Prompt], Awaitable[bool]],
        *,
        is_busy: Callable[[], bool],
        is_lost: Callable[[str], bool],
    ) -> None:
        self._recorder = recorder
        self._timing = timing
        self._submit = submit
        self._is_busy = is_busy
        self._is_lost = is_lost
        self._task: asyncio.Task[None] | None = None

    def add(self, op: AddSchedule) -> None:
        state, now = self._recorder.state, self._timing.clock()
        if not op.text.strip():
            raise UsageError("A schedule needs a prompt.")
        if len(state.schedules) >= MAX_SCHEDULES:
            raise UsageError(f"There are {MAX_SCHEDULES} schedules already.", "End one with `/loop off N`.")
        if not 0 <= op.limit <= MAX_RUNS:
            raise UsageError(f"The limit must be from 1 to {MAX_RUNS}, not {op.limit}.")
        schedule = make_schedule(now, at=op.at, every=op.every)
        due = find_next(schedule, now, now) or now
        limit = 1 if schedule.at else op.limit or USUAL_RUNS
        item = SessionSchedule(str(state.schedule_count + 1), op.text, schedule, op.mode or state.mode, limit, due)
        self._recorder.emit(ScheduleChanged(item, is_on=True))
        self.start()

    def remove(self, id: str, reason: str = "") -> bool:
        """End one schedule, or all of them. False if there is none."""
        found = [item for item in self._recorder.state.schedules.values() if id in ("", item.id)]
        for item in found:
            self._recorder.emit(ScheduleChanged(item, is_on=False, reason=reason))
        return bool(found)

    def start(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while schedules := self._recorder.state.schedules:
            for item in [item for item in schedules.values() if not self._is_lost(item.id)]:
                try:
                    await self._look_at(item, self._timing.clock())
                except OdinError as error:
                    self._end(item, error.describe())
            await asyncio.sleep(self._timing.schedule_tick_s)

    async def _look_at(self, item: SessionSchedule, now: float) -> None:
        """Submit the prompt if it is due, and end the schedule if there is a reason to."""
        turns = self._recorder.state.turns
        last = next((turn for turn in reversed(turns) if turn.id == item.prompt_id), None) if item.runs else None
        if last is not None and last.reason in _ENDING_REASONS:
            self._end(item, _ENDING_REASONS[last.reason])
            return
        if item.runs >= item.limit:
            if last is None or last.reason is not None:
                self._end(item, f"It has run {item.limit} times.")
            return
        every = item.schedule.every
        if item.due > now:
            if every and item.due - now > every:  # the clock was set back
                self._recorder.emit(ScheduleChanged(replace(item, due=now + every), is_on=True))
            return
        if every and self._is_busy():
            self._recorder.emit(
                ScheduleChanged(replace(item, due=find_next(item.schedule, item.due, now) or now), is_on=True)
            )
            return
        item = replace(item, runs=item.runs + 1, due=find_next(item.schedule, item.due, now) or item.due)
        prompt = Prompt(item.prompt_id, item.text, item.mode, delivery="queue", source="schedule")
        await self._submit(prompt)
        self._recorder.emit(ScheduleChanged(item, is_on=bool(every)))

    def _end(self, item: SessionSchedule, reason: str) -> None:
        with suppress(OdinError):  # the next turn reports a log that cannot be written
            self._recorder.emit(ScheduleChanged(item, is_on=False, reason=reason))
            self._recorder.emit(Warned(f"{item.describe()} has ended. {reason}", "info"))
