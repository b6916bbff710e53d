"""Composes one session: functions build its parts bottom-up, and the last one connects them to its clients."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from msgspec.structs import replace

from odin.app.agent_workspaces import AgentWorkspaces
from odin.app.agents import AgentRuntime, SeenFiles, make_seen_files
from odin.app.controls import ServerSwitches, SessionAgents, SessionModels, SessionRoots, UserMemory
from odin.app.launcher import Launcher
from odin.app.policy import (
    HookFacts,
    HookSet,
    SessionPolicy,
    build_redactor,
    choose_permission_mode,
    find_changed_plugin,
    is_command_trusted,
    load_rule_set,
)
from odin.app.process_services import ProcessServices, WorkspaceMember
from odin.app.request_templates import RequestTemplates
from odin.app.roles import SessionRoles
from odin.app.sandbox import LazySandbox
from odin.app.session_parts import (
    CustomParts,
    Extensions,
    ModelServices,
    OpenedLater,
    Permissions,
    SessionCore,
    SessionParts,
    WorkServices,
)
from odin.app.team import TeamFactory
from odin.app.web_access import WebAccess
from odin.app.workspace import (
    GitContext,
    OpenedLog,
    Workspace,
    has_language_servers,
    list_skill_folders,
    make_workspace,
    open_log,
    read_past,
)
from odin.checkpoints.session_checkpoints import SessionCheckpoints
from odin.compaction.context_budget import ContextBudgets
from odin.config import Options
from odin.config.files import find_unsaid
from odin.config.paths import locate_bytecode
from odin.context.file_cache import FileOwnership
from odin.context.system_prompt import SystemPromptSource
from odin.core.client import ContextReport, SessionInfo
from odin.core.event import Envelope, SessionOpened, TurnEnded, Warned
from odin.core.event_values import DEFAULT_ROLE, Mode
from odin.core.provider import Compactor, ModelInfo, Provider
from odin.core.text import to_valid_unicode
from odin.core.tool import Tool
from odin.engine.agent import Agent, AgentDeps
from odin.engine.call import BeforeStep
from odin.engine.client import LocalClient, OpenSession
from odin.engine.event_bus import EventBus
from odin.engine.hooks import HookTasks
from odin.engine.interactions import Interactions
from odin.engine.job_notifier import JobNotifier
from odin.engine.limits import CostBudget
from odin.engine.prompts import CommandExpander
from odin.engine.recorder import Recorder
from odin.engine.rule_changes import RuleChanges
from odin.engine.session_deps import SessionDeps
from odin.engine.stream import SmallModel, give_title
from odin.engine.turn import TurnDeps, TurnLimits
from odin.engine.user_shell import UserShell
from odin.models.connector import ModelConnector
from odin.models.selection import InitialModel, ModelSelector, choose_initial_model, make_retry_policy
from odin.sandbox.background import BackgroundProcesses
from odin.sandbox.runner import ProcessRunner
from odin.session.state import describe_resumed_grants
from odin.tools.agent import AgentTool
from odin.version import __version__

if TYPE_CHECKING:
    from odin.app.git import Git
    from odin.app.language_servers import SessionLanguageServers
    from odin.app.memory import SessionMemory
    from odin.app.skills import SessionSkills
    from odin.app.verification import SessionVerification
    from odin.context.library import CommandLibrary, CommandText
    from odin.engine.controls import FileSearch
    from odin.mcp.servers import SessionServers
    from odin.policy.rules.rule import RuleSet
    from odin.policy.secrets import Redactor

NO_PLAN_HINT = "The model has presented no plan to approve. Ask it for one, or use /edit to let it work."


class GivenParts(TypedDict, total=False):
    """What a program supplies for its session.

    `tools` are added to the standard ones. `provider` replaces the configured model, `system_prompt` Odin's own, and
    `compactor` the configured compaction. If there is a `provider`, `small_model` replaces every other configured
    model. `before_call` are steps before every tool call.
    """

    tools: Sequence[Tool[Any]]
    provider: tuple[Provider, ModelInfo] | None
    system_prompt: SystemPromptSource | None
    compactor: Compactor | None
    small_model: tuple[Provider, ModelInfo] | None
    before_call: Sequence[BeforeStep]


async def open_session(
    options: Options,
    *,
    opened: OpenedLog | None = None,
    process: ProcessServices | None = None,
    on_opened: Callable[[OpenSession, Workspace], object] = lambda session, workspace: None,
    **given: Unpack[GivenParts],
) -> LocalClient:
    """Start or resume a session and return its first client.

    `opened` is a log that was opened already; it is closed if this fails. `process` is what all sessions of this
    process share; without it the session has its own. `on_opened` is called with the session before it has a client.
    """
    process = process or ProcessServices()
    member: WorkspaceMember | None = None
    try:
        workspace = make_workspace(options)
        member = process.join(workspace.config, workspace.environment)
        workspace = replace(workspace, config=member.services.config)
        opened = opened or await open_log(workspace.store, options, workspace.environment.cwd)
        models, initial = _make_selector(workspace, options, process), InitialModel()
        if (provider := given.get("provider")) is not None:
            models.use(*provider, given.get("small_model"))
        else:
            initial = await choose_initial_model(models, workspace.config, opened.past, options.pool)
        custom = CustomParts(
            given.get("tools", ()), given.get("system_prompt"), given.get("compactor"), given.get("before_call", ())
        )
        roles = SessionRoles(workspace, models, options.agent_definitions, [tool.name for tool in custom.tools])
        await roles.open(opened.past, options.role, keep_model=initial.chosen)
        session = await compose_session(options, workspace, opened, models, initial, custom, roles, process, member)
        on_opened(session, workspace)
        return session.attach(answers=options.can_ask)
    except BaseException:
        if opened is not None:
            opened.log.close()
        if member is not None:
            await process.leave(member)
        raise


def _make_selector(workspace: Workspace, options: Options, process: ProcessServices) -> ModelSelector:
    config, choices = workspace.config, None
    if config.model_pools:
        from odin.models.choices import ModelChoices

        choices = ModelChoices(workspace.env, config.root)
    connector = ModelConnector(
        config, workspace.env, eager=options.reach_out, http=process.http, tables=process.model_tables
    )
    return ModelSelector(connector, choices=choices)


async def compose_session(
    options: Options,
    workspace: Workspace,
    opened: OpenedLog,
    models: ModelSelector,
    initial: InitialModel,
    custom: CustomParts,
    roles: SessionRoles,
    process: ProcessServices,
    member: WorkspaceMember,
) -> OpenSession:
    log = opened.log
    state = opened.state
    recorder = Recorder(log, state, EventBus(), inherited=log.header.forked_seq)
    core = SessionCore(options, workspace, log, recorder, process, member.services, custom, opened.source)
    config, environment, shared = core.config, core.environment, core.shared

    # --- what may be done ---
    grants = state.permissions.get_grants(to_valid_unicode(config.root))
    grants_notice = describe_resumed_grants(state.permissions.grants, grants)
    roots = config.roots
    if grants.roots:
        from odin.config.roots import restore_roots

        roots, problems = restore_roots(roots, grants.roots, config.root, environment.variables)
        for problem in problems:
            core.warn(problem)
    sandbox = LazySandbox(config, environment, visible=(str(core.folder),), roots=roots)
    runner = ProcessRunner(
        environment,
        core.folder / "outputs",
        env_passthrough=config.env_passthrough,
        sandbox=sandbox.get,
        watchdog=process.watchdog,
        beside=shared.runner,
    )
    if recovered := sandbox.recover():
        core.warn(recovered)
    member.warn, member.is_changing = core.warn, runner.has_background
    get_git = cache(partial(_make_git, runner, workspace))
    workspaces = AgentWorkspaces(config, environment, log.path, runner, sandbox, get_git, process.watchdog, roots)
    rule_set = load_rule_set(
        config,
        workspace.env,
        shared.rules,
        grants.rules,
        has_memory=workspace.has_memory,
        get_role=lambda: roles.name,
        roots=roots,
    )
    skills = _open_skills(core, rule_set)
    readable = (str(core.folder), *(skills.list_folders() if skills is not None else ()))
    mode = choose_permission_mode(config, options, grants.permission)
    if mode == "auto":  # which is warned about where no sandbox works
        await sandbox.examine(views=False)
    policy = SessionPolicy(config, options, environment, rule_set, mode, readable, sandbox, roots)
    launcher = Launcher(config, environment, sandbox, shared.is_changing, core.warn)
    redact = build_redactor(config, workspace.env, opened.past)
    facts = HookFacts(
        id=log.session,
        transcript=str(log.path),
        cwd=environment.cwd,
        root=config.root,
        permission_mode=lambda: policy.mode,
        model=lambda: models.ref,
        folders_of=workspaces.find_folders,
        bytecode=locate_bytecode(workspace.env),
        is_debugging=workspace.env.get("ODIN_HOOK_DEBUG") == "1",
    )
    hooks = HookSet(
        config.declared.get("hooks", ()),
        facts,
        runner=runner,
        emit=recorder.emit,
        redact=redact,
        launcher=launcher,
        find_changed_plugin=partial(find_changed_plugin, config),
    )
    interactions = Interactions(
        recorder,
        hooks=hooks,
        waits=not options.headless,
        question_timeout=config.question_timeout_s,
        confirm_timeout=config.confirm_timeout_s,
        clock=environment.timing.monotonic,
    )
    rules = RuleChanges(rule_set, recorder, roles.list_rules)
    permissions = Permissions(sandbox, runner, hooks, interactions, rule_set, rules, redact, policy)

    # --- who answers ---
    memory = OpenedLater(partial(_open_memory, core, redact), now=workspace.has_memory)
    answering = _build_model_services(core, models, grants.budget_usd, policy)
    answering.templates.skills = skills
    answering.templates.memory = memory.current.block if memory.current is not None else ""

    # --- what users add, and what is being done ---
    runtimes: dict[str, AgentRuntime] = {}  # of all agents that are alive; "" is the main agent
    servers = OpenedLater(
        partial(_make_servers, core, permissions, answering.small_model, runtimes), now=bool(config.mcp)
    )
    extensions = Extensions(roles, skills, memory, servers, _find_language_servers(core, redact, workspaces))
    ownership = FileOwnership()
    seen = make_seen_files(config, ownership, "")
    background = BackgroundProcesses(runner, core.folder / "spawn-logs", used_ids=state.sub_agents.spawn_count)
    checkpoints = SessionCheckpoints(
        config,
        recorder,
        log.path,
        environment,
        get_lister=shared.get_lister,
        running=background.list_running_calls,
        forget=seen.forget,
        can_confine=sandbox.is_confining,
    )
    background.listener = job_notifier = JobNotifier(recorder, interactions, redact, checkpoints.note_process_end)
    verification = OpenedLater(partial(_make_verification, core, interactions))
    work = WorkServices(workspaces, background, checkpoints, verification, ownership, HookTasks())
    parts = SessionParts(core, permissions, answering, extensions, work)

    # --- the agents ---
    factory = TeamFactory(parts, job_notifier, runtimes)
    main = _make_main_agent(parts, factory, seen)
    surroundings = SessionSurroundings(
        parts, factory, initial, grants_notice, get_git, partial(process.leave, member), resumed=bool(opened.past)
    )
    opening = SessionOpened(
        cwd=to_valid_unicode(environment.cwd),
        model=models.selected,
        version=__version__,
        resumed=bool(opened.past),
        instructions=answering.templates.instructions.text,
        config=config.to_public(),
        root=to_valid_unicode(config.root),
        model_chosen=initial.chosen,
        headless=options.headless,
        permission_mode=policy.mode,
        role="" if roles.name == DEFAULT_ROLE else roles.name,
        pool=models.selection.pool,
        commands_ask=policy.commands_ask,
        roots=tuple(replace(root, path=to_valid_unicode(root.path)) for root in roots),
    )
    deps = SessionDeps(
        team=factory.team,
        recorder=recorder,
        interactions=interactions,
        rules=rules,
        hooks=main.hooks,
        add_hook=hooks.add,
        set_permission_mode=policy.set_mode,
        redact=redact,
        budget=answering.budget,
        compaction=answering.compaction,
        checkpoints=checkpoints,
        background=background,
        job_notifier=job_notifier,
        user_shell=UserShell(runner, recorder, redact, environment.cwd, factory.add_context, background),
        expander=CommandExpander(
            partial(_load_command_library, core, skills),
            recorder,
            trusted=config.trust.trusted,
            is_trusted=partial(is_command_trusted, config, environment.variables),
            run_shell=partial(_run_shell_commands, config.trust.trusted, permissions),
            prompts=servers.current,
        ),
        models=surroundings.models,
        agents=surroundings.agents,
        delegation=factory.make_delegation(""),
        memory=UserMemory(core, extensions),
        servers=ServerSwitches(parts),
        roots=SessionRoots(parts, factory.team),
        surroundings=surroundings,
        attachments=main.attachments,
        timing=environment.timing,
        find_unsaid=partial(
            find_unsaid,
            (*config.warnings, *rule_set.warnings, *hooks.warnings),
            workspace.state_dir / "said.json",
        ),
    )
    return OpenSession(deps, opening, str(log.path))


def _make_git(runner: ProcessRunner, workspace: Workspace) -> "Git":
    from odin.app.git import Git

    return Git(runner, workspace.state_dir)


def _open_skills(core: SessionCore, rule_set: "RuleSet") -> "SessionSkills | None":
    """Return the skills of the session; None if there is no folder of skills."""
    config, environment = core.config, core.environment
    if not list_skill_folders(config, environment.variables):
        return None
    from odin.app.skills import SessionSkills, load_skill_catalog

    catalog = load_skill_catalog(config, environment.variables)
    return SessionSkills(catalog, rule_set.deny_rules, config.root, environment)


def _open_memory(core: SessionCore, redact: "Redactor") -> "SessionMemory":
    from odin.app.memory import SessionMemory

    return SessionMemory(*core.workspace.memory_folders, redact, core.environment.home)


def _build_model_services(
    core: SessionCore, models: ModelSelector, earlier_budget: float | None, policy: SessionPolicy
) -> ModelServices:
    """Prompts and limits of the models. `earlier_budget` is what an earlier run of the session was allowed to spend."""
    config, options, recorder, environment = core.config, core.options, core.recorder, core.environment
    limits = TurnLimits(
        max_turns=config.max_turns if config.max_turns or options.max_turns is not None else options.usual_max_turns,
        max_tokens=config.max_tokens,
        temperature=config.temperature,
        thinking=config.thinking,
        default_response=config.default_response,
        background_response=config.background_response,
    )
    budget = CostBudget(recorder, usual=config.max_budget_usd, chosen=options.max_budget_usd, earlier=earlier_budget)
    if config.max_budget_usd_per_day:
        from odin.app.usage import TodaysCost

        today = TodaysCost(core.workspace.store.folder.parent, lambda: recorder.state.totals.cost_usd)
        budget.limit_per_day(config.max_budget_usd_per_day, today)
    templates = RequestTemplates(
        config,
        options,
        environment.variables,
        environment.cwd,
        core.custom.system_prompt,
        core.warn,
        policy.refuse_import,
        policy.roots,
    )
    connector = models.connector
    models.emit = recorder.emit
    connector.on_warning = core.warn
    connector.on_keys_changed = recorder.emit
    return ModelServices(
        models=models,
        templates=templates,
        small_model=SmallModel(models.connect_small, recorder, budget),
        compaction=ContextBudgets(
            config, recorder, budget, core.folder, environment, connector.connect_summarizer, core.custom.compactor
        ),
        budget=budget,
        limits=limits,
        retry=make_retry_policy(config),
        web=WebAccess(config.web, environment.variables, core.process.http.tls),
    )


def _make_servers(
    core: SessionCore, permissions: Permissions, small_model: SmallModel, runtimes: dict[str, AgentRuntime]
) -> "SessionServers":
    from odin.app.mcp_servers import make_servers

    return make_servers(core, permissions, small_model, lambda agent, tool: runtimes[agent].has_tool(tool))


def _find_language_servers(
    core: SessionCore, redact: "Redactor", workspaces: AgentWorkspaces
) -> "SessionLanguageServers | None":
    if not has_language_servers(core.config, core.environment.variables):
        return None
    from odin.app.language_servers import SessionLanguageServers

    found = SessionLanguageServers(
        core.config,
        core.environment,
        core.recorder,
        lambda text: redact(text).text,
        core.shared.find_language_server,
        workspaces.find_other,
    )
    return found if found.specs else None


def _make_verification(core: SessionCore, interactions: Interactions) -> "SessionVerification":
    from odin.app.verification import SessionVerification

    return SessionVerification(core.config, core.environment.variables, core.recorder, interactions)


def _load_command_library(core: SessionCore, skills: "SessionSkills | None") -> "CommandLibrary":
    from odin.app.command_library import load_command_library

    catalog = skills.catalog if skills is not None else None
    return load_command_library(core.config, core.environment.variables, catalog)


async def _run_shell_commands(
    trusted: bool, permissions: Permissions, text: "CommandText", arguments: str
) -> tuple[dict[str, str], str]:
    from odin.app.command_shell import run_shell_commands

    return await run_shell_commands(trusted, permissions, text, arguments)


def _make_main_agent(parts: SessionParts, factory: TeamFactory, seen: SeenFiles) -> AgentRuntime:
    """Make the main agent, with the files that an earlier run had read. Return its parts."""
    core, answering, interactions = parts.core, parts.answering, parts.permissions.interactions
    recorder, state, config = core.recorder, core.recorder.state, core.config
    main = AgentRuntime(parts, "", AgentTool(factory.team.run), *factory.make_tools(""), seen=seen)
    factory.runtimes[""] = main
    seen.restore(state.files, state.conversation.files_out_of_view)
    if core.options.system_prompt is None:
        main.system_prompt = state.system_prompt
    if core.options.tools is None:
        main.registry.offer_only(state.tools)
    has_hinted = False

    def make_deps(mode: Mode) -> TurnDeps:
        if (changed := answering.templates.reload_if_stale()) is not None:
            recorder.emit(changed)
        return main.make_deps(mode)

    def report_idle(ended: TurnEnded) -> None:
        """Fire the idle hooks. If plan mode has ended without a plan for the first time, tell the user what to do."""
        nonlocal has_hinted
        main.hooks.report_idle(ended)
        is_plan = state.mode == "plan_mode" and ended.reason == "end_turn" and not ended.plan_path
        if is_plan and interactions.can_ask and not has_hinted and answering.models.info.takes_instructions:
            has_hinted = True
            recorder.emit(Warned(NO_PLAN_HINT, "info"))

    agent = Agent(
        AgentDeps(recorder, make_deps, core.environment, config.root, main.attachments, factory.team.router),
        delivery=config.queue.delivery,
        one_at_a_time=config.queue.steering == "one-at-a-time",
        mode_for=parts.extensions.roles.restrict_mode,
        on_idle=report_idle,
        on_steered=lambda: interactions.cancel_for_agent(""),
    )
    factory.team.set_main(agent)
    answering.compaction.set_template("", main.get_template)
    return main


class SessionSurroundings:
    """What a session finds around it: the git repository, the files of the project; and its end."""

    def __init__(
        self,
        parts: SessionParts,
        factory: TeamFactory,
        initial: InitialModel,
        grants_notice: str,
        get_git: "Callable[[], Git]",
        leave_process: Callable[[], Awaitable[None]],
        *,
        resumed: bool,
    ) -> None:
        self.models = SessionModels(parts, factory.runtimes, initial)
        self.agents = SessionAgents(parts, factory.runtimes)
        self._parts = parts
        self._main = factory.runtimes[""]
        self._agent = factory.team.main
        self._grants_notice = grants_notice
        self._leave_process = leave_process
        redact, recorder = parts.permissions.redact, parts.core.recorder
        self._git_context = GitContext(
            parts.core.config.root,
            get_git,
            lambda text: self._agent.add_note(redact(text).text),
            timing=parts.core.environment.timing,
            enabled=not resumed,
        )
        self._titler = (
            None if recorder.state.title else asyncio.create_task(give_title(recorder, parts.answering.small_model))
        )

    def read_past(self) -> Iterator[Envelope]:
        return read_past(self._parts.core.log)

    def describe(self) -> SessionInfo:
        from odin.app.session_info import describe_session

        mode = self.agents.get_default_mode()
        return describe_session(self._parts, self._main, mode, self.models.initial, self._grants_notice)

    def report_context(self) -> ContextReport:
        from odin.app.session_info import report_context

        return report_context(self._parts, self._main)

    async def read_status_line(self, facts: dict[str, Any]) -> str:
        return await self._parts.permissions.hooks.read_status_line(facts)

    def make_file_search(self) -> "FileSearch":
        from odin.tools.file_finder import FileFinder

        core = self._parts.core
        paths, state = core.shared.get_paths(core.environment.cwd), core.recorder.state
        servers = self._parts.extensions.servers.current
        find_resources = servers.find_resources if servers is not None else None
        policy, get_paths = self._parts.permissions.policy, core.shared.get_paths
        return FileFinder(
            paths,
            recent=lambda: state.files,
            find_resources=find_resources,
            list_others=lambda: [get_paths(root.path) for root in policy.roots],
        )

    async def refresh(self) -> None:
        extensions = self._parts.extensions
        if extensions.servers.current is not None:
            extensions.servers.current.begin_prompt()
        await self._git_context.gather()
        if extensions.memory.current is not None and (note := extensions.memory.current.take_changes()):
            self._agent.add_note(note)

    async def close(self) -> None:
        extensions, work = self._parts.extensions, self._parts.work
        if extensions.language_servers is not None:
            extensions.language_servers.close()
        if self._titler is not None:
            self._titler.cancel()
            await asyncio.wait([self._titler])
        await self._git_context.close()
        if extensions.servers.current is not None:
            await extensions.servers.current.close()
        await self._parts.permissions.runner.close()
        await self._parts.permissions.sandbox.close()
        await work.workspaces.close()
        await work.checkpoints.close()
        await self._parts.answering.web.close()
        await self._parts.answering.models.connector.close()
        await self._leave_process()
