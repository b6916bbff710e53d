"""Formats times, counts, amounts, texts and paths for people."""

import time
from typing import Protocol

_AGE_UNITS = ((86_400 * 365, "y"), (86_400, "d"), (3_600, "h"), (60, "min"))


def clip(text: str, limit: int) -> str:
    """Return at most `limit` characters, with an ellipsis if something is missing."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def clip_line(text: str, limit: int = 300) -> str:
    """Return the text as one line of at most `limit` characters."""
    return clip(" ".join(text.split()), limit)


def format_time(ts: float) -> str:
    """Return the local date and time to the minute."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(ts))


def format_duration(seconds: float) -> str:
    """Return `0.4 s`, `12 s`, `2 min 5 s` or `1 h 3 min`."""
    return f"{seconds:.1f} s" if seconds < 10 else format_seconds(seconds)


def format_seconds(seconds: float) -> str:
    """Return whole seconds: `4 s`, `1 min 5 s` or `2 h 3 min`."""
    whole = max(int(seconds), 0)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def format_elapsed(started: float, now: float) -> str:
    """Return the whole seconds since `started`; "" within the first second."""
    elapsed = int(now - started) if started and now > started else 0
    return format_seconds(elapsed) if elapsed else ""


def format_age(seconds: float) -> str:
    """Return an age such as `3 d` in its largest unit, or `now`."""
    for size, name in _AGE_UNITS:
        if seconds >= size:
            return f"{int(seconds // size)} {name}"
    return "now"


def pluralize(number: int, one: str, many: str = "") -> str:
    """Return `1 line` or `1,200 lines`."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def format_count(number: int) -> str:
    """Return `950`, `1.2k`, `34k` or `1.2M`."""
    for limit, unit in ((1_000_000, "M"), (1_000, "k")):
        if number >= limit * 0.9995:
            value = number / limit
            return f"{value:.1f}{unit}" if value < 9.95 else f"{value:.0f}{unit}"
    return str(number)


def format_size(count: int) -> str:
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"
        amount /= 1000
    return ""


def format_usd(amount: float) -> str:
    """Return `$1.25`; amounts below 10 cents have four decimals."""
    return f"${amount:,.2f}" if amount == 0 or amount >= 0.1 else f"${amount:,.4f}"


def shorten_home(path: str, home: str) -> str:
    """Return the path with the home directory replaced by `~`."""
    home = home.rstrip("/")
    if home and (path == home or path.startswith(f"{home}/")):
        return f"~{path[len(home) :]}"
    return path


def format_permission_mode(mode: str) -> str:
    """Return a permission mode as it is shown to users."""
    return "auto: sandboxed" if mode == "auto" else mode


def get_model_name(ref: str) -> str:
    """Return a model ref without its provider: `claude-x@high` for `anthropic/claude-x@high`.

    The built-in planner is `offline`: `planner` is a role.
    """
    if ref.startswith("offline/"):
        return "offline"
    return ref.rsplit("/", 1)[-1] or ref


class RateLimits(Protocol):
    """What is left of the requests and tokens that a provider allows; -1 if not reported."""

    @property
    def requests_left(self) -> int: ...
    @property
    def requests_limit(self) -> int: ...
    @property
    def tokens_left(self) -> int: ...
    @property
    def tokens_limit(self) -> int: ...


def describe_limits(limits: RateLimits) -> str:
    """Return `40 of 50 requests, 9,000 of 10,000 tokens left`, or "" if nothing is known."""
    pairs = (
        (limits.requests_left, limits.requests_limit, "requests"),
        (limits.tokens_left, limits.tokens_limit, "tokens"),
    )
    parts = [f"{left:,}{f' of {limit:,}' if limit > 0 else ''} {name}" for left, limit, name in pairs if left >= 0]
    return f"{', '.join(parts)} left" if parts else ""
