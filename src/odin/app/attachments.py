"""Reads the attachments of a prompt with the limits, rules and cache of the Read tool.

Files that the user names may be outside the project, unless a client sends the prompt that may not approve. Files that
rules deny, and files that usually hold secrets, are left out with a warning, so that the user does not send them by
accident.
"""

import asyncio
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, structs

from odin.context.file_cache import CacheJournal, FileCache, record_into
from odin.core.event import ContextAdded
from odin.core.event_values import CachedFile, Mode
from odin.core.message import MAX_IMAGES, Attachment, Image
from odin.core.op import Prompt
from odin.core.path_names import contains
from odin.core.policy import Redact
from odin.core.root import Root
from odin.core.text import get_typed_text, to_valid_unicode
from odin.core.tool import Target, ToolContext, ToolOutput, fail
from odin.engine.prompts import AttachedContent
from odin.sandbox.runner import ProcessRunner
from odin.tools.read import FormatReader, ReadArgs, ReadTool
from odin.tools.search_args import LSArgs
from odin.tools.search_tools import LSTool

if TYPE_CHECKING:
    from odin.policy.policy import Policy

READ_TIMEOUT_S = 20.0
"""Time limit for reading all attachments of a prompt."""

MAX_TOTAL_CHARS = 120_000
"""Attachments beyond this total are skipped; the model can read them itself."""

_OUTSIDE_PROJECT = "outside the project"
"""A call that is asked about only for this reason is allowed if the user named the file outside, not a link to it."""

_LINK_HINT = "Mention that path itself to attach it."
_SECRET_HINT = "Ask the model to read it, and Odin will ask for your permission."


class ResourceSource(Protocol):
    """Resources that a prompt can mention as `@name:uri`: those of MCP servers."""

    def find_mentioned(self, mention: str) -> tuple[str, str] | None:
        """Return the server and the URI that a mention names, or None."""
        ...

    async def read_resource(self, name: str, uri: str) -> ToolOutput: ...


class AttachmentDeps(Struct, frozen=True):
    """What `AttachmentReader` needs.

    `context_window` returns the tokens of the model's window, or 0 if unknown; `sees_images` whether the model accepts
    images; `take_new_files` the files added to the cache since its last call.
    """

    cwd: str
    root: str
    home: str
    session: str
    folder: Path
    files: FileCache
    runner: ProcessRunner
    policy: Callable[[], "Policy"]
    redact: Redact
    take_new_files: Callable[[], Sequence[CachedFile]]
    context_window: Callable[[], int]
    sees_images: Callable[[], bool]
    resources: ResourceSource | None = None
    list_roots: Callable[[], Sequence[Root]] = tuple


class AttachmentReader:
    """Reads the attachments of the main agent's prompts. Imports nothing for prompts without any."""

    def __init__(self, deps: AttachmentDeps) -> None:
        self._deps = deps
        self._journals: list[CacheJournal] = []

    def _find_attachments(self, prompt: Prompt) -> list[Attachment]:
        if not prompt.attachments and "@" not in prompt.text:
            return []
        from odin.tools.mentions import PathBase, find_attachments

        deps = self._deps
        others = tuple(root.path for root in deps.list_roots())
        return find_attachments(prompt, PathBase(deps.cwd, deps.root, deps.home, others))

    def _find_resources(self, prompt: Prompt) -> list[tuple[str, str]]:
        """Return the server and the URI of each resource that a prompt mentions."""
        source = self._deps.resources
        if source is None or "@" not in prompt.text or prompt.source == "channel":
            return []
        from odin.tools.mentions import find_mentions

        found: list[tuple[str, str]] = []
        for candidates in find_mentions(get_typed_text(prompt.text)):
            named = (source.find_mentioned(item.path) for item in candidates if not item.first)
            found += [next(filter(None, named), ("", ""))]
        return [item for item in dict.fromkeys(found) if item[0]]

    def _find_missing(self, prompt: Prompt) -> list[str]:
        if "@" not in prompt.body:
            return []
        from odin.tools.mentions import PathBase, find_missing

        return find_missing(get_typed_text(prompt.body), PathBase(self._deps.cwd, self._deps.root, self._deps.home))

    def has_attachments(self, prompt: Prompt) -> bool:
        return bool(self._find_attachments(prompt) or self._find_resources(prompt) or self._find_missing(prompt))

    async def accept(self, prompt: Prompt) -> Prompt:
        if not prompt.attachments and "@" not in prompt.text:
            return prompt
        return await asyncio.to_thread(self._store_attachments, prompt)

    def _store_attachments(self, prompt: Prompt) -> Prompt:
        """Check all attachments, then store those that came as bytes."""
        from odin.tools.mentions import check_images, has_image_data, store_attachment, validate_image

        images = [item for item in prompt.attachments if has_image_data(item)]
        check_images(
            (item for item in self._find_attachments(prompt) if not self._evaluate(item, prompt)[1]), len(images)
        )
        for item in images:
            validate_image(item.data, Path(item.path).name or "The clipboard")
        folder = self._deps.folder
        stored = tuple(store_attachment(item, folder) if item.data else item for item in prompt.attachments)
        return structs.replace(prompt, attachments=stored)

    async def read(self, prompt: Prompt, mode: Mode) -> AttachedContent:
        self._journals = []
        items, resources = self._find_attachments(prompt), self._find_resources(prompt)
        batch = _AttachmentBatch(self._compute_limit())
        batch.warnings += [f"@{name} was not attached: there is no such file." for name in self._find_missing(prompt)]
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                for item in items:
                    await self._add_item(item, structs.replace(prompt, mode=mode), batch)
                for name, uri in resources:
                    await self._add_resource(name, uri, batch)
        except TimeoutError:
            batch.skip("The rest", f"reading took longer than {READ_TIMEOUT_S:g} s.")
        except BaseException:
            self.forget()
            raise
        return self._build_result(batch)

    def forget(self) -> None:
        for journal in reversed(self._journals):
            self._deps.files.rollback(journal)
        self._journals = []

    def _compute_limit(self) -> int:
        """Return the maximum number of attached characters: at most half of the context window."""
        window = self._deps.context_window()
        return min(MAX_TOTAL_CHARS, window * 3 // 2) if window else MAX_TOTAL_CHARS

    def _build_result(self, batch: "_AttachmentBatch") -> AttachedContent:
        if batch.images and not self._deps.sees_images():
            batch.warnings.append("This model does not support images. It is only told that some were attached.")
        files = tuple(structs.replace(file, path=to_valid_unicode(file.path)) for file in self._deps.take_new_files())
        warnings, attached = tuple(batch.warnings), tuple(batch.attached)
        return AttachedContent(tuple(batch.notes), tuple(batch.images), warnings, files, attached)

    async def _add_item(self, item: Attachment, prompt: Prompt, batch: "_AttachmentBatch") -> None:
        target, why = self._evaluate(item, prompt)
        if why:
            batch.skip(_get_name(item), why)
            return
        if batch.chars >= batch.max_chars:
            batch.skip(_get_name(item), "all attachments together are too large. The model can read the file itself.")
            return
        journal = CacheJournal()
        with record_into(journal):
            try:
                output = await self._read_item(item, target, prompt.mode)
            except OSError as error:  # the name is too long, for example
                output = fail(f"{error.strerror or error}.")
        if output.is_error:
            batch.skip(_get_name(item), output.text)
        elif len(output.images) + len(batch.images) > MAX_IMAGES:
            batch.skip(_get_name(item), f"a prompt takes at most {MAX_IMAGES} images.")
        elif len(output.text) > batch.max_chars:
            batch.skip(_get_name(item), "it is too long for this model. Attach some lines, e.g. @path:1-200.")
        else:
            self._deps.files.commit(journal)
            self._journals.append(journal)
            text = to_valid_unicode(self._deps.redact(output.text).text)
            batch.add(ContextAdded(text, _describe_range(item)).note, _rename_images(output.images, item))
            if not output.images:  # they are shown themselves
                batch.attached.append(self._describe_attached(item, output))
            return
        self._deps.files.rollback(journal)

    def _describe_attached(self, item: Attachment, output: ToolOutput) -> str:
        """Return what people are told: the path, relative in the project, and how much of it is attached."""
        cwd = self._deps.cwd
        path = os.path.relpath(item.path, cwd) if contains(cwd, item.path) else item.path
        how_much = re.search(r"(?:\(|: )([^(:]*?)\)?$", output.note)
        amount = f", {how_much[1]}".replace(", 1 lines", ", 1 line") if how_much else ""
        return f"{to_valid_unicode(path)}{amount}"

    async def _add_resource(self, name: str, uri: str, batch: "_AttachmentBatch") -> None:
        source = self._deps.resources
        output = await source.read_resource(name, uri) if source is not None else fail("It cannot be read.")
        text = to_valid_unicode(self._deps.redact(output.text).text)
        if output.is_error:
            batch.skip(f"{name}:{uri}", text)
        elif len(text) > batch.max_chars - batch.chars:
            batch.skip(f"{name}:{uri}", "it is too long. The model can read it with ReadMcpResource.")
        else:
            batch.add(ContextAdded(text, f"{name}:{uri}").note, output.images)

    async def _read_item(self, item: Attachment, target: Target, mode: Mode) -> ToolOutput:
        deps = self._deps
        resolved_paths = target.resolved
        environment = deps.policy().scope.environment
        ctx = ToolContext(
            deps.cwd,
            deps.root,
            deps.session,
            "",
            "",
            mode,
            lambda line: None,
            environment,
            resolved_paths=resolved_paths,
        )
        if Path(resolved_paths[0].path).is_dir():
            return await LSTool(deps.files).run(LSArgs(item.path), ctx)
        count = item.last - max(item.first, 1) + 1 if item.last else None
        args = ReadArgs(item.path, item.first or None, count)
        return await ReadTool(deps.files, FormatReader(deps.folder, deps.runner)).run(args, ctx)

    def _evaluate(self, item: Attachment, prompt: Prompt) -> tuple[Target, str]:
        """Return the resolved path to read, and why the attachment is not sent, or ""."""
        policy = self._deps.policy()
        target = policy.resolve(Target(paths=(item.path,)))
        decision = policy.evaluate("Read", "read", target, prompt.mode)
        if decision.action == "allow":
            return target, ""
        if decision.action == "ask" and decision.rule == _OUTSIDE_PROJECT and prompt.source != "channel":
            named_outside = not policy.scope.find_root(target.resolved[0].shown)
            return target, "" if named_outside else f"{decision.reason} {_LINK_HINT}"
        return target, f"{decision.reason} {_SECRET_HINT}" if decision.action == "ask" else decision.reason


class _AttachmentBatch:
    """The attachments read so far, limited to `max_chars` in total."""

    def __init__(self, max_chars: int) -> None:
        self.max_chars = max_chars
        self.chars = 0
        self.notes: list[str] = []
        self.images: list[Image] = []
        self.warnings: list[str] = []
        self.attached: list[str] = []

    def add(self, note: str, images: Sequence[Image]) -> None:
        self.notes.append(note)
        self.images += images
        self.chars += len(note)

    def skip(self, what: str, why: str) -> None:
        self.warnings.append(to_valid_unicode(f"{what} was not attached: {why}"))
        self.notes.append(to_valid_unicode(f"{what}, which the user mentions, was not attached: {why}"))


def _get_name(item: Attachment) -> str:
    return item.name or item.path


def _describe_range(item: Attachment) -> str:
    """Return the file name with the requested lines."""
    if not item.first and not item.last:
        return to_valid_unicode(item.path)
    return to_valid_unicode(f"{item.path}:{item.first or 1}-{item.last}" if item.last else f"{item.path}:{item.first}-")


def _rename_images(images: Sequence[Image], item: Attachment) -> list[Image]:
    name = to_valid_unicode(item.name or Path(item.path).name)
    return [structs.replace(image, name=name) for image in images]
