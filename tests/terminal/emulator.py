"""A terminal emulator around Odin in a pseudo-terminal: its screen, its scrollback and its keyboard."""

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

from tests.fork_server import ForkedProcess, can_fork
from tests.waiting import LIMIT_S, wait_until

POLL_S = 0.02
"""Seconds between two looks at the screen."""
DEFAULT_MODES = {7, 25}
"""Private modes that are on by default: line wrap and the visible cursor."""
ODIN = [sys.executable, "-I", "-m", "odin"]

UNKNOWN_TO_PYTE = re.compile(
    rb"\x1b\[[<>=][0-9;:]*u|\x1b\[\?[0-9]+\$p|\x1b\[[0-9;]*t|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"
)
CUT = re.compile(rb"\x1b(?:\[[0-9;:<>=?$]*)?$|\x1b\][^\x07\x1b]*\x1b?$")
_ALTERNATE = re.compile(rb"(\x1b\[\?1049[hl])")
_MODES = re.compile(rb"\x1b\[\?([0-9;]+)([hl])")


class _FullScreen(pyte.Screen):
    """A screen that ignores unknown sequences, as terminals do: a killed program leaves half a sequence."""

    def erase_in_line(self, how: int = 0, *args: Any, **kwargs: Any) -> None:
        if how in (0, 1, 2):  # `args` are numbers of half a sequence that the K of the shell's "Killed" completes
            super().erase_in_line(how, **kwargs)

    def erase_in_display(self, how: int = 0, *args: Any, **kwargs: Any) -> None:
        if how in (0, 1, 2, 3):
            super().erase_in_display(how, *args, **kwargs)


class _TerminalScreen(_FullScreen, pyte.HistoryScreen):
    """A screen with scrollback, which is slower."""


class Emulator:
    """Keeps the output of a program as the screen that a user sees and as raw bytes.

    It answers the query for synchronized output (mode 2026).
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

        def prepare_child() -> None:
            fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
            if limit is not None:
                resource.setrlimit(limit[0], (limit[1], limit[1]))

        everything = {
            **os.environ,
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            **_split_variable(self.mark),
            **env,
        }
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
                preexec_fn=prepare_child,
            )
        self._ended = threading.Event()
        self.paused = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    # --- output ---

    def _read(self) -> None:
        while not self._ended.is_set():
            if self.paused.is_set():
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
                    self._process_output(data)

    def _process_output(self, data: bytes) -> None:
        with self._lock:
            self.bytes += data
            if b"\x1b[?2026$p" in data:
                self.type("\x1b[?2026;2$y")
            data = self._rest + data
            cut = CUT.search(data)
            self._rest = cut[0] if cut else b""
            data = UNKNOWN_TO_PYTE.sub(b"", data[: len(data) - len(self._rest)])
            for piece in _ALTERNATE.split(data):
                if piece in (b"\x1b[?1049h", b"\x1b[?1049l"):
                    self._switch_screen(alternate=piece.endswith(b"h"))
                else:
                    self._stream.feed(piece)
            self._drawn.notify_all()

    def _switch_screen(self, *, alternate: bool) -> None:
        """Switch to the alternate screen of full-screen programs, or to the main screen with the shell's lines."""
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
        """Every line that left the main screen at its top, and then the lines of that screen."""
        with self._lock:
            columns = self._main.columns
            past = ["".join(row[x].data for x in range(columns)).rstrip() for row in self._main.history.top]
            return past + [line.rstrip() for line in self._main.display]

    @property
    def modes(self) -> set[int]:
        """The private modes that are on now."""
        found: set[int] = set()
        for numbers, how in _MODES.findall(bytes(self.bytes)):
            for number in map(int, numbers.split(b";")):
                found.add(number) if how == b"h" else found.discard(number)
        return found

    def wait_for_modes(self, modes: set[int]) -> None:
        """Wait until only these private modes are on."""
        self._wait(lambda: not self.modes - modes, f"the modes {modes} and no others")

    def see(self, *words: str) -> str:
        """Wait until all of these words are on the screen, and return its text."""
        return self._wait(lambda: all(word in self.text for word in words), f"{words} on the screen")

    def see_often(self, words: str, times: int) -> None:
        """Wait until these words are on the screen so many times, and the turn is done."""
        self._wait(lambda: self.text.count(words) == times and "   done   " in self.text, f"{times} times {words!r}")

    def wait_until_gone(self, *words: str) -> str:
        """Wait until none of these words is on the screen, and return its text."""
        return self._wait(lambda: not any(word in self.text for word in words), f"{words} gone from the screen")

    def wait_for_bytes(self, data: bytes, times: int = 1) -> None:
        """Wait until the program has written these bytes so many times."""
        self._wait(lambda: bytes(self.bytes).count(data) >= times, f"the bytes {data!r}")

    def _wait(self, holds: Callable[[], bool], what: str) -> str:
        def describe() -> str:
            return f"{what}; the screen shows:\n{self.text}"

        def wait_for_output(seconds: float) -> None:
            if self.process.poll() is not None and not self._receives_more() and not holds():
                raise AssertionError(f"it ended before {describe()}")
            with self._drawn:
                self._drawn.wait(POLL_S)

        wait_until(holds, describe, pause=wait_for_output)
        return self.text

    def _receives_more(self) -> bool:
        """Return whether more output arrives, also after the program has ended."""
        before = len(self.bytes)
        time.sleep(0.1)
        return len(self.bytes) > before

    # --- input ---

    def type(self, text: str) -> None:
        self.send(text.encode())

    def send(self, data: bytes) -> None:
        """Write all of the data, also if the terminal accepts only a part at once."""
        while data:
            data = data[os.write(self.master, data) :]

    def press_and_wait(self, key: str) -> None:
        """Press a key and wait until something is drawn because of it."""
        self._wait(self._is_idle, "an idle screen")
        before = len(self.bytes)
        self.type(key)
        self._wait(lambda: len(self.bytes) > before, f"output after {key!r}")

    def _is_idle(self) -> bool:
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

    # --- exit ---

    def wait_for_exit(self) -> int:
        """Wait for the exit and for the remaining output, and return the exit code."""
        code = self.process.wait(LIMIT_S)
        self._receives_more()
        wait_until(lambda: not self._has_unread() or self.paused.is_set(), "the rest of the output")
        return code

    def _has_unread(self) -> bool:
        """Return whether the program has written something that is not shown yet, as on a busy machine."""
        with self._lock:
            return bool(select.select([self.master], [], [], 0)[0])

    def assert_exit_code(self, *codes: int) -> None:
        """Wait for the exit and check that its code is one of these."""
        code = self.wait_for_exit()
        assert code in codes, f"it ended with {code}:\n" + "\n".join(filter(None, self.scrollback))

    @property
    def is_restored(self) -> bool:
        """Whether the terminal has the attributes it had at the start."""
        return termios.tcgetattr(self._terminal) == self.attributes

    def assert_restored(self) -> None:
        """Check that every change to the terminal is undone, and that no process is left."""
        assert self.is_restored
        assert not self.modes - DEFAULT_MODES
        seen = bytes(self.bytes)
        if b"\x1b[?1049h" in seen:
            for off in (b"?1000l", b"?1003l", b"?1004l", b"?1006l", b"?2004l", b"?1049l", b"?25h"):
                assert off in seen, f"{off!r} was not written"
        assert len(re.findall(rb"\x1b\[>\d+u", seen)) == seen.count(b"\x1b[<u"), "the keyboard protocol"
        assert seen.count(b"\x1b[22;0t") == seen.count(b"\x1b[23;0t"), "the title"
        text = "\n".join(filter(None, self.scrollback))
        assert "Traceback" not in text
        self.assert_no_processes_left()

    def assert_no_processes_left(self) -> None:
        """Check that no process started by the program is left, in any group or session, where /proc shows that."""
        wait_until(
            lambda: not find_processes(self.mark) and self.process.poll() is not None,
            lambda: f"the end of {find_processes(self.mark)}",
        )

    def hang_up(self) -> None:
        """Close the window."""
        self._ended.set()
        self._reader.join(LIMIT_S)
        os.close(self._terminal)
        os.close(self.master)
        self._terminal = self.master = -1

    def close(self) -> None:
        self._ended.set()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(LIMIT_S)
        self._reader.join(LIMIT_S)
        for fd in (self._terminal, self.master):
            if fd >= 0:
                os.close(fd)


def _split_variable(mark: str) -> dict[str, str]:
    name, _, value = mark.partition("=")
    return {name: value}


def find_processes(mark: str) -> list[str]:
    """Return the commands of all processes that have the mark in their environment."""
    found: list[str] = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return found


@contextlib.contextmanager
def open_terminal(
    *args: str,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    columns: int = 100,
    rows: int = 30,
    command: list[str] | None = None,
    limit: tuple[int, int] | None = None,
) -> Generator[Emulator]:
    """Run Odin with these arguments, or another command, in a new terminal, with a limit of one resource if given."""
    made = Emulator(command or [*ODIN, *args], cwd, env or {}, columns, rows, limit, forks=command is None)
    try:
        yield made
    finally:
        made.close()
