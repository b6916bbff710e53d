"""The models that can be used from here: on this machine, by a key, by the settings, and the offline planner."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from odin.app.auth import add_stored_keys, list_keys
from odin.app.models import OVERRIDES_NAME, ModelSelector, load_model_table
from odin.config import get_config_dir, load
from odin.config.auth import AUTH_NAME, AuthFile
from odin.core.client import AvailableModel
from odin.core.errors import OdinError
from odin.core.provider import ModelInfo
from odin.providers.catalog import PRESETS, lookup_model, resolve_endpoint
from odin.providers.known import ModelTable
from odin.providers.local import LocalServer
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
    """The whole list; `servers` are those that were found on this machine."""
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
    """Models of the configuration, then those of the catalogue whose provider has a key, each with its address."""
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


async def list_models(env: Mapping[str, str], cwd: str) -> tuple[AvailableModel, ...]:
    """The list with the servers on this machine."""
    models = ModelSelector(load(cwd, env), env)
    try:
        return await models.list_available(probe_servers=True)
    finally:
        await models.close()


def describe_models(env: Mapping[str, str], cwd: str, *, as_json: bool) -> str:
    """The same list for people, with what is wrong with their own table, or as JSON."""
    rows = asyncio.run(list_models(env, cwd))
    if as_json:
        return msgspec.json.encode(rows).decode() + "\n"
    lines = [("MODEL", "CONTEXT", "TOOLS", "INPUT", "OUTPUT", "WHERE")]
    lines += [
        (
            row.ref,
            f"{row.context:,}" if row.context else "",
            row.tools,
            _format_price(row.price_input),
            _format_price(row.price_output),
            row.address,
        )
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = "".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() + "\n" for line in lines
    )
    keys = ", ".join(preset.key_names[0] for preset in PRESETS.values() if preset.key_names)
    said = (
        load_model_table(env).warning,
        f"Prices are US dollars per million tokens; {get_config_dir(env) / OVERRIDES_NAME} can correct them.",
        f"More appear with a key: in the environment ({keys}), stored with `odin auth add`, or in providers of your "
        "odinconfig.json.",
    )
    return f"{text}\n" + "".join(f"{line}\n" for line in said if line)


def _format_price(price: float | None) -> str:
    if price is None:
        return "unknown"
    return f"${price:g}" if price else "free"
