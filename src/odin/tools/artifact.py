"""Where a session keeps its artifacts: a folder of its own that no name leads out of."""

import os
from pathlib import Path

from odin.tools.files.path import Refusal

MAX_BYTES = 5_000_000
"""The largest artifact."""

_MAX_NAME_BYTES = 200
_MAX_PATH_BYTES = 1000


class ArtifactFolder:
    """The artifacts of one session, by names that may have folders in them."""

    def __init__(self, session_folder: Path) -> None:
        self.folder = session_folder / "artifacts"

    def path_of(self, name: str) -> str:
        """The real path of an artifact, provided it lies in the folder, wherever links lead."""
        parts = name.split("/")
        if "\0" in name or not all(parts) or {".", ".."} & set(parts):
            raise Refusal(f"{name!r} is no name for an artifact. Use one such as notes.md or plan/step-1.md.")
        size = len(os.fsencode(name.encode("utf-8", "replace")))
        if size > _MAX_PATH_BYTES or any(len(part.encode("utf-8", "replace")) > _MAX_NAME_BYTES for part in parts):
            raise Refusal(f"The name of the artifact is too long ({size} bytes). Use a shorter one.")
        path = os.path.realpath(self.folder / name)
        if not Path(path).is_relative_to(os.path.realpath(self.folder)):
            raise Refusal(f"{name} leads out of the session's artifacts. Use another name.")
        if Path(path).is_dir():
            raise Refusal(f"{name} is a folder of artifacts, not one of them.")
        return path

    def list_artifacts(self) -> list[tuple[str, int]]:
        """Every artifact with its size in bytes, by name."""
        found: list[tuple[str, int]] = []
        for folder, _, files in os.walk(self.folder):
            for file in files:
                path = Path(folder, file)
                if path.is_file() and not path.is_symlink():
                    found.append((str(path.relative_to(self.folder)), path.stat().st_size))
        return sorted(found)
