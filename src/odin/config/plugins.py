"""Plugins: folders that bundle agents, commands, skills, hooks and MCP servers, in the layout of Claude Code.

    my-plugin/
      .claude-plugin/plugin.json    {"name": "my-plugin", "version": "1.0.0", "description": "..."}
      agents/  commands/  skills/  hooks/hooks.json  .mcp.json

A plugin is trusted as a unit: `odin plugin add` stores the hashes of all its files, and if one of them changes, nothing
of the plugin is used until it is added again. `--plugin-dir` uses one for a single run, because the user names it.

Only what changes by itself is not pinned: the repository's own `.git`, `.DS_Store`, and the bytecode that Python caches
for a module of the plugin. Nothing of it is used: the manifest cannot name it, and Python programs of a plugin keep
their bytecode elsewhere. A link must lead to a pinned file.

Imported only if there are plugins.
"""

import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Struct, field

from odin.config.files import (
    ConfigProblem,
    VersionedStore,
    lock_file,
    parse_json_object,
    read_config_file,
    read_store,
    write_atomically,
)
from odin.config.mcp_file import SERVERS_KEY, read_servers
from odin.config.paths import MCP_NAME, PLUGINS_NAME, expand_home, get_config_dir, locate_bytecode
from odin.config.settings import Plugin, PluginFiles
from odin.core.errors import ConfigError, UsageError
from odin.core.path_names import quote_path
from odin.core.text import suggest_similar

MANIFEST = ".claude-plugin/plugin.json"
MARKETPLACE = ".claude-plugin/marketplace.json"
MAX_FILES = 5_000
MAX_BYTES = 50_000_000
_MAX_STORE_BYTES = 20_000_000
_STORE_VERSION = 1
_REPOSITORY = ".git"
_BYTECODE = re.compile(r"([^.]+)\.[\w-]+(?:\.opt-\w+)?\.pyc")
_USES_UNPINNED = re.compile(r"PLUGIN_ROOT\}?[\"'\\]*/(?:\.git/|[^\s\"']*(?:__pycache__/[^\s\"']*\.pyc|\.DS_Store))")

_NAME = r"[A-Za-z0-9][\w.-]{0,63}"


class PinnedPlugin(Struct, frozen=True, kw_only=True):
    """An added plugin: its folder, the hashes of its files, and what identifies them without reading them."""

    folder: str
    files: dict[str, str]
    stamp: str = ""
    since: str = ""


class _PluginStore(VersionedStore, frozen=True, kw_only=True):
    version: int = _STORE_VERSION
    plugins: dict[str, PinnedPlugin] = field(default_factory=dict[str, PinnedPlugin])


def load_plugins(env: Mapping[str, str], folders: Sequence[str], cwd: str) -> tuple[list[Plugin], list[ConfigProblem]]:
    """Return the plugins of `--plugin-dir` (`folders`) and the added ones that have not changed, and what is wrong.

    Raise UsageError if one of `folders` is no plugin. Of two plugins with the same name the first one counts.
    """
    found: dict[str, Plugin] = {}
    problems: list[ConfigProblem] = []
    for folder in folders:
        try:
            plugin = read_plugin(str(Path(cwd, expand_home(folder, env))), env)
        except ConfigError as error:
            raise UsageError(f"--plugin-dir {folder}: {error}", error.hint) from error
        if plugin.name in found:
            where = found[plugin.name].folder
            problems.append(ConfigProblem(f"--plugin-dir {folder} is ignored: {where} is also called {plugin.name}."))
        found.setdefault(plugin.name, plugin)
    try:
        added = read_plugin_store(env)
    except ConfigError as error:
        return list(found.values()), [*problems, ConfigProblem(f"No added plugin is used. {error.describe()}")]
    for name, pinned in added.items():
        try:
            _check_pins(name, pinned)
            plugin = read_plugin(pinned.folder, env)
        except ConfigError as error:
            problems.append(ConfigProblem(f"The plugin {name} is not used: {error.describe()}"))
        else:
            found.setdefault(name, msgspec.structs.replace(plugin, name=name))
    problems += [problem for plugin in found.values() for problem in plugin.problems]
    return list(found.values()), problems


def _check_pins(name: str, pinned: PinnedPlugin) -> None:
    """Raise ConfigError if a file of an added plugin has changed, is missing or is new."""
    hint = f"Review it, then run `odin plugin add {quote_path(pinned.folder)}`, or `odin plugin remove {name}`."
    if not os.path.isdir(pinned.folder):  # noqa: PTH112
        raise ConfigError(f"its folder {pinned.folder} does not exist.", f"Run `odin plugin remove {name}`.")
    listed = list_plugin_files(pinned.folder)
    if pinned.stamp and pinned.stamp == _make_stamp(pinned.folder, listed):
        return
    now = _hash_files(pinned.folder, listed)
    changed = sorted(path for path in {*now, *pinned.files} if now.get(path) != pinned.files.get(path))
    if changed:
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        raise ConfigError(f"{', '.join(changed[:3])}{more} changed since you added it.", hint)


# --- files ---


def list_plugin_files(folder: str) -> list[str]:
    """Return the files of a plugin that are pinned, relative to its folder, sorted.

    Raise ConfigError if there are too many, or if a link leads to something that is not pinned.
    """
    found: list[str] = []
    for where, folders, files in os.walk(folder, onerror=_raise_unreadable):
        folders[:] = sorted(name for name in folders if where != folder or name != _REPOSITORY)
        links = [name for name in (*folders, *files) if os.path.islink(f"{where}/{name}")]  # noqa: PTH114
        for name in links:
            path = f"{where}/{name}"
            target, top = os.path.realpath(path), os.path.realpath(folder)
            if not Path(target).is_relative_to(top):
                raise ConfigError(f"{path} is a link out of the plugin, to {target}.", "Replace it with a copy.")
            if not _is_pinned(target, top):
                raise ConfigError(f"{path} is a link to {target}, which cannot be pinned.", "Replace it with a copy.")
        plain = (name for name in files if name not in links and _is_pinned(f"{where}/{name}", folder))
        found += [os.path.relpath(f"{where}/{name}", folder) for name in (*plain, *links)]
        if len(found) > MAX_FILES:
            raise ConfigError(f"{folder} holds more than {MAX_FILES:,} files.", "Remove what the plugin does not need.")
    return sorted(found)


def _is_pinned(path: str, folder: str) -> bool:
    """False for a file that changes by itself: of the repository, of the desktop, or the bytecode of a module."""
    parts = Path(path).relative_to(folder).parts
    if parts[:1] == (_REPOSITORY,) or parts[-1:] == (".DS_Store",):
        return False
    cached = _BYTECODE.fullmatch(parts[-1]) if parts[-2:-1] == ("__pycache__",) else None
    if cached is None:
        return True
    return not os.path.isfile(f"{Path(path).parent.parent}/{cached[1]}.py")  # noqa: PTH113


def _raise_unreadable(error: OSError) -> None:
    raise ConfigError(f"{error.filename} cannot be read: {error.strerror}.", "Make it readable or remove it.")


def _hash_files(folder: str, names: Iterable[str]) -> dict[str, str]:
    """Return the hash of each file. A link counts as the name of its target, which is pinned itself."""
    import hashlib

    hashes: dict[str, str] = {}
    left = MAX_BYTES
    for name in names:
        path = Path(folder, name)
        try:
            if path.is_symlink():
                data = b"link " + os.fsencode(path.readlink())
            elif not stat.S_ISREG(path.stat().st_mode):
                raise ConfigError(f"{path} is not a regular file, so it cannot be pinned.", "Remove it.")
            else:
                left -= path.stat().st_size
                if left < 0:
                    raise ConfigError(f"{folder} has more than {MAX_BYTES:,} bytes.", "Remove what is not needed.")
                data = path.read_bytes()
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror or error}.", "Make it readable.") from error
        hashes[name] = hashlib.sha256(data).hexdigest()
    return hashes


def _make_stamp(folder: str, names: Iterable[str]) -> str:
    """Return a hash of what changes whenever a file of the plugin changes."""
    import hashlib

    digest = hashlib.sha256()
    for name in names:
        try:
            info = Path(folder, name).lstat()
        except OSError:
            return ""
        facts = (name, info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino, info.st_mode)
        digest.update(repr(facts).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def find_changed_files(plugin: Plugin) -> tuple[str, ...]:
    """Return the plugin itself if one of its files changed since it was read, so that no hook of it may run."""
    try:
        is_same = _make_stamp(plugin.folder, list_plugin_files(plugin.folder)) == plugin.stamp
    except ConfigError:
        is_same = False
    return () if is_same else (f"the plugin {plugin.name}",)


# --- one plugin ---


def read_plugin(folder: str, env: Mapping[str, str]) -> Plugin:
    """Return the plugin in this folder. Raise ConfigError if it is none."""
    place = os.path.realpath(folder)
    if not os.path.isdir(place):  # noqa: PTH112
        raise ConfigError(f"{folder} is not a folder.", "Name the folder of a plugin.")
    return _PluginReader(place, env).read()


class _PluginReader:
    """Reads the manifest of a plugin and finds its parts."""

    def __init__(self, folder: str, env: Mapping[str, str]) -> None:
        self._folder = folder
        self._env = {**env, "CLAUDE_PLUGIN_ROOT": folder, "ODIN_PLUGIN_ROOT": folder}
        self._manifest: dict[str, Any] = {}
        self._problems: list[ConfigProblem] = []
        self._written: dict[str, Any] = {}

    def read(self) -> Plugin:
        path = Path(self._folder, MANIFEST)
        raw = read_config_file(path)
        if raw is not None:
            self._manifest = parse_json_object(raw, path)[0]
        name: Any = self._manifest.get("name", Path(self._folder).name)
        if not isinstance(name, str) or not re.fullmatch(_NAME, name):
            raise ConfigError(f"{name!r} is not the name of a plugin.", "Use letters, digits, hyphens and dots.")
        parts = {
            "commands": self._find_parts("commands"),
            "agents": self._find_parts("agents"),
            "skills": self._find_parts("skills"),
        }
        hooks = tuple(self._find_hooks())
        servers = self._find_servers(name)
        if raw is None and not hooks and not servers and not any(part for part in parts.values()):
            # Name the plugins of a marketplace, if the folder is one.
            path = Path(self._folder, MARKETPLACE)
            try:
                raw = read_config_file(path)
                listed: Any = parse_json_object(raw, path)[0].get("plugins") if raw is not None else None
            except ConfigError:
                listed = None
            items = cast("list[Any]", listed) if isinstance(listed, list) else []
            entries = [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]
            sources = [item["source"] for item in entries if isinstance(item.get("source"), str)]
            raise ConfigError(
                f"{self._folder} is not a plugin: it has none of {MANIFEST}, {_LAYOUT}.",
                f"It is a marketplace. Add one of its folders: {', '.join(sources[:10])}." if sources else "",
            )
        return Plugin(
            name=name,
            folder=self._folder,
            version=self._read_text("version"),
            description=" ".join(self._read_text("description").split()),
            **parts,
            hooks=hooks,
            servers=servers,
            written_servers={key: self._written[key.removeprefix(f"plugin_{name}_")] for key in servers},
            stamp=_make_stamp(self._folder, list_plugin_files(self._folder)),
            problems=tuple(self._problems),
        )

    def _report(self, text: str, file: str = MANIFEST) -> None:
        self._problems.append(ConfigProblem(text, str(Path(self._folder, file))))

    def _read_text(self, key: str) -> str:
        value: Any = self._manifest.get(key, "")
        if isinstance(value, str):
            return value
        self._report(f"{key} must be a text. It is ignored.")
        return ""

    def _find_parts(self, key: str) -> PluginFiles:
        """Return the usual folder of a kind and what the manifest adds to it: folders, or single Markdown files."""
        folders = [key] if os.path.isdir(f"{self._folder}/{key}") else []  # noqa: PTH112
        files: list[str] = []
        for text in self._list_paths(key):
            path = self._resolve(key, text)
            if path and os.path.isdir(f"{self._folder}/{path}"):  # noqa: PTH112
                folders.append(path)
            elif path and key == "skills" and Path(path).name.casefold() == "skill.md":
                folders.append(str(Path(path).parent))
            elif path and key == "skills":
                self._report(f"skills: {text!r} is neither a folder nor a SKILL.md and is ignored.")
            elif path:
                files.append(path)
        return PluginFiles(tuple(dict.fromkeys(folders)), tuple(dict.fromkeys(files)))

    def _list_paths(self, key: str) -> list[str]:
        value: Any = self._manifest.get(key, [])
        items = [value] if isinstance(value, str) else value
        if isinstance(items, list) and all(isinstance(item, str) for item in cast("list[Any]", items)):
            return cast("list[str]", items)
        self._report(f"{key} must be a path or a list of paths. It is ignored.")
        return []

    def _resolve(self, key: str, text: str) -> str:
        """Return a path of the manifest relative to the plugin, or "" if the plugin does not have it."""
        path = os.path.normpath(text.removeprefix("${CLAUDE_PLUGIN_ROOT}/"))
        place = os.path.realpath(f"{self._folder}/{path}")
        if not Path(place).is_relative_to(self._folder):
            self._report(f"{key}: {text!r} is outside the plugin and is ignored.")
            return ""
        if not os.path.exists(place):  # noqa: PTH110
            self._report(f"{key}: the plugin has no {text!r}.")
            return ""
        if not _is_pinned(place, self._folder):
            self._report(f"{key}: {text!r} cannot be pinned and is ignored.")
            return ""
        return os.path.relpath(place, self._folder)

    def _find_hooks(self) -> Iterator[tuple[str, Any]]:
        """Yield each declaration of hooks with the file it is in."""
        if os.path.lexists(f"{self._folder}/hooks/hooks.json"):
            yield from self._read_hooks("hooks/hooks.json")
        value: Any = self._manifest.get("hooks")
        for item in cast("list[Any]", value) if isinstance(value, list) else [value]:
            if isinstance(item, dict):
                yield from self._take_hooks(cast("dict[str, Any]", item), MANIFEST)
            elif isinstance(item, str) and (path := self._resolve("hooks", item)) and path != "hooks/hooks.json":
                yield from self._read_hooks(path)
            elif item is not None and not isinstance(item, str):
                self._report("hooks must be an object or a path. It is ignored.")

    def _read_hooks(self, name: str) -> Iterator[tuple[str, Any]]:
        path = Path(self._folder, name)
        try:
            raw = read_config_file(path)
            value = parse_json_object(raw, path)[0] if raw is not None else {}
        except ConfigError as error:
            self._report(f"No hook of it is used. {error.describe()}", name)
            return
        yield from self._take_hooks(value, name)

    def _take_hooks(self, value: dict[str, Any], name: str) -> Iterator[tuple[str, Any]]:
        """Hooks stand below `hooks`, next to a description, or alone."""
        hooks = value["hooks"] if isinstance(value.get("hooks"), dict) else value
        if _is_using_unpinned(hooks):
            self._report("No hook of it is used: one of them runs a file that cannot be pinned.", name)
        elif hooks:
            yield str(Path(self._folder, name)), hooks

    def _find_servers(self, plugin: str) -> dict[str, Any]:
        """Return the MCP servers under names that no other plugin uses: `plugin_NAME_SERVER`."""
        found: dict[str, Any] = {}
        if os.path.lexists(f"{self._folder}/{MCP_NAME}"):
            found |= self._read_server_file(MCP_NAME)
        value: Any = self._manifest.get(SERVERS_KEY)
        if isinstance(value, dict):
            found |= self._take_servers(cast("dict[str, Any]", value), MANIFEST)
        elif isinstance(value, str):
            path = self._resolve(SERVERS_KEY, value)
            found |= self._read_server_file(path) if path and path != MCP_NAME else {}
        elif value is not None:
            self._report(f"{SERVERS_KEY} must be an object or a path. It is ignored.")
        return {f"plugin_{plugin}_{name}": settings for name, settings in found.items()}

    def _read_server_file(self, name: str) -> dict[str, Any]:
        path = Path(self._folder, name)
        try:
            raw = read_config_file(path)
            value = parse_json_object(raw, path)[0] if raw is not None else {}
        except ConfigError as error:
            self._report(f"No MCP server of it is used. {error.describe()}", name)
            return {}
        inner: Any = value.get(SERVERS_KEY, value)
        if not isinstance(inner, dict):
            self._report(f"{SERVERS_KEY} must be an object. It is ignored.", name)
            return {}
        return self._take_servers(cast("dict[str, Any]", inner), name)

    def _take_servers(self, servers: dict[str, Any], name: str) -> dict[str, Any]:
        if _is_using_unpinned(servers):
            self._report("No MCP server of it is used: one of them runs a file that cannot be pinned.", name)
            return {}
        read = read_servers(servers, Path(self._folder, name), self._env)
        self._problems += read.problems
        self._written |= read.unexpanded
        return {key: self._move_bytecode(settings) for key, settings in read.servers.items()}

    def _move_bytecode(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Return the settings of a server whose Python modules are never loaded from bytecode in the plugin."""
        if not settings.get("command"):
            return settings
        return {**settings, "env": {"PYTHONPYCACHEPREFIX": locate_bytecode(self._env), **settings.get("env", {})}}


def _is_using_unpinned(value: dict[str, Any]) -> bool:
    return _USES_UNPINNED.search(msgspec.json.encode(value).decode()) is not None


_LAYOUT = "commands, agents, skills, hooks/hooks.json, .mcp.json"


# --- the added plugins ---


def locate_plugin_store(env: Mapping[str, str]) -> Path:
    return get_config_dir(env) / PLUGINS_NAME


def read_plugin_store(env: Mapping[str, str]) -> dict[str, PinnedPlugin]:
    """Return the added plugins by name. Raise ConfigError if the list is damaged or others could write it."""
    store = read_store(locate_plugin_store(env), _PluginStore, "plugins", _STORE_VERSION, _MAX_STORE_BYTES)
    return {} if store is None else store.plugins


def add_plugin(plugin: Plugin, env: Mapping[str, str]) -> None:
    """Trust a plugin with the content it has now. Raise ConfigError if it changed since it was read."""
    listed = list_plugin_files(plugin.folder)
    stamp = _make_stamp(plugin.folder, listed)
    hashes = _hash_files(plugin.folder, listed)
    if stamp != plugin.stamp or _make_stamp(plugin.folder, listed) != stamp:
        raise ConfigError(f"{plugin.folder} changed while you looked at it.", "Run the command again.")
    since = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    with lock_file(locate_plugin_store(env)):
        known = read_plugin_store(env)
        other = known.get(plugin.name)
        if other is not None and other.folder != plugin.folder:
            hint = f"Remove it first: `odin plugin remove {plugin.name}`."
            raise ConfigError(f"There is another plugin {plugin.name}, in {other.folder}.", hint)
        pinned = PinnedPlugin(folder=plugin.folder, files=hashes, stamp=stamp, since=since)
        _write_store(env, {**known, plugin.name: pinned})


def remove_plugin(name: str, env: Mapping[str, str]) -> str:
    """Remove an added plugin by its name or folder and return its name. Its files stay. Raise UsageError."""
    with lock_file(locate_plugin_store(env)):
        known = read_plugin_store(env)
        folder = os.path.realpath(name)
        found = next((key for key, item in known.items() if key == name or item.folder == folder), "")
        if not found:
            raise UsageError(f"There is no plugin {name!r}.{suggest_similar(name, known)}", "See `odin plugin list`.")
        _write_store(env, {key: item for key, item in known.items() if key != found})
    return found


def _write_store(env: Mapping[str, str], plugins: Mapping[str, PinnedPlugin]) -> None:
    store = _PluginStore(plugins=dict(sorted(plugins.items())))
    write_atomically(locate_plugin_store(env), msgspec.json.format(msgspec.json.encode(store), indent=2) + b"\n")
