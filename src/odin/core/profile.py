"""The profiles under which Odin starts processes. Every process has one; `docs/sandbox.md` lists which has which."""

import os
from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct, field

from odin.core.path_names import contains

ProfileName = Literal["read", "project", "granted", "git", "git-remote", "server", "own", "terminal", "none"]
"""In the sandbox: `read` changes nothing, `project` writes the project and temporary files, `granted` also what an
approval named. `git` is Odin's own git, `git-remote` the same with network and credentials, `server` an MCP or language
server. Outside: `own` are programs of Odin that run no code of others, `terminal` the user's editor, pager, clipboard
and browser, and `none` is what the user lets run without a sandbox."""

CommandLevel = Literal["view", "kernel", "none"]
"""How commands are confined: `view`: what a command writes can be kept or discarded when it has ended; `kernel`: a
sandbox without views, which can forbid writing; `none`: no sandbox."""

_OUTSIDE = frozenset(("own", "terminal", "none"))
_NEVER_OUTSIDE = frozenset(("git", "git-remote", "server"))


class SandboxGrants(Struct, frozen=True):
    """What the user lets one process do besides: write these resolved `paths`, and use the `network`.

    `removes`: the process may remove or move the paths.
    """

    paths: tuple[str, ...] = ()
    network: bool = False
    removes: bool = False

    def __bool__(self) -> bool:
        return bool(self.paths or self.network)


NO_GRANTS = SandboxGrants()


class ProcessProfile(Struct, frozen=True):
    """What one process may reach.

    `scope` are the only paths it may write, of the project (None: all of it) or, for git and servers, at all. `visible`
    are paths that it may read although they lie in a hidden folder. `confined`: without a sandbox it is not started,
    nor with one that cannot switch the network off. `sandboxed`: it was allowed for a sandbox, and is not started if
    there is none any more. `view`: what it writes there goes to a private view and not to the real files; `hidden` are
    resolved paths that it cannot see in the view, or as `read`: a file is empty.
    """

    name: ProfileName = "project"
    grants: SandboxGrants = NO_GRANTS
    scope: tuple[str, ...] | None = None
    visible: tuple[str, ...] = ()
    confined: bool = False
    sandboxed: bool = False
    view: bool = False
    hidden: tuple[str, ...] = ()

    @property
    def writes(self) -> bool:
        """True if it may write the project or a part of it."""
        return self.name in ("project", "granted")

    @property
    def is_outside(self) -> bool:
        """True if it never runs in the sandbox."""
        return self.name in _OUTSIDE

    @property
    def needs_sandbox(self) -> bool:
        """True if it is not started where no sandbox works."""
        return self.confined or self.name in _NEVER_OUTSIDE


class ProgramStart(Struct, frozen=True):
    """How a hook or a server is started. `env` are variables besides the usual ones.

    `hint` is a clause about its profile for the user, if it fails.
    """

    profile: ProcessProfile
    cwd: str
    env: dict[str, str] = field(default_factory=dict[str, str])
    hint: str = ""


READ = ProcessProfile("read")
PROJECT = ProcessProfile("project")
OWN = ProcessProfile("own")
UNSANDBOXED = ProcessProfile("none")


class WritableFolders(Struct, frozen=True):
    """What commands can write: `folders`, and `temporary` ones without the `persistent` folders in them (a home).

    A program in one of them is never started outside the sandbox.
    """

    folders: tuple[str, ...] = ()
    temporary: tuple[str, ...] = ()
    persistent: tuple[str, ...] = ()

    def __contains__(self, path: str) -> bool:
        """True if commands can write this resolved path."""
        return any(contains(folder, path) for folder in self.folders) or self.is_temporary(path)

    def is_temporary(self, path: str) -> bool:
        return _measure_innermost(path, self.temporary) > _measure_innermost(path, self.persistent)

    def filter_path(self, path: str) -> str:
        """Return a PATH without relative folders and those that commands can write.

        It is never empty: an empty one means the current folder.
        """
        return self._filter_folders(path) or os.defpath

    def _filter_folders(self, path: str) -> str:
        folders = path.split(os.pathsep)
        return os.pathsep.join(
            folder for folder in folders if folder.startswith("/") and os.path.realpath(folder) not in self
        )

    def filter_variables(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that keep a program outside the sandbox from finding code that commands can write."""
        paths = {name: self._filter_folders(env[name]) for name in _SEARCH_VARIABLES if env.get(name)}
        return {**paths, "PATH": self.filter_path(env.get("PATH", "")), "PYTHONSAFEPATH": "1"}


_SEARCH_VARIABLES = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "NODE_PATH", "LD_LIBRARY_PATH", "PERL5LIB", "RUBYLIB")


def _measure_innermost(path: str, folders: Iterable[str]) -> int:
    """Return the length of the innermost folder that contains the path; -1 if none does."""
    return max((len(folder) for folder in folders if contains(folder, path)), default=-1)
