"""The init program of a sandbox: starts commands when Odin asks for them over a socket.

Creating namespaces takes about 2.5 ms, so the sandbox is created once and this program starts the commands in it; they
are sandboxed because it is. It runs in a bare interpreter (`-I -S`), imports nothing of Odin except `lockdown`, and
uses C modules such as `_socket`, because the Python wrappers take as long to import as the interpreter takes to start.

A request is a 4-byte length and a body. File descriptors come with the length: standard input if the command has one,
standard output, standard error, the pipe for the exit code, and more that the command receives as 3 and up. When the
socket closes, Odin is gone and this program kills everything it started.

A command can get a private view of what it may write (`view_mounter.py`). A copy of this program mounts it, in advance
if Odin asks for it, waits there for the command, and is the first process of its pid namespace, so that nothing
survives the command: its exit is reported after all processes of the view have ended, and then its layers do not change
any more.
"""

import _socket
import errno
import os
import select
import sys
import time

TYPE_CHECKING = False  # `typing` takes longer to import than the interpreter to start
if TYPE_CHECKING:
    import signal as _signal
    from typing import Any
else:
    import _signal

START, CONNECT, COUNT, SEEN, PREPARE, SOCKET = b"s", b"c", b"n", b"p", b"v", b"k"
"""Kinds of requests: start a command; start one with a standard input; count the children, which includes every process
whose own parent has ended. SEEN follows a start and has no reply: Odin has read the pid of the command, which it could
not do any more once the command was reaped. PREPARE has none either: mount this view for the next command. SOCKET: make
a TCP socket of this family, which belongs to the network of the sandbox wherever it is used."""

STARTED, NO_VIEW = 0, 1
"""In the reply to a start that failed: NO_VIEW if the view could not be mounted."""

HELLO = b"!"

GROUP_LEFT, ORPHANS_LEFT, NOTHING_LEFT = b"+", b"*", b"-"
"""What runs after a command has exited: processes of its group, other processes of the sandbox, or nothing."""

EXCEEDED = (b"0", b"1", b"2")
"""Instead, for a command that was killed because its view had exceeded this limit (`probe.ViewLimits`)."""

_MAX_FDS = 8

_DEFAULT_SIGNALS = (13, 25)
"""SIGPIPE and SIGXFSZ, which the interpreter ignores and commands must not ignore."""

_RELAYED_SIGNALS = (2, 15, 18)
"""SIGINT, SIGTERM and SIGCONT, which the first process of a view passes on to all others in it."""

_KILLED = (-9).to_bytes(4, "big", signed=True)

_LOOK_S = 0.5
"""How often the first process of a view looks for exceeded limits, and reaps others than the command."""


class SandboxInit:
    """`mounter` mounts views, if commands can have them."""

    def __init__(self, channel: "Any", mounter: "Any" = None) -> None:
        self._channel = channel
        self._mounter = mounter
        self._devnull = os.open(os.devnull, os.O_RDWR)
        self._children: dict[int, tuple[int, int, Any]] = {}
        self._waiting: tuple[str, int, Any] = ("", 0, None)
        """The view that is mounted for the next command, the process that waits in it, and the socket to it."""
        self._unseen = 0
        self._poll = select.poll()
        self._poll.register(channel, select.POLLIN)
        self._poll_channel = select.poll()
        self._poll_channel.register(channel, select.POLLIN)

    def serve(self) -> None:
        try:
            while True:
                ready = (self._poll_channel if self._unseen else self._poll).poll()
                if not self._unseen:
                    self._reap()
                if any(fd == self._channel.fileno() for fd, _ in ready) and not self._answer():
                    return
        finally:
            _kill_descendants()

    def _answer(self) -> bool:
        """Serve one request. False if the socket is closed."""
        body, fds = _receive(self._channel)
        try:
            if not body:
                return False
            kind, *words = body.split(b"\0")
            if kind == SEEN:
                self._unseen -= 1
                return True
            if kind == PREPARE:
                try:
                    self._prepare(os.fsdecode(words[0]))
                except OSError:  # too many processes, for example; the start will try it again
                    self._waiting = ("", 0, None)
                return True
            if kind == COUNT:
                try:
                    return self._reply(0, sum(pid != self._waiting[1] for pid in _list_children()))
                except OSError as error:
                    return self._reply(error.errno or 1, 0)
            if kind == SOCKET:
                try:
                    made = _socket.socket(int(words[0]), _socket.SOCK_STREAM)
                except OSError as error:
                    return self._reply(error.errno or 1, 0)
                fds.append(made.detach())
                return self._reply(0, 0, fds[-1])
            return self._start(words, fds if kind == CONNECT else [self._devnull, *fds])
        finally:
            for fd in fds:
                os.close(fd)

    def _start(self, words: list[bytes], fds: list[int]) -> bool:
        view, limits, hidden, shown, *rest = words
        source, out, err, status, *more = fds
        pid, channel, error, step = 0, None, 0, STARTED
        if _has_no_reader(status):  # Odin has given the command up
            return self._reply(errno.ECANCELED, STARTED)
        try:
            if view:
                if self._waiting[0] != os.fsdecode(view):
                    self._prepare(os.fsdecode(view))
                _, pid, channel = self._waiting
                self._waiting = ("", 0, None)
                error, step = _receive_result(channel)
                if not error:
                    _send(channel, b"\0".join([limits, hidden, shown, *rest]), source, out, err, *more)
                    error, step = _receive_result(channel)
            else:
                pid = _spawn(rest, [source, out, err, *more])
        except OSError as failure:
            error = failure.errno or 1
        if error:
            if channel is not None:  # the process in the view is ending: until then it would count as a command
                channel.close()
                os.waitpid(pid, 0)
            return self._reply(error, step)
        pidfd = os.pidfd_open(pid)
        self._children[pid] = (os.dup(status), pidfd, channel)
        self._poll.register(pidfd, select.POLLIN)
        self._unseen += 1
        return self._reply(0, pid, pidfd)

    def _prepare(self, view: str) -> None:
        """Let a copy of this process mount a view and wait in it for a command; one that waits already gives up."""
        ours, theirs = _socket.socketpair()
        read_end, write_end = os.pipe()
        helper = os.fork()
        if not helper:
            try:
                self._mounter.unshare_processes()
                pid = os.fork()
                if pid:
                    os.write(write_end, pid.to_bytes(4, "big"))
                else:
                    self._serve_view(view, theirs)
            except OSError as error:
                theirs.send(_pack(error.errno or 1, NO_VIEW))
            finally:
                os._exit(0)
        os.close(write_end)
        self._waiting = (view, int.from_bytes(os.read(read_end, 4), "big"), ours)
        os.close(read_end)
        os.waitpid(helper, 0)

    def _serve_view(self, view: str, channel: "Any") -> None:
        """Mount the view, run one command in it, and report how that has ended. Raise OSError if it cannot be mounted.

        When this process exits, the kernel kills all others in the view.
        """
        sys.dont_write_bytecode = True
        os.setsid()
        kept = (0, 1, 2, channel.fileno(), self._mounter.place)
        for fd in [int(name) for name in os.listdir("/proc/self/fd") if int(name) not in kept]:  # noqa: PTH208
            try:
                os.close(fd)
            except OSError:  # the listing's own descriptor
                continue
        helper = self._mounter.mount(view)
        channel.send(_pack(0, NO_VIEW))
        body, fds = _receive(channel)
        if not body:
            return
        limits, count, shown, *words = body.split(b"\0")
        covered = [os.fsdecode(word) for word in words[: int(count) + int(shown)]]
        self._mounter.hide(covered[: int(count)], covered[int(count) :])
        self._mounter.drop_privileges()
        try:
            command = _spawn(words[len(covered) :], fds)
        except OSError as error:
            channel.send(_pack(error.errno or 1, STARTED))
            return
        for fd in fds:
            os.close(fd)
        for number in _RELAYED_SIGNALS:
            _signal.signal(number, _relay_signal)
        channel.send(_pack(0, STARTED))
        poll = select.poll()
        for fd in (os.pidfd_open(command), channel.fileno()):
            poll.register(fd, select.POLLIN)
        if helper is not None:
            helper.hidden = covered
            poll.register(helper.fd, select.POLLIN)
        bounds = [int(word) for word in limits.split(b",")]
        due = time.monotonic() + _LOOK_S
        while True:
            ready = {fd for fd, _ in poll.poll(max(0.0, due - time.monotonic()) * 1_000)}
            if channel.fileno() in ready:  # the init program is gone
                return
            if helper is not None and helper.fd in ready:
                helper.answer()
            pid = 1
            while pid:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == command:
                    code = os.waitstatus_to_exitcode(status)
                    channel.send(code.to_bytes(4, "big", signed=True) + NOTHING_LEFT)
                    return
            began = time.monotonic()
            if began >= due:
                exceeded = self._mounter.find_exceeded(*bounds) if any(bounds) else -1
                if exceeded >= 0:
                    channel.send(_KILLED + EXCEEDED[exceeded])
                    return
                due = time.monotonic() + max(_LOOK_S, 20 * (time.monotonic() - began))

    def _reply(self, error: int, number: int, *fds: int) -> bool:
        rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, b"".join(fd.to_bytes(4, sys.byteorder) for fd in fds))]
        self._channel.sendmsg([_pack(error, number)], rights if fds else [])
        return True

    def _reap(self) -> None:
        """Reap all exited processes, including orphans. Report exit codes and what commands left behind."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid == self._waiting[1]:
                self._waiting = ("", 0, None)
            if pid in self._children:
                report, pidfd, channel = self._children.pop(pid)
                self._poll.unregister(pidfd)
                os.close(pidfd)
                if channel is not None:
                    result = channel.recv(5) or _KILLED + NOTHING_LEFT
                else:
                    code = os.waitstatus_to_exitcode(status)
                    left = GROUP_LEFT if _is_group_alive(pid) else ORPHANS_LEFT if self._has_orphans() else NOTHING_LEFT
                    result = code.to_bytes(4, "big", signed=True) + left
                try:
                    os.write(report, result)
                except OSError:
                    pass
                finally:
                    os.close(report)

    def _has_orphans(self) -> bool:
        """True if a process runs whose command has ended: such processes become children of this program."""
        try:
            return any(pid not in self._children and pid != self._waiting[1] for pid in _list_children())
        except OSError:
            return False


def _relay_signal(number: int, _: object) -> None:
    """Send a signal to every other process of this pid namespace, once to each."""
    try:
        os.kill(-1, number)
    except OSError:  # they have just ended
        return


def _has_no_reader(pipe: int) -> bool:
    poll = select.poll()
    poll.register(pipe, 0)
    return bool(poll.poll(0))


def _spawn(words: list[bytes], fds: list[int]) -> int:
    """Start a command with these descriptors as 0, 1, 2 … Return its pid. Raise OSError."""
    cwd, count, *rest = words
    argv, env = rest[: int(count)], rest[int(count) :]
    os.chdir(cwd)
    return os.posix_spawnp(
        argv[0],
        argv,
        {name: value for name, _, value in (item.partition(b"=") for item in env)},
        file_actions=[(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(fds)],
        setsid=True,
        setsigdef=_DEFAULT_SIGNALS,
    )


def _receive(channel: "Any") -> tuple[bytes, list[int]]:
    """Return a message and its descriptors. The message is empty if the socket was closed."""
    head, ancillary, _, _ = channel.recvmsg(4, _socket.CMSG_SPACE(4 * _MAX_FDS), _socket.MSG_CMSG_CLOEXEC)
    fds = _extract_descriptors(ancillary)
    size = int.from_bytes(head, "big")
    body = bytearray()
    while len(head) == 4 and len(body) < size:
        data = channel.recv(size - len(body))
        if not data:
            return b"", fds
        body += data
    return bytes(body), fds


def _send(channel: "Any", body: bytes, *fds: int) -> None:
    rights = b"".join(fd.to_bytes(4, sys.byteorder) for fd in fds)
    channel.sendmsg([len(body).to_bytes(4, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
    channel.sendall(body)


def _receive_result(channel: "Any") -> tuple[int, int]:
    """Wait for the process in a view. Return its error, or 0, and what it is about: NO_VIEW or STARTED."""
    result = channel.recv(8) or _pack(errno.ESRCH, NO_VIEW)
    return int.from_bytes(result[:4], "big"), int.from_bytes(result[4:], "big")


def _pack(error: int, number: int) -> bytes:
    return error.to_bytes(4, "big") + number.to_bytes(4, "big")


def _list_children() -> list[int]:
    with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:  # noqa: PTH123
        return [int(word) for word in file.read().split()]


def _is_group_alive(pid: int) -> bool:
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _kill_descendants() -> None:
    """Kill everything below this process, which becomes the parent of those whose own parent ends."""
    try:
        while children := _list_children():
            for pid in children:
                os.kill(pid, 9)
            os.waitpid(-1, 0)
    except OSError:  # they are unknown, or of another user
        return


def _extract_descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    """Return the file descriptors received with a message."""
    fds: list[int] = []
    for level, kind, data in ancillary:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
            fds.extend(int.from_bytes(data[at : at + 4], sys.byteorder) for at in range(0, len(data) // 4 * 4, 4))
    return fds


def main(fd: str, *setup: str) -> None:
    """Lock this process down as `setup` says (see `lockdown`), then serve requests on the socket `fd`."""
    import lockdown  # pyright: ignore[reportMissingImports]

    os.set_inheritable(int(fd), False)
    channel = _socket.socket(fileno=int(fd))
    try:
        if os.getpid() != 1:
            lockdown.collect_orphans()  # pyright: ignore[reportUnknownMemberType]
        place: int = lockdown.lock_down(setup)  # pyright: ignore
    except OSError as error:
        sys.exit(f"{error.filename}: {error.strerror}")
    devnull = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(devnull, number)
    own = os.pidfd_open(os.getpid())
    rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, own.to_bytes(4, sys.byteorder))
    channel.sendmsg([HELLO], [rights])
    os.close(own)
    mounter: Any = None
    if place >= 0:
        from view_mounter import ViewMounter  # pyright: ignore

        mode = next(word[1:].partition(":")[0] for word in setup if word.startswith("%"))
        mounter = ViewMounter(place, mode, [word[1:] for word in setup if word.startswith("#")])  # pyright: ignore
    try:
        SandboxInit(channel, mounter).serve()
    finally:
        os._exit(0)
