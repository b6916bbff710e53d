"""Numbers as people say them, short enough for a line that has to hold many."""

from pathlib import Path

from odin.ui.tui.paint.words import format_duration


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
