"""The trust prompt: lists what a folder's settings would start and allow. Only a typed `yes` trusts the folder."""

import contextlib
from typing import TextIO

from odin.core.interaction import TrustRequest, ask_for_trust
from odin.core.setup import TrustAnswer
from odin.ui.terminal import escape_hidden, get_terminal_size, quote_block, write_text

UNWRAPPED_COLUMNS = 1_000_000
"""Width of a page that is not shown on a terminal: no wrapping."""


def format_trust_page(request: TrustRequest, columns: int = UNWRAPPED_COLUMNS) -> str:
    """Return what the folder's settings would start and allow, one escaped item per line."""
    lines = [escape_hidden(request.folder)]
    for detail in ask_for_trust(request).details[1:]:
        lines += [f"  {detail.heading}"] if detail.heading else ()
        is_quote = detail.kind == "quote"
        lines += quote_block(detail.text, columns) if is_quote else [f"  {escape_hidden(detail.text)}"]
    return "\n".join(lines) + "\n"


def ask_trust(request: TrustRequest, keyboard: TextIO, screen: TextIO) -> TrustAnswer:
    """Show the page and ask. Only the typed word counts; a list that is too long is not asked about."""
    interaction = ask_for_trust(request)
    write_text(screen, f"{interaction.title}\n\n{format_trust_page(request, get_terminal_size(screen)[0])}")
    if len(interaction.choices) == 1:
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
