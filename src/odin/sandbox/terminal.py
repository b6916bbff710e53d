"""The user's own programs: editor, pager, clipboard and browser (profile `terminal`).

They run outside the sandbox with the user's environment, so none is looked up in a folder that commands can write.
Files that Odin reads back after such a program lie in a folder that commands cannot reach.
"""

import asyncio
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from odin.core.client import SessionInfo
from odin.core.errors import UsageError
from odin.core.private_folders import open_scratch
from odin.core.profile import WritableFolders
from odin.sandbox.probe import find_program
from odin.sandbox.process import SYSTEM_PATH

_STOP_TIMEOUT_S = 1.0
"""How long a program that is stopped may take to reset the terminal."""


class TerminalPrograms(Struct, frozen=True):
    """Starts programs of the user. `scratch` is the folder for files that Odin reads back."""

    env: Mapping[str, str]
    writable: WritableFolders
    scratch: str = ""

    def find(self, name: str) -> str:
        """Return the absolute path of a program; "" if there is none, or only one that commands can write.

        A full path is the user's own choice and accepted.
        """
        if "/" in name:
            return name if name.startswith("/") else ""
        found = (find_program(name, folder) for folder in self._path.split(os.pathsep))
        return next((path for path in found if path and os.path.realpath(path) not in self.writable), "")

    @property
    def _path(self) -> str:
        return self.writable.filter_path(self.env.get("PATH", ""))

    def open_scratch(self) -> AbstractContextManager[Path]:
        """Create a folder that no command can reach, and remove it at the end."""
        if not self.scratch:
            raise UsageError("The session is not open yet.", "Try again in a moment.")
        return open_scratch(Path(self.scratch))

    async def run(self, argv: Sequence[str], *, terminal: int | None = None, until: asyncio.Event | None = None) -> int:
        """Run a program in the terminal and return its exit code. It is stopped when `until` is set.

        `terminal` replaces its standard streams. It runs in Odin's own process group, because only the foreground group
        may read the terminal. Raise OSError if it cannot be started.
        """
        process = await self._start(argv, stdin=terminal, stdout=terminal, stderr=terminal)
        end = asyncio.ensure_future((until or asyncio.Event()).wait())
        try:
            await asyncio.wait({asyncio.ensure_future(process.wait()), end}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            end.cancel()
            if process.returncode is None:
                await _stop(process)
        return process.returncode or 0

    async def capture(self, argv: Sequence[str], *, timeout: float, max_bytes: int) -> bytes:
        """Return the output; b"" if the program cannot be started, fails, prints too much or takes too long."""
        try:
            process = await self._start(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        except OSError:
            return b""
        assert process.stdout is not None
        data = bytearray()
        try:
            async with asyncio.timeout(timeout):
                while len(data) <= max_bytes and (part := await process.stdout.read(1 << 16)):
                    data += part
                return bytes(data) if len(data) <= max_bytes and await process.wait() == 0 else b""
        except TimeoutError:
            return b""
        finally:
            if process.returncode is None:
                with suppress(OSError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()

    def open_page(self, url: str) -> None:
        """Open a web page in $BROWSER or the default browser, without waiting; do nothing if there is none."""
        if not url.startswith(("https://", "http://")):
            return
        default = "open" if sys.platform == "darwin" else "xdg-open"
        for command in (*self.env.get("BROWSER", "").split(os.pathsep), default):
            with suppress(ValueError, OSError):
                words = shlex.split(command)
                if words and (program := self.find(words[0])):
                    given = [word.replace("%s", url) for word in words[1:]]
                    argv = [program, *given, *(() if "%s" in command else (url,))]
                    child = subprocess.Popen(
                        argv,
                        cwd="/",
                        env=self._build_environment(),
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL,
                        start_new_session=True,
                    )
                    threading.Thread(target=child.wait, daemon=True).start()
                    return

    def _build_environment(self) -> dict[str, str]:
        return {**self.env, "PATH": self._path}

    async def _start(self, argv: Sequence[str], **options: Any) -> asyncio.subprocess.Process:
        program = self.find(argv[0])
        if not program:
            is_known = "/" in argv[0] or find_program(argv[0], self.env.get("PATH", ""))
            raise OSError(0, "commands can write it; give its full path" if is_known else "it is not installed")
        return await asyncio.create_subprocess_exec(program, *argv[1:], env=self._build_environment(), **options)


def make_terminal_programs(info: SessionInfo | None, env: Mapping[str, str]) -> TerminalPrograms:
    """Return what starts the user's programs; before the session is open (None), only those of the system."""
    if info is None:
        return TerminalPrograms({**env, "PATH": SYSTEM_PATH}, WritableFolders())
    return TerminalPrograms(env, info.writable, info.scratch)


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Terminate the program, giving it a moment to reset the terminal."""
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), _STOP_TIMEOUT_S)
    except (TimeoutError, asyncio.CancelledError):
        process.kill()
        await process.wait()
