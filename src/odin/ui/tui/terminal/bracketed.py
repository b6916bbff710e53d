"""What a terminal marks as pasted, taken out of what arrives in large parts. Textual would look at every character."""

from collections.abc import Iterator

PASTE_BEGIN, PASTE_END = "\x1b[200~", "\x1b[201~"
MAX_PASTE_CHARS = 20_000_000
"""What follows is only passed over; so much is refused anyway."""


class PasteParser:
    """Tells keys from pastes, also when their marks come in pieces."""

    def __init__(self) -> None:
        self._parts: list[str] | None = None
        self._size = 0
        self._held = ""

    def split(self, data: str) -> Iterator[tuple[str, bool]]:
        """The parts of what arrived, in order, each with whether it is a whole paste."""
        data, self._held = self._held + data, ""
        while data:
            if self._parts is None:
                keys, begun, data = data.partition(PASTE_BEGIN)
                if not begun:
                    keys, self._held = _hold_back(keys, PASTE_BEGIN, least=3)
                if keys:
                    yield keys, False
                if begun:
                    self._parts, self._size = [], 0
                continue
            text, ended, rest = _split_paste(data)
            if not ended:
                text, self._held = _hold_back(text, PASTE_END)
            self._keep(text)
            if ended:
                whole, self._parts = "".join(self._parts), None
                yield whole, True
            data = rest

    def _keep(self, text: str) -> None:
        if self._parts is not None and self._size <= MAX_PASTE_CHARS:
            self._parts.append(text)
            self._size += len(text)


def _split_paste(data: str) -> tuple[str, str, str]:
    """What was pasted, its end mark and what follows. An end mark inside of what is pasted ends nothing.

    Whoever wrote it there wants what is behind it to be taken for keys; the real mark comes with it.
    """
    before, begun, after = data.partition(PASTE_BEGIN)
    text, ended, rest = before.rpartition(PASTE_END)
    return (text, ended, rest + begun + after) if ended else data.partition(PASTE_END)


def _hold_back(text: str, mark: str, least: int = 1) -> tuple[str, str]:
    """Without what may be the beginning of a mark, at least so many characters of it, and that.

    Esc alone, or with a bracket, is never held back: those are keys.
    """
    for size in range(min(len(mark) - 1, len(text)), least - 1, -1):
        if mark.startswith(text[-size:]):
            return text[:-size], text[-size:]
    return text, ""
