"""Taking secrets out of a text."""

from collections.abc import Callable

from msgspec import Struct


class RedactedText(Struct, frozen=True):
    """A text without its secrets, and what they were, by kind or by the name of their variable."""

    text: str
    secrets: tuple[str, ...] = ()


Redact = Callable[[str], RedactedText]


def redact_nothing(text: str) -> RedactedText:
    return RedactedText(text)
