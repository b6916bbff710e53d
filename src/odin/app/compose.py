"""Puts the parts of one session together."""

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from odin import __version__
from odin.app.attachments import AttachmentDeps as AttachMeans
from odin.app.attachments import AttachmentReader
from odin.app.crash_log import log_path
from odin.app.git_context import GitContext, branch_of
from odin.app.hooks import HookSet
from odin.app.policy import (
    build_redactor,
    find_hidden_tools,
    load_rule_set,
    policy_of,
    read_stored_keys,
    warn_of_unknown_tools,
)
from odin.app.sandbox import LazySandbox
from odin.app.web import WebAccess
from odin.app.workspace import OpenedLog, Workspace, open_log, workspace_of
from odin.checkpoints.session_checkpoints import SessionCheckpoints
from odin.compaction.context_budget import ContextBudgets
from odin.config import Options, get_home_dir
from odin.context.file_cache import FileCache, LastWriters
from odin.context.instructions import load_instructions, reload_odin_md
from odin.context.prompt import SystemPrompt, SystemPromptSource
from odin.core.client import ContextReport, SessionInfo
from odin.core.compactor import Compactor
from odin.core.event import CachedFile, Envelope, InstructionsChanged, Mode, SessionOpened
from odin.core.provider import ModelInfo, Provider
from odin.core.registry import Registry
from odin.core.text import to_valid_unicode
from odin.core.tool import AskUser, Kind, Tool
from odin.engine.admission import PlaceholderGuard
from odin.engine.agent import Agent
from odin.engine.approvals import Approvals, RuleChanges
from odin.engine.budget import CostBudget
from odin.engine.call import BeforeStep, CallPipeline
from odin.engine.client import LocalClient
from odin.engine.event_bus import EventBus
from odin.engine.hooks import HookInbox, HookTasks, TurnHooks
from odin.engine.prompts import CommandExpander
from odin.engine.recorder import Recorder
from odin.engine.small_model import SmallModel, give_title
from odin.engine.stream import RetryPolicy
from odin.engine.sub_agents import JobNotifier, SubAgentRunner
from odin.engine.turn import Planner, TurnDeps, TurnLimits
from odin.engine.user_shell import UserShell
from odin.models.fallback import ModelFallback
from odin.models.selection import InitialModel, ModelSelector, choose_initial_model
from odin.policy.modes import mode_of, spec_of
from odin.sandbox.background import BackgroundProcesses
from odin.sandbox.runner import ProcessRunner
from odin.session.log import read_log
from odin.session.permissions import describe_resumed_grants
from odin.session.state import SessionState
from odin.tools import ToolDeps, build_standard_tools
from odin.tools.change_preview import preview_change
from odin.tools.file_finder import FileFinder
from odin.tools.talk import AgentTool

if TYPE_CHECKING:
    from odin.context.library import CommandLibrary
    from odin.engine.loop_mode import LoopMode

SMALL_CONTEXT_WINDOW = 16_384
"""Models with a window up to this size get the short prompt."""

MEDIUM_CONTEXT_WINDOW = 32_768
"""Models with a window up to this size get short tools, and few of them when the window is small."""


async def open_session(
    options: Options,
    *,
    tools: Sequence[Tool[Any]] = (),
    provider: tuple[Provider, ModelInfo] | None = None,
    assembler: SystemPromptSource | None = None,
    compactor: Compactor | None = None,
    opened: OpenedLog | None = None,
    small_model: tuple[Provider, ModelInfo] | None = None,
    before_call: Sequence[BeforeStep] = (),
) -> LocalClient:
    """Begin or resume a session.

    `tools` are added to the standard ones; `provider` replaces the configured model and `assembler` the system prompt.
    `compactor` decides when a long conversation is summarised and how, in the place of the configuration.
    `opened` is the log to work on when it was opened already; it is closed when this fails. `lesser` does the small
    jobs and whatever else another model would be asked for; `before` are steps that every call passes before it runs.
    """
    try:
        place = workspace_of(options)
        opened = opened or open_log(place.store, options, place.cwd)
        models, choice = ModelSelector(place.config, place.env, eager=options.reach_out), InitialModel()
        if provider is not None:
            models.use(*provider, small_model)
        else:
            choice = await choose_initial_model(models, place.config, opened.past)
        return _Composition(options, place, opened, models, choice, tools, assembler, compactor, before_call).client
    except BaseException:
        if opened is not None:
            opened.log.close()
        raise


class _Composition:
    """Every part of one session, put together once."""

    def __init__(
        self,
        options: Options,
        place: Workspace,
        opened: OpenedLog,
        models: ModelSelector,
        choice: InitialModel,
        extra_tools: Sequence[Tool[Any]],
        assembler: SystemPromptSource | None,
        compactor: Compactor | None,
        before_call: Sequence[BeforeStep],
    ) -> None:
        self._options = options
        self.before_call = before_call
        config, env, cwd = place.config, place.env, place.cwd
        self._config = config
        self._env = env
        self._cwd = cwd
        self._log = log = opened.log
        past = opened.past
        self._models = models
        self._initial_model = choice
        self.speculate = config.speculate
        self._writers = LastWriters()
        self._planners: dict[tuple[str, Mode, tuple[str, ...]], Planner] = {}
        state = SessionState.fold(past, log.session, self._read_past)
        self.recorder = Recorder(log, state, EventBus(), inherited=log.header.forked_seq)
        self.sandbox = LazySandbox(config, env, state=options.state_dir, visible=(str(log.path.parent),))
        self._runner = ProcessRunner(
            log.path.parent / "outputs", environ=env, keep_env=config.env_passthrough, sandbox=self.sandbox.get
        )
        self.hooks = self._make_hooks()
        self.approvals = Approvals(
            self.recorder,
            hooks=self.hooks,
            can_ask=options.can_ask,
            question_timeout=config.question_timeout_s,
            confirm_timeout=config.confirm_timeout_s,
        )
        self._earlier_grants = state.permissions.grants
        self._grants = granted = state.permissions.get_grants(to_valid_unicode(config.root))
        self.rule_set = load_rule_set(config, env, granted.rules)
        self.rules = RuleChanges(self.rule_set, self.recorder)
        self.policy = policy_of(config, options, cwd, self.rule_set, granted.permission, str(log.path.parent))
        self.limits = self._make_limits()
        self.budget = self._make_budget(place.store.folder.parent)
        self.retry = RetryPolicy(attempts=config.retry.attempts, base_s=config.retry.base_s, max_s=config.retry.max_s)
        self.redact = build_redactor(config, env, past)
        self._job_notifier = JobNotifier(self.recorder, self.redact)
        self._background = BackgroundProcesses(
            self._runner,
            log.path.parent / "spawn-logs",
            used_ids=state.sub_agents.spawn_count,
            listener=self._job_notifier,
        )
        self._team = SubAgentRunner(
            recorder=self.recorder,
            deps_for=self._make_subagent_deps,
            cwd=cwd,
            root=config.root,
            notifier=self._job_notifier,
        )
        self.checkpoints = SessionCheckpoints(
            config,
            self.recorder,
            log.path,
            str(get_home_dir(env)),
            running=self._list_running_calls,
            forget=lambda: self._main_agent.forget(),
        )
        self._small_model = SmallModel(models.connect_small, self.recorder, self.budget)
        self.compaction = ContextBudgets(
            config, self.recorder, self.budget, log.path.parent, cwd, models.connect_other, compactor
        )
        self.fallback = ModelFallback(models, config.fallback_model, self.recorder)
        self._web = WebAccess(config.web, env)
        self._extra_tools = extra_tools
        self._instructions = load_instructions(config.root, cwd)
        self._instructions_stale = False
        self._prompter = assembler or self._make_prompter()
        self.source = opened.source
        self.observers = HookTasks()
        self._main_agent = _AgentParts(self, "", AgentTool(self._team.run))
        self._main_agent.restore(state.files)
        self._file_finder = FileFinder(cwd, recent=lambda: self.recorder.state.files, env=env)
        self.client = self._make_client(resumed=bool(past))
        self._titler = None if state.title else asyncio.create_task(give_title(self.recorder, self._small_model))

    def _make_hooks(self) -> HookSet:
        return HookSet(
            self._config.declared.get("hooks", ()),
            session=self._log.session,
            transcript=str(self._log.path),
            cwd=self._cwd,
            root=self._config.root,
            runner=self._runner,
            emit=self.recorder.emit,
            redact=lambda text: self.redact(text),
            swapped=self._config.trust.find_changed_programs,
            permission_mode=lambda: self.policy.permission_mode,
            model=lambda: self._models.ref,
        )

    def create_file_cache(self, agent: str) -> FileCache:
        read_first = self._config.read_before_edit
        return FileCache(self._config.cache, read_first=read_first, writers=self._writers, agent=agent)

    def build_registry(self, agent: str, files: FileCache, desk: HookInbox, *more: Tool[Any]) -> Registry:
        """The tools of one agent. They are its own because they share what it has read."""
        services = ToolDeps(
            files=files,
            runner=self._runner,
            session_folder=self._log.path.parent,
            root=self._config.root,
            on_instructions_written=self._mark_instructions_stale,
            small_model=lambda job, text: self._small_model.ask(job, self.redact(text).text, agent),
            fetch=self._web.fetch,
            search_engine=self._web.search,
            list_collected=lambda: self.recorder.state.list_collected(agent),
            ask_user=self._make_questioner(agent) if self.approvals.can_ask else None,
            background=self._background,
            hooks=desk,
        )
        tools = [*build_standard_tools(services), *self._extra_tools, *more]
        wanted = self._options.tools
        return Registry(
            tools, disabled=find_hidden_tools(tools, self.rule_set.deny_rules, wanted), opted_in=wanted or ()
        )

    def _make_questioner(self, agent: str) -> AskUser:
        return lambda call_id, questions: self.approvals.ask_questions(call_id, questions, agent)

    def _mark_instructions_stale(self) -> None:
        """ODIN.md was written anew: the next prompt begins with it. The running one keeps what was sent before."""
        self._instructions_stale = True

    def _make_main_deps(self, mode: Mode) -> TurnDeps:
        self.fallback.restore_preferred()
        if self._instructions_stale:
            self._instructions_stale = False
            self._instructions = reload_odin_md(self._instructions, self._config.root)
            self.recorder.emit(InstructionsChanged(self._instructions.text))
            if isinstance(self._prompter, SystemPrompt):
                self._prompter = msgspec.structs.replace(self._prompter, instructions=self._instructions.odin_md)
            self._planners.clear()
        return self._main_agent.make_deps(mode)

    def _make_prompter(self) -> SystemPrompt:
        return SystemPrompt(
            header=self._config.system_header,
            base=self._options.system_prompt,
            append=self._options.append_system_prompt,
            instructions=self._instructions.odin_md,
            other_instructions=self._instructions.files_text,
            allowed=self._config.allowed_commands,
            forbidden=self._config.forbidden_commands,
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

    def _make_limits(self) -> TurnLimits:
        config = self._config
        return TurnLimits(
            max_turns=config.max_turns,
            max_tokens=config.max_tokens,
            temperature=config.temperature,
            thinking=config.thinking,
            default_response=config.default_response,
        )

    def save_output(self, text: str) -> str:
        """Keep the whole of a result that is too long for the model, and say where."""
        folder = self._log.path.parent / "outputs"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = folder / f"result-{time.time_ns():x}.txt"
        try:
            data = text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            data = to_valid_unicode(text).encode()
        path.write_bytes(data)
        return str(path)

    def _make_subagent_deps(self, mode: Mode, name: str) -> TurnDeps:
        """A sub-agent has tools and a file cache of its own, and no AgentTool in any mode."""
        return _AgentParts(self, name).make_deps(mode)

    def get_planner(self, mode: Mode, registry: Registry) -> Planner:
        """The model with its prompt and tools. Made once per mode: what was sent before must not change."""
        key = (self._models.ref, mode, registry.list_names())
        if key not in self._planners:
            info = self._models.info
            offered = registry.list_offered(spec_of(mode).allows_tool)
            specs = tuple(tool.build_spec() for tool in offered)
            if 0 < info.context <= MEDIUM_CONTEXT_WINDOW:
                from odin.providers.json_contract import fit_tools_to_window

                specs = fit_tools_to_window(specs, tuple(tool.build_spec(brief=True) for tool in offered), info.context)
            system = self._prompter.build_blocks(mode, brief=0 < info.context <= SMALL_CONTEXT_WINDOW)
            self._planners[key] = Planner(self._models.provider, info, system, specs)
        return self._planners[key]

    def _make_client(self, resumed: bool) -> LocalClient:
        agent = Agent(
            recorder=self.recorder,
            deps_for=self._make_main_deps,
            cwd=self._cwd,
            root=self._config.root,
            mode_for=self._restrict_mode,
            on_idle=self._main_agent.hooks.report_idle,
            lane=self._config.queue.delivery,
            one_at_a_time=self._config.queue.steering == "one-at-a-time",
            on_steered=lambda: self.approvals.cancel_for_agent(""),
            attachments=(attachments := self._make_attachments()),
        )
        self._job_notifier.register(agent)
        self._git_context = GitContext(
            self._config.root, self._env, lambda text: agent.add_note(self.redact(text).text), enabled=not resumed
        )
        opened = SessionOpened(
            cwd=to_valid_unicode(self._cwd),
            model=self._models.ref,
            version=__version__,
            resumed=resumed,
            instructions=self._instructions.text,
            config=self._config.to_public(),
            root=to_valid_unicode(self._config.root),
            model_chosen=self._initial_model.chosen,
            permission_mode=self.policy.permission_mode,
        )
        return LocalClient(
            agent=agent,
            approvals=self.approvals,
            recorder=self.recorder,
            opened=opened,
            info=self._describe_session,
            read_log=self._read_past,
            set_model=self._set_model,
            set_permission_mode=self._set_permission_mode,
            background=self._background,
            checkpoints=self.checkpoints,
            rules=self.rules,
            hooks=self._main_agent.hooks,
            add_hook=self.hooks.add,
            redact=self.redact,
            user_shell=UserShell(self._runner, self.recorder, self.redact, self._cwd, agent.add_context),
            budget=self.budget,
            context=self._report_context,
            models=self._models.list_available,
            refresh_surroundings=self._git_context.gather,
            expander=CommandExpander(self._load_command_library, self.recorder, trusted=self._config.trust.trusted),
            make_loop_mode=self._make_loop_mode,
            compaction=self.compaction.with_planner(lambda mode: self.get_planner(mode, self._main_agent.registry)),
            on_close=self._close,
            attachments=attachments,
            find_files=self._file_finder,
        )

    def _make_attachments(self) -> AttachmentReader:
        return AttachmentReader(
            AttachMeans(
                cwd=self._cwd,
                root=self._config.root,
                home=str(get_home_dir(self._env)),
                session=self._log.session,
                folder=self._log.path.parent,
                files=self._main_agent.files,
                runner=self._runner,
                policy=lambda: self.policy,
                redact=self.redact,
                take_new_files=self._main_agent.take_attached_files,
                context_window=lambda: self._models.info.context,
                sees_images=lambda: self._models.info.images,
            )
        )

    def _load_command_library(self) -> "CommandLibrary":
        from odin.app.command_library import build_command_library

        return build_command_library(self._config, self._env)

    def _make_loop_mode(self) -> "LoopMode":
        from odin.engine.loop_mode import LoopMode

        return LoopMode(self.recorder, self._kind_of)

    def _kind_of(self, name: str) -> Kind | None:
        tool = self._main_agent.registry.get(name)
        return None if tool is None else tool.kind

    def _report_context(self) -> ContextReport:
        from odin.compaction.context_report import build_context_report

        planner = self.get_planner(self.recorder.state.mode, self._main_agent.registry)
        limit, threshold, expected = self.compaction.measure_sizes(planner)
        report = build_context_report(self.recorder.state, planner, limit=limit, threshold=threshold, expected=expected)
        return msgspec.structs.replace(report, compacting=self.compaction.is_running)

    def _describe_session(self) -> SessionInfo:
        mode = self._restrict_mode(mode_of(self._config.mode))
        own = (self._instructions.warning, self._models.warning, self._web.warning, self.sandbox.describe_problem())
        said = (
            *own,
            self._initial_model.warning,
            describe_resumed_grants(self._earlier_grants, self._grants),
            *self._warn_of_unknown_tools(),
        )
        warnings = (*self._config.warnings, *self.rule_set.warnings, *self.hooks.warnings, *filter(None, said))
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
            warnings=warnings,
            model_chosen=self._initial_model.chosen,
            branch=branch_of(self._cwd),
            confirm_timeout_s=self._config.confirm_timeout_s,
            question_timeout_s=self._config.question_timeout_s,
            log_file=str(log_path(self._env)),
        )

    def _warn_of_unknown_tools(self) -> list[str]:
        registry = self._main_agent.registry
        tools = [tool for name in registry.list_names() if (tool := registry.get(name))]
        return warn_of_unknown_tools(
            tools, (line.text for line in self.rule_set.list_rules()), self._options.tools or ()
        )

    def _restrict_mode(self, mode: Mode) -> Mode:
        """Permission mode `plan` makes every prompt one that changes nothing."""
        changes = self.policy.permission_mode == "plan" and spec_of(mode).allows_changes
        return "plan_mode" if changes else mode

    def _list_running_calls(self) -> list[str]:
        return [item.request.call_id for item in self._background.list_all() if item.status == "running"]

    def _read_past(self) -> Iterator[Envelope]:
        return read_log(self._log.path) if self._log.path.exists() else iter(())

    async def _set_model(self, ref: str) -> str:
        self.redact.add_secrets(read_stored_keys(self._env))
        model = await self._models.choose(ref)
        self._initial_model = InitialModel(chosen=True)
        return model

    def _set_permission_mode(self, mode: str) -> str:
        self.policy = self.policy.with_permission_mode(mode)
        return self.policy.permission_mode

    async def _close(self) -> None:
        if self._titler is not None:
            self._titler.cancel()
            await asyncio.wait([self._titler])
        await self._git_context.close()
        await self._file_finder.close()
        await self._runner.close()
        await self.checkpoints.close()
        await self._web.close()
        await self._models.close()


class _AgentParts:
    """The collaborators of one agent: its own tools, gate and file cache."""

    def __init__(self, composition: _Composition, agent: str, *more: Tool[Any]) -> None:
        self._composition = composition
        self.files = composition.create_file_cache(agent)
        desk = HookInbox(composition.recorder, composition.hooks)
        self.hooks = TurnHooks(desk, composition.observers, agent, source=composition.source)
        self.registry = composition.build_registry(agent, self.files, desk, *more)
        self._compaction = composition.compaction.make_budget(agent, desk, self.files)
        self._cache_mark = 0
        self._fresh_files: list[CachedFile] = []
        self._gate = CallPipeline(
            inbox=desk,
            registry=self.registry,
            policy=lambda: composition.policy,
            approvals=composition.approvals,
            recorder=composition.recorder,
            rules=composition.rules,
            preview=preview_change,
            sandbox=composition.sandbox.describe,
            seen_files=self._take_changed_files,
            before=(PlaceholderGuard(composition.redact.find_placeholders), *composition.before_call),
            around=composition.checkpoints.guard_call,
            files=self.files,
            rollback_files=composition.checkpoints.rollback_files,
            speculate=composition.speculate,
            save=composition.save_output,
            redact=composition.redact,
        )

    def restore(self, files: Iterable[CachedFile]) -> None:
        """Take over what an earlier run of the session had read. The model has been told of it."""
        self.files.restore(files)
        self._cache_mark = self.files.take_mark()

    def forget(self) -> None:
        """What was read is not what is there any more, or not in the conversation any more."""
        for file in self.files.list_files():
            self.files.forget(file.path)
        self._cache_mark = self.files.take_mark()
        self._fresh_files.clear()

    def make_deps(self, mode: Mode) -> TurnDeps:
        composition = self._composition
        return TurnDeps(
            recorder=composition.recorder,
            pipeline=self._gate,
            limits=composition.limits,
            retry=composition.retry,
            planner=lambda: composition.get_planner(mode, self.registry),
            take_fresh_files=self._take_fresh_files,
            hooks=self.hooks,
            budget=composition.budget,
            compaction=self._compaction,
            switch_to_fallback=composition.fallback.try_next,
        )

    def _take_changed_files(self) -> Sequence[CachedFile]:
        seen = self.files.list_changed_since(self._cache_mark)
        self._cache_mark = self.files.take_mark()
        self._fresh_files.extend(seen)
        return seen

    def take_attached_files(self) -> Sequence[CachedFile]:
        """The files that a prompt brought along. The model is not told of them: it has them before its eyes."""
        seen = self.files.list_changed_since(self._cache_mark)
        self._cache_mark = self.files.take_mark()
        return seen

    def _take_fresh_files(self) -> list[CachedFile]:
        fresh, self._fresh_files = self._fresh_files, []
        return fresh


def build_standard_registry(cwd: str = "") -> Registry:
    """The standard tools by themselves, for programs that bring their own loop."""
    root = cwd or str(Path.cwd())
    folder = Path(root, ".odin")
    runner = ProcessRunner(folder / "outputs")
    background = BackgroundProcesses(runner, folder / "spawn-logs")
    return Registry(
        build_standard_tools(ToolDeps(FileCache(), runner, session_folder=folder, root=root, background=background))
    )
