"""Adds a model server by its URL: asks it which models it has, and writes it to the user's settings."""

import re
from collections.abc import Iterator, Mapping

import msgspec
from msgspec import Struct

from odin.config import CONFIG_NAME, get_config_dir
from odin.config.files import set_key
from odin.core.errors import ConfigError, UsageError
from odin.models.catalog import BUILTIN_MODEL, PRESETS
from odin.models.keys import add_key
from odin.models.model_lists import ModelLists
from odin.providers.address import Address, make_address_error, parse_address
from odin.providers.http import HttpClient
from odin.providers.settings import ProviderSettings
from odin.providers.wire import ListedModel, parse_model_list

ASK_TIMEOUT_S = 5.0
_ENDPOINTS = re.compile(r"/(?:chat/completions|responses|models|completions)/?$")


class AddedServer(Struct, frozen=True):
    """A server in the settings: its provider name, its models, and the file that has it now."""

    provider: str
    base_url: str
    models: tuple[str, ...]
    file: str

    @property
    def first_ref(self) -> str:
        return f"{self.provider}/{self.models[0]}"


async def add_server(
    url: str, settings: Mapping[str, ProviderSettings], env: Mapping[str, str], *, name: str = "", key: str = ""
) -> AddedServer:
    """Add an OpenAI-compatible server and store its key, if it has one.

    Raise UsageError or ConfigError, with nothing written, if the server cannot be reached, needs another key, or has no
    list of models.
    """
    # The address. Without a scheme it is http for this machine and for bare hosts with a port, else https.
    text = url.strip()
    if "://" not in text:
        host = text.partition("/")[0]
        text = f"{'http' if ':' in host or host == 'localhost' else 'https'}://{text}"
    try:
        address = parse_address(text)
    except ConfigError:
        raise make_address_error(url.strip()) from None
    if address.login:
        raise UsageError("A password in a URL is not accepted.", "Leave it out; Odin asks for a key separately.")
    http = HttpClient(env)
    try:
        base_url, models = await _find_models(address, key.strip(), http)
    finally:
        await http.close()
    provider = _check_name(name, base_url, settings) if name else _choose_name(address, base_url, settings)
    known = {**settings, provider: ProviderSettings("openai", base_url)}
    file = get_config_dir(env) / CONFIG_NAME
    if settings.get(provider, ProviderSettings()).base_url.rstrip("/") != base_url:
        file = set_key(f"providers.{provider}", {"type": "openai", "base_url": base_url}, env)
    if key.strip():
        add_key(provider, key, known, env)
    ModelLists(env).store(f"{base_url}/chat/completions", models)
    return AddedServer(provider, base_url, tuple(model.id for model in models), str(file))


def _list_base_urls(address: Address) -> Iterator[str]:
    path = _ENDPOINTS.sub("", address.path.partition("?")[0]).rstrip("/")
    if not path:
        yield f"{address.origin}/v1"
    yield f"{address.origin}{path}"
    if path and not re.search(r"/v\d", path):
        yield f"{address.origin}{path}/v1"


async def _find_models(address: Address, key: str, http: HttpClient) -> tuple[str, tuple[ListedModel, ...]]:
    """Return the base URL that has a list of models, and the models."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    seen = ""
    for base_url in _list_base_urls(address):
        status, body = await http.fetch(f"{base_url}/models", headers=headers, timeout=ASK_TIMEOUT_S)
        if status in (401, 403):
            problem = "refused the key" if key else "needs a key"
            fix = f"Run `odin provider add {base_url} --key`, which asks for it."
            raise UsageError(f"{base_url} {problem} (HTTP status {status}).", fix)
        models = _parse_models(body) if status == 200 else ()
        if models:
            return base_url, models
        seen = seen or f"{base_url}/models answered with HTTP status {status}"
    reason = f"{seen} and no list of models." if seen.endswith("200") else f"{seen}."
    raise ConfigError(
        f"No OpenAI-compatible server was found at {address.url}: {reason}", "Write the URL as in http://host:8000/v1."
    )


def _parse_models(body: bytes) -> tuple[ListedModel, ...]:
    try:
        models = parse_model_list(body)
    except (msgspec.MsgspecError, UnicodeError):
        return ()
    return tuple({model.id: model for model in models if model.id.isprintable()}.values())


def _check_name(name: str, base_url: str, settings: Mapping[str, ProviderSettings]) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name):
        raise UsageError(f"{name!r} is not a provider name.", "Use lower-case letters, digits, - and _.")
    own = settings.get(name, ProviderSettings()).base_url.rstrip("/")
    if name in PRESETS or name == BUILTIN_MODEL.provider or own not in ("", base_url):
        raise UsageError(f"There is a provider {name!r} already.", "Choose another name.")
    return name


def _choose_name(address: Address, base_url: str, settings: Mapping[str, ProviderSettings]) -> str:
    """Return the name of the provider that has this URL, or a new one after the host."""
    for name, own in settings.items():
        if own.base_url.rstrip("/") == base_url:
            return name
    host = address.host
    if address.is_loopback:
        name = f"local-{address.port}"
    elif re.fullmatch(r"[\d.]+|.*:.*", host):
        name = re.sub(r"[^a-z0-9]+", "-", f"{host}-{address.port}").strip("-")
    else:
        parts = [part for part in host.split(".") if part not in ("api", "www")]
        name = re.sub(r"[^a-z0-9_-]", "-", parts[-2] if len(parts) > 1 else parts[0] if parts else host)
    name = name.strip("-_") or "server"
    taken = {*settings, *PRESETS, BUILTIN_MODEL.provider}
    names = (name, *(f"{name}-{number}" for number in range(2, 1000)))
    return next(found for found in names if found not in taken)
