"""What sessions share: with all of a process, in one event loop, and with those of the same workspace."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import astuple, replace

from odin.app.launcher import Launcher
from odin.app.policy import parse_configured_rules
from odin.app.sandbox import LazySandbox
from odin.config import Config
from odin.core.environment import ExecutionEnvironment
from odin.core.errors import OdinError
from odin.models.model_table import ModelTables
from odin.policy.rules.rule import Rule
from odin.providers.http import HttpClients
from odin.sandbox.process import Watchdog
from odin.sandbox.runner import ProcessRunner

if TYPE_CHECKING:
    from odin.checkpoints.project_listing import ProjectLister
    from odin.lsp.detection import ServerSpec
    from odin.lsp.server import LanguageServer
    from odin.mcp.servers import WorkspaceServers
    from odin.tools.file_finder import PathIndexer


class WorkspaceServices(Struct, frozen=True, eq=False):
    """What the sessions share that work in the same folders with the same settings, trust and environment.

    A session that has read other settings, or has other variables or flags, gets its own: changed settings reach the
    next session that is opened, and never one that runs. With the last session that leaves it ends.

    `rules` are those of the settings, and warnings about them. `is_changing` is True while a command of a session runs
    that may change the project. `runner` starts servers and lists files. MCP servers and language servers end with
    their last user. `paths` are the file indexes by folder, `listers` the checkpoint stores by session folder.
    `CommandTracker` is not shared: it attributes changes to agents, and a log names the agents of no other session.
    """

    roots: tuple[Path, ...]
    config: Config
    environment: ExecutionEnvironment
    rules: tuple[Sequence[Rule], Sequence[str]]
    sandbox: LazySandbox
    runner: ProcessRunner
    members: "list[WorkspaceMember]"
    is_changing: Callable[[], bool]
    get_servers: "Callable[[], WorkspaceServers]"
    language_servers: "list[LanguageServer]" = field(default_factory=list["LanguageServer"])
    paths: "dict[str, PathIndexer]" = field(default_factory=dict[str, "PathIndexer"])
    listers: "dict[Path, ProjectLister]" = field(default_factory=dict[Path, "ProjectLister"])

    def fits(self, config: Config, environment: ExecutionEnvironment) -> bool:
        """True for a session with these settings. It may work in another folder of the project."""
        theirs = replace(environment, cwd=self.environment.cwd)
        return astuple(self.environment) == astuple(theirs) and self.config == config

    def find_language_server(self, spec: "ServerSpec") -> "LanguageServer":
        """Return the server of the first root with this specification: which ones are installed may change."""
        known = next((server for server in self.language_servers if server.spec == spec), None)
        if known is None:
            from odin.app.language_servers import make_language_server

            known = make_language_server(spec, self.config.root, self.runner, self.sandbox, self.environment)
            self.language_servers.append(known)
        return known

    def get_paths(self, cwd: str) -> "PathIndexer":
        from odin.tools.file_finder import PathIndexer

        return self.paths.setdefault(cwd, PathIndexer(cwd, self.runner, self.environment.variables))

    def get_lister(self, sessions: Path) -> "ProjectLister":
        from odin.checkpoints.session_checkpoints import make_lister

        if sessions not in self.listers:
            self.listers[sessions] = make_lister(self.config.checkpoints, sessions)
        return self.listers[sessions]

    async def close(self) -> None:
        for paths in self.paths.values():
            await paths.close()
        await self.runner.close()


class WorkspaceMember(Struct, eq=False):
    """A session that uses a workspace. `warn` warns its user; `is_changing`: a command of it may change the project."""

    services: WorkspaceServices
    warn: Callable[[str], object] = lambda text: None
    is_changing: Callable[[], bool] = lambda: False


def _make_workspace_services(
    config: Config, environment: ExecutionEnvironment, watchdog: Watchdog
) -> WorkspaceServices:
    sandbox = LazySandbox(config, environment)
    runner = ProcessRunner(environment, env_passthrough=config.env_passthrough, sandbox=sandbox.get, watchdog=watchdog)
    members: list[WorkspaceMember] = []

    def is_changing() -> bool:
        return any(member.is_changing() for member in members)

    def warn(text: str) -> None:
        for member in members:
            with suppress(OdinError):  # one that is being closed
                member.warn(text)

    def make_servers() -> "WorkspaceServers":
        from odin.mcp.connection import ConnectionDeps
        from odin.mcp.servers import make_workspace_servers

        launcher = Launcher(config, environment, sandbox, is_changing, warn)
        project_servers = launcher.list_project_servers()
        return make_workspace_servers(
            ConnectionDeps(config, environment, runner, launcher.plan_server, project_servers)
        )

    return WorkspaceServices(
        roots=(Path(config.root),),
        config=config,
        environment=environment,
        rules=parse_configured_rules(config),
        sandbox=sandbox,
        runner=runner,
        members=members,
        is_changing=is_changing,
        get_servers=cache(make_servers),
    )


class ProcessServices(Struct, frozen=True, eq=False):
    """Nothing in it belongs to one session: each part is keyed by the settings of the session that asks.

    The states of API keys are shared, too: by the file they are kept in (`models/key_states.py`).
    """

    http: HttpClients = field(default_factory=HttpClients)
    model_tables: ModelTables = field(default_factory=ModelTables)
    watchdog: Watchdog = field(default_factory=Watchdog)
    workspaces: list[WorkspaceServices] = field(default_factory=list[WorkspaceServices])

    def join(self, config: Config, environment: ExecutionEnvironment) -> WorkspaceMember:
        """Let another session in: into the workspace with these settings, or into a new one."""
        found = next((one for one in self.workspaces if one.fits(config, environment)), None)
        if found is None:
            found = _make_workspace_services(config, environment, self.watchdog)
            self.workspaces.append(found)
        member = WorkspaceMember(found)
        found.members.append(member)
        return member

    async def leave(self, member: WorkspaceMember) -> None:
        """Let a session go. A workspace ends with its last one, connections and watchdog with the last workspace."""
        workspace = member.services
        workspace.members.remove(member)
        if not workspace.members:
            self.workspaces.remove(workspace)
            await workspace.close()
        if not self.workspaces:
            await self.watchdog.close()
            await self.http.close()
