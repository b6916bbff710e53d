"""What comes with a prompt beside its words: files and pictures, read at the moment in which the prompt is taken.

Custom commands become what they stand for when they are submitted, whichever front end they come from.

What was typed stays beside it, for people to see. Text that begins with a slash and names no command is just text.

Prompts that wait: first in, first out, each in the mode it was sent in. Until it is taken, one can be changed.

What the prompts that wait mean to the running turn: which come into it, and what becomes of the rest at its end.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec import Struct

from odin.core.client import CustomCommand, QueuedPrompt
from odin.core.errors import OdinError, QueueFull
from odin.core.event import (
    AnyEvent,
    CachedFile,
    Delivery,
    ExitReason,
    FileCached,
    Mode,
    PromptDropped,
    PromptInjected,
    Warned,
)
from odin.core.message import Image
from odin.core.op import ChangePrompt, Prompt, QueuePolicy
from odin.engine.recorder import Recorder

if TYPE_CHECKING:
    from odin.context.library import CommandLibrary, CommandText


class AttachedContent(Struct, frozen=True):
    """What the model is told of it and shown, what people are told, and the files that are known from now on."""

    notes: tuple[str, ...] = ()
    images: tuple[Image, ...] = ()
    warnings: tuple[str, ...] = ()
    files: tuple[CachedFile, ...] = ()

    def to_events(self) -> list[AnyEvent]:
        return [*map(Warned, self.warnings), *map(FileCached, self.files)]


NO_CONTENT = AttachedContent()


class Attachments(Protocol):
    async def accept(self, prompt: Prompt) -> Prompt:
        """The prompt with what it brings in safe keeping. Raises UsageError when pictures could not be sent."""
        ...

    def has_attachments(self, prompt: Prompt) -> bool:
        """Whether there may be something to read for it."""
        ...

    async def read(self, prompt: Prompt, mode: Mode) -> AttachedContent:
        """What it brings, as it is now. It never fails: what cannot be had is told."""
        ...

    def forget(self) -> None:
        """What was read last did not get into the conversation."""
        ...


class NoAttachments:
    """For agents that only hear from other agents: what a model writes brings nothing along."""

    async def accept(self, prompt: Prompt) -> Prompt:
        return prompt

    def has_attachments(self, prompt: Prompt) -> bool:
        return False

    async def read(self, prompt: Prompt, mode: Mode) -> AttachedContent:
        return NO_CONTENT

    def forget(self) -> None:
        return


class CommandExpander:
    """`library` is made when it is first needed. In a folder that is not `trusted` it is told when the project's
    command took the place of one of the user's own."""

    def __init__(self, library: "Callable[[], CommandLibrary]", recorder: Recorder, *, trusted: bool) -> None:
        self._make_library = library
        self._loaded: CommandLibrary | None = None
        self._recorder = recorder
        self._trusted = trusted

    async def expand(self, text: str, shown: str = "") -> tuple[str, str]:
        """What the model reads, and what people see of it where that is another."""
        if shown:
            return text, "" if shown == text else shown
        if not text.lstrip().startswith("/"):
            return text, ""
        library = self._get_library()
        found = await asyncio.to_thread(library.find, text)
        self._warn(library.take_warnings())
        if found is None:
            return text, ""
        command, arguments = found
        self._warn_if_overridden(command)
        return command.fill(arguments), text.strip()

    async def list_commands(self) -> tuple[CustomCommand, ...]:
        library = self._get_library()
        found = await asyncio.to_thread(library.list_commands)
        self._warn(library.take_warnings())
        return found

    def _get_library(self) -> "CommandLibrary":
        if self._loaded is None:
            self._loaded = self._make_library()
        return self._loaded

    def _warn_if_overridden(self, text: "CommandText") -> None:
        if text.overridden_path and not self._trusted:
            whose = f"/{text.command.name} is the project's ({text.path}), not yours ({text.overridden_path})."
            self._recorder.emit(Warned(whose, "info"))

    def _warn(self, warnings: list[str]) -> None:
        for warning in warnings:
            self._recorder.emit(Warned(warning))


MAX_STEERING = 10
"""How many prompts may wait to be sent into the running turn."""


class PromptQueue:
    """The drafts of one agent, each with a lane.

    One that rests is not begun by itself: it was left by an earlier run of the session, or by an interrupt. Whoever
    gives it a lane sends it on its way again.
    """

    def __init__(self, left: Iterable[QueuedPrompt] = ()) -> None:
        self._waiting = {item.id: _prompt_of(item) for item in left}
        self._paused_ids = set(self._waiting)

    @property
    def has_due(self) -> bool:
        """Whether one waits that will be begun by itself."""
        return len(self._waiting) > len(self._paused_ids)

    def get(self, prompt_id: str) -> Prompt | None:
        return self._waiting.get(prompt_id)

    def put(self, prompt: Prompt) -> None:
        self._check_room(prompt.delivery)
        self._waiting[prompt.id] = prompt

    def change(self, op: ChangePrompt) -> Prompt | None:
        """The prompt as it is now; None when it is unknown or was taken. It keeps its place."""
        prompt = self._waiting.get(op.id)
        if prompt is None:
            return None
        if prompt.delivery != "steer":
            self._check_room(op.delivery)
        changed = msgspec.structs.replace(
            prompt,
            text=prompt.text if op.text is None else op.text,
            display_text=prompt.display_text if op.text is None else op.display_text,
            mode=op.mode or prompt.mode,
            delivery=op.delivery or prompt.delivery,
            attachments=prompt.attachments if op.attachments is None else op.attachments,
        )
        self._waiting[op.id] = changed
        if op.delivery is not None:
            self._paused_ids.discard(op.id)
        return changed

    def drop(self, prompt_id: str) -> bool:
        """False when it is unknown or was taken."""
        self._paused_ids.discard(prompt_id)
        return self._waiting.pop(prompt_id, None) is not None

    def take(self) -> Prompt | None:
        """The next one to be answered in a turn of its own."""
        for prompt in self._list_due():
            self.drop(prompt.id)
            return prompt
        return None

    def find_injectable(
        self, fits: Callable[[Mode], bool], lanes: tuple[Delivery, ...] = ("merge", "steer")
    ) -> Prompt | None:
        """The next one that goes into a running turn: only where its mode is that of the turn."""
        return next((item for item in self._list_due() if item.delivery in lanes and fits(item.mode)), None)

    @property
    def paused_ids(self) -> frozenset[str]:
        """What waits and is not begun by itself."""
        return frozenset(self._paused_ids)

    def list_due_ids(self) -> frozenset[str]:
        """What waits now and will be begun by itself."""
        return frozenset(prompt.id for prompt in self._list_due())

    def pause_all(self) -> None:
        """Nothing that waits now is begun by itself any more."""
        self._paused_ids = set(self._waiting)

    def pause(self, ids: Collection[str]) -> None:
        """These are not begun by themselves any more, as far as they still wait."""
        self._paused_ids |= self._waiting.keys() & set(ids)

    def take_due(self, ids: Collection[str]) -> list[Prompt]:
        """Those of them that would be begun by themselves, taken out in their order."""
        return [prompt for prompt in self._list_due() if prompt.id in ids and self.drop(prompt.id)]

    def _list_due(self) -> list[Prompt]:
        return [prompt for prompt in self._waiting.values() if prompt.id not in self._paused_ids]

    def _check_room(self, lane: Delivery | None) -> None:
        if lane == "steer" and sum(item.delivery == "steer" for item in self._waiting.values()) >= MAX_STEERING:
            raise QueueFull(MAX_STEERING)


def _prompt_of(item: QueuedPrompt) -> Prompt:
    shown = item.body if item.text else ""
    return Prompt(
        item.id,
        item.text or item.body,
        item.mode,
        delivery=item.delivery,
        display_text=shown,
        attachments=item.attachments,
    )


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
        self._leftover = LeftoverQueue("inject", frozenset())
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
        if how == "pause" or (how == "inject" and judged):
            self._queue.pause(prompts)
            return
        if how == "inject":
            waiting = filter(None, map(self._queue.get, prompts))
            self._queue.pause([prompt.id for prompt in waiting if self._attachments.has_attachments(prompt)])
        for prompt in self._queue.take_due(prompts):
            with suppress(OdinError):  # a log that cannot be written is told by the end of the turn
                self._emit(_removal_event_of(prompt, joined=how == "inject"))

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
