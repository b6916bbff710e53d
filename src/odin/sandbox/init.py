"""The init program of a sandbox: starts commands when Odin asks for them over a socket.

Creating namespaces takes about 2.5 ms, so the sandbox is created once and this program starts the commands in it; they
are sandboxed because it is. It runs in a bare interpreter (`-I -S`), imports nothing of Odin except `lockdown`, and
uses C modules such as `_socket`, because the Python wrappers take as long to import as the interpreter takes to start.

A request is a 4-byte length and a body. File descriptors come with the length: standard input if the command has one,
standard output, standard error, the pipe for the exit code, and more that the command receives as 3 and up. When the
socket closes, Odin is gone and this program kills everything it started.
"""

import _socket
import os
import select
import sys
from typing import Any

START, CONNECT, COUNT, SEEN = b"s", b"c", b"n", b"p"
"""Kinds of requests: start a command; start one with a standard input; count the children, which includes every process
whose own parent has ended. SEEN follows a start and has no reply: Odin has read the pid of the command, which it could
not do any more once the command was reaped."""

HELLO = b"!"

GROUP_LEFT, ORPHANS_LEFT, NOTHING_LEFT = b"+", b"*", b"-"
"""What runs after a command has exited: processes of its group, other processes of the sandbox, or nothing."""

_MAX_FDS = 8

_DEFAULT_SIGNALS = (13, 25)
"""SIGPIPE and SIGXFSZ, which the interpreter ignores and commands must not ignore."""


class SandboxInit:
    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._devnull = os.open(os.devnull, os.O_RDWR)
        self._children: dict[int, tuple[int, int]] = {}
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
            for pid in self._children:
                _kill_group(pid)

    def _answer(self) -> bool:
        """Serve one request. False if the socket is closed."""
        head, ancillary, _, _ = self._channel.recvmsg(4, _socket.CMSG_SPACE(4 * _MAX_FDS), _socket.MSG_CMSG_CLOEXEC)
        fds = _extract_descriptors(ancillary)
        try:
            body = self._receive_body(head)
            if not body:
                return False
            kind, *words = body.split(b"\0")
            if kind == SEEN:
                self._unseen -= 1
                return True
            if kind == COUNT:
                try:
                    return self._reply(0, len(_list_children()))
                except OSError as error:
                    return self._reply(error.errno or 1, 0)
            return self._start(words, fds if kind == CONNECT else [self._devnull, *fds])
        finally:
            for fd in fds:
                os.close(fd)

    def _receive_body(self, head: bytes) -> bytes:
        size = int.from_bytes(head, "big")
        body = bytearray()
        while len(head) == 4 and len(body) < size:
            data = self._channel.recv(size - len(body))
            if not data:
                return b""
            body += data
        return bytes(body)

    def _start(self, words: list[bytes], fds: list[int]) -> bool:
        cwd, count, *rest = words
        argv, env = rest[: int(count)], rest[int(count) :]
        source, out, err, status, *more = fds
        actions = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate((source, out, err))]
        actions.extend((os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(more, 3))
        try:
            os.chdir(cwd)
            pid = os.posix_spawnp(
                argv[0],
                argv,
                {name: value for name, _, value in (item.partition(b"=") for item in env)},
                file_actions=actions,
                setsid=True,
                setsigdef=_DEFAULT_SIGNALS,
            )
        except OSError as error:
            return self._reply(error.errno or 1, 0)
        pidfd = os.pidfd_open(pid)
        self._children[pid] = (os.dup(status), pidfd)
        self._poll.register(pidfd, select.POLLIN)
        self._unseen += 1
        return self._reply(0, pid, pidfd)

    def _reply(self, error: int, number: int, *fds: int) -> bool:
        rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, b"".join(fd.to_bytes(4, sys.byteorder) for fd in fds))]
        self._channel.sendmsg([error.to_bytes(4, "big") + number.to_bytes(4, "big")], rights if fds else [])
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
            if pid in self._children:
                report, pidfd = self._children.pop(pid)
                self._poll.unregister(pidfd)
                os.close(pidfd)
                code = os.waitstatus_to_exitcode(status)
                left = GROUP_LEFT if _is_group_alive(pid) else ORPHANS_LEFT if self._has_orphans() else NOTHING_LEFT
                try:
                    os.write(report, code.to_bytes(4, "big", signed=True) + left)
                except OSError:
                    pass
                finally:
                    os.close(report)

    def _has_orphans(self) -> bool:
        """True if a process runs whose command has ended: such processes become children of this program."""
        try:
            return any(pid not in self._children for pid in _list_children())
        except OSError:
            return False


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


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, 9)
    except OSError:
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
        lockdown.lock_down(setup)  # pyright: ignore[reportUnknownMemberType]
    except OSError as error:
        sys.exit(f"{error.filename}: {error.strerror}")
    devnull = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(devnull, number)
    own = os.pidfd_open(os.getpid())
    rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, own.to_bytes(4, sys.byteorder))
    channel.sendmsg([HELLO], [rights])
    os.close(own)
    try:
        SandboxInit(channel).serve()
    finally:
        os._exit(0)
