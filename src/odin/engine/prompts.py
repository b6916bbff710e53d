"""The way of a prompt to the agent: custom commands, attachments, the queue, and injection into the running turn.

Custom commands are expanded on submission, for every front end; the typed text stays for display. Attached files and
images are read when the prompt is taken from the queue, so that the model sees them as they are then.

One event takes a prompt from the queue, `TurnStarted` or `PromptInjected`, emitted in the same step that removes it.
So a prompt can be edited until the model reads it, and is never lost or read twice. Prompts of an earlier run are
paused: resuming a session must not run what was typed last week.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec
from msgspec import Struct

from odin.core.call_events import FileCached, SkillUsed
from odin.core.client import CustomCommand, QueuedPrompt
from odin.core.errors import OdinError, QueueFull, UsageError
from odin.core.event import AnyEvent, PromptDropped, PromptInjected, PromptPaused, Warned
from odin.core.event_values import CachedFile, Delivery, ExitReason, Mode
from odin.core.message import Attachment, Image
from odin.core.op import ChangePrompt, Prompt, QueuePolicy
from odin.core.prompt import P, PromptData, copy_prompt
from odin.core.text import to_valid_unicode
from odin.engine.recorder import Recorder

if TYPE_CHECKING:
    from odin.context.library import CommandLibrary, CommandText

T = TypeVar("T")


class AttachedContent(Struct, frozen=True):
    """Attachments as read: notes and images for the model, what the user is told, and files for the file cache."""

    notes: tuple[str, ...] = ()
    images: tuple[Image, ...] = ()
    warnings: tuple[str, ...] = ()
    files: tuple[CachedFile, ...] = ()
    attached: tuple[str, ...] = ()

    def to_events(self) -> list[AnyEvent]:
        told = (Warned(f"Attached {item}.", "info") for item in self.attached)
        return [*told, *map(Warned, self.warnings), *map(FileCached, self.files)]


NO_CONTENT = AttachedContent()


class Attachments(Protocol):
    """Reads the attachments of prompts. The methods are those of an agent whose prompts attach nothing."""

    async def accept(self, prompt: Prompt) -> Prompt:
        """Save the prompt's images and return it referring to them. Raise UsageError if they could not be sent."""
        return prompt

    def has_attachments(self, prompt: Prompt) -> bool:
        """True if the prompt may have something to read."""
        return False

    async def read(self, prompt: Prompt, mode: Mode) -> AttachedContent:
        """Read the attachments as they are now. Never raises: problems become warnings."""
        return NO_CONTENT

    def forget(self) -> None:
        """Forget the last read: it did not enter the conversation."""


class NoAttachments(Attachments):
    """For sub-agents: a prompt that a model wrote attaches nothing."""


class ExpandedPrompt(Struct, frozen=True):
    """A prompt for the model, the text to display if that differs, the skill it calls, and what it attaches."""

    text: str
    display_text: str = ""
    skill: SkillUsed | None = None
    attachments: tuple[Attachment, ...] = ()


class PromptSource(Protocol):
    """Commands whose text comes from elsewhere: the prompts of MCP servers."""

    def list_commands(self) -> Sequence[CustomCommand]: ...

    def expand_command(self, word: str, arguments: str) -> Coroutine[Any, Any, ExpandedPrompt | None]:
        """Return what a command stands for, or None if there is none. Raise UsageError if it cannot be used."""
        ...


RunShell = Callable[["CommandText", str], Coroutine[Any, Any, tuple[dict[str, str], str]]]
"""Runs the commands in the text of a custom command; returns their output, and why some may not run."""


class CommandExpander:
    """Expands custom commands, skills, and the commands of `prompts`. `library` is loaded on first use.

    In a folder that is not `trusted`, warn if the project's command replaced one of the user's or Odin's own.
    `is_trusted` says of a command whether it may run programs and allow tool calls.
    """

    def __init__(
        self,
        library: "Callable[[], CommandLibrary]",
        recorder: Recorder,
        *,
        trusted: bool,
        is_trusted: "Callable[[CommandText], bool]",
        run_shell: RunShell,
        prompts: PromptSource | None = None,
    ) -> None:
        self._prompts = prompts
        self._is_trusted = is_trusted
        self._run_shell = run_shell
        self._told: set[str] = set()
        self._fetching: asyncio.Task[Any] | None = None
        self._make_library = library
        self._loaded: CommandLibrary | None = None
        self._recorder = recorder
        self._trusted = trusted

    async def expand(self, prompt_id: str, text: str, shown: str = "") -> ExpandedPrompt:
        """Return the text for the model. Unknown commands are plain text. Raise UsageError if a skill cannot be used.

        A text that comes with its display text is not expanded again, so a replay sends the same bytes.
        """
        if shown:
            return ExpandedPrompt(text, "" if shown == text else shown)
        if not text.lstrip().startswith("/"):
            return ExpandedPrompt(text)
        library = self._get_library()
        match = await asyncio.to_thread(library.find, text)
        self._warn(library.take_warnings())
        if match is not None:
            command, arguments = match
            self._warn_if_overridden(command)
            return await self._expand_command(command, arguments, prompt_id, text.strip())
        filled = await asyncio.to_thread(library.expand_skill, text, self._recorder.state.session)
        if filled is None:
            return await self._expand_prompt(text)
        skill, body = filled
        used = SkillUsed(skill.name, to_valid_unicode(skill.path), prompt_id, skill.allowed_tools)
        return ExpandedPrompt(body, text.strip(), used)

    async def _expand_command(
        self, command: "CommandText", arguments: str, prompt_id: str, shown: str
    ) -> ExpandedPrompt:
        name, outputs, used = command.command.name, dict[str, str](), None
        has_programs = "!`" in command.body
        if has_programs or command.allowed_tools:
            if not await asyncio.to_thread(self._is_trusted, command):
                why = "its files are not trusted, or have changed. `odin trust` shows them."
                self._tell_once(f"/{name} is only text, and runs and allows nothing: {why}")
            else:
                if has_programs:
                    outputs, why = await self._wait_for(self._run_shell(command, arguments), name)
                    if why:
                        self._tell_once(f"What /{name} writes as !`command` stays text: {why}")
                if command.allowed_tools:
                    used = SkillUsed(name, to_valid_unicode(command.path), prompt_id, command.allowed_tools)
        return ExpandedPrompt(command.fill(arguments, outputs), shown, used)

    async def _expand_prompt(self, text: str) -> ExpandedPrompt:
        if self._prompts is None:
            return ExpandedPrompt(text)
        word, _, arguments = text.strip().removeprefix("/").partition(" ")
        found = await self._wait_for(self._prompts.expand_command(word, arguments.strip()), word)
        return ExpandedPrompt(text) if found is None else msgspec.structs.replace(found, display_text=text.strip())

    async def _wait_for(self, work: Coroutine[Any, Any, T], word: str) -> T:
        """Return the result of what `interrupt` can stop."""
        self._fetching = task = asyncio.ensure_future(work)
        try:
            await asyncio.wait([task])
            if task.cancelled():
                raise UsageError(f"/{word} was interrupted.")
            return task.result()
        finally:
            task.cancel()
            self._fetching = None

    def _tell_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._recorder.emit(Warned(text))

    def interrupt(self) -> bool:
        """Give up a command whose text is being made. False if there is none."""
        return self._fetching is not None and self._fetching.cancel()

    async def list_commands(self) -> tuple[CustomCommand, ...]:
        library = self._get_library()
        commands = await asyncio.to_thread(library.list_commands)
        self._warn(library.take_warnings())
        return commands if self._prompts is None else (*commands, *self._prompts.list_commands())

    def forget(self) -> None:
        """Read the commands and skills again."""
        self._loaded = None

    def _get_library(self) -> "CommandLibrary":
        if self._loaded is None:
            self._loaded = self._make_library()
        return self._loaded

    def _warn_if_overridden(self, text: "CommandText") -> None:
        if text.overridden_path and not self._trusted:
            notice = f"/{text.command.name} is the project's ({text.path}); it replaces {text.overridden_path}."
            self._recorder.emit(Warned(notice, "info"))

    def _warn(self, warnings: list[str]) -> None:
        for warning in warnings:
            self._recorder.emit(Warned(warning))


MAX_STEERING = 10
"""Maximum number of queued steering prompts."""


class PromptQueue:
    """The queued prompts of one agent, first in, first out, each with a delivery.

    A paused prompt does not start by itself: an earlier run of the session or an interrupt left it. Changing its
    delivery resumes it. `emit` is called when a prompt is paused or resumed.
    """

    def __init__(self, left: Iterable[QueuedPrompt], emit: Callable[[PromptPaused], object]) -> None:
        self._waiting = {item.id: copy_prompt(Prompt, item) for item in left}
        self._paused_ids = set[str]()
        self._emit = emit
        self.pause_all()

    @property
    def has_due(self) -> bool:
        """True if a prompt is queued that is not paused."""
        return len(self._waiting) > len(self._paused_ids)

    def get(self, prompt_id: str) -> Prompt | None:
        return self._waiting.get(prompt_id)

    def put(self, prompt: Prompt) -> None:
        self._check_room(prompt.delivery)
        self._waiting[prompt.id] = prompt

    def change(self, op: ChangePrompt) -> Prompt | None:
        """Return the changed prompt, or None if it is unknown or was taken. It keeps its place."""
        prompt = self._waiting.get(op.id)
        if prompt is None:
            return None
        if prompt.delivery != "steer":
            self._check_room(op.delivery)
        changed = self._waiting[op.id] = change_prompt(prompt, op)
        if op.delivery is not None and op.id in self._paused_ids:
            self._paused_ids.discard(op.id)
            self._emit(PromptPaused(op.id, paused=False))
        return changed

    def drop(self, prompt_id: str) -> bool:
        """Remove a prompt; False if it is unknown or was taken."""
        self._paused_ids.discard(prompt_id)
        return self._waiting.pop(prompt_id, None) is not None

    def take(self) -> Prompt | None:
        """Take the next prompt that gets a turn of its own."""
        for prompt in self._list_due():
            self.drop(prompt.id)
            return prompt
        return None

    def find_injectable(
        self, fits: Callable[[Mode], bool], deliveries: tuple[Delivery, ...] = ("merge", "steer")
    ) -> Prompt | None:
        """Return the next prompt to inject into the running turn; its mode must fit, and it must have no options."""
        for item in self._list_due():
            if item.delivery in deliveries and fits(item.mode) and not item.has_options:
                return item
        return None

    @property
    def paused_ids(self) -> frozenset[str]:
        return frozenset(self._paused_ids)

    def list_due_ids(self) -> frozenset[str]:
        return frozenset(prompt.id for prompt in self._list_due())

    def pause_all(self) -> None:
        self.pause(self._waiting)

    def pause(self, ids: Collection[str]) -> None:
        """Pause those of these prompts that are still queued."""
        for prompt in self._list_due():
            if prompt.id in ids:
                self._paused_ids.add(prompt.id)
                self._emit(PromptPaused(prompt.id))

    def take_due(self, ids: Collection[str]) -> list[Prompt]:
        """Take those of these prompts that are not paused, in order."""
        return [prompt for prompt in self._list_due() if prompt.id in ids and self.drop(prompt.id)]

    def _list_due(self) -> list[Prompt]:
        return [prompt for prompt in self._waiting.values() if prompt.id not in self._paused_ids]

    def _check_room(self, delivery: Delivery | None) -> None:
        if delivery == "steer" and sum(item.delivery == "steer" for item in self._waiting.values()) >= MAX_STEERING:
            raise QueueFull(MAX_STEERING)


def change_prompt(prompt: P, op: ChangePrompt) -> P:
    """Return the prompt with the fields that the op sets."""
    changes = {name: value for name in PromptData.__struct_fields__ if (value := getattr(op, name, None)) is not None}
    if op.text is None:  # the displayed text goes with the text
        del changes["display_text"]
    return msgspec.structs.replace(prompt, **changes)


CheckPrompt = Callable[[str], Awaitable[str]]
"""Return why a prompt is blocked, or ""."""


class LeftoverQueue(Struct, frozen=True):
    """The prompts that were queued when an interrupt came, and what happens to them."""

    policy: QueuePolicy
    prompts: frozenset[str]


class Steering:
    """Injects queued prompts into one running turn.

    `fits` is True for modes whose prompts may be injected. With `one_at_a_time` each request takes at most one
    steering prompt.
    """

    def __init__(
        self,
        queue: PromptQueue,
        recorder: Recorder,
        *,
        turn: str,
        agent: str,
        fits: Callable[[Mode], bool],
        one_at_a_time: bool,
        attachments: Attachments,
    ) -> None:
        self._leftover = LeftoverQueue("pause", frozenset())
        self._queue = queue
        self._recorder = recorder
        self._turn = turn
        self._agent = agent
        self._fits = fits
        self._one_at_a_time = one_at_a_time
        self._attachments = attachments

    def set_leftover(self, leftover: LeftoverQueue) -> None:
        """Set what the end of the turn does to prompts queued at an interrupt. Later prompts are not affected."""
        self._leftover = leftover

    def has_waiting(self) -> bool:
        """True if the turn must continue because a prompt waits to be injected."""
        return self._queue.find_injectable(self._fits) is not None

    def is_steered(self) -> bool:
        """True if a steering prompt waits, so that calls which have not started are skipped."""
        return self._queue.find_injectable(self._fits, ("steer",)) is not None

    async def inject_prompts(self, check: CheckPrompt) -> None:
        """Inject waiting prompts before a request. While one is checked and read it can still be changed or dropped."""
        steered = False
        while (prompt := self._find_next(steered)) is not None:
            refused = await check(prompt.text)
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
                content = {"notes": attached.notes, "images": attached.images}
                self._emit(copy_prompt(PromptInjected, prompt, turn=self._turn, **content))
                for event in attached.to_events():
                    self._emit(event)

    def finish_turn(self, reason: ExitReason, *, checked: bool) -> None:
        """Apply the queue policy of an interrupt before the end of the turn is published. An abort pauses the queue.

        Instead of being injected, a prompt is paused if hooks check prompts (`checked`), because none has seen it, or
        if it has attachments, which are read when it is sent.
        """
        if reason == "aborted":
            self._queue.pause_all()
        policy, prompts = self._leftover.policy, self._leftover.prompts
        if reason != "interrupted" or policy == "keep":
            return
        if policy == "pause" or (policy == "inject" and checked):
            self._queue.pause(prompts)
            return
        if policy == "inject":
            waiting = filter(None, map(self._queue.get, prompts))
            self._queue.pause([prompt.id for prompt in waiting if self._attachments.has_attachments(prompt)])
        for prompt in self._queue.take_due(prompts):
            with suppress(OdinError):  # the end of the turn reports a log that cannot be written
                self._emit(copy_prompt(PromptInjected, prompt) if policy == "inject" else PromptDropped(prompt.id))

    def _find_next(self, steered: bool) -> Prompt | None:
        one = steered and self._one_at_a_time
        return self._queue.find_injectable(self._fits, ("merge",)) if one else self._queue.find_injectable(self._fits)

    def _emit(self, event: AnyEvent) -> None:
        self._recorder.emit(event, self._agent)
