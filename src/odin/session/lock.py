"""The session lock: only one process writes a session, and a second one learns which process holds it.

The operating system's lock on the log is what counts. In addition, `<session>.lock` in the project's folder names the
lock holder, so that a session list can show it without trying the lock. Without `fcntl` (Windows), that file is the
lock, and it is valid while the named process runs.
"""

import contextlib
import os
import stat
import time
from pathlib import Path

import msgspec

from odin.core.errors import OdinError, SessionLockCorrupt, SessionLocked, SessionNotFound

LOCK_SUFFIX = ".lock"
_LOCK_TIMEOUT_S = 1.0
_PAUSE_S = 0.025
"""How long, and how often, to retry while the lock holder is dead or not named: it is just exiting or starting."""

_TAKEOVER_S = 10.0


class LockHolder(msgspec.Struct, frozen=True):
    """The process that writes a session. `birth` distinguishes it from a later process with the same PID, and `session`
    from the other sessions of the process; earlier versions wrote none.
    """

    pid: int
    host: str
    since: float
    birth: str = ""
    session: str = ""

    def __str__(self) -> str:
        return f"PID {self.pid} on {self.host} since {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(self.since))}"

    @property
    def is_alive(self) -> bool:
        """True if the process runs. A process on another machine counts as alive, because it cannot be checked."""
        if self.host != get_host_name():
            return True
        state, birth = _read_process_stat(self.pid)
        if state in ("Z", "X"):
            return False
        return _is_running(self.pid) and (not self.birth or birth in ("", self.birth))


def get_host_name() -> str:
    return os.uname().nodename if hasattr(os, "uname") else "this computer"


def read_start_time(pid: int) -> str:
    """The start time of a process in the kernel's units; "" if unknown."""
    return _read_process_stat(pid)[1]


def _read_process_stat(pid: int) -> tuple[str, str]:
    """State and start time from /proc, or empty strings. A process that ended but was not reaped has state Z."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return fields[0], fields[19]
    except (OSError, IndexError):
        return "", ""


def _is_running(pid: int) -> bool:
    if pid <= 0:
        return False
    if os.name == "nt":
        # On Windows `os.kill` would end the process, whatever the signal.
        import ctypes

        kernel = getattr(ctypes, "windll").kernel32  # noqa: B009
        handle = kernel.OpenProcess(0x1000, False, pid)
        if not handle:
            return False
        code = ctypes.c_ulong()
        known = kernel.GetExitCodeProcess(handle, ctypes.byref(code))
        kernel.CloseHandle(handle)
        return not known or code.value == 259
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def get_lock_path(log: Path) -> Path:
    folder = log.parent
    return folder.with_name(f"{folder.name}{LOCK_SUFFIX}")


def read_lock_holder(path: Path) -> LockHolder | None:
    """The lock holder named in the file; None if the file does not exist. Raise ValueError if it is unreadable."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise ValueError(f"{path} is not a file")
        return msgspec.json.decode(path.read_bytes(), type=LockHolder)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ValueError(str(error)) from error
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from error


def describe_lock_holder(log: Path) -> str:
    """Describe the process that has the session open; "" if none does. Does not touch the lock."""
    try:
        holder = read_lock_holder(get_lock_path(log))
    except ValueError:
        return "unknown process"
    return str(holder) if holder is not None and holder.is_alive else ""


class SessionLock:
    """The exclusive right to write one log. It ends with the process, even after a crash."""

    def __init__(self, log: Path, session: str) -> None:
        self._log = log
        self._session = session
        self._file = get_lock_path(log)
        birth = read_start_time(os.getpid())
        self._holder = LockHolder(os.getpid(), get_host_name(), time.time(), birth, session)
        self._is_signed = False

    def acquire(self, fd: int) -> None:
        """Raise SessionLocked if another process holds the lock, SessionNotFound if the log was just deleted."""
        try:
            import fcntl
        except ImportError:
            while not self._is_signed:
                try:
                    self._create(self._file)
                    self._is_signed = True
                except FileExistsError:
                    self._take_over()
            return
        deadline = time.monotonic() + _LOCK_TIMEOUT_S
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                holder = self._read_holder()
                if (holder is not None and holder.is_alive) or time.monotonic() > deadline:
                    raise self._make_refusal(holder) from None
                time.sleep(_PAUSE_S)
        if not os.fstat(fd).st_nlink:
            raise SessionNotFound(f"Session {self._session} was deleted by another process.")

    def reserve(self) -> bool:
        """Reserve the id of a session that has no log yet; False if another process already did.

        True also if the lock file cannot be written: writing the first event then reports the error.
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
        """Write the lock file. Errors are ignored: the lock itself holds even on a full disk."""
        if not self._is_signed:
            with contextlib.suppress(OSError):
                self._replace_holder_file()
                self._is_signed = True

    def release(self) -> None:
        """Remove the lock file. Must be called before the log is closed, which frees the lock."""
        if self._is_signed:
            self._is_signed = False
            with contextlib.suppress(OSError):
                self._file.unlink()

    def _read_holder(self) -> LockHolder | None:
        """The lock holder named in the lock file, None if there is no file. Raise SessionLockCorrupt if unreadable."""
        try:
            return read_lock_holder(self._file)
        except ValueError:
            raise self._make_refusal(None) from None

    def _make_refusal(self, holder: LockHolder | None) -> OdinError:
        """The error for a lock held by this process. It reads no file: the holder may be gone by now."""
        if holder is None:
            return SessionLockCorrupt(
                f"Session {self._session} is open in an unknown process: {self._file} is missing or unreadable.",
                "Close it there, or start a new session.",
            )
        own = self._holder
        is_own = (holder.pid, holder.host, holder.birth) == (own.pid, own.host, own.birth)
        here = "in this process" if is_own else "in another process"
        return SessionLocked(
            f"Session {self._session} is already open {here} ({holder}).",
            "" if is_own else f"Attach to it with `odin attach {self._session}`, or close it there.",
        )

    def _replace_holder_file(self) -> None:
        temporary = self._write_temporary()
        try:
            temporary.replace(self._file)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise

    def _write_temporary(self) -> Path:
        """Write the lock file under a temporary name."""
        temporary = self._file.with_name(f".{self._file.name}-{os.getpid()}-{time.monotonic_ns():x}")
        try:
            temporary.write_bytes(msgspec.json.encode(self._holder))
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        return temporary

    def _create(self, path: Path) -> None:
        """Create the file with its content in one step, so that a crash never leaves a lock file without a holder."""
        temporary = self._write_temporary()
        try:
            path.hardlink_to(temporary)
        except FileExistsError:
            raise
        except OSError:
            # For file systems without hard links.
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(msgspec.json.encode(self._holder))
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()

    def _take_over(self) -> None:
        """Take the lock of a dead process. A guard file lets only one process at a time do so."""
        holder = self._read_holder()
        if holder is None:
            return
        if holder.is_alive:
            raise self._make_refusal(holder)
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
            if read_lock_holder(self._file) == holder:
                self._replace_holder_file()
                self._is_signed = True
        finally:
            guard.unlink(missing_ok=True)
