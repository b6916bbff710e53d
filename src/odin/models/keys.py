"""API keys: which exist, where they come from, how they are, and which one is used.

The keys in a provider's settings come first, then those in the environment, then those in auth.json.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from odin.config.auth import (
    AuthFile,
    mask_key,
    read_auth_file,
    remove_keys,
    store_key,
    validate_key,
    validate_provider_name,
)
from odin.config.files import locate_value
from odin.config.paths import CONFIG_NAME, locate_key_states
from odin.core.errors import AuthFailed, OdinError, UsageError
from odin.models.catalog import (
    PRESETS,
    SettingsByProvider,
    find_key_variable,
    has_plugin,
    make_unknown_provider,
    needs_plugin,
    open_adapter,
    resolve_endpoint,
)
from odin.providers.address import set_proxy
from odin.providers.http import HttpClient
from odin.providers.settings import KEY_VARIABLE, ProviderSettings, resolve_keys, split_keys
from odin.providers.wire import FixedKey

CHECK_TIMEOUT_S = 5.0

REDIS = "redis"
"""Not a provider: its key in auth.json is the password of the Redis server."""

if TYPE_CHECKING:
    from odin.models.key_states import KeyLimits, KeyStates


class KeyEntry(Struct, frozen=True):
    """A key as shown to the user, never the key itself. `kind` is where it is stored, `used` whether it is in use.

    `state` is `healthy`, `unproven` after a failure, `cooling` for `cooldown_s` more seconds, `rejected` because of
    `reason`, or `unset` if its variable has no value. `limits` are its rate limits, while they are known.
    """

    provider: str
    kind: str
    place: str
    shown: str
    used: bool = False
    state: str = "healthy"
    cooldown_s: float = 0.0
    reason: str = ""
    limits: "KeyLimits | None" = None


def list_keys(settings: SettingsByProvider, auth: AuthFile, env: Mapping[str, str]) -> list[KeyEntry]:
    """Return every key in the order of use, with its state. The first usable one of a provider is in use."""
    from odin.models.key_states import KeyStates

    states = KeyStates.get_shared(locate_key_states(env))
    states.refresh()
    found: list[KeyEntry] = []
    for provider in dict.fromkeys([*PRESETS, *settings, *auth.raw_keys]):
        entries: dict[str, KeyEntry] = {}
        for key, entry in _list_keys(provider, settings, auth, env):
            entries.setdefault(key or entry.shown, _add_state(entry, key, states))
        lines = [*entries.values()]
        set_ones = [line for line in lines if line.state != "unset"]
        first = next(
            (line for line in lines if line.state in ("healthy", "unproven")), set_ones[0] if set_ones else None
        )
        found += [replace(line, used=line is first) for line in lines]
    return found


def _list_keys(
    provider: str, settings: SettingsByProvider, auth: AuthFile, env: Mapping[str, str]
) -> Iterator[tuple[str, KeyEntry]]:
    """Yield a provider's keys in the order of use, each with what is shown of it."""
    own = settings.get(provider, ProviderSettings())
    for text in filter(None, (own.api_key, *own.api_keys)):
        yield from _list_resolved(text, KeyEntry(provider, "settings", CONFIG_NAME, mask_key(text)), env)
    if own.base_url and (own.api_key or own.api_keys) and provider in PRESETS:
        return
    variable = find_key_variable(provider, env)
    for key in split_keys(env[variable]) if variable else ():
        yield key, KeyEntry(provider, "environment", variable, mask_key(key))
    for text in auth.raw_keys.get(provider, ()):
        yield from _list_resolved(text, KeyEntry(provider, "stored", str(auth.path), mask_key(text)), env)


def _list_resolved(text: str, entry: KeyEntry, env: Mapping[str, str]) -> Iterator[tuple[str, KeyEntry]]:
    """Yield the keys in a text. If it names a variable with several, each is shown behind the name."""
    keys = resolve_keys(text, env)
    name = f"{text} " if KEY_VARIABLE.fullmatch(text) else ""
    for key in keys or ("",):
        yield key, replace(entry, shown=f"{name}{mask_key(key)}") if len(keys) > 1 else entry


def _add_state(entry: KeyEntry, key: str, states: "KeyStates") -> KeyEntry:
    from odin.models.key_states import make_fingerprint

    if not key:
        return replace(entry, state="unset")
    name = make_fingerprint(entry.provider, key)
    known, cooldown = states.find(name), states.get_cooling_time(name)
    if known is None:
        return entry
    if known.limits is not None and known.limits.until > states.clock():
        entry = replace(entry, limits=known.limits)
    if not known.failures and not known.rejected:
        return entry
    if states.is_rejected(name):
        return replace(entry, state="rejected", reason=known.rejected)
    return (
        replace(entry, state="cooling", cooldown_s=round(cooldown, 1)) if cooldown else replace(entry, state="unproven")
    )


def find_unknown_providers(settings: SettingsByProvider, auth: AuthFile) -> Iterator[str]:
    """Yield one sentence with file and line for each provider in auth.json that does not exist."""
    for provider in auth.raw_keys:
        if provider not in (REDIS, *PRESETS, *settings) and not has_plugin(provider):
            line = locate_value(auth.path, provider)
            yield f"{auth.path}, line {line}: {make_unknown_provider(provider, settings)}"


def list_key_providers(settings: SettingsByProvider) -> tuple[str, ...]:
    """Return the providers a key can be stored for: known ones that need one, and configured ones."""
    return tuple(dict.fromkeys([*(name for name, preset in PRESETS.items() if preset.key_names), *settings]))


def add_key(provider: str, key: str, settings: SettingsByProvider, env: Mapping[str, str]) -> int:
    """Store a key and return how many the provider has. Raise UsageError for an unknown provider.

    A key that was rejected before gets another chance.
    """
    from odin.models.key_states import KeyStates, make_fingerprint

    name = check_provider(provider, settings)
    store_key(name, key, env)
    states = KeyStates.get_shared(locate_key_states(env))
    states.refresh()
    for value in resolve_keys(key.strip(), env):
        states.set(make_fingerprint(name, value), None)
    return len(read_auth_file(env).raw_keys.get(name, ()))


async def check_key(provider: str, key: str, settings: SettingsByProvider, env: Mapping[str, str]) -> str:
    """Ask the provider whether it accepts a key. Return why that is not known, or "" if it does.

    Raise UsageError if it refuses the key.
    """
    name, written = check_provider(provider, settings), validate_key(key)
    if name == REDIS and name not in settings:
        return "`odin doctor` tries it with the configured server."
    own = replace(settings.get(name, ProviderSettings()), api_key=written, api_keys=())
    if needs_plugin(name, settings):
        return "a package provides its models."
    if not resolve_keys(written, env):
        return f"{written} is not set."
    http = HttpClient(set_proxy(env, own.proxy) if own.proxy else env)
    try:
        place = resolve_endpoint(name, {**settings, name: own}, env)
        await open_adapter(place, settings, http, FixedKey(place.keys[0])).check_key(CHECK_TIMEOUT_S)
    except AuthFailed as error:
        if error.status != 403:  # a valid key may lack the right to list models
            raise UsageError(f"{error} Nothing was stored.", f"Copy the key of {name} again.") from error
        return str(error)
    except OdinError as error:
        return str(error)
    finally:
        await http.close()
    return ""


def check_provider(provider: str, settings: SettingsByProvider) -> str:
    name = validate_provider_name(provider)
    if name not in (REDIS, *PRESETS, *settings) and not has_plugin(name):
        raise make_unknown_provider(name, settings)
    return name


def forget_keys(provider: str, env: Mapping[str, str]) -> int:
    return remove_keys(validate_provider_name(provider), env)
