"""The trust prompt: lists what a folder's settings would start and allow. Only a typed `yes` trusts the folder."""

import contextlib
from collections.abc import Sequence
from typing import TextIO

from odin.core.interaction import TrustRequest, ask_for_trust
from odin.core.setup import TrustAnswer
from odin.ui.terminal import escape_hidden, get_terminal_size, quote_block, write_text

UNWRAPPED_COLUMNS = 1_000_000
"""Width of a page that is not shown on a terminal: no wrapping."""

MAX_LINES = 200
"""Maximum lines of a list."""


def format_trust_page(request: TrustRequest, columns: int = UNWRAPPED_COLUMNS) -> str:
    """Return what the folder's settings would start and allow, one escaped item per line."""
    lines = [escape_hidden(request.folder)]
    if request.changed:
        lines.append(f"  changed since you trusted it: {', '.join(escape_hidden(name) for name in request.changed)}")
    lines.extend(_format_list("these programs would start", request.starts, columns))
    if request.starts:
        lines.append("  hooks and servers of this project run in the sandbox.")
    lines.extend(_format_list("this would be allowed or set", request.allows, columns))
    if not request.starts and not request.allows:
        lines.append("  nothing here needs trust.")
    return "\n".join(lines) + "\n"


def _format_list(title: str, items: Sequence[str], columns: int) -> list[str]:
    if not items:
        return []
    lines = [f"  {title}:", *(row for item in items[:MAX_LINES] for row in quote_block(escape_hidden(item), columns))]
    if len(items) > MAX_LINES:
        lines.append(f"  … and {len(items) - MAX_LINES} more")
    return lines


def is_too_long(request: TrustRequest) -> bool:
    """True if a list does not fit on the page, so the folder cannot be trusted from the prompt."""
    return max(len(request.starts), len(request.allows)) > MAX_LINES


def ask_trust(request: TrustRequest, keyboard: TextIO, screen: TextIO) -> TrustAnswer:
    """Show the page and ask. Only the typed word counts; a list that is too long is not asked about."""
    interaction = ask_for_trust(request)
    write_text(screen, f"{interaction.title}\n\n{format_trust_page(request, get_terminal_size(screen)[0])}")
    if is_too_long(request):
        write_text(screen, "\nToo much to show here: see `odin trust`. Continuing without these settings.\n")
        return "no"
    _discard_typed(keyboard)
    more = ", or network to let its servers use the network, too" if request.servers else ""
    write_text(screen, f"\nTrust this folder? Type yes to trust it{more} [no]: ")
    try:
        answer = keyboard.readline()
    except (OSError, ValueError):
        answer = ""
    word = answer.strip().casefold()
    if word != interaction.default and word in (choice.key for choice in interaction.choices):
        write_text(screen, "Trusted until these settings change. Revoke with `odin trust remove`.\n")
        return "yes" if word == "yes" else "network"
    write_text(screen, "\n" if not answer.endswith("\n") else "")
    write_text(screen, "Not trusted: its settings are ignored.\n")
    return "no"


def _discard_typed(keyboard: TextIO) -> None:
    """Discard keys that were pressed before the prompt was shown."""
    try:
        import termios
    except ImportError:  # Windows
        return
    with contextlib.suppress(OSError, ValueError, termios.error):
        termios.tcflush(keyboard.fileno(), termios.TCIFLUSH)
