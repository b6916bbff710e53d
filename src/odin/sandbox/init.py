"""The program inside a sandbox that starts commands for Odin.

Making namespaces for every command takes longer than most commands do. So this small program is put into the sandbox
once, and starts commands when it is asked to over a socket: what it starts is in the sandbox because it is. It runs by
itself, with a bare interpreter, and imports nothing of Odin but its neighbour. What it needs is taken from C modules
where the usual ones take as long to import as the interpreter to start.

A request is a length and so many bytes, with file descriptors beside the length: standard output, standard error, the
pipe that is told how the command ended, and more that the command gets as 3 and up. When the socket ends, Odin is gone:
everything that was started ends with this program.
"""

import _socket
import os
import select
import sys
from typing import Any

START, COUNT = b"s", b"n"
"""Start a command; say how many processes there are."""

HELLO = b"!"

_MAX_FDS = 8
_DEFAULT_SIGNALS = (13, 25)
"""SIGPIPE and SIGXFSZ, which the interpreter ignores and commands must not."""


class SandboxInit:
    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._devnull = os.open(os.devnull, os.O_RDWR)
        self._children: dict[int, tuple[int, int]] = {}
        self._poll = select.poll()
        self._poll.register(channel, select.POLLIN)

    def serve(self) -> None:
        try:
            while True:
                ready = self._poll.poll()
                self._reap()
                if any(fd == self._channel.fileno() for fd, _ in ready) and not self._answer():
                    return
        finally:
            for pid in self._children:
                _kill_group(pid)

    def _answer(self) -> bool:
        """Serve one request. False when nobody will ask any more."""
        head, ancillary, _, _ = self._channel.recvmsg(4, _socket.CMSG_SPACE(4 * _MAX_FDS), _socket.MSG_CMSG_CLOEXEC)
        fds = _extract_descriptors(ancillary)
        try:
            body = self._receive_body(head)
            if not body:
                return False
            kind, *words = body.split(b"\0")
            if kind == COUNT:
                return self._reply(0, len([name for name in os.listdir("/proc") if name.isdigit()]))  # noqa: PTH208
            return self._start(words, fds)
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
        out, err, status, *more = fds
        actions = [(os.POSIX_SPAWN_DUP2, self._devnull, 0), (os.POSIX_SPAWN_DUP2, out, 1)]
        actions.append((os.POSIX_SPAWN_DUP2, err, 2))
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
        return self._reply(0, pid, pidfd)

    def _reply(self, error: int, number: int, *fds: int) -> bool:
        beside = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, b"".join(fd.to_bytes(4, sys.byteorder) for fd in fds))]
        self._channel.sendmsg([error.to_bytes(4, "big") + number.to_bytes(4, "big")], beside if fds else [])
        return True

    def _reap(self) -> None:
        """Collect everything that has ended, orphans too, and tell how commands ended and whether their group did."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid in self._children:
                told, pidfd = self._children.pop(pid)
                self._poll.unregister(pidfd)
                os.close(pidfd)
                code = os.waitstatus_to_exitcode(status)
                _tell(told, code.to_bytes(4, "big", signed=True) + (b"+" if _is_group_alive(pid) else b"-"))


def _tell(fd: int, data: bytes) -> None:
    try:
        os.write(fd, data)
    except OSError:
        pass
    finally:
        os.close(fd)


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
    """The file descriptors beside a message."""
    fds: list[int] = []
    for level, kind, data in ancillary:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
            fds.extend(int.from_bytes(data[at : at + 4], sys.byteorder) for at in range(0, len(data) // 4 * 4, 4))
    return fds


def main(fd: str, *setup: str) -> None:
    """`setup` names what is still to be done here: see `enclosure`."""
    import lockdown  # pyright: ignore[reportMissingImports]

    os.set_inheritable(int(fd), False)
    channel = _socket.socket(fileno=int(fd))
    lockdown.lock_down(setup)  # pyright: ignore[reportUnknownMemberType]
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    own = os.pidfd_open(os.getpid())
    rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, own.to_bytes(4, sys.byteorder))
    channel.sendmsg([HELLO], [rights])
    os.close(own)
    starter = SandboxInit(channel)
    try:
        starter.serve()
    finally:
        os._exit(0)
