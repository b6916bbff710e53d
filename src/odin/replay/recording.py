"""Recordings: finding and reading one, making a scratch copy of the project as it was, and saving a new one.

A recording is a session of this machine, or a folder with `session.jsonl` and the project's initial files in `files`.
The latter contains nothing of the machine it was made on: its project is `/project`, its session folder `/session`.
The scratch copy starts from today's files; every file with an earlier state in the checkpoints is restored in the copy,
and the rest is reported.
"""

import os
import re
import stat
from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import msgspec

from odin.app.workspace import workspace_of
from odin.checkpoints.file_state import RestoreFailed, decode_path, encode_path, restore_path
from odin.checkpoints.project_listing import ProjectListing, read_regular_file
from odin.checkpoints.store import CheckpointLost, CheckpointStore, sha256_of
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
    SessionOpened,
    TurnStarted,
)
from odin.core.event_values import FileState
from odin.core.path_names import is_secret_path
from odin.policy.secrets import Redactor
from odin.session.log import LogHeader, read_header, read_log

RECORDING_LOG, RECORDING_FILES = "session.jsonl", "files"
PROJECT_PATH, SESSION_PATH, HOME_PATH = "/project", "/session", "/home/user"
_ROOT_PATTERN = re.compile(r"(?m)^Project root: (.+)$")


class Recording(msgspec.Struct, frozen=True):
    """`folder` is the session's folder. `files` has the initial project files; `store` is the checkpoint store."""

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
    """Find a recording by its folder, by a log file, or by the id of a session of this project."""
    path = Path(where)
    if path.is_dir() and (path / RECORDING_LOG).is_file():
        return _read_recording(path / RECORDING_LOG, folder=SESSION_PATH, files=path / RECORDING_FILES)
    if path.is_file():
        return _read_own_session(path)
    store = workspace_of(Options(cwd=cwd)).store
    return _read_own_session(store.open(store.find(where)).path)


def _read_own_session(path: Path) -> Recording:
    """A session of this machine, with the checkpoint store of its project."""
    path = path.resolve()
    sessions = path.parent.parent
    store = sessions.parent.parent / "checkpoints" / sessions.name
    return _read_recording(path, folder=str(path.parent), store=store)


def _read_recording(path: Path, *, folder: str, files: Path | None = None, store: Path | None = None) -> Recording:
    header = read_header(path)
    envelopes = tuple(read_log(path))
    opened = next((item.event for item in envelopes if isinstance(item.event, SessionOpened)), None)
    if opened is None:
        raise LogDamaged(f"{path} does not name the folder of the session.", "It cannot be replayed.")
    return Recording(header, envelopes, _find_root(envelopes, opened.cwd), opened.cwd, folder, files, store)


def _find_root(envelopes: Iterable[Envelope], cwd: str) -> str:
    """The project root, from the notes of the first prompt if it differs from the working directory."""
    for item in envelopes:
        if isinstance(item.event, TurnStarted) and not item.agent:
            match = next((match for note in item.event.notes if (match := _ROOT_PATTERN.search(note))), None)
            return match[1] if match is not None else cwd
    return cwd


def truncate_recording(recording: Recording, prompts: int) -> Recording:
    """The recording up to its first `prompts` prompts."""
    kept: list[Envelope] = []
    started = 0
    for item in recording.envelopes:
        if isinstance(item.event, TurnStarted) and not item.agent:
            started += 1
            if started > prompts:
                break
        kept.append(item)
    done = {item.event.id for item in kept if isinstance(item.event, TurnStarted | PromptDropped)}
    queue_events = (PromptQueued, PromptChanged)
    remaining = (item for item in kept if not isinstance(item.event, queue_events) or item.event.id in done)
    return msgspec.structs.replace(recording, envelopes=tuple(remaining))


def move_recording(recording: Recording, paths: dict[str, str]) -> Recording:
    """The same recording at other paths. A replay moves the recording, so the engine needs no path mapping."""
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
    """Return a function that replaces whole paths in text: `/a/shop` does not match in `/a/shop-2`."""
    known = {name: target for name, target in paths.items() if name and name != "/"}
    known |= {encode_path(name): encode_path(target) for name, target in known.items()}
    if not known:
        raise UsageError("A session in the root of the file system cannot be replayed.")
    names = "|".join(re.escape(name) for name in sorted(known, key=len, reverse=True))
    pattern = re.compile(rf"(?<![\w.-])(?:{names})(?![\w-]|\.\w)")
    shortest = min(known, key=len)

    def move(text: str) -> str:
        return (
            pattern.sub(lambda match: known[match[0]], text) if os.sep in text and len(text) >= len(shortest) else text
        )

    return move


MAX_FILES = 200_000
MAX_BYTES = 4_000_000_000
_MAX_FILE_BYTES = 200_000_000


_PLAN_TOOL = "Handoff"
"""It writes plans without a checkpoint: a rewind keeps them."""


class StartState(msgspec.Struct):
    """`files` has the first known state of every path; `listing` is the project before the first command.

    `lost`: the listing existed, but is no longer in the checkpoint store.
    """

    files: dict[str, FileState] = msgspec.field(default_factory=dict[str, FileState])
    listing: ProjectListing | None = None
    lost: bool = False


def _find_start(envelopes: Iterable[Envelope], store: CheckpointStore) -> StartState:
    start = StartState()
    new_plans: set[str] = set()
    for item in envelopes:
        event = item.event
        states: list[FileState] = []
        if isinstance(event, ToolStarted) and event.name == _PLAN_TOOL and not event.args.get("plan_path"):
            new_plans.add(event.call_id)
        elif isinstance(event, ToolEnded) and event.call_id in new_plans:
            states += [FileState(path, "absent") for path in event.files]
        elif isinstance(event, CheckpointSaved):
            states += event.files
            if event.manifest and start.listing is None:
                try:
                    start.listing = ProjectListing.from_manifest(store.load_manifest(event.manifest))
                    states += start.listing.states.values()
                except CheckpointLost:
                    start.lost = True
        elif isinstance(event, FilesChanged | Rewound | Redone):
            states += [change.before for change in event.changes]
        for state in states:
            start.files.setdefault(state.path, state)
    return start


def make_scratch(recording: Recording, target: Path, *, outside: Container[str] = ()) -> list[str]:
    """Create the scratch copy in `target` and return notes on what differs from then. `outside` paths are left out."""
    target.mkdir(mode=0o700)
    if recording.files is not None:
        if recording.files.is_dir():
            _copy_tree(recording.files, target, ())
        return []
    notes: list[str] = []
    if Path(recording.root).is_dir():
        _copy_tree(Path(recording.root), target, outside)
    else:
        notes.append(f"The folder {recording.root} no longer exists; the copy has only its saved files.")
    return notes + (_restore_start(recording, target, CheckpointStore(recording.store)) if recording.store else [])


def check_location(recording: Recording) -> None:
    """Raise an error unless the recorded folder is inside the recorded project. Recordings are not trusted."""
    root, cwd = recording.root, recording.cwd
    are_normal = all(
        path.startswith("/") and os.path.normpath(path) == path and "\0" not in path for path in (root, cwd)
    )
    if not are_normal or not Path(cwd).is_relative_to(root):
        raise LogDamaged(f"The session's folder {cwd!r} is not inside its project {root!r}.")
    home = os.path.realpath(make_environment(cwd="/").home)
    if root == "/" or (recording.files is None and Path(home).is_relative_to(os.path.realpath(root))):
        raise UsageError(f"{root} is too large to be copied.", "Only sessions in a project folder can be replayed.")


def is_within(path: str, folder: Path) -> bool:
    """True if the resolved path is inside the folder, which must not contain links itself."""
    return Path(os.path.realpath(path)).is_relative_to(folder)


def mark_root(recording: Recording, target: Path) -> None:
    """Add a root marker if the session worked in a subfolder, so that the project root is detected."""
    cwd = str(target) + recording.cwd.removeprefix(recording.root)
    if not is_within(cwd, target):
        raise LogDamaged("The recording points outside its scratch copy, so it is not replayed.")
    marks = ("ODIN.md", "odinconfig.json", ".git")
    if recording.cwd != recording.root and not any(os.path.lexists(target / mark) for mark in marks):
        (target / ".git").mkdir()
    Path(cwd).mkdir(parents=True, exist_ok=True)


def _copy_tree(source: Path, target: Path, outside: Container[str]) -> None:
    """Copy files, folders and links without following links. What cannot be read is left out."""
    import shutil

    files = size = 0

    def list_omitted(folder: str, names: list[str]) -> list[str]:
        nonlocal files, size
        omitted: list[str] = []
        for name in names:
            info = Path(folder, name).lstat()
            files, size = files + 1, size + info.st_size
            if f"{folder}/{name}" in outside or not (
                stat.S_ISDIR(info.st_mode) or stat.S_ISLNK(info.st_mode) or stat.S_ISREG(info.st_mode)
            ):
                omitted.append(name)
        if files > MAX_FILES or size > MAX_BYTES:
            raise UsageError(
                f"{source} is too large to be copied (more than {MAX_FILES:,} files or {MAX_BYTES / 1e9:g} GB).",
                "Make a recording of a smaller project.",
            )
        return omitted

    with suppress(shutil.Error):
        shutil.copytree(source, target, symlinks=True, ignore=list_omitted, dirs_exist_ok=True)


def _restore_start(recording: Recording, target: Path, store: CheckpointStore) -> list[str]:
    """Restore the copy to the start of the session and return notes on what could not be."""
    start = _find_start(recording.envelopes, store)

    def locate(path: str) -> Path | None:
        """The path in the copy; None if it is outside the project or behind a link."""
        real = decode_path(path)
        if not Path(real).is_relative_to(recording.root) or real == recording.root:
            return None
        copy = target / Path(real).relative_to(recording.root)
        return copy if os.path.realpath(copy.parent) == str(copy.parent) else None

    copies = [(copy, state) for path, state in sorted(start.files.items()) if (copy := locate(path)) is not None]
    for copy, state in reversed(copies):
        if state.kind == "absent":
            _remove(copy)
    if start.listing is not None:
        folders = [copy for copy, state in copies if state.kind == "folder" and state.saved and copy.is_dir()]
        for folder in [*([target] if start.listing.is_complete else []), *folders]:
            for found in folder.iterdir():
                is_folder = found.is_dir() and not found.is_symlink()
                if not is_folder and f"{recording.root}/{found.relative_to(target)}" not in start.files:
                    _remove(found)
    lost = [state.path for copy, state in copies if not _restore(copy, state, store)]

    notes: list[str] = []
    if lost:
        named = ", ".join(lost[:10]) + (", …" if len(lost) > 10 else "")
        notes.append(f"{len(lost)} files could not be restored to their earlier state: {named}.")
    if start.listing is None:
        missing = "their list is no longer in the checkpoint store"
        why = missing if start.lost else "the session ran no command that could change them"
        notes.append(f"Files that the session did not edit have their current content ({why}).")
    elif (target / ".git").is_dir():
        notes.append("The repository (.git) has its current state; earlier states are not saved.")
    return notes


def _restore(copy: Path, state: FileState, store: CheckpointStore) -> bool:
    """Restore one path of the copy. False if its earlier content is not in the store."""
    if state.kind in ("absent", "other") or (state.kind == "folder" and copy.is_dir()):
        return True
    data = read_regular_file(str(copy), _MAX_FILE_BYTES) if state.kind == "file" else None
    if data is not None and sha256_of(data) == state.sha256:
        copy.chmod(state.mode)
        return True
    try:
        restore_path(msgspec.structs.replace(state, path=encode_path(str(copy))), store.fetch, sync=False)
    except (CheckpointLost, RestoreFailed):
        return False
    return True


def _remove(path: Path) -> None:
    """Remove a file, a link or an empty folder of the copy."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)


_MAX_NAMED = 10


def save_recording(session: str, folder: str, cwd: str = "", prompts: int = 0) -> str:
    """Write the recording into a new or empty folder and return the report for the user."""
    recording = find_recording(session, cwd)
    if prompts:
        recording = truncate_recording(recording, prompts)
    check_location(recording)
    target = Path(folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} is not an empty folder.", "Name a new folder.")
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    git = f"{recording.root}/.git"
    state = os.path.realpath(recording.store.parent.parent) if recording.store is not None else ""
    notes = make_scratch(recording, target.resolve() / RECORDING_FILES, outside=(state, git))
    if os.path.lexists(git):
        notes.append("The repository (.git) is not part of the recording.")
    paths = {recording.root: PROJECT_PATH, recording.folder: SESSION_PATH, make_environment(cwd="/").home: HOME_PATH}
    written = move_recording(recording, paths)
    secrets: set[str] = set()
    redact = Redactor(make_environment(cwd="/").variables)

    def clean(text: str) -> str:
        """Redact prompts and arguments, which the log stores verbatim."""
        redacted = redact(text)
        secrets.update(redacted.secrets)
        return redacted.text

    header = LogHeader(written.header.odin_log, written.header.session, written.cwd, written.header.created)
    cleaned = [move_envelope(item, clean) for item in written.envelopes]
    lines = [msgspec.json.encode(item) for item in (header, *cleaned)]
    (target / RECORDING_LOG).write_bytes(b"\n".join(lines) + b"\n")
    if secrets:
        notes.append(f"Removed from the log, so calls that used them will differ: {', '.join(sorted(secrets))}.")
    files = target / RECORDING_FILES
    names = sorted(str(path.relative_to(files)) for path in files.rglob("*") if is_secret_path(str(path)))
    if names:
        more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
        notes.append(f"Check these files before you share the recording: {', '.join(names[:_MAX_NAMED])}{more}.")
    return "".join(f"note: {note}\n" for note in notes) + f"Recorded in {target}: {recording.prompt_count} prompts.\n"
