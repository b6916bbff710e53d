"""Odin's side of a sandbox: starts the init program (`init.py`) in it and asks it to start commands.

Nothing here blocks the event loop: what is slow happens in threads, and requests wait for their answers without one, so
that no number of sandboxes that do not answer keeps another one from working.
"""

import array
import asyncio
import concurrent.futures
import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct, structs

from odin.core.effects import ViewLayer
from odin.core.timing import DEFAULT_TIMING, run_in_thread
from odin.sandbox.init import (
    CONNECT,
    COUNT,
    EXCEEDED,
    GROUP_LEFT,
    HELLO,
    NO_VIEW,
    NOTHING_LEFT,
    PREPARE,
    SEEN,
    SOCKET,
    START,
)
from odin.sandbox.probe import ViewLimits
from odin.sandbox.process import list_group_members, signal_group
from odin.sandbox.views.layer import begin_layer, remove_layer
from odin.sandbox.views.setup import ViewSetup

_END_SECONDS = 3.0
"""How long an init program may take to end what it started, where nothing else would end that."""

_REAP_SECONDS = 2.0
"""How long the first process of the machine may take to reap an orphan, and bwrap to reap the init program."""

_MAX_COMPLAINT_BYTES = 2_000
"""Maximum bytes of its error output read when it does not start."""

_INIT_CODE = "import sys; sys.path.append(sys.argv[1]); import init; init.main(*sys.argv[2:])"


class SandboxSetupError(Exception):
    """A sandbox could not be created; the message says why. `is_transient`: trying again may help."""

    def __init__(self, reason: str, *, is_transient: bool = False) -> None:
        super().__init__(reason)
        self.is_transient = is_transient


class ViewMountError(OSError):
    """The view for a command could not be mounted, so the command was not started."""


class SupervisorGone(OSError):
    """The init program of the sandbox has exited, and with it everything it started."""


class SupervisorSilent(OSError):
    """The init program has not answered in time. What it was asked for is not done; what runs in it goes on."""


def build_init_argv(python: str, fd: int, *setup: str) -> list[str]:
    """Return the command line of the init program."""
    folder = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120
    return [python, "-I", "-S", "-c", _INIT_CODE, folder, str(fd), *setup]


class SandboxedChild:
    """A sandboxed command. It is not our child process, so its exit code arrives through a pipe.

    `on_exit` is called when it has ended, with True if other processes run in its sandbox. `view` is what it runs in,
    if its writes go there; `excess` says which of its limits it has exceeded when it has ended, or "". `open_socket`
    makes a socket in its network.
    """

    def __init__(
        self,
        pid: int,
        pidfd: int,
        status: int,
        open_socket: Callable[[int], Awaitable[socket.socket]],
        view: ViewLayer | None = None,
        limits: ViewLimits | None = None,
    ) -> None:
        self.pid = pid
        self.open_socket = open_socket
        self.view = view
        self.excess = ""
        self._limits = limits or ViewLimits()
        self.code = -signal.SIGKILL
        self.left_processes = False
        self.on_exit: Callable[[bool], None] = lambda left: None
        self._pidfd = pidfd
        self._status = status
        self._report: bytes | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def watch(self, on_exit: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._status, self._on_report, on_exit)

    def _on_report(self, on_exit: Callable[[], None]) -> None:
        assert self._loop is not None
        if self._read_report():
            on_exit()
        else:
            self._loop.remove_reader(self._status)
            self._loop.add_reader(self._pidfd, on_exit)

    def _read_report(self) -> bool:
        """Read how it has ended. False if the init program is gone without a report: then it is killed."""
        self._report = os.read(self._status, 8)
        if len(self._report) == 5:
            return True
        self._report = b""
        with suppress(OSError):  # the kernel has killed it, unless the sandbox has no pids of its own
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            signal_group(self.pid, signal.SIGKILL)
        return False

    def collect(self) -> dict[int, int]:
        report = self._report or b""
        if report:
            self.code = int.from_bytes(report[:4], "big", signed=True)
        self._close()
        if report[4:] in EXCEEDED:
            self.excess = self._limits.describe(EXCEEDED.index(report[4:]))
        self.left_processes = report[4:] not in (NOTHING_LEFT, *EXCEEDED)
        self.on_exit(self.left_processes)
        return list_group_members(self.pid) if report[4:] in (GROUP_LEFT, b"") else {}

    def detach(self) -> None:
        """Stop watching it; its exit code is not needed."""
        self._close()

    def _close(self) -> None:
        if self._status >= 0:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.remove_reader(self._status)
                self._loop.remove_reader(self._pidfd)
            os.close(self._status)
            os.close(self._pidfd)
            self._status = self._pidfd = -1


class InitAnswer(Struct, frozen=True):
    """What the init program answers: an error number or 0, a number, and a descriptor or -1.

    `pid` is that of a started command.
    """

    error: int
    number: int
    fd: int = -1
    pid: int = 0

    def check(self) -> None:
        """Raise ViewMountError or OSError for a start that failed."""
        if self.error and self.number == NO_VIEW:
            raise ViewMountError(self.error, os.strerror(self.error))
        if not self.pid:
            raise OSError(self.error, os.strerror(self.error))

    def discard(self) -> None:
        """Undo what nobody waits for any more."""
        if self.pid:
            with suppress(OSError):
                signal.pidfd_send_signal(self.fd, signal.SIGKILL)
                signal_group(self.pid, signal.SIGKILL)
        if self.fd >= 0:
            os.close(self.fd)


class _Request:
    def __init__(self, kind: bytes, words: Sequence[str], fds: Sequence[int]) -> None:
        self.kind = kind
        self.is_sent = False
        body = kind + b"\0" + os.fsencode("\0".join(words)) if words else kind
        self._message = len(body).to_bytes(4, "big") + body
        self._rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []

    async def send(self, channel: socket.socket) -> None:
        while not self.is_sent:
            try:
                sent = channel.sendmsg([self._message], self._rights)
            except BlockingIOError:
                await _wait_until_writable(channel)
            else:
                self.is_sent = True
                await asyncio.get_running_loop().sock_sendall(channel, self._message[sent:])


class InitChannel:
    """The socket to an init program, which answers one request after the other.

    Who has waited `answer_s` seconds gets SupervisorSilent; if the answer comes later, it is discarded. A request that
    is not yet sent then is never sent. `is_silent` is True from then on until the answer comes.
    """

    def __init__(self, channel: socket.socket, answer_s: float) -> None:
        channel.setblocking(False)
        self.is_silent = False
        self._channel = channel
        self._answer_s = answer_s
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[InitAnswer]] = set()

    async def ask(self, kind: bytes, words: Sequence[str] = (), fds: Sequence[int] = ()) -> InitAnswer:
        """Return the answer. Raise SupervisorGone or SupervisorSilent."""
        if self.is_silent:
            raise SupervisorSilent(0, "the sandbox does not answer")
        request = _Request(kind, words, fds)
        task = self._begin(request)
        try:
            await asyncio.wait([task], timeout=self._answer_s)
        except asyncio.CancelledError:
            _abandon(request, task)
            raise
        if not task.done():
            self.is_silent = True
            _abandon(request, task)
            raise SupervisorSilent(0, "the sandbox does not answer")
        return task.result()

    def tell(self, kind: bytes, words: Sequence[str]) -> None:
        """Send what has no answer, after all that was asked before."""
        self._begin(_Request(kind, words, ())).add_done_callback(_discard_answer)

    def _begin(self, request: _Request) -> asyncio.Task[InitAnswer]:
        task = asyncio.get_running_loop().create_task(self._exchange(request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _exchange(self, request: _Request) -> InitAnswer:
        async with self._turn:
            try:
                await request.send(self._channel)
                if request.kind == PREPARE:
                    return InitAnswer(0, 0)
                await _wait_until_readable(self._channel)
                reply, fds, _, _ = socket.recv_fds(self._channel, 8, 1, socket.MSG_CMSG_CLOEXEC)
            except OSError as error:
                raise SupervisorGone(error.errno, "the sandbox has ended") from error
            if len(reply) != 8:
                raise SupervisorGone(0, "the sandbox has ended")
            self.is_silent = False
            answer = InitAnswer(int.from_bytes(reply[:4], "big"), int.from_bytes(reply[4:], "big"), *fds)
            if fds and request.kind in (START, CONNECT):
                try:
                    answer = structs.replace(answer, pid=_read_pid(answer.fd))
                finally:
                    with suppress(OSError):
                        await _Request(SEEN, (), ()).send(self._channel)
            return answer

    def close(self) -> None:
        """Close it. What still waits for an answer gets SupervisorGone."""
        with suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)
        waiting = [task for task in self._tasks if not task.get_loop().is_closed()]
        for task in waiting:  # the event loop watches the descriptor for them
            task.add_done_callback(lambda _: None if self._tasks else self._channel.close())
        if not waiting:
            self._channel.close()


def _abandon(request: _Request, task: asyncio.Task[InitAnswer]) -> None:
    if not request.is_sent:
        task.cancel()
    task.add_done_callback(_discard_answer)


def _discard_answer(task: asyncio.Task[InitAnswer]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().discard()


async def _wait_until_readable(channel: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(channel, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(channel)


async def _wait_until_writable(channel: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_writer(channel, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_writer(channel)


_orphans_stay = threading.Event()
"""Set if no process of this machine reaps orphans, as in a container whose first process is not made for it."""


class SandboxSupervisor:
    """A running sandbox in which commands can be started.

    `has_own_pids`: the init program is the first process of a namespace, so that all others end with it. `is_orphan`:
    bwrap, which only waits for it, has been ended. `views` is what views of commands are made of, if they can have one;
    else `no_view` says why not. `ended` is done when its processes are gone after `kill`.
    """

    def __init__(
        self,
        channel: socket.socket,
        pidfd: int,
        popen: "subprocess.Popen[bytes] | None" = None,
        *,
        answer_s: float,
        has_own_pids: bool = False,
        is_orphan: bool = False,
        views: ViewSetup | None = None,
    ) -> None:
        self.views = views
        self.no_view = ""
        self.ended: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._is_killed = False
        self._waiting: ViewLayer | None = None
        self._channel = InitChannel(channel, answer_s)
        self._pidfd = pidfd
        self._popen = popen
        self._has_own_pids = has_own_pids
        self._is_orphan = is_orphan

    @property
    def group(self) -> int:
        """The process group of the sandbox; 0 for a nested one."""
        return self._popen.pid if self._popen is not None else 0

    @property
    def pid(self) -> int:
        """The pid of the init program as seen from outside. Raise SupervisorGone if it was killed."""
        if self._is_killed:
            raise SupervisorGone(0, "the sandbox has ended")
        return _read_pid(self._pidfd)

    @property
    def is_silent(self) -> bool:
        """True if it has not answered a request in time, and not since."""
        return self._channel.is_silent

    async def start(
        self,
        argv: Sequence[str],
        cwd: str,
        env: Mapping[str, str],
        out: int,
        err: int,
        *more: int,
        stdin: int = -1,
        view: ViewLayer | None = None,
        hidden: Sequence[str] = (),
        shown: Sequence[str] = (),
        limits: ViewLimits | None = None,
    ) -> SandboxedChild:
        """Start a command, without input unless `stdin` is given.

        In a `view`, these paths are hidden, except those `shown`. Raise ViewMountError if it cannot be mounted,
        SupervisorGone, SupervisorSilent, or the OSError of the command.
        """
        begun = begin_layer(view) if view is not None else None
        limits = limits or ViewLimits()
        words = ["", "", "", ""]
        if view is not None:
            bounds = f"{limits.memory},{limits.processes},{limits.disk}"
            words = [view.name, bounds, str(len(hidden)), str(len(shown)), *hidden, *shown]
        words += [cwd, str(len(argv)), *argv]
        words += [f"{name}={value}" for name, value in env.items()]
        read_end, write_end = os.pipe()
        try:
            given = [stdin] if stdin >= 0 else []
            fds = [*given, out, err, write_end, *more]
            answer = await self._channel.ask(CONNECT if given else START, words, fds)
            answer.check()
            return SandboxedChild(answer.pid, answer.fd, read_end, self.open_socket, begun, limits)
        except BaseException:
            os.close(read_end)  # which tells the init program not to start the command any more
            raise
        finally:
            os.close(write_end)

    def prepare_view(self) -> None:
        """Let the view for the next command be mounted now, without waiting for it."""
        if self.views is not None and self._waiting is None:
            with suppress(OSError):
                self._waiting = self.views.make_layer()
                self._channel.tell(PREPARE, [self._waiting.name])

    def take_view(self) -> ViewLayer:
        """Return a new view for a command, mounted or not. Raise OSError."""
        assert self.views is not None
        view, self._waiting = self._waiting or self.views.make_layer(), None
        return view

    async def count_children(self) -> int:
        """Return the number of commands and of orphans that run in the sandbox. Raise OSError if it is unknown."""
        answer = await self._channel.ask(COUNT)
        if answer.error:
            raise OSError(answer.error, os.strerror(answer.error))
        return answer.number

    async def open_socket(self, family: int) -> socket.socket:
        """Return a TCP socket in the network of the sandbox. Raise OSError."""
        answer = await self._channel.ask(SOCKET, [str(family)])
        if answer.fd < 0:
            raise OSError(answer.error, os.strerror(answer.error))
        return socket.socket(fileno=answer.fd)

    def kill(self) -> None:
        """Kill the sandbox and everything in it.

        Without pids of its own, only its init program knows all processes in it, and kills them when it is told to end.
        """
        self._is_killed = True
        if self._has_own_pids:
            self._kill_init()
        self._channel.close()
        self._clear_waiting()
        try:
            threading.Thread(target=self._reap, daemon=True).start()
        except RuntimeError:
            os.close(self._pidfd)  # the interpreter is shutting down

    def _kill_init(self) -> None:
        with suppress(OSError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        if self._popen is not None and not self._has_own_pids:  # otherwise bwrap reaps the init program, then exits
            signal_group(self._popen.pid, signal.SIGKILL)

    def _reap(self) -> None:
        if not self._has_own_pids and not _wait_for_exit(self._pidfd, _END_SECONDS):
            self._kill_init()
        if self._popen is not None:
            self._popen.wait()
        is_foreign = False
        if self._is_orphan:
            try:
                os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED)  # Odin may itself be the first process
            except ChildProcessError:
                is_foreign = True
                _wait_for_exit(self._pidfd, DEFAULT_TIMING.sandbox_start_s)
        self._clear_waiting()
        self.ended.set_result(None)
        if is_foreign:  # whether the machine reaps its orphans is for later sandboxes: nobody waits for that
            deadline = time.monotonic() + _REAP_SECONDS
            while _read_pid(self._pidfd) > 0 and time.monotonic() < deadline:
                time.sleep(0.05)
            if _read_pid(self._pidfd) > 0:
                _orphans_stay.set()
        os.close(self._pidfd)

    def _clear_waiting(self) -> None:
        if self._waiting is not None:
            with suppress(OSError):  # it may just be mounted: then again when the sandbox has ended
                remove_layer(self._waiting)
                self._waiting = None


class SandboxCommand(Struct, frozen=True):
    """The command line that creates a sandbox, and what commands can have in it (see `SandboxSupervisor`)."""

    argv: list[str]
    has_own_pids: bool = False
    views: ViewSetup | None = None


async def open_supervisor(
    plan: Callable[[int], SandboxCommand], env: Mapping[str, str], *, answer_s: float = DEFAULT_TIMING.sandbox_answer_s
) -> SandboxSupervisor:
    """Start a sandbox as `plan(fd)` says, where `fd` is its socket to us. Raise SandboxSetupError.

    `plan` is called in a thread.
    """
    ours, theirs = socket.socketpair()
    read_end, write_end = os.pipe()

    def start(stopped: Callable[[], bool]) -> "tuple[SandboxCommand, subprocess.Popen[bytes]]":
        with theirs:
            try:
                command = plan(theirs.fileno())
                return command, subprocess.Popen(
                    command.argv,
                    cwd="/",
                    env=dict(env),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=write_end,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
            except OSError as error:
                raise SandboxSetupError(f"cannot start {error.filename or 'it'}: {error.strerror or error}") from error
            finally:
                os.close(write_end)

    try:
        command, popen = await run_in_thread(start, lambda started: _end_later(started[1]))
        try:
            pidfd = await _await_hello(ours)
        except SandboxSetupError as error:
            why = await run_in_thread(lambda _: _end(popen) or _read_complaint(read_end))
            raise SandboxSetupError(why or str(error), is_transient=error.is_transient) from None
        except BaseException:
            _end_later(popen)
            raise
        # bwrap only waits for the init program: one process per sandbox is enough.
        is_orphan = command.has_own_pids and not _orphans_stay.is_set()
        supervisor = SandboxSupervisor(
            ours,
            pidfd,
            popen,
            answer_s=answer_s,
            has_own_pids=command.has_own_pids,
            is_orphan=is_orphan,
            views=command.views,
        )
    except BaseException:
        ours.close()
        raise
    finally:
        os.close(read_end)
    if is_orphan:
        popen.kill()
        await run_in_thread(lambda _: popen.wait(), lambda _: supervisor.kill())
    return supervisor


def _end(popen: "subprocess.Popen[bytes]") -> None:
    """End a sandbox that did not start: first the init program, which otherwise nobody would reap, by that bwrap."""
    for pid in list_group_members(popen.pid):
        if pid != popen.pid:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
    try:
        popen.wait(_REAP_SECONDS)
    except subprocess.TimeoutExpired:
        signal_group(popen.pid, signal.SIGKILL)
        popen.wait()


def _end_later(popen: "subprocess.Popen[bytes]") -> None:
    threading.Thread(target=_end, args=[popen], daemon=True).start()


async def open_nested_supervisor(
    outer: SandboxSupervisor,
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    answer_s: float = DEFAULT_TIMING.sandbox_answer_s,
) -> SandboxSupervisor:
    """Start a sandbox inside another one; its socket to us is descriptor 3. Raise SandboxSetupError."""
    ours, theirs = socket.socketpair()
    read_end, write_end = os.pipe()
    child = None
    try:
        try:
            with theirs:
                child = await outer.start(argv, "/", env, write_end, write_end, theirs.fileno())
            return SandboxSupervisor(ours, await _await_hello(ours), answer_s=answer_s)
        finally:
            os.close(write_end)
    except (SandboxSetupError, OSError) as error:
        ours.close()
        why = await run_in_thread(lambda _: _read_complaint(read_end))
        raise SandboxSetupError(why or str(error)) from None
    except BaseException:
        ours.close()
        raise
    finally:
        os.close(read_end)
        if child is not None:
            child.detach()


async def _await_hello(channel: socket.socket) -> int:
    """Wait until the init program is ready. Return its pidfd."""
    channel.setblocking(False)
    try:
        async with asyncio.timeout(DEFAULT_TIMING.sandbox_start_s):
            await _wait_until_readable(channel)
        greeting, fds, _, _ = socket.recv_fds(channel, 1, 1, socket.MSG_CMSG_CLOEXEC)
    except OSError as error:  # and TimeoutError
        raise SandboxSetupError("it did not start in time", is_transient=True) from error
    if greeting != HELLO or not fds:
        raise SandboxSetupError("it exited at once")
    return fds[0]


def _read_complaint(fd: int) -> str:
    """Return the last line of the error output."""
    os.set_blocking(fd, False)
    output = b""
    deadline = time.monotonic() + 1.0
    while len(output) < _MAX_COMPLAINT_BYTES and time.monotonic() < deadline:
        try:
            chunk = os.read(fd, _MAX_COMPLAINT_BYTES)
        except BlockingIOError:
            select.select([fd], [], [], 0.05)
            continue
        if not chunk:
            break
        output += chunk
    lines = output.decode("utf-8", "replace").strip().splitlines()
    return lines[-1].strip() if lines else ""


def _wait_for_exit(pidfd: int, seconds: float) -> bool:
    """Return whether the process has exited in this time."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(seconds * 1_000))


def _read_pid(pidfd: int) -> int:
    """Return the pid in our namespace, which differs from the pid inside the sandbox."""
    fd = os.open(f"/proc/self/fdinfo/{pidfd}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = os.read(fd, 1024)
    finally:
        os.close(fd)
    for line in text.splitlines():
        if line.startswith(b"Pid:"):
            return int(line[4:])
    raise SupervisorGone(0, "the command cannot be watched")
