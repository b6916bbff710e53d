"""How the programs of hooks and MCP servers are started.

The user's own run outside the sandbox, and find no code in the project or in other places that commands can write.
Those that a project brings run in it, because files that the model can edit decide what they do. The user can let one
of them out, as long as no file of the project changes.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from odin.app.sandbox import LazySandbox
from odin.config import Config
from odin.config.paths import make_server_cache, make_server_folder
from odin.config.settings import McpServerSettings
from odin.config.trust import PinnedProject
from odin.core.environment import ExecutionEnvironment
from odin.core.path_names import quote_path
from odin.core.profile import UNSANDBOXED, ProcessProfile, ProgramStart, SandboxGrants, WritableFolders

if TYPE_CHECKING:
    from odin.hooks.declaration import HookSpec


class Launcher:
    """Plans the start of hooks and servers. `warn` tells the user something.

    `is_changing` is True while a command runs that may change the project.
    """

    def __init__(
        self,
        config: Config,
        environment: ExecutionEnvironment,
        sandbox: LazySandbox,
        is_changing: Callable[[], bool],
        warn: Callable[[str], object],
    ) -> None:
        self._is_changing = is_changing
        self._warn = warn
        self._config = config
        self._environment = environment
        self._sandbox = sandbox
        self._project = PinnedProject(config.root)
        self._warned: set[str] = set()

    def is_project_plugin(self, folder: str) -> bool:
        """True if commands can write to the folder of a plugin, so that it counts as the project's."""
        return bool(folder) and os.path.realpath(folder) in self._sandbox.writable

    def list_project_servers(self) -> set[str]:
        """Return the configured MCP servers that the project brings."""
        plugins = (plugin for plugin in self._config.plugins if plugin.servers)
        found = {name for plugin in plugins if self.is_project_plugin(plugin.folder) for name in plugin.servers}
        return {*self._config.project_servers, *found}

    async def plan_hook(self, hook: "HookSpec") -> ProgramStart:
        root = self._config.root
        if not hook.project:
            return ProgramStart(UNSANDBOXED, root, self._sandbox.writable.filter_variables(self._environment.variables))
        if not hook.plugin and await self._may_leave_sandbox(f"hook {hook.id}"):
            return ProgramStart(UNSANDBOXED, root, self._build_pinned_variables())
        # The status line changes nothing, and it runs while commands do.
        return ProgramStart(ProcessProfile("read" if hook.event == "StatusLine" else "project", confined=True), root)

    async def plan_server(self, name: str, settings: McpServerSettings, of_project: bool) -> ProgramStart:
        """Return how a server is started. Raise StateUnwritable if its folder cannot be created."""
        root = self._config.root
        cwd = str(Path(root, settings.cwd))
        if not of_project:
            cwd = cwd if settings.cwd else make_server_folder(name, self._environment.state_dir)
            variables = self._sandbox.writable.filter_variables(self._environment.variables)
            if os.path.realpath(cwd) not in self._sandbox.writable:
                del variables["PYTHONSAFEPATH"]  # a script could not import modules next to it
            return ProgramStart(UNSANDBOXED, cwd, {**variables, **settings.env})
        if await self._may_leave_sandbox(f"server {name}"):
            return ProgramStart(UNSANDBOXED, cwd, {**self._build_pinned_variables(), **settings.env})
        cache = make_server_cache(name, root, self._environment.cache_dir)
        network = name in self._config.trust.network
        profile = ProcessProfile("server", SandboxGrants(network=network), scope=(cache,))
        env = {"XDG_CACHE_HOME": cache, "npm_config_cache": f"{cache}/npm", **settings.env}
        hint = f"it runs in the sandbox without network, which `odin trust add --network {quote_path(name)}` allows"
        return ProgramStart(profile, cwd, env, hint="" if network else hint)

    def _build_pinned_variables(self) -> dict[str, str]:
        """Return variables with which a program finds code in the project, which is pinned, but in no other folder that
        commands can write.
        """
        known, root = self._sandbox.writable, self._project.folder
        others = WritableFolders(
            tuple(folder for folder in known.folders if folder != root), known.temporary, (*known.persistent, root)
        )
        variables = {**others.filter_variables(self._environment.variables), "PYTHONDONTWRITEBYTECODE": "1"}
        del variables["PYTHONSAFEPATH"]
        return variables

    async def _may_leave_sandbox(self, program: str) -> bool:
        pin = self._config.trust.unsandboxed.get(program)
        if pin is None:
            return False
        if not await asyncio.to_thread(self._project.has_content, pin):
            why = "files of the project have changed since you let it run outside"
        elif self._is_changing():
            why = "a command that can change the project is running"
        else:
            return True
        if program not in self._warned:
            self._warned.add(program)
            self._warn(f"The {program} of the project runs in the sandbox: {why}.")
        return False
