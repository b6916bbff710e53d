"""Forking and deleting sessions, and removing leftovers of crashes.

A fork copies the log up to a prompt together with the session's files (images, outputs, notes) and rewrites paths in
the log to the copies, so that the original can be deleted. Deleting first renames the folder to a hidden name, so a
crash leaves either the session or garbage, never half a session. Links are never followed.
"""

import contextlib
import re
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from odin.core.errors import OdinError, SessionNotFound, StateUnwritable, UsageError
from odin.core.event import Envelope, PromptChanged, PromptDropped, PromptInjected, PromptQueued, TurnStarted
from odin.core.timeline import LoggedTurn, follow_turns
from odin.session.index import read_ledger_line, record_deleted_usage
from odin.session.lock import LOCK_SUFFIX, describe_lock_holder, get_lock_path, read_lock_holder
from odin.session.log import LOG_FORMAT, LOG_NAME, LogHeader, SessionLog, is_session_id, make_write_error, read_log
from odin.session.store import SessionStore, is_log_started

_encode_envelope = msgspec.json.Encoder().encode
_envelope_decoder = msgspec.json.Decoder(Envelope)
_QUEUE_EVENTS = (PromptQueued, PromptChanged, PromptDropped)


class SessionFork(msgspec.Struct, frozen=True):
    """The new, locked log with its events. `left_out_prompt` is the prompt before which the copy ends."""

    log: SessionLog
    past: list[Envelope]
    left_out_prompt: str = ""


def fork_session(
    store: SessionStore, original: SessionLog, cwd: str, *, session: str = "", at: str = ""
) -> SessionFork:
    """Copy a session into `store`, up to prompt `at`: an id or a number counted from the last; "" copies it all."""
    past = list(read_log(original.path))
    draft, turn = "", ""
    if at:
        timeline = follow_turns()
        for item in past:
            if not item.agent:
                timeline.apply(item)
        prompt = find_prompt(timeline.turns, at, original.session)
        turn, draft = prompt.id, prompt.body
        past = [item for item in past if item.seq < prompt.first]
    # Remove prompts that are still queued: they belong to the original.
    kept: list[Envelope] = []
    used: set[str] = set()
    for item in reversed(past):
        event = item.event
        if isinstance(event, TurnStarted | PromptInjected):
            used.add(event.id)
        if isinstance(event, PromptDropped):
            used.discard(event.id)
        if not isinstance(event, _QUEUE_EVENTS) or event.id in used:
            kept.append(item)
        if isinstance(event, PromptQueued):
            used.discard(event.id)
    kept.reverse()
    past = kept
    last = past[-1].seq if past else -1
    origin = LogHeader(LOG_FORMAT, "", "", 0.0, forked_from=original.session, forked_turn=turn, forked_seq=last)
    log = store.create(cwd, session, copied=origin)
    try:
        _copy_files(original.path.parent, log.path.parent)
        past = [_move_paths(envelope, log.session, original.path.parent, log.path.parent) for envelope in past]
        if past:
            log.begin_with(past)
    except BaseException:
        log.close()
        raise
    return SessionFork(log, past, draft)


def find_prompt(turns: Sequence[LoggedTurn[None]], at: str, session: str) -> LoggedTurn[None]:
    named = [turn for turn in turns if turn.id == at]
    if named:
        return named[-1]
    turns = [turn for turn in turns if turn.source != "mail"]
    if at.isdecimal() and 1 <= int(at) <= len(turns):
        return turns[-int(at)]
    raise UsageError(
        f"There is no prompt {at!r} in session {session}.",
        f"`odin sessions show {session}` numbers them; 1 is the last one." if turns else "The session has no prompts.",
    )


def _move_paths(envelope: Envelope, session: str, old: Path, new: Path) -> Envelope:
    envelope = msgspec.structs.replace(envelope, session=session)
    with contextlib.suppress(UnicodeError, msgspec.MsgspecError):
        line = _encode_envelope(envelope)
        before, after = (_encode_envelope(str(folder))[1:-1] for folder in (old, new))
        if before in line:
            # Replace only whole paths and their parents: /s/1 is not part of /s/12.
            pieces = line.split(before)
            joined = pieces[0]
            for piece in pieces[1:]:
                ends = not piece[:1].isalnum() and piece[:1] not in (b"-", b"_", b".")
                joined += (after if ends else before) + piece
            return _envelope_decoder.decode(joined)
    return envelope


def _copy_files(old: Path, new: Path) -> None:
    """Copy everything but the log. Files that disappear meanwhile are skipped."""
    try:
        new.mkdir(parents=True, exist_ok=True, mode=0o700)
        for source in sorted(old.rglob("*")):
            if source.relative_to(old).parts[0] == LOG_NAME or not source.is_file() or source.is_symlink():
                continue
            target = new / source.relative_to(old)
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with contextlib.suppress(FileNotFoundError):
                import shutil

                shutil.copy2(source, target, follow_symlinks=False)
    except OSError as error:
        raise make_write_error("The session cannot be copied", Path(error.filename or new), error) from error


DELETED_PREFIX = ".deleted-"
_DAY = 86_400.0
_TEMPORARY_NAME = re.compile(r"\.(?:index|.+\.lock)-\d+-[0-9a-f]+")
"""Temporary names of the index and of lock files."""


def delete_session(store: SessionStore, session: str) -> None:
    """Delete a session of this project. Raise SessionLocked if it is open, SessionNotFound if it does not exist."""
    log = store.get_path(session)
    folder = log.parent
    if folder.parent != store.folder or not log.exists():
        raise SessionNotFound(f"There is no session {session} in this project.")
    if folder.is_symlink() or not folder.is_dir() or folder.resolve().parent != store.folder.resolve():
        raise UsageError(f"{folder} is a link, so it was not deleted.", "Remove the link yourself.")
    locked_log = SessionLog(log, LogHeader(LOG_FORMAT, session, "", 0.0))
    locked_log.hold()
    try:
        usage = read_ledger_line(log)
        is_recorded = record_deleted_usage(store.folder, usage)
        trash = folder.with_name(f"{DELETED_PREFIX}{session}")
        _remove_tree(trash)
        folder.rename(trash)
        _remove_tree(trash)
        if not is_recorded:  # the deletion may have freed the space for it
            record_deleted_usage(store.folder, usage)
    except OSError as error:
        raise StateUnwritable(f"Cannot delete session {session} ({error.strerror or error}).") from error
    finally:
        locked_log.close()
        if not log.exists():
            with contextlib.suppress(OSError):
                get_lock_path(log).unlink()


def sweep_leftovers(store: SessionStore) -> None:
    """Remove garbage left by crashes: half-deleted and half-copied sessions, temporary files, unused reservations."""
    with contextlib.suppress(OSError):
        for path in store.folder.glob(f"{DELETED_PREFIX}*"):
            with contextlib.suppress(OSError, OdinError):
                _remove_tree(path)
        cutoff = time.time() - _DAY
        for path in list(store.folder.iterdir()):
            with contextlib.suppress(OSError):
                if path.lstat().st_mtime < cutoff and _is_leftover(store, path):
                    _remove_tree(path)


def _is_leftover(store: SessionStore, path: Path) -> bool:
    if path.name.startswith("."):
        return path.is_file() and _TEMPORARY_NAME.fullmatch(path.name) is not None
    if path.suffix not in ("", LOCK_SUFFIX) or not is_session_id(path.stem) or path.is_symlink():
        return False
    log = store.folder / path.stem / LOG_NAME
    return not is_log_started(log) and (not describe_lock_holder(log) or not _has_holder(get_lock_path(log)))


def _has_holder(lock_file: Path) -> bool:
    try:
        return read_lock_holder(lock_file) is not None
    except ValueError:
        return False


def _remove_tree(folder: Path) -> None:
    if folder.is_symlink() or folder.is_file():
        folder.unlink()
    elif folder.is_dir():
        import shutil

        shutil.rmtree(folder)
