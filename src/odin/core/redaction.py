"""Taking secrets out of a text."""

from collections.abc import Callable

from msgspec import Struct


class Redacted(Struct, frozen=True):
    """A text without its secrets, and what they were, by kind or by the name of their variable."""

    text: str
    found: tuple[str, ...] = ()


Redact = Callable[[str], Redacted]


def unredacted(text: str) -> Redacted:
    return Redacted(text)
