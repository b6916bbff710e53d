"""A copy of a session up to before a prompt. The original is only read.

The copy has files of its own: pictures, outputs, notes. What the log says about them is changed to where they are
now, so that the original can be deleted without harm to the copy.

Deletes a session: its log and everything beside it. What sessions of the project share stays.

The folder first gets a name that no list shows, so that a crash leaves either the session or leftovers, never half of
it. Only a folder directly inside the project's is ever touched, and links are not followed.
"""

import contextlib
import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from odin.core.client import TurnRecord
from odin.core.errors import OdinError, SessionNotFound, StateUnwritable, UsageError
from odin.core.event import Envelope, PromptChanged, PromptDropped, PromptInjected, PromptQueued, TurnStarted
from odin.session.lock import LOCK_SUFFIX, lock_file_of, lock_holder_of, read_lock_holder
from odin.session.log import LOG_FORMAT, LogHeader, SessionLog, is_session_id, read_log
from odin.session.state import SessionState
from odin.session.store import LOG_NAME, SessionStore, is_log_started
from odin.session.usage import keep_usage, usage_of

_encode_envelope = msgspec.json.Encoder().encode
_envelope_decoder = msgspec.json.Decoder(Envelope)
_QUEUE_EVENTS = (PromptQueued, PromptChanged, PromptDropped)


class SessionFork(msgspec.Struct, frozen=True):
    """The new log, held by us; what it begins with; and the prompt that was left out, to be edited and sent again."""

    log: SessionLog
    past: list[Envelope]
    left_out_prompt: str = ""


def fork_session(
    store: SessionStore, original: SessionLog, cwd: str, *, session: str = "", at: str = ""
) -> SessionFork:
    """A copy in `store`. `at` is the id of a prompt or its number counted from the last one; "" copies everything."""
    past = list(read_log(original.path))
    draft, turn = "", ""
    if at:
        found = find_prompt(SessionState.fold(past).turns, at, original.session)
        turn, draft = found.id, found.body
        past = cut_before_turn(past, turn)
    past = _drop_queued_prompts(past)
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


def find_prompt(turns: Sequence[TurnRecord], at: str, session: str) -> TurnRecord:
    named = [turn for turn in turns if turn.id == at]
    if named:
        return named[-1]
    if at.isdecimal() and 1 <= int(at) <= len(turns):
        return turns[-int(at)]
    raise UsageError(
        f"There is no prompt {at!r} in session {session}.",
        f"`odin sessions show {session}` numbers them; 1 is the last one." if turns else "Nothing was asked in it.",
    )


def cut_before_turn(past: Sequence[Envelope], turn: str) -> list[Envelope]:
    """Everything that happened before that prompt was last begun."""
    for index in range(len(past) - 1, -1, -1):
        event = past[index].event
        if isinstance(event, TurnStarted) and event.id == turn and not past[index].agent:
            return list(past[:index])
    return list(past)


def _drop_queued_prompts(past: Sequence[Envelope]) -> list[Envelope]:
    """Prompts that had been queued by then and not begun belong to the original: here nobody waits for them."""
    kept: list[Envelope] = []
    taken: set[str] = set()
    for item in reversed(past):
        event = item.event
        if isinstance(event, TurnStarted | PromptInjected):
            taken.add(event.id)
        if isinstance(event, PromptDropped):
            taken.discard(event.id)
        if not isinstance(event, _QUEUE_EVENTS) or event.id in taken:
            kept.append(item)
        if isinstance(event, PromptQueued):
            taken.discard(event.id)
    kept.reverse()
    return kept


def _move_paths(envelope: Envelope, session: str, old: Path, new: Path) -> Envelope:
    envelope = msgspec.structs.replace(envelope, session=session)
    with contextlib.suppress(UnicodeError, msgspec.MsgspecError):
        line = _encode_envelope(envelope)
        before, after = (_encode_envelope(str(folder))[1:-1] for folder in (old, new))
        if before in line:
            return _envelope_decoder.decode(_replace_path(line, before, after))
    return envelope


def _replace_path(line: bytes, old: bytes, new: bytes) -> bytes:
    """Only where the path ends there or goes on below it: /s/1 is no part of /s/12."""
    pieces = line.split(old)
    joined = pieces[0]
    for piece in pieces[1:]:
        ends = not piece[:1].isalnum() and piece[:1] not in (b"-", b"_", b".")
        joined += (new if ends else old) + piece
    return joined


def _copy_files(old: Path, new: Path) -> None:
    """Everything beside the log. A file that vanishes meanwhile is left out."""
    try:
        new.mkdir(parents=True, exist_ok=True, mode=0o700)
        for source in _list_files(old):
            target = new / source.relative_to(old)
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with contextlib.suppress(FileNotFoundError):
                import shutil

                shutil.copy2(source, target, follow_symlinks=False)
    except OSError as error:
        raise StateUnwritable(
            f"The session cannot be copied ({error.filename or new}: {error.strerror or error}).",
            "Free some space or set ODIN_STATE_DIR to a folder you can write.",
        ) from error


def _list_files(folder: Path) -> Iterable[Path]:
    """Not the log, which is copied in part, and not what was exported."""
    left_out = {LOG_NAME, "exports"}
    found = sorted(folder.rglob("*"))
    return [
        path
        for path in found
        if path.relative_to(folder).parts[0] not in left_out and path.is_file() and not path.is_symlink()
    ]


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
