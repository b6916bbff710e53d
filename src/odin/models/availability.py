"""Lists the models that can be used: on this machine, with a key, from the settings, and the offline planner."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from odin.config.auth import AUTH_NAME, AuthFile
from odin.core.client import AvailableModel
from odin.core.errors import OdinError
from odin.core.provider import ModelInfo
from odin.models.catalog import PRESETS, ModelTable, lookup_model, resolve_endpoint
from odin.models.keys import add_stored_keys, list_keys
from odin.models.local_servers import LocalServer
from odin.providers.settings import ProviderSettings

OFFLINE_REF = "offline/planner"
ON_THIS_MACHINE = "on this machine"


def list_available_models(
    settings: Mapping[str, ProviderSettings],
    auth: AuthFile,
    env: Mapping[str, str],
    known: ModelTable,
    servers: Sequence[LocalServer],
) -> tuple[AvailableModel, ...]:
    """Return all usable models; `servers` are those found on this machine."""
    found = list(_list_server_models(servers, settings, known))
    notes = {
        line.provider: AUTH_NAME if line.kind == "stored" else line.place
        for line in list_keys(settings, auth, env)
        if line.used
    }
    keyed = add_stored_keys(settings, auth, env)
    for ref, where in _list_reachable(keyed, env, known):
        note = notes.get(ref.split("/", 1)[0], "")
        found.append(
            _make_available_model(ref, lookup_model(ref, keyed, known), where, f"key: {note}" if note else "configured")
        )
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


def _list_reachable(
    settings: Mapping[str, ProviderSettings], env: Mapping[str, str], known: ModelTable
) -> list[tuple[str, str]]:
    """Return configured models, then catalog models whose provider has a key, each with its URL."""
    found: dict[str, str] = {}
    for name in dict.fromkeys([*settings, *PRESETS]):
        try:
            place = resolve_endpoint(name, settings, env)
        except OdinError:
            continue
        own = settings.get(name, ProviderSettings())
        found |= {f"{name}/{model}": place.base_url for model in own.models}
        if place.api_key:
            refs = (f"{name}/{model}" for model in known.list_models(name))
            found |= {ref: place.base_url for ref in refs if ref not in found}
    return list(found.items())
