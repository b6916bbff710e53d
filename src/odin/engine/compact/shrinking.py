"""Makes a conversation shorter: cheap pruning first, then a summary in the background, then whatever it takes.

A summary is made beside the running turn and waits, ready. It is applied before a later request, when no call
is open, or at once when the agent is idle. Only when the next request would not fit does the turn wait.
"""

import asyncio
from contextlib import suppress

from odin.context.compact import local_summary, quotes_of, tail_start
from odin.core.compactor import Compactor
from odin.core.errors import CompactionFailed, OdinError
from odin.core.event import (
    ActivityChanged,
    AnyEvent,
    CompactionChanged,
    CompactionProfile,
    CompactionTrigger,
    Warned,
)
from odin.core.hook import HookCall
from odin.core.message import Message
from odin.engine.call.admitted import Scope
from odin.engine.compact.compaction import WindowKeeper
from odin.engine.compact.condensing import ReadySummary, archived, earlier_of, event_of, facts_of, failure
from odin.engine.compact.pruning import Pruner
from odin.engine.compact.summariser import Weak, summarise
from odin.engine.kit import Planner
from odin.session.shrink import in_view

FAILURES = 2
PAUSE = 3
"""After so many failures in a row, summaries are not asked for during so many turns."""

ATTEMPTS = 3
TAILS = (0.5, 0.25, 0.0)
"""The share of the free window that stays word for word, at the first attempt and at those after it."""

_FEWEST = 4


class Shrinking:
    def __init__(self, keeper: WindowKeeper) -> None:
        self.pruner = Pruner(keeper)
        self._keeper = keeper
        self._means = keeper.means
        self._ready: ReadySummary | None = None
        self._task: asyncio.Task[None] | None = None
        self._trigger: CompactionTrigger = "auto"
        self._failures = 0
        self._paused_until = 0
        self._permitted = False
        self._objection = ""

    @property
    def running(self) -> bool:
        return self._ready is not None or (self._task is not None and not self._task.done())

    @property
    def _paused(self) -> bool:
        return self._keeper.turn < self._paused_until

    def _messages(self) -> tuple[Message, ...]:
        return self._keeper.thread.finished()

    # --- before a request ---

    async def make_room(self, planner: Planner, scope: Scope, size: int) -> None:
        """Something has to be done about the size; the next request must fit, if the window is known."""
        budget = self._keeper.budget(planner)
        if self._means.own is None:
            self.pruner.usual(planner)
            size = self._keeper.size(planner)
            if not self._keeper.crowded(planner, size):
                return
        if not self.running and not self._paused:
            await self._begin(planner, scope, "auto", "", "continuation")
        if budget and size > budget:
            await self.must_fit(planner, scope, "auto")
        elif self._overfull() and not await self.apply(scope):
            await self._at_once(planner, scope, "auto", TAILS[0], asks=False)

    def _overfull(self) -> bool:
        """Whether there are so many messages that the next summary cannot be waited for."""
        most = self._means.settings.max_messages
        return 0 < most < len(self._messages()) // 2

    async def must_fit(self, planner: Planner, scope: Scope, trigger: CompactionTrigger) -> None:
        """Shorten until the next request fits, in at most three attempts. Raises CompactionFailed."""
        for attempt in range(ATTEMPTS):
            self.pruner.cut_giants(planner)
            if attempt == 0 and self._task is not None and not self._task.done():
                await self._wait_for_it()
            if not await self.apply(scope):
                asks = attempt == 0 and not self._paused and self._task is None
                await self._at_once(planner, scope, trigger, TAILS[attempt], asks=asks)
            self._task = self._task if self._task is not None and not self._task.done() else None
            if attempt:
                self.pruner.prune(planner, 0, images=0)
            if self._fits(planner):
                return
        raise self.given_up(planner)

    def _fits(self, planner: Planner) -> bool:
        return self._keeper.size(planner) <= self._keeper.budget(planner)

    async def now(self, planner: Planner, scope: Scope, trigger: CompactionTrigger) -> bool:
        """One compaction here and now; whether there is less to send."""
        before = self._keeper.size(planner)
        if self._task is not None and not self._task.done():
            await self._wait_for_it()
        if not await self.apply(scope):
            await self._at_once(planner, scope, trigger, TAILS[0], asks=not self._paused)
        return self._keeper.size(planner) < before

    async def _wait_for_it(self) -> None:
        """The running summary, for as long as one may take. An interrupt leaves it running."""
        assert self._task is not None
        self._emit(ActivityChanged("compacting"))
        await asyncio.wait([self._task], timeout=self._means.settings.timeout_s)

    async def _at_once(
        self, planner: Planner, scope: Scope, trigger: CompactionTrigger, tail: float, *, asks: bool
    ) -> None:
        """Summarise while the turn waits: by the model if it may be asked, else by what is known."""
        if await self._denied(scope, "", trigger):
            return
        self._emit(ActivityChanged("compacting"))
        self._emit(CompactionChanged("started", trigger))
        cut = self._cut(planner, tail, self._means.settings.keep)
        text = ""
        if asks:
            try:
                text = await self._asked(planner, cut, "")
            except OdinError as error:
                self._failed(error, trigger, final=False)
            except asyncio.CancelledError:
                self._emit(CompactionChanged("cancelled", trigger))
                raise
        text = text or self._known(planner, scope, cut)
        lineage = self._keeper.thread.lineage
        self._ready = ReadySummary(text, cut, lineage, trigger, "continuation")
        await self.apply(scope)

    # --- in the background ---

    async def begin_by_hand(self, planner: Planner, scope: Scope, focus: str, profile: CompactionProfile) -> bool:
        if self.running or len(self._messages()) < 2:
            return False
        busy = self._means.recorder.state.executing
        chosen: CompactionProfile = profile if profile != "auto" else "continuation" if busy else "archival"
        return await self._begin(planner, scope, "manual", focus, chosen)

    async def _begin(
        self, planner: Planner, scope: Scope, trigger: CompactionTrigger, focus: str, profile: CompactionProfile
    ) -> bool:
        tail, turns = (TAILS[0], self._means.settings.keep) if profile == "continuation" else (TAILS[1], 1)
        cut = self._cut(planner, tail, turns)
        if cut < (1 if trigger == "manual" else _FEWEST) or await self._denied(scope, focus, trigger):
            return False
        self._trigger = trigger
        self._emit(CompactionChanged("started", trigger))
        made = self._make(planner, scope, cut, trigger, focus, profile)
        self._task = asyncio.create_task(made)
        self._means.tasks.add(self._task)
        self._task.add_done_callback(self._means.tasks.discard)
        return True

    async def _make(
        self,
        planner: Planner,
        scope: Scope,
        cut: int,
        trigger: CompactionTrigger,
        focus: str,
        profile: CompactionProfile,
    ) -> None:
        lineage = self._keeper.thread.lineage
        try:
            text = await self._asked(planner, cut, focus) or self._known(planner, scope, cut)
        except OdinError as error:
            goes_on = trigger == "manual" or isinstance(error, Weak)
            self._failed(error, trigger, final=not goes_on)
            text = self._known(planner, scope, cut) if goes_on else ""
        if text and self._keeper.thread.lineage == lineage:
            self._ready = ReadySummary(text, cut, lineage, trigger, profile)
            if not self._means.recorder.state.executing and not self._keeper.agent:
                with suppress(OdinError):  # a log that cannot be written is told by the turn that needs it
                    await self.apply(scope)

    def cancel(self) -> bool:
        """Stop what is being made and drop what waits. False when there is neither."""
        if not self.running:
            return False
        trigger = self._ready.trigger if self._ready is not None else self._trigger
        if self._task is not None:
            self._task.cancel()
        self._task = self._ready = None
        self._permitted = False
        self._emit(CompactionChanged("cancelled", trigger))
        return True

    def _failed(self, error: OdinError, trigger: CompactionTrigger, *, final: bool) -> None:
        self._emit(CompactionChanged("failed", trigger, error.sentence(), final))
        self._failures += 1
        if self._failures >= FAILURES:
            self._failures = 0
            self._paused_until = self._keeper.turn + PAUSE + 1
            self._emit(
                Warned(
                    f"Summaries failed {FAILURES} times ({error}), so none are asked for during {PAUSE} turns. "
                    "Until then older results are removed, and what is known is noted down without a model."
                )
            )

    # --- what a summary is made of ---

    def _cut(self, planner: Planner, tail: float, turns: int) -> int:
        messages = self._messages()
        size = self._keeper.measure.of
        return tail_start(messages, size, room=int(self._keeper.free(planner) * tail), turns=turns)

    def _most(self, planner: Planner) -> int:
        """Tokens a summary may have."""
        return max(300, min(4_000, self._keeper.free(planner) * 15 // 100))

    async def _asked(self, planner: Planner, cut: int, focus: str) -> str:
        """The model's summary of the first messages. Raises OdinError when there is none that is good enough."""
        older, earlier = self._messages()[:cut], earlier_of(self._keeper)
        quotes = quotes_of(self._keeper.thread.summary)
        try:
            async with asyncio.timeout(self._means.settings.timeout_s):
                if self._means.own is not None:
                    text = await _asked_of(self._means.own, older, earlier)
                else:
                    said = f"{earlier}\n\n{quotes}" if quotes else earlier
                    text = await summarise(self._keeper, planner, older, said, focus, self._most(planner))
        except TimeoutError as error:
            raise OdinError(f"The summary took longer than {self._means.settings.timeout_s:g} s.") from error
        self._failures = 0
        return text

    def _known(self, planner: Planner, scope: Scope, cut: int) -> str:
        return local_summary(self._messages()[:cut], facts_of(self._keeper, scope), self._most(planner))

    # --- applying ---

    async def apply(self, scope: Scope) -> bool:
        """Put a ready summary in the place of the messages it stands for. False when there is none that fits."""
        thread = self._keeper.thread
        if thread.open_calls:
            return False
        ready, self._ready = self._ready, None
        if ready is None or ready.lineage != thread.lineage or ready.cut < 1:
            return False
        messages = self._messages()
        sketch = event_of(self._keeper, ready, messages, scope, str(self._means.folder / "history-1.md"))
        if sketch.tokens_after >= sketch.tokens_before:
            self._emit(CompactionChanged("failed", ready.trigger, "A summary would not be shorter."))
            return False
        archive = archived(self._keeper, messages[: len(messages) - sketch.kept])
        event = event_of(self._keeper, ready, messages, scope, archive)
        self._emit(event)
        self._permitted = False
        self._means.forget(in_view(self._messages(), (file.path for file in self._means.files())))
        self._emit(CompactionChanged("succeeded", ready.trigger))
        await self._fire("after_compress", scope, event.text, ready.trigger)
        return True

    async def _denied(self, scope: Scope, focus: str, trigger: CompactionTrigger) -> bool:
        """Whether a hook will not have it. A person is told; by itself nothing is summarised for some turns.

        Hooks are asked once for each summary, also when the model failed and what is known takes its place.
        """
        if self._permitted:
            return False
        if trigger != "manual" and self._objection and self._paused:
            return True
        self._objection = await self._fire("before_compress", scope, focus, trigger)
        if not self._objection:
            self._permitted = True
            return False
        why = f"A hook stopped the summary: {self._objection}"
        self._emit(CompactionChanged("failed", trigger, why))
        if trigger == "manual":
            self._emit(Warned(why))
            self._objection = ""
        else:
            self._paused_until = self._keeper.turn + PAUSE + 1
        return True

    async def _fire(self, point: str, scope: Scope, text: str, trigger: CompactionTrigger) -> str:
        """What a hook that said no gives as its reason, or ""."""
        reason = "manual" if trigger == "manual" else "auto"
        call = HookCall(point, self._keeper.agent, scope.mode, text=text, reason=reason)  # pyright: ignore[reportArgumentType]
        if not self._means.desk.listens(call.point):
            return ""
        verdict = await self._means.desk.fire(call)
        return (verdict.message or "it gave no reason.") if verdict.decision == "deny" else ""

    def given_up(self, planner: Planner, said: str = "") -> CompactionFailed:
        return failure(self._keeper, planner, said, self._objection)

    def _emit(self, event: AnyEvent) -> None:
        self._means.recorder.emit(event, self._keeper.agent)


async def _asked_of(own: Compactor, messages: tuple[Message, ...], earlier: str) -> str:
    """The summary of the program that embeds the session. Whatever it raises is a summary that failed."""
    try:
        text = await own.compact(messages, earlier)
    except Exception as error:
        raise OdinError(f"The compactor failed ({type(error).__name__}: {error}).") from error
    if not text.strip():
        raise Weak("The compactor gave no summary.")
    return text
