"""Opens the workspace of a session and its log: a new one, a resumed one, or a fork."""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from odin.config import Config, Options, get_state_dir, load, make_private_folder, resolve_folder
from odin.core.errors import SessionLocked, UsageError
from odin.core.event import Envelope
from odin.session.log import SessionLog, read_log
from odin.session.store import SessionStore


class Workspace(msgspec.Struct, frozen=True):
    """The folder a session works in, its configuration, and the session store of the project."""

    env: Mapping[str, str]
    cwd: str
    config: Config
    store: SessionStore


def workspace_of(options: Options) -> Workspace:
    env = options.env if options.env is not None else os.environ
    cwd = resolve_folder(options.cwd)
    config = load(cwd, env, options.to_flags(), trust=options.trust)
    state = make_private_folder(Path(options.state_dir) if options.state_dir else get_state_dir(env))
    return Workspace(env, cwd, config, SessionStore(state, config.root))


class OpenedLog(msgspec.Struct, frozen=True):
    """A locked log and its events.

    `draft` is the prompt that a fork left out; `source` is how the session started, for hooks.
    """

    log: SessionLog
    past: list[Envelope]
    draft: str = ""
    source: str = "startup"


def open_log(store: SessionStore, options: Options, cwd: str) -> OpenedLog:
    if options.resume and options.continue_last:
        raise UsageError("--resume and --continue cannot be combined.")
    if options.fork_at and not (options.fork and (options.resume or options.continue_last)):
        raise UsageError("--at requires --fork-session and --resume or --continue.")
    if options.fork and not (options.resume or options.continue_last):
        raise UsageError("--fork-session requires --resume or --continue.")
    if not options.resume and not options.continue_last:
        return OpenedLog(store.create(cwd, options.session_id), [])
    if options.fork:
        from odin.session.lifecycle import fork_session

        original = store.open(store.find(options.resume) if options.resume else store.find_latest())
        made = fork_session(store, original, cwd, session=options.session_id, at=options.fork_at)
        return OpenedLog(made.log, made.past, made.left_out_prompt, "resume" if made.past else "startup")
    if options.session_id:
        raise UsageError("--session-id cannot be combined with --resume or --continue.", "Add --fork-session.")
    log = _open_and_lock(store, options.resume) if options.resume else _lock_latest(store)
    try:
        past = list(read_log(log.path))
    except BaseException:
        log.close()
        raise
    return OpenedLog(log, past, source="resume" if past else "startup")


def _open_and_lock(store: SessionStore, name: str) -> SessionLog:
    log = store.open(store.find(name))
    log.hold()
    return log


def _lock_latest(store: SessionStore) -> SessionLog:
    """Open the latest session that is not locked. Only locking it tells for certain, so try one after the other."""
    locked: set[str] = set()
    while True:
        session = store.find_latest(unlocked=True, exclude=locked)
        try:
            return _open_and_lock(store, session)
        except SessionLocked:
            locked.add(session)
