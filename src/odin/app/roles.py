"""Agent definitions of a session (built-in, user's, the trusted project's, `--agents`), and the role of the main agent.

Without agent files the default role changes nothing, and no definitions are loaded. A role that has its own model uses
it; the other roles share the model of the session. A model that the user chooses belongs to the role that is active.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from odin.app.workspace import Workspace, list_agent_folders, list_markdown_folders, list_project_agent_folders
from odin.config import Config
from odin.config.layers import TRUST_HINT
from odin.config.trust import AGENT_SUFFIXES
from odin.core.client import AgentSummary
from odin.core.environment import ExecutionEnvironment
from odin.core.errors import OdinError, UsageError
from odin.core.event import Envelope, ModelChanged, RoleChanged, SessionOpened
from odin.core.event_values import DEFAULT_ROLE, Mode
from odin.core.policy import RuleLine
from odin.models.selection import ModelSelector, PoolLimit
from odin.policy.rules.rule import Rule, RuleSet
from odin.policy.rules.rule_file import RuleReader

if TYPE_CHECKING:
    from odin.context.agent_definition import AgentCatalog, AgentDefinition
    from odin.policy.policy import AgentLimits, Policy


def load_agents(
    config: Config, environment: ExecutionEnvironment, given: str = "", known_tools: Collection[str] = ()
) -> "AgentCatalog":
    """Return the catalog. Files are read only if one of the folders exists. `given` is the JSON of `--agents`."""
    from odin.context.agent_definition import AgentCatalog

    folders = list_agent_folders(config, environment)
    if not folders and not given and not _has_plugin_agents(config):
        return AgentCatalog()
    from odin.context.agent_files import AgentFolder, load_agent_catalog

    plugins = [
        AgentFolder(folder, "plugin", plugin.folder, only)
        for plugin in reversed(config.plugins)
        for folder, only in list_markdown_folders(plugin.agents, plugin.folder)
    ]
    found: dict[str, AgentFolder] = {}
    for folder in folders:
        is_project = folder in list_project_agent_folders(config.root)
        place = AgentFolder(folder, "project", config.root) if is_project else AgentFolder(folder, "user")
        found.setdefault(os.path.realpath(folder), place)
    return load_agent_catalog(
        (*plugins, *found.values()),
        given=given,
        known_tools=known_tools,
        known_pools=config.model_pools,
        check_rules=find_rule_problems,
    )


def _has_plugin_agents(config: Config) -> bool:
    return any(plugin.agents for plugin in config.plugins)


def list_project_files(root: str) -> list[str]:
    """Return the agent files of a project, relative to it. They are used only if the project is trusted."""
    return [
        str(path.relative_to(root))
        for folder in filter(os.path.isdir, list_project_agent_folders(root))
        for path in sorted(Path(folder).glob("**/*"))
        if path.suffix in AGENT_SUFFIXES
    ]


def describe_unused_files(config: Config) -> str:
    """Return that the agent files of an untrusted project are not used, or "" if there are none."""
    count = 0 if config.trust.trusted else len(list_project_files(config.root))
    if not count:
        return ""
    files = "The agent file" if count == 1 else f"The {count} agent files"
    return f"{files} of {config.root} cannot be used: this folder is not trusted. {TRUST_HINT}"


def find_rule_problems(rules: Any) -> list[tuple[str, str]]:
    return RuleReader("session", "", only_restrict=True).read(rules).problems


def make_rules(definition: "AgentDefinition") -> list[Rule]:
    """Return the permission rules of an agent. Invalid entries were reported when its file was read."""
    reader = RuleReader("session", definition.path or definition.source, only_restrict=True)
    return reader.read(definition.rules or []).rules


def make_limits(definition: "AgentDefinition", kind: str) -> "AgentLimits":
    """Return what a definition permits less than the session. `kind` is `role` or `sub-agent type`."""
    from odin.policy.policy import AgentLimits

    return AgentLimits(
        f"The {kind} {definition.name}",
        RuleSet(make_rules(definition)),
        definition.has_tool,
        definition.permission_mode,
        definition.read_only,
    )


def find_earlier_role(past: Sequence[Envelope]) -> str:
    """Return the role at the end of an earlier run."""
    for envelope in reversed(past):
        if isinstance(envelope.event, RoleChanged | SessionOpened):
            return envelope.event.role or DEFAULT_ROLE
    return DEFAULT_ROLE


class SessionRoles:
    """The agent definitions of a session and the active role. `given` is the JSON of `--agents`.

    `definition` is None while the default role changes nothing. `warning` says why an earlier role or the model of a
    role is not used.
    """

    def __init__(
        self, workspace: Workspace, models: ModelSelector, given: str = "", known_tools: Collection[str] = ()
    ) -> None:
        self.definition: AgentDefinition | None = None
        self.warning = ""
        self._workspace = workspace
        self._models = models
        self._given = given
        self._known_tools = known_tools
        self._catalog: AgentCatalog | None = None
        self._session_model = workspace.config.model
        self._session_ref = ""
        """The model of the session; `_session_model` is that or the pool it was picked in."""
        self._own_models: dict[str, str] = {}
        self._limits: AgentLimits | None = None
        self._restricted: tuple[Policy, Policy] | None = None

    # --- definitions ---

    @cached_property
    def has_own_agents(self) -> bool:
        """True if there may be other definitions than the built-in ones. Decided once, as their files are read once."""
        config, environment = self._workspace.config, self._workspace.environment
        return bool(self._given or list_agent_folders(config, environment) or _has_plugin_agents(config))

    def load_agents(self) -> "AgentCatalog":
        """Return the roles and the types of sub-agents. Their files are read once."""
        if self._catalog is None:
            workspace = self._workspace
            self._catalog = load_agents(workspace.config, workspace.environment, self._given, self._known_tools)
        return self._catalog

    def list_agents(self) -> tuple[AgentSummary, ...]:
        return tuple(
            AgentSummary(item.name, item.use, item.description, item.model, item.path or item.source, item.color)
            for item in self.load_agents().list_all()
        )

    def define_agents(self, agents: Mapping[str, Any]) -> tuple[str, ...]:
        """Add definitions for this run and return the mistakes in them. The active role stays if it still exists."""
        before = msgspec.json.decode(self._given.encode(), type=dict[str, Any]) if self._given else {}
        self._given = msgspec.json.encode({**before, **agents}).decode()
        self._catalog, self.has_own_agents = None, True
        catalog = self.load_agents()
        if any(item.name == self.name and item.is_role for item in catalog.list_all()):
            self._activate(catalog.find_role(self.name))
        return tuple(item.describe() for item in catalog.problems if item.path.startswith("--agents"))

    # --- the active role ---

    @property
    def name(self) -> str:
        return DEFAULT_ROLE if self.definition is None else self.definition.name

    @property
    def only_plans(self) -> bool:
        """True if the role hands its plans to others: it names the tool for that."""
        return self.definition is not None and _is_planning_only(self.definition)

    def list_executors(self) -> tuple[str, ...]:
        """Return the names of the roles that can carry out a plan, the default one first."""
        return tuple(item.name for item in self.load_agents().list_roles() if not _is_planning_only(item))

    async def open(self, past: Sequence[Envelope], given: str, *, keep_model: bool) -> None:
        """Begin with the role that this run names (`given`), else with that of the earlier run.

        Raise UsageError if the named one is unknown. With `keep_model` the user chose the model in use.
        """
        earlier = find_earlier_role(past)
        if not given and earlier == DEFAULT_ROLE and not self.has_own_agents:
            return
        try:
            definition = self.load_agents().find_role(given or earlier)
        except UsageError:
            if given:
                raise
            self.warning = f"The role {earlier} no longer exists. The role is now {DEFAULT_ROLE}."
            definition = self.load_agents().find_role(DEFAULT_ROLE)
        self._activate(definition)
        if not keep_model or not self._models.is_permitted:
            self._session_model, self._session_ref = self._models.choice, self._models.selected
            await self._use_model(definition)

    async def switch(self, name: str) -> tuple[str, ModelChanged | None]:
        """Switch to a role. Return its name and its model, None if that stays; ("", None) if it is active already.

        Raise UsageError for an unknown role. If its model cannot be used, `warning` says so and the model stays, or, if
        the role may not use that one, the role stays and UsageError is raised.
        """
        definition = self.load_agents().find_role(name)
        if definition.name == self.name:
            return "", None
        before = self._models.choice, self._models.selected
        if self.definition is not None and _has_own_model(self.definition):
            self._own_models[self.name] = self._models.choice
        else:
            self._session_model, self._session_ref = before
        earlier = self.name
        self._activate(definition)
        self.warning = ""
        try:
            await self._use_model(definition)
        except UsageError:
            self._activate(self.load_agents().find_role(earlier))
            raise
        if (self._models.choice, self._models.selected) == before:
            return definition.name, None
        return definition.name, ModelChanged(self._models.selected, pool=self._models.selection.pool)

    def list_rules(self) -> tuple[RuleLine, ...]:
        """Return the rules of the role for display."""
        rules = make_rules(self.definition) if self.definition is not None else ()
        return tuple(RuleLine(0, rule.layer, rule.action, rule.text, rule.source, self.name) for rule in rules)

    def restrict_mode(self, mode: Mode) -> Mode:
        """Return the mode that the role permits."""
        return mode if self.definition is None else self.definition.restrict_mode(mode)

    def restrict(self, policy: "Policy") -> "Policy":
        """Return the policy with the limits of the role."""
        if self._limits is None:
            return policy
        if self._restricted is None or self._restricted[0] is not policy:
            self._restricted = policy, policy.restrict(self._limits)
        return self._restricted[1]

    def _activate(self, definition: "AgentDefinition") -> None:
        is_plain = definition.name == DEFAULT_ROLE and definition.source == "built-in"
        self.definition = None if is_plain else definition
        self._models.role = definition.name
        self._models.limit = make_pool_limit(definition, "role")
        self._limits = None if is_plain else make_limits(definition, "role")
        self._restricted = None

    async def _use_model(self, definition: "AgentDefinition") -> None:
        """Connect to the model of a role, or to the session's; in a pool, to the one picked last in this role.

        If that fails, `warning` says why.

        Raise UsageError if the role may not use the model in use instead.
        """
        wanted = self._session_model
        if _has_own_model(definition):
            wanted = self._own_models.get(definition.name) or self._models.find_named(definition.model)
            wanted = wanted or (self._models.choose_permitted(self._session_model) if definition.pools else "")
            if not wanted:
                return
        ref = self._models.find_pick(wanted) or ("" if _has_own_model(definition) else self._session_ref)
        is_same = wanted == self._models.choice and ref in ("", self._models.selected)
        if self._models.is_fixed or (is_same and self._models.is_permitted):
            return
        try:
            await self._models.choose(wanted)
            if ref != self._models.selected and ref in self._models.selection.candidates:
                await self._models.choose(ref)
        except OdinError as error:
            about = f"The model {wanted} of the role {definition.name} cannot be used: {error.describe()}"
            if not self._models.is_permitted:
                raise UsageError(about, f"The role may use no other model ({definition.path}).") from error
            self.warning = f"{about} Continuing with {self._models.selected}."


def make_pool_limit(definition: "AgentDefinition", kind: str) -> PoolLimit | None:
    """Return the model pools that a definition permits, None if it permits all. `kind` is as in `make_limits`."""
    if not definition.pools:
        return None
    return PoolLimit(f"The {kind} {definition.name}", definition.pools, definition.path or definition.source)


def _has_own_model(definition: "AgentDefinition") -> bool:
    return bool(definition.model or definition.pools)


def _is_planning_only(definition: "AgentDefinition") -> bool:
    return definition.tools is not None and definition.has_tool("Handoff")
