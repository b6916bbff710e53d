"""The keys of one provider: which one the next request uses, and what a failure means for it.

A rate-limited key has a cooldown as long as its server says. That of a key without credit, or of one that was refused
for an unknown reason, is a minute. An invalid key is not used again. A provider with one key always uses it: the
server's answer is better than our memory.
"""

import re
from collections.abc import Callable, Sequence
from typing import Literal

from odin.config.auth import mask_key
from odin.core.call_events import KeyPoolChanged
from odin.core.errors import AllKeysCooling, AuthFailed, EmptyReply, ProviderError, QuotaExhausted, RateLimited
from odin.core.provider import RateLimitChunk
from odin.models.key_states import KeyLimits, KeyState, KeyStates, fingerprint_of
from odin.providers.settings import KeyOrder, KeyRotation
from odin.providers.wire import ApiKey

DEFAULT_COOLING_S = 1.0
"""The cooldown of a rate-limited key if its server names none; doubled with each further failure."""

MAX_DEFAULT_COOLING_S = 60.0
REFUSED_COOLING_S = 60.0

_DEAD_PATTERN = r"revoked|deactivated|disabled|suspended|expired|incorrect api key|invalid.{0,12}key"
_DEAD_CODES = ("authentication_error", "invalid_api_key", "account_deactivated")

Verdict = Literal["rejected", "quota", "limited", "refused"]
_REASONS: dict[Verdict, str] = {
    "rejected": "was rejected",
    "refused": "was refused",
    "quota": "has no credit left",
    "limited": "reached the rate limit",
}


def judge_failure(error: ProviderError) -> Verdict | None:
    """Return what a failure says about the key, or None if it says nothing."""
    if isinstance(error, RateLimited):
        return "limited"
    if isinstance(error, QuotaExhausted):
        return "quota"
    if not isinstance(error, AuthFailed) or error.status not in (0, 401, 403):
        return None
    named = error.status != 403 and any(name in _DEAD_CODES for name in (error.code, error.type))
    return "rejected" if named or re.search(_DEAD_PATTERN, str(error), re.IGNORECASE) else "refused"


class KeyPool:
    """Implements `KeySource`. `warn` is called when another key takes over."""

    def __init__(
        self,
        provider: str,
        keys: Sequence[ApiKey],
        states: KeyStates,
        warn: Callable[[str], object] = lambda text: None,
        *,
        rotation: KeyRotation = "on_failure",
        order: KeyOrder = "sequential",
    ) -> None:
        self.provider = provider
        self.keys = tuple(keys)
        self._states = states
        self._warn = warn
        self.on_limits: Callable[[RateLimitChunk], object] = lambda limits: None
        self._rotation = rotation
        self._order = order
        self._keys = list(keys) or [ApiKey()]
        if order == "random" and len(keys) > 1:
            import random

            random.shuffle(self._keys)
        self._names: dict[ApiKey, str] = {}
        self._current: ApiKey | None = None
        self._skipped: ApiKey | None = None
        self._limits: dict[ApiKey, RateLimitChunk] = {}

    # --- for the adapter: KeySource ---

    def choose(self) -> ApiKey:
        keys, states = self._keys, self._states
        if len(keys) == 1:
            return keys[0]
        states.refresh()
        left = [key for key in keys if not states.is_rejected(self._name_of(key))]
        if not left:
            left = keys  # the user may have put one right meanwhile
        usable = [key for key in left if not states.cooling_time_of(self._name_of(key))]
        if not usable:
            raise self._make_cooling_error(left)
        usable = [key for key in usable if key != self._skipped] or usable
        self._skipped = None
        self._current = self._choose_usable(usable)
        return self._current

    def record(self, key: ApiKey, error: ProviderError | None) -> bool:
        if not key.value:
            return False
        if error is None:
            self._states.refresh()
            self._states.set(self._name_of(key), None)
            return False
        if isinstance(error, EmptyReply):
            self._skipped = key
            return False
        verdict = judge_failure(error)
        if verdict is None:
            return False
        self._set_aside(key, verdict, error)
        following = next((other for other in self._keys if self._is_usable(other)), None)
        if following is None:
            cooling = [other for other in self._keys if not self._states.is_rejected(self._name_of(other))]
            if len(self._keys) > 1 and cooling:
                raise self._make_cooling_error(cooling) from error
            return False
        self._warn(
            f"The key {mask_key(key.value)} of {self.provider} {_REASONS[verdict]}. "
            f"Using the next key, {mask_key(following.value)}."
        )
        return True

    def record_limits(self, key: ApiKey, limits: RateLimitChunk) -> None:
        self._limits[key] = limits
        known = KeyLimits(
            round(self._states.clock() + limits.known_for_s, 3),
            limits.requests_left,
            limits.requests_limit,
            limits.tokens_left,
            limits.tokens_limit,
        )
        self._states.set_limits(self._name_of(key), self.provider, key.tail, known)
        self.on_limits(limits)

    # --- for displays ---

    def count(self) -> KeyPoolChanged:
        """Return how the keys are now."""
        self._states.refresh()
        names = [self._name_of(key) for key in self._keys if key.value]
        healthy = sum(self._states.is_healthy(name) and not self._states.cooling_time_of(name) for name in names)
        waits = [self._states.cooling_time_of(name) for name in names if not self._states.is_rejected(name)]
        key = self._current or next(filter(self._is_usable, self._keys), self._keys[0])
        return KeyPoolChanged(
            self.provider, healthy, len(names), key.tail, round(min(filter(None, waits), default=0.0), 1)
        )

    # --- helpers ---

    def _name_of(self, key: ApiKey) -> str:
        if key not in self._names:
            self._names[key] = fingerprint_of(self.provider, key.value)
        return self._names[key]

    def _is_usable(self, key: ApiKey) -> bool:
        name = self._name_of(key)
        return not self._states.is_rejected(name) and not self._states.cooling_time_of(name)

    def _choose_usable(self, usable: Sequence[ApiKey]) -> ApiKey:
        current = self._current
        if self._rotation == "per_request" and current is not None:
            at = self._keys.index(current) + 1
            return next(key for key in (*self._keys[at:], *self._keys[:at]) if key in usable)
        if self._order != "smart":
            return usable[0]
        return current if current is not None and current in usable else max(usable, key=self._compute_share_left)

    def _compute_share_left(self, key: ApiKey) -> float:
        """Return how much of its rate limit a key has left, from 0 to 1; 1 if unknown."""
        limits = self._limits.get(key, RateLimitChunk())
        pairs = ((limits.requests_left, limits.requests_limit), (limits.tokens_left, limits.tokens_limit))
        return min((left / limit for left, limit in pairs if left >= 0 and limit > 0), default=1.0)

    def _set_aside(self, key: ApiKey, verdict: Verdict, error: ProviderError) -> None:
        name, states = self._name_of(key), self._states
        before = states.find(name) or KeyState(self.provider)
        wait = error.retry_after or 0.0
        if verdict == "limited":
            wait = wait or min(DEFAULT_COOLING_S * 2 ** min(before.failures, 6), MAX_DEFAULT_COOLING_S)
        elif verdict != "rejected":
            wait = wait or REFUSED_COOLING_S
        state = KeyState(
            provider=self.provider,
            tail=key.tail,
            until=round(states.clock() + wait, 3),
            failures=before.failures + 1,
            rejected=str(error) or error.kind if verdict == "rejected" else "",
        )
        states.set(name, state)

    def _make_cooling_error(self, left: Sequence[ApiKey]) -> AllKeysCooling:
        wait = min(self._states.cooling_time_of(self._name_of(key)) for key in left)
        which = "The only usable key" if len(left) == 1 else f"All {len(left)} usable keys"
        verb = "is" if len(left) == 1 else "are"
        reason = f"{which} of {self.provider} {verb} in cooldown after a rate limit or a refusal."
        return AllKeysCooling(reason, "Try again later.", status=429, retry_after=wait)
