"""The last bound on what a result may add to the context."""

from collections.abc import Callable

MAX_CHARS = 51_200
MAX_LINES = 2_000
_HEAD_SHARE = 0.4
_LINE_BREAK_SHARE = 0.8
_EXTRA_LINES = 10
"""Lines a tool may add to a full page to say what it left out."""


def bound_text(text: str, save: Callable[[str], str] | None = None) -> str:
    """Head and tail, and a line that says what is missing. `save` keeps the whole and says where."""
    lines = text.count("\n") + 1
    if len(text) <= MAX_CHARS and lines <= MAX_LINES + _EXTRA_LINES:
        return text
    head, tail = _head_of(text), _tail_of(text)
    kept = ""
    if save is not None:
        try:
            kept = f"; the full text: {save(text)}"
        except OSError as error:
            kept = f"; the full text could not be saved ({error.strerror or error})"
    shown = f"the first {len(head)} and the last {len(tail)} of {len(text)} characters ({lines} lines) are shown{kept}"
    return f"{head}\n\n[... result cut: {shown} ...]\n\n{tail}"


def _head_of(text: str) -> str:
    """The beginning that is shown, to the end of a line unless that would cost much of it."""
    part = "\n".join(text[: int(MAX_CHARS * _HEAD_SHARE)].split("\n")[: int(MAX_LINES * _HEAD_SHARE)])
    end = part.rfind("\n")
    return part[:end] if end > len(part) * _LINE_BREAK_SHARE else part


def _tail_of(text: str) -> str:
    part = "\n".join(text[-int(MAX_CHARS * (1 - _HEAD_SHARE)) :].split("\n")[-int(MAX_LINES * (1 - _HEAD_SHARE)) :])
    start = part.find("\n") + 1
    return part[start:] if 0 < start < len(part) * (1 - _LINE_BREAK_SHARE) else part
