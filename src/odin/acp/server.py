"""The methods of the protocol: what an editor may ask of Odin, and its sessions."""

import asyncio
import base64
import binascii
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from odin.acp.connection import EditorConnection, RequestId
from odin.acp.protocol import (
    AUTH_REQUIRED,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    NOT_FOUND,
    PROTOCOL_VERSION,
    AuthenticateParams,
    CancelRequestParams,
    InitializeParams,
    ListedSession,
    ListParams,
    McpServer,
    NewSessionParams,
    OpenSessionParams,
    Params,
    PromptParams,
    RpcError,
    SessionParams,
    SetOptionParams,
    read_flag,
    read_params,
)
from odin.config import Options
from odin.config.paths import make_environment
from odin.core.client import Sessions, SessionSummary
from odin.core.errors import SessionLocked, SessionNotFound
from odin.core.path_names import contains
from odin.core.server_tool import clean_name
from odin.core.setup import OFFLINE_MODEL
from odin.core.text import suggest_similar
from odin.ui.pipes import PipeWriter
from odin.version import __version__

if TYPE_CHECKING:
    from odin.acp.session import AcpSession, EditorSession
    from odin.app.workspace import Workspace
    from odin.engine.client import LocalClient
    from odin.host.manager import SessionManager

PAGE = 50
CLOSE_S = 10.0
SETUP_ARGUMENT = "--setup"
"""With it `odin acp` is the terminal app that connects a model: how editors let users sign in."""

Connect = Callable[[Path, str], Awaitable[Sessions]]
"""Attaches to a session that another process has open, given its log and id. Raises SessionLocked if it cannot."""

_WAY_OUT = "Run `odin` in a terminal and type /setup, or `odin auth add PROVIDER`, and try again."


class AcpServer:
    """Serves one editor. `open_manager` is called with the first session, `options` are those of all of them."""

    def __init__(
        self,
        options: Options,
        output: PipeWriter,
        open_manager: Callable[[], Awaitable["SessionManager"]],
        connect: Connect,
        report: Callable[[Exception], str],
    ) -> None:
        self._options = options
        self._open_manager = open_manager
        self._connect = connect
        self._connection = EditorConnection(output, self._handle, self._take_notice, report)
        self._sessions: dict[str, AcpSession] = {}
        self._opening = asyncio.Lock()
        self._capabilities: dict[str, Any] | None = None
        self._prompts: dict[RequestId, str] = {}
        self._methods: dict[str, tuple[type[Params], Callable[[Any], Awaitable[Any]]]] = {
            "initialize": (InitializeParams, self._initialize),
            "authenticate": (AuthenticateParams, self._authenticate),
            "session/new": (NewSessionParams, self._new_session),
            "session/load": (OpenSessionParams, self._load_session),
            "session/resume": (OpenSessionParams, self._resume_session),
            "session/list": (ListParams, self._list_sessions),
            "session/close": (SessionParams, self._close_session),
            "session/delete": (SessionParams, self._delete_session),
            "session/set_config_option": (SetOptionParams, self._set_option),
            "session/prompt": (PromptParams, self._prompt),
        }

    async def serve(self, lines: AsyncIterator[bytes]) -> None:
        """Serve until the input ends, then close all sessions."""
        try:
            await self._connection.serve(lines)
        finally:
            sessions, self._sessions = self._sessions, {}
            closing = [asyncio.create_task(session.close()) for session in sessions.values()]
            await self._connection.close()
            if closing:
                await asyncio.wait(closing, timeout=CLOSE_S)

    async def _handle(self, method: str, raw: Any, id: RequestId) -> Any:
        found = self._methods.get(method)
        if found is None:
            suggestion = suggest_similar(method, self._methods)
            raise RpcError(METHOD_NOT_FOUND, f"There is no method {method!r}.{suggestion}", _HINTS.get(method, ""))
        if self._capabilities is None and method != "initialize":
            raise RpcError(INVALID_REQUEST, f"{method} came before initialize.", "Send initialize first.")
        params = read_params(found[0], method, raw)
        if isinstance(params, PromptParams):
            self._prompts[id] = params.session_id
        try:
            return await found[1](params)
        except SessionNotFound as error:
            raise RpcError(NOT_FOUND, str(error), "session/list lists the sessions.") from error
        finally:
            self._prompts.pop(id, None)

    async def _take_notice(self, method: str, raw: Any) -> None:
        session = ""
        if method == "session/cancel":
            session = read_params(SessionParams, method, raw).session_id
        elif method == "$/cancel_request":
            session = self._prompts.get(read_params(CancelRequestParams, method, raw).request_id, "")
        if session in self._sessions:
            await self._sessions[session].cancel()

    # --- the connection ---

    async def _initialize(self, params: InitializeParams) -> Any:
        self._capabilities = params.client_capabilities or {}
        asyncio.get_running_loop().call_soon(lambda: self._connection.spawn(self._load_parts()))
        methods: list[dict[str, Any]] = [{"id": "setup", "name": "Connect a model", "description": _WAY_OUT}]
        if read_flag(self._capabilities, "auth", "terminal"):
            about = "Opens Odin in a terminal, which asks for a key or the address of a server."
            name = "Connect a model in a terminal"
            terminal = {"type": "terminal", "id": "terminal", "name": name, "description": about}
            methods.insert(0, {**terminal, "args": [SETUP_ARGUMENT], "env": {}})
        return {
            "protocolVersion": PROTOCOL_VERSION,
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
                "mcpCapabilities": {"http": True, "sse": True},
                "sessionCapabilities": {
                    "list": {},
                    "resume": {},
                    "close": {},
                    "delete": {},
                    "additionalDirectories": {},
                },
            },
            "agentInfo": {"name": "odin", "title": "Odin", "version": __version__},
            "authMethods": methods,
        }

    async def _load_parts(self) -> None:
        """Import what sessions need once the answer is written, before the editor asks for one.

        Not in a thread: two threads that import at once can wait for each other.
        """
        await self._connection.drain()
        for name in ("odin.acp.session", "odin.host.manager", "odin.server.local"):
            import_module(name)

    async def _authenticate(self, params: AuthenticateParams) -> Any:
        """Succeed if a model is connected by now; connecting one is up to the user."""
        if params.method_id != "setup":
            raise RpcError(INVALID_PARAMS, f"There is no method {params.method_id!r}.", "Use setup.")
        manager = await self._open_manager()
        client = await manager.open(self._options)
        try:
            info = await client.get_info()
            self._require_model(info.model, is_chosen=info.model_chosen)
        finally:
            await client.close()
        return {}

    def _require_model(self, model: str, *, is_chosen: bool) -> None:
        if model == OFFLINE_MODEL and not is_chosen and not _make_workspace(self._options).config.model:
            raise RpcError(AUTH_REQUIRED, "No model is connected.", _WAY_OUT)

    # --- sessions ---

    async def _new_session(self, params: NewSessionParams) -> Any:
        options = self._make_options(params)
        manager = await self._open_manager()
        client = await manager.open(options)
        try:
            info = await client.get_info()
            self._require_model(info.model, is_chosen=info.model_chosen)
        except BaseException:
            await client.close()
            raise
        session = await self._add(_share(manager, options, client), replay=False)
        return {"sessionId": session.id, "configOptions": await self._go_live(session)}

    async def _load_session(self, params: OpenSessionParams) -> Any:
        return await self._open_session(params, replay=True)

    async def _resume_session(self, params: OpenSessionParams) -> Any:
        return await self._open_session(params, replay=False)

    async def _open_session(self, params: OpenSessionParams, *, replay: bool) -> Any:
        async with self._opening:
            session = self._sessions.get(params.session_id)
            if session is not None:
                if replay:
                    await session.replay()
                return {"configOptions": await self._go_live(session)}
            opened, notices = await self._open_stored(params)
            session = await self._add(opened, replay=replay)
            for text in notices:
                session.warn(text)
            return {"configOptions": await self._go_live(session)}

    async def _open_stored(self, params: OpenSessionParams) -> "tuple[EditorSession, list[str]]":
        """Open a stored session, or attach to the process that has it open. It works in its own folder."""
        from odin.acp.session import EditorSession

        options = self._make_options(params)
        log, cwd = await asyncio.to_thread(_find_session, options, params.session_id)
        notices: list[str] = []
        if os.path.realpath(cwd) != os.path.realpath(options.cwd):
            notices.append(f"This session works in {cwd}, not in {options.cwd}.")
        options = replace(options, cwd=cwd, resume=params.session_id)
        manager = await self._open_manager()
        try:
            return _share(manager, options, await manager.open(options)), notices
        except SessionLocked:
            sessions = await self._connect(log, params.session_id)
        for unused, name in ((params.mcp_servers, "MCP servers"), (options.add_dirs, "additional directories")):
            if unused:
                notices.append(f"The {name} of the editor are not used: the session is open in another process.")
        return EditorSession(sessions.client, _find_home(options), lambda: sessions, sessions.close), notices

    def _make_options(self, params: NewSessionParams) -> Options:
        """Return the options of a session. Raise RpcError if its folder cannot be used."""
        if not os.path.isabs(params.cwd) or not os.path.isdir(params.cwd):  # noqa: PTH117, PTH112
            raise RpcError(INVALID_PARAMS, f"There is no folder {params.cwd!r}.", "cwd must be an absolute path.")
        folders = params.additional_directories or ()
        if relative := next((path for path in folders if not os.path.isabs(path)), ""):  # noqa: PTH117
            raise RpcError(INVALID_PARAMS, f"{relative!r} is not an absolute path.", "Directories must be absolute.")
        added = tuple(path for path in folders if not contains(os.path.realpath(params.cwd), os.path.realpath(path)))
        servers = {clean_name(server.name): _to_settings(server) for server in params.mcp_servers or ()}
        given = (msgspec.json.encode({"mcpServers": servers}).decode(),) if servers else ()
        return replace(self._options, cwd=params.cwd, mcp_config=given, add_dirs=added)

    async def _add(self, opened: "EditorSession", *, replay: bool) -> "AcpSession":
        from odin.acp.session import AcpSession, EditorAbilities

        abilities = EditorAbilities(
            forms=read_flag(self._capabilities, "elicitation", "form"),
            notices=read_flag(self._capabilities, "session", "notices"),
        )
        try:
            info = await opened.client.get_info()
            name = info.session
            session = AcpSession(
                opened,
                info,
                self._connection,
                abilities,
                lambda: self._sessions.pop(name, None),
            )
            self._sessions[name] = session
            await session.start(replay=replay)
        except BaseException:
            await opened.close()
            raise
        return session

    async def _go_live(self, session: "AcpSession") -> Any:
        """Return the options for the answer. Updates follow it: before, the editor may not know the session."""
        asyncio.get_running_loop().call_soon(session.go_live)
        return await session.list_options()

    def _find(self, session: str) -> "AcpSession":
        if session not in self._sessions:
            raise RpcError(NOT_FOUND, f"Session {session} is not open.", "session/load opens it.")
        return self._sessions[session]

    async def _list_sessions(self, params: ListParams) -> Any:
        listed = await asyncio.to_thread(_list_stored, self._options, params.cwd or "")
        first = 0
        if params.cursor:
            place = _read_cursor(params.cursor)
            # What has been used since is at the top; the page goes on after the same session, or where it was.
            first = next((at for at, one in enumerate(listed) if (one.modified, one.id) == place), -1) + 1
            first = first or sum(one.modified >= place[0] for one in listed)
        page = listed[first : first + PAGE]
        answer: dict[str, Any] = {"sessions": [_describe_session(one) for one in page]}
        if first + PAGE < len(listed):
            answer["nextCursor"] = _make_cursor(page[-1])
        return answer

    async def _close_session(self, params: SessionParams) -> Any:
        session = self._find(params.session_id)
        del self._sessions[params.session_id]
        await session.close()
        return {}

    async def _delete_session(self, params: SessionParams) -> Any:
        """Delete a session. Raise SessionLocked if somebody else has it open, too."""
        manager = await self._open_manager()
        here, is_known = manager.find(params.session_id), params.session_id in self._sessions
        if is_known if here is None else len(here.clients) > is_known:
            raise SessionLocked(f"Session {params.session_id} is open elsewhere.", "Close it there, then delete it.")
        if is_known:
            await self._sessions.pop(params.session_id).close()
        with suppress(SessionNotFound):  # one without a prompt was never stored
            await asyncio.to_thread(_delete_stored, self._options, params.session_id)
        return {}

    async def _set_option(self, params: SetOptionParams) -> Any:
        options = await self._find(params.session_id).set_option(params.config_id, params.value)
        return {"configOptions": options}

    async def _prompt(self, params: PromptParams) -> Any:
        return {"stopReason": await self._find(params.session_id).prompt(params.prompt)}


_HINTS = {
    "session/set_mode": "Use session/set_config_option with the option mode.",
    "session/fork": "Use `odin --resume ID --fork-session`.",
}


def _share(manager: "SessionManager", options: Options, client: "LocalClient") -> "EditorSession":
    """Return a session of this process."""
    from odin.acp.session import EditorSession

    def get_sessions() -> Sessions:
        from odin.host.workspace_sessions import WorkspaceSessions

        workspace = _make_workspace(options)
        return WorkspaceSessions(manager, workspace.store, options, workspace.environment, client)

    return EditorSession(client, _find_home(options), get_sessions, client.close)


def _find_home(options: Options) -> str:
    return make_environment(options.env, options.cwd, options.state_dir).home


def _make_workspace(options: Options) -> "Workspace":
    from odin.app.workspace import make_workspace

    return make_workspace(options)


def _find_session(options: Options, session: str) -> tuple[Path, str]:
    """Return the log and the folder of a stored session, of whatever project. Raise SessionNotFound."""
    from odin.session.log import read_header

    log = _make_workspace(options).store.find_log(session) if session.isprintable() else None
    if log is None:
        raise SessionNotFound(f"There is no session {session!r}.")
    return log, read_header(log).cwd


def _list_stored(options: Options, cwd: str) -> list[SessionSummary]:
    """Return the sessions of all projects, or those of a folder, newest first. Runs of `odin -p` are left out."""
    from odin.host.stored_sessions import ProjectSessions

    workspace = _make_workspace(options)
    stored = ProjectSessions(workspace.store, workspace.environment, everywhere=True).list_sessions()
    folder = os.path.realpath(cwd) if cwd else ""
    found = [one for one in stored if not one.headless and folder in ("", os.path.realpath(one.cwd))]
    return sorted(found, key=lambda one: (-one.modified, one.id))


def _delete_stored(options: Options, session: str) -> None:
    from odin.host.stored_sessions import ProjectSessions

    _find_session(options, session)  # only a whole id deletes something
    workspace = _make_workspace(options)
    ProjectSessions(workspace.store, workspace.environment).delete(session)


def _describe_session(one: SessionSummary) -> ListedSession:
    modified = datetime.fromtimestamp(one.modified, UTC).isoformat(timespec="seconds")
    return ListedSession(session_id=one.id, cwd=one.cwd, title=one.title or one.first, updated_at=modified)


def _make_cursor(last: SessionSummary) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode((last.modified, last.id))).decode()


def _read_cursor(cursor: str) -> tuple[float, str]:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(cursor), type=tuple[float, str])
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise RpcError(INVALID_PARAMS, "The cursor is not valid.", "Use nextCursor of the page before.") from None


def _to_settings(server: McpServer) -> dict[str, Any]:
    if server.type != "stdio":
        return {
            "type": server.type,
            "url": server.url,
            "headers": {one.name: one.value for one in server.headers or ()},
        }
    env = {one.name: one.value for one in server.env or ()}
    return {"type": "stdio", "command": server.command, "args": list(server.args or ()), "env": env}
