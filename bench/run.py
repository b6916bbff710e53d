"""`make bench`: compare Odin with the minimum for any program, in one pass on one machine.

Machines are noisy, so both run alternately and the ratio of the medians, or of the fastest rounds, counts. A group that
misses a bound is measured once more; a row counts as missed if it misses its bound both times. The exit code is 1 then.
docs/benchmarks.md explains the bounds.

    run.py [--only GROUP]... [--rounds N] [--floor FILE] [--files N] [--json]
    run.py --sizes        print the size of each tool in the first request
"""

import argparse
import importlib
import json
import subprocess
import sys
from pathlib import Path

from row import Row, table

HERE = Path(__file__).resolve().parent
GROUPS = (
    "agent",
    "team",
    "app",
    "screen",
    "search",
    "bigtree",
    "mentions",
    "cache",
    "edit",
    "lsp",
    "servers",
    "watchers",
    "page",
    "acp",
    "fleet",
    "gateway",
    "commands",
    "views",
    "cancel",
    "speculate",
    "classify",
    "pools",
    "sessions",
    "endurance",
    "prompt_cache",
    "idle",
    "history",
)


def measure(group: str, args: argparse.Namespace) -> list[Row]:
    """Measure a group in a process of its own, so that nothing another group leaves behind counts."""
    command = [sys.executable, __file__, "--child", group, f"--rounds={args.rounds}", f"--files={args.files}"]
    done = subprocess.run([*command, f"--floor={args.floor}"], stdout=subprocess.PIPE, check=True)
    return [Row(**row) for row in json.loads(done.stdout.splitlines()[-1])]


def measure_here(group: str, args: argparse.Namespace) -> list[Row]:
    """Measure a group. It is a module with a function `rows`."""
    module = importlib.import_module(group)
    if group == "agent":
        return module.rows(args.rounds, args.floor)
    if group == "bigtree":
        return module.rows(args.rounds, args.files)
    return [Row(*row) for row in module.rows()]


def measure_twice(group: str, args: argparse.Namespace) -> list[Row]:
    """Measure a group, and once more if a bound is missed: then each missed row is replaced by its second result."""
    rows = measure(group, args)
    missed = [row.what for row in rows if not row.good]
    if not missed:
        return rows
    print(f"{group}: measuring again, because of: {'; '.join(missed)}", file=sys.stderr, flush=True)
    again = measure(group, args)
    return [row if row.good else other for row, other in zip(rows, again, strict=True)]


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare Odin with the least that any program could take.")
    parser.add_argument("--only", action="append", choices=GROUPS, metavar="GROUP", help=", ".join(GROUPS))
    parser.add_argument("--child", choices=GROUPS, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--floor", type=Path, default=HERE / "floor.py")
    parser.add_argument(
        "--files", type=int, default=50_000, help="files in the big workspace (the bound is for 300000)"
    )
    parser.add_argument("--sizes", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.sizes:
        import sizes

        print(sizes.table())
        return 0
    if args.child:
        print(json.dumps([row._asdict() for row in measure_here(args.child, args)]))
        return 0
    rows: list[Row] = []
    for group in args.only or GROUPS:
        rows += measure_twice(group, args)
    print(json.dumps([row._asdict() for row in rows]) if args.json else table(rows))
    return 0 if all(row.good for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
