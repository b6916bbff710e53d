"""`odin attach`: the app or plain mode on a session that another process has open, on this machine or elsewhere.

Everything else that opens a session comes here, too: it is served to other processes while it is open, and one that is
open in another process is attached to.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from odin.app.workspace import make_workspace
from odin.commands.command_line import CLOSE_TIMEOUT_S, SHUTDOWN_TIMEOUT, write_message
from odin.config import Options
from odin.core.client import Client
from odin.core.errors import OdinError
from odin.host.manager import SessionManager
from odin.host.workspace_sessions import WorkspaceSessions, open_workspace_sessions
from odin.remote.local import locate_socket
from odin.server.local import LocalListener
from odin.session.lock import get_lock_path, read_lock_holder

if TYPE_CHECKING:
    from odin.remote.sessions import RemoteSessions


@asynccontextmanager
async def open_sessions(
    options: Options, *, attach: bool = True
) -> "AsyncGenerator[WorkspaceSessions | RemoteSessions]":
    """Give the sessions of a workspace for a front end that switches between them. They are closed at the end."""
    manager = SessionManager()
    async with LocalListener(manager, options):
        sessions = await attach_if_open(options) if attach else None
        if sessions is None:
            sessions = await open_workspace_sessions(options, manager)
        try:
            yield sessions
        finally:
            try:
                await asyncio.wait_for(sessions.close(), CLOSE_TIMEOUT_S)
            except TimeoutError:
                write_message(SHUTDOWN_TIMEOUT)


@asynccontextmanager
async def open_client(options: Options, *, attach: bool = True) -> AsyncGenerator[Client]:
    """Give the client of one session. It is closed at the end."""
    manager = SessionManager()
    async with LocalListener(manager, options):
        sessions = await attach_if_open(options) if attach else None
        client = await manager.open(options) if sessions is None else sessions.client
        try:
            yield client
        finally:
            await (client.close() if sessions is None else sessions.close())


async def attach_if_open(options: Options) -> "RemoteSessions | None":
    """Attach to the session that these options resume, if another process has it open and listens; else return None.

    With `--continue` only the latest session counts, and only if it is idle there.
    """
    if options.fork or not (options.resume or options.continue_last):
        return None
    workspace = make_workspace(options)
    store = workspace.store
    session = await asyncio.to_thread(store.find, options.resume) if options.resume else store.find_latest()
    log = store.find_log(session)
    attached = None if log is None else await attach_to_holder(log, session)
    if attached is not None and options.continue_last and (await attached.client.snapshot()).executing:
        await attached.close()
        return None
    return attached


async def attach_to_holder(log: Path, session: str) -> "RemoteSessions | None":
    """Return the sessions of the process that has this one open, once it has answered."""
    try:
        holder = read_lock_holder(get_lock_path(log))
    except ValueError:
        return None
    if holder is None or not holder.is_alive:
        return None
    from odin.remote.local import connect_local
    from odin.remote.sessions import RemoteSessions

    connection = connect_local(locate_socket(log.parents[3], holder.pid, holder.birth), f"PID {holder.pid}")
    if connection is None:
        return None
    sessions = RemoteSessions(connection, session)
    try:
        await sessions.client.get_info()
    except OdinError:
        await sessions.close()
        return None
    return sessions
