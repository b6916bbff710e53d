"""`odin serve`: sessions for browsers, programs and other machines, over HTTP."""

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

from odin.app.crash_log import log_unhandled_errors
from odin.commands.attach import connect_to_holder
from odin.commands.command_line import Parser, add_root_flag, make_formatter, write_message
from odin.commands.pair import print_pairing
from odin.config import Options, get_current_folder, resolve_folder
from odin.core.errors import OdinError, UsageError
from odin.core.rights import RIGHTS, Right
from odin.policy.modes import parse_permission_mode
from odin.server.access import open_access
from odin.server.guard import BindAddress, HostCheck, parse_bind
from odin.server.local import load_server

if TYPE_CHECKING:
    import ssl

DEFAULT_PORT = 7070

_EPILOG = """\
Open the link that is printed, or `odin attach URL` on another machine. `odin pair` makes codes for more clients.

By default only this machine reaches the server. Other addresses need --tls-cert and --tls-key.
"""


def run_serve(argv: list[str]) -> int:
    parser = Parser(
        prog="odin serve",
        description="Serve the sessions below a folder to browsers, programs and other machines.",
        epilog=_EPILOG,
        formatter_class=make_formatter,
    )
    add = parser.add_argument
    add("--host", default="127.0.0.1", metavar="IP", help="address to listen on (default: 127.0.0.1)")
    add("--port", type=int, default=DEFAULT_PORT, help=f"port to listen on; 0 picks one (default: {DEFAULT_PORT})")
    add("--root", action="append", default=[], metavar="DIR", help="serve sessions below this folder (default: here)")
    add("--tls-cert", default="", metavar="FILE", help="certificate, in PEM form")
    add("--tls-key", default="", metavar="FILE", help="its private key")
    add("--without-tls", action="store_true", help="allow other addresses without TLS, in a network that encrypts")
    add("--allow-host", action="append", default=[], metavar="NAME|URL", help="answer requests for this name, too")
    add("--base-path", default="", metavar="PATH", help="path below which a proxy serves it, such as /odin")
    add(
        "--pair",
        choices=(*RIGHTS, "no"),
        default="",
        metavar="RIGHT",
        help="right of the code that it prints, or no",
    )
    add("--permission-mode", default=None, metavar="MODE", help="permission mode of new sessions")
    add("--model", default="", help="model of new sessions")
    add_root_flag(add)
    args = parser.parse_args(argv)
    bind = parse_bind(args.host, args.port, args.tls_cert, args.tls_key, without_tls=args.without_tls)
    for folder in args.root:
        if not folder or not Path(folder).is_dir():
            raise UsageError(f"--root: there is no folder {folder!r}.", "Name one that exists.")
    roots = [resolve_folder(folder) for folder in args.root or [get_current_folder()]]
    if args.permission_mode:
        parse_permission_mode(args.permission_mode)
    here = get_current_folder()  # sessions are opened in other folders
    added = tuple(text if text.startswith(("/", "~")) else f"{here}/{text}" for text in args.add_dir)
    options = Options(cwd=roots[0], model=args.model, permission_mode=args.permission_mode, add_dirs=added)
    with _open_listener(bind) as listener:
        bind = BindAddress(bind.host, listener.getsockname()[1], bind.cert, bind.key)
        check = HostCheck(bind, args.allow_host, args.base_path)
        return asyncio.run(_serve(listener, bind, check, roots, options, args.pair))


def _open_listener(bind: BindAddress) -> socket.socket:
    family = socket.AF_INET6 if ":" in bind.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((bind.host, bind.port))
    except OSError as error:
        listener.close()
        raise UsageError(
            f"Cannot listen on {bind.host} port {bind.port}: {(error.strerror or str(error)).lower()}.",
            "Stop what uses it, or choose another one with --host and --port.",
        ) from error
    return listener


async def _serve(
    listener: socket.socket, bind: BindAddress, check: HostCheck, roots: list[str], options: Options, pair: str
) -> int:
    load_server()
    from odin.commands.fleet_engine import open_engine
    from odin.fleet.page_board import FleetBoard
    from odin.gateway.board import GatewayBoard
    from odin.server.service import serve_sessions

    log_unhandled_errors(asyncio.get_running_loop(), os.environ)
    store = open_access(os.environ)
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    tls = _load_tls(bind)
    boards = {board.name: board for board in (GatewayBoard(os.environ), FleetBoard(os.environ, open_engine))}
    async with serve_sessions(
        listener, check, options, roots, err=sys.stderr, tls=tls, connect=connect_to_holder, boards=boards
    ):
        await asyncio.to_thread(store.record_url, check.url)
        write_message(f"Serving sessions below {', '.join(roots)} on {check.url}. Ctrl-C stops it.")
        if pair != "no" and (pair or not store.list_tokens()):
            try:
                print_pairing(store.create_code(cast("Right", pair or "approve")), check.url, sys.stdout)
            except OdinError as error:
                write_message(error.describe())
        await stopped.wait()
        write_message("Stopping.")
    return 0


def _load_tls(bind: BindAddress) -> "ssl.SSLContext | None":
    if not bind.cert:
        return None
    import ssl

    import odin.providers.tls  # noqa: F401  # pyright: ignore[reportUnusedImport]

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(bind.cert, bind.key)
    return context
