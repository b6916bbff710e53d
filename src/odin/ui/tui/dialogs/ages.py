"""How long ago something was, in as few letters as people need."""

_AGE_UNITS = ((86_400 * 365, "y"), (86_400, "d"), (3_600, "h"), (60, "min"))


def format_age(seconds: float) -> str:
    """`3 d` for three days."""
    for size, name in _AGE_UNITS:
        if seconds >= size:
            return f"{int(seconds // size)} {name}"
    return "now"
