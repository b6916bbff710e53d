"""Deletes a session: its log and everything beside it. What sessions of the project share stays.

The folder first gets a name that no list shows, so that a crash leaves either the session or leftovers, never half of
it. Only a folder directly inside the project's is ever touched, and links are not followed.
"""

import contextlib
import time
from pathlib import Path

from odin.core.errors import OdinError, SessionNotFound, StateUnwritable, UsageError
from odin.session.lock import SUFFIX, owner_file, owner_of
from odin.session.log import FORMAT, Header, SessionLog
from odin.session.store import LOG_NAME, Store
from odin.session.usage import keep_usage, usage_of

LEFTOVER = ".deleted-"
_DAY = 86_400.0


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
    """Remove what crashes left: of sessions that were being deleted, and claims of ids that were never used."""
    with contextlib.suppress(OSError):
        for path in store.folder.glob(f"{LEFTOVER}*"):
            with contextlib.suppress(OSError, OdinError):
                _remove(path)
        for path in store.folder.glob(f"*{SUFFIX}"):
            log = store.folder / path.stem / LOG_NAME
            with contextlib.suppress(OSError):
                old = path.stat().st_mtime < time.time() - _DAY
                if old and not log.parent.exists() and not owner_of(log):
                    path.unlink()


def _remove(folder: Path) -> None:
    if folder.is_symlink():
        folder.unlink()
    elif folder.is_dir():
        import shutil

        shutil.rmtree(folder)
