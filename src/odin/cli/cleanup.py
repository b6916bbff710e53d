"""`odin cleanup`: what Odin keeps on disk. Nothing is removed without --yes."""

import argparse
import os
import time
from typing import TYPE_CHECKING, Any

from odin.cli.output import write_message, write_output
from odin.cli.parser import Parser, make_formatter
from odin.core.errors import UsageError
from odin.ui.terminal import escape_hidden, shorten

if TYPE_CHECKING:
    from odin.app.cleanup import CleanupItem, Retention

DEFAULT_AGE = "30d"

EPILOG = """\
  odin cleanup [status]       what there is and how much room it takes
  odin cleanup sessions       sessions of this project older than 30 days; --all for every project
  odin cleanup cache          what can be made again
  odin cleanup logs           what Odin wrote down about its own failures
  odin cleanup project        everything of this project: its sessions, checkpoints and removed work trees

Without --yes it is only said what would go. Sessions that are open stay, and so does what deleted ones have cost.
"""


def run_cleanup(argv: list[str]) -> int:
    args = _parse_args(argv)
    from odin.app.cleanup import Cleanup

    cleanup = Cleanup(os.environ, args.cwd)
    if args.what == "status":
        return _print_usage(args, cleanup)
    keep = _retention_of(args)
    if args.what == "sessions":
        going = cleanup.find_sessions(keep, everywhere=args.all)
    else:
        going = {
            "cache": cleanup.find_cache_files,
            "logs": cleanup.find_log_files,
            "project": cleanup.find_project_data,
        }[args.what](keep)
    if not args.yes:
        return _print_items(args, going)
    done = cleanup.remove(going)
    refused = any(after.why_not and not before.why_not for before, after in zip(going, done, strict=True))
    return _print_items(args, done) or int(refused)


def _parse_args(argv: list[str]) -> argparse.Namespace:
    parser = Parser(
        prog="odin cleanup", description="What Odin keeps on disk.", epilog=EPILOG, formatter_class=make_formatter
    )
    add = parser.add_argument
    kinds = ("status", "sessions", "cache", "logs", "project")
    add("what", nargs="?", choices=kinds, default="status", metavar="WHAT", help="(status)")
    add("--older-than", default="", metavar="TIME", help="only what is older: 30d, 12h or 2w")
    add("--keep", type=int, default=0, metavar="N", help="keep the newest N sessions of a project, however old")
    add("--all", action="store_true", help="sessions: of all projects")
    add("-y", "--yes", action="store_true", help="remove it")
    add("--json", action="store_true", help="print JSON")
    add("--cwd", default="", metavar="DIR", help="the project's folder")
    args = parser.parse_args(argv)
    if args.keep < 0:
        raise UsageError("--keep is a number of sessions.")
    if args.all and args.what != "sessions":
        raise UsageError("--all is for `odin cleanup sessions`.")
    return args


def _retention_of(args: argparse.Namespace) -> "Retention":
    """Old sessions only, unless something else was said."""
    from odin.app.cleanup import Retention, seconds_of

    said = args.older_than or (DEFAULT_AGE if args.what == "sessions" and not args.keep else "0")
    return Retention(seconds_of(said), args.keep)


def _print_usage(args: argparse.Namespace, cleanup: Any) -> int:
    found = cleanup.measure_usage()
    if args.json:
        return _print_json(found)
    width = max(len(item.what) for item in found)
    return write_output(
        "".join(
            f"{item.what:{width}}  {item.count:>7,}  {format_size(item.bytes):>9}  {escape_hidden(item.path)}\n"
            for item in found
        )
    )


def _print_items(args: argparse.Namespace, going: "list[CleanupItem]") -> int:
    if args.json:
        return _print_json({"removed": args.yes, "items": going})
    if not going:
        return write_output("There is nothing to remove.\n")
    write_output("".join(f"{_format_item(item)}\n" for item in going))
    goes = [item for item in going if not item.why_not]
    total = f"{len(goes)} {'thing' if len(goes) == 1 else 'things'}, {format_size(sum(item.bytes for item in goes))}"
    if args.yes:
        return write_output(f"Removed {total}.\n")
    write_message(f"This would remove {total}. Add --yes to do it.")
    return 0


def _format_item(item: "CleanupItem") -> str:
    when = time.strftime("%Y-%m-%d", time.localtime(item.modified))
    title = f"  {shorten(escape_hidden(' '.join(item.title.split())), 60)}" if item.title else ""
    stays = f"  (stays: {escape_hidden(item.why_not)})" if item.why_not else ""
    return f"{item.what} {escape_hidden(item.name)}  {when}  {format_size(item.bytes)}{title}{stays}"


def format_size(count: int) -> str:
    """Bytes as people read them."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"
        amount /= 1000
    return ""


def _print_json(value: Any) -> int:
    import msgspec

    return write_output(msgspec.json.encode(value).decode() + "\n")
