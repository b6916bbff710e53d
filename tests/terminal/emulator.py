"""A terminal with somebody in front of it: Odin in a pseudo-terminal, what it draws, and a keyboard."""

import contextlib
import fcntl
import os
import pty
import re
import resource
import select
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any

import pyte

from tests.forked import ForkedProcess, can_fork

PATIENCE = 60.0
POLL_S = 0.02
"""How long a test waits for something to be drawn before it looks again."""
HARMLESS = {7, 25}
"""Private modes that are on in a terminal at rest: lines wrap, the cursor is seen."""
ODIN = [sys.executable, "-I", "-m", "odin"]

_UNKNOWN_TO_PYTE = re.compile(
    rb"\x1b\[[<>=][0-9;:]*u|\x1b\[\?[0-9]+\$p|\x1b\[[0-9;]*t|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"
)
_CUT = re.compile(rb"\x1b(?:\[[0-9;:<>=?$]*)?$|\x1b\][^\x07\x1b]*\x1b?$")
_ALTERNATE = re.compile(rb"(\x1b\[\?1049[hl])")
_MODES = re.compile(rb"\x1b\[\?([0-9;]+)([hl])")


class _FullScreen(pyte.Screen):
    """A screen that ignores what it does not know, as terminals do: a program that is killed leaves half a sequence."""

    def erase_in_line(self, how: int = 0, private: bool = False) -> None:
        if how in (0, 1, 2):
            super().erase_in_line(how, private)

    def erase_in_display(self, how: int = 0, *args: Any, **kwargs: Any) -> None:
        if how in (0, 1, 2, 3):
            super().erase_in_display(how, *args, **kwargs)


class _TerminalScreen(_FullScreen, pyte.HistoryScreen):
    """One that keeps the lines which leave it at the top; every step of it takes longer."""


class Emulator:
    """What the program draws is kept twice: as the screen a person sees and as the bytes that made it.

    It answers what terminals are asked: that frames may be drawn at once (mode 2026).
    """

    def __init__(
        self,
        command: list[str],
        cwd: Path,
        env: Mapping[str, str],
        columns: int,
        rows: int,
        limit: tuple[int, int] | None = None,
        *,
        forks: bool = False,
    ) -> None:
        if limit is not None:
            command = [command[0], "-B", *command[1:]]  # a limited file size would leave half a .pyc behind
        self.master, terminal = pty.openpty()
        termios.tcsetwinsize(terminal, (rows, columns))
        self.attributes = termios.tcgetattr(terminal)
        self._terminal = terminal
        self._main = _TerminalScreen(columns, rows, history=20_000, ratio=0.01)
        self._alternate = _FullScreen(columns, rows)
        self.screen: _FullScreen = self._main
        self._stream = pyte.ByteStream(self.screen)
        self._lock = threading.RLock()
        self._drawn = threading.Condition(self._lock)
        self._read_at: tuple[object, ...] = ()
        self._lines: list[str] = []
        self.bytes = bytearray()
        self._rest = b""
        self.mark = f"TERMINAL_OF_THE_TEST={os.urandom(8).hex()}"

        def begin() -> None:
            fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
            if limit is not None:
                resource.setrlimit(limit[0], (limit[1], limit[1]))

        everything = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", **_variable(self.mark), **env}
        self.process: ForkedProcess | subprocess.Popen[bytes]
        if forks and limit is None and can_fork(env):
            self.process = ForkedProcess(command[len(ODIN) :], cwd, everything, terminal, piped=False)
        else:
            self.process = subprocess.Popen(
                command,
                cwd=cwd,
                env=everything,
                stdin=terminal,
                stdout=terminal,
                stderr=terminal,
                start_new_session=True,
                preexec_fn=begin,
            )
        self._ended = threading.Event()
        self.stands_still = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    # --- what is drawn ---

    def _read(self) -> None:
        while not self._ended.is_set():
            if self.stands_still.is_set():
                time.sleep(0.02)
                continue
            try:
                ready, _, _ = select.select([self.master], [], [], 0.1)
            except (OSError, ValueError):
                return
            with self._lock:
                try:
                    data = os.read(self.master, 65536) if ready else b""
                except OSError:
                    return
                if data:
                    self._take(data)

    def _take(self, data: bytes) -> None:
        with self._lock:
            self.bytes += data
            if b"\x1b[?2026$p" in data:
                self.type("\x1b[?2026;2$y")
            data = self._rest + data
            cut = _CUT.search(data)
            self._rest = cut[0] if cut else b""
            data = _UNKNOWN_TO_PYTE.sub(b"", data[: len(data) - len(self._rest)])
            for piece in _ALTERNATE.split(data):
                if piece in (b"\x1b[?1049h", b"\x1b[?1049l"):
                    self._turn_to(alternate=piece.endswith(b"h"))
                else:
                    self._stream.feed(piece)
            self._drawn.notify_all()

    def _turn_to(self, *, alternate: bool) -> None:
        """The screen that full-screen programs draw on, or the one with the shell's lines."""
        if alternate:
            self._alternate.reset()
        self.screen = self._alternate if alternate else self._main
        self._stream = pyte.ByteStream(self.screen)

    @property
    def lines(self) -> list[str]:
        with self._lock:
            now = (len(self.bytes), self.screen, self.screen.columns, self.screen.lines)
            if now != self._read_at:
                self._read_at, self._lines = now, [line.rstrip() for line in self.screen.display]
            return self._lines

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def scrollback(self) -> list[str]:
        """Every line that left the ordinary screen at its top, and then that screen."""
        with self._lock:
            columns = self._main.columns
            past = ["".join(row[x].data for x in range(columns)).rstrip() for row in self._main.history.top]
            return past + [line.rstrip() for line in self._main.display]

    @property
    def modes(self) -> set[int]:
        """The private modes that are switched on now."""
        found: set[int] = set()
        for numbers, how in _MODES.findall(bytes(self.bytes)):
            for number in map(int, numbers.split(b";")):
                found.add(number) if how == b"h" else found.discard(number)
        return found

    def leaves_only(self, modes: set[int]) -> None:
        """Wait until no other private mode is switched on."""
        self._wait(lambda: not self.modes - modes, f"the modes {modes} and no others")

    def see(self, *words: str, patience: float = PATIENCE) -> str:
        """Wait until all of these are on the screen."""
        return self._wait(lambda: all(word in self.text for word in words), f"{words} on the screen", patience)

    def gone(self, *words: str) -> str:
        return self._wait(lambda: not any(word in self.text for word in words), f"{words} gone from the screen")

    def drawn(self, data: bytes, times: int = 1) -> None:
        """Wait until these bytes have come."""
        self._wait(lambda: bytes(self.bytes).count(data) >= times, f"the bytes {data!r}")

    def _wait(self, holds: Callable[[], bool], what: str, patience: float = PATIENCE) -> str:
        end = time.monotonic() + patience
        while not holds():
            if time.monotonic() > end or (self.process.poll() is not None and not self._more() and not holds()):
                raise AssertionError(f"waited for {what}; the screen shows:\n{self.text}")
            with self._drawn:
                self._drawn.wait(POLL_S)
        return self.text

    def _more(self) -> bool:
        """Whether something may still come of a program that has ended."""
        before = len(self.bytes)
        time.sleep(0.1)
        return len(self.bytes) > before

    # --- what is typed ---

    def type(self, text: str) -> None:
        self.send(text.encode())

    def send(self, data: bytes) -> None:
        """All of it, also when the terminal holds less than that at once."""
        while data:
            data = data[os.write(self.master, data) :]

    def changes(self, key: str) -> None:
        """Press a key and wait until something is drawn because of it."""
        self._wait(self._rests, "a screen that rests")
        before = len(self.bytes)
        self.type(key)
        self._wait(lambda: len(self.bytes) > before, f"what comes of {key!r}")

    def _rests(self) -> bool:
        before = len(self.bytes)
        time.sleep(0.3)
        return len(self.bytes) == before

    def paste(self, text: str) -> None:
        self.type(f"\x1b[200~{text}\x1b[201~")

    def resize(self, columns: int, rows: int) -> None:
        with self._lock:
            self._main.resize(rows, columns)
            self._alternate.resize(rows, columns)
        termios.tcsetwinsize(self.master, (rows, columns))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGWINCH)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    # --- the end ---

    def end(self) -> int:
        code = self.process.wait(PATIENCE)
        self._more()
        patience = time.monotonic() + PATIENCE
        while self._has_unread() and not self.stands_still.is_set() and time.monotonic() < patience:
            time.sleep(0.02)
        return code

    def _has_unread(self) -> bool:
        """Whether the program has written something that is not shown yet, as on a busy machine."""
        with self._lock:
            return bool(select.select([self.master], [], [], 0)[0])

    def ends(self, *codes: int) -> None:
        """It is over, with one of these codes."""
        code = self.end()
        assert code in codes, f"it ended with {code}:\n" + "\n".join(filter(None, self.scrollback))

    @property
    def as_it_was(self) -> bool:
        """Whether the terminal reads and shows lines as it did at the start."""
        return termios.tcgetattr(self._terminal) == self.attributes

    def given_back(self) -> None:
        """Everything the app changed about the terminal is undone, and nothing that it began is running."""
        assert self.as_it_was
        assert not self.modes - HARMLESS
        seen = bytes(self.bytes)
        if b"\x1b[?1049h" in seen:
            for off in (b"?1000l", b"?1003l", b"?1004l", b"?1006l", b"?2004l", b"?1049l", b"?25h"):
                assert off in seen, f"{off!r} was not written"
        assert len(re.findall(rb"\x1b\[>\d+u", seen)) == seen.count(b"\x1b[<u"), "the keyboard protocol"
        assert seen.count(b"\x1b[22;0t") == seen.count(b"\x1b[23;0t"), "the title"
        assert "Traceback" not in "\n".join(self.scrollback)
        self.nothing_runs()

    def nothing_runs(self) -> None:
        """No process that came of ours is left, in whatever group or session. Where that cannot be seen, it is not."""
        end = time.monotonic() + 10
        while left := marked(self.mark) or self.process.poll() is None:
            assert time.monotonic() < end, f"still running: {left}"
            time.sleep(0.05)

    def hang_up(self) -> None:
        """The window is closed."""
        self._ended.set()
        self._reader.join(PATIENCE)
        os.close(self._terminal)
        os.close(self.master)
        self._terminal = self.master = -1

    def close(self) -> None:
        self._ended.set()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        for fd in (self._terminal, self.master):
            if fd >= 0:
                os.close(fd)


def _variable(mark: str) -> dict[str, str]:
    name, _, value = mark.partition("=")
    return {name: value}


def marked(mark: str) -> list[str]:
    """The commands of all processes that have the mark in their environment."""
    found: list[str] = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return found


@contextlib.contextmanager
def terminal(
    *args: str,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    columns: int = 100,
    rows: int = 30,
    command: list[str] | None = None,
    limit: tuple[int, int] | None = None,
) -> Generator[Emulator]:
    """Odin with these arguments, or another command, in a new terminal; with a limit of one of its resources."""
    made = Emulator(command or [*ODIN, *args], cwd, env or {}, columns, rows, limit, forks=command is None)
    try:
        yield made
    finally:
        made.close()
