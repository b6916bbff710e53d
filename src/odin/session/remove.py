"""Deletes a session: its log and everything beside it. What sessions of the project share stays.

The folder first gets a name that no list shows, so that a crash leaves either the session or leftovers, never half of
it. Only a folder directly inside the project's is ever touched, and links are not followed.
"""

import contextlib
import re
import time
from pathlib import Path

from odin.core.errors import OdinError, SessionNotFound, StateUnwritable, UsageError
from odin.session.lock import LOCK_SUFFIX, lock_file_of, lock_holder_of, read_lock_holder
from odin.session.log import LOG_FORMAT, LogHeader, SessionLog
from odin.session.store import LOG_NAME, SessionStore, is_log_started, is_session_id
from odin.session.usage import keep_usage, usage_of

DELETED_PREFIX = ".deleted-"
_DAY = 86_400.0
_TEMPORARY_NAME = re.compile(r"\.(?:index|.+\.lock)-\d+-[0-9a-f]+")
"""What the list and the owner of a session are called while they are being written."""


def delete_session(store: SessionStore, session: str) -> None:
    """Raises SessionLocked when somebody has it open, SessionNotFound when it is not in this project."""
    log = store.path_of(session)
    folder = log.parent
    if folder.parent != store.folder or not log.exists():
        raise SessionNotFound(f"There is no session {session} in this project.")
    if folder.is_symlink() or not folder.is_dir() or folder.resolve().parent != store.folder.resolve():
        raise UsageError(f"{folder} leads elsewhere, so it is not deleted.", "Remove the link yourself.")
    ours = SessionLog(log, LogHeader(LOG_FORMAT, session, "", 0.0))
    ours.hold()
    try:
        spent = usage_of(log)
        kept = keep_usage(store.folder, spent)
        gone = folder.with_name(f"{DELETED_PREFIX}{session}")
        _remove_tree(gone)
        folder.rename(gone)
        _remove_tree(gone)
        if not kept:
            keep_usage(store.folder, spent)
    except OSError as error:
        raise StateUnwritable(f"Session {session} cannot be deleted ({error.strerror or error}).") from error
    finally:
        ours.close()
        if not log.exists():
            with contextlib.suppress(OSError):
                lock_file_of(log).unlink()


def sweep_leftovers(store: SessionStore) -> None:
    """Remove what crashes left: of sessions that were being deleted or copied, of files that were being written, and
    claims of ids that were never used.
    """
    with contextlib.suppress(OSError):
        for path in store.folder.glob(f"{DELETED_PREFIX}*"):
            with contextlib.suppress(OSError, OdinError):
                _remove_tree(path)
        before = time.time() - _DAY
        for path in list(store.folder.iterdir()):
            with contextlib.suppress(OSError):
                if path.lstat().st_mtime < before and _is_leftover(store, path):
                    _remove_tree(path)


def _is_leftover(store: SessionStore, path: Path) -> bool:
    """Whether a crash left it and nobody will come back for it."""
    if path.name.startswith("."):
        return path.is_file() and _TEMPORARY_NAME.fullmatch(path.name) is not None
    if path.suffix not in ("", LOCK_SUFFIX) or not is_session_id(path.stem) or path.is_symlink():
        return False
    log = store.folder / path.stem / LOG_NAME
    return not is_log_started(log) and (not lock_holder_of(log) or not _has_holder(lock_file_of(log)))


def _has_holder(owner: Path) -> bool:
    try:
        return read_lock_holder(owner) is not None
    except ValueError:
        return False


def _remove_tree(folder: Path) -> None:
    if folder.is_symlink() or folder.is_file():
        folder.unlink()
    elif folder.is_dir():
        import shutil

        shutil.rmtree(folder)
