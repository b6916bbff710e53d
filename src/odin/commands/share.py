"""`odin share`: let others read a session, without its secrets, until it expires; list what is shared, and end that."""

import argparse
import os
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from odin.app.export import export_session
from odin.app.shared_copy import CopyReview, SharedCopy, copy_session
from odin.app.text_scrubber import Redaction
from odin.commands.cleanup import parse_duration
from odin.commands.command_line import (
    Parser,
    ask_line,
    get_stdout,
    make_formatter,
    write_json,
    write_message,
    write_output,
    write_table,
)
from odin.commands.pair import draw_qr_code
from odin.config.paths import SCRATCH_FOLDER, make_environment
from odin.core.environment import ExecutionEnvironment
from odin.core.errors import SessionNotFound, UsageError
from odin.core.format import format_time, pluralize
from odin.core.policy import redact_nothing
from odin.core.private_folders import open_scratch
from odin.host.stored_sessions import ProjectSessions, open_project_sessions
from odin.remote.connection import is_loopback
from odin.server.access import open_access
from odin.server.guard import check_url
from odin.server.shares import DEFAULT_TTL_S, MAX_TTL_S, NewShare, ShareRecord, ShareStore, open_shares
from odin.session.log import LOG_NAME
from odin.ui.terminal import escape_hidden

_ABOUT = "Let others read a session as it is now, without its secrets: by a link to `odin serve`, or as one file."
_EPILOG = """\
ID is a session ID, the start of one, words of the title, or `last`.

Before anything is shared you see what was redacted and are asked. Whoever has the link can read that copy until it
expires, is revoked, or the session is deleted; --keep keeps it after that. It gives access to nothing else. Odin does
not recognize every secret: write the page with --file and read it first.
"""
_HEADINGS = ("ID", "TITLE", "CREATED", "EXPIRES", "OPENED", "LAST OPENED")
_LEFT_OUT = "instructions, memory, settings, hooks, permission requests, what sub-agents did in detail"
_DAY_S = 86_400


def run_share(argv: list[str]) -> int:
    args = _parse_args(argv)
    if args.list:
        return _list_shares(open_shares(os.environ), as_json=args.json)
    if args.revoke is not None:
        return _revoke(open_shares(os.environ), args.revoke, as_json=args.json)
    if not args.words:
        raise UsageError("`odin share` needs a session ID or title.", "`odin sessions` lists sessions.")
    sessions = open_project_sessions(args.cwd)
    environment = make_environment(cwd=args.cwd)
    log = _find_log(sessions, " ".join(args.words))
    if args.file:
        return _write_file(log, environment, args)
    ttl, url = _parse_expiry(args.expires), _find_url(args.url)
    copy = copy_session(log, environment, with_images=args.images)
    _review(copy, args, f"odin share {log.parent.name} --file page.html")
    if not _is_agreed(args):
        write_message("Nothing is shared.")
        return 1
    title, files = copy.review.title, copy.list_files()
    share = open_shares(os.environ).create(log, title, files, ttl=ttl, is_kept=args.keep)
    return _print_share(share, copy.review, url, args)


def _parse_args(argv: list[str]) -> argparse.Namespace:
    parser = Parser(prog="odin share", description=_ABOUT, epilog=_EPILOG, formatter_class=make_formatter)
    add = parser.add_argument
    add("words", nargs="*", metavar="ID", help="session to share")
    add(
        "--expires",
        metavar="TIME",
        help="when the link ends, e.g. 12h, 7d or 4w (default: 7d; at most 365d)",
    )
    add("--keep", action="store_true", help="keep the link when the session is deleted")
    add("--images", action="store_true", help="include images; nothing in them is redacted")
    add("--url", help="the URL of the server (default: that of the last `odin serve`)")
    add("--file", metavar="PATH.html", help="write one HTML file instead of making a link")
    add("-y", "--yes", action="store_true", help="share without asking")
    add("--list", action="store_true", help="list shares")
    add("--revoke", metavar="ID|all", help="end a share, by its ID or that of its session, at once")
    parser.add_common_flags()
    args = parser.parse_intermixed_args(argv)
    for name in ("expires", "url", "file"):
        if getattr(args, name) == "":
            raise UsageError(f"--{name} is empty.", "Leave it out, or give it a value.")
    given = args.words or args.expires or args.keep or args.images or args.url or args.file or args.yes
    if (args.list or args.revoke is not None) and (given or (args.list and args.revoke is not None)):
        raise UsageError("--list and --revoke go with no other option but --json.", "See `odin share --help`.")
    if args.file and (args.expires or args.keep or args.url):
        raise UsageError("--file makes no link.", "Leave out --expires, --keep and --url.")
    if args.file and Path(args.file).suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"--file writes HTML, not {args.file!r}.", "Use a name such as page.html.")
    return args


def _find_log(sessions: ProjectSessions, name: str) -> Path:
    session = sessions.store.find_latest() if name == "last" else sessions.find(name)
    log = sessions.store.find_log(session)
    if log is None:
        raise SessionNotFound(f"There is no session {session}.")
    return log


def _parse_expiry(text: str | None) -> float:
    seconds = parse_duration(text) if text else DEFAULT_TTL_S
    if not 0 < seconds <= MAX_TTL_S:
        raise UsageError(f"--expires {text} is not possible.", f"Use at most {MAX_TTL_S / _DAY_S:.0f}d.")
    return seconds


def _find_url(given: str | None) -> str:
    url = check_url(given) if given else open_access(os.environ).url
    if not url:
        raise UsageError(
            "The URL of the server is not known: `odin serve` has not run yet.",
            "Start it, or give --url URL; --file PATH.html needs no server.",
        )
    return url


def _is_agreed(args: argparse.Namespace) -> bool:
    if args.yes:
        return True
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("Cannot ask without a terminal.", "Read what is shared, then add --yes.")
    return ask_line("Share this? [y/N] ").strip().lower() in ("y", "yes")


# --- the review ---


def _review(copy: SharedCopy, args: argparse.Namespace, preview: str = "") -> None:
    """Say what the page shows and what was redacted, before anything is written."""
    if args.json and args.yes:
        return
    found = copy.review
    shown = [pluralize(found.prompts, "prompt"), pluralize(found.answers, "answer")]
    about = f" about {pluralize(found.files, 'file')}" if found.files else ""
    shown += [f"{pluralize(found.results, 'tool result')}{about}"] if found.results else []
    shown += [f"{pluralize(found.images, 'image')}, as they are"] if found.images else []
    left_out = [_LEFT_OUT]
    left_out += [f"{pluralize(found.left_out_prompts, 'prompt')} that you took back"] if found.left_out_prompts else []
    if found.left_out_images:
        more = "" if args.images else " (--images includes them)"
        left_out.append(f"{pluralize(found.left_out_images, 'image')}{more}")
    lines = [
        f"Title     {found.title}",
        f"Folder    {found.cwd}",
        f"Model     {found.model}",
        f"Shown     {'; '.join(shown)}",
        f"Left out  {'; '.join(left_out)}",
        *_format_redactions(found.redactions),
        f"Odin does not recognize every secret.{f' `{preview}` writes the page, to read it first.' if preview else ''}",
    ]
    for line in lines:
        write_message(line)


def _format_redactions(found: tuple[Redaction, ...]) -> list[str]:
    if not found:
        return ["Redacted  nothing was found"]
    lines: list[str] = []
    for item in found:
        samples = f": {', '.join(item.samples)}" if item.samples else ""
        places = f" ({', '.join(item.places)})" if item.places else ""
        lines.append(f"{'' if lines else 'Redacted':<8}  {item.count} × {item.kind}{samples}{places}")
    return lines


# --- the results ---


def _write_file(log: Path, environment: ExecutionEnvironment, args: argparse.Namespace) -> int:
    copy = copy_session(log, environment, with_images=args.images)
    _review(copy, args)
    if not _is_agreed(args):
        write_message("Nothing is written.")
        return 1
    with open_scratch(Path(environment.state_dir, SCRATCH_FOLDER)) as folder:
        for name, data in copy.list_files():
            (folder / name).write_bytes(data)
        path = export_session(folder / LOG_NAME, "html", args.file, environment=environment, redact=redact_nothing)
    if args.json:
        return write_json({"path": path, "review": copy.review})
    return write_output(f"{escape_hidden(path)}\n")


def _print_share(share: NewShare, review: CopyReview, url: str, args: argparse.Namespace) -> int:
    link, record = f"{url}/#{share.fragment}", share.record
    if args.json:
        return write_json({**_collect_facts(record), "url": link, "review": review})
    until = format_time(record.expires)
    out = get_stdout()
    rows = [
        ("Share", record.id),
        ("Expires", f"{until}, also if the session is deleted" if record.is_kept else f"{until}, or with the session"),
        ("Revoke", f"odin share --revoke {record.id}"),
        ("Link", link),
    ]
    text = "".join(f"{name:<9}{value}\n" for name, value in rows)
    out.write(f"{draw_qr_code(link, out)}{text}")
    out.flush()
    if is_loopback(urlsplit(url).hostname or ""):
        write_message("Only this machine reaches that address; --url takes the one that others use.")
    elif url.startswith("http:"):
        write_message("That address has no TLS: everybody on the way can read the page.")
    return 0


def _list_shares(store: ShareStore, *, as_json: bool) -> int:
    shares = store.list_shares()
    if as_json:
        return write_json({"shares": list(map(_collect_facts, shares))})
    if not shares:
        return write_output("Nothing is shared. `odin share ID` shares a session.\n")
    rows = [
        (
            item.id,
            " ".join(item.title.split())[:40],
            format_time(item.created),
            format_time(item.expires),
            pluralize(item.opened, "time") if item.opened else "never",
            format_time(item.last_opened) if item.last_opened else "",
        )
        for item in shares
    ]
    return write_table([_HEADINGS, *rows])


def _revoke(store: ShareStore, name: str, *, as_json: bool) -> int:
    revoked = store.revoke_all() if name == "all" else store.revoke(name)
    if not revoked and name != "all":
        raise UsageError(f"There is no share {name!r}.", "`odin share --list` shows them.")
    if as_json:
        return write_json({"revoked": list(map(_collect_facts, revoked))})
    lines = "".join(f"Share {item.id} has ended: {escape_hidden(item.title)}\n" for item in revoked)
    return write_output(lines or "Nothing was shared.\n")


def _collect_facts(record: ShareRecord) -> dict[str, Any]:
    facts = msgspec.structs.asdict(record)
    del facts["digest"]
    return facts
