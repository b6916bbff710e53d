"""Making a recording of a session: its log without anything of this machine, and the files it began with."""

import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from odin.app.replay.recording import (
    HOME_PATH,
    PROJECT_PATH,
    RECORDING_FILES,
    RECORDING_LOG,
    SESSION_PATH,
    Recording,
    find_recording,
    move_envelope,
    move_recording,
    truncate_recording,
)
from odin.app.replay.scratch import check_location, make_scratch
from odin.config import get_home_dir
from odin.core.errors import UsageError
from odin.policy.confidential import is_secret_path
from odin.policy.secrets import Redactor
from odin.session.log import LogHeader

_MAX_NAMED = 10


def save_recording(session: str, folder: str, cwd: str = "", prompts: int = 0) -> str:
    """Write the recording into a folder that must not hold anything yet, and say what to know about it."""
    recording = find_recording(session, cwd)
    if prompts:
        recording = truncate_recording(recording, prompts)
    check_location(recording)
    target = Path(folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} exists already.", "Name a folder that does not.")
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    git = f"{recording.root}/.git"
    state = os.path.realpath(recording.store.parent.parent) if recording.store is not None else ""
    notes = make_scratch(recording, target.resolve() / RECORDING_FILES, outside=(state, git))
    if os.path.lexists(git):
        notes.append("The repository (.git) is not part of the recording.")
    places = {recording.root: PROJECT_PATH, recording.folder: SESSION_PATH, str(get_home_dir(os.environ)): HOME_PATH}
    written = move_recording(recording, places)
    found: set[str] = set()
    clean = tuple(move_envelope(item, _make_cleaner(found)) for item in written.envelopes)
    (target / RECORDING_LOG).write_bytes(_encode_log(msgspec.structs.replace(written, envelopes=clean)))
    notes += _describe_secrets(found, target / RECORDING_FILES)
    lines = [f"note: {note}" for note in notes]
    return "\n".join([*lines, f"Recorded in {target}: {recording.prompt_count} prompts."]) + "\n"


def _make_cleaner(found: set[str]) -> Callable[[str], str]:
    """Results were recorded without them, prompts and arguments as they were given. `found` gets what was there."""
    redact = Redactor(os.environ)

    def clean(text: str) -> str:
        said = redact(text)
        found.update(said.secrets)
        return said.text

    return clean


def _describe_secrets(found: set[str], files: Path) -> list[str]:
    """A recording is made to be given away, so whoever does that is told what may be in it."""
    notes: list[str] = []
    if found:
        notes.append(f"Taken out of the log, so that calls with it differ: {', '.join(sorted(found))}.")
    names = sorted(str(path.relative_to(files)) for path in files.rglob("*") if is_secret_path(str(path)))
    if names:
        more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
        notes.append(f"Look at these files before you give the recording away: {', '.join(names[:_MAX_NAMED])}{more}.")
    return notes


def _encode_log(recording: Recording) -> bytes:
    header = LogHeader(recording.header.odin_log, recording.header.session, recording.cwd, recording.header.created)
    lines = [msgspec.json.encode(header), *(msgspec.json.encode(item) for item in recording.envelopes)]
    return b"\n".join(lines) + b"\n"
