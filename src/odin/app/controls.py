"""Control of a session's settings, for its clients: models, folders, agents, memory and servers."""

import asyncio
import os
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from odin.app.agents import AgentRuntime
from odin.app.policy import load_root_rules, read_stored_keys
from odin.app.session_parts import Extensions, SessionCore, SessionParts
from odin.app.workspace import explain_missing_servers
from odin.core.client import AgentSummary, AvailableModel, MemoryFile, ServerScope
from odin.core.errors import OdinError, UsageError
from odin.core.event import EffortChanged, ModelChanged, RootAdded, RootRemoved
from odin.core.event_values import Mode, Option, Question
from odin.core.op import ChangeMemory, ControlServers, LanguageServerAction
from odin.core.policy import ServerExchange
from odin.core.root import Root
from odin.core.text import join_some, to_valid_unicode
from odin.core.tool import Kind, Tool
from odin.engine.team import Team
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


_IGNORE = Option("Ignore them", "They can only deny calls.")
_TRUST = Option("Trust", "Its instructions and rules apply in this session. `odin trust add PATH` trusts it for good.")


class SessionRoots:
    """The folders besides the project. What works with them is told when they change, and so are the agents."""

    def __init__(self, parts: SessionParts, team: Team) -> None:
        self._parts = parts
        self._team = team
        self._lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def current(self) -> tuple[Root, ...]:
        return self._parts.permissions.policy.roots

    async def add(self, text: str) -> bool:
        from odin.config.roots import add_root, describe_untrusted, find_root

        core = self._parts.core
        root, variables = core.config.root, core.environment.variables
        async with self._lock:
            new = await asyncio.to_thread(find_root, text, core.environment.cwd, root, variables)
            known = next((root for root in self.current if root.path == new.path), None)
            new = replace(new, trusted=new.trusted or (known is not None and known.trusted))
            if new == known:
                return False
            await self._change(add_root(self.current, new))
            core.recorder.emit(RootAdded(replace(new, path=to_valid_unicode(new.path))))
        if not self._parts.permissions.interactions.can_ask:
            if left_out := await asyncio.to_thread(describe_untrusted, new):
                core.warn(left_out)
        elif not new.trusted:
            task = asyncio.create_task(self._ask_for_trust(new))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        may = "may be read and changed" if new.is_writable else "may be read, but not changed"
        self._tell(f"The user added the folder {new.path} to this session: its files {may}, by absolute paths.")
        return True

    async def remove(self, path: str) -> None:
        core = self._parts.core
        place = os.path.realpath(Path(core.environment.cwd, core.environment.expand_home(path)))
        async with self._lock:
            left = tuple(root for root in self.current if root.path != place)
            if len(left) == len(self.current):
                raise UsageError(f"{path} was not added to this session.", "/add-dir lists the folders that were.")
            await self._change(left)
            core.recorder.emit(RootRemoved(to_valid_unicode(place)))
        self._tell(f"The user removed the folder {place} from this session.")

    async def _ask_for_trust(self, root: Root) -> None:
        """Ask the user whether to trust a folder for this session, if it has files that count only then."""
        from odin.config.roots import list_own_files

        names = await asyncio.to_thread(list_own_files, root.path)
        if not names:
            return
        recorder, interactions = self._parts.core.recorder, self._parts.permissions.interactions
        text = f"{root.path} has files that count only if you trust it: {join_some(names, 5)}. Trust it?"
        question = Question("Trust", text, (_IGNORE, _TRUST), type="choice")
        try:
            answers = await interactions.ask_questions(f"add-dir:{root.path}", (question,), "", turn=root.path)
        except (OdinError, TimeoutError):
            return
        async with self._lock:
            if answers is None or answers[0] != (_TRUST.label,) or root not in self.current:
                return
            trusted = replace(root, trusted=True)
            await self._change(tuple(trusted if other == root else other for other in self.current))
            recorder.emit(RootAdded(replace(trusted, path=to_valid_unicode(trusted.path))))

    def _tell(self, text: str) -> None:
        for agent in (self._team.main, *self._team.list_agents()):
            agent.add_note(to_valid_unicode(text))

    async def _change(self, roots: tuple[Root, ...]) -> None:
        permissions, work = self._parts.permissions, self._parts.work
        rules, warnings = await asyncio.to_thread(load_root_rules, roots, self._parts.core.environment.variables)
        for warning in warnings:
            self._parts.core.warn(warning)
        permissions.rule_set.set_root_rules(rules)
        permissions.policy.set_roots(roots)
        await asyncio.to_thread(self._parts.answering.templates.set_roots, roots)
        work.workspaces.set_roots(roots)


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
