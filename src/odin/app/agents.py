"""What each agent of a session gets: the request template of each mode, web access, tools, hooks and file cache."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from odin import __version__
from odin.app.agent_workspaces import AgentWorkspace
from odin.app.attachments import AttachmentDeps, AttachmentReader
from odin.app.policy import VisibleTools, find_hidden_tools
from odin.config import Config, Options, WebSettings, get_config_dir
from odin.config.paths import make_environment
from odin.context.file_cache import FileCache
from odin.context.system_prompt import (
    SystemPrompt,
    SystemPromptSource,
    load_agent_instructions,
    load_instructions,
    load_personal_files,
    reload_odin_md,
)
from odin.core.errors import ConfigError, UsageError
from odin.core.event import InstructionsChanged
from odin.core.event_values import CachedFile, Mode
from odin.core.op import AnswerPlan
from odin.core.provider import FetchResponse, ModelInfo, SearchEngine
from odin.core.text import suggest_similar, to_valid_unicode
from odin.core.tool import PlanProposal, Question, Registry, ResolvedPath, Tool
from odin.core.write_scope import WriteScope
from odin.engine.call import CallDeps, CallScope, CallSteps, TurnCalls
from odin.engine.hooks import HookInbox, TurnHooks
from odin.engine.turn import NoCompaction, RequestTemplate, TurnDeps, TurnVerifier
from odin.models.selection import ModelSelector
from odin.policy.modes import get_mode_spec
from odin.policy.paths import open_for_reading
from odin.providers.tool_adapters import fit_tools
from odin.sandbox.background import BackgroundProcesses
from odin.sandbox.runner import ProcessRunner
from odin.tools import ToolDeps, build_standard_tools
from odin.tools.commands import warn_about_late_changes
from odin.tools.plans import HandoffRoles

if TYPE_CHECKING:
    from odin.app.compose import SessionServices
    from odin.app.skills import SessionSkills
    from odin.context.agent_definition import AgentDefinition
    from odin.engine.pipeline import CallPipeline
    from odin.mcp.servers import AgentServers, SessionServers
    from odin.policy.policy import AgentLimits, Policy
    from odin.providers.web import WebFetcher


SMALL_CONTEXT_WINDOW = 16_384
"""Models with a context window up to this size get the short system prompt."""

MEDIUM_CONTEXT_WINDOW = 32_768
"""Models with a context window up to this size get short tool descriptions, and small ones fewer tools."""


FILES_PROMPT = "You are Odin, a coding agent. Do exactly what the task asks, and no more."
"""The main text of the system prompt for models that write whole files."""


class RequestTemplates:
    """Makes templates from the instruction files and the model in use. `system_prompt` replaces Odin's own."""

    def __init__(
        self,
        config: Config,
        options: Options,
        env: Mapping[str, str],
        cwd: str,
        system_prompt: SystemPromptSource | None,
    ) -> None:
        self.instructions = load_instructions(config.root, cwd, open_for_reading)
        trusted_root = config.root if config.trust.trusted else ""
        own = load_personal_files(str(get_config_dir(env)), trusted_root, open_for_reading)
        if own.personal or own.warning:
            warning = " ".join(filter(None, (self.instructions.warning, own.warning)))
            self.instructions = replace(self.instructions, personal=own.personal, warning=warning)
        self.on_warning: Callable[[str], object] = lambda text: None
        self.skills: SessionSkills | None = None
        self.memory = ""
        self._is_stale = False
        self._root = config.root
        self._edit_format = config.edit_format
        self._prompt = system_prompt or SystemPrompt(
            header=config.system_header,
            base=options.system_prompt,
            append=options.append_system_prompt,
            personal=self.instructions.personal_text,
            instructions=self.instructions.odin_md,
            other_instructions=self.instructions.files_text,
            allowed=config.allowed_commands,
            forbidden=config.forbidden_commands,
        )
        self._templates: dict[tuple[str, Mode, tuple[str, ...], tuple[object, ...]], RequestTemplate] = {}

    def get(
        self,
        mode: Mode,
        registry: Registry,
        models: ModelSelector,
        agent: "AgentDefinition | None" = None,
        base: str | None = None,
    ) -> RequestTemplate:
        """Return the template of a mode, with the prompt and the tools of the agent's definition.

        `base` replaces the main text of the system prompt.

        It is made once, so that the cached prefix of requests never changes.
        """
        mode = mode if agent is None else agent.restrict_mode(mode)
        spec, named = get_mode_spec(mode), () if agent is None else agent.tools or ()
        offered = registry.list_offered(
            lambda tool: spec.allows_kind(tool.kind) if tool.name in named else spec.allows_tool(tool)
        )
        provider, info = models.provider, models.info
        if self._is_patching(info):
            offered = _offer_patches(offered, registry)
        if agent is not None:
            offered = tuple(tool for tool in offered if agent.has_tool(tool.name, tool.server_tool))
        own = (base,) if agent is None else (agent.name, agent.prompt, agent.instructions, agent.skills, base)
        key = (models.ref, mode, tuple(tool.name for tool in offered), (*own, registry.version))
        known = self._templates.get(key)
        if known is None or known.provider is not provider:
            specs = tuple(tool.build_spec() for tool in offered)
            window = SMALL_CONTEXT_WINDOW if info.is_small else info.context
            if 0 < window <= MEDIUM_CONTEXT_WINDOW:
                specs = fit_tools(specs, tuple(tool.build_spec(brief=True) for tool in offered), info)
            system = self._get_prompt(self._choose_base(base, info)).build_blocks(
                mode, brief=0 < window <= SMALL_CONTEXT_WINDOW
            )
            if self.skills is not None:
                system = (*system, *self._build_skill_blocks(self.skills, agent, offered, info))
            system = (*system, *(text for source in registry.sources if (text := source.describe_to_model())))
            if self.memory and isinstance(self._prompt, SystemPrompt):
                system = (*system, self.memory)
            if agent is not None:
                system = (*system, *self._build_own_blocks(agent))
            self._templates[key] = RequestTemplate(provider, info, system, specs)
        elif known.info.options != info.options:
            self._templates[key] = replace(known, info=info)
        return self._templates[key]

    def _choose_base(self, base: str | None, info: ModelInfo) -> str | None:
        """Return the main text of the system prompt, None for the usual one. A planner adds its own instructions."""
        if base is not None or info.strategy == "tools" or not isinstance(self._prompt, SystemPrompt):
            return base
        return FILES_PROMPT if self._prompt.base is None else None

    def _get_prompt(self, base: str | None) -> SystemPromptSource:
        if base is None:
            return self._prompt
        return replace(self._prompt if isinstance(self._prompt, SystemPrompt) else SystemPrompt(), base=base)

    def forget(self) -> None:
        """Make all templates again: a tool was replaced."""
        self._templates.clear()

    def _build_skill_blocks(
        self, skills: "SessionSkills", agent: "AgentDefinition | None", offered: Iterable[Tool[Any]], info: ModelInfo
    ) -> tuple[str, ...]:
        """Return what the prompt says about skills. A system prompt of the caller's own stays as it is."""
        if not isinstance(self._prompt, SystemPrompt):
            return ()
        for problem in skills.find_named_problems(agent):
            self.on_warning(problem)
        has_tool = any(tool.name == "Skill" for tool in offered)
        return skills.build_blocks(agent, offered=has_tool, brief=0 < info.context <= SMALL_CONTEXT_WINDOW)

    def _build_own_blocks(self, agent: "AgentDefinition") -> tuple[str, ...]:
        """Return what the system prompt of this agent has beyond that of others: its prompt and its instructions."""
        prompt = f"# Role: {agent.name}\n{agent.prompt}" if agent.prompt else ""
        if not agent.instructions:
            return (prompt,) if prompt else ()
        own = load_agent_instructions(self._root, agent.instructions, self.instructions, open_for_reading)
        if own.warning:
            self.on_warning(own.warning)
        return tuple(filter(None, (own.files_text, prompt)))

    def _is_patching(self, info: ModelInfo) -> bool:
        """True if the model edits files with apply_patch."""
        wanted = info.edit_format if self._edit_format == "auto" else self._edit_format
        return wanted == "patch" and info.tools != "json"

    def mark_stale(self) -> None:
        """ODIN.md was written. The next prompt uses it; the running turn keeps the prompt it has sent."""
        self._is_stale = True

    def reload_if_stale(self) -> InstructionsChanged | None:
        """Reload ODIN.md if it was written; return the event to record."""
        if not self._is_stale:
            return None
        self._is_stale = False
        self.instructions = reload_odin_md(self.instructions, self._root, open_for_reading)
        if isinstance(self._prompt, SystemPrompt):
            self._prompt = replace(self._prompt, instructions=self.instructions.odin_md)
        self._templates.clear()
        return InstructionsChanged(self.instructions.text)


class WebAccess:
    """Fetches pages and searches. `warning` says why a configured search engine is unavailable."""

    def __init__(self, settings: WebSettings, env: Mapping[str, str]) -> None:
        self._settings = settings
        self._env = env
        self._fetchers: dict[bool, WebFetcher] = {}  # by whether they are guarded
        self.warning = ""
        self.search = self._make_engine(settings)

    async def fetch(self, url: str, **options: Any) -> FetchResponse:
        """Fetch a page. Names that lead into private networks are refused."""
        return await self._get_fetcher(guarded=True).fetch(url, **options)

    async def _fetch_results(self, url: str, **options: Any) -> FetchResponse:
        """Fetch from the search engine, which the user has configured, wherever it is."""
        return await self._get_fetcher(guarded=False).fetch(url, **options)

    def _get_fetcher(self, *, guarded: bool) -> "WebFetcher":
        if guarded not in self._fetchers:
            from odin.providers.address_guard import AddressGuard
            from odin.providers.web import WebFetcher

            agent = self._settings.user_agent or f"odin/{__version__}"
            guard = AddressGuard(self._settings.private_hosts) if guarded else None
            self._fetchers[guarded] = WebFetcher(self._env, agent, self._settings.timeout_s, guard=guard)
        return self._fetchers[guarded]

    async def close(self) -> None:
        for fetcher in self._fetchers.values():
            await fetcher.close()

    def _make_engine(self, settings: WebSettings) -> SearchEngine | None:
        search = settings.search
        if search.backend == "none":
            return None
        from odin.providers.web import make_engine

        try:
            return make_engine(search.backend, self._fetch_results, url=search.url, key=search.api_key)
        except ConfigError as error:
            self.warning = f"WebSearch is not available. {error.describe()}"
            return None


class AgentRuntime:
    """The parts of one agent: its own tools, hooks, call pipeline and file cache. `more` are tools only it has.

    Each agent has its own tools, because tools remember what their agent has read. `scope` limits what it may change.
    `workspace` is where it works, if not in the project.
    """

    def __init__(
        self,
        services: "SessionServices",
        agent: str,
        *more: Tool[Any],
        scope: WriteScope | None = None,
        workspace: AgentWorkspace | None = None,
        definition: "AgentDefinition | None" = None,
        models: ModelSelector | None = None,
    ) -> None:
        self._services = services
        self._agent = agent
        self.workspace = workspace or services.workspaces.main
        if self.workspace.runner is not services.runner:
            services.background.add_runner(agent, self.workspace.runner)
        self._scope = scope or WriteScope()
        self._type = definition
        self.models = models or services.models
        self.system_prompt: str | None = None
        self.limits: AgentLimits | None = None
        self.turn_limits = services.limits
        config = services.config
        self.files = FileCache(
            config.cache, read_first=config.read_before_edit, ownership=services.ownership, agent=agent
        )
        inbox = HookInbox(services.recorder, services.hooks)
        self._servers, language_servers = self._find_servers(definition), services.language_servers
        self._reviewer = None if language_servers is None else language_servers.make_call_reviewer(self.workspace)
        prepared = tuple(part.prepare_request for part in (self._servers, self._reviewer) if part is not None)
        self.hooks = TurnHooks(inbox, services.hook_tasks, agent, source=services.source, preparations=prepared)
        self.registry = self._build_registry(inbox, more)
        self._compaction = services.compaction.make_budget(agent, inbox, self.files)
        self._cache_mark = 0
        self._fresh_files: list[CachedFile] = []
        self._inbox = inbox

    @cached_property
    def _pipeline(self) -> "CallPipeline":
        from odin.app.reply_modules import load_reply_modules
        from odin.engine.pipeline import CallPipeline
        from odin.engine.speculation import SpeculationSettings

        load_reply_modules()
        enabled, rollback_files = self._services.config.speculate, self._services.checkpoints.rollback_files
        speculation = SpeculationSettings(enabled, self.files, rollback_files)
        return CallPipeline(self._make_call_deps(self._inbox), speculation)

    def _find_servers(self, definition: "AgentDefinition | None") -> "SessionServers | AgentServers | None":
        if definition is None or not any(definition.servers.values()):
            return self._services.servers
        from odin.app.mcp_servers import make_agent_servers

        return make_agent_servers(self._services, definition)

    def has_tool(self, name: str) -> bool:
        """True if this agent may use the tool: no rule denies it by name, and its type or role has it."""
        tool, definition = self.registry.get(name), self._definition
        return tool is not None and (definition is None or definition.has_tool(name, tool.server_tool))

    def _build_registry(self, hooks: HookInbox, more: Sequence[Tool[Any]]) -> Registry:
        services, agent = self._services, self._agent
        deps = ToolDeps(
            files=self.files,
            runner=self.workspace.runner,
            session_folder=services.folder,
            root=self.workspace.root,
            on_instructions_written=services.templates.mark_stale,
            small_model=lambda job, text: services.small_model.ask(job, services.redact(text).text, agent),
            fetch=services.web.fetch,
            search_engine=services.web.search,
            list_collected=lambda: services.recorder.state.list_collected(agent),
            ask_user=self._ask_questions if services.approvals.can_ask else None,
            ask_plan=self._ask_plan if services.approvals.can_ask else None,
            handoff_roles=None if agent else self._list_handoff_roles,
            background=services.background,
            hooks=hooks,
        )
        servers = services.language_servers
        asking = () if servers is None else servers.make_tools(self.workspace, self.files)
        tools = [*build_standard_tools(deps), *asking, *services.custom.tools, *more]
        if services.skills is not None:
            tools.append(services.skills.make_tool(services.recorder, agent, lambda: self._definition))
        if services.memory is not None and not agent:
            from odin.tools.memory import MemoryTool

            tools.append(MemoryTool(services.memory))
        wanted = services.options.tools
        disabled = find_hidden_tools(tools, services.rule_set.deny_rules, wanted)
        sources = () if self._servers is None else (VisibleTools(self._servers, services.rule_set),)
        return Registry(tools, disabled=disabled, opted_in=wanted or (), sources=sources)

    def _make_call_deps(self, hooks: HookInbox) -> CallDeps:
        from odin.engine.execution import PlaceholderGuard

        services, reviewer = self._services, self._reviewer
        steps = CallSteps(
            before=(PlaceholderGuard(services.redact.find_placeholders), *services.custom.before_call),
            around=services.checkpoints.guard_call,
            after=() if reviewer is None else (reviewer.follow_call,),
        )
        return CallDeps(
            registry=self.registry,
            policy=self.make_policy,
            approvals=services.approvals,
            recorder=services.recorder,
            hooks=hooks,
            redact=services.redact,
            rules=services.rules,
            preview=_preview_change,
            sandbox=self._describe_sandbox,
            steps=steps,
            take_seen_files=self._take_changed_files,
            save=partial(_save_output, services.folder / "outputs"),
            set_permission_mode=services.set_permission_mode,
        )

    def make_attachments(self) -> AttachmentReader:
        """Return the reader of what prompts to this agent attach."""
        services = self._services
        return AttachmentReader(
            AttachmentDeps(
                cwd=services.cwd,
                root=services.config.root,
                home=services.environment.home,
                session=services.recorder.state.session,
                folder=services.folder,
                files=self.files,
                runner=services.runner,
                policy=lambda: services.policy,
                redact=services.redact,
                take_new_files=self.take_new_files,
                context_window=lambda: services.models.info.context,
                sees_images=lambda: services.models.info.images,
                resources=services.servers,
            )
        )

    def make_policy(self) -> "Policy":
        """Return the session's policy, limited by the role, for the folder this agent works in and its write scope."""
        policy, workspace = self._services.roles.restrict(self._services.policy), self.workspace
        used, skills = self._services.recorder.state.skills.list_in_use(self._agent), self._services.skills
        if skills is not None and (found := (*used, *skills.list_named(self._definition))):
            policy = policy.with_skills(found)
        if workspace is not self._services.workspaces.main:
            policy = policy.with_root(workspace.root, workspace.environment, workspace.sandbox)
        if self.limits is not None:
            policy = policy.restrict(self.limits)
        return policy.with_write_scope(self._scope) if self._scope.is_limited else policy

    def _describe_sandbox(self) -> str:
        """Return one line for permission requests: the sandbox, and whether it confines commands to the scope."""
        sandbox = self.workspace.sandbox
        if not self._scope.is_limited:
            return sandbox.describe()
        confines = "confined to" if sandbox.can_confine() else "NOT confined to"
        return f"{sandbox.describe()}; commands are {confines} the agent's write scope: {self._scope.describe()}"

    async def _ask_questions(self, call_id: str, questions: tuple[Question, ...]) -> tuple[tuple[str, ...], ...] | None:
        return await self._services.approvals.ask_questions(call_id, questions, self._agent)

    async def _ask_plan(self, call_id: str, plan: PlanProposal) -> AnswerPlan:
        services = self._services
        clean = replace(plan, text=services.redact(plan.text).text)
        answer = await services.approvals.ask_plan(call_id, clean, self._agent)
        if answer.decision == "approve":
            await services.switch_role(answer.role)
        return answer

    def _list_handoff_roles(self) -> HandoffRoles:
        roles = self._services.roles
        return HandoffRoles(roles.name, roles.list_executors(), roles.only_plans)

    def restore(self, files: Iterable[CachedFile], out_of_view: Mapping[str, str]) -> None:
        """Restore the files that an earlier run had read. The model already has their content."""
        self.files.restore(files, out_of_view.items())
        self._cache_mark = self.files.take_mark()

    def forget(self) -> None:
        """Forget every file that was read: it has changed, or is no longer part of the conversation."""
        self.files.forget_all()
        self._cache_mark = self.files.take_mark()
        self._fresh_files.clear()

    def make_deps(self, mode: Mode) -> TurnDeps:
        services, limits = self._services, self.turn_limits
        self.models.begin_prompt()
        if services.skills is not None:
            services.skills.mark_named(services.recorder, self._agent, self._definition)
        role = None if self._agent else services.roles.definition
        if role is not None and role.max_turns:
            limits = replace(limits, max_turns=role.max_turns)
        return TurnDeps(
            recorder=services.recorder,
            get_pipeline=lambda: self._pipeline,
            limits=limits,
            retry=services.retry,
            template=self.get_template,
            take_fresh_files=self._take_fresh_files,
            hooks=self.hooks,
            budget=services.budget,
            compaction=NoCompaction() if self.models.info.strategy == "files" else self._compaction,
            failover=self.models,
            clock=services.approvals.measure_work,
            take_late_warning=self._take_late_warning,
            make_verifier=self._make_verifier,
        )

    def _take_late_warning(self) -> str:
        """Return a warning about protected files that background processes changed since the last one, or ""."""
        return warn_about_late_changes(self.workspace.runner.take_late_changes())

    def _make_verifier(self, turn: str, scope: CallScope, calls: TurnCalls) -> TurnVerifier | None:
        """Return the verifier of a turn that has changed files; None if it is off or the model takes no reminders."""
        services = self._services
        if services.config.verify.mode == "off" or not services.models.info.takes_instructions:
            return None
        return services.verification.make_verifier(self._pipeline, turn, scope, calls)

    @property
    def _definition(self) -> "AgentDefinition | None":
        """The type of a sub-agent, or the role of the main agent."""
        return self._type if self._agent else self._services.roles.definition

    def get_template(self, mode: Mode) -> RequestTemplate:
        return self._services.templates.get(mode, self.registry, self.models, self._definition, base=self.system_prompt)

    def offer_only(self, names: Collection[str] | None) -> tuple[str, ...] | None:
        """Offer only these tools from the next request on, None: the usual ones. Return their full names.

        Raise UsageError for an unknown tool.
        """
        found = [self._find_tool(name) for name in names or ()]
        only = None if names is None else tuple(dict.fromkeys(tool.name for tool in found))
        self.registry.offer_only(only)
        return only

    def _find_tool(self, name: str) -> Tool[Any]:
        tool = self.registry.get(name)
        if tool is None:
            names = self.registry.list_names()
            raise UsageError(f"There is no tool {name!r}.{suggest_similar(name, names)}", f"Tools: {', '.join(names)}.")
        return tool

    def add_tools(self, tools: Iterable[Tool[Any]]) -> None:
        """Add tools, in place of those that have the same name."""
        for tool in tools:
            self.registry.register(tool)
        self._services.templates.forget()

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


def _offer_patches(offered: tuple[Tool[Any], ...], registry: Registry) -> tuple[Tool[Any], ...]:
    """Return the tools with apply_patch in place of those that it replaces, if it may be used."""
    patch = registry.get("apply_patch")
    if patch is None or registry.is_disabled(patch.name):
        return offered
    swapped = [patch if tool.name == "EditTool" else tool for tool in offered]
    is_offered = patch in swapped
    return tuple(tool for tool in swapped if not (is_offered and tool.name in ("MultiEditTool", "Delete")))


def build_standard_registry(cwd: str = "", *, read_before_edit: bool = True) -> Registry:
    """Return the standard tools, for programs with their own agent loop."""
    environment = make_environment(cwd=cwd)
    root = environment.cwd
    folder = Path(root, ".odin")
    runner = ProcessRunner(environment, folder / "outputs")
    background = BackgroundProcesses(runner, folder / "spawn-logs")
    files = FileCache(read_first=read_before_edit)
    return Registry(
        build_standard_tools(ToolDeps(files, runner, session_folder=folder, root=root, background=background))
    )


async def _preview_change(args: Any, resolved_paths: tuple[ResolvedPath, ...]) -> str:
    """Return the preview of a change. Imported with the first permission request."""
    from odin.tools.change_preview import preview_change

    return await preview_change(args, resolved_paths)


def _save_output(folder: Path, text: str) -> str:
    """Save a result that is too long for the model; return its path."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / f"result-{time.time_ns():x}.txt"
    try:
        data = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        data = to_valid_unicode(text).encode()
    path.write_bytes(data)
    return str(path)
