"""Creates the sandbox of a session from the configuration, when the first command needs it."""

import asyncio
import os
import threading
from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from odin.config import Config
from odin.config.paths import ACCESS_FOLDER, RUN_FOLDER, SCRATCH_FOLDER, SERVER_FOLDER, SHARE_FOLDER, VIEW_FOLDER
from odin.core.environment import ExecutionEnvironment
from odin.core.path_names import contains
from odin.core.root import Root
from odin.core.text import join_some
from odin.core.tool import Tool, ToolContext, ToolOutput

if TYPE_CHECKING:
    from odin.core.profile import CommandLevel, WritableFolders
    from odin.sandbox.layout import SandboxSession
    from odin.sandbox.probe import ProbeResult, SandboxOptions
    from odin.sandbox.sandbox import Sandbox

PROBE_FILE = "sandbox.json"

_EXPLAIN_UNSEEN = (
    "[Commands of this session have temporary folders of their own and do not see {} of this machine. Read shows it, "
    "and commands see it afterwards.]"
)


class LazySandbox:
    """Builds the session's sandbox on first use. `visible` are session folders that commands may read although they
    lie in Odin's hidden ones; the user's skills and plugins are visible there, too. `roots` are the folders besides the
    project, if not those of the configuration."""

    def __init__(
        self,
        config: Config,
        environment: ExecutionEnvironment,
        *,
        visible: tuple[str, ...] = (),
        roots: tuple[Root, ...] | None = None,
    ) -> None:
        self._config = config
        self._roots = config.roots if roots is None else roots
        self._environment = environment
        self._visible = visible
        self._sandbox: Sandbox | None = None
        self._making = threading.Lock()

    def get(self) -> "Sandbox":
        with self._making:
            if self._sandbox is None:
                self._sandbox = self._make()
            return self._sandbox

    async def examine(self, *, views: bool = True) -> None:
        """Find out what the sandbox can do, before `is_confining` and the like are asked (see `Sandbox.examine`)."""
        sandbox = self._sandbox or await asyncio.to_thread(self.get)  # which imports modules
        await sandbox.examine(views=views)

    async def can_confine(self) -> bool:
        """Return whether commands run in a sandbox, once that is found out."""
        await self.examine(views=False)
        return self.is_confining()

    def set_roots(self, roots: tuple[Root, ...]) -> None:
        """Let commands work in these folders besides the project, from the next one on."""
        self._roots = roots
        for name in ("_session", "writable"):
            self.__dict__.pop(name, None)
        if self._sandbox is not None:
            self._sandbox.change_session(self._session)

    async def close(self) -> None:
        """End a sandbox that was opened to find out what it can do, also if no command ran in it."""
        if self._sandbox is not None:
            await self._sandbox.close()

    def describe(self) -> str:
        """Return one line about the sandbox of commands."""
        from odin.sandbox.probe import describe_sandbox

        if self._sandbox is not None:
            return self._sandbox.describe()
        return describe_sandbox(self._build_options(), self._load_probe(), self._programs_path)

    def recover(self) -> str:
        """Complete what an earlier process was applying when it was killed. Return a notice about it, or ""."""
        place = Path(self._environment.state_dir, VIEW_FOLDER)
        if not os.path.isdir(place) or not os.listdir(place):  # noqa: PTH112, PTH208  # at the start of each session
            return ""
        journals = place.glob("*/layers/*/stage/journal")
        if all(journal.with_name("done").exists() for journal in journals):
            return ""
        from odin.sandbox.views.store import recover_folders

        results = recover_folders(str(place))
        return "Odin was killed while it kept the changes of a command. They are complete now." if results else ""

    def describe_problem(self) -> str:
        """Return why no command can run, if that is known, else ""."""
        if self._config.sandbox.backend in ("auto", "off"):
            return ""
        from odin.sandbox.probe import describe_problem

        return (
            self._sandbox.problem
            if self._sandbox is not None
            else describe_problem(self._build_options(), self._load_probe())
        )

    def explain_unconfined(self, command: str = "") -> str:
        """Return why a command would not be confined to the project and cut off from the network, or ""."""
        return self.get().explain_unconfined(command)

    def is_confining(self, command: str = "") -> bool:
        """True if commands, or this one, run in a sandbox."""
        return self.get().is_confining(command)

    def find_level(self, command: str = "") -> "CommandLevel":
        """Return how commands are confined, or this one."""
        return self.get().find_level(command)

    def explain_level(self) -> str:
        """Return why commands are not confined better, and how they would be; "" if there is nothing better."""
        return self.get().explain_level()

    def find_secret_files(self) -> tuple[str, ...]:
        """Return the files of the project that may contain secrets, for the profile of a command that hides them."""
        return self.get().find_secret_files()

    def find_temporary_file(self, path: str) -> str:
        """Return where the file that commands made or changed under this path of a temporary folder lies, or ""."""
        files = None if self._sandbox is None else self._sandbox.temporary_files
        return "" if files is None else files.find(path)

    async def share_temporary_files(
        self, tool: Tool[Any], args: Any, output: ToolOutput, context: ToolContext
    ) -> ToolOutput:
        """Show commands the temporary files of the machine that a tool has used, and say which ones they cannot see."""
        if tool.kind == "execute":
            command = tool.get_target(args).command
            files = self.get().temporary_files if output.is_error and command else None
            unseen = [] if files is None else files.list_unseen(command)
            text = f"{output.text}\n\n{_EXPLAIN_UNSEEN.format(join_some(unseen, 3))}"
            return replace(output, text=text) if unseen else output
        if tool.kind in ("read", "edit") and not output.is_error:
            for item in context.resolved_paths or ():
                if self.writable.is_temporary(item.path):
                    sandbox = self._sandbox or await asyncio.to_thread(self.get)
                    if (files := await sandbox.prepare_temporary_files()) is not None:
                        with suppress(OSError):  # commands do not see it then
                            await asyncio.to_thread(files.share, item.path)
        return output

    def _build_options(self) -> "SandboxOptions":
        from odin.sandbox.probe import SandboxOptions, make_limits

        settings = self._config.sandbox
        return SandboxOptions(settings.backend, settings.network, settings.unsandboxed_commands, make_limits())

    def _load_probe(self) -> "ProbeResult | None":
        from odin.sandbox.probe import compute_probe_key, load_probe

        return load_probe(
            self._locate_probe_file(), lambda: compute_probe_key(self._build_options(), self._programs_path)
        )

    @cached_property
    def writable(self) -> "WritableFolders":
        """The folders that commands can write, from which no program is started outside the sandbox."""
        from odin.sandbox.layout import find_writable_folders

        return find_writable_folders(self._session)

    @property
    def _programs_path(self) -> str:
        return self.writable.filter_path(self._environment.get("PATH"))

    def _locate_probe_file(self) -> Path:
        return Path(self._environment.cache_dir, PROBE_FILE)

    def make_other(self, backend: str) -> "Sandbox":
        """Return a sandbox of this session with another backend, without caching its probe result."""
        from odin.sandbox.probe import SandboxOptions
        from odin.sandbox.sandbox import Sandbox

        return Sandbox(self._session, SandboxOptions(backend, self._config.sandbox.network))

    def _make(self) -> "Sandbox":
        from odin.sandbox.sandbox import Sandbox

        return Sandbox(self._session, self._build_options(), self._locate_probe_file(), self._environment.timing)

    @cached_property
    def _session(self) -> "SandboxSession":
        from odin.sandbox.layout import SandboxSession

        environment = self._environment
        given = map(environment.expand_home, self._config.sandbox.writable_paths)
        writable = tuple(os.path.realpath(path) for path in given if path.startswith("/"))
        read_only = [root.path for root in self._roots if not root.is_writable]
        own = (*environment.own_folders, *self._list_secret_folders())
        plugins = (plugin.folder for plugin in self._config.plugins if _is_below(plugin.folder, own))
        return SandboxSession(
            root=os.path.realpath(self._config.root),
            home=os.path.realpath(environment.home),
            env={**environment.variables, "TMPDIR": environment.temporary},
            odin_folders=(*own, *self._list_other_folders()),
            visible=(*self._visible, f"{environment.config_dir}/skills", *plugins),
            writable=tuple(path for path in writable if not any(_overlap(path, root) for root in read_only)),
            views=f"{os.path.realpath(environment.state_dir)}/{VIEW_FOLDER}",
            roots=self._roots,
        )

    def _list_other_folders(self) -> list[str]:
        """Return what commands do not see of the home if they are restricted to the project: all but that, programs on
        the PATH, and what begins with a dot, where programs have their settings."""
        if not self._config.restrict_to_workspace:
            return []
        home, project = os.path.realpath(self._environment.home), os.path.realpath(self._config.root)
        kept = (project, *(root.path for root in self._roots), *self._visible)
        programs = [os.path.realpath(path) for path in self._environment.get("PATH").split(":")]
        found: list[str] = []
        folders = [home]
        while folders:
            folder = folders.pop()
            for path in _list_entries(folder):
                is_used = Path(path).name.startswith(".") or any(contains(path, one) for one in programs)
                if path in kept or (folder == home and is_used):
                    continue
                (folders if any(contains(path, one) for one in kept) else found).append(path)
        return found

    def _list_secret_folders(self) -> list[str]:
        """Return what to hide of the state folder if the project is a worktree inside it."""
        state = self._environment.state_dir
        has_project = Path(os.path.realpath(state)) in Path(os.path.realpath(self._config.root)).parents
        own = SCRATCH_FOLDER, SERVER_FOLDER, ACCESS_FOLDER, SHARE_FOLDER, RUN_FOLDER
        names = ("sessions", "checkpoints", "logs", *own) if has_project else ()
        return [f"{state}/{name}" for name in names]


def _list_entries(folder: str) -> list[str]:
    with suppress(OSError):
        return [f"{folder}/{name}" for name in os.listdir(folder)]  # noqa: PTH208
    return []


def _overlap(one: str, other: str) -> bool:
    return contains(one, other) or contains(other, one)


def _is_below(path: str, folders: Iterable[str]) -> bool:
    return any(Path(os.path.realpath(folder)) in Path(path).parents for folder in folders)
