"""The environment of a session's programs: made once, so that what judges a program and what runs it agree."""

import os
from collections.abc import Mapping

from msgspec import Struct


class ExecutionEnvironment(Struct, frozen=True, eq=False):
    """Variables, folders and shell that the commands of a session get.

    `variables` cannot be changed. `shell` runs commands. `temporary` is the folder for temporary files of commands;
    what Odin reads back never lies there. `own_folders` are those of Odin's configuration, state and cache. Compared by
    identity, because a session has one.
    """

    variables: Mapping[str, str]
    cwd: str
    home: str
    shell: str
    temporary: str
    own_folders: tuple[str, ...]

    @property
    def path(self) -> str:
        """The folders in which commands find programs."""
        return self.variables.get("PATH") or os.defpath

    def get(self, name: str) -> str:
        """Return a variable; "" if it is not set."""
        return self.variables.get(name, "")

    def expand_home(self, path: str) -> str:
        """Return the path with a leading `~` replaced. Another user's `~name` stays as it is."""
        return self.home + path[1:] if path == "~" or path.startswith("~/") else path
