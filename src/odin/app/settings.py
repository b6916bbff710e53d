"""`odin doctor config`: every setting, its value, which layer it comes from, and what is wrong with the files."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from msgspec import Struct, to_builtins

from odin.config import CONFIG_NAME, Config, find_project_root, get_config_dir, load
from odin.config.auth import mask_key, read_auth_file
from odin.config.edit import scan_keys
from odin.config.keys import ConfigKeys
from odin.config.read import parse_json_object, read_config_file
from odin.core.errors import OdinError

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
