"""The only place that starts processes for tools.

A command gets no input, no terminal, a process group of its own and an environment in which nothing waits for a person.
Whatever it prints is bounded in memory. Whatever it leaves behind is found and ended: by its process group, and by a
mark in the environment that also finds what moved to a session of its own.
"""

import asyncio
import codecs
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import IO

from msgspec import Struct

OUTPUT_LIMIT = 30_000
"""How many characters of one command's output reach the model."""

SPILL_LIMIT = 100_000_000
"""How many bytes of one command's output are saved in a file, so that an endless printer cannot fill the disk."""

_MARK = "ODIN_COMMAND"
_CHUNK = 65_536
_HEAD_SHARE = 0.4

_QUIET = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "true",
    "EDITOR": "false",
    "VISUAL": "false",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "SSH_ASKPASS_REQUIRE": "never",
    "DEBIAN_FRONTEND": "noninteractive",
    "PIP_NO_INPUT": "1",
    "npm_config_yes": "true",
    "CI": "1",
    "TERM": "dumb",
    "NO_COLOR": "1",
}
"""Editors, pagers and prompts that would wait for ever end at once instead.

`GIT_EDITOR=true` accepts the message git has prepared, so `git rebase --continue` works and a commit without a message
still fails by itself; every other editor fails.
"""

_SECRET = re.compile(
    r"(?:^|_)(?:API_?KEYS?|TOKENS?|SECRETS?|SECRET_\w+|PASSWORD|PASSWD|CREDENTIALS?|PRIVATE_KEY|ACCESS_KEY(?:_ID)?)$",
    re.IGNORECASE,
)


def quiet_environment(environ: Mapping[str, str], keep: Collection[str] = ()) -> dict[str, str]:
    """The environment of a command: nothing that prompts, and no secret the configuration does not name."""
    kept = {name: value for name, value in environ.items() if name in keep or not _SECRET.search(name)}
    return {**kept, **_QUIET}


class Finished(Struct, frozen=True):
    """How a process ended. `output` is what fits the limit; `spill` is the file that holds all of it."""

    code: int
    output: str
    errors: str = ""
    pid: int = 0
    total: int = 0
    truncated: bool = False
    timed_out: bool = False
    stopped: bool = False
    background: bool = False
    spill: str = ""


class _Output:
    """The head and the tail of a stream, and the whole of it in a file once it outgrows memory.

    A character takes at most four bytes, so four times as many bytes as characters are kept and no character is split.
    """

    def __init__(self, limit: int, spill: Callable[[], str] | None) -> None:
        self._limit = limit
        self._head_chars = int(limit * _HEAD_SHARE)
        self._tail_chars = limit - self._head_chars
        self._head = bytearray()
        self._tail = bytearray()
        self._new_file = spill
        self._file: IO[bytes] | None = None
        self._saved = 0
        self._fault = ""
        self.path = ""
        self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        if self._file is None and self.total > self._limit * 4:
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


class _Stream:
    """One pipe of a process, read whenever the loop says there is something to read."""

    def __init__(self, fd: int, output: _Output, owner: "_Running") -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self.output = output
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(fd, self.read)

    def drain(self) -> None:
        """Take what the pipe still holds; a child that prints for ever must not keep us here."""
        for _ in range(32):
            if not self.open or not self.read():
                return

    @property
    def open(self) -> bool:
        return self.fd >= 0

    def read(self) -> bool:
        """Take what is there now. False when there is nothing more at the moment."""
        try:
            data = os.read(self.fd, _CHUNK)
        except BlockingIOError:
            return False
        if data:
            self.output.add(data)
            self._owner.on_data(data)
            return True
        self.close()
        self._owner.on_end()
        return False

    def close(self) -> None:
        if self.open:
            if not self._loop.is_closed():
                self._loop.remove_reader(self.fd)
            os.close(self.fd)
            self.fd = -1
            self.output.close()


class _Running:
    """A started process: its pipes, the moment it ended, and what it left running in its group."""

    def __init__(
        self,
        popen: "subprocess.Popen[bytes]",
        mark: str,
        linger: float,
        stop_after: int,
        on_output: Callable[[str], None] | None,
    ) -> None:
        self.popen = popen
        self.mark = mark
        self.streams: list[_Stream] = []
        self.exited = False
        self.stopped = False
        self.left_behind: dict[int, int] = {}
        self._linger = linger
        self._stop_after = stop_after
        self._on_output = on_output
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace") if on_output else None
        self._loop = asyncio.get_running_loop()
        self._pidfd = -1
        self.done: asyncio.Future[None] = self._loop.create_future()

    @property
    def pid(self) -> int:
        return self.popen.pid

    def watch(self) -> None:
        """Learn of the end through a pidfd, or from a thread where the system has none."""
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except (AttributeError, OSError):
            threading.Thread(target=self._wait_in_thread, daemon=True).start()
        else:
            self._loop.add_reader(self._pidfd, self._on_exit)

    def _wait_in_thread(self) -> None:
        self.popen.wait()
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._on_exit)

    def _on_exit(self) -> None:
        self._unwatch()
        self.popen.wait()
        self.exited = True
        self.left_behind = _members(self.pid) if _group_alive(self.pid) else {}
        for stream in self.streams:
            stream.drain()
        if any(stream.open for stream in self.streams):
            self._loop.call_later(self._linger, self.settle)
        else:
            self.settle()

    def _unwatch(self) -> None:
        if self._pidfd >= 0:
            if not self._loop.is_closed():
                self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def settle(self) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def on_end(self) -> None:
        if self.exited and not any(stream.open for stream in self.streams):
            self.settle()

    def on_data(self, data: bytes) -> None:
        if self._on_output is not None and self._decoder is not None and not self.done.done():
            self._on_output(self._decoder.decode(data))
        if self._stop_after and self.streams[0].output.total >= self._stop_after and not self.exited:
            self.stopped = True
            _signal_group(self.pid, signal.SIGKILL)

    def signal(self, number: int) -> None:
        """To the whole group, and to everything that carries our mark wherever it moved."""
        if not self.exited or self.group_alive():
            _signal_group(self.pid, number)
        _signal_marked(self.mark, number)

    def alive(self) -> bool:
        return not self.exited or self.group_alive() or bool(_marked(self.mark))

    def group_alive(self) -> bool:
        """Whether members outlived the leader. Its number is not trusted alone: strangers may get it later."""
        return any(_start_time(pid) == started for pid, started in self.left_behind.items())

    def reap(self) -> None:
        """Collect a process that was just killed, without a loop."""
        self._unwatch()
        try:
            self.popen.wait(1.0)
        except subprocess.TimeoutExpired:
            return
        self.exited = True

    def close(self) -> None:
        for stream in self.streams:
            stream.close()


class ProcessRunner:
    """Starts commands, bounds them, and ends whatever is left of them.

    `spill_dir` is made when the first long output needs it. `keep_env` names secrets that commands may see.
    """

    def __init__(
        self,
        spill_dir: str | Path | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        keep_env: Collection[str] = (),
        term_grace: float = 3.0,
        cancel_grace: float = 0.5,
        linger: float = 0.2,
    ) -> None:
        self._spill_dir = Path(spill_dir) if spill_dir is not None else None
        self._environ = environ
        self._keep_env = frozenset(keep_env)
        self._term_grace = term_grace
        self._cancel_grace = cancel_grace
        self._linger = linger
        self._identity = f"{os.getpid()}-{time.time_ns():x}"
        self._count = 0
        self._live: dict[int, _Running] = {}
        self._base_env: dict[str, str] | None = None

    async def run(
        self,
        command: str | Sequence[str],
        *,
        cwd: str,
        timeout: float,
        env: Mapping[str, str] | None = None,
        on_output: Callable[[str], None] | None = None,
        limit: int = OUTPUT_LIMIT,
        split_errors: bool = False,
        stop_after: int = 0,
    ) -> Finished:
        """Run a shell command (a string) or a program (a list) to its end, or until `timeout` seconds are over.

        With `split_errors` standard error is kept apart in `errors`. With `stop_after` the process is killed once it
        has printed that many bytes. Raises OSError when it cannot be started.
        """
        argv = [_shell(), "-c", command] if isinstance(command, str) else list(command)
        popen, mark, pipes = self._start(argv, cwd, env, split_errors)
        running = _Running(popen, mark, self._linger, stop_after, on_output)
        spill = None if stop_after else self._spill_path
        for fd in pipes:
            running.streams.append(_Stream(fd, _Output(limit, spill), running))
            spill = None
        running.watch()
        self._live[running.pid] = running
        timed_out = False
        try:
            try:
                async with asyncio.timeout(timeout):
                    await running.done
            except TimeoutError:
                timed_out = True
                await self._end(running, self._term_grace)
        except asyncio.CancelledError:
            try:
                await self._end(running, self._cancel_grace)
            finally:
                self._forget(running)
            raise
        return self._finish(running, timed_out)

    async def close(self) -> None:
        """End everything that still runs, politely for a moment and then not."""
        if not self._count:
            return
        for running in list(self._live.values()):
            running.signal(signal.SIGTERM)
        _signal_marked(self._identity, signal.SIGTERM)
        deadline = time.monotonic() + self._cancel_grace
        while self._anything_left() and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        self.kill()

    def kill(self) -> None:
        """End everything now. Safe to call when no loop runs any more."""
        for running in list(self._live.values()):
            running.signal(signal.SIGKILL)
            running.reap()
            self._forget(running)
        if self._count:
            _until_none(self._identity)

    def _anything_left(self) -> bool:
        return any(running.alive() for running in self._live.values()) or bool(_marked(self._identity))

    def _start(
        self, argv: list[str], cwd: str, env: Mapping[str, str] | None, split_errors: bool
    ) -> "tuple[subprocess.Popen[bytes], str, list[int]]":
        self._count += 1
        mark = f"{self._identity}.{self._count}."
        pairs = [os.pipe() for _ in range(2 if split_errors else 1)]
        try:
            popen = subprocess.Popen(
                argv,
                cwd=cwd,
                env=self._environment(mark, env),
                stdin=subprocess.DEVNULL,
                stdout=pairs[0][1],
                stderr=pairs[1][1] if split_errors else subprocess.STDOUT,
                start_new_session=True,
            )
        except BaseException:
            for reading, _ in pairs:
                os.close(reading)
            raise
        finally:
            for _, writing in pairs:
                os.close(writing)
        return popen, mark, [reading for reading, _ in pairs]

    def _environment(self, mark: str, extra: Mapping[str, str] | None) -> dict[str, str]:
        if self._base_env is None:
            environ = os.environ if self._environ is None else self._environ
            self._base_env = quiet_environment(environ, self._keep_env)
        outer = self._base_env.get(_MARK, "")
        return {**self._base_env, **(extra or {}), _MARK: f"{outer}{mark}"}

    def _spill_path(self) -> str:
        if self._spill_dir is None:
            raise OSError("there is no folder for it")
        self._spill_dir.mkdir(parents=True, exist_ok=True)
        return str(self._spill_dir / f"output-{time.time_ns():x}.txt")

    async def _end(self, running: _Running, grace: float) -> None:
        """TERM, then KILL after the grace. A second cancellation goes straight to KILL."""
        try:
            running.signal(signal.SIGTERM)
            await _gone(running, grace)
        finally:
            running.signal(signal.SIGKILL)
            _until_none(running.mark)
        await _gone(running, 1.0)

    def _finish(self, running: _Running, timed_out: bool) -> Finished:
        out = running.streams[0]
        background = not timed_out and not running.stopped and (out.open or running.group_alive())
        if background and out.open:
            out.output.save()
        text, truncated = out.output.text()
        errors = running.streams[1].output.text()[0] if len(running.streams) > 1 else ""
        if not background:
            self._forget(running)
        return Finished(
            code=running.popen.returncode if running.exited else -signal.SIGKILL,
            output=text,
            errors=errors,
            pid=running.pid,
            total=out.output.total,
            truncated=truncated,
            timed_out=timed_out,
            stopped=running.stopped,
            background=background,
            spill=out.output.path,
        )

    def _forget(self, running: _Running) -> None:
        running.close()
        self._live.pop(running.pid, None)


async def _gone(running: _Running, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    pause = 0.002
    while running.alive():
        if time.monotonic() >= deadline:
            return False
        await asyncio.sleep(pause)
        pause = min(pause * 2, 0.05)
    return True


def _shell() -> str:
    return next((path for path in ("/bin/bash", "/usr/bin/bash") if os.access(path, os.X_OK)), "/bin/sh")


# --- finding and ending what a command left behind ---

_HAS_PROC = Path("/proc/self/environ").exists()


def _group_alive(pgid: int) -> bool:
    try:
        os.killpg(pgid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _signal_group(pgid: int, number: int) -> None:
    try:
        os.killpg(pgid, number)
    except (ProcessLookupError, PermissionError):
        return


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()] if _HAS_PROC else []  # noqa: PTH208


def _read_proc(pid: int, name: str) -> bytes:
    try:
        fd = os.open(f"/proc/{pid}/{name}", os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.read(fd, 1 << 18)
    except OSError:
        return b""
    finally:
        os.close(fd)


def _marked(mark: str) -> list[int]:
    """Every process whose environment carries this mark. Other users' processes cannot be read and are never ours."""
    needle = mark.encode()
    own = os.getpid()
    return [pid for pid in _pids() if pid != own and needle in _read_proc(pid, "environ")]


def _signal_marked(mark: str, number: int) -> int:
    """Signal them through a pidfd that was opened before the mark was read, so no stranger is ever hit."""
    needle = mark.encode()
    hit = 0
    for pid in _marked(mark):
        try:
            fd = os.pidfd_open(pid)
        except (AttributeError, OSError):
            continue
        try:
            if needle in _read_proc(pid, "environ"):
                signal.pidfd_send_signal(fd, number)
                hit += 1
        except OSError:
            continue
        finally:
            os.close(fd)
    return hit


def _until_none(mark: str) -> None:
    """KILL again while a process forks faster than it is found; three rounds are enough for what is not hostile."""
    for _ in range(3):
        if not _signal_marked(mark, signal.SIGKILL):
            return


def _stat_fields(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat after the name, which may itself hold spaces and brackets."""
    return _read_proc(pid, "stat").rpartition(b")")[2].split()


def _start_time(pid: int) -> int:
    if not _HAS_PROC:
        return 0 if _group_alive(pid) else -1
    fields = _stat_fields(pid)
    return int(fields[19]) if len(fields) > 19 and fields[0] != b"Z" else -1


def _members(pgid: int) -> dict[int, int]:
    """The living members of a group and when each began. Without /proc the group stands for itself."""
    if not _HAS_PROC:
        return {pgid: 0}
    found: dict[int, int] = {}
    for pid in _pids():
        fields = _stat_fields(pid)
        if len(fields) > 19 and int(fields[2]) == pgid and fields[0] != b"Z":
            found[pid] = int(fields[19])
    return found
