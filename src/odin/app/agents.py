"""What each agent of a session gets: its tools, hooks, call pipeline and file cache."""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from odin.app.agent_workspaces import AgentWorkspace
from odin.app.attachments import AttachmentDeps, AttachmentReader
from odin.app.policy import VisibleTools, find_hidden_tools
from odin.app.session_parts import SessionParts
from odin.config import Config
from odin.config.paths import make_environment
from odin.context.file_cache import FileCache, FileOwnership
from odin.core.effects import FileEffect, ViewLayer
from odin.core.errors import UsageError
from odin.core.event import PermissionModeChanged, RoleChanged, Warned
from odin.core.event_values import CachedFile, Mode
from odin.core.op import Answer
from odin.core.text import suggest_similar, to_valid_unicode
from odin.core.tool import PlanProposal, Question, Registry, ResolvedPath, Tool
from odin.core.write_scope import WriteScope
from odin.engine.call import CallDeps, CallScope, CallSteps, TurnCalls
from odin.engine.hooks import HookInbox, TurnHooks
from odin.engine.turn import NoCompaction, RequestTemplate, TurnDeps, TurnVerifier
from odin.models.selection import ModelSelector
from odin.sandbox.background import BackgroundProcesses
from odin.sandbox.runner import ProcessRunner
from odin.tools import ToolDeps, build_standard_tools
from odin.tools.commands import warn_about_late_changes
from odin.tools.plans import HandoffRoles

if TYPE_CHECKING:
    from odin.context.agent_definition import AgentDefinition
    from odin.engine.pipeline import CallPipeline
    from odin.mcp.servers import AgentServers, SessionServers
    from odin.policy.policy import AgentLimits, Policy


class SeenFiles:
    """The files that an agent has read, and what of them its model has not been told."""

    def __init__(self, files: FileCache) -> None:
        self.files = files
        self._mark = 0
        self._fresh: list[CachedFile] = []

    def restore(self, files: Iterable[CachedFile], out_of_view: Mapping[str, str]) -> None:
        """Restore the files that an earlier run had read. The model already has their content."""
        self.files.restore(files, out_of_view.items())
        self._mark = self.files.take_mark()

    def forget(self) -> None:
        """Forget every file that was read: it has changed, or is no longer part of the conversation."""
        self.files.forget_all()
        self._mark = self.files.take_mark()
        self._fresh.clear()

    def take_new(self) -> Sequence[CachedFile]:
        """Return the files that entered the cache since the last call. The model is not told: it has their content."""
        seen = self.files.list_changed_since(self._mark)
        self._mark = self.files.take_mark()
        return seen

    def take_changed(self) -> Sequence[CachedFile]:
        """Like `take_new`, but the next request names them."""
        seen = self.take_new()
        self._fresh.extend(seen)
        return seen

    def take_fresh(self) -> list[CachedFile]:
        fresh, self._fresh = self._fresh, []
        return fresh


class AgentRuntime:
    """The parts of one agent: its own tools, hooks, call pipeline and file cache. `more` are tools only it has.

    Each agent has its own tools, because tools remember what their agent has read. `scope` limits what it may change.
    `workspace` is where it works, if not in the project.
    """

    def __init__(
        self,
        parts: SessionParts,
        agent: str,
        *more: Tool[Any],
        seen: SeenFiles | None = None,
        scope: WriteScope | None = None,
        workspace: AgentWorkspace | None = None,
        definition: "AgentDefinition | None" = None,
        models: ModelSelector | None = None,
    ) -> None:
        core, permissions, work = parts.core, parts.permissions, parts.work
        self._parts = parts
        self._agent = agent
        self.workspace = workspace or work.workspaces.main
        if self.workspace.runner is not permissions.runner:
            work.background.add_runner(agent, self.workspace.runner)
        self._scope = scope or WriteScope()
        self._type = definition
        self.models = models or parts.answering.models
        self.system_prompt: str | None = None
        self.limits: AgentLimits | None = None
        self.turn_limits = parts.answering.limits
        self.seen = seen or make_seen_files(core.config, work.ownership, agent)
        inbox = HookInbox(core.recorder, permissions.hooks)
        self._servers, language_servers = self._find_servers(definition), parts.extensions.language_servers
        self._reviewer = None if language_servers is None else language_servers.make_call_reviewer(self.workspace)
        prepared = tuple(part.prepare_request for part in (self._servers, self._reviewer) if part is not None)
        self.hooks = TurnHooks(inbox, work.hook_tasks, agent, source=core.source, preparations=prepared)
        self.registry = self._build_registry(inbox, more)
        self._compaction = parts.answering.compaction.make_budget(agent, inbox, self.seen.files)
        self._inbox = inbox

    @cached_property
    def _pipeline(self) -> "CallPipeline":
        from odin.app.reply_modules import load_reply_modules
        from odin.engine.pipeline import CallPipeline
        from odin.engine.speculation import SpeculationSettings

        load_reply_modules()
        enabled, rollback_files = self._parts.core.config.speculate, self._parts.work.checkpoints.rollback_files
        speculation = SpeculationSettings(enabled, self.seen.files, rollback_files)
        return CallPipeline(self._make_call_deps(self._inbox), speculation)

    def _find_servers(self, definition: "AgentDefinition | None") -> "SessionServers | AgentServers | None":
        servers = self._parts.extensions.servers
        if definition is None or not any(definition.servers.values()):
            return servers.current
        from odin.app.mcp_servers import add_agent_servers

        return add_agent_servers(servers.open(), definition, self._parts.core, self._parts.permissions.redact)

    def has_tool(self, name: str) -> bool:
        """True if this agent may use the tool: no rule denies it by name, and its type or role has it."""
        tool, definition = self.registry.get(name), self._definition
        return tool is not None and (definition is None or definition.has_tool(name, tool.server_tool))

    def _build_registry(self, hooks: HookInbox, more: Sequence[Tool[Any]]) -> Registry:
        core, permissions, answering, extensions, agent = (
            self._parts.core,
            self._parts.permissions,
            self._parts.answering,
            self._parts.extensions,
            self._agent,
        )
        deps = ToolDeps(
            files=self.seen.files,
            runner=self.workspace.runner,
            session_folder=core.folder,
            root=self.workspace.root,
            on_instructions_written=answering.templates.mark_stale,
            small_model=lambda job, text: answering.small_model.ask(job, permissions.redact(text).text, agent),
            fetch=answering.web.fetch,
            search_engine=answering.web.search,
            list_collected=lambda: core.recorder.state.list_collected(agent),
            ask_user=self._ask_questions if core.options.can_ask else None,
            ask_plan=self._ask_plan if core.options.can_ask else None,
            handoff_roles=None if agent else self._list_handoff_roles,
            background=self._parts.work.background,
            hooks=hooks,
        )
        servers = extensions.language_servers
        asking = () if servers is None else servers.make_tools(self.workspace, self.seen.files)
        tools = [*build_standard_tools(deps), *asking, *core.custom.tools, *more]
        if extensions.skills is not None:
            tools.append(extensions.skills.make_tool(core.recorder, agent, lambda: self._definition))
        if extensions.memory.current is not None and not agent:
            from odin.tools.memory import MemoryTool

            tools.append(MemoryTool(extensions.memory.current))
        wanted, rule_set = core.options.tools, permissions.rule_set
        disabled = find_hidden_tools(tools, rule_set.deny_rules, wanted)
        sources = () if self._servers is None else (VisibleTools(self._servers, rule_set),)
        return Registry(tools, disabled=disabled, opted_in=wanted or (), sources=sources)

    def _make_call_deps(self, hooks: HookInbox) -> CallDeps:
        from odin.engine.placeholder_guard import PlaceholderGuard

        core, permissions, reviewer = self._parts.core, self._parts.permissions, self._reviewer
        steps = CallSteps(
            before=(PlaceholderGuard(permissions.redact.find_placeholders), *core.custom.before_call),
            around=self._parts.work.checkpoints.guard_call,
            after=(
                self.workspace.sandbox.share_temporary_files,
                *(() if reviewer is None else (reviewer.follow_call,)),
            ),
            apply=self._parts.work.checkpoints.apply_view,
            follow=self._follow_change,
        )
        return CallDeps(
            registry=self.registry,
            policy=self.make_policy,
            interactions=permissions.interactions,
            recorder=core.recorder,
            hooks=hooks,
            redact=permissions.redact,
            rules=permissions.rules,
            preview=_preview_change,
            preview_effects=_preview_effects,
            list_secret_files=lambda: self.workspace.sandbox.find_secret_files(),
            keep_layer=partial(_keep_layer, f"{core.folder}/layers"),
            find_moved=self._parts.work.background.find_moved,
            sandbox=self._describe_sandbox,
            steps=steps,
            take_seen_files=self.seen.take_changed,
            save=partial(_save_output, core.folder / "outputs"),
            set_permission_mode=permissions.policy.set_mode,
        )

    @cached_property
    def attachments(self) -> AttachmentReader:
        """Reads what prompts to this agent attach."""
        core, permissions, models = self._parts.core, self._parts.permissions, self._parts.answering.models
        return AttachmentReader(
            AttachmentDeps(
                cwd=core.environment.cwd,
                root=core.config.root,
                home=core.environment.home,
                session=core.recorder.state.session,
                folder=core.folder,
                files=self.seen.files,
                runner=permissions.runner,
                policy=permissions.policy.get,
                list_roots=lambda: permissions.policy.roots,
                redact=permissions.redact,
                take_new_files=self.seen.take_new,
                context_window=lambda: models.info.context,
                sees_images=lambda: models.info.images,
                resources=self._parts.extensions.servers.current,
            )
        )

    def make_policy(self) -> "Policy":
        """Return the session's policy, limited by the role, for the folder this agent works in and its write scope."""
        extensions, workspace = self._parts.extensions, self.workspace
        policy = extensions.roles.restrict(self._parts.permissions.policy.get())
        used, skills = self._parts.core.recorder.state.skills.list_in_use(self._agent), extensions.skills
        named = skills.list_named(self._definition) if skills is not None else ()
        if used or named:
            policy = policy.with_skills((*used, *named))
        if workspace is not self._parts.work.workspaces.main:
            is_worktree = workspace.worktree is not None
            policy = policy.with_root(workspace.root, workspace.environment, workspace.sandbox, is_worktree=is_worktree)
        if self.limits is not None:
            policy = policy.restrict(self.limits)
        return policy.with_write_scope(self._scope) if self._scope.is_limited else policy

    def _describe_sandbox(self) -> str:
        """Return one line for permission requests: the sandbox, and whether it confines commands to the scope."""
        sandbox = self.workspace.sandbox
        if not self._scope.is_limited:
            return sandbox.describe()
        confines = "confined to" if sandbox.is_confining() else "NOT confined to"
        return f"{sandbox.describe()}; commands are {confines} the agent's write scope: {self._scope.describe()}"

    async def _ask_questions(self, call_id: str, questions: tuple[Question, ...]) -> tuple[tuple[str, ...], ...] | None:
        return await self._parts.permissions.interactions.ask_questions(call_id, questions, self._agent)

    async def _ask_plan(self, call_id: str, plan: PlanProposal) -> Answer:
        permissions = self._parts.permissions
        # Every other mode that asks accepts edits already.
        modes = ("acceptEdits",) if permissions.policy.get().permission_mode == "default" else ()
        clean = replace(plan, text=permissions.redact(plan.text).text, permission_modes=modes)
        answer = await permissions.interactions.ask_plan(call_id, clean, self._agent)
        if answer.plan_decision == "approve":
            # The main agent gets the role that carries out the plan.
            roles, emit = self._parts.extensions.roles, self._parts.core.recorder.emit
            role, changed = await roles.switch(answer.role)
            accepts = answer.permission_mode in modes
            mode = await permissions.policy.set_mode(answer.permission_mode) if accepts else ""
            for event in (
                Warned(roles.warning) if roles.warning else None,
                RoleChanged(role) if role else None,
                changed,
                PermissionModeChanged(mode) if accepts else None,
            ):
                if event is not None:
                    emit(event)
        return answer

    def _list_handoff_roles(self) -> HandoffRoles:
        roles = self._parts.extensions.roles
        return HandoffRoles(roles.name, roles.list_executors(), roles.only_plans)

    def make_deps(self, mode: Mode) -> TurnDeps:
        parts, answering, limits = self._parts, self._parts.answering, self.turn_limits
        self.models.begin_prompt()
        if parts.extensions.skills is not None:
            parts.extensions.skills.mark_named(parts.core.recorder, self._agent, self._definition)
        role = None if self._agent else parts.extensions.roles.definition
        if role is not None and role.max_turns:
            limits = replace(limits, max_turns=role.max_turns)
        return TurnDeps(
            recorder=parts.core.recorder,
            get_pipeline=lambda: self._pipeline,
            limits=limits,
            retry=answering.retry,
            template=self.get_template,
            take_fresh_files=self.seen.take_fresh,
            hooks=self.hooks,
            budget=answering.budget,
            compaction=NoCompaction() if self.models.info.strategy == "files" else self._compaction,
            failover=self.models,
            clock=partial(parts.permissions.interactions.measure_work, self._agent),
            time_of_day=self.workspace.environment.timing.clock,
            take_late_warning=self._take_late_warning,
            make_verifier=self._make_verifier,
            find_instructions=self._find_instructions,
        )

    async def _find_instructions(self, paths: Sequence[str]) -> list[str]:
        """Return the notes on the instructions for these files, without secrets."""
        parts = self._parts
        history = parts.core.recorder.state.get_thread(self._agent).build_history()
        notes = await parts.answering.templates.find_notes(paths, self.workspace.root, history)
        return [parts.permissions.redact(note).text for note in notes]

    def _follow_change(self, place: ResolvedPath, cwd: str) -> str:
        from odin.tools.staleness import follow_change

        return follow_change(self.seen.files, place, cwd)

    def _take_late_warning(self) -> str:
        """Return a warning about protected files that background processes changed since the last one, or ""."""
        return warn_about_late_changes(self.workspace.runner.take_late_changes())

    def _make_verifier(self, turn: str, scope: CallScope, calls: TurnCalls) -> TurnVerifier | None:
        """Return the verifier of a turn that has changed files; None if it is off or the model takes no reminders."""
        parts = self._parts
        if parts.core.config.verify.mode == "off" or not parts.answering.models.info.takes_instructions:
            return None
        return parts.work.verification.open().make_verifier(self._pipeline, turn, scope, calls)

    @property
    def _definition(self) -> "AgentDefinition | None":
        """The type of a sub-agent, or the role of the main agent."""
        return self._type if self._agent else self._parts.extensions.roles.definition

    def get_template(self, mode: Mode) -> RequestTemplate:
        return self._parts.answering.templates.get(
            mode,
            self.registry,
            self.models,
            self._definition,
            base=self.system_prompt,
            is_styled=not self._agent,
        )

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
        self._parts.answering.templates.forget()


def make_seen_files(config: Config, ownership: FileOwnership, agent: str) -> SeenFiles:
    return SeenFiles(FileCache(config.cache, read_first=config.read_before_edit, ownership=ownership, agent=agent))


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


def _keep_layer(folder: str, layer: ViewLayer) -> str:
    from odin.sandbox.views.store import keep_layer

    return keep_layer(layer, folder)


async def _preview_effects(layer: ViewLayer, effects: Sequence[FileEffect], root: str) -> str:
    from odin.tools.change_preview import preview_effects

    return await preview_effects(layer, effects, root)


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
