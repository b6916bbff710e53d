"""Lists the models that can be used: on this machine, with a key, from the settings, and the offline planner."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from odin.config.auth import AUTH_NAME, AuthFile
from odin.core.client import AvailableModel
from odin.core.errors import OdinError
from odin.core.provider import ModelInfo
from odin.models.catalog import PRESETS, ModelTable, is_redirected, lookup_model, resolve_endpoint
from odin.models.keys import add_stored_keys, list_keys
from odin.models.local_servers import LocalServer
from odin.providers.settings import ProviderSettings
from odin.providers.wire import ListedModel

OFFLINE_REF = "offline/planner"
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
    keyed = add_stored_keys(settings, auth, env)
    for item in _list_reachable(keyed, env, known, lists):
        note = notes.get(item.provider, "")
        found.append(_make_available_model(item.ref, item.info, item.address, f"key: {note}" if note else "configured"))
    found.append(
        _make_available_model(OFFLINE_REF, ModelInfo("planner", tools="native", free=True), "built in", "no network")
    )
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
    return AvailableModel(ref, info.context, info.tools, where, *known, note=note)


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

    The catalog is about the provider's own address: elsewhere its prices do not count, and its models only as long as
    the server has not been asked.
    """
    for name in dict.fromkeys([*settings, *PRESETS]):
        try:
            place = resolve_endpoint(name, settings, env)
        except OdinError:
            continue
        elsewhere = is_redirected(place)
        table = known.without_builtin() if elsewhere else known
        models = dict.fromkeys(settings.get(name, ProviderSettings()).models, 0)
        models |= {item.id: item.context for item in lists.get(name, ()) if item.id not in models}
        if place.api_key and name not in lists:
            models |= {model: 0 for model in known.list_models(name) if model not in models}
        for model, context in models.items():
            ref = f"{name}/{model}"
            info = lookup_model(ref, settings, table)
            if context and not info.context:
                info = msgspec.structs.replace(info, context=context)
            yield _ReachableModel(name, ref, info, place.base_url)
