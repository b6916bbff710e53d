"""Instructions for a part of the project: the instruction files of its folders, and rules for certain paths.

The model gets them as a note when it touches a file there, so that the cached prefix of requests stays the same. The
notes of its conversation tell which it has: after a resume they are still there, after a compaction or a rewind they
may be sent again.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from odin.context.instructions import (
    ODIN_MD,
    PROJECT_HEADING,
    USER_HEADING,
    InstructionFile,
    InstructionReader,
    Instructions,
    list_candidates,
)
from odin.core.message import Message, ReplyMessage
from odin.core.path_names import contains
from odin.core.text import to_valid_unicode
from odin.sandbox.protected_files import INSTALLED
from odin.tools.files import Refusal
from odin.tools.ripgrep import compile_glob


class PathInstructions:
    """Finds the instructions for files. Each folder is read once in a session. `known` were sent at its start. `prefix`
    comes before the paths of files that the model reads."""

    def __init__(
        self,
        known: Instructions,
        make_reader: Callable[[str], InstructionReader],
        warn: Callable[[str], object],
        prefix: str = "",
    ) -> None:
        self._prefix = prefix
        self._known_labels = {guide.label for guide in known.files}
        self._make_reader = make_reader
        self._warn = warn
        self._folders: dict[str, list[InstructionFile]] = {}
        self._rules: list[tuple[Callable[[str], bool], str, InstructionFile]] = []
        for rule in known.rules:
            heading = USER_HEADING if rule.by_user else PROJECT_HEADING
            for glob in rule.globs:
                try:
                    # As in an ignore file, a folder stands for everything in it.
                    matchers = compile_glob(glob), compile_glob(f"{glob.rstrip('/')}/**")
                except Refusal as error:
                    warn(f"{rule.files[0].label}: {error}")
                    continue
                self._rules += [(matches, heading, guide) for guide in rule.files for matches in matchers]

    async def find_notes(self, paths: Iterable[str], root: str, history: Iterable[Message]) -> list[str]:
        """Return the instructions for these files in the project at `root` that the conversation does not contain."""
        touched = {path: os.path.relpath(path, root) for path in paths if path != root and contains(root, path)}
        folders = {folder: None for name in touched.values() for folder in _list_folders(root, name)}
        unread = [folder for folder in folders if folder not in self._folders]
        if unread:
            readers = {folder: self._make_reader(root) for folder in unread}
            self._folders |= await asyncio.to_thread(lambda: {key: _read(readers[key], key) for key in readers})
            for warning in (warning for reader in readers.values() for warning in reader.warnings):
                self._warn(warning)
        found: dict[str, str] = {}
        for name in touched.values():
            for start, guide in self._find_guides(root, name):
                label = to_valid_unicode(f"{self._prefix}{name}")
                if guide.label != label:  # the model sees that file itself
                    why = ", ".join(filter(None, (guide.why, f"sent because of {label}")))
                    found.setdefault(start, f"{start}, {why}\n{guide.text}")
        if not found:
            return []
        sent = [note for message in history for note in _list_notes(message)]
        return [note for start, note in found.items() if not any(text.startswith(start) for text in sent)]

    def _find_guides(self, root: str, name: str) -> Iterator[tuple[str, InstructionFile]]:
        for folder in _list_folders(root, name):
            for guide in self._folders[folder]:
                if guide.label not in self._known_labels:
                    yield f"{PROJECT_HEADING} ({guide.label})", guide
        for matches, heading, guide in self._rules:
            if matches(name):
                yield f"{heading} ({guide.label})", guide


def _list_folders(root: str, name: str) -> Iterator[str]:
    """Yield the folders from below the root down to a file, which may be a folder itself.

    Packages that are installed there were written by others, and their instructions are not for this project.
    """
    folder = root
    for part in name.split("/"):
        if part in INSTALLED or part == ".git":
            return
        folder = f"{folder}/{part}"
        yield folder


def _read(reader: InstructionReader, folder: str) -> list[InstructionFile]:
    paths = (Path(folder, ODIN_MD), *list_candidates(Path(folder)))
    return [guide for path in paths for guide in reader.load(path)]


def _list_notes(message: Message) -> tuple[str, ...]:
    return () if isinstance(message, ReplyMessage) else message.notes
