"""The question whether a folder is trusted: everything it would get is shown, and only a typed `yes` means yes."""

import contextlib
from collections.abc import Sequence
from typing import TextIO

from odin.ui.terminal import framed, put, size_of, visible

WIDE = 1_000_000
"""Columns of a page that is not shown on a terminal: nothing is folded."""

MOST = 200
"""Lines of one list that are shown. A folder that asks for more cannot be trusted from the question."""


def page(
    *, folder: str, changed: Sequence[str], starts: Sequence[str], allows: Sequence[str], columns: int = WIDE
) -> str:
    """What a folder asks for, one thing a line, with nothing hidden in it."""
    lines = [visible(folder)]
    if changed:
        lines.append(f"  changed since you trusted it: {', '.join(visible(name) for name in changed)}")
    lines.extend(_listed("these programs would start", starts, columns))
    lines.extend(_listed("this would be allowed or set", allows, columns))
    if not starts and not allows:
        lines.append("  asks for nothing that needs trust.")
    return "\n".join(lines) + "\n"


def _listed(title: str, items: Sequence[str], columns: int) -> list[str]:
    if not items:
        return []
    lines = [f"  {title}:", *(row for item in items[:MOST] for row in framed(visible(item), columns))]
    if len(items) > MOST:
        lines.append(f"  … and {len(items) - MOST} more")
    return lines


def ask(
    *,
    folder: str,
    changed: Sequence[str],
    starts: Sequence[str],
    allows: Sequence[str],
    keyboard: TextIO,
    screen: TextIO,
) -> bool:
    """Show it and ask. An empty line, the end of input and every other word mean No, and so does a list too long."""
    put(screen, "This folder brings settings of its own, which count only when you trust it:\n\n")
    columns = size_of(screen)[0]
    put(screen, page(folder=folder, changed=changed, starts=starts, allows=allows, columns=columns))
    if len(starts) > MOST or len(allows) > MOST:
        put(screen, "\nThat is too much to look through here. Going on without it.\n")
        return False
    _forget_typed(keyboard)
    put(screen, "\nTrust this folder as it is now? Type yes to trust it; all else is no [no]: ")
    try:
        answer = keyboard.readline()
    except (OSError, ValueError):
        answer = ""
    if answer.strip().casefold() == "yes":
        put(screen, "Trusted until its content changes. `odin trust remove` takes it back.\n")
        return True
    put(screen, "\n" if not answer.endswith("\n") else "")
    put(screen, "Not trusted: going on without its settings.\n")
    return False


def _forget_typed(keyboard: TextIO) -> None:
    """Keys that were pressed before the question was there do not answer it."""
    try:
        import termios
    except ImportError:  # Windows has other keyboards
        return
    with contextlib.suppress(OSError, ValueError, termios.error):
        termios.tcflush(keyboard.fileno(), termios.TCIFLUSH)
