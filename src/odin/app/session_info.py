"""What a front end shows of a session: its settings, its warnings and the use of the context window."""

import os
from collections.abc import Iterator

import msgspec

from odin.app.agents import AgentRuntime
from odin.app.policy import list_unknown_tool_warnings
from odin.app.roles import describe_unused_files
from odin.app.session_parts import SessionParts
from odin.app.workspace import (
    explain_missing_servers,
    find_branch,
    list_project_agent_folders,
    list_project_skill_folders,
)
from odin.compaction.measure import build_context_report, list_sent_instructions
from odin.config.paths import SCRATCH_FOLDER, crash_log_path
from odin.core.client import ContextReport, PluginSummary, SessionInfo
from odin.core.event_values import Mode
from odin.core.format import pluralize
from odin.models.selection import InitialModel
from odin.policy.modes import get_mode_spec
from odin.version import __version__

_MAX_PROBLEMS = 10
"""Mistakes in agent files that a session reports."""


def describe_session(
    parts: SessionParts, main: AgentRuntime, mode: Mode, initial: InitialModel, grants_notice: str
) -> SessionInfo:
    """Return the facts about a session. `grants_notice` tells which permissions of an earlier run are in force."""
    core, permissions, extensions = parts.core, parts.permissions, parts.extensions
    config, environment, models = core.config, core.environment, parts.answering.models
    connector, skills, servers = models.connector, extensions.skills, extensions.servers.current
    languages = extensions.language_servers
    return SessionInfo(
        session=core.recorder.state.session,
        cwd=environment.cwd,
        model=models.selected,
        version=__version__,
        mode=mode,
        permission_mode=permissions.policy.mode,
        tools=tuple(tool.name for tool in main.registry.list_offered(get_mode_spec(mode).allows_tool)),
        notice=models.notice,
        sandbox=permissions.sandbox.describe(),
        budget_usd=parts.answering.budget.limit,
        warnings=tuple(_list_warnings(parts, main, initial, grants_notice)),
        model_chosen=initial.chosen,
        branch=find_branch(environment.cwd),
        confirm_timeout_s=config.confirm_timeout_s,
        question_timeout_s=config.question_timeout_s,
        log_file=str(crash_log_path(environment.variables)),
        sees_images=models.info.images,
        root=config.root,
        roots=permissions.policy.roots,
        role=extensions.roles.name,
        running_model=models.ref,
        pool=models.selection.pool,
        pools=tuple(config.model_pools),
        keys=connector.list_key_pools(),
        proxy=connector.find_proxy(models.ref),
        rate_limits=connector.list_rate_limits(),
        thinking_losses=connector.list_thinking_losses(),
        effort=models.effort,
        skills=skills.summaries if skills is not None else (),
        plugins=tuple(
            PluginSummary(plugin.name, plugin.version, plugin.description, plugin.folder, plugin.parts)
            for plugin in config.plugins
        ),
        servers=() if servers is None else servers.list_statuses(),
        language_servers=() if languages is None else languages.list_states(),
        language_servers_off=explain_missing_servers(config) if languages is None else "",
        writable=permissions.sandbox.writable,
        scratch=str(core.workspace.state_dir / SCRATCH_FOLDER),
        output_style=(style.name if (style := parts.answering.templates.style) is not None else "default"),
        has_status_line=permissions.hooks.has_status_line,
    )


def _list_warnings(parts: SessionParts, main: AgentRuntime, initial: InitialModel, grants_notice: str) -> Iterator[str]:
    core, permissions, answering = parts.core, parts.permissions, parts.answering
    config, roles = core.config, parts.extensions.roles
    yield from (*config.warnings, *permissions.rule_set.warnings, *permissions.hooks.warnings)
    if core.options.yes and config.bypass_disabled_by:
        yield f"{config.bypass_disabled_by}: disableBypassPermissionsMode turns off --yes."
    single = (
        answering.templates.instructions.warning,
        *answering.models.connector.warnings,
        answering.web.warning,
        permissions.sandbox.describe_problem(),
        permissions.policy.explain_unusable_auto(permissions.policy.mode),
        initial.warning,
        roles.warning,
        grants_notice,
    )
    yield from filter(None, single)
    # An earlier run may have limited the tools to some that this one does not have. Those of servers may come later.
    only = core.recorder.state.tools
    if only is not None and core.options.tools is None:
        missing = [name for name in only if main.registry.get(name) is None and not name.startswith("mcp__")]
        if missing:
            yield (
                f"This session offers the model only the tools {', '.join(only)}; there is no {', '.join(missing)} "
                "here. Choose other tools with --tools."
            )
    tools = [tool for name in main.registry.list_names() if (tool := main.registry.get(name))]
    rules = (line.text for line in permissions.rule_set.list_rules())
    yield from filter(None, list_unknown_tool_warnings(tools, rules, core.options.tools or ()))
    if roles.has_own_agents:
        problems = [problem.describe() for problem in roles.load_agents().problems]
        yield from problems[:_MAX_PROBLEMS]
        if len(problems) > _MAX_PROBLEMS:
            yield f"{pluralize(len(problems) - _MAX_PROBLEMS, 'more problem')} with agent files. See `odin agents`."
    trusted = config.trust.trusted
    if not trusted and any(map(os.path.isdir, list_project_agent_folders(config.root))):
        yield from filter(None, [describe_unused_files(config)])
    if parts.extensions.skills is not None:
        yield from parts.extensions.skills.list_warnings()
    if parts.extensions.memory.current is not None:
        yield from parts.extensions.memory.current.warnings
    if not trusted and list_project_skill_folders(config):
        from odin.app.skills import describe_unused_skills

        yield from filter(None, [describe_unused_skills(config)])


def report_context(parts: SessionParts, main: AgentRuntime) -> ContextReport:
    state, compaction = parts.core.recorder.state, parts.answering.compaction
    template = main.get_template(state.mode)
    limit, budget, threshold, expected = compaction.measure_sizes(template)
    report = build_context_report(state, template, limit=limit, budget=budget, threshold=threshold, expected=expected)
    loaded = parts.answering.templates.list_loaded()
    sent = list_sent_instructions(state.build_history())
    return msgspec.structs.replace(report, compacting=compaction.is_running, instructions=(*loaded, *sent))
