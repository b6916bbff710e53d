"""Which model answers: the one that was named, else one whose key is there, else one on this machine, else none."""

import asyncio
from collections.abc import Mapping

import msgspec

from odin.config import Config, config_dir, load
from odin.core.errors import OdinError
from odin.core.provider import ModelInfo, Provider
from odin.providers.address import parse_address
from odin.providers.catalog import PRESETS, connect, default_ref, endpoint, lookup
from odin.providers.http import Http
from odin.providers.known import Known
from odin.providers.settings import ProviderSettings

OFFLINE_NOTICE = (
    "No model is configured: the offline planner answers. "
    "Set ANTHROPIC_API_KEY or OPENAI_API_KEY, or see `odin models`."
)
OVERRIDES = "models.json"
"""The user's own table of models, beside the configuration."""

_LOCAL = ("ollama", "lmstudio", "llamacpp", "vllm")


class Models:
    """The model in use and how it was found. A new one takes effect with the next request."""

    def __init__(self, config: Config, env: Mapping[str, str]) -> None:
        self._config = config
        self._env = env
        self._http = Http(env=env)
        self._known = known_models(env)
        self._settings: dict[str, ProviderSettings] = dict(config.providers)
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
        return self._known.warning

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

    async def named(self, ref: str) -> tuple[Provider, ModelInfo]:
        """A model beside the one in use, connected once."""
        if ref == self._config.small_model or self._alone:
            return await self.lesser()
        if ref not in self._beside:
            self._beside[ref] = await self._connect(ref)
        return self._beside[ref]

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
        wire, info = connect(ref, self._settings, self._env, self._http, self._known)
        info = await self._measured(info, wire.url)
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
        """Find the servers on this machine and remember how to reach them. What the user configured wins."""
        from odin.providers.local import discover

        found: list[tuple[str, str]] = []
        for server in await discover(self._env, self._http):
            if server.kind not in self._config.providers:
                self._settings.setdefault(server.kind, server.settings())
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


class ModelRow(msgspec.Struct, frozen=True):
    """One line of the list. Prices are USD per million tokens, None when they are not known."""

    model: str
    context: int
    tools: str
    where: str
    price_input: float | None = None
    price_output: float | None = None
    price_cache_read: float | None = None
    price_cache_write: float | None = None


async def list_models(env: Mapping[str, str], cwd: str) -> list[ModelRow]:
    """The models that can be used from here: on this machine, by a key, and the offline planner."""
    from odin.providers.local import discover

    config = load(cwd, env)
    known = known_models(env)
    http = Http(env=env)
    try:
        servers = await discover(env, http)
    finally:
        await http.close()
    rows: list[ModelRow] = []
    for server in servers:
        for model in server.models:
            ref = f"{server.kind}/{model.id}"
            priced = lookup(ref, config.providers, known)
            found = msgspec.structs.replace(priced, context=model.context, tools=model.tools)
            rows.append(_row(ref, found, server.base_url))
    rows += [
        _row(ref, lookup(ref, config.providers, known), where)
        for ref, where in _reachable(config.providers, env, known)
    ]
    rows.append(_row("offline/planner", ModelInfo("planner", tools="native", free=True), "built in"))
    return rows


def _row(ref: str, info: ModelInfo, where: str) -> ModelRow:
    prices = (info.price_input, info.price_output, info.price_cache_read, info.price_cache_write)
    return ModelRow(ref, info.context, info.tools, where, *(price if price or info.free else None for price in prices))


def _reachable(settings: Mapping[str, ProviderSettings], env: Mapping[str, str], known: Known) -> list[tuple[str, str]]:
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
            refs = (f"{name}/{model}" for model in known.models(name))
            found |= {ref: place.base_url for ref in refs if ref not in found}
    return list(found.items())


def describe_models(env: Mapping[str, str], cwd: str, *, as_json: bool) -> str:
    """The same list for people, with what is wrong with their own table, or as JSON."""
    rows = asyncio.run(list_models(env, cwd))
    if as_json:
        return msgspec.json.encode(rows).decode() + "\n"
    lines = [("MODEL", "CONTEXT", "TOOLS", "INPUT", "OUTPUT", "WHERE")]
    lines += [
        (
            row.model,
            f"{row.context:,}" if row.context else "",
            row.tools,
            _price(row.price_input),
            _price(row.price_output),
            row.where,
        )
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = "".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() + "\n" for line in lines
    )
    keys = ", ".join(preset.key_names[0] for preset in PRESETS.values() if preset.key_names)
    said = (
        known_models(env).warning,
        f"Prices are US dollars per million tokens; {config_dir(env) / OVERRIDES} can correct them.",
        f"More appear with a key in the environment ({keys}) or in providers of your odinconfig.json.",
    )
    return f"{text}\n" + "".join(f"{line}\n" for line in said if line)


def _price(price: float | None) -> str:
    if price is None:
        return "unknown"
    return f"${price:g}" if price else "free"
