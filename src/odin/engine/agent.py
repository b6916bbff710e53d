"""An agent: turns until idle. It answers one prompt at a time, each in its own mode, in the order they came."""

import asyncio
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

import msgspec

from odin.context.prompt import environment, today
from odin.core.errors import EmptyPrompt, PromptBlocked, SessionBusy, UsageError
from odin.core.event import (
    ContextAdded,
    Lane,
    Mode,
    PromptChanged,
    PromptDropped,
    PromptQueued,
    TurnEnded,
    TurnStarted,
)
from odin.core.op import ChangePrompt, Continue, Leftover, Prompt
from odin.engine.attaching import Attachments, NoAttachments
from odin.engine.call.admitted import Scope
from odin.engine.call.guard import RepetitionGuard
from odin.engine.inbox import Inbox
from odin.engine.joining import Joining, Left
from odin.engine.kit import Kit
from odin.engine.loop import Turn
from odin.engine.recorder import Recorder

MAX_WAKES = 20
"""Turns in a row that an agent begins by itself. After that news waits for the next prompt."""

IMPATIENT_S = 2.0
"""An interrupted turn that has not ended by then is cancelled once more when it is interrupted again."""

_ESC = "You interrupted it."

_CUT_SHORT = {
    "interrupted": "The user interrupted the turn before this one; what it had begun may be unfinished.",
    "aborted": "The turn before this one was cut off when the session was closed; what it had begun may be unfinished.",
}
"""What the model is told beside the next prompt, by how the turn before it ended."""


class Pilot(Protocol):
    """Loop mode: gives the agent prompts of its own."""

    def begin(self) -> Prompt: ...

    def after(self, ended: TurnEnded, *, waits: bool) -> Prompt | None: ...

    def switch_off(self, why: str = "") -> bool: ...

    def gave(self, prompt_id: str) -> bool: ...


class Agent:
    """`kit_for` gives the collaborators of a turn in one mode: tools and prompt are chosen anew for every prompt.

    `mode_for` may narrow the mode a prompt asks for. `rests` hears when everything is answered. `lane` is that of
    prompts that name none; with `one_at_a_time` a request takes one steering prompt; `steered` hears when one comes,
    to take back what a person is being asked. `attachments` reads what people attach to their prompts. Prompts and
    context that an earlier run of the session left are there again.
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
        lane: Lane = "queue",
        one_at_a_time: bool = True,
        steered: Callable[[], None] = lambda: None,
        attachments: Attachments | None = None,
    ) -> None:
        self.name = name
        self._recorder = recorder
        self._kit_for = kit_for
        self._mode_for = mode_for
        self._rests = rests
        self._cwd = cwd
        self._root = root
        self._lane: Lane = lane
        self._one_at_a_time = one_at_a_time
        self._steered = steered
        self._attachments = attachments or NoAttachments()
        left = recorder.state if not name else None
        self._inbox = Inbox(left.queue if left else ())
        self._next: Prompt | Continue | None = None
        self._turn: Turn | None = None
        self._turn_task: asyncio.Task[TurnEnded] | None = None
        self._joining: Joining | None = None
        self._interrupt_next: Left | None = None
        self._interrupted_at = 0.0
        self._runner: asyncio.Task[None] | None = None
        self._told_mode: Mode | None = None
        self._told_date = ""
        self._context = [item.note for item in left.untold] if left else []
        self._news: list[Prompt] = []
        self.held = False
        """Whether it may not begin a turn by itself now."""
        self._wakes = 0
        self._unasked: set[str] = set()
        self._pilot: Pilot | None = None

    @property
    def busy(self) -> bool:
        """Whether a prompt is being answered or waits. It is over with the event that ends the turn."""
        running = self._turn is not None and not self._turn.ended
        return running or self._next is not None or self._inbox.due

    def submit(self, prompt: Prompt) -> None:
        """Take a prompt. Checking and reserving the agent is one step: two prompts never run two loops."""
        if not prompt.text.strip() and not prompt.attached:
            raise EmptyPrompt
        self._refuse_known(prompt.id)
        self._wakes = 0
        if not self.busy:
            self._begin(prompt)
            return
        if not prompt.wait:
            raise SessionBusy
        lane = prompt.lane or self._lane
        self._inbox.put(msgspec.structs.replace(prompt, lane=lane))
        self._recorder.emit(
            PromptQueued(prompt.id, prompt.text, prompt.mode, lane, prompt.shown, prompt.attached), self.name
        )
        self._heed_steering()

    def _refuse_known(self, prompt_id: str) -> None:
        """Two prompts that wait under one id could not be told apart: neither by a front end nor in the log."""
        if self._inbox.get(prompt_id) is not None or (self._next is not None and self._next.id == prompt_id):
            raise UsageError(
                f"A prompt with the id {prompt_id!r} waits already.", "Give every prompt an id of its own."
            )

    def _heed_steering(self) -> None:
        if self._joining is not None and self._turn is not None and self._joining.steers():
            self._steered()

    def go_on(self, op: Continue) -> None:
        """Ask the model again with the conversation as it is."""
        if self.busy:
            raise SessionBusy("Wait for it or interrupt it, then continue.")
        if not self._recorder.state.history(self.name):
            raise UsageError("There is nothing to continue: nothing has been said yet.", "Say what you want done.")
        self._refuse_known(op.id)
        self._wakes = 0
        self._begin(op)

    def change(self, op: ChangePrompt) -> bool:
        """Edit a prompt that waits; False when it is unknown or was taken. An idle agent begins one that is sent."""
        if op.text is not None and not op.text.strip():
            raise EmptyPrompt
        idle = not self.busy
        changed = self._inbox.change(op)
        if changed is None:
            return False
        lane = changed.lane or self._lane
        self._recorder.emit(
            PromptChanged(changed.id, changed.text, changed.mode, lane, changed.shown, changed.attached), self.name
        )
        if idle and (prompt := self._inbox.take()) is not None:
            self._wakes = 0
            self._begin(prompt)
        self._heed_steering()
        return True

    def _begin(self, prompt: Prompt | Continue) -> None:
        self._next = prompt
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

    def follow(self, pilot: Pilot) -> None:
        """Loop mode is on: an idle agent begins now, a busy one goes on when its turn is over."""
        self._pilot = pilot
        if not self.busy:
            prompt = pilot.begin()
            self._unasked.add(prompt.id)
            self._begin(prompt)

    def leave_loop(self, why: str = "") -> bool:
        """Loop mode is off; a prompt of its own that was not begun yet is gone. False when it was off already."""
        pilot, self._pilot = self._pilot, None
        if pilot is None or not pilot.switch_off(why):
            return False
        if self._next is not None and pilot.gave(self._next.id):
            self._unasked.discard(self._next.id)
            self._next = None
        return True

    def _turn_over(self, ended: TurnEnded) -> bool:
        """In the very step in which a turn ends, so that between two iterations nobody finds the agent idle."""
        prompt = self._pilot.after(ended, waits=self._inbox.due) if self._pilot is not None else None
        if prompt is None:
            return False
        self._unasked.add(prompt.id)
        self._next = prompt
        return True

    def add_context(self, item: ContextAdded) -> None:
        """Keep a piece of context; the model reads it beside the next prompt."""
        self._recorder.emit(item, self.name)
        self._context.append(item.note)

    def remark(self, text: str) -> None:
        """Something the model reads beside the next prompt."""
        self._context.append(text)

    def start_over(self, context: Iterable[ContextAdded]) -> None:
        """The conversation went back or forward: tell the model again where it is, and what it has not been told."""
        self._told_date, self._told_mode = "", None
        self._context = [item.note for item in context]

    @property
    def resting(self) -> frozenset[str]:
        """The prompts that wait until somebody sends them."""
        return self._inbox.resting

    def drop(self, prompt_id: str) -> bool:
        dropped = self._inbox.drop(prompt_id)
        if dropped:
            self._recorder.emit(PromptDropped(prompt_id), self.name)
        return dropped

    def interrupt(self, queue: Leftover = "join") -> bool:
        """Stop the turn that runs or is about to; False when there is none. `queue` is what becomes of what waits."""
        if not self.busy:
            return False
        if self.leave_loop(_ESC) and not self.busy:
            return True
        left = Left(queue, self._inbox.waiting())
        if self._turn is None or self._turn.ended or self._joining is None:
            self._interrupt_next = left
            return True
        self._joining.leave(left)
        again = self._turn.interrupted
        self._turn.interrupted = True
        if self._turn.begun and self._turn_task is not None and not (again and self._patient()):
            self._interrupted_at = time.monotonic()
            self._turn_task.cancel()
        return True

    def _patient(self) -> bool:
        """What is being stopped gets a moment to end in order: a second cancel would tear that off."""
        return time.monotonic() - self._interrupted_at < IMPATIENT_S

    async def answer(self, prompt: Prompt) -> TurnEnded:
        """Run one prompt here and now, for a caller that waits for the answer."""
        self._turn = self._prepare(prompt)
        try:
            return await self._turn.run()
        finally:
            self._turn = None

    async def stop(self) -> None:
        """End the running turn as aborted and leave. What waits stays in the log, for when the session is resumed."""
        self.held = True
        self.leave_loop("The session was closed.")
        self._inbox.rest()
        if self._runner is not None and not self._runner.done():
            if self.busy:
                self._runner.cancel()
            await asyncio.wait([self._runner])
        if self._next is not None:  # it was taken, and there was no time to begin it
            prompt, self._next = self._next, None
            self._prepare(prompt).abandon()

    async def _run_all(self) -> None:
        ended: TurnEnded | None = None
        while (prompt := self._take() or self._woken(ended)) is not None:
            self._turn = turn = self._prepare(prompt)
            if self._interrupt_next is not None and self._joining is not None:
                turn.interrupted = True
                self._joining.leave(self._interrupt_next)
                self._interrupt_next = None
            self._turn_task = task = asyncio.create_task(turn.run())
            try:
                ended = await task
                if ended.error_kind == PromptBlocked.__name__:
                    self.start_over(self._recorder.state.untold)
                    self._attachments.forget()
            except asyncio.CancelledError:
                task.cancel()
                await asyncio.wait([task])
                turn.abandon()
                raise
            finally:
                self._turn = None
        self._interrupt_next = None
        if ended is not None:
            self._rests(ended)

    def _take(self) -> Prompt | Continue | None:
        taken, self._next = self._next, None
        return taken or self._inbox.take()

    def _woken(self, ended: TurnEnded | None) -> Prompt | None:
        """A prompt made of the news that came too late for the last turn. Not after one that did not end well."""
        if self.held or not self._news or self._wakes >= MAX_WAKES or ended is None or ended.reason != "end_turn":
            return None
        self._wakes += 1
        news = self.take_news()
        self._unasked.add(news[-1].id)
        return Prompt(news[-1].id, _merged(news), news[-1].mode)

    def _prepare(self, prompt: Prompt | Continue) -> Turn:
        mode = self._mode_for(prompt.mode or self._recorder.state.mode)
        continues = isinstance(prompt, Continue)
        text, shown, attached = (
            ("", "", ()) if isinstance(prompt, Continue) else (prompt.text, prompt.shown, prompt.attached)
        )
        started = TurnStarted(prompt.id, text, mode, self._notes(mode, continues), continues, shown, attached=attached)
        self._joining = joining = Joining(
            self._inbox,
            self._recorder,
            turn=prompt.id,
            agent=self.name,
            fits=lambda other: self._mode_for(other) == mode,
            one_at_a_time=self._one_at_a_time,
            attachments=self._attachments,
        )
        scope = Scope(self.name, mode, self._cwd, self._root, RepetitionGuard(), joining.steers)
        asked = not continues and prompt.id not in self._unasked
        self._unasked.discard(prompt.id)
        brings = isinstance(prompt, Prompt) and asked and self._attachments.brings(prompt)
        attach = partial(self._attachments.read, prompt, mode) if brings and isinstance(prompt, Prompt) else None
        return Turn(
            self._kit_for(mode),
            started,
            scope,
            self._take_untold,
            joining=joining,
            asked=asked,
            attach=attach,
            over=self._turn_over,
        )

    def _take_untold(self) -> str:
        """What happened beside the turn and its model has not read: context, and news of what it set going."""
        context, self._context = self._context, []
        return "\n\n".join([*context, *(news.text for news in self.take_news())])

    def _notes(self, mode: Mode, continues: bool) -> tuple[str, ...]:
        """What the model must know beside this prompt and was not told before."""
        date = today()
        notes: list[str] = []
        if not self.name and not continues and (cut := _CUT_SHORT.get(self._recorder.state.last_reason or "")):
            notes.append(cut)
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
