"""Which model answers: the one that was named, else one whose key is there, else one on this machine, else none."""

import asyncio
from collections.abc import Mapping

import msgspec

from odin.config import Config, load
from odin.core.errors import OdinError
from odin.core.provider import ModelInfo, Provider
from odin.providers.catalog import MODELS, PRESETS, connect, default_ref, endpoint, lookup
from odin.providers.http import Http
from odin.providers.settings import ProviderSettings

OFFLINE_NOTICE = (
    "No model is configured: the offline planner answers. "
    "Set ANTHROPIC_API_KEY or OPENAI_API_KEY, or see `odin models`."
)
_LOCAL = ("ollama", "lmstudio", "llamacpp", "vllm")


class Models:
    """The model in use and how it was found. A new one takes effect with the next request."""

    def __init__(self, config: Config, env: Mapping[str, str]) -> None:
        self._config = config
        self._env = env
        self._http = Http(env=env)
        self._settings: dict[str, ProviderSettings] = dict(config.providers)
        self._open: list[Provider] = []
        self._small: tuple[Provider, ModelInfo] | None = None
        self.notice = ""

    def use(self, provider: Provider, info: ModelInfo) -> None:
        self.provider = provider
        self.info = info

    @property
    def ref(self) -> str:
        return f"{self.info.provider}/{self.info.id}" if self.info.provider else self.info.id

    async def choose(self, ref: str) -> str:
        """Connect to the named model; with no name to the first that can be found, at last to the offline planner."""
        self.notice = ""
        if not ref:
            ref = default_ref(self._settings, self._env) or await self._first_local()
        if not ref:
            self.notice = OFFLINE_NOTICE
        self.use(*await self._connect(ref or "offline"))
        return self.ref

    async def lesser(self) -> tuple[Provider, ModelInfo]:
        """The model for small jobs: the configured one, else the offline planner stands in."""
        if self._small is None:
            self._small = await self._connect(self._config.small_model or "offline")
        return self._small

    async def close(self) -> None:
        for provider in self._open:
            await provider.close()
        await self._http.close()

    async def _connect(self, ref: str) -> tuple[Provider, ModelInfo]:
        name = ref.split("/", 1)[0]
        if name == "offline":
            return self._offline()
        if name in _LOCAL:
            await self._look_around()
        wire, info = connect(ref, self._settings, self._env, self._http)
        await self._http.warm(wire.url)
        provider: Provider = wire
        if info.tools != "native":
            from odin.providers.contract import AdaptiveTools

            provider = AdaptiveTools(provider, info.tools)
        self._open.append(provider)
        return provider, info

    def _offline(self) -> tuple[Provider, ModelInfo]:
        from odin.providers.offline import OfflinePlanner

        return OfflinePlanner(), ModelInfo("planner", "offline", tools="native")

    async def _first_local(self) -> str:
        for ref, address in await self._look_around():
            self.notice = f"Using {ref}, found on this machine ({address})."
            return ref
        return ""

    async def _look_around(self) -> list[tuple[str, str]]:
        """Find the servers on this machine and remember how to reach them. What the user configured wins."""
        from odin.providers.local import discover

        found: list[tuple[str, str]] = []
        for server in await discover(self._env, self._http):
            if server.kind not in self._config.providers:
                self._settings.setdefault(server.kind, server.settings())
            found += [(f"{server.kind}/{model.id}", server.base_url) for model in server.models]
        return found


class ModelRow(msgspec.Struct, frozen=True):
    model: str
    context: int
    tools: str
    where: str


async def list_models(env: Mapping[str, str], cwd: str) -> list[ModelRow]:
    """The models that can be used from here: on this machine, by a key, and the offline planner."""
    from odin.providers.local import discover

    config = load(cwd, env)
    http = Http(env=env)
    try:
        servers = await discover(env, http)
    finally:
        await http.close()
    rows = [
        ModelRow(f"{server.kind}/{model.id}", model.context, model.tools, server.base_url)
        for server in servers
        for model in server.models
    ]
    for ref, where in _reachable(config.providers, env):
        info = lookup(ref, config.providers)
        rows.append(ModelRow(ref, info.context, info.tools, where))
    rows.append(ModelRow("offline/planner", 0, "native", "built in"))
    return rows


def _reachable(settings: Mapping[str, ProviderSettings], env: Mapping[str, str]) -> list[tuple[str, str]]:
    """Models of the configuration, then those of the catalogue whose provider has a key, each with its address."""
    found: dict[str, str] = {}
    for name in dict.fromkeys([*settings, *PRESETS]):
        try:
            place = endpoint(name, settings, env)
        except OdinError:
            continue
        own = settings.get(name, ProviderSettings())
        found |= {f"{name}/{model}": place.base_url for model in own.models}
        if place.api_key:
            found |= {ref: place.base_url for ref in MODELS if ref.split("/", 1)[0] == name and ref not in found}
    return list(found.items())


def describe_models(env: Mapping[str, str], cwd: str, *, as_json: bool) -> str:
    """The same list for people, or as JSON."""
    rows = asyncio.run(list_models(env, cwd))
    if as_json:
        return msgspec.json.encode(rows).decode() + "\n"
    lines = [("MODEL", "CONTEXT", "TOOLS", "WHERE")]
    lines += [(row.model, f"{row.context:,}" if row.context else "", row.tools, row.where) for row in rows]
    widths = [max(len(line[column]) for line in lines) for column in range(4)]
    text = "".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() + "\n" for line in lines
    )
    keys = ", ".join(preset.key_names[0] for preset in PRESETS.values() if preset.key_names)
    return f"{text}\nMore appear with a key in the environment ({keys}) or in providers of your odinconfig.json.\n"
