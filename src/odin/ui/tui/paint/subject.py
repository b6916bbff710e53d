"""What a call is about, in a few words that are made from what is known of it: no tool has code of its own here."""

from typing import Any

from odin.ui.tui.paint.canvas import Canvas
from odin.ui.tui.paint.foreign import sanitize_line, strip_escapes
from odin.ui.tui.story.block import CallBlock

_SUBJECT_ARGUMENTS = ("command", "description", "path", "pattern", "query", "url", "name", "id", "prompt")
"""Arguments by which people know a call, wherever a tool has one whose name contains such a word."""


def describe_call(block: CallBlock, canvas: Canvas) -> str:
    return shorten_paths(sanitize_line(block.description) or _from_args(block.args), canvas)


def _from_args(args: dict[str, Any]) -> str:
    for word in _SUBJECT_ARGUMENTS:
        for name, value in args.items():
            if word in name and isinstance(value, str) and value.strip():
                return sanitize_line(value)
            if word in name and isinstance(value, list) and value and all(isinstance(item, str) for item in value):  # pyright: ignore[reportUnknownVariableType]
                return sanitize_line(", ".join(value))  # pyright: ignore[reportUnknownArgumentType]
    return next((sanitize_line(value) for value in args.values() if isinstance(value, str) and value.strip()), "")


def shorten_paths(text: str, canvas: Canvas) -> str:
    """Paths in a text as seen from the working directory, or from home."""
    if canvas.cwd and canvas.cwd != "/":
        if text == canvas.cwd:
            return "."
        text = text.replace(f"{canvas.cwd}/", "")
    if canvas.home and canvas.home != "/":
        text = text.replace(f"{canvas.home}/", "~/")
    return text


def describe_outcome(block: CallBlock, about: str, canvas: Canvas) -> str:
    """What came of a call in a few words: what its note says beyond the subject, else the first line of its result."""
    note = shorten_paths(sanitize_line(block.note), canvas)
    if note:
        if about not in note:
            note = note.replace("'", "") if about in note.replace("'", "") else note
        before, found, after = note.rpartition(about) if about else ("", "", "")
        if before.endswith("(") and after == ")":
            return before.rstrip(" (")
        said = (after if found and after.strip() else note if not found else "").strip(" :,.'\"")
        if said.startswith("(") and said.endswith(")"):
            said = said[1:-1]
        if said and said != about:
            return said
    lines = strip_escapes(block.result).strip().split("\n")
    first = sanitize_line(lines[0])
    more = f" (+{len(lines) - 1} lines)" if len(lines) > 1 else ""
    return first + more if first else ""
