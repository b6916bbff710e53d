"""The last bound on what a result may add to the context."""

from collections.abc import Callable

MAX_CHARS = 51_200
MAX_LINES = 2_000
_HEAD = 0.4
_WORTH = 0.8
_REMARKS = 10
"""Lines a tool may add to a full page to say what it left out."""


def bounded(text: str, save: Callable[[str], str] | None = None) -> str:
    """Head and tail, and a line that says what is missing. `save` keeps the whole and says where."""
    lines = text.count("\n") + 1
    if len(text) <= MAX_CHARS and lines <= MAX_LINES + _REMARKS:
        return text
    head, tail = _head(text), _tail(text)
    kept = ""
    if save is not None:
        try:
            kept = f"; the full text: {save(text)}"
        except OSError as error:
            kept = f"; the full text could not be saved ({error.strerror or error})"
    shown = f"the first {len(head)} and the last {len(tail)} of {len(text)} characters ({lines} lines) are shown{kept}"
    return f"{head}\n\n[... result cut: {shown} ...]\n\n{tail}"


def _head(text: str) -> str:
    """The beginning that is shown, to the end of a line unless that would cost much of it."""
    part = "\n".join(text[: int(MAX_CHARS * _HEAD)].split("\n")[: int(MAX_LINES * _HEAD)])
    end = part.rfind("\n")
    return part[:end] if end > len(part) * _WORTH else part


def _tail(text: str) -> str:
    part = "\n".join(text[-int(MAX_CHARS * (1 - _HEAD)) :].split("\n")[-int(MAX_LINES * (1 - _HEAD)) :])
    start = part.find("\n") + 1
    return part[start:] if 0 < start < len(part) * (1 - _WORTH) else part
