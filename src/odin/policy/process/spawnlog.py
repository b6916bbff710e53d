"""The log file of a background process: the newest output always, and never more than two files' worth of the rest."""

import os
from pathlib import Path
from typing import IO

from odin.policy.process.output import HeadTailBuffer
from odin.policy.process.plain import decode_output, strip_ansi

LOG_LIMIT = 10_000_000
"""Bytes in one file. A full one becomes `<name>.1` and takes the place of the one before it."""

NEW_OUTPUT_LIMIT = 10_000
"""Characters one look at new output shows."""

TAIL_CHARS = 500
"""Characters of the end that are told when a process has failed."""


class BackgroundLog:
    """Takes what one process prints: all of it into the file, what is new into memory, bounded."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.total = 0
        self.error = ""
        self._file: IO[bytes] | None = path.open("xb", buffering=0)
        self._size = 0
        self._dropped_bytes = 0
        self._unread = self._make_buffer()
        self._tail = bytearray()

    def _make_buffer(self) -> HeadTailBuffer:
        return HeadTailBuffer(NEW_OUTPUT_LIMIT, saved_path=self.path)

    def add(self, data: bytes) -> None:
        self.total += len(data)
        self._unread.add(data)
        self._tail += data
        del self._tail[: -TAIL_CHARS * 8]
        try:
            self._write(data)
        except OSError as error:
            self.error = error.strerror or str(error)
            self.close()

    def _write(self, data: bytes) -> None:
        if self._file is None:
            return
        if self._size + len(data) > LOG_LIMIT:
            self._rotate(self._file)
        self._size += self._file.write(data) or 0

    def _rotate(self, full: IO[bytes]) -> None:
        """Begin the file anew, with a line that says what came before and how much of it is left."""
        full.close()
        self._file = None
        os.replace(self.path, f"{self.path}.1")  # noqa: PTH105
        self._file = Path(self.path).open("xb", buffering=0)  # noqa: SIM115
        lost = f", and {self._dropped_bytes} bytes before those are gone" if self._dropped_bytes else ""
        note = f"[log cut: the {self._size} bytes before this are in {self.path}.1{lost}]\n"
        self._dropped_bytes += self._size
        self._size = self._file.write(note.encode()) or 0

    def take_new_output(self) -> str:
        """What was printed since the last look."""
        text, _ = self._unread.render_text()
        self._unread = self._make_buffer()
        return text

    def read_tail(self) -> str:
        """The end of it all."""
        return decode_output(strip_ansi(bytes(self._tail)))[-TAIL_CHARS:].strip()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
