"""MCP servers in the format that agents share: a project's `.mcp.json`, and what `--mcp-config` gives.

    {"mcpServers": {"git": {"command": "uvx", "args": ["mcp-server-git"], "env": {"TOKEN": "${GIT_TOKEN}"}}}}

Mistakes in `.mcp.json` are reported and cost only the server they are in; those in `--mcp-config` are usage errors.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Struct, field

from odin.config.files import ConfigProblem, ConfigValidator, parse_json_object, read_config_file
from odin.config.paths import MCP_NAME, expand_home
from odin.config.settings import Config, ConfigKeys, McpServerSettings
from odin.core.errors import ConfigError, UsageError
from odin.core.lazy_pattern import compile_lazily
from odin.core.server_tool import find_ambiguous_servers

SERVERS_KEY = "mcpServers"
_NAME = compile_lazily(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_KNOWN_FIELDS = frozenset(McpServerSettings.__struct_encode_fields__)
_EXAMPLE = '{"mcpServers": {"name": {"command": "program", "args": []}}}'


class McpFile(Struct, frozen=True):
    """The valid servers of a file as plain values, as they are and as written, and what is wrong with the others."""

    servers: dict[str, Any] = field(default_factory=dict[str, Any])
    unexpanded: dict[str, Any] = field(default_factory=dict[str, Any])
    problems: tuple[ConfigProblem, ...] = ()


def read_mcp_file(path: Path, env: Mapping[str, str], *, expands: bool) -> McpFile:
    """Return the servers of a file. Without `expands`, variables stay as written: the file is not trusted."""
    try:
        raw = read_config_file(path)
        return McpFile() if raw is None else _parse_servers(raw, path, env, expands=expands)
    except ConfigError as error:
        return McpFile(problems=(ConfigProblem(f"No MCP server of it is used. {error.describe()}", str(path)),))


def _parse_servers(raw: bytes, path: Path, env: Mapping[str, str], *, expands: bool) -> McpFile:
    found: Any = parse_json_object(raw, path)[0].get(SERVERS_KEY)
    if not isinstance(found, dict):
        raise ConfigError(f"{path} has no object {SERVERS_KEY!r}.", f"Write {_EXAMPLE}.")
    return read_servers(cast("dict[str, Any]", found), path, env, expands=expands)


def read_servers(found: Mapping[str, Any], path: Path, env: Mapping[str, str], *, expands: bool = True) -> McpFile:
    """Return the usable ones of these servers, which are written in the file `path`."""
    validator = ConfigValidator(path, env, variables="braced" if expands else "verbatim")
    entries = {name: _keep_known_fields(value) for name, value in found.items()}
    kept = validator.validate_keys({"mcp": entries}, ConfigKeys).get("mcp", {})
    usable = {name: value for name, value in kept.items() if _check_server(name, value, validator)}
    written = {name: entries[name] for name in usable}
    return McpFile(usable, written if expands else usable, tuple(validator.problems))


def _keep_known_fields(value: Any) -> Any:
    """Leave out the fields that only other agents know. What is `disabled` there is `manual` here."""
    if not isinstance(value, dict):
        return value
    given = cast("dict[str, Any]", value)
    known = {name: item for name, item in given.items() if name in _KNOWN_FIELDS}
    return {**known, "manual": True} if given.get("disabled") is True else known


def _check_server(name: str, value: dict[str, Any], validator: ConfigValidator) -> bool:
    problem = explain_unusable(msgspec.convert(value, McpServerSettings))
    if problem:
        validator.report(f"mcp.{name}", f"the MCP server {name} is ignored: {problem}")
    return not problem


def explain_unusable(settings: McpServerSettings) -> str:
    """Return why a server cannot be started, or ""."""
    transport = settings.transport
    if not transport:
        return "it has neither a command nor a url."
    if transport == "stdio" and not settings.command:
        return "it has no command."
    if transport in ("http", "sse") and not settings.url.startswith(("http://", "https://")):
        return "its url must begin with http:// or https://." if settings.url else "it has no url."
    return ""


def check_new_server(name: str, value: Any, config: Config) -> None:
    """Raise UsageError if the user cannot add this server."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is not a valid name.", "Use letters, digits, '-' and '_'.")
    for names, why in find_ambiguous_servers({*config.mcp, name}):
        if name in names:
            raise UsageError(f"{name} cannot be added: {why}")
    try:
        problem = explain_unusable(msgspec.convert(value, McpServerSettings))
    except msgspec.ValidationError as error:
        raise UsageError(f"The settings of {name} are not valid: {error}.") from error
    if problem:
        raise UsageError(f"{name} cannot be added: {problem}")


def rewrite_texts(value: Any, pattern: str, replacement: str) -> Any:
    """Replace a pattern in every text of a value."""
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value).items()
        return {name: rewrite_texts(item, pattern, replacement) for name, item in entries}
    if isinstance(value, list):
        return [rewrite_texts(item, pattern, replacement) for item in cast("list[Any]", value)]
    return re.sub(pattern, replacement, value) if isinstance(value, str) else value


def leave_out_ambiguous(config: Config) -> Config:
    """Return the configuration without servers that permission rules could confuse, which are reported."""
    servers, problems = dict(config.mcp), [*config.problems]
    for names, why in find_ambiguous_servers(config.mcp):
        for name in names:
            del servers[name]
        what = "MCP server" if len(names) == 1 else "MCP servers"
        problems.append(ConfigProblem(f"The {what} {' and '.join(names)} cannot be used: {why}", key="mcp"))
    return msgspec.structs.replace(config, mcp=servers, problems=tuple(problems))


def add_given_servers(config: Config, given: Sequence[str], cwd: str, env: Mapping[str, str], *, only: bool) -> Config:
    """Return the configuration with the servers that `--mcp-config` gives; with `only`, without any others.

    Raise UsageError if a value is neither JSON nor a file with servers.
    """
    added: dict[str, McpServerSettings] = {}
    for text in given:
        is_json = text.lstrip().startswith("{")
        path = Path("--mcp-config") if is_json else Path(cwd, expand_home(text, env))
        try:
            raw = text.encode("utf-8", "replace") if is_json else read_config_file(path)
            if raw is None:
                raise UsageError(f"--mcp-config: there is no file {path}.", f"Give a file like {MCP_NAME}, or JSON.")
            parsed = _parse_servers(raw, path, env, expands=True)
        except ConfigError as error:
            raise UsageError(str(error), error.hint) from error
        if parsed.problems:
            raise UsageError(parsed.problems[0].describe())
        added.update(msgspec.convert(parsed.servers, dict[str, McpServerSettings]))
    servers = {**({} if only else config.mcp), **added}
    left = config.project_servers - set(added)
    return leave_out_ambiguous(msgspec.structs.replace(config, mcp=servers, project_servers=left))
