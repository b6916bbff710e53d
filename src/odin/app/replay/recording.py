"""A recorded session: its log, where it took place, and the files it began with.

It is either a session of this machine or a recording: a folder with `session.jsonl`, and the files in `files`. A
recording knows nothing of the machine it was made on: its project is `/project` and its session folder is `/session`.
"""

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import msgspec

from odin.config import Options
from odin.core.errors import LogDamaged, UsageError
from odin.core.event import (
    Envelope,
    PromptChanged,
    PromptDropped,
    PromptQueued,
    SessionOpened,
    TurnStarted,
)
from odin.session.files.filestate import encode_path
from odin.session.log import LogHeader, read_header, read_log

RECORDING_LOG, RECORDING_FILES = "session.jsonl", "files"
PROJECT_PATH, SESSION_PATH, HOME_PATH = "/project", "/session", "/home/user"
_ROOT_PATTERN = re.compile(r"(?m)^Project root: (.+)$")


class Recording(msgspec.Struct, frozen=True):
    """`folder` is where the session kept its own things; `files` the start of the project, when it is kept apart."""

    header: LogHeader
    envelopes: tuple[Envelope, ...]
    root: str
    cwd: str
    folder: str
    files: Path | None = None
    store: Path | None = None

    @property
    def opened_event(self) -> SessionOpened:
        return next(item.event for item in self.envelopes if isinstance(item.event, SessionOpened))

    @property
    def prompt_count(self) -> int:
        return sum(isinstance(item.event, TurnStarted) and not item.agent for item in self.envelopes)


def find_recording(where: str, cwd: str = "") -> Recording:
    """By the path of a recording or a log, or by the id of a session of this project."""
    path = Path(where)
    if path.is_dir() and (path / RECORDING_LOG).is_file():
        return _read_recording(path / RECORDING_LOG, folder=SESSION_PATH, files=path / RECORDING_FILES)
    if path.is_file():
        return _read_own_session(path)
    from odin.app.opening import workspace_of

    place = workspace_of(Options(cwd=cwd))
    return _read_own_session(place.store.open(place.store.find(where)).path)


def _read_own_session(path: Path) -> Recording:
    """A session of this machine. What its files were is in the checkpoints of its project."""
    path = path.resolve()
    sessions = path.parent.parent
    store = sessions.parent.parent / "checkpoints" / sessions.name
    return _read_recording(path, folder=str(path.parent), store=store)


def _read_recording(path: Path, *, folder: str, files: Path | None = None, store: Path | None = None) -> Recording:
    header = read_header(path)
    envelopes = tuple(read_log(path))
    opened = next((item.event for item in envelopes if isinstance(item.event, SessionOpened)), None)
    if opened is None:
        raise LogDamaged(f"{path} does not say where the session took place.", "It cannot be played.")
    return Recording(header, envelopes, _root_of(envelopes, opened.cwd), opened.cwd, folder, files, store)


def _root_of(envelopes: Iterable[Envelope], cwd: str) -> str:
    """The model was told the root when it was not the folder it worked in."""
    for item in envelopes:
        if isinstance(item.event, TurnStarted) and not item.agent:
            found = next((match for note in item.event.notes if (match := _ROOT_PATTERN.search(note))), None)
            return found[1] if found is not None else cwd
    return cwd


def truncate_recording(recording: Recording, prompts: int) -> Recording:
    """Only the first so many prompts."""
    kept: list[Envelope] = []
    begun = 0
    for item in recording.envelopes:
        if isinstance(item.event, TurnStarted) and not item.agent:
            begun += 1
            if begun > prompts:
                break
        kept.append(item)
    taken = {item.event.id for item in kept if isinstance(item.event, TurnStarted | PromptDropped)}
    waits = (PromptQueued, PromptChanged)
    left = (item for item in kept if not isinstance(item.event, waits) or item.event.id in taken)
    return msgspec.structs.replace(recording, envelopes=tuple(left))


def move_recording(recording: Recording, paths: dict[str, str]) -> Recording:
    """The same session as if it had taken place elsewhere: every path that begins with one of the places is another."""
    move = make_path_mover(paths)
    return msgspec.structs.replace(
        recording,
        envelopes=tuple(move_envelope(item, move) for item in recording.envelopes),
        root=move(recording.root),
        cwd=move(recording.cwd),
        folder=move(recording.folder),
    )


def move_envelope(envelope: Envelope, move: Callable[[str], str]) -> Envelope:
    return msgspec.convert(_map_strings(msgspec.to_builtins(envelope), move), Envelope)


def _map_strings(value: Any, move: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return move(value)
    if isinstance(value, list | tuple):
        return [_map_strings(item, move) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {move(str(key)): _map_strings(item, move) for key, item in cast("dict[Any, Any]", value).items()}
    return value


def make_path_mover(paths: dict[str, str]) -> Callable[[str], str]:
    """Replaces whole paths only: `/a/shop` is not found in `/a/shop-2`."""
    known = {name: target for name, target in paths.items() if name and name != "/"}
    known |= {encode_path(name): encode_path(target) for name, target in known.items()}
    if not known:
        raise UsageError("A session in the root of the file system cannot be played.")
    names = "|".join(re.escape(name) for name in sorted(known, key=len, reverse=True))
    pattern = re.compile(rf"(?<![\w.-])(?:{names})(?![\w-]|\.\w)")
    shortest = min(known, key=len)

    def move(text: str) -> str:
        return (
            pattern.sub(lambda found: known[found[0]], text) if os.sep in text and len(text) >= len(shortest) else text
        )

    return move
