"""`odin usage`: the report as a table, as JSON or as CSV."""

import argparse
import os
from collections.abc import Iterable
from typing import Any

import msgspec

from odin.app.usage import UsagePeriod, parse_day, period_of_last_days, report_usage
from odin.commands.command_line import Parser, write_output
from odin.core.errors import UsageError
from odin.core.usage import USAGE_GROUPINGS, UsageReport, UsageRow
from odin.ui.terminal import escape_hidden

DEFAULT_DAYS = 30
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def run_usage(argv: list[str]) -> int:
    args = _build_parser().parse_args(argv)
    report = report_usage(
        os.environ,
        cwd=args.cwd,
        everywhere=args.everywhere,
        session=args.session,
        period=_period_of(args),
        by=args.by,
    )
    if args.json:
        return write_output(msgspec.json.encode(report).decode() + "\n")
    return write_output(format_csv(report) if args.csv else format_table(report))


def _build_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="odin usage", description="Tokens and cost of this project's sessions, by day (30 days).")
    add = parser.add_argument
    add("--today", action="store_true", help="only today")
    add("--days", type=int, metavar="N", help="the last N days, today included")
    add("--all", action="store_true", help="everything there is")
    add("--date", metavar="YYYY-MM-DD", help="one day")
    add("--from", dest="first", metavar="YYYY-MM-DD", help="from this day on")
    add("--to", dest="last", metavar="YYYY-MM-DD", help="up to this day")
    add("--by", choices=USAGE_GROUPINGS, default="day", help="what a line stands for (day)")
    add("--session", default="", metavar="ID", help="only this session; its sub-agents have names then")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--project", action="store_true", help="the sessions of this project, which is the default")
    where.add_argument("--everywhere", action="store_true", help="the sessions of all projects")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--csv", action="store_true", help="print CSV")
    add("--cwd", default="", metavar="DIR", help="the project's folder")
    return parser


def _period_of(args: argparse.Namespace) -> UsagePeriod:
    ranged = args.first is not None or args.last is not None
    chosen = [args.today, args.days is not None, args.all, args.date is not None, ranged]
    if sum(chosen) > 1:
        raise UsageError(
            "Several periods were given.", "Use one of --today, --days, --all, --date, or --from and --to."
        )
    if args.date is not None:
        day = parse_day(args.date)
        return UsagePeriod(day, day)
    if ranged:
        return UsagePeriod(parse_day(args.first) if args.first else "", parse_day(args.last) if args.last else "")
    if args.all or (args.session and not any(chosen)):
        return UsagePeriod()
    if args.days is not None and not 1 <= args.days <= 36_500:
        raise UsageError("--days is a number of days, 1 or more.")
    return period_of_last_days(1 if args.today else args.days or DEFAULT_DAYS)


def format_table(report: UsageReport) -> str:
    """For people: one line per group, the sums, and how much of the input came out of the cache."""
    if not report.rows:
        return f"Nothing was spent ({report.period}).\n"
    titles = any(row.title for row in report.rows)
    head = (report.by.upper(), "CALLS", "INPUT", "CACHE READ", "CACHE WRITE", "OUTPUT", "REASONING", "CACHED", "COST")
    lines = [head, *(_format_cells(row) for row in (*report.rows, report.total))]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    ends = ["", *(escape_hidden(row.title) for row in report.rows), ""] if titles else [""] * len(lines)
    text = "".join(
        f"{_align_cells(line, widths)}  {end}".rstrip() + "\n" for line, end in zip(lines, ends, strict=True)
    )
    if report.total.unpriced_tokens:
        text += (
            f"\n{report.total.unpriced_tokens:,} tokens are of models whose price is not known; they are in no cost. "
            "Prices can be set in models.json, see `odin models`.\n"
        )
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
    """What is not known is never shown as free."""
    if unpriced:
        return f"${usd:,.4f} + unknown" if usd else "unknown"
    return f"${usd:,.4f}"


def _align_cells(cells: Iterable[str], widths: list[int]) -> str:
    first, *rest = (
        cell.ljust(width) if at == 0 else cell.rjust(width)
        for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join([first, *rest])


def format_csv(report: UsageReport) -> str:
    import csv
    import io

    written = io.StringIO()
    table = csv.writer(written, lineterminator="\n")
    table.writerow((report.by, *UsageRow.__struct_fields__[1:]))
    for row in report.rows:
        table.writerow(_escape_formula(cell) for cell in msgspec.structs.astuple(row))
    return written.getvalue()


def _escape_formula(cell: Any) -> Any:
    """No spreadsheet takes a title for a formula: one that looks like it gets an apostrophe, which they do not show."""
    if not isinstance(cell, str):
        return "" if cell is None else cell
    text = escape_hidden(cell)
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text
