"""The log file of a background process: the newest output always, and never more than two files' worth of the rest."""

import os
from pathlib import Path
from typing import IO

from odin.policy.process.output import HeadAndTail
from odin.policy.process.plain import cleaned, decoded

LOG_LIMIT = 10_000_000
"""Bytes in one file. A full one becomes `<name>.1` and takes the place of the one before it."""

LOOK_LIMIT = 10_000
"""Characters one look at new output shows."""

LAST_WORDS = 500
"""Characters of the end that are told when a process has failed."""


class SpawnLog:
    """Takes what one process prints: all of it into the file, what is new into memory, bounded."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.total = 0
        self.fault = ""
        self._file: IO[bytes] | None = path.open("xb", buffering=0)
        self._size = 0
        self._gone = 0
        self._fresh = self._blank()
        self._end = bytearray()

    def _blank(self) -> HeadAndTail:
        return HeadAndTail(LOOK_LIMIT, kept_in=self.path)

    def add(self, data: bytes) -> None:
        self.total += len(data)
        self._fresh.add(data)
        self._end += data
        del self._end[: -LAST_WORDS * 8]
        try:
            self._write(data)
        except OSError as error:
            self.fault = error.strerror or str(error)
            self.close()

    def _write(self, data: bytes) -> None:
        if self._file is None:
            return
        if self._size + len(data) > LOG_LIMIT:
            self._turn_over(self._file)
        self._size += self._file.write(data) or 0

    def _turn_over(self, full: IO[bytes]) -> None:
        """Begin the file anew, with a line that says what came before and how much of it is left."""
        full.close()
        self._file = None
        os.replace(self.path, f"{self.path}.1")  # noqa: PTH105
        self._file = Path(self.path).open("xb", buffering=0)  # noqa: SIM115
        lost = f", and {self._gone} bytes before those are gone" if self._gone else ""
        note = f"[log cut: the {self._size} bytes before this are in {self.path}.1{lost}]\n"
        self._gone += self._size
        self._size = self._file.write(note.encode()) or 0

    def look(self) -> str:
        """What was printed since the last look."""
        text, _ = self._fresh.text()
        self._fresh = self._blank()
        return text

    def last_words(self) -> str:
        """The end of it all."""
        return decoded(cleaned(bytes(self._end)))[-LAST_WORDS:].strip()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
