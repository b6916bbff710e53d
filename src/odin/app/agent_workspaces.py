"""Where the agents of a session work: in the project, or in a git worktree of their own.

    workspace = await workspaces.create_worktree("agent-1")             # isolation: worktree
    runtime = AgentRuntime(parts, "agent-1", workspace=workspace)       # its tools, policy, sandbox and file cache
    AgentDeps(recorder, runtime.make_deps, workspace.environment, workspace.root)
    ...
    diff = await workspace.collect_diff()                               # the reviewable diff
    work = await workspaces.apply(workspace, store, paths, diff.tree)   # these files, into the project
    end = await workspaces.end(workspace)  # removes or keeps the worktree; say `end.describe()`

A worktree has the configuration, the trust and the rules of its project; the folders besides the project are read-only
for it. An agent that is continued gets its workspace back with `workspaces.reopen(name)`, where `name` is
`workspace.worktree.name`.
"""

import os
import re
from collections.abc import Callable, Collection
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from odin.app.sandbox import LazySandbox
from odin.config import Config
from odin.core.environment import ExecutionEnvironment
from odin.core.errors import OdinError
from odin.core.path_names import contains
from odin.core.root import Root
from odin.sandbox.process import Watchdog
from odin.sandbox.runner import ProcessRunner

if TYPE_CHECKING:
    from odin.app.agent_worktree import AgentWorktree, AgentWorktrees, AppliedWork, WorktreeDiff, WorktreeEnd
    from odin.app.git import Git
    from odin.checkpoints.store import CheckpointStore
    from odin.context.agent_definition import AgentDefinition

_MAX_NAME = 48


class AgentWorkspace(Struct, frozen=True, eq=False):
    """A project folder, a working folder in it, and what runs commands there.

    `programs` is the folder of the virtual environment's programs, if it has one.
    """

    root: str
    environment: ExecutionEnvironment
    runner: ProcessRunner
    sandbox: LazySandbox
    worktree: "AgentWorktree | None" = None
    programs: str = ""

    @property
    def cwd(self) -> str:
        return self.environment.cwd

    async def collect_diff(self) -> "WorktreeDiff":
        """Return everything that the agent changed in its worktree."""
        return await self.get_worktree().collect_diff()

    def get_worktree(self) -> "AgentWorktree":
        """Return the worktree. Raise OdinError for an agent that works in the project."""
        if self.worktree is None:
            raise OdinError("This agent works in the project itself and has no worktree.")
        return self.worktree


class AgentWorkspaces:
    """The workspaces of one session. `main` is the project, where agents work unless they are isolated.

    `log` is the path of the session's log; `by_agent` says where the sub-agents work that are alive.
    """

    def __init__(
        self,
        config: Config,
        environment: ExecutionEnvironment,
        log: Path,
        runner: ProcessRunner,
        sandbox: LazySandbox,
        get_git: "Callable[[], Git]",
        watchdog: Watchdog,
        roots: tuple[Root, ...] = (),
    ) -> None:
        self._roots = roots
        self.by_agent: dict[str, AgentWorkspace] = {}
        self.main = AgentWorkspace(config.root, environment, runner, sandbox)
        self._config = config
        self._environment = environment
        self._folder = log.parent
        self._get_git = get_git
        self._watchdog = watchdog
        self._worktrees: AgentWorktrees | None = None
        self._workspaces: list[AgentWorkspace] = []

    def set_roots(self, roots: tuple[Root, ...]) -> None:
        """Let the commands of all agents work in these folders besides the project."""
        self._roots = roots
        for workspace in (self.main, *self._workspaces):
            workspace.sandbox.set_roots(self._limit_roots(workspace.root))

    def find_other(self, path: str) -> AgentWorkspace | None:
        """Return a workspace for the folder besides the project that a path lies in, in which its language servers run;
        None unless the user trusts that folder and it may be changed."""
        roots = (root for root in self._roots if root.trusted and root.is_writable and contains(root.path, path))
        root = next(roots, None)
        if root is None:
            return None
        known = next((other for other in self._workspaces if other.root == root.path), None)
        if known is None:
            environment = replace(self._environment, cwd=root.path)
            runner, sandbox = self._make_runner(root.path, environment)
            known = AgentWorkspace(root.path, environment, runner, sandbox)
            self._workspaces.append(known)
        return known

    def _limit_roots(self, root: str) -> tuple[Root, ...]:
        """Return the folders besides the project for agents that work in `root`: in a worktree they are read-only."""
        if root == self._config.root:
            return self._roots
        return tuple(replace(other, access="read") for other in self._roots if other.path != root)

    def find_folders(self, agent: str) -> tuple[str, str] | None:
        """Return the working directory and the root of a live sub-agent; None if it is not alive."""
        workspace = self.by_agent.get(agent)
        return None if workspace is None else (workspace.cwd, workspace.root)

    async def create_worktree(self, agent: str) -> AgentWorkspace:
        """Create a worktree for an agent. Raise UsageError if the project cannot have one."""
        return self._make_workspace(await self._load_worktrees().create(self.get_name(agent)))

    def get_name(self, agent: str) -> str:
        """Return the name of the worktree of an agent of this session."""
        name = re.sub(r"[^A-Za-z0-9._-]|\.(?=\.|$)", "-", f"{self._folder.name}-{agent}")
        return name.lstrip("-._")[-_MAX_NAME:].lstrip("-._")

    async def reopen(self, name: str) -> AgentWorkspace:
        """Return the workspace of an agent that had this worktree. Raise UsageError if it was removed."""
        known = next(
            (workspace for workspace in self._workspaces if workspace.worktree and workspace.worktree.name == name),
            None,
        )
        return known or self._make_workspace(await self._load_worktrees().open(name))

    def apply_definition(self, workspace: AgentWorkspace, definition: "AgentDefinition") -> AgentWorkspace:
        """Return the workspace with the working directory and the virtual environment of a type of sub-agent.

        A folder or an environment that the project does not have is left out; `odin agents` reports it.
        """
        from odin.context.agent_definition import find_in_project

        cwd = find_in_project(workspace.root, definition.cwd) if definition.cwd else ""
        adapted = _move(workspace, cwd) if cwd and os.path.isdir(cwd) else workspace  # noqa: PTH112
        programs = find_in_project(self._config.root, f"{definition.venv}/bin") if definition.venv else ""
        return self._activate(adapted, programs, workspace) if programs else adapted

    def _activate(self, adapted: AgentWorkspace, programs: str, workspace: AgentWorkspace) -> AgentWorkspace:
        """Return the workspace with commands that find the programs of a virtual environment first.

        Agents in the project that have the same environment share what runs their commands.
        """
        known = next((other for other in self._workspaces if other.programs == programs and not other.worktree), None)
        if known is not None and workspace.worktree is None:
            return _move(known, adapted.cwd)
        env = {name: value for name, value in adapted.environment.variables.items() if name != "PYTHONHOME"}
        env["PATH"] = os.pathsep.join(filter(None, (programs, env.get("PATH", ""))))
        env["VIRTUAL_ENV"] = os.path.dirname(programs)  # noqa: PTH120
        environment = replace(adapted.environment, variables=MappingProxyType(env))
        runner, sandbox = self._make_runner(workspace.root, environment)
        adapted = replace(adapted, environment=environment, runner=runner, sandbox=sandbox, programs=programs)
        self._workspaces = [*(other for other in self._workspaces if other is not workspace), adapted]
        return adapted

    async def apply(
        self, workspace: AgentWorkspace, store: "CheckpointStore", paths: Collection[str], tree: str = ""
    ) -> "AppliedWork":
        """Merge the agent's changes of these files of the project. The caller saves and records them.

        `tree` is what was shown of the worktree (`WorktreeDiff.tree`), "": the worktree as it is now.
        """
        from odin.checkpoints.rewind import RestoreOutcome, RestorePlan, write_planned_files
        from odin.core.timing import run_in_thread

        async def write(plan: RestorePlan) -> RestoreOutcome:
            return await run_in_thread(lambda stopped: write_planned_files(plan, store))

        late = "it was changed after the work was reported"
        return await workspace.get_worktree().apply(write, store, lambda path: "" if path in paths else late, tree)

    async def end(self, workspace: AgentWorkspace) -> "WorktreeEnd":
        """End the processes in a worktree. Remove it if the project has all of its work; otherwise keep it."""
        tree = workspace.get_worktree()
        await workspace.runner.close()
        await workspace.sandbox.close()
        if workspace in self._workspaces:
            self._workspaces.remove(workspace)
        return await tree.finish()

    async def close(self) -> None:
        """End the processes in all worktrees. The worktrees stay."""
        for workspace in self._workspaces:
            await workspace.runner.close()
            await workspace.sandbox.close()

    def _load_worktrees(self) -> "AgentWorktrees":
        if self._worktrees is None:
            from odin.app.agent_worktree import AgentWorktrees
            from odin.app.worktrees import Worktrees

            trees = Worktrees(self._get_git(), self._config, self._environment)
            self._worktrees = AgentWorktrees(trees, self._environment.cwd)
        return self._worktrees

    def _make_workspace(self, tree: "AgentWorktree") -> AgentWorkspace:
        environment = replace(self._environment, cwd=tree.cwd)
        runner, sandbox = self._make_runner(tree.root, environment)
        workspace = AgentWorkspace(tree.root, environment, runner, sandbox, tree)
        self._workspaces.append(workspace)
        return workspace

    def _make_runner(self, root: str, environment: ExecutionEnvironment) -> tuple[ProcessRunner, LazySandbox]:
        """Return what runs the commands of one agent, in a sandbox for this folder."""
        config = replace(self._config, root=root)
        sandbox = LazySandbox(config, environment, visible=(str(self._folder),), roots=self._limit_roots(root))
        runner = ProcessRunner(
            environment,
            self._folder / "outputs",
            env_passthrough=config.env_passthrough,
            sandbox=sandbox.get,
            watchdog=self._watchdog,
        )
        return runner, sandbox


def _move(workspace: AgentWorkspace, cwd: str) -> AgentWorkspace:
    return replace(workspace, environment=replace(workspace.environment, cwd=cwd))
