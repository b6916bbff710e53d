"""Helpers that inspect real processes and wait for them."""

import os
from contextlib import suppress
from pathlib import Path

from tests.waiting import wait_for_end, wait_until


def is_alive(pid: int) -> bool:
    """Return whether the process runs; a zombie does not."""
    status = _read_status(pid)
    return bool(status) and ") Z " not in status


def is_zombie(pid: int) -> bool:
    return ") Z " in _read_status(pid)


def list_processes(name: str, folder: Path) -> set[int]:
    """Return the processes of a program whose working directory is this folder."""
    pids = map(int, filter(str.isdigit, os.listdir("/proc")))
    return {pid for pid in pids if find_folder(pid) == folder and f" ({name}) " in _read_status(pid)}


def _read_status(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def wait_for_pids(path: Path, count: int) -> list[int]:
    """Wait until commands wrote `count` process ids into a file, one per line, and return them.

    A sandboxed command writes its pid inside the sandbox: return its pid outside, or none if the command has ended.
    """
    wait_until(lambda: path.exists() and len(path.read_text().split()) >= count)
    return [pid for word in path.read_text().split() for pid in _to_outer_pid(int(word), path.parent.resolve())]


def _to_outer_pid(number: int, folder: Path) -> list[int]:
    """Return the outer pid of a sandboxed process, by its inner pid and working directory; else the pid itself."""
    inside = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _list_pids(pid)[1:] == [number]]
    found = [pid for pid in inside if find_folder(pid) == folder]
    is_other_process = is_alive(number) and find_folder(number) != folder
    return found or ([] if is_other_process else [number])


def _list_pids(pid: int) -> list[int]:
    """Return the pids of a process in every namespace, from the outermost to its own."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return []
    for line in lines:
        if line.startswith("NSpid:"):
            return [int(word) for word in line.split()[1:]]
    return []


def find_folder(pid: int) -> Path | None:
    """Return the working directory of a process."""
    try:
        return Path(f"/proc/{pid}/cwd").readlink()
    except OSError:
        return None


def wait_until_gone(pids: list[int]) -> None:
    """Wait until the processes have ended; nobody need have asked for their exit codes."""
    for pid in pids:
        with suppress(ProcessLookupError):
            wait_for_end(pid)


def list_helpers() -> dict[int, str]:
    """Return the living children of this process and the processes it holds a descriptor of, with their command lines.

    These are all processes that sessions in this process keep: the first one of a sandbox need not be a child.
    """
    found = {int(path.parent.name) for path in Path("/proc").glob("[0-9]*/stat") if _read_parent(path) == os.getpid()}
    for path in Path("/proc/self/fdinfo").iterdir():
        with suppress(OSError):
            found |= {int(line[4:]) for line in path.read_text().splitlines() if line.startswith("Pid:")}
    return {pid: Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ") for pid in found if is_alive(pid)}


def list_more_helpers(before: dict[int, str]) -> dict[int, str]:
    """Return the helpers that were started since. Other tests may have left theirs, which end at any time."""
    return {pid: command for pid, command in list_helpers().items() if pid not in before}


def _read_parent(stat: Path) -> int:
    try:
        return int(stat.read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def list_open_files() -> set[tuple[int, str]]:
    """Return the descriptors of this process and what they lead to.

    It has more threads than the test's: a sandbox of an earlier test may be closing its own. So a test waits until none
    is new, instead of counting them.
    """
    found: set[tuple[int, str]] = set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # it is closed by now
            found.add((int(name), os.readlink(f"/proc/self/fd/{name}")))
    return found


def is_running(words: str) -> bool:
    """Return whether a process with these words in its command line runs, in any pid namespace."""
    return bool(find_running(words))


def find_running(words: str) -> list[int]:
    """Return the processes with these words in their command line, in any pid namespace."""
    pids: list[int] = []
    for found in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = found.read_bytes().replace(b"\0", b" ")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if words.encode() in line and is_alive(int(found.parent.name)):
            pids.append(int(found.parent.name))
    return pids
