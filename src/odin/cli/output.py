"""What a command prints: its result, and what it has to say beside it."""

import sys

from odin.core.errors import OdinError


def write_output(text: str) -> int:
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]
        raise OdinError("Standard output is closed, so there is nowhere to write the list.")
    sys.stdout.write(text)
    sys.stdout.flush()
    return 0


def write_message(text: str) -> None:
    """A message. What it repeats of a file cannot steer the terminal or hide in it."""
    from odin.ui.terminal import escape_hidden

    shown = "\n".join(map(escape_hidden, text.split("\n")))
    try:
        sys.stderr.write(f"{shown}\n")
    except (OSError, ValueError):
        return
