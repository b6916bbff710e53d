"""Messages that leave the conversation, written down where the model can read them again."""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from odin.core.message import Message, PromptMessage, ReplyMessage, ToolMessage
from odin.core.text import to_valid_unicode

_FENCE = "````"
_TICKS = re.compile("`{4,}")


def write_history(folder: Path, messages: Iterable[Message], earlier: str = "") -> str:
    """The next `history-N.md` of the session, and its path. `earlier` is the one before it."""
    lines = ["# The conversation before a summary", ""]
    if earlier:
        lines += [f"What came before this is in {earlier}.", ""]
    for message in messages:
        lines += [_render_archived(message), ""]
    return _write_numbered(folder, "history", "\n".join(lines))


def write_results(folder: Path, results: Sequence[tuple[str, str, str]]) -> str:
    """The next `results-N.md`: id, title and whole text of each result. Gives its path."""
    lines = ["# Results that are no longer in the conversation", ""]
    for call_id, title, text in results:
        lines += [f"## {call_id}", title, _render_fenced(text), ""]
    return _write_numbered(folder, "results", "\n".join(lines))


def _write_numbered(folder: Path, name: str, text: str) -> str:
    """It appears whole or not at all, under a number no other has."""
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
    """Between fences that the text itself does not close, so that what follows them is not its own."""
    fence = max([_FENCE, *(f"{ticks}`" for ticks in _TICKS.findall(text))], key=len)
    return f"{fence}\n{text}\n{fence}"


def _quote_note(note: str) -> str:
    return "\n".join(f"> {line}" for line in note.splitlines())
