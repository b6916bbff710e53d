"""`odin models`: list available models."""

import asyncio
import os
import sys
from collections.abc import Sequence

from odin.commands.command_line import Parser, write_json, write_output
from odin.config import get_config_dir, get_current_folder
from odin.core.client import AvailableModel

_REDIRECTED_COLUMNS = 1000
_HEADINGS = ("MODEL", "CONTEXT", "TOOLS", "INPUT", "OUTPUT", "WHERE")


def run_models(argv: list[str]) -> int:
    parser = Parser(prog="odin models", description="List available models, including servers on this machine.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args(argv)
    from odin.models.probe import list_models

    rows, problems = asyncio.run(list_models(os.environ, get_current_folder()))
    if args.json:
        return write_json(rows)
    from odin.ui.terminal import size_of, wrap_words

    columns = size_of(sys.stdout)[0] if sys.stdout.isatty() else _REDIRECTED_COLUMNS
    notes = "".join(f"{wrap_words(line, columns)}\n" for line in (*problems, *_list_hints()))
    return write_output(f"{format_models(rows, columns)}\n{notes}")


def format_models(rows: Sequence[AvailableModel], columns: int) -> str:
    """Return the models as a table that fits into the columns."""
    from odin.ui.terminal import escape_hidden, shorten

    lines = [_HEADINGS, *(tuple(map(escape_hidden, _format_cells(row))) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ""
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        text += shorten("  ".join(cells).rstrip(), columns - 1) + "\n"
    return text


def _format_cells(row: AvailableModel) -> tuple[str, ...]:
    context = f"{row.context:,}" if row.context else ""
    prices = (_format_price(row.price_input), _format_price(row.price_output))
    return row.ref, context, row.tools, *prices, row.address


def _format_price(price: float | None) -> str:
    if price is None:
        return "unknown"
    return f"${price:g}" if price else "free"


def _list_hints() -> tuple[str, ...]:
    from odin.models.catalog import PRESETS
    from odin.models.selection import OVERRIDES_NAME

    keys = ", ".join(preset.key_names[0] for preset in PRESETS.values() if preset.key_names)
    return (
        f"Prices are US dollars per million tokens; {get_config_dir(os.environ) / OVERRIDES_NAME} can correct them.",
        f"More appear with a key: in the environment ({keys}), stored with `odin auth add`, or in providers of your "
        "odinconfig.json.",
    )
