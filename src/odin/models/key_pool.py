"""The keys of one provider: which one the next request uses, and what a failure means for it.

A rate-limited key has a cooldown as long as its server says. That of a key without credit, or of one that was refused
for an unknown reason, is a minute. An invalid key is not used for a day. A request uses each key once: if all of them
fail, it is the retry that waits. A provider with one key always uses it: the server's answer is better than our memory.
"""

import re
from collections.abc import Callable, Sequence
from typing import Literal

from odin.config.auth import mask_key
from odin.core.call_events import KeyPoolChanged
from odin.core.errors import (
    AllKeysCooling,
    AuthFailed,
    EmptyReply,
    NoUsableKeys,
    ProviderError,
    QuotaExhausted,
    RateLimited,
)
from odin.core.provider import RateLimitChunk
from odin.models.key_states import MAX_COOLDOWN_S, KeyLimits, KeyState, KeyStates, make_fingerprint
from odin.providers.settings import KeyOrder, KeyRotation
from odin.providers.wire import ApiKey, KeyAttempts

DEFAULT_COOLING_S = 1.0
"""The cooldown of a rate-limited key if its server names none, and doubled with each further failure, the least one."""

MAX_DEFAULT_COOLING_S = 60.0
REFUSED_COOLING_S = 60.0
DAY_S = 86_400.0
"""How long an invalid key is not used, and the longest cooldown after a rate limit."""

_OWNER_PATTERN = r"\b(?:key|token|account|organi[sz]ation)s?\b"
_GONE_PATTERN = r"\b(?:revoked|deactivated|disabled|suspended|expired|leaked)\b"
_DEAD_PATTERN = (
    rf"{_OWNER_PATTERN}[^.:]{{0,40}}{_GONE_PATTERN}|{_GONE_PATTERN}[^.:]{{0,20}}{_OWNER_PATTERN}|"
    r"incorrect api key|invalid.{0,12}key|key not valid"
)
_DEAD_CODES = ("authentication_error", "invalid_api_key", "account_deactivated", "API_KEY_INVALID")

KeyFailure = Literal["rejected", "quota", "limited", "refused"]
_REASONS: dict[KeyFailure, str] = {
    "rejected": "was rejected",
    "refused": "was refused",
    "quota": "has no credit left",
    "limited": "reached the rate limit",
}


def classify_failure(error: ProviderError) -> KeyFailure | None:
    """Return what a failure says about the key, or None if it says nothing."""
    if isinstance(error, RateLimited):
        return "limited"
    if isinstance(error, QuotaExhausted):
        return "quota"
    if not isinstance(error, AuthFailed) or error.status == 407:
        return None
    named = error.status != 403 and any(name in _DEAD_CODES for name in (error.code, error.type))
    return "rejected" if named or re.search(_DEAD_PATTERN, str(error), re.IGNORECASE) else "refused"


class KeyPool:
    """Implements `KeySource`. `warn` is called when another key takes over.

    `on_limits` is called with the rate limits of a key, `on_chosen` when another key than before is in use.
    """

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
        self.on_chosen: Callable[[], object] = lambda: None
        self._rotation = rotation
        self._order = order
        self._keys = list(keys) or [ApiKey()]
        if order == "random" and len(keys) > 1:
            import random

            random.shuffle(self._keys)
        self._names: dict[ApiKey, str] = {}
        self._current: ApiKey | None = None
        self._skipped: ApiKey | None = None

    # --- for the adapter: KeySource ---

    def choose(self, attempts: KeyAttempts | None = None) -> ApiKey:
        if len(self._keys) == 1:
            return self._keys[0]
        attempts = attempts or KeyAttempts()
        self._states.refresh()
        left = self._list_accepted() or self._keys  # the user may have put one right meanwhile
        usable = [key for key in left if key not in attempts.failed and not self._get_cooling_time(key)]
        if not usable:
            raise self._make_cooling_error(left)
        shown = self._find_in_use()
        self._current = self._choose_usable(usable)
        self._skipped = None
        attempts.marks[self._current] = self._states.get_failure_mark(self._get_name(self._current))
        if self._current != shown:
            self.on_chosen()
        return self._current

    def record(self, key: ApiKey, error: ProviderError | None, attempts: KeyAttempts) -> bool:
        if not key.value:
            return False
        if isinstance(error, EmptyReply):
            self._skipped = key
            return False
        failure = classify_failure(error) if error is not None else None
        if error is not None and failure is None:
            return False
        self._states.refresh()
        name = self._get_name(key)
        is_newest = attempts.marks.get(key) in (None, self._states.get_failure_mark(name))
        if error is None or failure is None:
            if is_newest:  # else the key has failed since this request was sent
                self._states.set(name, None)
            return False
        attempts.failed.add(key)
        # Do not use the key for some time. A failure since this request was sent is the same one: it counts once.
        before = self._states.find(name) or KeyState(self.provider)
        until = round(self._states.clock() + _compute_cooldown(failure, error, before.failures if is_newest else 0), 3)
        rejected = str(error) or error.kind if failure == "rejected" else ""
        state = KeyState(
            provider=self.provider,
            tail=key.tail,
            until=until if is_newest else max(until, before.until),
            failures=before.failures + is_newest,
            rejected=rejected if is_newest else rejected or before.rejected,
        )
        self._states.set(name, state)
        usable = [other for other in self._list_accepted() if not self._get_cooling_time(other)]
        following = [other for other in usable if other not in attempts.failed]
        if not following:
            if len(self._keys) > 1:
                raise self._make_last_error(error) from error
            return False
        self._warn(
            f"The key {mask_key(key.value)} of {self.provider} {_REASONS[failure]}. "
            f"Using the next key, {mask_key(self._choose_usable(following).value)}."
        )
        return True

    def record_limits(self, key: ApiKey, limits: RateLimitChunk) -> None:
        known = KeyLimits(
            round(self._states.clock() + limits.known_for_s, 3),
            limits.requests_left,
            limits.requests_limit,
            limits.tokens_left,
            limits.tokens_limit,
        )
        self._states.set_limits(self._get_name(key), self.provider, key.tail, known)
        self.on_limits(limits)

    # --- for displays ---

    def count(self) -> KeyPoolChanged:
        """Return how the keys are now, and which one is in use."""
        self._states.refresh()
        names = [self._get_name(key) for key in self._keys if key.value]
        healthy = sum(self._states.is_healthy(name) and not self._states.get_cooling_time(name) for name in names)
        waits = [self._states.get_cooling_time(name) for name in names]
        next_s = round(min(filter(None, waits), default=0.0), 1)
        return KeyPoolChanged(self.provider, healthy, len(names), self._find_in_use().tail, next_s)

    def find_limits(self) -> RateLimitChunk | None:
        """Return the rate limits of the key in use that are saved for all sessions, while they are known."""
        key = self._find_in_use()
        state = self._states.find(self._get_name(key))
        known = state.limits if state is not None else None
        left_s = round(known.until - self._states.clock(), 1) if known is not None else 0.0
        if known is None or left_s <= 0:
            return None
        return RateLimitChunk(
            known.requests_left, known.requests_limit, known.tokens_left, known.tokens_limit, left_s, key.tail
        )

    # --- helpers ---

    def _get_name(self, key: ApiKey) -> str:
        if key not in self._names:
            self._names[key] = make_fingerprint(self.provider, key.value)
        return self._names[key]

    def _get_cooling_time(self, key: ApiKey) -> float:
        return self._states.get_cooling_time(self._get_name(key))

    def _list_accepted(self) -> list[ApiKey]:
        """Return the keys that were not rejected."""
        return [key for key in self._keys if not self._states.is_rejected(self._get_name(key))]

    def _find_in_use(self) -> ApiKey:
        """Return the key of the last request if it can be used again, else the one that the next request uses."""
        usable = [key for key in self._list_accepted() if not self._get_cooling_time(key)]
        if self._current in usable or not usable:
            return self._current or self._keys[0]
        return self._choose_usable(usable)

    def _choose_usable(self, usable: Sequence[ApiKey]) -> ApiKey:
        usable = [key for key in usable if key != self._skipped] or usable
        current = self._current
        if self._rotation == "per_request" and current is not None:
            at = self._keys.index(current) + 1
            usable = [key for key in (*self._keys[at:], *self._keys[:at]) if key in usable]
        elif self._order == "smart" and current is not None and current in usable:
            return current
        return max(usable, key=self._compute_share_left) if self._order == "smart" else usable[0]

    def _compute_share_left(self, key: ApiKey) -> float:
        """Return how much of its rate limit a key has left, from 0 to 1; 1 if unknown."""
        state = self._states.find(self._get_name(key))
        limits = state.limits if state is not None else None
        if limits is None or limits.until <= self._states.clock():
            return 1.0
        pairs = ((limits.requests_left, limits.requests_limit), (limits.tokens_left, limits.tokens_limit))
        return min((left / limit for left, limit in pairs if left >= 0 and limit > 0), default=1.0)

    def _make_last_error(self, error: ProviderError) -> ProviderError:
        """Return the error for a request that no key is left for."""
        if accepted := self._list_accepted():
            return self._make_cooling_error(accepted)
        what = f"All {len(self._keys)} keys of {self.provider} were rejected, the last one because: {error}"
        return NoUsableKeys(what, error.hint, status=error.status, code=error.code, type=error.type)

    def _make_cooling_error(self, left: Sequence[ApiKey]) -> AllKeysCooling:
        wait = min(map(self._get_cooling_time, left))
        which = "The only usable key" if len(left) == 1 else f"All {len(left)} usable keys"
        verb = "is" if len(left) == 1 else "are"
        reason = f"{which} of {self.provider} {verb} in cooldown after a rate limit or a refusal."
        return AllKeysCooling(reason, "Try again later.", status=429, retry_after=wait)


def _compute_cooldown(failure: KeyFailure, error: ProviderError, failures: int) -> float:
    """Return for how many seconds a key is not used; `failures` counts the earlier ones."""
    asked = error.retry_after or 0.0
    if failure == "rejected":
        return DAY_S
    if failure == "quota":
        return min(asked or REFUSED_COOLING_S, MAX_COOLDOWN_S)
    if failure == "refused":
        return min(asked or REFUSED_COOLING_S, DAY_S)
    usual = min(DEFAULT_COOLING_S * 2 ** min(failures, 6), MAX_DEFAULT_COOLING_S)
    return min(max(asked, usual) if failures or not asked else asked, DAY_S)
