"""Makes the sub-agents of a session: their services, tools, prompts and models, from their types."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from odin.app.agent_places import AgentPlace
from odin.app.agents import AgentParts
from odin.app.roles import limits_of, pool_limit_of
from odin.core.event import ContextAdded, TurnEnded, Warned
from odin.core.team import AgentSpec, DelegationLimits, TaskRecord, TeamLimits
from odin.core.text import to_valid_unicode
from odin.core.tool import Tool
from odin.core.write_scope import WriteScope
from odin.engine.agent import Agent, AgentDeps
from odin.engine.delegation import TaskDesk
from odin.engine.team import Team
from odin.models.selection import ModelSelector
from odin.policy.write_scope import parse_write_scope
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
    from odin.app.compose import SessionComposition
    from odin.context.agent_definition import AgentDefinition

DEFAULT_TYPE = "general"

_BUILTIN_TYPES = "explore, general."


class TeamFactory:
    """Makes the team of a session and its sub-agents. It also answers questions about agent types."""

    def __init__(self, composition: "SessionComposition") -> None:
        self._composition = composition
        self._root = composition.config.root
        self._places: dict[str, AgentPlace] = {}
        self._parts: dict[str, AgentParts] = {}
        self._shown_trees: dict[str, str] = {}
        """By task: the git tree of its worktree that its report or the last permission request showed."""

    def make_team(self) -> Team:
        composition = self._composition
        settings = composition.config.team
        idle_s = 0.0 if composition.options.headless else settings.idle_s
        limits = TeamLimits(settings.max_running, settings.max_children, settings.max_depth, idle_s)
        return Team(composition.recorder, self, composition.job_notifier, self._save_artifact, limits)

    # --- types of sub-agents ---

    def describe_types(self) -> str:
        """Return the names of the built-in types, or what every type is for if there are others; "" without types."""
        composition = self._composition
        if not composition.roles.has_own_agents:
            return _BUILTIN_TYPES
        described = composition.load_agents().describe_types()
        return f"\n{described}" if described else ""

    def check_type(self, name: str) -> str:
        return self._composition.load_agents().find_type(name or DEFAULT_TYPE).name

    def write_scope_of(self, name: str) -> WriteScope:
        """Return what agents of this type may change. Raise UsageError if the type's own scope is invalid."""
        definition = self._composition.load_agents().find_type(name or DEFAULT_TYPE)
        return parse_write_scope(self._root, path_prefixes=definition.write_scope)

    def isolation_of(self, name: str) -> str:
        isolation = self._composition.load_agents().find_type(name).isolation
        return "" if isolation == "none" else isolation

    def delegation_limits_of(self, agent: str) -> DelegationLimits:
        """Return the session's limits with those that the type of a sub-agent, or the role of main, changes."""
        composition = self._composition
        if not agent:
            return self._limit_delegation(composition.roles.definition)
        kind = composition.team.type_of(agent) or DEFAULT_TYPE
        return self._limit_delegation(composition.load_agents().find_type(kind))

    def _limit_delegation(self, definition: "AgentDefinition | None") -> DelegationLimits:
        limits = self._composition.team.limits
        session = DelegationLimits(limits.children, limits.depth)
        return session if definition is None else replace(session, **definition.delegation)

    # --- sub-agents ---

    async def make_agent(self, spec: AgentSpec, on_idle: Callable[[TurnEnded], None]) -> Agent:
        composition = self._composition
        definition = composition.load_agents().find_type(spec.type or DEFAULT_TYPE)
        models = await self._choose_model(spec.name, definition)
        owns = spec.depth < self._limit_delegation(definition).max_depth
        tools = self.make_tools(spec.name, owns=owns) if spec.task_id else ()
        scope = spec.scope.restrict_to(self.write_scope_of(spec.type))
        place = await self._open_place(spec, definition)
        parts = AgentParts(
            composition, spec.name, *tools, scope=scope, place=place, definition=definition, models=models
        )
        parts.limits = limits_of(definition, "sub-agent type")
        if definition.max_turns:
            parts.turn_limits = replace(composition.limits, max_turns=definition.max_turns)
        self._parts[spec.name] = parts
        composition.compaction.set_template(spec.name, parts.get_template)
        return Agent(
            AgentDeps(
                composition.recorder,
                parts.make_deps,
                place.environment,
                place.root,
                parts.make_attachments(),
                composition.team.post,
            ),
            spec.name,
            delivery=composition.config.queue.delivery,
            one_at_a_time=composition.config.queue.steering == "one-at-a-time",
            mode_for=lambda mode: definition.restrict_mode(composition.restrict_mode(mode)),
            on_idle=on_idle,
            on_steered=lambda: composition.approvals.cancel_for_agent(spec.name),
            mode=spec.mode,
        )

    async def release(self, name: str) -> None:
        """Release what was made for an agent that has ended."""
        self._parts.pop(name, None)
        self._composition.compaction.remove(name)
        place = self._places.pop(name, None)
        if place is not None:
            end = await self._composition.places.end(place)
            if not end.is_removed:
                self._composition.recorder.emit(Warned(end.describe(), "info"))

    async def _open_place(self, spec: AgentSpec, definition: "AgentDefinition") -> AgentPlace:
        """Return where an agent works: the project, a new worktree, or the worktree of the task it continues."""
        places = self._composition.places
        place = places.apply_definition(await self._open_folder(spec), definition)
        if place.worktree is not None:
            self._places[spec.name] = place
        return place

    async def _open_folder(self, spec: AgentSpec) -> AgentPlace:
        places = self._composition.places
        if spec.isolation != "worktree":
            return places.main
        task = self._composition.recorder.state.board.tasks.get(spec.task_id)
        if task is not None and task.agents:
            return await places.reopen(places.name_of(task.agents[0]))
        return await places.isolate(spec.name)

    async def report_work(self, task: TaskRecord) -> tuple[str, tuple[str, ...]]:
        from odin.checkpoints.file_state import encode_path

        place = self._places.get(task.agent)
        if place is None:
            return "", ()
        diff = await place.collect()
        self._shown_trees[task.id] = diff.tree
        if not diff.files:
            return "Its worktree has no changes.", ()
        name = self._save_artifact(f"tasks/{task.id}.diff", diff.text)
        text = f"Its worktree: {diff.describe()}. The diff is the artifact {name}. Apply merges it into the project."
        paths = map(place.get_worktree().locate, diff.files)
        return text, tuple(encode_path(os.path.relpath(path, self._root)) for path in paths)

    def list_work(self, task: TaskRecord) -> tuple[str, ...]:
        from odin.checkpoints.file_state import decode_path

        names = task.completion.files_changed if task.completion is not None else ()
        return tuple(os.path.normpath(f"{self._root}/{decode_path(name)}") for name in names)

    async def preview_work(self, task: TaskRecord) -> str:
        from odin.tools.change_preview import preview_diff

        async def collect() -> str:
            diff = await (await self._reopen(task)).collect()
            self._shown_trees[task.id] = diff.tree
            return diff.text

        return await preview_diff(collect())

    async def apply_work(self, task: TaskRecord) -> str:
        places, place = self._composition.places, await self._reopen(task)
        done = await places.apply(place, self.list_work(task), self._shown_trees.get(task.id, ""))
        end = await places.end(place)
        return f"{done.describe()}\n{end.describe()}"

    async def _reopen(self, task: TaskRecord) -> AgentPlace:
        places = self._composition.places
        return await places.reopen(places.name_of(task.agents[0]))

    def models_of(self, agent: str) -> ModelSelector:
        return self._parts[agent].models if agent else self._composition.models

    def get_parts(self, agent: str) -> AgentParts:
        """Return the parts of a live sub-agent."""
        return self._parts[agent]

    def find_folders(self, agent: str) -> tuple[str, str] | None:
        """Return the working directory and the root of a live sub-agent that does not work where the session does."""
        parts = self._parts.get(agent)
        return None if parts is None else (parts.place.cwd, parts.place.root)

    def model_of(self, agent: str) -> str:
        return self._parts[agent].models.ref

    def color_of(self, name: str) -> str:
        return self._composition.load_agents().find_type(name or DEFAULT_TYPE).color

    def idle_time_of(self, name: str) -> float | None:
        """Return the seconds until an agent of this type is reminded, or None for the session's setting."""
        idle_s = self._composition.load_agents().find_type(name or DEFAULT_TYPE).idle_s
        return idle_s if idle_s and not self._composition.options.headless else None

    def make_tools(self, agent: str, *, owns: bool = True) -> tuple[Tool[Any], ...]:
        """Return the delegation tools of one agent. With `owns` it may delegate."""
        composition = self._composition
        desk = TaskDesk(composition.team, composition.recorder, agent, self, composition.config.root)
        as_owner = (DelegateTool(desk), NotifyTool(desk), CancelTool(desk), ApplyTool(desk)) if owns else ()
        return (*as_owner, ReportTool(desk), CompleteTool(desk), EscalateTool(desk)) if agent else as_owner

    async def _choose_model(self, agent: str, definition: "AgentDefinition") -> ModelSelector:
        """Return the model of an agent: the one or the pool that its type names, else that of the main agent.

        It fails over by itself.
        """
        composition = self._composition
        models = composition.models.make_follower()
        models.emit = lambda event: composition.recorder.emit(event, agent)
        models.limit = pool_limit_of(definition, "sub-agent type")
        name = composition.models.find_named(definition.model)
        if name or not models.is_permitted:
            await models.choose(name)
        return models

    def add_context(self, item: ContextAdded, agent: str) -> None:
        """Give the output of a user's command to the agent it was for, or to the main agent if that agent has ended."""
        team = self._composition.team
        live = {member.name for member in team.list_agents()}
        team.get(agent if agent in live else "").add_context(item)

    def _save_artifact(self, name: str, text: str) -> str:
        ArtifactFolder(self._composition.folder).save(name, to_valid_unicode(text).encode())
        return name
