"""API keys: which exist, which one is used, where it comes from, and the pool of a provider with several stored keys.

A key in the provider's settings wins, then the environment, then auth.json. In a pool, a key that is rejected or
rate-limited is replaced by the next one.
"""

import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence

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
from odin.core.errors import AllKeysCooling, AuthFailed, ProviderError, QuotaExhausted, RateLimited
from odin.core.provider import Chunk, Provider, Request, WaitChunk, open_stream
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


DEFAULT_COOLING_S = 1.0
"""How long a rate-limited key rests if its server does not say."""


class KeyStates:
    """What a session knows about keys, whichever model they are used for.

    A rejected key, or one without credit, is not used again in this session.
    """

    def __init__(self, warn: Callable[[str], object], clock: Callable[[], float] = time.monotonic) -> None:
        self.warn = warn
        self._clock = clock
        self._rejected: set[str] = set()
        self._cools_until: dict[str, float] = {}

    def is_rejected(self, key: str) -> bool:
        return key in self._rejected

    def cooling_time_of(self, key: str) -> float:
        """Return the seconds until the key may be used again."""
        return max(0.0, self._cools_until.get(key, 0.0) - self._clock())

    def reject(self, key: str) -> None:
        self._rejected.add(key)

    def set_cooling(self, key: str, seconds: float) -> None:
        self._cools_until[key] = self._clock() + seconds


class KeyPool:
    """Sends each request with the first usable key. `providers` has one provider per key, in the order of the keys."""

    def __init__(self, providers: Sequence[tuple[str, Provider]], states: KeyStates) -> None:
        self.name = providers[0][1].name
        self._providers = tuple(providers)
        self._states = states

    async def stream(self, request: Request) -> AsyncGenerator[Chunk]:
        """Raise the error of the last key if all are rejected, and AllKeysCooling if all others are rate-limited."""
        failure: ProviderError | None = None
        while True:
            key, provider = self._choose_key(failure)
            silent = True
            try:
                async with open_stream(provider, request) as chunks:
                    async for chunk in chunks:
                        silent = silent and isinstance(chunk, WaitChunk)
                        yield chunk
            except (AuthFailed, QuotaExhausted, RateLimited) as error:
                if not silent:
                    raise
                failure = error
                self._set_aside(key, error)
            else:
                return

    async def close(self) -> None:
        for _, provider in self._providers:
            await provider.close()

    def _choose_key(self, failure: ProviderError | None) -> tuple[str, Provider]:
        states = self._states
        left = [item for item in self._providers if not states.is_rejected(item[0])]
        if not left:
            if failure is not None:
                raise failure
            left = list(self._providers)  # all were rejected before: the user may have changed that meanwhile
        waits = [states.cooling_time_of(key) for key, _ in left]
        if min(waits) > 0:
            count = "The stored key" if len(left) == 1 else f"All {len(left)} stored keys"
            reason = f"{count} of {self.name} reached the rate limit."
            raise AllKeysCooling(reason, "Try again later.", status=429, retry_after=min(waits))
        return left[waits.index(0)]

    def _set_aside(self, key: str, error: ProviderError) -> None:
        """Reject the key or let it rest, and say so if another one is used instead."""
        if isinstance(error, RateLimited):
            self._states.set_cooling(key, error.retry_after or DEFAULT_COOLING_S)
            why = "reached the rate limit"
        else:
            self._states.reject(key)
            why = "was rejected" if isinstance(error, AuthFailed) else "has no credit left"
        others = [other for other, _ in self._providers if not self._states.is_rejected(other)]
        following = next((other for other in others if not self._states.cooling_time_of(other)), "")
        if following:
            self._states.warn(
                f"The key {mask_key(key)} of {self.name} {why}. Using the next stored key, {mask_key(following)}."
            )
