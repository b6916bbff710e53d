"""`odin pair`: let another device or program use `odin serve`, list who may, and end that."""

import os
from typing import Any, TextIO

import msgspec

from odin.commands.command_line import Parser, get_stdout, make_formatter, write_json, write_output, write_table
from odin.core.errors import UsageError
from odin.core.format import format_seconds, format_time
from odin.core.rights import RIGHTS, Right
from odin.server.access import AccessRecord, AccessStore, CodeRecord, PairingCode, open_access
from odin.server.guard import check_url
from odin.ui.terminal import TextPainter, escape_hidden, get_terminal_size, is_dumb

_ABOUT = "Make a one-time code with which a browser or program can use `odin serve`; list who may, and revoke it."
_EPILOG = """\
rights:
  view      read sessions
  prompt    also send prompts, interrupt, choose the model, undo (the default)
  approve   also answer permission requests, change rules and settings, run commands

A code is valid for one hour and for one client. At most three can wait to be used.
"""
_ALLOWED: dict[Right, str] = {
    "view": "to read sessions",
    "prompt": "to read sessions and to send prompts, but not to approve anything",
    "approve": "everything: prompts, approvals, rules, commands",
}
_HEADINGS = ("ID", "NAME", "RIGHT", "CREATED", "LAST SEEN", "ADDRESS")
_BLOCKS = {(False, False): "█", (False, True): "▀", (True, False): "▄", (True, True): " "}


def run_pair(argv: list[str]) -> int:
    parser = Parser(prog="odin pair", description=_ABOUT, epilog=_EPILOG, formatter_class=make_formatter)
    add = parser.add_argument
    add("--right", choices=RIGHTS, metavar="RIGHT", help="view, prompt or approve (default: prompt)")
    add("--name", default="", help="the name of the client (default: what it calls itself)")
    add("--url", default="", help="the URL of the server (default: that of the last `odin serve`)")
    add("--list", action="store_true", help="list clients, and codes that wait to be used")
    add("--revoke", metavar="NAME|ID|all", help="revoke a client's access at once, or cancel a code")
    add("--json", action="store_true", help="print JSON")
    args = parser.parse_args(argv)
    is_new = not args.list and args.revoke is None
    if (args.list and args.revoke is not None) or (not is_new and (args.right or args.name or args.url)):
        raise UsageError("--list and --revoke go with no other option but --json.", "See `odin pair --help`.")
    store = open_access(os.environ)
    if args.list:
        return _list_clients(store, as_json=args.json)
    if args.revoke is not None:
        return _revoke(store, args.revoke, as_json=args.json)
    url = check_url(args.url) if args.url else store.url
    code = store.create_code(args.right or "prompt", args.name)
    if args.json:
        return write_json({**_collect_facts(code.record), "code": code.text, "url": _make_link(code, url)})
    return print_pairing(code, url, get_stdout())


def print_pairing(code: PairingCode, url: str, out: TextIO) -> int:
    """Print a new code, what it allows, the link to open and, on a terminal, its QR code. `url` may be ""."""
    link, record = _make_link(code, url), code.record
    valid = format_seconds(round(record.expires - record.created)).removesuffix(" 0 min").removesuffix(" 0 s")
    rows = [("Code", code.text), ("Valid", f"{valid}, for one client"), ("Allows", _ALLOWED[record.right])]
    rows.append(("Attach", f"odin attach {url or 'URL'} --code {code.text}"))
    rows += [("Link", link)] if link else []
    text = "".join(f"{name:<9}{value}\n" for name, value in rows)
    out.write(f"{draw_qr_code(link, out) if link else ''}{text}")
    out.flush()
    return 0


def _make_link(code: PairingCode, url: str) -> str:
    """Return the link to the page with the code, which a browser sends to no server: it is behind the `#`."""
    return f"{url}/#{code.text}" if url else ""


def draw_qr_code(link: str, out: TextIO) -> str:
    """Return the link as a QR code of half blocks; "" if `out` is no terminal, or too narrow."""
    if not out.isatty() or is_dumb(os.environ):
        return ""
    import segno

    rows = [[bool(dark) for dark in row] for row in segno.make(link, micro=False).matrix_iter(border=2)]
    width = len(rows[0])
    if width > get_terminal_size(out)[0]:
        return ""
    rows += [[False] * width] * (len(rows) % 2)
    # What is light is drawn: on most terminals that is right even without colors.
    start, end = ("\x1b[38;5;231;48;5;16m", "\x1b[0m") if TextPainter(out).is_on else ("", "")
    pairs = zip(rows[::2], rows[1::2], strict=True)
    lines = ("".join(_BLOCKS[cells] for cells in zip(*pair, strict=True)) for pair in pairs)
    return "".join(f"{start}{line}{end}\n" for line in lines)


def _list_clients(store: AccessStore, *, as_json: bool) -> int:
    tokens, codes = store.list_tokens(), store.list_codes()
    if as_json:
        return write_json({"clients": list(map(_collect_facts, tokens)), "codes": list(map(_collect_facts, codes))})
    if not tokens and not codes:
        return write_output("No clients. `odin pair` makes a code for one.\n")
    rows = [
        (
            item.id,
            item.name,
            item.right,
            format_time(item.created),
            format_time(item.seen) if item.seen else "",
            item.address,
        )
        for item in tokens
    ]
    rows += [
        (
            item.id,
            item.name,
            item.right,
            format_time(item.created),
            f"code, valid until {format_time(item.expires)[-5:]}",
            "",
        )
        for item in codes
    ]
    return write_table([_HEADINGS, *rows])


def _revoke(store: AccessStore, name: str, *, as_json: bool) -> int:
    revoked = store.revoke_all() if name == "all" else store.revoke(name)
    if not revoked and name != "all":
        raise UsageError(f"There is no client or code {name!r}.", "`odin pair --list` shows them.")
    if as_json:
        return write_json({"revoked": list(map(_collect_facts, revoked))})
    lines = (
        f"Code {item.id} is cancelled." if isinstance(item, CodeRecord) else f"{item.name} has no access any more."
        for item in revoked
    )
    return write_output("".join(f"{escape_hidden(line)}\n" for line in lines) or "Nobody had access.\n")


def _collect_facts(record: AccessRecord) -> dict[str, Any]:
    facts = msgspec.structs.asdict(record)
    del facts["digest"]
    return facts
