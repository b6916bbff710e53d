"""What a first run finds, for the front end that welcomes a person. Nothing here reaches out without being asked."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

from odin.app.auth import add_key, key_lines, key_providers, with_stored
from odin.config import CONFIG_NAME, Options, config_dir, current_folder, load, state_dir
from odin.config.auth import AUTH_NAME, auth_path, read_auth
from odin.config.edit import set_key
from odin.core.errors import UsageError
from odin.core.setup import Found
from odin.providers.catalog import usual_ref
from odin.session.store import logs_in

OFFLINE = Found("planner", "offline planner", "offline/planner", "built in; edits and searches without a model")


def first_run(env: Mapping[str, str], options: Options) -> bool:
    """Whether Odin was never used nor configured here, and this run was not told its model either."""
    if options.model or env.get("ODIN_MODEL"):
        return False
    if any(os.path.lexists(path) for path in (config_dir(env) / CONFIG_NAME, auth_path(env))):
        return False
    return not _any_session(Path(options.state_dir) if options.state_dir else state_dir(env))


def _any_session(state: Path) -> bool:
    try:
        with os.scandir(state / "sessions") as projects:
            return any(next(logs_in(Path(project.path)), None) for project in projects)
    except OSError:
        return False


class FirstRun:
    """The setup of the user whose environment this is."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._env: Mapping[str, str] = options.env if options.env is not None else os.environ
        self._config = load(os.path.realpath(options.cwd or current_folder()), self._env, options.flags())
        self.model = options.model
        """The model this run is told to use; "" leaves it to what is configured and found."""

    @property
    def done(self) -> bool:
        return not first_run(self._env, self._options)

    @property
    def providers(self) -> tuple[str, ...]:
        return key_providers(self._config.providers)

    @property
    def keys_file(self) -> str:
        return str(auth_path(self._env))

    async def found(self) -> tuple[Found, ...]:
        return (*self._keys(), OFFLINE)

    async def servers(self) -> tuple[Found, ...]:
        from odin.providers.local import discover

        found: list[Found] = []
        for server in await discover(self._env):
            for model in server.models:
                room = f", {model.context:,} tokens" if model.context else ""
                found.append(Found("server", server.kind, f"{server.kind}/{model.id}", f"{server.base_url}{room}"))
        return tuple(found)

    async def store_key(self, provider: str, key: str) -> Found:
        await asyncio.to_thread(add_key, provider, key, self._config.providers, self._env)
        name = provider.strip()
        found = next((item for item in self._keys() if item.name == name), None)
        return found or Found("stored", name, "", AUTH_NAME)

    async def go_without(self) -> None:
        """Where no key is known the planner answers anyway, and the session is not bound to it as to a chosen model."""
        if self._keys():
            self.model = OFFLINE.ref

    async def choose(self, ref: str) -> str:
        if not ref.strip():
            raise UsageError("No model was named.", "Write it as provider/model.")
        return str(await asyncio.to_thread(set_key, "model", ref.strip(), self._env))

    def _keys(self) -> list[Found]:
        """One for each provider that has a key, in the order in which they are known."""
        auth = read_auth(self._env)
        settings = with_stored(self._config.providers, auth, self._env)
        found: list[Found] = []
        for line in key_lines(self._config.providers, auth, self._env):
            ref = usual_ref(line.provider, settings, self._env)
            if line.used and ref:
                kind, place = ("stored", AUTH_NAME) if line.kind == "stored" else ("key", line.place)
                found.append(Found(kind, line.provider, ref, f"{place} ({line.shown})"))
        return found
