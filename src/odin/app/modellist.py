"""The models that can be used from here: on this machine, by a key, by the settings, and the offline planner."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from odin.app.auth import key_lines, with_stored
from odin.app.models import OVERRIDES, Models, known_models
from odin.config import config_dir, load
from odin.config.auth import AUTH_NAME, Auth
from odin.core.client import ModelChoice
from odin.core.errors import OdinError
from odin.core.provider import ModelInfo
from odin.providers.catalog import PRESETS, endpoint, lookup
from odin.providers.known import Known
from odin.providers.local import LocalServer
from odin.providers.settings import ProviderSettings

OFFLINE = "offline/planner"
ON_THIS_MACHINE = "on this machine"


def choices(
    settings: Mapping[str, ProviderSettings],
    auth: Auth,
    env: Mapping[str, str],
    known: Known,
    servers: Sequence[LocalServer],
) -> tuple[ModelChoice, ...]:
    """The whole list; `servers` are those that were found on this machine."""
    found = list(_on_servers(servers, settings, known))
    notes = {
        line.provider: AUTH_NAME if line.kind == "stored" else line.place
        for line in key_lines(settings, auth, env)
        if line.used
    }
    keyed = with_stored(settings, auth, env)
    for ref, where in _reachable(keyed, env, known):
        note = notes.get(ref.split("/", 1)[0], "")
        found.append(_choice(ref, lookup(ref, keyed, known), where, f"key: {note}" if note else "configured"))
    found.append(_choice(OFFLINE, ModelInfo("planner", tools="native", free=True), "built in", "no network"))
    return tuple(found)


def _on_servers(
    servers: Sequence[LocalServer], settings: Mapping[str, ProviderSettings], known: Known
) -> Iterator[ModelChoice]:
    for server in servers:
        there = {**settings, server.kind: settings.get(server.kind, server.settings())}
        for model in server.models:
            ref = f"{server.kind}/{model.id}"
            priced = lookup(ref, there, known)
            info = msgspec.structs.replace(priced, context=model.context, tools=model.tools)
            yield _choice(ref, info, server.base_url, ON_THIS_MACHINE)


def _choice(ref: str, info: ModelInfo, where: str, note: str) -> ModelChoice:
    prices = (info.price_input, info.price_output, info.price_cache_read, info.price_cache_write)
    known = (price if price or info.free else None for price in prices)
    return ModelChoice(ref, info.context, info.tools, where, *known, note=note)


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


async def list_models(env: Mapping[str, str], cwd: str) -> tuple[ModelChoice, ...]:
    """The list with the servers on this machine."""
    models = Models(load(cwd, env), env)
    try:
        return await models.choices(look=True)
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
        f"More appear with a key: in the environment ({keys}), stored with `odin auth add`, or in providers of your "
        "odinconfig.json.",
    )
    return f"{text}\n" + "".join(f"{line}\n" for line in said if line)


def _price(price: float | None) -> str:
    if price is None:
        return "unknown"
    return f"${price:g}" if price else "free"
