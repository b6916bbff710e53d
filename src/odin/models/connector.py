"""Connects to models: addresses, keys, lists and properties, shared by all agents of a session."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from odin.config import CONFIG_NAME, Config, get_config_dir, load
from odin.config.auth import read_auth_file
from odin.config.files import locate_value
from odin.config.paths import locate_key_states, locate_model_catalog
from odin.core.call_events import KeyPoolChanged, RateLimitUpdated
from odin.core.client import AvailableModel, ServerScope
from odin.core.errors import ConfigError, OdinError, ProviderError
from odin.core.provider import ModelInfo, Provider, RateLimitChunk, ThinkingLosses
from odin.core.text import suggest_similar
from odin.models.catalog import (
    BUILTIN_MODEL,
    PRESETS,
    Endpoint,
    add_stored_keys,
    connect_foreign_model,
    connect_model,
    find_default_ref,
    list_unlisted_providers,
    lookup_model,
    needs_plugin,
    open_adapter,
    parse_ref,
    resolve_endpoint,
    split_variant,
    use_first_key,
)
from odin.models.model_table import CatalogCopy, ModelTable, ModelTables
from odin.providers.address import find_route, parse_address, set_proxy
from odin.providers.http import HttpClient, HttpClients
from odin.providers.settings import ProviderSettings
from odin.providers.tool_adapters import AdaptiveTools, ReasoningCalls
from odin.providers.wire import ApiKey, FixedKey, KeyAttempts, KeySource, Refusal

if TYPE_CHECKING:
    from odin.models.key_pool import KeyPool
    from odin.models.model_lists import ListedModel, ModelLists
    from odin.models.pools import ModelPools

OVERRIDES_NAME = "models.json"
"""The user's own model table, next to the configuration."""

_FAMILY_NAMES = ("opus", "sonnet", "haiku", "fable")
"""Names of Claude models without a version, as Claude Code's agent files use them."""

_LOCAL_PROVIDERS = ("ollama", "lmstudio", "llamacpp", "vllm", "local")


class SingleKey(FixedKey):
    """The only key of a provider, or none. Its pool is loaded when there is something to record."""

    def __init__(self, connector: "ModelConnector", place: Endpoint) -> None:
        super().__init__(next(iter(place.keys), ApiKey()))
        self._connector = connector
        self._place = place

    def record(self, key: ApiKey, error: ProviderError | None, attempts: KeyAttempts) -> bool:
        if not key.value or (error is None and not self._connector.states_path.exists()):
            return False
        return self._connector.load_key_pool(self._place).record(key, error, attempts)

    def record_limits(self, key: ApiKey, limits: RateLimitChunk) -> None:
        self._connector.note_limits(self._place.provider, limits)


class ModelConnector:
    """Connects to models by name. With `eager=False` nothing is connected until a model is named or listed.

    Implements `ServerMemory` for the adapters.

    `http` and `tables` are those of the process; without them the connector has its own.
    """

    def __init__(
        self,
        config: Config,
        env: Mapping[str, str],
        *,
        eager: bool = True,
        http: HttpClients | None = None,
        tables: ModelTables | None = None,
    ) -> None:
        self.config = config
        self.is_eager = eager
        self.env = env
        self._has_own_http = http is None
        self._clients = http or HttpClients()
        self._tables = tables or ModelTables()
        self._table = load_model_table(env, self._tables)
        self._auth = read_auth_file(env)
        self._servers: dict[str, ProviderSettings] = {}
        self._open: dict[str, tuple[Provider, ModelInfo]] = {}
        self._losses: list[tuple[str, ThinkingLosses]] = []
        self._replaced: list[Provider] = []  # a request may still use them
        self._fixed_small: tuple[Provider, ModelInfo] | None = None
        self._key_pools: dict[str, KeyPool] = {}
        self._limits: dict[str, dict[str, tuple[RateLimitChunk, float]]] = {}
        """By provider and key: the rate limits in the last reply, and when it came."""
        self.states_path = locate_key_states(env)
        self.list_problems: tuple[str, ...] = ()
        self.on_warning: Callable[[str], object] = lambda text: None
        self.on_keys_changed: Callable[[KeyPoolChanged], object] = lambda event: None
        self._stop_listening: Callable[[], None] = lambda: None
        self._preparing: asyncio.Task[None] | None = None

    @cached_property
    def _lists(self) -> "ModelLists":
        from odin.models.model_lists import ModelLists

        return ModelLists(self.env)

    @cached_property
    def pools(self) -> "ModelPools":
        """The configured model pools."""
        from odin.models.pools import ModelPools

        return ModelPools(self.config, self.env, self.normalize, self.check_ref)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong with the settings of models, pools and keys."""
        in_pools = self.pools.list_problems() if self.config.model_pools else ()
        problems = (
            self._table.warning,
            *self._auth.warnings,
            *self._find_unknown_providers(),
            *in_pools,
            *self._find_invalid_refs(),
        )
        return tuple(filter(None, problems))

    def _find_unknown_providers(self) -> Iterator[str]:
        if any(name not in PRESETS and name not in self.config.providers for name in self._auth.raw_keys):
            from odin.models.keys import find_unknown_providers

            yield from find_unknown_providers(self.config.providers, self._auth)

    def _find_invalid_refs(self) -> Iterator[str]:
        """Yield a problem for each secondary model (small, compaction, fallback) that cannot be used.

        They connect only when needed.
        """
        config = self.config
        named = [("small_model", config.small_model), ("compaction.model", config.compaction.model)]
        for key, ref in (*named, *(("fallback_model", ref) for ref in config.fallback_model)):
            if ref and ref not in config.model_pools:
                try:
                    self.check_ref(ref)
                except OdinError as error:
                    yield f"{self._locate_setting(*key.split('.'))}{key} {ref!r} cannot be used: {error.describe()}"

    def _locate_setting(self, *path: str) -> str:
        """Return the file and line of a setting with a colon, or "" if it is not in a file."""
        source = self.config.sources.get(path[0], "")
        line = locate_value(Path(source), *path) if source.endswith(CONFIG_NAME) else 0
        return f"{source}, line {line}: " if line else ""

    def explain_setting(self, error: ConfigError, key: str, ref: str) -> ConfigError:
        """Return the error about a model that a setting names, with the file and line of the setting."""
        place = self._locate_setting(key)
        return ConfigError(f"{place}the model {ref!r} cannot be used: {error}", error.hint) if place else error

    @property
    def _settings(self) -> dict[str, ProviderSettings]:
        """Return the provider settings: the user's win over discovered ones, with stored keys added."""
        return add_stored_keys({**self._servers, **self.config.providers}, self._auth)

    def _get_http_client(self, provider: str) -> HttpClient:
        """Return the connections of a provider: its own if it has a proxy of its own."""
        proxy = self._settings.get(provider, ProviderSettings()).proxy
        return self._clients.get(set_proxy(self.env, proxy)) if proxy else self._http

    @property
    def _http(self) -> HttpClient:
        return self._clients.get(self.env)

    def find_proxy(self, ref: str) -> str:
        """Return the address of the proxy through which a model is asked; "" for none."""
        provider = ref.partition("/")[0]
        own = self._settings.get(provider, ProviderSettings()).proxy
        try:
            address = parse_address(resolve_endpoint(provider, self._settings, self.env).base_url)
            route = find_route(address, set_proxy(self.env, own) if own else self.env)
        except OdinError:
            return ""
        return route.proxy.origin if route.proxy is not None else ""

    def reload_keys(self) -> None:
        """Use keys that were stored since the last call."""
        auth = read_auth_file(self.env)
        if auth.keys != self._auth.keys:
            self._replaced += [provider for provider, _ in self._open.values()]
            self._open.clear()
        self._auth = auth

    def _reload_providers(self) -> None:
        """Use providers that were added to the settings since this session started."""
        added = load(self.config.root, self.env).providers
        self.config = msgspec.structs.replace(self.config, providers={**added, **self.config.providers})

    def normalize(self, ref: str) -> str:
        """Return the full name of a model; a name that is not known stays as it is."""
        if ref.split("/", 1)[0] in _LOCAL_PROVIDERS:
            return ref
        try:
            return "/".join(parse_ref(ref, self._settings, self.env))
        except OdinError:
            return ref

    def check_ref(self, ref: str) -> None:
        """Raise ConfigError if the provider or the variant of a model does not exist."""
        if ref.split("/", 1)[0] not in _LOCAL_PROVIDERS:
            lookup_model(ref, self._settings, self._table, self.env)

    async def find_default(self) -> tuple[str, str]:
        """Return the first model found, and a notice about it; "" if there is none."""
        ref = await self._find_listed(find_default_ref(self._settings, self.env) or "")
        if ref or not self.is_eager:
            return ref, ""
        for found, address in await self._discover_servers():
            return found, f"Using {found}, found on this machine ({address})."
        return "", ""

    @property
    def is_fixed(self) -> bool:
        """True if no other model is ever connected."""
        return self._fixed_small is not None

    def fix(self, small: tuple[Provider, ModelInfo]) -> None:
        """Use this small model, and never connect another model."""
        self._fixed_small = small

    async def connect_small(self, provider: str = "") -> tuple[Provider, ModelInfo]:
        """Return the small model: the configured one, the usual one of the provider in use, or the built-in one."""
        if self._fixed_small is not None:
            return self._fixed_small
        return await self.connect(self.config.small_model or self._find_small(provider) or BUILTIN_MODEL.ref)

    async def connect_summarizer(self, name: str, current: tuple[Provider, ModelInfo]) -> tuple[Provider, ModelInfo]:
        """Return the model that writes summaries: the named one, the usual small one of the provider, or `current`."""
        if self._fixed_small is not None:
            return self._fixed_small if name else current
        ref = name or self._find_small(current[1].provider)
        return await self.connect(ref) if ref else current

    def _find_small(self, provider: str) -> str:
        from odin.models.model_lists import find_small_ref

        def is_listed(model: str) -> bool:
            place = resolve_endpoint(provider, self._settings, self.env)
            url = open_adapter(place, self._settings, self._get_http_client(provider), use_first_key(place)).url
            return any(item.id == model for item in self._lists.find(url))

        return find_small_ref(provider, self._settings, self.env, is_listed)

    def find_named(self, name: str, provider: str) -> str:
        """Return the model that an agent file names.

        `opus`, `sonnet`, `haiku` and `fable` mean the newest one of the provider in use, "" if it has none.
        """
        if name not in _FAMILY_NAMES or name in self.config.model_pools:
            return name
        found = next((model for model in self._table.list_models(provider) if name in model.split("-")), "")
        return f"{provider}/{found}" if found else ""

    async def list_available(
        self, servers: ServerScope = "none", current: ModelInfo | None = None
    ) -> tuple[AvailableModel, ...]:
        """Return the usable models. Servers that gave no list are named in `list_problems`."""
        from odin.models.local_servers import discover_servers
        from odin.models.model_lists import ListedModel, list_available_models

        self._auth = read_auth_file(self.env)
        self._reload_providers()
        found = await discover_servers(self.env, self._http) if servers == "all" else ()
        lists = await self._read_lists(ask=servers != "none")
        if self.config.catalog_url and servers != "none":
            await self._refresh_catalog(self.config.catalog_url)
        if current and current.provider in lists and all(item.id != current.id for item in lists[current.provider]):
            lists[current.provider] = (ListedModel(current.id, current.context), *lists[current.provider])
        models = list_available_models(self.config.providers, self._auth, self.env, self._table, found, lists)
        return (*self._list_pools(), *models)

    async def _refresh_catalog(self, url: str) -> None:
        from odin.models.catalog_refresh import refresh_if_stale

        problem = await refresh_if_stale(url, self._table.catalog, self.config.providers, self.env)
        if problem is not None:
            self._table = load_model_table(self.env, self._tables)
            self.list_problems = (*self.list_problems, *filter(None, [problem]))

    @property
    def catalog(self) -> CatalogCopy:
        """The refreshed catalog; an empty one if there is none."""
        return self._table.catalog

    def _list_pools(self) -> Iterator[AvailableModel]:
        for name in self.config.model_pools:
            with suppress(OdinError):  # `warning` says what is wrong with it
                models = self.pools.list_usable(name)
                yield AvailableModel(name, 0, "", "", note=f"pool: {', '.join(models)}", pool=models)

    async def check_name(self, ref: str) -> str:
        """Return a note if it is not known whether this model exists, else "". Raise ConfigError if it does not.

        Its server is asked only if neither the settings nor the table know the model.
        """
        name = ref.split("/", 1)[0]
        if name == BUILTIN_MODEL.provider or not ref.strip():
            return ""
        if name in _LOCAL_PROVIDERS:
            await self._discover_servers()
        elif name not in self._settings:
            self._reload_providers()
        provider, model = split_variant(*parse_ref(ref, self._settings, self.env))[:2]
        own = self._settings.get(provider, ProviderSettings())
        if model in own.models or model in self._table.list_models(provider):
            return ""
        if needs_plugin(provider, self._settings):
            return f"Odin does not know {provider}/{model}; the package of {provider} is asked when it answers."
        from odin.models.model_lists import is_listed, make_unknown_model

        adapter, _ = connect_model(
            ref, self._settings, self.env, self._get_http_client(provider), self._table, self._get_keys
        )
        names = [item.id for item in await self._lists.ask_or_find(adapter)] or list(own.models)
        if names and not is_listed(model, names):
            raise make_unknown_model(provider, model, names)
        if names:
            return ""
        suggestion = suggest_similar(model, self._table.list_models(provider), f"{provider}/{{}}")
        return f"Odin does not know {provider}/{model}, and its server provides no list of models.{suggestion}"

    def suggest_model(self, info: ModelInfo) -> str:
        """Return a question whether another model of the provider is meant; "" if none has a similar name."""
        own = self._settings.get(info.provider, ProviderSettings()).models
        names = [name for name in (*own, *self._table.list_models(info.provider)) if name != info.id]
        return suggest_similar(info.id, names, f"{info.provider}/{{}}").strip()

    def prepare(self, refs: Sequence[str]) -> None:
        """Connect to these models in the background, so that a failover does not wait for it.

        What cannot be connected now is tried again, and reported, when it is needed.
        """
        missing = [ref for ref in refs if ref not in self._open]
        if missing and self.is_eager and not self.is_fixed and (self._preparing is None or self._preparing.done()):
            self._preparing = asyncio.create_task(self._prepare(missing))

    async def _prepare(self, refs: Sequence[str]) -> None:
        for ref in refs:
            with suppress(OdinError):
                await self.connect(ref)

    async def close(self) -> None:
        if self._preparing is not None:
            self._preparing.cancel()
            await asyncio.wait([self._preparing])
        for provider in (*self._replaced, *(provider for provider, _ in self._open.values())):
            await provider.close()
        self._replaced, self._open = [], {}
        if self._has_own_http:
            await self._clients.close()
        self._stop_listening()
        if self._key_pools:
            from odin.models.key_states import KeyStates

            await KeyStates.get_shared(self.states_path).flush()

    async def connect(self, ref: str, *, preconnect: bool = True, again: bool = False) -> tuple[Provider, ModelInfo]:
        """Return a model, or the first one of a pool, connected once, or `again`: its server may have changed."""
        if ref in self.config.model_pools:
            ref = self.pools.list_usable(ref)[0]
        if again or ref not in self._open:
            made = await self._connect(ref, preconnect=preconnect)
            self._replaced += [self._open[ref][0]] if ref in self._open else []
            self._open[ref] = made
        return self._open[ref]

    async def _connect(self, ref: str, *, preconnect: bool) -> tuple[Provider, ModelInfo]:
        name = ref.split("/", 1)[0]
        if name == BUILTIN_MODEL.provider:
            from odin.providers.offline import OfflinePlanner

            return OfflinePlanner(), BUILTIN_MODEL
        if name in _LOCAL_PROVIDERS:
            await self._discover_servers()
        elif "/" in ref and name not in PRESETS and name not in self._settings:
            self._reload_providers()
        provider: Provider
        if needs_plugin(name, self._settings):
            provider, info = connect_foreign_model(ref, self._settings, self.env, self._table)
            info = await self._fit_context(info)
        else:
            http = self._get_http_client(parse_ref(ref, self._settings, self.env)[0])
            provider, info = connect_model(ref, self._settings, self.env, http, self._table, self._get_keys, self)
            self._losses.append((ref.partition("/")[0], provider.losses))
            info = await self._fit_context(info, provider.url)
            if preconnect:
                await http.preconnect(provider.url)
        if info.strategy == "files":
            from odin.providers.whole_files import WholeFileProvider

            return WholeFileProvider(provider, info.context), info
        if info.tools != "native":
            provider = AdaptiveTools(provider, info.tools, is_small=info.is_small)
        if info.calls_in_thinking or (info.calls_in_thinking is None and info.tools != "native"):
            provider = ReasoningCalls(provider, always=bool(info.calls_in_thinking))
        return provider, info

    def has_refused(self, server: str, what: Refusal) -> bool:
        return self._lists.has_refused(server, what)

    def note_refusal(self, server: str, what: Refusal) -> None:
        self._lists.note_refusal(server, what)

    def _get_keys(self, place: Endpoint) -> KeySource:
        """Return the keys of a provider, one pool for all its models."""
        return SingleKey(self, place) if len(place.keys) < 2 else self.load_key_pool(place)

    def load_key_pool(self, place: Endpoint) -> "KeyPool":
        pool = self._key_pools.get(place.provider)
        if pool is None or pool.keys != place.keys:
            from odin.models.key_pool import KeyPool
            from odin.models.key_states import KeyStates

            states = KeyStates.get_shared(self.states_path)
            if not self._key_pools:
                self._stop_listening = states.listen(self._report_keys)
            own = self._settings.get(place.provider, ProviderSettings())
            pool = self._key_pools[place.provider] = KeyPool(
                place.provider,
                place.keys,
                states,
                lambda text: self.on_warning(text),
                rotation=own.key_rotation,
                order=own.key_order,
            )
            pool.on_limits = partial(self.note_limits, place.provider)
            pool.on_chosen = partial(self._report_keys, place.provider)
        return pool

    def note_limits(self, provider: str, limits: RateLimitChunk) -> None:
        by_key = self._limits.setdefault(provider, {})
        by_key.pop(limits.key, None)  # the newest is the last
        by_key[limits.key] = limits, time.time()

    def list_rate_limits(self) -> tuple[RateLimitUpdated, ...]:
        """Return what the key in use of each provider has left of its rate limits, as far as that is known.

        The last reply to this key says it, or else what other sessions have learned about the key. Nothing is polled.
        """
        now = time.time()
        found: list[RateLimitUpdated] = []
        for provider in {**self._limits, **self._key_pools}:
            by_key, pool = self._limits.get(provider, {}), self._key_pools.get(provider)
            limits, at = by_key.get(pool.count().key if pool is not None else next(reversed(by_key)), (None, now))
            if limits is None or now - at >= limits.known_for_s:
                limits, at = pool.find_limits() if pool is not None else None, now
            if limits is not None:
                left = msgspec.structs.replace(limits, reset_s=round(max(0.0, limits.reset_s - (now - at)), 1))
                found.append(RateLimitUpdated(provider, **msgspec.structs.asdict(left)))
        return tuple(found)

    def list_thinking_losses(self) -> dict[str, ThinkingLosses]:
        """Return what was lost of the thinking, by provider. A provider without losses is left out."""
        found: dict[str, ThinkingLosses] = {}
        for provider, lost in self._losses:
            if lost != ThinkingLosses():
                total = found.setdefault(provider, ThinkingLosses())
                total.left_out += lost.left_out
                total.dropped += lost.dropped
                total.refused = lost.refused or total.refused
        return found

    def _report_keys(self, provider: str) -> None:
        """Report a change to the keys of a provider that this session uses, whichever session caused it."""
        if provider in self._key_pools:
            self.on_keys_changed(self._key_pools[provider].count())

    def list_key_pools(self) -> tuple[KeyPoolChanged, ...]:
        """Return the state of the keys of every provider in use that has any."""
        return tuple(pool.count() for pool in self._key_pools.values() if pool.keys)

    async def _fit_context(self, info: ModelInfo, url: str = "") -> ModelInfo:
        """Return the model with its real context window: as set, as the server answers or lists it, or from the table.

        Only the server knows how much context it was started with.
        """
        context = info.context
        own = self._settings.get(info.provider, ProviderSettings()).models.get(info.id)
        is_known = own is not None and own.context is not None
        if url and not is_known and _is_private_address(url) and not _is_hosted(info.provider):
            from odin.models.local_servers import fetch_context_window

            real = await fetch_context_window(url, info.id, self.env, self._http)
            context = real or context
        if url and not context and not _is_hosted(info.provider):
            context = next((item.context for item in self._lists.find(url) if item.id == info.id), 0)
        most = self.config.max_context
        if most:
            context = min(context, most) if context else most
        if context == info.context:
            return info
        output = info.max_output or context // 4
        return msgspec.structs.replace(info, context=context, max_output=min(output, max(1, context // 2)))

    async def _find_listed(self, ref: str) -> str:
        """Return the default model if its server has it, else the first one that the server lists.

        Without a default model it is the first one of the first server with a list. A list that is not known yet is
        asked for only if `eager`.
        """
        if not list_unlisted_providers(self._settings, self.env):
            return ref
        provider, _, model = ref.partition("/")
        lists = await self._read_lists(ask=False)
        if self.is_eager and not (lists.get(provider) if ref else any(lists.values())):
            lists = await self._read_lists(ask=True)
        if ref:
            models = lists.get(provider, ())
            return ref if not models or any(item.id == model for item in models) else f"{provider}/{models[0].id}"
        return next((f"{name}/{models[0].id}" for name, models in lists.items() if models), "")

    async def _read_lists(self, *, ask: bool) -> "dict[str, tuple[ListedModel, ...]]":
        """Return the model lists of servers whose models are not configured, by provider.

        A server that did not answer has an empty list; one that was not asked and is not cached has no entry.
        """
        settings = self._settings
        places = list_unlisted_providers(settings, self.env)
        self.list_problems = ()
        if not places:
            return {}
        adapters = {
            place.provider: open_adapter(place, settings, self._get_http_client(place.provider), self._get_keys(place))
            for place in places
        }
        if not ask:
            return {name: models for name, adapter in adapters.items() if (models := self._lists.find(adapter.url))}
        found = await asyncio.gather(*map(self._lists.ask, adapters.values()), return_exceptions=True)
        self.list_problems = tuple(
            f"The models of {name} cannot be listed: {error}"
            for name, error in zip(adapters, found, strict=True)
            if isinstance(error, OdinError)
        )
        return {
            name: self._lists.find(adapter.url) if isinstance(answer, BaseException) else answer
            for (name, adapter), answer in zip(adapters.items(), found, strict=True)
        }

    async def _discover_servers(self) -> list[tuple[str, str]]:
        """Find the servers on this machine and remember their settings."""
        from odin.models.local_servers import discover_servers

        found: list[tuple[str, str]] = []
        for server in await discover_servers(self.env, self._http):
            self._servers.setdefault(server.kind, server.to_settings())
            found += [(f"{server.kind}/{model.id}", server.base_url) for model in server.models]
        return found


def _is_private_address(url: str) -> bool:
    """True for this machine, for the private networks 10/8, 172.16/12 and 192.168/16, and for names in .local."""
    address = parse_address(url)
    networks = ("10.", "192.168.", *(f"172.{number}." for number in range(16, 32)))
    return address.is_loopback or address.host.startswith(networks) or address.host.endswith(".local")


def _is_hosted(provider: str) -> bool:
    """True for a hosted provider, even if its base URL was overridden to a local address."""
    preset = PRESETS.get(provider)
    return preset is not None and bool(preset.key_names)


def load_model_table(env: Mapping[str, str], tables: ModelTables) -> ModelTable:
    """Return the model table with the refreshed catalog and the user's rows."""
    return tables.load(get_config_dir(env) / OVERRIDES_NAME, locate_model_catalog(env))
