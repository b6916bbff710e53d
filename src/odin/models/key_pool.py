"""One provider with several stored keys. A key that is rejected or rate-limited is replaced by the next one."""

import time
from collections.abc import AsyncGenerator, Callable, Sequence

from odin.config.auth import mask_key
from odin.core.errors import AllKeysCooling, AuthFailed, ProviderError, QuotaExhausted, RateLimited
from odin.core.provider import Chunk, Provider, Request, WaitChunk, open_stream

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
