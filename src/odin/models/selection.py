"""Chooses the model of a session, connects to it, and switches to a fallback while it cannot answer.

The named model wins, then one whose key is present, then one on this machine, then the offline planner. For a resumed
session, in this order: flag or variable, model chosen in the session, configuration, the model it last had. A fallback
does not count as chosen.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from odin.config import Config, get_config_dir
from odin.config.auth import read_auth_file
from odin.core.client import AvailableModel, ServerScope
from odin.core.errors import OdinError, ProviderError, QuotaExhausted
from odin.core.event import Envelope, ModelChanged, SessionOpened, Warned
from odin.core.provider import ModelInfo, Provider
from odin.core.text import suggest_similar
from odin.engine.recorder import Recorder
from odin.models.catalog import (
    PRESETS,
    ModelTable,
    connect_model,
    find_default_ref,
    list_unlisted_providers,
    open_adapter,
    parse_ref,
)
from odin.models.keys import add_stored_keys, list_stored_keys
from odin.providers.address import parse_address
from odin.providers.http import HttpClient
from odin.providers.settings import ProviderSettings

if TYPE_CHECKING:
    from odin.models.keys import KeyStates
    from odin.models.model_lists import ListedModel, ModelLists

OFFLINE_NOTICE = (
    "No model is configured: the offline planner answers. "
    "Set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY, store a key with `odin auth add`, or see `odin models`."
)
OVERRIDES_NAME = "models.json"
"""The user's own model table, next to the configuration."""

_FAMILY_NAMES = ("opus", "sonnet", "haiku", "fable")
"""Names of Claude models without a version, as Claude Code's agent files use them."""

_LOCAL_PROVIDERS = ("ollama", "lmstudio", "llamacpp", "vllm", "local")


class ModelSelector:
    """The model in use. A change takes effect with the next request.

    With `eager=False` nothing is connected until a model is named, a prompt is sent or the models are listed.
    """

    def __init__(self, config: Config, env: Mapping[str, str], *, eager: bool = True) -> None:
        self._config = config
        self._env = env
        self._eager = eager
        self._http = HttpClient(env=env)
        self._table = load_model_table(env)
        self._auth = read_auth_file(env)
        self._servers: dict[str, ProviderSettings] = {}
        self._open: list[Provider] = []
        self._small: tuple[Provider, ModelInfo] | None = None
        self._is_fixed = False
        self._others: dict[str, tuple[Provider, ModelInfo]] = {}
        self._key_states: KeyStates | None = None
        self.notice = ""
        self.list_problems: tuple[str, ...] = ()
        self.on_warning: Callable[[str], object] = lambda text: None

    @cached_property
    def _lists(self) -> "ModelLists":
        from odin.models.model_lists import ModelLists

        return ModelLists(self._env)

    def use(self, provider: Provider, info: ModelInfo, small: tuple[Provider, ModelInfo] | None = None) -> None:
        """Use this provider. With `small`, no other model is ever connected."""
        self.provider = provider
        self.info = info
        if small is not None:
            self._small, self._is_fixed = small, True

    @property
    def is_fixed(self) -> bool:
        """True if no other model is ever connected."""
        return self._is_fixed

    @property
    def warning(self) -> str:
        return " ".join(filter(None, (self._table.warning, *self._auth.warnings, *self._find_invalid_refs())))

    def _find_invalid_refs(self) -> Iterator[str]:
        """Yield a problem for each secondary model (small, compaction, fallback) that cannot be used.

        They connect only when needed.
        """
        config = self._config
        named = [("small_model", config.small_model), ("compaction.model", config.compaction.model)]
        for key, ref in (*named, *(("fallback_model", ref) for ref in config.fallback_model)):
            if ref and ref.split("/", 1)[0] not in ("offline", *_LOCAL_PROVIDERS):
                try:
                    parse_ref(ref, self._settings, self._env)
                except OdinError as error:
                    yield f"{key} {ref!r} cannot be used: {error.describe()}"

    @property
    def _settings(self) -> dict[str, ProviderSettings]:
        """Return the provider settings: the user's win over discovered ones, with stored keys added."""
        return add_stored_keys({**self._servers, **self._config.providers}, self._auth, self._env)

    @property
    def ref(self) -> str:
        return f"{self.info.provider}/{self.info.id}" if self.info.provider else self.info.id

    async def choose(self, ref: str) -> str:
        """Connect to the named model; without a name to the first one found, or to the offline planner.

        Keys stored since the last call are used.
        """
        self.notice = ""
        self._auth = read_auth_file(self._env)
        warm = bool(ref) or self._eager
        if not ref:
            ref = await self._find_listed(find_default_ref(self._settings, self._env) or "")
        if not ref and self._eager:
            ref = await self._find_first_local()
        if not ref:
            self.notice = OFFLINE_NOTICE
        self.use(*await self._connect(ref or "offline", warm=warm))
        return self.ref

    async def connect_small(self) -> tuple[Provider, ModelInfo]:
        """Return the small model: the configured one or the offline planner."""
        if self._small is None:
            self._small = await self._connect(self._config.small_model or "offline")
        return self._small

    async def connect_other(self, ref: str) -> tuple[Provider, ModelInfo]:
        """Return another model than the one in use, connected once."""
        if ref == self._config.small_model or self._is_fixed:
            return await self.connect_small()
        if ref not in self._others:
            self._others[ref] = await self._connect(ref)
        return self._others[ref]

    def find_named(self, name: str) -> str:
        """Return the model that an agent file names.

        `opus`, `sonnet`, `haiku` and `fable` mean the newest one of the provider in use, "" if it has none.
        """
        if name not in _FAMILY_NAMES:
            return name
        provider = self.info.provider
        found = next((model for model in self._table.list_models(provider) if name in model.split("-")), "")
        return f"{provider}/{found}" if found else ""

    async def list_available(self, servers: ServerScope = "none") -> tuple[AvailableModel, ...]:
        """Return the usable models. Servers that gave no list are named in `list_problems`."""
        from odin.models.local_servers import discover_servers
        from odin.models.model_lists import ListedModel, list_available_models

        self._auth = read_auth_file(self._env)
        found = await discover_servers(self._env, self._http) if servers == "all" else ()
        lists = await self._read_lists(ask=servers != "none")
        info = getattr(self, "info", None)
        if info is not None and info.provider in lists and all(item.id != info.id for item in lists[info.provider]):
            lists[info.provider] = (ListedModel(info.id, info.context), *lists[info.provider])
        return list_available_models(self._config.providers, self._auth, self._env, self._table, found, lists)

    async def check_name(self, ref: str) -> str:
        """Return a note if it is not known whether this model exists, else "". Raise ConfigError if it does not.

        Its server is asked only if neither the settings nor the table know the model.
        """
        name = ref.split("/", 1)[0]
        if name == "offline" or not ref.strip():
            return ""
        if name in _LOCAL_PROVIDERS:
            await self._discover_servers()
        provider, model = parse_ref(ref, self._settings, self._env)
        own = self._settings.get(provider, ProviderSettings())
        if model in own.models or model in self._table.list_models(provider):
            return ""
        from odin.models.model_lists import is_listed, make_unknown_model

        adapter, _ = connect_model(ref, self._settings, self._env, self._http, self._table)
        names = [item.id for item in await self._lists.ask_or_find(adapter)] or list(own.models)
        if names and not is_listed(model, names):
            raise make_unknown_model(provider, model, names)
        if names:
            return ""
        suggestion = suggest_similar(model, self._table.list_models(provider), f"{provider}/{{}}")
        return f"Odin does not know {provider}/{model}, and its server provides no list of models.{suggestion}"

    async def close(self) -> None:
        for provider in self._open:
            await provider.close()
        await self._http.close()

    async def _connect(self, ref: str, *, warm: bool = True) -> tuple[Provider, ModelInfo]:
        name = ref.split("/", 1)[0]
        if name == "offline":
            return self._make_offline()
        if name in _LOCAL_PROVIDERS:
            await self._discover_servers()
        wire, info = connect_model(ref, self._settings, self._env, self._http, self._table)
        info = await self._fit_context(info, wire.url)
        if warm:
            await self._http.warm(wire.url)
        provider = self._add_other_keys(ref, info.provider, wire)
        if info.tools != "native":
            from odin.providers.tool_adapters import AdaptiveTools

            provider = AdaptiveTools(provider, info.tools)
        if info.calls_in_thinking or (info.calls_in_thinking is None and info.tools != "native"):
            from odin.providers.tool_adapters import ReasoningCalls

            provider = ReasoningCalls(provider, always=bool(info.calls_in_thinking))
        self._open.append(provider)
        return provider, info

    def _add_other_keys(self, ref: str, name: str, first: Provider) -> Provider:
        """Return a provider that goes on with the next stored key when one cannot be used."""
        keys = list_stored_keys(name, {**self._servers, **self._config.providers}, self._auth, self._env)
        if len(keys) < 2:
            return first
        from odin.models.keys import KeyPool, KeyStates

        self._key_states = self._key_states or KeyStates(lambda text: self.on_warning(text))
        providers = [(keys[0], first)]
        for key in keys[1:]:
            own = self._settings.get(name, ProviderSettings())
            settings = {**self._settings, name: msgspec.structs.replace(own, api_key=key)}
            providers.append((key, connect_model(ref, settings, self._env, self._http, self._table)[0]))
        return KeyPool(providers, self._key_states)

    async def _fit_context(self, info: ModelInfo, url: str) -> ModelInfo:
        """Return the model with its real context window: the user's setting, the server's answer, or the table.

        Only the server knows how much context it was started with.
        """
        context = info.context
        own = self._settings.get(info.provider, ProviderSettings()).models.get(info.id)
        if (own is None or own.context is None) and _is_private_address(url) and not _is_hosted(info.provider):
            from odin.models.local_servers import context_window_of

            real = await context_window_of(url, info.id, self._env, self._http)
            context = real or context
        most = self._config.max_context
        if most:
            context = min(context, most) if context else most
        if context == info.context:
            return info
        output = info.max_output or context // 4
        return msgspec.structs.replace(info, context=context, max_output=min(output, max(1, context // 2)))

    def _make_offline(self) -> tuple[Provider, ModelInfo]:
        from odin.providers.offline import OfflinePlanner

        return OfflinePlanner(), ModelInfo("planner", "offline", tools="native", free=True)

    async def _find_listed(self, ref: str) -> str:
        """Return the default model if its server has it, else the first one that the server lists.

        Without a default model it is the first one of the first server with a list. A list that is not known yet is
        asked for only if `eager`.
        """
        if not list_unlisted_providers(self._settings, self._env):
            return ref
        provider, _, model = ref.partition("/")
        lists = await self._read_lists(ask=False)
        if self._eager and not (lists.get(provider) if ref else any(lists.values())):
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
        places = list_unlisted_providers(settings, self._env)
        self.list_problems = ()
        if not places:
            return {}
        adapters = {place.provider: open_adapter(place, settings, self._http) for place in places}
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

    async def _find_first_local(self) -> str:
        for ref, address in await self._discover_servers():
            self.notice = f"Using {ref}, found on this machine ({address})."
            return ref
        return ""

    async def _discover_servers(self) -> list[tuple[str, str]]:
        """Find the servers on this machine and remember their settings."""
        from odin.models.local_servers import discover_servers

        found: list[tuple[str, str]] = []
        for server in await discover_servers(self._env, self._http):
            self._servers.setdefault(server.kind, server.to_settings())
            found += [(f"{server.kind}/{model.id}", server.base_url) for model in server.models]
        return found


def _is_private_address(url: str) -> bool:
    """True for a loopback address, one that begins with 10. or 192.168., and a name that ends with .local."""
    address = parse_address(url)
    return address.is_loopback or address.host.startswith(("10.", "192.168.")) or address.host.endswith(".local")


def _is_hosted(provider: str) -> bool:
    """True for a hosted provider, even if its base URL was overridden to a local address."""
    preset = PRESETS.get(provider)
    return preset is not None and bool(preset.key_names)


def load_model_table(env: Mapping[str, str]) -> ModelTable:
    """Return the model table with the user's rows."""
    return ModelTable.load_with_overrides(get_config_dir(env) / OVERRIDES_NAME)


_RUN_SOURCES = ("flag", "ODIN_MODEL")
"""Configuration sources that belong to this run."""


class InitialModel(Struct, frozen=True):
    """`chosen`: the user chose the model of this session. `warning`: its earlier model is no longer available."""

    chosen: bool = False
    warning: str = ""


class _EarlierModel(Struct, frozen=True):
    model: str = ""
    chosen: bool = False


async def choose_initial_model(models: ModelSelector, config: Config, past: Sequence[Envelope]) -> InitialModel:
    """Connect to this run's model: the one it names, the one chosen in the session, or the configured one.

    If nothing is configured, a resumed session keeps its model and a new one uses the first model found.
    """
    if config.sources.get("model") in _RUN_SOURCES:
        await models.choose(config.model)
        return InitialModel(chosen=True)
    had = _find_earlier_model(past)
    warning = ""
    if had.model and (had.chosen or not config.model):
        try:
            await models.choose(had.model)
            return InitialModel(chosen=had.chosen)
        except OdinError as error:
            warning = f"This session was using {had.model}, which cannot be used now: {error.describe()}"
    now = await models.choose(config.model)
    return InitialModel(warning=f"{warning} Continuing with {now}." if had.chosen and warning else "")


def _find_earlier_model(past: Sequence[Envelope]) -> _EarlierModel:
    """Return the model of an earlier run, ignoring fallbacks and the offline planner."""
    for envelope in reversed(past):
        event = envelope.event
        if isinstance(event, ModelChanged) and not event.reason:
            return _EarlierModel(event.model, chosen=True)
        if isinstance(event, SessionOpened):
            stood_in = event.model.startswith("offline/") and not event.model_chosen
            return _EarlierModel("" if stood_in else event.model, event.model_chosen)
    return _EarlierModel()


PREFERRED_RETRY_S = 300.0
"""Seconds on a fallback before the chosen model is tried again, with the next prompt."""


class ModelFallback:
    """Goes through the user's fallback models. Every switch is recorded as an event."""

    def __init__(self, models: ModelSelector, refs: Sequence[str], recorder: Recorder, agent: str = "") -> None:
        self._agent = agent
        self._models = models
        self._refs = tuple(refs)
        self._recorder = recorder
        self._preferred: tuple[Provider, ModelInfo] | None = None
        self._tried: set[str] = set()
        self._substitute = ""
        self._retry_at = 0.0

    async def try_next(self, failed: str, error: ProviderError) -> bool:
        """Switch to another model than `failed` and return True, or return False. Called when retries have failed."""
        if not self._refs or not (error.retryable or isinstance(error, QuotaExhausted)):
            return False
        if self._models.ref != failed:  # another request has switched already
            return True
        if failed != self._substitute:
            self._preferred, self._tried = (self._models.provider, self._models.info), {failed}
        for ref in self._refs:
            if ref not in self._tried and await self._switch_to(ref):
                changed = ModelChanged(self._substitute, f"{failed} cannot answer: {error}")
                self._recorder.emit(changed, self._agent)
                return True
        return False

    def restore_preferred(self) -> None:
        """Return to the chosen model if enough time has passed. Call when a prompt starts."""
        if self._preferred is None or time.monotonic() < self._retry_at:
            return
        home, self._preferred = self._preferred, None
        if self._models.ref == self._substitute:
            self._models.use(*home)
            self._recorder.emit(ModelChanged(self._models.ref, "trying the chosen model again."), self._agent)

    async def _switch_to(self, ref: str) -> bool:
        self._tried.add(ref)
        before = self._models.ref
        try:
            self._substitute = await self._models.choose(ref)
        except OdinError as error:
            self._recorder.emit(Warned(f"The fallback model {ref} cannot be used: {error.describe()}"))
            return False
        self._tried.add(self._substitute)
        self._retry_at = time.monotonic() + PREFERRED_RETRY_S
        return self._substitute != before
