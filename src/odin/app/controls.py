"""Control of a session's settings, for its clients: models, agents, memory and servers."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from odin.app.agents import AgentRuntime
from odin.app.policy import read_stored_keys
from odin.app.session_parts import Extensions, SessionCore, SessionParts
from odin.app.workspace import explain_missing_servers
from odin.core.client import AgentSummary, AvailableModel, MemoryFile, ServerScope
from odin.core.errors import UsageError
from odin.core.event import EffortChanged, ModelChanged
from odin.core.event_values import Mode
from odin.core.op import ChangeMemory, ControlServers, LanguageServerAction
from odin.core.policy import ServerExchange
from odin.core.tool import Kind, Tool
from odin.models.selection import InitialModel
from odin.policy.modes import parse_mode

if TYPE_CHECKING:
    from odin.engine.loop_mode import LoopMode


class SessionModels:
    """The models of the agents. `initial` says how the model of the main agent was chosen."""

    def __init__(self, parts: SessionParts, runtimes: Mapping[str, AgentRuntime], initial: InitialModel) -> None:
        self.initial = initial
        self._parts = parts
        self._runtimes = runtimes

    async def list_models(self, servers: ServerScope = "none") -> tuple[AvailableModel, ...]:
        models = self._parts.answering.models
        return await models.connector.list_available(servers, models.info)

    async def set_model(self, name: str, *, check: bool, agent: str = "") -> ModelChanged:
        """Select a model or a pool for an agent; without a name the usual one."""
        core, models = self._parts.core, self._runtimes[agent].models
        self._parts.permissions.redact.add_secrets(read_stored_keys(core.environment.variables))
        note = await models.connector.check_name(name) if check and name not in core.config.model_pools else ""
        await (models.choose(name) if name else models.choose_usual())
        models.notice = note or models.notice
        if not agent:
            self.initial = InitialModel(chosen=bool(name))
            models.remember()
        return ModelChanged(models.selected, pool=models.selection.pool)

    def set_effort(self, effort: str, agent: str = "") -> EffortChanged:
        return self._runtimes[agent].models.set_effort(effort)


class SessionAgents:
    """Prompts, tools, roles and skills of the agents."""

    def __init__(self, parts: SessionParts, runtimes: Mapping[str, AgentRuntime]) -> None:
        self._core = parts.core
        self._templates = parts.answering.templates
        self._roles = parts.extensions.roles
        self._skills = parts.extensions.skills
        self._runtimes = runtimes

    def get_default_mode(self) -> Mode:
        return self._roles.restrict_mode(parse_mode(self._core.config.mode))

    def set_system_prompt(self, text: str | None, agent: str = "") -> None:
        self._runtimes[agent].system_prompt = text

    def set_tools(self, names: Collection[str] | None, agent: str = "") -> tuple[str, ...] | None:
        return self._runtimes[agent].offer_only(names)

    def add_tools(self, tools: Sequence[Tool[Any]], agent: str = "") -> None:
        self._runtimes[agent].add_tools(tools)

    async def set_role(self, name: str) -> tuple[str, ModelChanged | None]:
        changed = await self._roles.switch(name)
        if self._roles.warning:
            self._core.warn(self._roles.warning)
        return changed

    def define_agents(self, agents: dict[str, Any]) -> tuple[str, ...]:
        return self._roles.define_agents(agents)

    def list_agents(self) -> tuple[AgentSummary, ...]:
        return self._roles.list_agents()

    def set_skills(self, names: Collection[str] | None) -> tuple[str, ...]:
        self._templates.forget()
        return tuple(names or ()) if self._skills is None else self._skills.offer_only(names)

    def make_loop_mode(self, agent: str) -> "LoopMode":
        from odin.engine.loop_mode import DoneTool, LoopMode

        registry = self._runtimes[agent].registry

        def get_kind(name: str) -> Kind | None:
            tool = registry.get(name)
            return None if tool is None else tool.kind

        loop = LoopMode(self._core.recorder, get_kind, agent, limit=self._core.config.loop.max_iterations)
        registry.register(DoneTool(loop))
        return loop


class UserMemory:
    """Memory as the user changes and reads it. The model learns of changes with the next prompt."""

    def __init__(self, core: SessionCore, extensions: Extensions) -> None:
        self._settings = core.config.memory
        self._memory = extensions.memory

    async def change(self, op: ChangeMemory) -> str:
        if self._settings.mode == "off":
            raise UsageError("Memory is off.", 'Set "memory": {"mode": "auto"} in odinconfig.json to use it.')
        memory = self._memory.open()
        if op.remove:
            return await asyncio.to_thread(partial(memory.replace, op.scope, op.text, "", told=False))
        return await asyncio.to_thread(partial(memory.add, op.scope, op.text, daily=op.daily, told=False))

    async def read(self) -> tuple[MemoryFile, ...]:
        memory = self._memory.current or self._memory.make()
        return await asyncio.to_thread(memory.list_files)


class ServerSwitches:
    """The MCP servers and language servers of a session, as the user controls them."""

    def __init__(self, parts: SessionParts) -> None:
        self._config = parts.core.config
        self._servers = parts.extensions.servers
        self._language_servers = parts.extensions.language_servers
        self._project = parts.work.workspaces.main

    def add_server(self, name: str, exchange: ServerExchange) -> None:
        if self._servers.current is not None:
            self._servers.current.add_exchange(name, exchange)

    async def control(self, op: ControlServers) -> tuple[str, ...]:
        if self._servers.current is None:
            raise UsageError("No MCP server is configured.", "Add one with `odin mcp add NAME COMMAND`.")
        return await self._servers.current.control(op)

    def switch_language_server(self, name: str, action: LanguageServerAction) -> bool:
        if self._language_servers is None:
            raise UsageError(explain_missing_servers(self._config))
        return self._language_servers.switch(name, action, self._project)
