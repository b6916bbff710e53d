"""What comes with a prompt beside its words: files and pictures, read at the moment in which the prompt is taken."""

from typing import Protocol

from msgspec import Struct

from odin.core.event import AnyEvent, CachedFile, FileCached, Mode, Warned
from odin.core.message import Image
from odin.core.op import Prompt


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
