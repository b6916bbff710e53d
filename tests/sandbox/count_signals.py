"""Counts the TERM that it and its children get: `count_signals.py NAME [KIND …]`. Prints `NAME ready` and `NAME COUNT`.

Every kind of child is another way to be found, or to be missed, by those who stop a command: a `member` of its process
group, one in a `session` of its own, one `unmarked` by an empty environment, one `lost` by both, and a `pipeline`.
"""

import os
import shlex
import signal
import subprocess
import sys
import time

WINDOW_S = 0.2
"""How long a second signal is waited for after the first."""

_count = 0


def _handle(*_: object) -> None:
    global _count
    _count += 1


def _start(kind: str) -> "subprocess.Popen[str]":
    argv = [sys.executable, "-S", __file__, kind]
    if kind == "pipeline":
        stages = " | ".join(shlex.join([*argv[:-1], name]) for name in ("first", "last"))
        argv = ["sh", "-c", f"trap '' TERM; {stages}"]
    environ: dict[str, str] | None = {} if kind in ("unmarked", "lost") else None
    is_apart = kind in ("session", "lost")
    return subprocess.Popen(argv, env=environ, start_new_session=is_apart, stderr=subprocess.PIPE, text=True)


def _say(text: str) -> None:
    os.write(2, f"{text}\n".encode())


def main(name: str, kinds: list[str]) -> None:
    signal.signal(signal.SIGTERM, _handle)
    children = [_start(kind) for kind in kinds]
    for kind, child in zip(kinds, children, strict=True):
        assert child.stderr is not None
        for _ in range(2 if kind == "pipeline" else 1):
            assert child.stderr.readline().endswith("ready\n")
    _say(f"{name} ready")
    while not _count:
        time.sleep(0.005)
    time.sleep(WINDOW_S)
    for child in children:
        _say(child.communicate()[1].strip())
    _say(f"{name} {_count}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
