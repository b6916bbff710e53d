"""What the prompts that wait mean to the running turn: which come into it, and what becomes of the rest at its end."""

from collections.abc import Awaitable, Callable
from contextlib import suppress

from msgspec import Struct

from odin.core.errors import OdinError
from odin.core.event import AnyEvent, ExitReason, Mode, PromptDropped, PromptInjected, Warned
from odin.core.op import Prompt, QueuePolicy
from odin.engine.attaching import NO_CONTENT, AttachedContent, Attachments
from odin.engine.inbox import PromptQueue
from odin.engine.recorder import Recorder

JudgePrompt = Callable[[str], Awaitable[str]]
"""Why a prompt may not come in, or ""."""


class LeftoverQueue(Struct, frozen=True):
    """What an interrupt makes of the prompts that waited when it came."""

    how: QueuePolicy
    prompts: frozenset[str]


class Steering:
    """The way from the inbox into one turn.

    `fits` tells whether a prompt of that mode may come in. With `one_at_a_time` every request takes one steering
    prompt, and the next follows with the request after it.
    """

    def __init__(
        self,
        inbox: PromptQueue,
        recorder: Recorder,
        *,
        turn: str,
        agent: str,
        fits: Callable[[Mode], bool],
        one_at_a_time: bool,
        attachments: Attachments,
    ) -> None:
        self._leftover = LeftoverQueue("join", frozenset())
        self._queue = inbox
        self._recorder = recorder
        self._turn = turn
        self._agent = agent
        self._fits = fits
        self._one_at_a_time = one_at_a_time
        self._attachments = attachments

    def set_leftover(self, left: "LeftoverQueue") -> None:
        """An interrupt: what becomes of those that wait at that moment. What is said later is not meant by it."""
        self._leftover = left

    def has_waiting(self) -> bool:
        """Whether the turn must go on, because somebody has said something to it."""
        return self._queue.find_injectable(self._fits) is not None

    def is_steered(self) -> bool:
        """Whether calls that have not begun are to be left out."""
        return self._queue.find_injectable(self._fits, ("steer",)) is not None

    async def inject_prompts(self, judge: JudgePrompt) -> None:
        """Before a request: what was said joins the conversation. Until it has, it can be changed and taken back."""
        steered = False
        while (prompt := self._find_next(steered)) is not None:
            refused = await judge(prompt.text)
            brings = not refused and self._attachments.has_attachments(prompt)
            attached = await self._attachments.read(prompt, prompt.mode) if brings else NO_CONTENT
            if self._queue.get(prompt.id) is not prompt:
                self._attachments.forget()
                continue
            self._queue.drop(prompt.id)
            steered = steered or prompt.delivery == "steer"
            if refused:
                self._emit(PromptDropped(prompt.id))
                self._emit(Warned(refused))
            else:
                self._emit(_injection_event_of(prompt, self._turn, attached))
                for event in attached.to_events():
                    self._emit(event)

    def finish_turn(self, reason: ExitReason, *, judged: bool) -> None:
        """The turn is about to end. After an interrupt nothing begins by itself, unless that is wanted.

        Where hooks judge prompts nothing joins unseen: it rests until somebody sends it. So does what brings files
        along, which are read when it is sent.
        """
        if reason == "aborted":
            self._queue.pause_all()
        how, prompts = self._leftover.how, self._leftover.prompts
        if reason != "interrupted" or self._agent or how == "keep":
            return
        if how == "rest" or (how == "join" and judged):
            self._queue.pause(prompts)
            return
        if how == "join":
            waiting = filter(None, map(self._queue.get, prompts))
            self._queue.pause([prompt.id for prompt in waiting if self._attachments.has_attachments(prompt)])
        for prompt in self._queue.take_due(prompts):
            with suppress(OdinError):  # a log that cannot be written is told by the end of the turn
                self._emit(_removal_event_of(prompt, joined=how == "join"))

    def _find_next(self, steered: bool) -> Prompt | None:
        one = steered and self._one_at_a_time
        return self._queue.find_injectable(self._fits, ("merge",)) if one else self._queue.find_injectable(self._fits)

    def _emit(self, event: AnyEvent) -> None:
        self._recorder.emit(event, self._agent)


def _removal_event_of(prompt: Prompt, *, joined: bool) -> PromptInjected | PromptDropped:
    if not joined:
        return PromptDropped(prompt.id)
    return _injection_event_of(prompt, "", NO_CONTENT)


def _injection_event_of(prompt: Prompt, turn: str, attached: AttachedContent) -> PromptInjected:
    return PromptInjected(
        prompt.id,
        prompt.text,
        prompt.mode,
        turn,
        prompt.display_text,
        attached.notes,
        attached.images,
        prompt.attachments,
    )
