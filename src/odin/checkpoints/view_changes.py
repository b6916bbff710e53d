"""The files that applying the effects of a view has changed, as the log records them for undo.

What was replaced or deleted is in the stage, which is the checkpoint of the command until its content is in the store.
"""

import os
import stat

from msgspec.structs import replace

from odin.checkpoints.file_state import ContentHash, describe_path, is_same_state, make_absent_state, read_file_state
from odin.checkpoints.project_listing import hash_file
from odin.core.effects import PACKAGE_NAMES
from odin.core.event_values import FileChange, FileState
from odin.core.path_names import decode_path, encode_path, parse_writer_pid
from odin.sandbox.views.applier import load_journal


def list_view_changes(stage: str, keep: ContentHash) -> tuple[FileChange, ...]:
    """Return the changes of an apply that has ended. `keep` saves the content of a file and returns its SHA-256.

    Undo leaves out what it does not cover after other commands either: caches, installed packages and repositories.
    """
    journal = load_journal(stage)
    if journal is None:
        return ()
    before: dict[str, FileState] = {}
    after: dict[str, FileState] = {}
    moves: list[tuple[str, str]] = []
    for number, step in enumerate(journal.steps):
        if step.effect in journal.failed:
            continue
        path = f"{journal.layer.roots[step.root].real}/{step.path}".rstrip("/")
        effect = journal.effects[step.effect] if step.effect >= 0 else None
        names = step.path.split("/")
        is_unfinished = step.act in ("delete", "put") and parse_writer_pid(names[-1]) is not None
        if (effect is not None and effect.group) or is_unfinished or not PACKAGE_NAMES.isdisjoint(names):
            continue
        source = decode_path(effect.source) if effect is not None and effect.source else path
        kept = f"{stage}/{number}"
        if step.act in ("delete", "put") and os.path.lexists(kept):
            before[source] = describe_path(kept, os.lstat(kept), keep)
        if step.act in ("put", "make"):
            after[path] = read_file_state(path, hash_file)
        elif step.act == "set" and step.old is not None:
            after[path] = state = read_file_state(path, keep)
            before[source] = replace(state, mode=stat.S_IMODE(step.old.mode)) if state.kind == "file" else state
        elif step.act == "rmdir" and effect is not None:
            before[path] = FileState("", "folder", mode=effect.mode_before)
        elif step.act == "folder" and effect is not None and effect.kind == "attributes":
            after[path] = read_file_state(path, hash_file)
            before[source] = FileState("", "folder", mode=effect.mode_before)
        elif step.act == "in":
            moves.append((path, source))
    # All that is in a moved folder and was not changed as well. Folders that were moved into moved ones come first.
    for path, source in sorted(moves, reverse=True):
        todo = [path]
        while todo:
            inner = todo.pop()
            if os.path.isdir(inner) and not os.path.islink(inner):  # noqa: PTH112, PTH114
                todo += (f"{inner}/{name}" for name in os.listdir(inner))  # noqa: PTH208
            if inner not in after:
                after[inner] = before[f"{source}{inner[len(path) :]}"] = read_file_state(inner, keep)
    changes: list[FileChange] = []
    for path in sorted(before.keys() | after.keys()):
        absent = make_absent_state(path)
        old = replace(before.get(path, absent), path=encode_path(path))
        new = after.get(path, absent)
        if not is_same_state(old, new):
            changes.append(FileChange(old, new))
    return tuple(changes)
