"""Lists the models that can be used: on this machine, with a key, from the settings, and the offline planner.

Servers list their models themselves, at `/models` of their API. Such a list is asked for when the user wants to see or
choose a model, never before a prompt. It is kept in the cache folder, so that a server without configured models has a
default model at the next start, and while it cannot be reached. What a server has refused is kept there, too.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from odin.config import get_cache_dir, make_private_folder
from odin.config.auth import AUTH_NAME, AuthFile
from odin.config.files import write_atomically
from odin.core.client import AvailableModel
from odin.core.errors import ConfigError, OdinError
from odin.core.provider import ModelInfo
from odin.core.text import suggest_similar
from odin.models.catalog import (
    BUILTIN_MODEL,
    PRESETS,
    add_stored_keys,
    is_redirected,
    list_plugins,
    lookup_model,
    needs_plugin,
    resolve_endpoint,
)
from odin.models.keys import list_keys
from odin.models.local_servers import LocalServer
from odin.models.model_table import ModelTable
from odin.providers.settings import ProviderSettings
from odin.providers.wire import ListedModel, Refusal, WireProvider

ON_THIS_MACHINE = "on this machine"


def list_available_models(
    settings: Mapping[str, ProviderSettings],
    auth: AuthFile,
    env: Mapping[str, str],
    known: ModelTable,
    servers: Sequence[LocalServer],
    lists: Mapping[str, Sequence[ListedModel]],
) -> tuple[AvailableModel, ...]:
    """Return all usable models; `servers` are those found on this machine, `lists` what other servers list."""
    found = list(_list_server_models(servers, settings, known))
    notes = {
        line.provider: AUTH_NAME if line.kind == "stored" else line.place
        for line in list_keys(settings, auth, env)
        if line.used
    }
    keyed = add_stored_keys(settings, auth)
    for item in _list_reachable(keyed, env, known, lists):
        note = notes.get(item.provider, "")
        found.append(_make_available_model(item.ref, item.info, item.address, f"key: {note}" if note else "no key"))
    found.append(_make_available_model(BUILTIN_MODEL.ref, BUILTIN_MODEL, "built in", "no network"))
    return tuple(found)


def _list_server_models(
    servers: Sequence[LocalServer], settings: Mapping[str, ProviderSettings], known: ModelTable
) -> Iterator[AvailableModel]:
    for server in servers:
        there = {**settings, server.kind: settings.get(server.kind, server.to_settings())}
        for model in server.models:
            ref = f"{server.kind}/{model.id}"
            priced = lookup_model(ref, there, known)
            info = msgspec.structs.replace(priced, context=model.context, tools=model.tools)
            yield _make_available_model(ref, info, server.base_url, ON_THIS_MACHINE)


def _make_available_model(ref: str, info: ModelInfo, where: str, note: str) -> AvailableModel:
    prices = (info.price_input, info.price_output, info.price_cache_read, info.price_cache_write)
    known = (price if price or info.free else None for price in prices)
    style = "files" if info.strategy == "files" else info.tools
    return AvailableModel(ref, info.context, style, where, *known, note=note)


class _ReachableModel(Struct, frozen=True):
    provider: str
    ref: str
    info: ModelInfo
    address: str


def _list_reachable(
    settings: Mapping[str, ProviderSettings],
    env: Mapping[str, str],
    known: ModelTable,
    lists: Mapping[str, Sequence[ListedModel]],
) -> Iterator[_ReachableModel]:
    """Yield configured models, then those their server lists, then catalog models whose provider has a key.

    At a custom URL catalog prices do not apply, and catalog models are listed only as long as
    the server has not been asked.
    """
    for name in dict.fromkeys([*settings, *PRESETS]):
        try:
            place = resolve_endpoint(name, settings, env)
        except OdinError:
            if settings.get(name, ProviderSettings()).models and needs_plugin(name, settings):
                yield from _list_plugin_models(name, settings, known)
            continue
        elsewhere = is_redirected(place)
        table = known.without_builtin() if elsewhere else known
        models = dict.fromkeys(settings.get(name, ProviderSettings()).models, 0)
        models |= {item.id: item.context for item in lists.get(name, ()) if item.id not in models}
        if place.keys and name not in lists:
            models |= {model: 0 for model in known.list_models(name) if model not in models}
        for model, context in models.items():
            ref = f"{name}/{model}"
            info = lookup_model(ref, settings, table)
            if context and not info.context:
                info = msgspec.structs.replace(info, context=context)
            yield _ReachableModel(name, ref, info, place.base_url)


def _list_plugin_models(
    provider: str, settings: Mapping[str, ProviderSettings], known: ModelTable
) -> Iterator[_ReachableModel]:
    """Yield the configured models of another package's provider. The package is not imported for it."""
    for model in settings[provider].models:
        ref = f"{provider}/{model}"
        yield _ReachableModel(provider, ref, lookup_model(ref, settings, known), list_plugins()[provider])


def find_small_ref(
    provider: str, settings: Mapping[str, ProviderSettings], env: Mapping[str, str], listed: Callable[[str], bool]
) -> str:
    """Return a provider's model for small jobs; "" if it has no key, or if none is known to exist there.

    At another address than the usual one it is the cheapest configured model, or the usual one if the server has it
    (`listed`).
    """
    preset, own = PRESETS.get(provider), settings.get(provider, ProviderSettings())
    try:
        place = resolve_endpoint(provider, settings, env)
    except OdinError:
        return ""
    usual = preset.small if preset is not None else ""
    if not place.keys or (usual and not is_redirected(place)):
        return f"{provider}/{usual}" if place.keys else ""
    prices = {name: model.price_output for name, model in own.models.items() if model.price_output is not None}
    if prices:
        return f"{provider}/{min(prices, key=lambda name: prices[name])}"
    return f"{provider}/{usual}" if usual and listed(usual) else ""


LIST_TIMEOUT_S = 3.0
CACHE_NAME = "model-lists.json"
_MAX_SERVERS = 50
_MAX_MODELS = 2_000
_MAX_NAMED = 5


_REFUSED_FOR_S = 7 * 86_400.0
"""After a week a server is asked again for what it has refused: it may be a newer one."""


class StoredList(Struct, frozen=True, omit_defaults=True):
    """The list of one server as it was at `time`, and what the server has refused."""

    time: float
    models: tuple[ListedModel, ...] = ()
    refused: tuple[str, ...] = ()


class ModelLists:
    """Asks each server at most once and remembers the answers."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._path = get_cache_dir(env) / CACHE_NAME
        self._stored: dict[str, StoredList] | None = None
        self._asked: dict[str, tuple[ListedModel, ...]] = {}

    def find(self, url: str) -> tuple[ListedModel, ...]:
        """Return the last known list of the server at this URL, without asking it."""
        stored = self._load().get(url)
        return self._asked.get(url) or (stored.models if stored is not None else ())

    async def ask(self, adapter: WireProvider) -> tuple[ListedModel, ...]:
        """Return the list of a server. Raise ProviderError if it gives none in time."""
        if not self._asked.get(adapter.url):
            self._asked[adapter.url] = (await adapter.list_models(LIST_TIMEOUT_S))[:_MAX_MODELS]
            self._store(adapter.url)
        return self._asked[adapter.url]

    async def ask_or_find(self, adapter: WireProvider) -> tuple[ListedModel, ...]:
        """Return the list of a server, or the last known one if it gives none."""
        try:
            return await self.ask(adapter)
        except OdinError:
            return self.find(adapter.url)

    def store(self, url: str, models: tuple[ListedModel, ...]) -> None:
        """Keep the list of a server that was asked elsewhere."""
        self._asked[url] = models
        self._store(url)

    def has_refused(self, server: str, what: Refusal) -> bool:
        stored = self._load().get(server)
        return stored is not None and what in stored.refused and time.time() - stored.time < _REFUSED_FOR_S

    def note_refusal(self, server: str, what: Refusal) -> None:
        """Keep what the server with this base URL has refused."""
        self._stored = None
        stored = self._load().get(server, StoredList(0.0))
        refused = dict.fromkeys((*stored.refused, what))
        self._keep(server, StoredList(time.time(), stored.models, tuple(refused)))

    def _load(self) -> dict[str, StoredList]:
        if self._stored is None:
            try:
                self._stored = msgspec.json.decode(self._path.read_bytes(), type=dict[str, StoredList])
            except (OSError, msgspec.MsgspecError, UnicodeError):
                self._stored = {}
        return self._stored

    def _store(self, url: str) -> None:
        """Keep the list for later runs. A cache that cannot be written is no error."""
        self._keep(url, StoredList(time.time(), self._asked[url]))

    def _keep(self, url: str, entry: StoredList) -> None:
        self._stored = None
        stored = {**self._load(), url: entry}
        newest = sorted(stored, key=lambda key: stored[key].time)[-_MAX_SERVERS:]
        self._stored = {key: stored[key] for key in newest}
        try:
            make_private_folder(self._path.parent)
            write_atomically(self._path, msgspec.json.encode(self._stored))
        except OdinError:
            return


def is_listed(model: str, names: list[str]) -> bool:
    """True if a server has this model under this name, or with the tag or date that it leaves out."""
    return any(
        name in (model, f"{model}:latest") or (name.startswith(f"{model}-") and name[len(model) + 1 :].isdigit())
        for name in names
    )


def make_unknown_model(provider: str, model: str, names: list[str]) -> ConfigError:
    """Return the error for a model that its server does not list."""
    suggestion = suggest_similar(model, names, f"{provider}/{{}}")
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ConfigError(
        f"{provider} has no model {model!r}.{suggestion}",
        f"It has {', '.join(names[:_MAX_NAMED])}{more}. /models and `odin models` list them.",
    )
