"""API keys: which exist, which one is used, and where it comes from.

A key in the provider's settings wins, then the environment, then auth.json.
"""

from collections.abc import Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from odin.config.auth import (
    AuthFile,
    mask_key,
    read_auth_file,
    remove_keys,
    resolve_key,
    store_key,
    validate_provider_name,
)
from odin.config.paths import CONFIG_NAME
from odin.models.catalog import PRESETS, SettingsByProvider, make_unknown_provider
from odin.providers.settings import ProviderSettings


class KeyEntry(Struct, frozen=True):
    """A key as shown to the user, never the key itself. `kind` is where it is stored, `used` whether it is in use."""

    provider: str
    kind: str
    place: str
    shown: str
    used: bool


def add_stored_keys(
    settings: SettingsByProvider, auth: AuthFile, env: Mapping[str, str]
) -> dict[str, ProviderSettings]:
    """Return the settings with the stored key added for each provider that has no other."""
    made = dict(settings)
    for provider in auth.keys:
        keys = list_stored_keys(provider, settings, auth, env)
        if keys:
            made[provider] = replace(made.get(provider, ProviderSettings()), api_key=keys[0])
    return made


def list_stored_keys(
    provider: str, settings: SettingsByProvider, auth: AuthFile, env: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the stored keys that are used for a provider: none if it has another."""
    if settings.get(provider, ProviderSettings()).api_key or _find_key_variable(provider, env):
        return ()
    return auth.keys.get(provider, ())


def list_keys(settings: SettingsByProvider, auth: AuthFile, env: Mapping[str, str]) -> list[KeyEntry]:
    """Return every key, the one in use first per provider."""
    found: list[KeyEntry] = []
    for provider in dict.fromkeys([*PRESETS, *settings, *auth.raw_keys]):
        lines = list(_list_keys_of(provider, settings, auth, env))
        first = next((line for line in lines if line.used), None)
        found += [replace(line, used=line is first) for line in lines]
    return found


def _list_keys_of(
    provider: str, settings: SettingsByProvider, auth: AuthFile, env: Mapping[str, str]
) -> Iterator[KeyEntry]:
    """Yield a provider's keys in order of precedence."""
    own = settings.get(provider, ProviderSettings()).api_key
    if own:
        yield KeyEntry(provider, "settings", CONFIG_NAME, mask_key(own), True)
    variable = _find_key_variable(provider, env)
    if variable:
        yield KeyEntry(provider, "environment", variable, mask_key(env[variable].strip()), True)
    for text in auth.raw_keys.get(provider, ()):
        usable = bool(resolve_key(text, env))
        yield KeyEntry(provider, "stored", str(auth.path), mask_key(text), usable)


def _find_key_variable(provider: str, env: Mapping[str, str]) -> str:
    """Return the environment variable that holds the provider's key, or ""."""
    preset = PRESETS.get(provider)
    return next((name for name in preset.key_names if env.get(name, "").strip()), "") if preset else ""


def list_key_providers(settings: SettingsByProvider) -> tuple[str, ...]:
    """Return the providers a key can be stored for: known ones that need one, and configured ones."""
    return tuple(dict.fromkeys([*(name for name, preset in PRESETS.items() if preset.key_names), *settings]))


def add_key(provider: str, key: str, settings: SettingsByProvider, env: Mapping[str, str]) -> int:
    """Store a key and return how many the provider has. Raise UsageError for an unknown provider."""
    name = check_provider(provider, settings)
    store_key(name, key, env)
    return len(read_auth_file(env).raw_keys.get(name, ()))


def check_provider(provider: str, settings: SettingsByProvider) -> str:
    name = validate_provider_name(provider)
    if name not in (*PRESETS, *settings):
        raise make_unknown_provider(name, settings)
    return name


def forget_keys(provider: str, env: Mapping[str, str]) -> int:
    return remove_keys(validate_provider_name(provider), env)
