"""The model options of a first run. Nothing here uses the network unless asked to."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from odin.config import CONFIG_NAME, Config, Options, get_config_dir, get_state_dir, load
from odin.config.auth import AUTH_NAME, locate_auth_file, read_auth_file
from odin.config.files import set_key
from odin.config.paths import find_other_agents, make_environment
from odin.core.errors import UsageError
from odin.core.setup import ModelOption
from odin.models.catalog import BUILTIN_MODEL, add_stored_keys, find_provider_default
from odin.models.keys import add_key, check_key, list_key_providers, list_keys
from odin.models.model_lists import ModelLists
from odin.session.log import scan_logs

OFFLINE_OPTION = ModelOption(
    "planner", "offline planner", BUILTIN_MODEL.ref, "built in; edits and searches without a model"
)

_MAX_LISTED = 10
"""Models of one server in the list; `/model` has them all."""


def is_first_run(env: Mapping[str, str], options: Options) -> bool:
    """True if Odin was never used or configured here and this run names no model."""
    if options.model or env.get("ODIN_MODEL"):
        return False
    if any(os.path.lexists(path) for path in (get_config_dir(env) / CONFIG_NAME, locate_auth_file(env))):
        return False
    return not _has_session(Path(options.state_dir) if options.state_dir else get_state_dir(env))


def _has_session(state: Path) -> bool:
    try:
        with os.scandir(state / "sessions") as projects:
            return any(next(scan_logs(Path(project.path)), None) for project in projects)
    except OSError:
        return False


class Onboarding:
    """Implements `Setup` for this user's environment."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._environment = make_environment(options.env, options.cwd, options.state_dir)
        self._env = self._environment.variables
        self._config = self._load_config()
        self.model = options.model
        """The model requested for this run; "" selects the configured or detected one."""

    def _load_config(self) -> Config:
        return load(self._environment.cwd, self._env, self._options.to_flags())

    @property
    def is_done(self) -> bool:
        return not is_first_run(self._env, self._options)

    @property
    def providers(self) -> tuple[str, ...]:
        return list_key_providers(self._config.providers)

    @property
    def keys_file(self) -> str:
        return str(locate_auth_file(self._env))

    @property
    def other_agents(self) -> str:
        return find_other_agents(self._env)

    async def find_options(self) -> tuple[ModelOption, ...]:
        self._config = self._load_config()  # a provider may have been added meanwhile
        keys = self._find_key_options()
        lists = ModelLists(self._env)
        servers = [
            ModelOption("server", name, f"{name}/{model.id}", own.base_url)
            for name, own in self._config.providers.items()
            if own.base_url and all(item.name != name for item in keys)
            for model in lists.find(f"{own.base_url.rstrip('/')}/chat/completions")[:_MAX_LISTED]
        ]
        return (*keys, *servers, OFFLINE_OPTION)

    async def find_local_servers(self) -> tuple[ModelOption, ...]:
        from odin.models.local_servers import discover_servers

        found: list[ModelOption] = []
        for server in await discover_servers(self._env):
            for model in server.models:
                room = f", {model.context:,} tokens" if model.context else ""
                found.append(
                    ModelOption("server", server.kind, f"{server.kind}/{model.id}", f"{server.base_url}{room}")
                )
        return tuple(found)

    async def store_key(self, provider: str, key: str) -> ModelOption:
        unchecked = await check_key(provider, key, self._config.providers, self._env)
        await asyncio.to_thread(add_key, provider, key, self._config.providers, self._env)
        name = provider.strip()
        found = next((item for item in self._find_key_options() if item.name == name), None)
        option = found or ModelOption("stored", name, "", AUTH_NAME)
        return msgspec.structs.replace(option, unchecked=unchecked)

    async def add_server(self, url: str) -> tuple[ModelOption, ...]:
        from odin.models.server_setup import add_server

        added = await add_server(url, self._config.providers, self._env)
        return tuple(
            ModelOption("server", added.provider, f"{added.provider}/{model}", added.base_url) for model in added.models
        )

    async def use_offline_planner(self) -> None:
        """Without a key the offline planner answers anyway; it is not stored as a chosen model."""
        if self._find_key_options():
            self.model = OFFLINE_OPTION.ref

    async def choose_model(self, ref: str) -> str:
        if not ref.strip():
            raise UsageError("No model was named.", "Write it as provider/model.")
        return str(await asyncio.to_thread(set_key, "model", ref.strip(), self._env))

    def _find_key_options(self) -> list[ModelOption]:
        """Return one option for each provider with a key, best known first."""
        auth = read_auth_file(self._env)
        settings = add_stored_keys(self._config.providers, auth)
        found: list[ModelOption] = []
        for line in list_keys(self._config.providers, auth, self._env):
            ref = find_provider_default(line.provider, settings, self._env)
            if line.used and ref:
                kind, place = ("stored", AUTH_NAME) if line.kind == "stored" else ("key", line.place)
                found.append(ModelOption(kind, line.provider, ref, f"{place} ({line.shown})"))
        return found
