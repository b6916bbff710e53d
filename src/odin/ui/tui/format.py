"""Times and amounts as people read them, and the marks of what is going on.

Numbers as people say them, short enough for a line that has to hold many.

How long ago something was, in as few letters as people need.
"""

from pathlib import Path

_SPINNER = "◐◓◑◒"
SPINNER_S = 0.4
"""How long each picture of the turning mark stays."""


def format_duration(seconds: float) -> str:
    """`0.4 s`, `12 s`, `2 min 5 s`, `1 h 3 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def format_elapsed(started: float, now: float) -> str:
    """How long something goes on already, in whole seconds; "" in its first one."""
    passed = int(now - started) if started and now > started else 0
    if passed < 1:
        return ""
    return f"{passed} s" if passed < 60 else format_duration(passed)


def spinner_of(now: float) -> str:
    return _SPINNER[int(now / SPINNER_S) % len(_SPINNER)]


def count_of(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def format_tokens(number: int) -> str:
    if number < 1_000:
        return f"{number} tokens"
    return f"{number / 1_000:.1f}k tokens" if number < 1_000_000 else f"{number / 1_000_000:.1f}M tokens"


def format_seconds(seconds: float) -> str:
    """What is counted up, in whole seconds and spelled like every other time: `4 s`, `1 min 5 s`, `2 h 3 min`."""
    whole = max(int(seconds), 0)
    return f"{whole} s" if whole < 60 else format_duration(whole)


def format_count(number: int) -> str:
    """`950`, `1.2k`, `34k`, `1.2M`."""
    for limit, unit in ((1_000_000, "M"), (1_000, "k")):
        if number >= limit * 0.9995:
            value = number / limit
            return f"{value:.1f}{unit}" if value < 9.95 else f"{value:.0f}{unit}"
    return str(number)


def format_usd(amount: float) -> str:
    return f"${amount:,.2f}" if amount == 0 or amount >= 0.1 else f"${amount:,.4f}"


def shorten_home(path: str) -> str:
    """The home folder as `~`."""
    home = str(Path("~").expanduser()).rstrip("/")
    if home and (path == home or path.startswith(f"{home}/")):
        return f"~{path[len(home) :]}"
    return path


def model_name_of(ref: str) -> str:
    """A model without the name of its provider: `anthropic/claude-x` as `claude-x`."""
    return ref.rsplit("/", 1)[-1] or ref


_AGE_UNITS = ((86_400 * 365, "y"), (86_400, "d"), (3_600, "h"), (60, "min"))


def format_age(seconds: float) -> str:
    """`3 d` for three days."""
    for size, name in _AGE_UNITS:
        if seconds >= size:
            return f"{int(seconds // size)} {name}"
    return "now"
