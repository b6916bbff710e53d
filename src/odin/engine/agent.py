"""An agent: it answers queued prompts one at a time, each in its own mode, until it is idle."""

import asyncio
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from odin.context.system_prompt import describe_environment, format_date
from odin.core.environment import ExecutionEnvironment
from odin.core.errors import EmptyPrompt, SessionBusy, UsageError
from odin.core.event import ContextAdded, NoteAdded, PromptChanged, PromptDropped, PromptQueued, TurnEnded, TurnStarted
from odin.core.event_values import Delivery, Mode, get_strictest_mode
from odin.core.op import ChangePrompt, Continue, Prompt, QueuePolicy
from odin.core.prompt import copy_prompt
from odin.engine.call import CallScope
from odin.engine.limits import RepetitionGuard
from odin.engine.prompts import Attachments, LeftoverQueue, NoAttachments, PromptQueue, Steering
from odin.engine.recorder import Recorder
from odin.engine.turn import AgentTurn, TurnDeps

MAX_SELF_STARTED_TURNS = 20
"""Turns in a row that an agent may start by itself. Later notifications wait for the next prompt."""

CANCEL_AGAIN_AFTER_S = 2.0
"""A second interrupt cancels the turn again only after this time, so that cleanup is not torn off."""

SETTLE_S = 5.0
"""The longest wait for what follows the end of a turn."""

_USER_INTERRUPT = "You interrupted it."

_CUT_SHORT_NOTES = {
    "interrupted": "The user interrupted the turn before this one; its work may be unfinished.",
    "aborted": "The turn before this one was cut off when the session was closed; its work may be unfinished.",
}
"""Note to the model with the next prompt, by the exit reason of the turn before it."""


class LoopController(Protocol):
    """Loop mode as the agent sees it: a source of prompts that the user did not type."""

    def make_first_prompt(self) -> Prompt: ...

    def make_next_prompt(self, ended: TurnEnded, *, has_due: bool) -> Prompt | None: ...

    def switch_off(self, why: str = "") -> bool: ...

    def is_own_prompt(self, prompt_id: str) -> bool: ...


class ReceivedMessages(Struct, frozen=True):
    """Mail as one text for the model, with the ids to record with it. `mode` is the strictest mode of its messages."""

    text: str = ""
    ids: tuple[str, ...] = ()
    mode: Mode | None = None


class Inbox(Protocol):
    """The mail of the session's agents. The methods are those of an agent without mail."""

    def take(self, agent: str) -> ReceivedMessages:
        """Return all mail for this agent that was not taken yet, the most urgent first."""
        return ReceivedMessages()

    def should_wake(self, agent: str) -> bool:
        """True if this agent has mail that an idle agent should read now."""
        return False


class EmptyInbox(Inbox):
    """For an agent alone."""


class AgentDeps(Struct, frozen=True):
    """`deps_for` makes the collaborators of a turn in one mode: tools and system prompt are chosen for every prompt."""

    recorder: Recorder
    deps_for: Callable[[Mode], TurnDeps]
    environment: ExecutionEnvironment
    root: str
    attachments: Attachments = NoAttachments()
    inbox: Inbox = EmptyInbox()


class Agent:
    """An agent with its prompt queue. Only the main agent has no name.

    `delivery` and `one_at_a_time` (one steering prompt per request) are the settings of its queue. `mode_for` may
    restrict the mode a prompt asks for. `on_idle` is called when everything is answered, `on_steered` when a steering
    prompt arrives. The main agent of a resumed session begins with the queued prompts and context of the earlier run; a
    sub-agent begins in `mode`.
    """

    def __init__(
        self,
        deps: AgentDeps,
        name: str = "",
        *,
        delivery: Delivery = "queue",
        one_at_a_time: bool = True,
        mode_for: Callable[[Mode], Mode] = lambda mode: mode,
        on_idle: Callable[[TurnEnded], None] = lambda ended: None,
        on_steered: Callable[[], None] = lambda: None,
        mode: Mode | None = None,
    ) -> None:
        self.name = name
        self._deps = deps
        self._recorder = deps.recorder
        self._attachments = deps.attachments
        self._delivery: Delivery = delivery
        self._one_at_a_time = one_at_a_time
        self._mode_for = mode_for
        self._on_idle = on_idle
        self._on_steered = on_steered
        left = deps.recorder.state if not name else None
        self._queue = PromptQueue(
            (item for item in deps.recorder.state.queue if item.agent == name),
            lambda event: deps.recorder.emit(event, name),
        )
        self._next: Prompt | Continue | None = None
        self._turn: AgentTurn | None = None
        self._turn_task: asyncio.Task[TurnEnded] | None = None
        self._steering: Steering | None = None
        self._interrupt_next: LeftoverQueue | None = None
        self._interrupted_at = 0.0
        self._runner: asyncio.Task[None] | None = None
        self._last_mode: Mode | None = mode
        self._last_date = ""
        self._context = [item.note for item in left.conversation.unsent_context] if left else []
        self._notifications: list[Prompt] = []
        self._messages_by_prompt: dict[str, tuple[str, ...]] = {}
        self.is_held = False
        """While True the agent starts no turn by itself."""
        self._self_started_turns = 0
        self._self_started_ids: set[str] = set()
        self._loop: LoopController | None = None
        self._output_schema: dict[str, Any] | None = None
        self._place = ("cli", "direct")
        """The channel and the chat of the last prompt."""
        self.on_stopped: Callable[[], object] = lambda: None
        """Called whenever it is not active any more."""

    @property
    def is_busy(self) -> bool:
        """True while a prompt is being answered or is due. It turns False with the event that ends the turn."""
        running = self._turn is not None and not self._turn.has_ended
        return running or self._next is not None or self._queue.has_due

    @property
    def is_active(self) -> bool:
        """True while the agent is busy or has not reported yet that it is idle."""
        return self.is_busy or (self._runner is not None and not self._runner.done())

    def submit(self, prompt: Prompt) -> None:
        """Start or queue a prompt. Nothing is awaited between check and start, so two prompts never run at once."""
        if not prompt.text.strip() and not prompt.attachments:
            raise EmptyPrompt
        self._refuse_duplicate_id(prompt.id)
        self._self_started_turns = 0
        if not self.is_busy:
            self._start_prompt(prompt)
            return
        if not prompt.wait:
            raise SessionBusy
        prompt = msgspec.structs.replace(prompt, delivery=prompt.delivery or self._delivery)
        self._queue.put(prompt)
        self._recorder.emit(copy_prompt(PromptQueued, prompt), self.name)
        self._notify_steering()

    def _refuse_duplicate_id(self, prompt_id: str) -> None:
        """Raise UsageError: neither front ends nor the log could tell two queued prompts with one id apart."""
        if self._queue.get(prompt_id) is not None or (self._next is not None and self._next.id == prompt_id):
            raise UsageError(f"Prompt id {prompt_id!r} is already queued.", "Give every prompt its own id.")

    def _notify_steering(self) -> None:
        if self._steering is not None and self._turn is not None and self._steering.is_steered():
            self._on_steered()

    def continue_turn(self, op: Continue) -> None:
        """Send the conversation to the model again, without a new prompt."""
        if self.is_busy:
            raise SessionBusy("Wait for it or interrupt it, then continue.")
        if not self._recorder.state.build_history(self.name):
            raise UsageError("Nothing to continue: the conversation is empty.", "Send a prompt first.")
        self._refuse_duplicate_id(op.id)
        self._self_started_turns = 0
        self._start_prompt(op)

    def change_prompt(self, op: ChangePrompt) -> bool:
        """Edit a queued prompt; False if unknown or already taken. An idle agent starts it unless it is paused."""
        if op.text is not None and not op.text.strip():
            raise EmptyPrompt
        idle = not self.is_busy
        changed = self._queue.change(op)
        if changed is None:
            return False
        self._recorder.emit(copy_prompt(PromptChanged, changed), self.name)
        if idle and (prompt := self._queue.take()) is not None:
            self._self_started_turns = 0
            self._start_prompt(prompt)
        self._notify_steering()
        return True

    def _start_prompt(self, prompt: Prompt | Continue) -> None:
        self._next = prompt
        if self._runner is None or self._runner.done():
            self._runner = asyncio.create_task(self._run_all())
            self._runner.add_done_callback(lambda _: self.on_stopped())

    def notify(self, notification: Prompt) -> None:
        """Report an ended job. A busy agent reads it with its next request, an idle one starts a turn."""
        if self.is_busy or not self._may_start or self._self_started_turns >= MAX_SELF_STARTED_TURNS:
            self._notifications.append(notification)
            return
        self._self_started_turns += 1
        self._self_started_ids.add(notification.id)
        self._start_prompt(self._limit_mode(notification))

    def wake(self) -> None:
        """Start a turn for new mail if the agent is idle. A busy one reads it with its next request."""
        if not self.is_busy and (prompt := self._make_message_prompt()) is not None:
            self._start_prompt(prompt)

    @property
    def _may_start(self) -> bool:
        """False while the agent may start no turn by itself, also after an undo: that would end the redo."""
        can_redo = not self.name and bool(self._recorder.state.conversation.timeline.rewinds)
        return not self.is_held and not can_redo

    def _make_message_prompt(self) -> Prompt | None:
        if not self._may_start or not self._deps.inbox.should_wake(self.name):
            return None
        taken = self._deps.inbox.take(self.name)
        prompt = Prompt(taken.ids[0], taken.text, taken.mode or self._current_mode, source="mail")
        self._messages_by_prompt[prompt.id] = taken.ids
        self._self_started_ids.add(prompt.id)
        return prompt

    @property
    def _current_mode(self) -> Mode:
        """The mode of the latest turn; sub-agents have their own."""
        own = self._recorder.state.sub_agents.get(self.name)
        return self._recorder.state.mode if own is None else own.mode

    def _limit_mode(self, notification: Prompt) -> Prompt:
        """Return the notification in a mode that allows no more than the latest turn: the user did not send it."""
        return msgspec.structs.replace(notification, mode=get_strictest_mode(notification.mode, self._current_mode))

    def take_notifications(self) -> list[Prompt]:
        """Return the notifications the model has not read yet, and forget them."""
        notifications, self._notifications = self._notifications, []
        return notifications

    def start_loop(self, loop: LoopController) -> None:
        """Switch loop mode on. An idle agent starts now, a busy one continues with the loop after its turn."""
        self._loop = loop
        if not self.is_busy:
            prompt = loop.make_first_prompt()
            self._self_started_ids.add(prompt.id)
            self._start_prompt(prompt)

    def stop_loop(self, why: str = "") -> bool:
        """Switch loop mode off and drop its prompt if that has not started. False if it was off already."""
        loop, self._loop = self._loop, None
        if loop is None or not loop.switch_off(why):
            return False
        if self._next is not None and loop.is_own_prompt(self._next.id):
            self._self_started_ids.discard(self._next.id)
            self._next = None
        return True

    def _on_turn_ended(self, ended: TurnEnded) -> bool:
        """Called as the turn ends. True if loop mode continues: between two iterations the agent is never idle."""
        if self._turn is not None:
            self._last_mode = self._turn.mode
        prompt = self._loop.make_next_prompt(ended, has_due=self._queue.has_due) if self._loop is not None else None
        if prompt is None:
            return False
        self._self_started_ids.add(prompt.id)
        self._next = prompt
        return True

    def set_mode(self, mode: Mode) -> bool:
        """Switch the running turn to this mode; False if there is none."""
        turn = self._turn
        if turn is None or turn.has_ended:
            return False
        if turn.mode != mode:
            turn.switch_mode(mode)
            self.add_note(f"The mode is now {mode}.")
        return True

    def add_context(self, item: ContextAdded) -> None:
        """Record a piece of context. The model reads it with the next prompt."""
        self._recorder.emit(item, self.name)
        self._context.append(item.note)

    def add_note(self, text: str) -> None:
        """Add a note the model reads with the next prompt. It is not recorded."""
        self._context.append(text)

    def reset_context(self, context: Iterable[ContextAdded]) -> None:
        """After a rewind or redo: send environment and mode again, and this context, with the next prompt."""
        self._last_date, self._last_mode = "", None
        self._context = [item.note for item in context]

    @property
    def paused_prompts(self) -> frozenset[str]:
        """Ids of the queued prompts that start only when the user sends them."""
        return self._queue.paused_ids

    def drop_prompt(self, prompt_id: str) -> bool:
        dropped = self._queue.drop(prompt_id)
        if dropped:
            self._recorder.emit(PromptDropped(prompt_id), self.name)
        return dropped

    def pause_queue(self) -> None:
        """Start no queued prompt until the user sends it."""
        self._queue.pause_all()

    def interrupt(self, queue: QueuePolicy = "pause") -> bool:
        """Stop the running or starting turn; False if there is none. `queue`: what happens to queued prompts."""
        if not self.is_busy:
            return self.stop_loop(_USER_INTERRUPT)
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
        """True while an interrupted turn still has time to clean up."""
        return time.monotonic() - self._interrupted_at < CANCEL_AGAIN_AFTER_S

    async def settle(self) -> None:
        """Wait until the agent is idle, if its turn has ended."""
        if self._runner is not None and not self.is_busy:
            await asyncio.wait([self._runner], timeout=SETTLE_S)

    async def stop(self, why: str = "The session was closed.") -> None:
        """Abort the running turn. Queued prompts stay in the log for the next run of the session."""
        self.is_held = True
        self.stop_loop(why)
        self._queue.pause_all()
        if self._runner is not None and not self._runner.done():
            if self.is_busy:
                self._runner.cancel()
            await asyncio.wait([self._runner])
        if self._next is not None:  # it was taken from the queue but not started
            prompt, self._next = self._next, None
            self._prepare_turn(prompt).abandon()

    async def _run_all(self) -> None:
        ended: TurnEnded | None = None
        while (prompt := self._take_next() or self._make_own_prompt(ended)) is not None:
            self._turn = turn = self._prepare_turn(prompt)
            if self._interrupt_next is not None and self._steering is not None:
                turn.is_interrupted = True
                self._steering.set_leftover(self._interrupt_next)
                self._interrupt_next = None
            self._turn_task = task = asyncio.create_task(turn.run())
            try:
                ended = await task
                if ended.is_blocked:
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

    def _make_own_prompt(self, ended: TurnEnded | None) -> Prompt | None:
        """Return a prompt made of what came too late for the last turn, if that turn ended well."""
        if not self._may_start or ended is None or ended.reason != "end_turn":
            return None
        return self._make_notification_prompt() or self._make_message_prompt()

    def _make_notification_prompt(self) -> Prompt | None:
        if not self._notifications or self._self_started_turns >= MAX_SELF_STARTED_TURNS:
            return None
        self._self_started_turns += 1
        notifications = self.take_notifications()
        last = notifications[-1]
        self._self_started_ids.add(last.id)
        return self._limit_mode(msgspec.structs.replace(last, text="\n\n".join(item.text for item in notifications)))

    def _prepare_turn(self, prompt: Prompt | Continue) -> AgentTurn:
        mail = self._deps.inbox.take(self.name)
        mode = self._mode_for(get_strictest_mode(prompt.mode or self._current_mode, mail.mode))
        continues = isinstance(prompt, Continue)
        asked = Prompt(prompt.id, "") if isinstance(prompt, Continue) else prompt
        # The notes: changes of environment, date and mode, and unsent context.
        place = self._deps.environment
        date = format_date(place.timing.clock())
        notes: list[str] = []
        if not self.name and not continues and (cut := _CUT_SHORT_NOTES.get(self._recorder.state.last_reason or "")):
            notes.append(cut)
        if not self._last_date:
            roots = self._recorder.state.permissions.list_roots(self._deps.root)
            notes.append(describe_environment(place.cwd, self._deps.root, place.shell, date, roots))
        elif date != self._last_date:
            notes.append(f"Date: {date}")
        if self._last_mode not in (None, mode):
            notes.append(f"The mode is now {mode}.")
        self._last_date, self._last_mode = date, mode
        context, self._context = self._context, []
        notes += [*context, *(item.text for item in self.take_notifications())]
        by_user = not continues and prompt.id not in self._self_started_ids
        self._self_started_ids.discard(prompt.id)
        if by_user:  # what the agent starts by itself belongs to the last prompt
            self._output_schema = asked.output_schema
            self._place = (asked.provenance.channel, asked.provenance.chat) if asked.provenance else ("cli", "direct")
        started = copy_prompt(
            TurnStarted,
            asked,
            mode=mode,
            notes=(*notes, mail.text) if mail.text else tuple(notes),
            continues=continues,
            mail=(*self._messages_by_prompt.pop(prompt.id, ()), *mail.ids),
            output_schema=self._output_schema,
        )

        def fits(other: Mode) -> bool:
            return self._mode_for(other) == scope.mode

        self._steering = steering = Steering(
            self._queue,
            self._recorder,
            turn=prompt.id,
            agent=self.name,
            fits=fits,
            one_at_a_time=self._one_at_a_time,
            attachments=self._attachments,
        )
        cwd, root = self._deps.environment.cwd, self._deps.root
        scope = CallScope(self.name, mode, cwd, root, RepetitionGuard(), steering.is_steered)
        scope.channel, scope.chat = self._place
        brings = isinstance(prompt, Prompt) and by_user and self._attachments.has_attachments(prompt)
        attach = partial(self._attachments.read, prompt, mode) if brings and isinstance(prompt, Prompt) else None
        return AgentTurn(
            self._deps.deps_for(mode),
            started,
            scope,
            steering=steering,
            take_unsent=self._take_unsent,
            by_user=by_user,
            attach=attach,
            on_ended=self._on_turn_ended,
        )

    def _take_unsent(self) -> NoteAdded | None:
        """Return context, notifications and mail that arrived during the turn, for its next request.

        From here on the turn may do no more than the turns that wrote to it.
        """
        mail = self._deps.inbox.take(self.name)
        if mail.mode is not None and self._turn is not None:
            self.set_mode(get_strictest_mode(mail.mode, self._turn.mode))
        context, self._context = self._context, []
        parts = [*context, *(item.text for item in self.take_notifications()), *filter(None, [mail.text])]
        return NoteAdded("\n\n".join(parts), mail.ids) if parts else None
