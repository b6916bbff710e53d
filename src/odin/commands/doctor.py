"""`odin doctor`: whether what Odin needs is here, which sandbox it uses, and why not another one.

`odin doctor config`: every setting, its value, which layer it comes from, and what is wrong with the files.

`odin doctor`: what is here, what is used, and what is broken; of the settings and of the models, too.
"""

import argparse
import asyncio
import os
import platform
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast

from msgspec import Struct, to_builtins

from odin import __version__
from odin.app.sandbox import LazySandbox
from odin.commands.command_line import Parser, make_formatter, write_output
from odin.config import (
    CONFIG_NAME,
    Config,
    find_project_root,
    get_cache_dir,
    get_config_dir,
    get_current_folder,
    get_state_dir,
    load,
)
from odin.config.auth import AUTH_NAME, mask_key, read_auth_file
from odin.config.reader import parse_json_object, read_config_file
from odin.config.settings import ConfigKeys
from odin.config.user_files import scan_keys
from odin.core.errors import OdinError
from odin.models.catalog import PRESETS
from odin.sandbox.probe import find_program
from odin.sandbox.runner import ProcessRunner
from odin.sandbox.sandbox import Sandbox
from odin.tools.ripgrep import find_ripgrep

Health = Literal["ok", "note", "broken"]

_TIMEOUT_S = 10.0


class Finding(Struct, frozen=True):
    """One thing that was looked at. `note` is worth knowing and keeps nothing from working."""

    topic: str
    text: str
    health: Health = "ok"


class DoctorReport(Struct, frozen=True):
    """What was found, for people; `facts` are the same for programs."""

    findings: tuple[Finding, ...]
    facts: dict[str, Any]

    @property
    def broken(self) -> bool:
        return any(finding.health == "broken" for finding in self.findings)

    def format_text(self) -> str:
        width = max(len(finding.topic) for finding in self.findings)
        marks = {"ok": " ", "note": "*", "broken": "!"}
        lines = [f"{marks[item.health]} {item.topic:{width}}  {item.text}" for item in self.findings]
        broken = sum(item.health == "broken" for item in self.findings)
        end = f"{broken} broken (marked with !)." if broken else "Nothing is broken."
        return "\n".join([*lines, "", end, ""])

    def to_json(self) -> dict[str, Any]:
        return {**self.facts, "ok": not self.broken, "findings": to_builtins(self.findings)}


class _Checkup:
    """Everything that is looked at, one after the other."""

    def __init__(self, cwd: str, env: Mapping[str, str]) -> None:
        self._cwd = cwd
        self._env = env
        self._findings: list[Finding] = []
        self._facts: dict[str, Any] = {}

    def build_report(self) -> DoctorReport:
        self._check_program()
        self._check_folders()
        config = self._check_configuration()
        asyncio.run(self._check_programs())
        if config is not None:
            self._check_sandbox(config)
            self._check_keys(config)
            self._check_trust(config)
        self._check_terminal()
        return DoctorReport(tuple(self._findings), self._facts)

    def _add_finding(self, topic: str, text: str, health: Health = "ok") -> None:
        self._findings.append(Finding(topic, text, health))

    def _check_program(self) -> None:
        self._facts["odin"] = __version__
        self._facts["python"] = {"version": platform.python_version(), "path": sys.executable}
        self._facts["system"] = f"{platform.system()} {platform.release()} {platform.machine()}"
        self._add_finding("Odin", __version__)
        self._add_finding("Python", f"{platform.python_version()}, {sys.executable}")
        self._add_finding("system", self._facts["system"])

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
            state = "writable" if writable else "not writable: make it so, or name another one in the environment"
            health: Health = "ok" if writable else "broken" if name == "state" else "note"
            self._add_finding(name, f"{path}, {state}", health)

    def _check_configuration(self) -> Config | None:
        files = [get_config_dir(self._env) / CONFIG_NAME, Path(find_project_root(self._cwd, self._env), CONFIG_NAME)]
        found = [str(path) for path in dict.fromkeys(files) if path.is_file()]
        facts: dict[str, Any] = {"files": found, "warnings": []}
        self._facts["configuration"] = facts
        self._add_finding("settings", ", ".join(found) or "no odinconfig.json, so the defaults hold")
        try:
            config = load(self._cwd, self._env)
        except OdinError as error:
            facts["error"] = error.describe()
            self._add_finding("settings", error.describe(), "broken")
            return None
        facts["warnings"] = list(config.warnings)
        for warning in config.warnings:
            self._add_finding("settings", warning, "note")
        return config

    async def _check_programs(self) -> None:
        path = self._env.get("PATH") or os.defpath
        ripgrep = find_ripgrep() or ""
        await self._check_tool("ripgrep", ripgrep, "searching is slower without it")
        git = find_program("git", path)
        await self._check_tool("git", git, "Odin itself works without it")

    async def _check_tool(self, name: str, path: str, without: str) -> None:
        version = await _read_version(path, self._env) if path else ""
        self._facts[name] = {"path": path, "version": version}
        if version:
            self._add_finding(name, f"{version}, {path}")
        else:
            self._add_finding(name, f"{f'{path} does not start' if path else 'not found'}; {without}", "note")

    def _check_sandbox(self, config: Config) -> None:
        confined = LazySandbox(config, self._env)
        used = confined.get()
        each = {name: _probe_sandbox(confined.make_other(name)) for name in ("bubblewrap", "landlock")}
        used.probe(force=True)
        used.kill()
        network = "on" if config.sandbox.network else "off"
        self._facts["sandbox"] = {
            "use": config.sandbox.backend,
            "used": used.kind,
            "network": network,
            "description": used.describe(),
            "available": {name: not why for name, why in each.items()},
            "reasons": {name: why for name, why in each.items() if why},
        }
        health: Health = "broken" if used.problem else "note" if used.kind == "none" else "ok"
        self._add_finding("sandbox", used.problem or used.describe(), health)
        for name, why in each.items():
            self._add_finding(name, f"not available: {why}" if why else "works")

    def _check_keys(self, config: Config) -> None:
        """By name only: no value of a key leaves the environment or the file."""
        names = [name for preset in PRESETS.values() for name in preset.key_names]
        found = [name for name in dict.fromkeys(names) if self._env.get(name)]
        given = sorted(name for name, provider in config.providers.items() if provider.api_key)
        self._facts["models"] = {"model": config.model, "keys": found, "providers": sorted(config.providers)}
        stored = sorted(read_auth_file(self._env).keys)
        self._facts["models"]["stored"] = stored
        said = [
            *found,
            *(f"providers.{name} in the settings" for name in given),
            *(f"{name} in {AUTH_NAME}" for name in stored),
        ]
        self._add_finding("model", config.model or "the first that is found; `odin models` lists them")
        self._add_finding("keys", ", ".join(said) or "none: a model on this machine or the offline planner is used")

    def _check_trust(self, config: Config) -> None:
        trust = config.trust
        self._facts["trust"] = {"folder": config.root, "trusted": trust.trusted}
        text = "trusted" if trust.trusted else "not trusted: its own settings may only restrict; see `odin trust`"
        self._add_finding("project", f"{config.root}, {text}")

    def _check_terminal(self) -> None:
        streams = {"stdin": sys.stdin, "stdout": sys.stdout, "stderr": sys.stderr}
        on = [name for name, stream in streams.items() if stream is not None and stream.isatty()]  # pyright: ignore[reportUnnecessaryComparison]
        term = self._env.get("TERM", "")
        self._facts["terminal"] = {"streams": on, "term": term}
        self._add_finding(
            "terminal", f"{', '.join(on)} ({term or 'no TERM'})" if on else "none: nobody can be asked here"
        )


def examine(cwd: str, env: Mapping[str, str]) -> DoctorReport:
    """Look at everything. Sandboxes are really made, and ended again."""
    return _Checkup(cwd, env).build_report()


def _probe_sandbox(sandbox: Sandbox) -> str:
    """Why a sandbox does not work, or ""."""
    sandbox.probe()
    sandbox.kill()
    if sandbox.kind != "none":
        return ""
    why = next(iter(sandbox.list_failures().values()), "it does not work here")
    return f"{why}{_explain_failure(why)}"


def _explain_failure(why: str) -> str:
    """The switch of the system that explains why namespaces cannot be made, when there is one."""
    if "namespace" not in why and "uid map" not in why and "ermi" not in why:
        return ""
    switches = {
        "kernel/unprivileged_userns_clone": ("0", "user namespaces are forbidden to users"),
        "user/max_user_namespaces": ("0", "no user namespaces are allowed"),
        "kernel/apparmor_restrict_unprivileged_userns": ("1", "AppArmor forbids user namespaces without a profile"),
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
    """The first line a program says about itself."""
    runner = ProcessRunner(environ=env)
    try:
        said = await runner.capture([path, "--version"], cwd="/", timeout=_TIMEOUT_S, stop_after=10_000)
    except OSError:
        return ""
    finally:
        await runner.close()
    lines = said.data.decode("utf-8", "replace").splitlines()
    return lines[0].strip() if said.code == 0 and lines else ""


def _is_writable(folder: Path) -> bool:
    """Whether files can be made there, or the folder itself where it is not there yet."""
    there = folder
    while not there.exists() and there != there.parent:
        there = there.parent
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


_SECRET_NAME = re.compile(r"(?i)(?:^|[_-])(?:api[_-]?key|key|token|secret|password|authorization|cookie)$")
_KEY_NAME = re.compile(r'(?:there is no key )?"?([A-Za-z_$][\w$]*)')


class Setting(Struct, frozen=True):
    """One key as it holds now. `layer` is default, user, project, environment or flag.

    `source` is the file or the variable that says so.
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
    """What is wrong, and where. `line` is 0 where it cannot be told."""

    text: str
    file: str = ""
    line: int = 0

    @property
    def location(self) -> str:
        if not self.file:
            return ""
        return f"{self.file}:{self.line}: " if self.line else f"{self.file}: "


class SettingsReport(Struct, frozen=True):
    """`files` are those that were read. A file that stops Odin leaves no settings, only what is `wrong`."""

    files: tuple[str, ...]
    settings: tuple[Setting, ...]
    wrong: tuple[SettingProblem, ...]
    broken: bool = False


def report_settings(cwd: str, env: Mapping[str, str]) -> SettingsReport:
    user = str(get_config_dir(env) / CONFIG_NAME)
    project = str(Path(find_project_root(cwd, env), CONFIG_NAME))
    lines = {path: _locate_keys(path) for path in dict.fromkeys((user, project)) if Path(path).is_file()}
    wrong = [_locate_problem(text, lines) for text in read_auth_file(env).warnings]
    try:
        config = load(cwd, env)
    except OdinError as error:
        return SettingsReport(tuple(lines), (), (SettingProblem(error.describe()), *wrong), broken=True)
    found = (_describe_setting(config, name, key, user, project, lines) for name, key in _list_keys())
    wrong = [*(_locate_problem(text, lines) for text in config.warnings), *wrong]
    return SettingsReport(tuple(lines), tuple(found), tuple(wrong))


def _list_keys() -> list[tuple[str, str]]:
    return list(zip(ConfigKeys.__struct_fields__, ConfigKeys.__struct_encode_fields__, strict=True))


def _describe_setting(
    config: Config, name: str, key: str, user: str, project: str, lines: Mapping[str, Mapping[str, int]]
) -> Setting:
    value = config.written[key] if key in config.written else to_builtins(getattr(config, name))
    source = config.sources.get(key, "")
    layer = {"": "default", user: "user", project: "project", "flag": "flag"}.get(source, "environment")
    return Setting(key, _mask_secrets(value), layer, source, lines.get(source, {}).get(key, 0))


def _mask_secrets(value: Any, name: str = "") -> Any:
    """The value without any secret: keys are masked, and so is every header that may be one."""
    if isinstance(value, dict):
        inside = cast("dict[str, Any]", value)
        return {key: _mask_secrets(item, str(key)) for key, item in inside.items()}
    if isinstance(value, list | tuple):
        return [_mask_secrets(item, name) for item in cast("list[Any]", value)]
    return mask_key(value) if isinstance(value, str) and value and _SECRET_NAME.search(name) else value


def _locate_keys(path: str) -> dict[str, int]:
    """The line on which each key of a file stands; none of a file that is not valid."""
    try:
        raw = read_config_file(Path(path)) or b"{}"
        parse_json_object(raw, Path(path))
        text = raw.decode("utf-8")
        return {entry.key: text.count("\n", 0, entry.key_at) + 1 for entry in scan_keys(text)}
    except OdinError:
        return {}


def _locate_problem(text: str, lines: Mapping[str, Mapping[str, int]]) -> SettingProblem:
    """A warning with the line of the key it is about. Those of files begin with the file and go on with the key."""
    for path, at in lines.items():
        if text.startswith(f"{path}: "):
            rest = text[len(path) + 2 :]
            key = _KEY_NAME.match(rest)
            return SettingProblem(rest, path, at.get(key[1], 0) if key else 0)
    return SettingProblem(text)


def format_settings(report: SettingsReport) -> str:
    """For people: what somebody has set, then what holds by itself, then what is wrong."""
    import json

    said = [item for item in report.settings if item.layer != "default"]
    lines = [f"read: {', '.join(report.files) or f'no {CONFIG_NAME}, so the defaults hold'}", ""]
    for item in (*said, *(item for item in report.settings if item.layer == "default")):
        value = json.dumps(item.value, ensure_ascii=False)
        lines.append(f"{item.key}: {value}  ({item.location})")
    if report.wrong:
        lines += ["", "wrong:", *(f"  {item.location}{item.text}" for item in report.wrong)]
    else:
        lines += ["", "Nothing is wrong."]
    return "\n".join(lines) + "\n"


EPILOG = """\
  odin doctor             whether what Odin needs is here, and which sandbox it uses
  odin doctor config      every setting, the layer it comes from, and what is wrong, with file and line
  odin doctor models      ask the models of the settings, and those there is a key for, whether they answer
"""


def run_doctor(argv: list[str]) -> int:
    args = _parse_args(argv)
    cwd = os.path.realpath(args.cwd or get_current_folder())
    return {"all": _run_checks, "config": _run_config, "models": _run_models}[args.what](args, cwd)


def _parse_args(argv: list[str]) -> argparse.Namespace:
    about = "Whether what Odin needs is here, and which sandbox it uses."
    parser = Parser(prog="odin doctor", description=about, epilog=EPILOG, formatter_class=make_formatter)
    add = parser.add_argument
    add("what", nargs="?", choices=("all", "config", "models"), default="all", metavar="WHAT", help="(all)")
    add("--json", action="store_true", help="print JSON")
    add("--cwd", default="", metavar="DIR", help="the project's folder")
    return parser.parse_args(argv)


def _run_checks(args: argparse.Namespace, cwd: str) -> int:

    report = examine(cwd, os.environ)
    _print_report(args, report.to_json(), report.format_text())
    return 1 if report.broken else 0


def _run_config(args: argparse.Namespace, cwd: str) -> int:

    report = report_settings(cwd, os.environ)
    _print_report(args, report, format_settings(report))
    return 1 if report.broken else 0


def _run_models(args: argparse.Namespace, cwd: str) -> int:
    """A model that does not answer is broken; that there is none is not."""
    from odin.models.probe import probe_models

    answers = asyncio.run(probe_models(cwd, os.environ))
    lines = [f"{' ' if item.ok else '!'} {item.ref} ({item.why}): {item.text}\n" for item in answers]
    none = "There is no model to ask: the offline planner answers. `odin auth add` stores a key.\n"
    _print_report(args, answers, "".join(lines) or none)
    return 0 if all(item.ok for item in answers) else 1


def _print_report(args: argparse.Namespace, facts: Any, text: str) -> None:
    if args.json:
        import msgspec

        write_output(msgspec.json.format(msgspec.json.encode(facts), indent=2).decode() + "\n")
    else:
        from odin.ui.terminal import escape_hidden

        write_output("\n".join(map(escape_hidden, text.split("\n"))))
