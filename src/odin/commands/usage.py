"""`odin usage`: tokens and cost as a table, JSON or CSV."""

import argparse
import io
import os
from typing import Any

import msgspec

from odin.app.usage import UsagePeriod, make_recent_period, parse_day, report_usage
from odin.commands.command_line import Parser, write_json, write_output
from odin.core.call_events import USAGE_GROUPINGS, UsageReport, UsageRow
from odin.core.errors import UsageError
from odin.ui.slash_commands.reports import describe_misses
from odin.ui.terminal import escape_hidden

DEFAULT_DAYS = 30
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def run_usage(argv: list[str]) -> int:
    parser = Parser(
        prog="odin usage",
        description="Show tokens and cost of this project's sessions (default: by day, the last 30 days).",
    )
    add = parser.add_argument
    add("--today", action="store_true", help="only today")
    add("--days", type=int, metavar="N", help="the last N days, including today")
    add("--all", action="store_true", help="all time")
    add("--date", metavar="YYYY-MM-DD", help="one day")
    add("--from", dest="first", metavar="YYYY-MM-DD", help="first day")
    add("--to", dest="last", metavar="YYYY-MM-DD", help="last day")
    add("--by", choices=USAGE_GROUPINGS, default="day", help="grouping (default: day)")
    add("--session", default="", metavar="ID", help="only this session, with its sub-agents by name")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--project", action="store_true", help="sessions of this project (default)")
    where.add_argument("--everywhere", action="store_true", help="sessions of all projects")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--csv", action="store_true", help="print CSV")
    add("--cwd", default="", metavar="DIR", help="project folder")
    args = parser.parse_args(argv)
    report = report_usage(
        os.environ,
        cwd=args.cwd,
        everywhere=args.everywhere,
        session=args.session,
        period=_make_period(args),
        by=args.by,
    )
    if args.json:
        return write_json(report)
    return write_output(format_csv(report) if args.csv else format_table(report))


def _make_period(args: argparse.Namespace) -> UsagePeriod:
    ranged = args.first is not None or args.last is not None
    chosen = [args.today, args.days is not None, args.all, args.date is not None, ranged]
    if sum(chosen) > 1:
        raise UsageError("More than one period.", "Use one of --today, --days, --all, --date, or --from and --to.")
    if args.date is not None:
        day = parse_day(args.date)
        return UsagePeriod(day, day)
    if ranged:
        return UsagePeriod(parse_day(args.first) if args.first else "", parse_day(args.last) if args.last else "")
    if args.all or (args.session and not any(chosen)):
        return UsagePeriod()
    if args.days is not None and not 1 <= args.days <= 36_500:
        raise UsageError("--days must be a number from 1 to 36500.")
    return make_recent_period(1 if args.today else args.days or DEFAULT_DAYS)


def format_table(report: UsageReport) -> str:
    """Return one line per group, the total, and a note about tokens without a price."""
    if not report.rows:
        return f"No usage ({report.period}).\n"
    titles = any(row.title for row in report.rows)
    head = (report.by.upper(), "CALLS", "INPUT", "CACHE READ", "CACHE WRITE", "OUTPUT", "REASONING", "CACHED", "COST")
    lines = [head, *(_format_cells(row) for row in (*report.rows, report.total))]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    ends = ["", *(escape_hidden(row.title) for row in report.rows), ""] if titles else [""] * len(lines)
    text = "".join(
        f"{_align_cells(line, widths)}  {end}".rstrip() + "\n" for line, end in zip(lines, ends, strict=True)
    )
    if misses := describe_misses(report.total.cache_misses):
        text += f"\n{misses[0]}\n"
    if report.total.unpriced_tokens:
        text += (
            f"\n{report.total.unpriced_tokens:,} tokens of models with unknown prices are not included in the cost. "
            "Set prices in models.json; see `odin models`.\n"
        )
    if report.total.estimated_tokens:
        text += f"\n{report.total.estimated_tokens:,} tokens are estimated: the provider did not report them.\n"
    return f"Usage, {report.period}\n\n{text}"


def _format_cells(row: UsageRow) -> tuple[str, ...]:
    counts = (row.calls, row.input, row.cache_read, row.cache_write, row.output, row.reasoning)
    rate = "" if row.cache_hit_rate is None else f"{row.cache_hit_rate:.0%}"
    return (
        escape_hidden(row.name),
        *(f"{count:,}" for count in counts),
        rate,
        format_cost(row.cost_usd, row.unpriced_tokens),
    )


def format_cost(usd: float, unpriced: int) -> str:
    """Return the cost; unknown prices never look free."""
    if unpriced:
        return f"${usd:,.4f} + unknown" if usd else "unknown"
    return f"${usd:,.4f}"


def _align_cells(cells: tuple[str, ...], widths: list[int]) -> str:
    rest = (cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))
    return "  ".join([cells[0].ljust(widths[0]), *rest])


def format_csv(report: UsageReport) -> str:
    import csv

    written = io.StringIO()
    table = csv.writer(written, lineterminator="\n")
    table.writerow((report.by, *UsageRow.__struct_fields__[1:]))
    for row in report.rows:
        *cells, _ = msgspec.structs.astuple(row)
        table.writerow([*map(_escape_formula, cells), sum(found.tokens for found in row.cache_misses.values())])
    return written.getvalue()


def _escape_formula(cell: Any) -> Any:
    """Prefix a text that a spreadsheet would run as a formula with an apostrophe, which spreadsheets hide."""
    if not isinstance(cell, str):
        return "" if cell is None else cell
    text = escape_hidden(cell)
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text
