"""What stands in a result for a secret must not be written into a file in the secret's place."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import msgspec

from odin.core.tool import Tool, ToolContext, ToolOutput, fail

FindPlaceholders = Callable[[str], tuple[str, ...]]
"""The stand-ins for secrets that a text holds."""


class PlaceholderGuard:
    """A step before calls that change files: a text with a stand-in that the file does not hold itself is refused."""

    def __init__(self, stand_ins: FindPlaceholders) -> None:
        self._find_placeholders = stand_ins

    async def __call__(self, tool: Tool[Any], args: Any, context: ToolContext) -> ToolOutput | None:
        if tool.kind != "edit":
            return None
        found = self._find_placeholders("\n".join(_walk_texts(msgspec.to_builtins(args))))
        if not found:
            return None
        there = b"".join(_read_content(Path(context.cwd, path)) for path in tool.subject_of(args).paths)
        foreign = [text for text in found if text.encode() not in there]
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


def _read_content(path: Path) -> bytes:
    try:
        return path.read_bytes() if path.is_file() else b""
    except OSError:
        return b""
