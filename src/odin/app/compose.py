"""Composes one session: creates its parts in order and connects them."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from odin import __version__
from odin.app.attachments import AttachmentDeps, AttachmentReader
from odin.app.git_context import GitContext, branch_of
from odin.app.policy import (
    HookFacts,
    HookSet,
    build_redactor,
    find_hidden_tools,
    load_rule_set,
    policy_of,
    read_stored_keys,
    warn_of_unknown_tools,
)
from odin.app.request_templates import RequestTemplates
from odin.app.sandbox import LazySandbox
from odin.app.web import WebAccess
from odin.app.workspace import OpenedLog, Workspace, open_log, workspace_of
from odin.checkpoints.session_checkpoints import SessionCheckpoints
from odin.compaction.context_budget import ContextBudgets
from odin.config import Options, get_config_dir, get_home_dir
from odin.config.paths import crash_log_path
from odin.context.file_cache import FileCache, LastWriters
from odin.context.prompt import SystemPromptSource
from odin.core.client import AvailableModel, ContextReport, ServerScope, SessionInfo
from odin.core.errors import UsageError
from odin.core.event import Envelope, SessionOpened
from odin.core.event_values import CachedFile, Mode
from odin.core.policy import CallbackHook
from odin.core.provider import Compactor, ModelInfo, Provider
from odin.core.text import to_valid_unicode
from odin.core.tool import AskUser, Kind, Registry, ResolvedPath, Tool
from odin.engine.agent import Agent, AgentDeps
from odin.engine.approvals import Approvals, RuleChanges
from odin.engine.budget import CostBudget
from odin.engine.call import BeforeStep, CallDeps, CallSteps
from odin.engine.client import ClientDeps, LocalClient
from odin.engine.event_bus import EventBus
from odin.engine.execution import PlaceholderGuard
from odin.engine.hooks import HookInbox, HookTasks, TurnHooks
from odin.engine.pipeline import CallPipeline
from odin.engine.prompts import CommandExpander
from odin.engine.recorder import Recorder
from odin.engine.speculation import SpeculationSettings
from odin.engine.stream import RetryPolicy, SmallModel, give_title
from odin.engine.sub_agents import JobNotifier, SubAgentRunner
from odin.engine.turn import TurnDeps, TurnLimits
from odin.engine.user_shell import UserShell
from odin.models.selection import InitialModel, ModelFallback, ModelSelector, choose_initial_model
from odin.policy.modes import mode_of, spec_of
from odin.sandbox.background import BackgroundProcesses
from odin.sandbox.runner import ProcessRunner
from odin.session.log import read_log
from odin.session.state import SessionState, describe_resumed_grants
from odin.tools import ToolDeps, build_standard_tools
from odin.tools.talk import AgentTool

if TYPE_CHECKING:
    from odin.context.library import CommandLibrary
    from odin.engine.loop_mode import LoopMode
    from odin.tools.file_finder import FileFinder


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
        workspace = workspace_of(options)
        opened = opened or open_log(workspace.store, options, workspace.cwd)
        models, choice = ModelSelector(workspace.config, workspace.env, eager=options.reach_out), InitialModel()
        if provider is not None:
            models.use(*provider, small_model)
        else:
            choice = await choose_initial_model(models, workspace.config, opened.past)
        custom = _CustomParts(tools, system_prompt, compactor, before_call)
        return _Composition(options, workspace, opened, models, choice, custom).client
    except BaseException:
        if opened is not None:
            opened.log.close()
        raise


class _CustomParts(msgspec.Struct, frozen=True):
    """Parts that the caller of `open_session` supplies."""

    tools: Sequence[Tool[Any]]
    system_prompt: SystemPromptSource | None
    compactor: Compactor | None
    before_call: Sequence[BeforeStep]


class _Composition:
    """All parts of one session. It is the `SessionHost` of its client."""

    def __init__(
        self,
        options: Options,
        workspace: Workspace,
        opened: OpenedLog,
        models: ModelSelector,
        choice: InitialModel,
        custom: _CustomParts,
    ) -> None:
        self._options = options
        self._config = workspace.config
        self._env = workspace.env
        self._cwd = workspace.cwd
        self._log = opened.log
        self._folder = opened.log.path.parent
        self._models = models
        self._initial_model = choice
        self.custom = custom
        self.source = opened.source
        self._restore_state(opened)
        self._set_up_permissions(opened)
        self._set_up_limits(workspace)
        self._set_up_processes()
        self._set_up_models()
        self._set_up_agents()
        self.client = self._make_client(resumed=bool(opened.past))
        state = self.recorder.state
        self._titler = None if state.title else asyncio.create_task(give_title(self.recorder, self._small_model))

    # --- the steps of the composition ---

    def _restore_state(self, opened: OpenedLog) -> None:
        """Create the state from the log, and the recorder that continues the log."""
        state = SessionState.fold(opened.past, self._log.session, self.read_past)
        self.recorder = Recorder(self._log, state, EventBus(), inherited=self._log.header.forked_seq)

    def _set_up_permissions(self, opened: OpenedLog) -> None:
        """Sandbox, hooks, approvals, rules, policy and redaction."""
        config, env, state = self._config, self._env, self.recorder.state
        self.sandbox = LazySandbox(config, env, state=self._options.state_dir, visible=(str(self._folder),))
        self._runner = ProcessRunner(
            self._folder / "outputs", environ=env, env_passthrough=config.env_passthrough, sandbox=self.sandbox.get
        )
        self.hooks = self._make_hooks()
        self.approvals = Approvals(
            self.recorder,
            hooks=self.hooks,
            can_ask=self._options.can_ask,
            question_timeout=config.question_timeout_s,
            confirm_timeout=config.confirm_timeout_s,
        )
        self._earlier_grants = state.permissions.grants
        self._grants = state.permissions.get_grants(to_valid_unicode(config.root))
        self.rule_set = load_rule_set(config, env, self._grants.rules)
        self.rules = RuleChanges(self.rule_set, self.recorder)
        self.policy = policy_of(
            config, self._options, self._cwd, self.rule_set, self._grants.permission, str(self._folder), self.sandbox
        )
        self.redact = build_redactor(config, env, opened.past)

    def _set_up_limits(self, workspace: Workspace) -> None:
        """Limits of a turn, budget of the session, retries of a request."""
        config, options = self._config, self._options
        chosen = config.max_turns or options.max_turns is not None
        self.limits = TurnLimits(
            max_turns=config.max_turns if chosen else options.usual_max_turns,
            max_tokens=config.max_tokens,
            temperature=config.temperature,
            thinking=config.thinking,
            default_response=config.default_response,
        )
        self.budget = self._make_budget(workspace.store.folder.parent)
        self.retry = RetryPolicy(attempts=config.retry.attempts, base_s=config.retry.base_s, max_s=config.retry.max_s)

    def _set_up_processes(self) -> None:
        """Background processes, sub-agents and checkpoints of files."""
        self._job_notifier = JobNotifier(self.recorder, self.redact)
        self._background = BackgroundProcesses(
            self._runner,
            self._folder / "spawn-logs",
            used_ids=self.recorder.state.sub_agents.spawn_count,
            listener=self._job_notifier,
        )
        self._sub_agents = SubAgentRunner(
            recorder=self.recorder,
            deps_for=lambda mode, name: _AgentParts(self, name).make_deps(mode),
            cwd=self._cwd,
            root=self._config.root,
            notifier=self._job_notifier,
        )
        self.checkpoints = SessionCheckpoints(
            self._config,
            self.recorder,
            self._log.path,
            str(get_home_dir(self._env)),
            running=self._list_running_calls,
            forget=lambda: self._main_agent.forget(),
        )

    def _set_up_models(self) -> None:
        """The main model's prompts, the small model, compaction, fallback models and web access."""
        config, models = self._config, self._models
        self.templates = RequestTemplates(config, self._options, self._cwd, models, self.custom.system_prompt)
        self._small_model = SmallModel(models.connect_small, self.recorder, self.budget)
        self.compaction = ContextBudgets(
            config, self.recorder, self.budget, self._folder, self._cwd, models.connect_other, self.custom.compactor
        )
        self.fallback = ModelFallback(models, config.fallback_model, self.recorder)
        self._web = WebAccess(config.web, self._env)

    def _set_up_agents(self) -> None:
        """The main agent's parts, with the files the earlier run had read."""
        self._writers = LastWriters()
        self.hook_tasks = HookTasks()
        self._main_agent = _AgentParts(self, "", AgentTool(self._sub_agents.run))
        self._main_agent.restore(self.recorder.state.files)
        self._file_finder: FileFinder | None = None

    def _make_client(self, resumed: bool) -> LocalClient:
        config, attachments = self._config, self._make_attachments()
        agent = Agent(
            AgentDeps(self.recorder, self._make_main_deps, self._cwd, config.root, attachments),
            delivery=config.queue.delivery,
            one_at_a_time=config.queue.steering == "one-at-a-time",
            mode_for=self._restrict_mode,
            on_idle=self._main_agent.hooks.report_idle,
            on_steered=lambda: self.approvals.cancel_for_agent(""),
        )
        self._job_notifier.register(agent)
        self._git_context = GitContext(
            config.root, self._env, lambda text: agent.add_note(self.redact(text).text), enabled=not resumed
        )
        deps = ClientDeps(
            agent=agent,
            recorder=self.recorder,
            approvals=self.approvals,
            rules=self.rules,
            hooks=self._main_agent.hooks,
            redact=self.redact,
            budget=self.budget,
            compaction=self.compaction.with_template(lambda mode: self.templates.get(mode, self._main_agent.registry)),
            checkpoints=self.checkpoints,
            background=self._background,
            user_shell=UserShell(self._runner, self.recorder, self.redact, self._cwd, agent.add_context),
            expander=CommandExpander(self._load_command_library, self.recorder, trusted=config.trust.trusted),
            attachments=attachments,
        )
        return LocalClient(deps, self, self._make_opened_event(resumed))

    def _make_opened_event(self, resumed: bool) -> SessionOpened:
        return SessionOpened(
            cwd=to_valid_unicode(self._cwd),
            model=self._models.ref,
            version=__version__,
            resumed=resumed,
            instructions=self.templates.instructions.text,
            config=self._config.to_public(),
            root=to_valid_unicode(self._config.root),
            model_chosen=self._initial_model.chosen,
            permission_mode=self.policy.permission_mode,
        )

    def _make_hooks(self) -> HookSet:
        return HookSet(
            self._config.declared.get("hooks", ()),
            HookFacts(
                id=self._log.session,
                transcript=str(self._log.path),
                cwd=self._cwd,
                root=self._config.root,
                permission_mode=lambda: self.policy.permission_mode,
                model=lambda: self._models.ref,
            ),
            runner=self._runner,
            emit=self.recorder.emit,
            redact=lambda text: self.redact(text),
            find_changed_programs=self._config.trust.find_changed_programs,
        )

    def _make_budget(self, projects: Path) -> CostBudget:
        config, state = self._config, self.recorder.state
        usual, chosen = config.max_budget_usd, self._options.max_budget_usd
        earlier = self._grants.budget_usd
        if not config.max_budget_usd_per_day:
            return CostBudget(self.recorder, usual=usual, chosen=chosen, earlier=earlier)
        from odin.app.usage import TodaysCost

        today = TodaysCost(projects, lambda: state.totals.cost_usd)
        per_day = config.max_budget_usd_per_day
        return CostBudget(self.recorder, usual=usual, chosen=chosen, earlier=earlier, per_day=per_day, today=today)

    def _make_attachments(self) -> AttachmentReader:
        return AttachmentReader(
            AttachmentDeps(
                cwd=self._cwd,
                root=self._config.root,
                home=str(get_home_dir(self._env)),
                session=self._log.session,
                folder=self._folder,
                files=self._main_agent.files,
                runner=self._runner,
                policy=lambda: self.policy,
                redact=self.redact,
                take_new_files=self._main_agent.take_new_files,
                context_window=lambda: self._models.info.context,
                sees_images=lambda: self._models.info.images,
            )
        )

    def _load_command_library(self) -> "CommandLibrary":
        """Collect custom commands: the project's files, the user's files, then both configuration files."""
        from odin.context.library import PROJECT_FOLDERS, USER_FOLDER, CommandFolder, CommandLibrary, ConfiguredCommands

        root, declared = self._config.root, self._config.declared.get("commands", ())
        project = (CommandFolder(str(Path(root, folder)), "project", within=root) for folder in PROJECT_FOLDERS)
        user = CommandFolder(str(get_config_dir(self._env) / USER_FOLDER), "user")
        configured = (
            ConfiguredCommands(item.value, "project config" if layer == "project" else "user config", item.source)
            for layer in ("project", "user")
            for item in declared
            if item.layer == layer
        )
        return CommandLibrary((*project, user, *configured))

    # --- for the agents ---

    def create_file_cache(self, agent: str) -> FileCache:
        read_first = self._config.read_before_edit
        return FileCache(self._config.cache, read_first=read_first, writers=self._writers, agent=agent)

    def build_registry(self, agent: str, files: FileCache, hooks: HookInbox, *more: Tool[Any]) -> Registry:
        """Build the tools of one agent. Each agent has its own, because tools remember what their agent has read."""
        deps = ToolDeps(
            files=files,
            runner=self._runner,
            session_folder=self._folder,
            root=self._config.root,
            on_instructions_written=self.templates.mark_stale,
            small_model=lambda job, text: self._small_model.ask(job, self.redact(text).text, agent),
            fetch=self._web.fetch,
            search_engine=self._web.search,
            list_collected=lambda: self.recorder.state.list_collected(agent),
            ask_user=self._make_questioner(agent) if self.approvals.can_ask else None,
            background=self._background,
            hooks=hooks,
        )
        tools = [*build_standard_tools(deps), *self.custom.tools, *more]
        wanted = self._options.tools
        return Registry(
            tools, disabled=find_hidden_tools(tools, self.rule_set.deny_rules, wanted), opted_in=wanted or ()
        )

    def make_call_deps(self, registry: Registry, hooks: HookInbox, take_seen_files: "_TakeFiles") -> CallDeps:
        steps = CallSteps(
            before=(PlaceholderGuard(self.redact.find_placeholders), *self.custom.before_call),
            around=self.checkpoints.guard_call,
        )
        return CallDeps(
            registry=registry,
            policy=lambda: self.policy,
            approvals=self.approvals,
            recorder=self.recorder,
            hooks=hooks,
            redact=self.redact,
            rules=self.rules,
            preview=_preview_change,
            sandbox=self.sandbox.describe,
            steps=steps,
            take_seen_files=take_seen_files,
            save=self._save_output,
            set_permission_mode=self.set_permission_mode,
        )

    def make_speculation_settings(self, files: FileCache) -> SpeculationSettings:
        return SpeculationSettings(self._config.speculate, files, self.checkpoints.rollback_files)

    def _make_questioner(self, agent: str) -> AskUser:
        return lambda call_id, questions: self.approvals.ask_questions(call_id, questions, agent)

    def _save_output(self, text: str) -> str:
        """Save a result that is too long for the model; return its path."""
        folder = self._folder / "outputs"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = folder / f"result-{time.time_ns():x}.txt"
        try:
            data = text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            data = to_valid_unicode(text).encode()
        path.write_bytes(data)
        return str(path)

    def _make_main_deps(self, mode: Mode) -> TurnDeps:
        self.fallback.restore_preferred()
        if (changed := self.templates.reload_if_stale()) is not None:
            self.recorder.emit(changed)
        return self._main_agent.make_deps(mode)

    def _restrict_mode(self, mode: Mode) -> Mode:
        """Return `plan_mode` for a mode that changes files while the permission mode is `plan`."""
        changes = self.policy.permission_mode == "plan" and spec_of(mode).allows_changes
        return "plan_mode" if changes else mode

    def _list_running_calls(self) -> list[str]:
        return [item.request.call_id for item in self._background.list_all() if item.status == "running"]

    # --- for the client: SessionHost ---

    def read_past(self) -> Iterator[Envelope]:
        return read_log(self._log.path) if self._log.path.exists() else iter(())

    def describe_session(self) -> SessionInfo:
        mode = self._restrict_mode(mode_of(self._config.mode))
        return SessionInfo(
            session=self._log.session,
            cwd=self._cwd,
            model=self._models.ref,
            version=__version__,
            mode=mode,
            permission_mode=self.policy.permission_mode,
            tools=tuple(tool.name for tool in self._main_agent.registry.list_offered(spec_of(mode).allows_tool)),
            notice=self._models.notice,
            sandbox=self.sandbox.describe(),
            budget_usd=self.budget.limit,
            warnings=tuple(self._list_warnings()),
            model_chosen=self._initial_model.chosen,
            branch=branch_of(self._cwd),
            confirm_timeout_s=self._config.confirm_timeout_s,
            question_timeout_s=self._config.question_timeout_s,
            log_file=str(crash_log_path(self._env)),
        )

    def _list_warnings(self) -> Iterator[str]:
        yield from (*self._config.warnings, *self.rule_set.warnings, *self.hooks.warnings)
        single = (
            self.templates.instructions.warning,
            self._models.warning,
            self._web.warning,
            self.sandbox.describe_problem(),
            self._explain_unusable_auto(self.policy.permission_mode),
            self._initial_model.warning,
            describe_resumed_grants(self._earlier_grants, self._grants),
        )
        yield from filter(None, single)
        registry = self._main_agent.registry
        tools = [tool for name in registry.list_names() if (tool := registry.get(name))]
        rules = (line.text for line in self.rule_set.list_rules())
        yield from filter(None, warn_of_unknown_tools(tools, rules, self._options.tools or ()))

    def report_context(self) -> ContextReport:
        from odin.compaction.context_report import build_context_report

        template = self.templates.get(self.recorder.state.mode, self._main_agent.registry)
        limit, threshold, expected = self.compaction.measure_sizes(template)
        report = build_context_report(
            self.recorder.state, template, limit=limit, threshold=threshold, expected=expected
        )
        return msgspec.structs.replace(report, compacting=self.compaction.is_running)

    async def list_models(self, servers: ServerScope = "none") -> tuple[AvailableModel, ...]:
        return await self._models.list_available(servers)

    async def find_files(self, words: str, limit: int) -> tuple[str, ...]:
        if self._file_finder is None:
            from odin.tools.file_finder import FileFinder

            self._file_finder = FileFinder(self._cwd, recent=lambda: self.recorder.state.files, env=self._env)
        return await self._file_finder(words, limit)

    async def set_model(self, ref: str, *, check: bool) -> str:
        self.redact.add_secrets(read_stored_keys(self._env))
        note = await self._models.check_name(ref) if check else ""
        model = await self._models.choose(ref)
        self._models.notice = note or self._models.notice
        self._initial_model = InitialModel(chosen=True)
        return model

    def set_permission_mode(self, mode: str) -> str:
        policy = self.policy.with_permission_mode(mode)
        if why := self._explain_unusable_auto(policy.permission_mode):
            raise UsageError(why, "Use acceptEdits to allow edits only.")
        self.policy = policy
        return policy.permission_mode

    def _explain_unusable_auto(self, mode: str) -> str:
        """Return why commands would need approval although the permission mode is auto, or ""."""
        unconfined = self.sandbox.explain_unconfined() if mode == "auto" else ""
        return f"The permission mode auto needs a sandbox, and {unconfined}." if unconfined else ""

    def add_hook(self, hook: CallbackHook) -> None:
        self.hooks.add(hook)

    async def refresh_surroundings(self) -> None:
        await self._git_context.gather()

    def take_late_warning(self) -> str:
        """Return a warning about protected files that background processes changed since the last one, or ""."""
        names = self._runner.take_late_changes()
        if not names:
            return ""
        from odin.tools.commands import warn_about_late_changes

        return warn_about_late_changes(names)

    def make_loop_mode(self) -> "LoopMode":
        from odin.engine.loop_mode import LoopMode

        return LoopMode(self.recorder, self._kind_of)

    def _kind_of(self, name: str) -> Kind | None:
        tool = self._main_agent.registry.get(name)
        return None if tool is None else tool.kind

    async def close(self) -> None:
        if self._titler is not None:
            self._titler.cancel()
            await asyncio.wait([self._titler])
        await self._git_context.close()
        if self._file_finder is not None:
            await self._file_finder.close()
        await self._runner.close()
        await self.checkpoints.close()
        await self._web.close()
        await self._models.close()


_TakeFiles = Callable[[], Sequence[CachedFile]]


class _AgentParts:
    """The parts of one agent: its own tools, hooks, call pipeline and file cache. `more` are tools only it has."""

    def __init__(self, composition: _Composition, agent: str, *more: Tool[Any]) -> None:
        self._composition = composition
        self.files = composition.create_file_cache(agent)
        inbox = HookInbox(composition.recorder, composition.hooks)
        self.hooks = TurnHooks(inbox, composition.hook_tasks, agent, source=composition.source)
        self.registry = composition.build_registry(agent, self.files, inbox, *more)
        self._compaction = composition.compaction.make_budget(agent, inbox, self.files)
        self._cache_mark = 0
        self._fresh_files: list[CachedFile] = []
        self._pipeline = CallPipeline(
            composition.make_call_deps(self.registry, inbox, self._take_changed_files),
            composition.make_speculation_settings(self.files),
        )

    def restore(self, files: Iterable[CachedFile]) -> None:
        """Restore the files that an earlier run had read. The model already has their content."""
        self.files.restore(files)
        self._cache_mark = self.files.take_mark()

    def forget(self) -> None:
        """Forget every file that was read: it has changed, or is no longer part of the conversation."""
        for file in self.files.list_files():
            self.files.forget(file.path)
        self._cache_mark = self.files.take_mark()
        self._fresh_files.clear()

    def make_deps(self, mode: Mode) -> TurnDeps:
        composition = self._composition
        return TurnDeps(
            recorder=composition.recorder,
            pipeline=self._pipeline,
            limits=composition.limits,
            retry=composition.retry,
            template=lambda: composition.templates.get(mode, self.registry),
            take_fresh_files=self._take_fresh_files,
            hooks=self.hooks,
            budget=composition.budget,
            compaction=self._compaction,
            switch_to_fallback=composition.fallback.try_next,
            take_late_warning=composition.take_late_warning,
        )

    def _take_changed_files(self) -> Sequence[CachedFile]:
        seen = self.take_new_files()
        self._fresh_files.extend(seen)
        return seen

    def take_new_files(self) -> Sequence[CachedFile]:
        """Return the files that entered the cache since the last call. The model is not told: it has their content."""
        seen = self.files.list_changed_since(self._cache_mark)
        self._cache_mark = self.files.take_mark()
        return seen

    def _take_fresh_files(self) -> list[CachedFile]:
        fresh, self._fresh_files = self._fresh_files, []
        return fresh


def build_standard_registry(cwd: str = "", *, read_before_edit: bool = True) -> Registry:
    """Return the standard tools, for programs with their own agent loop."""
    root = cwd or str(Path.cwd())
    folder = Path(root, ".odin")
    runner = ProcessRunner(folder / "outputs")
    background = BackgroundProcesses(runner, folder / "spawn-logs")
    files = FileCache(read_first=read_before_edit)
    return Registry(
        build_standard_tools(ToolDeps(files, runner, session_folder=folder, root=root, background=background))
    )


async def _preview_change(args: Any, judged: tuple[ResolvedPath, ...]) -> str:
    """Return the preview of a change. Imported with the first permission request."""
    from odin.tools.change_preview import preview_change

    return await preview_change(args, judged)
