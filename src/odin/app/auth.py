"""The keys of providers: which there are, which of them is used, and where it comes from.

The settings of a provider win, because they say which key is meant; then its variables in the environment; then what is
stored in auth.json.
"""

from collections.abc import Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from odin.config.auth import Auth, checked_provider, masked, read_auth, remove_keys, store_key, value_of
from odin.config.places import CONFIG_NAME
from odin.core.errors import UsageError
from odin.providers.catalog import PRESETS
from odin.providers.settings import ProviderSettings

Settings = Mapping[str, ProviderSettings]


class KeyLine(Struct, frozen=True):
    """One key as people see it: never the key itself. `kind` is the place it is in, `used` whether it is the one."""

    provider: str
    kind: str
    place: str
    shown: str
    used: bool


def with_stored(settings: Settings, auth: Auth, env: Mapping[str, str]) -> dict[str, ProviderSettings]:
    """The settings with the stored key of each provider that has no other."""
    made = dict(settings)
    for provider, keys in auth.keys.items():
        own = made.get(provider, ProviderSettings())
        if not own.api_key and not _variable(provider, env):
            made[provider] = replace(own, api_key=keys[0])
    return made


def key_lines(settings: Settings, auth: Auth, env: Mapping[str, str]) -> list[KeyLine]:
    """Every key there is, the used one of each provider first."""
    found: list[KeyLine] = []
    for provider in dict.fromkeys([*PRESETS, *settings, *auth.written]):
        lines = list(_lines(provider, settings, auth, env))
        first = next((line for line in lines if line.used), None)
        found += [replace(line, used=line is first) for line in lines]
    return found


def _lines(provider: str, settings: Settings, auth: Auth, env: Mapping[str, str]) -> Iterator[KeyLine]:
    """In the order in which they count; those that have a value could be used."""
    own = settings.get(provider, ProviderSettings()).api_key
    if own:
        yield KeyLine(provider, "settings", CONFIG_NAME, masked(own), True)
    variable = _variable(provider, env)
    if variable:
        yield KeyLine(provider, "environment", variable, masked(env[variable].strip()), True)
    for text in auth.written.get(provider, ()):
        usable = bool(value_of(text, env))
        yield KeyLine(provider, "stored", str(auth.path), masked(text), usable)


def _variable(provider: str, env: Mapping[str, str]) -> str:
    """The variable that holds the provider's key, or ""."""
    preset = PRESETS.get(provider)
    return next((name for name in preset.key_names if env.get(name, "").strip()), "") if preset else ""


def key_providers(settings: Settings) -> tuple[str, ...]:
    """Whose keys can be stored: the known providers that need one, and the configured ones."""
    return tuple(dict.fromkeys([*(name for name, preset in PRESETS.items() if preset.key_names), *settings]))


def add_key(provider: str, key: str, settings: Settings, env: Mapping[str, str]) -> int:
    """Store a key and say how many the provider has there. Raises UsageError for a provider nobody knows."""
    name = known_provider(provider, settings)
    store_key(name, key, env)
    return len(read_auth(env).written.get(name, ()))


def known_provider(provider: str, settings: Settings) -> str:
    name = checked_provider(provider)
    known = (*PRESETS, *settings)
    if name not in known:
        raise UsageError(f"There is no provider {name!r}.", f"Known are {', '.join(dict.fromkeys(known))}.")
    return name


def forget_keys(provider: str, env: Mapping[str, str]) -> int:
    return remove_keys(checked_provider(provider), env)
