"""Composes one session: creates its parts in order and connects them."""

import asyncio
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from odin import __version__
from odin.app.agent_workspaces import AgentWorkspaces
from odin.app.agents import AgentRuntime, RequestTemplates, WebAccess
from odin.app.launcher import Launcher
from odin.app.policy import (
    HookFacts,
    HookSet,
    build_redactor,
    choose_permission_mode,
    find_changed_plugin,
    load_rule_set,
    make_policy,
    read_stored_keys,
)
from odin.app.roles import SessionRoles
from odin.app.sandbox import LazySandbox
from odin.app.team import TeamFactory
from odin.app.workspace import (
    GitContext,
    OpenedLog,
    Workspace,
    explain_missing_servers,
    has_language_servers,
    list_skill_folders,
    make_workspace,
    open_log,
)
from odin.checkpoints.session_checkpoints import SessionCheckpoints
from odin.compaction.context_budget import ContextBudgets
from odin.config import Options
from odin.config.paths import locate_bytecode
from odin.context.file_cache import FileOwnership
from odin.context.system_prompt import SystemPromptSource
from odin.core.client import AgentSummary, AvailableModel, ContextReport, MemoryFile, ServerScope, SessionInfo
from odin.core.errors import UsageError
from odin.core.event import Envelope, ModelChanged, RoleChanged, SessionOpened, TurnEnded, Warned
from odin.core.event_values import DEFAULT_ROLE, Mode
from odin.core.op import ChangeMemory, ControlServers, LanguageServerAction
from odin.core.policy import CallbackHook, ServerExchange
from odin.core.provider import Compactor, ModelInfo, Provider
from odin.core.text import to_valid_unicode
from odin.core.tool import Kind, Tool
from odin.engine.agent import Agent, AgentDeps
from odin.engine.approvals import Approvals, RuleChanges
from odin.engine.call import BeforeStep
from odin.engine.client import ClientDeps, LocalClient
from odin.engine.event_bus import EventBus
from odin.engine.hooks import HookTasks
from odin.engine.job_notifier import JobNotifier
from odin.engine.limits import CostBudget
from odin.engine.prompts import CommandExpander
from odin.engine.recorder import Recorder
from odin.engine.stream import SmallModel, give_title
from odin.engine.team import Team
from odin.engine.turn import RequestTemplate, TurnDeps, TurnLimits
from odin.engine.user_shell import UserShell
from odin.models.connector import ModelConnector
from odin.models.selection import InitialModel, ModelSelector, choose_initial_model, make_retry_policy
from odin.policy.modes import PermissionMode, parse_mode, parse_permission_mode
from odin.sandbox.background import BackgroundProcesses
from odin.sandbox.runner import ProcessRunner
from odin.session.log import read_log
from odin.session.state import SessionState
from odin.tools.agent import AgentTool

if TYPE_CHECKING:
    from odin.app.git import Git
    from odin.app.language_servers import SessionLanguageServers
    from odin.app.memory import SessionMemory
    from odin.app.skills import SessionSkills
    from odin.app.verification import SessionVerification
    from odin.context.agent_definition import AgentCatalog
    from odin.context.library import CommandLibrary
    from odin.engine.loop_mode import LoopMode
    from odin.mcp.servers import SessionServers
    from odin.policy.policy import Policy
    from odin.tools.file_finder import FileFinder

NO_PLAN_HINT = "The model has presented no plan to approve. Ask it for one, or use /edit to let it work."


async def open_session(
    options: Options,
    *,
    tools: Sequence[Tool[Any]] = (),
    provider: tuple[Provider, ModelInfo] | None = None,
    system_prompt: SystemPromptSource | None = None,
    compactor: Compactor | None = None,
    opened: OpenedLog | None = None,
    small_model: tuple[Provider, ModelInfo] | None = None,
    before_call: Sequence[BeforeStep] = (),
) -> LocalClient:
    """Start or resume a session.

    `tools` are added to the standard ones. `provider` replaces the configured model, `system_prompt` Odin's own, and
    `compactor` the configured compaction. `opened` is a log that was opened already; it is closed if this fails.
    If there is a `provider`, `small_model` replaces every other configured model. `before_call` are steps before every
    tool call.
    """
    try:
        workspace = make_workspace(options)
        opened = opened or open_log(workspace.store, options, workspace.environment.cwd)
        models, choice = _make_selector(workspace, options), InitialModel()
        if provider is not None:
            models.use(*provider, small_model)
        else:
            choice = await choose_initial_model(models, workspace.config, opened.past, options.pool)
        custom = _CustomParts(tools, system_prompt, compactor, before_call)
        roles = SessionRoles(workspace, models, options.agent_definitions, [tool.name for tool in tools])
        await roles.open(opened.past, options.role, keep_model=choice.chosen)
        return SessionServices(options, workspace, opened, models, choice, custom, roles).client
    except BaseException:
        if opened is not None:
            opened.log.close()
        raise


def _make_selector(workspace: Workspace, options: Options) -> ModelSelector:
    config, choices = workspace.config, None
    if config.model_pools:
        from odin.models.choices import ModelChoices

        choices = ModelChoices(workspace.env, config.root)
    return ModelSelector(ModelConnector(config, workspace.env, eager=options.reach_out), choices=choices)


class _CustomParts(msgspec.Struct, frozen=True):
    """Parts that the caller of `open_session` supplies."""

    tools: Sequence[Tool[Any]]
    system_prompt: SystemPromptSource | None
    compactor: Compactor | None
    before_call: Sequence[BeforeStep]


class SessionServices:
    """All parts of one session. It is the `SessionHost` of its client."""

    def __init__(
        self,
        options: Options,
        workspace: Workspace,
        opened: OpenedLog,
        models: ModelSelector,
        choice: InitialModel,
        custom: _CustomParts,
        roles: SessionRoles,
    ) -> None:
        self.options = options
        self._workspace = workspace
        self.config = workspace.config
        self.environment = workspace.environment
        self.env = self.environment.variables
        self.cwd = self.environment.cwd
        self._log = opened.log
        self.folder = opened.log.path.parent
        self.models = models
        self.initial_model = choice
        self.custom = custom
        self.roles = roles
        self.source = opened.source
        self._restore_state(opened)
        self._set_up_permissions(opened)
        self._set_up_limits(workspace)
        self._set_up_processes()
        self._set_up_models()
        self._set_up_agents()
        self.client = self._make_client(resumed=bool(opened.past))
        state = self.recorder.state
        self._titler = None if state.title else asyncio.create_task(give_title(self.recorder, self.small_model))

    # --- the steps of the composition ---

    def _restore_state(self, opened: OpenedLog) -> None:
        """Create the state from the log, and the recorder that continues the log."""
        state = SessionState.fold(opened.past, self._log.session, self.read_past)
        self.recorder = Recorder(self._log, state, EventBus(), inherited=self._log.header.forked_seq)

    def _set_up_permissions(self, opened: OpenedLog) -> None:
        """Sandbox, hooks, approvals, rules, policy and redaction."""
        config, env, state = self.config, self.env, self.recorder.state
        self.sandbox = LazySandbox(config, self.environment, visible=(str(self.folder),))
        self.runner = ProcessRunner(
            self.environment,
            self.folder / "outputs",
            env_passthrough=config.env_passthrough,
            sandbox=self.sandbox.get,
        )
        self.launcher = Launcher(config, self.environment, self.sandbox, self.runner, self._warn)
        self.hooks = self._make_hooks()
        self.approvals = Approvals(
            self.recorder,
            hooks=self.hooks,
            can_ask=self.options.can_ask,
            question_timeout=config.question_timeout_s,
            confirm_timeout=config.confirm_timeout_s,
            clock=self.environment.timing.monotonic,
        )
        self.earlier_grants = state.permissions.grants
        self.grants = state.permissions.get_grants(to_valid_unicode(config.root))
        self.rule_set = load_rule_set(
            config, env, self.grants.rules, has_memory=self._workspace.has_memory, get_role=lambda: self.roles.name
        )
        self.rules = RuleChanges(self.rule_set, self.recorder, self.roles.list_rules)
        self.skills = self._open_skills()
        self.permission_mode: PermissionMode = choose_permission_mode(config, self.options, self.grants.permission)
        self.redact = build_redactor(config, env, opened.past)
        self.memory = self._open_memory() if self._workspace.has_memory else None

    def _warn(self, text: str) -> None:
        self.recorder.emit(Warned(text))

    @cached_property
    def git(self) -> "Git":
        from odin.app.git import Git

        return Git(self.runner, self.state_dir)

    @property
    def state_dir(self) -> Path:
        return self._workspace.store.folder.parent.parent

    @cached_property
    def policy(self) -> "Policy":
        readable = (str(self.folder), *(self.skills.list_folders() if self.skills is not None else ()))
        return make_policy(
            self.config, self.options, self.environment, self.rule_set, self.permission_mode, readable, self.sandbox
        )

    def _open_skills(self) -> "SessionSkills | None":
        """Return the skills of the session; None if there is no folder of skills."""
        if not list_skill_folders(self.config, self.env):
            return None
        from odin.app.skills import SessionSkills, load_skill_catalog

        catalog = load_skill_catalog(self.config, self.env)
        return SessionSkills(catalog, self.rule_set.deny_rules, self.config.root, self.environment)

    def _open_memory(self) -> "SessionMemory":
        from odin.app.memory import SessionMemory

        return SessionMemory(*self._workspace.memory_folders, self.redact, self.environment.home)

    def _set_up_limits(self, workspace: Workspace) -> None:
        """Limits of a turn, budget of the session, retries of a request."""
        config, options = self.config, self.options
        chosen = config.max_turns or options.max_turns is not None
        self.limits = TurnLimits(
            max_turns=config.max_turns if chosen else options.usual_max_turns,
            max_tokens=config.max_tokens,
            temperature=config.temperature,
            thinking=config.thinking,
            default_response=config.default_response,
        )
        self.budget = self._make_budget(workspace.store.folder.parent)
        self.retry = make_retry_policy(config)

    def _set_up_processes(self) -> None:
        """Background processes, sub-agents and checkpoints of files."""
        self.job_notifier = JobNotifier(self.recorder, self.redact, lambda: self.checkpoints.note_process_end())
        self.background = BackgroundProcesses(
            self.runner,
            self.folder / "spawn-logs",
            used_ids=self.recorder.state.sub_agents.spawn_count,
            listener=self.job_notifier,
        )
        self.workspaces = AgentWorkspaces(self, self.environment)
        self._team_factory = TeamFactory(self)
        self.team: Team = self._team_factory.make_team()
        self.checkpoints = SessionCheckpoints(
            self.config,
            self.recorder,
            self._log.path,
            self.environment,
            running=self._list_running_calls,
            forget=lambda: self.main_agent.forget(),
            can_confine=self.sandbox.can_confine,
        )

    def _set_up_models(self) -> None:
        """The main model's prompts, the small model, compaction, fallback models and web access."""
        config, connector = self.config, self.models.connector
        self.templates = RequestTemplates(config, self.options, self.env, self.cwd, self.custom.system_prompt)
        self.templates.skills = self.skills
        self.templates.memory = self.memory.block if self.memory is not None else ""
        self.templates.on_warning = self._warn
        self.small_model = SmallModel(self.models.connect_small, self.recorder, self.budget)
        self.compaction = ContextBudgets(
            config,
            self.recorder,
            self.budget,
            self.folder,
            self.environment,
            connector.connect_summarizer,
            self.custom.compactor,
        )
        self.models.emit = self.recorder.emit
        connector.on_warning = self._warn
        connector.on_keys_changed = self.recorder.emit
        self.web = WebAccess(config.web, self.env)

    def _set_up_agents(self) -> None:
        """The MCP servers, and the main agent's parts, with the files the earlier run had read."""
        self.servers = self._make_servers() if self.config.mcp else None
        self.ownership = FileOwnership()
        self.language_servers = self._find_language_servers()
        self.hook_tasks = HookTasks()
        self.main_agent = AgentRuntime(self, "", AgentTool(self.team.run), *self._team_factory.make_tools(""))
        state = self.recorder.state
        self.main_agent.restore(state.files, state.conversation.files_out_of_view)
        if self.options.system_prompt is None:
            self.main_agent.system_prompt = state.system_prompt
        if self.options.tools is None:
            self.main_agent.registry.offer_only(state.tools)
        self._has_hinted = False
        self._file_finder: FileFinder | None = None

    def _make_servers(self) -> "SessionServers":
        from odin.app.mcp_servers import make_servers

        return make_servers(self)

    def _find_language_servers(self) -> "SessionLanguageServers | None":
        if not has_language_servers(self.config, self.env):
            return None
        from odin.app.language_servers import SessionLanguageServers

        found = SessionLanguageServers(
            self.config, self.environment, self.recorder, lambda text: self.redact(text).text
        )
        return found if found.specs else None

    def _make_client(self, resumed: bool) -> LocalClient:
        config, attachments = self.config, self.main_agent.make_attachments()
        agent = Agent(
            AgentDeps(
                self.recorder, self._make_main_deps, self.environment, config.root, attachments, self.team.router
            ),
            delivery=config.queue.delivery,
            one_at_a_time=config.queue.steering == "one-at-a-time",
            mode_for=self.restrict_mode,
            on_idle=self._report_idle,
            on_steered=lambda: self.approvals.cancel_for_agent(""),
        )
        self.team.set_main(agent)
        self._git_context = GitContext(
            config.root,
            lambda: self.git,
            lambda text: agent.add_note(self.redact(text).text),
            timing=self.environment.timing,
            enabled=not resumed,
        )
        self.compaction.set_template("", self.get_template)
        deps = ClientDeps(
            team=self.team,
            recorder=self.recorder,
            approvals=self.approvals,
            rules=self.rules,
            hooks=self.main_agent.hooks,
            redact=self.redact,
            budget=self.budget,
            compaction=self.compaction,
            checkpoints=self.checkpoints,
            background=self.background,
            user_shell=UserShell(self.runner, self.recorder, self.redact, self.cwd, self._team_factory.add_context),
            expander=CommandExpander(
                self._load_command_library, self.recorder, trusted=config.trust.trusted, prompts=self.servers
            ),
            set_effort=lambda effort, agent: self._team_factory.get_models(agent).set_effort(effort),
            attachments=attachments,
        )
        return LocalClient(deps, self, self._make_opened_event(resumed))

    def _make_opened_event(self, resumed: bool) -> SessionOpened:
        return SessionOpened(
            cwd=to_valid_unicode(self.cwd),
            model=self.models.selected,
            version=__version__,
            resumed=resumed,
            instructions=self.templates.instructions.text,
            config=self.config.to_public(),
            root=to_valid_unicode(self.config.root),
            model_chosen=self.initial_model.chosen,
            headless=self.options.headless,
            permission_mode=self.permission_mode,
            role="" if self.roles.name == DEFAULT_ROLE else self.roles.name,
            pool=self.models.selection.pool,
        )

    def _make_hooks(self) -> HookSet:
        return HookSet(
            self.config.declared.get("hooks", ()),
            HookFacts(
                id=self._log.session,
                transcript=str(self._log.path),
                cwd=self.cwd,
                root=self.config.root,
                permission_mode=lambda: self.permission_mode,
                model=lambda: self.models.ref,
                folders_of=lambda agent: self._team_factory.find_folders(agent),
                bytecode=locate_bytecode(self.env),
            ),
            runner=self.runner,
            emit=self.recorder.emit,
            redact=lambda text: self.redact(text),
            launcher=self.launcher,
            find_changed_plugin=partial(find_changed_plugin, self.config),
        )

    def _make_budget(self, projects: Path) -> CostBudget:
        config, state = self.config, self.recorder.state
        usual, chosen = config.max_budget_usd, self.options.max_budget_usd
        earlier = self.grants.budget_usd
        if not config.max_budget_usd_per_day:
            return CostBudget(self.recorder, usual=usual, chosen=chosen, earlier=earlier)
        from odin.app.usage import TodaysCost

        today = TodaysCost(projects, lambda: state.totals.cost_usd)
        per_day = config.max_budget_usd_per_day
        return CostBudget(self.recorder, usual=usual, chosen=chosen, earlier=earlier, per_day=per_day, today=today)

    def _load_command_library(self) -> "CommandLibrary":
        from odin.app.command_library import load_command_library

        skills = self.skills.catalog if self.skills is not None else None
        return load_command_library(self.config, self.env, skills)

    def _report_idle(self, ended: TurnEnded) -> None:
        """Fire the idle hooks. If plan mode has ended without a plan for the first time, tell the user what to do."""
        self.main_agent.hooks.report_idle(ended)
        is_plan = self.recorder.state.mode == "plan_mode" and ended.reason == "end_turn" and not ended.plan_path
        if is_plan and self.approvals.can_ask and not self._has_hinted and self.models.info.takes_instructions:
            self._has_hinted = True
            self.recorder.emit(Warned(NO_PLAN_HINT, "info"))

    # --- for the agents ---

    def load_agents(self) -> "AgentCatalog":
        """Return the roles and the types of sub-agents. Their files are read once."""
        return self.roles.load_agents()

    def _make_main_deps(self, mode: Mode) -> TurnDeps:
        if (changed := self.templates.reload_if_stale()) is not None:
            self.recorder.emit(changed)
        return self.main_agent.make_deps(mode)

    def get_template(self, mode: Mode) -> RequestTemplate:
        return self.main_agent.get_template(mode)

    def restrict_mode(self, mode: Mode) -> Mode:
        """Return the mode that the role permits."""
        return mode if self.roles.definition is None else self.roles.definition.restrict_mode(mode)

    def _list_running_calls(self) -> list[str]:
        return [item.request.call_id for item in self.background.list_all() if item.status == "running"]

    # --- for the client: SessionHost ---

    def read_past(self) -> Iterator[Envelope]:
        return read_log(self._log.path) if self._log.path.exists() else iter(())

    def get_default_mode(self) -> Mode:
        return self.restrict_mode(parse_mode(self.config.mode))

    def describe_session(self) -> SessionInfo:
        from odin.app.session_info import describe_session

        return describe_session(self)

    def report_context(self) -> ContextReport:
        from odin.app.session_info import report_context

        return report_context(self)

    async def list_models(self, servers: ServerScope = "none") -> tuple[AvailableModel, ...]:
        return await self.models.connector.list_available(servers, self.models.info)

    async def find_files(self, words: str, limit: int) -> tuple[str, ...]:
        if self._file_finder is None:
            from odin.tools.file_finder import FileFinder

            self._file_finder = FileFinder(
                self.cwd, self.runner, recent=lambda: self.recorder.state.files, env=self.env
            )
        found = () if self.servers is None else self.servers.find_resources(words, limit)
        return (*found, *await self._file_finder(words, limit - len(found)))

    async def set_model(self, name: str, *, check: bool, agent: str = "") -> ModelChanged:
        """Select a model or a pool for an agent; without a name the usual one."""
        models = self._team_factory.get_models(agent)
        self.redact.add_secrets(read_stored_keys(self.env))
        note = await models.connector.check_name(name) if check and name not in self.config.model_pools else ""
        await (models.choose(name) if name else models.choose_usual())
        models.notice = note or models.notice
        if not agent:
            self.initial_model = InitialModel(chosen=bool(name))
            models.remember()
        return ModelChanged(models.selected, pool=models.selection.pool)

    def set_system_prompt(self, text: str | None, agent: str = "") -> None:
        self.get_runtime(agent).system_prompt = text

    def set_tools(self, names: Collection[str] | None, agent: str = "") -> tuple[str, ...] | None:
        return self.get_runtime(agent).offer_only(names)

    def add_tools(self, tools: Sequence[Tool[Any]], agent: str = "") -> None:
        self.get_runtime(agent).add_tools(tools)

    async def set_role(self, name: str) -> tuple[str, ModelChanged | None]:
        changed = await self.roles.switch(name)
        if self.roles.warning:
            self.recorder.emit(Warned(self.roles.warning))
        return changed

    async def switch_role(self, name: str) -> None:
        """Switch the main agent to a role that carries out a plan, and record it."""
        role, changed = await self.set_role(name)
        if role:
            self.recorder.emit(RoleChanged(role))
        if changed is not None:
            self.recorder.emit(changed)

    def define_agents(self, agents: dict[str, Any]) -> tuple[str, ...]:
        return self.roles.define_agents(agents)

    def list_agents(self) -> tuple[AgentSummary, ...]:
        return self.roles.list_agents()

    def set_skills(self, names: Collection[str] | None) -> tuple[str, ...]:
        self.templates.forget()
        return tuple(names or ()) if self.skills is None else self.skills.offer_only(names)

    def set_permission_mode(self, mode: str) -> str:
        from odin.app.session_info import explain_unusable_auto

        chosen = parse_permission_mode(mode)
        if why := explain_unusable_auto(chosen, self.sandbox):
            raise UsageError(why, "Use acceptEdits to allow edits only.")
        self.permission_mode = chosen
        self.policy = self.policy.with_permission_mode(chosen)
        return chosen

    async def change_memory(self, op: ChangeMemory) -> str:
        """Change the memory for the user. The model learns of it with the next prompt."""
        if self.config.memory.mode == "off":
            raise UsageError("Memory is off.", 'Set "memory": {"mode": "auto"} in odinconfig.json to use it.')
        if self.memory is None:
            self.memory = self._open_memory()
        if op.remove:
            return await asyncio.to_thread(partial(self.memory.replace, op.scope, op.text, "", told=False))
        return await asyncio.to_thread(partial(self.memory.add, op.scope, op.text, daily=op.daily, told=False))

    async def read_memory(self) -> tuple[MemoryFile, ...]:
        memory = self.memory or self._open_memory()
        return await asyncio.to_thread(memory.list_files)

    def add_hook(self, hook: CallbackHook) -> None:
        self.hooks.add(hook)

    async def refresh_surroundings(self) -> None:
        if self.servers is not None:
            self.servers.begin_prompt()
        await self._git_context.gather()
        if self.memory is not None and (note := self.memory.take_changes()):
            self.team.main.add_note(note)

    async def control_servers(self, op: ControlServers) -> tuple[str, ...]:
        if self.servers is None:
            raise UsageError("No MCP server is configured.", "Add one with `odin mcp add NAME COMMAND`.")
        return await self.servers.control(op)

    def add_server(self, name: str, exchange: ServerExchange) -> None:
        if self.servers is not None:
            self.servers.add_exchange(name, exchange)

    @cached_property
    def verification(self) -> "SessionVerification":
        from odin.app.verification import SessionVerification

        return SessionVerification(self.config, self.env, self.recorder, self.approvals)

    def get_runtime(self, agent: str) -> AgentRuntime:
        return self._team_factory.get_runtime(agent) if agent else self.main_agent

    def make_loop_mode(self, agent: str) -> "LoopMode":
        from odin.engine.loop_mode import DoneTool, LoopMode

        registry = self.get_runtime(agent).registry

        def get_kind(name: str) -> Kind | None:
            tool = registry.get(name)
            return None if tool is None else tool.kind

        loop = LoopMode(self.recorder, get_kind, agent, limit=self.config.loop.max_iterations)
        registry.register(DoneTool(loop))
        return loop

    def switch_language_server(self, name: str, action: LanguageServerAction) -> bool:
        if self.language_servers is None:
            raise UsageError(explain_missing_servers(self.config))
        return self.language_servers.switch(name, action, self.workspaces.main)

    async def close(self) -> None:
        if self.language_servers is not None:
            self.language_servers.close()
        if self._titler is not None:
            self._titler.cancel()
            await asyncio.wait([self._titler])
        await self._git_context.close()
        if self.servers is not None:
            await self.servers.close()
        if self._file_finder is not None:
            await self._file_finder.close()
        await self.runner.close()
        await self.workspaces.close()
        await self.checkpoints.close()
        await self.web.close()
        await self.models.connector.close()
