"""What a process prints, bounded in memory however much it is."""

from collections.abc import Callable
from pathlib import Path
from typing import IO, Protocol

OUTPUT_LIMIT = 30_000
"""How many characters of one command's output reach the model."""

SPILL_LIMIT = 100_000_000
"""How many bytes of one command's output are saved in a file, so that an endless printer cannot fill the disk."""

_HEAD_SHARE = 0.4


class Sink(Protocol):
    """Where the bytes of one pipe go."""

    total: int

    def add(self, data: bytes) -> None: ...

    def close(self) -> None: ...


class Everything:
    """All of it, for output that a program reads. Whoever uses this bounds it by ending the process."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        self.data += data

    def close(self) -> None:
        return


class HeadAndTail:
    """The first and the last characters, and the whole in a file once it outgrows memory.

    A character takes at most four bytes, so four times as many bytes as characters are kept and no character is split.
    """

    def __init__(self, limit: int, new_file: Callable[[], str] | None = None) -> None:
        self._limit = limit
        self._head_chars = int(limit * _HEAD_SHARE)
        self._tail_chars = limit - self._head_chars
        self._head = bytearray()
        self._tail = bytearray()
        self._new_file = new_file
        self._file: IO[bytes] | None = None
        self._saved = 0
        self._fault = ""
        self.path = ""
        self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        if self.total > self._limit * 4:
            self.save()
        self._write(data)
        room = self._head_chars * 4 - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > self._tail_chars * 8:
            del self._tail[: -self._tail_chars * 4]

    def save(self) -> None:
        """Begin the file with everything so far; later output follows it there."""
        if self._new_file is None or self.path or self._fault:
            return
        try:
            path = self._new_file()
            self._file = Path(path).open("xb", buffering=0)  # noqa: SIM115
        except OSError as error:
            self._fault = error.strerror or str(error)
            return
        self.path = path
        self._write(bytes(self._head + self._tail))

    def _write(self, data: bytes) -> None:
        if self._file is None or self._saved >= SPILL_LIMIT:
            return
        try:
            self._saved += self._file.write(data[: SPILL_LIMIT - self._saved]) or 0
        except OSError as error:
            self._fault = error.strerror or str(error)
            self.close()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def text(self) -> tuple[str, bool]:
        """What is shown, and whether something was left out."""
        if self.total <= self._limit * 4:
            whole = (self._head + self._tail).decode("utf-8", "replace")
            if len(whole) <= self._limit:
                return whole, False
            self.save()
            head, tail = whole[: self._head_chars], whole[-self._tail_chars :]
        else:
            head = self._head.decode("utf-8", "replace")[: self._head_chars]
            tail = self._tail.decode("utf-8", "replace")[-self._tail_chars :]
        shown = f"the first {len(head)} and the last {len(tail)} characters are shown"
        note = f"[... output cut: {self.total} bytes in all, {shown}{self._whereabouts()} ...]"
        return f"{head}\n\n{note}\n\n{tail}", True

    def _whereabouts(self) -> str:
        if self._fault:
            return f"; the full text could not be saved: {self._fault}"
        if not self.path:
            return ""
        part = "the full text" if self._saved >= self.total else f"the first {self._saved} bytes"
        return f"; {part}: {self.path}"
