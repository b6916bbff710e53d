"""The trust question: shows everything that a trusted folder may do. Only a typed `yes` trusts it."""

import contextlib
from collections.abc import Sequence
from typing import TextIO

from odin.ui.terminal import escape_hidden, quote_block, size_of, write_text

UNWRAPPED_COLUMNS = 1_000_000
"""Width of a page that is not shown on a terminal: no wrapping."""

MAX_LINES = 200
"""Maximum lines of a list. A folder that needs more cannot be trusted from the question."""


def format_trust_page(
    *,
    folder: str,
    changed: Sequence[str],
    starts: Sequence[str],
    allows: Sequence[str],
    columns: int = UNWRAPPED_COLUMNS,
) -> str:
    """Return what a folder needs trust for, one escaped item per line."""
    lines = [escape_hidden(folder)]
    if changed:
        lines.append(f"  changed since you trusted it: {', '.join(escape_hidden(name) for name in changed)}")
    lines.extend(_format_list("these programs would start", starts, columns))
    lines.extend(_format_list("this would be allowed or set", allows, columns))
    if not starts and not allows:
        lines.append("  asks for nothing that needs trust.")
    return "\n".join(lines) + "\n"


def _format_list(title: str, items: Sequence[str], columns: int) -> list[str]:
    if not items:
        return []
    lines = [f"  {title}:", *(row for item in items[:MAX_LINES] for row in quote_block(escape_hidden(item), columns))]
    if len(items) > MAX_LINES:
        lines.append(f"  … and {len(items) - MAX_LINES} more")
    return lines


def ask_trust(
    *,
    folder: str,
    changed: Sequence[str],
    starts: Sequence[str],
    allows: Sequence[str],
    keyboard: TextIO,
    screen: TextIO,
) -> bool:
    """Show it and ask. An empty line, the end of input and every other word mean No, and so does a list too long."""
    write_text(screen, "This folder brings settings of its own, which count only when you trust it:\n\n")
    columns = size_of(screen)[0]
    write_text(screen, format_trust_page(folder=folder, changed=changed, starts=starts, allows=allows, columns=columns))
    if len(starts) > MAX_LINES or len(allows) > MAX_LINES:
        write_text(screen, "\nThat is too much to look through here. Going on without it.\n")
        return False
    _discard_typed(keyboard)
    write_text(screen, "\nTrust this folder as it is now? Type yes to trust it [no]: ")
    try:
        answer = keyboard.readline()
    except (OSError, ValueError):
        answer = ""
    if answer.strip().casefold() == "yes":
        write_text(screen, "Trusted until its content changes. `odin trust remove` undoes this.\n")
        return True
    write_text(screen, "\n" if not answer.endswith("\n") else "")
    write_text(screen, "Not trusted: its settings are ignored.\n")
    return False


def _discard_typed(keyboard: TextIO) -> None:
    """Discard keys that were pressed before the question was shown."""
    try:
        import termios
    except ImportError:  # Windows
        return
    with contextlib.suppress(OSError, ValueError, termios.error):
        termios.tcflush(keyboard.fileno(), termios.TCIFLUSH)
