"""Reads what people attach to a prompt, as the Read tool would: the same bounds, the same rules, the same memory.

What a person names may be read, also outside of the project. What the rules deny, and files in which people keep
secrets, are left out, and the person is told: nobody sends those by a slip of the tongue.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct, structs

from odin.context.files import FileCache, Journal, journaled
from odin.core.attachment import MAX_IMAGES, Attachment
from odin.core.event import CachedFile, ContextAdded, Mode
from odin.core.message import Image
from odin.core.op import Prompt
from odin.core.redaction import Redact
from odin.core.text import mended
from odin.core.tool import Subject, ToolContext, ToolOutput
from odin.engine.attaching import NOTHING, Attached
from odin.policy.process.runner import ProcessRunner
from odin.policy.rules import Policy

PATIENCE_S = 20.0
"""How long reading may take, for all that one prompt brings."""

ALL_CHARS = 120_000
"""When so much is attached, what follows is left for the model to read by itself."""

_OWN_WISH = "outside the project"
"""What is asked for this reason alone, the person has answered by naming it."""

_SECRET = "Ask for it in words, and you are asked whether the model may read it."


class Means(Struct, frozen=True):
    """What reading needs. `window` gives the tokens of the model's window, 0 when it is not known, and `sees` whether
    it is shown images. `seen` gives the files that became known since it was last called."""

    cwd: str
    root: str
    home: str
    session: str
    folder: Path
    files: FileCache
    runner: ProcessRunner
    policy: Callable[[], Policy]
    redact: Redact
    seen: Callable[[], Sequence[CachedFile]]
    window: Callable[[], int]
    sees: Callable[[], bool]


class Attacher:
    """The attachments of the main agent. Nothing is loaded for a prompt that mentions nothing."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._read: list[Journal] = []

    def _named(self, prompt: Prompt) -> list[Attachment]:
        if not prompt.attached and "@" not in prompt.text:
            return []
        from odin.app.mentioned import Place, named

        return named(prompt, Place(self._means.cwd, self._means.root, self._means.home))

    def brings(self, prompt: Prompt) -> bool:
        return bool(self._named(prompt))

    async def accept(self, prompt: Prompt) -> Prompt:
        if not prompt.attached and "@" not in prompt.text:
            return prompt
        return await asyncio.to_thread(self._accepted, prompt)

    def _accepted(self, prompt: Prompt) -> Prompt:
        """Everything is checked before anything is kept."""
        from odin.app.mentioned import brings_picture, check_pictures, picture, stored

        brought = [item for item in prompt.attached if brings_picture(item)]
        check_pictures((item for item in self._named(prompt) if not self._kept_back(item, prompt.mode)), len(brought))
        for item in brought:
            picture(item.data, Path(item.path).name or "The clipboard")
        folder = self._means.folder
        kept = tuple(stored(item, folder) if item.data else item for item in prompt.attached)
        return structs.replace(prompt, attached=kept)

    async def read(self, prompt: Prompt, mode: Mode) -> Attached:
        self._read = []
        items = self._named(prompt)
        if not items:
            return NOTHING
        gathered = _Gathered(self._room())
        try:
            async with asyncio.timeout(PATIENCE_S):
                for item in items:
                    await self._add(item, mode, gathered)
        except TimeoutError:
            gathered.left_out("The rest of what was attached", f"reading took longer than {PATIENCE_S:g} s.")
        except BaseException:
            self.forget()
            raise
        return self._told(gathered)

    def forget(self) -> None:
        for journal in reversed(self._read):
            self._means.files.take_back(journal)
        self._read = []

    def _room(self) -> int:
        """Characters that may be attached: half of the window at most."""
        window = self._means.window()
        return min(ALL_CHARS, window * 3 // 2) if window else ALL_CHARS

    def _told(self, gathered: "_Gathered") -> Attached:
        if gathered.images and not self._means.sees():
            gathered.warnings.append("This model is not shown images, so it only knows that some were attached.")
        files = tuple(structs.replace(file, path=mended(file.path)) for file in self._means.seen())
        return Attached(tuple(gathered.notes), tuple(gathered.images), tuple(gathered.warnings), files)

    async def _add(self, item: Attachment, mode: Mode, gathered: "_Gathered") -> None:
        why = self._kept_back(item, mode)
        if why:
            gathered.left_out(_shown(item), why)
            return
        if gathered.chars >= gathered.room:
            gathered.left_out(_shown(item), "there is too much already; the model can read it by itself.")
            return
        journal = Journal()
        with journaled(journal):
            output = await self._output(item, mode)
        if output.is_error:
            gathered.left_out(_shown(item), output.text)
        elif len(output.images) + len(gathered.images) > MAX_IMAGES:
            gathered.left_out(_shown(item), f"a prompt takes at most {MAX_IMAGES} images.")
        elif len(output.text) > gathered.room:
            gathered.left_out(_shown(item), "it is too long for this model. Name some lines of it, as in @path:1-200.")
        else:
            self._means.files.count(journal)
            self._read.append(journal)
            text = mended(self._means.redact(output.text).text)
            gathered.add(ContextAdded(text, _lines(item)).note, _called(output.images, item))
            return
        self._means.files.take_back(journal)

    async def _output(self, item: Attachment, mode: Mode) -> ToolOutput:
        means = self._means
        ctx = ToolContext(means.cwd, means.root, means.session, "", "", mode, lambda line: None)
        if os.path.isdir(item.path):  # noqa: PTH112 (a path that cannot be one is none)
            from odin.tools.ls import LS, LSArgs

            return await LS(means.files).run(LSArgs(item.path), ctx)
        from odin.tools.read import Read, ReadArgs
        from odin.tools.reading.formats import Formats

        count = item.last - max(item.first, 1) + 1 if item.last else None
        args = ReadArgs(item.path, item.first or None, count)
        return await Read(means.files, Formats(means.folder, means.runner)).run(args, ctx)

    def _kept_back(self, item: Attachment, mode: Mode) -> str:
        """Why it is not sent, or ""."""
        verdict = self._means.policy().judge("Read", "read", Subject(paths=(item.path,)), mode)
        if verdict.action == "allow" or (verdict.action == "ask" and verdict.rule == _OWN_WISH):
            return ""
        return f"{verdict.reason} {_SECRET}" if verdict.action == "ask" else verdict.reason


class _Gathered:
    """What has been read of it so far. There is `room` for so many characters, and `chars` are taken."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.chars = 0
        self.notes: list[str] = []
        self.images: list[Image] = []
        self.warnings: list[str] = []

    def add(self, note: str, images: Sequence[Image]) -> None:
        self.notes.append(note)
        self.images += images
        self.chars += len(note)

    def left_out(self, what: str, why: str) -> None:
        self.warnings.append(mended(f"{what} was not attached: {why}"))
        self.notes.append(mended(f"{what}, which the user mentions, was not attached: {why}"))


def _shown(item: Attachment) -> str:
    return item.name or item.path


def _lines(item: Attachment) -> str:
    """The file, with the lines that were asked for."""
    if not item.first and not item.last:
        return mended(item.path)
    return mended(f"{item.path}:{item.first or 1}-{item.last}" if item.last else f"{item.path}:{item.first}-")


def _called(images: Sequence[Image], item: Attachment) -> list[Image]:
    name = mended(item.name or Path(item.path).name)
    return [structs.replace(image, name=name) for image in images]
