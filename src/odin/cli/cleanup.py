"""`odin cleanup`: what Odin keeps on disk. Nothing is removed without --yes."""

import argparse
import os
import time
from typing import TYPE_CHECKING, Any

from odin.cli.output import put, say
from odin.cli.parser import Parser, formatter
from odin.core.errors import UsageError
from odin.ui.terminal import shorten, visible

if TYPE_CHECKING:
    from odin.app.cleanup import Going, Keep

USUAL_AGE = "30d"

EPILOG = """\
  odin cleanup [status]       what there is and how much room it takes
  odin cleanup sessions       sessions of this project older than 30 days; --all for every project
  odin cleanup cache          what can be made again
  odin cleanup logs           what Odin wrote down about its own failures
  odin cleanup project        everything of this project: its sessions, checkpoints and removed work trees

Without --yes it is only said what would go. Sessions that are open stay, and so does what deleted ones have cost.
"""


def cleanup_command(argv: list[str]) -> int:
    args = _parse(argv)
    from odin.app.cleanup import Cleanup

    cleanup = Cleanup(os.environ, args.cwd)
    if args.what == "status":
        return _status(args, cleanup)
    keep = _keep(args)
    if args.what == "sessions":
        going = cleanup.sessions(keep, everywhere=args.all)
    else:
        going = {"cache": cleanup.cache, "logs": cleanup.logs, "project": cleanup.project}[args.what](keep)
    if not args.yes:
        return _told(args, going)
    done = cleanup.remove(going)
    refused = any(after.why_not and not before.why_not for before, after in zip(going, done, strict=True))
    return _told(args, done) or int(refused)


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = Parser(
        prog="odin cleanup", description="What Odin keeps on disk.", epilog=EPILOG, formatter_class=formatter
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


def _keep(args: argparse.Namespace) -> "Keep":
    """Old sessions only, unless something else was said."""
    from odin.app.cleanup import Keep, seconds_of

    said = args.older_than or (USUAL_AGE if args.what == "sessions" and not args.keep else "0")
    return Keep(seconds_of(said), args.keep)


def _status(args: argparse.Namespace, cleanup: Any) -> int:
    found = cleanup.status()
    if args.json:
        return _json(found)
    width = max(len(item.what) for item in found)
    return put(
        "".join(
            f"{item.what:{width}}  {item.count:>7,}  {size(item.bytes):>9}  {visible(item.path)}\n" for item in found
        )
    )


def _told(args: argparse.Namespace, going: "list[Going]") -> int:
    if args.json:
        return _json({"removed": args.yes, "items": going})
    if not going:
        return put("There is nothing to remove.\n")
    put("".join(f"{_line(item)}\n" for item in going))
    goes = [item for item in going if not item.why_not]
    total = f"{len(goes)} {'thing' if len(goes) == 1 else 'things'}, {size(sum(item.bytes for item in goes))}"
    if args.yes:
        return put(f"Removed {total}.\n")
    say(f"This would remove {total}. Add --yes to do it.")
    return 0


def _line(item: "Going") -> str:
    when = time.strftime("%Y-%m-%d", time.localtime(item.modified))
    title = f"  {shorten(visible(' '.join(item.title.split())), 60)}" if item.title else ""
    stays = f"  (stays: {visible(item.why_not)})" if item.why_not else ""
    return f"{item.what} {visible(item.name)}  {when}  {size(item.bytes)}{title}{stays}"


def size(count: int) -> str:
    """Bytes as people read them."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"
        amount /= 1000
    return ""


def _json(value: Any) -> int:
    import msgspec

    return put(msgspec.json.encode(value).decode() + "\n")
