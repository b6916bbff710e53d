"""An agent: turns until idle. It answers one prompt at a time, each in its own mode, in the order they came."""

import asyncio
from collections.abc import Callable, Iterable

from odin.context.prompt import environment, today
from odin.core.errors import EmptyPrompt, PromptBlocked, SessionBusy
from odin.core.event import ContextAdded, Mode, PromptDropped, PromptQueued, TurnEnded, TurnStarted
from odin.core.op import Prompt
from odin.engine.admitted import Scope
from odin.engine.guard import RepetitionGuard
from odin.engine.inbox import Inbox
from odin.engine.kit import Kit
from odin.engine.loop import Turn
from odin.engine.recorder import Recorder

MAX_WAKES = 20
"""Turns in a row that an agent begins by itself. After that news waits for the next prompt."""


class Agent:
    """`kit_for` gives the collaborators of a turn in one mode: tools and prompt are chosen anew for every prompt.

    `mode_for` may narrow the mode a prompt asks for. `rests` hears when everything is answered.
    """

    def __init__(
        self,
        *,
        recorder: Recorder,
        kit_for: Callable[[Mode], Kit],
        cwd: str,
        root: str,
        name: str = "",
        mode_for: Callable[[Mode], Mode] = lambda mode: mode,
        rests: Callable[[TurnEnded], None] = lambda ended: None,
    ) -> None:
        self.name = name
        self._recorder = recorder
        self._kit_for = kit_for
        self._mode_for = mode_for
        self._rests = rests
        self._cwd = cwd
        self._root = root
        self._inbox = Inbox()
        self._turn: Turn | None = None
        self._turn_task: asyncio.Task[TurnEnded] | None = None
        self._interrupt_next = False
        self._runner: asyncio.Task[None] | None = None
        self._told_mode: Mode | None = None
        self._told_date = ""
        self._context: list[str] = []
        self._news: list[Prompt] = []
        self.held = False
        """Whether it may not begin a turn by itself now."""
        self._wakes = 0
        self._unasked: set[str] = set()

    @property
    def busy(self) -> bool:
        """Whether a prompt is being answered or waits. It is over with the event that ends the turn."""
        return bool(self._inbox) or (self._turn is not None and not self._turn.ended)

    def submit(self, prompt: Prompt) -> None:
        """Take a prompt. Checking and reserving the agent is one step: two prompts never run two loops."""
        if not prompt.text.strip():
            raise EmptyPrompt
        self._wakes = 0
        if self.busy:
            if not prompt.wait:
                raise SessionBusy
            self._inbox.put(prompt)
            self._recorder.emit(PromptQueued(prompt.id, prompt.text, prompt.mode), self.name)
            return
        self._begin(prompt)

    def _begin(self, prompt: Prompt) -> None:
        self._inbox.put(prompt)
        if self._runner is None or self._runner.done():
            self._runner = asyncio.create_task(self._run_all())

    def tell(self, news: Prompt) -> None:
        """Something the agent set going has happened: a busy one reads it beside its next request, an idle one acts."""
        if self.busy or self.held or self._wakes >= MAX_WAKES:
            self._news.append(news)
            return
        self._wakes += 1
        self._unasked.add(news.id)
        self._begin(news)

    def take_news(self) -> list[Prompt]:
        """What it was told and the model has not read yet."""
        news, self._news = self._news, []
        return news

    def add_context(self, item: ContextAdded) -> None:
        """Keep a piece of context; the model reads it beside the next prompt."""
        self._recorder.emit(item, self.name)
        self._context.append(item.note)

    def start_over(self, context: Iterable[ContextAdded]) -> None:
        """The conversation went back or forward: tell the model again where it is, and what it has not been told."""
        self._told_date, self._told_mode = "", None
        self._context = [item.note for item in context]

    def drop(self, prompt_id: str) -> bool:
        dropped = self._inbox.drop(prompt_id)
        if dropped:
            self._recorder.emit(PromptDropped(prompt_id), self.name)
        return dropped

    def interrupt(self) -> bool:
        """Stop the turn that runs or is about to; False when there is none."""
        if not self.busy:
            return False
        if self._turn is None:
            self._interrupt_next = True
            return True
        self._turn.interrupted = True
        if self._turn.begun and self._turn_task is not None:
            self._turn_task.cancel()
        return True

    async def answer(self, prompt: Prompt) -> TurnEnded:
        """Run one prompt here and now, for a caller that waits for the answer."""
        self._turn = self._prepare(prompt)
        try:
            return await self._turn.run()
        finally:
            self._turn = None

    async def stop(self) -> None:
        """End the running turn as aborted, take back what waits, and leave."""
        self.held = True
        if self._runner is not None and not self._runner.done():
            if self.busy:
                self._runner.cancel()
            await asyncio.wait([self._runner])
        while (prompt := self._inbox.take()) is not None:
            self._recorder.emit(PromptDropped(prompt.id), self.name)

    async def _run_all(self) -> None:
        ended: TurnEnded | None = None
        while (prompt := self._inbox.take() or self._woken(ended)) is not None:
            self._turn = turn = self._prepare(prompt)
            turn.interrupted, self._interrupt_next = self._interrupt_next, False
            self._turn_task = task = asyncio.create_task(turn.run())
            try:
                ended = await task
                if ended.error_kind == PromptBlocked.__name__:
                    self.start_over(self._recorder.state.untold)
            except asyncio.CancelledError:
                task.cancel()
                await asyncio.wait([task])
                turn.abandon()
                raise
            finally:
                self._turn = None
        if ended is not None:
            self._rests(ended)

    def _woken(self, ended: TurnEnded | None) -> Prompt | None:
        """A prompt made of the news that came too late for the last turn. Not after one that did not end well."""
        if self.held or not self._news or self._wakes >= MAX_WAKES or ended is None or ended.reason != "end_turn":
            return None
        self._wakes += 1
        news = self.take_news()
        self._unasked.add(news[-1].id)
        return Prompt(news[-1].id, _merged(news), news[-1].mode)

    def _prepare(self, prompt: Prompt) -> Turn:
        mode = self._mode_for(prompt.mode)
        started = TurnStarted(prompt.id, prompt.text, mode, self._notes(mode))
        scope = Scope(self.name, mode, self._cwd, self._root, RepetitionGuard())
        asked = prompt.id not in self._unasked
        self._unasked.discard(prompt.id)
        return Turn(self._kit_for(mode), started, scope, lambda: _merged(self.take_news()), asked=asked)

    def _notes(self, mode: Mode) -> tuple[str, ...]:
        """What the model must know beside this prompt and was not told before."""
        date = today()
        notes: list[str] = []
        if not self._told_date:
            notes.append(environment(self._cwd, self._root))
        elif date != self._told_date:
            notes.append(f"Date: {date}")
        if self._told_mode not in (None, mode):
            notes.append(f"The mode is now {mode}.")
        self._told_date, self._told_mode = date, mode
        context, self._context = self._context, []
        return (*notes, *context, *(news.text for news in self.take_news()))


def _merged(news: list[Prompt]) -> str:
    return "\n\n".join(item.text for item in news)
