"""Making a recording of a session: its log without anything of this machine, and the files it began with."""

import os
from pathlib import Path

import msgspec

from odin.app.replay.recording import (
    FILES,
    HOME,
    LOG,
    PROJECT,
    SESSION,
    Recording,
    find_recording,
    moved,
    until,
)
from odin.app.replay.scratch import make_scratch
from odin.config import home_dir
from odin.core.errors import UsageError
from odin.session.log import Header


def save_recording(session: str, folder: str, cwd: str = "", prompts: int = 0) -> str:
    """Write the recording into a folder that must not hold anything yet, and say what to know about it."""
    recording = find_recording(session, cwd)
    if prompts:
        recording = until(recording, prompts)
    target = Path(folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} exists already.", "Name a folder that does not.")
    target.mkdir(parents=True, exist_ok=True)
    git = f"{recording.root}/.git"
    state = os.path.realpath(recording.store.parent.parent) if recording.store is not None else ""
    notes = make_scratch(recording, target.resolve() / FILES, outside=(state, git))
    if os.path.lexists(git):
        notes.append("The repository (.git) is not part of the recording.")
    places = {recording.root: PROJECT, recording.folder: SESSION, str(home_dir(os.environ)): HOME}
    (target / LOG).write_bytes(_log(moved(recording, places)))
    lines = [f"note: {note}" for note in notes]
    return "\n".join([*lines, f"Recorded in {target}: {recording.prompts} prompts."]) + "\n"


def _log(recording: Recording) -> bytes:
    header = Header(recording.header.odin_log, recording.header.session, recording.cwd, recording.header.created)
    lines = [msgspec.json.encode(header), *(msgspec.json.encode(item) for item in recording.envelopes)]
    return b"\n".join(lines) + b"\n"
