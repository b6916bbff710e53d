"""Calls that begin while their reply is still being written.

A call whose arguments are complete begins early when the rules let it run without asking anybody and when it can be
taken back: it only looks, or it changes files that are saved first. Calls begin in their order, and none begins after
one that did not, so that what they see is what they would have seen in order. When the reply is final a call that is
still the same counts; any other is discarded, and its files and what was learned by it are as if it had never run.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from itertools import count
from typing import Any

from msgspec import Struct

from odin.context.files import FileCache, Journal, journaled
from odin.core.errors import OdinError
from odin.core.event import CallSpeculated, DiscardReason
from odin.core.message import ToolCall
from odin.core.tool import Tool, ToolOutput, failed
from odin.engine.call.admitted import Admitted, Judged, Scope, fault
from odin.engine.early.discard import NOTHING, PutBack, not_back, report
from odin.engine.early.eligible import is_small, looks, named_files
from odin.engine.recorder import Recorder
from odin.session.files.changes import Ahead

SLOTS = 4
"""Calls of one agent that run at the same time, begun early or not."""


class Made(Struct, frozen=True):
    """What came of a call so far. `stopped`: it was kept from running at all, and this is the reason."""

    output: ToolOutput
    stopped: bool = False


class NotSaved(Exception):
    """The files that a call would change could not be saved first."""


Restore = Callable[[Ahead], Awaitable[PutBack]]
"""Puts the files of a call back as they were."""


class Begun:
    """One call that was begun early. People see how it goes on once it is `running` for all to see."""

    task: asyncio.Task[Made]

    def __init__(self, judged: Judged, files: FileCache | None) -> None:
        self.judged = judged
        self._files = files
        self.item = Admitted(judged.call, judged.tool, judged.args)
        self.paths = named_files(judged)
        self.since = time.monotonic()
        self.took_ms = 0
        self.started = False
        self.running: set[str] = set()
        self.journal = Journal()

    @property
    def call(self) -> ToolCall:
        return self.judged.call

    @property
    def made(self) -> Made | None:
        """What came of it, when it is over."""
        task = self.task
        over = task.done() and not task.cancelled() and task.exception() is None
        return task.result() if over else None

    async def outcome(self) -> Made:
        """What comes of a call that counts. What it saw and wrote is known from then on."""
        try:
            return await self.task
        finally:
            if self._files is not None:
                self._files.count(self.journal)


Make = Callable[[Begun, Scope], Awaitable[tuple[ToolOutput, bool]]]
"""Runs a call up to its bare output. True: it was stopped before it ran."""


class Speculator:
    """The early calls of one agent. It hears a reply as it comes and is asked for its calls when it is final.

    `allowed` judges a call without asking anybody. `heard` says whether a hook wants to see calls of that tool before
    they run. Without `restore` nothing that changes files begins early.
    """

    def __init__(
        self,
        *,
        recorder: Recorder,
        allowed: Callable[[ToolCall, Scope], Judged | None],
        heard: Callable[[Tool[Any]], bool],
        make: Make,
        files: FileCache | None = None,
        restore: Restore | None = None,
        enabled: bool = True,
    ) -> None:
        self.slots = asyncio.Semaphore(SLOTS)
        self._recorder = recorder
        self._allowed = allowed
        self._heard = heard
        self._make = make
        self._files = files
        self._restore = restore
        self._enabled = enabled
        self._scope: Scope | None = None
        self._order: list[str] = []
        self._complete: dict[str, ToolCall | None] = {}
        self._begun: dict[str, Begun] = {}
        self._pump: asyncio.Task[None] | None = None
        self._news = asyncio.Event()

    # --- while the reply is being written ---

    def listen(self, scope: Scope) -> "Speculator":
        """The calls that are heard from now on are of this turn."""
        self._scope = scope
        return self

    def appears(self, call_id: str) -> None:
        """The model has begun to write a call."""
        self._order.append(call_id)

    def complete(self, call_id: str, name: str, args: dict[str, Any] | None) -> None:
        """The arguments of a call are all there; None when they cannot be read."""
        if not self._enabled or self._scope is None:
            return
        self._complete[call_id] = None if args is None else ToolCall(call_id, name, args)
        self._news.set()
        if self._pump is None:
            self._pump = asyncio.create_task(self._begin_all(self._scope))

    async def _begin_all(self, scope: Scope) -> None:
        """Begin one call after the other as soon as each may. The first that may not ends it."""
        with suppress(OdinError):  # a log that takes no more is reported by what comes next
            for number in count():
                call = await self._next(number)
                judged = self._fit(call, scope) if call is not None else None
                if judged is None:
                    return
                if judged.tool.kind == "edit" and not await self._went_well():
                    return
                await self.slots.acquire()
                self._begin(judged, scope)
                if judged.tool.kind == "edit":
                    return

    async def _next(self, number: int) -> ToolCall | None:
        while len(self._order) <= number or self._order[number] not in self._complete:
            self._news.clear()
            await self._news.wait()
        return self._complete[self._order[number]]

    def _begin(self, judged: Judged, scope: Scope) -> None:
        call = judged.call
        try:
            self._recorder.emit(CallSpeculated(call.id, judged.tool.name, call.args), scope.agent)
        except BaseException:
            self.slots.release()
            raise
        begun = self._begun[call.id] = Begun(judged, self._files)
        begun.task = asyncio.create_task(self._run(begun, scope))
        begun.task.add_done_callback(lambda task: self.slots.release())

    async def _run(self, begun: Begun, scope: Scope) -> Made:
        with journaled(begun.journal):
            try:
                return Made(*await self._make(begun, scope))
            except NotSaved:
                raise
            except Exception as error:  # as for any call: whatever a tool raises is its result
                return Made(failed(fault(begun.judged.tool, error)))
            finally:
                begun.took_ms = int((time.monotonic() - begun.since) * 1000)

    async def _went_well(self) -> bool:
        """Wait for the calls before a change. False when one of them is a reason not to make it."""
        await _over(self._begun.values())
        results = [(begun.judged.tool.kind, begun.made) for begun in self._begun.values()]
        return all(made is not None and not (kind == "execute" and made.output.is_error) for kind, made in results)

    # --- which calls may ---

    def _fit(self, call: ToolCall, scope: Scope) -> Judged | None:
        judged = self._allowed(call, scope)
        if judged is None or not judged.tool.early(judged.args):
            return None
        if judged.tool.exclusive and judged.tool.kind != "edit":
            return None
        if not looks(judged.tool, judged.args, scope) and not self._reversible(judged):
            return None
        earlier = [(begun.judged.tool.name, begun.call.args) for begun in self._begun.values()]
        if scope.guard.would_refuse([*earlier, (judged.tool.name, call.args)]):
            return None
        taken = {path for begun in self._begun.values() for path in begun.paths}
        return judged if taken.isdisjoint(named_files(judged)) else None

    def _reversible(self, judged: Judged) -> bool:
        """Whether it is a change of files that can be saved first, which nobody wants to see before it is made."""
        tool, paths = judged.tool, judged.subject.paths
        if self._restore is None or tool.kind != "edit" or not paths or self._heard(tool):
            return False
        return all(is_small(path) for path in paths)

    # --- when the reply is final ---

    async def settle(self, calls: Sequence[ToolCall]) -> None:
        """These are the calls of the reply. What is not among them, or not as it was begun, is discarded."""
        await self._stop_pump()
        final = {call.id: call for call in calls}
        for call_id, begun in list(self._begun.items()):
            if call_id not in self._begun:
                return
            if call_id not in final:
                await self._discard_from(begun, "filtered")
            elif (final[call_id].name, final[call_id].args) != (begun.call.name, begun.call.args):
                await self._discard_from(begun, "args_drift")
            elif begun.judged.tool.kind == "edit":
                await _over([begun])
                if begun.made is None:
                    await self._discard_from(begun, "filtered")

    def holds(self, call_id: str) -> Judged | None:
        """How a call was judged that is begun and may yet count."""
        begun = self._begun.get(call_id)
        return begun.judged if begun is not None else None

    async def let_go(self, call_id: str, reason: DiscardReason) -> None:
        """This call does not count, and so none does that was begun after it."""
        begun = self._begun.get(call_id)
        if begun is not None:
            await self._discard_from(begun, reason)

    async def agree(self, item: Admitted) -> None:
        """This is what is going to run. Whoever changed the arguments has made it another call."""
        begun = self._begun.get(item.call.id)
        if begun is not None and (begun.call.args != item.call.args or begun.judged.tool is not item.tool):
            await self._discard_from(begun, "args_drift")

    def promote(self, call_id: str) -> Begun | None:
        """The call counts from now on. Whoever asks waits for what comes of it."""
        begun = self._begun.pop(call_id, None)
        if begun is not None:
            begun.running.add(call_id)
        return begun

    # --- taking back ---

    async def take_back(self, reason: DiscardReason) -> None:
        """None of the calls that were begun counts. What was heard of the reply is forgotten."""
        await self._stop_pump()
        if self._begun:
            await _to_its_end(self._discard(list(self._begun.values()), reason))
        self._order, self._complete = [], {}

    async def _stop_pump(self) -> None:
        pump, self._pump = self._pump, None
        if pump is not None:
            pump.cancel()
            await asyncio.wait([pump])

    async def _discard_from(self, first: Begun, reason: DiscardReason) -> None:
        begun = list(self._begun.values())
        await _to_its_end(self._discard(begun[begun.index(first) :], reason))

    async def _discard(self, calls: Sequence[Begun], reason: DiscardReason) -> None:
        """The last one first, so that each finds what it left."""
        done = {begun.call.id for begun in calls if begun.made is not None}
        for begun in calls:
            begun.task.cancel()
        await _over(calls)
        failure: OdinError | None = None
        for begun in reversed(calls):
            self._begun.pop(begun.call.id, None)
            if self._files is not None:
                self._files.take_back(begun.journal)
            try:
                await self._report(begun, reason, completed=begun.call.id in done)
            except OdinError as error:  # of the log: first the files of all of them
                failure = failure or error
        if failure is not None:
            raise failure

    async def _report(self, begun: Begun, reason: DiscardReason, *, completed: bool) -> None:
        agent = self._scope.agent if self._scope else ""
        early = self._recorder.state.changes.begun_early(agent, begun.call.id)
        back = NOTHING
        if early is not None and early.saved is not None and self._restore is not None:
            try:
                back = await self._restore(early)
            except (OdinError, OSError) as error:
                back = not_back(early, error)
        call = CallSpeculated(begun.call.id, begun.judged.tool.name, begun.call.args)
        report(self._recorder, agent, call, reason, back, started=begun.started, completed=completed)


async def _over(calls: Iterable[Begun]) -> None:
    tasks = [begun.task for begun in calls]
    if tasks:
        await asyncio.wait(tasks)


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Do it whatever happens: whoever is cancelled meanwhile hears of it when it is done."""
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        task.exception()
        raise asyncio.CancelledError
    task.result()
