"""Keeps redaction placeholders out of files."""

import os
import stat
from collections.abc import Callable, Iterator
from typing import Any, cast

import msgspec

from odin.core.tool import Tool, ToolContext, ToolOutput, fail
from odin.policy.paths import open_for_reading


class PlaceholderGuard:
    """A before step: refuses edits that would write a redaction placeholder over the secret it stands for.

    A placeholder that the file itself contains is ordinary text and may be written. `find_placeholders` returns the
    placeholders in a text.
    """

    def __init__(self, find_placeholders: Callable[[str], tuple[str, ...]]) -> None:
        self._find_placeholders = find_placeholders

    async def __call__(self, tool: Tool[Any], args: Any, context: ToolContext) -> ToolOutput | None:
        if tool.kind != "edit":
            return None
        placeholders = self._find_placeholders("\n".join(_walk_texts(msgspec.to_builtins(args))))
        if not placeholders:
            return None
        content = b"".join(_read_content(item.path) for item in context.resolved_paths or ())
        foreign = [text for text in placeholders if text.encode() not in content]
        if not foreign:
            return None
        return fail(
            f"Nothing was changed: {', '.join(foreign)} stands for a secret that was taken out of what you were shown, "
            "and would be written in its place. Change only the text around it, in edits that leave the secret alone; "
            "a new secret is put in by the user."
        )


def _walk_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in cast("dict[str, Any]", value).values():
            yield from _walk_texts(item)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _walk_texts(item)


def _read_content(path: str) -> bytes:
    """Return the content of a regular file, or b""."""
    try:
        with open(open_for_reading(path), "rb") as file:  # noqa: PTH123
            return file.read() if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""
    except OSError:
        return b""
