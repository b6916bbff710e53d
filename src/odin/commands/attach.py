"""`odin attach`: the app or plain mode on a session that another process has open, on this machine or elsewhere.

Everything else that opens a session comes here, too: it is served to other processes while it is open, and one that is
open in another process is attached to.
"""

import asyncio
import gc
import importlib
import os
import re
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from odin.commands.command_line import (
    CLOSE_TIMEOUT_S,
    SHUTDOWN_TIMEOUT,
    Parser,
    ask_line,
    make_formatter,
    write_message,
)
from odin.config import Options, get_config_dir, get_current_folder, get_state_dir, load
from odin.config.files import lock_file, parse_json_object, read_config_file, write_atomically
from odin.config.paths import find_worktree_origin, locate_socket, make_environment
from odin.core.client import Client
from odin.core.errors import OdinError, SessionLocked, SessionNotFound, UsageError
from odin.core.text import join_some
from odin.core.tui_settings import TuiSettings
from odin.session.lock import describe_lock_holder, get_lock_path, read_lock_holder
from odin.session.store import SessionStore
from odin.ui.terminal import is_dumb

if TYPE_CHECKING:
    from odin.host.manager import SessionManager
    from odin.host.workspace_sessions import WorkspaceSessions
    from odin.remote.sessions import RemoteSessions


@asynccontextmanager
async def open_sessions(
    options: Options, *, attach: bool = True
) -> "AsyncGenerator[WorkspaceSessions | RemoteSessions]":
    """Give the sessions of a workspace for a front end that switches between them. They are closed at the end."""
    async with AsyncExitStack() as stack:
        sessions = await attach_if_open(options) if attach else None
        if sessions is None:
            from odin.host.workspace_sessions import open_workspace_sessions

            manager = await stack.enter_async_context(_listen(options))
            sessions = await open_workspace_sessions(options, manager)
        try:
            yield sessions
        finally:
            try:
                await asyncio.wait_for(sessions.close(), CLOSE_TIMEOUT_S)
            except TimeoutError:
                write_message(SHUTDOWN_TIMEOUT)


@asynccontextmanager
async def _listen(options: Options) -> "AsyncGenerator[SessionManager]":
    """Give a manager whose sessions other processes can attach to. Who attaches to another one loads none of this."""
    from odin.host.manager import SessionManager
    from odin.server.local import LocalListener

    manager = SessionManager()
    state = Path(options.state_dir or get_state_dir(options.env or os.environ))
    async with LocalListener(manager, options, state):
        yield manager


@asynccontextmanager
async def open_client(options: Options, *, attach: bool = True) -> AsyncGenerator[Client]:
    """Give the client of one session. It is closed at the end."""
    async with AsyncExitStack() as stack:
        sessions = await attach_if_open(options) if attach else None
        if sessions is None:
            manager = await stack.enter_async_context(_listen(options))
            client = await manager.open(options)
        else:
            client = sessions.client
        try:
            yield client
        finally:
            await (client.close() if sessions is None else sessions.close())


_OF_CLIENTS = {
    "cwd",
    "mode",
    "resume",
    "continue_last",
    "can_ask",
    "headless",
    "include_partial",
    "state_dir",
    "env",
    "reach_out",
    "output_schema",
    "timing",
    "commands_ask",
}
"""The options that are the front end's, and not the session's."""


def _open_store(options: Options) -> SessionStore:
    """Return the sessions of the project, as `make_workspace` does."""
    environment = make_environment(options.env, options.cwd, options.state_dir)
    config = load(environment.cwd, environment.variables, trust=options.trust)
    return SessionStore(environment.state_dir, find_worktree_origin(config.root, environment.state_dir))


async def attach_if_open(options: Options, *, prefetches: bool = False) -> "RemoteSessions | None":
    """Attach to the session that these options resume, if another process has it open and listens; else return None.

    With `--continue` only the latest session counts, and only if it is idle there. `prefetches`: for the app.
    """
    if options.fork or not (options.resume or options.continue_last):
        return None
    store = _open_store(options)
    session = await asyncio.to_thread(store.find, options.resume) if options.resume else store.find_latest()
    log = store.find_log(session)
    attached = None if log is None else await attach_to_holder(log, session, prefetches=prefetches)
    if attached is None:
        return None
    usual = Options()
    flags = [name for name in Options.__struct_fields__ if name not in _OF_CLIENTS]
    given = [name for name in flags if getattr(options, name) != getattr(usual, name)]
    if options.continue_last and (given or (await attached.client.snapshot()).executing):
        await attached.close()
        return None
    if given:
        await attached.close()
        names = join_some((f"--{name.replace('_', '-')}" for name in given), 5)
        raise UsageError(
            f"Session {session} is open in {attached.connection.place}, and what {names} sets is decided there.",
            "Leave it out, and change it in the session; or close the session there.",
        )
    return attached


async def attach_to_holder(log: Path, session: str, *, prefetches: bool = False) -> "RemoteSessions | None":
    """Return the sessions of the process that has this one open, once it has answered."""
    try:
        holder = read_lock_holder(get_lock_path(log))
    except ValueError:
        return None
    if holder is None or not holder.is_alive:
        return None
    from odin.remote.connection import ConnectionLost
    from odin.remote.local import connect_local
    from odin.remote.sessions import RemoteSessions

    connection = connect_local(locate_socket(log.parents[3], holder.pid, holder.birth), f"PID {holder.pid}")
    if connection is None:
        return None
    sessions = RemoteSessions(connection, session)
    try:
        await (sessions.prefetch() if prefetches else sessions.client.get_info())
    except ConnectionLost:
        await sessions.close()
        return None
    except OdinError:
        await sessions.close()
        raise
    return sessions


async def connect_to_holder(log: Path, session: str) -> "RemoteSessions":
    """Attach to a session that another process has open. Raise SessionLocked if that process does not listen."""
    attached = await attach_to_holder(log, session)
    if attached is None:
        raise SessionLocked(f"Session {session} is open in another process.", "Close it there.")
    return attached


Connect = Callable[[], Coroutine[Any, Any, "RemoteSessions"]]

_ADDRESS = re.compile(r"[^/\s]*:\d+(/.*)?")
"""A URL without its scheme."""

EPILOG = """\
ID is a session ID, the start of one, or words of the title, of a session that is open on this machine. URL is the
address of an `odin serve`, such as https://host:7070, or one with /sessions/ID.

The first time, a server asks for a pairing code: run `odin pair` on its machine.
"""


def run_attach(argv: list[str]) -> int:
    parser = Parser(
        prog="odin attach",
        description="Watch and steer a session that is open elsewhere, in the app or in plain mode.",
        epilog=EPILOG,
        formatter_class=make_formatter,
    )
    parser.add_argument("where", metavar="ID|URL", help="session on this machine, or address of a server")
    parser.add_argument("--code", default="", help="pairing code of the server; without it you are asked")
    parser.add_argument("--plain", action="store_true", help="use plain mode")
    parser.add_argument("--ca-cert", default="", metavar="FILE", help="trust this certificate of the server")
    parser.add_argument("--without-tls", action="store_true", help="use http:// in a network that encrypts by itself")
    args = parser.parse_args(argv)
    settings = load(get_current_folder(), os.environ).tui
    is_at_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    is_plain = args.plain or settings.plain or is_dumb(os.environ) or not is_at_terminal
    connect: Connect
    if "://" in args.where or _ADDRESS.fullmatch(args.where):
        url, _, session = args.where.rstrip("/").partition("/sessions/")
        env = {**os.environ, **_trust_certificate(args.ca_cert)} if args.ca_cert else os.environ
        _refuse_open_network(url, without_tls=args.without_tls)
        token = asyncio.run(_pair(url, args.code, env)) if args.code else read_tokens(os.environ).get(url, "")
        if not token:
            if not sys.stdin.isatty():
                raise UsageError(
                    f"{url} does not know this machine yet.", "Run `odin pair` there, and give --code CODE."
                )
            code = ask_line(f"Pairing code of {url} (`odin pair` on its machine makes one): ").strip()
            token = asyncio.run(_pair(url, code, env))
        connect = partial(_open_remote, url, token, session, env)
    else:
        connect = partial(_open_local, args.where, prefetches=not is_plain)
    if is_plain:
        return asyncio.run(_run_plain(connect, settings))
    return asyncio.run(_run_app(connect, settings))


async def _run_plain(connect: Connect, settings: TuiSettings) -> int:
    from odin.ui.plain.repl import run_plain

    sessions = await connect()
    try:
        mode = (await sessions.client.get_info()).mode
        return await run_plain(sessions, first="", mode=mode, settings=settings)
    finally:
        await sessions.close()


async def _run_app(connect: Connect, settings: TuiSettings) -> int:
    gc.disable()  # as in `entry.main`; `run_app` enables it again
    async with attach_meanwhile(connect()) as attaching:
        from odin.commands.tui import run_attached

        return await run_attached(attaching, settings)


@asynccontextmanager
async def attach_meanwhile(
    attach: Coroutine[Any, Any, "RemoteSessions | None"],
) -> AsyncGenerator[asyncio.Task["RemoteSessions | None"]]:
    """Import the app while this attaches. Give the task; the sessions are closed at the end."""
    attaching = asyncio.create_task(attach)
    try:
        await asyncio.to_thread(importlib.import_module, "odin.commands.tui")
        yield attaching
    finally:
        attaching.cancel()
        for sessions in await asyncio.gather(attaching, return_exceptions=True):
            if sessions and not isinstance(sessions, BaseException):
                await sessions.close()


async def _open_local(name: str, *, prefetches: bool) -> "RemoteSessions":
    """Attach to a session that another process has open. Raise SessionNotFound if none has."""
    store = _open_store(Options())
    session = await asyncio.to_thread(store.find, name)
    log = store.find_log(session)
    attached = None if log is None else await attach_to_holder(log, session, prefetches=prefetches)
    if attached is None and log is not None and (holder := describe_lock_holder(log)):
        raise SessionLocked(
            f"Session {session} is open in another process ({holder}), which does not let this one attach.",
            "Attach from a terminal that no session has started, or close it there.",
        )
    if attached is None:
        raise SessionNotFound(
            f"Session {session} is not open in another process.", f"Open it with `odin -r {session}`."
        )
    return attached


async def _open_remote(url: str, token: str, session: str, env: Mapping[str, str]) -> "RemoteSessions":
    """Attach to a session of a server: the named one, else the latest, else a new one."""
    from odin.remote.connection import Connection
    from odin.remote.protocol import NewSession
    from odin.remote.sessions import RemoteSessions

    connection = Connection(url, token, env=env)
    try:
        known = [item.id for item in await connection.call("all")]
        session = session or (known[0] if known else (await connection.call("new", body=NewSession())).session)
        sessions = RemoteSessions(connection, next((name for name in known if name.startswith(session)), session))
        await sessions.client.get_info()
    except BaseException:
        await connection.close()
        raise
    return sessions


async def _pair(url: str, code: str, env: Mapping[str, str]) -> str:
    """Exchange a code for a token, store it, and return it."""
    from odin.remote.connection import Connection
    from odin.remote.protocol import Pairing

    connection = Connection(url, "none", env=env)
    try:
        paired = await connection.call("pair", body=Pairing(code, os.uname().nodename))
    finally:
        await connection.close()
    path = _locate_tokens(os.environ)
    with lock_file(path):
        import msgspec

        write_atomically(path, msgspec.json.encode({**read_tokens(os.environ), url: paired.token}))
    write_message(f"Paired with {url}. This machine may {paired.right} there.")
    return paired.token


def _locate_tokens(env: Mapping[str, str]) -> Path:
    return get_config_dir(env) / "servers.json"


def read_tokens(env: Mapping[str, str]) -> dict[str, str]:
    """Return the tokens of the servers that this machine was paired with, by URL."""
    path = _locate_tokens(env)
    raw = read_config_file(path)
    entries, _ = parse_json_object(raw, path) if raw is not None else ({}, [])
    return {
        url: token
        for url, token in entries.items()
        if isinstance(token, str) and token.isascii() and token.isprintable()
    }


def _refuse_open_network(url: str, *, without_tls: bool) -> None:
    """Raise UsageError for a URL whose token anybody on the way could read."""
    from odin.remote.connection import is_loopback
    from odin.server.guard import check_url

    try:
        check_url(url)
    except UsageError as error:
        raise UsageError(str(error), "Write it as https://HOST:PORT, or http://localhost:PORT.") from None
    if url.startswith("http://") and not is_loopback(urlsplit(url).hostname or "") and not without_tls:
        raise UsageError(
            f"{url} is not encrypted: anyone on the way could read the token.",
            "Use https://, or `ssh -L` and http://localhost:PORT; or add --without-tls in a network that encrypts.",
        )


def _trust_certificate(path: str) -> dict[str, str]:
    """Return the variables with which only this certificate is trusted. Raise OdinError if it cannot be used."""
    from odin.providers.tls import build_tls_context

    build_tls_context([("--ca-cert", path)])
    return {"SSL_CERT_FILE": path, "SSL_CERT_DIR": ""}
