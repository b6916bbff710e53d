"""An agent: turns until idle. It answers one prompt at a time, each in its own mode, in the order they came."""

import asyncio
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

import msgspec

from odin.context.prompt import describe_environment, format_today
from odin.core.errors import EmptyPrompt, PromptBlocked, SessionBusy, UsageError
from odin.core.event import (
    ContextAdded,
    Delivery,
    Mode,
    PromptChanged,
    PromptDropped,
    PromptQueued,
    TurnEnded,
    TurnStarted,
)
from odin.core.op import ChangePrompt, Continue, Prompt, QueuePolicy
from odin.engine.call_types import CallScope
from odin.engine.prompts import Attachments, LeftoverQueue, NoAttachments, PromptQueue, Steering
from odin.engine.recorder import Recorder
from odin.engine.repetition import RepetitionGuard
from odin.engine.turn import AgentTurn, TurnDeps

MAX_SELF_STARTED_TURNS = 20
"""Turns in a row that an agent begins by itself. After that news waits for the next prompt."""

CANCEL_AGAIN_AFTER_S = 2.0
"""An interrupted turn that has not ended by then is cancelled once more when it is interrupted again."""

_USER_INTERRUPT = "You interrupted it."

_CUT_SHORT_NOTES = {
    "interrupted": "The user interrupted the turn before this one; what it had begun may be unfinished.",
    "aborted": "The turn before this one was cut off when the session was closed; what it had begun may be unfinished.",
}
"""What the model is told beside the next prompt, by how the turn before it ended."""


class LoopController(Protocol):
    """Loop mode: gives the agent prompts of its own."""

    def make_first_prompt(self) -> Prompt: ...

    def make_next_prompt(self, ended: TurnEnded, *, waits: bool) -> Prompt | None: ...

    def switch_off(self, why: str = "") -> bool: ...

    def is_own_prompt(self, prompt_id: str) -> bool: ...


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
        deps_for: Callable[[Mode], TurnDeps],
        cwd: str,
        root: str,
        name: str = "",
        mode_for: Callable[[Mode], Mode] = lambda mode: mode,
        on_idle: Callable[[TurnEnded], None] = lambda ended: None,
        lane: Delivery = "queue",
        one_at_a_time: bool = True,
        on_steered: Callable[[], None] = lambda: None,
        attachments: Attachments | None = None,
    ) -> None:
        self.name = name
        self._recorder = recorder
        self._deps_for = deps_for
        self._mode_for = mode_for
        self._on_idle = on_idle
        self._cwd = cwd
        self._root = root
        self._lane: Delivery = lane
        self._one_at_a_time = one_at_a_time
        self._on_steered = on_steered
        self._attachments = attachments or NoAttachments()
        left = recorder.state if not name else None
        self._queue = PromptQueue(left.queue if left else ())
        self._next: Prompt | Continue | None = None
        self._turn: AgentTurn | None = None
        self._turn_task: asyncio.Task[TurnEnded] | None = None
        self._steering: Steering | None = None
        self._interrupt_next: LeftoverQueue | None = None
        self._interrupted_at = 0.0
        self._runner: asyncio.Task[None] | None = None
        self._last_mode: Mode | None = None
        self._last_date = ""
        self._context = [item.note for item in left.conversation.unsent_context] if left else []
        self._notifications: list[Prompt] = []
        self.is_held = False
        """Whether it may not begin a turn by itself now."""
        self._self_started_turns = 0
        self._self_started_ids: set[str] = set()
        self._loop: LoopController | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a prompt is being answered or waits. It is over with the event that ends the turn."""
        running = self._turn is not None and not self._turn.has_ended
        return running or self._next is not None or self._queue.has_due

    def submit(self, prompt: Prompt) -> None:
        """Take a prompt. Checking and reserving the agent is one step: two prompts never run two loops."""
        if not prompt.text.strip() and not prompt.attachments:
            raise EmptyPrompt
        self._refuse_duplicate_id(prompt.id)
        self._self_started_turns = 0
        if not self.is_busy:
            self._start_prompt(prompt)
            return
        if not prompt.wait:
            raise SessionBusy
        lane = prompt.delivery or self._lane
        self._queue.put(msgspec.structs.replace(prompt, delivery=lane))
        self._recorder.emit(
            PromptQueued(prompt.id, prompt.text, prompt.mode, lane, prompt.display_text, prompt.attachments), self.name
        )
        self._notify_steering()

    def _refuse_duplicate_id(self, prompt_id: str) -> None:
        """Two prompts that wait under one id could not be told apart: neither by a front end nor in the log."""
        if self._queue.get(prompt_id) is not None or (self._next is not None and self._next.id == prompt_id):
            raise UsageError(
                f"A prompt with the id {prompt_id!r} waits already.", "Give every prompt an id of its own."
            )

    def _notify_steering(self) -> None:
        if self._steering is not None and self._turn is not None and self._steering.is_steered():
            self._on_steered()

    def continue_turn(self, op: Continue) -> None:
        """Ask the model again with the conversation as it is."""
        if self.is_busy:
            raise SessionBusy("Wait for it or interrupt it, then continue.")
        if not self._recorder.state.build_history(self.name):
            raise UsageError("There is nothing to continue: nothing has been said yet.", "Say what you want done.")
        self._refuse_duplicate_id(op.id)
        self._self_started_turns = 0
        self._start_prompt(op)

    def change_prompt(self, op: ChangePrompt) -> bool:
        """Edit a prompt that waits; False when it is unknown or was taken. An idle agent begins one that is sent."""
        if op.text is not None and not op.text.strip():
            raise EmptyPrompt
        idle = not self.is_busy
        changed = self._queue.change(op)
        if changed is None:
            return False
        lane = changed.delivery or self._lane
        self._recorder.emit(
            PromptChanged(changed.id, changed.text, changed.mode, lane, changed.display_text, changed.attachments),
            self.name,
        )
        if idle and (prompt := self._queue.take()) is not None:
            self._self_started_turns = 0
            self._start_prompt(prompt)
        self._notify_steering()
        return True

    def _start_prompt(self, prompt: Prompt | Continue) -> None:
        self._next = prompt
        if self._runner is None or self._runner.done():
            self._runner = asyncio.create_task(self._run_all())

    def notify(self, news: Prompt) -> None:
        """Something the agent set going has happened: a busy one reads it beside its next request, an idle one acts."""
        if self.is_busy or self.is_held or self._self_started_turns >= MAX_SELF_STARTED_TURNS:
            self._notifications.append(news)
            return
        self._self_started_turns += 1
        self._self_started_ids.add(news.id)
        self._start_prompt(news)

    def take_notifications(self) -> list[Prompt]:
        """What it was told and the model has not read yet."""
        news, self._notifications = self._notifications, []
        return news

    def start_loop(self, pilot: LoopController) -> None:
        """Loop mode is on: an idle agent begins now, a busy one goes on when its turn is over."""
        self._loop = pilot
        if not self.is_busy:
            prompt = pilot.make_first_prompt()
            self._self_started_ids.add(prompt.id)
            self._start_prompt(prompt)

    def stop_loop(self, why: str = "") -> bool:
        """Loop mode is off; a prompt of its own that was not begun yet is gone. False when it was off already."""
        pilot, self._loop = self._loop, None
        if pilot is None or not pilot.switch_off(why):
            return False
        if self._next is not None and pilot.is_own_prompt(self._next.id):
            self._self_started_ids.discard(self._next.id)
            self._next = None
        return True

    def _on_turn_ended(self, ended: TurnEnded) -> bool:
        """In the very step in which a turn ends, so that between two iterations nobody finds the agent idle."""
        prompt = self._loop.make_next_prompt(ended, waits=self._queue.has_due) if self._loop is not None else None
        if prompt is None:
            return False
        self._self_started_ids.add(prompt.id)
        self._next = prompt
        return True

    def add_context(self, item: ContextAdded) -> None:
        """Keep a piece of context; the model reads it beside the next prompt."""
        self._recorder.emit(item, self.name)
        self._context.append(item.note)

    def add_note(self, text: str) -> None:
        """Something the model reads beside the next prompt."""
        self._context.append(text)

    def reset_context(self, context: Iterable[ContextAdded]) -> None:
        """The conversation went back or forward: tell the model again where it is, and what it has not been told."""
        self._last_date, self._last_mode = "", None
        self._context = [item.note for item in context]

    @property
    def paused_prompts(self) -> frozenset[str]:
        """The prompts that wait until somebody sends them."""
        return self._queue.paused_ids

    def drop_prompt(self, prompt_id: str) -> bool:
        dropped = self._queue.drop(prompt_id)
        if dropped:
            self._recorder.emit(PromptDropped(prompt_id), self.name)
        return dropped

    def interrupt(self, queue: QueuePolicy = "join") -> bool:
        """Stop the turn that runs or is about to; False when there is none. `queue` is what becomes of what waits."""
        if not self.is_busy:
            return False
        if self.stop_loop(_USER_INTERRUPT) and not self.is_busy:
            return True
        left = LeftoverQueue(queue, self._queue.list_due_ids())
        if self._turn is None or self._turn.has_ended or self._steering is None:
            self._interrupt_next = left
            return True
        self._steering.set_leftover(left)
        again = self._turn.is_interrupted
        self._turn.is_interrupted = True
        if self._turn.has_started and self._turn_task is not None and not (again and self._is_stopping()):
            self._interrupted_at = time.monotonic()
            self._turn_task.cancel()
        return True

    def _is_stopping(self) -> bool:
        """What is being stopped gets a moment to end in order: a second cancel would tear that off."""
        return time.monotonic() - self._interrupted_at < CANCEL_AGAIN_AFTER_S

    async def run_prompt(self, prompt: Prompt) -> TurnEnded:
        """Run one prompt here and now, for a caller that waits for the answer."""
        self._turn = self._prepare_turn(prompt)
        try:
            return await self._turn.run()
        finally:
            self._turn = None

    async def stop(self) -> None:
        """End the running turn as aborted and leave. What waits stays in the log, for when the session is resumed."""
        self.is_held = True
        self.stop_loop("The session was closed.")
        self._queue.pause_all()
        if self._runner is not None and not self._runner.done():
            if self.is_busy:
                self._runner.cancel()
            await asyncio.wait([self._runner])
        if self._next is not None:  # it was taken, and there was no time to begin it
            prompt, self._next = self._next, None
            self._prepare_turn(prompt).abandon()

    async def _run_all(self) -> None:
        ended: TurnEnded | None = None
        while (prompt := self._take_next() or self._make_notification_prompt(ended)) is not None:
            self._turn = turn = self._prepare_turn(prompt)
            if self._interrupt_next is not None and self._steering is not None:
                turn.is_interrupted = True
                self._steering.set_leftover(self._interrupt_next)
                self._interrupt_next = None
            self._turn_task = task = asyncio.create_task(turn.run())
            try:
                ended = await task
                if ended.error_kind == PromptBlocked.__name__:
                    self.reset_context(self._recorder.state.conversation.unsent_context)
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
            self._on_idle(ended)

    def _take_next(self) -> Prompt | Continue | None:
        taken, self._next = self._next, None
        return taken or self._queue.take()

    def _make_notification_prompt(self, ended: TurnEnded | None) -> Prompt | None:
        """A prompt made of the news that came too late for the last turn. Not after one that did not end well."""
        if (
            self.is_held
            or not self._notifications
            or self._self_started_turns >= MAX_SELF_STARTED_TURNS
            or ended is None
            or ended.reason != "end_turn"
        ):
            return None
        self._self_started_turns += 1
        news = self.take_notifications()
        self._self_started_ids.add(news[-1].id)
        return Prompt(news[-1].id, _join_texts(news), news[-1].mode)

    def _prepare_turn(self, prompt: Prompt | Continue) -> AgentTurn:
        mode = self._mode_for(prompt.mode or self._recorder.state.mode)
        continues = isinstance(prompt, Continue)
        text, shown, attached = (
            ("", "", ()) if isinstance(prompt, Continue) else (prompt.text, prompt.display_text, prompt.attachments)
        )
        started = TurnStarted(
            prompt.id, text, mode, self._collect_notes(mode, continues), continues, shown, attachments=attached
        )
        self._steering = joining = Steering(
            self._queue,
            self._recorder,
            turn=prompt.id,
            agent=self.name,
            fits=lambda other: self._mode_for(other) == mode,
            one_at_a_time=self._one_at_a_time,
            attachments=self._attachments,
        )
        scope = CallScope(self.name, mode, self._cwd, self._root, RepetitionGuard(), joining.is_steered)
        asked = not continues and prompt.id not in self._self_started_ids
        self._self_started_ids.discard(prompt.id)
        brings = isinstance(prompt, Prompt) and asked and self._attachments.has_attachments(prompt)
        attach = partial(self._attachments.read, prompt, mode) if brings and isinstance(prompt, Prompt) else None
        return AgentTurn(
            self._deps_for(mode),
            started,
            scope,
            self._take_unsent,
            steering=joining,
            by_user=asked,
            attach=attach,
            on_ended=self._on_turn_ended,
        )

    def _take_unsent(self) -> str:
        """What happened beside the turn and its model has not read: context, and news of what it set going."""
        context, self._context = self._context, []
        return "\n\n".join([*context, *(news.text for news in self.take_notifications())])

    def _collect_notes(self, mode: Mode, continues: bool) -> tuple[str, ...]:
        """What the model must know beside this prompt and was not told before."""
        date = format_today()
        notes: list[str] = []
        if not self.name and not continues and (cut := _CUT_SHORT_NOTES.get(self._recorder.state.last_reason or "")):
            notes.append(cut)
        if not self._last_date:
            notes.append(describe_environment(self._cwd, self._root))
        elif date != self._last_date:
            notes.append(f"Date: {date}")
        if self._last_mode not in (None, mode):
            notes.append(f"The mode is now {mode}.")
        self._last_date, self._last_mode = date, mode
        context, self._context = self._context, []
        return (*notes, *context, *(news.text for news in self.take_notifications()))


def _join_texts(news: list[Prompt]) -> str:
    return "\n\n".join(item.text for item in news)
