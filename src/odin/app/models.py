"""Which model answers: the one that was named, else one whose key is there, else one on this machine, else none."""

from collections.abc import Mapping

import msgspec

from odin.app.auth import with_stored
from odin.config import Config, config_dir
from odin.config.auth import read_auth
from odin.core.client import ModelChoice
from odin.core.provider import ModelInfo, Provider
from odin.providers.address import parse_address
from odin.providers.catalog import PRESETS, connect, default_ref
from odin.providers.http import Http
from odin.providers.known import Known
from odin.providers.settings import ProviderSettings

OFFLINE_NOTICE = (
    "No model is configured: the offline planner answers. "
    "Set ANTHROPIC_API_KEY or OPENAI_API_KEY, store a key with `odin auth add`, or see `odin models`."
)
OVERRIDES = "models.json"
"""The user's own table of models, beside the configuration."""

_LOCAL = ("ollama", "lmstudio", "llamacpp", "vllm", "local")


class Models:
    """The model in use and how it was found. A new one takes effect with the next request.

    Unless `reach_out`, nothing is connected to until a model is named, a prompt is sent or somebody asks what there is.
    """

    def __init__(self, config: Config, env: Mapping[str, str], *, reach_out: bool = True) -> None:
        self._config = config
        self._env = env
        self._reach_out = reach_out
        self._http = Http(env=env)
        self._known = known_models(env)
        self._auth = read_auth(env)
        self._servers: dict[str, ProviderSettings] = {}
        self._open: list[Provider] = []
        self._small: tuple[Provider, ModelInfo] | None = None
        self._alone = False
        self._beside: dict[str, tuple[Provider, ModelInfo]] = {}
        self.notice = ""

    def use(self, provider: Provider, info: ModelInfo, lesser: tuple[Provider, ModelInfo] | None = None) -> None:
        """Take these. With a `lesser` no other model is ever connected to."""
        self.provider = provider
        self.info = info
        if lesser is not None:
            self._small, self._alone = lesser, True

    @property
    def warning(self) -> str:
        return " ".join(filter(None, (self._known.warning, *self._auth.warnings)))

    @property
    def _settings(self) -> dict[str, ProviderSettings]:
        """How providers are reached: what the user configured wins over what was found, and has the stored keys."""
        return with_stored({**self._servers, **self._config.providers}, self._auth, self._env)

    @property
    def ref(self) -> str:
        return f"{self.info.provider}/{self.info.id}" if self.info.provider else self.info.id

    async def choose(self, ref: str) -> str:
        """Connect to the named model; with no name to the first that can be found, at last to the offline planner.

        Keys that were stored since count.
        """
        self.notice = ""
        self._auth = read_auth(self._env)
        warm = bool(ref) or self._reach_out
        if not ref:
            ref = default_ref(self._settings, self._env) or (await self._first_local() if self._reach_out else "")
        if not ref:
            self.notice = OFFLINE_NOTICE
        self.use(*await self._connect(ref or "offline", warm=warm))
        return self.ref

    async def lesser(self) -> tuple[Provider, ModelInfo]:
        """The model for small jobs: the configured one, else the offline planner stands in."""
        if self._small is None:
            self._small = await self._connect(self._config.small_model or "offline")
        return self._small

    async def named(self, ref: str) -> tuple[Provider, ModelInfo]:
        """A model beside the one in use, connected once."""
        if ref == self._config.small_model or self._alone:
            return await self.lesser()
        if ref not in self._beside:
            self._beside[ref] = await self._connect(ref)
        return self._beside[ref]

    async def choices(self, *, look: bool = False) -> tuple[ModelChoice, ...]:
        """What can be used from here. Nobody is asked; with `look`, the servers on this machine are."""
        from odin.app.modellist import choices
        from odin.providers.local import discover

        self._auth = read_auth(self._env)
        servers = await discover(self._env, self._http) if look else ()
        return choices(self._config.providers, self._auth, self._env, self._known, servers)

    async def close(self) -> None:
        for provider in self._open:
            await provider.close()
        await self._http.close()

    async def _connect(self, ref: str, *, warm: bool = True) -> tuple[Provider, ModelInfo]:
        name = ref.split("/", 1)[0]
        if name == "offline":
            return self._offline()
        if name in _LOCAL:
            await self._look_around()
        wire, info = connect(ref, self._settings, self._env, self._http, self._known)
        info = await self._measured(info, wire.url)
        if warm:
            await self._http.warm(wire.url)
        provider: Provider = wire
        if info.tools != "native":
            from odin.providers.adaptive import AdaptiveTools

            provider = AdaptiveTools(provider, info.tools)
        if info.calls_in_thinking or (info.calls_in_thinking is None and info.tools != "native"):
            from odin.providers.thoughtcalls import ThoughtCalls

            provider = ThoughtCalls(provider, always=bool(info.calls_in_thinking))
        self._open.append(provider)
        return provider, info

    async def _measured(self, info: ModelInfo, url: str) -> ModelInfo:
        """With the window that really holds: what the user says, else what a server of theirs says, else the table.

        Only the server knows how much context it was given; and the user, when it does not tell.
        """
        context = info.context
        own = self._settings.get(info.provider, ProviderSettings()).models.get(info.id)
        if (own is None or own.context is None) and _is_own(url) and not _has_key(info.provider):
            from odin.providers.local import window_of

            real = await window_of(url, info.id, self._env, self._http)
            context = real or context
        most = self._config.max_context
        if most:
            context = min(context, most) if context else most
        if context == info.context:
            return info
        output = info.max_output or context // 4
        return msgspec.structs.replace(info, context=context, max_output=min(output, max(1, context // 2)))

    def _offline(self) -> tuple[Provider, ModelInfo]:
        from odin.providers.offline import OfflinePlanner

        return OfflinePlanner(), ModelInfo("planner", "offline", tools="native", free=True)

    async def _first_local(self) -> str:
        for ref, address in await self._look_around():
            self.notice = f"Using {ref}, found on this machine ({address})."
            return ref
        return ""

    async def _look_around(self) -> list[tuple[str, str]]:
        """Find the servers on this machine and remember how to reach them."""
        from odin.providers.local import discover

        found: list[tuple[str, str]] = []
        for server in await discover(self._env, self._http):
            self._servers.setdefault(server.kind, server.settings())
            found += [(f"{server.kind}/{model.id}", server.base_url) for model in server.models]
        return found


def _is_own(url: str) -> bool:
    """Whether a server stands on this machine or in this house."""
    address = parse_address(url)
    return address.is_loopback or address.host.startswith(("10.", "192.168.")) or address.host.endswith(".local")


def _has_key(provider: str) -> bool:
    """Whether the provider is one of the web, of which the address may lead elsewhere for once."""
    preset = PRESETS.get(provider)
    return preset is not None and bool(preset.key_names)


def known_models(env: Mapping[str, str]) -> Known:
    """The table of models, with the user's own rows in it."""
    return Known.beside(config_dir(env) / OVERRIDES)
