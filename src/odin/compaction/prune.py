"""Pruning: shortens old tool results and removes old images, without a model.

Results and messages that leave the conversation are archived as Markdown in the session's folder, where the model can
read them again. Pruning changes messages the provider has cached, so it is done rarely and in one step.
"""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from odin.compaction.agent_context import AgentContext
from odin.compaction.measure import IMAGE_TOKENS, estimate_tokens, list_images
from odin.core.event import ResultsPruned
from odin.core.message import Message, PromptMessage, ReplyMessage, ToolMessage, ToolResult, find_failed_calls
from odin.core.text import to_valid_unicode
from odin.engine.turn import RequestTemplate
from odin.session.history import find_paths_in_view, is_pruned, make_call_titles

_FENCE = "````"
_TICKS = re.compile("`{4,}")


def write_history(folder: Path, messages: Iterable[Message], earlier: str = "") -> str:
    """Write the messages to the next `history-N.md` and return its path. `earlier` is the previous archive."""
    lines = ["# The conversation before a summary", ""]
    if earlier:
        lines += [f"Earlier messages are in {earlier}.", ""]
    for message in messages:
        lines += [_render_archived(message), ""]
    return _write_numbered(folder, "history", "\n".join(lines))


def write_results(folder: Path, results: Sequence[tuple[str, str, str]]) -> str:
    """Write id, title and text of each result to the next `results-N.md` and return its path."""
    lines = ["# Results removed from the conversation", ""]
    for call_id, title, text in results:
        lines += [f"## {call_id}", title, _render_fenced(text), ""]
    return _write_numbered(folder, "results", "\n".join(lines))


def _write_numbered(folder: Path, name: str, text: str) -> str:
    """Write a file with the next free number, completely or not at all."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    number = 1
    while (path := folder / f"{name}-{number}.md").exists():
        number += 1
    temporary = folder / f".{path.name}.{os.getpid()}"
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0), 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(to_valid_unicode(text).encode())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return str(path)


def _render_archived(message: Message) -> str:
    if isinstance(message, PromptMessage):
        notes = "".join(f"\n\n{_quote_note(note)}" for note in message.notes)
        images = "".join(f"\n(image {image.path})" for image in message.images)
        return f"## User\n{message.text}{images}{notes}"
    if isinstance(message, ReplyMessage):
        calls = "".join(f"\n\n**{call.name}** ({call.id}): {call.args!r}" for call in message.calls)
        return f"## Assistant\n{message.text}{calls}"
    return "\n\n".join(_render_results(message))


def _render_results(message: ToolMessage) -> Iterable[str]:
    for result in message.results:
        kind = "Error" if result.is_error else "Result"
        images = "".join(f"\n(image {image.path})" for image in result.images)
        yield f"### {kind} of {result.call_id}\n{_render_fenced(result.text)}{images}"
    yield from map(_quote_note, message.notes)


def _render_fenced(text: str) -> str:
    """A code block whose fence is longer than any in the text, so that the text cannot close it."""
    fence = max([_FENCE, *(f"{ticks}`" for ticks in _TICKS.findall(text))], key=len)
    return f"{fence}\n{text}\n{fence}"


def _quote_note(note: str) -> str:
    return "\n".join(f"> {line}" for line in note.splitlines())


MIN_PRUNED_TOKENS = 120
"""Smaller results are not worth pruning: the placeholder would be about as long."""

KEPT_IMAGES = 4
_READ_TOOLS = ("Read", "ReadTool")


class PruneSelection(Struct, frozen=True):
    """The results and images to prune, and the tokens this frees."""

    calls: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    freed: int = 0

    @property
    def is_empty(self) -> bool:
        return not self.calls and not self.images


def select_prunable(
    messages: Sequence[Message],
    *,
    recent: int,
    is_gone: Callable[[ToolResult], bool],
    images_kept: int = KEPT_IMAGES,
    newest: bool = False,
) -> PruneSelection:
    """Select results beyond the latest `recent` tokens, reads repeated by a later read, and all but the latest images.

    The results of the latest reply are kept unless `newest`. Results for which `is_gone` is true are skipped.
    """
    superseded = _find_superseded_reads(messages)
    last = None if newest else next((item for item in reversed(messages) if isinstance(item, ToolMessage)), None)
    calls: list[str] = []
    freed = passed = 0
    for message in reversed(messages):
        if not isinstance(message, ToolMessage):
            continue
        for result in reversed(message.results):
            size = estimate_tokens(result.text)
            passed += size
            if message is last or size < MIN_PRUNED_TOKENS or is_gone(result):
                continue
            if passed > recent or result.call_id in superseded:
                calls.append(result.call_id)
                freed += size - MIN_PRUNED_TOKENS // 2
    paths = [image.path for message in messages for image in list_images(message)]
    latest = frozenset(paths[len(paths) - images_kept :] if images_kept else ())
    images = tuple(dict.fromkeys(path for path in paths if path not in latest))
    return PruneSelection(tuple(reversed(calls)), images, freed + IMAGE_TOKENS * len(images))


def _find_superseded_reads(messages: Sequence[Message]) -> frozenset[str]:
    """Read calls repeated by a later successful read of the whole file or of the same lines."""
    failed = find_failed_calls(messages)
    whole: set[str] = set()
    parts: set[tuple[str, Any, Any]] = set()
    superseded: list[str] = []
    for message in reversed(messages):
        if not isinstance(message, ReplyMessage):
            continue
        for call in reversed(message.calls):
            if call.name not in _READ_TOOLS:
                path = ""
            else:
                path = call.args.get("file_path") or call.args.get("path")
                path = path if isinstance(path, str) else ""
            if not path or call.id in failed:
                continue
            part = (path, call.args.get("offset"), call.args.get("limit"))
            if path in whole or part in parts:
                superseded.append(call.id)
            parts.add(part)
            if part[1] is None and part[2] is None:
                whole.add(path)
    return frozenset(superseded)


RECENT_SHARE = 0.25
"""The share of the free window reserved for the latest results."""

MIN_FREED_SHARE = 0.2
"""Pruning invalidates the prompt cache, so it must free at least this share of the free window."""

GIANT_SHARE = 0.35
"""If the results of one reply exceed this share of the free window, the largest are pruned at once."""

_NO_LIMIT = 1 << 60


class Pruner:
    def __init__(self, context: AgentContext) -> None:
        self._context = context
        self._deps = context.deps

    def _get_messages(self) -> tuple[Message, ...]:
        return self._context.thread.build_finished_history()

    def prune_if_worthwhile(self, template: RequestTemplate) -> bool:
        """Prune in one step, but only if it frees enough."""
        free = self._context.count_free_tokens(template)
        return self.prune(template, int(free * RECENT_SHARE), least=int(free * MIN_FREED_SHARE))

    def prune(self, template: RequestTemplate, recent: int, *, least: int = 0, images: int = 4) -> bool:
        """Prune results beyond the latest `recent` tokens. False if that would free fewer than `least` tokens."""
        images_kept = images if template.info.images else _NO_LIMIT
        selection = select_prunable(self._get_messages(), recent=recent, is_gone=is_pruned, images_kept=images_kept)
        if selection.is_empty or selection.freed < max(1, least):
            return False
        self._apply(selection)
        return True

    def prune_giants(self, template: RequestTemplate) -> None:
        """Prune results of the latest reply that would fill the window alone; the model must read them in parts."""
        last = next((item for item in reversed(self._get_messages()) if isinstance(item, ToolMessage)), None)
        if last is None:
            return
        sizes = {result.call_id: estimate_tokens(result.text) for result in last.results if not is_pruned(result)}
        room = int(self._context.count_free_tokens(template) * GIANT_SHARE)
        giants: list[str] = []
        while sizes and sum(sizes.values()) > room:
            largest = max(sizes, key=lambda call_id: sizes[call_id])
            giants.append(largest)
            del sizes[largest]
        if giants:
            self._apply(PruneSelection(tuple(giants)))

    def _apply(self, selection: PruneSelection) -> None:
        messages = self._get_messages()
        pruned, titles = frozenset(selection.calls), make_call_titles(messages)
        results = [
            (result.call_id, titles.get(result.call_id, ""), result.text)
            for message in messages
            if isinstance(message, ToolMessage)
            for result in message.results
            if result.call_id in pruned
        ]
        archive = ""
        if results:
            with suppress(OSError):  # without an archive the placeholder tells the model to repeat the call
                archive = write_results(self._deps.folder, results)
        self._deps.recorder.emit(ResultsPruned(selection.calls, selection.images, archive), self._context.agent)
        self._deps.keep_in_view(find_paths_in_view(self._get_messages(), (file.path for file in self._deps.files())))
