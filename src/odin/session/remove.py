"""Deletes a session: its log and everything beside it. What sessions of the project share stays.

The folder first gets a name that no list shows, so that a crash leaves either the session or leftovers, never half of
it. Only a folder directly inside the project's is ever touched, and links are not followed.
"""

import contextlib
import re
import time
from pathlib import Path

from odin.core.errors import OdinError, SessionNotFound, StateUnwritable, UsageError
from odin.session.lock import SUFFIX, owner_file, owner_of, read_owner
from odin.session.log import FORMAT, Header, SessionLog
from odin.session.store import LOG_NAME, Store, begun, is_id
from odin.session.usage import keep_usage, usage_of

LEFTOVER = ".deleted-"
_DAY = 86_400.0
_TEMPORARY = re.compile(r"\.(?:index|.+\.lock)-\d+-[0-9a-f]+")
"""What the list and the owner of a session are called while they are being written."""


def delete(store: Store, session: str) -> None:
    """Raises SessionLocked when somebody has it open, SessionNotFound when it is not in this project."""
    log = store.path_of(session)
    folder = log.parent
    if folder.parent != store.folder or not log.exists():
        raise SessionNotFound(f"There is no session {session} in this project.")
    if folder.is_symlink() or not folder.is_dir() or folder.resolve().parent != store.folder.resolve():
        raise UsageError(f"{folder} leads elsewhere, so it is not deleted.", "Remove the link yourself.")
    ours = SessionLog(log, Header(FORMAT, session, "", 0.0))
    ours.hold()
    try:
        spent = usage_of(log)
        kept = keep_usage(store.folder, spent)
        gone = folder.with_name(f"{LEFTOVER}{session}")
        _remove(gone)
        folder.rename(gone)
        _remove(gone)
        if not kept:
            keep_usage(store.folder, spent)
    except OSError as error:
        raise StateUnwritable(f"Session {session} cannot be deleted ({error.strerror or error}).") from error
    finally:
        ours.close()
        if not log.exists():
            with contextlib.suppress(OSError):
                owner_file(log).unlink()


def sweep(store: Store) -> None:
    """Remove what crashes left: of sessions that were being deleted or copied, of files that were being written, and
    claims of ids that were never used.
    """
    with contextlib.suppress(OSError):
        for path in store.folder.glob(f"{LEFTOVER}*"):
            with contextlib.suppress(OSError, OdinError):
                _remove(path)
        before = time.time() - _DAY
        for path in list(store.folder.iterdir()):
            with contextlib.suppress(OSError):
                if path.lstat().st_mtime < before and _is_left(store, path):
                    _remove(path)


def _is_left(store: Store, path: Path) -> bool:
    """Whether a crash left it and nobody will come back for it."""
    if path.name.startswith("."):
        return path.is_file() and _TEMPORARY.fullmatch(path.name) is not None
    if path.suffix not in ("", SUFFIX) or not is_id(path.stem) or path.is_symlink():
        return False
    log = store.folder / path.stem / LOG_NAME
    return not begun(log) and (not owner_of(log) or not _is_named(owner_file(log)))


def _is_named(owner: Path) -> bool:
    try:
        return read_owner(owner) is not None
    except ValueError:
        return False


def _remove(folder: Path) -> None:
    if folder.is_symlink() or folder.is_file():
        folder.unlink()
    elif folder.is_dir():
        import shutil

        shutil.rmtree(folder)
