"""Collects what a process prints, bounded in memory however much that is.

`AnsiStripper` removes escape sequences and overwritten lines (of a progress bar only the last state stays).
`HeadTailBuffer` keeps the start and the end of the output and spills the whole of it to a file; `BackgroundLog` is the
rotating log file of a background process. `OutputPipe` reads a pipe into one of these; `InputPipe` writes to a program
that Odin talks to.
"""

import asyncio
import contextlib
import fcntl
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import IO, Protocol

_CHUNK = 65_536
_SMALL_READ = 8_192

_PIPE_BYTES = 1 << 20
_PAUSE = 0.002
"""After a small read, wait this many seconds so that several small writes are read at once."""

_MAX_HELD_BYTES = 4096
"""Maximum length of an unfinished line that is held back because a carriage return may still overwrite it."""

_ESCAPE_SEQUENCE = rb"\x1b(?:\[[0-?]*[ -/]*[@-~]?|[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[ -/]*[0-~]?)"

_PARTIAL_ESCAPE = rb"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\n]*\x1b?|[ -/]*)\Z"

_CONTROLS = {code: "\ufffd" for code in (*range(32), 127) if chr(code) not in "\t\n\r"}

OUTPUT_LIMIT = 30_000
"""Maximum number of characters of one command's output that the model sees."""

SPILL_LIMIT = 1_000_000_000
"""Maximum number of bytes of one command's output saved to a file, so that endless output cannot fill the disk."""

_DISK_SHARE = 4
"""A spill file takes at most 1/4 of the free disk space."""

_HEAD_SHARE = 0.4

LOG_LIMIT = 10_000_000
"""Maximum bytes of one log file. A full file is rotated to `<name>.1`, replacing the previous one."""

NEW_OUTPUT_LIMIT = 10_000
"""Maximum characters that one SpawnStatus call shows of the new output."""

TAIL_CHARS = 500
"""Characters of the end of the output reported when a process fails."""

RECENT_BYTES = 16_000
"""Bytes of the end of the output that a user can look at."""


class AnsiStripper:
    """Strips escape sequences from a byte stream, one line at a time."""

    def __init__(self) -> None:
        self._held = b""

    def add(self, data: bytes) -> bytes:
        data = self._held + data if self._held else data
        cut = data.rfind(b"\n") + 1
        line, partial_escape = _split_unfinished(data[cut:])
        if len(line) + len(partial_escape) <= _MAX_HELD_BYTES:
            self._held = line + partial_escape
            return strip_ansi(data[:cut])
        self._held = partial_escape if len(partial_escape) <= _MAX_HELD_BYTES else b""
        return strip_ansi(data[:cut]) + line

    def peek_rest(self) -> bytes:
        """Return the unfinished last line."""
        return strip_ansi(self._held).rstrip(b"\r")


def strip_ansi(data: bytes) -> bytes:
    """Remove escape sequences, and text that a carriage return overwrote."""
    if b"\x1b" in data:
        data = re.sub(_ESCAPE_SEQUENCE, b"", data)
    if b"\r" not in data or b"\r" not in data.replace(b"\r\n", b""):
        return data
    return b"\n".join(_drop_overwritten(line) for line in data.split(b"\n"))


def _split_unfinished(data: bytes) -> tuple[bytes, bytes]:
    """Return the stripped line and the incomplete escape sequence at its end."""
    partial = re.search(_PARTIAL_ESCAPE, data) if b"\x1b" in data else None
    end = partial.start() if partial else len(data)
    return strip_ansi(data[:end]), data[end:]


def _drop_overwritten(line: bytes) -> bytes:
    """Return the text after the last carriage return. Returns at the end of the line belong to the line end."""
    at = line.rstrip(b"\r").rfind(b"\r")
    return line[at + 1 :]


def decode_output(data: bytes) -> str:
    """Decode UTF-8 for display; invalid bytes and control characters become U+FFFD."""
    return data.decode("utf-8", "replace").translate(_CONTROLS)


class OutputSink(Protocol):
    """Receives the bytes read from one pipe."""

    total: int

    def add(self, data: bytes) -> None: ...

    def close(self) -> None: ...


class ByteSink:
    """Keeps the raw bytes, for output that Odin parses; with `keep=False` it only counts them.

    The caller bounds the output by killing the process; until then at most `max_bytes` are kept.
    """

    def __init__(
        self, *, keep: bool = True, max_bytes: int | None = None, on_end: Callable[[], None] = lambda: None
    ) -> None:
        self.data = bytearray()
        self.total = 0
        self._keep = keep
        self._max_bytes = max_bytes
        self._on_end = on_end

    def add(self, data: bytes) -> None:
        self.total += len(data)
        if self._keep:
            self.data += data if self._max_bytes is None else data[: max(0, self._max_bytes - len(self.data))]

    def close(self) -> None:
        self._on_end()


class SpillFile:
    """Saves a long output byte for byte, up to a limit. The file is created when the output outgrows memory."""

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
    try:
        filesystem = os.statvfs(path)
    except (AttributeError, OSError):
        return SPILL_LIMIT * _DISK_SHARE
    return filesystem.f_bavail * filesystem.f_frsize


class HeadTailBuffer:
    """Keeps the first and last characters of an output, stripped of ANSI codes; the whole output spills to a file.

    A UTF-8 character takes at most four bytes, so keeping four bytes per character never splits one. `saved_path`
    names a file that already receives the same output.
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
        self.line_count = 0

    @property
    def path(self) -> str:
        return self._spill.path if self._spill is not None else self._saved_path

    def add(self, data: bytes) -> None:
        self.total += len(data)
        self.line_count += data.count(b"\n")
        if self._spill is not None:
            if not self._spill.has_started:
                self._raw += data
                if self.total > self._limit * 4:
                    self.save()
            else:
                self._spill.write(data)
        data = self._stripper.add(data)
        room = self._head_chars * 4 - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > self._tail_chars * 8:
            del self._tail[: -self._tail_chars * 4]
            self._dropped = True

    def save(self) -> None:
        """Create the spill file with the output so far; later output is appended to it."""
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
        """Return the text to show, and True if part of it was left out."""
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


class LineMatcher:
    """Collects the lines of output that contain a text, and gives them to `report` some at a time.

    After MAX_REPORTS reports it is silent: a program can print forever.
    """

    MAX_REPORTS = 10
    PAUSE_S = 0.5
    _MAX_LINES = 20
    _MAX_LINE_BYTES = 2_000

    def __init__(self, text: str, report: Callable[[list[str], bool], None]) -> None:
        self._wanted = text.encode("utf-8", "surrogateescape")
        self._report = report
        self._rest = b""
        self._found: list[str] = []
        self._count = 0

    def feed(self, data: bytes) -> None:
        if self._count >= self.MAX_REPORTS:
            return
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[-self._MAX_LINE_BYTES :]
        for line in lines:
            if self._wanted in line:
                if not self._found:
                    asyncio.get_running_loop().call_later(self.PAUSE_S, self.flush)
                if len(self._found) < self._MAX_LINES:
                    self._found.append(decode_output(strip_ansi(line[: self._MAX_LINE_BYTES])))

    def flush(self) -> None:
        """Report now what was found."""
        found, self._found = self._found, []
        if found:
            self._count += 1
            self._report(found, self._count >= self.MAX_REPORTS)


class BackgroundLog:
    """Writes the output of one background process to a rotating file and keeps the unread part in memory, bounded."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.total = 0
        self.error = ""
        self.matcher: LineMatcher | None = None
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
        del self._tail[:-RECENT_BYTES]
        if self.matcher is not None:
            self.matcher.feed(data)
        try:
            self._write(data)
        except OSError as error:
            self.error = error.strerror or str(error)
            self.close()

    def _write(self, data: bytes) -> None:
        if self._file is None:
            return
        if self._size + len(data) > LOG_LIMIT:
            # Rotate the file; the new one starts with a line that says where the earlier output is.
            self._file.close()
            self._file = None
            os.replace(self.path, f"{self.path}.1")  # noqa: PTH105
            self._file = Path(self.path).open("xb", buffering=0)  # noqa: SIM115
            lost = f", and {self._dropped_bytes} bytes before those are gone" if self._dropped_bytes else ""
            note = f"[log cut: the {self._size} bytes before this are in {self.path}.1{lost}]\n"
            self._dropped_bytes += self._size
            self._size = self._file.write(note.encode()) or 0
        self._size += self._file.write(data) or 0

    def take_new_output(self) -> str:
        """Return the output since the previous call."""
        text, _ = self._unread.render_text()
        self._unread = self._make_buffer()
        return text

    def read_tail(self) -> str:
        """Return the last characters of the output."""
        return decode_output(strip_ansi(bytes(self._tail[-TAIL_CHARS * 8 :])))[-TAIL_CHARS:].strip()

    def read_recent(self, after: int, *, whole_lines: bool) -> tuple[str, int]:
        """Return the recent output after this number of bytes, and the number of bytes up to its end."""
        data = bytes(self._tail[max(len(self._tail) - max(self.total - after, 0), 0) :])
        cut = data[: data.rfind(b"\n") + 1] if whole_lines else data
        return decode_output(strip_ansi(cut)), self.total - len(data) + len(cut)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _enlarge_pipe(fd: int) -> None:
    """Let a program print more before it must wait for the reader, where the system can."""
    with contextlib.suppress(ImportError, AttributeError, OSError):
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


def ignore_data(data: bytes) -> None:
    return


class OutputPipe:
    """One output pipe of a process, read by the event loop."""

    def __init__(self, fd: int, sink: OutputSink, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        os.set_blocking(fd, False)
        _enlarge_pipe(fd)
        self._fd = fd
        self.sink = sink
        self._on_data = on_data
        self._on_end = on_end
        self._is_paused = False
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(fd, self._on_ready)

    @property
    def is_open(self) -> bool:
        return self._fd >= 0

    def drain(self) -> None:
        """Read the rest of the pipe, at most 32 chunks: a child may print forever."""
        for _ in range(32):
            if not self.is_open or not self._read():
                return

    def _on_ready(self) -> None:
        before = self.sink.total
        if self._read() and self.sink.total - before < _SMALL_READ:
            self._loop.remove_reader(self._fd)
            self._loop.call_later(_PAUSE, self._resume)

    def _resume(self) -> None:
        if self.is_open and not self._is_paused:
            self._loop.add_reader(self._fd, self._on_ready)

    def redirect(self, sink: OutputSink) -> None:
        """Let what is read from now on go to another sink, and to no callback."""
        self.sink.close()
        self.sink = sink
        self._on_data = ignore_data
        if not self.is_open:
            sink.close()

    def pause_reading(self) -> None:
        """Let the program wait until `resume_reading`, as a transport of asyncio does."""
        self._is_paused = True
        if self.is_open:
            self._loop.remove_reader(self._fd)

    def resume_reading(self) -> None:
        self._is_paused = False
        self._resume()

    def _read(self) -> bool:
        """Read one chunk. False if nothing is available at the moment."""
        try:
            data = os.read(self._fd, _CHUNK)
        except BlockingIOError:
            return False
        if data:
            self.sink.add(data)
            self._on_data(data)
            return True
        self.close()
        self._on_end()
        return False

    def close(self) -> None:
        if self.is_open:
            if not self._loop.is_closed():
                self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
            self.sink.close()


MAX_UNREAD_BYTES = 64_000_000
"""Most bytes kept for a program that does not read its input."""


class InputPipe:
    """The input of a process, written by the event loop, so that a program that does not read cannot block Odin.

    `is_open` is False once the program has closed its side, or has left too much unread; then `on_lost` is called.
    """

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        _enlarge_pipe(fd)
        self._fd = fd
        self._unread = bytearray()
        self._loop = asyncio.get_running_loop()
        self.on_lost: Callable[[], None] = lambda: None

    @property
    def is_open(self) -> bool:
        return self._fd >= 0

    def write(self, data: bytes) -> None:
        """Write at once what the pipe takes, and the rest as the program reads it."""
        if not self.is_open:
            return
        was_waiting = bool(self._unread)
        self._unread += data
        if was_waiting:
            if len(self._unread) > MAX_UNREAD_BYTES:
                self._give_up()
            return
        self._flush()
        if self._unread and self.is_open:
            self._loop.add_writer(self._fd, self._on_ready)

    def _on_ready(self) -> None:
        self._flush()
        if self.is_open and not self._unread:
            self._loop.remove_writer(self._fd)

    def _flush(self) -> None:
        try:
            while self._unread:
                del self._unread[: os.write(self._fd, self._unread)]
        except BlockingIOError:
            return
        except OSError:
            self._give_up()

    def _give_up(self) -> None:
        self.close()
        self._loop.call_soon(self.on_lost)

    def close(self) -> None:
        if self.is_open:
            if not self._loop.is_closed():
                self._loop.remove_writer(self._fd)
            os.close(self._fd)
            self._fd = -1
        self._unread.clear()
