"""What the prompts that wait mean to the running turn: which come into it, and what becomes of the rest at its end."""

from collections.abc import Awaitable, Callable
from contextlib import suppress

from msgspec import Struct

from odin.core.errors import OdinError
from odin.core.event import AnyEvent, ExitReason, Mode, PromptDropped, PromptJoined, Warned
from odin.core.op import Leftover, Prompt
from odin.engine.attaching import NOTHING, Attached, Attachments
from odin.engine.inbox import Inbox
from odin.engine.recorder import Recorder

Judge = Callable[[str], Awaitable[str]]
"""Why a prompt may not come in, or ""."""


class Left(Struct, frozen=True):
    """What an interrupt makes of the prompts that waited when it came."""

    how: Leftover
    prompts: frozenset[str]


class Joining:
    """The way from the inbox into one turn.

    `fits` tells whether a prompt of that mode may come in. With `one_at_a_time` every request takes one steering
    prompt, and the next follows with the request after it.
    """

    def __init__(
        self,
        inbox: Inbox,
        recorder: Recorder,
        *,
        turn: str,
        agent: str,
        fits: Callable[[Mode], bool],
        one_at_a_time: bool,
        attachments: Attachments,
    ) -> None:
        self._left = Left("join", frozenset())
        self._inbox = inbox
        self._recorder = recorder
        self._turn = turn
        self._agent = agent
        self._fits = fits
        self._one_at_a_time = one_at_a_time
        self._attachments = attachments

    def leave(self, left: "Left") -> None:
        """An interrupt: what becomes of those that wait at that moment. What is said later is not meant by it."""
        self._left = left

    def waits(self) -> bool:
        """Whether the turn must go on, because somebody has said something to it."""
        return self._inbox.joins(self._fits) is not None

    def steers(self) -> bool:
        """Whether calls that have not begun are to be left out."""
        return self._inbox.joins(self._fits, ("steer",)) is not None

    async def come_in(self, judge: Judge) -> None:
        """Before a request: what was said joins the conversation. Until it has, it can be changed and taken back."""
        steered = False
        while (prompt := self._next(steered)) is not None:
            refused = await judge(prompt.text)
            brings = not refused and self._attachments.brings(prompt)
            attached = await self._attachments.read(prompt, prompt.mode) if brings else NOTHING
            if self._inbox.get(prompt.id) is not prompt:
                self._attachments.forget()
                continue
            self._inbox.drop(prompt.id)
            steered = steered or prompt.lane == "steer"
            if refused:
                self._emit(PromptDropped(prompt.id))
                self._emit(Warned(refused))
            else:
                self._emit(_joined(prompt, self._turn, attached))
                for event in attached.told():
                    self._emit(event)

    def end(self, reason: ExitReason, *, judged: bool) -> None:
        """The turn is about to end. After an interrupt nothing begins by itself, unless that is wanted.

        Where hooks judge prompts nothing joins unseen: it rests until somebody sends it. So does what brings files
        along, which are read when it is sent.
        """
        if reason == "aborted":
            self._inbox.rest()
        how, prompts = self._left.how, self._left.prompts
        if reason != "interrupted" or self._agent or how == "keep":
            return
        if how == "rest" or (how == "join" and judged):
            self._inbox.lay_down(prompts)
            return
        if how == "join":
            waiting = filter(None, map(self._inbox.get, prompts))
            self._inbox.lay_down([prompt.id for prompt in waiting if self._attachments.brings(prompt)])
        for prompt in self._inbox.empty(prompts):
            with suppress(OdinError):  # a log that cannot be written is told by the end of the turn
                self._emit(_taken(prompt, joined=how == "join"))

    def _next(self, steered: bool) -> Prompt | None:
        one = steered and self._one_at_a_time
        return self._inbox.joins(self._fits, ("merge",)) if one else self._inbox.joins(self._fits)

    def _emit(self, event: AnyEvent) -> None:
        self._recorder.emit(event, self._agent)


def _taken(prompt: Prompt, *, joined: bool) -> PromptJoined | PromptDropped:
    if not joined:
        return PromptDropped(prompt.id)
    return _joined(prompt, "", NOTHING)


def _joined(prompt: Prompt, turn: str, attached: Attached) -> PromptJoined:
    return PromptJoined(
        prompt.id, prompt.text, prompt.mode, turn, prompt.shown, attached.notes, attached.images, prompt.attached
    )
