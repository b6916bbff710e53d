"""A started process: its environment, its pipes, its exit, and how to end it together with everything it started.

Every command carries a mark in its environment (`ODIN_COMMAND`) that its children inherit. On Linux the mark finds them
even if they moved to a session of their own; elsewhere only the process group is known. The `Watchdog` kills them if
Odin itself is killed. Secrets are passed to commands only if the configuration says so.
"""

import asyncio
import functools
import itertools
import os
import re
import signal
import socket
import subprocess
import threading
import time
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

from odin.core.effects import ViewLayer
from odin.sandbox.output import OutputPipe, OutputSink

SYSTEM_PATH = "/usr/bin:/bin:/run/current-system/sw/bin"
"""PATH for Odin's own helper programs. The user's PATH may contain project folders, which commands can write to."""

_NON_INTERACTIVE = {
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
"""Makes editors, pagers and prompts exit at once instead of waiting forever.

`GIT_EDITOR=true` accepts the message git has prepared, so `git rebase --continue` works and a commit without a message
still fails; every other editor fails.
"""

_SECRET_NAMES = (
    r"(?:^|_)(?:API_?KEYS?|APIKEYS?|KEYS?|(?:ACCESS|SECRET|PRIVATE|SIGNING)_?KEY(?:_\w+)?|TOKENS?(?:_\d+|_FILE|_SECRET)?"
    r"|PAT|JWT|SECRETS?|SECRET_\w+|PASS|PASSWORDS?|PASSWORD_\w+|PASSWD|PASSPHRASE|PWD|CREDENTIALS?|CREDS|COOKIES?|DSN"
    r"|CONNECTION_STRING|WEBHOOK(?:_URL)?|AUTH|KEYTAB|OTP|PIN)$"
    r"|^AWS_(?!REGION$|DEFAULT_REGION$|DEFAULT_OUTPUT$|PAGER$)|^AZURE_|^OP_SESSION_|^PGPASS|^NPM_CONFIG_.*AUTH|SSHPASS$"
    r"|PASSWORD$"
)
"""Matches names of variables that hold secrets."""

_FOLDER_VARIABLES = ("PWD", "OLDPWD")
"""Variables that look like passwords by name but hold folders."""

_URL_WITH_PASSWORD = r"^[a-z][a-z0-9+.-]*://[^/?#\s:@]*:[^/?#\s@]+@"
"""Matches a URL that contains a password."""

_ODIN_VARIABLES = r"^ODIN_(?!COMMAND$)"
"""Matches variables meant for Odin itself, except the mark that finds processes a command left behind."""

_GIT_SETTINGS = {
    "core.fsmonitor": "false",
    "core.pager": "cat",
    "log.showSignature": "false",
    "safe.bareRepository": "explicit",
    "protocol.ext.allow": "never",
    "diff.autoRefreshIndex": "false",
}
"""Git settings that keep a repository's own configuration from starting programs during read-only commands."""

_OWN_GIT_SETTINGS = {"core.hooksPath": "/dev/null", "submodule.recurse": "false", "fetch.recurseSubmodules": "false"}
"""Settings of Odin's own git besides."""


def build_command_environment(environ: Mapping[str, str], keep: Collection[str] = ()) -> dict[str, str]:
    """Return the environment for commands: non-interactive, and without secrets except the names in `keep`."""
    secret = re.compile(_SECRET_NAMES, re.IGNORECASE)
    url_with_password = re.compile(_URL_WITH_PASSWORD, re.IGNORECASE)
    odin_variable = re.compile(_ODIN_VARIABLES)
    keep = {*keep, *_FOLDER_VARIABLES}
    passed = {
        name: value
        for name, value in environ.items()
        if name in keep or not (secret.search(name) or odin_variable.search(name) or url_with_password.search(value))
    }
    return {**passed, **_NON_INTERACTIVE}


def build_git_settings(environ: Mapping[str, str], *, hooks: bool, is_own: bool = False) -> dict[str, str]:
    """Return variables with git settings that override a repository's own, appended to those in `environ`.

    `hooks=False` also disables the repository's hooks, for commands that only read. `is_own`: for Odin's own git.
    """
    settings = _GIT_SETTINGS if hooks else {**_GIT_SETTINGS, "core.hooksPath": "/dev/null"}
    settings = {**_GIT_SETTINGS, **_OWN_GIT_SETTINGS} if is_own else settings
    existing = environ.get("GIT_CONFIG_COUNT", "")
    count = int(existing) if existing.isdecimal() else 0
    variables = {"GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_CONFIG_COUNT": str(count + len(settings))}
    for at, (key, value) in enumerate(settings.items(), count):
        variables[f"GIT_CONFIG_KEY_{at}"] = key
        variables[f"GIT_CONFIG_VALUE_{at}"] = value
    return variables


def build_git_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for git commands that Odin runs itself: no hooks, no prompts, no other repository."""
    kept = {name: value for name, value in environ.items() if not name.startswith("GIT_")}
    own = {name: environ[name] for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM") if name in environ}
    settings = build_git_settings(own, hooks=False, is_own=True)
    return {**kept, **own, **settings, "PATH": SYSTEM_PATH, "GIT_TERMINAL_PROMPT": "0"}


_OWN_VARIABLES = ("HOME", "XDG_CONFIG_HOME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR")


def build_own_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of Odin's own programs: what tells ripgrep the user's ignore file, and the language."""
    return {**{name: environ[name] for name in _OWN_VARIABLES if name in environ}, "PATH": SYSTEM_PATH}


_HAS_PROC = Path("/proc/self/environ").exists()

_WATCHDOG_SCRIPT = """
trap '' HUP INT QUIT TERM TSTP PIPE
left=
while read -r sign group; do
    case $sign in
    +) left="$left $group" ;;
    -) rest=
       for one in $left; do [ "$one" = "$group" ] || rest="$rest $one"; done
       left=$rest ;;
    q) exit 0 ;;
    esac
done
for group in $left; do kill -s KILL -- "-$group"; done
for round in 1 2 3; do
    found=$(grep -lsF "$1" /proc/[0-9]*/environ)
    [ "$found" ] || exit 0
    for file in $found; do
        pid=${file#/proc/}
        pid=${pid%/environ}
        kill -s KILL -- "-$pid"
        kill -s KILL "$pid"
    done
done
"""


def is_group_alive(pgid: int) -> bool:
    try:
        os.killpg(pgid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def signal_group(pgid: int, number: int) -> None:
    try:
        os.killpg(pgid, number)
    except (ProcessLookupError, PermissionError):
        return


def find_marked(mark: str) -> list[int]:
    """Return the processes whose environment contains the mark. Processes of other users cannot be read."""
    needle = mark.encode()
    own = os.getpid()
    return [pid for pid in _list_pids() if pid != own and needle in _read_proc(pid, "environ")]


def signal_marked(mark: str, number: int, signaled: int = 0) -> int:
    """Signal all marked processes and return how many, except those of a process group that was signaled already.

    A pidfd is opened before the mark is checked again, so a reused pid is never signaled.
    """
    needle = mark.encode()
    hit = 0
    for pid in find_marked(mark):
        try:
            fd = os.pidfd_open(pid)
        except (AttributeError, OSError):
            continue
        try:
            if needle in _read_proc(pid, "environ") and os.getpgid(pid) != signaled:
                signal.pidfd_send_signal(fd, number)
                hit += 1
        except OSError:
            continue
        finally:
            os.close(fd)
    return hit


def kill_marked(mark: str) -> None:
    """Kill all marked processes. Repeats up to three times, because a process may fork while it is being looked for."""
    for _ in range(3):
        if not signal_marked(mark, signal.SIGKILL):
            return


def list_group_members(pgid: int) -> dict[int, int]:
    """Return the living members of a process group with their start times. Without /proc: the group id itself."""
    if not _HAS_PROC:
        return {pgid: 0} if is_group_alive(pgid) else {}
    members: dict[int, int] = {}
    for pid in _list_pids():
        fields = _read_stat(pid)
        if len(fields) > 19 and int(fields[2]) == pgid and fields[0] != b"Z":
            members[pid] = int(fields[19])
    return members


def _read_start_time(pid: int) -> int:
    if not _HAS_PROC:
        return 0 if is_group_alive(pid) else -1
    fields = _read_stat(pid)
    return int(fields[19]) if len(fields) > 19 and fields[0] != b"Z" else -1


def _list_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()] if _HAS_PROC else []  # noqa: PTH208


def _read_stat(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat after the command name, which may itself contain spaces and parentheses."""
    return _read_proc(pid, "stat").rpartition(b")")[2].split()


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


class Watchdog:
    """Kills Odin's commands when Odin itself is killed. One is enough for all runners of a process.

    A small shell in its own session reads the process groups from a pipe that only Odin holds. If the pipe closes
    without `q`, Odin is gone: the shell kills those groups and, where /proc exists, every process with this Odin's mark
    together with the group it leads. Groups matter because a program can lose its mark, and marks matter because Odin
    can be killed between starting a command and reporting its group. If the watchdog cannot start, commands still run.
    """

    def __init__(self, mark: str = "") -> None:
        self._mark = mark or f"{os.getpid()}-{time.time_ns():x}."
        self._runners = itertools.count(1)
        self._groups: set[int] = set()
        self._pipe = -1
        self._finalizer: weakref.finalize[..., Watchdog] | None = None

    def make_run_mark(self) -> str:
        """Return the mark of another runner. No other one begins with it, and the shell finds it, too."""
        return f"{self._mark}{next(self._runners)}."

    def start(self) -> None:
        if self._pipe >= 0:
            return
        read_end, write_end = os.pipe()
        try:
            popen = subprocess.Popen(
                ["/bin/sh", "-c", _WATCHDOG_SCRIPT, "odin-watchdog", self._mark],
                cwd="/",
                env={"PATH": SYSTEM_PATH},
                stdin=read_end,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError:
            os.close(write_end)
            return
        finally:
            os.close(read_end)
        os.set_blocking(write_end, False)
        self._pipe = write_end
        self._finalizer = weakref.finalize(self, _close_pipe, write_end, popen)
        self._finalizer.atexit = False

    def add(self, group: int) -> None:
        self._groups.add(group)
        self._send(f"+ {group}\n")

    def remove(self, group: int) -> None:
        if group in self._groups:
            self._groups.discard(group)
            self._send(f"- {group}\n")

    def close(self) -> None:
        """Tell the watchdog to exit, without waiting for it."""
        self._groups.clear()
        self._send("q\n")
        self._forget()

    def _send(self, line: str) -> None:
        if self._pipe < 0:
            return
        try:
            os.write(self._pipe, line.encode())
        except BlockingIOError:
            return
        except OSError:
            # The watchdog was killed: start another one and send it all groups.
            self._forget()
            if self._groups:
                self.start()
                if self._pipe >= 0:
                    os.write(self._pipe, "".join(f"+ {group}\n" for group in self._groups).encode())

    def _forget(self) -> None:
        self._pipe = -1
        if self._finalizer is not None:
            self._finalizer()
            self._finalizer = None


def _close_pipe(pipe: int, popen: "subprocess.Popen[bytes]") -> None:
    """Close the pipe and reap the shell in the background, so that it does not stay a zombie."""
    os.close(pipe)
    try:
        threading.Thread(target=popen.wait, daemon=True).start()
    except RuntimeError:
        return  # the interpreter is shutting down


def describe_exit(code: int) -> str:
    """Return for example `exit code 3` or `killed by signal SIGTERM`."""
    return f"exit code {code}" if code >= 0 else f"killed by signal {get_signal_name(-code)}"


def get_signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


class ChildProcess(Protocol):
    """A process that leads its own process group."""

    @property
    def pid(self) -> int: ...

    @property
    def code(self) -> int:
        """The exit code, negative for a signal. Valid after `collect`."""
        ...

    @property
    def left_processes(self) -> bool:
        """True if the sandbox still ran processes of ended commands when this one exited. Valid after `collect`."""
        ...

    @property
    def view(self) -> ViewLayer | None:
        """Where its writes go, if not to the real files."""
        ...

    @property
    def excess(self) -> str:
        """Why it was killed, if it has exceeded a limit, or "". Valid after `collect`."""
        ...

    @property
    def open_socket(self) -> Callable[[int], socket.socket]:
        """Returns a TCP socket of this family in the network of the process. Raises OSError."""
        ...

    def watch(self, on_exit: Callable[[], None]) -> None:
        """Call `on_exit` once, in the running event loop, when the process has exited."""
        ...

    def collect(self) -> dict[int, int]:
        """Reap the exited process. Return the surviving members of its group with their start times."""
        ...

    def reap(self) -> bool:
        """Reap a process that was just killed, without an event loop. False if it is still running after a second."""
        ...


def start_in_folder(
    argv: Sequence[str], folder: str | int, *, env: Mapping[str, str], stdin: int, stdout: int, stderr: int
) -> "subprocess.Popen[bytes]":
    """Start a program in its own session, in a folder given by its path or by its descriptor.

    A descriptor is entered by its name in /proc or, where that does not exist, by the child itself.
    """
    enter = None
    if isinstance(folder, int):
        named = f"/proc/self/fd/{folder}"
        enter, folder = (None, named) if os.path.isdir(named) else (functools.partial(os.fchdir, folder), "/")  # noqa: PTH112
    return subprocess.Popen(
        argv, cwd=folder, env=env, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True, preexec_fn=enter
    )


def run_own(
    argv: Sequence[str],
    folder: str | int,
    *,
    timeout: float,
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.PIPE,
    survives: bool = False,
) -> tuple[int, bytes, str]:
    """Run a program of Odin's own (profile `own`) without a runner. Return its exit code, output and errors.

    Raise TimeoutError; the program is killed then unless it `survives`. It always survives Odin itself.
    """
    process = start_in_folder(
        argv, folder, env={"PATH": SYSTEM_PATH}, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE
    )
    try:
        output, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        if not survives:
            process.kill()
            process.communicate()
        raise TimeoutError from None
    return process.returncode, output or b"", errors.decode("utf-8", "replace")


def open_filled_file(data: bytes) -> IO[bytes]:
    """Return an unnamed file with this content. Unlike a pipe it blocks neither the reader nor us.

    On Linux it is in memory: in a temporary folder, commands could reach it while it has a name.
    """
    from tempfile import TemporaryFile

    file = open(os.memfd_create("odin"), "w+b") if hasattr(os, "memfd_create") else TemporaryFile()  # noqa: PTH123, SIM115
    file.write(data)
    file.seek(0)
    return file


class LocalChild:
    """A direct child of this process."""

    left_processes = False
    view = None
    excess = ""
    open_socket = socket.socket

    def __init__(self, popen: "subprocess.Popen[bytes]") -> None:
        self._popen = popen
        self._pidfd = -1
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def code(self) -> int:
        return self._popen.returncode

    def watch(self, on_exit: Callable[[], None]) -> None:
        """Watch through a pidfd, or from a thread on systems without pidfds."""
        self._loop = loop = asyncio.get_running_loop()
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except (AttributeError, OSError):
            threading.Thread(target=self._wait_in_thread, args=[loop, on_exit], daemon=True).start()
        else:
            loop.add_reader(self._pidfd, on_exit)

    def _wait_in_thread(self, loop: asyncio.AbstractEventLoop, on_exit: Callable[[], None]) -> None:
        self._popen.wait()
        if not loop.is_closed():
            loop.call_soon_threadsafe(on_exit)

    def collect(self) -> dict[int, int]:
        self._unwatch()
        self._popen.wait()
        return list_group_members(self.pid) if is_group_alive(self.pid) else {}

    def reap(self) -> bool:
        self._unwatch()
        try:
            self._popen.wait(1.0)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _unwatch(self) -> None:
        if self._pidfd >= 0:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1


class RunningProcess:
    """A started process with its pipes; `survivors` are the group members that outlived it."""

    def __init__(self, child: ChildProcess, mark: str, linger: float) -> None:
        self._child = child
        self.mark = mark
        self.pipes: list[OutputPipe] = []
        self.exited = False
        self.survivors: dict[int, int] = {}
        self._linger = linger
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = self._loop.create_future()

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def code(self) -> int:
        return self._child.code if self.exited else -signal.SIGKILL

    @property
    def left_processes(self) -> bool:
        """True if its sandbox still ran processes of ended commands when it exited."""
        return self._child.left_processes

    @property
    def view(self) -> ViewLayer | None:
        return self._child.view

    @property
    def excess(self) -> str:
        return self._child.excess

    @property
    def open_socket(self) -> Callable[[int], socket.socket]:
        return self._child.open_socket

    @property
    def is_reading(self) -> bool:
        """True while a pipe is open, so more output may come."""
        return any(pipe.is_open for pipe in self.pipes)

    def attach_pipe(self, fd: int, sink: OutputSink, on_data: Callable[[bytes], None]) -> None:
        self.pipes.append(OutputPipe(fd, sink, on_data, self._on_pipe_end))

    def watch(self) -> None:
        self._child.watch(self._on_exit)

    def _on_exit(self) -> None:
        self.survivors = self._child.collect()
        self.exited = True
        for pipe in self.pipes:
            pipe.drain()
        if self.is_reading:
            self._loop.call_later(self._linger, self._settle)
        else:
            self._settle()

    def _on_pipe_end(self) -> None:
        if self.exited and not self.is_reading:
            self._settle()

    def _settle(self) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def send_signal(self, number: int) -> None:
        """Signal the whole group, and every process with the mark."""
        has_group = not self.exited or self.has_survivors()
        if has_group:
            signal_group(self.pid, number)
        signal_marked(self.mark, number, self.pid if has_group else 0)

    def has_survivors(self) -> bool:
        """True if group members outlived the leader. Checked by start time, because a pid may be reused."""
        return any(_read_start_time(pid) == start_time for pid, start_time in self.survivors.items())

    def is_alive(self) -> bool:
        return not self.exited or self.has_survivors() or bool(find_marked(self.mark))

    async def wait_until_gone(self, seconds: float) -> bool:
        """Wait until all its processes are gone. False if some remain after `seconds`."""
        deadline = time.monotonic() + seconds
        pause = 0.002
        while self.is_alive():
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.05)
        return True

    async def terminate(self, grace: float) -> None:
        """Send TERM (and CONT to stopped processes), then KILL after `grace` seconds; on cancellation KILL at once."""
        try:
            self.send_signal(signal.SIGTERM)
            self.send_signal(signal.SIGCONT)
            await self.wait_until_gone(grace)
        finally:
            self.send_signal(signal.SIGKILL)
            kill_marked(self.mark)
        await self.wait_until_gone(1.0)

    def reap(self) -> None:
        """Reap a process that was just killed, without an event loop, and resolve `done`."""
        self.exited = self._child.reap() or self.exited
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._settle)

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.close()
