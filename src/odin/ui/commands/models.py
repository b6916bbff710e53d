"""Models in words: how much they hold, what they cost, and the list of them."""

from collections.abc import Sequence

from odin.core.client import AvailableModel
from odin.ui.terminal import escape_hidden, shorten


def format_window(tokens: int) -> str:
    if not tokens:
        return ""
    return f"{tokens / 1_000_000:.3g}M" if tokens >= 1_000_000 else f"{tokens // 1000}k"


def format_prices(item: AvailableModel) -> str:
    """USD per million tokens in and out. What is not known is not shown as free."""
    if item.price_input is None or item.price_output is None:
        return ""
    if not item.price_input and not item.price_output:
        return "free"
    return f"${item.price_input:g} in, ${item.price_output:g} out per million"


def format_models(models: Sequence[AvailableModel], chosen: str, columns: int, words: str = "") -> str:
    """A line for each whose name or place holds the words; the one in use has a mark."""
    sought = words.casefold().split()
    fitting = [item for item in models if all(word in f"{item.ref} {item.address}".casefold() for word in sought)]
    if not fitting:
        return "No model fits these words.\n" if models else "No model is known here. /model NAME takes any name.\n"
    widest = min(max(len(item.ref) for item in fitting), 48)
    lines: list[str] = []
    for item in fitting:
        mark = "*" if item.ref == chosen else " "
        about = ", ".join(filter(None, (format_window(item.context), format_prices(item), escape_hidden(item.note))))
        lines.append(shorten(f"{mark} {escape_hidden(item.ref):<{widest}}  {about}".rstrip(), columns - 1))
    return "\n".join(lines) + "\n"
