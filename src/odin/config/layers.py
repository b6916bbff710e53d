"""Defaults, user file, project file, environment, flags: each over the one before, with the project held back.

A project's file comes with the project, so it is somebody else's word. It may make Odin more careful; it may make it
bolder only in a folder that the user's own file lists under `trusted_projects`. It never says where models are reached,
with which key, or what commands get to see.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from odin.config.keys import Config, Keys
from odin.config.places import CONFIG_NAME, config_dir, project_root, with_home
from odin.config.read import Sieve, read_object
from odin.context.settings import CacheSettings
from odin.core.errors import ConfigError, UsageError
from odin.policy.modes import mode_of, permission_mode_of

USER_ONLY = ("providers", "web", "checkpoints", "system_header", "keep_env", "trusted_projects")

FROM_ENVIRONMENT = (
    "model",
    "small_model",
    "mode",
    "permission_mode",
    "max_turns",
    "max_budget_usd",
    "max_tokens",
    "temperature",
    "thinking",
    "default_response",
    "restrict_to_workspace",
    "read_before_edit",
)


def _appended(before: Any, new: Any) -> Any:
    return list(dict.fromkeys([*before, *new]))


def _overlaid(before: Any, new: Any) -> Any:
    return {**before, **new}


MERGING: dict[str, Callable[[Any, Any], Any]] = {
    "ForbiddenCommands": _appended,
    "disallowed_tools": _appended,
    "retry": _overlaid,
    "cache": _overlaid,
}
"""The keys of which a later layer says more, instead of something else."""

_KEY_OF = dict(zip(Keys.__struct_fields__, Keys.__struct_encode_fields__, strict=True))

_CAUTION = {"plan": 0, "dontAsk": 1, "default": 2, "acceptEdits": 3, "bypassPermissions": 4}


def _fewer(new: Any, old: Any) -> bool:
    return set(new) <= set(old)


def _lower(new: Any, old: Any) -> bool:
    """Whether a limit, where 0 means none, is at least as tight as the one that holds."""
    return new == old or (new > 0 and (old == 0 or new <= old))


def _stricter(new: Any, old: Any) -> bool:
    return bool(new) or not old


def _careful_cache(new: Any, old: Any) -> bool:
    """Whether a cache keeps no more than before and is trusted no more."""
    known = {**msgspec.to_builtins(CacheSettings()), **old}
    care = ("never", "auto", "always")
    return (
        all(value <= known[name] for name, value in new.items() if name.startswith("max_"))
        and care.index(new.get("validation", known["validation"])) >= care.index(known["validation"])
        and _stricter(new.get("auto_refresh", True), known["auto_refresh"])
        and _lower(new.get("ttl_s", known["ttl_s"]), known["ttl_s"])
    )


TIGHTER: dict[str, Callable[[Any, Any], bool]] = {
    "AllowedCommands": _fewer,
    "allowed_tools": _fewer,
    "mode": lambda new, old: mode_of(new) in (mode_of(old), "ask_mode", "plan_mode"),
    "permission_mode": lambda new, old: _CAUTION[new] <= _CAUTION[old],
    "max_turns": _lower,
    "max_budget_usd": _lower,
    "restrict_to_workspace": _stricter,
    "read_before_edit": _stricter,
    "cache": _careful_cache,
}
"""The keys that decide how much Odin may do, and when a new value is no bolder than the one that holds."""


class _Layers:
    """The values so far, and where each came from."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.values: dict[str, Any] = {}
        self.sources: dict[str, str] = {}
        self.written: dict[str, Any] = {}
        self.warnings: list[str] = []

    def current(self, key: str) -> Any:
        if key in self.values:
            return self.values[key]
        return msgspec.to_builtins(Keys()).get(key)

    def put(self, key: str, value: Any, source: str, written: Any = None) -> None:
        shown = value if written is None else written
        if key in MERGING and key in self.values:
            join = MERGING[key]
            shown = join(self.written.get(key, self.values[key]), shown)
            value = join(self.values[key], value)
        self.values[key] = value
        self.sources[key] = source
        self.written.pop(key, None)
        if shown != value:
            self.written[key] = shown

    def config(self) -> Config:
        how = {"root": self.root, "warnings": self.warnings, "sources": self.sources, "written": self.written}
        values = {**self.values, "mode": mode_of(self.current("mode"))}
        return msgspec.convert({**values, **how}, Config)


def load(cwd: str, env: Mapping[str, str], flags: Mapping[str, Any] | None = None) -> Config:
    """The configuration of a session that works in `cwd`; `flags` are keys by their Python names: `Options.flags()`."""
    layers = _Layers(project_root(cwd, env))
    user = config_dir(env) / CONFIG_NAME
    project = Path(layers.root, CONFIG_NAME)
    _add_user(layers, user, env)
    if os.path.realpath(project) != os.path.realpath(user):
        _add_project(layers, project, user, env)
    _add_environment(layers, env)
    _add_flags(layers, flags or {})
    return layers.config()


def _sifted(layers: _Layers, path: Path, env: Mapping[str, str], *, secrets: bool) -> tuple[dict[str, Any], Sieve]:
    sieve = Sieve(path, env, secrets=secrets)
    found = read_object(path)
    if found is None:
        return {}, sieve
    raw, repeated = found
    for name in repeated:
        sieve.warn(f'"{name}" is written twice in one object; the last one counts.')
    kept = sieve.keys(raw, Keys)
    layers.warnings.extend(sieve.warnings)
    return kept, sieve


def _add_user(layers: _Layers, path: Path, env: Mapping[str, str]) -> None:
    kept, sieve = _sifted(layers, path, env, secrets=True)
    for key, value in kept.items():
        layers.put(key, value, str(path), sieve.written.get(key))


def _add_project(layers: _Layers, path: Path, user: Path, env: Mapping[str, str]) -> None:
    kept, sieve = _sifted(layers, path, env, secrets=False)
    trusted = _trusted(layers, env)
    for key, value in kept.items():
        if key in USER_ONLY:
            layers.warnings.append(f"{path}: {key} is ignored in a project file: set it in your user file, {user}.")
            continue
        tighter = TIGHTER.get(key)
        if tighter is None or tighter(value, layers.current(key)):
            layers.put(key, value, str(path), sieve.written.get(key))
        elif value == "bypassPermissions":
            layers.warnings.append(f"{path}: {key} {value} is ignored: no project file may switch every question off.")
        elif trusted:
            layers.put(key, value, str(path), sieve.written.get(key))
        else:
            layers.warnings.append(
                f"{path}: {key} is ignored because it allows more than your own settings: set it in {user}, "
                f"or trust this project by adding {layers.root} to trusted_projects there."
            )


def _trusted(layers: _Layers, env: Mapping[str, str]) -> bool:
    """Whether the user's file lists this folder or one above it: the real folder, by its full path."""
    root = Path(os.path.realpath(layers.root))
    listed = (with_home(name, env) for name in layers.values.get("trusted_projects", ()))
    folders = (Path(os.path.realpath(folder)) for folder in listed if folder.is_absolute())
    return any(root == folder or folder in root.parents for folder in folders)


def _add_environment(layers: _Layers, env: Mapping[str, str]) -> None:
    for name in FROM_ENVIRONMENT:
        variable = f"ODIN_{name.upper()}"
        text = env.get(variable, "")
        if text:
            layers.put(_KEY_OF[name], _checked(name, text.strip(), variable), variable)


def _add_flags(layers: _Layers, flags: Mapping[str, Any]) -> None:
    for name, value in flags.items():
        if name not in _KEY_OF:
            raise UsageError(f"There is no setting {name!r}.")
        layers.put(_KEY_OF[name], _checked(name, value, f"--{name.replace('_', '-')}"), "flag")


def _checked(name: str, value: Any, where: str) -> Any:
    """A value somebody gave on purpose, just now: when it is wrong, the start stops instead of going on without it."""
    if name == "mode":
        return mode_of(value)
    if name == "permission_mode":
        return permission_mode_of(value)
    kind = get_type_hints(Keys, include_extras=True)[name]
    try:
        return msgspec.to_builtins(msgspec.convert(value, kind, strict=False))
    except msgspec.ValidationError as error:
        reason = str(error).split(" - at ", 1)[0].replace("`", "")
        raise ConfigError(
            f"{where} is {value!r}: {reason[:1].lower()}{reason[1:]}.", "Correct it or leave it out."
        ) from error
