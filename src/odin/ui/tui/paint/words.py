"""Times and amounts as people read them, and the marks of what is going on."""

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
