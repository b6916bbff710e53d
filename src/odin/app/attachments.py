"""Reads what people attach to a prompt, as the Read tool would: the same bounds, the same rules, the same memory.

What a person names may be read, also outside of the project. What the rules deny, and files in which people keep
secrets, are left out, and the person is told: nobody sends those by a slip of the tongue.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct, structs

from odin.context.file_cache import CacheJournal, FileCache, record_into
from odin.core.event import CachedFile, ContextAdded, Mode
from odin.core.message import MAX_IMAGES, Attachment, Image
from odin.core.op import Prompt
from odin.core.policy import Redact
from odin.core.text import to_valid_unicode
from odin.core.tool import Subject, ToolContext, ToolOutput
from odin.engine.prompts import NO_CONTENT, AttachedContent
from odin.policy.policy import Policy
from odin.sandbox.runner import ProcessRunner

READ_TIMEOUT_S = 20.0
"""How long reading may take, for all that one prompt brings."""

MAX_TOTAL_CHARS = 120_000
"""When so much is attached, what follows is left for the model to read by itself."""

_OUTSIDE_PROJECT = "outside the project"
"""What is asked for this reason alone, the person has answered by naming it."""

_SECRET_HINT = "Ask for it in words, and you are asked whether the model may read it."


class AttachmentDeps(Struct, frozen=True):
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
    take_new_files: Callable[[], Sequence[CachedFile]]
    context_window: Callable[[], int]
    sees_images: Callable[[], bool]


class AttachmentReader:
    """The attachments of the main agent. Nothing is loaded for a prompt that mentions nothing."""

    def __init__(self, deps: AttachmentDeps) -> None:
        self._deps = deps
        self._journals: list[CacheJournal] = []

    def _find_attachments(self, prompt: Prompt) -> list[Attachment]:
        if not prompt.attachments and "@" not in prompt.text:
            return []
        from odin.tools.mentions import PathBase, find_attachments

        return find_attachments(prompt, PathBase(self._deps.cwd, self._deps.root, self._deps.home))

    def has_attachments(self, prompt: Prompt) -> bool:
        return bool(self._find_attachments(prompt))

    async def accept(self, prompt: Prompt) -> Prompt:
        if not prompt.attachments and "@" not in prompt.text:
            return prompt
        return await asyncio.to_thread(self._store_attachments, prompt)

    def _store_attachments(self, prompt: Prompt) -> Prompt:
        """Everything is checked before anything is kept."""
        from odin.tools.mentions import check_images, has_image_data, store_attachment, validate_image

        brought = [item for item in prompt.attachments if has_image_data(item)]
        check_images(
            (item for item in self._find_attachments(prompt) if not self._explain_refusal(item, prompt.mode)),
            len(brought),
        )
        for item in brought:
            validate_image(item.data, Path(item.path).name or "The clipboard")
        folder = self._deps.folder
        kept = tuple(store_attachment(item, folder) if item.data else item for item in prompt.attachments)
        return structs.replace(prompt, attachments=kept)

    async def read(self, prompt: Prompt, mode: Mode) -> AttachedContent:
        self._journals = []
        items = self._find_attachments(prompt)
        if not items:
            return NO_CONTENT
        gathered = _AttachmentBatch(self._compute_limit())
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                for item in items:
                    await self._add_item(item, mode, gathered)
        except TimeoutError:
            gathered.skip("The rest of what was attached", f"reading took longer than {READ_TIMEOUT_S:g} s.")
        except BaseException:
            self.forget()
            raise
        return self._build_result(gathered)

    def forget(self) -> None:
        for journal in reversed(self._journals):
            self._deps.files.rollback(journal)
        self._journals = []

    def _compute_limit(self) -> int:
        """Characters that may be attached: half of the window at most."""
        window = self._deps.context_window()
        return min(MAX_TOTAL_CHARS, window * 3 // 2) if window else MAX_TOTAL_CHARS

    def _build_result(self, gathered: "_AttachmentBatch") -> AttachedContent:
        if gathered.images and not self._deps.sees_images():
            gathered.warnings.append("This model is not shown images, so it only knows that some were attached.")
        files = tuple(structs.replace(file, path=to_valid_unicode(file.path)) for file in self._deps.take_new_files())
        return AttachedContent(tuple(gathered.notes), tuple(gathered.images), tuple(gathered.warnings), files)

    async def _add_item(self, item: Attachment, mode: Mode, gathered: "_AttachmentBatch") -> None:
        why = self._explain_refusal(item, mode)
        if why:
            gathered.skip(_name_of(item), why)
            return
        if gathered.chars >= gathered.max_chars:
            gathered.skip(_name_of(item), "there is too much already; the model can read it by itself.")
            return
        journal = CacheJournal()
        with record_into(journal):
            output = await self._read_item(item, mode)
        if output.is_error:
            gathered.skip(_name_of(item), output.text)
        elif len(output.images) + len(gathered.images) > MAX_IMAGES:
            gathered.skip(_name_of(item), f"a prompt takes at most {MAX_IMAGES} images.")
        elif len(output.text) > gathered.max_chars:
            gathered.skip(_name_of(item), "it is too long for this model. Name some lines of it, as in @path:1-200.")
        else:
            self._deps.files.commit(journal)
            self._journals.append(journal)
            text = to_valid_unicode(self._deps.redact(output.text).text)
            gathered.add(ContextAdded(text, _describe_range(item)).note, _rename_images(output.images, item))
            return
        self._deps.files.rollback(journal)

    async def _read_item(self, item: Attachment, mode: Mode) -> ToolOutput:
        means = self._deps
        ctx = ToolContext(means.cwd, means.root, means.session, "", "", mode, lambda line: None)
        if os.path.isdir(item.path):  # noqa: PTH112 (a path that cannot be one is none)
            from odin.tools.listing import LSArgs, LSTool

            return await LSTool(means.files).run(LSArgs(item.path), ctx)
        from odin.tools.read import FormatReader, ReadArgs, ReadTool

        count = item.last - max(item.first, 1) + 1 if item.last else None
        args = ReadArgs(item.path, item.first or None, count)
        return await ReadTool(means.files, FormatReader(means.folder, means.runner)).run(args, ctx)

    def _explain_refusal(self, item: Attachment, mode: Mode) -> str:
        """Why it is not sent, or ""."""
        verdict = self._deps.policy().judge("Read", "read", Subject(paths=(item.path,)), mode)
        if verdict.action == "allow" or (verdict.action == "ask" and verdict.rule == _OUTSIDE_PROJECT):
            return ""
        return f"{verdict.reason} {_SECRET_HINT}" if verdict.action == "ask" else verdict.reason


class _AttachmentBatch:
    """What has been read of it so far. There is `room` for so many characters, and `chars` are taken."""

    def __init__(self, max_chars: int) -> None:
        self.max_chars = max_chars
        self.chars = 0
        self.notes: list[str] = []
        self.images: list[Image] = []
        self.warnings: list[str] = []

    def add(self, note: str, images: Sequence[Image]) -> None:
        self.notes.append(note)
        self.images += images
        self.chars += len(note)

    def skip(self, what: str, why: str) -> None:
        self.warnings.append(to_valid_unicode(f"{what} was not attached: {why}"))
        self.notes.append(to_valid_unicode(f"{what}, which the user mentions, was not attached: {why}"))


def _name_of(item: Attachment) -> str:
    return item.name or item.path


def _describe_range(item: Attachment) -> str:
    """The file, with the lines that were asked for."""
    if not item.first and not item.last:
        return to_valid_unicode(item.path)
    return to_valid_unicode(f"{item.path}:{item.first or 1}-{item.last}" if item.last else f"{item.path}:{item.first}-")


def _rename_images(images: Sequence[Image], item: Attachment) -> list[Image]:
    name = to_valid_unicode(item.name or Path(item.path).name)
    return [structs.replace(image, name=name) for image in images]
