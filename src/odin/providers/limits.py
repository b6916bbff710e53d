"""What an answer's headers say is left of a provider's rate limits."""

from collections.abc import Mapping

from odin.core.provider import RateLimitChunk
from odin.providers.faults import parse_reset_delay

_HEADER_FORMS = ("anthropic-ratelimit-{what}-{field}", "x-ratelimit-{field}-{what}")


def parse_rate_limits(headers: Mapping[str, str], now: float) -> RateLimitChunk | None:
    """The limits, or None when the headers tell of none."""
    if not any("ratelimit" in name for name in headers):
        return None

    def number(what: str, field: str) -> int:
        text = _read_limit_header(headers, what, field)
        return int(text) if text.isdecimal() and len(text) < 16 else -1

    resets = [
        parse_reset_delay(text, now)
        for what in ("requests", "tokens")
        if (text := _read_limit_header(headers, what, "reset"))
    ]
    found = RateLimitChunk(
        requests_left=number("requests", "remaining"),
        requests_limit=number("requests", "limit"),
        tokens_left=number("tokens", "remaining"),
        tokens_limit=number("tokens", "limit"),
        reset_s=round(max((wait for wait in resets if wait is not None), default=0.0), 3),
    )
    return None if found == RateLimitChunk(reset_s=found.reset_s) else found


def _read_limit_header(headers: Mapping[str, str], what: str, field: str) -> str:
    return next(
        (text.strip() for form in _HEADER_FORMS if (text := headers.get(form.format(what=what, field=field)))), ""
    )
