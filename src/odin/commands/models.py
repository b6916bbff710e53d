"""`odin models`: list available models, or refresh the model catalog."""

import asyncio
import os
from collections.abc import Mapping, Sequence

from odin.commands.command_line import REDIRECTED_COLUMNS, Parser, get_stdout, make_formatter, write_json, write_output
from odin.config import get_config_dir, get_current_folder, load
from odin.core.client import AvailableModel
from odin.core.errors import UsageError
from odin.core.format import pluralize
from odin.models.catalog import PRESETS
from odin.models.connector import OVERRIDES_NAME, ModelConnector
from odin.ui.terminal import TextPainter, escape_hidden, get_terminal_size, shorten, wrap_words

_HEADINGS = ("MODEL", "CONTEXT", "TOOLS", "INPUT", "OUTPUT", "WHERE")

EPILOG = """\
commands:
  odin models [list]              list available models
  odin models refresh [SOURCE]    fetch models and prices from a URL or a file and keep them (default: the catalog_url
                                  of your settings, else https://models.dev/api.json)
"""


def run_models(argv: list[str]) -> int:
    parser = Parser(
        prog="odin models",
        description="List available models, including servers on this machine, or refresh the catalog of models.",
        epilog=EPILOG,
        formatter_class=make_formatter,
    )
    parser.add_argument("what", nargs="?", choices=("list", "refresh"), default="list", help="(default: list)")
    parser.add_argument("source", nargs="?", default="", metavar="SOURCE", help="the URL or the file of a catalog")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args(argv)
    if args.what == "list" and args.source:
        raise UsageError("`odin models list` takes no argument.", "See `odin models --help`.")
    return _refresh_catalog(args.source, as_json=args.json) if args.what == "refresh" else _list_models(args.json)


def _refresh_catalog(source: str, *, as_json: bool) -> int:
    from odin.models.catalog_refresh import refresh_catalog

    config = load(get_current_folder(), os.environ)
    done = asyncio.run(refresh_catalog(source or config.catalog_url, config.providers, os.environ))
    if as_json:
        return write_json(done)
    skipped = f" {pluralize(done.skipped, 'invalid entry', 'invalid entries')} skipped." if done.skipped else ""
    found = f"{pluralize(done.models, 'model')} of {pluralize(done.providers, 'provider')}"
    return write_output(f"Stored {found} from {escape_hidden(done.source)} in {escape_hidden(done.file)}.{skipped}\n")


def _list_models(as_json: bool) -> int:
    rows, remarks = asyncio.run(list_models(os.environ, get_current_folder()))
    if as_json:
        return write_json(rows)
    out = get_stdout()
    columns = get_terminal_size(out)[0] if out.isatty() else REDIRECTED_COLUMNS
    painter = TextPainter(out)
    lines = (wrap_words(escape_hidden(line), columns) for line in (*remarks, *_list_hints()))
    notes = "".join(f"{painter.paint(line, 'dim')}\n" for line in lines)
    pools = "".join(escape_hidden(f"{row.ref} ({row.note})") + "\n" for row in rows if row.pool)
    head, _, table = format_models([row for row in rows if not row.pool], columns).partition("\n")
    return write_output(f"{painter.paint(head, 'bold')}\n{table}\n{pools}{notes}")


def format_models(rows: Sequence[AvailableModel], columns: int) -> str:
    """Return the models as a table that fits into the columns."""
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
    keys = ", ".join(preset.key_names[0] for preset in PRESETS.values() if preset.key_names)
    return (
        f"Prices are US dollars per million tokens; {get_config_dir(os.environ) / OVERRIDES_NAME} can correct them.",
        f"More appear with a key: in the environment ({keys}), stored with `odin auth add`, or in providers of your "
        "odinconfig.json.",
    )


async def list_models(env: Mapping[str, str], cwd: str) -> tuple[tuple[AvailableModel, ...], tuple[str, ...]]:
    """Return all usable models, including those of local servers, and remarks: what is wrong with the lists of models,
    and how old the prices are."""
    from odin.models.catalog_refresh import describe_catalog

    models = ModelConnector(load(cwd, env), env)
    try:
        found = await models.list_available("all")
        return found, tuple(filter(None, (*models.list_problems, *models.warnings, describe_catalog(models.catalog))))
    finally:
        await models.close()
