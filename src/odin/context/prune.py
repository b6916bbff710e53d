"""What can go from a conversation without asking anybody: results the model is done with, and old images."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import Struct

from odin.context.size import IMAGE_TOKENS, images_of, tokens_of
from odin.core.message import Message, ReplyMessage, ToolCall, ToolMessage, ToolResult

MIN_PRUNED_TOKENS = 120
"""A result of fewer tokens than this costs hardly more than the line that would stand in its place."""

KEPT_IMAGES = 4
_READ_TOOLS = ("Read", "ReadTool")


class PruneSelection(Struct, frozen=True):
    """The results and images that go, and the tokens that are free afterwards."""

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
    """Results older than the `recent` tokens of them, reads that a later read repeats, and all but the newest images.

    The results of the newest reply stay unless `newest`. Results that are `gone` already are left alone.
    """
    stale = _find_superseded_reads(messages)
    last = None if newest else next((item for item in reversed(messages) if isinstance(item, ToolMessage)), None)
    calls: list[str] = []
    freed = passed = 0
    for message in reversed(messages):
        if not isinstance(message, ToolMessage):
            continue
        for result in reversed(message.results):
            size = tokens_of(result.text)
            passed += size
            if message is last or size < MIN_PRUNED_TOKENS or is_gone(result):
                continue
            if passed > recent or result.call_id in stale:
                calls.append(result.call_id)
                freed += size - MIN_PRUNED_TOKENS // 2
    images = _find_older_images(messages, images_kept)
    return PruneSelection(tuple(reversed(calls)), images, freed + IMAGE_TOKENS * len(images))


def _find_older_images(messages: Iterable[Message], kept: int) -> tuple[str, ...]:
    found = [image.path for message in messages for image in images_of(message)]
    newest = frozenset(found[len(found) - kept :] if kept else ())
    return tuple(dict.fromkeys(path for path in found if path not in newest))


def _find_superseded_reads(messages: Sequence[Message]) -> frozenset[str]:
    """Reads of a file that was read again later: wholly, or the same lines. A later one that failed shows nothing."""
    failed = {
        result.call_id
        for message in messages
        if isinstance(message, ToolMessage)
        for result in message.results
        if result.is_error
    }
    whole: set[str] = set()
    parts: set[tuple[str, Any, Any]] = set()
    stale: list[str] = []
    for message in reversed(messages):
        if not isinstance(message, ReplyMessage):
            continue
        for call in reversed(message.calls):
            path = _read_path_of(call)
            if not path or call.id in failed:
                continue
            part = (path, call.args.get("offset"), call.args.get("limit"))
            if path in whole or part in parts:
                stale.append(call.id)
            parts.add(part)
            if part[1] is None and part[2] is None:
                whole.add(path)
    return frozenset(stale)


def _read_path_of(call: ToolCall) -> str:
    if call.name not in _READ_TOOLS:
        return ""
    path = call.args.get("file_path") or call.args.get("path")
    return path if isinstance(path, str) else ""
