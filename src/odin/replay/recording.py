"""Recordings: finding and reading one, making a scratch copy of the project as it was, and saving a new one.

A recording is a session of this machine, or a folder with `session.jsonl` and the project's initial files in `files`.
The latter contains nothing of the machine it was made on: its project is `/project`, its session folder `/session`.
The scratch copy starts from today's files; every file with an earlier state in the checkpoints is restored in the copy,
and the rest is reported.
"""

import os
import re
from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from odin.app.workspace import make_workspace
from odin.checkpoints.file_state import RestoreFailed, decode_path, encode_path, remove_path, restore_path
from odin.checkpoints.project_listing import ProjectListing, read_regular_file
from odin.checkpoints.store import CheckpointLost, CheckpointStore, compute_sha256
from odin.config import Options
from odin.config.paths import make_environment
from odin.core.call_events import ToolEnded, ToolStarted
from odin.core.errors import LogDamaged, UsageError
from odin.core.event import (
    CheckpointSaved,
    Envelope,
    FilesChanged,
    PromptChanged,
    PromptDropped,
    PromptQueued,
    Redone,
    Rewound,
    RootAdded,
    SessionOpened,
    TurnStarted,
)
from odin.core.event_values import FileState
from odin.core.format import pluralize
from odin.core.path_names import is_secret_path
from odin.core.text import join_some
from odin.core.timeline import get_source
from odin.policy.secrets import Redactor
from odin.session.log import LogHeader, read_header, read_log

RECORDING_LOG, RECORDING_FILES, RECORDING_FOLDERS = "session.jsonl", "files", "folders"
PROJECT_PATH, SESSION_PATH, HOME_PATH, FOLDERS_PATH = "/project", "/session", "/home/user", "/folders"
_MAX_NAMED = 10
_MAX_FILE_BYTES = 200_000_000
_PLAN_TOOL = "Handoff"
"""It writes plans without a checkpoint: a rewind keeps them."""

_StructT = TypeVar("_StructT", bound=msgspec.Struct)


class Recording(msgspec.Struct, frozen=True):
    """`folder` is the session's folder.

    A saved recording has the initial project `files`, and beside them those of the other roots by their numbers; a
    session of this machine has the checkpoint `store`.
    """

    header: LogHeader
    envelopes: tuple[Envelope, ...]
    opened_event: SessionOpened
    root: str
    cwd: str
    folder: str
    files: Path | None = None
    store: Path = Path()

    def list_others(self) -> "list[Recording]":
        """Return the same recording for each of the other roots that the session worked in, in their place."""
        opened = (item.event for item in self.envelopes if isinstance(item.event, SessionOpened))
        added = (item.event.root for item in self.envelopes if isinstance(item.event, RootAdded))
        paths = dict.fromkeys(root.path for root in (*(root for event in opened for root in event.roots), *added))
        top = None if self.files is None else self.files.parent / RECORDING_FOLDERS
        return [
            msgspec.structs.replace(self, root=path, cwd=path, files=None if top is None else top / str(number))
            for number, path in enumerate(paths)
        ]


def find_recording(where: str, cwd: str = "", prompts: int = 0) -> Recording:
    """Find a recording by its folder, by a log file, or by the id of a session of this project.

    With `prompts`, return only that many.
    """
    path = Path(where)
    if path.is_dir() and (path / RECORDING_LOG).is_file():
        return _read_recording(path / RECORDING_LOG, prompts, folder=SESSION_PATH, files=path / RECORDING_FILES)
    if not path.is_file():
        sessions = make_workspace(Options(cwd=cwd)).store
        path = sessions.open(sessions.find(where)).path
    folder = path.resolve().parent
    store = folder.parent.parent.parent / "checkpoints" / folder.parent.name
    return _read_recording(path, prompts, folder=str(folder), store=store)


def list_prompts(envelopes: Iterable[Envelope]) -> list[tuple[int, TurnStarted]]:
    """Return the prompts of the main agent, with the numbers of their events. Mail is not one."""
    return [
        (item.seq, item.event)
        for item in envelopes
        if isinstance(item.event, TurnStarted) and not item.agent and get_source(item.event) != "mail"
    ]


def _read_recording(path: Path, prompts: int, **places: Any) -> Recording:
    envelopes = tuple(read_log(path))
    opened = next((item.event for item in envelopes if isinstance(item.event, SessionOpened)), None)
    if opened is None:
        raise LogDamaged(f"{path} does not name the folder of the session.", "It cannot be replayed.")
    turns = list_prompts(envelopes)
    # The notes of the first prompt name the project root if it is not the working directory.
    notes = "\n".join(turns[0][1].notes) if turns else ""
    match = re.search(r"(?m)^Project root: (.+)$", notes)
    if prompts and len(turns) > prompts:
        envelopes = tuple(item for item in envelopes if item.seq < turns[prompts][0])
        # Prompts that would start later are not queued.
        done = {item.event.id for item in envelopes if isinstance(item.event, TurnStarted | PromptDropped)}
        later = (PromptQueued, PromptChanged)
        envelopes = tuple(item for item in envelopes if not isinstance(item.event, later) or item.event.id in done)
    root = match[1] if match is not None else opened.cwd
    return Recording(read_header(path), envelopes, opened, root, opened.cwd, **places)


def move_recording(recording: Recording, paths: dict[str, str]) -> Recording:
    """The same recording at other paths. A replay moves the recording, so the engine needs no path mapping."""
    move = make_path_mover(paths)
    return msgspec.structs.replace(
        recording,
        envelopes=tuple(map_strings(item, move) for item in recording.envelopes),
        opened_event=map_strings(recording.opened_event, move),
        root=move(recording.root),
        cwd=move(recording.cwd),
        folder=move(recording.folder),
    )


def map_strings(value: _StructT, change: Callable[[str], str]) -> _StructT:
    """Return the value with all strings in it changed."""

    def map_value(part: Any) -> Any:
        if isinstance(part, str):
            return change(part)
        if isinstance(part, list | tuple):
            return [map_value(item) for item in cast("list[Any]", part)]
        if isinstance(part, dict):
            return {change(str(key)): map_value(item) for key, item in cast("dict[Any, Any]", part).items()}
        return part

    return msgspec.convert(map_value(msgspec.to_builtins(value)), type(value))


def make_path_mover(paths: dict[str, str]) -> Callable[[str], str]:
    """Return a function that replaces whole paths in text: `/a/shop` does not match in `/a/shop-2`."""
    known = {name: target for name, target in paths.items() if name and name != "/"}
    known |= {encode_path(name): encode_path(target) for name, target in known.items()}
    names = "|".join(re.escape(name) for name in sorted(known, key=len, reverse=True))
    pattern = re.compile(rf"(?<![\w.-])(?:{names})(?![\w-]|\.\w)")
    return lambda text: pattern.sub(lambda match: known[match[0]], text)


def make_scratch(recording: Recording, target: Path, *without: str) -> list[str]:
    """Create the scratch copy in `target` and return notes on what differs from then. Odin's state is left out."""
    target.mkdir(mode=0o700)
    if recording.files is not None:
        _copy_tree(recording.files, target)
        return []
    notes: list[str] = []
    if Path(recording.root).is_dir():
        _copy_tree(Path(recording.root), target, (os.path.realpath(recording.store.parent.parent), *without))
    else:
        notes.append(f"The folder {recording.root} no longer exists; the copy has only its saved files.")
    return notes + _restore_start(recording, target, CheckpointStore(recording.store))


def check_location(recording: Recording) -> None:
    """Raise an error unless the recorded folder is inside the recorded project. Recordings are not trusted."""
    for other in recording.list_others():
        check_location(msgspec.structs.replace(other, envelopes=()))
    root, cwd = recording.root, recording.cwd
    are_normal = all(
        path.startswith("/") and os.path.normpath(path) == path and "\0" not in path for path in (root, cwd)
    )
    if not are_normal or not Path(cwd).is_relative_to(root):
        raise LogDamaged(f"The session's folder {cwd!r} is not inside its project {root!r}.")
    home = os.path.realpath(make_environment(cwd="/").home)
    if root == "/" or (recording.files is None and Path(home).is_relative_to(os.path.realpath(root))):
        raise UsageError(f"{root} is too large to be copied.", "Only sessions in a project folder can be replayed.")


def mark_root(recording: Recording, target: Path) -> None:
    """Add a root marker if the session worked in a subfolder, so that the project root is detected."""
    cwd = Path(f"{target}{recording.cwd.removeprefix(recording.root)}")
    if not Path(os.path.realpath(cwd)).is_relative_to(target):
        raise LogDamaged("The recording points outside its scratch copy, so it is not replayed.")
    marks = ("ODIN.md", "odinconfig.json", ".git")
    if recording.cwd != recording.root and not any(os.path.lexists(target / mark) for mark in marks):
        (target / ".git").mkdir()
    cwd.mkdir(parents=True, exist_ok=True)


def _copy_tree(source: Path, target: Path, outside: Container[str] = ()) -> None:
    """Copy files, folders and links without following links. What cannot be read is left out."""
    import shutil

    def list_outside(folder: str, names: list[str]) -> list[str]:
        return [name for name in names if f"{folder}/{name}" in outside]

    with suppress(shutil.Error, FileNotFoundError):
        shutil.copytree(source, target, symlinks=True, ignore=list_outside, dirs_exist_ok=True)


def _find_start(
    envelopes: Iterable[Envelope], store: CheckpointStore
) -> tuple[dict[str, FileState], ProjectListing | None, str]:
    """Return the first known state of every path and the project before the first command, or why it is not known."""
    first_states: dict[str, FileState] = {}
    listing: ProjectListing | None = None
    why_no_listing = "the session saved no list of them"
    new_plans: set[str] = set()
    for event in (item.event for item in envelopes):
        states: list[FileState] = []
        if isinstance(event, ToolStarted) and event.name == _PLAN_TOOL and not event.args.get("plan_path"):
            new_plans.add(event.call_id)
        elif isinstance(event, ToolEnded) and event.call_id in new_plans:
            states += [FileState(path, "absent") for path in event.files]
        elif isinstance(event, CheckpointSaved):
            states += event.files
            if event.manifest and listing is None:
                try:
                    listing = ProjectListing.from_manifest(store.load_manifest(event.manifest))
                    states += listing.states.values()
                except CheckpointLost:
                    why_no_listing = "their list is no longer in the checkpoint store"
        elif isinstance(event, FilesChanged | Rewound | Redone):
            states += [change.before for change in event.changes]
        for state in states:
            first_states.setdefault(decode_path(state.path), state)
    return first_states, listing, why_no_listing


def _restore_start(recording: Recording, target: Path, store: CheckpointStore) -> list[str]:
    """Restore the copy to the start of the session and return notes on what could not be."""
    first_states, listing, why_no_listing = _find_start(recording.envelopes, store)
    copies: dict[Path, FileState] = {}
    for path, state in sorted(first_states.items()):
        if Path(path).is_relative_to(recording.root) and path != recording.root:
            copy = target / Path(path).relative_to(recording.root)
            if os.path.realpath(copy.parent) == str(copy.parent):  # not behind a link
                copies[copy] = state
    absent = [copy for copy, state in reversed(copies.items()) if state.kind == "absent"]
    if listing is not None:
        folders = [copy for copy, state in copies.items() if state.kind == "folder" and state.saved and copy.is_dir()]
        found = [path for folder in [*([target] if listing.is_complete else []), *folders] for path in folder.iterdir()]
        absent += [path for path in found if path not in copies and (path.is_symlink() or not path.is_dir())]
    for copy in absent:
        with suppress(RestoreFailed):
            is_folder = copy.is_dir() and not copy.is_symlink()
            remove_path(FileState(encode_path(str(copy)), "folder" if is_folder else "file"))
    lost = [str(copy.relative_to(target)) for copy, state in copies.items() if not _restore(copy, state, store)]

    notes: list[str] = []
    if lost:
        files = f"{pluralize(len(lost), 'file')} could not be restored to an earlier state"
        notes.append(f"{files}: {join_some(lost, _MAX_NAMED)}.")
    if listing is None:
        notes.append(f"Files that the session did not edit have their current content ({why_no_listing}).")
    elif (target / ".git").is_dir():
        notes.append("The repository (.git) has its current state; earlier states are not saved.")
    return notes


def _restore(copy: Path, state: FileState, store: CheckpointStore) -> bool:
    """Restore one path of the copy. False if its earlier content is not in the store."""
    if state.kind in ("absent", "other") or (state.kind == "folder" and copy.is_dir()):
        return True
    data = read_regular_file(str(copy), _MAX_FILE_BYTES) if state.kind == "file" else None
    if data is not None and compute_sha256(data) == state.sha256:
        copy.chmod(state.mode)
        return True
    try:
        restore_path(msgspec.structs.replace(state, path=encode_path(str(copy))), store.fetch, sync=False)
    except (CheckpointLost, RestoreFailed):
        return False
    return True


def save_recording(session: str, folder: str, cwd: str = "", prompts: int = 0) -> str:
    """Write the recording into a new or empty folder and return the report for the user."""
    recording = find_recording(session, cwd, prompts)
    check_location(recording)
    target = Path(folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} is not an empty folder.", "Name a new folder.")
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    git = f"{recording.root}/.git"
    notes = make_scratch(recording, target.resolve() / RECORDING_FILES, git)
    if os.path.lexists(git):
        notes.append("The repository (.git) is not part of the recording.")
    paths = {recording.root: PROJECT_PATH, recording.folder: SESSION_PATH, make_environment(cwd="/").home: HOME_PATH}
    for number, other in enumerate(recording.list_others()):
        (target / RECORDING_FOLDERS).mkdir(exist_ok=True, mode=0o700)
        place = target.resolve() / RECORDING_FOLDERS / str(number)
        notes += make_scratch(other, place, f"{other.root}/.git")
        paths[other.root] = f"{FOLDERS_PATH}/{number}"
    written = move_recording(recording, paths)
    secrets: set[str] = set()
    redact = Redactor(make_environment(cwd="/").variables)

    def clean(text: str) -> str:
        """Redact prompts and arguments, which the log stores verbatim."""
        redacted = redact(text)
        secrets.update(redacted.secrets)
        return redacted.text

    header = LogHeader(written.header.odin_log, written.header.session, written.cwd, written.header.created)
    lines = [msgspec.json.encode(item) for item in (header, *(map_strings(item, clean) for item in written.envelopes))]
    (target / RECORDING_LOG).write_bytes(b"\n".join(lines) + b"\n")
    if secrets:
        notes.append(f"Removed from the log, so calls that used them will differ: {', '.join(sorted(secrets))}.")
    places = (
        (target / name, path) for name in (RECORDING_FILES, RECORDING_FOLDERS) for path in (target / name).rglob("*")
    )
    names = sorted(str(path.relative_to(top)) for top, path in places if is_secret_path(str(path)))
    if names:
        notes.append(f"Check these files before you share the recording: {join_some(names, _MAX_NAMED)}.")
    count = len(list_prompts(recording.envelopes))
    return "".join(f"note: {note}\n" for note in notes) + f"Recorded in {target}: {pluralize(count, 'prompt')}.\n"
