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
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
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


_EXIT_SECONDS = 5.0
"""How long the watchdog may take to exit."""

_HAS_PROC = Path("/proc/self/environ").exists()

_MAX_YOUNGER = 16
"""How many processes are looked at one by one, instead of in a thread that looks at all of the machine."""

_YOUNG_S = 5.0
"""How long a process is young. In this time no machine gives all its numbers to processes and begins again."""

_WATCHDOG_SCRIPT = """
trap '' HUP INT QUIT TERM TSTP PIPE
drop() {
    rest=
    for one in $2; do [ "$one" = "$1" ] || rest="$rest $one"; done
}
left=
sandboxes=
while read -r sign group; do
    case $sign in
    +) left="$left $group" ;;
    s) sandboxes="$sandboxes $group" ;;
    -) drop "$group" "$left"
       left=$rest
       drop "$group" "$sandboxes"
       sandboxes=$rest ;;
    q) exit 0 ;;
    esac
done
for group in $sandboxes; do kill -s CONT -- "-$group"; done
for group in $left; do kill -s KILL -- "-$group"; done
for round in 1 2 3; do
    found=$(grep -lsF "$1" /proc/[0-9]*/environ)
    [ "$found" ] || break
    for file in $found; do
        pid=${file#/proc/}
        pid=${pid%/environ}
        kill -s KILL -- "-$pid"
        kill -s KILL "$pid"
    done
done
for round in 1 2 3 4 5 6 7 8 9 10; do
    ended=1
    for group in $sandboxes; do ! kill -s 0 -- "-$group" || ended=; done
    [ -z "$ended" ] || exit 0
    sleep 1
done
for group in $sandboxes; do kill -s KILL -- "-$group"; done
"""


def is_group_alive(pgid: int) -> bool:
    try:
        os.killpg(pgid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def signal_group(pgid: int, *numbers: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        for number in numbers:
            os.killpg(pgid, number)


def find_marked(mark: str, pids: Iterable[int] | None = None) -> list[int]:
    """Return the processes, of all or of these, whose environment contains the mark. Those of others are unreadable."""
    needle = mark.encode()
    own = os.getpid()
    looked_at = _list_pids() if pids is None else pids
    return [pid for pid in looked_at if pid != own and needle in _read_proc(pid, "environ")]


def has_marked_younger(mark: str, pid: int) -> bool | None:
    """Return whether a process with the mark was started after this one, or None if too many were to look at them.

    The kernel gives pids in ascending order until it begins again, so this one must be young. A process that was
    started before another was looked at and found to be gone has a greater pid, and is looked at after it.
    """
    looked_at = pid
    while (newest := _read_newest_pid()) != looked_at:
        if not looked_at < newest <= pid + _MAX_YOUNGER:
            return None
        if find_marked(mark, range(looked_at + 1, newest + 1)):
            return True
        looked_at = newest
    return False


def _read_newest_pid() -> int:
    """Return the last pid that was given to a process or thread, or 0 if that is unknown."""
    words = _read_proc("loadavg").split()
    return int(words[-1]) if words else 0


def signal_marked(mark: str, *numbers: int, groups: Collection[int] = (), marks: Collection[str] = ()) -> int:
    """Signal all marked processes and return how many, except those in these groups or with one of these marks too.

    A pidfd is opened before the mark is checked again, so a reused pid is never signaled.
    """
    needle, others = mark.encode(), [other.encode() for other in marks]
    hit = 0
    for pid in find_marked(mark):
        try:
            fd = os.pidfd_open(pid)
        except (AttributeError, OSError):
            continue
        try:
            environ = _read_proc(pid, "environ")
            if needle in environ and os.getpgid(pid) not in groups and not any(other in environ for other in others):
                for number in numbers:
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
        try:
            if os.getpgid(pid) != pgid:
                continue
        except OSError:
            continue
        fields = _read_stat(pid)
        if len(fields) > 19 and fields[0] != b"Z":
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


def _read_proc(*names: int | str) -> bytes:
    try:
        fd = os.open("/".join(["/proc", *map(str, names)]), os.O_RDONLY)
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
    can be killed between starting a command and reporting its group. Sandboxes end by themselves when Odin is gone, and
    kill first what has neither mark nor group; they are killed only if they do not end. If the watchdog cannot start,
    commands still run.
    """

    def __init__(self, mark: str = "") -> None:
        self._mark = mark or f"{os.getpid()}-{time.time_ns():x}."
        self._runners = itertools.count(1)
        self._groups: dict[int, str] = {}
        self._pipe = -1
        self._popen: subprocess.Popen[bytes] | None = None
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
        self._pipe, self._popen = write_end, popen
        self._finalizer = weakref.finalize(self, _close_pipe, write_end, popen)
        self._finalizer.atexit = False

    def add(self, group: int, *, is_sandbox: bool = False) -> None:
        self._groups[group] = f"{'s' if is_sandbox else '+'} {group}\n"
        self._send(self._groups[group])

    def remove(self, group: int) -> None:
        if self._groups.pop(group, ""):
            self._send(f"- {group}\n")

    async def close(self) -> None:
        """Tell the watchdog to exit, and wait until it has."""
        self._groups.clear()
        self._send("q\n")
        popen, self._popen = self._popen, None
        self._forget()
        if popen is not None:
            with suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(popen.wait, _EXIT_SECONDS)

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
                    os.write(self._pipe, "".join(self._groups.values()).encode())

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
        """True if processes of ended commands may still have run when this one exited: they did in its sandbox, or it
        has none. Valid after `collect`."""
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
    def open_socket(self) -> Callable[[int], Awaitable[socket.socket]]:
        """Returns a TCP socket of this family in the network of the process. Raises OSError."""
        ...

    def watch(self, on_exit: Callable[[], None]) -> None:
        """Call `on_exit` once, in the running event loop, when the process has exited."""
        ...

    def collect(self) -> dict[int, int]:
        """Reap the exited process. Return the surviving members of its group with their start times."""
        ...

    def detach(self) -> None:
        """Stop watching it; its exit code is not needed."""
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

    left_processes = True
    view = None
    excess = ""

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

    @staticmethod
    async def open_socket(family: int) -> socket.socket:
        return socket.socket(family)

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
        self.detach()
        self._popen.wait()
        return list_group_members(self.pid) if is_group_alive(self.pid) else {}

    def detach(self) -> None:
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
        self._began = time.monotonic()
        self._is_gone = False
        self.was_asked_to_end = False
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
        """True if processes of ended commands may still have run when it exited."""
        return self._child.left_processes

    @property
    def view(self) -> ViewLayer | None:
        return self._child.view

    @property
    def excess(self) -> str:
        return self._child.excess

    @property
    def open_socket(self) -> Callable[[int], Awaitable[socket.socket]]:
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

    @property
    def may_be_marked(self) -> bool:
        """True if other processes than those of its group may have its mark. A view keeps all of a command's."""
        return self.view is None and not self._is_gone and (not self.exited or self.left_processes)

    def signal_group(self, *numbers: int) -> bool:
        """Signal the whole group, which in a view passes it on to all processes there. False if there is none."""
        has_group = not self.exited or self.has_survivors()
        if has_group:
            signal_group(self.pid, *numbers)
        return has_group

    def ask_to_end(self) -> bool:
        """Send TERM to the group, and CONT if it is stopped, but only once: to many programs a second TERM means that
        they must not clean up. False if nothing was sent."""
        is_first, self.was_asked_to_end = not self.was_asked_to_end, True
        return is_first and self.signal_group(signal.SIGTERM, signal.SIGCONT)

    def has_survivors(self) -> bool:
        """True if group members outlived the leader. Checked by start time, because a pid may be reused."""
        return any(_read_start_time(pid) == start_time for pid, start_time in self.survivors.items())

    async def is_alive(self) -> bool:
        """Return whether one of its processes runs. Looking at all of the machine takes a thread."""
        if not self.exited or self.has_survivors():
            return True
        if self.may_be_marked:
            is_young = time.monotonic() - self._began < _YOUNG_S
            found = has_marked_younger(self.mark, self.pid) if is_young else None
            if found is None:
                return bool(await asyncio.to_thread(find_marked, self.mark))
            self._is_gone = not found
        return self.may_be_marked

    async def wait_until_gone(self, seconds: float) -> bool:
        """Wait until all its processes are gone. False if some remain after `seconds`."""
        deadline = time.monotonic() + seconds
        pause = 0.002
        while await self.is_alive():
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.05)
        return True

    async def terminate(self, grace: float) -> None:
        """Send TERM to each of its processes, then KILL after `grace` seconds; on cancellation KILL at once."""
        try:
            if not self.was_asked_to_end:
                groups = [self.pid] if self.ask_to_end() else []
                if self.may_be_marked:
                    await asyncio.to_thread(signal_marked, self.mark, signal.SIGTERM, signal.SIGCONT, groups=groups)
            await self.wait_until_gone(grace)
            await self.end()
        except BaseException:
            self.kill()
            raise
        await self.wait_until_gone(1.0)

    async def end(self) -> None:
        """Kill all its processes."""
        self.signal_group(signal.SIGKILL)
        if self.may_be_marked:
            await asyncio.to_thread(kill_marked, self.mark)

    def kill(self) -> None:
        """Kill all its processes without an event loop."""
        self.signal_group(signal.SIGKILL)
        if self.may_be_marked:
            kill_marked(self.mark)

    def detach(self) -> None:
        """Wait for it no longer."""
        self._child.detach()
        self._settle()

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.close()
