"""One-time codes that let somebody in: made in one place, told to a person, typed in another.

Who keeps them stores only their hashes, all with one salt, so that the time of a comparison does not tell how many
there are.
"""

import hmac
import time
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from odin.server.guard import CODE_ALPHABET, RequestLimit, TooManyRequests

CODE_TTL_S = 3600.0
MAX_CODES = 3
ATTEMPTS_PER_MINUTE = 20
ATTEMPTS_PER_ADDRESS = 5

HASH_COST = 2**14
"""The cost of scrypt, a power of 2: 16 MB and about 50 ms for each code that is tried."""

_LENGTH = 8


class HasDigest(Protocol):
    @property
    def digest(self) -> str: ...


D = TypeVar("D", bound=HasDigest)


def make_code() -> str:
    import secrets

    return "".join(secrets.choice(CODE_ALPHABET) for _ in range(_LENGTH))


def format_code(text: str) -> str:
    return f"{text[:4]}-{text[4:]}"


def read_code(typed: str) -> str:
    """Return the code as it was made, however it was typed; "" if it cannot be one."""
    text = "".join(typed.upper().replace("-", "").split())
    return text if len(text) == _LENGTH and set(text) <= set(CODE_ALPHABET) else ""


def hash_code(text: str, salt: str) -> str:
    """Return the hash of a code: slow, because a short one could be found from a fast hash within its hour."""
    import hashlib

    return hashlib.scrypt(text.encode(), salt=salt.encode(), n=HASH_COST, r=8, p=1).hex()


def find_by_digest(records: Iterable[D], digest: str) -> D | None:
    """Return the record with this digest. All are compared, so that the time tells nothing."""
    found = None
    for record in records:
        if hmac.compare_digest(record.digest, digest):
            found = record
    return found


class CodeAttempts:
    """Limits how often codes are tried, from one address and overall."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._by_address = RequestLimit(ATTEMPTS_PER_ADDRESS, ATTEMPTS_PER_ADDRESS, clock)
        self._overall = RequestLimit(ATTEMPTS_PER_MINUTE, ATTEMPTS_PER_MINUTE, clock)

    def take(self, address: str) -> None:
        """Count an attempt. Raise TooManyRequests before a code is looked at."""
        wait = max(self._by_address.get_wait(address), self._overall.get_wait())
        if wait:
            raise TooManyRequests("attempts to pair", wait)
        self._by_address.take(address)
        self._overall.take()
