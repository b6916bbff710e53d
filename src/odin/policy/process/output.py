"""What a process prints, bounded in memory however much it is."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Protocol

from odin.policy.process.plain import AnsiStripper, decode_output

OUTPUT_LIMIT = 30_000
"""How many characters of one command's output reach the model."""

SPILL_LIMIT = 1_000_000_000
"""How many bytes of one command's output are saved in a file, so that an endless printer cannot fill the disk."""

_DISK_SHARE = 4
"""At most one part in so many of what is free on the disk."""

_HEAD_SHARE = 0.4


class OutputSink(Protocol):
    """Where the bytes of one pipe go."""

    total: int

    def add(self, data: bytes) -> None: ...

    def close(self) -> None: ...


class ByteSink:
    """All of it, for output that a program reads; without `keep` it is only counted.

    Whoever uses this bounds it by ending the process; of what comes until then no more than `most` bytes are kept.
    """

    def __init__(self, *, keep: bool = True, max_bytes: int | None = None) -> None:
        self.data = bytearray()
        self.total = 0
        self._keep = keep
        self._max_bytes = max_bytes

    def add(self, data: bytes) -> None:
        self.total += len(data)
        if self._keep:
            self.data += data if self._max_bytes is None else data[: max(0, self._max_bytes - len(self.data))]

    def close(self) -> None:
        return


class SpillFile:
    """The file that takes a long output, byte for byte, up to a limit."""

    def __init__(self, new_file: Callable[[], str]) -> None:
        self._new_file = new_file
        self._file: IO[bytes] | None = None
        self._limit = SPILL_LIMIT
        self.path = ""
        self.saved = 0
        self.error = ""

    @property
    def has_started(self) -> bool:
        return bool(self.path or self.error)

    def start(self, so_far: bytes) -> None:
        try:
            path = self._new_file()
            self._file = Path(path).open("xb", buffering=0)  # noqa: SIM115
        except OSError as error:
            self.error = error.strerror or str(error)
            return
        self.path = path
        self._limit = min(SPILL_LIMIT, _measure_free_bytes(path) // _DISK_SHARE)
        self.write(so_far)

    def write(self, data: bytes) -> None:
        if self._file is None or self.saved >= self._limit:
            return
        try:
            self.saved += self._file.write(data[: self._limit - self.saved]) or 0
        except OSError as error:
            self.error = error.strerror or str(error)
            self.close()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _measure_free_bytes(path: str) -> int:
    """How many bytes the disk has room for."""
    try:
        found = os.statvfs(path)
    except (AttributeError, OSError):
        return SPILL_LIMIT * _DISK_SHARE
    return found.f_bavail * found.f_frsize


class HeadTailBuffer:
    """The first and the last characters as a person would see them, and all bytes in a file once they outgrow memory.

    A character takes at most four bytes, so four times as many bytes as characters are kept and no character is split.
    `kept_in` names a file that somebody else fills with the same output.
    """

    def __init__(self, limit: int, new_file: Callable[[], str] | None = None, saved_path: str = "") -> None:
        self._limit = limit
        self._head_chars = int(limit * _HEAD_SHARE)
        self._tail_chars = limit - self._head_chars
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = False
        self._closed = False
        self._stripper = AnsiStripper()
        self._raw = bytearray()
        self._spill = SpillFile(new_file) if new_file is not None else None
        self._saved_path = saved_path
        self.total = 0

    @property
    def path(self) -> str:
        return self._spill.path if self._spill is not None else self._saved_path

    def add(self, data: bytes) -> None:
        self.total += len(data)
        self._keep_raw(data)
        data = self._stripper.add(data)
        room = self._head_chars * 4 - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > self._tail_chars * 8:
            del self._tail[: -self._tail_chars * 4]
            self._dropped = True

    def _keep_raw(self, data: bytes) -> None:
        if self._spill is None:
            return
        if not self._spill.has_started:
            self._raw += data
            if self.total > self._limit * 4:
                self.save()
        else:
            self._spill.write(data)

    def save(self) -> None:
        """Begin the file with everything so far; later output follows it there."""
        if self._spill is not None and not self._spill.has_started:
            self._spill.start(bytes(self._raw))
            self._raw = bytearray()
            if self._closed:
                self._spill.close()

    def close(self) -> None:
        self._closed = True
        if self._spill is not None:
            self._spill.close()

    def render_text(self) -> tuple[str, bool]:
        """What is shown, and whether something was left out."""
        rest = self._stripper.peek_rest()
        if not self._dropped:
            whole = decode_output(bytes(self._head + self._tail) + rest)
            if len(whole) <= self._limit:
                return whole, False
            self.save()
            head, tail = whole[: self._head_chars], whole[-self._tail_chars :]
        else:
            head = decode_output(bytes(self._head))[: self._head_chars]
            tail = decode_output(bytes(self._tail) + rest)[-self._tail_chars :]
        shown = f"the first {len(head)} and the last {len(tail)} characters are shown"
        note = f"[... output cut: {self.total} bytes in all, {shown}{self._describe_location()} ...]"
        return f"{head}\n\n{note}\n\n{tail}", True

    def _describe_location(self) -> str:
        if self._spill is None:
            return f"; the full text: {self._saved_path}" if self._saved_path else ""
        if self._spill.error:
            return f"; the full text could not be saved: {self._spill.error}"
        part = "the full text" if self._spill.saved >= self.total else f"the first {self._spill.saved} bytes"
        return f"; {part}: {self._spill.path}"
