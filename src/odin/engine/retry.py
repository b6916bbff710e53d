"""How long to wait before asking the model again, and when to stop asking."""

import msgspec

from odin.core.errors import EmptyReply, ProviderError


class RetryPolicy(msgspec.Struct, frozen=True):
    """Doubling delays with jitter. The server's own Retry-After wins when it asks for more.

    A wait longer than `max_s` is not sat out in silence: the error is reported instead, with the time it names.
    """

    attempts: int = 6
    empty_attempts: int = 2
    base_s: float = 0.5
    max_s: float = 60.0

    def max_attempts_of(self, error: ProviderError) -> int:
        """How many times a call that fails like this is made at most."""
        return min(self.attempts, self.empty_attempts) if isinstance(error, EmptyReply) else self.attempts

    def compute_delay(self, error: ProviderError, attempt: int) -> float | None:
        """Seconds to wait after failed attempt number `attempt` (from 1), or None to give up."""
        if not error.retryable or attempt >= self.max_attempts_of(error):
            return None
        asked = error.retry_after or 0.0
        if asked > self.max_s:
            return None
        import random

        backoff = min(self.max_s, self.base_s * 2 ** (attempt - 1))
        return min(self.max_s, max(asked, backoff) * random.uniform(1.0, 1.25))
