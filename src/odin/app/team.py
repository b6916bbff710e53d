"""Makes the sub-agents of a session: their services, tools, prompts and models, from their types."""

import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from odin.app.agent_workspaces import AgentWorkspace
from odin.app.agents import AgentRuntime
from odin.app.roles import make_limits, make_pool_limit
from odin.app.session_parts import SessionParts
from odin.core.event import ContextAdded, TurnEnded, Warned
from odin.core.format import pluralize
from odin.core.team import AgentSpec, DelegationLimits, TaskRecord, TeamLimits
from odin.core.text import to_valid_unicode
from odin.core.tool import Tool
from odin.core.write_scope import WriteScope
from odin.engine.agent import Agent, AgentDeps
from odin.engine.delegation import DelegationService
from odin.engine.job_notifier import JobNotifier
from odin.engine.team import Team
from odin.models.selection import ModelSelector
from odin.policy.write_scope import parse_write_scope
from odin.tools.agent import DEFAULT_TYPE
from odin.tools.artifacts import ArtifactFolder
from odin.tools.delegation import (
    ApplyTool,
    CancelTool,
    CompleteTool,
    DelegateTool,
    EscalateTool,
    NotifyTool,
    ReportTool,
)

if TYPE_CHECKING:
    from odin.context.agent_definition import AgentDefinition

_BUILTIN_TYPES = "explore, general."

_GIT_HEADER = re.compile(r"^diff --git .*\n(?:(?:new|deleted) file mode 100644\n)?index .*\n(?=--- )", re.MULTILINE)
"""What git writes above the diff of an ordinary file. What says more, such as a rename or a mode, is shown."""


class TeamFactory:
    """Makes the team of a session and its sub-agents. It also answers questions about agent types."""

    def __init__(self, parts: SessionParts, job_notifier: JobNotifier, runtimes: dict[str, AgentRuntime]) -> None:
        core = parts.core
        settings = core.config.team
        idle_s = 0.0 if core.options.headless else settings.idle_s
        limits = TeamLimits(settings.max_running, settings.max_children, settings.max_depth, idle_s)
        self.team = Team(core.recorder, self, job_notifier, self._save_artifact, limits)
        self.runtimes = runtimes
        self._parts = parts
        self._recorder = core.recorder
        self._roles = parts.extensions.roles
        self._root = core.config.root
        self._shown_trees: dict[str, str] = {}
        """By task: the git tree of its worktree that its report or the last permission request showed."""

    # --- types of sub-agents ---

    def describe_types(self) -> str:
        """Return the names of the built-in types, or what every type is for if there are others; "" without types."""
        if not self._roles.has_own_agents:
            return _BUILTIN_TYPES
        described = self._roles.load_agents().describe_types()
        return f"\n{described}" if described else ""

    def check_type(self, name: str) -> str:
        return self._roles.load_agents().find_type(name or DEFAULT_TYPE).name

    def get_write_scope(self, name: str) -> WriteScope:
        """Return what agents of this type may change. Raise UsageError if the type's own scope is invalid."""
        definition = self._roles.load_agents().find_type(name or DEFAULT_TYPE)
        return parse_write_scope(self._root, path_prefixes=definition.write_scope)

    def get_isolation(self, name: str) -> str:
        isolation = self._roles.load_agents().find_type(name).isolation
        return "" if isolation == "none" else isolation

    def get_delegation_limits(self, agent: str) -> DelegationLimits:
        """Return the session's limits with those that the type of a sub-agent, or the role of main, changes."""
        if not agent:
            return self._limit_delegation(self._roles.definition)
        kind = self.team.get_type(agent) or DEFAULT_TYPE
        return self._limit_delegation(self._roles.load_agents().find_type(kind))

    def _limit_delegation(self, definition: "AgentDefinition | None") -> DelegationLimits:
        limits = self.team.limits
        session = DelegationLimits(limits.children, limits.depth)
        return session if definition is None else replace(session, **definition.delegation)

    # --- sub-agents ---

    async def make_agent(self, spec: AgentSpec, on_idle: Callable[[TurnEnded], None]) -> Agent:
        parts, config = self._parts, self._parts.core.config
        definition = self._roles.load_agents().find_type(spec.type or DEFAULT_TYPE)
        models = await self._choose_model(spec.name, definition)
        owns = spec.depth < self._limit_delegation(definition).max_depth
        tools = self.make_tools(spec.name, owns=owns) if spec.task_id else ()
        scope = spec.scope.restrict_to(self.get_write_scope(spec.type))
        workspaces = parts.work.workspaces
        workspace = workspaces.apply_definition(await self._open_folder(spec), definition)
        runtime = AgentRuntime(
            parts, spec.name, *tools, scope=scope, workspace=workspace, definition=definition, models=models
        )
        runtime.limits = make_limits(definition, "sub-agent type")
        if definition.max_turns:
            runtime.turn_limits = replace(parts.answering.limits, max_turns=definition.max_turns)
        self.runtimes[spec.name] = runtime
        workspaces.by_agent[spec.name] = workspace
        parts.answering.compaction.set_template(spec.name, runtime.get_template)
        return Agent(
            AgentDeps(
                self._recorder,
                runtime.make_deps,
                workspace.environment,
                workspace.root,
                runtime.attachments,
                self.team.router,
            ),
            spec.name,
            delivery=config.queue.delivery,
            one_at_a_time=config.queue.steering == "one-at-a-time",
            mode_for=lambda mode: definition.restrict_mode(self._roles.restrict_mode(mode)),
            on_idle=on_idle,
            on_steered=lambda: parts.permissions.interactions.cancel_for_agent(spec.name),
            mode=spec.mode,
        )

    async def release(self, name: str) -> None:
        """Release what was made for an agent that has ended."""
        work = self._parts.work
        self.runtimes.pop(name, None)
        self._parts.answering.compaction.remove(name)
        workspace = work.workspaces.by_agent.pop(name, None)
        if workspace is not None and workspace.worktree is not None:
            end = await work.workspaces.end(workspace)
            if not end.is_removed:
                files = pluralize(end.unapplied, "file")
                self._recorder.emit(Warned(f"Its worktree is kept, with {files} to apply: {end.path}", "info"), name)

    async def _open_folder(self, spec: AgentSpec) -> AgentWorkspace:
        """Return where an agent works: the project, a new worktree, or the worktree of the task it continues."""
        workspaces = self._parts.work.workspaces
        if spec.isolation != "worktree":
            return workspaces.main
        task = self._recorder.state.board.tasks.get(spec.task_id)
        if task is not None and task.agents:
            return await workspaces.reopen(workspaces.get_name(task.agents[0]))
        return await workspaces.create_worktree(spec.name)

    async def report_work(self, task: TaskRecord) -> tuple[str, tuple[str, ...]]:
        from odin.checkpoints.file_state import encode_path

        workspace = self._parts.work.workspaces.by_agent.get(task.agent)
        if workspace is None or workspace.worktree is None:
            return "", ()
        diff = await workspace.collect_diff()
        self._shown_trees[task.id] = diff.tree
        if not diff.files:
            return "Its worktree has no changes.", ()
        name = self._save_artifact(f"tasks/{task.id}.diff", diff.text)
        text = f"Its worktree: {diff.describe()}. The diff is the artifact {name}. Apply merges it into the project."
        paths = map(workspace.get_worktree().locate, diff.files)
        return text, tuple(encode_path(os.path.relpath(path, self._root)) for path in paths)

    def list_work(self, task: TaskRecord) -> tuple[str, ...]:
        from odin.checkpoints.file_state import decode_path

        names = task.completion.files_changed if task.completion is not None else ()
        return tuple(os.path.normpath(f"{self._root}/{decode_path(name)}") for name in names)

    async def preview_work(self, task: TaskRecord) -> str:
        from odin.tools.change_preview import preview_diff

        async def collect() -> str:
            diff = await (await self._reopen(task)).collect_diff()
            self._shown_trees[task.id] = diff.tree
            return _GIT_HEADER.sub("", diff.text)

        return await preview_diff(collect())

    async def apply_work(self, task: TaskRecord) -> str:
        work, workspace = self._parts.work, await self._reopen(task)
        workspaces, store = work.workspaces, work.checkpoints.store
        done = await workspaces.apply(workspace, store, self.list_work(task), self._shown_trees.get(task.id, ""))
        end = await workspaces.end(workspace)
        return f"{done.describe()}\n{end.describe()}"

    async def _reopen(self, task: TaskRecord) -> AgentWorkspace:
        workspaces = self._parts.work.workspaces
        return await workspaces.reopen(workspaces.get_name(task.agents[0]))

    def get_model(self, agent: str) -> str:
        return self.runtimes[agent].models.ref

    def get_color(self, name: str) -> str:
        return self._roles.load_agents().find_type(name or DEFAULT_TYPE).color

    def get_idle_time(self, name: str) -> float | None:
        """Return the seconds until an agent of this type is reminded, or None for the session's setting."""
        idle_s = self._roles.load_agents().find_type(name or DEFAULT_TYPE).idle_s
        return idle_s if idle_s and not self._parts.core.options.headless else None

    def make_delegation(self, agent: str) -> DelegationService:
        return DelegationService(self.team, self._recorder, agent, self, self._root)

    def make_tools(self, agent: str, *, owns: bool = True) -> tuple[Tool[Any], ...]:
        """Return the delegation tools of one agent. With `owns` it may delegate."""
        delegation = self.make_delegation(agent)
        as_owner = (
            (DelegateTool(delegation), NotifyTool(delegation), CancelTool(delegation), ApplyTool(delegation))
            if owns
            else ()
        )
        return (
            (*as_owner, ReportTool(delegation), CompleteTool(delegation), EscalateTool(delegation))
            if agent
            else as_owner
        )

    async def _choose_model(self, agent: str, definition: "AgentDefinition") -> ModelSelector:
        """Return the model of an agent: the one or the pool that its type names, else that of the main agent.

        It fails over by itself.
        """
        main = self._parts.answering.models
        models = main.make_follower()
        models.emit = lambda event: self._recorder.emit(event, agent)
        models.limit = make_pool_limit(definition, "sub-agent type")
        name = main.find_named(definition.model)
        if name or not models.is_permitted:
            await models.choose(name)
        return models

    def add_context(self, item: ContextAdded, agent: str) -> None:
        """Give the output of a user's command to the agent it was for, or to the main agent if that agent has ended."""
        live = {member.name for member in self.team.list_agents()}
        self.team.get(agent if agent in live else "").add_context(item)

    def _save_artifact(self, name: str, text: str) -> str:
        ArtifactFolder(self._parts.core.folder).save(name, to_valid_unicode(text).encode())
        return name
