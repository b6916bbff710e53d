"""A real Temporal server with its state in a file, which can be killed and started again on the same port."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from odin.core.errors import OdinError
from odin.fleet.temporal_connection import TemporalServer, connect
from tests.waiting import TimeLimit


class TemporalProcess:
    def __init__(self, folder: Path, *flags: str) -> None:
        self._folder = folder
        self._flags = flags
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        program = Path(sys.executable).with_name("temporal")
        with (self._folder / "temporal.log").open("ab") as log:
            self._process = subprocess.Popen(
                (
                    *(str(program), "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--log-level", "error"),
                    *(
                        "--port",
                        str(self.port),
                        "--db-filename",
                        str(self._folder / "temporal.sqlite"),
                        "--sqlite-pragma",
                        "synchronous=off",
                        "--sqlite-pragma",
                        "journal_mode=wal",
                        *self._flags,
                    ),
                ),
                stdout=log,
                stderr=log,
                env={**os.environ, "HOME": str(self._folder)},
                start_new_session=True,
            )

    def wait_until_ready(self) -> None:
        async def wait() -> None:
            async with TimeLimit():
                while True:
                    with suppress(OdinError):
                        await connect(TemporalServer(self.address), {}, timeout_s=2)
                        return
                    await asyncio.sleep(0.05)

        with ThreadPoolExecutor(1) as thread:  # also where a loop runs
            thread.submit(asyncio.run, wait()).result()

    def kill(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


@contextmanager
def run_temporal(folder: Path, *flags: str) -> Generator[TemporalProcess]:
    process = TemporalProcess(folder, *flags)
    process.start()
    try:
        process.wait_until_ready()
        yield process
    finally:
        process.kill()
