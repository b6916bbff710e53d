"""Who writes a session: never two processes at once, and the second one is told who the first is.

The operating system's lock on the log itself is what counts. Beside it a small file, `<session>.lock` in the project's
folder, names the owner, so that a list can say who has a session open without touching the lock. Where there is no such
lock (Windows), that file is the lock, and the owner's process id says whether it still holds.
"""

import contextlib
import os
import time
from pathlib import Path

import msgspec

from odin.core.errors import OdinError, SessionLockCorrupt, SessionLocked, SessionNotFound

LOCK_SUFFIX = ".lock"
_TRIES = 20
_PAUSE_S = 0.025
"""How long a lock is waited for whose owner is dead or not named yet: it is on its way out, or in."""

_TAKEOVER_S = 10.0


class LockHolder(msgspec.Struct, frozen=True):
    """A process that writes a session. `birth` tells it from a later process with the same number."""

    pid: int
    host: str
    since: float
    birth: str = ""

    def __str__(self) -> str:
        return f"PID {self.pid} on {self.host} since {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(self.since))}"

    @property
    def is_alive(self) -> bool:
        """Of a process on another machine nothing is known, so it counts as alive."""
        if self.host != get_host_name():
            return True
        state, birth = _read_process_stat(self.pid)
        if state in ("Z", "X"):
            return False
        return _is_running(self.pid) and (not self.birth or birth in ("", self.birth))


def get_host_name() -> str:
    return os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "this computer")


def birth_of(pid: int) -> str:
    """When a process began, in the system's own count; "" where that cannot be told."""
    return _read_process_stat(pid)[1]


def _read_process_stat(pid: int) -> tuple[str, str]:
    """What the system says of a process, where it says something: its state and its birth. One that has ended and that
    nobody has asked about yet still has a number; its state is Z.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return fields[0], fields[19]
    except (OSError, IndexError):
        return "", ""


def _is_running(pid: int) -> bool:
    if pid <= 0:
        return False
    if os.name == "nt":
        return _is_running_on_windows(pid)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _is_running_on_windows(pid: int) -> bool:
    """There `os.kill` would end the process, whatever the signal."""
    import ctypes

    kernel = getattr(ctypes, "windll").kernel32  # noqa: B009
    handle = kernel.OpenProcess(0x1000, False, pid)
    if not handle:
        return False
    code = ctypes.c_ulong()
    known = kernel.GetExitCodeProcess(handle, ctypes.byref(code))
    kernel.CloseHandle(handle)
    return not known or code.value == 259


def lock_file_of(log: Path) -> Path:
    folder = log.parent
    return folder.with_name(f"{folder.name}{LOCK_SUFFIX}")


def read_lock_holder(path: Path) -> LockHolder | None:
    """Who is named there; None when nobody is. Raises ValueError when it cannot be read."""
    try:
        if not path.is_file() and os.path.lexists(path):
            raise ValueError(f"{path} is not a file")
        return msgspec.json.decode(path.read_bytes(), type=LockHolder)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ValueError(str(error)) from error
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from error


def lock_holder_of(log: Path) -> str:
    """Who has this session open, in words; "" for nobody. It only reads, so it gets in nobody's way."""
    try:
        owner = read_lock_holder(lock_file_of(log))
    except ValueError:
        return "somebody who cannot be named"
    return str(owner) if owner is not None and owner.is_alive else ""


class SessionLock:
    """The right to write one log. It is gone with the process, however that ends."""

    def __init__(self, log: Path, session: str) -> None:
        self._log = log
        self._session = session
        self._file = lock_file_of(log)
        self._holder = LockHolder(os.getpid(), get_host_name(), time.time(), birth_of(os.getpid()))
        self._is_signed = False

    def acquire(self, fd: int) -> None:
        """Raises SessionLocked when another process has it, and SessionNotFound when it was deleted meanwhile."""
        try:
            import fcntl
        except ImportError:
            self._acquire_by_file()
            return
        for left in range(_TRIES, -1, -1):
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not left or not self._may_clear_soon():
                    raise self._make_refusal() from None
                time.sleep(_PAUSE_S)
        if not os.fstat(fd).st_nlink:
            raise SessionNotFound(f"Session {self._session} was deleted by another process.")

    def reserve(self) -> bool:
        """Claim the id of a session that has no file yet; False when somebody else was faster.

        Where nothing can be written the claim is not made: the first event will say what is wrong.
        """
        try:
            self._create(self._file)
        except FileExistsError:
            return False
        except OSError:
            return True
        self._is_signed = True
        return True

    def write_holder(self) -> None:
        """Write down who has it. A disk that is full is no reason to stop: the lock itself holds."""
        if not self._is_signed:
            with contextlib.suppress(OSError):
                self._replace_holder_file()
                self._is_signed = True

    def release(self) -> None:
        """Before the log is closed, so that nobody finds our name on a lock that is no longer ours."""
        if self._is_signed:
            self._is_signed = False
            with contextlib.suppress(OSError):
                self._file.unlink()

    def _may_clear_soon(self) -> bool:
        """Whether the lock will be free, or its owner named, in a moment."""
        try:
            owner = read_lock_holder(self._file)
        except ValueError:
            return False
        return owner is None or not owner.is_alive

    def _make_refusal(self) -> OdinError:
        try:
            owner = read_lock_holder(self._file)
        except ValueError:
            owner = None
        if owner is None:
            return SessionLockCorrupt(
                f"Session {self._session} is open in another process, which cannot be named: {self._file} is missing "
                "or unreadable.",
                "Close it there, or start a new session.",
            )
        here = "in this process" if owner.pid == os.getpid() and owner.host == get_host_name() else "in another process"
        return SessionLocked(
            f"Session {self._session} is already open {here} ({owner}).", "Close it there, or start a new session."
        )

    def _replace_holder_file(self) -> None:
        fresh = self._write_temporary()
        try:
            fresh.replace(self._file)
        except OSError:
            with contextlib.suppress(OSError):
                fresh.unlink()
            raise

    def _write_temporary(self) -> Path:
        """A file that names us, under a name of its own."""
        fresh = self._file.with_name(f".{self._file.name}-{os.getpid()}-{time.monotonic_ns():x}")
        try:
            fresh.write_bytes(msgspec.json.encode(self._holder))
        except OSError:
            with contextlib.suppress(OSError):
                fresh.unlink()
            raise
        return fresh

    # Without a lock of the operating system.

    def _acquire_by_file(self) -> None:
        while not self._is_signed:
            try:
                self._create(self._file)
                self._is_signed = True
            except FileExistsError:
                self._take_over()

    def _create(self, path: Path) -> None:
        """It appears with our name in it: a kill in between must not leave a claim that nobody can be asked about."""
        fresh = self._write_temporary()
        try:
            path.hardlink_to(fresh)
        except FileExistsError:
            raise
        except OSError:
            self._create_in_place(path)
        finally:
            with contextlib.suppress(OSError):
                fresh.unlink()

    def _create_in_place(self, path: Path) -> None:
        """Not every file system has links."""
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(msgspec.json.encode(self._holder))

    def _take_over(self) -> None:
        """Only one at a time may look whether the owner is dead and take its place."""
        try:
            owner = read_lock_holder(self._file)
        except ValueError:
            raise self._make_refusal() from None
        if owner is None:
            return
        if owner.is_alive:
            raise self._make_refusal()
        guard = self._file.with_name(f"{self._file.name}-takeover")
        try:
            self._create(guard)
        except FileExistsError:
            with contextlib.suppress(OSError):
                if guard.stat().st_mtime < time.time() - _TAKEOVER_S:
                    guard.unlink()
            time.sleep(_PAUSE_S)
            return
        try:
            if read_lock_holder(self._file) == owner:
                self._replace_holder_file()
                self._is_signed = True
        finally:
            guard.unlink(missing_ok=True)
