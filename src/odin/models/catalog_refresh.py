"""Refreshes the model catalog: models and prices from a URL or a file, kept in the cache folder.

A catalog maps providers to models and their properties, as the user's own `models.json` does, or it has the format of
models.dev. Odin keeps what is plausible about the providers that it knows or that are configured. It fetches a catalog
when the user asks for it, and, if `catalog_url` is set, when models are listed and the copy is older than a day.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Struct

from odin.config import make_private_folder
from odin.config.files import write_atomically
from odin.config.paths import locate_model_catalog
from odin.core.errors import ConfigError, OdinError, UsageError
from odin.core.format import format_time, pluralize
from odin.models.catalog import PRESETS
from odin.models.model_table import MAX_CATALOG_BYTES, CatalogCopy, CatalogRow
from odin.providers.address import parse_address
from odin.providers.errors import make_header_timeout_error
from odin.providers.http import HttpClient

DEFAULT_URL = "https://models.dev/api.json"
MAX_AGE_S = 24 * 3600.0
FETCH_TIMEOUT_S = 30.0
LIST_TIMEOUT_S = 3.0
"""How long a list of models waits for a catalog."""

_MAX_MODELS = 1_000
_MAX_NAME_LENGTH = 200
_OTHER_NAMES = {"togetherai": "together"}
"""Providers that models.dev calls differently."""

_SOURCE_HINT = "Name the URL or the file of a catalog."
_FORMAT_HINT = "A catalog maps providers to models and their properties, like models.json, or is that of models.dev."


class RefreshedCatalog(Struct, frozen=True):
    """The result of a refresh. `skipped` counts models that were left out because their properties are implausible."""

    source: str
    file: str
    providers: int
    models: int
    skipped: int = 0


async def refresh_catalog(
    source: str, providers: Mapping[str, object], env: Mapping[str, str], *, timeout: float = FETCH_TIMEOUT_S
) -> RefreshedCatalog:
    """Fetch a catalog and keep it. `providers` are the configured ones.

    Raise an error, and keep the copy there is, if the catalog cannot be read or has no model of a known provider.
    """
    source = source or DEFAULT_URL
    written = await _download(source, env, timeout) if "://" in source else _read_file(source)
    if len(written) > MAX_CATALOG_BYTES:
        raise ConfigError(f"{source} is larger than {MAX_CATALOG_BYTES // 1024**2} MB.", _FORMAT_HINT)
    known = {*providers, *(name for name, preset in PRESETS.items() if preset.key_names)}
    found, skipped = _parse_catalog(source, written, known)
    file = locate_model_catalog(env)
    make_private_folder(file.parent)
    write_atomically(file, msgspec.json.encode(CatalogCopy(time.time(), source, found)))
    return RefreshedCatalog(source, str(file), len(found), sum(map(len, found.values())), skipped)


async def refresh_if_stale(
    url: str, copy: CatalogCopy, providers: Mapping[str, object], env: Mapping[str, str]
) -> str | None:
    """Refresh a copy that is older than a day or comes from another URL. Return the problem, "" after a success.

    None means that the copy is fresh.
    """
    if copy.source == url and 0 <= time.time() - copy.time < MAX_AGE_S:
        return None
    try:
        await refresh_catalog(url, providers, env, timeout=LIST_TIMEOUT_S)
    except OdinError as error:
        return f"The model catalog cannot be refreshed: {error}"
    return ""


def describe_catalog(copy: CatalogCopy) -> str:
    """Return one sentence about where models and prices come from."""
    if not copy.time:
        return "Models and prices are those built into Odin; `odin models refresh` fetches newer ones."
    advice = " Run `odin models refresh`." if time.time() - copy.time > MAX_AGE_S else ""
    return f"Models and prices are those of {copy.source} on {format_time(copy.time)}.{advice}"


async def _download(url: str, env: Mapping[str, str], timeout: float) -> bytes:
    address = parse_address(url)
    if address.login:
        raise UsageError("A password in a URL is not accepted.", "Use a URL without one, or a file.")
    http = HttpClient(env)
    try:
        async with asyncio.timeout(timeout):
            response = await http.send(await http.acquire(address), "GET", address, {})
            body = await response.read_all(timeout, MAX_CATALOG_BYTES + 1)
    except TimeoutError:
        raise make_header_timeout_error(address, timeout) from None
    finally:
        await http.close()
    if response.status != 200:
        raise ConfigError(f"{url} answered with HTTP status {response.status}.", _SOURCE_HINT)
    return body


def _read_file(name: str) -> bytes:
    """Return the content of a regular file: a pipe or a device would never end."""
    path = Path(name)
    try:
        if path.exists() and not path.is_file():
            raise ConfigError(f"{name} is not a file.", _SOURCE_HINT)
        with path.open("rb") as file:
            return file.read(MAX_CATALOG_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{name} cannot be read: {error.strerror or error}.", _SOURCE_HINT) from error


def _parse_catalog(source: str, written: bytes, known: set[str]) -> tuple[dict[str, dict[str, CatalogRow]], int]:
    """Return the rows of known providers, and how many of their models were skipped."""
    try:
        decoded = msgspec.json.decode(written, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ConfigError(f"{source} is not a catalog: {error}.", _FORMAT_HINT) from error
    found: dict[str, dict[str, CatalogRow]] = {}
    skipped = 0
    for name, entry in decoded.items():
        provider = _OTHER_NAMES.get(name, name)
        if provider not in known or not isinstance(entry, dict):
            continue
        rows: dict[str, CatalogRow] = {}
        for model, properties in _list_rows(cast("dict[str, Any]", entry)):
            row = _convert_row(model, properties)
            if row is None or len(rows) >= _MAX_MODELS:
                skipped += 1
            else:
                rows[model] = row
        if rows:
            found[provider] = rows
    if not found:
        skips = f" {pluralize(skipped, 'entry is', 'entries are')} invalid." if skipped else ""
        raise ConfigError(f"{source} has no model of a known provider.{skips}", _FORMAT_HINT)
    return found, skipped


def _list_rows(entry: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the models of a provider with their properties; models that cannot work as an agent are left out."""
    models = entry.get("models")
    if not isinstance(models, dict):
        yield from entry.items()
        return
    named = cast("dict[str, Any]", models)
    for model in sorted(named, key=lambda name: _get_release_date(named[name]), reverse=True):
        item = named[model]
        if not isinstance(item, dict):
            yield model, None
        elif (row := _read_public_row(cast("dict[str, Any]", item))) is not None:
            yield model, row


def _get_release_date(item: Any) -> str:
    return str(cast("dict[str, Any]", item).get("release_date", "")) if isinstance(item, dict) else ""


def _read_public_row(item: dict[str, Any]) -> dict[str, Any] | None:
    """Return an entry of models.dev as a row; None for a model without tool calls or text."""
    limit, cost, kinds = (_find_object(item, name) for name in ("limit", "cost", "modalities"))
    if (
        item.get("tool_call") is False
        or item.get("status") == "deprecated"
        or "text" not in kinds.get("output", "text")
    ):
        return None
    return {
        "context": limit.get("context") or None,
        "max_output": limit.get("output") or None,
        **{f"price_{kind}": cost.get(kind) for kind in ("input", "output", "cache_read", "cache_write")},
        "thinking": item.get("reasoning"),
        "images": "image" in kinds["input"] if isinstance(kinds.get("input"), list) else None,
    }


def _find_object(item: dict[str, Any], name: str) -> dict[str, Any]:
    value = item.get(name)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _convert_row(model: str, properties: Any) -> CatalogRow | None:
    """Return the row of a model; None if its name or a property is implausible.

    Prices of 0 count as unknown: only the user's own settings can say that a model is free.
    """
    if not model.isprintable() or not 0 < len(model) <= _MAX_NAME_LENGTH or model != model.strip():
        return None
    try:
        row = msgspec.convert(properties, CatalogRow)
    except msgspec.ValidationError:
        return None
    if not row.price_input and not row.price_output:
        return msgspec.structs.replace(row, price_input=None, price_output=None)
    return row
