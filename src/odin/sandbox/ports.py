"""The TCP ports that a background process listens on, and their forwarding to the host.

Sandboxed processes have a network of their own, which nothing outside reaches. A forwarded port is a listener of Odin's
on a loopback address of the host. For each connection, the init program of the sandbox makes a socket, which belongs to
that network, and Odin connects it to the process and copies the data. No socket of the host gets into the sandbox.
"""

import asyncio
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

MAX_CONNECTIONS = 100
"""Maximum number of open connections to one forwarded port. More are closed at once."""

HOST = "127.0.0.2" if sys.platform == "linux" else "127.0.0.1"
"""Not 127.0.0.1 where there is a choice, so that a port of the sandbox is not taken for one of the machine."""

_CONNECT_SECONDS = 5.0
_CHUNK = 65_536
_LISTENING = "0A"
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}

Address = tuple[str, int]


def has_own_network(pid: int) -> bool:
    """True if this process has another network than Odin. Raise OSError if there is no such process."""
    return os.stat(f"/proc/{pid}/ns/net").st_ino != os.stat("/proc/self/ns/net").st_ino  # noqa: PTH116


def list_listeners(pid: int) -> dict[str, Address]:
    """Return the addresses that are listened on in the network of this process, by the number of the socket."""
    found: dict[str, Address] = {}
    for name in ("tcp6", "tcp"):
        with suppress(OSError), open(f"/proc/{pid}/net/{name}", encoding="ascii") as table:  # noqa: PTH123
            for line in table:
                fields = line.split()
                if fields[3] == _LISTENING:
                    packed, _, port = fields[1].partition(":")
                    words = [bytes.fromhex(packed[at : at + 8])[::-1] for at in range(0, len(packed), 8)]
                    host = socket.inet_ntop(socket.AF_INET6 if name == "tcp6" else socket.AF_INET, b"".join(words))
                    found[fields[9]] = _WILDCARDS.get(host, host), int(port, 16)
    return found


def list_sockets(pids: Iterable[int]) -> set[str]:
    """Return the numbers of the sockets that these processes have open."""
    found: set[str] = set()
    for pid in pids:
        with suppress(OSError):
            for entry in os.scandir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    kind, _, number = os.readlink(entry.path).partition(":[")  # noqa: PTH115
                    if kind == "socket":
                        found.add(number.rstrip("]"))
    return found


class PortForward:
    """Forwards connections to a port of the host to `address` in the network that `open_socket` makes sockets for."""

    def __init__(self, address: Address, open_socket: Callable[[int], Awaitable[socket.socket]]) -> None:
        self.url = ""
        self._address = address
        self._open_socket = open_socket
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Listen on the same port of the host, or on another one if that is taken. Raise OSError."""
        for host, port in ((HOST, self._address[1]), (HOST, 0), ("127.0.0.1", 0)):
            with suppress(OSError):
                self._server = await asyncio.start_server(self._accept, host, port)
                break
        else:
            raise OSError(f"no port of {HOST} can be listened on")
        host, port = self._server.sockets[0].getsockname()
        self.url = f"http://{host}:{port}"

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        try:
            if len(self._connections) <= MAX_CONNECTIONS:
                await self._relay(reader, writer)
        except (OSError, TimeoutError, asyncio.CancelledError):
            return  # the process is gone or does not listen any more, or a side has left
        finally:
            writer.close()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        family = socket.AF_INET6 if ":" in self._address[0] else socket.AF_INET
        inner = await self._open_socket(family)
        try:
            inner.setblocking(False)
            async with asyncio.timeout(_CONNECT_SECONDS):
                await asyncio.get_running_loop().sock_connect(inner, self._address)
            inner_reader, inner_writer = await asyncio.open_connection(sock=inner)
        except BaseException:
            inner.close()
            raise
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_copy(reader, inner_writer))
                both.create_task(_copy(inner_reader, writer))
        except* OSError:
            pass  # a side has left
        finally:
            inner_writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
