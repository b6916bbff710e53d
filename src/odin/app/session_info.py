"""What a front end shows of a session: its settings, its warnings and the use of the context window."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from odin import __version__
from odin.app.policy import list_unknown_tool_warnings
from odin.app.roles import describe_unused_files
from odin.app.sandbox import LazySandbox
from odin.app.workspace import (
    explain_missing_servers,
    find_branch,
    list_project_agent_folders,
    list_project_skill_folders,
)
from odin.compaction.measure import build_context_report
from odin.config.paths import SCRATCH_FOLDER, crash_log_path
from odin.core.client import ContextReport, PluginSummary, SessionInfo
from odin.policy.modes import get_mode_spec
from odin.session.state import describe_resumed_grants

if TYPE_CHECKING:
    from odin.app.compose import SessionServices


_MAX_PROBLEMS = 10
"""Mistakes in agent files that a session reports."""


def describe_session(session: "SessionServices") -> SessionInfo:
    mode = session.get_default_mode()
    return SessionInfo(
        session=session.recorder.state.session,
        cwd=session.cwd,
        model=session.models.selected,
        version=__version__,
        mode=mode,
        permission_mode=session.permission_mode,
        tools=tuple(tool.name for tool in session.main_agent.registry.list_offered(get_mode_spec(mode).allows_tool)),
        notice=session.models.notice,
        sandbox=session.sandbox.describe(),
        budget_usd=session.budget.limit,
        warnings=tuple(_list_warnings(session)),
        model_chosen=session.initial_model.chosen,
        branch=find_branch(session.cwd),
        confirm_timeout_s=session.config.confirm_timeout_s,
        question_timeout_s=session.config.question_timeout_s,
        log_file=str(crash_log_path(session.env)),
        sees_images=session.models.info.images,
        root=session.config.root,
        role=session.roles.name,
        running_model=session.models.ref,
        pool=session.models.selection.pool,
        pools=tuple(session.config.model_pools),
        keys=session.models.connector.list_key_pools(),
        proxy=session.models.connector.find_proxy(session.models.ref),
        rate_limits=session.models.connector.list_rate_limits(),
        effort=session.models.effort,
        skills=session.skills.summaries if session.skills is not None else (),
        plugins=tuple(
            PluginSummary(plugin.name, plugin.version, plugin.description, plugin.folder, plugin.parts)
            for plugin in session.config.plugins
        ),
        servers=() if session.servers is None else session.servers.list_statuses(),
        language_servers=() if session.language_servers is None else session.language_servers.list_states(),
        language_servers_off=explain_missing_servers(session.config) if session.language_servers is None else "",
        writable=session.sandbox.writable,
        scratch=str(session.state_dir / SCRATCH_FOLDER),
    )


def _list_warnings(session: "SessionServices") -> Iterator[str]:
    yield from (*session.config.warnings, *session.rule_set.warnings, *session.hooks.warnings)
    single = (
        session.templates.instructions.warning,
        *session.models.connector.warnings,
        session.web.warning,
        session.sandbox.describe_problem(),
        explain_unusable_auto(session.permission_mode, session.sandbox),
        session.initial_model.warning,
        session.roles.warning,
        describe_resumed_grants(session.earlier_grants, session.grants),
    )
    yield from filter(None, single)
    registry = session.main_agent.registry
    tools = [tool for name in registry.list_names() if (tool := registry.get(name))]
    rules = (line.text for line in session.rule_set.list_rules())
    yield from _list_missing_tools(session)
    yield from filter(None, list_unknown_tool_warnings(tools, rules, session.options.tools or ()))
    yield from _list_agent_warnings(session)
    yield from _list_skill_warnings(session)


def _list_missing_tools(session: "SessionServices") -> Iterator[str]:
    """Warn if an earlier run limited the tools to some that this one does not have. Those of servers may come later."""
    only, registry = session.recorder.state.tools, session.main_agent.registry
    if only is None or session.options.tools is not None:
        return
    missing = [name for name in only if registry.get(name) is None and not name.startswith("mcp__")]
    if missing:
        yield (
            f"This session offers the model only the tools {', '.join(only)}; there is no {', '.join(missing)} here. "
            "Choose other tools with --tools."
        )


def _list_skill_warnings(session: "SessionServices") -> Iterator[str]:
    config = session.config
    if session.skills is not None:
        yield from session.skills.list_warnings()
    if session.memory is not None:
        yield from session.memory.warnings
    if not config.trust.trusted and list_project_skill_folders(config):
        from odin.app.skills import describe_unused_skills

        yield from filter(None, [describe_unused_skills(config)])


def _list_agent_warnings(session: "SessionServices") -> Iterator[str]:
    config = session.config
    if session.roles.has_own_agents:
        problems = [problem.describe() for problem in session.load_agents().problems]
        yield from problems[:_MAX_PROBLEMS]
        if len(problems) > _MAX_PROBLEMS:
            yield f"{len(problems) - _MAX_PROBLEMS} more problems with agent files. See `odin agents`."
    if not config.trust.trusted and any(map(os.path.isdir, list_project_agent_folders(config.root))):
        yield from filter(None, [describe_unused_files(config)])


def report_context(session: "SessionServices") -> ContextReport:
    template = session.get_template(session.recorder.state.mode)
    limit, threshold, expected = session.compaction.measure_sizes(template)
    report = build_context_report(session.recorder.state, template, limit=limit, threshold=threshold, expected=expected)
    return msgspec.structs.replace(report, compacting=session.compaction.is_running)


def explain_unusable_auto(mode: str, sandbox: LazySandbox) -> str:
    """Return why commands would need approval although the permission mode is auto, or ""."""
    unconfined = sandbox.explain_unconfined() if mode == "auto" else ""
    return f"The permission mode auto needs a sandbox, and {unconfined}." if unconfined else ""
