"""Merges the configuration layers: defaults, user file, project file, environment, flags.

A project's file comes with the project, so it is not the user's. It may restrict Odin. It may relax Odin, choose the
model or start programs only in a trusted folder. It can never set API addresses, keys, or the environment of commands.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from odin.config.claude_files import list_texts, read_claude_files
from odin.config.files import (
    ConfigProblem,
    ConfigValidator,
    get_field_types,
    parse_json_object,
    read_config_file,
)
from odin.config.paths import (
    CONFIG_NAME,
    MCP_NAME,
    PLUGINS_NAME,
    find_project_root,
    get_config_dir,
)
from odin.config.settings import (
    Config,
    ConfigKeys,
    LayerDeclaration,
    LoopSettings,
    Plugin,
    RetrySettings,
    TeamSettings,
    VerifySettings,
)
from odin.config.trust import TrustStatus, evaluate_trust
from odin.context.settings import CacheSettings
from odin.core.errors import ConfigError, UsageError
from odin.core.policy import RuleAction, RuleLayer
from odin.core.root import Root
from odin.core.text import describe_mismatch
from odin.policy.modes import parse_mode, parse_permission_mode
from odin.redis.settings import RedisSettings

if TYPE_CHECKING:
    from odin.config.claude_settings import ClaudeSettings

USER_ONLY_KEYS = (
    *("providers", "catalog_url", "web", "checkpoints", "sandbox", "tui", "system_header", "env_passthrough"),
    *("mcp_limits", "claude_settings", "redis", "gateway"),
)

VERBATIM_KEYS = ("rules", "hooks", "commands")
"""Keys whose strings are not expanded: a `$` in them is meant for the shell, the pattern or the arguments."""

DECLARED_KEYS = (
    *("rules", "AllowedCommands", "ForbiddenCommands", "allowed_tools", "disallowed_tools", "hooks", "commands"),
    *("skills", "lsp_servers", "additional_directories"),
)
"""Keys for which the value of each layer is kept."""

ENVIRONMENT_KEYS = (
    *("model", "small_model", "mode", "permission_mode", "max_turns", "max_budget_usd", "max_budget_usd_per_day"),
    *("max_tokens", "temperature", "thinking", "effort", "default_response", "background_response"),
    "restrict_to_workspace",
    "read_before_edit",
)

REDIS_VARIABLE = "ODIN_REDIS_URL"
"""Stands for the key `redis.url`."""

GATEWAY_PREFIX = "ODIN_GATEWAY_"
"""The start of the variables for the keys of `gateway`."""


def _append_unique(before: Any, new: Any) -> Any:
    return list(dict.fromkeys([*before, *new]))


def _merge_objects(before: Any, new: Any) -> Any:
    return {**before, **new}


def _keep_earlier(before: Any, new: Any) -> Any:
    """Return the entries of both layers. The user's MCP server keeps its name: allow rules were written for it."""
    return {**new, **before}


def _concatenate(before: Any, new: Any) -> Any:
    """Return both rule lists joined; a group written as an object stays together."""
    return [*(before if isinstance(before, list) else [before]), *(new if isinstance(new, list) else [new])]  # pyright: ignore[reportUnknownVariableType]


def _merge_hooks(before: Any, new: Any) -> Any:
    """Return the hooks of both layers, joined per event."""
    return {**before, **{event: _concatenate(before.get(event, []), hooks) for event, hooks in new.items()}}


def _merge_skills(before: Any, new: Any) -> Any:
    return {**before, **new, "paths": _append_unique(before.get("paths", ()), new.get("paths", ()))}


MERGE_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(("ForbiddenCommands", "disallowed_tools", "additional_directories"), _append_unique),
    **dict.fromkeys(("retry", "model_pools", "cache", "compaction", "verify", "loop"), _merge_objects),
    **dict.fromkeys(("lsp_servers", "memory", "commands"), _merge_objects),
    "mcp": _keep_earlier,
    "rules": _concatenate,
    "hooks": _merge_hooks,
    "skills": _merge_skills,
}
"""Keys to which a later layer adds, instead of replacing the value."""

_KEY_OF = dict(zip(ConfigKeys.__struct_fields__, ConfigKeys.__struct_encode_fields__, strict=True))

_MODE_RANKS = {"dontAsk": 0, "default": 1, "acceptEdits": 2, "auto": 3, "bypassPermissions": 4}


def _is_subset(new: Any, old: Any) -> bool:
    return set(new) <= set(old)


def _is_lower_limit(new: Any, old: Any) -> bool:
    """True if a limit, where 0 means none, is at least as tight as the current one."""
    return new == old or (new > 0 and (old == 0 or new <= old))


def _is_no_more(new: Any, old: Any) -> bool:
    return new <= old


def _is_stricter(new: Any, old: Any) -> bool:
    return bool(new) or not old


def _is_stricter_cache(new: Any, old: Any) -> bool:
    """True if the cache keeps no more than before and is trusted no more."""
    known = {**msgspec.to_builtins(CacheSettings()), **old}
    care = ("never", "auto", "always")
    return (
        all(value <= known[name] for name, value in new.items() if name.startswith("max_"))
        and care.index(new.get("validation", known["validation"])) >= care.index(known["validation"])
        and _is_stricter(new.get("auto_refresh", True), known["auto_refresh"])
        and _is_lower_limit(new.get("ttl_s", known["ttl_s"]), known["ttl_s"])
    )


def _retries_no_more(new: Any, old: Any) -> bool:
    known = {**msgspec.to_builtins(RetrySettings()), **old}
    attempts = _is_lower_limit(new.get("attempts", known["attempts"]), known["attempts"])
    return attempts and all(new[name] <= known[name] for name in ("base_s", "max_s") if name in new)


def _is_same(new: Any, old: Any) -> bool:
    return new == old


def _starts_no_check(new: Any, old: Any) -> bool:
    """True if no command would run that would not have run before."""
    mode = old.get("mode", VerifySettings().mode)
    return new.get("mode", mode) in ("off", "remind", mode) and new.get("commands", ()) in ((), [], old.get("commands"))


TIGHTNESS_CHECKS: dict[str, Callable[[Any, Any], bool]] = {
    **dict.fromkeys(("AllowedCommands", "allowed_tools"), _is_subset),
    **dict.fromkeys(("model", "small_model", "fallback_model", "model_pools", "effort", "output_style"), _is_same),
    **dict.fromkeys(("max_turns", "max_budget_usd", "max_budget_usd_per_day", "max_context"), _is_lower_limit),
    **dict.fromkeys(("confirm_timeout_s", "question_timeout_s"), _is_lower_limit),
    **dict.fromkeys(("max_tokens", "thinking"), _is_no_more),
    **dict.fromkeys(("restrict_to_workspace", "read_before_edit"), _is_stricter),
    "mode": lambda new, old: parse_mode(new) in (parse_mode(old), "ask_mode", "plan_mode"),
    "permission_mode": lambda new, old: _MODE_RANKS[new] <= _MODE_RANKS[old],
    "speculate": lambda new, old: old or not new,
    "cache": _is_stricter_cache,
    "retry": _retries_no_more,
    "team": lambda new, old: all(
        value <= {**msgspec.to_builtins(TeamSettings()), **old}[name] for name, value in new.items()
    ),
    "compaction": lambda new, old: new.get("model", "") in ("", old.get("model", "")),
    "verify": _starts_no_check,
    "skills": lambda new, old: not new.get("paths") and not (new.get("enabled") and not old.get("enabled", True)),
    "lsp": lambda new, old: new == "off" or new == old or old == "auto",
    "memory": lambda new, old: new.get("mode") in (None, "off", old.get("mode", "auto")),
    "additional_directories": lambda new, old: not new,
    "loop": lambda new, old: new.get("max_iterations", 0) <= old.get("max_iterations", LoopSettings().max_iterations),
}
"""Keys that decide how much Odin may do and who sees the work, and the check that a new value is no looser."""


TRUST_HINT = "Review it with `odin trust`, then trust it with `odin trust add`."


class _Layers:
    """The merged values so far, and where each came from."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.values: dict[str, Any] = {}
        self.sources: dict[str, str] = {}
        self.written: dict[str, Any] = {}
        self.problems: list[ConfigProblem] = []
        self.declared: dict[str, tuple[LayerDeclaration, ...]] = {}
        self.claude_rules: list[LayerDeclaration] = []
        self.wanted: dict[str, Any] = {}
        self.wanted_by = ""
        self.variables: dict[str, str] = {}
        self.project_variables: dict[str, str] = {}
        self.disabled_servers: set[str] = set()
        self.bypass_disabled_by = ""
        self.is_claude_hooked = True
        self.project_servers: frozenset[str] = frozenset()
        self.plugins: list[Plugin] = []
        self.trust = TrustStatus()

    def get_current_value(self, key: str) -> Any:
        if key in self.values:
            return self.values[key]
        return msgspec.to_builtins(ConfigKeys()).get(key)

    def declare(self, key: str, value: Any, layer: RuleLayer, source: str, **more: Any) -> None:
        """Keep the value of one layer; of keys that are not merged, that of the strongest."""
        trusted = layer != "project" or self.trust.trusted
        declaration = LayerDeclaration(value, layer, source, trusted, **more)
        if key == "rules" and declaration.is_claude:
            self.claude_rules.append(declaration)  # apart: the order of the keys in a file counts
            return
        before = self.declared.get(key, ()) if key in MERGE_FUNCTIONS else ()
        self.declared[key] = (*before, declaration)

    def want(self, key: str, value: Any, source: str) -> None:
        """Note what a project gets only in a trusted folder."""
        self.wanted[key] = value
        self.wanted_by = self.wanted_by or source

    def set_value(self, key: str, value: Any, layer: RuleLayer, source: str, written: Any = None, **more: Any) -> None:
        shown = value if written is None else written
        if key == "mcp" and layer == "project":
            self.project_servers |= {name for name in value if name not in self.values.get("mcp", {})}
        if key in DECLARED_KEYS:
            self.declare(key, value, layer, source, **more)
        if key in MERGE_FUNCTIONS and key in self.values:
            join = MERGE_FUNCTIONS[key]
            shown = join(self.written.get(key, self.values[key]), shown)
            value = join(self.values[key], value)
        self.values[key] = value
        self.sources[key] = source
        self.written.pop(key, None)
        if shown != value:
            self.written[key] = shown


def load(
    cwd: str,
    env: Mapping[str, str],
    flags: Mapping[str, Any] | None = None,
    *,
    trust: bool = False,
    plugin_dirs: Sequence[str] = (),
    add_dirs: Sequence[str] = (),
) -> Config:
    """Return the configuration for a session in `cwd`. `flags` are keys by their Python names: `Options.to_flags()`.

    `trust`: the user trusts the folder for this run, whatever it contains. `plugin_dirs` are plugins for this run,
    `add_dirs` folders besides the project: `PATH` or `PATH:ro`.
    """
    layers = _Layers(find_project_root(cwd, env))
    user = get_config_dir(env) / CONFIG_NAME
    project = Path(layers.root, CONFIG_NAME)
    raw = read_config_file(user)
    kept: dict[str, Any] = {}
    validator = ConfigValidator(user, env, variables="all", verbatim=VERBATIM_KEYS)
    if raw is not None:
        kept = _read_valid_keys(raw, user, validator)
    of_user, of_project = read_claude_files(layers.root, cwd, env) if kept.get("claude_settings", True) else ([], [])
    # There, the ask rules of all files decide before the allow rules of all files.
    is_mixed = any(rule.action == "allow" for found in of_project for rule in found.rules)
    _add_claude(layers, of_user, [] if is_mixed else of_user, "user")
    for key, value in kept.items():
        layers.set_value(key, value, "user", str(user), validator.unexpanded.get(key))
    layers.problems.extend(validator.problems)
    if plugin_dirs or (get_config_dir(env) / PLUGINS_NAME).is_file():
        # Add the hooks and MCP servers of the plugins. Of two servers with one name, the user's counts.
        from odin.config.plugins import load_plugins

        layers.plugins, problems = load_plugins(env, plugin_dirs, cwd)
        layers.problems.extend(problems)
        for plugin in layers.plugins:
            for source, hooks in plugin.hooks:
                layers.declare("hooks", hooks, "user", source, plugin=plugin.folder)
            if plugin.servers:
                source = f"{plugin.folder}/{MCP_NAME}"
                layers.set_value("mcp", plugin.servers, "user", source, plugin.written_servers)
    theirs = None if os.path.realpath(project) == os.path.realpath(user) else read_config_file(project)
    layers.trust = evaluate_trust(layers.root, env, theirs, once=trust, texts=list_texts(of_project))
    layers.problems.extend(_describe_lost_trust(layers.trust))
    _add_claude(layers, of_project, [*(of_user if is_mixed else ()), *of_project], "project")
    if theirs is not None:
        _add_project(layers, theirs, project, user, env)
    if os.path.lexists(Path(layers.root, MCP_NAME)):
        # Add the servers of the project's `.mcp.json`, which count only in a trusted folder.
        from odin.config.mcp_file import read_mcp_file

        path, trusted = Path(layers.root, MCP_NAME), layers.trust.trusted
        found = read_mcp_file(path, env, expands=trusted)
        layers.problems.extend(found.problems)
        off = layers.disabled_servers
        servers = {name: server for name, server in found.servers.items() if name not in off}
        if servers:
            written = {name: server for name, server in found.unexpanded.items() if name not in off}
            layers.want("mcp", {**written, **layers.wanted.get("mcp", {})}, str(path))
            if trusted:
                layers.set_value("mcp", servers, "project", str(path), written)
    _report_untrusted(layers)
    _add_environment(layers, env)
    for name, value in (flags or {}).items():
        if name not in _KEY_OF:
            raise UsageError(f"Unknown setting {name!r}.")
        layers.set_value(_KEY_OF[name], _validate_value(name, value, f"--{name.replace('_', '-')}"), "session", "flag")
    if (file := layers.bypass_disabled_by) and layers.values.get("permission_mode") == "bypassPermissions":
        layers.values["permission_mode"] = "default"
        layers.problems.append(ConfigProblem("disableBypassPermissionsMode turns off bypassPermissions.", file))
    if layers.claude_rules:
        layers.declared["rules"] = (*layers.claude_rules, *layers.declared.get("rules", ()))
    roots: tuple[Root, ...] = ()
    if add_dirs or layers.declared.get("additional_directories"):
        from odin.config.roots import collect_roots

        named = layers.declared.get("additional_directories", ())
        roots, problems = collect_roots(layers.root, cwd, env, named, add_dirs, trust=trust)
        layers.problems.extend(problems)
    # Key by key: to convert the whole, msgspec prepares the types of all keys, which delays each start by 3 ms.
    given = {
        name: msgspec.convert(layers.values[key], get_field_types(ConfigKeys)[name])
        for name, key in _KEY_OF.items()
        if key in layers.values and key != "mode"
    }
    config = Config(
        **given,
        mode=parse_mode(layers.get_current_value("mode")),
        root=layers.root,
        roots=roots,
        problems=tuple(layers.problems),
        sources=layers.sources,
        written=layers.written,
        trust=layers.trust,
        declared=layers.declared,
        wanted=layers.wanted,
        project_servers=layers.project_servers,
        variables=layers.variables,
        project_variables=layers.project_variables,
        bypass_disabled_by=layers.bypass_disabled_by,
        plugins=tuple(layers.plugins),
    )
    if not config.mcp:
        return config
    from odin.config.mcp_file import leave_out_ambiguous

    return leave_out_ambiguous(config)


def _describe_lost_trust(trust: TrustStatus) -> list[ConfigProblem]:
    """Report a folder that was trusted before, or may have been."""
    if trust.changed:
        changed = ", ".join(trust.changed)
        return [ConfigProblem(f"{trust.folder} is no longer trusted: {changed} changed. {TRUST_HINT}")]
    return [ConfigProblem(trust.warning)] if trust.warning else []


def _read_valid_keys(raw: bytes, path: Path, validator: ConfigValidator) -> dict[str, Any]:
    found, repeated = parse_json_object(raw, path)
    for name in repeated:
        validator.report(name, f'"{name}" occurs twice in one object; the last one is used.')
    return validator.validate_keys(found, ConfigKeys)


def _add_project(layers: _Layers, raw: bytes, path: Path, user: Path, env: Mapping[str, str]) -> None:
    variables = "plain" if layers.trust.trusted else "none"
    validator = ConfigValidator(path, env, variables=variables, verbatim=VERBATIM_KEYS)
    for key, value in _read_valid_keys(raw, path, validator).items():
        if key in USER_ONLY_KEYS:
            validator.report(key, f"{key} is ignored in a project file: set it in your user file, {user}.")
        else:
            _add_project_value(layers, key, value, str(path), validator.unexpanded.get(key))
    layers.problems.extend(validator.problems)


def _add_project_value(
    layers: _Layers, key: str, value: Any, source: str, written: Any = None, *, is_claude: bool = False
) -> None:
    if value == "bypassPermissions":
        text = f"{key} {value} is ignored: a project file cannot turn off all permission requests."
        layers.problems.append(ConfigProblem(text, source, key))
        return
    if _needs_trust(layers, key, value):
        layers.want(key, value if written is None else written, source)
        if not layers.trust.trusted:
            if key == "hooks":
                layers.declare(key, value, "project", source, is_claude=is_claude)
            return
    layers.set_value(key, value, "project", source, written, is_claude=is_claude)


def _add_claude(
    layers: _Layers,
    files: "Sequence[ClaudeSettings]",
    asking: "Sequence[ClaudeSettings]",
    layer: RuleLayer,
) -> None:
    """Add what settings files of Claude Code say, and after that the ask rules of the files `asking`."""
    layers.is_claude_hooked = layers.is_claude_hooked and not any(found.disables_hooks for found in files)
    for found in files:
        source = found.path
        layers.problems.extend(found.warnings)
        layers.disabled_servers.update(found.disabled_servers)
        layers.bypass_disabled_by = layers.bypass_disabled_by or (source if found.disables_bypass else "")
        _add_claude_rules(layers, found, ("allow", "deny"), layer)
        given = {**found.keys, **({"hooks": found.hooks} if found.hooks and layers.is_claude_hooked else {})}
        for key, value in given.items():
            if layer == "project":
                _add_project_value(layers, key, value, source, is_claude=True)
            else:
                layers.set_value(key, value, layer, source, is_claude=True)
        if layer == "user":
            layers.variables.update(found.env)
        elif found.env:
            shown = [f"{name}={value}" for name, value in found.env.items()]
            layers.want("env", [*layers.wanted.get("env", ()), *shown], source)
            layers.project_variables.update(found.env if layers.trust.trusted else {})
    for found in asking:
        _add_claude_rules(layers, found, ("ask",), layer)


def _add_claude_rules(
    layers: _Layers, found: "ClaudeSettings", actions: Sequence[RuleAction], layer: RuleLayer
) -> None:
    rules = [entry for entry in found.entries if entry["action"] in actions]
    if layer == "project" and any(entry["action"] == "allow" for entry in rules):
        layers.want("rules", rules, found.path)
    if rules:
        layers.set_value("rules", rules, layer, found.path, is_claude=True)


def _report_untrusted(layers: _Layers) -> None:
    if layers.wanted and not layers.trust.trusted:
        names = ", ".join(layers.wanted)
        ignored = f"ignored because this folder is not trusted: {names}. {TRUST_HINT}"
        layers.problems.append(ConfigProblem(ignored, layers.wanted_by))


def _needs_trust(layers: _Layers, key: str, value: Any) -> bool:
    """True if a project's value would start programs, allow more, or redirect. Rules are checked one by one."""
    tighter = TIGHTNESS_CHECKS.get(key)
    if tighter is not None:
        return not tighter(value, layers.get_current_value(key))
    return key in ("hooks", "mcp", "lsp_servers") and bool(value)


def _add_environment(layers: _Layers, env: Mapping[str, str]) -> None:
    for name in ENVIRONMENT_KEYS:
        variable = f"ODIN_{name.upper()}"
        text = env.get(variable, "")
        if text:
            layers.set_value(_KEY_OF[name], _validate_value(name, text.strip(), variable), "session", variable)
    if url := env.get(REDIS_VARIABLE, "").strip():
        value = {**layers.values.get("redis", {}), "url": url}
        try:
            msgspec.convert(value, RedisSettings)
        except msgspec.ValidationError as error:
            raise ConfigError(f"{REDIS_VARIABLE} cannot be used: {error}.", "Fix or remove it.") from error
        written = {**layers.written.get("redis", value), "url": f"${REDIS_VARIABLE}"}
        layers.set_value("redis", value, "session", REDIS_VARIABLE, written)
    _read_gateway_variables(layers, env)


def _read_gateway_variables(layers: _Layers, env: Mapping[str, str]) -> None:
    """Set keys of `gateway`: `ODIN_GATEWAY_PORT`, or `ODIN_GATEWAY_CHANNELS_NAME_TOKEN` for the channel `name`."""
    found = [name for name in sorted(env) if name.startswith(GATEWAY_PREFIX) and env[name].strip()]
    if not found:
        return
    from odin.config.gateway_settings import ChannelSettings, GatewaySettings, TriggerSettings, WebhookSettings

    value: dict[str, Any] = dict(layers.values.get("gateway", {}))
    written: dict[str, Any] = dict(layers.written.get("gateway", value))
    for variable in found:
        key = variable.removeprefix(GATEWAY_PREFIX).lower()
        path = (key,)
        if key.startswith("heartbeat_"):
            path = ("heartbeat", key.removeprefix("heartbeat_"))
        groups = (("channels", ChannelSettings), ("webhooks", WebhookSettings), ("triggers", TriggerSettings))
        for group, kind in groups:
            rest = key.removeprefix(f"{group}_")
            field = max((one for one in kind.__struct_fields__ if rest.endswith(f"_{one}")), key=len, default="")
            if rest != key and field:
                path = (group, rest.removesuffix(f"_{field}"), field)
        _set_at(value, path, env[variable].strip())
        _set_at(written, path, f"${variable}")
    try:
        value = msgspec.to_builtins(msgspec.convert(value, GatewaySettings, strict=False))
    except msgspec.ValidationError as error:
        raise ConfigError(f"{', '.join(found)} cannot be used: {error}.", "Fix or remove it.") from error
    layers.set_value("gateway", value, "session", found[0], written)


def _set_at(value: dict[str, Any], path: Sequence[str], text: str) -> None:
    """Set a value in nested objects, which are copied. Lists are separated by commas."""
    for name in path[:-1]:
        value[name] = value = dict(value.get(name, {}))
    value[path[-1]] = text.split(",") if path[-1] in ("owners", "allow_from", "groups", "tools") else text


def _validate_value(name: str, value: Any, where: str) -> Any:
    """Return a value given explicitly in this run. Raise if it is invalid, instead of ignoring it."""
    if name in ("mode", "permission_mode"):
        try:
            return parse_mode(value) if name == "mode" else parse_permission_mode(value)
        except UsageError as error:
            if where.startswith("--"):
                raise
            raise ConfigError(f"{where}: {error}", error.hint) from error
    kind = get_field_types(ConfigKeys)[name]
    try:
        return msgspec.to_builtins(msgspec.convert(value, kind, strict=False))
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where} {describe_mismatch(_parse_number(value), kind)}", "Fix or remove it.") from error


def _parse_number(text: Any) -> Any:
    """Return a number for text such as `-1`, so that the message is about the limit and not about the type."""
    try:
        return int(text) if isinstance(text, str) else text
    except ValueError:
        return text
