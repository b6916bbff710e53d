"""Where a session works and which log it writes: a new one, an earlier one, or a copy of an earlier one."""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from odin.config import Config, Options, get_current_folder, get_state_dir, load, make_private_folder
from odin.core.errors import SessionLocked, UsageError
from odin.core.event import Envelope
from odin.session.log import SessionLog, read_log
from odin.session.store import SessionStore


class Workspace(msgspec.Struct, frozen=True):
    """The folder a session works in, what holds there, and where the project's sessions are kept."""

    env: Mapping[str, str]
    cwd: str
    config: Config
    store: SessionStore


def workspace_of(options: Options) -> Workspace:
    env = options.env if options.env is not None else os.environ
    cwd = os.path.realpath(options.cwd or get_current_folder())
    if not Path(cwd).is_dir():
        raise UsageError(f"There is no folder {cwd}.", "Name an existing one with --cwd.")
    config = load(cwd, env, options.to_flags(), trust=options.trust)
    state = make_private_folder(Path(options.state_dir) if options.state_dir else get_state_dir(env))
    return Workspace(env, cwd, config, SessionStore(state, config.root))


class OpenedLog(msgspec.Struct, frozen=True):
    """A log that is ours to write, and what is in it.

    `draft` is the prompt that a fork left out; `source` is how the session began, as hooks are told.
    """

    log: SessionLog
    past: list[Envelope]
    draft: str = ""
    source: str = "startup"


def open_log(store: SessionStore, options: Options, cwd: str) -> OpenedLog:
    if options.resume and options.continue_last:
        raise UsageError("Both --resume and --continue were given.", "Use one of them.")
    if options.fork_at and not (options.fork and (options.resume or options.continue_last)):
        raise UsageError("--at names the prompt a copy ends before.", "Add --resume ID and --fork-session.")
    if options.fork and not (options.resume or options.continue_last):
        raise UsageError("--fork-session goes on in a copy of a session.", "Add --resume ID or -c.")
    if not options.resume and not options.continue_last:
        return OpenedLog(store.create(cwd, options.session_id), [])
    if options.fork:
        from odin.session.lifecycle import fork_session

        original = store.open(store.find(options.resume) if options.resume else store.find_latest())
        made = fork_session(store, original, cwd, session=options.session_id, at=options.fork_at)
        return OpenedLog(made.log, made.past, made.left_out_prompt, "resume" if made.past else "startup")
    if options.session_id:
        raise UsageError("--session-id names a new session.", "Leave it out, or add --fork-session.")
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
    """The latest that nobody else has. Whether somebody has it is known for certain only when it was tried."""
    taken: set[str] = set()
    while True:
        session = store.find_latest(unlocked=True, exclude=taken)
        try:
            return _open_and_lock(store, session)
        except SessionLocked:
            taken.add(session)
