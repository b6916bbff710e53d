"""`odin doctor`: check the installation and the sandbox (default), the settings (`config`) or the models (`models`)."""

import argparse
import asyncio
import os
import platform
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct, to_builtins

from odin.app.policy import parse_configured_rules
from odin.app.sandbox import LazySandbox
from odin.app.workspace import Workspace, explain_missing_servers, has_language_servers, list_skill_folders
from odin.commands.command_line import Parser, make_formatter, write_output
from odin.config import (
    CONFIG_NAME,
    Config,
    find_project_root,
    get_cache_dir,
    get_config_dir,
    get_current_folder,
    get_home_dir,
    get_state_dir,
    load,
)
from odin.config.auth import AUTH_NAME, mask_key, read_auth_file
from odin.config.files import ConfigProblem, parse_json_object, read_config_file, scan_keys
from odin.config.paths import find_other_agents, find_worktree_origin, make_environment
from odin.config.settings import ConfigKeys
from odin.core.errors import OdinError
from odin.core.format import pluralize
from odin.core.policy import mask_logins, redact_nothing
from odin.core.profile import OWN, CommandLevel, WritableFolders
from odin.core.text import SAID_ONCE, join_some
from odin.hooks.declaration import parse_hooks
from odin.models.catalog import PRESETS
from odin.models.connector import ModelConnector
from odin.sandbox.process import SYSTEM_PATH
from odin.sandbox.runner import ProcessRunner
from odin.sandbox.sandbox import Sandbox
from odin.sandbox.terminal import TerminalPrograms
from odin.session.store import SessionStore
from odin.tools.ripgrep import find_ripgrep
from odin.ui.terminal import escape_hidden
from odin.version import __version__

Health = Literal["ok", "note", "broken"]

NO_MODEL = "Only the offline planner answers. Add a key with `odin auth add`, or a server with `odin provider add URL`."

_TIMEOUT_S = 10.0
_SLOW_SERVER_S = 5.0

SLOW_START_MS = 1500
"""A language server that takes longer to start misses the first edit."""
_MAX_NAMED = 10

_LEVELS: dict[CommandLevel, str] = {
    "view": "run in a view: nothing changes before you or the permission mode keep it",
    "kernel": "run without a view: the sandbox can only forbid writing",
    "none": "run without a sandbox: all but plain reading asks first",
}
"""By how commands are confined."""


class Finding(Struct, frozen=True):
    """The result of one check. A `note` is worth knowing but prevents nothing."""

    topic: str
    text: str
    health: Health = "ok"


class DoctorReport(Struct, frozen=True):
    """The findings to print, and the same as `facts` for programs."""

    findings: tuple[Finding, ...]
    facts: dict[str, Any]

    @property
    def broken(self) -> bool:
        return any(finding.health == "broken" for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        return {**self.facts, "ok": not self.broken, "findings": to_builtins(self.findings)}


class _Checkup:
    """Runs all checks of `odin doctor`."""

    def __init__(self, cwd: str, env: Mapping[str, str]) -> None:
        self._cwd = cwd
        self._env = env
        self._findings: list[Finding] = []
        self._facts: dict[str, Any] = {}

    def build_report(self) -> DoctorReport:
        self._facts["odin"] = __version__
        self._facts["python"] = {"version": platform.python_version(), "path": sys.executable}
        self._facts["system"] = f"{platform.system()} {platform.release()} {platform.machine()}"
        self._add_finding("Odin", __version__)
        self._add_finding("Python", f"{platform.python_version()}, {sys.executable}")
        self._add_finding("system", self._facts["system"])
        self._check_folders()
        config = self._check_configuration()
        asyncio.run(self._check_programs(config))
        if config is not None:
            asyncio.run(self._check_sandbox(config))
            asyncio.run(self._check_models(config))
            trust = config.trust
            self._facts["trust"] = {"folder": config.root, "trusted": trust.trusted}
            text = "trusted" if trust.trusted else "not trusted: its settings can only restrict; see `odin trust`"
            self._add_finding("project", f"{config.root}, {text}")
            # Connect the configured MCP servers.
            if config.mcp:
                from odin.commands.mcp import check_servers
                from odin.ui.slash_commands.extensions import describe_server_state

                statuses = (*asyncio.run(check_servers(config, self._env)),)
                self._facts["mcp"] = to_builtins(statuses)
                for status in statuses:
                    slow = status.state == "ready" and status.seconds > _SLOW_SERVER_S
                    health: Health = "broken" if status.state == "failed" else "note" if slow else "ok"
                    more = ": it starts slowly" if slow else ""
                    self._add_finding("MCP", f"{status.name}: {describe_server_state(status)}{more}", health)
            if config.redis.url:
                asyncio.run(self._check_redis(config))
            self._check_channels(config)
            asyncio.run(self._check_language_servers(config))
            self._check_skills(config)
            self._check_memory(config)
            # List the plugins in use. What is wrong with them is among the warnings about the settings.
            for plugin in config.plugins:
                name = " ".join(filter(None, (plugin.name, plugin.version)))
                self._add_finding("plugin", f"{name} ({', '.join(plugin.parts) or 'empty'}), {plugin.folder}")
            if config.plugins:
                self._facts["plugins"] = [{"name": plugin.name, "folder": plugin.folder} for plugin in config.plugins]
        from odin.commands.editors import find_editors

        self._facts["editors"] = editors = find_editors(self._env)
        named = [f"{name} ({path})" for name, path in editors.items()]
        self._add_finding("editors", ", ".join(named) or "none starts `odin acp`")
        streams = {"stdin": sys.stdin, "stdout": sys.stdout, "stderr": sys.stderr}
        on = [name for name, stream in streams.items() if stream is not None and stream.isatty()]  # pyright: ignore[reportUnnecessaryComparison]
        term = self._env.get("TERM", "")
        self._facts["terminal"] = {"streams": on, "term": term}
        self._add_finding(
            "terminal",
            f"{', '.join(on)} ({term or 'no TERM'})" if on else "none: permission requests cannot be answered",
        )
        return DoctorReport(tuple(self._findings), self._facts)

    def _add_finding(self, topic: str, text: str, health: Health = "ok") -> None:
        self._findings.append(Finding(topic, text, health))

    def _check_folders(self) -> None:
        places = {
            "configuration": get_config_dir(self._env),
            "state": get_state_dir(self._env),
            "cache": get_cache_dir(self._env),
        }
        self._facts["folders"] = {}
        for name, path in places.items():
            writable = _is_writable(path)
            self._facts["folders"][name] = {"path": str(path), "exists": path.is_dir(), "writable": writable}
            state = "writable" if writable else "not writable: fix its permissions or set another folder"
            health: Health = "ok" if writable else "broken" if name == "state" else "note"
            self._add_finding(name, f"{path}, {state}", health)

    def _check_configuration(self) -> Config | None:
        config, problem = None, ""
        try:
            config = load(self._cwd, self._env)
        except OdinError as error:
            problem = error.describe()
        is_used = config is None or config.claude_settings
        found = list(_list_settings_files(self._cwd, self._env, claude=is_used))
        facts: dict[str, Any] = {"files": found, "warnings": []}
        self._facts["configuration"] = facts
        self._add_finding("settings", ", ".join(found) or "no odinconfig.json; using the defaults")
        if config is None:
            facts["error"] = problem
            self._add_finding("settings", problem, "broken")
            return None
        facts["warnings"] = [text.removesuffix(f" {SAID_ONCE}") for text in _list_settings_warnings(config)]
        for warning in facts["warnings"]:
            self._add_finding("settings", warning, "note")
        return config

    async def _check_programs(self, config: Config | None) -> None:
        """Ask programs for their version, but none that commands can write, such as those of a project's .venv."""
        programs = TerminalPrograms({"PATH": SYSTEM_PATH}, WritableFolders())
        if config is not None:
            programs = TerminalPrograms(self._env, LazySandbox(config, make_environment(self._env, self._cwd)).writable)
        await self._check_tool("ripgrep", find_ripgrep() or "", "searching is slower without ripgrep")
        await self._check_tool("git", programs.find("git"), "optional")

    async def _check_tool(self, name: str, path: str, without: str) -> None:
        version = await _read_version(path, self._env) if path else ""
        self._facts[name] = {"path": path, "version": version}
        if version:
            self._add_finding(name, f"{version}, {path}")
        else:
            self._add_finding(name, f"{f'cannot run {path}' if path else 'not found'}; {without}", "note")

    async def _check_sandbox(self, config: Config) -> None:
        sandbox = LazySandbox(config, make_environment(self._env, self._cwd))
        used = sandbox.get()
        failures = {name: await _probe_sandbox(sandbox.make_other(name)) for name in ("bubblewrap", "landlock")}
        await used.probe(force=True)
        await used.examine()
        level, advice = used.find_level(), used.explain_level()
        await used.close()
        network = "on" if config.sandbox.network else "off"
        self._facts["sandbox"] = {
            "backend": config.sandbox.backend,
            "used": used.kind,
            "network": network,
            "description": used.describe(),
            "level": level,
            "advice": advice,
            "available": {name: not why for name, why in failures.items()},
            "reasons": {name: why for name, why in failures.items() if why},
        }
        health: Health = "broken" if used.problem else "note" if used.kind == "none" else "ok"
        self._add_finding("sandbox", used.problem or used.describe(), health)
        self._add_finding("commands", _LEVELS[level], "ok" if level == "view" else "note")
        for name, why in failures.items():
            self._add_finding(name, f"not available: {why}" if why else "works")

    async def _check_models(self, config: Config) -> None:
        """Report the model that answers, and keys by name only, never their values."""
        names = [name for preset in PRESETS.values() for name in preset.key_names]
        found = [name for name in dict.fromkeys(names) if self._env.get(name)]
        given = sorted(name for name, provider in config.providers.items() if provider.api_key)
        self._facts["models"] = {"model": config.model, "keys": found, "providers": sorted(config.providers)}
        stored = sorted(read_auth_file(self._env).keys)
        self._facts["models"]["stored"] = stored
        keys = [
            *found,
            *(f"providers.{name} in the settings" for name in given),
            *(f"{name} in {AUTH_NAME}" for name in stored),
        ]
        ref = config.model
        if not ref:
            connector = ModelConnector(config, self._env)
            try:
                ref, _ = await connector.find_default()
            finally:
                await connector.close()
        self._facts["models"]["used"] = ref
        self._add_finding("model", ref or f"none. {NO_MODEL}", "ok" if ref else "note")
        self._add_finding("keys", ", ".join(keys) or "none")
        if found_setups := find_other_agents(self._env):
            self._add_finding("setups", found_setups, "note")

    def _check_skills(self, config: Config) -> None:
        if not list_skill_folders(config, self._env) and config.trust.trusted:
            return
        from odin.app.skills import describe_unused_skills, load_skill_catalog

        catalog = load_skill_catalog(config, self._env)
        names, unused = [skill.name for skill in catalog.list_skills()], describe_unused_skills(config)
        self._facts["skills"] = {"names": names, "problems": [item.describe() for item in catalog.problems]}
        if names:
            self._add_finding("skills", f"{pluralize(len(names), 'skill')}: {join_some(names, _MAX_NAMED)}")
        for problem in catalog.problems[:_MAX_NAMED]:
            self._add_finding("skills", problem.describe(), "note")
        if len(catalog.problems) > _MAX_NAMED:
            more = pluralize(len(catalog.problems) - _MAX_NAMED, "more problem")
            self._add_finding("skills", f"{more}; see `odin skills list`", "note")
        if unused:
            self._add_finding("skills", unused, "note")

    def _check_channels(self, config: Config) -> None:
        """Say which channels of the gateway lack a package."""
        if not config.gateway.get("channels"):
            return
        from odin.gateway.channels import explain_missing

        for name, given in config.read_gateway().channels.items():
            kind = given.type or name
            if given.enabled and (missing := explain_missing(kind)):
                self._add_finding("channel", f"{name}: {missing}", "note" if kind == "matrix" else "broken")

    def _check_memory(self, config: Config) -> None:
        state = get_state_dir(self._env)
        environment = make_environment(self._env, self._cwd)
        workspace = Workspace(environment, config, SessionStore(state, find_worktree_origin(config.root, state)))
        if not workspace.has_memory:
            return
        from odin.app.memory import SessionMemory

        memory = SessionMemory(*workspace.memory_folders, redact_nothing, workspace.environment.home)
        files = [f"{file.path} ({len(file.text):,} characters)" for file in memory.list_files() if file.text]
        self._facts["memory"] = {"files": files, "problems": memory.warnings}
        self._add_finding("memory", ", ".join(files) or "empty")
        for problem in memory.warnings:
            self._add_finding("memory", problem, "note")

    async def _check_redis(self, config: Config) -> None:
        """Write to the Redis server as a session would."""
        from odin.host.publisher import probe_redis, read_redis_settings

        settings = read_redis_settings(config, make_environment(self._env, self._cwd))
        place, problem, version = settings.parse_url().place, "", ""
        try:
            version = await probe_redis(settings)
        except OdinError as error:
            problem = error.describe()
        self._facts["redis"] = {"server": place, "version": version, "accept": settings.accept, "error": problem}
        taken = "" if settings.accept == "none" else f", takes commands ({settings.accept})"
        self._add_finding(
            "Redis", problem or f"{place}, version {version or 'unknown'}{taken}", "broken" if problem else "ok"
        )

    async def _check_language_servers(self, config: Config) -> None:
        """Start the language servers of the project and report what is missing, broken or slow."""
        self._facts["language_servers"] = []
        if not has_language_servers(config, self._env):
            self._add_finding("lsp", explain_missing_servers(config))
            return
        from odin.app.language_servers import probe_servers

        found = await probe_servers(config, self._env, LazySandbox(config, make_environment(self._env, self._cwd)))
        self._facts["language_servers"] = to_builtins(found)
        for server in found:
            state = server.state
            if not state.file_types:
                self._add_finding("lsp", f"{state.name} is never used: set its file_types", "broken")
            elif state.status == "ready":
                is_slow = state.start_ms > SLOW_START_MS
                text = f"{'slow: ' if is_slow else ''}started in {state.start_ms / 1000:.1f} s, {server.program}"
                self._add_finding("lsp", f"{state.name}, {text}", "note" if is_slow else "ok")
            else:
                why = state.detail or "it did not start in time"
                health: Health = "broken" if state.name in config.lsp_servers else "note"
                self._add_finding("lsp", f"{state.name}: {why} ({server.program})", health)
        if not found:
            self._add_finding("lsp", "no installed language server is for this project")


def examine(cwd: str, env: Mapping[str, str]) -> DoctorReport:
    """Run all checks. Sandboxes are actually started, and stopped again."""
    return _Checkup(cwd, env).build_report()


async def _probe_sandbox(sandbox: Sandbox) -> str:
    """Return why a sandbox does not work, or ""."""
    await sandbox.probe()
    await sandbox.close()
    if sandbox.kind != "none":
        return ""
    why = next(iter(sandbox.list_failures().values()), "does not work here")
    return f"{why}{_explain_failure(why)}"


def _explain_failure(why: str) -> str:
    """Return a note naming the sysctl that blocks user namespaces, or ""."""
    # "ermi" matches "Permission" and "permitted"
    if "namespace" not in why and "uid map" not in why and "ermi" not in why:
        return ""
    switches = {
        "kernel/unprivileged_userns_clone": ("0", "user namespaces are disabled for users"),
        "user/max_user_namespaces": ("0", "user namespaces are disabled"),
        "kernel/apparmor_restrict_unprivileged_userns": ("1", "AppArmor blocks user namespaces without a profile"),
    }
    for name, (value, meaning) in switches.items():
        try:
            found = Path("/proc/sys", name).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if found == value:
            return f" ({meaning}: {name.replace('/', '.')} is {value})"
    return ""


async def _read_version(path: str, env: Mapping[str, str]) -> str:
    """Return the first line that `--version` prints, or ""."""
    runner = ProcessRunner(make_environment(env, "/"))
    try:
        output = await runner.capture([path, "--version"], cwd="/", timeout=_TIMEOUT_S, stop_after=10_000, profile=OWN)
    except OSError:
        return ""
    finally:
        await runner.close()
    lines = output.data.decode("utf-8", "replace").splitlines()
    return lines[0].strip() if output.code == 0 and lines else ""


def _is_writable(folder: Path) -> bool:
    """True if files can be created in the folder, or the folder itself if it does not exist."""
    path = folder
    while not path.exists() and path != path.parent:
        path = path.parent
    return path.is_dir() and os.access(path, os.W_OK | os.X_OK)


_SECRET_NAME = re.compile(r"(?i)(?:^|[_-])(?:api[_-]?key|key|token|secret|password|authorization|cookie)$")


class Setting(Struct, frozen=True):
    """The effective value of one key. `layer` is default, user, project, environment or flag.

    `source` is the file or environment variable that sets it.
    """

    key: str
    value: Any
    layer: str
    source: str = ""
    line: int = 0

    @property
    def location(self) -> str:
        return f"{self.source}:{self.line}" if self.line else self.source or self.layer


class SettingProblem(Struct, frozen=True):
    """A problem in a configuration file. `line` is 0 if unknown."""

    text: str
    file: str = ""
    line: int = 0

    @property
    def location(self) -> str:
        if not self.file:
            return ""
        return f"{self.file}:{self.line}: " if self.line else f"{self.file}: "


class SettingsReport(Struct, frozen=True):
    """All settings, and in `wrong` their problems. If a file stops Odin from starting, `settings` is empty."""

    files: tuple[str, ...]
    settings: tuple[Setting, ...]
    wrong: tuple[SettingProblem, ...]
    broken: bool = False


def _list_settings_files(cwd: str, env: Mapping[str, str], *, claude: bool) -> dict[str, str]:
    """Return the layer of each settings file that exists, weakest first; with `claude` also those of Claude Code."""
    root = find_project_root(cwd, env)
    folders = {"user": (get_home_dir(env), get_config_dir(env)), "project": (Path(root), Path(root))}
    found: dict[str, str] = {}
    for layer, (top, own) in folders.items():
        names = (".claude/settings.json", ".claude/settings.local.json")[: 1 if layer == "user" else 2]
        for path in (*(top / name for name in names if claude), own / CONFIG_NAME):
            if path.is_file():
                found.setdefault(str(path), layer)
    return found


def _list_settings_warnings(config: Config) -> list[str]:
    hooks = (item for item in config.declared.get("hooks", ()) if item.trusted)
    found = (warning for item in hooks for warning in parse_hooks(item.value, item.source).warnings)
    return [*config.warnings, *parse_configured_rules(config)[1], *found]


def report_settings(cwd: str, env: Mapping[str, str]) -> SettingsReport:
    files = _list_settings_files(cwd, env, claude=True)
    lines = {path: _locate_keys(path) for path in files}
    problems = [SettingProblem(text) for text in read_auth_file(env).warnings]
    try:
        config = load(cwd, env)
    except OdinError as error:
        return SettingsReport(tuple(lines), (), (SettingProblem(error.describe()), *problems), broken=True)
    if not config.claude_settings:
        lines = {path: keys for path, keys in lines.items() if path.endswith(CONFIG_NAME)}
    found = (_describe_setting(config, name, key, files, lines) for name, key in _list_keys())
    problems = [*(_locate_problem(problem, lines) for problem in config.problems), *problems]
    return SettingsReport(tuple(lines), tuple(found), tuple(problems))


def _list_keys() -> list[tuple[str, str]]:
    return list(zip(ConfigKeys.__struct_fields__, ConfigKeys.__struct_encode_fields__, strict=True))


def _describe_setting(
    config: Config, name: str, key: str, files: Mapping[str, str], lines: Mapping[str, Mapping[str, int]]
) -> Setting:
    value = config.written[key] if key in config.written else to_builtins(getattr(config, name))
    source = config.sources.get(key, "")
    layer = {"": "default", "flag": "flag", **files}.get(source, "environment")
    return Setting(key, _mask_secrets(value), layer, source, lines.get(source, {}).get(key, 0))


def _mask_secrets(value: Any, name: str = "") -> Any:
    """Return the value with keys and secret headers masked."""
    if isinstance(value, dict):
        inside = cast("dict[str, Any]", value)
        return {key: _mask_secrets(item, str(key)) for key, item in inside.items()}
    if isinstance(value, list | tuple):
        return [_mask_secrets(item, name) for item in cast("list[Any]", value)]
    if not isinstance(value, str):
        return value
    return mask_key(value) if value and _SECRET_NAME.search(name) else mask_logins(value)


def _locate_keys(path: str) -> dict[str, int]:
    """Return the line of each key in a file; empty if the file is invalid."""
    try:
        raw = read_config_file(Path(path)) or b"{}"
        parse_json_object(raw, Path(path))
        text = raw.decode("utf-8")
        return {entry.key: text.count("\n", 0, entry.key_at) + 1 for entry in scan_keys(text)}
    except OdinError:
        return {}


def _locate_problem(problem: ConfigProblem, lines: Mapping[str, Mapping[str, int]]) -> SettingProblem:
    text = problem.text.removesuffix(f" {SAID_ONCE}")
    return SettingProblem(text, problem.file, lines.get(problem.file, {}).get(problem.key, 0))


EPILOG = """\
commands:
  odin doctor             check the installation and the sandbox
  odin doctor config      show every setting, where it comes from, and problems with file and line
  odin doctor models      send a test request to the configured models
"""


def run_doctor(argv: list[str]) -> int:
    about = "Check the installation, the settings or the models."
    parser = Parser(prog="odin doctor", description=about, epilog=EPILOG, formatter_class=make_formatter)
    add = parser.add_argument
    add(
        "what",
        nargs="?",
        choices=("all", "config", "models"),
        default="all",
        metavar="WHAT",
        help="all, config or models (default: all)",
    )
    parser.add_common_flags()
    args = parser.parse_args(argv)
    cwd = os.path.realpath(args.cwd or get_current_folder())
    return {"all": _run_checks, "config": _run_config, "models": _run_models}[args.what](args, cwd)


def _run_checks(args: argparse.Namespace, cwd: str) -> int:
    report = examine(cwd, os.environ)
    width = max(len(finding.topic) for finding in report.findings)
    marks = {"ok": " ", "note": "*", "broken": "!"}
    lines = [f"{marks[item.health]} {item.topic:{width}}  {item.text}" for item in report.findings]
    broken = sum(item.health == "broken" for item in report.findings)
    end = (
        f"{broken} {'problem' if broken == 1 else 'problems'} found (marked with !)."
        if broken
        else "No problems found."
        if report.facts.get("models", {}).get("used")
        else "No problems found, but no model is connected."
    )
    advice = report.facts.get("sandbox", {}).get("advice", "")  # not indented: it may be a script to copy
    _print_report(args, report.to_json(), "\n".join([*lines, "", *([advice, ""] if advice else []), end, ""]))
    return 1 if report.broken else 0


def _run_config(args: argparse.Namespace, cwd: str) -> int:
    report = report_settings(cwd, os.environ)
    # The changed settings, the defaults, and the problems.
    import json

    changed = [item for item in report.settings if item.layer != "default"]
    lines = [f"read: {', '.join(report.files) or f'no {CONFIG_NAME}; using the defaults'}", ""]
    for item in (*changed, *(item for item in report.settings if item.layer == "default")):
        value = json.dumps(item.value, ensure_ascii=False)
        lines.append(f"{item.key}: {value}  ({item.location})")
    if report.wrong:
        lines += ["", "problems:", *(f"  {item.location}{item.text}" for item in report.wrong)]
    else:
        lines += ["", "No problems found."]
    _print_report(args, report, "\n".join(lines) + "\n")
    return 1 if report.broken else 0


def _run_models(args: argparse.Namespace, cwd: str) -> int:
    """Send a test request to each model. Having no model is not an error."""
    from odin.commands.model_probes import probe_models

    answers = asyncio.run(probe_models(cwd, os.environ))
    lines = [
        f"{' ' if item.ok else '!'} {item.ref} ({item.why}): {f'{item.problem}. ' if item.problem else ''}{item.text}\n"
        for item in answers
    ]
    none = "No models configured; Odin uses the offline planner. Add an API key with `odin auth add`.\n"
    _print_report(args, answers, "".join(lines) or none)
    return 0 if all(item.ok for item in answers) else 1


def _print_report(args: argparse.Namespace, facts: Any, text: str) -> None:
    if args.json:
        write_output(msgspec.json.format(msgspec.json.encode(facts), indent=2).decode() + "\n")
    else:
        write_output("\n".join(map(escape_hidden, text.split("\n"))))
