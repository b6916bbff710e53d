"""The environment of a session: made once, so that what checks a program and what runs it agree."""

import os
from collections.abc import Mapping

from msgspec import Struct, field

from odin.core.timing import DEFAULT_TIMING, Timing


class ExecutionEnvironment(Struct, frozen=True, eq=False):
    """Variables, folders and shell that the commands of a session get, and its waits.

    `variables` cannot be changed. `shell` runs commands. `temporary` is the resolved folder for temporary files of
    commands; what Odin reads back never lies there. The three after it are Odin's own folders. `added` are variables
    that commands, hooks and servers get besides, `sandbox_added` those that they get only in the sandbox; Odin itself
    uses neither. Compared by identity, because a session has one.
    """

    variables: Mapping[str, str]
    cwd: str
    home: str
    shell: str
    temporary: str
    config_dir: str
    state_dir: str
    cache_dir: str
    timing: Timing = DEFAULT_TIMING
    added: Mapping[str, str] = field(default_factory=dict[str, str])
    sandbox_added: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def path(self) -> str:
        """The folders in which commands find programs."""
        return self.variables.get("PATH") or os.defpath

    @property
    def own_folders(self) -> tuple[str, str, str]:
        return self.config_dir, self.state_dir, self.cache_dir

    def get(self, name: str) -> str:
        """Return a variable; "" if it is not set."""
        return self.variables.get(name, "")

    def expand_home(self, path: str) -> str:
        """Return the path with a leading `~` replaced. Another user's `~name` stays as it is."""
        return self.home + path[1:] if path == "~" or path.startswith("~/") else path
