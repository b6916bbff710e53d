"""`odin explain`: whether a tool call would run, be asked about or be denied, and why.

Uses the configuration, rules and trust that a session in the same folder would use.
"""

import asyncio
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from odin.app.agents import build_standard_registry
from odin.app.policy import SessionPolicy, load_rule_set
from odin.app.sandbox import LazySandbox
from odin.commands.command_line import (
    Parser,
    add_root_flag,
    make_formatter,
    split_list,
    write_json,
    write_message,
    write_output,
)
from odin.config import Config, Options, load
from odin.config.paths import make_environment
from odin.core.environment import ExecutionEnvironment
from odin.core.errors import UsageError
from odin.core.event_values import Mode
from odin.core.policy import Danger, RuleAction
from odin.core.profile import CommandLevel
from odin.core.text import SAID_ONCE, suggest_similar
from odin.core.tool import Kind, Target, get_canonical_name
from odin.policy.commands.analysis import analyze_command
from odin.policy.commands.syntax import CommandAnalysis, ExtractedCommand
from odin.policy.decision import RunsIn
from odin.policy.modes import parse_mode, split_plan_alias
from odin.policy.policy import Policy
from odin.tools.agent import AgentTool
from odin.tools.web import WebFetchTool, WebSearchTool
from odin.tools.web_page import InvalidUrl, normalize_url
from odin.ui.terminal import escape_hidden

DecisionName = Literal["auto", "ask", "deny"]

_DECISION_NAMES: dict[RuleAction, DecisionName] = {"allow": "auto", "ask": "ask", "deny": "deny"}


_PLACES: dict[RunsIn, str] = {
    "view": "in a private view; ",
    "read": "where it can write nothing",
    "project": "in the project itself",
}
_OUTCOMES = {
    "apply": "Odin applies its changes",
    "ask": "Odin asks about its changes",
    "discard": "Odin discards its changes",
}


class PartDecision(Struct, frozen=True):
    """One command of a compound command line.

    `inside` marks a command nested in another one; `verdict` is set if the command can be checked on its own.
    """

    command: str
    inside: bool
    verdict: DecisionName | None = None
    reason: str = ""


class Explanation(Struct, frozen=True):
    """The decision on a call.

    For a command, `level` is how it is confined, `runs_in` where it runs, and `after` what happens to what it writes
    there. `unclear` names what cannot be parsed, `effect` what the call would do; `suggestions` are rules that would
    allow it.
    """

    verdict: DecisionName
    reason: str
    rule: str
    hint: str
    builtin: bool
    tool: str
    subject: str
    mode: Mode
    permission_mode: str
    root: str
    cwd: str
    after: Literal["apply", "ask", "discard"] = "apply"
    level: CommandLevel | None = None
    runs_in: RunsIn | None = None
    parts: tuple[PartDecision, ...] = ()
    unclear: str = ""
    danger: Danger = "changes_files"
    effect: str = ""
    suggestions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def explain(text: str, tool: str, options: Options, env: Mapping[str, str]) -> Explanation:
    """Check a call of `tool` with `text` as its command, path or URL."""
    from tempfile import TemporaryDirectory

    environment = make_environment(env, options.cwd, options.state_dir)
    config = load(environment.cwd, env, options.to_flags(), trust=options.trust, add_dirs=options.add_dirs)
    with TemporaryDirectory() as folder:  # a view is mounted to find out whether it can be; it leaves nothing behind
        own = environment if Path(environment.state_dir).is_dir() else replace(environment, state_dir=folder)
        sandbox = LazySandbox(config, own if Path(own.cache_dir).is_dir() else replace(own, cache_dir=folder))
        asyncio.run(_examine(sandbox))
        return _explain_call(text, tool, options, config, environment, sandbox, env)


async def _examine(sandbox: LazySandbox) -> None:
    try:
        await sandbox.examine()
    finally:
        await sandbox.close()


def _explain_call(
    text: str,
    tool: str,
    options: Options,
    config: Config,
    environment: ExecutionEnvironment,
    sandbox: LazySandbox,
    env: Mapping[str, str],
) -> Explanation:
    cwd = environment.cwd
    rules = load_rule_set(config, env)
    policy = SessionPolicy(config, options, environment, rules, config.permission_mode, (), sandbox).get()
    name, kind = _resolve_tool(tool, cwd)
    subject = _make_target(text, kind, cwd)
    mode = parse_mode(config.mode)
    decision = policy.evaluate(name, kind, subject, mode)
    analysis = analyze_command(subject.command) if subject.command else None
    effect = policy.describe_effect(name, kind, subject, mode)
    return Explanation(
        verdict=_DECISION_NAMES[decision.action],
        reason=decision.reason,
        rule=decision.rule,
        hint=decision.hint,
        builtin=decision.builtin,
        tool=name,
        subject=subject.text,
        mode=mode,
        permission_mode=policy.permission_mode,
        root=policy.root,
        cwd=policy.cwd,
        after="ask" if decision.after == "edits" else decision.after,
        level=policy.find_level(subject.command) if kind == "execute" else None,
        runs_in=decision.runs_in if kind == "execute" else None,
        parts=_evaluate_parts(analysis, policy, name, mode) if analysis is not None else (),
        unclear=analysis.reason if analysis is not None and not analysis.is_complete else "",
        danger=effect.danger,
        effect=effect.sentence,
        suggestions=policy.suggest_rules(name, kind, subject, mode),
        warnings=(*config.warnings, *rules.warnings),
    )


def _resolve_tool(name: str, cwd: str) -> tuple[str, Kind]:
    registry = build_standard_registry(cwd)
    kinds: dict[str, Kind] = {tool.name: tool.kind for known in registry.list_names() if (tool := registry.get(known))}
    kinds |= {tool.name: tool.kind for tool in (WebFetchTool, WebSearchTool, AgentTool)}
    canonical = get_canonical_name(name)
    if canonical not in kinds:
        raise UsageError(f"Unknown tool {name!r}.{suggest_similar(name, kinds)}", f"The tools are: {', '.join(kinds)}.")
    return canonical, kinds[canonical]


def _make_target(text: str, kind: Kind, cwd: str) -> Target:
    if kind == "execute":
        return Target(command=text)
    if kind == "network":
        try:
            return Target(url=normalize_url(text))
        except InvalidUrl:
            return Target(url=text)
    if kind == "interactive" or not text:
        return Target()
    return Target(paths=(os.path.join(cwd, text),))  # noqa: PTH118 (a Path would normalize the path that is checked)


def _evaluate_parts(analysis: CommandAnalysis, policy: Policy, name: str, mode: Mode) -> tuple[PartDecision, ...]:
    alone = len(analysis.commands) < 2
    return tuple(_evaluate_part(part, alone, policy, name, mode) for part in analysis.commands)


def _evaluate_part(part: ExtractedCommand, alone: bool, policy: Policy, name: str, mode: Mode) -> PartDecision:
    plain = all(word.literal for word in part.words) and part.folder == ""
    shown = shlex.join(part.texts) if plain else " ".join(part.texts)
    if alone or not plain:
        return PartDecision(shown, part.is_inner)
    decision = policy.evaluate(name, "execute", Target(command=shown), mode)
    return PartDecision(shown, part.is_inner, _DECISION_NAMES[decision.action], decision.reason)


_ABOUT = (
    "Explain whether a tool call would run (auto), be asked about (ask) or be denied (deny), and which rule decides."
)


def run_explain(argv: list[str]) -> int:
    parser = Parser(prog="odin explain", description=_ABOUT, formatter_class=make_formatter)
    add = parser.add_argument
    add("text", metavar="COMMAND|PATH|URL", help="the command, or the path or URL for the tool")
    add("--tool", default="Bash", metavar="NAME", help="tool name, e.g. WriteFile, Read or WebFetch (default: Bash)")
    add("--mode", default="", help="ask, plan or edit (default: edit)")
    add("--permission-mode", default="", help="default, acceptEdits, auto, dontAsk or bypassPermissions")
    add("-y", "--yes", action="store_true", help="as if you approved every permission request")
    add("--trust", action="store_true", help="as if this folder were trusted")
    add_root_flag(add)
    add("--allowedTools", "--allowed-tools", action="append", default=[], metavar="LIST", help="additional allow rules")
    add(
        "--disallowedTools",
        "--disallowed-tools",
        action="append",
        default=[],
        metavar="LIST",
        help="additional deny rules",
    )
    add("--json", action="store_true", help="print JSON")
    add("--cwd", default="", metavar="DIR", help="folder of the call")
    args = parser.parse_intermixed_args(argv)
    if args.mode:
        parse_mode(args.mode)
    args.mode, args.permission_mode = split_plan_alias(args.mode, args.permission_mode)

    explanation = explain(
        args.text,
        args.tool,
        Options(
            cwd=args.cwd,
            mode=args.mode,
            permission_mode=args.permission_mode,
            yes=args.yes,
            trust=args.trust,
            add_dirs=tuple(args.add_dir),
            allowed_tools=tuple(split_list(args.allowedTools)),
            disallowed_tools=tuple(split_list(args.disallowedTools)),
        ),
        os.environ,
    )
    if args.json:
        return write_json(explanation)
    for warning in explanation.warnings:
        if not warning.endswith(SAID_ONCE):
            write_message(warning)
    return write_output(_format_explanation(explanation))


def _format_explanation(found: Explanation) -> str:
    lines = [
        f"{found.verdict}: {found.tool} {escape_hidden(found.subject)}".rstrip(),
        f"  why   {escape_hidden(found.reason)}",
        f"  rule  {escape_hidden(found.rule)}{' (built in; cannot be overridden)' if found.builtin else ''}",
    ]
    if found.runs_in is not None and found.verdict != "deny":
        lines.append(f"  runs  {_PLACES[found.runs_in]}{_OUTCOMES[found.after] if found.runs_in == 'view' else ''}")
    if found.effect and found.effect != found.reason:
        lines.append(f"  does  {escape_hidden(found.effect)} ({found.danger.replace('_', ' ')})")
    if found.unclear:
        lines.append(f"  unclear: {escape_hidden(found.unclear)}")
    if len(found.parts) > 1:
        lines.append("  parts")
        for part in found.parts:
            inside = "  (inside another command)" if part.inside else ""
            lines.append(f"    {part.verdict or '':<5} {escape_hidden(part.command)}{inside}".rstrip())
    if found.hint and found.verdict != "auto":
        lines.append(f"  hint  {escape_hidden(found.hint)}")
    lines += [
        f"  {'rules that allow it' if not n else '':<26}{escape_hidden(t)}" for n, t in enumerate(found.suggestions)
    ]
    return "\n".join(lines) + "\n"
