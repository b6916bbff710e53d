"""Runs the `odin` command in this process, and restores the process state that it may change."""

import contextlib
import gc
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import IO

from odin.commands import run

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCONT, signal.SIGWINCH, signal.SIGPIPE)


def run_odin(
    args: Sequence[str], env: Mapping[str, str], given: str | None, cwd: Path
) -> "subprocess.CompletedProcess[str]":
    """Run `odin ARGS…` with standard input `given`, and return the result as of a process."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with (
            _restore_process_state(env, cwd),
            _open_input(given) as stdin,
            _redirect_streams(stdin, out.fileno(), err.fileno()),
        ):
            code = _run_to_exit_code([*args])
        return subprocess.CompletedProcess([*args], code, _read_text(out), _read_text(err))


def _run_to_exit_code(argv: list[str]) -> int:
    try:
        return run(argv)
    except KeyboardInterrupt:
        return 130
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else int(left.code is not None)


def _read_text(written: IO[bytes]) -> str:
    written.seek(0)
    return written.read().decode().replace("\r\n", "\n").replace("\r", "\n")


@contextlib.contextmanager
def _restore_process_state(env: Mapping[str, str], cwd: Path) -> Generator[None]:
    """Set the environment and the current folder, and restore all state of the process at the end."""
    environ = dict(os.environ)
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    level, loggers = logging.root.level, list(logging.root.handlers)
    collecting = gc.isenabled()
    mask = os.umask(0o022)
    os.umask(mask)
    os.environ.update(env)
    try:
        with contextlib.chdir(cwd):
            yield
    finally:
        os.umask(mask)
        os.environ.clear()
        os.environ.update(environ)
        logging.root.setLevel(level)
        logging.root.handlers[:] = loggers
        for number, handler in handlers.items():
            signal.signal(number, handler)
        gc.unfreeze()
        (gc.enable if collecting else gc.disable)()


@contextlib.contextmanager
def _open_input(given: str | None) -> Generator[int]:
    """Yield a descriptor for reading: a pipe with the text, or the null device if `given` is None."""
    if given is None:
        reading = os.open(os.devnull, os.O_RDONLY)
        try:
            yield reading
        finally:
            os.close(reading)
        return
    reading, writing = os.pipe()
    feeder = threading.Thread(target=_feed, args=(writing, given.encode()))
    feeder.start()
    try:
        yield reading
    finally:
        os.close(reading)
        feeder.join()


def _feed(writing: int, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), open(writing, "wb") as pipe:
        pipe.write(data)


@contextlib.contextmanager
def _redirect_streams(stdin: int, stdout: int, stderr: int) -> Generator[None]:
    """Redirect the standard streams to these descriptors, for this process and for those it starts."""
    before = sys.stdin, sys.stdout, sys.stderr
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    saved = [os.dup(number) for number in range(3)]
    for number, target in enumerate((stdin, stdout, stderr)):
        os.dup2(target, number)
    opened = [open(number, mode, closefd=False) for number, mode in enumerate("rww")]  # noqa: SIM115
    sys.stdin, sys.stdout, sys.stderr = opened
    try:
        yield
    finally:
        sys.stdin, sys.stdout, sys.stderr = before
        for stream in opened:
            stream.close()
        for number, old in enumerate(saved):
            os.dup2(old, number)
            os.close(old)
